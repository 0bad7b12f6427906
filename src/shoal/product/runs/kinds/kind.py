"""The interface of a kind of release, and the stages that all kinds share: the release card, and the pages.

The card is made from the facts of the stages before it. The owner's page draws every crowd, members' figures beside
what was released; ``public/`` becomes a data package. What both say comes from the card.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from shoal.errors import InputError, ShoalError
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import FitFacts, ReleaseFacts, SpentFacts
from shoal.product.card.package import build_package
from shoal.product.card.pictures import CrowdCurves
from shoal.product.card.render import owner_report
from shoal.product.card.statements import HEADINGS, Statement, readings_offer, share_and_keep_statements
from shoal.product.runs.config import OF_READINGS, Config
from shoal.product.runs.fit_stage import FITTING, READING_ROWS
from shoal.product.runs.folder import CSV, FIT, PARQUET, PUBLIC, CardFacts, ReportFacts
from shoal.product.runs.inputs import read_curves
from shoal.product.runs.release_check import check_package
from shoal.product.runs.stage_work import Stage, StageOutcome, Work
from shoal.product.sources.frames import spreadsheet_safe
from shoal.readings.publication import NOISY as VECTOR
from shoal.readings.publication import PLAN, TOTAL

REPORT, PUBLIC_REPORT, PACKAGE = "report.html", "public/report.html", "public/datapackage.json"
#: What releases write to ``public/``.
TABLES = (PUBLIC, PLAN, VECTOR, TOTAL)


class Kind:
    """A kind of release: settings that it takes, its stages, what its card says. Each is one object without state."""

    word: ClassVar[str]  #: in the state of a folder
    #: Settings that belong to another promise, and why.
    refuses: ClassVar[tuple[str, ...]] = OF_READINGS
    refusal: ClassVar[str] = "{} belongs to the readings' promise: say secret='readings' too, or leave it out"
    #: Whether a member without figures today has no row, since a row is about one label.
    row_per_label: ClassVar[bool] = False
    #: What its releases do not have, of "rehearse", "at_most", "within", "reader" and "proof" -> why.
    has_not: ClassVar[dict[str, str]] = {}
    #: Whether single rows of its table may be handed out.
    has_rows: ClassVar[bool] = True

    def is_asked_by(self, settings: Config, fit: FitFacts | None) -> bool:
        """Return whether settings, or the rows of a table that was read, ask for this kind."""
        raise NotImplementedError

    def refuse_settings(self, settings: Config) -> None:
        """Raise InputError for settings of another promise."""
        defaults = {field.name: field.default for field in fields(settings)}
        name = next((n for n in self.refuses if n in defaults and getattr(settings, n) != defaults[n]), None)
        if name is not None:
            raise InputError(self.refusal.format(name))

    def check_settings(self, settings: Config) -> None:
        """Raise InputError for settings that this kind cannot use, or where one that it needs is missing."""

    def check_rows(self, settings: Config, fit: FitFacts) -> None:
        """Raise InputError for a table whose number of rows per label this kind cannot use."""

    def crowd_terms(self, settings: Config, fit: FitFacts) -> dict[str, Any]:
        """Return how rows come from the figures of a crowd, which is fixed for the crowd's life."""
        return {"release": "mean"}

    def own_stages(self) -> dict[str, Stage]:
        """Return the stages of this kind by name, in order: those between the first one and the card."""
        raise NotImplementedError

    def stages(self, *, of_table: bool) -> dict[str, Stage]:
        """Return the stages by name, in order; each rests on the one before it."""
        return {
            "fit": READING_ROWS if of_table else FITTING,
            **self.own_stages(),
            "card": Stage("writing the release card", ("query",), write_card),
            "report": Stage("writing the report", ("title", "licence"), write_report),
        }

    def refuse_unfit_release(self, work: Work) -> None:
        """Refuse, before anything is recorded, a release that could not be finished or hides nobody."""

    def rehearse(self, work: Work) -> ReleaseCard | None:
        """Write what would be released; return its card, where the stages before the release leave none."""
        return None

    def refuse_missing(self, asked: str) -> None:
        """Raise InputError where releases of this kind do not have what is asked, such as a "proof"."""
        if asked in self.has_not:
            raise InputError(self.has_not[asked].format(asked))

    def card(self, work: Work) -> ReleaseCard:
        """Return the card of the stages that are done."""
        facts, charged = work.facts, self.row_per_label
        assert facts.people is not None
        design, audit = (facts.design, facts.audit) if charged else (None, None)  # of settings before
        card = ReleaseCard(facts.people, design, facts.release, audit, charged=charged)
        return card if facts.card is None else replace(card, attack=facts.card.attack, rules=facts.card.rules)

    def measured_card(self, work: Work) -> ReleaseCard:
        """Return the card with what an attack on the released rows achieves, where there is one."""
        return self.card(work)

    def row_bases(self, work: Work) -> dict[str, Any]:
        """Return public number of each crowd -> the base of its row, or a base for each column; empty without bases."""
        return {}

    def owner_statements(self, work: Work) -> tuple[Statement, ...]:
        """Return statements for the owner's report alone, in addition to those of the card; nothing public has them."""
        return ()

    def add_sentences(self, work: Work, parts: list[tuple[str, list[str]]], *, new: bool) -> None:
        """Add to a summary what the card does not have; ``new``: after a stage was done.

        By default what the readings' promise would protect: with a new table only, since that takes longer to compute
        than a second look at all the rest.
        """
        if new and work.facts.people is not None:
            attack = next((lines for heading, lines in parts if heading == HEADINGS["attack"]), parts[0][1])
            attack.append(readings_offer(work.facts.people, mean_kw(work)))

    def reader(self, work: Work, row: Any) -> pl.DataFrame:
        """Return, for the owner, how far members lie from a row; see :meth:`shoal.Run.reader`."""
        raise InputError(self.has_not["reader"])


