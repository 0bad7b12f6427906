"""The release card, from what the stages before it have told, and an attack on the rows that were released."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import polars as pl

from shoal.audits.naming import attack_means, attack_rows
from shoal.card.card import ReleaseCard
from shoal.card.facts import AuditFacts, Course, DesignFacts, FitFacts, OwnAttack, ReleaseFacts
from shoal.card.render import public_page
from shoal.card.statements import RULES
from shoal.errors import InputError
from shoal.records import Record
from shoal.runs.context import FIT, Context, Made
from shoal.runs.folder import STATE, Folder
from shoal.runs.meter_rows import read_readings
from shoal.runs.shards import Part
from shoal.runs.stages.crowd_stage import CROWDS, ROWS, CrowdFacts, members_and_rows, with_rows
from shoal.runs.stages.release_stage import PARQUET

SETTINGS = ("query",)
DOING = "writing the release card"
COURSE = "course.json"
#: Labels that the attack looks for, and shards whose later readings give the price of an earlier release.
SOUGHT, METERED = 2_000, 20


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
    for printed in (ReleaseCard.to_json, ReleaseCard.to_markdown, ReleaseCard.to_yaml, public_page):
        printed(card)


def stage(context: Context, card: ReleaseCard, plan: CrowdFacts | None) -> Made:
    """Write the card for machines and for people, and where something is certified for the registry.

    The card of readings with noise is a function of the public settings: nothing is measured for it.
    """
    if card.kind == "means":
        assert plan is not None
        members, rows = members_and_rows(context)
        attack, rules = _attack_on_means(members, rows, plan), kept_rules(members, rows)
        card = replace(card, attack=attack, rules=rules, course=_course(context))
    elif card.readings is None:
        card = replace(card, attack=_attack_on_rows(context))
    texts = {"card.json": card.to_json(), "card.md": card.to_markdown()}
    if card.kind == "certified":
        texts["card.yaml"] = card.to_yaml()
    if card.course is not None:
        texts[COURSE] = json.dumps(card.course.to_json(), indent=1)
    for name, text in texts.items():
        context.folder.put(name, text)
    return Made(tuple(texts), CardFacts(card.digest, card.statement, card.attack, card.course, card.rules))


def _attack_on_means(members: pl.DataFrame, rows: pl.DataFrame, plan: CrowdFacts) -> OwnAttack | None:
    """Look for every label's row, with its own figures or with what came later: the better of the two attacks."""
    both = with_rows(members, rows)
    if len(both) < 2:
        return None
    values, truth = both["value"].to_numpy(), both["truth"].to_numpy()
    knowledge = [(f"each {plan.fit.noun}'s own figures", values)]
    if truth.shape == values.shape:
        knowledge.append((f"what each {plan.fit.noun} used later", truth))
    crowd, homes, table = both["crowd"].to_numpy(), both["homes"].to_numpy(), np.array(both["row"].to_list())
    tried = [(words, attack_means(known, values, table, crowd, homes, most=SOUGHT)) for words, known in knowledge]
    attacks = [OwnAttack(words, *shares) for words, shares in tried if shares is not None]
    return max(attacks, key=lambda attack: attack.after, default=None)


def _attack_on_rows(context: Context) -> OwnAttack | None:
    """Name the label of every released row from the other released rows, where labels have several."""
    table = pl.read_parquet(context.folder / PARQUET)
    if "step" in table.columns or "label" not in table.columns:
        return None
    numbers = [name for name in table.columns if table.schema[name].is_float()]
    if table.n_unique("label") == len(table) or not numbers:
        return None
    values = table.select(numbers).to_numpy()
    labels = np.unique(table["label"].to_numpy(), return_inverse=True)[1]
    found = attack_rows(values, labels, table["crowd"].to_numpy())
    words = "whose all other rows of the table are"
    return None if found is None else OwnAttack(words, found[0], None, found[1], found[2])


def kept_rules(members: pl.DataFrame, rows: pl.DataFrame) -> tuple[str, ...]:
    """Names of the rules of aggregation that every row keeps, as its members' figures show."""
    table = rows.filter(~pl.col("retired"))
    if not len(table):
        return ()
    smallest = int(table["homes"].min())  # type: ignore[arg-type]
    largest: float | None = None
    both = with_rows(members, rows)
    counted = both.group_by("crowd").len().join(table.select("crowd", "homes"), on="crowd", how="right")
    if counted["len"].fill_null(0).to_list() == counted["homes"].to_list():  # everybody's figure is known
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
    if context.previous is None or context.config.label is not None:
        return None
    before = Folder(context.folder.path / context.previous)
    file = before / COURSE
    prices = Course.from_json(json.loads(file.read_text())).prices if file.is_file() else ()
    price = _price_of(before, context.listing(FIT).inputs[:METERED])
    prices = prices if price is None else (*prices, price)
    return Course(prices) if prices else None


def _price_of(release: Folder, shards: Sequence[Part]) -> tuple[str, float] | None:
    """The period of a release and the error of its rows over that of homes' own figures, by what readings show now."""
    if not all((release / name).is_file() for name in (CROWDS, ROWS, STATE)):
        return None
    both = with_rows(pl.read_parquet(release / CROWDS), pl.read_parquet(release / ROWS))
    done = release.state().stages.get("crowds")
    period = None if done is None else CrowdFacts.from_json(done.facts).fit.origin
    if not len(both) or period is None:
        return None
    place = {name: i for i, name in enumerate(both["label"].to_list())}
    own, row = both["value"].to_numpy(), np.array(both["row"].to_list())
    came = np.full(own.shape, np.nan)
    for shard in shards:
        readings = read_readings(shard.path)
        try:
            at = readings.place(datetime.fromisoformat(period))
        except InputError:
            continue  # these readings begin after the hours of the release before
        part = readings.cut(at, own.shape[1])
        for i, name in enumerate(part.households):
            if name in place:
                came[place[name]] = part.kw[i]
    known = np.isfinite(came)
    unprotected = float(np.abs(own - came)[known].mean()) if known.any() else 0.0
    return (period, float(np.abs(row - came)[known].mean()) / unprotected) if unprotected > 0 else None
