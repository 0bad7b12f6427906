"""Tables and sentences of the pages, each a function of one stored result (``results/``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from evidence.homes import EVERY
from evidence.paper.lines import shown

NAMES = {name: homes.name for name, homes in EVERY.items()}
SEASONS = ("winter", "spring", "summer", "autumn")


def table(heads: str, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column to the left, the others to the right."""
    cells = heads.split(" | ")
    lines = [f"| {heads} |", "| --- |" + " ---: |" * (len(cells) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def with_interval(figures: Sequence[float], percent: bool = False) -> str:
    """A mean with its interval: 1.093 (1.071 to 1.118)."""
    mean, low, high = (f"{100 * x:.1f} %" if percent else f"{x:.3f}" for x in figures)
    return f"{mean} ({low} to {high})"


# ---------------------------------------------------------------- the paper on real homes


def paper_blocks(found: dict[str, Any]) -> dict[str, str]:
    """Stated figures beside what is found on each data set, and what its accounting claims beside what is true."""
    tables, claims, sentences = [], [], []
    for name in (name for name in EVERY if name in found):
        one = found[name]
        readings = list(dict.fromkeys(row["reading"] for row in one["stated"]))
        heads = " | ".join(
            [f"stated by the paper, {NAMES[name]} homes", "δ", *(r.replace("budget ", "") for r in readings)]
        )
        rows: dict[str, list[str]] = {}
        for row in one["stated"]:
            key = f"{row['method']}, {row['budget']:.4g}, {row['epsilon']:g}"
            rows.setdefault(key, [f"{row['stated']:g}"]).append(f"{shown(row['worst'])} ({shown(row['median'])})")
        tables.append(
            f"{one['homes']} {NAMES[name]} homes, forecast from {one['origin'][:16].replace('T', ' ')}, clusters of "
            f"{', '.join(map(str, one['clusters']))}, {one['pairs']} pairs; worst pair (median pair):\n\n"
            + table(heads, ([key, *cells] for key, cells in rows.items()))
        )
        true = {
            (row["budget"], row["query"]): f"{shown(row['worst'])} ({shown(row['median'])})" for row in one["claims"]
        }
        for budget in sorted({budget for budget, _ in true}):
            queries = ("as_in_paper", "as_released", "no_season", "no_season_released")
            claims.append([f"{NAMES[name]}, {budget:.4g}", *(true[budget, query] for query in queries)])
        errors = ", ".join(f"{100 * home['nmse_of_forecast_against_truth']:.0f} %" for home in one["errors"])
        sentences.append(f"{NAMES[name]} {errors}")
    heads = "homes, budget per entry | claimed, season in | true, season in | claimed, season out | true, season out"
    return {
        "paper-real": "\n\n".join(tables),
        "paper-claims": table(heads, claims),
        "paper-errors": "- Forecasts of three homes each against what came, error over the signal's energy: "
        + "; ".join(sentences)
        + ".",
    }


# ---------------------------------------------------------------- price and risk


def price_rows(found: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Rows of the price study by data set, season and hour."""
    return {(row["data"], row["season"], row["hour"]): row for row in found["rows"]}


def price_blocks(found: dict[str, Any]) -> dict[str, str]:
    """Price and risk by data set, by season, by hour, and each season at each hour."""
    rows = price_rows(found)

    def cells(row: dict[str, Any]) -> list[str]:
        return [
            str(row["homes"]), str(row["origins"]), f"{row['error_kw']:.3f}", with_interval(row["price"]),
            with_interval(row["later"]), with_interval(row["other_hours"]), with_interval(row["named_forecast"], True),
            with_interval(row["named_crowd"], True),
        ]  # fmt: skip

    def where(data: str, season: str, hour: str) -> str:
        parts = [part for part in (season, hour) if part != "all"]
        return ", ".join([NAMES[data], *parts])

    heads = (
        "homes, when | homes | origins | error of the forecasts, kW | price at once | three weeks later | "
        "then, at other hours | named in forecasts | named in crowds"
    )
    coarse = [row for row in found["rows"] if "all" in (row["season"], row["hour"])]
    fine = [row for row in found["rows"] if "all" not in (row["season"], row["hour"])]
    short = "season, hour | origins | error of the forecasts, kW | price at once | three weeks later"
    six = list(found["six"].values())
    lines = []
    for data in dict.fromkeys(row["data"] for row in found["rows"]):
        whole = rows[data, "all", "all"]
        lines.append(
            f"**{NAMES[data]}** ({whole['homes']} homes, {whole['origins']} origins): "
            f"{with_interval(whole['price'])} at once, {with_interval(whole['later'])} three weeks later at the same "
            f"hour and {with_interval(whole['other_hours'])} at other hours of that day. Who knows a week of a home's "
            f"readings names it among unprotected forecasts in {with_interval(whole['named_forecast'], True)} of "
            "cases, from the table of crowds in "
            f"{with_interval(whole['named_crowd'], True)}."
        )
    lines.append(
        f"At the six origins of the [benchmarks](../benchmarks/README.md#the-price-of-privacy), Swiss homes: "
        f"{np.mean(six):.3f} ({min(six):.3f} to {max(six):.3f} over origins)."
    )
    return {
        "price-says": "\n".join(f"- {line}" for line in lines),
        "price": table(heads, ([where(r["data"], r["season"], r["hour"]), *cells(r)] for r in coarse)),
        "price-hours": table(
            short, ([where(r["data"], r["season"], r["hour"]), str(r["origins"]), *cells(r)[2:5]] for r in fine)
        ),
    }


def blend_blocks(found: dict[str, Any]) -> dict[str, str]:
    """What was tried when crowds are formed: at once, three weeks later and at other hours, by half of the homes."""
    figures = {
        (row["data"], row["half"], row["blend"]): ", ".join(
            f"{row[name]:.3f}" for name in ("price", "later", "other_hours")
        )
        for row in found["rows"]
    }
    columns = [(data, half) for half in ("even", "odd", "all") for data in ("swiss", "london")]
    heads = " | ".join(["blend", *(f"{NAMES[data]}, {half}" for data, half in columns)])
    blends = list(dict.fromkeys(row["blend"] for row in found["rows"]))
    before, lately, adopted = (
        next(blend for blend in blends if blend.startswith(f"{word}:")) for word in ("before", "lately", "adopted")
    )
    rows = {(row["data"], row["half"], row["blend"]): row for row in found["rows"]}

    def change(half: str, measure: str, since: str) -> str:
        """Figures of both data sets then and now, and the change of what hiding adds."""
        parts = []
        for data in ("swiss", "london"):
            was, now = (rows[data, half, blend][measure] for blend in (since, adopted))
            sign = "+" if now > was else "−"
            parts.append(f"{NAMES[data]} {was:.3f} to {now:.3f} ({sign}{100 * abs(now - was) / (was - 1):.1f} %)")
        return ", ".join(parts)

    def changes(half: str, since: str) -> str:
        words = {"price": "at once", "later": "three weeks later at the same hour", "other_hours": "at other hours"}
        return "; ".join(f"{text} {change(half, measure, since)}" for measure, text in words.items())

    ten = rows["london", "all", "adopted, formed with 10"]
    first = "expected error of the first release"
    cheapest = {data: rows[data, "all", first] for data in ("swiss", "london")}
    falls = (rows["london", "all", before]["price"] - cheapest["london"]["price"]) / (
        rows["london", "all", before]["price"] - 1
    )
    says = [
        f"**Since before**, all homes (in brackets the change of what hiding adds): {changes('all', before)}.",
        f"**Since lately**: {changes('all', lately)}.",
        f"**On odd homes**, which took no part, since before: {changes('odd', before)}.",
        f"**Smaller crowds**: formed with 10 instead of 12, London would cost {ten['price']:.3f} at once and "
        f"{ten['later']:.3f} three weeks later. The two in reserve are what lets a crowd outlive members who leave.",
        f"**As cheap as the first release gets**: crowds improved by its expected error alone take {100 * falls:.1f} % "
        "of what hiding added before off London's first release, and make every other hour dearer than it has been: "
        + ", ".join(
            f"{NAMES[data]} {row['price']:.3f} at once, {row['later']:.3f} later at the same hour, "
            f"{row['other_hours']:.3f} at others"
            for data, row in cheapest.items()
        )
        + ".",
    ]
    return {
        "tried": table(heads, ([b, *(figures.get((*column, b), "") for column in columns)] for b in blends)),
        "tried-says": "\n".join(f"- {line}" for line in says),
    }


# ---------------------------------------------------------------- a real year


def year_blocks(found: dict[str, Any]) -> dict[str, str]:
    """The year by quarter, and what it comes to."""
    rows = found["rows"]

    def some(months: Sequence[int]) -> list[dict[str, Any]]:
        return [row for row in rows if int(row["day"][5:7]) in months]

    def mean(part: Sequence[dict[str, Any]], name: str, absolute: bool = False) -> float:
        values = [row[name] for row in part if name in row]
        return float(np.mean(np.abs(values) if absolute else values))

    def spread(part: Sequence[dict[str, Any]], name: str) -> str:
        """Mean and the central 95 % of days."""
        values = [row[name] for row in part if name in row]
        low, high = np.quantile(values, (0.025, 0.975))
        return f"{np.mean(values):.2f} ({low:.2f} to {high:.2f})"

    quarters = {f"{names}": [3 * q + 1, 3 * q + 2, 3 * q + 3] for q, names in enumerate(
        ("January to March", "April to June", "July to September", "October to December"))}  # fmt: skip
    heads = (
        "evenings of | releases | price, crowds for life | formed anew | W₁, crowds for life | "
        "W₁, readings, ε = 1 an evening | W₁, readings, ε = 1 a year | total off, an evening | total off, a year"
    )
    listed = []
    for name, months in [*quarters.items(), ("the year", list(range(1, 13)))]:
        part = some(months)
        listed.append([
            name, str(len(part)), spread(part, "price"), spread(part, "price_anew"), spread(part, "w1_crowds"),
            spread(part, "w1_daily"), spread(part, "w1_yearly"),
            f"{100 * mean(part, 'total_daily', absolute=True):.0f} %",
            f"{100 * mean(part, 'total_yearly', absolute=True):.0f} %",
        ])  # fmt: skip
    last = rows[-1]
    held = sum(row["held"] for row in rows) / sum(rows[0]["homes"] for _ in rows)
    off = {name: f"{100 * mean(rows, f'total_{name}', absolute=True):.0f} %" for name in ("daily", "yearly")}
    lines = [
        f"**Crowds for life age with the season and come back**: {found['crowds']} crowds formed on {rows[0]['day']} "
        f"cost {mean(rows[:30], 'price'):.2f} in the first thirty evenings, {mean(some([7, 8]), 'price'):.2f} in July "
        f"and August and {mean(some([11]), 'price'):.2f} in November; formed anew every evening, which would give "
        f"members away, {mean(rows, 'price_anew'):.2f} over the year.",
        f"**Homes leave**: {rows[0]['homes']} have a forecast on the first evening and {last['homes']} on the last; "
        f"those that are gone enter with their last figures, until a run would retire their crowd. {held:.1%} of "
        "figures were held because the others' changes would not have hidden them. "
        f"Newcomers would wait until they are {found['waiting']}; there were {max(r['newcomers'] for r in rows)}.",
        f"**ε = 1 an evening is ε = {math.ceil(10 * last['epsilon_daily']) / 10:.1f} for {len(rows)} evenings** "
        f"(δ = {found['delta']:g}): W₁ is {mean(rows, 'w1_daily'):.2f} of the mean load, and the evening's total is "
        f"{off['daily']} off.",
        f"**ε = 1 for all of them** leaves each evening {1 / len(rows):.2%} of μ²: W₁ is "
        f"{mean(rows, 'w1_yearly'):.2f} and the total {off['yearly']} off. For {found['homes']} homes that describes "
        "them no longer: a daily series under this promise is for thousands of homes.",
    ]
    return {"year-says": "\n".join(f"- {line}" for line in lines), "year": table(heads, listed)}


# ---------------------------------------------------------------- rows of averages


def row_blocks(found: dict[str, Any]) -> dict[str, str]:
    """What rows of averages tell: price, totals, who is held, and what attackers read."""

    def share(row: dict[str, Any], name: str) -> str:
        return f"{100 * row[name]:.0f} ({100 * row[f'{name} exact']:.0f})" if name in row else ""

    listed = [
        [
            f"{row['data']}, {row['season']}, {row['what']}", f"{row['price_exact']:.3f} → {row['price']:.3f}",
            f"{100 * row['total_off']:.1f} %", f"{100 * row['held']:.1f} %",
            *(share(row, f"read_{who}{many}") for who in ("", "landlord ") for many in (1, 3, 8)),
            f"{row['insider_all']:.2f}" if "insider_all" in row else "",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    heads = (
        "releases | price of means → of rows | total off | held | change of 1 read, % (exact means) | of 3 | of 8 | "
        "landlord, 1 | of 3 | of 8 | insider's error, usual figures"
    )
    pay, guess, two = found["payroll"], found["yes_no"], found["two_crowds"]
    lines = [
        f"**A payroll** of {pay['labels']:,}, 24 months, raises of 5 to 15 %: {100 * pay['read']:.1f} % of the raises "
        f"are read from two tables, {100 * pay['exact']:.0f} % from exact means. {100 * pay['held']:.1f} % of the "
        f"figures are held and {100 * pay['withheld']:.1f} % withheld; the total of salaries is "
        f"{100 * pay['total']:.1f} % off.",
        f"**A yes or no** over {guess['tables']} tables, the others' figures known and chosen: guessed right in "
        f"{guess['right']:.3f} of cases; the bound is {guess['bound']:.3f}.",
        f"**A crowd that retires**: a constant figure is off by {two['one']:.2f} n b for someone who knows all others, "
        f"and by {two['two']:.2f} n b once its owner was in a second crowd.",
    ]
    return {"rows": table(heads, listed) + "\n\n" + "\n".join(f"- {line}" for line in lines)}


# ---------------------------------------------------------------- rivals


def rival_blocks(found: dict[str, Any]) -> dict[str, str]:
    """Every method on both data sets: errors, promise, attackers."""

    def cell(row: dict[str, Any], name: str, percent: bool) -> str:
        if name not in row:
            return ""
        mean, low, high = (f"{100 * x:.0f}" if percent else f"{x:.2f}" for x in row[name])
        sign = " %" if percent else ""
        return f"{mean}{sign}" if low == high else f"{mean}{sign} ({low} to {high})"

    heads = "homes, method | promise | price | W₁ | total off | named | the missing one"
    listed = []
    for row in found["rows"]:
        figures = [cell(row, *which) for which in (
            ("price", False), ("w1", False), ("total", True), ("named", True), ("tenth", True))]  # fmt: skip
        least, most = row["homes"]
        who = f"{most}" if least == most else f"{least} to {most}"
        listed.append([f"{who} {NAMES[row['data']]}: {row['method']}", row["promise"], *figures])
    lines = []
    for data in dict.fromkeys(row["data"] for row in found["rows"]):
        means = {
            row["method"].partition(",")[0]: {name: row[name][0] for name in ("price", "w1", "named") if name in row}
            for row in found["rows"]
            if row["data"] == data and "per twelve" not in row["method"]
        }
        crowds, books, mdav, five = (means[name] for name in ("crowds", "codebooks", "MDAV", "rule of five"))
        less = 1 - (books["price"] - 1) / (crowds["price"] - 1)
        private = {name: means[name]["w1"] for name in ("noisy crowds (secret readings)", "Private-PGM (mbi)", "OpenDP")
                   if name in means}  # fmt: skip
        lines.append(
            f"**{NAMES[data]}**: crowds cost {crowds['price']:.2f}, MDAV {mdav['price']:.2f}, five homes by name "
            f"{five['price']:.2f}. Codebooks at ε = 3 take {100 * less:.0f} % off what crowds add, and who knows a "
            f"week names {100 * books['named']:.0f} % instead of {100 * crowds['named']:.0f} %. Of what is private "
            "about figures, W₁ is " + ", ".join(f"{value:.2f} ({name})" for name, value in private.items()) + "."
        )
    return {"rivals": table(heads, listed), "rivals-says": "\n".join(f"- {line}" for line in lines)}
