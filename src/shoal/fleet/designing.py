"""The design of one shard: every group of it for itself, by a search whose length does not depend on the clock."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.accounting.curve import round_up
from shoal.classes import GaussianClasses
from shoal.designs.design import design
from shoal.designs.reuse import REDESIGN, redesigned, reuse
from shoal.designs.target import meet
from shoal.engine.cost import added_error
from shoal.engine.designing import laws
from shoal.fleet.fitting import shard_graph
from shoal.fleet.store import put_whole
from shoal.ledger.bounds import ORDERS, MechanismBound, bound_at
from shoal.mechanism import Mechanism
from shoal.meters.forecast import Forecasts
from shoal.report.homes import all_alike

#: Steps of the search in each stage of a design.
ITERATIONS = 10


@dataclass(frozen=True)
class DesignTask:
    """Which shard to design for, what is asked, and where to write. One of ``delta`` and ``rho`` is None."""

    readings: str
    forecasts: str
    out: str
    query: str
    method: str
    epsilon: float
    delta: float | None
    rho: float | None
    iterations: int
    seed: int
    previous: str | None = None  #: the mechanism of the day before
    rho_tolerance: float = 0.0


def design_shard(task: DesignTask) -> dict[str, Any]:
    """Write the mechanism of a shard; what it promises and costs."""
    forecasts = Forecasts.load(task.forecasts)
    classes = laws(forecasts, task.query)
    if task.previous is not None:
        mechanism, decisions = _from_yesterday(task, classes)
        put_whole(task.out, mechanism.save)
        return {**promised(mechanism, forecasts), "decisions": decisions}
    graph = shard_graph(forecasts, task.readings)
    if task.delta is not None:
        mechanism = meet(
            classes,
            graph,
            method=task.method,
            epsilon=task.epsilon,
            delta=task.delta,
            seed=task.seed,
            iterations=task.iterations,
        )
    else:
        mechanism = design(
            classes, graph, task.method, task.epsilon, task.rho, seed=task.seed, iterations=task.iterations
        )
    put_whole(task.out, mechanism.save)
    return promised(mechanism, forecasts)


def _from_yesterday(task: DesignTask, classes: GaussianClasses) -> tuple[Mechanism, dict[str, int]]:
    """Yesterday's design where it still holds, group by group, and a new one where not.

    Groups stay as the ledger has fixed them. A member without a law today keeps yesterday's: the others still hide
    beside it, and nothing about it is released.
    """
    old = Mechanism.load(task.previous or "")
    today = kept_roster(old.classes, classes)
    if task.delta is None:
        made = design(today, old.graph, task.method, task.epsilon, task.rho, seed=task.seed, iterations=task.iterations)
        return made, {REDESIGN: len(set(old.graph.components.tolist()))}
    found = reuse(old, today, delta=task.delta, rho_tolerance=task.rho_tolerance, graph=old.graph)
    counts = Counter(group.decision for group in found.groups)
    return redesigned(found, method=task.method, seed=task.seed, iterations=task.iterations), dict(counts)


def kept_roster(before: GaussianClasses, now: GaussianClasses) -> GaussianClasses:
    """Laws of all earlier labels, in their order: today's, and yesterday's where there is none today."""
    place = {name: i for i, name in enumerate(now.labels)}
    at = np.array([place.get(name, -1) for name in before.labels])
    there = at >= 0
    means = np.where(there[:, None], now.means[at], before.means)
    if before.is_diagonal and now.is_diagonal:
        old, new = (np.broadcast_to(c.stored_variances, c.means.shape) for c in (before, now))
        return GaussianClasses.diagonal(means, np.where(there[:, None], new[at], old), before.labels)
    old, new = (np.broadcast_to(c.stored_covs, (*c.means.shape, c.n_dims)) for c in (before, now))
    return GaussianClasses(means, np.where(there[:, None, None], new[at], old), before.labels)


def promised(mechanism: Mechanism, forecasts: Forecasts) -> dict[str, Any]:
    """What a shard's mechanism promises, from its final parameters, and sums from which the fleet's cost is made."""
    certificate = mechanism.certificate
    error = added_error(mechanism)
    groups = len(set(mechanism.graph.components.tolist()))
    return {
        "digest": mechanism.digest,
        "households": len(mechanism.classes.labels),
        "first": forecasts.households[0],
        "groups": groups,
        "edges": int(mechanism.graph.n_edges),
        "delta": round_up(certificate.delta_upper),
        "notion": certificate.released_notion,
        "worst_edge": list(certificate.worst_edge),
        "lower_bound": certificate.lower_bound,
        "rho_sum": float(mechanism.rho.sum()),
        "rho_largest": float(mechanism.rho.max()),
        "squared_kw": float(error.mse.sum()),
        "squared_kw_largest": float(error.by_household.max()),
        "bias_kw": float(error.bias.sum()),
        "forecast_kw": float(forecasts.power.sum()),
        "entries": int(np.prod(forecasts.log_mean.shape)),
        "notes": list(mechanism.notes),
        "all_alike": all_alike(mechanism.output),
        "bound": asdict(ledger_bound(mechanism)),
    }


def ledger_bound(mechanism: Mechanism) -> MechanismBound:
    """What the ledger decides by: Rényi divergences, the certificate at the design's ε, and a bound of δ(0).

    The total variation δ(0) is at most √(KL/2) (Pinsker), and KL is at most the divergence of any order above 1: no
    pass over the edges beyond those that the certificate and the divergences take.
    """
    found = bound_at(mechanism, [], ORDERS)
    least = min(found.divergence_upper, default=math.inf)
    certain = {0.0: min(math.sqrt(least / 2) * (1 + 1e-12), 1.0)}
    if mechanism.notion == "dp":
        epsilon = float(mechanism.epsilon.max(initial=0.0))
        certain[epsilon] = min(mechanism.certificate.delta_upper, certain.get(epsilon, 1.0))
    return found.with_points_of(MechanismBound.of_points(mechanism.digest, certain, {}))


def bound_from(content: dict[str, Any]) -> MechanismBound:
    """A bound as a shard's receipt holds it."""
    numbers = {name: tuple(values) for name, values in content.items() if name != "digest"}
    return MechanismBound(digest=content["digest"], **numbers)
