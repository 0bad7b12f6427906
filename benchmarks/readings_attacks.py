"""Attacks on noisy crowds: python -m benchmarks.readings_attacks [OUT.json].

486 Swiss homes, four origins a week apart, ε = 1: the homes, weeks and attackers of the re-identification study
(``shoal.product.studies``), here on what a run with ``--secret readings`` writes. The attacker has a week of a home's
readings: what they are like, and what one would forecast from them.

- **Naming.** The table holds at most sixty weighted curves and no row of a home, so the study has to pretend: every
  home gets the public curve that it is nearest to, as in the owner's file, and the attacker looks for the home's. The
  same is done with tables that were drawn *without* the readings of the homes that are looked for (a quarter of them at
  a time, the same noise): what the attacker names there it does not have from the readings.
- **Membership.** Was this home's curve in the sum? By whoever has the exact curves of all others and of the home; all
  others' and a week of the home; or a week of every home. Advantage: how much more often "yes" is said when it was.
- **Nine of ten.** The tenth home's load from a crowd's mean without noise, and from a noisy table by somebody who has
  all homes but one.

Noise is seeded here; nothing is released.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shoal
from benchmarks.readings import SWISS
from evidence.reidentification import Hits
from shoal.audits.confidence import mean_lower_bound, mean_upper_bound
from shoal.crowds.formation import crowd_means, least_spread_crowds
from shoal.product.sources.meters.quality import as_readings
from shoal.product.studies import meter_attack as study
from shoal.product.studies.attackers import curve_metrics, rank_rows, score_rows, week_fingerprint
from shoal.product.studies.meter_attack import log_curves
from shoal.readings.crowds import home_vectors, noisy_crowds_from_vector, public_tables, sum_of_home_vectors
from shoal.readings.publication import join_curves

#: Origins, days that releases are forecast from, days that the attacker has, draws of each world of membership tests.
ORIGINS, TRAINING, WEEK, DRAWS = 4, 15, 7, 100


def homes_and_knowledge() -> tuple[list[Any], list[Any], list[Any]]:
    """Forecasts of every home at every origin, those that an attacker makes of a week, and all that it knows."""
    own = as_readings(pl.read_parquet(SWISS))
    weeks = study.Weeks.of_readings(own, 3, ORIGINS, 10)
    power, guesses, known = [], [], []
    for week in weeks.judged:
        for days, found in ((TRAINING, power), (WEEK, guesses)):
            forecast = shoal.forecast(own, train_days=days, horizon=12, season="day", origin=weeks.starts[week])
            found.append(weeks.rows_of_homes(forecast.households, forecast.power))
        prints, _ = week_fingerprint(weeks.readings[week - 1], weeks.weekend)
        known.append(np.concatenate([prints, log_curves(guesses[-1])], axis=1))
    return power, guesses, known


def public_rows(homes: Any, present: Any, plan: Any, noise: Any) -> Any:
    """(n, k) the public curve nearest to each home, of a table drawn from the homes that are present."""
    noisy = sum_of_home_vectors(np.ascontiguousarray(homes[present]), plan) + plan.account.sigma * noise
    into = join_curves(tables := public_tables(noisy, plan, homes.shape[1]))
    weights = np.bincount(into, weights=tables.counts)
    sums = np.array([np.bincount(into, weights=tables.counts * step) for step in tables.curves.T]).T
    return log_curves(
        (sums / np.maximum(weights, 1e-12)[:, None])[into[noisy_crowds_from_vector(homes, noisy, plan).crowd_of]]
    )


def named(power: list[Any], known: list[Any], plan: Any, *, absent: bool, seed: int = 0) -> dict[str, Hits]:
    """Attacker -> how often it finds the public curve of a home; with ``absent``, of a table without the home."""
    n = len(power[0])
    noise = np.random.default_rng(seed).standard_normal((len(power), plan.entries))
    everybody = np.ones(n, dtype=bool)
    rows = [public_rows(homes, everybody, plan, z) for homes, z in zip(power, noise, strict=True)]
    scores: dict[str, list[Any]] = {study.OWN: [], study.EXPECTED: []}
    for o, homes in enumerate(power):
        whole = {name: np.empty((n, n)) for name in scores}
        for fold in np.array_split(np.random.default_rng(seed).permutation(n), study.FOLDS):
            others = np.setdiff1d(np.arange(n), fold)
            judged = rows[o]
            if absent:
                present = everybody.copy()
                present[fold] = False
                judged = public_rows(homes, present, plan, noise[o])
            tables = [(known[p][others], rows[p][others]) for p in range(len(power)) if p != o]
            for name, attacker in zip(scores, curve_metrics(tables), strict=True):
                whole[name][fold] = score_rows(attacker, known[o][fold], judged)
        for name, matrix in whole.items():
            scores[name].append(matrix)
    return {name: Hits.over([rank_rows(one) for one in every]) for name, every in scores.items()}


def membership(power: list[Any], guesses: list[Any], plan: Any, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Attacker -> its advantage over all homes and origins, with its interval at 95 %."""
    rng = np.random.default_rng(seed)
    sigma, advantages = plan.account.sigma, {"everything": [], "all others, a week of the home": [], "weeks": []}
    for homes, guess in zip(power, guesses, strict=True):
        true, guessed = home_vectors(homes, plan), home_vectors(guess, plan)
        # By how much the attacker is off about everybody else.
        strangers = (true.sum(axis=0) - true) - (guessed.sum(axis=0) - guessed)
        zero = np.zeros_like(true)
        for who, vector, off in zip(advantages, (true, guessed, guessed), (zero, zero, strangers), strict=True):
            length = np.sqrt((vector**2).sum(axis=1))
            along = vector / np.maximum(length, 1e-9)[:, None]
            shares = []
            for there in (zero, true):
                middle = ((there + off) * along).sum(axis=1)
                seen = middle[:, None] + sigma * rng.standard_normal((len(true), DRAWS))
                shares.append((seen > length[:, None] / 2).mean(axis=1))
            advantages[who].append(shares[1] - shares[0])
    result = {}
    for who, parts in advantages.items():
        values = np.mean(parts, axis=0)
        ends = mean_lower_bound((values + 1) / 2, 0.025), mean_upper_bound((values + 1) / 2, 0.025)
        result[who] = {"advantage": float(values.mean()), "interval": [2 * end - 1 for end in ends]}
    return result


