"""Attacks on a plan before it is used: an attacker who has everything but one home's readings.

The attacker knows the exact sum of all other homes, s, and asks whether home i is in it: y = s + v_i + σz, or y = s +
σz. The best test compares (y − s)·v_i with a threshold (Neyman & Pearson). Both worlds are drawn through the sampler
that the release uses, for the home with the largest vector; thresholds are fixed beforehand, so that the bounds of
Clopper and Pearson hold exactly, and the advantage that is certain is held against the promised δ.

So few draws make that test coarse: it finds gross mistakes, such as noise that is missing or a tenth of what is stated.
Two sharper checks stand beside it. The home's vector is held against the stated sensitivity, in exact integers; and the
sizes of the drawn normals against the stated variance by an exact χ² test. ``power`` is the chance that this one finds
noise that is 20 % too small: at least :data:`NORMALS` normals are drawn, which makes it 0.9999 or more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from shoal.readings.account import ReadingsAccount
from shoal.validation import FloatArray

#: Draws of each world, at least, and normals drawn in all, at least.
DRAWS, NORMALS = 200, 1500
#: Share of the stated deviation that an audit must be able to tell from the whole.
TOO_SMALL = 0.8
#: A mechanism that keeps its promise is reported once in a million audits.
CONFIDENCE = 1 - 1e-6


@dataclass(frozen=True)
class MembershipAudit:
    """What an attacker achieved who has everything but one home; for the data owner."""

    draws: int
    epsilon: float
    delta_lower: float  #: certain to be reached, with ``confidence``
    delta_promised: float
    advantage_lower: float  #: the same at ε = 0: how much more often the home is said to be in it when it is
    advantage_promised: float
    noise_upper: float  #: largest plausible standard deviation of the noise, over the stated one
    within: bool = True  #: whether the home's vector is no longer than the stated sensitivity, exactly
    power: float = 0.0  #: chance that noise with :data:`TOO_SMALL` of the stated deviation is found by its size
    confidence: float = CONFIDENCE

    @property
    def holds(self) -> bool:
        """Whether nothing contradicts the promise."""
        kept = self.delta_lower <= self.delta_promised and self.advantage_lower <= self.advantage_promised
        return kept and self.within and self.noise_upper >= 1.0


def audit_membership(
    account: ReadingsAccount, vector: FloatArray, others: FloatArray, epsilon: float
) -> MembershipAudit:
    """Attack one home.

    Args:
        account: of the release.
        vector: (entries,) what the home adds: whole numbers.
        others: (entries,) the exact sum of all other homes.
        epsilon: ε at which δ is promised.
    """
    # The attacker has no use for entries that the home leaves alone; of a home that adds nothing, only noise is seen.
    touched = np.flatnonzero(vector) if vector.any() else np.arange(len(vector))
    own, rest = vector[touched], others[touched]
    draws = max(DRAWS, -(-NORMALS // (2 * len(touched))))
    many = replace(account, entries=draws * len(touched))
    sigma = math.sqrt(account.variance)
    absent, present = (
        (many.released(np.tile(sums, draws)) - np.tile(rest, draws)).reshape(draws, -1) for sums in (rest, rest + own)
    )
    length = math.sqrt(float(own @ own))
    mu = length / sigma
    # ln of the likelihood ratio, y·v/σ² − μ²/2, above a threshold that is fixed beforehand.
    scores = [(world @ own) / sigma**2 - mu**2 / 2 for world in (absent, present)]
    level = (1 - CONFIDENCE) / 5

    def lower(at: float) -> float:
        false, true = (int((score > at).sum()) for score in scores)
        least = scipy.stats.beta.ppf(level, true, draws - true + 1) if true else 0.0
        most = scipy.stats.beta.ppf(1 - level, false + 1, draws - false) if false < draws else 1.0
        return max(float(least - math.exp(at) * most), 0.0)

    noise = np.concatenate([absent, present - own]).ravel() / sigma
    smallest = float(scipy.stats.chi2.ppf(level, noise.size))
    power = float(scipy.stats.chi2.cdf(smallest / TOO_SMALL**2, noise.size))
    return MembershipAudit(
        draws, epsilon, lower(epsilon), account.delta(epsilon), lower(0.0), account.delta(0.0),
        math.sqrt(float(noise @ noise) / smallest),
        sum(int(entry) ** 2 for entry in own) <= account.zero_out_square, power,
    )  # fmt: skip
