"""``compare``: every method on one problem, at one (ε, δ) and at one error."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.risk import identification_risk
from shoal.designs.calibration import calibrate
from shoal.designs.design import design
from shoal.designs.methods import METHODS
from shoal.errors import CertificationError, InputError, UnreachableError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Mechanism
from shoal.plaintext import html_table
from shoal.rounding import exactly, percent, upper
from shoal.validation import FloatArray, IndexArray

#: Methods in the order of the table, weakest first; the last one sets the error at which all are compared.
COMPARED = ("none", "white", "ellipsoid", "paper", "covariance", "additive", "transport")
#: How a method is printed.
PRINTED = {"none": "unprotected", "transport": "shoal"}
COLUMNS = ("method", "ρ", "error", "δ", "δ, same error", "noise", "named")


@dataclass(frozen=True)
class Comparison:
    """Result of :func:`compare`: ``rows``, one mapping per method, with None where a method does not get there.

    ``rho`` is the least budget found at which the method meets (ε, δ), the largest of any label; ``error`` the root of
    the mean squared error per entry over all labels at that budget, in the answers' unit; ``delta`` what it is then.
    ``noise_share`` is the share of that ρ that is fresh noise. ``delta_at_equal_error`` and ``naming`` are those of the
    method at the budgets of the last one: the δ, and how often the best attacker names the label behind an answer (or a
    row of the table), at most.
    """

    rows: list[dict[str, Any]]
    epsilon: float
    delta: float
    scope: str

    @property
    def frame(self) -> Any:
        """The rows as a Polars frame."""
        try:
            pl = import_module("polars")
        except ModuleNotFoundError:
            raise InputError("Comparison.frame needs Polars: pip install 'shoal[run]'; rows has the same") from None
        return pl.DataFrame(self.rows, infer_schema_length=None)

    @property
    def _printed_rows(self) -> list[tuple[str, ...]]:
        """The rows as printed texts."""
        forms = {"noise_share": lambda x: f"{math.floor(100 * x)} %", "naming": percent}
        names = ("rho", "error", "delta", "delta_at_equal_error", *forms)

        def cell(name: str, value: float | None) -> str:
            return "–" if value is None else forms.get(name, lambda x: upper(x, 3))(value)

        return [
            (PRINTED.get(row["method"], row["method"]), *(cell(name, row[name]) for name in names)) for row in self.rows
        ]

    @property
    def title(self) -> str:
        """Heading of the printed table: the guarantee and its scope."""
        holds = {"answer": "one answer", "table": "the whole table"}[self.scope]
        return f"Least error for (ε, δ) = ({exactly(self.epsilon)}, {exactly(self.delta)}), {holds}"

    def __repr__(self) -> str:
        lines = [COLUMNS, *self._printed_rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = ["  ".join([c[0].ljust(widths[0]), *map(str.rjust, c[1:], widths[1:])]).rstrip() for c in lines]
        return "\n".join([self.title, *texts])

    def _repr_html_(self) -> str:
        return html_table(self.title, COLUMNS, self._printed_rows)


def compare(
    classes: GaussianClasses,
    graph: NeighborGraph,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    *,
    methods: Sequence[str] | None = None,
    scope: str = "answer",
    seed: int = 0,
    time_limit: float | None = None,
    iterations: int | None = None,
) -> Comparison:
    """Methods compared on one problem: the error that each needs for (ε, δ), and its δ at one error.

    Args:
        classes: laws of the true answer given each label, or constants.
        graph: which labels must stay indistinguishable.
        epsilon, delta: the guarantee.
        methods: which to compare; by default all, the ellipsoid for constants only. The last is the one whose error
            the others get; ``"transport"``, printed as "shoal", by default.
        scope: as in :func:`shoal.design`.
        seed: seed of the searches and of the estimate of ``naming``.
        time_limit: seconds for all searches together.
        iterations: steps per stage of a search, as in :func:`shoal.design`; no clock is looked at.

    Returns:
        The table, printed as one; ``rows`` are mappings, ``frame`` a Polars frame.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> table = shoal.compare(classes, graph, epsilon=1.0, delta=1e-5, methods=["white", "transport"])
    >>> [(row["method"], round(row["error"], 2)) for row in table.rows]
    [('white', 5.28), ('transport', 0.5)]
    """
    epsilon, delta = validation.non_negative(epsilon=epsilon), validation.probability(delta=delta, below_one=True)
    constant = not classes.stored_variances.any()
    if methods is None:
        methods = [name for name in COMPARED if name in METHODS and (constant or name != "ellipsoid")]
    names = [validation.choice(list(METHODS), methods=name) for name in methods]
    if not names:
        raise InputError("methods must name at least one method")
    limit = math.inf if time_limit is None else validation.positive(time_limit=time_limit)
    end, left = time.monotonic() + limit, 2 * sum(METHODS[name].searched for name in names)

    def options(name: str) -> dict[str, Any]:
        nonlocal left
        chosen: dict[str, Any] = {"seed": seed, "scope": scope, "iterations": iterations}
        if METHODS[name].searched and limit < math.inf:
            chosen["time_limit"] = max(end - time.monotonic(), 0.1) / max(left, 1)
            left -= 1
        return chosen

    def reach(name: str) -> Mechanism | None:
        try:
            return calibrate(classes, graph, name, epsilon, delta, prove=False, **options(name))
        except (UnreachableError, CertificationError):
            return None

    reached: dict[str, Mechanism | None] = {}
    for name in names:
        reached[name] = _best_contained(name, reach(name), reached, lambda m: float(m.rho.max()))
    last, equal = reached[names[-1]], dict.fromkeys(names, reached[names[-1]])
    if last is not None:
        budget = np.maximum(last.rho, np.finfo(np.float64).tiny)
        seen: dict[str, Mechanism | None] = {}
        for name in names[:-1]:
            own = design(classes, graph, name, epsilon, budget, **options(name))
            seen[name] = _best_contained(name, own, seen, lambda m: m.certificate.log_delta_upper)
        equal |= seen
    rows = [_comparison_row(name, reached[name], equal[name], graph, scope, seed) for name in names]
    return Comparison(rows, epsilon, delta, scope)


def _best_contained(
    name: str, own: Mechanism | None, before: dict[str, Mechanism | None], figure: Callable[[Mechanism], float]
) -> Mechanism | None:
    """The mechanism with the least ``figure``: a search's own, or that of a weaker method, which it contains."""
    candidates = [own, *before.values()] if METHODS[name].searched else [own]
    return min((one for one in candidates if one is not None), key=figure, default=None)


