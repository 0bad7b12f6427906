"""The card, the summary and the page of a release of means: one row per crowd, no noise, no ε.

Such a release is aggregation with a least crowd (k-anonymity) and is called that. Its card holds what may be published:
sizes, the period, and errors pooled over many crowds; never a figure of one crowd beside its mean, since two kinds of
figures about the same members give them away.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal import __version__
from shoal.card.contents import TITLE, Contents
from shoal.card.digits import counted, many, nearest, percent, up, upper
from shoal.card.facts import FitFacts, ReleaseFacts, lost_shards
from shoal.card.section import Plot, Section
from shoal.card.summary import Part, price, short_unit, sizes
from shoal.card.tiles import Tile
from shoal.plaintext import printable

VERSION = 1
#: Crowds from which on errors pooled over all of them are told on the card.
POOLED = 10
#: What a mean does not hide, wherever an operator reads.
KNOWS = (
    "The curve is the members' mean: who knows all others' figures computes yours. `--secret readings` protects "
    "against that."
)
KIND = "aggregation with a least crowd (k-anonymity)"


@dataclass(frozen=True)
class AggregateCard:
    """What is known about a release of means."""

    fit: FitFacts
    release: ReleaseFacts

    @property
    def secret(self) -> str:
        """What is protected: the label, that is, which of a crowd a row is about."""
        return "label"

    @property
    def statement(self) -> str:
        """What holds, in a sentence."""
        return f"Rows are averages over at least {self.fit.crowd} {many(self.fit.noun)}."

    @property
    def digest(self) -> str:
        """SHA-256 of the content in canonical JSON."""
        return hashlib.sha256(json.dumps(self._content, sort_keys=True, allow_nan=False).encode()).hexdigest()

    @property
    def tells_errors(self) -> bool:
        """Whether errors are told: those of few crowds would be figures of their members."""
        return self.release.accuracy is not None and self.release.crowds >= POOLED

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings, with the digest."""
        return {**self._content, "digest": self.digest}

    def to_json(self) -> str:
        """For machines."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_markdown(self) -> str:
        """For people."""
        lines = ["# Release card", "", f"**{self.statement}** {KNOWS}", ""]
        lines += [f"- {sentence}" for sentence in self.sentences()]
        return "\n".join([*lines, "", f"Card {self.digest}, shoal {__version__}.", ""])

    def sentences(self) -> list[str]:
        """What may be published, sentence by sentence."""
        fit, release = self.fit, self.release
        lines = [
            f"This is {KIND}: no noise is added, and no ε or δ is promised.",
            f"{counted(fit.labels, fit.noun)} in {counted(release.crowds, 'crowd')} of "
            f"{sizes(fit.smallest_group, fit.largest_group)}. A crowd is a fixed set, formed once, for life; `homes` "
            "in the table is its size, never the number who have news.",
            "Which crowd somebody is in is not hidden from who holds its readings.",
        ]
        if release.repeated:
            lines.append(
                f"{counted(release.repeated, 'row')} of the release before {'is' if release.repeated == 1 else 'are'} "
                f"repeated (`news` is false): fewer than {fit.crowd} members had news."
            )
        lines += [line for line in fit.about if not line.startswith("Readings:")]
        if self.tells_errors and release.accuracy is not None:
            unit = short_unit(release.accuracy.unit)
            error = upper(release.accuracy.rmse, 2)
            lines.append(f"Error beside members' own figures: {error}{unit}, root mean square.")
        before, after = fit.later_error, release.later_error
        if self.tells_errors and before and after is not None:
            lines.append(f"Error against what came later, as released over unprotected{price(before, after, 3)}.")
        return [printable(line) for line in lines]

    @property
    def _content(self) -> dict[str, Any]:
        fit, release = self.fit, self.release
        before, after = fit.later_error, release.later_error
        told = self.tells_errors
        return {
            "version": VERSION,
            "software": f"shoal {__version__}",
            "kind": KIND,
            "statement": self.statement,
            "limit": KNOWS,
            "period": release.period,
            "least": fit.crowd,
            "labels": fit.labels,
            "crowds": release.crowds,
            "smallest": fit.smallest_group,
            "largest": fit.largest_group,
            "repeated": release.repeated,
            "origin": fit.origin,
            "step_minutes": fit.step_minutes,
            "rmse": up(release.accuracy.rmse, 2) if told and release.accuracy is not None else None,
            "unit": None if release.accuracy is None else release.accuracy.unit,
            "price": up(after / before, 3) if told and before and after is not None else None,
        }


def aggregate_summary(fit: FitFacts | None, release: ReleaseFacts | None) -> list[Part]:
    """Headings with their sentences, for the owner."""
    if fit is None:
        return []
    noun = fit.noun
    known = [
        f"Rows are averages over at least {fit.crowd} {many(noun)}: {KIND}. No noise, no ε, nothing to prove.",
        KNOWS,
    ]
    if fit.groups:
        span = sizes(fit.smallest_group, fit.largest_group)
        known.append(f"{counted(fit.labels, noun)} in {counted(fit.groups, 'crowd')} of {span}, for life.")
    parts = [("What is released", [*known, *fit.about])]
    if release is not None:
        parts.append(("At what cost", aggregate_cost(fit, release)))
        parts.append(("On record", _record(release, noun)))
    parts.append(("What is missing", _missing(fit)))
    return [(heading, [printable(line) for line in lines]) for heading, lines in parts if lines]


def aggregate_cost(fit: FitFacts, release: ReleaseFacts) -> list[str]:
    """Errors beside the members' own figures, and beside what came later."""
    lines = []
    measured = release.accuracy
    if measured is not None:
        unit = short_unit(measured.unit) or f" {measured.unit}"
        mean = measured.answer_mean
        beside = f"; figures average {nearest(mean)}{unit}" if mean is not None and measured.unit == "kW" else ""
        lines.append(f"A row is off a member's own figure by {upper(measured.rmse)}{unit}, root mean square{beside}.")
    before, after = fit.later_error, release.later_error
    if before is not None and after is not None:
        lines.append(
            f"Against what came later: {upper(after)} kW mean absolute error as released, {nearest(before)} kW without "
            f"protection{price(before, after)}."
        )
    return lines


