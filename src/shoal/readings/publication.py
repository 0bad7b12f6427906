"""Public files of a release under the readings' promise: a pure function of the noisy vector and public settings.

Anybody who has ``noisy.json`` and ``plan.json`` rebuilds every other file byte for byte. The many cells of
:mod:`shoal.readings.crowds` are joined into at most :data:`MOST` weighted curves, and figures are rounded.
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import numpy as np

from shoal import validation
from shoal.columns import public_columns
from shoal.errors import InputError
from shoal.plaintext import cell
from shoal.readings.account import ENTRIES, FARTHEST, MOST_READINGS, ReadingsAccount
from shoal.readings.class_tables import TablePlan, public_class_table
from shoal.readings.crowds import PublicTables, public_tables
from shoal.readings.plan import CrowdsPlan
from shoal.records import from_plain, to_plain
from shoal.validation import FloatArray, IndexArray

FORM = "shoal public settings 1"
TABLE, TOTAL, PLAN, NOISY = "released.csv", "total.csv", "plan.json", "noisy.json"
#: Most curves of a public table.
MOST = 240
#: Rounds in which curves move to the nearest of the joined ones.
ROUNDS = 10
#: A cap is so much below the μ that its (ε, δ) allows, or more: room for what finite precision costs each release of a
#: series, so that the δ that is stated holds for all of them together.
ROOM = 1e-9


@dataclass(frozen=True)
class Series:
    """The promise of all releases of a series together: the cap M on √Σμ², fixed before the first, and its (ε, δ)."""

    epsilon: float
    delta: float  #: at most, at ``epsilon``
    releases: int  #: at most so many
    cap: float

    def deltas(self, account: ReadingsAccount) -> tuple[float, float]:
        """δ at ``epsilon`` of the whole series, for zero-out and for replaced neighbors, never below the exact value.

        Other releases of the series may have other layouts: of each the most is taken that any plan can have, in
        distance and finite precision, and as many releases as the ledger takes.
        """
        if self.releases == 1 and self.cap <= account.mu:
            return account.delta(self.epsilon), account.delta(self.epsilon, "replace")
        variance = math.nextafter(account.zero_out_square / self.cap**2 * (1 - 1e-14), 0.0)
        farthest = math.ceil(FARTHEST * account.zero_out_square)
        whole = replace(account, variance=variance, replace_square=farthest, entries=ENTRIES, reach=0.0)
        # Twice: a deviation has between 2^20 and 2^21 steps of the finest grid.
        precision = 2 * MOST_READINGS * whole.precision_loss(self.epsilon)
        zero_out, replaced = (whole.delta(self.epsilon, kind) for kind in ("zero-out", "replace"))
        return min(math.nextafter(zero_out + precision, 1.0), 1.0), min(math.nextafter(replaced + precision, 1.0), 1.0)


@dataclass(frozen=True)
class PublicSettings:
    """Everything public about a release but its noise: declared, or a function of what was declared."""

    plan: CrowdsPlan | TablePlan
    series: Series
    period: str  #: what it is about: ISO text
    day: str  #: on which it was released
    origin: str = ""  #: first instant of the horizon; empty for a class table
    step_minutes: float = 0.0
    horizon: int = 0
    forecasts: str = ""  #: how curves were made, in words: settings alone
    noun: str = "home"

    @property
    def has_time_zone(self) -> bool:
        """Whether instants have an offset from UTC."""
        return bool(self.origin) and datetime.fromisoformat(self.origin).tzinfo is not None

    def to_json(self) -> str:
        """The settings as the text of ``plan.json``."""
        content = {"format": FORM, "secret": "readings", **to_plain(self), "plan": json.loads(self.plan.to_json())}
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PublicSettings:
        """Read what :meth:`to_json` wrote; refuses anything else."""
        try:
            content = json.loads(text)
            if content.pop("format") != FORM or content.pop("secret") != "readings":
                raise KeyError("format")
            text, series = json.dumps(content.pop("plan")), from_plain(Series, content.pop("series"))
            kind = CrowdsPlan if CrowdsPlan.FORM in text else TablePlan
            return cls(kind.from_json(text), series, **content)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise InputError("text is not the settings of a release of readings of this version") from error


def plan_in_series(
    customers: int,
    *,
    epsilon: float | None,
    delta: float | None = None,
    budget_epsilon: float | None = None,
    releases: int | None = None,
    make: Any,
) -> tuple[Any, Series]:
    """The plan of a release, ``make(customers, ε, δ, cap_mu=…)``, and the series that it is one of.

    ``budget_epsilon`` is the ε of all releases of the series together, shared out evenly over so many ``releases``;
    without it this is the only one.
    >>> from functools import partial
    >>> from shoal import noisy_crowds_plan
    >>> make = partial(noisy_crowds_plan, typical_kw=1.0)
    >>> plan, series = plan_in_series(4000, epsilon=None, budget_epsilon=1.0, releases=30, make=make)
    >>> 30 * plan.mu**2 <= series.cap**2, series.deltas(plan.account)[0] <= series.delta <= 1 / 40000
    (True, True)
    """
    if budget_epsilon is None:
        plan = make(customers, epsilon, delta, cap_mu=None)
        return plan, Series(plan.epsilon, plan.delta_bound, 1, plan.mu)
    whole = make(customers, budget_epsilon, delta, cap_mu=None)
    cap = _series_cap(whole)
    if releases is not None:
        releases = validation.count(releases=releases)
        plan = make(customers, budget_epsilon, delta, cap_mu=cap / math.sqrt(releases) * (1 - 1e-12))
    else:
        plan = make(customers, epsilon, delta, cap_mu=None)
        if plan.mu > cap:
            raise InputError("epsilon: one release would cost more than the budget of the series (budget_epsilon)")
        releases = math.floor((cap / plan.mu) ** 2)
    series = Series(whole.epsilon, whole.delta_bound, releases, cap)
    return plan, replace(series, delta=max(whole.delta_bound, series.deltas(plan.account)[0]))


def _series_cap(whole: Any) -> float:
    """The cap on √Σμ² of a series whose δ, finite precision of all releases included, is the declared one, or nearly.

    ``whole`` is the plan of a single release with the (ε, δ) of the series.
    """
    for room in (ROOM * 8**i for i in range(8)):
        series = Series(whole.epsilon, whole.delta_bound, MOST_READINGS, whole.mu * (1 - room))
        if series.deltas(whole.account)[0] <= whole.delta_bound:
            return series.cap
    return float(whole.mu * (1 - ROOM))


def public_files(noisy: Any, settings: PublicSettings) -> dict[str, bytes]:
    """Name -> content of every public file: a pure function of the noisy vector and the settings."""
    vector = validation.array(ndim=1, noisy=noisy)
    files = {
        PLAN: settings.to_json().encode(),
        NOISY: (json.dumps([float(value) for value in vector]) + "\n").encode(),
    }
    if isinstance(settings.plan, TablePlan):
        return files | {TABLE: _class_table_csv(vector, settings.plan)}
    stamps = timestamps(settings)
    curves, counts, total = joined_public_curves(vector, settings)
    rows = [
        (crowd, f"{homes:.1f}", step, stamp, format_figure(kw, 3))
        for crowd, (homes, curve) in enumerate(zip(counts.tolist(), curves.tolist(), strict=True), 1)
        for step, (stamp, kw) in enumerate(zip(stamps, curve, strict=True), 1)
    ]
    sums = [
        (step, at, format_figure(kw, 4)) for step, (at, kw) in enumerate(zip(stamps, total.tolist(), strict=True), 1)
    ]
    return files | {
        TABLE: _csv_bytes(public_columns("noisy"), rows),
        TOTAL: _csv_bytes(("step", "timestamp", "kw"), sums),
    }


def joined_public_curves(noisy: FloatArray, settings: PublicSettings) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Joined curves (m, k), counts (m,) and total (k,) of the public table before rounding, sorted by mean load."""
    assert isinstance(settings.plan, CrowdsPlan)
    tables = public_tables(noisy, settings.plan, settings.horizon)
    into = join_curves(tables)
    counts: FloatArray = np.bincount(into, weights=tables.counts).astype(np.float64)
    sums = np.array([np.bincount(into, weights=tables.counts * step) for step in tables.curves.T]).T
    plain = np.array([np.bincount(into, weights=step) for step in tables.curves.T]).T / np.bincount(into)[:, None]
    curves = np.where(counts[:, None] > 0, sums / np.where(counts > 0, counts, 1.0)[:, None], plain)
    return curves, counts, tables.total


