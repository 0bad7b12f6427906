"""What everything released about a label and its neighbors has cost, exactly.

The account of a pair of neighbors counts what was released about either of them: with the two exchanged, releases about
the one are drawn from the other's laws and the other way round (:mod:`shoal.accounting.incident`). An account of one
label alone would miss what the neighbor's answers tell about who is who. A label has not spent less than any pair it
belongs to. A release counts for a pair if its mechanism has their edge (:mod:`shoal.ledger.ties`). A label that was
left out on a day has no release that day, and nothing counts for it; that it is missing is not an answer, and no δ
covers it.

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

The sum is over the sequence as it happened: a guarantee for mechanisms that were not chosen in the light of earlier
answers about the same pair. For those that may have been, :meth:`Composer.filtered` says how far they are from the
limit of a budget that holds for every way of choosing (:mod:`shoal.accounting.filters`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from shoal.accounting.filters import FilterRule
from shoal.accounting.incident import IncidentReleases, SpectraOf, incident_spectra
from shoal.accounting.renyi import equal_covariances, upper_divergences
from shoal.accounting.spectrum import EdgeSpectra
from shoal.laws.classes import GaussianClasses
from shoal.ledger.recent import Recent
from shoal.mechanism.atoms import sum_up, total
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.reader import Releaser
from shoal.mechanism.sequence import book_divergence, deltas, gaussian_deltas
from shoal.validation import FloatArray

EPS = float(np.finfo(np.float64).eps)

#: Gives a mechanism by its digest.
Lookup = Callable[[str], Releaser]


@dataclass(frozen=True)
class Span:
    """When charges were made: the first and the last batch, and the first that ``named`` an analyst (0: none did)."""

    first: int
    last: int
    named: int = 0

    def joined(self, other: Span | None) -> Span:
        """Both together."""
        if other is None:
            return self
        named = min((n for n in (self.named, other.named) if n), default=0)
        return Span(min(self.first, other.first), max(self.last, other.last), named)


@dataclass(frozen=True)
class Charges:
    """What counts against one account: how often each mechanism was used, and what is known of releases elsewhere.

    ``tvs`` holds the total variation of all uses of each mechanism in ``used``, in the same order. ``span`` says when;
    nothing that is composed depends on it.
    """

    used: tuple[tuple[str, int], ...] = ()
    tvs: tuple[float, ...] = ()
    claimed_epsilon: Fraction = Fraction(0)
    claimed_delta: Fraction = Fraction(0)
    claims: int = 0
    span: Span | None = None

    def __hash__(self) -> int:
        """Quick: fractions are left out, which equal charges have equal."""
        return hash((self.used, self.tvs, self.claims))

    @classmethod
    def of(
        cls,
        used: Iterable[tuple[str, float, int]],
        claims: Iterable[tuple[float, float, int]] = (),
        span: Span | None = None,
    ) -> Charges:
        """From (mechanism, total variation, times) and (ε, δ, times)."""
        counts: dict[str, int] = {}
        terms: dict[str, list[float]] = {}
        for digest, tv, times in used:
            counts[digest] = counts.get(digest, 0) + times
            terms.setdefault(digest, []).append(tv * times)
        total = [Fraction(0), Fraction(0)]
        number = 0
        for epsilon, delta, times in claims:
            total[0] += times * Fraction(epsilon)
            total[1] += times * Fraction(delta)
            number += times
        order = sorted(counts)
        tvs = tuple(_up(math.fsum(terms[digest])) for digest in order)
        return cls(tuple((digest, counts[digest]) for digest in order), tvs, total[0], total[1], number, span)

    @property
    def tv(self) -> float:
        """The total variation of all uses, rounded up."""
        return _up(math.fsum(self.tvs))

    @property
    def releases(self) -> int:
        """How many releases are counted, those elsewhere included."""
        return sum(times for _, times in self.used) + self.claims

    @cached_property
    def bare(self) -> Charges:
        """All that what they cost depends on: the same at no time."""
        return self if self.span is None else replace(self, span=None)

    def plus(self, mechanism: str, tv: float, times: int = 1, span: Span | None = None) -> Charges:
        """The same with another use of a mechanism."""
        return self.joined(Charges(((mechanism, times),), (_up(tv * times),), span=span))

    def joined(self, other: Charges) -> Charges:
        """Both together."""
        if not (self.used or self.claims):
            return other
        if not (other.used or other.claims):
            return self
        both = {digest: (times, tv) for (digest, times), tv in zip(self.used, self.tvs, strict=True)}
        for (digest, times), tv in zip(other.used, other.tvs, strict=True):
            before = both.get(digest, (0, 0.0))
            both[digest] = (before[0] + times, _sum(before[1], tv))
        order = sorted(both)
        return Charges(
            tuple((digest, both[digest][0]) for digest in order),
            tuple(both[digest][1] for digest in order),
            self.claimed_epsilon + other.claimed_epsilon if other.claims else self.claimed_epsilon,
            self.claimed_delta + other.claimed_delta if other.claims else self.claimed_delta,
            self.claims + other.claims,
            other.span if self.span is None else self.span.joined(other.span),
        )

    def through(self, kept: Callable[[str], bool]) -> Charges:
        """What counts of them where only some mechanisms do; claims, of which no mechanism is known, always count."""
        stay = [kept(digest) for digest, _ in self.used]
        if all(stay):
            return self
        used, tvs = tuple(itertools.compress(self.used, stay)), tuple(itertools.compress(self.tvs, stay))
        if not used and not self.claims:
            return NOTHING
        return replace(self, used=used, tvs=tvs)


#: Charges of a label that nothing was released about.
NOTHING = Charges()


@dataclass(frozen=True)
class Side:
    """Neighbors of a label for which the same counts: of what was released ``about`` the label, and about each of them.

    Sides with the same number ``tie`` are joined to the label by the same mechanisms: those that count, and maybe more.
    """

    about: Charges
    opposite: Charges
    names: tuple[str, ...]
    tie: int = 0

    @cached_property
    def span(self) -> Span | None:
        """When all of it was released."""
        return self.opposite.span if self.about.span is None else self.about.span.joined(self.opposite.span)


@dataclass(frozen=True)
class Star:
    """What counts for the pairs of a label, side by side, and how many ``releases`` were made about the label itself.

    A label without neighbors has one side without names.
    """

    label: str
    releases: int
    sides: tuple[Side, ...]


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
        self._spectra: Recent[tuple[list[str], EdgeSpectra]] = Recent(256 * 2**20)

    def curve(self, star: Star, epsilons: FloatArray, mechanisms: Lookup) -> Composed:
        """The composed δ of the worst pair of ``star``."""
        found = [self._alike(star, sides, np.asarray(epsilons), mechanisms) for sides in _comparable(star)]
        at = np.argmax([part.delta_upper for part in found], axis=0)
        every = np.arange(len(epsilons))
        return Composed(
            epsilon=np.asarray(epsilons),
            delta=np.array([part.delta for part in found])[at, every],
            delta_upper=np.array([part.delta_upper for part in found])[at, every],
            worst_edge=tuple(found[i].worst_edge[j] for i, j in zip(at, every, strict=True)),
            releases=star.releases,
        )

    def prepare(self, mechanism: Releaser, label: str) -> None:
        """Do the part of the work that depends on one mechanism only, and compile, before anything is locked."""
        if self._spectra.get((mechanism.digest, label)) is None:
            once = Charges.of([(mechanism.digest, 0.0, 1)])
            star = Star(label, 1, (Side(once, once, tuple(mechanism.graph.neighbors(label))),))
            self.curve(star, np.ones(1), lambda _: mechanism)

    def _alike(self, star: Star, sides: list[Side], epsilons: FloatArray, mechanisms: Lookup) -> Composed:
        """The worst of comparable pairs: of the largest exact part, since the rest is the same or not larger."""
        claimed_epsilon, claimed_delta = _claims(sides[0])
        tv = max(_sum(side.about.tv, side.opposite.tv) for side in sides)
        left = [Fraction(float(e)) - claimed_epsilon for e in epsilons]
        value, upper = np.zeros(len(epsilons)), np.zeros(len(epsilons))
        worst: list[tuple[str, str] | None] = [None] * len(epsilons)
        gaussian, counted = self._laid(star.label, sides, mechanisms)
        edges = list(range(len(gaussian.labels) - 1))
        if edges and (gaussian.parts or counted):
            shifted = np.array([max(-sum_up(-x), 0.0) for x in left])
            if not counted:
                found = gaussian.curve(shifted, edges)
                value, upper, worst = found.delta, found.delta_upper, list(found.worst_edge)
            else:
                upper, worst = _beside_books(gaussian, counted, shifted, edges)
                value = upper
        claimed = sum_up(claimed_delta)
        precision = np.array([_imprecise(tv, float(e)) for e in epsilons])
        nothing_left = np.array([x < 0 for x in left])
        sums = (claimed_epsilon, claimed_delta, tv)
        return Composed(
            epsilon=epsilons,
            delta=np.where(nothing_left, 1.0, np.minimum(value + claimed + precision, 1.0)),
            delta_upper=np.array([covered(*sums, float(e), float(u)) for e, u in zip(epsilons, upper, strict=True)]),
            worst_edge=tuple(worst),
            releases=star.releases,
        )

    def filtered(self, star: Star, rule: FilterRule, mechanisms: Lookup) -> Composed:
        """How much of δ the filter of a budget counts for the worst pair of ``star``, in its worse direction."""
        best, worst = -1.0, None
        orders = np.array(rule.orders)
        for sides in _comparable(star):
            claimed, claimed_delta = _claims(sides[0])
            tv = max(_sum(side.about.tv, side.opposite.tv) for side in sides)
            aside = covered(Fraction(0), claimed_delta, tv, rule.epsilon, 0.0)
            gaussian, books = self._laid(star.label, sides, mechanisms)
            label, *names = gaussian.labels
            pairs = np.array([(0, j + 1) for j in range(len(names))], dtype=np.intp).reshape(-1, 2)
            sums = np.zeros((max(len(names), 1), 2, len(orders)))
            exact = np.full(sums.shape[:2], math.inf)
            largest = np.full(len(sums), sum_up(claimed))
            if names and gaussian.parts:
                sums = upper_divergences(gaussian, pairs, orders)
                equal = equal_covariances(gaussian.spectra(pairs))
                largest[(gaussian.about + gaussian.opposite).any(axis=0)] = math.inf
                drawn = sum((about + opposite for _, about, opposite in books), np.zeros(len(names)))
                rows = np.flatnonzero(equal & (drawn == 0)) if claimed == 0 else ()
                if len(rows):
                    exact[rows] = gaussian_deltas(gaussian, pairs[rows], rule.epsilon)
            for j, other in enumerate(names if books else ()):
                for direction, (one, two) in enumerate(((label, other), (other, label))):
                    losses = [
                        (book.losses(*ends), int(times[j]))
                        for book, *uses in books
                        for ends, times in zip(((one, two), (two, one)), uses, strict=True)
                        if times[j]
                    ]
                    if losses:
                        sums[j, direction] += book_divergence(losses, orders)
                bounds = (book.answer_epsilon for book, *uses in books for times in uses for _ in range(int(times[j])))
                largest[j] = sum_up(float(largest[j]), *bounds) if math.isfinite(largest[j]) else math.inf
            sums = (sums + sum_up(claimed)) * (1 + 4 * EPS)
            spent = rule.spent(sums, gaussian=exact, largest=largest[:, None], aside=aside)
            at = np.unravel_index(int(np.argmax(spent)), spent.shape)
            if spent[at] > best:
                best, worst = float(spent[at]), None
                if names and (gaussian.parts or books):
                    worst = (label, names[at[0]]) if at[1] == 0 else (names[at[0]], label)
        found = np.array([best])
        return Composed(np.array([rule.epsilon]), found, found, (worst,), star.releases)

    def _laid(
        self, label: str, sides: list[Side], mechanisms: Lookup
    ) -> tuple[IncidentReleases, list[tuple[Codebook, FloatArray, FloatArray]]]:
        """What was released about a label and its neighbors: Gaussian answers, and each codebook with its uses."""
        used = sorted({digest for side in sides for one in (side.about, side.opposite) for digest, _ in one.used})
        neighbors = sorted(name for side in sides for name in side.names)
        row, column = ({name: i for i, name in enumerate(names)} for names in (used, neighbors))
        about, opposite = np.zeros((2, len(used), len(neighbors)))
        for side in sides:
            at = [column[name] for name in side.names]
            for counts, charged in ((about, side.about), (opposite, side.opposite)):
                for digest, times in charged.used:
                    counts[row[digest], at] = times
        books = [isinstance(mechanisms(digest), Codebook) for digest in used]
        laws = [i for i, discrete in enumerate(books) if not discrete]
        parts = tuple(self._part(used[i], label, neighbors, mechanisms) for i in laws)
        counted = [
            (book, about[i], opposite[i])
            for i, digest in enumerate(used)
            if isinstance(book := mechanisms(digest), Codebook)
        ]
        return IncidentReleases((label, *neighbors), parts, about[laws], opposite[laws]), counted

    def _part(self, digest: str, label: str, neighbors: list[str], mechanisms: Lookup) -> SpectraOf:
        """Spectra at the edges to ``neighbors``. Those of all the label's edges in the mechanism are kept."""

        def spectra(precise: bool) -> EdgeSpectra:
            if precise:
                return incident_spectra(self._laws(digest, mechanisms), label, neighbors, precise=True)
            kept = self._spectra.get((digest, label))
            if kept is None:
                every = sorted(mechanisms(digest).graph.neighbors(label))
                kept = every, incident_spectra(self._laws(digest, mechanisms), label, every)
                self._spectra.put((digest, label), kept, 6 * kept[1].lam.nbytes)
            every, found = kept
            if every == neighbors:
                return found
            place = {name: i for i, name in enumerate(every)}
            return found.take(np.array([place[name] for name in neighbors], dtype=np.intp))

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


