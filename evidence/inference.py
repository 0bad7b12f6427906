"""Three questions on real and simulated homes and on class tables, each with interval, guess and bound.

Singling out and linkability are those of ``shoal attack``. Inference is over many evenings: the readings before 18:00,
the forecasts of the next steps without protection, averages by the rules of a run, answers inside the same crowds
(white noise at (1, 1e-5); codebooks at ε = 3), and the readings' promise at ε = 1. Class tables are attacked with the
rule of diversity and with crowds of likeness in all columns, without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy

import shoal
from evidence import rows
from evidence.homes import EVERY, SWISS
from evidence.occasions import occasion
from evidence.reidentification import noisy
from shoal.crowds.formation import crowd_means, within_crowd_spread
from shoal.crowds.membership import form_crowds
from shoal.crowds.tables import ColumnRoles, TableRules
from shoal.product.sources.frames import read_frame
from shoal.product.sources.meters.quality import Readings, as_readings
from shoal.product.sources.meters.simulate import draw_size_and_heating
from shoal.product.studies.attackers import week_fingerprint
from shoal.product.studies.findings import Finding
from shoal.product.studies.inference import ReleasedRows, infer_property, is_above_median
from shoal.product.studies.meter_attack import (
    AVERAGES,
    AWAY,
    FORECASTS,
    LEAST,
    RAW,
    attack_meters,
    curve_features,
    infer_figures_by_step,
)
from shoal.product.studies.table_attack import (
    attack_table,
    columns_reported_by_name,
    fill_withheld,
    read_label_table,
    rehearse_table_averages,
)
from shoal.readings.account import ReadingsAccount
from shoal.readings.class_tables import noisy_table_plan, sum_of_label_vectors
from shoal.readings.crowds import check_curves, home_vectors
from shoal.readings.plan import noisy_crowds_plan
from shoal.records import to_plain
from shoal.validation import FloatArray

Progress = Callable[[str, float], None]
#: Evenings, and how many of them have answers and noisy readings.
EVENINGS, FEW = 20, 5
FIRSTS = {"swiss": date(2018, 11, 14), "london": date(2013, 1, 17), "simulated": date(2024, 1, 17)}
SIMULATED, SIMULATED_DAYS = 300, 37
PROPERTIES = SWISS.file.with_name("households.csv")
EPSILON, DELTA, BOOK_EPSILON = 1.0, 1e-5, 3.0
LEVEL, ABSENCE = "level of use", "absence"
#: Different texts of a property, at most.
MOST_TEXTS = 10
INSIDER = "by someone who knows all other homes and two curves of this one (ε = 1)"
INSIDER_OF_TABLE = "by someone who knows all other rows and two rows of this one (ε = 1)"


def before(own: Readings, origins: Sequence[str], names: Sequence[str]) -> tuple[list[FloatArray], FloatArray]:
    """What the fifteen days of readings before each origin say of homes, and (origins, n, 15) their mean use by day."""
    features, every = [], []
    for origin in origins:
        steps = int(np.timedelta64(1, "D") / np.timedelta64(own.step))
        window = own.window(own.find_origin(origin), -15 * steps)
        place = {name: i for i, name in enumerate(window.households)}
        kw = window.kw[[place[name] for name in names]]
        known = np.isfinite(kw)
        usual = np.where(known, kw, 0).sum(axis=1) / known.sum(axis=1).clip(1)
        usual[~known.any(axis=1)] = np.nan  # a home that has gone
        kw = np.where(known, kw, usual[:, None]).reshape(len(names), 15, steps)
        first = date.fromisoformat(origin[:10]).weekday()
        weekend = np.array([(first - 7 + day) % 7 >= 5 for day in range(7)])
        days = kw.mean(axis=2) + LEAST
        level = np.log(np.stack([days[:, -1], days.mean(axis=1), days[:, -1] / np.median(days, axis=1)], axis=1))
        features.append(fill_withheld(np.concatenate([week_fingerprint(kw[:, -7:], weekend)[0], level], axis=1)))
        every.append(days)
    return features, np.stack(every)


def homes_study(name: str, keep: Path | None, progress: Progress) -> dict[str, Any]:
    """The three questions about the homes of a data set."""
    simulated = name == "simulated"
    source = shoal.simulate_meters(SIMULATED, SIMULATED_DAYS) if simulated else None
    own = as_readings(source) if source is not None else EVERY[name].read()
    properties: Any = PROPERTIES if name == "swiss" else None
    if simulated:
        streams = (np.random.default_rng(np.random.SeedSequence(0, spawn_key=(1, i))) for i in range(SIMULATED))
        kinds = ["heat pump" if draw_size_and_heating(one)[1] == "heat pump" else "another" for one in streams]
        properties = pl.DataFrame({"household": [f"H{i:04d}" for i in range(SIMULATED)], "heating_type": kinds})
    progress(f"{name}: forecasts", 0.0)
    origins = rows.evenings(FIRSTS[name], EVENINGS)
    homes = rows.series(name, origins, keep, readings=own if simulated else None)
    names = occasion(own, origins[0], keep, f"{name}-{origins[0]}").households
    features, days = before(own, origins, names)
    truths = {LEVEL: np.tile(is_above_median(days[0].mean(axis=1)), (EVENINGS, 1))}
    away = np.array(days[:, :, -1] < AWAY * np.median(days, axis=2), dtype=np.float64)
    truths[ABSENCE] = np.where(np.isfinite(days).all(axis=2), away, np.nan)
    truths |= read_properties(properties, names, EVENINGS)
    draw = np.random.default_rng(0)
    power = list(homes.entering)
    averages = [fill_withheld(one) for one in rows.release(homes, lambda n: int(draw.integers(n))).rows]
    everyone, few = np.arange(len(names)), list(range(0, EVENINGS, EVENINGS // FEW))
    progress(f"{name}: answers", 0.3)
    white, books = answers([power[o] for o in few], names, homes.member)
    releases = [
        (ReleasedRows(RAW, tuple(features), everyone), list(range(EVENINGS))),
        (ReleasedRows(FORECASTS, curve_features(power), everyone), list(range(EVENINGS))),
        (ReleasedRows(AVERAGES, curve_features(averages), homes.member), list(range(EVENINGS))),
        (ReleasedRows("answers: white noise, ε = 1", tuple(white), everyone), few),
        (ReleasedRows("answers: codebooks, ε = 3", curve_features(books), everyone), few),
    ]
    progress(f"{name}: attacks", 0.6)
    found: list[Finding] = []
    plan = noisy_crowds_plan(len(names), EPSILON, typical_kw=round(float(np.mean(power)), 1))
    vectors = [home_vectors(check_curves(np.maximum(power[o], 0.0), plan), plan) for o in few]
    for what, truth in truths.items():
        for one, at in releases:
            found += infer_property(one, truth[at], what)
        found += infer_from_noisy_sum(vectors, plan.account, truth[few], f"{what}; {INSIDER}")
    found += infer_figures_by_step(ReleasedRows(AVERAGES, tuple(averages), homes.member), power, 0)
    progress(f"{name}: singling out and linkability", 0.8)
    study = attack_meters(own)
    found = [one for one in study.findings if one.question != "inference"] + found
    near = {what: float(np.nanmean(truth)) for what, truth in truths.items()}
    return {
        "homes": len(names), "evenings": EVENINGS, "crowds": int(homes.member.max()) + 1, "shares": near,
        "from": origins[0][:10], "findings": to_plain(found),
    }  # fmt: skip


def answers(
    power: Sequence[FloatArray], names: Sequence[str], member: Any
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Rows that two methods draw for homes inside their crowds: with white noise at (1, 1e-5), and from codebooks."""
    graph = shoal.NeighborGraph.within_groups(names, member.tolist())
    white, books = [], []
    for number, one in enumerate(power):
        classes = shoal.GaussianClasses.deterministic(one, labels=list(names))
        mechanism = shoal.calibrate(classes, graph, method="white", epsilon=EPSILON, delta=DELTA)
        white.append(noisy(mechanism, one, number))
        draw = np.random.default_rng(number)
        book = shoal.codebook(one, graph, epsilon=BOOK_EPSILON, labels=names)
        odds = [book.probabilities(name) for name in names]
        drawn = [draw.choice(len(p), p=p / p.sum()) for p in odds]
        books.append(np.stack([book.curves(name)[y] for name, y in zip(names, drawn, strict=True)]))
    return white, books