def last_of_ten(power: list[Any], plan: Any, seed: int = 0) -> dict[str, float]:
    """Errors of a home's load, root mean square in mean loads, by who has all others; and what a guess has."""
    rng = np.random.default_rng(seed)
    before, after, guess, explained = [], [], [], []
    for homes in power:
        load, scale = homes.mean(axis=1), float(homes.mean())
        crowd = np.asarray(least_spread_crowds(homes, 10))
        sizes = np.bincount(crowd)
        printed = np.round(crowd_means(homes, crowd), 3).mean(axis=1)  # watts, as a run writes them
        rest = np.bincount(crowd, weights=load)[crowd] - load
        before.append((printed[crowd] * sizes[crowd] - rest - load) / scale)
        noise = plan.account.sigma * plan.load_clip / plan.load_weight * rng.standard_normal(len(load))
        after.append((np.minimum(load, plan.load_clip) + noise - load) / scale)
        guess.append((load - load.mean()) / scale)
        explained.append(load.var() / (load.var() + noise.var()))
    rms = {"crowd mean": before, "noisy crowds": after, "a guess: the mean of all": guess}
    errors = {name: float(np.sqrt(np.mean(np.concatenate(part) ** 2))) for name, part in rms.items()}
    return errors | {"share of the variance of loads that the noisy table explains": float(np.mean(explained))}


def main(out: str | None = None) -> None:
    warnings.simplefilter("ignore")
    power, guesses, known = homes_and_knowledge()
    n = len(power[0])
    plan, cells = (shoal.noisy_crowds_plan(n, 1.0, method=method, typical_kw=1.5) for method in (None, "cells"))
    rows = [log_curves(homes) for homes in power]
    scores = [study.curve_scores(known, rows, origin, 0) for origin in range(len(power))]
    unprotected = {name: Hits.over([rank_rows(one[name]) for one in scores]) for name in scores[0]}
    naming = {
        "unprotected forecasts": unprotected,
        "noisy crowds": named(power, known, plan, absent=False),
        "noisy crowds without the home's readings": named(power, known, plan, absent=True),
        "noisy crowds, cells": named(power, known, cells, absent=False),
        "noisy crowds, cells, without the home's readings": named(power, known, cells, absent=True),
    }
    content = {
        "homes": n, "origins": len(power), "epsilon": 1.0, "delta": plan.delta_bound, "version": shoal.__version__,
        "naming": {what: {who: asdict(hits) for who, hits in whose.items()} for what, whose in naming.items()},
        "membership": {**membership(power, guesses, plan), "promised advantage": plan.delta(0.0)},
        "load of the last home": last_of_ten(power, plan),
    }  # fmt: skip
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    print(text)
    if out:
        Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:2])
