"""A pair of laws made nearly diagonal, with bounds on what is left, for the integral of a proof.

With W nonsingular, G = Wᵀ Σ' W, D = Wᵀ (Σ − Σ') W and z = Wᵀ (μ' − μ), the loss of the pair depends only on
det(G − tD)/det G and zᵀ (G − tD)⁻¹ z (docs/theory.md, section 13). W is found in doubles and corrected in doubles from
G and D in balls: every pass adds about as many digits as a double has. E = G − I and R = D − diag(g) bound the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from flint import arb, arb_mat, ctx

from shoal.numerics.eigenpairs import eigh
from shoal.proofs.dyadic_laws import (
    PRECISION,
    Ball,
    LawPair,
    Matrix,
    NotSettled,
    absolute_bounds,
    exact_ball_matrix,
    midpoints,
)
from shoal.validation import FloatArray

#: e, and r relative to the largest |g|, that are small enough; passes to get there.
SMALL = 2.0**-96
PASSES = 24
#: Off-diagonal entries that are small next to the gap of their eigenvalues are corrected to first order.
FIRST_ORDER = 1e-3
#: Vectors further than this from orthonormal are made so before anything is rotated.
SKEWED = 1e-12
#: Covers the rounding of the few double operations on bounds.
UP = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class Pencil:
    """g (exact), γ = 1 + g and w = z² (balls), ln det Σ/det Σ' (a ball), and the norms e and r, rounded up."""

    g: tuple[Ball, ...]
    gamma: tuple[Ball, ...]
    w: tuple[Ball, ...]
    log_ratio: Ball
    e: float
    r: float

    @property
    def k(self) -> int:
        return len(self.g)

    @property
    def directions(self) -> list[tuple[Ball, Ball, Ball]]:
        """(g, γ, w) of each direction."""
        return list(zip(self.g, self.gamma, self.w, strict=True))

    @cached_property
    def log_det_error(self) -> float:
        """Bound ke/(1 − e) on what e changes in the logarithm of a determinant."""
        return self.k * self.e / (1 - self.e) * UP


def pencil(pair: LawPair) -> Pencil:
    """The pencil of a pair: both laws in a frame that makes them nearly diagonal, in ball arithmetic."""
    with ctx.workprec(PRECISION):
        frames = _diagonalize(_whiten(pair), pair)
        gram, turned = frames.transpose() * pair.base * frames, frames.transpose() * pair.diff * frames
        k = pair.k
        g = tuple(turned[i, i].mid() for i in range(k))
        for i in range(k):
            gram[i, i] -= 1
            turned[i, i] -= g[i]
        # A bound on the spectral norm of a symmetric matrix: its largest sum of a row.
        e, r = (float(absolute_bounds(left).sum(axis=1).max(initial=0.0)) * UP for left in (gram, turned))
        z = frames.transpose() * pair.gap
        gamma = tuple(1 + value for value in g)
        least = min(float(value.lower()) for value in gamma) / UP
        rho = (e + r) / least * UP if least > 0 else math.inf
        if not (e < 0.5 and rho < 0.5):
            raise NotSettled("the two covariances differ too much, or are not known well enough, to be compared")
        log_ratio = sum((value.log() for value in gamma), arb(0))
        log_ratio += arb(0, (k * rho / (1 - rho) + k * e / (1 - e)) * UP)
        return Pencil(g, gamma, tuple(z[i, 0] * z[i, 0] for i in range(k)), log_ratio, e, r)