def join_curves(tables: PublicTables, most: int = MOST) -> IndexArray:
    """(m,) number of the joined curve that each curve of the tables goes into: at most ``most``, sorted by mean load.

    The heaviest part is cut in two along its widest step until there are enough, then curves move to the nearest middle
    for a few rounds. Weighted absolute distances, as W₁ counts them.
    """
    curves, weights = tables.curves, np.maximum(tables.counts, 1e-12)

    def means(into: IndexArray) -> FloatArray:
        parts = (into == part for part in range(int(into.max()) + 1))
        return np.array([_weighted_mean(curves[part], weights[part]) for part in parts])

    into = np.zeros(len(curves), dtype=np.intp)
    cost = {0: _weighted_spread(curves, weights)}
    while len(cost) < min(most, len(curves)):
        part = max(cost, key=lambda one: (cost[one], -one))
        rows = np.flatnonzero(into == part)
        if cost[part] <= 0 or len(rows) < 2:
            break
        middle = _weighted_mean(curves[rows], weights[rows])
        step = int(np.argmax(np.abs(curves[rows] - middle).T @ weights[rows]))
        upper = curves[rows, step] > middle[step]
        if not upper.any() or upper.all():
            cost[part] = 0.0
            continue
        number = len(cost)
        into[rows[upper]] = number
        cost |= {one: _weighted_spread(curves[into == one], weights[into == one]) for one in (part, number)}
    for _ in range(ROUNDS):
        distance = np.stack([np.abs(curves - middle).sum(axis=1) for middle in means(into)], axis=1)
        into = np.unique(distance.argmin(axis=1), return_inverse=True)[1].astype(np.intp)
    rank = np.argsort(np.argsort(means(into).mean(axis=1), kind="stable"))
    return np.asarray(rank[into])


