"""``check_claim``: is a claim (ε, δ) about Gaussian laws true? Decided by a proof, with both ends of δ."""

from __future__ import annotations

from dataclasses import dataclass

from shoal import validation
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Mechanism
from shoal.proofs.proof import Proof, prove
from shoal.rounding import exactly, lower, upper

MEANINGS = {
    "proved": "δ is at most what is claimed, as a theorem about the laws as stored",
    "refuted": "δ is above what is claimed, as a theorem about the laws as stored",
    "undecided": "what is claimed lies between the ends that could be proved",
}


@dataclass(frozen=True)
class ClaimCheck:
    """Result of :func:`check_claim`: ``delta_lower`` ≤ δ(``epsilon``) ≤ ``delta_upper``, and what that makes of
    ``claimed``. ``proof`` can be saved and checked by another program."""

    verdict: str
    epsilon: float
    claimed: float
    delta_lower: float
    delta_upper: float
    worst_edge: tuple[str, str]
    proof: Proof

    def __repr__(self) -> str:
        a, b = self.worst_edge
        ends = f"{lower(self.delta_lower, 6)} ≤ δ ≤ {upper(self.delta_upper, 6)}"
        doubt = f"; not settled: {'; '.join(self.proof.unsettled)}" if self.proof.unsettled else ""
        return (
            f"{self.verdict}: δ ≤ {exactly(self.claimed)} at ε = {exactly(self.epsilon)} was claimed; {ends}, worst "
            f"for {a} against {b}; {MEANINGS[self.verdict]}{doubt}"
        )


def check_claim(
    classes: GaussianClasses | Mechanism,
    graph: NeighborGraph | None,
    epsilon: float,
    delta: float,
    *,
    scope: str | None = None,
) -> ClaimCheck:
    """Prove or refute that Gaussian laws are (ε, δ)-indistinguishable for all neighbors.

    Both ends of δ are theorems about the real numbers that the stored doubles are (:func:`shoal.prove`).

    Args:
        classes: the laws of what is released, noise included, such as ``answers.with_noise(sigma**2)``; or a mechanism,
            for which δ includes what finite precision adds.
        graph: which labels are neighbors; None for those of a mechanism.
        epsilon, delta: the claim.
        scope: ``"answer"`` or ``"table"``, as in :func:`shoal.privacy_curve`.

    Returns:
        The verdict, ``"proved"``, ``"refuted"`` or ``"undecided"``, with both ends and the proof.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]]).with_noise(3.7**2)
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> claim = shoal.testing.check_claim(classes, graph, epsilon=1.0, delta=1e-5)
    >>> print(claim.verdict, f"{claim.delta_lower:.4e} {claim.delta_upper:.4e}")
    refuted 1.1456e-05 1.1456e-05
    """
    delta = validation.probability(delta=delta)
    proof = prove(classes, graph, validation.non_negative(epsilon=epsilon), scope)
    verdict = "proved" if proof.delta_upper <= delta else "refuted" if proof.delta_lower > delta else "undecided"
    return ClaimCheck(verdict, float(epsilon), delta, proof.delta_lower, proof.delta_upper, proof.worst_edge, proof)
