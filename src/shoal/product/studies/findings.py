"""Result of an attack: a figure with its interval, what guessing gives, and the excess that the test would have seen.

Every attack of this room answers one of the three questions of Opinion 05/2014 of the Article 29 Working Party:
can a member be singled out, can two records of one member be linked, can a property of a member be inferred.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from shoal import __version__
from shoal.audits.confidence import mean_lower_bound, mean_upper_bound
from shoal.errors import InputError
from shoal.files import write_private
from shoal.records import from_plain, to_plain
from shoal.rounding import nearest, percent
from shoal.validation import FloatArray

#: Deviations above what raises an alarm at which 95 of 100 runs do.
DETECTED = 1.645
#: Error probability of each end of an interval, and the deviations from the mean at which its lower end is the guess.
ERROR, ALARM = 0.025, 2.72
QUESTIONS = ("singling out", "linkability", "inference")


@dataclass(frozen=True)
class Finding:
    """One attack on one release; every figure is a share or an area under the curve, between 0 and 1."""

    question: str  #: one of ``QUESTIONS``
    release: str  #: what was attacked: "raw readings", "forecasts", "averages", "answers", "readings", or a table
    what: str  #: what the attacker looks for, and what it knows, in a sentence
    measure: str  #: "share right" or "area under the curve"
    figure: float
    interval: tuple[float, float]  #: at 95 %
    guess: float  #: what the attacker reaches without the release
    tests: int  #: members, or decisions, that the figure is taken over
    power: float | None = None  #: the least excess over the guess that is seen in 95 of 100 runs
    bound: float | None = None  #: what the promise allows, where it says

    @property
    def is_above_guess(self) -> bool:
        """Whether the release helps the attacker, beyond the interval."""
        return self.interval[0] > self.guess

    @property
    def is_violation(self) -> bool:
        """Whether the promise fails, beyond the interval."""
        return self.bound is not None and self.interval[0] > self.bound

    @property
    def table_cells(self) -> list[str]:
        """The finding as a row of a table with the columns :data:`HEADS`."""
        shown = percent if self.measure == "share right" else _area_text
        ends = f"{shown(self.figure, 'nearest')} ({shown(self.interval[0], 'lower')} to {shown(self.interval[1])})"
        least = "" if self.power is None else shown(self.power)
        bound = "none" if self.bound is None else f"≤ {shown(self.bound)}"
        return [self.release, self.what, self.measure, ends, shown(self.guess, "nearest"), bound, least]


#: Columns of a table of findings; the question stands before them.
HEADS = ("release", "what is looked for", "measure", "figure (95 % interval)", "guess", "bound", "least excess seen")


def share_finding(
    question: str, release: str, what: str, values: FloatArray, guess: float, bound: float | None = None
) -> Finding:
    """A finding from (members,) chances to be named: their mean, with an interval that takes members as independent."""
    ends = mean_lower_bound(values, ERROR), mean_upper_bound(values, ERROR)
    spread = max(float(values.std()), (guess * (1 - guess)) ** 0.5)
    power = min((ALARM + DETECTED) * spread / len(values) ** 0.5, 1.0)
    return Finding(question, release, what, "share right", float(values.mean()), ends, guess, len(values), power, bound)


def _area_text(value: float, side: str = "upper") -> str:
    """An area under the curve to three digits; ``side`` is not used."""
    return nearest(round(value, 3))


@dataclass(frozen=True)
class Study:
    """Three questions about one file, answered: what was found, under which assumptions, and what was not looked at."""

    about: str  #: the file, in a sentence or two that name nobody
    members: int
    findings: tuple[Finding, ...]
    assumed: tuple[str, ...] = ()
    not_looked_at: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)  #: reason -> members that could not be used

    @property
    def exceeded(self) -> tuple[Finding, ...]:
        """Findings above their bound; there must be none."""
        return tuple(one for one in self.findings if one.is_violation)

    def findings_of(self, question: str, release: str = "") -> list[Finding]:
        """Findings of a question, about one release where it is named."""
        return [one for one in self.findings if one.question == question and release in ("", one.release)]

    @property
    def strongest(self) -> list[Finding]:
        """The finding with the largest excess over its guess, for each question and release."""
        groups = dict.fromkeys((one.question, one.release) for one in self.findings)
        return [max(self.findings_of(*group), key=lambda one: one.figure - one.guess) for group in groups]

    @property
    def description(self) -> str:
        """What the file is, and how many members were left out for which reason."""
        gone = "; ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{self.about}{gone and f' Left out: {gone}.'}"

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read the attack.json that :meth:`save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            study: Study = from_plain(cls, {one.name: content[one.name] for one in fields(cls)})
            return study
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError("attack: the file is not an attack.json that `shoal attack` wrote") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        content: dict[str, Any] = to_plain(self)
        return content

    def __str__(self) -> str:
        """The study as text: a table for each question."""
        tables = [
            f"## {question.capitalize()}\n\n{markdown_table(HEADS, [one.table_cells for one in findings])}"
            for question in QUESTIONS if (findings := self.findings_of(question))
        ]  # fmt: skip
        rest = [
            f"Assumed: {' '.join(self.assumed)}",
            f"Not looked at: {' '.join(self.not_looked_at) or 'nothing more.'}",
        ]
        return "\n\n".join([self.description, *tables, *rest])

    def save(self, out: str | Path) -> list[Path]:
        """Write two sheets to file, the tables, and the numbers with the day and version; returns the files."""
        from shoal.product.card.render import questions_page

        made = date.today().isoformat()
        content = {"made": made, "version": __version__, **self.to_dict()}
        written = {
            "attack.html": questions_page(self, made),
            "attack.md": f"{self}\n",
            "attack.json": json.dumps(content, indent=1, ensure_ascii=False) + "\n",
        }
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, text in written.items():
            write_private(folder / name, text.encode())
        return [folder / name for name in written]


def isolation_chances(records: FloatArray, known: int, width: FloatArray | float, seed: int) -> FloatArray:
    """(n,) chance to isolate each record by ``known`` of its entries, drawn, each known to within ``width``.

    >>> isolation_chances(np.array([[1.0, 2.0], [1.0, 2.0], [5.0, 6.0]]), 2, 0.1, 0).tolist()
    [0.5, 0.5, 1.0]
    """
    draw, n = np.random.default_rng(seed), len(records)
    chances = np.empty(n)
    for i in range(n):
        at = draw.choice(records.shape[1], min(known, records.shape[1]), replace=False)
        near = np.abs(records[:, at] - records[i, at]) <= np.broadcast_to(width, records.shape[1])[at]
        chances[i] = 1 / near.all(axis=1).sum()
    return chances


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))
