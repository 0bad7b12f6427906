"""Laws from samples: means and shrunk covariances of many labels.

Every label's rows are reduced to their number, mean and scatter M = Σ (x − x̄)(x − x̄)ᵀ; two such summaries, of the rows
to fit on and of those held out, are all that the estimator needs. With W the scatter within labels over its degrees of
freedom, and in coordinates in which W = I,

    S̃_X = (1 − r_X) S_X + r_X (tr S_X / k) I                r_X: oracle approximating shrinkage
    Σ_X = (1 − a_X) S̃_X + a_X W,   a_X = κ / (n_X − 1 + κ)

(OAS: Chen, Wiesel, Eldar & Hero 2010). κ, the number of rows that the pooled covariance counts for, is the one under
which the held-out rows are likeliest; the laws are then fitted on all rows (docs/theory.md, section 14.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.laws.checks import LawChecks, check_laws
from shoal.numerics.matrices import correlations
from shoal.validation import BoolArray, FloatArray, IndexArray

#: Rows that the pooled covariance counts for, in multiples of the number of entries; the likeliest is taken.
POOLED = (0.0, 0.25, 1.0, 4.0, 16.0, 64.0, math.inf)
#: Rows of a label that its law is checked on, and as many of those held out.
CHECKED = 128
#: Entries with less than this share of their size as deviation, and combinations with less than this share of an
#: entry's variance, are constants up to the rounding of their numbers.
CONSTANT = 1e-12
#: Largest number whose square can be summed over as many rows as there may be.
LARGEST = 1e145


@dataclass(frozen=True, eq=False)
class FittedLaws:
    """Origin of estimated laws: per label the rows behind the mean and the degrees of freedom of the covariance.

    ``pooled_rows`` is κ; a label's covariance counts n_X − 1 + κ degrees of freedom, at least the number of its
    entries and at most those of the scatter within all labels.
    """

    counts: FloatArray
    degrees: FloatArray
    pooled_rows: float
    checks: LawChecks

    def take(self, positions: IndexArray) -> FittedLaws:
        """Return what the laws of the labels at these positions were estimated from."""
        return replace(
            self, counts=self.counts[positions], degrees=self.degrees[positions], checks=self.checks.take(positions)
        )


@dataclass(frozen=True, eq=False)
class Moments:
    """Number (n,), mean (n, k) and scatter (n, k, k) of every label's rows."""

    counts: FloatArray
    means: FloatArray
    scatter: FloatArray

    @classmethod
    def from_rows(cls, rows: FloatArray, places: IndexArray, n_labels: int) -> Moments:
        """Return the summary of rows (m, k), each of the label at its place (m,)."""
        k = rows.shape[1]
        means, scatter = np.zeros((n_labels, k)), np.zeros((n_labels, k, k))
        for place, own in enumerate(_row_positions_by_label(places, n_labels)):
            if len(own):
                means[place] = rows[own].mean(axis=0)
                centered = rows[own] - means[place]
                scatter[place] = centered.T @ centered
        return cls(np.bincount(places, minlength=n_labels).astype(np.float64), means, scatter)

    def merge(self, other: Moments) -> Moments:
        """Return the summary of both sets of rows, without cancellation.

        (Chan, Golub & LeVeque 1983: M = M₁ + M₂ + (n₁ n₂ / n) d dᵀ, d the difference of the two means.)
        """
        total = np.maximum(self.counts + other.counts, 1.0)
        gap = other.means - self.means
        spread = (self.counts * other.counts / total)[:, None, None] * gap[:, :, None] * gap[:, None, :]
        means = self.means + gap * (other.counts / total)[:, None]
        return Moments(self.counts + other.counts, means, self.scatter + other.scatter + spread)

    def select_entries(self, chosen: IndexArray) -> Moments:
        """Return the summary of the chosen columns."""
        return Moments(self.counts, self.means[:, chosen], self.scatter[:, chosen[:, None], chosen[None, :]])

    @cached_property
    def degrees(self) -> float:
        """The degrees of freedom of the scatter within labels: rows less the labels that have any."""
        return float(np.maximum(self.counts - 1, 0).sum())

    @property
    def varying(self) -> BoolArray:
        """Whether each entry (k,) varies within labels, beyond the rounding of its numbers."""
        return np.asarray(np.sqrt(np.diagonal(self.within)) > CONSTANT * np.abs(self.means).max(axis=0))

    @cached_property
    def within(self) -> FloatArray:
        """The covariance pooled within all labels, (k, k): W."""
        return np.asarray(self.scatter.sum(axis=0) / max(self.degrees, 1.0))


