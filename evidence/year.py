"""A real year: releases about London homes every evening of 2013, with crowds for life and for the readings.

The first fifteen days are for training, so 350 evenings are left (16 January to 31 December, 18:00, twelve half hours).
Crowds are formed on the first evening and kept by the rules of ``shoal.crowds``: the mean is over the whole set,
rounded and shifted, a member without figures or with a change that the others do not hide enters with its last ones,
newcomers wait. Nothing else of a run is used: forecasts of all homes at each origin, then the library's crowds.

Under the readings' promise the homes are declared as 125 customers and noise is seeded (for measurement; a run draws
from a cryptographic source). Two series: ε = 1 for every evening, which adds up, and ε = 1 for the whole year.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

import shoal
from evidence.homes import LONDON
from evidence.occasions import PROMISED, Occasion, occasion
from shoal.crowds.loads import NANOWATTS, new_load_crowd, next_load_row
from shoal.crowds.membership import waiting_size
from shoal.crowds.rules import add_units, to_units
from shoal.readings.crowds import public_tables, sum_of_home_vectors
from shoal.readings.population_error import w1_bounds
from shoal.validation import FloatArray

FIRST, LAST = date(2013, 1, 16), date(2013, 12, 31)
HOUR = "18:00"
CUSTOMERS, TYPICAL_KW = 125, 0.5
#: Every so many days crowds are formed anew beside those for life, to see what keeping them costs.
ANEW_EVERY = 7
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "year.png"


class LastingCrowds:
    """Crowds formed on the first evening, and their rows from then on, by the rules of a row with seeded offsets."""

    def __init__(self, first: Occasion, draw: np.random.Generator) -> None:
        assert first.habits is not None
        self.households = np.array(first.households)
        self.member = first.crowds()
        day = to_units(first.habits.day, NANOWATTS)
        of_all = Fraction(int(add_units(np.abs(day).ravel())), day.size)
        self.crowds = [
            new_load_crowd(day[self.member == c], of_all, lambda n: int(draw.integers(n)))
            for c in range(int(self.member.max()) + 1)
        ]
        self.rows: dict[int, FloatArray] = {}

    def released(self, today: Occasion, number: int) -> tuple[FloatArray, int]:
        """(homes of the crowds, k) the row of each home's crowd on evening ``number``, and how many homes are held.

        A withheld row is the last one before it.
        """
        assert today.habits is not None
        place = {name: i for i, name in enumerate(today.households)}
        at = np.array([place.get(name, -1) for name in self.households])
        figures = to_units(np.where((at >= 0)[:, None], today.power[at], 0.0), NANOWATTS)
        instants = tuple(range(number * 10**6, number * 10**6 + figures.shape[1]))  # evenings do not overlap
        held = 0
        for c, crowd in enumerate(self.crowds):
            inside = np.flatnonzero(self.member == c)
            step = next_load_row(crowd, figures[inside], at[inside] >= 0, instants, today.habits.ahead)
            self.crowds[c], held = step.crowd, held + int(step.held.sum())
            if np.isfinite(step.row).all():
                self.rows[c] = step.row
        return np.array([self.rows[c] for c in self.member]), held


def price_of(today: Occasion, households: Any, rows: FloatArray) -> float:
    """Error of the rows over that of the forecasts, of the homes that have both today."""
    place = {name: i for i, name in enumerate(households.tolist())}
    both = [name for name in today.households if name in place]
    here = today.of(both)
    return float(here.errors(rows[[place[name] for name in both]]).sum() / here.errors(here.power).sum())


def epsilon_of(mu: float, delta: float) -> float:
    """ε at which a Gaussian pair μ apart has this δ, rounded up to four digits."""

    def excess(epsilon: float) -> float:
        tail = math.exp(epsilon + float(norm.logcdf(-mu / 2 - epsilon / mu)))
        return float(norm.cdf(mu / 2 - epsilon / mu)) - tail - delta

    root = float(brentq(excess, 0.0, mu * mu + 20 * mu + 1)) if excess(0.0) > 0 else 0.0
    return math.ceil(root * 1e4) / 1e4


def tables_of(homes: FloatArray, plan: Any, draw: np.random.Generator) -> Any:
    """The public tables with seeded noise of the plan's deviation: for measurement only."""
    vector = sum_of_home_vectors(np.ascontiguousarray(homes), plan)
    return public_tables(vector + plan.account.sigma * draw.standard_normal(len(vector)), plan, homes.shape[1])