def _comparison_row(
    name: str, least: Mechanism | None, equal: Mechanism | None, graph: NeighborGraph, scope: str, seed: int
) -> dict[str, Any]:
    naming = None if equal is None else identification_risk(equal.output, graph, scope=scope, seed=seed).success_upper
    return {
        "method": name,
        "rho": None if least is None else float(least.rho.max()),
        "error": None if least is None else float(np.sqrt(least.rho.mean())),
        "delta": None if least is None else least.certificate.delta_upper,
        "delta_at_equal_error": None if equal is None else equal.certificate.delta_upper,
        "noise_share": None if least is None else least.certificate.noise_share,
        "naming": naming,
    }


#: What is set beside averages, in this order; and labels of whole crowds that are compared at most.
BESIDE_AVERAGES, MOST_LABELS = ("none", "white", "ellipsoid", "paper", "transport"), 60


def compare_with_averages(
    values: FloatArray, crowd: IndexArray, epsilon: float, delta: float, *, time_limit: float = 60.0
) -> Comparison:
    """Ways to protect constants (n, k), each hidden in its crowd (n,), and one average per crowd as the last row.

    Rows with a negative crowd are left out. Of many crowds some, evenly chosen, stand for all: those of about 60
    labels. Averages have ε = 0 and δ = 0 within a crowd.
    >>> import numpy as np
    >>> values, crowd = np.arange(12.0).reshape(6, 2), np.array([0, 0, 0, 1, 1, 1])
    >>> table = compare_with_averages(values, crowd, epsilon=1.0, delta=1e-5)
    >>> table.rows[-1]["method"], round(table.rows[-1]["error"], 3), round(table.rows[-1]["naming"], 3)
    ('averages', 1.633, 0.333)
    """
    chosen = sample_whole_crowds(crowd)
    rows, groups = np.ascontiguousarray(values[chosen], dtype=np.float64), crowd[chosen]
    classes = GaussianClasses.deterministic(rows)
    graph = NeighborGraph.within_groups(classes.labels, groups.tolist())
    methods = [name for name in BESIDE_AVERAGES if name in METHODS]
    compared = compare(classes, graph, epsilon, delta, methods=methods, time_limit=time_limit)
    means = np.stack([rows[groups == number].mean(axis=0) for number in groups])
    squares = ((rows - means) ** 2).mean(axis=1)
    averages = {
        "method": "averages",
        "rho": float(squares.max()),
        "error": float(np.sqrt(squares.mean())),
        "delta": 0.0,
        "delta_at_equal_error": 0.0,
        "noise_share": 0.0,
        "naming": len(np.unique(groups)) / len(rows),
    }
    return replace(compared, rows=[*compared.rows, averages])


def sample_whole_crowds(crowd: IndexArray) -> IndexArray:
    """Positions of the labels of evenly chosen whole crowds that stand for all: about 60 labels."""
    numbers = np.unique(crowd[crowd >= 0])
    if not len(numbers):
        raise InputError("crowd must put at least one label into a crowd")
    fitting = max(1, int(MOST_LABELS * len(numbers) / np.count_nonzero(crowd >= 0)))
    numbers = numbers[np.unique(np.linspace(0, len(numbers) - 1, min(fitting, len(numbers))).astype(int))]
    return np.flatnonzero(np.isin(crowd, numbers)).astype(np.int64)