def oas_weights(cov: FloatArray, degrees: FloatArray) -> FloatArray:
    """Return (n,) weights of (tr S / k) I in the oracle approximating shrinkage of S (n, k, k) with these degrees."""
    k = cov.shape[1]
    square = (cov * cov).mean(axis=(1, 2))
    mean = np.trace(cov, axis1=1, axis2=2) / k
    below = (degrees + 1.0) * (square - mean * mean / k)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(below > 0, (square + mean * mean) / below, 1.0)
    return np.asarray(np.where(degrees > 0, np.clip(weight, 0.0, 1.0), 1.0))


def shrunk_covariances(moments: Moments, root: FloatArray, pooled_rows: float) -> FloatArray:
    """Return shrunk covariances (n, k, k); ``root`` rootᵀ is the pooled one and ``pooled_rows`` what it counts for."""
    n, k = moments.means.shape
    if pooled_rows == math.inf:
        return np.broadcast_to(root @ root.T, (n, k, k)).copy()
    degrees = np.maximum(moments.counts - 1, 0.0)
    inverse = np.linalg.inv(root)
    own = inverse @ (moments.scatter / np.maximum(degrees, 1.0)[:, None, None]) @ inverse.T
    weight = oas_weights(own, degrees)[:, None, None]
    size = (np.trace(own, axis1=1, axis2=2) / k)[:, None, None]
    own = (1 - weight) * own + weight * size * np.eye(k)
    part = np.where(degrees > 0, pooled_rows / np.maximum(degrees + pooled_rows, 1e-300), 1.0)[:, None, None]
    covs = root @ ((1 - part) * own + part * np.eye(k)) @ root.T
    return np.asarray(0.5 * (covs + np.swapaxes(covs, 1, 2)))


def log_likelihoods(moments: Moments, means: FloatArray, covs: FloatArray) -> FloatArray:
    """Return (n,) log-likelihoods of the summarized rows under N(means, covs), from their moments alone."""
    k = means.shape[1]
    gap = moments.means - means
    scatter = moments.scatter + moments.counts[:, None, None] * gap[:, :, None] * gap[:, None, :]
    fit = np.trace(np.linalg.solve(covs, scatter), axis1=1, axis2=2)
    size = np.linalg.slogdet(covs)[1] + k * math.log(2 * math.pi)
    return np.asarray(-0.5 * (moments.counts * size + fit))


def _row_positions_by_label(places: IndexArray, n_labels: int) -> list[IndexArray]:
    """Return, for every label, the positions of its rows, in order."""
    order = np.argsort(places, kind="stable")
    return np.split(order, np.cumsum(np.bincount(places, minlength=n_labels))[:-1])


def label_strings(labels: Any) -> Any:
    """Return labels as an array of strings; raise InputError where some are missing."""
    names = np.asarray(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)
    if names.ndim != 1:
        raise InputError("labels must be a sequence with one label per row")
    if names.dtype.kind in "fc":
        if not np.isfinite(names).all():
            raise InputError("labels: some are missing; give every row a label, or leave the row out")
        whole = names == np.floor(names.real)
        names = names.astype(np.int64) if whole.all() and names.dtype.kind == "f" else names
    elif names.dtype.kind == "O" and any(map(_is_missing, names)):
        raise InputError("labels: some are missing; give every row a label, or leave the row out")
    return names.astype(str)


def _is_missing(label: Any) -> bool:
    """Whether this is no label: None, NaN, or pandas' NA, which does not even say whether it equals itself."""
    same = label == label
    return label is None or not isinstance(same, (bool, np.bool_)) or not same


