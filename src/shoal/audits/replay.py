"""Repeated releases of one true answer: what they may reveal, and the attack that averages them.

r releases y_1 … y_r of the same q with fresh noise are not independent given the label: they share q. Turn them by an
orthogonal matrix into the scaled average √r ȳ and r − 1 contrasts. With A = I + gain and noise covariance N,

    √r ȳ ~ N(√r μ̃, r A Σ Aᵀ + N),   every contrast ~ N(0, N),   all independent given the label,

so the exact promise for the whole sequence is the composition of one release with the first law and r − 1 with the
second. It is not the composition of r independent releases: the shared q keeps the average uncertain (less is
revealed), while the contrasts show each label's noise covariance bare (more is revealed, if it differs from label to
label). A repeated question should be answered from storage; then the repeats reveal what one release does.

The same laws serve repeated tables, where every label's row is released r times: both rows of a pair count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import helmert

from shoal.audits.attacks import Scores
from shoal.audits.residuals import ResidualLaws
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.mechanism import Mechanism
from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray

ATTACKS = ("repeats", "average")


@dataclass(frozen=True, eq=False)
class Repeats:
    """Claimed laws of r releases of one answer: of the scaled average, and of each contrast."""

    times: int
    average: GaussianClasses
    contrast: GaussianClasses

    @classmethod
    def of(cls, mechanism: Mechanism, times: int) -> Repeats:
        classes, output = mechanism.classes, mechanism.output
        n, k = classes.means.shape
        noise = np.array(np.broadcast_to(mechanism.noise_cov, (n, k, k)))
        values, vectors = eigh(classes.stored_covs)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        moved = root if mechanism.gain is None else root + mechanism.gain @ root  # A Σ^{1/2}
        shared = moved @ np.swapaxes(moved, 1, 2)
        average = GaussianClasses(np.sqrt(times) * output.means, times * shared + noise, classes.labels)
        return cls(times, average, GaussianClasses(np.zeros((n, k)), noise, classes.labels))

    @property
    def releases(self) -> list[GaussianClasses]:
        """The sequence in the form that the accounting composes."""
        return [self.average] + [self.contrast] * (self.times - 1)

    def scores(self, answers: list[FloatArray]) -> Scores:
        """Two attacks on answers (m, r, k) per label: the likelihood ratio of all repeats, and of their average."""
        turn = helmert(self.times, full=True)  # orthogonal, with a constant first row
        turned = [np.einsum("sr,mrk->smk", turn, y) for y in answers]
        average, contrast = ResidualLaws.of(self.average), ResidualLaws.of(self.contrast)

        def density(label: int, parts: FloatArray) -> tuple[FloatArray, FloatArray]:
            mean = average.log_densities(label, parts[0])
            flat = parts[1:].reshape(-1, parts.shape[2])
            rest = contrast.log_densities(label, flat).reshape(self.times - 1, -1).sum(axis=0)
            return mean, rest

        own = [density(i, parts) for i, parts in enumerate(turned)]

        def scores(a: int, b: int) -> Sequence[tuple[FloatArray, FloatArray]]:
            mean_b, rest_b = density(b, turned[a])
            mean_a, rest_a = density(a, turned[b])
            first, second = own[a][0] - mean_b, mean_a - own[b][0]
            return [(first + own[a][1] - rest_b, second + rest_a - own[b][1]), (first, second)]

        return scores


def share_identical(answers: list[FloatArray]) -> float:
    """Share of true answers whose repeats are all equal: 1 where a repeated question is answered from storage."""
    same = [(y == y[:, :1]).all(axis=(1, 2)) for y in answers]
    return float(np.mean(np.concatenate(same)))
