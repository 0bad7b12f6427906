"""What everything released about a label and its neighbors has cost, exactly.

The account of a pair of neighbors counts what was released about either of them: with the two exchanged, releases about
the one are drawn from the other's laws and the other way round (:mod:`shoal.accounting.incident`). An account of one
label alone would miss what the neighbor's answers tell about who is who. A label has not spent less than any pair it
belongs to. A label that was left out on a day has no release that day, and nothing counts for it; that it is missing is
not an answer, and no δ covers it.

Three parts add up for a pair (all as upper ends, rounded up), each over the releases about both labels:

    δ(ε) ≤ δ₀ + δ_exact(ε − ε₀) + (1 + e^ε) Σ τ

*Exact part.* Mechanisms draw independently given the labels, so their losses add and the contour integral of the
stacked spectra is the composed δ (docs/theory.md, section 5). Beside codebooks, whose losses are discrete, it is the
mean of that δ at ε less their loss (section 11.3).

*Claims* (ε₀, δ₀), the sums over releases of which only an (εᵢ, δᵢ) is known. Let P₁, Q₁ be the laws of the claimed
release in the two worlds and P₂, Q₂ those of the rest. With M = min(P₁, e^{ε₀} Q₁), the claim says that P₁ − M has
mass at most δ₀. Since Q₁ ≥ e^{−ε₀} M,

    ∫∫ (P₁P₂ − e^ε Q₁Q₂)₊ ≤ ∫∫ (P₁ − M) P₂ + ∫∫ (M P₂ − e^{ε−ε₀} M Q₂)₊ ≤ δ₀ + δ_exact(ε − ε₀),

and by induction for several. Where ε₀ > ε nothing is claimed to be left: δ = 1.

*Finite precision.* If what is released differs from the ideal law by at most τ in total variation, in either world,
then P(E) ≤ e^ε (Q(E) + τ) + δ + τ; total variation adds over releases. Of the pairs of a label that are compared, the
largest Σ τ is added to the largest δ.

A cheaper figure that is never below this one is in :mod:`shoal.ledger.bounds`.

The sum is over the sequence as it happened. It is a guarantee for mechanisms that were not chosen in the light of
earlier answers about the same pair (sharp edges: adaptive choice).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shoal.accounting.incident import IncidentReleases, SpectraOf, incident_spectra
from shoal.accounting.spectrum import EdgeSpectra
from shoal.classes import GaussianClasses
from shoal.codebooks.atoms import total
from shoal.codebooks.codebook import Codebook
from shoal.codebooks.sequence import deltas
from shoal.ledger.recent import Recent
from shoal.mechanism import Mechanism
from shoal.mechanism_reader import Releaser
from shoal.validation import FloatArray

EPS = float(np.finfo(np.float64).eps)

#: Gives a mechanism by its digest.
Lookup = Callable[[str], Releaser]


@dataclass(frozen=True)
class Charges:
    """What counts against one account: how often each mechanism was used, and what is known of releases elsewhere."""

    used: tuple[tuple[str, int], ...] = ()
    tv: float = 0.0
    claimed_epsilon: Fraction = Fraction(0)
    claimed_delta: Fraction = Fraction(0)
    claims: int = 0

    def __hash__(self) -> int:
        """Quick: fractions are left out, which equal charges have equal."""
        return hash((self.used, self.tv, self.claims))

    @classmethod
    def of(cls, used: Iterable[tuple[str, float, int]], claims: Iterable[tuple[float, float, int]] = ()) -> Charges:
        """From (mechanism, total variation, times) and (ε, δ, times)."""
        counts: dict[str, int] = {}
        terms = []
        for digest, tv, times in used:
            counts[digest] = counts.get(digest, 0) + times
            terms.append(tv * times)
        total = [Fraction(0), Fraction(0)]
        number = 0
        for epsilon, delta, times in claims:
            total[0] += times * Fraction(epsilon)
            total[1] += times * Fraction(delta)
            number += times
        return cls(tuple(sorted(counts.items())), _up(math.fsum(terms)), total[0], total[1], number)

    @property
    def releases(self) -> int:
        """How many releases are counted, those elsewhere included."""
        return sum(times for _, times in self.used) + self.claims

    def plus(self, mechanism: str, tv: float, times: int = 1) -> Charges:
        """The same with another use of a mechanism."""
        counts = dict(self.used)
        counts[mechanism] = counts.get(mechanism, 0) + times
        total = _up(self.tv + _up(tv * times))
        return Charges(tuple(sorted(counts.items())), total, self.claimed_epsilon, self.claimed_delta, self.claims)

    def joined(self, other: Charges) -> Charges:
        """Both together."""
        if NOTHING in (self, other):
            return other if self == NOTHING else self
        counts = dict(self.used)
        for mechanism, times in other.used:
            counts[mechanism] = counts.get(mechanism, 0) + times
        return Charges(
            tuple(sorted(counts.items())),
            _sum(self.tv, other.tv),
            self.claimed_epsilon + other.claimed_epsilon,
            self.claimed_delta + other.claimed_delta,
            self.claims + other.claims,
        )


#: Charges of a label that nothing was released about.
NOTHING = Charges()


@dataclass(frozen=True)
class Star:
    """What counts for the pairs of a label: what was released ``about`` it, and about each neighbor.

    ``others`` lists the neighbors with equal charges together; a label without neighbors has one empty list.
    """

    label: str
    about: Charges
    others: tuple[tuple[Charges, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Composed:
    """δ of the worst pair of a label at each ε; ``delta_upper`` is the end to rely on.

    ``worst_edge`` is the pair (from, to) that attains it, None where no mechanism was used. ``releases`` are those
    about the label itself.
    """

    epsilon: FloatArray
    delta: FloatArray
    delta_upper: FloatArray
    worst_edge: tuple[tuple[str, str] | None, ...]
    releases: int


class Composer:
    """Composes charges at the edges of a label. Spectra are kept as long as memory allows."""

    def __init__(self) -> None:
        self._spectra: Recent[EdgeSpectra] = Recent(256 * 2**20)

    def curve(self, star: Star, epsilons: FloatArray, mechanisms: Lookup) -> Composed:
        """The composed δ of the worst pair of ``star``."""
        found = [
            self._alike(star, claims, others, np.asarray(epsilons), mechanisms)
            for claims, others in _by_claims(star).items()
        ]
        at = np.argmax([part.delta_upper for part in found], axis=0)
        every = np.arange(len(epsilons))
        return Composed(
            epsilon=np.asarray(epsilons),
            delta=np.array([part.delta for part in found])[at, every],
            delta_upper=np.array([part.delta_upper for part in found])[at, every],
            worst_edge=tuple(found[i].worst_edge[j] for i, j in zip(at, every, strict=True)),
            releases=star.about.releases,
        )

    def prepare(self, mechanism: Releaser, label: str) -> None:
        """Do the part of the work that depends on one mechanism only, and compile, before anything is locked."""
        if self._spectra.get((mechanism.digest, label)) is None:
            once = Charges.of([(mechanism.digest, 0.0, 1)])
            star = Star(label, once, ((once, tuple(mechanism.graph.neighbors(label))),))
            self.curve(star, np.ones(1), lambda _: mechanism)

    def _alike(
        self,
        star: Star,
        claims: tuple[Fraction, Fraction],
        others: list[tuple[Charges, tuple[str, ...]]],
        epsilons: FloatArray,
        mechanisms: Lookup,
    ) -> Composed:
        """The worst of the pairs of which the same is claimed: there the largest exact part is the largest of all."""
        together = Charges((), _sum(star.about.tv, max(charged.tv for charged, _ in others)), *claims)
        left = [Fraction(float(e)) - together.claimed_epsilon for e in epsilons]
        value, upper = np.zeros(len(epsilons)), np.zeros(len(epsilons))
        worst: list[tuple[str, str] | None] = [None] * len(epsilons)
        used = sorted({digest for charged in (star.about, *(c for c, _ in others)) for digest, _ in charged.used})
        if used and any(names for _, names in others):
            neighbors = sorted(mechanisms(used[0]).graph.neighbors(star.label))
            row, column = ({name: i for i, name in enumerate(names)} for names in (used, neighbors))
            about, opposite = np.zeros((2, len(used), len(neighbors)))
            for digest, times in star.about.used:
                about[row[digest]] = times
            edges: list[int] = []
            for charged, names in others:
                at = [column[name] for name in names]
                edges += at
                for digest, times in charged.used:
                    opposite[row[digest], at] = times
            shifted = np.array([max(_down(x), 0.0) for x in left])
            books = [isinstance(mechanisms(digest), Codebook) for digest in used]
            laws = [i for i, discrete in enumerate(books) if not discrete]
            parts = tuple(self._part(used[i], star.label, neighbors, mechanisms) for i in laws)
            gaussian = IncidentReleases((star.label, *neighbors), parts, about[laws], opposite[laws])
            if not any(books):
                found = gaussian.curve(shifted, sorted(edges))
                value, upper, worst = found.delta, found.delta_upper, list(found.worst_edge)
            else:
                counted = [
                    (book, about[i], opposite[i])
                    for i, digest in enumerate(used)
                    if isinstance(book := mechanisms(digest), Codebook)
                ]
                upper, worst = _beside_books(gaussian, counted, shifted, sorted(edges))
                value = upper
        claimed = _up_fraction(together.claimed_delta)
        precision = np.array([_imprecise(together.tv, float(e)) for e in epsilons])
        nothing_left = np.array([x < 0 for x in left])
        return Composed(
            epsilon=epsilons,
            delta=np.where(nothing_left, 1.0, np.minimum(value + claimed + precision, 1.0)),
            delta_upper=np.array([covered(together, float(e), float(u)) for e, u in zip(epsilons, upper, strict=True)]),
            worst_edge=tuple(worst),
            releases=star.about.releases,
        )

    def _part(self, digest: str, label: str, neighbors: list[str], mechanisms: Lookup) -> SpectraOf:
        def spectra(precise: bool) -> EdgeSpectra:
            if precise:
                return incident_spectra(self._laws(digest, mechanisms), label, neighbors, precise=True)
            found = self._spectra.get((digest, label))
            if found is None:
                found = incident_spectra(self._laws(digest, mechanisms), label, neighbors)
                self._spectra.put((digest, label), found, 6 * found.lam.nbytes)
            return found

        return spectra

    @staticmethod
    def _laws(digest: str, mechanisms: Lookup) -> GaussianClasses:
        mechanism = mechanisms(digest)
        assert isinstance(mechanism, Mechanism)
        return mechanism.output


def _beside_books(
    gaussian: IncidentReleases,
    books: list[tuple[Codebook, FloatArray, FloatArray]],
    epsilons: FloatArray,
    edges: list[int],
) -> tuple[FloatArray, list[tuple[str, str] | None]]:
    """The worst δ of Gaussian releases and codebooks together, and where; each book with its uses about the label and
    about every neighbor. Conditional on what the books gave, the rest costs δ at ε less their loss.
    """
    upper = np.full(len(epsilons), -1.0)
    worst: list[tuple[str, str] | None] = [None] * len(epsilons)
    label = gaussian.labels[0]
    for j in edges:
        other = gaussian.labels[j + 1]
        source = gaussian if gaussian.about[:, j].any() or gaussian.opposite[:, j].any() else None
        for direction, (one, two) in enumerate(((label, other), (other, label))):
            loss = total(
                [
                    book.losses(one, two).times(int(about[j])) + book.losses(two, one).times(int(opposite[j]))
                    for book, about, opposite in books
                ]
            )
            found = deltas(loss, source, (0, j + 1), direction, epsilons)
            for e in np.flatnonzero(found > upper):
                upper[e], worst[e] = found[e], (one, two)
    return upper, worst


def _by_claims(star: Star) -> dict[tuple[Fraction, Fraction], list[tuple[Charges, tuple[str, ...]]]]:
    """The neighbors by what is claimed of the pair's releases together."""
    found: dict[tuple[Fraction, Fraction], list[tuple[Charges, tuple[str, ...]]]] = {}
    for charged, names in star.others:
        epsilon = star.about.claimed_epsilon + charged.claimed_epsilon
        delta = star.about.claimed_delta + charged.claimed_delta
        found.setdefault((epsilon, delta), []).append((charged, names))
    return found


def covered(charges: Charges, epsilon: float, together: float) -> float:
    """δ₀ + ``together`` + (1 + e^ε) Σ τ rounded up, where ``together`` bounds what the mechanisms cost at ε − ε₀."""
    if Fraction(epsilon) < charges.claimed_epsilon:
        return 1.0
    added = _up_fraction(charges.claimed_delta) + _imprecise(charges.tv, epsilon)
    return min(_up(_up(added) + together) if added > 0 else together, 1.0)


def claim(payload: str) -> tuple[float, float, int]:
    """(ε, δ, times) of a declared release of which only these are known."""
    content = json.loads(payload)
    return float(content["epsilon"]), float(content["delta"]), int(content["times"])


def _imprecise(tv: float, epsilon: float) -> float:
    if tv == 0:
        return 0.0
    return _up(_up(1.0 + math.exp(epsilon)) * tv) if epsilon < 700 else 1.0


def _sum(one: float, two: float) -> float:
    return _up(one + two) if one and two else one + two


def _up(value: float) -> float:
    return math.nextafter(value * (1 + 4 * EPS), math.inf) if value > 0 else 0.0


def _up_fraction(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf)


def _down(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) <= value else math.nextafter(rounded, -math.inf)
