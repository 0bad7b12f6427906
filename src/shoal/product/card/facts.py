"""Facts that the stages of a release hand to its card: frozen records of plain values, which merge over shards.

Every field has its rule beside it (:func:`shoal.records.merging`): counts are added, the worst figure stays, lists are
cut to :data:`LISTED`, errors are sums of squares over labels. No privacy figure of a merged record is smaller than that
of any shard. ``noun`` names a label ("household"), ``unit`` is what errors are counted in ("kW").
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from shoal.accounting.risk import group_naming_bound
from shoal.product.card.promises import query_words
from shoal.records import Record, first_value, merged_by_records, merging
from shoal.rounding import exactly, upper

#: Above this δ a guarantee means little: a mechanism that discloses the label in this share of the answers has it too.
MEANINGLESS = 1e-2
#: Members of the smallest group from which on errors are told entry by entry.
CROWD = 10
#: Share of labels whose rows may fail a test of the law by chance.
DOUBTED = 0.2
#: Entries of a list that a record keeps.
LISTED = 20
Key = TypeVar("Key")


def _if_all_known(rule: Callable[[Any], float]) -> Callable[[Any], float | None]:
    """A merging rule that gives None if the figure of any shard is None."""
    return lambda values: None if None in values else rule(values)


def _entry_by_entry(rule: Callable[[Any], float]) -> Callable[[Any], tuple[float, ...]]:
    """A merging rule that applies ``rule`` to each entry of equally long tuples."""
    return lambda columns: tuple(rule(entry) for entry in zip(*columns, strict=True))


def _distinct_values(values: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    """The different values of several lists, sorted, at most LISTED."""
    return tuple(sorted({one for inside in values for one in inside})[:LISTED])


def _most_common_first(values: Iterable[Iterable[tuple[str, int]]]) -> tuple[tuple[str, int], ...]:
    """Counts by text of several shards added up, the most common first, at most LISTED."""
    return tuple(sort_by_count(sum_counts(values)))[:LISTED]


def _merge_known(values: Sequence[Any]) -> Any:
    """The records that are not None, merged; None if there are none."""
    known = [value for value in values if value is not None]
    return type(known[0]).merge(known) if known else None


@dataclass(frozen=True)
class ModelChecks(Record):
    """Labels whose law passed each formal check, of how many."""

    gaussian: int = merging(sum)
    white: int = merging(sum)
    stationary: int = merging(sum)
    all_three: int = merging(sum)
    of: int = merging(sum)


@dataclass(frozen=True)
class FitFacts(Record):
    """Where the class laws come from, and who hides among whom."""

    source: str = ""  #: in a few words
    labels: int = merging(sum, 0)  #: with a law
    groups: int = merging(sum, 0)
    smallest_group: int = merging(min, 0)
    largest_group: int = merging(max, 0)
    edges: int = merging(sum, 0)
    left_out: int = merging(sum, 0)
    reasons: tuple[tuple[str, int], ...] = merging(_most_common_first, ())  #: why labels are left out
    noun: str = "label"
    entry: str = "step"  #: what an entry of an answer is
    about: tuple[str, ...] = ()  #: sentences on what the answers are
    doubts: tuple[str, ...] = ()  #: what the owner should settle about the readings
    origin: str | None = None  #: instant of the first entry, ISO 8601
    step_minutes: float | None = None  #: between entries
    time_zone: str | None = None  #: of the instants; None: the clock on the wall
    checks: ModelChecks | None = merging(_merge_known, None)  # noqa: RUF009
    fitted_on_private_data: bool | None = True
    later_known: int = merging(sum, 0)  #: entries whose true value came later
    later_absolute: float = merging(math.fsum, 0.0)  #: sum of |true answer − what came|, in the unit of errors
    newcomers: int = merging(sum, 0)  #: without a place in a crowd yet
    crowd: int = 0  #: least size of a crowd that was asked for; 0 where neighbors came otherwise
    most_rows: int = merging(max, 1)  #: of a label, in a table
    unit: str = ""  #: what the data came in
    #: Of averages, by entry: what someone who knows all other members' figures errs by about a constant one, at least.
    insider: tuple[tuple[str, float], ...] = ()
    protected: tuple[str, ...] = ()  #: columns that crowds are not alike in
    closeness: float = 0.0  #: how far crowds are from all labels in those, at most, in standard deviations
    held: int = 0  #: labels of which an older figure enters
    held_since: str = ""  #: the first period of those

    @property
    def later_error(self) -> float | None:
        """Mean absolute error of the unprotected answers against what came later."""
        return self.later_absolute / self.later_known if self.later_known else None


@dataclass(frozen=True)
class Accuracy(Record):
    """Errors of released answers, as sums over ``labels``."""

    labels: int = merging(sum)
    unit: str = merging(first_value)  #: of ``squares``, ``biases`` and ``answers``; "the answer's own" without another
    rho: float = merging(math.fsum)  #: sum over labels of the mean squared error per entry, in the unit of the design
    rho_largest: float = merging(max)
    squares: tuple[float, ...] = merging(_entry_by_entry(math.fsum))  #: by entry: sum of expected squared errors
    biases: tuple[float, ...] = merging(_entry_by_entry(math.fsum))  #: by entry: sum of expected errors
    square_largest: float = merging(max)  #: largest over labels of the mean over entries
    answers: float | None = merging(_if_all_known(math.fsum))  #: sum over labels of the mean size of a true answer
    ratio: bool = False  #: of answers that are logarithms of what the unit is of
    total_error: float | None = merging(_if_all_known(max), None)  #: largest error of a crowd's total, relative to it
    beside_largest: float = merging(max, 0.0)  #: largest over labels: error over the largest answer of its crowd
    noise_alone: bool = merging(all, False)  #: nothing is moved

    @property
    def rho_mean(self) -> float:
        """Mean over labels of the mean squared error per entry, rounded up."""
        return _round_up(self.rho / self.labels)

    @property
    def rmse_by_entry(self) -> tuple[float, ...]:
        """Root mean squared error over labels, entry by entry, rounded up."""
        return tuple(_round_up(math.sqrt(total / self.labels)) for total in self.squares)

    @property
    def bias_by_entry(self) -> tuple[float, ...]:
        """Mean error over labels, entry by entry; exactly 0 where only rounding is left."""
        pairs = zip(self.biases, self.rmse_by_entry, strict=True)  # what rounding leaves of a bias of zero is zero
        return tuple(total / self.labels if abs(total) > 1e-9 * self.labels * rmse else 0.0 for total, rmse in pairs)

    @property
    def rmse(self) -> float:
        """Root mean squared error over labels and entries, rounded up."""
        return _round_up(math.sqrt(math.fsum(self.squares) / (self.labels * len(self.squares))))

    @property
    def rmse_largest(self) -> float:
        """Root mean squared error of the worst label, rounded up."""
        return _round_up(math.sqrt(self.square_largest))

    @property
    def answer_mean(self) -> float | None:
        """Mean size of a true answer over labels; None where it is not known."""
        return None if self.answers is None else self.answers / self.labels


@dataclass(frozen=True)
class DesignFacts(Record):
    """The promise and its cost. Every δ, rate and divergence is an upper end, finite precision included.

    Fields without a rule are those of the shard with the worst certificate.
    """

    method: str
    epsilon: float = merging(max)  #: of the guarantee
    delta: float = merging(max)
    finite_precision: float = merging(max)
    worst_edge: tuple[str, str] = merging(first_value)
    labels: int = merging(sum)
    entries: int = merging(first_value)
    groups: int = merging(sum)
    smallest_group: int = merging(min)
    largest_group: int = merging(max)
    without_neighbors: int = merging(sum)
    edges: int = merging(sum)
    curve: tuple[tuple[float, float], ...] = merging(lambda curves: _worst_curve(curves))  #: (ε, δ at most)
    naming: float = merged_by_records(lambda parts: _merge_naming(parts))  #: share named right in its crowd, at most
    accuracy: Accuracy = merging(_merge_known)  # noqa: RUF009
    query: str | None = None
    target: float | None = None  #: δ that was asked for
    all_alike: bool = merging(all, False)  #: what is released is the crowd's answer, up to a trace of noise
    scope: str = merging(first_value, "answer")
    other_delta: float | None = merging(_if_all_known(max), None)  #: δ at the same ε for who holds the other of the two
    notes: tuple[str, ...] = merging(_distinct_values, ())
    proved: str = merging(lambda words: " and ".join(sorted(set(words))) if all(words) else "", "")  #: by what
    unproved: str = merged_by_records(
        lambda parts: "; ".join(sorted({part.unproved for part in parts if not part.proved})[:LISTED]), ""
    )  #: why δ is not proved
    insider: float = merging(min, 0.0)  #: standard error about a label's answer, for who knows all others of its crowd
    not_gaussian: int = merging(sum, 0)  #: labels whose rows do not follow the Gaussian law that the promise rests on

    @property
    def guessing(self) -> float:
        """Probability of naming the label of a row by a guess within its crowd."""
        return self.groups / self.labels

    @property
    def proof_words(self) -> str:
        """Whether δ is proved, and how or why not, in words."""
        if not self.proved:
            return f"not proved: {self.unproved}" if self.unproved else "not proved"
        if self.doubtful:
            return "not proved for these rows: they reject the law that the figure is about"
        return f"proved ({self.proved})"

    @property
    def doubtful(self) -> bool:
        """Whether more labels reject the Gaussian law that the promise rests on than chance explains."""
        return self.not_gaussian > DOUBTED * self.labels

    @property
    def may_publish_by_entry(self) -> bool:
        """Whether crowds are large enough for errors by entry to be published."""
        return self.smallest_group >= CROWD

    @property
    def meaningful(self) -> bool:
        """Whether δ is small enough, and the accounting sound, for the guarantee to mean something."""
        return self.delta <= MEANINGLESS and query_words(self.query).sound

    @property
    def statement(self) -> str:
        """The guarantee in figures, or that there is none."""
        if not query_words(self.query).sound:
            return "no meaningful guarantee: accounted for randomness that is not in the release"
        if not self.meaningful:
            return f"no meaningful guarantee: δ = {upper(self.delta)} is above {MEANINGLESS:g}"
        return f"(ε, δ) = ({exactly(self.epsilon)}, {upper(self.delta)})"

    @classmethod
    def merge(cls, parts: Sequence[DesignFacts]) -> DesignFacts:
        """The facts of all shards: the guarantee of the worst, and everyone's errors."""
        return super().merge(sorted(parts, key=lambda part: (part.delta, part.worst_edge), reverse=True))


