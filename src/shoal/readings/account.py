"""Privacy account of one release about readings: the exact δ of its Gaussian pair, plus what finite precision costs.

A release is y = Σ_i v_i + σ z: integer vectors v_i, one a home, and independent normals z. A home moves the sum by at
most Δ (``zero-out``: all its readings, or none) or Δ_rep (``replace``: any others), and with μ = Δ/σ

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)            (Balle & Wang 2018), plus (1 + e^ε) tv

where tv bounds the total variation between what is drawn and the ideal normal (docs/theory.md, section 16). Upper ends
in ball arithmetic from the integer Δ² and the stored variance, above the exact value by a relative 1e-14 at most.

:func:`audit_membership` attacks a release before it is used, by the likelihood ratio of a home's presence (Neyman &
Pearson) with exact bounds (Clopper & Pearson): it finds gross mistakes, such as noise that is missing.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy

from shoal import validation
from shoal.audits.confidence import clopper_pearson_lower, clopper_pearson_upper
from shoal.errors import InputError, UnreachableError
from shoal.noise.exact_map import ExactMap
from shoal.noise.grid import NoiseGrid, edge_delta_increase, label_total_variation
from shoal.noise.source import standard_normals
from shoal.records import from_plain, to_plain
from shoal.validation import FloatArray

#: Normals in memory at a time.
DRAWN = 4096
#: A whole weight of 1 in units of the vector: shares are rounded to its reciprocal.
UNIT = 1 << 20
#: No plan has a larger Δ_rep²/Δ², nor more entries: so a series counts its other releases. Variance before calibration.
FARTHEST, ENTRIES, LOUD = 2.4, 1 << 16, 1e300
#: Between these the μ of a release is searched.
SMALLEST_MU, LARGEST_MU = 1e-12, 1e3
#: How many releases of readings a series takes: no μ is below cap/√that.
MOST_READINGS = 10_000
#: Draws of each world, at least, and normals drawn in all, at least.
DRAWS, NORMALS = 200, 1500
#: Share of the stated deviation that an audit must be able to tell from the whole.
TOO_SMALL = 0.8
#: A mechanism that keeps its promise is reported once in a million audits.
CONFIDENCE = 1 - 1e-6


@dataclass(frozen=True)
class ReadingsAccount:
    """Privacy account of a noisy integer vector: exact squared sensitivities, and the noise variance of each entry."""

    zero_out_square: int
    replace_square: int
    entries: int
    variance: float
    reach: float  #: no sum's entry is larger, in units of the vector

    @classmethod
    def calibrate(
        cls, zero_out_square: int, replace_square: int, entries: int, reach: float, *, epsilon: float, delta: float
    ) -> ReadingsAccount:
        """The least noise with δ(ε) ≤ ``delta`` for zero-out neighbors, finite precision included."""
        root = _square_root_rounded_up(zero_out_square)

        def of(mu: float) -> ReadingsAccount:
            variance = math.nextafter((root / mu) ** 2, math.inf)
            return cls(zero_out_square, replace_square, entries, variance, reach)

        low, high = SMALLEST_MU, LARGEST_MU
        delta *= 1 - 1e-12  # another machine's exponential may be off by a rounding
        if of(low).delta(epsilon) > delta:
            raise UnreachableError("delta is below what finite precision allows here: ask for a larger one")
        for _ in range(60):
            mu = math.sqrt(low * high)
            low, high = (mu, high) if of(mu).delta(epsilon) <= delta else (low, mu)
        return of(low)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, rounded down."""
        return math.nextafter(math.sqrt(self.variance), 0.0)

    @property
    def mu(self) -> float:
        """μ = Δ/σ for zero-out neighbors, rounded up; the squares of a series of releases add."""
        return math.nextafter(_square_root_rounded_up(self.zero_out_square) / self.sigma, math.inf)

    def delta(self, epsilon: float, neighbors: str = "zero-out", meters: int = 1) -> float:
        """δ at ``epsilon`` of the released vector, never below the exact value; as :meth:`NoisePlan.delta`."""
        epsilon = validation.non_negative(epsilon=epsilon)
        chosen = validation.choice(("zero-out", "replace"), neighbors=neighbors)
        square = self.zero_out_square if chosen == "zero-out" else self.replace_square
        ideal = _gaussian_delta_upper(square * validation.count(meters=meters) ** 2, self.variance, epsilon)
        return min(math.nextafter(ideal + self.precision_loss(epsilon), math.inf), 1.0)

    def precision_loss(self, epsilon: float) -> float:
        """The part of δ that finite precision costs: (1 + e^ε) tv, tv summed over the entries."""
        tv = min(
            self.entries * float(label_total_variation(np.array([[math.sqrt(self.variance)]]), self._grid.steps)[0]),
            1.0,
        )
        return edge_delta_increase(np.array([tv, tv]), np.array([[0, 1]]), np.array([epsilon]))

    @property
    def _grid(self) -> NoiseGrid:
        """The grid that noisy sums are rounded to."""
        return NoiseGrid.from_moments(np.array([[self.reach]]), np.array([[math.sqrt(self.variance)]]))

    def release(self, sums: FloatArray) -> FloatArray:
        """The sums behind noise from a cryptographic source, on a grid of multiples of a power of two.

        Sums are whole numbers below 2^53, so that every addition before the rounding to the grid is exact.
        """
        if sums.shape != (self.entries,):
            raise ValueError("sums must be of this account's vector")
        nothing = np.zeros((1, 1))
        exact = ExactMap.from_parameters(nothing, nothing, None, np.array([[[self.variance]]]), self._grid)
        noisy = np.empty(len(sums))
        for start in range(0, len(sums), DRAWN):
            part = sums[start : start + DRAWN, None]
            noisy[start : start + DRAWN] = exact.release(part, [0] * len(part), standard_normals(len(part)))[:, 0]
        return noisy


