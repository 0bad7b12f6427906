"""Codebooks and Gaussian releases about the same label, composed exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.curve import NOTIONS, PrivacyCurve, brackets, exp_up, trusted
from shoal.accounting.releases import SCOPES, EdgeSource, Releases
from shoal.codebooks.atoms import LossAtoms, total
from shoal.codebooks.codebook import Codebook
from shoal.errors import InputError
from shoal.graph import NeighborGraph
from shoal.matrices import EPS
from shoal.validation import FloatArray


def composed_delta(
    releases: Sequence[Any], graph: NeighborGraph, epsilon: Any, *, scope: str = "answer"
) -> PrivacyCurve:
    """The worst δ of independent releases about the same label, codebooks and Gaussian ones mixed, at each ε.

    With L the loss of what the codebooks gave, δ(ε) = E δ_G(ε − L), δ_G that of the Gaussian releases together. A
    codebook that occurs twice was drawn from twice; a draw that was kept counts once, however often it is looked up.

    Args:
        releases: codebooks, and whatever :func:`shoal.privacy_curve` takes as one release; laws before rounding.
        graph: which pairs count; both labels of a pair must be in one group of every codebook.
        epsilon: a number or a 1-D array, each at least 0.
        scope: ``"answer"`` or ``"table"``, as in :func:`shoal.privacy_curve`.

    Returns:
        The curve; ``delta`` is its upper end, and nothing is said from below.

    >>> import shoal
    >>> graph = shoal.NeighborGraph.complete(["a", "b"])
    >>> book = shoal.codebook([[0.0], [1.0]], graph, epsilon=1.0)
    >>> noisy = shoal.GaussianClasses([[0.0], [1.0]], [[4.0]], labels=["a", "b"])
    >>> print(f"{shoal.composed_delta([book, noisy], graph, 1.0).delta_upper:.4f}")
    0.1443
    >>> float(shoal.composed_delta([book, book], graph, 2.0).delta_upper)
    0.0
    """
    validation.choice(list(SCOPES), scope=scope)
    grid, scalar = validation.grid(epsilon=epsilon)
    if not isinstance(graph, NeighborGraph):
        raise InputError("graph must be a NeighborGraph")
    if graph.n_edges == 0:
        raise InputError("graph has no edges: there is no worst edge to report")
    books = [one for one in releases if isinstance(one, Codebook)]
    others = [one for one in releases if not isinstance(one, Codebook)]
    if not books and not others:
        raise InputError("releases must hold at least one release")
    gaussian = Releases.of(others, scope) if others else None
    best, worst = np.full(len(grid), -1.0), [("", "")] * len(grid)
    pairs = gaussian.pairs(graph) if gaussian is not None else graph.edges.astype(np.intp)
    for pair, (i, j) in zip(pairs, graph.edges.tolist(), strict=True):
        ends = graph.labels[i], graph.labels[j]
        for direction in range(2 if scope == "answer" else 1):
            one, other = ends if direction == 0 else ends[::-1]
            loss = total([book.losses(one, other, scope) for book in books])
            found = deltas(loss, gaussian, pair, direction, grid, 2 if scope == "answer" else 1)
            for e in np.flatnonzero(found > best):
                best[e], worst[e] = found[e], (one, other)
    logs = np.full(len(grid), -np.inf)
    np.log(best, out=logs, where=best > 0.0)
    log_upper = np.where(best > 0.0, np.minimum(logs * (1 - 4 * EPS) + 4 * EPS, 0.0), -np.inf)
    curve = PrivacyCurve("dp", grid, best, logs, np.zeros(len(grid)), best, log_upper, worst, scope)
    return curve.scalar() if scalar else curve


def deltas(
    loss: LossAtoms, gaussian: EdgeSource | None, pair: Any, direction: int, grid: FloatArray, directions: int = 2
) -> FloatArray:
    """δ of one directed pair at each ε, rounded up: discrete losses beside those of ``gaussian``, if any."""
    if gaussian is None:
        return np.array([loss.delta(e) for e in grid.tolist()])
    atoms = np.minimum(loss.losses, loss.largest)
    shifted = np.nextafter(grid[:, None] - atoms[None, :], -np.inf).ravel()
    offsets = np.zeros((1, directions))
    found = brackets(gaussian, np.asarray(pair)[None, :], NOTIONS["dp"], shifted, offsets)[0, direction]
    uppers = exp_up(trusted(found)[2]).reshape(len(grid), len(atoms))
    sums = [math.fsum(row) for row in loss.probabilities * uppers]
    return np.minimum(np.array(sums) * (1 + 4 * EPS), 1.0)
