"""The next day's forecasts without fitting everything again.

Forecasts keep the readings of their training window (``Forecasts.history``). New readings move that window to a later
origin; the season of the moved window and the filter's pass over it are computed anew, which costs a fraction of a
millisecond per household and is exactly what :func:`shoal.forecast` would compute at that origin, with nothing carried
along that could lose precision from day to day. Only the ARMA coefficients are kept: fitting them is the work.

Coefficients are estimated again on schedule, a share 1/``refit_days`` of the households each day by a hash of their
name, and where the newest innovations say that a household has changed (:mod:`shoal.sources.meters.drift`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal import validation
from shoal.errors import InputError
from shoal.sources.meters import window
from shoal.sources.meters.arma import ArmaModels, fit_arma
from shoal.sources.meters.arma.predict import filter_state, filtered
from shoal.sources.meters.drift import comparable, drifted
from shoal.sources.meters.forecast import Forecasts, concluded, prepared
from shoal.sources.meters.quality import Readings, repair
from shoal.sources.meters.season import PERIODS, phases
from shoal.validation import FloatArray

_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)

ABSENT = "no new readings"


@dataclass(frozen=True, repr=False)
class UpdateReport:
    """What an update did with each household: all names of the new forecasts are in one of the four tuples."""

    origin: datetime
    steps: int  #: grid points between the old origin and the new one
    carried: tuple[str, ...]  #: with yesterday's coefficients
    scheduled: tuple[str, ...]  #: fitted again because it was their day
    drifted: tuple[str, ...]  #: fitted again because they changed
    appeared: tuple[str, ...]  #: fitted for the first time, or after having been left out
    left_out: Mapping[str, str]  #: household -> reason
    drift_level: float

    def __repr__(self) -> str:
        """Counts only."""
        return (
            f"UpdateReport({len(self.carried)} carried, {len(self.scheduled)} refitted on schedule, "
            f"{len(self.drifted)} on drift, {len(self.appeared)} appeared, {len(self.left_out)} left out)"
        )


def update_forecasts(
    forecasts: Forecasts,
    readings: Readings | pl.DataFrame,
    *,
    origin: datetime | str | None = None,
    refit_days: int | None = 7,
    drift_level: float = 1e-3,
) -> tuple[Forecasts, UpdateReport]:
    """Forecasts at a later origin from those of an earlier one and the readings since.

    Order, horizon, season, floor and training days stay those of ``forecasts``. A household whose model is kept gets
    exactly the forecast that its old coefficients give on the new training window. Households are left out for the same
    reasons as in :func:`shoal.forecast`; one without new readings is forecast across the gap while enough of its
    window is left, and one that is new is fitted as soon as its readings suffice.

    Args:
        forecasts: made by :func:`shoal.forecast` or by this function.
        readings: the readings since the old origin; older ones may be among them and then replace those kept.
        origin: first instant to predict; by default right after the last readings, as in :func:`shoal.forecast`.
        refit_days: every household is fitted again once in so many days; None: never on schedule.
        drift_level: probability that a household that has not changed is fitted again all the same; 0: never on drift.

    Returns:
        The new forecasts, and what was done with each household.

    >>> from datetime import datetime
    >>> import shoal
    >>> readings = shoal.simulate_meters(4, 8, step_minutes=60)
    >>> before = readings.filter(readings["timestamp"] < datetime(2024, 1, 8))
    >>> old = shoal.forecast(before, order=(1, 1), train_days=7, horizon=3, season="day")
    >>> new, report = shoal.update_forecasts(old, readings, refit_days=None, drift_level=0.0)
    >>> new.origin - old.origin, report
    (datetime.timedelta(days=1), UpdateReport(4 carried, 0 refitted on schedule, 0 on drift, 0 appeared, 0 left out))
    """
    if forecasts.history is None or forecasts.fitted_at is None:
        raise InputError("forecasts hold no training window to go on from; make them with forecast()")
    if refit_days is not None:
        refit_days = validation.count(refit_days=refit_days)
    drift_level = validation.probability(drift_level=drift_level, below_one=True)
    data = readings if isinstance(readings, Readings) else repair(readings, interval=forecasts.step)
    before, at = _origins(forecasts, data, origin)
    steps = (at - before) // (data.step // _MICROSECOND)

    floor, season = forecasts.season.floor, forecasts.season.period
    past = _moved(forecasts.history, data, at, steps)
    length = past.kw.shape[1]
    rows, profile, x, reasons = prepared(past, season, data.step, floor, forecasts.train_days)
    names = [past.households[i] for i in rows]

    place = {name: i for i, name in enumerate(forecasts.households)}
    old = np.array([place.get(name, -1) for name in names], dtype=np.int64)
    known = old >= 0
    due = known & _due(names, before, at, refit_days)
    tested = np.flatnonzero(known & ~due)
    state, z = filtered(forecasts.models.take(old[tested]), x[tested])
    changed = np.zeros(len(names), dtype=np.bool_)
    if drift_level > 0 and len(tested):
        phase = phases(past.timestamps, season, data.step)
        period = PERIODS[season] * int(_DAY / data.step) if PERIODS[season] > 1 else None
        alike = comparable(z, profile.repeats[tested][:, phase])
        changed[tested] = drifted(alike, min(steps, length), period, drift_level)
    fresh = ~known | due | changed
    models, fitted = _models(forecasts.models, old, x, fresh)
    for i in np.flatnonzero(~fitted):
        reasons[names[i]] = f"model not fitted: {models.status[i]}"
    keep = np.flatnonzero(fitted)
    if not len(keep):
        raise InputError("readings: no household's model could be estimated")
    kept = ~fresh[tested]
    carried = tested[kept]
    states = filter_state(models.take(fresh), x[fresh]).beside(state.take(kept), np.flatnonzero(fresh), carried)
    fitted_at = np.where(fresh, at, forecasts.fitted_at[np.maximum(old, 0)])
    made = concluded(
        _accounted(data, past),
        past,
        rows[keep],
        profile.take(keep),
        models.take(keep),
        x[keep],
        at=at,
        horizon=forecasts.horizon,
        train_days=forecasts.train_days,
        reasons=reasons,
        fitted_at=fitted_at[keep],
        state=states.take(keep),
    )

    def chosen_names(mask: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(names[i] for i in np.flatnonzero(mask & fitted))

    report = UpdateReport(
        origin=made.origin,
        steps=steps,
        carried=chosen_names(~fresh),
        scheduled=chosen_names(due),
        drifted=chosen_names(changed),
        appeared=chosen_names(~known),
        left_out=made.left_out,
        drift_level=drift_level,
    )
    return made, report


def _origins(forecasts: Forecasts, data: Readings, origin: datetime | str | None) -> tuple[int, int]:
    """Old and new origin, microseconds of the epoch, on one grid and one clock."""
    zone = getattr(forecasts.timestamps.dtype, "time_zone", None)
    if data.step != forecasts.step:
        raise InputError(f"readings must come every {forecasts.step}, as those that the forecasts were made from")
    if data.time_zone != zone:
        raise InputError(f"readings must have timestamps in the zone of the forecasts ({zone}), not {data.time_zone}")
    before = int(forecasts.timestamps.dt.epoch("us")[0])
    at = window.place_origin(data, origin)
    if (at - before) % (data.step // _MICROSECOND):
        raise InputError("readings must lie on the grid of those that the forecasts were made from")
    if at <= before:
        raise InputError("origin must lie after that of the forecasts: the readings hold nothing new")
    return before, at


def _moved(history: window.Window, data: Readings, at: int, steps: int) -> window.Window:
    """The training window before ``at``: readings given win over those kept; households without any are dropped."""
    length = history.kw.shape[1]
    new = window.cut(data, at, -length)
    names = np.array(sorted({*history.households, *new.households}), dtype=object)
    kw = np.full((len(names), length), np.nan)
    kept = max(length - steps, 0)
    if history.households:
        kw[np.searchsorted(names, np.array(history.households, dtype=object)), :kept] = history.kw[:, length - kept :]
    if new.households:
        rows = np.searchsorted(names, np.array(new.households, dtype=object))
        kw[rows] = np.where(np.isfinite(new.kw), new.kw, kw[rows])
    present = np.isfinite(kw).any(axis=1)
    return window.Window(tuple(names[present].tolist()), new.timestamps, kw[present])


def _due(names: Sequence[str], before: int, at: int, refit_days: int | None) -> NDArray[np.bool_]:
    """Whose day to be fitted again lies after ``before`` and not after ``at``; days are those of UTC."""
    if refit_days is None:
        return np.zeros(len(names), dtype=np.bool_)
    day = _DAY // _MICROSECOND
    first, last = before // day, at // day
    digests = (hashlib.sha256(name.encode()).digest()[:8] for name in names)
    turn = np.array([int.from_bytes(digest, "big") % refit_days for digest in digests], dtype=np.int64)
    return np.asarray((last - turn) // refit_days > (first - turn) // refit_days)


def _models(
    models: ArmaModels, old: NDArray[np.int64], x: FloatArray, fresh: NDArray[np.bool_]
) -> tuple[ArmaModels, NDArray[np.bool_]]:
    """A model per row of x, the ``fresh`` ones fitted from scratch and from the old; and whether there is one."""
    carried, again = np.flatnonzero(~fresh), np.flatnonzero(fresh)
    joined = models.take(old[carried])
    if len(again):
        start = models.take(np.maximum(old[again], 0))
        start = replace(start, ok=start.ok & (old[again] >= 0))
        joined = joined.followed_by(fit_arma(x[again], models.order, start=start))
    joined = joined.take(np.argsort(np.concatenate([carried, again]), kind="stable"))
    return joined, joined.ok


def _accounted(data: Readings, past: window.Window) -> Readings:
    """Readings whose quality table has a row for every household of the window, also for those without new readings.

    A household that only these readings leave out is not left out of the window for it.
    """
    table = data.quality
    missing = sorted(set(past.households) - set(table["household"].to_list()))
    if missing:
        rows = pl.DataFrame({"household": missing, "verdict": "repaired", "reason": ABSENT, "gaps": "left missing"})
        counts = [c for c, kind in table.schema.items() if kind.is_integer()]
        rows = rows.with_columns(*(pl.lit(0, table.schema[c]).alias(c) for c in counts), flat=False, large=False)
        table = pl.concat([table, rows], how="diagonal").sort("household")
    here = pl.col("household").is_in(list(past.households)) & (pl.col("verdict") == "left out")
    table = table.with_columns(verdict=pl.when(here).then(pl.lit("repaired")).otherwise(pl.col("verdict")))
    return replace(data, quality=table)
