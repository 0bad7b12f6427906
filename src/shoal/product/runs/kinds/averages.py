"""Averages, the default: the row of each crowd is its mean, recorded in the ledger in one transaction, then written.

Nothing is charged: aggregation with a least crowd (k-anonymity). Rows come from the stage of crowds; the public table
has crowd, members, then step, timestamp and kw, or the columns of a table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import polars as pl

from shoal.audits.naming import attack_released_means
from shoal.errors import InputError
from shoal.mechanism.releasable import ReleaseErrors
from shoal.plaintext import cell
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import FitFacts, OwnAttack, ReleaseFacts
from shoal.product.card.measures import error_facts
from shoal.product.card.promises import NOTHING_TO_PROVE
from shoal.product.card.statements import RULES
from shoal.product.runs import crowd_stage
from shoal.product.runs.config import CHARGED, Config
from shoal.product.runs.crowd_rows import CrowdTables, public_crowd_numbers, record_rows
from shoal.product.runs.folder import PUBLIC
from shoal.product.runs.kinds.kind import RELEASE_SETTINGS, Kind, csv_bytes, release_facts, write_tables
from shoal.product.runs.owner_ledger import Book
from shoal.product.runs.release_check import check_averages
from shoal.product.runs.row_rules import decode_figures, redraw_row
from shoal.product.runs.stage_work import Stage, StageOutcome, Work
from shoal.product.sources.meters.predictive_laws import absolute_errors

DOING = "recording crowds"
#: Where a rehearsal writes.
REHEARSAL = "rehearsal/not_released.csv"
#: Labels that the attack looks for.
SOUGHT = 2_000


class Averages(Kind):
    """A row is the mean of a crowd, with the rules of aggregation."""

    word = "averages"
    has_not: ClassVar = {"proof": NOTHING_TO_PROVE}

    def is_asked_by(self, settings: Config, fit: FitFacts | None) -> bool:
        """Return True: it is the kind of release where no other is asked for."""
        return True

    def check_settings(self, settings: Config) -> None:
        """Raise InputError for an ε, δ or ρ, which means do not use; a table may have several rows per label."""
        if settings.label is None:
            self.check_rows(settings, FitFacts())

    def check_rows(self, settings: Config, fit: FitFacts) -> None:
        """Raise InputError for an ε, δ or ρ beside constants, one row per label."""
        name = settings.guarantee_setting
        if name is not None:
            raise InputError(
                f"{name}: nothing here uses it. Rows are averages over a crowd, which protect the labels without "
                f"noise; leave it out, or choose a method= that takes it: {', '.join(CHARGED)}",
                argument=name,
            )

    def own_stages(self) -> dict[str, Stage]:
        return {"crowds": crowd_stage.FORMING, "release": Stage(DOING, RELEASE_SETTINGS, release_averages)}

    def rehearse(self, work: Work) -> ReleaseCard | None:
        """Write the rows of this rehearsal, with offsets that are thrown away; return their card."""
        return card_with_attack(work, replace(self.card(work), release=write_rehearsal(work)))

    def measured_card(self, work: Work) -> ReleaseCard:
        return card_with_attack(work, self.card(work))

    def row_bases(self, work: Work) -> dict[str, Any]:
        numbers, columns = public_crowd_numbers(work, work.ledger)[0], work.facts.plan.columns
        precision: dict[str, Any] = {}
        for number, kept in work.tables.lasting_rows.select("crowd", "kept").sort("crowd").iter_rows():
            bases = [float(base) for base in json.loads(kept)["bases"]]
            precision[str(numbers.get(number, number))] = (
                dict(zip(columns, bases, strict=True)) if columns else bases[0]
            )
        return dict(sorted(precision.items()))

    def reader(self, work: Work, row: Any) -> pl.DataFrame:
        return pool_distances(work, row)


def release_averages(work: Work) -> StageOutcome:
    """Draw the numbers of new crowds, record every row in the ledger, and write the tables."""
    plan = work.facts.plan
    numbers, _ = public_crowd_numbers(work, work.ledger)
    public, owner = make_tables(work, numbers)
    leaving = csv_bytes(public)
    book = Book.read(work.ledger, work.tables.members["label"].to_list())
    check_averages(work, book, numbers, leaving, csv_bytes(owner))
    record_rows(work, numbers, hashlib.sha256(leaving).hexdigest(), book, with_figures=True)
    measured = measure_release(work, public, owner)
    facts = release_facts(work, plan.period, withheld=plan.withheld, recorded_before=plan.recorded, **measured)
    return StageOutcome(write_tables(work, public, owner), facts)


def write_rehearsal(work: Work) -> ReleaseFacts:
    """Write what would be released to a file that says that it was not; nothing is recorded or charged."""
    rows, members = work.tables.rows, work.tables.members.filter(~pl.col("waits"))
    inside = {number: own for number, *own in members.group_by("crowd").agg("stored", "entered").iter_rows()}
    values = [  # with offsets that are thrown away: those of the release are kept for it
        shown if recorded or retired else redraw_row(decode_figures(kept, *inside[number]), shown)
        for number, shown, kept, recorded, retired in rows.select(
            "crowd", "values", "kept", "recorded", "retired"
        ).iter_rows()
    ]
    tables = replace(work.tables, rows=rows.with_columns(values=pl.Series(values, dtype=rows.schema["values"])))
    public, owner = make_tables(work, public_crowd_numbers(work, None)[0], tables)
    work.folder.write_content(REHEARSAL, csv_bytes(owner.select(pl.lit("not released").alias("status"), pl.all())))
    return ReleaseFacts(name="", head="", **measure_release(work, public, owner))


def measure_release(work: Work, public: pl.DataFrame, owner: pl.DataFrame) -> dict[str, Any]:
    """Return counts of the release, and errors of rows beside members' own values and what came later."""
    both = work.tables.members_with_rows().filter(
        "own"
    )  # a figure that was held, or came later, shows in no error either
    sizes = {"labels": owner[owner.columns[0]].n_unique(), "crowds": public["crowd"].n_unique()}
    if not len(both):
        return sizes
    value, row = both["value"].to_numpy(), np.array(both["row"].to_list())
    scale = 1.0 / np.maximum(work.input.error_scale(value), 1e-300)
    off = row - value
    squares, off = off**2 * np.square(scale), off * scale
    accuracy = error_facts(
        ReleaseErrors(squares.mean(axis=1), squares, off, noise_alone=False),
        value * scale,
        np.unique(both["crowd"].to_numpy(), return_inverse=True)[1].astype(np.int64),
        unit=work.input.error_unit,
    )
    known, absolute = absolute_errors(both["truth"].to_numpy(), row)
    return sizes | {"accuracy": accuracy, "later_known": known, "later_absolute": absolute}


