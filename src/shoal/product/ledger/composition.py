"""Exact cost of everything released about a label and its neighbors.

The account of a pair of neighbors counts what was released about either of them through a mechanism that has their edge
(docs/theory.md, section 5). A label has not spent less than any pair it belongs to.

    δ(ε) ≤ δ_exact(ε) + (1 + e^ε) Σ τ

is rounded up: the contour integral of the stacked spectra, with codebooks its mean at ε less their loss (section 11.3),
and what finite precision costs: of the pairs that are compared, the largest Σ τ is added to the largest δ.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from shoal.accounting.curve import PrivacyCurve, worst_curve
from shoal.accounting.edges import EdgeBatch
from shoal.accounting.releases import stack_spectra
from shoal.accounting.renyi import have_equal_covariances, renyi_upper_ends
from shoal.accounting.spectrum import EdgeSpectra, edge_spectra
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.composition import FilterRule, codebook_divergence, composed_delta_upper, gaussian_deltas
from shoal.mechanism.discrete_loss import compose_losses, sum_rounded_up
from shoal.mechanism.releasable import Releasable
from shoal.validation import FloatArray

EPS = float(np.finfo(np.float64).eps)

#: Gives a mechanism by its digest.
Lookup = Callable[[str], Releasable]
Value = TypeVar("Value")
#: Gives the spectra of one release at the label's edges; called with ``precise``.
SpectraOf = Callable[[bool], EdgeSpectra]


@dataclass(frozen=True)
class Charges:
    """Charges against one account: mechanisms, how often each was used, and the total variation of these uses.

    ``batches`` has the first and the last transaction that charged; nothing that is composed depends on them.
    """

    uses: tuple[tuple[str, int, float], ...] = ()
    batches: frozenset[int] = frozenset()

    @property
    def tv(self) -> float:
        """Total variation distance of all uses between drawn and ideal laws, rounded up."""
        return _round_up(math.fsum(tv for _, _, tv in self.uses))

    @property
    def releases(self) -> int:
        """Number of releases that the charges count."""
        return sum(times for _, times, _ in self.uses)

    def keep_mechanisms(self, counts: Callable[[str], bool]) -> Charges:
        """The charges of mechanisms whose digest ``counts`` accepts."""
        uses = tuple(use for use in self.uses if counts(use[0]))
        if len(uses) == len(self.uses):
            return self
        return replace(self, uses=uses) if uses else NOTHING


#: Charges of a label that nothing was released about.
NOTHING = Charges()


@dataclass(frozen=True)
class PairAccount:
    """Neighbors of a label for which the same counts: of what was released ``about`` the label, and about each of them.

    Those with the same number ``tie`` are joined to the label by the same mechanisms: those that count, and maybe more.
    """

    about: Charges
    opposite: Charges
    names: tuple[str, ...]
    tie: int = 0

    @property
    def batches(self) -> frozenset[int]:
        """Numbers of the first and the last transactions that charged either label of the pair."""
        return self.about.batches | self.opposite.batches


class Composed(NamedTuple):
    """An upper end of what the worst pair of a label has spent, and that pair (from, to): None if nothing was used."""

    delta_upper: float
    pair: tuple[str, str] | None


def incident_spectra(
    family: GaussianClasses, label: str, neighbors: Sequence[str], *, precise: bool = False
) -> EdgeSpectra:
    """Spectra of the edges label → neighbor, one row per neighbor in the order given."""
    rows = [(family.places[label], family.places[other]) for other in neighbors]
    return edge_spectra(family, np.array(rows, dtype=np.intp).reshape(-1, 2), precise=precise)


@dataclass(frozen=True)
class IncidentReleases:
    """Independent releases about ``labels[0]`` and about its neighbors, the labels after it.

    Edge j joins the label to ``labels[j + 1]``. Mechanism r, whose spectra ``parts[r]`` gives, counts ``about[r, j]``
    times from the label and ``opposite[r, j]`` times from the neighbor (docs/theory.md, section 5: accounts of pairs).
    """

    labels: tuple[str, ...]
    parts: tuple[SpectraOf, ...]
    about: FloatArray
    opposite: FloatArray

    def spectra(self, pairs: NDArray[np.integer], *, precise: bool = False) -> EdgeBatch:
        """Spectra of all releases at the given edges of the label, one row per mechanism and direction that counts."""
        edges = np.asarray(pairs)[:, 1] - 1
        rows: list[EdgeSpectra] = []
        times: list[FloatArray] = []
        for part, about, opposite in zip(self.parts, self.about[:, edges], self.opposite[:, edges], strict=True):
            if not (about.any() or opposite.any()):
                continue
            forth = part(precise).take(edges)
            if not (forth.lam.any() or forth.lam_error.any()):  # equal covariances: both directions are the same
                rows.append(forth)
                times.append(about + opposite)
                continue
            if about.any():
                rows.append(forth)
                times.append(about)
            if opposite.any():
                rows.append(forth.reverse())
                times.append(opposite)
        if not rows:
            rows, times = [EdgeSpectra.empty(len(edges), 1)], [np.zeros(len(edges))]
        return stack_spectra(rows, np.array(times))

    def curve(self, epsilons: FloatArray, edges: Sequence[int]) -> PrivacyCurve:
        """Privacy curve at each ε: hockey-stick δ of the worse direction of the worst given edge."""
        pairs = np.array([(0, j + 1) for j in edges], dtype=np.intp)
        return worst_curve(self, pairs, "dp", epsilons, np.zeros((len(pairs), 2)))


class LeastRecentlyUsed(Generic[Value]):
    """Values by key, the least recently used dropped when their sizes add up to more than ``capacity`` bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: OrderedDict[object, tuple[Value, int]] = OrderedDict()
        self._total = 0
        self._lock = Lock()

    def get(self, key: object) -> Value | None:
        """The value under a key, which becomes the most recently used; None if it was dropped."""
        with self._lock:
            item = self._items.get(key)
            if item is None:
                return None
            self._items.move_to_end(key)
            return item[0]

    def put(self, key: object, value: Value, size: int) -> None:
        """Keep a value of ``size`` bytes, and drop the least recently used values beyond the capacity."""
        with self._lock:
            if key in self._items:
                self._total -= self._items.pop(key)[1]
            self._items[key] = (value, size)
            self._total += size
            while self._total > self._capacity and len(self._items) > 1:
                self._total -= self._items.popitem(last=False)[1][1]


