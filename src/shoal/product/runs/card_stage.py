"""The last two stages: the release card, with an attack on the rows that were released, and the pages.

The card is made from the facts of the stages before it. The owner's page draws every crowd, members' figures beside
what was released; ``public/`` becomes a data package. What both say comes from the card.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.audits.naming import attack_released_means
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import OwnAttack
from shoal.product.card.package import package
from shoal.product.card.pictures import CrowdCurves
from shoal.product.card.render import report
from shoal.product.card.statements import RULES, Statement, handing
from shoal.product.runs.folder import PARQUET, CardFacts, ReportFacts
from shoal.product.runs.folder import PUBLIC as TABLE
from shoal.product.runs.release_check import check_package
from shoal.product.runs.work import StageOutcome, Work
from shoal.product.studies.attackers import name_held_out_rows
from shoal.readings.publication import NOISY as VECTOR
from shoal.readings.publication import PLAN, TOTAL

SETTINGS, REPORT_SETTINGS = ("query",), ("title", "licence")
DOING, REPORTING = "writing the release card", "writing the report"
REPORT, PUBLIC, PACKAGE = "report.html", "public/report.html", "public/datapackage.json"
#: What releases write to ``public/``.
TABLES = (TABLE, PLAN, VECTOR, TOTAL)
#: Labels that the attack looks for.
SOUGHT = 2_000


def stage(work: Work) -> StageOutcome:
    """Write the release card for machines and for people."""
    card = work.kind.measured_card(work)
    texts = {"card.json": card.to_json(), "card.md": card.to_markdown()}
    for name, text in texts.items():
        work.folder.put(name, text)
    return StageOutcome(tuple(texts), CardFacts(card.digest, card.statement, card.attack, card.rules))


def with_attack(work: Work, card: ReleaseCard) -> ReleaseCard:
    """Return the card of averages with what an attack on them achieves, and the rules of aggregation that hold."""
    smallest, share = work.tables.lasting["members"].min() or 0, work.settings.largest_share
    rules = kept_rules(int(smallest), of_meters=work.input.of_meters, largest_share=share)  # type: ignore[arg-type]
    return replace(card, attack=_attack_averages(work), rules=rules)


def _attack_averages(work: Work) -> OwnAttack | None:
    """Return the better of two attacks that look for every label's row: by own figures, or by later ones."""
    both, noun = work.tables.with_rows(), work.facts.plan.fit.noun
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


def attack_own_rows(work: Work) -> OwnAttack | None:
    """Return an attack that names the label of every released row from the others; None for one row a label."""
    table = pl.read_parquet(work.folder / PARQUET)
    if work.input.of_meters or table.n_unique("label") == len(table):
        return None
    values = table.select(pl.selectors.float()).to_numpy()
    labels = np.unique(table["label"].to_numpy(), return_inverse=True)[1]
    named = name_held_out_rows(values, labels, table["crowd"].to_numpy())
    words = "the label of all other rows of the table"
    return None if named is None else OwnAttack(words, named[0], None, named[1], named[2])


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


def handing_of(work: Work) -> tuple[Statement, ...]:
    """Return statements on what to pass on and what to keep, once something was released."""
    if work.facts.release is None:
        return ()
    return (*work.kind.owner_statements(work), *handing(work.path.name, work.place.where))


def report_stage(work: Work) -> StageOutcome:
    """Write the owner's page, and everything in ``public/`` beside the table."""
    settings, card, formed = work.settings, work.kind.card(work), work.facts.crowds
    made = work.released_on if card.readings is None else card.readings.day
    crowds, unit = work.kind.page_crowds(work), "kW" if formed is None else work.input.page_unit
    axis = f"{len(formed.columns)} columns" if formed is not None and formed.columns else ""
    tables = {Path(name).name: work.folder / f"public/{Path(name).name}" for name in TABLES}
    known = {name: path.read_bytes() for name, path in tables.items() if path.is_file()}
    about: dict[str, Any] = {"title": settings.title, "timings": work.timings, "handed": handing_of(work)}
    work.folder.put(REPORT, report(card, crowds, unit=unit, axis=axis, public=known, made=made, **about))
    precision = work.kind.precision(work)
    files = package(card, known, title=settings.title, licence=settings.licence, made=made, precision=precision)
    check_package(work, {**known, **files})
    for name, text in files.items():
        work.folder.put(f"public/{name}", text)
    shown = sum(len(crowd.names) for crowd in crowds)
    return StageOutcome((REPORT, *(f"public/{name}" for name in files)), ReportFacts(shown))


def draw_crowds(work: Work, *, same: bool) -> list[CrowdCurves]:
    """Return every crowd with its members' own figures and what was released about them: the ``same``, or a row each.

    Of several rows about a member it is their mean. Columns of a table are side by side: each less its mean, in
    standard deviations over all labels.
    """
    released = pl.read_parquet(work.folder / PARQUET)
    wide = work.input.own_rows(released, work.facts.plan.columns)
    own = work.tables.members.filter(pl.col("value").is_not_null()).select("label", "value")
    whole = ~pl.col("row").list.eval(pl.element().is_null()).list.any()
    both = wide.filter(whole).join(own, on="label", how="inner").sort("label")
    if not len(both):
        return []
    values = both["value"].to_numpy()
    center, spread = (0.0 if work.input.of_meters else values.mean(axis=0)), work.input.spread(values)
    scale = np.where(spread > 0, spread, 1.0)
    sizes = dict(released.select("crowd", "members").iter_rows()) if same else {}
    crowds = []
    for (number,), part in both.partition_by("crowd", maintain_order=True, as_dict=True).items():
        rows = (np.array(part["row"].to_list()) - center) / scale
        figures = (part["value"].to_numpy() - center) / scale
        homes = sizes.get(number, len(part))
        crowds.append(CrowdCurves(number, homes, part["label"].to_list(), figures, rows[:1] if same else rows))
    return crowds
