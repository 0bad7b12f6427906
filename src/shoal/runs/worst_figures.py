"""δ of a whole run against ε, against the error spent, and as a theorem: the worst of all shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal.accounting.curve import falling
from shoal.designs.design import frontier
from shoal.errors import InputError
from shoal.mechanism.clip import moved_delta
from shoal.mechanism.releasable import load
from shoal.runs.blocks import answers_of
from shoal.runs.config import Config
from shoal.runs.context import DESIGN, Context

if TYPE_CHECKING:
    from shoal.proofs.proof import Proof

#: Where proofs lie in the folder of a run.
PROOFS = "proof"


@dataclass(frozen=True)
class WorstCurve:
    """Upper ends of δ at each ε, and the directed edge that has it."""

    epsilon: tuple[float, ...]
    delta_upper: tuple[float, ...]
    worst_edge: tuple[tuple[str, str], ...]


def curve_of(path: str, epsilon: Sequence[float], notion: str) -> WorstCurve:
    """One shard's, from the file of its mechanism."""
    mechanism = load(path)
    grid = list(epsilon)
    found = mechanism.released_curve(grid) if notion == "dp" else mechanism.by_kind(
        mechanism=lambda m: m.curve(grid, notion), codebook=lambda _: _dp_only()
    )  # fmt: skip
    edges = tuple((str(a), str(b)) for a, b in found.worst_edge)
    return WorstCurve(tuple(epsilon), tuple(falling(grid, found.delta_upper).tolist()), edges)


def _dp_only() -> Any:
    raise InputError("notion: what a codebook releases is accounted for as dp only")


def frontier_of(
    path: str,
    forecasts: str,
    config: Config,
    rho: Sequence[float],
    methods: Sequence[str],
    epsilon: float,
    iterations: int,
) -> dict[str, list[float]]:
    """One shard's, from the files of its mechanism and of what that was made for."""
    mechanism = load(path)
    graph = mechanism.graph
    shard = answers_of(forecasts, config)
    if shard.labels != graph.labels:
        raise InputError("dir: some households have no forecast today; ask again after a day when all are there")
    found = frontier(
        shard.laws(), graph, methods, epsilon, rho, seed=config.seed, iterations=iterations, scope=mechanism.scope,
        times=mechanism.times,
    )  # fmt: skip
    moved = mechanism.by_kind(
        mechanism=lambda m: moved_delta(m.outside, epsilon, m.times, m.scope), codebook=lambda _: 0.0
    )
    return {name: [min(float(one) + moved, 1.0) for one in found.delta_upper[name]] for name in methods}


def worst_curve(context: Context, epsilon: Sequence[float], notion: str) -> WorstCurve:
    """Over all shards."""
    works = [partial(curve_of, part.path, epsilon, notion) for part in context.listing(DESIGN).parts]
    with context.workers(len(works)) as executor:
        found = executor.every(works)
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
    works = [
        partial(frontier_of, part.path, made_of.path, context.config, rho, methods, epsilon, search)
        for part, made_of in context.listing(DESIGN).pairs
    ]
    with context.workers(len(works)) as executor:
        found = executor.every(works)
    return {name: [max(one[name][i] for one in found) for i in range(len(rho))] for name in methods}


def proofs(context: Context, epsilon: float | None, scope: str | None) -> dict[str, Proof]:
    """A proof of every shard's mechanism, written to the folder :data:`PROOFS`."""
    from shoal.proofs.proof import prove

    made: dict[str, Proof] = {}
    for part in context.listing(DESIGN).parts:
        proof = load(part.path).by_kind(
            mechanism=lambda m: prove(m, None, epsilon, scope) if m.graph.n_edges else None, codebook=lambda _: None
        )
        if proof is not None:
            made[part.key] = proof
            (context.folder / PROOFS).mkdir(exist_ok=True, mode=0o700)
            proof.save(context.folder / PROOFS / f"{part.key}.json")
    if not made:
        raise InputError("dir: this run has no Gaussian mechanism with neighbors, and nothing to prove")
    return made