@dataclass(frozen=True)
class SpentFacts(Record):
    """The account with most spent: at its ε, of its budget."""

    epsilon: float
    spent: float
    budget: float
    releases: int  #: about this label
    mode: str = "fixed"  #: what the budget holds for


@dataclass(frozen=True)
class ReleaseFacts(Record):
    """The release through the ledger, and its cost so far."""

    name: str
    labels: int
    head: str
    budget_set: bool = False
    releases: int = 0  #: on record, of all times
    ledger_labels: int = 0
    worst: SpentFacts | None = None
    later_known: int = 0
    later_absolute: float = 0.0  #: sum of |released − what came later|, in the unit of errors
    crowds: int = 0  #: with a row, where rows are means of crowds
    rounded: bool = False  #: rows under a method are rounded, and shifted, since their noise would show too much
    withheld: int = 0  #: figures (of meters: rows) that are missing, since they would break a rule of a row
    recorded_before: int = 0  #: of them: on record for this period before
    period: str = ""  #: what it is about
    accuracy: Accuracy | None = None  #: errors of means beside their members' own values

    @property
    def later_error(self) -> float | None:
        """Mean absolute error of what was released against what came later."""
        return self.later_absolute / self.later_known if self.later_known else None


@dataclass(frozen=True)
class OwnAttack(Record):
    """An attack on the rows of this release: shares of labels that somebody names, and what a guess gets."""

    knows: str  #: what the attacker knows about each label, in words
    labels: int  #: that were looked for
    before: float | None  #: share found among unprotected rows; None: nobody else's row to confuse it with
    after: float  #: share named from this release
    guessing: float  #: share named by a guess inside the crowd


