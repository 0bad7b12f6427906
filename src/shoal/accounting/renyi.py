"""Rényi divergence of the edges of a graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.accounting.contour import EPS, spectrum_error
from shoal.accounting.cumulants import RIGHT, LossLaw, extreme_g, loss_supremum
from shoal.accounting.curve import BLOCK, NO_EDGES, privacy_curve
from shoal.accounting.edges import LOOSE, EdgeBatch, loss_law
from shoal.accounting.releases import EdgeSource, Releases
from shoal.accounting.spectrum import edge_spectra
from shoal.accounting.tails import is_range_doubtful, supremum_error
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.numerics.compilation import kernel
from shoal.numerics.threads import map_batches
from shoal.rounding import exactly, upper
from shoal.validation import FloatArray


@dataclass(frozen=True)
class RenyiCurve:
    """Worst Rényi divergence over a graph per order, in nats, each field in the shape of ``order``.

    ``divergence`` is the computed value, ``divergence_upper`` the end to rely on; inf where the divergence is.
    """

    order: Any
    divergence: Any
    divergence_upper: Any
    worst_edge: Any

    def __repr__(self) -> str:
        pairs = list(zip(np.atleast_1d(self.order), np.atleast_1d(self.divergence_upper), strict=True))[:4]
        shown = [f"order {exactly(a)}: at most {'unbounded' if np.isinf(d) else upper(d)}" for a, d in pairs]
        return f"RenyiCurve({', '.join(shown)})"


def renyi_curve(classes: Any, graph: NeighborGraph, order: Any, *, scope: str = "answer") -> RenyiCurve:
    """Worst Rényi divergence D_α(P_X ‖ P_X') over both directions of every edge, for each order α > 0.

    D_α = K(α−1) / (α−1); α = 1 is the Kullback–Leibler divergence K'(0) and α = inf the supremum of L. D_α is infinite
    from α = 1 + 1/(γ_max − 1) on, so unequal covariances make large orders diverge. Sequences of releases compose
    by addition, which K does by itself. In a table (``scope``, as in :func:`shoal.privacy_curve`) the divergences of
    both directions add.

    Returns:
        The worst divergence per order with its upper end and its edge; plain numbers for one order.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> print(shoal.renyi_curve(classes, graph, [1.0, 2.0, 4.0]).divergence.round(4))
    [0.5 1.  2. ]
    """
    values = validation.array(ndim=(0, 1), finite=False, order=order)
    scalar = values.ndim == 0
    values = np.atleast_1d(values)
    if values.size == 0 or np.isnan(values).any() or (values <= 0).any():
        raise InputError("order must be above 0 (inf is allowed)")
    releases = Releases.collect(classes, scope)
    pairs = releases.edge_positions(graph)
    if len(pairs) == 0:
        raise InputError(NO_EDGES)
    best, upper, where = _worst_divergences(releases, pairs, values)
    edges = [tuple(releases.labels[i] for i in (pairs[e] if d == 0 else pairs[e][::-1])) for e, d in where]
    return RenyiCurve(
        values[0] if scalar else values,
        best[0] if scalar else best,
        upper[0] if scalar else upper,
        edges[0] if scalar else edges,
    )


def renyi_upper_ends(
    source: EdgeSource, pairs: NDArray[np.integer], orders: FloatArray, directions: int = 2
) -> FloatArray:
    """Return upper ends (edges, directions, orders) of the Rényi divergence of all releases, for orders above 1."""
    divergences, error = _edge_divergences(source, pairs, orders, directions)
    return np.maximum(_upper_ends(divergences, error), 0.0)


def have_equal_covariances(batch: EdgeBatch) -> NDArray[np.bool_]:
    """Return (edges,) whether all releases have the same covariance for both labels, beyond doubt."""
    unequal = ((batch.lam != 0) | (batch.g != 0) | (batch.lam_error != 0)).any(axis=2)
    return np.asarray(~(unequal & (batch.times > 0)).any(axis=0) & ~batch.disjoint)


def _edge_divergences(
    source: EdgeSource, pairs: NDArray[np.integer], orders: FloatArray, directions: int
) -> tuple[FloatArray, FloatArray]:
    """Return divergences (edges, directions, orders) and bounds on their errors; loose ones from precise spectra."""
    # α − 1 is exact from ½ to 2⁵³; elsewhere it is rounded up, because the divergence rises with its order.
    rounded = ((orders < 0.5) | (orders > 2.0**53)) & np.isfinite(orders)
    shifted = np.where(rounded, np.nextafter(orders - 1.0, np.inf), orders - 1.0)

    def bracket_divergences(spectra: EdgeBatch) -> tuple[FloatArray, FloatArray]:
        """Return the divergences of edges with these spectra, and bounds on their errors."""
        shape = (len(spectra.disjoint), directions, len(orders))
        divergences, error = np.empty(shape), np.empty(shape)
        _fill_divergences(shifted, spectra, divergences, error)
        return divergences, error

    divergences, error = bracket_divergences(source.spectra(pairs))
    rows = np.flatnonzero((error > LOOSE * np.maximum(1.0, np.abs(divergences))).any(axis=(1, 2)))
    if len(rows):
        divergences[rows], error[rows] = bracket_divergences(source.spectra(pairs[rows], precise=True))
    return divergences, error


def _upper_ends(divergences: FloatArray, error: FloatArray) -> FloatArray:
    """Return divergences plus their errors, rounded up; what is exact stays."""
    return np.where(error > 0.0, np.nextafter(divergences + error, np.inf), divergences)


def _worst_divergences(
    releases: Releases, pairs: NDArray[np.intp], orders: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
    """Return, per order, the largest divergence, the largest upper end, and (edge, direction) of the first."""
    n = len(orders)

    def worst_of_block(part: slice) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
        """Return the largest divergences of a block of edges, the largest upper ends, and where the first are."""
        divergences, error = _edge_divergences(releases, pairs[part], orders, releases.n_directions)
        flat = divergences.reshape(-1, n)
        top = np.argmax(flat, axis=0)
        where = np.stack([top // releases.n_directions + part.start, top % releases.n_directions], axis=1)
        return flat[top, np.arange(n)], _upper_ends(divergences, error).reshape(-1, n).max(axis=0), where

    best, upper = np.full(n, -np.inf), np.full(n, -np.inf)
    where = np.zeros((n, 2), dtype=np.intp)
    for part_best, part_upper, part_where in map_batches(worst_of_block, len(pairs), BLOCK):
        better = part_best > best
        best[better], where[better] = part_best[better], part_where[better]
        upper = np.maximum(upper, part_upper)
    return best, upper, where


@kernel
def _renyi_divergence(t: float, law: LossLaw) -> tuple[float, float]:
    """Return K(t)/t inside the strip, K'(0) at t = 0, and a bound on its error: rounding and the spectrum's own.

    Each term is divided by t where it arises, Σ m [ −λ/2 − ln(1 − tg)/(2t) + (1+t) a/(2u) ], so that nothing is lost
    next to t = 0.
    """
    total, size, count = -0.5 * law.lam_sum, 0.0, 8.0
    for r in range(law.g.shape[0]):
        part, sizes = 0.0, 0.0
        for i in range(law.g.shape[1]):
            gi = law.g[r, i]
            inv = 1.0 / (1.0 - t * gi)
            log = gi if t == 0.0 else -math.log1p(-t * gi) / t
            shift = (1.0 + t) * law.a[r, i] * inv
            part += 0.5 * (log + shift)
            # 1 − tg is off by roundings of 1 and of tg, which the logarithm and the quotient see over u.
            sizes += abs(law.lam[r, i]) + abs(log) + 2.0 * abs(gi) * inv + shift * (1.0 + abs(t * gi) * inv)
            count += 1.0
        total += law.times[r] * part
        size += law.times[r] * sizes
    return total, EPS * count * size + spectrum_error(t, 1.0 + t, abs(t) * (1.0 + t), law)


@kernel
def _fill_divergences(shifted: FloatArray, batch: EdgeBatch, divergences: FloatArray, error: FloatArray) -> None:
    """Set divergences[e, direction, j] to D of order 1 + shifted[j], inf where it may be, and ``error``."""
    for e in range(len(batch.disjoint)):
        for direction in range(divergences.shape[1]):
            if batch.disjoint[e]:
                divergences[e, direction] = math.inf
                error[e, direction] = 0.0
                continue
            law = loss_law(batch, e, direction)
            _, high = extreme_g(law)
            most = high * (1.0 + 8.0 * EPS)
            for r in range(law.g.shape[0]):
                for i in range(law.g.shape[1]):
                    most = max(most, law.g[r, i] + 2.0 * (1.0 + law.g[r, i]) * law.lam_error[r, i])
            for j in range(len(shifted)):
                t = shifted[j]
                value, doubt = math.inf, 0.0
                if t == math.inf:
                    value = loss_supremum(RIGHT, law)
                    if value < math.inf:
                        doubt = math.inf if is_range_doubtful(law) else supremum_error(0.0, law)
                elif t * high < 1.0:
                    value, doubt = _renyi_divergence(t, law)
                    if t * most >= 1.0:
                        doubt = math.inf  # the order may lie beyond the last finite one
                divergences[e, direction, j] = value
                error[e, direction, j] = doubt


def call_every_kernel() -> None:
    """Call every kernel of exact accounting once, so that it is compiled (:mod:`shoal.numerics.warmup`)."""
    laws = GaussianClasses([[0.0, 0.0], [1.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
    edge_spectra(laws, np.array([[0, 1]]), precise=True).reverse()
    graph = NeighborGraph.complete(laws.labels)
    for scope in ("answer", "table"):
        privacy_curve(laws, graph, [0.5, 1.0], scope=scope)
        renyi_curve(laws, graph, [2.0], scope=scope)
