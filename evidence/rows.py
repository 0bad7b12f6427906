"""What rows of averages tell, on real homes and a payroll: section 15's table, made again.

Crowds are formed on the first evening and kept; figures are forecasts of a run's kind. The rules are those of the
package (:mod:`shoal.crowds.loads`, :mod:`shoal.crowds.publish`), the offsets are seeded. Attackers:

- **a change**: one member's figures rise for good, at every entry, by 1, 3 or 8 usual figures of its crowd. Who knows
  the evening reads n times the difference of the two rows, averaged over the entries; it counts as read where that is
  within 30 % of the truth. The landlord knows three other members, whose figures rise by as much on the same evening,
  and takes out what entered of them;
- **a constant figure**: who knows what entered of all others, and the base, over sixty tables: what is left is a window
  of n b; the middle of it is the estimate, within the figures that are possible at all (not below zero).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.homes import EVERY
from evidence.occasions import occasion
from shoal.crowds.loads import NANOWATTS, new_load_crowd, next_load_row
from shoal.crowds.membership import form_crowds
from shoal.crowds.publish import RowsState, publish_rows
from shoal.crowds.rules import KeptFigures, add_units, base_for_few_values, offset_count, round_sums, to_units
from shoal.crowds.tables import TableRules, rows_by_crowd
from shoal.validation import FloatArray

Progress = Callable[[str, float], None]
Member = NDArray[np.int64]

CHANGES = (1, 3, 8)
#: An estimate counts as read within so much of the truth.
READ = 0.3
DRAWS = 20
EVENINGS = 30
#: Tables that the insider who knows all others sees.
TABLES = 60
#: First evenings: the Swiss winter and four London seasons.
FIRSTS = {
    ("swiss", "winter"): date(2018, 11, 14),
    ("london", "winter"): date(2013, 1, 17),
    ("london", "spring"): date(2013, 4, 6),
    ("london", "summer"): date(2013, 7, 7),
    ("london", "autumn"): date(2013, 10, 5),
}


@dataclass(frozen=True)
class Series:
    """Forecasts of the homes of the first release, release after release; NaN where a home has none."""

    power: FloatArray  #: (releases, n, k) kW
    metered: FloatArray  #: (releases, n, k) kW
    day: FloatArray  #: (n, steps of a day) usual day at the first release, kW
    phases: NDArray[np.int64]  #: (releases, k)
    instants: tuple[tuple[int, ...], ...]
    member: Member  #: (n,) crowd of each home

    @property
    def entering(self) -> FloatArray:
        """(releases, n, k) kW: figures of today, or the usual day where a home has none."""
        usual = np.stack([self.day[:, phases] for phases in self.phases])
        return np.where(np.isfinite(self.power), self.power, usual)


def series(
    name: str, origins: Sequence[str], keep: Path | None, horizon: int = 12, readings: Any = None, size: int = 10
) -> Series:
    """The homes that have a forecast at the first origin, at all origins."""
    readings = EVERY[name].read() if readings is None else readings
    suffix = "" if horizon == 12 else f"-{horizon}"
    every = [occasion(readings, origin, keep, f"{name}-{origin}{suffix}", horizon) for origin in origins]
    first = every[0]
    assert first.habits is not None
    place = {home: i for i, home in enumerate(first.households)}
    shape = (len(every), len(place), horizon)
    power, metered = np.full(shape, np.nan), np.full(shape, np.nan)
    phases, instants = [], []
    step = timedelta(days=1) / first.habits.day.shape[1]
    for t, (origin, today) in enumerate(zip(origins, every, strict=True)):
        assert today.habits is not None
        here = [i for i, home in enumerate(today.households) if home in place]
        at = [place[today.households[i]] for i in here]
        power[t, at], metered[t, at] = today.power[here], today.metered[here]
        phases.append(today.habits.ahead)
        minutes = np.datetime64(origin, "m").astype(int)
        instants.append(tuple((minutes + np.arange(horizon) * (step // timedelta(minutes=1))).tolist()))
    return Series(power, metered, first.habits.day, np.array(phases), tuple(instants), first.crowds(size))


def evenings(first: date, days: int = EVENINGS, hour: int = 18, every: int = 1) -> list[str]:
    """Origins on consecutive days, or several a day."""
    if every == 1:
        return [f"{first + timedelta(days=day)}T{hour:02d}:00" for day in range(days)]
    return [f"{first + timedelta(days=i // every)}T{24 // every * (i % every):02d}:00" for i in range(days)]


# ------------------------------------------------------------------ all releases of one draw


@dataclass(frozen=True)
class Releases:
    """Rows of all crowds over a series, and who was held; ``states[t][c]`` is what is kept before release t."""

    rows: FloatArray  #: (releases, crowds, k) kW; NaN where withheld
    held: NDArray[np.bool_]  #: (releases, n)
    entered: NDArray[np.int64]  #: (releases, n, k) W
    states: list[list[KeptFigures]]


def begin(homes: Series, draw: Callable[[int], int]) -> list[KeptFigures]:
    """The crowds before their first release."""
    day = to_units(homes.day, NANOWATTS)
    of_all = Fraction(int(add_units(np.abs(day).ravel())), day.size)
    return [new_load_crowd(day[homes.member == c], of_all, draw) for c in range(int(homes.member.max()) + 1)]


def release(homes: Series, draw: Callable[[int], int]) -> Releases:
    """All releases of a series under the rules."""
    watts = to_units(np.nan_to_num(homes.power), NANOWATTS)
    present = np.asarray(np.isfinite(homes.power).all(axis=2))
    crowds = begin(homes, draw)
    n_releases, n, k = watts.shape
    rows, held = np.full((n_releases, len(crowds), k), np.nan), np.zeros((n_releases, n), dtype=np.bool_)
    entered, states = np.zeros_like(watts), []
    for t in range(n_releases):
        states.append(list(crowds))
        for c, crowd in enumerate(crowds):
            at = np.flatnonzero(homes.member == c)
            step = next_load_row(crowd, watts[t, at], present[t, at], homes.instants[t], homes.phases[t])
            crowds[c] = step.crowd
            held[t, at], entered[t, at] = step.held, step.entered
            if np.isfinite(step.row).all():
                rows[t, c] = step.row
    return Releases(rows, held, entered, states)


def means_of(homes: Series, values: FloatArray) -> FloatArray:
    """(releases, crowds, k) plain means of values (releases, n, k)."""
    crowds = range(int(homes.member.max()) + 1)
    return np.stack([values[:, homes.member == c].mean(axis=1) for c in crowds], axis=1)


def price(homes: Series, rows: FloatArray) -> float:
    """Mean absolute error of rows against what was metered, over that of the forecasts; withheld rows aside."""
    known = np.isfinite(homes.metered) & np.isfinite(homes.power) & np.isfinite(rows[:, homes.member])
    off, without = (np.abs(values - homes.metered)[known].sum() for values in (rows[:, homes.member], homes.power))
    return float(off / without)


def total_error(homes: Series, rows: FloatArray) -> float:
    """Mean over releases of how far rows times members are off the homes' total over the horizon."""
    sizes = np.bincount(homes.member)
    true = means_of(homes, homes.entering)
    known = np.asarray(np.isfinite(rows).all(axis=2))[:, :, None]
    released = (np.where(known, rows, 0) * sizes[:, None]).sum(axis=(1, 2))
    truth = (np.where(known, true, 0) * sizes[:, None]).sum(axis=(1, 2))
    return float(np.mean(np.abs(released / truth - 1)))