def mean_kw(work: Work) -> float | None:
    """Return the homes' own mean load, over the steps of their forecasts, which is the owner's; None of a table."""
    if not work.input.of_meters:
        return None
    try:
        every = read_curves(work.read_listing(FIT).parts)
    except (OSError, ShoalError):
        return None
    return float(every["value"].to_numpy().mean()) if "value" in every.columns and len(every) else None


def write_card(work: Work) -> StageOutcome:
    """Write the release card for machines and for people."""
    card = work.kind.measured_card(work)
    texts = {"card.json": card.to_json(), "card.md": card.to_markdown()}
    for name, text in texts.items():
        work.folder.write_content(name, text)
    return StageOutcome(tuple(texts), CardFacts(card.digest, card.statement, card.attack, card.rules))


def handing_statements(work: Work) -> tuple[Statement, ...]:
    """Return statements on what to pass on and what to keep, once something was released."""
    if work.facts.release is None:
        return ()
    return (*work.kind.owner_statements(work), *share_and_keep_statements(work.path.name, work.place.where))


def write_report(work: Work) -> StageOutcome:
    """Write the owner's page, and everything in ``public/`` beside the table."""
    settings, card = work.settings, work.kind.card(work)
    formed = work.facts.crowds if "crowds" in work.pipeline else None
    made = work.released_on if card.readings is None else card.readings.day
    crowds, unit = ([], "kW") if formed is None else (draw_crowds(work), work.input.page_unit)
    axis = f"{len(formed.columns)} columns" if formed is not None and formed.columns else ""
    tables = {Path(name).name: work.folder / f"public/{Path(name).name}" for name in TABLES}
    known = {name: path.read_bytes() for name, path in tables.items() if path.is_file()}
    about: dict[str, Any] = {"title": settings.title, "timings": work.timings, "handed": handing_statements(work)}
    work.folder.write_content(
        REPORT, owner_report(card, crowds, unit=unit, axis=axis, public=known, made=made, **about)
    )
    precision = work.kind.row_bases(work)
    files = build_package(card, known, title=settings.title, licence=settings.licence, made=made, precision=precision)
    check_package(work, {**known, **files})
    for name, text in files.items():
        work.folder.write_content(f"public/{name}", text)
    shown = sum(len(crowd.names) for crowd in crowds)
    return StageOutcome((REPORT, *(f"public/{name}" for name in files)), ReportFacts(shown))


def draw_crowds(work: Work) -> list[CrowdCurves]:
    """Return every crowd with its members' own figures and what was released about them: one row, or a row each.

    Of several rows about a member it is their mean. Columns of a table are side by side: each less its mean, in
    standard deviations over all labels.
    """
    released, same = pl.read_parquet(work.folder / PARQUET), not work.kind.row_per_label
    wide = work.input.own_rows(released, work.facts.plan.columns)
    own = work.tables.members.filter(pl.col("value").is_not_null()).select("label", "value")
    whole = ~pl.col("row").list.eval(pl.element().is_null()).list.any()
    both = wide.filter(whole).join(own, on="label", how="inner").sort("label")
    if not len(both):
        return []
    values = both["value"].to_numpy()
    center, spread = (0.0 if work.input.of_meters else values.mean(axis=0)), work.input.error_scale(values)
    scale = np.where(spread > 0, spread, 1.0)
    sizes = dict(released.select("crowd", "members").iter_rows()) if same else {}
    crowds = []
    for (number,), part in both.partition_by("crowd", maintain_order=True, as_dict=True).items():
        rows = (np.array(part["row"].to_list()) - center) / scale
        figures = (part["value"].to_numpy() - center) / scale
        homes = sizes.get(number, len(part))
        crowds.append(CrowdCurves(number, homes, part["label"].to_list(), figures, rows[:1] if same else rows))
    return crowds


RELEASE_SETTINGS = ("query",)


def release_facts(work: Work, period: str, *, charged: bool = False, **more: Any) -> ReleaseFacts:
    """Return the facts of the release, with its place on record and, where it is charged, the worst account."""
    ledger = work.ledger
    if charged:
        spent = ledger.spent()
        more |= {"releases": spent.releases, "ledger_labels": len(spent)}
        more["worst"] = None if spent.largest is None else SpentFacts.from_attributes(spent.largest)
    return ReleaseFacts(
        name=work.release_name,
        head=str(ledger.head),
        period=period,
        **more,
    )


def csv_bytes(table: pl.DataFrame) -> bytes:
    """Return a table as CSV; instants in ISO 8601, with their offset from UTC where they have a zone."""
    zone = next((getattr(kind, "time_zone", None) for kind in table.schema.values() if kind.is_temporal()), None)
    form = "%Y-%m-%dT%H:%M:%S%:z" if zone else "%Y-%m-%dT%H:%M:%S"
    return spreadsheet_safe(table).write_csv(datetime_format=form).encode()


def write_tables(work: Work, public: pl.DataFrame, owner: pl.DataFrame) -> tuple[str, ...]:
    """Write the table to pass on and the owner's; return their names."""
    work.folder.write_content(PUBLIC, csv_bytes(public))
    work.folder.write_content(CSV, csv_bytes(owner))
    work.folder.write(PARQUET, lambda path: owner.write_parquet(path))
    return CSV, PARQUET, PUBLIC