def _record(release: ReleaseFacts, noun: str) -> list[str]:
    labels = counted(release.labels, noun)
    lines = [f"The crowds of {labels} are in the ledger, for {release.period}; nothing was charged."]
    if release.recorded_before:
        lines.append(
            f"{counted(release.recorded_before, 'row')} had been released for this period before: they are those of "
            "the record, and nothing new left."
        )
    if release.repeated:
        lines.append(f"{counted(release.repeated, 'row')} repeated from the release before, for lack of news.")
    return lines


def _missing(fit: FitFacts) -> list[str]:
    lines = []
    if fit.left_out:
        reasons = "; ".join(f"{reason} ({number})" for reason, number in fit.reasons)
        lines.append(f"{counted(fit.left_out, fit.noun)} without news today" + (f": {reasons}." if reasons else "."))
    lines += [
        f"SHARD LEFT OUT, nothing of it is released: {lost.stage} {lost.key[:12]}: {lost.message}"
        for lost in lost_shards(fit)
    ]
    return lines


def aggregate_contents(
    card: AggregateCard,
    plots: Sequence[Plot] = (),
    timings: Mapping[str, float] | None = None,
    *,
    public: bool,
    title: str | None = None,
    made: str = "",
) -> Contents:
    """The page of a release of means; the public one is made from the card alone."""
    fit, release = card.fit, card.release
    cost = aggregate_cost(fit, release) if not public else [s for s in card.sentences() if s.startswith("Error")]
    before, after = fit.later_error, release.later_error
    share = percent(max(after / before - 1, 0.0)) if before and after is not None else ""
    tiles = (
        Tile("What is released?", "The mean of each crowd", f"{counted(release.crowds, 'row')}; {KIND}."),
        Tile(
            "Who hides?",
            f"{counted(fit.labels, fit.noun)}, each among at least {fit.crowd}",
            f"Crowds of {sizes(fit.smallest_group, fit.largest_group)}, formed once, for life.",
            "good",
        ),
        Tile("What is not hidden?", "Figures, from who knows the others'", KNOWS, "plain"),
        Tile(
            "At what cost?",
            f"{share} more error against what came later"
            if share and (not public or card.tells_errors)
            else "See below",
            " ".join(cost) or "Of so few crowds an error would tell of their members.",
        ),
    )
    sections = []
    if plots and not public:
        says = (
            f"{counted(len(plots), 'crowd')}: what is released, thick, and its members' own figures, which stay here.",
        )
        sections.append(Section("answers", "Released rows", says, tuple(plots), pick="Crowd"))
    sections.append(Section("limits", "What holds, and what does not", notes=tuple(card.sentences())))
    if timings and not public:
        each = tuple(f"{name}: {seconds:.1f} s" for name, seconds in timings.items())
        sections.append(Section("time", "Time", notes=each))
    about = tuple([f"Data: {fit.source}."] if fit.source and not public else [])
    return Contents(
        title=TITLE if title is None else str(title),
        about=(*about, *([f"Released {made}."] if made else [])),
        public=public,
        meaningful=True,
        statement=card.statement,
        digests=(("software", f"shoal {__version__}"), ("card", card.digest)),
        summary=tiles,
        sections=tuple(sections),
    )
