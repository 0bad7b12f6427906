"""Where each law lives, and which pairs of labels can be compared at all.

A Gaussian law lives on the affine subspace μ_X + range Σ_X. Two Gaussian laws either live on the same subspace,
and then the privacy loss is finite and is computed inside it, or they are mutually singular: one answer
already tells the labels apart, L = +∞ with probability one, δ = 1 at every ε. (If one support were a proper
part of the other it would still have measure zero under the larger law.)

:func:`split` sorts the labels into groups of equal support and returns each group as a family of full rank.
Entries with a variance of exactly zero are compared exactly. Other null directions come out of an eigendecomposition,
known up to rounding only: a covariance that is singular to within ``classes.RANK_TOLERANCE`` is taken to be exactly
singular, with a :class:`RankWarning`, and what differs below that tolerance is not seen. In comparing two such supports
a doubtful case counts as different, which is the safe side.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.classes import GaussianClasses
from shoal.matrices import RANK_TOLERANCE
from shoal.validation import FloatArray


class RankWarning(UserWarning):
    """A covariance was taken to be exactly singular because it is so up to rounding."""


#: How much looser than the rank tolerance the comparison of two supports is.
SLACK = 8


@dataclass(frozen=True)
class Family:
    """Labels that share a support, as full-rank laws inside it.

    ``classes`` is None when the support is a point: all members have the same constant answer.
    ``exact`` is False when the coordinates came from a rounded eigenbasis.
    """

    members: NDArray[np.intp]
    classes: GaussianClasses | None
    exact: bool


@dataclass(frozen=True)
class Supports:
    """``family[i]`` is the number of label i's family, ``position[i]`` its place in it."""

    families: tuple[Family, ...]
    family: NDArray[np.intp]
    position: NDArray[np.intp]


@dataclass
class _Frame:
    """Coordinates of one rank-deficient support: y = (q - origin) / scale, null and range bases in y."""

    origin: FloatArray
    scale: FloatArray
    null: FloatArray
    basis: FloatArray
    members: list[int]

    def holds(self, mean: FloatArray, cov: FloatArray) -> bool:
        tolerance = SLACK * RANK_TOLERANCE
        shaped = cov / self.scale[:, None] / self.scale[None, :]
        # Entry by entry: a large entry that a null direction does not touch must not excuse a gap in it.
        weight = np.abs(self.null)
        if (np.abs(self.null.T @ shaped @ self.null) > tolerance * (weight.T @ np.abs(shaped) @ weight)).any():
            return False
        size = np.maximum(np.abs(mean), np.abs(self.origin)) / self.scale
        gap = np.abs(self.null.T @ ((mean - self.origin) / self.scale))
        return bool((gap <= tolerance * (weight.T @ size)).all())


def split(classes: GaussianClasses) -> Supports:
    """Group the labels by support."""
    n = classes.n_classes
    condition = np.broadcast_to(classes.condition, (n,))
    regular = np.flatnonzero(np.isfinite(condition))
    families: list[Family] = []
    if len(regular) == n:
        families.append(Family(regular, classes, True))
    elif len(regular):
        families.append(Family(regular, classes.take(regular), True))
    families.extend(_singular_families(classes, np.flatnonzero(~np.isfinite(condition))))

    family, position = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.intp)
    for number, item in enumerate(families):
        family[item.members] = number
        position[item.members] = np.arange(len(item.members))
    return Supports(tuple(families), family, position)


def _singular_families(classes: GaussianClasses, singular: NDArray[np.intp]) -> list[Family]:
    """Families of the labels with singular covariance."""
    still = np.broadcast_to(classes.stored_variances, classes.means.shape)[singular] == 0
    means = classes.means[singular] + 0.0  # −0.0 and 0.0 are the same answer
    by_point: dict[tuple[bytes, bytes], list[int]] = {}
    for row, label in enumerate(singular):
        key = (still[row].tobytes(), np.where(still[row], means[row], 0.0).tobytes())
        by_point.setdefault(key, []).append(int(label))

    families = []
    for (mask, _), labels in by_point.items():
        moving = np.flatnonzero(~np.frombuffer(mask, dtype=bool))
        members = np.array(labels, dtype=np.intp)
        if len(moving) == 0:
            families.append(Family(members, None, True))
        elif classes.is_diagonal:
            variances = np.broadcast_to(classes.stored_variances, classes.means.shape)
            part = GaussianClasses.diagonal(classes.means[np.ix_(members, moving)], variances[np.ix_(members, moving)])
            families.append(Family(members, part, True))
        else:
            families.extend(_reduced_families(classes, members, moving))
    return families


def _reduced_families(classes: GaussianClasses, members: NDArray[np.intp], moving: NDArray[np.intp]) -> list[Family]:
    """Families among labels that vary in the same entries; those of full rank there need no new basis."""
    covs = classes.covs
    part = GaussianClasses(classes.means[np.ix_(members, moving)], covs[np.ix_(members, moving, moving)].copy())
    regular = np.isfinite(part.condition)
    families = []
    if regular.any():
        families.append(Family(members[regular], part.take(np.flatnonzero(regular)), True))

    frames: list[_Frame] = []
    for row in np.flatnonzero(~regular):
        mean, cov = part.means[row], part.stored_covs[row]
        frame = _own_frame(mean, cov)
        for known in frames:
            if known.null.shape == frame.null.shape and known.holds(mean, cov):
                known.members.append(int(row))
                break
        else:
            frame.members.append(int(row))
            frames.append(frame)
    if frames:
        warnings.warn(
            f"{int((~regular).sum())} label(s) have a covariance that is singular up to rounding (relative "
            f"{RANK_TOLERANCE:.1g}): it is taken to be exactly singular, and differences below that are not seen. Give "
            "entries without variance exact zeros, or add a little noise to every label",
            RankWarning,
            stacklevel=2,
        )
    for frame in frames:
        rows = np.array(frame.members)
        shaped = part.stored_covs[rows] / frame.scale[:, None] / frame.scale[None, :]
        inside = frame.basis.T @ shaped @ frame.basis
        families.append(
            Family(
                members[rows],
                GaussianClasses(
                    ((part.means[rows] - frame.origin) / frame.scale) @ frame.basis,
                    0.5 * (inside + np.swapaxes(inside, 1, 2)),
                ),
                False,
            )
        )
    return families


def _own_frame(mean: FloatArray, cov: FloatArray) -> _Frame:
    scale = np.sqrt(np.diagonal(cov))
    values, vectors = np.linalg.eigh(cov / scale[:, None] / scale[None, :])
    zero = values <= RANK_TOLERANCE * values[-1]
    return _Frame(mean, scale, vectors[:, zero], vectors[:, ~zero], [])