def _weighted_mean(curves: FloatArray, weights: FloatArray) -> FloatArray:
    """(k,) weighted mean of curves (m, k)."""
    return np.asarray((curves * weights[:, None]).sum(axis=0) / weights.sum())


def _weighted_spread(curves: FloatArray, weights: FloatArray) -> float:
    """Weighted sum of the absolute distances of curves (m, k) from their weighted mean."""
    return float((np.abs(curves - _weighted_mean(curves, weights)).sum(axis=1) * weights).sum())


def timestamps(settings: PublicSettings) -> list[str]:
    """Instants of the horizon as ISO 8601 text; in UTC where the origin has an offset."""
    origin = datetime.fromisoformat(settings.origin)
    origin = origin if origin.tzinfo is None else origin.astimezone(UTC)
    step = timedelta(minutes=settings.step_minutes)
    return [(origin + i * step).isoformat(timespec="seconds") for i in range(settings.horizon)]


def _class_table_csv(noisy: FloatArray, plan: TablePlan) -> bytes:
    """CSV with a row per cell of a class table: its edges, the noisy count, and the noisy mean of every column."""
    counts, means = public_class_table(noisy, plan)
    header = [f"{name} {end}" for name, _ in plan.cells for end in ("from", "below")]
    rows = []
    for place in np.ndindex(*plan.shape):
        ends: list[str] = []
        for (_, edges), at in zip(plan.cells, place, strict=False):
            ends += ["" if at == 0 else f"{edges[at - 1]:g}", "" if at == len(edges) else f"{edges[at]:g}"]
        row = [f"{counts[place]:.1f}", *(format_figure(float(means[name][place]), 4) for name, _, _ in plan.bounds)]
        rows.append((*ends, *row))
    return _csv_bytes((*header, "count", *(name for name, _, _ in plan.bounds)), rows)


def format_figure(value: float, digits: int) -> str:
    """A number as text with so many significant digits, never in powers of ten.

    >>> format_figure(1234.56, 3), format_figure(0.0123456, 3), format_figure(0.0, 3)
    ('1230', '0.0123', '0')
    """
    text = format(Context(prec=digits, rounding=ROUND_HALF_EVEN).create_decimal(Decimal(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _csv_bytes(header: Any, rows: Any) -> bytes:
    """Bytes of a CSV file with these column names and rows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([cell(name) for name in header])
    writer.writerows(rows)
    return text.getvalue().encode()