def card_with_attack(work: Work, card: ReleaseCard) -> ReleaseCard:
    """Return the card of averages with what an attack on them achieves, and the rules of aggregation that hold."""
    smallest, share = work.tables.lasting_rows["members"].min() or 0, work.settings.largest_share
    rules = kept_rules(int(smallest), of_meters=work.input.of_meters, largest_share=share)  # type: ignore[arg-type]
    return replace(card, attack=_attack_averages(work), rules=rules)


def _attack_averages(work: Work) -> OwnAttack | None:
    """Return the better of two attacks that look for every label's row: by own figures, or by later ones."""
    both, noun = work.tables.members_with_rows(), work.facts.plan.fit.noun
    if len(both) < 2:
        return None
    values, truth = both["value"].to_numpy(), both["truth"].to_numpy()
    knowledge = [(f"each {noun}'s own figures", values)]
    if truth.shape == values.shape:
        knowledge.append((f"what each {noun} used later", truth))
    crowd, homes, table = both["crowd"].to_numpy(), both["members"].to_numpy(), np.array(both["row"].to_list())
    tried = [
        (words, attack_released_means(known, values, table, crowd, homes, most=SOUGHT)) for words, known in knowledge
    ]
    attacks = [OwnAttack(words, *shares) for words, shares in tried if shares is not None]
    return max(attacks, key=lambda attack: attack.after, default=None)


