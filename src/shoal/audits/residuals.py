"""Gaussian laws as an attacker handles them: whitening maps and log-densities, singular laws included.

For label X with law N(μ, Σ), scaled to unit variances, Σ = V diag(λ) Vᵀ: the residual of an answer y is
z = diag(λ)^{−1/2} Vᵀ (y − μ), and ln p(y) = −½‖z‖² − ½ ln|Σ|. Directions with less than ``NULL`` of the widest one's
variance are taken for constants that are known to a tolerance (λ is raised to ``NULL``): two labels with different
constants are then told apart at once, two with the same constants not at all, and an answer rounded to a fine grid
is still on its support. A score only has to be good; the bounds made from it count events and hold for any score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.laws.classes import GaussianClasses
from shoal.numerics.eigenpairs import eigh
from shoal.validation import BoolArray, FloatArray

#: Variances below this share of the largest, in units of the entries' own, belong to constants.
NULL = 1e-13


@dataclass(frozen=True, eq=False)
class ResidualLaws:
    """One Gaussian law per label, factored: ``maps`` (n, k, k) whiten, ``null`` (n, k) marks constant directions."""

    means: FloatArray
    covs: FloatArray
    maps: FloatArray
    log_scale: FloatArray
    null: BoolArray

    @classmethod
    def of(cls, classes: GaussianClasses) -> ResidualLaws:
        """The laws of a family."""
        return cls.factored(classes.means, classes.covs)

    @classmethod
    def fitted(cls, samples: list[FloatArray]) -> ResidualLaws:
        """Sample means and covariances, one label per item: what an attacker who has only samples would use."""
        means = np.stack([y.mean(axis=0) for y in samples])
        centered = [y - mean for y, mean in zip(samples, means, strict=True)]
        return cls.factored(means, np.stack([c.T @ c / max(len(c) - 1, 1) for c in centered]))

    @classmethod
    def factored(cls, means: FloatArray, covs: FloatArray) -> ResidualLaws:
        std = np.sqrt(np.maximum(np.diagonal(covs, axis1=1, axis2=2), 0.0))
        # An entry without variance is a constant, known to a tolerance in units of what varies in that entry.
        unit = std.max(axis=0)
        spread = means.max(axis=0) - means.min(axis=0)
        unit = np.where(unit > 0, unit, np.where(spread > 0, spread, np.maximum(np.abs(means).max(axis=0), 1.0)))
        fixed = std <= np.sqrt(NULL) * 1e-3 * unit
        scale = np.where(fixed, unit, std)
        shaped = covs / scale[:, :, None] / scale[:, None, :]
        rows, entries = np.nonzero(fixed)
        shaped[rows, entries, :] = 0.0
        shaped[rows, :, entries] = 0.0
        values, vectors = eigh(0.5 * (shaped + np.swapaxes(shaped, 1, 2)))
        floor = NULL * np.where(values[:, -1:] > 0, values[:, -1:], 1.0)
        null = values <= floor
        values = np.maximum(values, floor)
        maps = np.swapaxes(vectors, 1, 2) / np.sqrt(values)[:, :, None] / scale[:, None, :]
        return cls(means, covs, maps, -0.5 * np.log(values).sum(axis=1) - np.log(scale).sum(axis=1), null)

    def residuals(self, label: int, answers: FloatArray) -> FloatArray:
        """(m, k) whitened residuals of answers (m, k) under one label's law."""
        return np.asarray((answers - self.means[label]) @ self.maps[label].T)

    def log_density(self, label: int, residuals: FloatArray) -> FloatArray:
        """(m,) log-density, up to a constant common to all labels, from residuals under that label."""
        return np.asarray(self.log_scale[label] - 0.5 * np.einsum("ij,ij->i", residuals, residuals))

    def log_densities(self, label: int, answers: FloatArray) -> FloatArray:
        """(m,) the same from the answers."""
        return self.log_density(label, self.residuals(label, answers))

    def inside(self, label: int) -> BoolArray:
        """(k,) which residual directions vary."""
        return np.asarray(~self.null[label])
