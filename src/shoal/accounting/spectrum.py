"""Spectra of edges: all that any notion of privacy needs to know about a pair of labels.

:class:`EdgeSpectra` holds, for a block of edges (X → X'), λ = ln γ, g = γ − 1 and w = √γ ν₀ of section 2 of
docs/theory.md, each with a bound on its error. Labels with different supports are marked ``disjoint``: their loss is
infinite. Labels whose laws are not settled (:mod:`shoal.laws.supports`) have errors without bound: nothing is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.accounting import whitening
from shoal.laws.classes import GaussianClasses
from shoal.laws.supports import cached_supports
from shoal.numerics.compilation import kernel
from shoal.validation import FloatArray, IndexArray

EPS = whitening.EPS


@dataclass(frozen=True)
class EdgeSpectra:
    """Forward spectra of a block of edges; the reverse ones are λ → −λ, w → w / √γ."""

    lam: FloatArray
    g: FloatArray
    w: FloatArray
    lam_error: FloatArray
    w_error: FloatArray
    disjoint: NDArray[np.bool_]

    @classmethod
    def empty(cls, n_edges: int, width: int) -> EdgeSpectra:
        """Return spectra of zeros (equal laws) for so many edges and directions, to be written to."""
        lam, g, w, lam_error, w_error = np.zeros((5, n_edges, width))
        return cls(lam, g, w, lam_error, w_error, np.zeros(n_edges, dtype=bool))

    def reverse(self) -> EdgeSpectra:
        """Return the spectra of the edges X' → X: λ → −λ, w → w / √γ."""
        turned = EdgeSpectra.empty(*self.lam.shape)
        turned.write_rows(np.arange(len(self.lam)), self)
        turned.disjoint[:] = self.disjoint
        turned.reverse_rows(np.arange(len(self.lam)))
        return turned

    def take(self, rows: NDArray[np.intp]) -> EdgeSpectra:
        """Return the spectra of the edges at these rows."""
        return EdgeSpectra(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def reverse_rows(self, rows: NDArray[np.intp]) -> None:
        """Reverse the edges at these rows, in place."""
        _reverse_spectra(rows, self.lam, self.g, self.w, self.lam_error, self.w_error)

    def write_rows(self, rows: NDArray[np.intp], part: EdgeSpectra) -> None:
        """Write the spectra of ``part`` to these rows; further directions are zero, as where laws agree."""
        width = part.lam.shape[1]
        for name in ("lam", "g", "w", "lam_error", "w_error"):
            target = getattr(self, name)
            target[rows, :width] = getattr(part, name)
            target[rows, width:] = 0.0


def spectrum_width(classes: GaussianClasses) -> int:
    """Return the number of directions that a spectrum of this family can have; one when the covariance is shared."""
    laws = [family.classes for family in cached_supports(classes).families if family.classes is not None]
    return max((1 if one.is_shared else one.n_dims for one in laws), default=1)


def edge_spectra(classes: GaussianClasses, pairs: NDArray[np.integer], *, precise: bool = False) -> EdgeSpectra:
    """Return the spectra of the edges between the labels at positions ``pairs`` (n_edges, 2).

    ``precise`` carries the critical products out in double-double arithmetic: about four times the work, and accurate
    for condition numbers far beyond what double precision bears.
    """
    pairs = np.asarray(pairs, dtype=np.intp)
    supports = cached_supports(classes)
    result = EdgeSpectra.empty(len(pairs), spectrum_width(classes))
    first = supports.family[pairs[:, 0]]
    result.disjoint[:], unsettled = supports.compare_pairs(np.asarray(pairs, dtype=np.intp))
    comparable = ~(result.disjoint | unsettled)
    for number in np.unique(first[comparable]):
        family = supports.families[number]
        if family.classes is None:
            continue  # one point: equal laws, all zeros
        rows = np.flatnonzero((first == number) & comparable)
        laws, there = family.classes, supports.position[pairs[rows]]
        part = _diagonal_spectra(laws, there) if laws.is_diagonal else _full_spectra(laws, there, precise)
        result.write_rows(rows, _merge_into_one_direction(part) if laws.is_shared else part)
    if classes.relative_errors is not None:
        # Laws known up to a relative η each: every λ moves by at most 2 (η + η'), and √a along with it. A gap that is
        # off by ‖L⁻¹e‖ in its own label's coordinates is off by at most √γ times as much in those of the other.
        relative, shifted = (d[pairs].sum(axis=1)[:, None] for d in classes.relative_errors)
        most = (np.abs(result.lam) + result.lam_error).max(axis=1, keepdims=True)
        grown = np.exp(0.5 * np.minimum(most, 1e3)) * (1 + 8 * EPS)  # beyond, λ is not known and nothing is claimed
        if not classes.is_shared:  # one matrix, rounded once, is the same for all: γ = 1 exactly
            result.lam_error[:] += np.where(relative < 0.25, 2.0 * relative, np.inf)
        known = np.isfinite(relative) & np.isfinite(shifted)
        length = np.linalg.norm(result.w, axis=1)[:, None]
        with np.errstate(invalid="ignore"):
            result.w_error[:] += np.where(known, 2.0 * relative * length + shifted * grown, np.inf)
    # A gap, of unknown size: a spectrum of zeros would read as equal laws.
    result.w[unsettled] = 1.0
    result.lam_error[unsettled] = np.inf
    result.w_error[unsettled] = np.inf
    return result


def _merge_into_one_direction(part: EdgeSpectra) -> EdgeSpectra:
    """Return spectra of edges with equal covariances with one direction that holds the length of the whole gap."""
    merged = EdgeSpectra.empty(len(part.w), 1)
    scale = np.abs(part.w).max(axis=1, initial=0.0, keepdims=True)
    scale[scale == 0] = 1.0
    length = scale[:, 0] * np.linalg.norm(part.w / scale, axis=1)
    merged.w[:, 0] = length
    merged.w_error[:, 0] = np.linalg.norm(part.w_error, axis=1) + 4 * part.w.shape[1] * EPS * length
    return merged


def _diagonal_spectra(classes: GaussianClasses, pairs: NDArray[np.intp]) -> EdgeSpectra:
    """Return the spectra of edges between laws with independent entries: γ = v / v', w = gap / √v'."""
    i, j = pairs[:, 0], pairs[:, 1]
    variances = np.broadcast_to(classes.stored_variances, classes.means.shape)
    v, base = variances[i], variances[j]
    g = (v - base) / base
    lam = np.where(np.abs(g) < 0.5, np.log1p(np.maximum(g, -0.5)), np.log(v) - np.log(base))
    w = (classes.means[j] - classes.means[i]) / np.sqrt(base)
    lam_error = np.where(np.abs(g) < 0.5, 4 * EPS * np.abs(g), 4 * EPS * (1 + np.abs(np.log(v)) + np.abs(np.log(base))))
    disjoint = np.zeros(len(pairs), dtype=bool)
    return EdgeSpectra(lam, g, w, lam_error, 4 * EPS * np.abs(w), disjoint)


def _full_spectra(classes: GaussianClasses, pairs: NDArray[np.intp], precise: bool) -> EdgeSpectra:
    """Return the spectra of edges between laws of full rank, whitened with the better conditioned law of each pair.

    Where that was the first, the edge is reversed afterwards.
    """
    condition = np.broadcast_to(classes.condition_number, len(classes.means))
    first = condition[pairs[:, 0]] < condition[pairs[:, 1]]
    ends = np.where(first[:, None], pairs[:, ::-1], pairs)
    result = EdgeSpectra.empty(len(pairs), classes.n_dims)
    (_fill_precise_spectra if precise else _fill_spectra_in_doubles)(
        classes.cholesky, classes.stored_covs, classes.means, classes.condition_number, ends,
        result.lam, result.g, result.w, result.lam_error, result.w_error,
    )  # fmt: skip
    result.reverse_rows(np.flatnonzero(first))
    return result


@kernel
def _fill_spectra_in_doubles(
    factors: FloatArray, covs: FloatArray, means: FloatArray, condition: FloatArray, pairs: IndexArray,
    lam: FloatArray, g: FloatArray, w: FloatArray, lam_error: FloatArray, w_error: FloatArray,
) -> None:  # fmt: skip
    """Write the spectra of many edges, in double precision, to the last five arrays (n_edges, k)."""
    for e in range(len(pairs)):
        i, j = pairs[e, 0], pairs[e, 1]
        ci, cj = (0, 0) if len(covs) == 1 else (i, j)
        whitening.spectrum_in_doubles(
            factors[cj], covs[ci], covs[cj], means[i], means[j], condition[cj],
            lam[e], g[e], w[e], lam_error[e], w_error[e],
        )  # fmt: skip


# A kernel of its own: most runs never need it, and it takes seconds to compile.
@kernel
def _fill_precise_spectra(
    factors: FloatArray, covs: FloatArray, means: FloatArray, condition: FloatArray, pairs: IndexArray,
    lam: FloatArray, g: FloatArray, w: FloatArray, lam_error: FloatArray, w_error: FloatArray,
) -> None:  # fmt: skip
    """Write the spectra of many edges, refined in double-double arithmetic, to the last five arrays (n_edges, k)."""
    for e in range(len(pairs)):
        i, j = pairs[e, 0], pairs[e, 1]
        ci, cj = (0, 0) if len(covs) == 1 else (i, j)
        rows = whitening.spectrum_in_doubles(
            factors[cj], covs[ci], covs[cj], means[i], means[j], condition[cj],
            lam[e], g[e], w[e], lam_error[e], w_error[e],
        )  # fmt: skip
        whitening.refine_spectrum(
            factors[cj], rows, covs[ci], covs[cj], means[i], means[j], lam[e], g[e], w[e], lam_error[e], w_error[e]
        )


@kernel
def reverse_spectrum(lam: FloatArray, g: FloatArray, w: FloatArray, lam_error: FloatArray, w_error: FloatArray) -> None:
    """Reverse one edge, in place: γ → 1/γ, w → w / √γ; the error of γ joins that of w."""
    for i in range(len(lam)):
        shrink, doubt = np.exp(-0.5 * lam[i]), np.expm1(0.5 * lam_error[i])
        w[i] *= shrink
        if lam_error[i] > 0.0:
            w_error[i] = w_error[i] * shrink * (1.0 + doubt) + doubt * abs(w[i])
        else:
            w_error[i] *= shrink
        lam[i] = -lam[i]
        g[i] = np.expm1(lam[i])


@kernel
def _reverse_spectra(
    rows: IndexArray, lam: FloatArray, g: FloatArray, w: FloatArray, lam_error: FloatArray, w_error: FloatArray
) -> None:
    """Reverse the edges at these rows, in place."""
    for e in rows:
        reverse_spectrum(lam[e], g[e], w[e], lam_error[e], w_error[e])
