"""The second stage: crowds over everybody at once, in memory, and the row of each.

Nothing is recorded here: the release does that. ``left_out.csv`` has the labels without a row, and why.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from datetime import datetime

import polars as pl

from shoal.crowds.diversity import CLOSENESS
from shoal.crowds.membership import formation_size
from shoal.errors import InputError
from shoal.product.card.facts import LISTED, FitFacts, sort_by_count
from shoal.product.runs.crowd_rows import CROWDS, ROWS, WAITS, CrowdPlan, CrowdTables, crowd_setting
from shoal.product.runs.fit_stage import QUALITY_TABLE
from shoal.product.runs.folder import FIT, CrowdFacts
from shoal.product.runs.owner_ledger import Book, as_period
from shoal.product.runs.stage_work import Stage, StageOutcome, Work
from shoal.product.sources.frames import spreadsheet_safe
from shoal.rounding import count_of

SETTINGS = (
    "crowd", "largest_share", "sensitive", "closeness", "boundaries", "method", "rho", "query", "label", "order",
    "train_days", "horizon",
)  # fmt: skip
LEFT_OUT = "left_out.csv"


def plan_crowds(work: Work) -> StageOutcome:
    """Form crowds with their members, and the row of every crowd; nothing is recorded."""
    settings, folder, fit, parts = work.settings, work.folder, work.facts.finished_fit, work.read_intact(FIT).parts
    curves = work.input.curves(settings, fit, parts)
    everybody = set(curves.labels)
    if work.state.previous is not None and (folder / work.state.previous / CROWDS).is_file():
        everybody |= set(pl.read_parquet(folder / work.state.previous / CROWDS, columns=["label"])["label"])
    book, columns = Book.read(work.find_ledger(), sorted(everybody)), work.input.columns(parts)
    declared = fit.origin or work.declared_period
    zoned = fit.origin is None and len(declared) > 10 and datetime.fromisoformat(declared).tzinfo is not None
    plan = CrowdPlan(settings, curves, book, as_period(declared), crowd_setting(work, settings, fit, columns))
    tables = plan.tables(everybody)
    tables.write(folder)
    silent, doubts = _write_left_out(work, fit, plan, tables)
    doubts += plan.doubts
    shown = tables.lasting_rows
    if not len(shown):
        raise InputError("crowd: no label has a crowd yet; left_out.csv lists the reasons")
    before = max(
        (entry["period"] for entry in book.lasting_crowds if entry["period"] < plan.period), default=plan.period
    )
    skipped = (datetime.fromisoformat(plan.period) - datetime.fromisoformat(before)).days - 1
    if work.input.of_meters and skipped > 0:
        doubts.append(f"Since the last release, about {before[:16]}, {count_of(skipped, 'day')} skipped.")
    sizes, usual, about = shown["members"].to_list(), formation_size(settings.crowd), list(fit.about)
    tight = sum(size < usual for size in sizes)
    if tight:
        about.append(
            f"{count_of(tight, 'crowd')} of fewer than {usual}: little room for members who leave before a crowd has "
            "too few and is retired."
        )
    if book.members:
        about.append("Crowds are those on record in the ledger: they are permanent.")
    held = tables.members.filter((pl.col("held") != "") & ~pl.col("waits"))
    reasons = Counter(plan.waiting.values())
    others = Counter(dict(fit.reasons)) - silent
    fit = replace(
        fit,
        time_zone="UTC" if zoned else fit.time_zone,
        labels=sum(sizes),
        groups=len(sizes),
        smallest_group=min(sizes),
        largest_group=max(sizes),
        edges=sum(size * (size - 1) // 2 for size in sizes),
        left_out=fit.left_out - silent.total() + reasons.total(),
        reasons=tuple(sort_by_count(others + reasons)[:LISTED]),
        newcomers=reasons[WAITS],
        about=tuple(about),
        doubts=(*fit.doubts, *doubts),
        crowd=settings.crowd,
        insider=insider_errors(shown, columns),
        protected=tuple(plan.rules.protected),
        closeness=CLOSENESS if settings.closeness is None else settings.closeness,
        held=len(held),
        held_since=min((since for text in held["held"].to_list() for since in _held_periods(text)), default=""),
    )
    missing = shown["values"].list.eval(pl.element().is_nan())  # figures of columns, of meters whole rows
    withheld = int((missing.list.any() if work.input.of_meters else missing.list.sum()).sum() or 0)
    facts = CrowdFacts(fit, plan.setting, plan.period, book.digest, columns, withheld, int(shown["recorded"].sum()))
    return StageOutcome((CROWDS, ROWS, LEFT_OUT), facts, tables=tables)


def insider_errors(shown: pl.DataFrame, columns: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    """Return column -> the error with which someone who knows all others estimates a constant figure, at least.

    From the rows of one column, an offset that is uniform on a window of n b leaves a standard deviation of n b/√12; of
    the crowd with the least. Columns that say the same have an offset each, and together leave less.
    """
    kept = [(homes, json.loads(text)["bases"]) for homes, text in shown.select("members", "kept").iter_rows() if text]
    windows = [[homes * float(base) for base in bases] for homes, bases in kept]
    names = [f"in {name}" for name in columns] or ["kW"]
    return tuple(zip(names, (min(of) / math.sqrt(12) for of in zip(*windows, strict=True)), strict=False))


def _held_periods(held: str) -> list[str]:
    """Return since which periods a member is held: one of a home, or one for each column that is held."""
    return [str(since) for since in json.loads(held).values()] if held.startswith("{") else [held]


def _write_left_out(work: Work, fit: FitFacts, plan: CrowdPlan, tables: CrowdTables) -> tuple[Counter[str], list[str]]:
    """Write the labels without a row; return why some with a row were in that list, and what the owner should know."""
    folder, who, doubts = work.folder, work.input.who, list[str]()
    schema = {who: pl.String, "reason": pl.String}
    left = [spreadsheet_safe(pl.DataFrame(list(plan.waiting.items()), schema=schema, orient="row"))]
    if (folder / QUALITY_TABLE).is_file():
        quality = pl.read_csv(folder / QUALITY_TABLE, infer_schema=False).filter(pl.col("verdict") == "left out")
        left.append(quality.select(pl.col("household").fill_null(""), "reason"))
    out = pl.concat(left).unique(who, keep="first", maintain_order=True).sort(who)
    placed = tables.members.filter(~pl.col("waits") & pl.col("crowd").is_in(tables.lasting_rows["crowd"].to_list()))
    quiet = placed.filter(pl.col("value").is_null())
    if work.kind.row_per_label:
        placed = placed.filter(pl.col("value").is_not_null())
    elif len(quiet):
        last = Counter(text[:10] for text in sorted(quiet["last"].to_list()))
        when = ", ".join(f"{day} ({count})" for day, count in last.items())
        doubts.append(f"No figures of {count_of(len(quiet), fit.noun)} in crowds since {when}: the last ones enter.")
    has_row = pl.col(who).is_in(spreadsheet_safe(placed.select("label"))["label"].to_list())
    folder.write(LEFT_OUT, lambda path: out.filter(~has_row).write_csv(path))
    return Counter(out.filter(has_row)["reason"].to_list()), doubts


#: The stage itself.
FORMING = Stage("forming crowds", SETTINGS, plan_crowds)