def read_properties(source: Any, names: Sequence[str], origins: int) -> dict[str, FloatArray]:
    """Property -> (origins, n) 1 for homes with the most common text of a column, 0 for others, NaN where it is empty.

    >>> import polars as pl
    >>> table = pl.DataFrame({"household": ["a", "b", "c"], "heating": ["gas", "gas", "oil"]})
    >>> read_properties(table, ["b", "c", "d"], 1)
    {"heating is 'gas'": array([[ 1.,  0., nan]])}
    """
    if source is None:
        return {}
    source = read_frame(source, "properties")
    named = pl.DataFrame({"household": pl.Series(names, dtype=pl.String)})
    table = source.with_columns(pl.col("household").cast(pl.String)).unique("household", keep="none")
    wide = named.join(table, on="household", how="left", maintain_order="left")
    texts = [name for name, kind in wide.schema.items() if kind in (pl.String, pl.Categorical) and name != "household"]
    found = {}
    for name in texts:
        column = wide[name].cast(pl.String)
        values = column.drop_nulls().value_counts(sort=True)
        if 2 <= len(values) <= MOST_TEXTS:
            most = sorted(values.filter(pl.col("count") == values["count"].max())[name])[0]
            truth = (column == most).cast(pl.Float64).to_numpy()
            found[f"{name} is {most!r}"] = np.tile(truth, (origins, 1))
    return found


