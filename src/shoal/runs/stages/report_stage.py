"""The last stage: the page for the data owner, and the one to pass on. What they say of everyone comes from the card.

Single figures are shown of a few crowds: of a release of means the largest spreads first, of a method's the crowds
hardest to hide in. The work does not grow with the run, and nothing else is designed for the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shoal.card.aggregate import AggregateCard, aggregate_contents
from shoal.card.card import ReleaseCard
from shoal.card.digits import nearest
from shoal.card.facts import Record
from shoal.card.page import page, write_page
from shoal.card.section import Plot, axis, lines, series
from shoal.designs.design import design
from shoal.errors import InputError
from shoal.files import write_private
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.reader import load
from shoal.mechanism.releasable import Releasable
from shoal.runs.config import Config
from shoal.runs.context import DESIGN, RELEASE, Context, Made
from shoal.runs.fitted import Fitted, fitted
from shoal.runs.stages.design_stage import hardest
from shoal.runs.stages.record import members_and_rows
from shoal.runs.stages.release_stage import Shown
from shoal.runs.store import Part
from shoal.validation import FloatArray

SETTINGS = ("title", "query", "epsilon", "seed")
DOING = "writing the report"
REPORT, PUBLIC = "report.html", "public/report.html"
#: Labels whose pairs and answers a page shows, at least one crowd; accounts that it lists; entries of a ledger up to
#: which it is verified for the page; crowds of a release of means that are shown.
LABELS, ACCOUNTS, ENTRIES, CROWDS = 60, 20, 50_000, 12


@dataclass(frozen=True)
class ReportFacts(Record):
    """How many labels the page shows one by one, and whether the ledger is intact (None: too long to look)."""

    shown: int
    ledger_intact: bool | None


def stage(context: Context, card: ReleaseCard | AggregateCard, timings: Mapping[str, float], made: str = "") -> Made:
    """Write both pages."""
    if isinstance(card, AggregateCard):
        shown = _means_pages(context, card, timings, made)
    else:
        shown = _method_pages(context, card, timings, made)
    intact = None
    with context.ledger() as ledger:
        if ledger.head.seq <= ENTRIES:
            intact = bool(ledger.verify().ok)
    return Made((REPORT, PUBLIC), ReportFacts(shown, intact))


def _means_pages(context: Context, card: AggregateCard, timings: Mapping[str, float], made: str) -> int:
    plots, shown = _crowd_plots(context)
    title = context.config.title
    owner = aggregate_contents(card, plots, timings, public=False, title=title, made=made)
    public = aggregate_contents(card, public=True, title=title, made=made)
    for name, contents in ((REPORT, owner), (PUBLIC, public)):
        text = page(contents)
        context.folder.write(name, lambda path, text=text: write_private(path, text.encode()))  # type: ignore[misc]
    return shown


def _crowd_plots(context: Context) -> tuple[list[Plot], int]:
    """The rows with the largest spread among their members, each with its members' own figures."""
    import polars as pl

    members, rows = members_and_rows(context)
    known = members.filter(pl.col("value").is_not_null() & ~pl.col("waits"))
    table = dict(rows.filter(~pl.col("retired")).select("crowd", "values").iter_rows())
    found = []
    for (number,), part in known.sort("label").group_by("crowd", maintain_order=True):
        row = table.get(int(str(number)))
        values = part["value"].to_numpy()
        if row is None or len(row) != values.shape[1]:
            continue
        found.append((float(((values - np.array(row)) ** 2).mean()), part["label"].to_list(), values, row))
    found.sort(key=lambda one: -one[0])
    plots = []
    what = ("step", "kW") if context.config.label is None else ("column", "value")
    for number, (_, names, values, row) in enumerate(found[:CROWDS], 1):
        at = range(1, len(row) + 1)
        drawn = [
            series(name, [(x, float(y), nearest(float(y))) for x, y in zip(at, line, strict=True)], color=7)
            for name, line in zip(names, values.tolist(), strict=True)
        ]
        points = [(x, float(y), nearest(float(y))) for x, y in zip(at, row, strict=True)]
        drawn.append(series("released", points, color=0, thick=True))
        plots.append(lines(f"{number}: {len(names)} with a figure today", axis(what[0]), axis(what[1]), drawn))
    return plots, sum(len(names) for _, names, _, _ in found[:CROWDS])


# ------------------------------------------------------------------ a method's release


def _method_pages(context: Context, card: ReleaseCard, timings: Mapping[str, float], made: str) -> int:
    config = context.config
    through, made_for, given = _hardest(context)
    mechanism, answers, released, crowds = _shown(through, made_for, given, config)
    verification = None
    with context.ledger() as ledger:
        overview = ledger.overview(exact=ACCOUNTS)
        if overview.entries <= ENTRIES:
            verification = ledger.verify()
    total = card.design.groups
    shown = replace(
        answers.exhibits(_laws_alone(mechanism, answers), released),
        accounts=overview.worst,
        n_accounts=overview.labels,
        verification=verification,
        timings=dict(timings),
        mechanism=mechanism.by_kind(mechanism=lambda m: m, codebook=lambda _: None),
        scope="" if crowds == total else f"the {crowds} of {total} crowds that are hardest to hide in",
    )
    context.folder.write(REPORT, lambda path: write_page(path, card, shown, title=config.title, made=made))
    context.folder.write(PUBLIC, lambda path: write_page(path, card, title=config.title, made=made))
    return len(answers.labels)


def _laws_alone(mechanism: Releasable, answers: Fitted) -> Mechanism:
    """A mechanism of the labels on the page that names them: of a codebook, the answers as they are."""

    def of_answers(book: Codebook) -> Mechanism:
        crowd = dict(zip(book.graph.labels, book.graph.components.tolist(), strict=True))
        graph = NeighborGraph.within_groups(answers.labels, [crowd[name] for name in answers.labels])
        return design(answers.laws(), graph, "none", book.epsilon, 1.0)

    return mechanism.by_kind(mechanism=lambda m: m, codebook=of_answers)


def _hardest(context: Context) -> tuple[Part, ...]:
    """Mechanism, block and released answers of the undamaged block with the largest δ that was released."""
    given = {part.told(Shown).mechanism: part for part in context.listing(RELEASE).parts}
    shards = [(part, made_of, given[part.key]) for part, made_of in context.listing(DESIGN).pairs if part.key in given]
    if not shards:
        raise InputError("dir: nothing was released that a page could show; run it until the release first")
    return hardest(shards)


def _shown(mechanism: Part, block: Part, given: Part, config: Config) -> tuple[Releasable, Fitted, FloatArray, int]:
    """Mechanism, answers and what was released, of the crowds on the page; how many these are."""
    whole, everyone = load(mechanism.path), fitted(Path(block.path), config.query, config.answers)
    place = set(everyone.labels)
    labels, component = whole.graph.labels, whole.graph.components
    first = 0 if whole.certificate is None else int(component[labels.index(whole.certificate.worst_edge[0])])
    members: list[str] = []
    crowds = 0
    for number in [first, *(c for c in range(int(component.max()) + 1) if c != first)]:
        crowd = [labels[i] for i in np.flatnonzero(component == number) if labels[i] in place]
        if members and len(members) + len(crowd) > LABELS:
            break
        if len(crowd) > 1 or not members:
            members, crowds = members + crowd, crowds + 1
    answers = everyone.take(members)
    released = answers.released(given.path)
    shown: Releasable = whole if whole.output is None else whole.part(members)
    return shown, answers, released, crowds
