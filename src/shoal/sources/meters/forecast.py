"""From readings to the law of every household's next hours: season, ARMA, prediction, checks, quality."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import scipy
from numpy.typing import NDArray

from shoal import validation
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.numerics.notebook import COLORS, axes_or_new, table
from shoal.sources.meters import queries, window
from shoal.sources.meters.arma import ArmaModels, fit_arma, predict
from shoal.sources.meters.checks import LAGS, MEASURES, Checks, check_models
from shoal.sources.meters.quality import Readings, repair
from shoal.sources.meters.season import FLOOR, PERIODS, Season, export_scale, fit_season, phases
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.card.facts import Accuracy, FitFacts
    from shoal.laws.graph import NeighborGraph
    from shoal.mechanism.mechanism import Mechanism

#: A household with fewer than this share of its training readings is left out.
LEAST_OBSERVED = 0.8

#: Units of answers: ln kW, or kW.
UNITS = ("log", "kw")
#: The arrays of a law, with a row per household.
LAWS = ("log_mean", "error_cov", "mean_cov", "season_part")

#: Checks that a notebook counts.
CHECKED = ("gaussian", "white", "stationary")

#: Why a home without new readings is not released.
ABSENT = "no new readings"

#: Residuals with a smaller standard deviation, in ln kW, are rounding: nothing is left to model.
FLAT = 1e-9


@dataclass(frozen=True, repr=False)
class Forecasts:
    """Predictive laws of many households over one horizon, in ln kW, and how they came about.

    Of homes that export (``exports``), laws are on the scale asinh(p/s) instead (:mod:`shoal.sources.meters.season`);
    ``power`` and ``interval`` are in kW for all.
    """

    households: tuple[str, ...]
    timestamps: pl.Series  #: (h,) instants of the horizon; the first is the origin
    log_mean: FloatArray  #: (n, h) E[ln p | history]
    error_cov: FloatArray  #: (n, h, h) covariance of ln p given the history
    mean_cov: FloatArray  #: (n, h, h) covariance of the conditional mean over histories
    season_part: FloatArray  #: (n, h) seasonal mean, the expectation before any history is seen
    season: Season
    models: ArmaModels
    checks: Checks
    quality: pl.DataFrame  #: one row per household read, those left out included
    left_out: Mapping[str, str]  #: household -> reason
    step: timedelta
    train_days: int
    recent: FloatArray | None = None  #: (n, steps of a day) readings before the origin, kW; NaN where missing
    history: window.TrainingWindow | None = None  #: of every household read, those left out included

    def __repr__(self) -> str:
        """Sizes only: a printed object must not release readings."""
        return f"Forecasts({len(self.households)} households, {self.horizon} steps from {self.origin})"

    def _repr_html_(self) -> str:
        """Sizes, checks and counts only, as in ``repr``."""
        p, q = self.models.order
        total = len(self.households)
        rows = [
            ("households", total),
            ("left out", len(self.left_out)),
            ("origin", self.origin),
            ("steps", f"{self.horizon} of {self.step}"),
            ("model", f"ARMA({p}, {q}) after a season of a {self.season.period}, {self.train_days} days of training"),
            *((f"{name} innovations", f"{int(np.sum(getattr(self.checks, name)))} of {total}") for name in CHECKED),
        ]
        return table("Forecasts", (), rows)

    def plot(self, household: Any, *, released: Any = None, level: float = 0.9, axes: Any = None) -> Any:
        """Draw one household's past day, forecast and predictive interval in kW with matplotlib; returns the axes.

        ``released`` is its released answer in log power, (h,). The picture shows readings: it is for the data owner.
        """
        if str(household) not in self.households:
            raise InputError("household is not one of these forecasts'")
        i = self.households.index(str(household))
        axes = axes_or_new(axes)
        hours = self.step / timedelta(hours=1)
        ahead = hours * np.arange(self.horizon)
        if self.recent is not None:
            axes.plot(hours * np.arange(-self.recent.shape[1], 0), self.recent[i], color=COLORS[7], label="past day")
        low, high = self.interval(level)
        axes.fill_between(ahead, low[i], high[i], color=COLORS[1], alpha=0.15, linewidth=0)
        axes.plot(ahead, self.power[i], color=COLORS[1], label=f"forecast, {level:.0%} interval")
        if released is not None:
            axes.plot(ahead, self.to_power(released), color=COLORS[0], linewidth=2.5, label="released")
        axes.set_xlabel("hours from the forecast's origin")
        axes.set_ylabel("kW")
        axes.set_ylim(bottom=None if self.exports[i] else 0)
        axes.legend(frameon=False)
        return axes

    @property
    def origin(self) -> datetime:
        """End of the training window and first instant of the horizon."""
        first = self.timestamps[0]
        assert isinstance(first, datetime)
        return first

    @property
    def horizon(self) -> int:
        return int(self.log_mean.shape[1])

    def classes(self, query: str = "point", *, unit: str = "log") -> GaussianClasses:
        """Class laws in log power; ``query`` is ``"point"``, ``"trajectory"``, ``"marginal"`` or ``"as_in_paper"``.

        The constants of ``"point"`` can be had in kW as well: ``unit="kw"``.
        What each releases, what is random and what the attacker may know is written in ``queries``.

        Returns:
            One law per household over the horizon: a constant for ``"point"``, N(conditional mean, prediction-error
            covariance) for ``"trajectory"``, N(seasonal mean, covariance of the conditional mean) for ``"marginal"``.

        >>> import shoal
        >>> readings = shoal.simulate_meters(4, 8, step_minutes=60)
        >>> forecasts = shoal.forecast(readings, order=(1, 1), train_days=7, horizon=3, season="day")
        >>> forecasts.classes("point")
        GaussianClasses(4 labels, 3 entries, shared diagonal covariance)
        >>> forecasts.classes("trajectory")
        GaussianClasses(4 labels, 3 entries, full covariance)
        """
        if self._in_power(query, unit):
            return GaussianClasses.deterministic(self.power, self.households)
        return queries.classes(self, query)

    def answer(self, query: str = "point", normals: FloatArray | None = None, *, unit: str = "log") -> FloatArray:
        """(n, h) the answers in ln kW, or kW, that go into the mechanism; see ``queries.answer``."""
        return self.power if self._in_power(query, unit) else queries.answer(self, query, normals)

    @property
    def exports(self) -> NDArray[np.bool_]:
        """(n,) the homes with readings below zero, whose laws are on a scale of their own."""
        return np.asarray(self.season.scale > 0)

    def _in_power(self, query: str, unit: str) -> bool:
        """Constants may be released in any unit; laws in log power are Gaussian there alone."""
        validation.choice(tuple(queries.QUERIES), query=query)
        if validation.choice(UNITS, unit=unit) == "kw" and query != "point":
            raise InputError("unit 'kw' is for the query 'point': other answers have Gaussian laws in log power alone")
        if unit == "log" and self.exports.any():
            raise InputError(
                f"unit: {int(self.exports.sum())} homes export, and there is no logarithm of what is below zero; take "
                "classes('point', unit='kw'), or forecast(..., export=False)"
            )
        return unit == "kw"

    def to_power(self, log_values: Any) -> FloatArray:
        """ln kW, as released, back to kW: exp, entry by entry.

        Args:
            log_values: (..., h) values in ln kW.

        Returns:
            Values in kW, in the same shape.

        >>> import shoal
        >>> readings = shoal.simulate_meters(4, 8, step_minutes=60)
        >>> forecasts = shoal.forecast(readings, order=(1, 1), train_days=7, horizon=3, season="day")
        >>> forecasts.to_power([0.0, 0.0, 0.0]).tolist()
        [1.0, 1.0, 1.0]
        """
        values = np.asarray(log_values, dtype=np.float64)
        if values.shape[-1:] != (self.horizon,):
            raise InputError(f"log_values must have {self.horizon} entries in its last dimension, one per step")
        return np.asarray(np.exp(values))

    @property
    def power(self) -> FloatArray:
        """(n, h) point forecast in kW, the mean on the home's scale turned back: the median of the predictive law."""
        return self.season.power(self.log_mean)

    def error_std(self, *, season_error: bool = False) -> FloatArray:
        """(n, h) standard deviation of ln p given the history; with ``season_error``, of the season's estimate too.

        ``error_cov`` takes the season for known. See :meth:`shoal.sources.meters.season.Season.inflation`.
        """
        variance = np.diagonal(self.error_cov, axis1=1, axis2=2)
        if season_error:
            variance = variance * self.season.inflation(phases(self.timestamps, self.season.period, self.step))
        return np.asarray(np.sqrt(variance))

    def interval(self, level: float = 0.9, *, season_error: bool = False) -> tuple[FloatArray, FloatArray]:
        """Lower and upper end (n, h), in kW, of the central predictive interval of each entry."""
        level = validation.probability(level=level, below_one=True, above_zero=True)
        reach = float(scipy.stats.norm.ppf(0.5 + level / 2)) * self.error_std(season_error=season_error)
        return self.season.power(self.log_mean - reach), self.season.power(self.log_mean + reach)

    def facts(self, graph: NeighborGraph | None) -> FitFacts:
        """What a release card says about these forecasts and who hides among whom."""
        from shoal.sources.meters.answered import facts_of

        return facts_of(self, graph)

    def accuracy(self, mechanism: Mechanism, *, unit: str = "log") -> Accuracy:
        """Errors of what a mechanism releases of these forecasts, in kW; ``unit`` is that of its answers."""
        if self.households != mechanism.classes.labels:
            raise InputError("forecasts must be of the mechanism's labels, in the same order")
        from shoal.sources.meters.answered import power_accuracy

        return power_accuracy(mechanism, unit)

    def observations(self, labels: Sequence[str]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What the law of each label rests on, for :func:`shoal.model_guard`.

        Repeats of the season behind the mean, degrees of freedom of the covariance (readings less parameters fitted),
        and the covariance of one observation.
        """
        place = {name: i for i, name in enumerate(self.households)}
        if not set(labels) <= set(place):
            raise InputError("training must hold a forecast for every label of the mechanism")
        rows = np.array([place[name] for name in labels])
        ahead = phases(self.timestamps, self.season.period, self.step)
        repeats = np.maximum(self.season.repeats[rows][:, ahead].min(axis=1), 1)
        fitted = self.season.profile.shape[1] + sum(self.models.order) + 1
        degrees = self.models.n_obs[rows] - fitted
        spread = self.error_cov[rows] + self.mean_cov[rows]
        return repeats.astype(np.float64), degrees.astype(np.float64), np.asarray(spread)

    def take(self, rows: Any, left_out: Mapping[str, str]) -> Forecasts:
        """The forecasts of some households, by position; ``left_out`` says why the others are gone."""
        keep = np.asarray(rows)
        names = tuple(self.households[i] for i in keep)
        checks: dict[str, Any] = {name: getattr(self.checks, name)[keep] for name in MEASURES}
        whole: dict[str, Any] = {name: getattr(self, name) for name in (*LAWS, "recent")}
        rows_of: dict[str, Any] = {name: None if value is None else value[keep] for name, value in whole.items()}
        return replace(
            self,
            households=names,
            season=self.season.take(keep),
            models=self.models.take(keep),
            checks=replace(self.checks, households=names, **checks),
            left_out={**self.left_out, **left_out},
            **rows_of,
        )

    def save(self, path: str | Path) -> None:
        """Write a versioned file without pickle; see :mod:`shoal.sources.meters.forecast_file`."""
        from shoal.sources.meters.forecast_file import save_forecasts

        save_forecasts(self, path)

    @staticmethod
    def load(path: str | Path) -> Forecasts:
        """Read a file that :meth:`save` wrote; a damaged or altered one is refused."""
        from shoal.sources.meters.forecast_file import load_forecasts

        return load_forecasts(path)


def forecast(
    readings: Readings | pl.DataFrame,
    order: tuple[int, int] = (6, 5),
    train_days: int = 15,
    horizon: int = 12,
    season: str = "week",
    origin: datetime | str | None = None,
    floor: float = FLOOR,
    progress: Callable[[int, int], None] | None = None,
    *,
    export: bool = False,
) -> Forecasts:
    """Fit every household on the days before ``origin`` and predict the ``horizon`` steps from it on.

    x = ln max(p, floor) − seasonal mean is modeled as a zero-mean Gaussian ARMA process, fitted by exact maximum
    likelihood with missing readings skipped (paper, sections "ARMA forecasts" and "Application to power measurements
    data"). A household that cannot be fitted is reported in ``left_out`` and does not stop the others.

    Args:
        readings: a frame with household, timestamp, kw, or the :class:`Readings` of ``meter_readings``, whose
            quality table then travels along in full.
        order: (p, q) of the ARMA model.
        train_days: length of the training window, which ends at ``origin``.
        horizon: steps to predict.
        season: ``"week"`` or ``"day"``: what the seasonal mean repeats with. A week in two weeks of training is
            seen twice, which makes predictive intervals too narrow; see :mod:`shoal.sources.meters.season`.
        origin: first instant to predict; by default right after the last readings. Text is ISO 8601.
        floor: kW below which power is set to the floor before the logarithm.
        progress: called with (households fitted, households to fit).
        export: whether homes with readings below zero are forecast too, on a scale that allows it; their answers are
            then in kW alone, as a run by label has them. By default readings below zero count as missing.

    Returns:
        The predictive laws in ln kW, with models, checks, quality and who was left out.

    >>> import shoal
    >>> readings = shoal.simulate_meters(4, 8, step_minutes=60)
    >>> forecasts = shoal.forecast(readings, order=(1, 1), train_days=7, horizon=3, season="day")
    >>> forecasts
    Forecasts(4 households, 3 steps from 2024-01-09 00:00:00)
    """
    p, q = _order(order)
    train_days = validation.count(train_days=train_days)
    horizon = validation.count(horizon=horizon)
    days = PERIODS[validation.choice(tuple(PERIODS), season=season)]
    floor = validation.positive(floor=floor)
    if train_days < 2 * days:
        raise InputError(f"train_days must be at least {2 * days} for season={season!r}: two repeats of each phase")
    data = window.as_readings(readings)
    length = train_days * int(timedelta(days=1) / data.step)
    least = max(10 * (p + q + 1), 4 * max(LAGS, p + q + 2))
    if length < least:
        raise InputError(f"order does not fit: ({p}, {q}) needs {least} training readings, train_days gives {length}")
    at = window.place_origin(data, origin)
    return forecast_window(
        data,
        window.cut(data, at, -length),
        at=at,
        order=(p, q),
        horizon=horizon,
        season=season,
        floor=floor,
        train_days=train_days,
        export=export,
        progress=progress,
    )


def forecast_window(
    data: Readings,
    past: window.TrainingWindow,
    *,
    at: int,
    order: tuple[int, int],
    horizon: int,
    season: str,
    floor: float,
    train_days: int,
    export: bool,
    progress: Callable[[int, int], None] | None = None,
) -> Forecasts:
    """Fit the homes of a training window that ends at ``at``, microseconds of the epoch, and predict from there."""
    if horizon > past.kw.shape[1]:
        raise InputError(f"horizon must not exceed the training window of {past.kw.shape[1]} steps")
    below = np.zeros(len(past.households), dtype=np.int64)
    if not export:
        below = (past.kw < 0).sum(axis=1)
        past = replace(past, kw=np.where(past.kw < 0, np.nan, past.kw))
    reasons = _unfit(past, past.kw.shape[1], floor, train_days, below)
    rows, profile, x = _prepared(past, season, data.step, floor, train_days, reasons)
    models = fit_arma(x, order=order, progress=progress)
    for i in np.flatnonzero(~models.ok):
        reasons[past.households[rows[i]]] = f"model not fitted: {models.status[i]}"
    fitted = np.flatnonzero(models.ok)
    if not len(fitted):
        raise InputError(f"order does not fit: no household's model of order {order} could be estimated")
    rows, profile, models, x = rows[fitted], profile.take(fitted), models.take(fitted), x[fitted]
    names = tuple(past.households[i] for i in rows)
    ahead = predict(models, x, horizon)
    future = window.stamps(at, data.step, horizon, data.time_zone)
    part = profile.at(phases(future, profile.period, data.step))
    checks = check_models(ahead.innovations, sum(order), names)
    known = set(past.households)
    return Forecasts(
        households=names,
        timestamps=future,
        log_mean=part + ahead.mean,
        error_cov=ahead.cov,
        mean_cov=ahead.mean_cov,
        season_part=part,
        season=profile,
        models=models,
        checks=checks,
        quality=_account(data, past, names, reasons, profile, models, checks),
        left_out={name: why for name, why in data.left_out.items() if name not in known} | dict(reasons),
        step=data.step,
        train_days=train_days,
        recent=past.kw[rows][:, -int(timedelta(days=1) / data.step) :],
        history=past,
    )


def _prepared(
    past: window.TrainingWindow, season: str, step: timedelta, floor: float, train_days: int, reasons: dict[str, str]
) -> tuple[NDArray[np.int64], Season, FloatArray]:
    """Rows, season and x of the households of a training window that can be modeled; adds why others cannot."""
    length = past.kw.shape[1]
    rows = np.array([i for i, name in enumerate(past.households) if name not in reasons], dtype=np.int64)
    if not len(rows):
        seen = int(np.isfinite(past.kw).sum(axis=1).max(initial=0))
        days = int(seen * step / timedelta(days=1) / LEAST_OBSERVED)
        enough = f"; train_days {days} would do" if 1 <= days < train_days else ""
        raise InputError(
            f"readings: no household can be fitted. train_days={train_days} needs {length} readings before origin "
            f"(at least {LEAST_OBSERVED:.0%} of them); the fullest household has {seen}, or is constant{enough}"
        )
    phase = phases(past.timestamps, season, step)
    profile = fit_season(past.kw[rows], phase, period=season, step=step, floor=floor)
    x = profile.remove(past.kw[rows], phase)
    varies = np.nanstd(x, axis=1) > FLAT
    reasons |= {past.households[i]: "no variation beyond the season" for i in rows[~varies]}
    if not varies.any():
        raise InputError("readings: no household varies beyond its season in the training window")
    return rows[varies], profile.take(np.flatnonzero(varies)), x[varies]


def joined_forecasts(parts: Sequence[Forecasts]) -> Forecasts:
    """Forecasts of one origin and one kind as one, without their training windows."""
    first = parts[0]
    names = tuple(name for part in parts for name in part.households)
    checks: dict[str, Any] = {name: np.concatenate([getattr(part.checks, name) for part in parts]) for name in MEASURES}
    season = replace(
        first.season,
        profile=np.concatenate([part.season.profile for part in parts]),
        repeats=np.concatenate([part.season.repeats for part in parts]),
        scale=np.concatenate([part.season.scale for part in parts]),
    )
    recent = None
    if all(part.recent is not None for part in parts):
        recent = np.concatenate([part.recent for part in parts if part.recent is not None])
    laws: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in LAWS}
    return replace(
        first,
        households=names,
        season=season,
        models=ArmaModels.joined([part.models for part in parts]),
        checks=replace(first.checks, households=names, **checks),
        quality=pl.concat([part.quality for part in parts], how="diagonal_relaxed"),
        left_out={},
        recent=recent,
        history=None,
        **laws,
    )


def _order(order: Any) -> tuple[int, int]:
    try:
        p, q = order
    except (TypeError, ValueError) as error:
        raise InputError("order must be two whole numbers (p, q)") from error
    p, q = validation.count(at_least=0, order=p), validation.count(at_least=0, order=q)
    if p + q == 0:
        raise InputError("order must have at least one coefficient")
    return p, q


def _unfit(
    past: window.TrainingWindow, length: int, floor: float, train_days: int, below: NDArray[np.int64]
) -> dict[str, str]:
    """Households that the training window rules out, with the reason; homes with the same trouble have the same text.

    ``below`` counts readings below zero that are missing from the window, because export was not asked for.
    """
    seen = np.isfinite(past.kw)
    count = seen.sum(axis=1)
    least = LEAST_OBSERVED * length
    exports = export_scale(past.kw, floor)[:, None] > 0
    floored = np.where(exports, past.kw, np.maximum(past.kw, floor))
    flat = np.where(seen, floored, -np.inf).max(axis=1) <= np.where(seen, floored, np.inf).min(axis=1)
    reasons: dict[str, str] = {}
    for i in np.flatnonzero((count < least) | flat):
        name = past.households[i]
        if count[i] >= least:
            reasons[name] = "constant in the training window, or below the floor throughout"
        elif count[i] + below[i] >= least:
            reasons[name] = (
                f"below zero too often (export?): fewer than {LEAST_OBSERVED:.0%} of the readings of {train_days} days "
                "are consumption"
            )
        else:
            reasons[name] = (
                f"too short a history: fewer than {LEAST_OBSERVED:.0%} of the {length} readings that {train_days} days "
                "need"
            )
    return reasons


def _account(
    data: Readings,
    past: window.TrainingWindow,
    fitted: tuple[str, ...],
    reasons: Mapping[str, str],
    profile: Season,
    models: ArmaModels,
    checks: Checks,
) -> pl.DataFrame:
    """The quality table of the readings with what the training window and the model add to it.

    trained and floored count readings of the window; borrowed counts phases without a reading; fit names the model of
    the fallback order that was used, "full" being the one asked for; model is the verdict of the checks.
    """
    seen = np.isfinite(past.kw)
    with np.errstate(invalid="ignore"):
        floored = ((past.kw < profile.floor) & ~(export_scale(past.kw, profile.floor)[:, None] > 0)).sum(axis=1)
    trained = pl.DataFrame(
        {
            "household": list(past.households),
            "trained": seen.sum(axis=1),
            "floored": floored,
            "dropped": [reasons.get(name) for name in past.households],
        },
        schema_overrides={"dropped": pl.String},
    )
    modeled = pl.DataFrame(
        {
            "household": list(fitted),
            "borrowed": (profile.repeats == 0).sum(axis=1),
            "fit": models.status.tolist(),
            "model": list(checks.verdict),
        }
    )
    table = data.quality.join(trained, on="household", how="left").join(modeled, on="household", how="left")
    return table.with_columns(
        verdict=pl.when(pl.col("dropped").is_not_null()).then(pl.lit("left out")).otherwise(pl.col("verdict")),
        reason=pl.coalesce("dropped", "reason"),
    ).drop("dropped")


# ------------------------------------------------------------------ the next day


def update_forecasts(
    forecasts: Forecasts,
    readings: Readings | pl.DataFrame,
    *,
    origin: datetime | str | None = None,
    horizon: int | None = None,
    export: bool = False,
) -> tuple[Forecasts, frozenset[str]]:
    """Forecasts at a later origin from those of an earlier one and the readings since.

    Forecasts keep the readings of their training window (``Forecasts.history``). New readings move that window to a
    later origin, and every home is fitted on it. Nothing else is carried along: the result is, to the last bit, what
    :func:`shoal.forecast` computes at that origin from all readings, whatever the days in between.

    Order, season, floor and training days stay those of ``forecasts``. Homes are left out for the same reasons as in
    :func:`shoal.forecast`; one without new readings is forecast across the gap while enough of its window is left, and
    one that is new is fitted as soon as its readings suffice.

    Args:
        forecasts: made by :func:`shoal.forecast` or by this function.
        readings: the readings since the old origin; older ones may be among them and then replace those stored.
        origin: first instant to predict; by default right after the last readings, as in :func:`shoal.forecast`.
        horizon: steps to predict; by default as many as before.
        export: as in :func:`shoal.forecast`, which made the forecasts.

    Returns:
        The new forecasts, and the homes with news: those with a reading between the old origin and the new one.

    >>> from datetime import datetime
    >>> import shoal
    >>> readings = shoal.simulate_meters(4, 8, step_minutes=60)
    >>> before = readings.filter(readings["timestamp"] < datetime(2024, 1, 8))
    >>> old = shoal.forecast(before, order=(1, 1), train_days=7, horizon=3, season="day")
    >>> new, news = shoal.update_forecasts(old, readings, horizon=6)
    >>> new.origin - old.origin, new.horizon, len(news)
    (datetime.timedelta(days=1), 6, 4)
    """
    if forecasts.history is None:
        raise InputError("forecasts hold no training window to go on from; make them with forecast()")
    horizon = forecasts.horizon if horizon is None else validation.count(horizon=horizon)
    data = readings if isinstance(readings, Readings) else repair(readings, interval=forecasts.step)
    zone = getattr(forecasts.timestamps.dtype, "time_zone", None)
    if data.step != forecasts.step:
        raise InputError(f"readings must come every {forecasts.step}, as those that the forecasts were made from")
    if data.time_zone != zone:
        raise InputError(f"readings must have timestamps in the zone of the forecasts ({zone}), not {data.time_zone}")
    at = window.place_origin(data, origin)
    steps, rest = divmod(at - int(forecasts.timestamps.dt.epoch("us")[0]), data.step // window.MICROSECOND)
    if rest:
        raise InputError("readings must lie on the grid of those that the forecasts were made from")
    if steps <= 0:
        raise InputError("origin must lie after that of the forecasts: the readings hold nothing new")
    past, news = _moved(forecasts.history, data, at, steps, export)
    moved = forecast_window(
        _accounted(data, past),
        past,
        at=at,
        order=forecasts.models.order,
        horizon=horizon,
        season=forecasts.season.period,
        floor=forecasts.season.floor,
        train_days=forecasts.train_days,
        export=export,
    )
    return moved, news


def _moved(
    history: window.TrainingWindow, data: Readings, at: int, steps: int, export: bool
) -> tuple[window.TrainingWindow, frozenset[str]]:
    """The training window before ``at``, new readings winning over stored ones; and the homes with new readings."""
    length = history.kw.shape[1]
    new = window.cut(data, at, -max(length, steps))
    names = np.array(sorted({*history.households, *new.households}), dtype=object)
    kw = np.full((len(names), length), np.nan)
    overlap = max(length - steps, 0)
    if history.households:
        stored = np.searchsorted(names, np.array(history.households, dtype=object))
        kw[stored, :overlap] = history.kw[:, length - overlap :]
    news: frozenset[str] = frozenset()
    if new.households:
        rows = np.searchsorted(names, np.array(new.households, dtype=object))
        kw[rows] = np.where(np.isfinite(new.kw[:, -length:]), new.kw[:, -length:], kw[rows])
        recent = np.asarray((new.kw[:, -steps:] >= (-np.inf if export else 0.0)).any(axis=1))
        news = frozenset(name for name, has in zip(new.households, recent.tolist(), strict=True) if has)
    present = np.isfinite(kw).any(axis=1)
    return window.TrainingWindow(tuple(names[present].tolist()), new.timestamps[-length:], kw[present]), news


def _accounted(data: Readings, past: window.TrainingWindow) -> Readings:
    """Readings whose quality table has a row for every home of the window, also for those without new readings.

    A home that only these readings leave out is not left out of the window for it.
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