def _comparable(star: Star) -> list[list[Side]]:
    """The sides by the mechanisms that join them and by what is claimed of the pair's releases together."""
    found: dict[tuple[int, Fraction, Fraction], list[Side]] = {}
    for side in star.sides:
        found.setdefault((side.tie, *_claims(side)), []).append(side)
    return list(found.values())


def _claims(side: Side) -> tuple[Fraction, Fraction]:
    about, opposite = side.about, side.opposite
    return about.claimed_epsilon + opposite.claimed_epsilon, about.claimed_delta + opposite.claimed_delta


def covered(claimed_epsilon: Fraction, claimed_delta: Fraction, tv: float, epsilon: float, together: float) -> float:
    """δ₀ + ``together`` + (1 + e^ε) Σ τ rounded up, where ``together`` bounds what the mechanisms cost at ε − ε₀."""
    if Fraction(epsilon) < claimed_epsilon:
        return 1.0
    added = sum_up(claimed_delta) + _imprecise(tv, epsilon)
    return min(_up(_up(added) + together) if added > 0 else together, 1.0)


def claim(content: Mapping[str, Any]) -> tuple[float, float, int]:
    """(ε, δ, times) of a declared release of which only these are known."""
    return float(content["epsilon"]), float(content["delta"]), int(content["times"])


def _imprecise(tv: float, epsilon: float) -> float:
    if tv == 0:
        return 0.0
    return _up(_up(1.0 + math.exp(epsilon)) * tv) if epsilon < 700 else 1.0


def _sum(one: float, two: float) -> float:
    return _up(one + two) if one and two else one + two


def _up(value: float) -> float:
    return math.nextafter(value * (1 + 4 * EPS), math.inf) if value > 0 else 0.0
