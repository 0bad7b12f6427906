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
    lines = [f"| {heads} |", "|---|" + "---:|" * (len(cells) - 1)]
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
        "paper-real": tables[0],
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
        "homes, when | homes | origins | forecast error, kW | first release | three weeks later | "
        "then, other hours | named in forecasts | named in crowds"
    )
    coarse = [row for row in found["rows"] if "all" in (row["season"], row["hour"])]
    six = list(found["six"].values())
    lines = []
    for data in dict.fromkeys(row["data"] for row in found["rows"]):
        whole = rows[data, "all", "all"]
        lines.append(
            f"**{NAMES[data]}** ({whole['homes']} homes, {whole['origins']} origins): {with_interval(whole['price'])} "
            f"for the first release, {with_interval(whole['later'])} three weeks later at the same hour, "
            f"{with_interval(whole['other_hours'])} at other hours of that day. An attacker who knows a week of "
            f"a home's "
            f"readings names it among unprotected forecasts in {with_interval(whole['named_forecast'], True)} of "
            f"cases, and in the table of crowds in {with_interval(whole['named_crowd'], True)}."
        )
    night = rows["london", "winter", "00:00"]
    lines.append(
        f"**The worst hour**, winter midnight in London ({night['origins']} origins): "
        f"{with_interval(night['price'])} for "
        f"the first release, {with_interval(night['later'])} three weeks later."
    )
    lines.append(
        f"At the six origins of the [benchmarks](../benchmarks/README.md#the-price-of-privacy), Swiss homes: "
        f"{np.mean(six):.3f} ({min(six):.3f} to {max(six):.3f} over origins)."
    )
    return {
        "price-says": "\n".join(f"- {line}" for line in lines),
        "price": table(heads, ([where(r["data"], r["season"], r["hour"]), *cells(r)] for r in coarse)),
    }


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
        "evenings of | releases | price, permanent crowds | formed again | W₁, permanent crowds | "
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
        f"**Permanent crowds age with the season.** {found['crowds']} crowds formed on {rows[0]['day']} "
        f"cost {mean(rows[:30], 'price'):.2f} in the first thirty evenings, {mean(some([7, 8]), 'price'):.2f} in July "
        f"and August and {mean(some([11]), 'price'):.2f} in November. Crowds formed again every evening would cost "
        f"{mean(rows, 'price_anew'):.2f}, and would reveal members.",
        f"**Homes leave.** {rows[0]['homes']} have a forecast on the first evening and {last['homes']} on the last. "
        f"Those that leave enter with their last figures until their crowd is retired. {held:.1%} of "
        "figures were held, because the others' changes would not have hidden them. "
        f"Newcomers wait until they are {found['waiting']}; there were {max(r['newcomers'] for r in rows)}.",
        f"**ε = 1 an evening is ε = {math.ceil(10 * last['epsilon_daily']) / 10:.1f} for {len(rows)} evenings** "
        f"(δ = {found['delta']:g}): W₁ is {mean(rows, 'w1_daily'):.2f} of the mean load, and the evening's total is "
        f"{off['daily']} off.",
        f"**ε = 1 for all evenings together** leaves each {1 / len(rows):.2%} of μ²: W₁ is "
        f"{mean(rows, 'w1_yearly'):.2f} and the total {off['yearly']} off. For {found['homes']} homes this is useless: "
        "a daily series under this promise needs thousands of homes.",
    ]
    return {"year-says": "\n".join(f"- {line}" for line in lines), "year": table(heads, listed)}


# ---------------------------------------------------------------- rows of averages


