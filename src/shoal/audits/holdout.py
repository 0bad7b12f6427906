"""The privacy loss that real, held-out answers show, beside the one that was promised.

For a held-out answer q of label X, released as q̃, and a neighbor X', the loss under the claimed laws is
L = ln p_X(q̃)/p_X'(q̃). If the class laws are right, Pr(L > ε) is the edge's PDP figure and E(1 − e^{ε − L})₊ its
hockey-stick δ. If they are wrong, the observed averages show it, whatever the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting import tails
from shoal.accounting.releases import Releases
from shoal.accounting.risk import bernstein_interval
from shoal.audits import trials
from shoal.audits.attacks import ResidualLaws
from shoal.audits.audit import edge_promises
from shoal.audits.verdict import SHOWN, Figures
from shoal.errors import InputError
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Mechanism
from shoal.rounding import lower, upper
from shoal.validation import FloatArray


@dataclass(frozen=True, eq=False)
class ObservedLoss(Figures):
    """Result of :func:`observed_loss`. Arrays are (n_edges, 2); direction 0 is as in ``edges``, 1 the reverse.

    ``exceeded`` is the observed Pr(L > ε), ``delta`` the observed E(1 − e^{ε − L})₊; their ``_lower`` ends hold for all
    edges at once with the stated confidence, for independent held-out answers. ``pooled`` averages ``delta`` over all
    answers and their neighbors, beside its lower end and the promise averaged alike.
    """

    verdict: str
    edges: tuple[tuple[str, str], ...]
    epsilon: FloatArray
    n_answers: tuple[int, ...]
    confidence: float
    exceeded: FloatArray
    exceeded_lower: FloatArray
    exceeded_promise: FloatArray
    delta: FloatArray
    delta_lower: FloatArray
    delta_promise: FloatArray
    pooled: float
    pooled_lower: float
    pooled_promise: float

    def __repr__(self) -> str:
        return (
            f"ObservedLoss({self.verdict}: δ observed {upper(self.pooled)} on average, "
            f"promised {upper(self.pooled_promise)}, {sum(self.n_answers)} held-out answers)"
        )

    def __str__(self) -> str:
        lines = [
            f"held-out answers: {self.verdict}, at confidence {self.confidence:g}, {sum(self.n_answers)} answers",
            f"on average: δ observed {upper(self.pooled)}, at least {lower(self.pooled_lower)}, "
            f"promised {upper(self.pooled_promise)}",
            f"{'from → to':<24}{'δ observed':>12}{'at least':>12}{'promised':>12}{'Pr(L>ε)':>12}{'promised':>12}",
        ]
        for flat in np.argsort(-self.delta, axis=None, kind="stable")[:SHOWN]:
            e, d = np.unravel_index(int(flat), self.delta.shape)
            a, b = self.edges[e] if d == 0 else self.edges[e][::-1]
            lines.append(
                f"{a + ' → ' + b:<24}{upper(float(self.delta[e, d])):>12}"
                f"{lower(float(self.delta_lower[e, d])):>12}{upper(float(self.delta_promise[e, d])):>12}"
                f"{upper(float(self.exceeded[e, d])):>12}{upper(float(self.exceeded_promise[e, d])):>12}"
            )
        return "\n".join(lines)


def observed_loss(
    mechanism: Mechanism,
    answers: Any,
    graph: NeighborGraph | None = None,
    *,
    epsilon: float | None = None,
    confidence: float = 0.95,
    release: trials.Release | None = None,
    draws: int = 16,
    seed: int = 0,
) -> ObservedLoss:
    """Privacy loss of held-out answers, released through the mechanism, against every neighbor.

    Args:
        mechanism: what was promised, and how answers are perturbed.
        answers: held-out true answers per label, (m, k) or (k,), that played no part in fitting the class laws.
        graph: edges to look at, by default the mechanism's.
        epsilon: where the loss is cut; by default the design's ε (the largest, if edges differ).
        confidence: of the lower ends, over all edges; answers count as independent of each other, so thin out a
            series before use.
        release: as in :func:`shoal.audit`.
        draws: releases of each answer, averaged; they lessen the noise's share in the estimate, not the answers'.
        seed: seed of the noise, if it is seeded.

    Returns:
        Observed Pr(L > ε) and E(1 − e^{ε − L})₊ per edge and direction with lower ends, beside what is promised.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=1.0)
    >>> from shoal.audits.trials import seeded_release
    >>> seeded = seeded_release(mechanism, 0)  # repeatable, not private
    >>> held_out = {"a": [[-0.3], [0.4], [1.2]], "b": [[0.2], [1.1], [1.9]]}
    >>> loss = shoal.observed_loss(mechanism, held_out, release=seeded)
    >>> loss.verdict, loss.delta.shape
    ('consistent', (1, 2))
    """
    graph = mechanism.graph if graph is None else graph
    confidence = validation.probability(confidence=confidence, below_one=True, above_zero=True)
    draws = validation.count(draws=draws)
    cut = float(mechanism.epsilon.max()) if epsilon is None else validation.non_negative(epsilon=epsilon)
    output = mechanism.output
    pairs = Releases.of(output).pairs(graph)
    if len(pairs) == 0:
        raise InputError("graph has no edges: there is no loss to observe")
    held_out = trials.given_answers(answers, mechanism.classes, 1, 1)
    chosen = mechanism.release if release is None else release
    released = trials.release_all(chosen, [np.repeat(q, draws, axis=0) for q in held_out], output.labels)
    claim = ResidualLaws.of(output)
    own = [claim.log_densities(i, y) for i, y in enumerate(released)]
    # Per directed edge, in the order of (n_edges, 2): (m,) averages over draws of {L > ε} and of (1 − e^{ε − L})₊.
    sources, targets = pairs.reshape(-1), pairs[:, ::-1].reshape(-1)
    losses = [
        own[x] - claim.log_densities(y, released[x]) for x, y in zip(sources.tolist(), targets.tolist(), strict=True)
    ]
    exceeded = [(loss > cut).astype(np.float64).reshape(-1, draws).mean(axis=1) for loss in losses]
    hockey = [-np.expm1(np.minimum(cut - loss, 0.0)).reshape(-1, draws).mean(axis=1) for loss in losses]
    error = (1.0 - confidence) / 2
    at = np.full((len(pairs), 1), cut)
    promises = [edge_promises(output, pairs, at, code=code)[:, :, 0] for code in (tails.PDP, tails.DP)]
    lows = [
        np.array([bernstein_lower(x, error / (4 * len(pairs))) for x in rows]).reshape(-1, 2)
        for rows in (exceeded, hockey)
    ]
    means = [np.array([x.mean() for x in rows]).reshape(-1, 2) for rows in (exceeded, hockey)]
    # One figure per held-out answer, averaged over its label's neighbors, and the promise averaged alike.
    around = [np.flatnonzero(sources == label) for label in np.unique(sources)]
    figures = [np.mean([hockey[e] for e in edges], axis=0) for edges in around]
    pooled = np.concatenate(figures)
    promised = [np.full(len(part), promises[1].flat[edges].mean()) for part, edges in zip(figures, around, strict=True)]
    pooled_promise = float(np.concatenate(promised).mean() * (1 + 1e-12))
    pooled_lower = max(float(pooled.mean()) - math.sqrt(math.log(1 / error) / (2 * len(pooled))), 0.0)
    broken = (lows[0] > promises[0]).any() or (lows[1] > promises[1]).any() or pooled_lower > pooled_promise
    return ObservedLoss(
        verdict="violated" if broken else "consistent",
        edges=tuple((output.labels[a], output.labels[b]) for a, b in pairs),
        epsilon=np.array(cut),
        n_answers=tuple(len(q) for q in held_out),
        confidence=confidence,
        exceeded=means[0],
        exceeded_lower=lows[0],
        exceeded_promise=promises[0],
        delta=means[1],
        delta_lower=lows[1],
        delta_promise=promises[1],
        pooled=float(pooled.mean()),
        pooled_lower=pooled_lower,
        pooled_promise=pooled_promise,
    )


def bernstein_lower(values: FloatArray, error: float) -> float:
    """Lower end of the mean of independent values in [0, 1] (empirical Bernstein, Maurer & Pontil 2009, theorem 4)."""
    mean, half = bernstein_interval(values, 2.0 * error) if len(values) > 1 else (0.0, 0.0)
    return max(mean - half, 0.0)
