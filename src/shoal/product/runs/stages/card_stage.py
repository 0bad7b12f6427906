"""The last two stages: the release card, with an attack on the rows that were released, and the pages.

The card is made from the facts of the stages before it. The owner's page draws every crowd, members' figures beside
what was released; ``public/`` becomes a data package. What both say comes from the card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.audits.naming import attack_means
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import AuditFacts, Course, DesignFacts, FitFacts, OwnAttack, ReleaseFacts
from shoal.product.card.package import package
from shoal.product.card.pictures import CrowdCurves
from shoal.product.card.render import public_page, report
from shoal.product.card.statements import RULES, Statement
from shoal.product.runs import reader
from shoal.product.runs.folder import FIT, STATE, Context, Folder, StageOutcome
from shoal.product.runs.stages.crowd_stage import CROWDS, ROWS, CrowdFacts, horizon_stamps, members_and_rows, with_rows
from shoal.product.runs.stages.release_stage import PARQUET
from shoal.product.runs.stages.release_stage import PUBLIC as TABLE
from shoal.product.studies.attackers import attack_rows
from shoal.readings.publication import NOISY as VECTOR
from shoal.readings.publication import PLAN, TOTAL
from shoal.records import Record

SETTINGS, REPORT_SETTINGS = ("query",), ("title", "licence")
DOING, REPORTING = "writing the release card", "writing the report"
COURSE = "course.json"
REPORT, PUBLIC, PACKAGE = "report.html", "public/report.html", "public/datapackage.json"
#: What releases write to ``public/``.
TABLES = (TABLE, reader.FILE, PLAN, VECTOR, TOTAL)
#: Labels that the attack looks for, and shards whose later readings give the price of an earlier release.
SOUGHT, METERED = 2_000, 20
#: Entries of a ledger up to which it is verified for the page.
ENTRIES = 50_000


@dataclass(frozen=True)
class CardFacts(Record):
    """Which card was written, the statement on it, and what only this stage has measured."""

    digest: str
    statement: str
    attack: OwnAttack | None = None
    course: Course | None = None
    rules: tuple[str, ...] = ()


def rehearse(fit: FitFacts, design: DesignFacts, audit: AuditFacts | None) -> None:
    """Print everything that will be published, but for what the ledger adds: what cannot be is not to be charged."""
    nothing = ReleaseFacts(name="", labels=design.labels, ledger="", head="")
    card = ReleaseCard.of(fit, design, nothing, audit)
    for printed in (ReleaseCard.to_json, ReleaseCard.to_markdown, public_page):
        printed(card)


def stage(context: Context, card: ReleaseCard, plan: CrowdFacts | None) -> StageOutcome:
    """Write the card for machines and for people.

    The card of readings with noise is a function of the public settings: nothing is measured for it.
    """
    if card.kind == "means":
        assert plan is not None
        card = replace(attacked(context, card, plan), course=_course(context))
    elif card.readings is None:
        card = replace(card, attack=_attack_on_rows(context))
    texts = {"card.json": card.to_json(), "card.md": card.to_markdown()}
    if card.course is not None:
        texts[COURSE] = json.dumps(card.course.to_json(), indent=1)
    for name, text in texts.items():
        context.folder.put(name, text)
    return StageOutcome(tuple(texts), CardFacts(card.digest, card.statement, card.attack, card.course, card.rules))


def attacked(context: Context, card: ReleaseCard, plan: CrowdFacts) -> ReleaseCard:
    """The card of means with what an attack on them achieves, and the rules of aggregation that they keep."""
    members, rows = members_and_rows(context)
    return replace(card, attack=_attack_on_means(members, rows, plan), rules=kept_rules(members, rows))


def _attack_on_means(members: pl.DataFrame, rows: pl.DataFrame, plan: CrowdFacts) -> OwnAttack | None:
    """Look for every label's row, with its own figures or with what came later: the better of the two attacks."""
    both = with_rows(members, rows)
    if len(both) < 2:
        return None
    values, truth = both["value"].to_numpy(), both["truth"].to_numpy()
    knowledge = [(f"each {plan.fit.noun}'s own figures", values)]
    if truth.shape == values.shape:
        knowledge.append((f"what each {plan.fit.noun} used later", truth))
    crowd, homes, table = both["crowd"].to_numpy(), both["members"].to_numpy(), np.array(both["row"].to_list())
    tried = [(words, attack_means(known, values, table, crowd, homes, most=SOUGHT)) for words, known in knowledge]
    attacks = [OwnAttack(words, *shares) for words, shares in tried if shares is not None]
    return max(attacks, key=lambda attack: attack.after, default=None)


def _attack_on_rows(context: Context) -> OwnAttack | None:
    """Name the label of every released row from the other released rows, where labels have several."""
    table = pl.read_parquet(context.folder / PARQUET)
    if context.config.label is None or table.n_unique("label") == len(table):
        return None
    values = table.select(pl.selectors.float()).to_numpy()
    labels = np.unique(table["label"].to_numpy(), return_inverse=True)[1]
    named = attack_rows(values, labels, table["crowd"].to_numpy())
    words = "whose all other rows of the table are"
    return None if named is None else OwnAttack(words, named[0], None, named[1], named[2])