def kept(homes: Series, draws: int = DRAWS, seed: int = 0) -> dict[str, float]:
    """Price, total, held and withheld over some draws of the offsets."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        done = release(homes, lambda n: int(random.integers(n)))
        found.append([price(homes, done.rows), total_error(homes, done.rows), done.held.mean(),
                      np.isnan(done.rows).any(axis=2).mean()])  # fmt: skip
    mean = np.mean(found, axis=0)
    return {
        "homes": len(homes.member), "crowds": int(homes.member.max()) + 1, "releases": len(homes.power),
        "price_exact": price(homes, means_of(homes, homes.entering)), "price": float(mean[0]),
        "total_off": float(mean[1]), "held": float(mean[2]), "withheld": float(mean[3]),
        "largest_total_off": float(np.max([one[1] for one in found])),
    }  # fmt: skip


# ------------------------------------------------------------------ changes


def changes(homes: Series, seed: int = 0, trials: int = 400) -> dict[str, float]:
    """Shares of changes that are read from two rows: rules and none, an outsider and a landlord with three meters."""
    random = np.random.default_rng(seed)
    done = release(homes, lambda n: int(random.integers(n)))
    watts = to_units(np.nan_to_num(homes.power), NANOWATTS)
    present = np.asarray(np.isfinite(homes.power).all(axis=2))
    read: dict[str, list[float]] = {}
    n_releases, n = watts.shape[:2]
    for _ in range(trials):
        target, t = int(random.integers(n)), int(random.integers(2, n_releases))
        c = int(homes.member[target])
        at = np.flatnonzero(homes.member == c)
        before = done.states[t][c]
        if np.isnan(done.rows[t - 1, c]).any():
            continue
        usual = float(np.abs((done.states[0][c] if before.instants else before).last).mean())
        own = int(np.flatnonzero(at == target)[0])
        others = random.permutation(np.delete(np.arange(len(at)), own))[:3]
        if not present[t, target] or not present[t - 1, target]:
            continue
        for many in CHANGES:
            rise = round(many * usual)
            for who, moved in (("", [own]), ("landlord ", [own, *others.tolist()])):
                figures = watts[t, at].copy()
                figures[moved] += rise
                step = next_load_row(before, figures, present[t, at], homes.instants[t], homes.phases[t])
                known = others if who else np.array([], dtype=int)
                had = done.entered[t - 1, at]
                exact = (homes.entering[t, at] - homes.entering[t - 1, at]).sum(axis=0) * 10**NANOWATTS + rise
                if who:
                    exact = (
                        exact - (homes.entering[t, at] - homes.entering[t - 1, at])[others].sum(axis=0) * 10**NANOWATTS
                    )
                row = step.row if np.isfinite(step.row).all() else done.rows[t - 1, c]
                seen = (row - done.rows[t - 1, c]) * 10**NANOWATTS * len(at)
                seen = seen - (step.entered - had)[known].sum(axis=0)
                _count(read, f"{who}{many}", seen.mean(), rise)
                _count(read, f"{who}{many} exact", exact.mean(), rise)
    return {name: float(np.mean(values)) for name, values in sorted(read.items())}


def _count(read: dict[str, list[float]], name: str, estimate: float, truth: float) -> None:
    read.setdefault(name, []).append(float(abs(estimate - truth) <= READ * truth))


# ------------------------------------------------------------------ a constant figure


def constant(homes: Series, seed: int = 0) -> dict[str, float]:
    """Error of who knows all others about one member whose figure is constant, in usual figures: one entry, all."""
    random = np.random.default_rng(seed)
    watts = to_units(homes.entering, NANOWATTS)
    errors: dict[str, list[float]] = {"entry": [], "all": [], "possible": []}
    for c in range(int(homes.member.max()) + 1):
        at = np.flatnonzero(homes.member == c)
        for own in range(len(at)):
            day = to_units(homes.day[at], NANOWATTS)
            usual = max(int(np.abs(day).mean()), 1)
            value = round(usual * random.uniform(0.5, 1.5))
            day[own] = value
            every = to_units(homes.day, NANOWATTS)
            crowd = new_load_crowd(
                day, Fraction(int(add_units(every.ravel())), every.size), lambda n: int(random.integers(n))
            )
            low, high, single = -(10**21), 10**21, []
            for t in range(len(watts)):
                figures = watts[t, at].copy()
                figures[own] = value
                step = next_load_row(crowd, figures, np.full(len(at), True), homes.instants[t], homes.phases[t])
                crowd = step.crowd
                if np.isnan(step.row).all():
                    continue
                rest = step.entered.sum(axis=0) - step.entered[own]
                window = crowd.offset_counts[0]
                multiples = np.rint(step.row / float(crowd.bases[0])).astype(np.int64)
                lows, highs = multiples * window - rest, (multiples + 1) * window - 1 - rest  # of value + offset
                single += np.abs((lows + highs) / 2 - window / 2 - value).tolist()
                low, high = max(low, int(lows.max())), min(high, int(highs.min()))
            assert low <= value + crowd.offsets[0] <= high
            window, middle = crowd.offset_counts[0], (low + high) / 2
            least, most = max(0.0, low - window + 1), float(high)  # value = (value + offset) − offset
            errors["entry"].append(float(np.mean(single)) / usual)
            errors["all"].append(abs(middle - (window - 1) / 2 - value) / usual)
            errors["possible"].append(abs((least + most) / 2 - value) / usual)
    return {name: float(np.mean(values)) for name, values in errors.items()}


# ------------------------------------------------------------------ tables


def payroll(n: int, seed: int = 0, months: int = 24) -> FloatArray:
    """(months, n, 4) a payroll that nobody is on: salary, months of tenure, hours of overtime, in a union or not.

    Everybody gets a raise of 5 to 15 % once a year, in a month of its own; a tenth changes the last column a year.
    """
    random = np.random.default_rng(seed)
    salary = np.round(random.lognormal(8.2, 0.3, n), 0)
    tenure, union = random.integers(1, 300, n).astype(float), (random.random(n) < 0.5).astype(float)
    month = random.integers(12, size=n)
    result = np.empty((months, n, 4))
    for t in range(months):
        raised = (month == t % 12) & (t > 0)
        salary = np.where(raised, np.round(salary * random.uniform(1.05, 1.15, n), 0), salary)
        union = np.where(random.random(n) < 0.1 / 12, 1 - union, union)
        result[t] = np.column_stack([salary, tenure + t, random.poisson(6, n), union])
    return result


def tables(n: int = 1000, seed: int = 0) -> dict[str, float]:
    """A payroll month after month: raises read from two rows, who is held, what is withheld, how far totals are off."""
    random = np.random.default_rng(seed)
    every = payroll(n, seed)
    rules, labels = TableRules(every[0], 10), np.arange(n)
    crowd = form_crowds(rules.likeness(labels), 10, beside=every[0], limits=rules.limits(labels), seed=seed)
    inside = rows_by_crowd(crowd)
    kept = [rules.begin_crowd(rules.units[at], rules.units, lambda n: int(random.integers(n))) for at in inside]
    before = means_before = last = every[0]  # of no use before the second month
    found: dict[str, list[float]] = {name: [] for name in ("held", "withheld", "read", "exact", "total", "share")}
    for t, values in enumerate(every):
        rules = TableRules(values, 10, roles=rules.columns, decimals=rules.decimals)
        made = rules.next_rows(kept, inside)
        kept, rows = [step.crowd for step in made], np.array([step.row for step in made])
        exact = np.array([values[at].mean(axis=0) for at in inside])
        sizes = np.array([len(at) for at in inside])
        found["held"].append(float(np.mean(np.concatenate([step.held for step in made]))))
        found["withheld"].append(float(np.isnan(rows).mean()))
        there = np.isfinite(rows[:, 0])
        total = (rows[:, 0] * sizes)[there].sum() / (exact[:, 0] * sizes)[there].sum() - 1
        found["total"].append(abs(float(total)))
        found["share"].append(float(np.nanmean(np.abs(rows[:, 3] - exact[:, 3]))))
        if t:
            rise = values[:, 0] - last[:, 0]
            for c, at in enumerate(inside):
                for i in at[rise[at] > 0]:
                    seen = (rows[c, 0] - before[c, 0]) * sizes[c]
                    found["read"].append(float(abs(seen - rise[i]) <= READ * rise[i]))
                    plain = (exact[c, 0] - means_before[c, 0]) * sizes[c]
                    found["exact"].append(float(abs(plain - rise[i]) <= READ * rise[i]))
        before, means_before, last = rows, exact, values
    return {"labels": n, "crowds": len(inside), **{name: float(np.mean(values)) for name, values in found.items()}}


def yes_no(tables_: int = 40, draws: int = 20_000, n: int = 12, seed: int = 0) -> dict[str, float]:
    """How often who knows all others, and chooses their figures, is right about one yes or no; and the bound."""
    random = np.random.default_rng(seed)
    base = base_for_few_values([0, 1], n)
    window, one = offset_count(base, n, 4), 10**4
    right = 0
    for _ in range(draws):
        value, offset = int(random.integers(2)), int(random.integers(window))
        others = random.integers(0, window, tables_)  # chosen so that the tables search the whole window
        multiples = round_sums(others + value * one, window, offset)
        low = int((multiples * window - others).max())  # value + offset lies in low .. high
        high = int(((multiples + 1) * window - 1 - others).min())
        odds = [max(min(high, v * one + window - 1) - max(low, v * one) + 1, 0) for v in (0, 1)]
        guess = int(odds[1] > odds[0]) if odds[0] != odds[1] else int(random.integers(2))
        right += guess == value
    return {"right": right / draws, "bound": 0.5 + one / (2 * window), "tables": tables_}


def moves(n: int = 400, months: int = 36, seed: int = 0) -> dict[str, float]:
    """A payroll with hires and leavers through :func:`shoal.publish_rows`: crowds that retire, rests, who waits."""
    random = np.random.default_rng(seed)
    every = payroll(4 * n, seed, months)
    here, nobody_yet = list(range(n)), n
    state: RowsState | None = None
    waits, held, withheld = [], [], []
    for t in range(months):
        if t:
            here = [i for i in here if random.random() > 0.03]
            hired = int(random.poisson(0.03 * n))
            here += range(nobody_yet, nobody_yet + hired)
            nobody_yet += hired
        rows, state = publish_rows(([str(i) for i in here], every[t][here]), state)
        alive = [kept for kept in state.crowds.values() if not kept.retired]
        waits.append(len(state.waiting) / len(here))
        held.append(sum(map(len, state.held.values())) / (4 * sum(len(kept.labels) for kept in alive)))
        withheld.append(float(np.isnan(rows.values).mean()))
    assert state is not None
    kept_crowds = state.crowds.values()
    return {
        "retired": sum(kept.retired for kept in kept_crowds), "crowds": len(kept_crowds),
        "rests_waiting": sum(bool(kept.rest) for kept in kept_crowds), "waiting": float(np.mean(waits)),
        "held": float(np.mean(held)), "withheld": float(np.mean(withheld)),
    }  # fmt: skip


def two_crowds(draws: int = 20_000, seed: int = 0) -> dict[str, float]:
    """Error of who knows all others about a constant figure of a rest that was in two crowds, in windows n b."""
    random = np.random.default_rng(seed)
    offsets = random.random((draws, 2))
    low, high = offsets.max(axis=1) - 1, offsets.min(axis=1)  # the figure is 0: where both windows allow it
    return {"one": float(np.abs(offsets[:, 0] - 0.5).mean()), "two": float(np.abs((low + high) / 2).mean())}


# ------------------------------------------------------------------ the study


def study(keep: Path | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """All of it, for JSON; no home by itself."""
    told = progress if progress is not None else lambda *_: None
    data = {name: EVERY[name].read() for name in ("swiss", "london")}
    rows = []
    for at, ((name, season), first) in enumerate(FIRSTS.items()):
        told(f"{name}, {season}", at / len(FIRSTS))
        homes = series(name, evenings(first), keep, readings=data[name])
        rows.append({"data": name, "season": season, "what": "30 evenings", **kept(homes, seed=at)}
                    | {f"read_{k}": v for k, v in changes(homes).items()})  # fmt: skip
        tables_ = evenings(first, TABLES) if name == "london" else evenings(first)
        longer = series(name, tables_, keep, readings=data[name])
        rows[-1] |= {f"insider_{k}": v for k, v in constant(longer).items()}
    others = {
        "06:00": evenings(FIRSTS["london", "winter"], hour=6), "12:00": evenings(FIRSTS["london", "winter"], hour=12),
    }  # fmt: skip
    for what, origins in others.items():
        homes = series("london", origins, keep, readings=data["london"])
        rows.append({"data": "london", "season": "winter", "what": what, **kept(homes)}
                    | {f"read_{k}": v for k, v in changes(homes).items()})  # fmt: skip
    for what, origins in (
        ("a day ahead, once a day", evenings(FIRSTS["london", "winter"], hour=0)),
        ("a day ahead, every six hours", evenings(FIRSTS["london", "winter"], 60, every=4)),
    ):
        told(what, 0.9)
        homes = series("london", origins, keep, 48, readings=data["london"])
        rows.append({"data": "london", "season": "winter", "what": what, **kept(homes)}
                    | {f"read_{k}": v for k, v in changes(homes).items()})  # fmt: skip
    year = series("london", evenings(date(2013, 1, 16), 350), keep, readings=data["london"])
    rows.append({"data": "london", "season": "year", "what": "350 evenings", **kept(year, 5)})
    return {"rows": rows, "payroll": tables(), "yes_no": yes_no(), "moves": moves(), "two_crowds": two_crowds()}