def _whiten(pair: LawPair) -> Matrix:
    """W with Wᵀ Σ' W near I: Cholesky factors in doubles of what is left, until little is."""
    k = pair.k
    deviations = [max(float(pair.base[i, i].mid()), 1e-300) ** 0.5 for i in range(k)]
    frame = exact_ball_matrix(np.diag([math.ldexp(1.0, -math.frexp(value)[1]) for value in deviations]))
    for _ in range(PASSES):
        gram = midpoints(frame.transpose() * pair.base * frame)
        if not np.isfinite(gram).all():
            break
        if np.abs(gram - np.eye(k)).max() < 1e-6:
            return frame
        lift = 0.0
        for _ in range(60):
            try:
                factor = np.linalg.cholesky(0.5 * (gram + gram.T) + lift * np.diag(np.diagonal(gram)))
                break
            except np.linalg.LinAlgError:
                lift = max(4 * lift, 4 * k * 2.0**-52)
        frame = (frame * exact_ball_matrix(np.linalg.inv(factor).T)).mid()
    raise NotSettled("a covariance is too nearly singular to be factored")


def _diagonalize(frame: Matrix, pair: LawPair) -> Matrix:
    """W with Wᵀ Σ' W very near I and Wᵀ (Σ − Σ') W very near a diagonal matrix."""
    k = pair.k
    frame = _rotate_clusters(frame, pair, [list(range(k))])
    best, best_size = frame, math.inf
    for _ in range(PASSES):
        turned = frame.transpose() * pair.diff * frame
        gram = frame.transpose() * pair.base * frame
        for i in range(k):
            gram[i, i] -= 1
        e, d = midpoints(gram), midpoints(turned)
        g = np.diagonal(d)
        # Differences of eigenvalues that agree in all digits of a double.
        rest = np.array([float(turned[i, i].mid() - g[i]) for i in range(k)]) - g * np.diagonal(e)
        r = d - np.diag(g)
        scale = float(np.abs(g).max())
        size = float(np.abs(e).sum(axis=1).max() + (np.abs(r).sum(axis=1).max() / scale if scale > 0 else 0.0))
        if size < best_size:
            best, best_size = frame, size
        if size < SMALL:
            break
        gaps = (g[:, None] - g[None, :]) + (rest[:, None] - rest[None, :])
        left = r - 0.5 * (g[:, None] + g[None, :]) * (e - np.diag(np.diagonal(e)))
        groups = _eigenvalue_clusters(left, gaps, SMALL * scale / k)
        skewed = np.abs(e).max() > SKEWED
        correction = -0.5 * e
        if not (groups or skewed):  # (I + X)ᵀ D (I + X) becomes diagonal to first order, where that is small
            small = (np.abs(left) <= FIRST_ORDER * np.abs(gaps)) & (gaps != 0)
            correction -= np.where(small, left / np.where(small, gaps, 1.0), 0.0)
        frame = (frame + frame * exact_ball_matrix(correction)).mid()
        if groups and not skewed:
            frame = _rotate_clusters(frame, pair, groups)
    return best


def _eigenvalue_clusters(left: FloatArray, gaps: FloatArray, least: float) -> list[list[int]]:
    """Positions of eigenvalues that are too close together for a first-order correction, in chained groups."""
    linked = (np.abs(left) > FIRST_ORDER * np.abs(gaps)) & (np.abs(left) > least)
    count, group_of = scipy.sparse.csgraph.connected_components(linked, directed=False)
    groups = [np.flatnonzero(group_of == number).tolist() for number in range(count)]
    return [group for group in groups if len(group) > 1]


def _rotate_clusters(frame: Matrix, pair: LawPair, groups: list[list[int]]) -> Matrix:
    """The frame with each group's block rotated to its eigenvectors, found in doubles on the scale of its spread."""
    turned = frame.transpose() * pair.diff * frame
    turn = np.eye(pair.k)
    for group in groups:
        center = turned[group[0], group[0]].mid()
        values = midpoints(arb_mat([[turned[i, j] - (center if i == j else 0) for j in group] for i in group]))
        scale = float(np.abs(values).max())
        if scale > 0:
            turn[np.ix_(group, group)] = eigh(0.5 * (values + values.T) / scale)[1]
    return (frame * exact_ball_matrix(turn)).mid()