@dataclass(frozen=True)
class NoisePlan:
    """Everything public about a noisy sum: what was declared, what each label may add, and the noise."""

    FORM: ClassVar[str]  #: what its file says it is

    customers: int
    epsilon: float
    delta_bound: float
    variance: float  #: of the noise in every entry, in units of the vector

    @property
    def entries(self) -> int:
        """Length of the noisy vector."""
        raise NotImplementedError

    @property
    def squared_sensitivities(self) -> tuple[int, int]:
        """Δ² and Δ_rep², exact."""
        raise NotImplementedError

    @cached_property
    def account(self) -> ReadingsAccount:
        """The privacy account of the release."""
        return ReadingsAccount(*self.squared_sensitivities, self.entries, self.variance, float(self.customers * UNIT))

    @property
    def mu(self) -> float:
        """μ of the release for zero-out neighbors, rounded up."""
        return self.account.mu

    def delta(self, epsilon: float, neighbors: str = "zero-out", meters: int = 1) -> float:
        """δ at ``epsilon`` of all that may leave, finite precision included, never below the exact value.

        ``neighbors``: ``"zero-out"``, a home with all its readings or with none, or ``"replace"``, with any others;
        ``meters``: how many meters of one home, or rows of one label, were not joined.
        """
        return self.account.delta(epsilon, neighbors, meters)

    def calibrate(self, cap_mu: float | None = None) -> Self:
        """The plan with the least noise at which its (ε, δ) hold and μ is at most ``cap_mu``."""
        reach, squares = float(self.customers * UNIT), self.squared_sensitivities
        epsilon, delta = self.epsilon, self.delta_bound
        variance = ReadingsAccount.calibrate(*squares, self.entries, reach, epsilon=epsilon, delta=delta).variance
        if cap_mu is not None:
            smallest = (1 + 1e-12) * squares[0] / validation.positive(cap_mu=cap_mu) ** 2
            variance = max(variance, math.nextafter(smallest, math.inf))
        return replace(self, variance=variance)

    def to_json(self) -> str:
        """The plan as text: public, and all that rebuilding the public tables needs beside the noisy vector."""
        return json.dumps({"format": self.FORM, **to_plain(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what :meth:`to_json` wrote; refuses anything else, and noise that does not give the stated δ."""
        try:
            content = json.loads(text)
            if content.pop("format") != cls.FORM:
                raise ValueError("of another format")
            plan: Self = from_plain(cls, content)
            return plan
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f": {error}" if isinstance(error, InputError) else ""
            raise InputError(f"text is not a {cls.FORM[:-2].removeprefix('shoal ')} of this version{reason}") from error

    def __post_init__(self) -> None:
        """Refuse a plan that no series counts on, or whose noise does not give the δ that it states."""
        check_declared_numbers(self.customers, self.epsilon, self.delta_bound)
        validation.positive(variance=self.variance)
        zero_out, replaced = self.squared_sensitivities
        if self.entries > ENTRIES or replaced > FARTHEST * zero_out or self.customers >= 1 << 32:
            raise InputError(f"plan: above {ENTRIES} entries, or with shares or customers that no plan made here has")
        if self.delta(self.epsilon) > self.delta_bound:
            raise InputError("plan: its noise does not give the delta that it states")


def check_declared_numbers(customers: int, epsilon: float, delta: float | None) -> tuple[int, float, float]:
    """Customers, ε and δ of a plan, checked; δ is by default 1/(10 customers)."""
    number = validation.count(customers=customers)
    bound = 1 / (10 * number)
    if delta is not None:
        bound = validation.probability(delta=delta, above_zero=True, below_one=True)
    return number, validation.positive(epsilon=epsilon), bound


def _gaussian_delta_upper(square: int, variance: float, epsilon: float) -> float:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) with μ² = square/variance, rounded up."""
    from flint import arb, ctx

    from shoal.proofs.dyadic_laws import upper_double
    from shoal.proofs.enclosure import gaussian_delta_ball

    with ctx.workprec(2048):
        ratio = arb(square) / arb(variance)
    return min(upper_double(gaussian_delta_ball(ratio, epsilon)), 1.0)


def _square_root_rounded_up(square: int) -> float:
    """Square root of an integer, never below the exact one."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


@dataclass(frozen=True)
class MembershipAudit:
    """Result of :func:`audit_membership`: bounds of an attack by someone who has everything but one home."""

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
        attack_fails = self.delta_lower <= self.delta_promised and self.advantage_lower <= self.advantage_promised
        return attack_fails and self.within and self.noise_upper >= 1.0


def audit_membership(
    account: ReadingsAccount, vector: FloatArray, others: FloatArray, epsilon: float
) -> MembershipAudit:
    """Attack the presence of one home that adds ``vector`` (entries,) to the exact sum of all ``others``.

    Both worlds are drawn through the sampler of the release, thresholds are fixed beforehand. The vector is held
    against the stated sensitivity in exact integers, the size of the noise against the stated variance by a χ² test.
    """
    # The attacker has no use for entries that the home leaves alone; of a home that adds nothing, only noise is seen.
    touched = np.flatnonzero(vector) if vector.any() else np.arange(len(vector))
    own, rest = vector[touched], others[touched]
    draws = max(DRAWS, -(-NORMALS // (2 * len(touched))))
    many = replace(account, entries=draws * len(touched))
    sigma = math.sqrt(account.variance)
    absent, present = (
        (many.release(np.tile(sums, draws)) - np.tile(rest, draws)).reshape(draws, -1) for sums in (rest, rest + own)
    )
    length = math.sqrt(float(own @ own))
    mu = length / sigma
    # ln of the likelihood ratio, y·v/σ² − μ²/2, above a threshold that is fixed beforehand.
    scores = [(world @ own) / sigma**2 - mu**2 / 2 for world in (absent, present)]
    level = (1 - CONFIDENCE) / 5

    def lower(at: float) -> float:
        false, true = (int((score > at).sum()) for score in scores)
        least, most = clopper_pearson_lower(true, draws, level), clopper_pearson_upper(false, draws, level)
        return max(float(least - math.exp(at) * most), 0.0)

    noise = np.concatenate([absent, present - own]).ravel() / sigma
    smallest = float(scipy.stats.chi2.ppf(level, noise.size))
    power = float(scipy.stats.chi2.cdf(smallest / TOO_SMALL**2, noise.size))
    return MembershipAudit(
        draws, epsilon, lower(epsilon), account.delta(epsilon), lower(0.0), account.delta(0.0),
        math.sqrt(float(noise @ noise) / smallest),
        sum(int(entry) ** 2 for entry in own) <= account.zero_out_square, power,
    )  # fmt: skip
