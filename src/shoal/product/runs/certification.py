"""The certificate of a run under an ε, looked at from outside: δ(ε), δ against ρ, proofs. Nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from shoal.errors import InputError
from shoal.product.runs.config import Config
from shoal.product.runs.folder import DESIGN
from shoal.product.runs.work import Work

if TYPE_CHECKING:
    from shoal.proofs.proof import Proof

#: The folder of proofs.
PROOFS = "proof"


class WorstCurve(NamedTuple):
    """Upper ends of δ at each ε, the directed edge that has it, and the method that was asked for."""

    delta_upper: tuple[float, ...]
    worst_edge: tuple[tuple[str, str], ...]
    method: str


def worst_curve(work: Work, epsilon: Sequence[float], notion: str) -> WorstCurve:
    """δ(ε) over all pairs of the run."""
    works = [partial(_curve_of, part.path, list(epsilon), notion) for part in work.listing(DESIGN).parts]
    with work.workers(len(works)) as executor:
        points = zip(*executor.every(works), strict=True)
    worst = [max(shards, key=lambda point: point[0]) for shards in points]
    method = work.kind.method(work.settings)
    return WorstCurve(tuple(delta for delta, _ in worst), tuple(edge for _, edge in worst), method)


def worst_frontier(
    work: Work, rho: Sequence[float], methods: Sequence[str], epsilon: float | None, search: int
) -> dict[str, list[float]]:
    """Method -> the δ that each budget, ascending, leaves in the worst crowd of the run."""
    at = work.settings.stated_epsilon if epsilon is None else epsilon
    works = [
        partial(_frontier_of, part.path, block.path, work.settings, sorted(rho), list(methods), at, search)
        for part, block in work.listing(DESIGN).pairs
    ]
    with work.workers(len(works)) as executor:
        shards = executor.every(works)
    return {name: [max(deltas) for deltas in zip(*(shard[name] for shard in shards), strict=True)] for name in methods}


def prove_shards(work: Work, epsilon: float | None, scope: str | None) -> dict[str, Proof]:
    """A proof of every shard's mechanism, written to ``proof/``."""
    from shoal.mechanism.releasable import load
    from shoal.proofs.proof import prove

    proofs: dict[str, Proof] = {}
    for part in work.listing(DESIGN).parts:
        proof = load(part.path).by_kind(
            mechanism=lambda m: prove(m, None, epsilon, scope) if m.graph.n_edges else None, codebook=lambda _: None
        )
        if proof is not None:
            proofs[part.key] = proof
            (work.folder / PROOFS).mkdir(exist_ok=True, mode=0o700)
            proof.save(work.folder / PROOFS / f"{part.key}.json")
    if not proofs:
        raise InputError("dir: this run has no Gaussian mechanism with neighbors, and nothing to prove")
    return proofs


def _curve_of(path: str, epsilon: list[float], notion: str) -> list[tuple[float, tuple[str, str]]]:
    """One shard's δ at each ε, rounded up, with the directed edge that has it."""
    from shoal.accounting.curve import falling
    from shoal.mechanism.mechanism import Mechanism
    from shoal.mechanism.releasable import load

    mechanism = load(path)
    if notion == "dp":
        curve = mechanism.released_curve(epsilon)
    elif isinstance(mechanism, Mechanism):
        curve = mechanism.curve(epsilon, notion)
    else:
        raise InputError("notion: what a codebook releases is accounted for as dp only")
    edges = [(str(a), str(b)) for a, b in curve.worst_edge]
    return list(zip(falling(epsilon, curve.delta_upper).tolist(), edges, strict=True))


def _frontier_of(
    path: str, block: str, config: Config, rho: list[float], methods: list[str], epsilon: float, iterations: int
) -> dict[str, list[float]]:
    """One shard's δ by method and budget, from the files of its mechanism and of what that was made for."""
    from shoal.designs.design import frontier
    from shoal.mechanism.releasable import load
    from shoal.product.runs.blocks import answers_of

    mechanism, shard = load(path), answers_of(block, config)
    graph, scope, times = mechanism.graph, mechanism.scope, mechanism.times
    if shard.labels != graph.labels:
        raise InputError("dir: some labels have no answer today; ask again after a day when all have one")
    figures = frontier(shard.laws(), graph, methods, epsilon, rho, iterations=iterations, scope=scope, times=times)
    return {name: [float(delta) for delta in figures.delta_upper[name]] for name in methods}
