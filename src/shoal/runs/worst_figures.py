"""δ of a whole run against ε, and against the error spent: the worst of all shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.clip import moved_delta
from shoal.codebooks.codebook import Codebook
from shoal.designs.design import frontier
from shoal.errors import InputError
from shoal.mechanism import Mechanism
from shoal.mechanism_reader import load
from shoal.runs.context import DESIGN, Context
from shoal.runs.fitted import fitted
from shoal.workers.executor import Failure


@dataclass(frozen=True)
class WorstCurve:
    """Upper ends of δ at each ε, and the directed edge that has it."""

    epsilon: tuple[float, ...]
    delta_upper: tuple[float, ...]
    worst_edge: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CurveTask:
    mechanism: str
    epsilon: tuple[float, ...]
    notion: str


@dataclass(frozen=True)
class FrontierTask:
    mechanism: str
    forecasts: str
    query: str
    unit: str
    methods: tuple[str, ...]
    epsilon: float
    rho: tuple[float, ...]
    iterations: int
    seed: int


def curve_of(task: CurveTask) -> WorstCurve:
    """One shard's."""
    mechanism = load(task.mechanism)
    grid = list(task.epsilon)
    if isinstance(mechanism, Codebook):
        if task.notion != "dp":
            raise InputError("notion: what a codebook releases is accounted for as dp only")
        found = mechanism.curve(grid)
    else:
        found = mechanism.released_curve(grid) if task.notion == "dp" else mechanism.curve(grid, task.notion)
    edges = tuple((str(a), str(b)) for a, b in found.worst_edge)
    return WorstCurve(task.epsilon, tuple(float(one) for one in found.delta_upper), edges)


def frontier_of(task: FrontierTask) -> dict[str, list[float]]:
    """One shard's."""
    mechanism = load(task.mechanism)
    graph = mechanism.graph
    shard = fitted(task.forecasts, task.query, task.unit)
    if shard.labels != graph.labels:
        raise InputError("dir: some households have no forecast today; ask again after a day when all are there")
    found = frontier(
        shard.laws(), graph, task.methods, task.epsilon, task.rho, seed=task.seed,
        iterations=task.iterations, scope=mechanism.scope,
        times=1 if isinstance(mechanism, Codebook) else mechanism.times,
    )  # fmt: skip
    moved = 0.0
    if isinstance(mechanism, Mechanism):
        moved = moved_delta(mechanism.outside, task.epsilon, mechanism.times, mechanism.scope)
    return {name: [min(float(one) + moved, 1.0) for one in found.delta_upper[name]] for name in task.methods}


def worst_curve(context: Context, epsilon: Sequence[float], notion: str) -> WorstCurve:
    """Over all shards."""
    tasks = [CurveTask(part.path, tuple(epsilon), notion) for part in context.listing(DESIGN).parts]
    found = _each(context, curve_of, tasks)
    worst = [max(range(len(found)), key=lambda s, i=i: found[s].delta_upper[i]) for i in range(len(epsilon))]  # type: ignore[misc]
    return WorstCurve(
        tuple(epsilon),
        tuple(found[s].delta_upper[i] for i, s in enumerate(worst)),
        tuple(found[s].worst_edge[i] for i, s in enumerate(worst)),
    )


def worst_frontier(
    context: Context, rho: Sequence[float], methods: Sequence[str], epsilon: float, search: int
) -> dict[str, list[float]]:
    """Over all shards."""
    config = context.config
    tasks = [
        FrontierTask(
            part.path,
            made_of.path,
            config.query,
            config.answers,
            tuple(methods),
            epsilon,
            tuple(rho),
            search,
            config.seed,
        )
        for part, made_of in context.listing(DESIGN).pairs
    ]
    found = _each(context, frontier_of, tasks)
    return {name: [max(one[name][i] for one in found) for i in range(len(rho))] for name in methods}


def _each(context: Context, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    found = []
    with context.workers(len(tasks)) as executor:
        for _, result in executor.run(work, tasks):
            if isinstance(result, Failure):
                raise InputError(result.message)
            found.append(result)
    return found