@dataclass(frozen=True)
class Named(Record):
    """Frequency with which attackers named the label of a test answer, beside the promise and guessing."""

    accuracy: float = merged_by_records(lambda parts: _mean_over_answers(parts, "accuracy"))
    accuracy_lower: float = merged_by_records(lambda parts: _mean_over_answers(parts, "accuracy_lower"))
    accuracy_upper: float = merged_by_records(lambda parts: _mean_over_answers(parts, "accuracy_upper"))
    promise_upper: float = merged_by_records(lambda parts: _mean_over_answers(parts, "promise_upper"))
    guessing: float = merged_by_records(lambda parts: _mean_over_answers(parts, "guessing"))
    n_answers: int = merging(sum)


@dataclass(frozen=True)
class Guard(Record):
    """Change of δ over the models that the training data leave plausible; worst over the crowds looked at.

    Fields without a rule are those of the worst.
    """

    promise: float = merging(max)
    rests_on_model: bool = merging(any)
    delta_at_confidence: float = merging(max)
    confidence: float = merging(min)
    noise_alone: float = merging(max)
    statements: tuple[str, ...] = ()

    @classmethod
    def merge(cls, parts: Sequence[Guard]) -> Guard:
        """The worst of all crowds looked at."""
        return super().merge(sorted(parts, key=lambda part: part.delta_at_confidence, reverse=True))


