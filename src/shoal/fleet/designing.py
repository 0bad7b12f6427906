"""The design of one shard: every group of it for itself, by a search whose length does not depend on the clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.engine.cost import added_error
from shoal.engine.designing import all_alike, laws
from shoal.fleet.fitting import shard_graph
from shoal.fleet.store import put_whole
from shoal.ledger.bounds import MechanismBound, mechanism_bound
from shoal.mechanisms.design import design
from shoal.mechanisms.mechanism import Mechanism
from shoal.mechanisms.target import meet
from shoal.meters.forecast import Forecasts
from shoal.privacy.curve import round_up

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


def design_shard(task: DesignTask) -> dict[str, Any]:
    """Write the mechanism of a shard; what it promises and costs."""
    forecasts = Forecasts.load(task.forecasts)
    graph = shard_graph(forecasts, task.readings)
    classes = laws(forecasts, task.query)
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
    return promised(mechanism, forecasts, task.epsilon)


def promised(mechanism: Mechanism, forecasts: Forecasts, epsilon: float) -> dict[str, Any]:
    """What a shard's mechanism promises, from its final parameters, and sums from which the fleet's cost is made."""
    certificate = mechanism.certificate
    error = added_error(mechanism)
    groups = len(set(mechanism.graph.components.tolist()))
    return {
        "digest": mechanism.digest,
        "households": len(mechanism.classes.labels),
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
        "bound": asdict(mechanism_bound(mechanism, epsilon)),
    }


def bound_from(content: dict[str, Any]) -> MechanismBound:
    """A bound as a shard's receipt holds it."""
    numbers = {name: tuple(values) for name, values in content.items() if name != "digest"}
    return MechanismBound(digest=content["digest"], **numbers)
