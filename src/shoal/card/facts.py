"""What the stages of a release hand to its card: frozen records of plain values, which merge over shards.

A record of several shards says what holds for all of them: counts are added, the worst figure stays, means are taken
over labels from sums, lists are cut to :data:`LISTED`. No privacy figure of a merged record is smaller than that of any
shard. Errors are kept as sums of squares over labels, entry by entry, so that a merged root mean square is that of all.

Labels, entries and units are whatever the caller says they are: ``noun`` names a label ("household"), ``unit`` what
errors are counted in ("kW").
"""

from __future__ import annotations

import math
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Self, TypeVar

from shoal.accounting.risk import named_in_group
from shoal.card.assumptions import question
from shoal.card.digits import upper
from shoal.errors import InputError

#: Above this δ a guarantee means little: a mechanism that discloses the label in this share of the answers has it too.
MEANINGLESS = 1e-2
#: Members of the smallest group from which on errors are told entry by entry.
CROWD = 10
#: Entries of a list that a record keeps.
LISTED = 20
Key = TypeVar("Key")


class Record:
    """A frozen record that goes to JSON and comes back."""

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and texts; a number that JSON does not know becomes None."""
        return self.part(*(one.name for one in fields(self)))  # type: ignore[arg-type]

    def part(self, *names: str) -> dict[str, Any]:
        """Some of its fields, as :meth:`to_json` has them."""
        return {name: _plain(getattr(self, name)) for name in names}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` made; anything else is refused."""
        try:
            kinds = typing.get_type_hints(cls)
            return cls(**{name: _typed(kinds[name], value) for name, value in content.items()})
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"facts: this is not what a stage wrote down as {cls.__name__}; run it again") from None

    @classmethod
    def like(cls, found: Any) -> Self:
        """What is found under the names of its fields."""
        return cls(**{one.name: getattr(found, one.name) for one in fields(cls)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Lost(Record):
    """A shard that could not be done: stage, key, and why, without data."""

    stage: str
    key: str
    message: str


@dataclass(frozen=True)
class ModelChecks(Record):
    """Labels whose law passed each formal check, of how many."""

    gaussian: int
    white: int
    stationary: int
    all_three: int
    of: int


@dataclass(frozen=True)
class FitFacts(Record):
    """Where the class laws come from, and who hides among whom."""

    source: str  #: in a few words
    labels: int  #: with a law
    groups: int
    smallest_group: int
    largest_group: int
    edges: int
    left_out: int = 0
    repaired: int = 0
    smaller_model: int = 0
    not_gaussian: int = 0  #: labels whose rows do not follow the Gaussian law that the promise rests on
    reasons: tuple[tuple[str, int], ...] = ()  #: why labels are left out, most common first
    first: str = ""  #: one of the labels: a shard is on record where this one is
    noun: str = "label"
    entry: str = "step"  #: what an entry of an answer is
    about: tuple[str, ...] = ()  #: sentences on what the answers are
    origin: str | None = None  #: instant of the first entry, ISO 8601
    step_minutes: float | None = None  #: between entries
    time_zone: str | None = None  #: of the instants; None: the clock on the wall
    checks: ModelChecks | None = None
    fitted_on_private_data: bool | None = True
    later_known: int = 0  #: entries whose true value came later
    later_absolute: float = 0.0  #: sum of |true answer − what came|, in the unit of errors
    shards: int = 1
    failed: tuple[Lost, ...] = ()
    goes_on: bool = False  #: from the forecasts of an earlier release; then also:
    carried: int = 0  #: known before, with news
    silent: int = 0
    newcomers: int = 0  #: without a place in a group yet
    joined: int = 0  #: given a place in a group
    merged_groups: int = 0  #: that became part of another, for good
    crowd: int = 0  #: least size of a group that was asked for; 0 where groups came otherwise
    fewest_rows: int = 1  #: of a label, in a table
    most_rows: int = 1
    standing: bool = False  #: groups are kept for releases to come
    unit: str = ""  #: what the data came in
    unit_reason: str = ""  #: how that is known

    @property
    def later_error(self) -> float | None:
        """Mean absolute error of the unprotected answers against what came later."""
        return self.later_absolute / self.later_known if self.later_known else None

    @classmethod
    def merged(cls, parts: Sequence[FitFacts]) -> FitFacts:
        """Of all shards."""
        known = [part.checks for part in parts if part.checks is not None]
        names = [one.name for one in fields(ModelChecks)]
        return replace(
            parts[0],
            **_of_all(
                sum, parts, "labels", "groups", "edges", "left_out", "repaired", "smaller_model", "not_gaussian",
                "later_known", "shards", "carried", "silent", "newcomers", "joined",
                "merged_groups",
            ),
            **_of_all(min, parts, "smallest_group", "fewest_rows"),
            **_of_all(max, parts, "largest_group", "most_rows"),
            **_of_all(math.fsum, parts, "later_absolute"),
            **_of_all(_joined, parts, "failed"),
            reasons=tuple(most_common(tallied(part.reasons for part in parts)))[:LISTED],
            checks=ModelChecks(**_of_all(sum, known, *names)) if known else None,
        )  # fmt: skip


@dataclass(frozen=True)
class NamingFacts(Record):
    """At most this share of answers is named right within the group, and the share that guessing gets."""

    success_upper: float
    guessing: float
    exact: bool = True  #: a bound without sampling; else it holds at ``confidence``
    confidence: float = 1.0


@dataclass(frozen=True)
class Accuracy(Record):
    """Errors of released answers, as sums over ``labels``; intervals hold for every label, entry by entry."""

    labels: int
    unit: str  #: of ``squares``, ``biases`` and ``answers``; "the answer's own" without another
    rho: float  #: sum over labels of the mean squared error per entry, in the unit of the design
    rho_largest: float
    squares: tuple[float, ...]  #: by entry: sum over labels of the expected squared error
    biases: tuple[float, ...]  #: by entry: sum over labels of the expected error
    square_largest: float  #: largest over labels of the mean over entries
    answers: float | None  #: sum over labels of the mean true answer
    grid: tuple[float, ...]  #: step between values that an entry can take
    coverage: float  #: of the interval
    interval: tuple[tuple[float, float], ...]  #: by entry: released − true, or released / true with ``ratio``
    ratio: bool = False
    total_error: float | None = None  #: largest over groups and entries: error of the group's total, relative to it
    beside_largest: float = 0.0  #: largest over labels: error (root mean square) over the largest answer of its group
    noise_alone: bool = False  #: nothing is moved: the interval is that of the noise, whatever the answers are

    @property
    def rho_mean(self) -> float:
        return _above(self.rho / self.labels)

    @property
    def rmse_by_entry(self) -> tuple[float, ...]:
        return tuple(_above(math.sqrt(total / self.labels)) for total in self.squares)

    @property
    def bias_by_entry(self) -> tuple[float, ...]:
        return tuple(total / self.labels for total in self.biases)

    @property
    def rmse(self) -> float:
        return _above(math.sqrt(math.fsum(self.squares) / (self.labels * len(self.squares))))

    @property
    def rmse_largest(self) -> float:
        return _above(math.sqrt(self.square_largest))

    @property
    def bias(self) -> float:
        return math.fsum(self.biases) / (self.labels * len(self.biases))

    @property
    def answer_mean(self) -> float | None:
        return None if self.answers is None else self.answers / self.labels

    @classmethod
    def merged(cls, parts: Sequence[Accuracy]) -> Accuracy:
        known = [part.answers for part in parts if part.answers is not None]
        return replace(
            parts[0],
            **_of_all(sum, parts, "labels"),
            **_of_all(math.fsum, parts, "rho"),
            **_of_all(max, parts, "rho_largest", "square_largest", "beside_largest"),
            **_of_all(all, parts, "noise_alone"),
            **_of_all(_largest, parts, "total_error"),
            **_of_all(_entry_by_entry(math.fsum), parts, "squares", "biases"),
            **_of_all(_entry_by_entry(max), parts, "grid"),
            answers=math.fsum(known) if len(known) == len(parts) else None,
            interval=tuple(
                (min(low for low, _ in entry), max(high for _, high in entry))
                for entry in zip(*(p.interval for p in parts), strict=True)
            ),
        )


@dataclass(frozen=True)
class DesignFacts(Record):
    """What is promised and what it costs. Every δ, rate and divergence is an upper end, finite precision included."""

    method: str
    epsilon: float  #: of the guarantee; the largest, where edges have their own
    epsilons: tuple[float, ...]  #: all different ones
    delta: float
    log_delta: float | None  #: natural logarithm of the upper end; None for that of zero
    notion: str  #: of what is released
    designed_for: str
    finite_precision: float
    worst_edge: tuple[str, str]
    best_possible: float  #: a δ that no mechanism with this error goes below; not part of the guarantee
    labels: int
    entries: int
    groups: int
    smallest_group: int
    largest_group: int
    alone: int
    edges: int
    curve: tuple[tuple[float, float], ...]  #: (ε, δ at most)
    renyi: tuple[tuple[float, float | None], ...]  #: (order, divergence at most); None: no finite bound
    tradeoff: tuple[tuple[float, float], ...]  #: (false positive rate, true positive rate at most)
    naming: NamingFacts
    accuracy: Accuracy
    query: str | None = None
    target: float | None = None  #: δ that was asked for
    all_alike: bool = False  #: what is released is the group's answer, up to a trace of noise
    perfect_rho: float | None = None  #: least ρ, largest over groups, at which all labels of a group look alike
    scope: str = "answer"  #: what somebody must hold for all of these figures: one "answer", or the "table"
    other_delta: float | None = None  #: δ at the same ε for who holds the other of the two
    digest: str = ""  #: of the mechanism; of several, see :func:`together`
    graph_digest: str = ""  #: of who hides among whom, whatever the shards
    notes: tuple[str, ...] = ()
    failed: tuple[Lost, ...] = ()
    proved: str = ""  #: what makes δ a theorem about the stored parameters; empty: it is not proved to be one
    unproved: str = ""  #: why not
    proof: str = ""  #: digest of the proof's file; of several, see :func:`together`
    assumption_free: float | None = None  #: δ whatever the law of clipped answers is; None: they are not clipped
    not_gaussian: int = 0  #: labels whose rows do not follow the Gaussian law that the promise rests on

    @property
    def theorem(self) -> str:
        """Whether δ is proved, in words."""
        if not self.proved:
            return f"not proved: {self.unproved}" if self.unproved else "not proved"
        return f"proved ({self.proved})"

    @property
    def by_step(self) -> bool:
        """Whether groups are large enough for errors by entry to be published."""
        return self.smallest_group >= CROWD

    @property
    def meaningful(self) -> bool:
        """Whether δ is small enough, and the accounting sound, for the guarantee to mean something."""
        return self.delta <= MEANINGLESS and question(self.query).sound

    @property
    def statement(self) -> str:
        """The guarantee in figures, or that there is none."""
        if not question(self.query).sound:
            return "no meaningful guarantee: accounted for randomness that is not in the release"
        if not self.meaningful:
            return f"no meaningful guarantee: δ = {upper(self.delta)} is above {MEANINGLESS:g}"
        return f"(ε, δ) = ({self.epsilon:g}, {upper(self.delta)})"

    @classmethod
    def merged(cls, parts: Sequence[DesignFacts]) -> DesignFacts:
        """Of all shards: the worst certificate, everyone's errors."""
        if len({part.scope for part in parts}) > 1:
            raise InputError("facts: shards were designed for different scopes; run the design again")
        worst = max(parts, key=lambda part: (part.delta, part.worst_edge))
        curve = _worst_at(part.curve for part in parts)
        return replace(
            worst,
            **_of_all(max, parts, "epsilon", "finite_precision", "best_possible", "largest_group"),
            **_of_all(min, parts, "smallest_group"),
            **_of_all(sum, parts, "labels", "groups", "alone", "edges", "not_gaussian"),
            **_of_all(all, parts, "all_alike"),
            **_of_all(_largest, parts, "other_delta", "perfect_rho", "assumption_free"),
            **_of_all(together, parts, "digest", "graph_digest"),
            **_of_all(_joined, parts, "failed"),
            epsilons=tuple(sorted({one for part in parts for one in part.epsilons})[:LISTED]),
            log_delta=max((p.log_delta for p in parts if p.log_delta is not None), default=None),
            curve=curve,
            renyi=_worst_divergence([part.renyi for part in parts]),
            tradeoff=tuple((rate, tpr_bound(rate, curve)) for rate, _ in worst.tradeoff),
            naming=_naming_together(parts, curve),
            accuracy=Accuracy.merged([part.accuracy for part in parts]),
            notes=_listed(sorted({note for part in parts for note in part.notes})),
            proved=" and ".join(sorted({part.proved for part in parts})) if all(part.proved for part in parts) else "",
            unproved="; ".join(_listed(sorted({part.unproved for part in parts if not part.proved}))),
            proof=together(proofs) if (proofs := [part.proof for part in parts if part.proof]) else "",
        )


@dataclass(frozen=True)
class SpentFacts(Record):
    """The account with most spent: at its ε, of its budget."""

    epsilon: float
    spent: float
    budget: float
    releases: int  #: about this label
    mode: str = "fixed"  #: what the budget holds for

    @property
    def choice(self) -> str:
        """What the budget holds for, in words."""
        if self.mode == "adaptive":
            return "for whatever is asked in the light of earlier answers"
        return "for a series of releases fixed in advance"


@dataclass(frozen=True)
class ReleaseFacts(Record):
    """What left through the ledger, and what that has cost so far."""

    name: str
    labels: int
    ledger: str  #: where it is, in a word
    head: str
    budget_set: bool = False
    releases: int = 0  #: on record, of all times
    ledger_labels: int = 0
    worst: SpentFacts | None = None
    later_known: int = 0
    later_absolute: float = 0.0  #: sum of |released − what came later|, in the unit of errors
    ledger_intact: bool | None = None  #: None: not looked at
    crowds: int = 0  #: with a row, where rows are means of crowds
    repeated: int = 0  #: of them: the row of the release before, for lack of news
    recorded_before: int = 0  #: of them: on record for this period before
    period: str = ""  #: what it is about
    accuracy: Accuracy | None = None  #: errors of means beside their members' own values
    shards: int = 1
    failed: tuple[Lost, ...] = ()

    @property
    def later_error(self) -> float | None:
        """Mean absolute error of what was released against what came later."""
        return self.later_absolute / self.later_known if self.later_known else None


@dataclass(frozen=True)
class Named(Record):
    """How often attackers named the label of a test answer, beside the promise and guessing."""

    accuracy: float
    accuracy_lower: float
    accuracy_upper: float
    promise_upper: float
    guessing: float
    n_answers: int


@dataclass(frozen=True)
class Found(Record):
    """One thing that an audit found."""

    kind: str
    labels: tuple[str, ...]
    meaning: str
    lessens_privacy: bool


@dataclass(frozen=True)
class Guard(Record):
    """How δ moves over the models that the training data leave plausible; worst over the groups looked at."""

    promise: float
    notion: str
    rests_on_model: bool
    delta_at_confidence: float
    confidence: float
    noise_alone: float
    statements: tuple[str, ...] = ()


@dataclass(frozen=True)
class AuditFacts(Record):
    """What attacks on groups came to; ``confidence`` holds for all of it at once."""

    verdict: str  #: "consistent" or "violated"
    confidence: float
    n_samples: int  #: test answers per label
    source: str
    groups: int  #: attacked
    labels: int  #: in them
    curve: tuple[tuple[float, float, float], ...]  #: (ε, δ proved at least, δ promised at most), the design's ε first
    detectable_delta: float
    detectable_shortage: float
    scope: str = "answer"  #: what the attackers held: one "answer", or the "table"
    of_groups: int = 0  #: groups in all
    rule: str = ""  #: how the attacked groups were chosen
    violations: int = 0
    mismatches: int = 0
    findings: tuple[Found, ...] = ()
    named: Named | None = None
    guard: Guard | None = None
    equal_noise_delta: float | None = None  #: what equal noise of the same mean squared error would leave there

    @property
    def delta_proved(self) -> float:
        return self.curve[0][1]

    @property
    def delta_promised(self) -> float:
        return self.curve[0][2]

    @classmethod
    def merged(cls, parts: Sequence[AuditFacts]) -> AuditFacts:
        """Of all groups that were attacked."""
        if len({part.scope for part in parts}) > 1:
            raise InputError("facts: groups were attacked in different scopes; run the audit again")
        named = [part.named for part in parts if part.named is not None]
        guards = [part.guard for part in parts if part.guard is not None]
        equal = [part.equal_noise_delta for part in parts if part.equal_noise_delta is not None]
        found = sorted((f for part in parts for f in part.findings), key=lambda one: not one.lessens_privacy)
        same = len({tuple(e for e, _, _ in part.curve) for part in parts}) == 1
        rows = zip(*(part.curve for part in parts), strict=True) if same else [[part.curve[0] for part in parts]]
        return replace(
            parts[0],
            verdict="violated" if any(part.verdict == "violated" for part in parts) else "consistent",
            **_of_all(min, parts, "confidence", "n_samples"),
            **_of_all(sum, parts, "groups", "labels", "violations", "mismatches"),
            **_of_all(max, parts, "of_groups", "detectable_delta", "detectable_shortage"),
            curve=tuple((max(r[0] for r in row), max(r[1] for r in row), max(r[2] for r in row)) for row in rows),
            findings=_listed(found),
            named=_named_together(named) if named else None,
            guard=_guards_together(guards) if guards else None,
            equal_noise_delta=max(equal, default=None),
        )


def promised(design: DesignFacts, audit: AuditFacts) -> float:
    """The δ that an audit is told beside: that of the release, where the attacked part by itself promises no more."""
    return max(design.delta, audit.delta_promised)


def lost_shards(*stages: FitFacts | DesignFacts | ReleaseFacts | None) -> tuple[Lost, ...]:
    """Shards that some stage could not do."""
    return tuple(lost for stage in stages if stage is not None for lost in stage.failed)


def tallied(counts: Iterable[Iterable[tuple[Key, int]]]) -> Counter[Key]:
    """What (key, how often) come to together."""
    found: Counter[Key] = Counter()
    for one in counts:
        found.update(dict(one))
    return found


def most_common(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """(text, how often), the most common first, equals by their text."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def together(digests: Iterable[str]) -> str:
    """One digest of several in any order: their sum as 256-bit numbers; that of one is itself."""
    return f"{sum(int(one, 16) for one in digests if one) % (1 << 256):064x}"


def tpr_bound(false_positives: float, curve: Iterable[tuple[float, float]]) -> float:
    """No test between neighbors has a larger true positive rate at this false one: min over ε of e^ε α + δ(ε)."""
    return min(_above(min((math.exp(e) * false_positives + d for e, d in curve if e < 700), default=1.0)), 1.0)


def naming_bound(guessing: float, curve: Iterable[tuple[float, float]]) -> float:
    """At most this share of labels can be named right, in groups in which all are neighbors of all.

    Their mean size is one over the share that guessing gets. Every (ε, δ) of the curve is a bound.
    """
    return min((named_in_group(1 / guessing, epsilon, delta) for epsilon, delta in curve), default=1.0)


def _naming_together(parts: Sequence[DesignFacts], curve: Sequence[tuple[float, float]]) -> NamingFacts:
    weights, naming = [part.labels for part in parts], [part.naming for part in parts]
    if all(part.naming.exact for part in parts):
        guessing = sum(part.groups for part in parts) / sum(weights)
        return NamingFacts(naming_bound(guessing, curve), guessing)
    return NamingFacts(
        success_upper=min(_above(_mean((n.success_upper for n in naming), weights)), 1.0),
        guessing=_mean((n.guessing for n in naming), weights),
        exact=False,
        confidence=max(1.0 - math.fsum(1.0 - n.confidence for n in naming), 0.0),
    )


def _named_together(parts: Sequence[Named]) -> Named:
    weights = [part.n_answers for part in parts]
    means = {
        one.name: _mean((getattr(part, one.name) for part in parts), weights)
        for one in fields(Named)
        if one.name != "n_answers"
    }
    return Named(**means, n_answers=sum(weights))


def _guards_together(parts: Sequence[Guard]) -> Guard:
    worst = max(parts, key=lambda part: part.delta_at_confidence)
    return replace(
        worst,
        **_of_all(max, parts, "promise", "noise_alone"),
        **_of_all(any, parts, "rests_on_model"),
        **_of_all(min, parts, "confidence"),
    )


def _mean(values: Iterable[float], weights: Sequence[int]) -> float:
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _above(value: float) -> float:
    """A figure after a few roundings, moved to their safe side."""
    return math.nextafter(value * (1 + 2**-50), math.inf) if value > 0 else value


def _of_all(rule: Callable[[Any], Any], parts: Sequence[Record], *names: str) -> dict[str, Any]:
    """Field -> what the rule makes of its values in all parts."""
    return {name: rule([getattr(part, name) for part in parts]) for name in names}


def _largest(values: Sequence[float | None]) -> float | None:
    """None where one is not known."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _entry_by_entry(rule: Callable[[Any], float]) -> Callable[[Any], tuple[float, ...]]:
    return lambda columns: tuple(rule(entry) for entry in zip(*columns, strict=True))


def _joined(values: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return _listed(one for inside in values for one in inside)


def _worst_at(curves: Iterable[Sequence[tuple[float, float]]]) -> tuple[tuple[float, float], ...]:
    """The largest value at each place that all curves have."""
    known = [dict(curve) for curve in curves]
    places = sorted(set.intersection(*(set(one) for one in known)))
    return tuple((x, max(one[x] for one in known)) for x in places)


def _worst_divergence(curves: Sequence[Sequence[tuple[float, float | None]]]) -> tuple[tuple[float, float | None], ...]:
    known = [{order: math.inf if value is None else value for order, value in curve} for curve in curves]
    worst = _worst_at([tuple(one.items()) for one in known])
    return tuple((order, value if math.isfinite(value) else None) for order, value in worst)


def _listed(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(values)[:LISTED]


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):  # a number of NumPy
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _typed(kind: Any, value: Any) -> Any:
    """A value of JSON as the annotation wants it; a ValueError if it is something else."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inside:
            return None
        return _typed(next(one for one in inside if one is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError("not a list")
        kinds = [inside[0]] * len(value) if inside[-1] is Ellipsis else inside
        return tuple(_typed(one, item) for one, item in zip(kinds, value, strict=True))
    if is_dataclass(kind):
        return kind.from_json(value)  # type: ignore[union-attr]
    if kind is float and value is None:
        return math.inf  # an error without a bound; where None means something else, the annotation has it
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError("of another type")
    return value