def fit_laws(
    samples: Any, labels: Any, held_out: float, seed: int
) -> tuple[tuple[str, ...], FloatArray, FloatArray, FittedLaws]:
    """Fit laws to rows (m, k) with a label each; return sorted labels, means, covariances, and their origin."""
    held_out = validation.probability(held_out=held_out, below_one=True, above_zero=True)
    rng = np.random.default_rng(validation.count(seed=seed, at_least=0))
    rows, names = validation.array(ndim=2, samples=samples), label_strings(labels)
    if len(names) != len(rows):
        raise InputError(f"labels must hold one label for each of the {len(rows)} rows of samples")
    if rows.size == 0:
        raise InputError("samples must hold at least one row and one column")
    if np.abs(rows).max() > LARGEST:
        raise InputError(f"samples must lie within ±{LARGEST:g}, so that their squares have a sum; use larger units")
    known, first, places = np.unique(names, return_index=True, return_inverse=True)
    if len(known) == 1:
        raise InputError("labels must name at least two labels: with one there is nothing to hide it among")
    out = rng.random(len(rows)) < held_out
    out[first] = False  # the first row of a label is never held out
    out &= ~_must_stay_in_fit(rows, places, Moments.from_rows(rows[~out], places[~out], len(known)))
    fit, held = (Moments.from_rows(rows[part], places[part], len(known)) for part in (~out, out))
    both = fit.merge(held)
    entries = np.flatnonzero(both.varying)
    k = len(entries)
    if k == 0:
        raise InputError(
            "samples do not vary within any label: the answers are constants; use GaussianClasses.deterministic"
        )
    if both.degrees >= k + 2:  # a combination of entries without variance within any label
        flat = _count_dependent_entries(both.select_entries(entries))
        if flat:
            raise InputError(
                f"samples: {flat} of {k} columns follow from the others within every label, so that no covariance of "
                f"all of them can be estimated; leave {flat} of them out, or use principal components"
            )
    if fit.degrees < k + 2:
        raise InputError(
            f"samples hold too few rows of the same label for {k} columns: at least as many more rows "
            "than labels are needed. Give more rows, or fewer columns (such as principal components)"
        )
    if _count_dependent_entries(
        fit.select_entries(entries)
    ):  # only rows held out tell some combination of entries apart
        out[:] = False
        fit, held = both, Moments.from_rows(rows[out], places[out], len(known))
    parts = [part.select_entries(entries) for part in (fit, held, both)]
    roots = [_cholesky_by_correlations(part.within) for part in (parts[0], parts[2])]
    grid = [multiple * k for multiple in POOLED]
    trials = [
        log_likelihoods(parts[1], parts[0].means, shrunk_covariances(parts[0], roots[0], count)).sum() for count in grid
    ]
    # Without held-out rows all are equally likely, and the laws are pooled.
    pooled_rows = grid[len(grid) - 1 - int(np.argmax(np.round(trials[::-1], 9)))]
    covs = np.zeros((len(known), rows.shape[1], rows.shape[1]))
    covs[:, entries[:, None], entries[None, :]] = shrunk_covariances(parts[2], roots[1], pooled_rows)
    degrees = [np.maximum(part.counts - 1, 0.0) + min(pooled_rows, part.degrees) for part in (parts[0], parts[2])]
    checked = [
        tuple(rows[part][own[:CHECKED]][:, entries] for own in _row_positions_by_label(places[part], len(known)))
        for part in (~out, out)
    ]
    checks = check_laws(
        tuple(known.tolist()),
        list(zip(*checked, strict=True)),
        parts[0].means,
        shrunk_covariances(parts[0], roots[0], pooled_rows),
        parts[0].counts,
        np.clip(degrees[0], k + 2, max(parts[0].degrees, k + 2)),
        both.counts,
    )
    fitted = FittedLaws(both.counts, np.clip(degrees[1], k, max(parts[2].degrees, k)), pooled_rows, checks)
    return checks.labels, both.means, covs, fitted


def _must_stay_in_fit(rows: FloatArray, places: IndexArray, fit: Moments) -> BoolArray:
    """Return a mask (m,) of rows not to hold out: they alone vary in an entry that is constant in ``fit``."""
    flat = np.flatnonzero(~fit.varying)
    means = fit.means[:, flat]
    gaps = np.abs(rows[:, flat] - means[places])
    return np.asarray((gaps > CONSTANT * np.abs(means).max(axis=0)).any(axis=1))


def _count_dependent_entries(moments: Moments) -> int:
    """Return the number of combinations of entries that vary within no label."""
    values = np.linalg.eigvalsh(correlations(moments.within[None]))[0]
    return int((values <= CONSTANT * len(values) * values[-1]).sum())


def _cholesky_by_correlations(cov: FloatArray) -> FloatArray:
    """Return the lower factor of one covariance, through its correlations so that units do not matter."""
    std = np.sqrt(np.diagonal(cov))
    return np.asarray(np.linalg.cholesky(correlations(cov[None])[0]) * std[:, None])