def study(
    keep: Path | None = None, progress: Callable[[str, float], None] | None = None, days: int | None = None
) -> dict[str, Any]:
    """The year day by day, for JSON: prices, held homes, W₁, errors of totals and accounts; no home by itself."""
    readings = LONDON.read()
    count = (LAST - FIRST).days + 1 if days is None else days
    draw = np.random.default_rng(0)
    delta = 1 / (10 * CUSTOMERS)
    daily = shoal.noisy_crowds_plan(CUSTOMERS, 1.0, typical_kw=TYPICAL_KW)
    yearly = shoal.noisy_crowds_plan(CUSTOMERS, 1.0, typical_kw=TYPICAL_KW, cap_mu=daily.mu / math.sqrt(count))
    plans = {"daily": daily, "yearly": yearly}
    lasting: LastingCrowds | None = None
    rows = []
    for number in range(count):
        day = FIRST + timedelta(days=number)
        if progress is not None:
            progress(f"{day}", number / count)
        origin = f"{day.isoformat()}T{HOUR}"
        today = occasion(readings, origin, keep, f"london-{origin}")
        if lasting is None:
            lasting = LastingCrowds(today, np.random.default_rng(1))
        released, held = lasting.released(today, number)
        sizes = np.bincount(lasting.member)
        table = np.array([lasting.rows[crowd] for crowd in range(len(sizes))])
        row: dict[str, Any] = {
            "day": day.isoformat(),
            "homes": len(today.households),
            "newcomers": len(set(today.households) - set(lasting.households.tolist())),
            "held": held,
            "price": price_of(today, lasting.households, released),
            "w1_crowds": w1_bounds(today.power, table, sizes.astype(np.float64))[0],
        }
        if number % ANEW_EVERY == 0:
            row["price_anew"] = today.price(today.crowds())
        for name, plan in plans.items():
            tables = tables_of(today.power, plan, draw)
            row[f"w1_{name}"] = w1_bounds(today.power, tables.curves, tables.counts)[0]
            row[f"total_{name}"] = float(tables.total.sum() / today.power.sum() - 1)
            row[f"epsilon_{name}"] = epsilon_of(plan.mu * math.sqrt(number + 1), delta)
        rows.append(row)
    return {
        "homes": CUSTOMERS, "delta": delta, "promised": PROMISED, "waiting": waiting_size(PROMISED), "rows": rows,
        "mu_daily": daily.mu, "mu_yearly": yearly.mu, "crowds": len(sizes),
    }  # fmt: skip


def draw_year(stored: dict[str, Any], path: Path = PICTURE) -> Path:
    """Three panels by day: price, W₁, and the account of a home."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import dates

    rows = stored["rows"]
    days = [date.fromisoformat(row["day"]) for row in rows]

    def smooth(name: str) -> FloatArray:
        values = np.array([row[name] for row in rows])
        width = min(7, len(values))
        return np.convolve(np.pad(values, (width // 2, width - 1 - width // 2), mode="edge"), np.ones(width) / width,
                           mode="valid")  # fmt: skip

    figure, (top, middle, bottom) = plt.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
    top.plot(days, [row["price"] for row in rows], ".", ms=3, color="#a9c4dd")
    top.plot(days, smooth("price"), color="#1f4e79", label="crowds for life, mean of seven days")
    anew = [(day, row["price_anew"]) for day, row in zip(days, rows, strict=True) if "price_anew" in row]
    top.plot(
        *zip(*anew, strict=True), color="#d1772e", lw=1.2, label="formed anew that day, which would give members away"
    )
    top.set(ylabel="price: error over\nthat of no protection", ylim=(1, None))
    for name, color, words in (
        ("w1_crowds", "#1f4e79", "crowds for life (the label)"),
        ("w1_daily", "#2a7f62", "readings, ε = 1 an evening"),
        ("w1_yearly", "#b3261e", "readings, ε = 1 for the year"),
    ):
        middle.plot(days, smooth(name), color=color, label=words)
    middle.set(ylabel="W₁ over mean load,\nmean of seven days", ylim=(0, None))
    bottom.plot(days, [row["epsilon_daily"] for row in rows], color="#2a7f62", label="ε = 1 an evening, added up")
    bottom.plot(days, [row["epsilon_yearly"] for row in rows], color="#b3261e", label="ε = 1 for the year, used so far")
    bottom.set(ylabel=f"ε of a home so far\n(δ = {stored['delta']:g})", yscale="log")
    ticks = [0.01, 0.1, 1, 10]
    bottom.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    calendar: Any = dates
    bottom.xaxis.set_major_formatter(calendar.DateFormatter("%b"))
    bottom.xaxis.set_major_locator(calendar.MonthLocator())
    for axes in (top, middle, bottom):
        axes.legend(frameon=False, fontsize=9)
        axes.grid(alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