def kept_rules(smallest: int, *, of_meters: bool, largest_share: float | None = None) -> tuple[str, ...]:
    """Return the rules of aggregation that rows keep because of how they are made, never because of their figures.

    A name that is there or missing because of one member's figure would be a second figure about it, which no offset
    hides. Dominance leaves a home at most two thirds of its crowd's load over the horizon; a few-valued column has no
    dominance, so tables are given the rules of size.

    >>> kept_rules(12, of_meters=True), kept_rules(12, of_meters=False)
    (('4/80 of the load over the horizon', 'five devices'), ('five devices',))
    """
    most = min(2 / 3, 1.0 if largest_share is None else largest_share) if of_meters else 1.0
    return tuple(
        name for name, (least, share, _) in RULES.items() if smallest >= least and (share is None or most <= share)
    )


def make_tables(
    work: Work, numbers: Mapping[int, int], tables: CrowdTables | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the public table, one row per crowd (and step), and the owner's, with the label of each row."""
    number, plan = pl.col("crowd").replace(numbers), work.facts.plan
    table = (work.tables if tables is None else tables).lasting_rows.select(number, "members", "values").sort("crowd")
    public, order = work.input.public_rows(work.settings, plan, table)
    key = work.tables.members.filter(~pl.col("waits")).select(pl.col("label").alias(order[0]), number)
    return public, key.join(public, on="crowd", how="inner").select(order[0], *public.columns).sort(order)


#: What is given of the pooled law, and crowds, at least, over which it is pooled.
QUANTILES, FEWEST = (0.1, 0.25, 0.5, 0.75, 0.9), 10


def pool_distances(work: Work, row: int | Sequence[float]) -> pl.DataFrame:
    """Return quantiles of how far homes lie from the row of their crowd, entry by entry.

    One law over all homes whose own figures of today are in a row without a withheld figure (docs/theory.md, section
    12, "One kind of figure"),

        d = (a home's figure − its row's figure) / the row's level,    level = |mean of the row's entries|,

    For a table d is in units of the column. Quantiles are order statistics of exact figures: they stay with the owner.
    """
    entries: Sequence[str] = work.facts.plan.columns or [str(step + 1) for step in range(work.settings.horizon)]
    both = work.tables.members_with_rows().filter(pl.col("own") & (pl.col("row").list.len() == len(entries)))
    if both["crowd"].n_unique() < FEWEST:
        raise InputError(
            f"reader: fewer than {FEWEST} crowds have new rows in this release: how far so few homes lie from their "
            "rows would be about single ones"
        )
    if isinstance(row, int):
        rows = pl.read_csv(work.folder / PUBLIC).filter(pl.col("crowd") == row)
        if not len(rows):
            raise InputError("row must be the number of a crowd in public/released.csv, or its figures")
        row = rows["kw"].to_list() if work.input.of_meters else list(rows.select(map(cell, entries)).row(0))
    given, means = np.asarray(row, dtype=np.float64), np.array(both["row"].to_list())
    if given.shape != (len(entries),) or not np.isfinite(given).all():
        raise InputError(f"row must be the number of a crowd, or its {len(entries)} released figures")
    off, level = both["value"].to_numpy() - means, 1.0
    if work.input.of_meters:
        levels, level = np.abs(means.mean(axis=1)), abs(float(given.mean()))
        off = off[levels > 0] / levels[levels > 0][:, None]
    if not len(off):
        raise InputError("reader: all rows of this release are zero")
    bounds = given + level * np.quantile(off, QUANTILES, axis=0, method="inverted_cdf")
    below = {f"below_{100 * q:g}": own.round(6) + 0.0 for q, own in zip(QUANTILES, bounds, strict=True)}
    return pl.DataFrame({"entry": list(entries), "row": given, **below})
