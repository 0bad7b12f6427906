"""Where to integrate, and where to take Chernoff's bound: choices in doubles, on which nothing rests.

With g, w of the directions of an edge (γ = 1 + g, w = γ ν₀²; the opposite direction is g → −g/(1+g), w → w/(1+g), a
table both side by side) and u = 1 − tg,

    φ(t) = −t (½ Σ ln γ + ε) − ½ Σ ln u + ½ t (1+t) Σ w/u − ln t − ln(1+t)

is convex on (0, t₊). The path leaves the real axis at its minimum c and bends with a hyperbola to where little is left,

    t(v) = c + s (i cos α sinh v ± sin α (cosh v − 1)),   s = φ''(c)^(−½),   0 ≤ v ≤ reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.validation import FloatArray, IndexArray

#: Beyond this t nothing is looked for: a loss that is bounded, and an ε at or beyond its bound.
FARTHEST = 1e40
#: Differences beyond this are all alike: δ is 1.
LARGE = 1e100
#: Angles of the hyperbola from the vertical; beyond π/4 a Gaussian would grow.
ANGLES = (math.pi / 8, math.pi / 16, math.pi / 40)
#: ln of what may be left at the end of a path, and of how high the integrand may rise on it, relative to its start.
LEFT, RISE = -40.0, 3.0


@dataclass(frozen=True)
class Path:
    """Start, scale, angle, side and length of a path; ``level`` is φ at its start."""

    center: float
    scale: float
    angle: float
    bend: int
    reach: float
    level: float


def spectra(means: FloatArray, covs: FloatArray, pairs: IndexArray) -> tuple[FloatArray, FloatArray]:
    """(g, w), each (n_edges, k), of laws as doubles; singular covariances are lifted a little."""
    k = means.shape[1]
    i, j = pairs[:, 0], pairs[:, 1]
    scale = np.sqrt(np.maximum(np.diagonal(covs, axis1=1, axis2=2).max(axis=0), 1e-300))
    covs, means = covs / scale[:, None] / scale[None, :], means / scale
    lift = 1e-14 * k * np.trace(covs, axis1=1, axis2=2)[:, None, None] * np.eye(k)
    values, vectors = np.linalg.eigh(covs + lift)
    halves = vectors / np.sqrt(np.maximum(values, 1e-18 * values[:, -1:] + 1e-300))[:, None, :]
    half = halves[j]
    back = np.swapaxes(half, 1, 2)
    with np.errstate(all="ignore"):
        between = np.clip(np.nan_to_num(back @ (covs[i] - covs[j]) @ half), -LARGE, LARGE)
        g, turn = np.linalg.eigh(between)
        z = np.swapaxes(turn, 1, 2) @ np.nan_to_num(back @ (means[j] - means[i])[:, :, None])
        return np.maximum(g, -1 + 1e-15), np.minimum(z[:, :, 0] ** 2, LARGE)


def directed(g: FloatArray, w: FloatArray, sides: tuple[bool, ...]) -> tuple[FloatArray, FloatArray]:
    """Directions (…, k) seen forward (False) or backward (True), or both side by side."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        back = np.maximum(1 + g, 1e-300)
        parts = [(-g / back, w / back) if side else (g, w) for side in sides]
    return np.concatenate([p[0] for p in parts], axis=-1), np.concatenate([p[1] for p in parts], axis=-1)


def saddles(g: FloatArray, w: FloatArray, epsilon: FloatArray, *, chernoff: bool) -> FloatArray:
    """(n,) where φ, or the exponent of Chernoff's bound, is least: bisection on the sign of its slope."""
    top = np.maximum(g.max(axis=1, initial=0.0), 1 / FARTHEST)
    high = np.log(np.minimum(1 / top, FARTHEST)) - 1e-12
    low = np.full_like(high, -690.0)
    linear = -0.5 * np.log1p(np.maximum(g, -1 + 1e-300)).sum(axis=1) - epsilon
    for _ in range(80):
        middle = 0.5 * (low + high)
        rising = _slope(g, w, linear, np.exp(middle), chernoff) > 0
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    return np.asarray(np.exp(low))