class Composer:
    """Composes charges at the edges of a label. Spectra are kept as long as memory allows."""

    def __init__(self) -> None:
        self._spectra: LeastRecentlyUsed[tuple[list[str], EdgeSpectra]] = LeastRecentlyUsed(256 * 2**20)

    def compose(self, label: str, pairs: Sequence[PairAccount], epsilon: float, mechanisms: Lookup) -> Composed:
        """The composed δ(ε) of the worst of a label's pairs, an upper end, and that pair."""
        alike = (self._compose_group(label, group, epsilon, mechanisms) for group in _group_by_mechanisms(pairs))
        return max(alike, key=lambda part: part.delta_upper)

    def prepare_spectra(self, mechanism: Releasable, labels: Iterable[str]) -> None:
        """Compute the spectra of a mechanism at labels, and compile, before anything is locked."""
        for label in dict.fromkeys(labels if mechanism.output is not None else ()):
            if self._spectra.get((mechanism.digest, label)) is None:
                one_use = Charges(((mechanism.digest, 1, 0.0),))
                pair = PairAccount(one_use, one_use, tuple(mechanism.graph.neighbors(label)))
                self.compose(label, [pair], 1.0, lambda _: mechanism)

    def _compose_group(self, label: str, pairs: list[PairAccount], epsilon: float, mechanisms: Lookup) -> Composed:
        """The composed δ(ε) of the worst of pairs that the same mechanisms join."""
        tv = max(sum_tv(pair.about.tv, pair.opposite.tv) for pair in pairs)
        gaussian, books = self._count_uses(label, pairs, mechanisms)
        edges = list(range(len(gaussian.labels) - 1))
        worst = Composed(0.0, None)
        if edges and books:
            worst = _worst_with_codebooks(gaussian, books, epsilon)
        elif edges and gaussian.parts:
            curve = gaussian.curve(np.array([epsilon]), edges)
            worst = Composed(float(curve.delta_upper[0]), curve.worst_edge[0])
        return Composed(add_precision_loss(tv, epsilon, worst.delta_upper), worst.pair)

    def filter_spent(self, label: str, pairs: Sequence[PairAccount], rule: FilterRule, mechanisms: Lookup) -> Composed:
        """Part of δ that the filter of a budget counts for the worst of a label's pairs, in its worse direction."""
        worst = Composed(-1.0, None)
        orders = np.array(rule.orders)
        for group in _group_by_mechanisms(pairs):
            tv = max(sum_tv(pair.about.tv, pair.opposite.tv) for pair in group)
            aside = add_precision_loss(tv, rule.epsilon, 0.0)
            gaussian, books = self._count_uses(label, group, mechanisms)
            names = gaussian.labels[1:]
            edges = np.array([(0, j + 1) for j in range(len(names))], dtype=np.intp).reshape(-1, 2)
            sums = np.zeros((max(len(names), 1), 2, len(orders)))
            exact = np.full(sums.shape[:2], math.inf)
            largest = np.zeros(len(sums))
            if names and gaussian.parts:
                sums = renyi_upper_ends(gaussian, edges, orders)
                equal = have_equal_covariances(gaussian.spectra(edges))
                largest[(gaussian.about + gaussian.opposite).any(axis=0)] = math.inf
                drawn = sum((about + opposite for _, about, opposite in books), np.zeros(len(names)))
                rows = np.flatnonzero(equal & (drawn == 0))
                if len(rows):
                    exact[rows] = gaussian_deltas(gaussian, edges[rows], rule.epsilon)
            for j, other in enumerate(names if books else ()):
                for direction, (first, second) in enumerate(((label, other), (other, label))):
                    losses = [
                        (book.privacy_loss(*ends), int(times[j]))
                        for book, *uses in books
                        for ends, times in zip(((first, second), (second, first)), uses, strict=True)
                        if times[j]
                    ]
                    if losses:
                        sums[j, direction] += codebook_divergence(losses, orders)
                bounds = (book.answer_epsilon for book, *uses in books for times in uses for _ in range(int(times[j])))
                largest[j] = sum_rounded_up(float(largest[j]), *bounds) if math.isfinite(largest[j]) else math.inf
            sums = sums * (1 + 4 * EPS)
            spent = rule.least_delta(sums, gaussian=exact, largest=largest[:, None], aside=aside)
            at = np.unravel_index(int(np.argmax(spent)), spent.shape)
            if spent[at] > worst.delta_upper:
                pair = None
                if names and (gaussian.parts or books):
                    pair = (label, names[at[0]]) if at[1] == 0 else (names[at[0]], label)
                worst = Composed(float(spent[at]), pair)
        return worst

    def _count_uses(
        self, label: str, pairs: list[PairAccount], mechanisms: Lookup
    ) -> tuple[IncidentReleases, list[tuple[Codebook, FloatArray, FloatArray]]]:
        """Releases about a label and its neighbors: Gaussian ones, and codebooks with the uses about each."""
        used = sorted({use[0] for pair in pairs for use in (*pair.about.uses, *pair.opposite.uses)})
        neighbors = sorted(name for pair in pairs for name in pair.names)
        row, column = ({name: i for i, name in enumerate(names)} for names in (used, neighbors))
        about, opposite = np.zeros((2, len(used), len(neighbors)))
        for pair in pairs:
            at = [column[name] for name in pair.names]
            for counts, charged in ((about, pair.about), (opposite, pair.opposite)):
                for digest, times, _ in charged.uses:
                    counts[row[digest], at] = times
        tools = [mechanisms(digest) for digest in used]
        laws = [i for i, tool in enumerate(tools) if not isinstance(tool, Codebook)]
        parts = tuple(self._cached_spectra(used[i], label, neighbors, mechanisms) for i in laws)
        counted = [(tool, about[i], opposite[i]) for i, tool in enumerate(tools) if isinstance(tool, Codebook)]
        return IncidentReleases((label, *neighbors), parts, about[laws], opposite[laws]), counted

    def _cached_spectra(self, digest: str, label: str, neighbors: list[str], mechanisms: Lookup) -> SpectraOf:
        """A function that gives a mechanism's spectra at the edges to ``neighbors``, from the cache if it can."""

        def spectra(precise: bool) -> EdgeSpectra:
            tool = mechanisms(digest)
            assert tool.output is not None, "a codebook has no Gaussian laws"
            if precise:
                return incident_spectra(tool.output, label, neighbors, precise=True)
            known = self._spectra.get((digest, label))
            if known is None:
                every = sorted(tool.graph.neighbors(label))
                known = every, incident_spectra(tool.output, label, every)
                self._spectra.put((digest, label), known, 6 * known[1].lam.nbytes)
            every, spectra_of = known
            if every == neighbors:
                return spectra_of
            place = {name: i for i, name in enumerate(every)}
            return spectra_of.take(np.array([place[name] for name in neighbors], dtype=np.intp))

        return spectra