@dataclass(frozen=True)
class AuditFacts(Record):
    """Result of attacks on crowds; ``confidence`` holds for all of it at once."""

    verdict: str = merging(lambda verdicts: "violated" if "violated" in verdicts else "consistent")
    confidence: float = merging(min)
    n_samples: int = merging(min)  #: test answers per label
    source: str = merging(first_value)
    groups: int = merging(sum)  #: attacked
    labels: int = merging(sum)  #: in them
    delta_proved: float = merging(max)  #: δ is at least this, at the least ε that was looked at
    delta_promised: float = merging(max)  #: and at most this
    detectable_delta: float = merging(max)
    scope: str = merging(first_value, "answer")
    of_groups: int = merging(max, 0)  #: crowds in all
    rule: str = ""  #: how the attacked crowds were chosen
    violations: int = merging(sum, 0)
    named: Named | None = merging(_merge_known, None)  # noqa: RUF009
    guard: Guard | None = merging(_merge_known, None)  # noqa: RUF009


def promised_delta(design: DesignFacts, audit: AuditFacts) -> float:
    """The larger δ of the release and of its attacked part, which an audit is compared with."""
    return max(design.delta, audit.delta_promised)


def sum_counts(counts: Iterable[Iterable[tuple[Key, int]]]) -> Counter[Key]:
    """Counts by key, added up over several lists of (key, count)."""
    total: Counter[Key] = Counter()
    for one in counts:
        total.update(dict(one))
    return total


def sort_by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """(text, count) pairs, the most frequent first, equal counts by text."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def crowd_naming_bound(guessing: float, curve: Iterable[tuple[float, float]]) -> float:
    """Upper bound on the share of labels named right within their crowds, from a curve of (ε, δ)."""
    return min((group_naming_bound(1 / guessing, epsilon, delta) for epsilon, delta in curve), default=1.0)


def _merge_naming(parts: Sequence[DesignFacts]) -> float:
    """Upper bound on the share of labels of all shards that are named right."""
    labels, groups = [part.labels for part in parts], sum(part.groups for part in parts)
    most = _round_up(_weighted_mean((part.naming for part in parts), labels))
    return min(max(most, crowd_naming_bound(groups / sum(labels), _worst_curve([part.curve for part in parts]))), 1.0)


def _mean_over_answers(parts: Sequence[Named], name: str) -> float:
    """Mean of a share over all test answers of several shards."""
    return _weighted_mean((getattr(part, name) for part in parts), [part.n_answers for part in parts])


def _weighted_mean(values: Iterable[float], weights: Sequence[int]) -> float:
    """Mean of values with the given weights."""
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _round_up(value: float) -> float:
    """A positive figure after a few roundings, moved up by more than their error."""
    return math.nextafter(value * (1 + 2**-50), math.inf) if value > 0 else value


def _worst_curve(curves: Iterable[Sequence[tuple[float, float]]]) -> tuple[tuple[float, float], ...]:
    """The largest δ of several (ε, δ) curves, at each ε that all of them have."""
    known = [dict(curve) for curve in curves]
    places = sorted(set.intersection(*(set(one) for one in known)))
    return tuple((x, max(one[x] for one in known)) for x in places)