def estimates(g: FloatArray, w: FloatArray, epsilon: FloatArray) -> FloatArray:
    """(n,) ln δ by the saddle point alone: good enough to say which edges matter."""
    t = saddles(g, w, epsilon, chernoff=False)
    with np.errstate(all="ignore"):
        found = _level(g, w, epsilon, t) - 0.5 * np.log(2 * np.pi * _curvature(g, w, t))
    return np.where(np.isnan(found), 0.0, np.minimum(found, 0.0))


def paths(g: FloatArray, w: FloatArray, epsilon: float) -> list[Path]:
    """Paths of one edge, the shortest first; none where the saddle runs away."""
    one = g[None], w[None]
    center = float(saddles(*one, np.array([epsilon]), chernoff=False)[0])
    scale = float(_curvature(*one, np.array([center]))[0] ** -0.5)
    level = float(_level(*one, np.array([epsilon]), np.array([center]))[0])
    if not (center < 0.5 * FARTHEST and 0 < scale < math.inf and math.isfinite(level)):
        return []
    found = []
    v = np.arange(0.125, 80.0, 0.125)
    for angle in ANGLES:
        for bend in (1, -1):
            t = center + scale * (1j * math.cos(angle) * np.sinh(v) + bend * math.sin(angle) * (np.cosh(v) - 1))
            height, last = _heights(g, w, epsilon, t)
            done = np.flatnonzero(last - level - math.log(scale) < LEFT)
            if len(done) and (height[: done[0] + 1] - level + v[: done[0] + 1] < RISE).all():
                found.append(Path(center, scale, angle, bend, float(v[done[0]]), level))
    return sorted(found, key=lambda path: path.reach)


def _slope(g: FloatArray, w: FloatArray, linear: FloatArray, t: FloatArray, chernoff: bool) -> FloatArray:
    s = t[:, None]
    u = 1 - s * g
    with np.errstate(all="ignore"):
        inside = (0.5 * g / u + 0.5 * w * (1 + 2 * s - s * s * g) / u**2).sum(axis=1) + linear
        poles = -np.log1p(1 / t) if chernoff else -1 / t - 1 / (1 + t)
    total = inside + poles
    return np.where(np.isnan(total) | (u <= 0).any(axis=1), np.inf, total)


def _curvature(g: FloatArray, w: FloatArray, t: FloatArray) -> FloatArray:
    s = t[:, None]
    u = 1 - s * g
    return np.asarray((0.5 * (g / u) ** 2 + w * (1 + g) / u**3).sum(axis=1) + t**-2.0 + (1 + t) ** -2.0)


def _level(g: FloatArray, w: FloatArray, epsilon: FloatArray, t: FloatArray) -> FloatArray:
    s = t[:, None]
    u = 1 - s * g
    logs = -0.5 * s * np.log1p(np.maximum(g, -1 + 1e-300)) - 0.5 * np.log(u) + 0.5 * s * (1 + s) * w / u
    return np.asarray(logs.sum(axis=1) - epsilon * t - np.log(t) - np.log1p(t))


def _heights(g: FloatArray, w: FloatArray, epsilon: float, t: NDArray[np.complex128]) -> tuple[FloatArray, FloatArray]:
    """ln of the integrand's modulus at every t, and of a bound on the integral straight up from there."""
    s = t[:, None]
    u = 1 - s * g
    with np.errstate(all="ignore"):
        logs = -0.5 * s.real * np.log1p(np.maximum(g, -1 + 1e-300)) - 0.5 * np.log(np.abs(u))
        total = (logs + 0.5 * (s * (1 + s) * w / u).real).sum(axis=1) - epsilon * t.real
        weights = (w / np.abs(u) ** 2).sum(axis=1)
        last = total + 0.5 * (t.real**2 + np.abs(t.real)) * weights - np.log(t.imag)
        height = total - np.log(np.abs(t * (1 + t)))
    return np.where(np.isnan(height), np.inf, height), np.where(np.isnan(last), np.inf, last)