def infer_from_noisy_sum(
    vectors: Sequence[FloatArray], account: ReadingsAccount, truth: FloatArray, what: str, *, seed: int = 0
) -> list[Finding]:
    """Findings under the readings' promise: the attacker knows all others and two candidates for this member.

    One vector (n, entries) is the member's own; the other is that of a member without the property, or with it. The
    noisy sum less what all others add is compared with both, by the ratio of likelihoods. Every member is a release of
    its own. The promise bounds the area by Φ(μ/√2), μ the distance of the two worlds in deviations of the noise.
    """
    draw, scores = np.random.default_rng(seed), []
    for every, has in zip(vectors, truth, strict=True):
        total, score = every.sum(axis=0), np.full((len(every), 1), np.nan)
        for i in np.flatnonzero(np.isfinite(has)):
            opposite = np.flatnonzero(has == 1 - has[i])
            if not len(opposite):
                continue
            other = every[draw.choice(opposite)]
            left = account.release(total) - (total - every[i])
            ratio = (left - (every[i] + other) / 2) @ (every[i] - other) / account.variance
            score[i] = ratio if has[i] else -ratio
        scores.append(score)
    bound = float(scipy.special.ndtr(math.sqrt(account.replace_square / account.variance / 2)))
    rows = ReleasedRows("readings", tuple(scores), np.arange(truth.shape[1]))
    bound += account.precision_loss(0.0)
    return [
        replace(one, bound=bound) for one in infer_property(rows, truth, what, each=True, seed=seed)[:1]
    ]  # the area


# ------------------------------------------------------------------ class tables


def class_tables() -> dict[str, tuple[pl.DataFrame, list[str]]]:
    """Two tables that come with scikit-learn, and their column of interest."""
    from sklearn import datasets

    tables = {}
    for name, load, sensitive in (
        ("breast cancer", datasets.load_breast_cancer, "diagnosis"),
        ("diabetes", datasets.load_diabetes, "sex"),
    ):
        frame = pl.DataFrame(load(as_frame=True).frame.rename(columns={"target": "diagnosis"}).to_dict("list"))
        tables[name] = frame.with_row_index("label"), [sensitive]
    return tables


def table_study(frame: pl.DataFrame, sensitive: list[str]) -> dict[str, Any]:
    """The three questions about a table, and what the rule of diversity changes for its column of interest."""
    study = attack_table(frame, "label", sensitive=sensitive)
    labels, names, values, _ = read_label_table(frame, "label", ())
    at = [names.index(one) for one in sensitive]
    published = rehearse_table_averages(labels, values, 10, at, 0)
    roles = ColumnRoles(*np.zeros((3, len(names)), dtype=np.bool_))
    likeness = TableRules(values, 10, roles=roles).likeness(np.arange(len(values)))
    alike = form_crowds(likeness, 10, beside=values, seed=0)
    truth, (j, *_) = is_above_median(values), at
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    diversity: dict[str, Any] = {
        "column": names[j],
        "protected": [names[i] for i in columns_reported_by_name(values, at)],
    }
    for rule, member, released in (
        ("with", published.member, published.values[0]),
        ("without", alike, crowd_means(values, alike)),
    ):
        told = [
            to_plain(one)
            for one in infer_property(ReleasedRows(AVERAGES, (released[:, [j]],), member), truth[:, j][None], names[j])
        ]
        shares = np.bincount(member, weights=truth[:, j]) / np.bincount(member)
        right = np.maximum(shares, 1 - shares)[member]
        diversity[rule] = {
            "findings": told, "known_share": float(right.mean()), "unanimous": float((right == 1).mean()),
            "lost": within_crowd_spread(scaled, member) / scaled.size, "rows": len(released),
        }  # fmt: skip
    bounds = {name: (float(column.min()), float(column.max())) for name, column in zip(names, values.T, strict=True)}
    plan = noisy_table_plan(len(labels), EPSILON, bounds=bounds)
    each = np.stack([sum_of_label_vectors(dict(zip(names, row[:, None], strict=True)), plan) for row in values])
    found = list(study.findings)
    for column in columns_reported_by_name(values, at) or [0]:
        what = f"{names[column]}; {INSIDER_OF_TABLE}"
        found += infer_from_noisy_sum([each], plan.account, truth[:, column][None], what)
    return {"labels": len(labels), "columns": len(names), "diversity": diversity,
            "findings": to_plain(found)}  # fmt: skip


def study(keep: Path | None, progress: Progress) -> dict[str, Any]:
    """All data sets: what attackers answer to the three questions."""
    found: dict[str, Any] = {name: homes_study(name, keep, progress) for name in FIRSTS}
    for name, (frame, sensitive) in class_tables().items():
        progress(f"{name}: attacks", 0.9)
        found[name] = table_study(frame, sensitive)
    return found