def kept_rules(members: pl.DataFrame, rows: pl.DataFrame) -> tuple[str, ...]:
    """Names of the rules of aggregation that every row keeps, as its members' figures show."""
    table = rows.filter(~pl.col("retired"))
    if not len(table):
        return ()
    smallest = int(table["members"].min())  # type: ignore[arg-type]
    largest: float | None = None
    both = with_rows(members, rows)
    counted = both.group_by("crowd").len().join(table.select("crowd", "members"), on="crowd", how="right")
    if counted["len"].fill_null(0).to_list() == counted["members"].to_list():  # everybody's figure is known
        values, crowd = both["value"].to_numpy(), np.unique(both["crowd"].to_numpy(), return_inverse=True)[1]
        if (values >= 0).all():
            total = np.zeros((int(crowd.max()) + 1, values.shape[1]))
            np.add.at(total, crowd, values)
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(values > 0, values / total[crowd], 0.0)
            largest = float(share.max())
    return tuple(
        name
        for name, (least, share, _) in RULES.items()
        if smallest >= least and (share is None or (largest is not None and largest <= share))
    )


def _course(context: Context) -> Course | None:
    """The prices of earlier releases of a series, the last one measured now that its hours are known."""
    if context.state.previous is None or context.config.label is not None:
        return None
    before = Folder(context.folder.path / context.state.previous)
    file = before / COURSE
    prices = Course.from_json(json.loads(file.read_bytes())).prices if file.is_file() else ()
    price = _price_of(before, [part.path for part in context.listing(FIT).inputs[:METERED]])
    prices = prices if price is None else (*prices, price)
    return Course(prices) if prices else None


def _price_of(release: Folder, readings: Sequence[str]) -> tuple[str, float] | None:
    """The period of a release and the error of its rows over that of homes' own figures, by what readings show now."""
    if not all((release / name).is_file() for name in (CROWDS, ROWS, STATE)):
        return None
    both = with_rows(pl.read_parquet(release / CROWDS), pl.read_parquet(release / ROWS))
    done = release.state().stages.get("crowds")
    if not len(both) or done is None:
        return None
    fit = CrowdFacts.from_json(done.facts).fit
    stamps = horizon_stamps(fit, len(both["row"][0]))
    both = both.select(
        household="label", own=pl.col("value").arr.to_list(), row="row", timestamp=pl.lit(stamps.implode()).first()
    )
    alike = [path for path in readings if pl.read_parquet_schema(path)["timestamp"] == stamps.dtype]
    if not alike:
        return None
    came = pl.scan_parquet(alike).filter(pl.col("timestamp").is_in(stamps.implode())).collect()
    known = both.explode("own", "row", "timestamp").join(came, on=["household", "timestamp"]).drop_nulls("kw")
    own, row = (float(np.abs(known[name] - known["kw"]).sum()) for name in ("own", "row"))
    return (fit.origin or "", row / own) if own > 0 else None


@dataclass(frozen=True)
class ReportFacts(Record):
    """How many labels the page shows one by one, and whether the ledger is intact (None: too long to look)."""

    shown: int
    ledger_intact: bool | None


def report_stage(
    context: Context,
    card: ReleaseCard,
    plan: CrowdFacts | None,
    handed: Sequence[Statement],
    timings: Mapping[str, float],
    made: str = "",
) -> StageOutcome:
    """Write the owner's page, and everything in ``public/`` beside the table; readings with noise have no ``plan``."""
    config = context.config
    crowds: list[CrowdCurves] = []
    axis, unit = "", "kW"
    if card.readings is not None:
        made = card.readings.day
    else:
        assert plan is not None
        if config.label is not None:
            axis, unit = f"{len(plan.columns)} columns", "sd"
        crowds = _crowds(context, plan, same=card.kind == "means")
    tables = {Path(name).name: context.folder / f"public/{Path(name).name}" for name in TABLES}
    known = {name: path.read_bytes() for name, path in tables.items() if path.is_file()}
    given: dict[str, Any] = {"title": config.title, "made": made, "timings": timings, "handed": handed}
    context.folder.put(REPORT, report(card, crowds, unit=unit, axis=axis, public=known, **given))
    files = package(card, known, title=config.title, licence=config.licence, made=made)
    for name, text in files.items():
        context.folder.put(f"public/{name}", text)
    intact = None
    with context.ledger() as ledger:
        if ledger.head.seq <= ENTRIES:
            intact = bool(ledger.verify().ok)
    shown = sum(len(crowd.names) for crowd in crowds)
    return StageOutcome((REPORT, *(f"public/{name}" for name in files)), ReportFacts(shown, intact))


def _crowds(context: Context, plan: CrowdFacts, *, same: bool) -> list[CrowdCurves]:
    """Every crowd with its members' own figures and what was released about each: the ``same``, or a row of its own.

    Of several rows about a member it is their mean. Columns of a table are side by side: each less its mean, in
    standard deviations over all labels.
    """
    released = pl.read_parquet(context.folder / PARQUET)
    if context.config.label is None:
        wide = released.sort("step").group_by(pl.col("household").alias("label"), "crowd").agg(row="kw")
    else:
        means = released.group_by("label", "crowd").agg(pl.col(list(plan.columns)).mean())
        wide = means.select("label", "crowd", row=pl.concat_list(list(plan.columns)))
    own = members_and_rows(context)[0].filter(pl.col("value").is_not_null()).select("label", "value")
    whole = ~pl.col("row").list.eval(pl.element().is_null()).list.any()
    both = wide.filter(whole).join(own, on="label", how="inner").sort("label")
    if not len(both):
        return []
    center: Any = 0.0
    scale: Any = 1.0
    if context.config.label is not None:
        values = both["value"].to_numpy()
        center, spread = values.mean(axis=0), values.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
    sizes = dict(released.select("crowd", "members").iter_rows()) if same else {}
    crowds = []
    for (number,), part in both.partition_by("crowd", maintain_order=True, as_dict=True).items():
        rows = (np.array(part["row"].to_list()) - center) / scale
        figures = (part["value"].to_numpy() - center) / scale
        homes = sizes.get(number, len(part))
        crowds.append(CrowdCurves(number, homes, part["label"].to_list(), figures, rows[:1] if same else rows))
    return crowds
