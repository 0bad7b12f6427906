"""shoal beside others on the same homes: error, what is promised, and what an attacker achieves.

The forecasts of 486 Swiss homes at four origins and of the London homes at four (one a season), twelve steps. Errors:

- *price*: mean absolute error of a home's own row against what was metered later, over that of the forecasts; only for
  releases that have a row for each home;
- *W₁*: how far homes' forecasts must be moved, on average, to become the released table, over the mean load;
- *total*: absolute error of the horizon's total, relative to that of the forecasts.

Attackers: *named*, the share of homes that somebody names who knows the home's last week of readings, forecasts for it
and takes the nearest row (in a crowd they guess); *tenth*, who knows the forecasts of all other homes and computes the
missing one: its error over a mean home's load, 0 % where they have it exactly, 100 % and more where they know nothing.

| release | how it is made here |
| --- | --- |
| crowds | as a run: formed with 12, promised as 10 |
| codebooks | ε = 3 of one answer in the same crowds |
| noisy crowds | ``--secret readings`` at ε = 1, δ = 1/(10 homes) |
| paper | Algorithm 1 on the laws in ln kW, 0.6857 per entry, the same crowds as neighbors |
| OpenDP | mean per group of twelve homes by name, curves clipped to the plan's load clip, ``make_laplace``, ε = 1 |
| OpenDP, one group | the same over all homes |
| Private-PGM | ``mbi`` in an environment of its own, see ``benchmarks/readings_synthetic``; ε = 1, δ = 1/(10 homes) |
| MDAV | groups of ten in kW |
| rule of five | groups of five by name, as a feeder or a street would group them |
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.crowds import mdav
from numpy.typing import NDArray

import shoal
from evidence.homes import EVERY
from evidence.occasions import Occasion, occasion, own_forecasts
from evidence.year import tables_of
from shoal.crowds.formation import crowd_means
from shoal.readings.population_error import w1_bounds
from shoal.validation import FloatArray

ORIGINS = {
    "swiss": ("2018-11-13T18:00", "2018-11-17T06:00", "2018-11-20T12:00", "2018-11-25T00:00"),
    "london": ("2013-01-17T18:00", "2013-04-06T06:00", "2013-07-07T12:00", "2013-10-05T00:00"),
}
TYPICAL_KW = {"swiss": 1.5, "london": 0.5}
BOOK_EPSILON = 3.0
PAPER_BUDGET = 0.685714
#: Python of an environment that has ``mbi``, NumPy and SciPy; without it Private-PGM is left out.
SYNTHETIC_PYTHON = "SHOAL_MBI_PYTHON"


class Table:
    """What is measured of one method over origins: name, promise, and figures by name."""

    def __init__(self, name: str, promise: str) -> None:
        self.name, self.promise = name, promise
        self.figures: dict[str, list[float]] = {}

    def add(self, **figures: float | None) -> None:
        for name, value in figures.items():
            if value is not None:
                self.figures.setdefault(name, []).append(float(value))

    def row(self) -> dict[str, Any]:
        """Means over origins, with the least and the largest."""
        found = {n: (float(np.mean(v)), float(min(v)), float(max(v))) for n, v in self.figures.items()}
        return {"method": self.name, "promise": self.promise, **found}


def grouped(homes: Occasion, member: NDArray[np.int64], week: FloatArray) -> dict[str, float]:
    """Figures of a table of group means without noise; who knows all others has the tenth exactly."""
    rows = crowd_means(homes.power, member)
    sizes = np.bincount(member)
    near = _nearest(week, rows)
    return {
        "price": homes.price(member),
        "w1": w1_bounds(homes.power, rows, sizes.astype(np.float64))[0],
        "total": abs(float((sizes @ rows).sum() / homes.power.sum()) - 1),
        "named": float(np.where(near == member, 1 / sizes[member], 0.0).mean()),
        "tenth": 0.0,
    }


def own_rows(homes: Occasion, rows: FloatArray, week: FloatArray) -> dict[str, float]:
    """Figures of a table with a row of its own for every home."""
    near = _nearest(week, rows)
    return {
        "price": float(homes.errors(rows).sum() / homes.errors(homes.power).sum()),
        "w1": w1_bounds(homes.power, rows, np.ones(len(rows)))[0],
        "total": abs(float(rows.sum() / homes.power.sum()) - 1),
        "named": float((near == np.arange(len(rows))).mean()),
    }


def _nearest(known: FloatArray, rows: FloatArray) -> NDArray[np.int64]:
    a, b = np.sqrt(np.maximum(known, 0.0)), np.sqrt(np.maximum(rows, 0.0))
    return np.asarray(((a[:, None] - b[None]) ** 2).sum(axis=2).argmin(axis=1))


def laplace_means(homes: FloatArray, member: NDArray[np.int64], clip: float, epsilon: float) -> FloatArray:
    """(groups, k) sums of clipped curves with OpenDP's Laplace noise, over the public sizes of the groups."""
    import opendp.prelude

    dp: Any = opendp.prelude
    dp.enable_features("contrib")
    k = homes.shape[1]
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    noise = dp.m.make_laplace(*space, scale=k * clip / epsilon)
    assert noise.map(k * clip) <= epsilon * (1 + 1e-9)
    held = np.clip(homes, 0.0, clip)
    sums = [noise(held[member == group].sum(axis=0).tolist()) for group in range(int(member.max()) + 1)]
    return np.asarray(np.array(sums) / np.bincount(member)[:, None])