def _worst_with_codebooks(
    gaussian: IncidentReleases, books: list[tuple[Codebook, FloatArray, FloatArray]], epsilon: float
) -> Composed:
    """The worst δ of Gaussian releases and codebooks, and its pair: answers cost δ at ε less the books' loss."""
    worst = Composed(-1.0, None)
    label, *others = gaussian.labels
    for j, other in enumerate(others):
        source = gaussian if gaussian.about[:, j].any() or gaussian.opposite[:, j].any() else None
        for direction, (first, second) in enumerate(((label, other), (other, label))):
            loss = compose_losses(
                [
                    book.privacy_loss(first, second).times(int(about[j]))
                    + book.privacy_loss(second, first).times(int(opposite[j]))
                    for book, about, opposite in books
                ]
            )
            delta = float(composed_delta_upper(loss, source, (0, j + 1), direction, np.array([epsilon]))[0][0])
            if delta > worst.delta_upper:
                worst = Composed(delta, (first, second))
    return worst


def _group_by_mechanisms(pairs: Iterable[PairAccount]) -> list[list[PairAccount]]:
    """Pair accounts grouped by the mechanisms that join their labels."""
    alike: dict[int, list[PairAccount]] = {}
    for pair in pairs:
        alike.setdefault(pair.tie, []).append(pair)
    return list(alike.values())


def add_precision_loss(tv: float, epsilon: float, together: float) -> float:
    """δ at ε with finite precision: ``together`` + (1 + e^ε) ``tv``, rounded up and at most 1.

    ``together`` bounds δ of the mechanisms at ε, ``tv`` the total variation between what they draw and their laws.
    """
    if tv == 0:
        return min(together, 1.0)
    added = _round_up(_round_up(1.0 + math.exp(epsilon)) * tv) if epsilon < 700 else 1.0
    return min(_round_up(_round_up(added) + together), 1.0)


def sum_tv(first: float, second: float) -> float:
    """The sum of two total variations, rounded up."""
    return _round_up(first + second) if first and second else first + second


def _round_up(value: float) -> float:
    """A positive value after a few roundings, moved up by more than their error; 0 for others."""
    return math.nextafter(value * (1 + 4 * EPS), math.inf) if value > 0 else 0.0
