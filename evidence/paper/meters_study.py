"""The paper's household study: ARMA forecasts, six clusters, its accounting, what is really true, and our mechanisms.

Which query a line is about:

| query | law that is accounted for |
| --- | --- |
| ``as_in_paper`` | the forecast with its prediction error, as the paper has it; what it releases has no such error |
| ``as_released`` | the point forecast with the very noise designed for ``as_in_paper``: what is true of the release |
| ``no_season`` | ``as_in_paper`` for the residual without its seasonal mean, the paper's x̂ instead of x̂ + μ |
| ``no_season_released`` | what is true of that release, as ``as_released`` is of ``as_in_paper`` |
| ``trajectory`` | one draw of the predictive law: the same laws as ``as_in_paper``, but sound, with our mechanisms |
| ``point`` | the point forecast with our mechanisms |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evidence.paper import figures
from evidence.paper.clusters import cluster_graph
from evidence.paper.floors import delta_floor
from evidence.paper.homes import Home, three_homes
from evidence.paper.lines import CONVENTIONS, Line, Lines, Progress, measure, per_entry
from evidence.paper.synthetic import TOTAL_BUDGETS
from shoal import validation
from shoal.designs.design import design, frontier, perfect_rho
from shoal.designs.problem import DesignProblem
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.mechanism import Mechanism
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.forecast import forecast
from shoal.product.sources.meters.quality import Readings, as_readings
from shoal.product.sources.meters.simulate import simulate_meters
from shoal.validation import FloatArray

if TYPE_CHECKING:
    import polars as pl

#: The paper's setting.
HOUSEHOLDS, TRAIN_DAYS, HORIZON, ORDER, CLUSTERS, SEASON = 100, 15, 12, (6, 5), 6, "week"

#: Budgets of the grid at which the searched methods run: those that the paper's text names, and the last.
SEARCHED_BUDGETS = TOTAL_BUDGETS[[0, 1, 4, 7]]

#: Steps per stage of a search: enough to show the order of the methods, not to reach each one's best.
ITERATIONS = 4

#: Notions of the lines that only compare claims: what the paper plots, and the certificate.
FEWER_NOTIONS = ("pdp", "dp")

DESIGN_EPSILON = 1.0


@dataclass(frozen=True, eq=False)
class MetersStudy:
    """What :func:`reproduce_meters` found.

    ``lower_bounds[convention]`` follows ``budgets``: a δ (hockey-stick, ε = 1, ``trajectory``) that no mechanism with
    Gaussian output goes below at that budget. ``perfect`` is the ρ per entry at which δ = 0 becomes affordable.
    """

    source: str
    n_households: int
    cluster_sizes: tuple[int, ...]
    n_edges: int
    origin: datetime
    budgets: FloatArray
    lines: Lines
    homes: tuple[Home, ...]
    lower_bounds: dict[str, FloatArray]
    perfect: dict[str, float]
    files: tuple[Path, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON; no readings."""
        return {
            "study": "meters",
            "source": self.source,
            "households": self.n_households,
            "cluster_sizes": list(self.cluster_sizes),
            "edges": self.n_edges,
            "origin": self.origin.isoformat(),
            "budgets": self.budgets.tolist(),
            "homes": [home.to_dict() for home in self.homes],
            "lower_bounds": {name: bounds.tolist() for name, bounds in self.lower_bounds.items()},
            "perfect_rho_per_entry": self.perfect,
            "curves": self.lines.to_dict(),
        }

    def __str__(self) -> str:
        from evidence.paper.meters_text import text

        return text(self)


