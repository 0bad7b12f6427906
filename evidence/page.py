"""The pages of evidence: figures and sentences, made from what is stored in ``results/``.

``python -m evidence page`` writes docs/evidence.md and the tables of docs/reproduction.md. What is stored are figures
over all homes, no home's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import shoal
from evidence import opening, reidentification, storage
from evidence.attack_pictures import reidentification_picture
from evidence.blocks import (
    paper_blocks,
    price_blocks,
    question_blocks,
    rival_blocks,
    row_blocks,
    table,
    year_blocks,
)
from evidence.boosted import LEARNED
from evidence.questions_picture import questions_picture
from evidence.reidentification import INFORMED, AttackStudy, StudyFinding
from evidence.rule import CORRELATED, INDEPENDENT, METERED, UNKNOWN, RuleStudy, price_rule
from evidence.rule_picture import rule_picture
from evidence.sizes_picture import sizes_picture
from shoal.records import from_plain

PAGE = Path(__file__).parents[1] / "docs" / "evidence.md"
REPRODUCTION = PAGE.with_name("reproduction.md")
PAPER = PAGE.parents[1] / "paper" / "paper.md"


def small() -> dict[str, Any]:
    """Both studies on a few simulated homes, in seconds: what a test makes again."""
    attacks = reidentification.study(
        shoal.simulate_meters(24, 44, step_minutes=60),
        crowd=6, order=(1, 1), train_days=14, horizon=4, origins=3, learned=False,
    )  # fmt: skip
    rule = price_rule(shoal.simulate_meters(40, 21, step_minutes=60), members=[15], days=[1, 30], draws=8, resamples=3)
    return {"reidentify": attacks.to_dict(), "rule": rule.to_dict()}


def stored_as(kind: Any, stored: dict[str, Any]) -> Any:
    """A study from what was stored of it, with the day and the version that made it."""
    return from_plain(kind, {name: value for name, value in stored.items() if name not in ("made", "version")})


def draw(study: str) -> None:
    """Draw the pictures of a stored study where the pages show them."""
    folder = PAGE.parent / "pictures"
    if study == "reidentify":
        attacks = stored_as(AttackStudy, storage.stored(study))
        reidentification_picture(attacks, folder / "reidentify.png")
        sizes_picture(attacks, folder / "reidentify-sizes.png")
    elif study == "three":
        questions_picture(storage.stored(study), folder / "three-questions.png")
    elif study == "rule":
        rule_picture(stored_as(RuleStudy, storage.stored(study)), folder / "rule.png")
    elif study == "opening":
        opening.draw(storage.stored(study))


def share(value: float, ends: tuple[float, float]) -> str:
    return f"{100 * value:.0f} % ({100 * ends[0]:.0f} to {100 * ends[1]:.0f})"


def blocks() -> dict[str, str]:
    """What the page says in figures: source, tables and sentences by the name of their place."""
    stored = storage.stored("reidentify")
    study: AttackStudy = stored_as(AttackStudy, stored)
    priced: RuleStudy = stored_as(RuleStudy, storage.stored("rule"))

    def best(what: str, *, learned: bool | None = None, weeks: int = 0) -> StudyFinding:
        every = [one for one in (study.by_weeks if weeks else study.findings) if one.what.startswith(what)]
        every = [one for one in every if one.attacker != INFORMED and (not weeks or one.weeks == weeks)]
        every = [one for one in every if learned is None or (one.attacker == LEARNED) == learned]
        return max(every, key=lambda one: one.everywhere.top_1)

    def informed(what: str) -> StudyFinding | None:
        return next((one for one in study.findings if one.what == what and one.attacker == INFORMED), None)

    def named(one: StudyFinding) -> str:
        return share(one.everywhere.top_1, one.everywhere.top_1_interval)

    def told(size: int, limit: float | None, days: int, view: str) -> str:
        (row,) = (r for r in priced.rows if (r.members, r.share, r.days, r.view) == (size, limit, days, view))
        return share(row.tpr, row.tpr_interval)

    weeks = max(one.weeks for one in study.by_weeks)
    source = (
        f"{study.homes} Swiss homes: 15-minute readings, {study.days[0]} to {study.days[1]} (Weigert et al. 2020, "
        f"CC BY-SA 4.0). Made on {stored['made']} with shoal {stored['version']}."
    )
    rows = []
    for what in dict.fromkeys(one.what for one in study.findings):
        attacker, insider = best(what).cells, informed(what)
        inside = [insider.cells[4], insider.cells[5]] if insider else ["", "none"]
        rows.append([what, attacker[2], *inside, attacker[6]])
    heads = "what leaves | named among all rows | named inside the crowd | bound | error, kW"
    sizes = [one for one in study.by_size if one.what == "crowds" and one.attacker == INFORMED]
    bounds = ", ".join(f"{one.cells[5].removeprefix('≤ ')} ({one.crowd})" for one in sizes)
    said = [
        f"**Raw readings identify a household.** An attacker who knows one week finds "
        f"{named(best('raw', learned=False))} "
        f"of {study.homes} homes in the next week by a plain comparison, {named(best('raw', learned=True))} by a "
        f"learned one. A guess finds {100 / study.homes:.1f} %.",
        f"**A forecast identifies it too.** With one week known, {named(best('unprotected'))} are found among "
        f"forecasts "
        f"of 12 quarter-hours; with {weeks} weeks, {named(best('unprotected', weeks=weeks))}.",
        f"**In a crowd all rows are the same.** Among all rows {named(best('crowds'))} of homes are found, because a "
        "week suggests which crowd a home is in. That is not hidden. Inside the crowd an attacker can only guess. "
        f"By promised size, at most: {bounds}.",
        "**White noise and the paper's method** hide as well, with errors that make the forecasts useless "
        "(last column).",
        "No attacker exceeded a bound. `shoal attack` ends with exit code 4 where one does."
        if not study.exceeded
        else "**An attacker exceeded the bound.** That is a defect: do not rely on the release concerned.",
    ]
    limit = next(row.share for row in priced.rows if row.share is not None)
    cost = {one.members: one for one in priced.costs if (one.share, one.days) == (limit, 1)}

    def spent(value: float, ends: tuple[float, float]) -> str:
        return f"{value:.2g} % ({ends[0]:.2g} to {ends[1]:.2g} for 90 % of groups)"

    ruled = [
        f"**The 15/15 rule protects a day, not a month.** With 15 homes, none above {limit:.0%}, the best test "
        f"identifies the last member at 1 % false alarms in {told(15, limit, 1, CORRELATED)} of cases from one day, "
        f"{told(15, limit, 30, CORRELATED)} from a month and {told(15, limit, 365, CORRELATED)} from a year (median "
        f"group). With 100 homes, a year identifies {told(100, limit, 365, CORRELATED)}.",
        f"**Public weather matters.** An attacker who did not know it would identify {told(15, limit, 30, UNKNOWN)} "
        "from a month.",
        f"**The Gaussian model matters little.** With independent days, a month gives "
        f"{told(15, limit, 30, INDEPENDENT)} "
        f"where days are Gaussian and {told(15, limit, 30, METERED)} where they are as metered.",
        f"**Complete protection costs** {spent(cost[15].mean, cost[15].mean_range)} of the daily total for 15 "
        f"homes and "
        f"{spent(cost[100].mean, cost[100].mean_range)} for 100: the crowd's mean stands in for the last member, so "
        f"the total is the same for every candidate, on any number of days. Noise at ({priced.epsilon:g}, "
        f"{priced.target:g}) costs "
        f"{spent(cost[15].noise, cost[15].noise_range)} and "
        f"{spent(cost[100].noise, cost[100].noise_range)} for one day.",
    ]
    listed = {"reidentify-says": said, "rule-says": ruled}
    return {
        "source": source,
        "reidentify": table(heads, rows),
        **{name: "\n".join(f"- {line}" for line in lines) for name, lines in listed.items()},
    }


def rule_year_blocks(found: dict[str, Any]) -> dict[str, str]:
    """The rule on a real year: how often the best test identifies the last member of fifteen."""
    study: RuleStudy = stored_as(RuleStudy, found)
    rows = [
        [
            str(row.days),
            share(row.tpr, row.tpr_interval),
            f"{100 * row.tpr_range[0]:.0f} to {100 * row.tpr_range[1]:.0f} %",
        ]
        for row in study.rows
        if row.view == CORRELATED and row.share is not None
    ]
    return {
        "rule-year": f"{study.homes} London homes with a complete year, {study.days[0]} to {study.days[1]}, "
        f"{study.rows[0].draws} groups of 15, none above 15 %:\n\n"
        + table("days | identified at 1 % false alarms | 90 % of groups", rows)
    }


def filled(text: str, places: dict[str, str]) -> str:
    """A page with blocks put in their places, ``<!-- name -->`` to ``<!-- end -->``."""
    for name, block in places.items():
        before, place, rest = text.partition(f"<!-- {name} -->\n")
        if not place:
            raise SystemExit(f"the page has no place for {name}")
        text = f"{before}{place}\n{block}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return text


#: Studies with a file of their own -> what docs/evidence.md says of them.
STORED: dict[str, Callable[[dict[str, Any]], dict[str, str]]] = {
    "prices": price_blocks,
    "year": year_blocks,
    "rivals": rival_blocks,
    "rows": row_blocks,
    "rule_year": rule_year_blocks,
    "three": question_blocks,
}


def every_block() -> dict[str, str]:
    """What docs/evidence.md says in figures, by the name of its place."""
    places = blocks()
    for name, make in STORED.items():
        places |= make(storage.stored(name))
    return places


def page() -> str:
    """docs/evidence.md with its figures."""
    return filled(PAGE.read_text(encoding="utf-8"), every_block())


def paper() -> str:
    """paper/paper.md with those of the page's blocks that it has a place for."""
    text = PAPER.read_text(encoding="utf-8")
    return filled(text, {name: block for name, block in every_block().items() if f"<!-- {name} -->" in text})


def reproduction_page() -> str:
    """docs/reproduction.md with its figures of real homes."""
    return filled(REPRODUCTION.read_text(encoding="utf-8"), paper_blocks(storage.stored("paper")))


def write() -> list[Path]:
    """Write both pages, and the figures of the paper."""
    texts = {PAGE: page(), REPRODUCTION: reproduction_page(), PAPER: paper()}
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)