def noisy_groups(
    homes: Occasion, means_released: FloatArray, member: NDArray[np.int64], week: FloatArray, noise: float
) -> dict[str, float]:
    """Figures of group means with Laplace noise of this scale in each sum; rows are cut at zero, the total is not."""
    sizes = np.bincount(member)
    rows = np.maximum(means_released, 0.0)
    near = _nearest(week, rows)
    return {
        "price": float(homes.errors(rows[member]).sum() / homes.errors(homes.power).sum()),
        "w1": w1_bounds(homes.power, rows, sizes.astype(np.float64))[0],
        "total": abs(float((sizes @ means_released).sum() / homes.power.sum()) - 1),
        "named": float(np.where(near == member, 1 / sizes[member], 0.0).mean()),
        "tenth": noise / float(homes.power.mean()),
    }


def synthetic(homes: FloatArray, typical: float) -> list[tuple[FloatArray, FloatArray]] | None:
    """Curves and weights of three draws of Private-PGM, or None without an environment for it."""
    python = os.environ.get(SYNTHETIC_PYTHON)
    if not python:
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "homes.npy", Path(folder) / "made.npz"
        np.save(given, homes * (1.5 / typical))  # its grids are for a typical home of 1.5 kW
        script = Path(__file__).parents[1] / "benchmarks" / "readings_synthetic.py"
        subprocess.run([python, str(script), str(given), str(len(homes)), str(made)], check=True, capture_output=True)
        stored = np.load(made)
        return [(stored["curves"] * (typical / 1.5), weights) for weights in stored["weights"]]


def paper_rows(readings: Any, origin: str, homes: Occasion, member: NDArray[np.int64], seed: int) -> FloatArray:
    """(n, k) kW: Algorithm 1's noise on the log forecasts, as the paper releases them; seeded, NOT private."""
    fc = shoal.forecast(readings, order=(6, 5), train_days=15, horizon=12, season="day", origin=origin)
    assert fc.households == homes.households
    graph = shoal.NeighborGraph.within_groups(fc.households, member.tolist())
    mechanism = shoal.design(fc.classes("trajectory"), graph, "paper", 1.0, PAPER_BUDGET)
    draw = np.random.default_rng(seed)
    covs = mechanism.noise_cov
    noise = [draw.multivariate_normal(np.zeros(12), covs[min(i, len(covs) - 1)]) for i in range(len(fc.households))]
    return np.asarray(np.exp(fc.log_mean + np.array(noise)))