def reproduce_meters(
    readings: pl.DataFrame | Readings | None = None,
    out: Path | None = None,
    *,
    origin: datetime | str | None = None,
    source: str | None = None,
    quick: bool = False,
    stated_only: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> MetersStudy:
    """The paper's household study: 100 households, 15 days of training, ARMA(6, 5), 12 steps, six clusters.

    The last 12 steps of the readings are the horizon unless an ``origin`` is given, so that the forecasts can be
    compared with what came. White noise and the paper's method run at all eight budgets in both readings of ρ;
    ``center`` too, per entry; the searched methods at four budgets per entry with few steps (``SEARCHED_BUDGETS``,
    ``ITERATIONS``).

    Args:
        readings: household, timestamp, kw, as :func:`shoal.read_meters` returns them; of more than 100 households the
            first 100 by name are used. By default 100 simulated households.
        out: folder for figures (PNG), tables (CSV) and everything as JSON. The forecast figure shows readings of
            three homes: treat it like the data.
        origin: first instant of the horizon.
        source: what the homes are called in text and figures.
        quick: a few households, budgets and steps: does it run?
        stated_only: white noise and the paper's method at the budgets that its text names; none of our designs.
        seed: of the simulator, the clusters, the searches and the noise in the figure.
        progress: called with (stage, done, total).

    Returns:
        δ by method, budget, notion and query, three homes and the files written; ``print`` shows tables.

    >>> print(reproduce_meters(quick=True))  # doctest: +SKIP
    """
    seed = validation.count(seed=seed, at_least=0)
    if out is not None:
        figures.demand_matplotlib()
    data, name = _readings(readings, seed, 16 if quick else HOUSEHOLDS)
    epsilon = np.array([0.1, 1.0]) if quick else np.array([0.1, 0.4, 0.7, 1.0])
    budgets = TOTAL_BUDGETS[[0, 1]] if quick else TOTAL_BUDGETS[[0, 1, 4]] if stated_only else TOTAL_BUDGETS
    plan = [] if stated_only else _plan(budgets, quick)
    steps = iter(range(len(plan) + 6))

    def report(stage: str) -> None:
        if progress is not None:
            progress(stage, next(steps), len(plan) + 5)

    report("forecasts")
    forecasts = forecast(data, ORDER, TRAIN_DAYS, HORIZON, SEASON, origin=origin or _origin(data))
    graph = cluster_graph(forecasts, min(2 if quick else CLUSTERS, len(forecasts.households)), seed)
    laws, fixed = forecasts.classes("trajectory"), forecasts.classes("point")
    without = forecasts.log_mean - forecasts.season_part
    residual = GaussianClasses(without, laws.covs, laws.labels)
    fixed_residual = GaussianClasses.deterministic(without, laws.labels)
    lines: list[Line] = []
    for query, law in (("as_in_paper", laws), ("no_season", residual)):
        bare = design(law, graph, "none", DESIGN_EPSILON, 1.0)
        lines += measure(bare, graph, epsilon, query=query, method="none", convention="any", budget=0.0, rho=0.0)
    bounds: dict[str, list[float]] = {name: [] for name in CONVENTIONS}
    first: Mechanism | None = None
    for method, convention in ((m, c) for m in ("white", "paper") for c in CONVENTIONS):
        report(f"{method}, budget {convention}")
        for budget in map(float, budgets):
            rho = per_entry(budget, convention, HORIZON)
            named: dict[str, Any] = {"method": method, "convention": convention, "budget": budget, "rho": rho}
            mechanism = design(laws, graph, method, DESIGN_EPSILON, rho)
            lines += measure(mechanism, graph, epsilon, query="as_in_paper", **named)
            lines += _released(mechanism, fixed, epsilon, query="as_released", **named)
            other = design(residual, graph, method, DESIGN_EPSILON, rho)
            lines += measure(other, graph, epsilon, query="no_season", notions=FEWER_NOTIONS, **named)
            lines += _released(other, fixed_residual, epsilon, query="no_season_released", **named)
            if method == "white":
                bounds[convention].append(delta_floor(DesignProblem.of(laws, graph, DESIGN_EPSILON, rho)))
            elif first is None:
                first = mechanism
    for query, method, rhos in plan:
        report(f"{method}, {query}")
        found = frontier(
            laws if query == "trajectory" else fixed, graph, method, DESIGN_EPSILON, rhos.tolist(), seed=seed,
            iterations=2 if quick else ITERATIONS,
        )  # fmt: skip
        for rho, mechanism in zip(map(float, rhos), found.mechanisms[method], strict=True):
            lines += measure(
                mechanism, graph, epsilon, query=query, method=method, convention="per entry", budget=rho, rho=rho
            )
    assert first is not None
    study = MetersStudy(
        source=source or name,
        n_households=len(forecasts.households),
        cluster_sizes=tuple(sorted(np.bincount(graph.components).tolist(), reverse=True)),
        n_edges=graph.n_edges,
        origin=forecasts.origin,
        budgets=np.array(budgets),
        lines=Lines(epsilon, tuple(lines)),
        homes=three_homes(data, forecasts, replace(first, classes=fixed), seed),
        lower_bounds={name: np.array(values) for name, values in bounds.items()},
        perfect={"trajectory": perfect_rho(laws, graph), "point": perfect_rho(fixed, graph)},
    )
    report("done")
    if out is None:
        return study
    from evidence.paper.meters_text import write

    return replace(study, files=write(study, Path(out)))


def _plan(budgets: FloatArray, quick: bool) -> list[tuple[str, str, FloatArray]]:
    """(query, method, budgets per entry) of the designs for the sound queries."""
    searched = budgets[:1] if quick else SEARCHED_BUDGETS
    plan = [("trajectory", "center", budgets), ("trajectory", "transport", searched), ("point", "center", budgets)]
    if not quick:
        plan += [("trajectory", m, searched) for m in ("covariance", "additive")] + [("point", "additive", searched)]
    return plan


def _released(mechanism: Mechanism, fixed: GaussianClasses, epsilon: FloatArray, **named: Any) -> list[Line]:
    """The noise of a mechanism on the point forecasts themselves.

    Algorithm 1 often puts next to no noise in some directions, where the forecast is then seen as it is and δ is near
    1. A millionth of the budget is added as white noise, to be able to say so in double precision; as it is
    post-processing, the hockey-stick δ of the release is at least what is found here.
    """
    same_noise = replace(mechanism, classes=fixed).output.with_noise(1e-6 * named["rho"])
    return measure(same_noise, mechanism.graph, epsilon, notions=FEWER_NOTIONS, **named)


def _readings(readings: pl.DataFrame | Readings | None, seed: int, most: int) -> tuple[Readings, str]:
    import polars as pl

    if readings is None:
        return as_readings(simulate_meters(most, TRAIN_DAYS + 1, seed=seed)), "simulated households"
    data = as_readings(readings)
    names = data.frame["household"].unique().sort()
    if len(names) < 2:
        raise InputError("readings must hold at least two households: one has nobody to hide among")
    if len(names) > most:
        chosen = names.head(most).implode()
        data = as_readings(data.frame.filter(pl.col("household").is_in(chosen)))
    return data, "the readings given"


def _origin(readings: Readings) -> datetime:
    """The start of the last ``HORIZON`` steps."""
    end = readings.find_origin(None)
    width = int(readings.step.total_seconds() * 1_000_000)
    return clock.instant_in_zone(end - HORIZON * width, readings.time_zone)
