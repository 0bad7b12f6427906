"""Where each law lives, and which pairs of labels can be compared at all.

Two Gaussian laws either live on the same affine subspace μ_X + range Σ_X, and then the privacy loss is finite and is
computed inside it, or they are mutually singular: L = +∞ with probability one, δ = 1 at every ε. Families are labels
with equal support. All comparisons are exact, on the numbers as stored: constants entry by entry, and the null spaces N
of covariances that may be singular by elimination in integers (``nullspace``). Two supports are equal where the ranks
are, Σ_j N_i = 0 and N_i μ_i = N_i μ_j. On a common support some entries P determine the others, so that
q_P ~ N(μ_P, Σ_PP) carries the whole answer: a family of full rank, made of stored numbers without any rounding.

A covariance that is singular up to rounding, but not exactly, is not guessed at. If it is indefinite there is no law to
speak of; if it is positive definite, but more nearly singular than the accounting can whiten, there is one without a
figure. Pairs with such a label are *unsettled*, and nothing is claimed about them, unless their supports differ for
certain.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from shoal.laws.classes import GaussianClasses
from shoal.numerics.matrices import EPS
from shoal.numerics.nullspace import NullSpaceForm, null_space_form
from shoal.validation import BoolArray, FloatArray, IndexArray

#: A correlation matrix whose computed condition number is below 1 / (DOUBTFUL k ε) is positive definite for certain:
#: scaling and eigenvalues (a backward stable method) are wrong by a few k ε of the largest eigenvalue.
DOUBTFUL = 32
#: Roundings per entry, in units of k ε, that a computed answer may be off an oblique support.
ROUNDINGS = 16


class RankWarning(UserWarning):
    """A covariance is singular up to rounding, but not exactly: nothing can be certified about its label."""


@dataclass(frozen=True, eq=False)
class Family:
    """Labels that share a support, as laws of full rank.

    ``classes`` are the laws of the ``entries`` (r,) that determine the others, for the ``members`` that the accounting
    can compare; None when the support is a point (all have the same constant answer) or when there are no members.
    ``spread`` (k, r) gives all entries, q − μ = spread (q_entries − μ_entries); None where the others are constants.
    """

    members: IndexArray
    classes: GaussianClasses | None
    entries: IndexArray
    spread: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Supports:
    """``family[i]`` is the number of label i's family, −1 where it has no law; ``position[i]`` its place there, or −1.

    ``constants[i]`` numbers the entries without variance and their values: labels that differ in it are told apart
    whatever the rest of their laws may be.
    """

    families: tuple[Family, ...]
    family: NDArray[np.intp]
    position: NDArray[np.intp]
    constants: NDArray[np.intp]

    def compare_pairs(self, pairs: NDArray[np.integer]) -> tuple[BoolArray, BoolArray]:
        """Return which pairs live on different supports for certain, and which are unsettled, (n_pairs,) each."""
        family, position, constants = self.family[pairs], self.position[pairs], self.constants[pairs]
        same = family[:, 0] == family[:, 1]
        lawless = (family < 0).any(axis=1)
        different = np.where(lawless, constants[:, 0] != constants[:, 1], ~same)
        return different, ~different & (position < 0).any(axis=1)

    @property
    def groups(self) -> NDArray[np.intp]:
        """Group numbers, (n,): labels in different groups live on different supports for certain."""
        lawless = np.isin(self.constants, self.constants[self.family < 0])
        return np.where(lawless, len(self.families) + self.constants, self.family)

    def excluded_answers(self, classes: GaussianClasses, answers: FloatArray, positions: IndexArray) -> BoolArray:
        """Return (m,) which answers (m, k) the laws of the labels at ``positions`` exclude.

        An entry without variance must be the label's constant exactly. Other fixed combinations of entries must hold up
        to rounding, ROUNDINGS k ε of what is summed, because a computed answer cannot meet them exactly. A label
        without a settled law excludes nothing.
        """
        variances = np.broadcast_to(classes.stored_variances, classes.means.shape)[positions]
        means = classes.means[positions]
        out = ((variances == 0) & (answers != means)).any(axis=1)
        family = self.family[positions]
        for number in np.unique(family[family >= 0]):
            item = self.families[number]
            if item.spread is None:
                continue
            rows = np.flatnonzero(family == number)
            with np.errstate(over="ignore", invalid="ignore"):
                moved = answers[rows] - means[rows]
                off = np.abs(moved - moved[:, item.entries] @ item.spread.T)
                size = np.abs(answers[rows]) + np.abs(means[rows]) + np.sqrt(variances[rows])
                sums = size + size[:, item.entries] @ np.abs(item.spread.T)
                out[rows] |= ~(off <= ROUNDINGS * classes.n_dims * EPS * sums).all(axis=1)
        return np.asarray(out)


_supports: WeakKeyDictionary[GaussianClasses, Supports] = WeakKeyDictionary()


def cached_supports(classes: GaussianClasses) -> Supports:
    """Return the labels grouped by support, computed once per family of laws."""
    if classes not in _supports:
        _supports[classes] = group_by_support(classes)
    return _supports[classes]


def group_by_support(classes: GaussianClasses) -> Supports:
    """Return the labels grouped by the support of their laws; warn where some are too nearly singular to tell."""
    n, k = classes.means.shape
    everything = np.arange(n)
    if (classes.condition_number * (DOUBTFUL * k * EPS) < 1).all():
        if not classes.is_diagonal:
            _ = classes.cholesky  # the copy, which the accounting works with, has it too
        # A copy: supports are kept as long as their laws are, and would keep the laws themselves for good.
        whole = Family(everything, copy.copy(classes), np.arange(k))
        zeros = np.zeros(n, dtype=np.intp)
        return Supports((whole,), zeros, everything, zeros)

    still = np.broadcast_to(classes.stored_variances, classes.means.shape) == 0
    fixed = np.where(still, classes.means + 0.0, 0.0)  # −0.0 and 0.0 are the same answer
    by_constants: dict[tuple[bytes, bytes], list[int]] = {}
    for i in range(n):
        by_constants.setdefault((still[i].tobytes(), fixed[i].tobytes()), []).append(i)

    families: list[Family] = []
    family, position, constants = np.full((3, n), -1, dtype=np.intp)
    for number, labels in enumerate(by_constants.values()):
        rows = np.array(labels, dtype=np.intp)
        constants[rows] = number
        for there, item in _families_of_labels(classes, rows, np.flatnonzero(~still[rows[0]])):
            family[there] = len(families)
            position[item.members] = np.arange(len(item.members))
            families.append(item)
    lost = int((position < 0).sum())
    if lost:
        warnings.warn(
            f"{lost} label(s) have a covariance that is singular up to rounding, but not exactly: figures about them "
            "cannot be certified. Give entries without variance exact zeros, drop entries that are fixed by the "
            "others, or add a little noise to every label (with_noise)",
            RankWarning,
            stacklevel=2,
        )
    return Supports(tuple(families), family, position, constants)


def _families_of_labels(
    classes: GaussianClasses, labels: IndexArray, moving: IndexArray
) -> list[tuple[IndexArray, Family]]:
    """Return the families of labels that vary in the entries ``moving`` and agree in the others.

    Each comes with all labels on its support, those included whose law cannot be whitened.
    """
    if len(moving) == 0:
        return [(labels, Family(labels, None, moving))]
    part = classes.restrict(labels, moving)
    if part.is_diagonal:
        return [(labels, Family(labels, part, moving))]
    certain = part.condition_number * (DOUBTFUL * len(moving) * EPS) < 1
    forms = [None if sure else null_space_form(cov) for sure, cov in zip(certain, part.stored_covs, strict=True)]
    whole = np.array([sure or (f is not None and not f.null) for sure, f in zip(certain, forms, strict=True)])
    spaces: list[tuple[NullSpaceForm, list[int]]] = []
    for row, space in enumerate(forms):
        if space is None or not space.null:
            continue
        for known, rows in spaces:
            if known.rank == space.rank and known.annihilates(part.stored_covs[row]):
                rows.append(row)
                break
        else:
            spaces.append((space, [row]))

    result = []
    places = np.zeros(len(labels), dtype=np.intp) if part.is_shared else np.arange(len(labels))
    full = np.flatnonzero(whole[places])
    if len(full):
        result.append(_make_family(part, labels, full, moving))
    for known, rows in spaces:
        by_offset: dict[tuple[object, ...], list[int]] = {}
        for one in np.flatnonzero(np.isin(places, rows)).tolist():
            by_offset.setdefault(known.support_offset(part.means[one]), []).append(one)
        spread = np.zeros((classes.n_dims, known.rank))
        spread[moving] = known.spread
        for members in by_offset.values():
            result.append(_make_family(part, labels, np.array(members), moving, known.pivots, spread))
    return result


def _make_family(
    part: GaussianClasses,
    labels: IndexArray,
    rows: IndexArray,
    moving: IndexArray,
    pivots: IndexArray | None = None,
    spread: FloatArray | None = None,
) -> tuple[IndexArray, Family]:
    """Return all labels on one support, and their family: those whose law of the pivots (None: all) can be whitened."""
    chosen = np.arange(len(moving)) if pivots is None else pivots
    inside = part if pivots is None and len(rows) == len(labels) else part.restrict(rows, chosen)
    able = np.flatnonzero(np.broadcast_to(np.isfinite(inside.condition_number), (len(rows),)))
    laws = inside if len(able) == len(rows) else inside.take(able) if len(able) else None
    return labels[rows], Family(labels[rows[able]], laws, moving[chosen], spread)
