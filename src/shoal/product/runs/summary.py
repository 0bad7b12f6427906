"""A run in sentences: headings with their lines, for the owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.product.runs import reader
from shoal.product.runs.folder import LEDGER
from shoal.product.runs.stages import card_stage, crowd_stage, release_stage

if TYPE_CHECKING:
    from shoal.product.runs.results import Results

#: Files that a user looks for, and what they are.
FILES = {
    card_stage.REPORT: "the report, for the data owner: it shows true answers",
    card_stage.PACKAGE: "public/ is what to pass on, a data package: columns, units, licence, guarantee",
    card_stage.PUBLIC: "the report to pass on: what the card says, without names and true answers",
    release_stage.PUBLIC: "the released figures, to pass on: no names",
    reader.FILE: "how far homes lie from rows, pooled over all crowds, to pass on",
    release_stage.CSV: "the same with whose row each one is: your key, keep it private (also .parquet)",
    "card.md": "the release card, to publish with the figures (also .json)",
    crowd_stage.LEFT_OUT: "who has no row in it, and why",
    LEDGER: "crowds and what was spent; keep it, and keep it private: it is as private as the readings",
}


def summarize(run: Results, *, verbose: bool) -> list[tuple[str, list[str]]]:
    """The headings that people need first, or with ``verbose`` everything."""
    from shoal.product.card.render import summary

    work, facts = run.work, run.work.facts
    parts = [] if facts.people is None else summary(run.card_so_far, run.handing, verbose=verbose)
    work.kind.add_sentences(work, parts, new=bool(run.did))
    if facts.audit is not None and facts.audit.verdict == "violated":
        parts.insert(0, ("Violated", ["The audit found more than is promised. Do not use this release."]))
    if run.rehearsed is not None:
        words = f"A rehearsal: nothing was released, recorded or charged. {run.rehearsed} has what would be."
        parts.insert(0, ("Not released", [words]))
    elif work.state.release_key is None and facts.people is not None:
        parts.insert(0, ("Not released", ["Nothing was released, recorded or charged."]))
    if run.new_ledger is not None:
        parts.append(("Ledger", [f"There was none, so one was begun: {run.new_ledger}. Keep it."]))
    if run.choice is not None:
        parts.append(("Chosen", run.choice.sentences()))
    if not verbose:
        return parts
    spent = "crowds and everything that is charged about the same labels are on record here"
    if work.place.own:
        spent = "of this folder alone" + ("; nobody real is behind it" if work.source.simulated else "")
    parts.append(("Ledger", [f"{work.place.where}: {spent}."]))
    if work.timings:
        each = ", ".join(f"{name} {value:.1f} s" for name, value in work.timings.items())
        parts.append(("Time", [f"{each}; {sum(work.timings.values()):.0f} s in all."]))
    files = [f"{work.path / name}: {text}" for name, text in FILES.items() if (work.folder / name).is_file()]
    return [*parts, ("Files", files)] if files else parts