def of_data(name: str, keep: Path | None, progress: Callable[[str, float], None] | None) -> list[dict[str, Any]]:
    """All methods on one data set."""
    readings = EVERY[name].read()
    tables: dict[str, Table] = {}
    counts = []

    def put(method: str, promise: str, figures: dict[str, float]) -> None:
        tables.setdefault(method, Table(method, promise)).add(**figures)

    for number, origin in enumerate(ORIGINS[name]):
        if progress is not None:
            progress(f"{name}: {origin}", number / len(ORIGINS[name]))
        homes = occasion(readings, origin, keep, f"{name}-{origin}")
        names, own = own_forecasts(readings, origin, keep, f"{name}-{origin}")
        both = sorted(set(homes.households) & set(names.tolist()))
        whole, homes = homes, homes.of(both)
        week = own[[names.tolist().index(home) for home in both]]
        n, power = len(both), homes.power
        counts.append(n)
        put("unprotected forecasts", "none", own_rows(homes, power, week))
        member = homes.crowds()
        put("crowds", "k-anonymity: rows are means of at least ten", grouped(homes, member, week))
        put("MDAV, groups of ten", "k-anonymity, on one day", grouped(homes, mdav(power, 10), week))
        fives = np.arange(n) // 5
        fives[fives == n // 5] = n // 5 - 1
        put("rule of five, groups by name", "at least five, on one day", grouped(homes, fives, week))
        draw = np.random.default_rng(number)
        plan = shoal.noisy_crowds_plan(n, 1.0, typical_kw=TYPICAL_KW[name])
        public = tables_of(power, plan, draw)
        unit = plan.account.sigma * plan.load_clip / plan.load_weight
        put("noisy crowds (secret readings)", "(1, 1/(10 homes)) about all readings of a home", {
            "w1": w1_bounds(power, public.curves, public.counts)[0],
            "total": abs(float(public.total.sum() / power.sum()) - 1),
            "tenth": float(np.sqrt(2 / np.pi)) * unit / float(power.mean()),
        })  # fmt: skip
        for words, groups in (("OpenDP, mean per twelve homes by name", np.minimum(np.arange(n) // 12, n // 12 - 1)),
                              ("OpenDP, mean of all homes", np.zeros(n, dtype=np.int64))):  # fmt: skip
            rows = laplace_means(power, groups, plan.load_clip, 1.0)
            figures = noisy_groups(homes, rows, groups, week, power.shape[1] * plan.load_clip)
            put(words, "(1, 0) about the released curve of a home", figures)
        drawn = synthetic(power, TYPICAL_KW[name]) if number < 2 else None  # three draws at each of two origins
        for curves, weights in drawn or ():
            total = (weights @ curves / weights.sum()).sum() * n
            put("Private-PGM (mbi)", "(1, 1/(10 homes)) about the released curve of a home", {
                "w1": w1_bounds(power, curves, weights)[0], "total": abs(float(total / power.sum()) - 1),
            })  # fmt: skip
        graph = shoal.NeighborGraph.within_groups(homes.households, member.tolist())
        book = shoal.codebook(power, graph, BOOK_EPSILON)
        odds = [book.probabilities(home) for home in homes.households]
        picked = [draw.choice(len(p), p=p / p.sum()) for p in odds]
        rows = np.stack([book.curves(home)[y] for home, y in zip(homes.households, picked, strict=True)])
        put("codebooks, ε = 3", "(3, 0) between members of a crowd, one answer", own_rows(homes, rows, week))
        noisy = paper_rows(
            readings, origin, whole, member if len(both) == len(whole.households) else whole.crowds(), number
        )
        place = [whole.households.index(home) for home in both]
        put("the paper's method, 0.6857 per entry", "claims δ(1) = 0.35, which does not hold",
            own_rows(homes, noisy[place], week))  # fmt: skip
    order = (
        "unprotected forecasts", "crowds", "codebooks, ε = 3", "noisy crowds (secret readings)",
        "the paper's method, 0.6857 per entry", "OpenDP, mean per twelve homes by name", "OpenDP, mean of all homes",
        "Private-PGM (mbi)", "MDAV, groups of ten", "rule of five, groups by name",
    )  # fmt: skip
    who = {"data": name, "homes": (min(counts), max(counts)), "origins": len(ORIGINS[name])}
    return [{**who, **tables[method].row()} for method in order if method in tables]


def study(keep: Path | None = None, progress: Callable[[str, float], None] | None = None) -> dict[str, Any]:
    """Every method on every data set that is at hand, for JSON."""
    return {"rows": [row for name, homes in EVERY.items() if homes.there for row in of_data(name, keep, progress)]}