def row_blocks(found: dict[str, Any]) -> dict[str, str]:
    """What rows of averages tell: price, totals, who is held, and what attackers read."""

    def read(row: dict[str, Any], who: str = "") -> str:
        """Shares of changes read by 1, 3 and 8 usual figures from rows, and in brackets from exact means."""
        names = [f"read_{who}{many}" for many in (1, 3, 8)]
        if names[0] not in row:
            return ""
        rows, exact = ("/".join(f"{100 * row[name + which]:.0f}" for name in names) for which in ("", " exact"))
        return f"{rows} ({exact})"

    listed = [
        [
            f"{row['data'].capitalize()}, {row['season']}, {row['what']}",
            f"{row['price_exact']:.3f}", f"{row['price']:.3f}",
            f"{100 * row['total_off']:.1f} %", f"{100 * row['held']:.1f} %", read(row), read(row, "landlord "),
            f"{row['insider_all']:.2f}" if "insider_all" in row else "",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    heads = (
        "releases | price of exact means | of rows | total off | held | changes of 1/3/8 read, % (exact means) | "
        "by a landlord | insider's error, usual figures"
    )
    pay, guess, two = found["payroll"], found["yes_no"], found["two_crowds"]
    lines = [
        f"**A payroll** of {pay['labels']:,}, 24 months, raises of 5 to 15 %: two tables show "
        f"{100 * pay['read']:.1f} % of "
        f"the raises; exact means would show {100 * pay['exact']:.0f} %. {100 * pay['held']:.1f} % of the "
        f"figures are held, {100 * pay['withheld']:.1f} % withheld. The total of salaries is "
        f"{100 * pay['total']:.1f} % off.",
        f"**A yes or no** over {guess['tables']} tables, with the others' figures known and chosen: the "
        f"attacker is right "
        f"in {guess['right']:.3f} of cases, given the crowds. The bound is {guess['bound']:.3f}.",
        f"**A crowd that retires.** Someone who knows all others misses a constant figure by {two['one']:.2f} n b, "
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

    heads = "method | promise | price | W₁ | total off | named | the missing one"
    listed = []
    for row in (row for row in found["rows"] if row["data"] == "swiss"):
        figures = [cell(row, *which) for which in (
            ("price", False), ("w1", False), ("total", True), ("named", True), ("tenth", True))]  # fmt: skip
        listed.append([row["method"], row["promise"], *figures])
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
            f"{five['price']:.2f}. Codebooks at ε = 3 take {100 * less:.0f} % off what crowds add; an attacker "
            f"who knows a "
            f"week then names {100 * books['named']:.0f} % instead of {100 * crowds['named']:.0f} %. W₁ of "
            f"releases that "
            "are private about figures: " + ", ".join(f"{value:.2f} ({name})" for name, value in private.items()) + "."
        )
    return {"rivals": table(heads, listed), "rivals-says": "\n".join(f"- {line}" for line in lines)}


# ---------------------------------------------------------------- three questions


def question_blocks(found: dict[str, Any]) -> dict[str, str]:
    """What averages show, by the three questions, of homes and of class tables."""

    def cell(every: list[dict[str, Any]], word: str, release: str = "averages", right: bool = False) -> str:
        mine = [one for one in every if one["release"] == release and one["what"].startswith(word)]
        mine = [one for one in mine if (one["measure"] == "share right") == right]
        if not mine:
            return ""
        one = max(mine, key=lambda one: float(one["figure"]))
        ends = [100 * end if right else end for end in (one["figure"], *one["interval"])]
        texts = [f"{end:.1f}" if right else f"{end:.2f}" for end in ends]
        return f"{texts[0]}{'%' if right else ''} ({texts[1]}–{texts[2]})"

    rows = []
    for name, word, right in (
        ("linked", "the row of a home", True), ("level of use", "level", False), ("absence", "absence", False),
        ("heat pump", "heating", False),
        ("its own figure", "whether a member", False),
    ):  # fmt: skip
        rows.append(
            [name, *(cell(found[data]["findings"], word, right=right) for data in ("swiss", "london", "simulated"))]
        )
    tables = []
    names = ("breast cancer", "diabetes")
    for name, word in (
        ("linked", "the row of a label"),
        ("the column shown most", "a column of a member, by its row's f"),
    ):
        tables.append([name, *(cell(found[data]["findings"], word, right=name == "linked") for data in names)])
    rules = [found[data]["diversity"] for data in names]
    for which in ("with", "without"):
        said = [cell(rule[which]["findings"], rule["column"], right=True) for rule in rules]
        tables.append([f"column of interest, {which} diversity", *said])
        tables.append([f"variance lost, {which}", *(f"{rule[which]['lost']:.2f}" for rule in rules)])
    guesses = [f"{rule['column']}, a guess {100 * rule['with']['findings'][1]['guess']:.0f}%" for rule in rules]
    second = " | ".join(["averages", *(f"{data} ({guess})" for data, guess in zip(names, guesses, strict=True))])
    return {"three": f"{table('averages | Swiss | London | simulated', rows)}\n\n{table(second, tables)}"}
