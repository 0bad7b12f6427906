"""What a run would find in a file, and form of it: read, questioned and rehearsed without a folder or a ledger.

Everything happens in a folder that is removed at the end. The ledger is only read: where crowds of the same labels are
on record, they are the ones that a run would use.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shoal.card.digits import counted, many
from shoal.card.facts import FitFacts
from shoal.errors import InputError
from shoal.runs.choice import trial
from shoal.runs.rehearsal import SPREAD, CrowdPrice, Rehearsal
from shoal.runs.stages.crowd_stage import too_few

if TYPE_CHECKING:
    from shoal.runs.context import Progress

#: Crowds that are previewed beside the one that was asked for.
ALSO = (5, 10, 15, 20, 50)


@dataclass(frozen=True)
class FileCheck:
    """What a run would find and form: ``parts()`` in words, ``to_dict()`` for machines."""

    fit: FitFacts
    crowd: int
    rehearsal: Rehearsal | None  #: None under a method, whose crowds have another price
    prices: tuple[CrowdPrice, ...]
    refusal: str = ""  #: why a run would be refused; empty where it would not

    @property
    def ok(self) -> bool:
        """Whether a run would form crowds."""
        return not self.refusal

    def parts(self) -> list[tuple[str, list[str]]]:
        """Headings with their sentences."""
        fit = self.fit
        read = fit.labels + fit.left_out
        noun = many(fit.noun) if read != 1 else fit.noun
        used = [f"{fit.labels} of {read} {noun} can be used."]
        used += [f"{count} cannot: {reason}." for reason, count in fit.reasons]
        rest = fit.left_out - sum(count for _, count in fit.reasons)
        used += [f"{counted(rest, fit.noun)} more cannot be used, for rarer reasons."] if rest > 0 else []
        sections = [("Read", [f"{fit.source}."]), ("Who can be used", used)]
        if fit.about:
            sections.append(("What was understood", list(fit.about)))
        if self.refusal:
            sections.append(("A run would be refused", [self.refusal]))
        if self.rehearsal is not None and self.prices:
            sections.append(("Crowds that a run would form", self._crowds(self.rehearsal)))
        sections.append(("Nothing was kept", ["No folder was made, and nothing was written to a ledger."]))
        return sections

    def _crowds(self, rehearsal: Rehearsal) -> list[str]:
        lines = []
        if rehearsal.recorded_size is not None:
            lines.append("Crowds are those on record in the ledger: they are formed once, for life.")
        for price in self.prices:
            span = f"{price.smallest}" if price.smallest == price.largest else f"{price.smallest} to {price.largest}"
            mark = " (the one asked for)" if price.crowd == self.crowd and len(self.prices) > 1 else ""
            lines.append(
                f"--crowd {price.crowd}{mark}: {counted(price.crowds, 'crowd')} of {span}; named at most 1 in "
                f"{price.crowd}; {price.words} expected."
            )
        if rehearsal.measure != SPREAD:
            days = [day.origin for day in rehearsal.days]
            if days:
                lines.append(f"Rehearsed from {', '.join(days)}. Later releases cost more: a crowd is for life.")
            if rehearsal.train_days and rehearsal.train_days != rehearsal.config.train_days:
                lines.append(
                    f"Rehearsed with {rehearsal.train_days} days of training, since no day before the origin has "
                    f"{rehearsal.config.train_days}."
                )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        fit = self.fit
        return {
            "source": fit.source,
            "usable": fit.labels,
            "left_out": fit.left_out,
            "reasons": [{"reason": reason, "count": count} for reason, count in fit.reasons],
            "unit": fit.unit,
            "step_minutes": fit.step_minutes,
            "time_zone": fit.time_zone,
            "origin": fit.origin,
            "about": list(fit.about),
            "crowd": self.crowd,
            "on_record": self.rehearsal is not None and self.rehearsal.recorded_size is not None,
            "prices": [asdict(price) for price in self.prices],
            "rehearsed": [] if self.rehearsal is None else [day.origin for day in self.rehearsal.days],
            "refusal": self.refusal or None,
        }


def check(source: Any, *, progress: Progress | None = None, **settings: Any) -> FileCheck:
    """Read a file as a run would, question it, and preview the crowds and their expected price.

    Args:
        source: as for :func:`shoal.choose`.
        progress: called with (stage, what is happening, done, total).
        settings: fields of :class:`shoal.Config`, as for :func:`shoal.run`.

    Returns:
        What was found. No folder is made, and nothing is written to a ledger.

    >>> check(shoal.SimulatedMeters(24), crowd=5).fit.labels  # doctest: +SKIP
    24
    """
    with trial(source, settings, progress) as run, run.held():
        run.do("fit")
        fit, crowd = run.known_fit, run.config.crowd
        if run.charged:
            return FileCheck(fit, crowd, None, ())
        rehearsal = run.rehearsal()
    recorded, refusal = rehearsal.recorded_size, ""
    if recorded is not None and crowd != recorded:
        refusal = (
            f"crowd: these {many(fit.noun)} are in crowds of at least {recorded}, on record for life; go on with "
            f"--crowd {recorded}."
        )
    elif recorded is None and rehearsal.most < crowd:
        refusal = too_few(crowd, rehearsal.most, many(fit.noun), within=rehearsal.today.boundaries is not None)
    sizes = {recorded} if recorded is not None else {crowd, *ALSO, *([max(rehearsal.most, 2)] if refusal else [])}
    try:
        prices = [rehearsal.price(size) for size in sorted(sizes) if recorded is not None or size <= rehearsal.most]
    except InputError as error:  # as where no crowd keeps the largest share
        return FileCheck(fit, crowd, rehearsal, (), str(error))
    return FileCheck(fit, crowd, rehearsal, tuple(prices), refusal)
