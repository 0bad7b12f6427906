"""design, frontier and perfect_rho: the best that an error budget buys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np

from shoal import validation
from shoal.designs.descent import Report, Settings
from shoal.designs.methods import METHODS, Method
from shoal.designs.parameters import mechanism_from_moves
from shoal.designs.problem import DesignProblem, Moves, laws_of_part
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Ending, Mechanism
from shoal.numerics.matrices import square_root
from shoal.plaintext import html_table
from shoal.rounding import upper
from shoal.validation import FloatArray

#: Share of a time limit that is left for the certificates.
CERTIFYING = 0.05


def design(
    classes: GaussianClasses,
    graph: NeighborGraph,
    method: str = "transport",
    epsilon: Any = 1.0,
    rho: Any = None,
    notion: str = "dp",
    seed: int = 0,
    *,
    scope: str = "answer",
    times: int = 1,
    noise_floor: float = 0.0,
    rho_is_total: bool = False,
    time_limit: float | None = None,
    iterations: int | None = None,
    interruptible: bool = False,
    start: Mechanism | Sequence[Mechanism] | None = None,
    progress: Report | None = None,
) -> Mechanism:
    """Choose how to perturb each label's answer so that the worst edge's δ at ε is least, within the error budget ρ.

    A stronger method never returns a worse δ than a weaker one it contains on the same problem: white, ellipsoid and
    paper ≤ covariance ≤ additive ≤ transport, and center ≤ transport (within a time limit only as far as it went).
    Designs are compared by the δ of their ideal output laws; the certificate is computed from the final parameters and
    includes what their rounding and finite precision cost: about 3e-28 for constant answers that meet (k = 12), at
    ε = 0 about 1e-15 to 1e-12 for random answers that meet.

    Args:
        classes: laws of the true answer given each label.
        graph: which labels must stay indistinguishable.
        method: ``"none"``, ``"white"``, ``"ellipsoid"``, ``"paper"`` (Algorithm 1), ``"covariance"``, ``"additive"``,
            ``"transport"`` (the strongest), ``"center"`` or ``"mean"``: each with its idea and formula in
            docs/methods.md.
        epsilon: one ε, or one per edge of the graph.
        rho: largest mean squared error per entry, (1/k) E‖released − q‖²: one number, one per label in label order, or
            a mapping from label to number.
        notion: the δ to minimize, as in :func:`shoal.privacy_curve`.
        seed: seed of the search's own randomness; equal seeds give equal mechanisms.
        scope: what leaves, as in :func:`shoal.privacy_curve`: one ``"answer"``, or the ``"table"`` of all labels'.
        times: how many independent answers about each label leave: the certificate is for all of them. Methods that
            search minimize the δ of one.
        noise_floor: least variance of independent noise in every direction, so that protection does not rest on the
            class model alone.
        rho_is_total: take ρ as the total squared error, as the paper's experiments do, instead of per entry.
        time_limit: seconds after which the best design so far is returned.
        iterations: steps per stage of the search; by default fewer on larger problems.
        interruptible: let an interrupt through instead of returning the best design so far.
        start: earlier mechanisms for the same labels to start from, such as those of a neighboring ρ.
        progress: called after each round of a search with (rounds, rounds at most, best ln δ so far). Rounds take
            about equally long: with n of N done after t seconds, at most t (N − n) / n are left of this search. Ctrl-C
            ends a search with its best.

    Returns:
        The mechanism: ``output`` laws, error ``rho`` spent per label, ``certificate``, ``release``.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> white = shoal.design(classes, graph, "white", epsilon=1.0, rho=0.1)
    >>> transport = shoal.design(classes, graph, "transport", epsilon=1.0, rho=0.1, iterations=10)
    >>> transport.certificate.delta_upper < white.certificate.delta_upper
    True
    >>> bool((transport.rho <= 0.1).all())
    True
    """
    validation.choice(list(METHODS), method=method)
    if rho is None:
        raise InputError("rho must be given: the mean squared error per entry that may be spent")
    if rho_is_total:
        k = classes.n_dims
        rho = {name: v / k for name, v in rho.items()} if isinstance(rho, Mapping) else np.divide(rho, k)
    problem = DesignProblem.of(classes, graph, epsilon, rho, notion, noise_floor, scope, times)
    chosen = METHODS[method]
    if problem.noise_floor > 0 and not chosen.perturbs:
        raise InputError(f"noise_floor: the method {method!r} adds no noise; choose another method")
    limit = math.inf if time_limit is None else validation.positive(time_limit=time_limit)
    settings = Settings(
        iterations=None if iterations is None else validation.count(iterations=iterations),
        deadline=monotonic() + (1 - CERTIFYING) * limit,
        report=progress,
        seed=validation.count(seed=seed, at_least=0),
        interruptible=interruptible,
    )
    given = [] if start is None else list(start) if isinstance(start, Sequence) else [start]
    starts = [moves_of_mechanism(problem, earlier) for earlier in given]
    notes: list[str] = []
    with settings.heed_interrupts():
        if not chosen.by_component:
            moves = chosen.solve(problem, settings, starts)
        else:
            moves = _design_by_component(problem, chosen, settings, starts)
            if chosen.searched and len(problem.components) > 1:
                from shoal.designs.methods.searches import compare_with_undivided

                moves = compare_with_undivided(problem, moves, settings, uses=chosen.uses)
    if "map" in chosen.uses and moves.map is None:
        notes.append("no map improved on independent noise: this is the additive design")
    if "shift" in chosen.uses and not moves.shift.any():
        notes.append("no shift of the means improved the design: its noise has mean zero")
    ending = settings.ending if chosen.timed else Ending.COMPLETE
    if ending is not Ending.COMPLETE:
        notes.append(ending.value)
    return replace(mechanism_from_moves(method, problem, moves, notes=tuple(notes)), ending=ending)


def _design_by_component(problem: DesignProblem, method: Method, settings: Settings, starts: Sequence[Moves]) -> Moves:
    """Moves designed for every connected component by itself: components share no edge.

    A label without neighbors is left as it is, but for the noise floor.
    """
    components = [members for members in problem.components if len(members) > 1]
    parts = []
    for number, members in enumerate(components):
        share = settings.part(1.0 / (len(components) - number)) if method.searched else settings
        parts.append(method.solve(problem.part(members), share, [start.take(members) for start in starts]))
    if len(parts) == 1 and len(components[0]) == problem.n_labels:
        return parts[0]
    result = Moves.zeros(problem, mapped=any(moves.map is not None for moves in parts))
    for members, moves in zip(components, parts, strict=True):
        result.write_part(members, moves)
    return result


def moves_of_mechanism(problem: DesignProblem, mechanism: Mechanism) -> Moves:
    """The parameters of an earlier mechanism as moves of this problem; refuse other labels or entries."""
    if mechanism.classes.labels != problem.classes.labels or mechanism.classes.n_dims != problem.n_dims:
        raise InputError("start must be a mechanism for the same labels and entries")
    n, k = problem.n_labels, problem.n_dims
    shift = np.array(np.broadcast_to(mechanism.shift, (n, k)))
    root = square_root(np.broadcast_to(mechanism.noise_cov - problem.floor_cov, (n, k, k)))
    return Moves(shift, None if mechanism.gain is None else mechanism.gain @ problem.roots, root)


def perfect_rho(
    classes: GaussianClasses, graph: NeighborGraph, method: str = "transport", *, scope: str = "answer"
) -> float:
    """Least ρ per entry at which all neighbors can be made exactly alike, δ = 0 at every ε, rounded up.

    ``"transport"``: minimax Bures–Wasserstein center of each connected component. ``"additive"``: noise and shifts.
    ``"center"``: as transport. ``"mean"``: the center of least mean error, at the error of the label farthest from it.
    Found to a relative 1e-8 (``"additive"`` beyond 24 entries to 1e-6), never too small; the price of the most
    expensive component counts. Labels that cannot be told apart in one answer cannot be told apart in a table, so the
    price is the same for every ``scope``.

    Returns:
        ρ per entry; 0 where no two labels are connected.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]])
    >>> print(f"{shoal.perfect_rho(classes, shoal.NeighborGraph.complete(classes.labels)):.4f}")
    0.2500
    """
    validation.choice([name for name, one in METHODS.items() if one.center is not None], method=method)
    problem = DesignProblem.of(classes, graph, 1.0, 1.0, scope=scope)
    price = 0.0
    for members in problem.components:
        if len(members) > 1:
            part = laws_of_part(problem.classes, members)
            price = max(price, METHODS[method].common_law(part).price)
    return price / classes.n_dims * (1 + 1e-12)


@dataclass(frozen=True)
class Frontier:
    """δ against ρ per method: ``delta_upper[method]`` and ``mechanisms[method]`` follow ``rho`` (ascending)."""

    rho: FloatArray
    epsilon: Any
    notion: str
    delta_upper: dict[str, FloatArray]
    mechanisms: dict[str, list[Mechanism]]

    def __repr__(self) -> str:
        return f"Frontier({', '.join(self.delta_upper)}; {len(self.rho)} budgets)"

    def _repr_html_(self) -> str:
        columns = [[upper(float(d)) for d in deltas] for deltas in self.delta_upper.values()]
        rows = [(f"{r:.4g}", *cells) for r, *cells in zip(self.rho, *columns, strict=True)]
        return html_table(f"δ, at most ({self.notion}), against ρ", ("ρ", *self.delta_upper), rows)


def frontier(
    classes: GaussianClasses,
    graph: NeighborGraph,
    method: str | Sequence[str] = "transport",
    epsilon: Any = 1.0,
    rho: Sequence[float] = (),
    notion: str = "dp",
    seed: int = 0,
    **options: Any,
) -> Frontier:
    """Design at several budgets, each started from the one below it; with the searched methods δ never rises with ρ.

    A design for a smaller budget is also one for a larger, so where the search does not improve on it, it is kept.
    ``delta_upper`` is the certificates', finite precision included. The other arguments, ``options`` by their names,
    are those of :func:`design`; a ``time_limit`` is for each design.

    Returns:
        δ and the mechanisms per method, in ascending order of ρ.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> points = shoal.frontier(classes, graph, "white", epsilon=1.0, rho=[4.0, 1.0])
    >>> print(points.rho, points.delta_upper["white"].round(4))
    [1. 4.] [0.1269 0.0068]
    """
    methods = [method] if isinstance(method, str) else list(method)
    budgets, _ = validation.grid(rho=rho)
    budgets = np.sort(budgets)
    mechanisms: dict[str, list[Mechanism]] = {}
    for name in methods:
        validation.choice(list(METHODS), method=name)
        done: list[Mechanism] = []
        for budget in budgets:
            mechanism = design(classes, graph, name, epsilon, float(budget), notion, seed, **options, start=done[-1:])
            known = [*done[-1:], mechanism] if METHODS[name].searched else [mechanism]
            done.append(min(reversed(known), key=lambda m: m.certificate.log_delta_upper))
        mechanisms[name] = done

    ends = {name: np.array([m.certificate.delta_upper for m in done]) for name, done in mechanisms.items()}
    return Frontier(budgets, epsilon, notion, ends, mechanisms)


def call_every_kernel() -> None:
    """Compile all kernels of designs: the strongest search on two labels, once for each scope."""
    laws = GaussianClasses([[0.0, 0.0], [1.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
    graph = NeighborGraph.complete(laws.labels)
    for scope in ("answer", "table"):
        design(laws, graph, "transport", 1.0, 0.05, scope=scope, iterations=2)
