"""Predictive laws of many households, and what can be asked of them.

For a forecast from a household's own history x° three laws are sound, each against its attacker (docs/theory.md,
section 7), and the one in the paper is not:

| query | released, through the mechanism | law of the answer given the household |
| --- | --- | --- |
| ``point`` | the point forecast E[x^f | x°] | a constant |
| ``trajectory`` | one draw from the predictive law | N(E[x^f | x°], Σ^f − Σ^{fo}(Σ^o)⁻¹Σ^{of}) |
| ``marginal`` | the point forecast | N(μ^f, Σ^{fo}(Σ^o)⁻¹Σ^{of}), the history being random too |
| ``as_in_paper`` | the point forecast | accounted as ``trajectory``: does not match the release |

Everything is in log power, season included; exp is a bijection and changes no privacy loss.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal import validation
from shoal.arma.fit import ArmaModels
from shoal.arma.predict import InnovationChecks
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.numerics.eigenpairs import eigh
from shoal.product.card.facts import Accuracy, FitFacts, ModelChecks
from shoal.product.card.measures import accuracy_facts
from shoal.product.sources.frames import load_record, save_record
from shoal.product.sources.meters.quality import TrainingWindow
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.mechanism.mechanism import Mechanism

#: Period name -> its days; a phase is a position in it.
PERIODS = {"day": 1, "week": 7}

#: A home with at least this share of its readings below zero exports; fewer are set to the floor, as zeros are.
LEAST_EXPORT = 0.01

#: kW; half of the coarse step of common meters (0.01 kWh in 15 minutes = 0.04 kW).
FLOOR = 0.02


@dataclass(frozen=True, repr=False)
class Season:
    """Mean log profile of each household over one period.

    ``profile`` (n, n_phases) in ln kW; ``repeats`` (n, n_phases) readings behind each entry, zero where the phase
    was never seen and the profile was borrowed from the same time on other days, or from the overall mean.
    """

    period: str
    floor: float
    profile: FloatArray
    repeats: NDArray[np.int64]
    scale: FloatArray  #: (n,) s of homes that export, kW; 0 for those on the logarithm

    def residuals(self, kw: FloatArray, phase: NDArray[np.int64]) -> FloatArray:
        """(n, T) what is left of kW at the given phases (T,), on the scale of each home, without its seasonal mean."""
        return np.asarray(on_home_scale(kw, self.floor, self.scale) - self.profile[:, phase], dtype=np.float64)

    def to_kilowatts(self, values: FloatArray) -> FloatArray:
        """(n, h) kW from values on the scale of each home."""
        s = self.scale[:, None]
        with np.errstate(over="ignore"):
            return np.asarray(np.where(s > 0, s * np.sinh(values), np.exp(values)), dtype=np.float64)


def log_power(kw: FloatArray, floor: float) -> FloatArray:
    """Natural logarithm of power, which is at least ``floor``; NaN stays NaN."""
    return np.asarray(np.log(np.maximum(kw, floor)), dtype=np.float64)


def export_scale(kw: FloatArray, floor: float) -> FloatArray:
    """(n,) the scale s of homes that export, from (n, T) readings of their own; 0 for all others."""
    seen = np.isfinite(kw)
    exports = (kw < 0).sum(axis=1) >= LEAST_EXPORT * np.maximum(seen.sum(axis=1), 1)
    scale = np.zeros(len(kw))
    if exports.any():
        scale[exports] = np.maximum(np.nanmedian(np.abs(kw[exports]), axis=1), floor)
    return scale


def on_home_scale(kw: FloatArray, floor: float, scale: FloatArray) -> FloatArray:
    """(n, T) readings on the scale of each home: ln max(p, floor), or asinh(p/s) where its s is above zero."""
    s = scale[:, None]
    return np.where(s > 0, np.arcsinh(kw / np.where(s > 0, s, 1.0)), log_power(kw, floor))


def phase_numbers(timestamps: pl.Series, period: str, step: timedelta) -> NDArray[np.int64]:
    """Number of the step in the day or week of each instant, on the wall clock of its zone."""
    width, clock = int(step / timedelta(seconds=1)), timestamps.dt
    second = clock.hour().cast(int) * 3600 + clock.minute().cast(int) * 60 + clock.second().cast(int)
    slot = second.to_numpy().astype(np.int64) // width
    if PERIODS[period] == 1:
        return slot
    return np.asarray((clock.weekday().to_numpy().astype(np.int64) - 1) * (86400 // width) + slot, dtype=np.int64)


def fit_season(
    kw: FloatArray, phase: NDArray[np.int64], *, period: str, step: timedelta, floor: float = FLOOR
) -> Season:
    """Fit mean log profiles to (n, T) training readings at phases (T,); NaN entries do not count."""
    per_day = int(timedelta(days=1) / step)
    total = per_day * PERIODS[period]
    scale = export_scale(kw, floor)
    logs = on_home_scale(kw, floor, scale)
    profile, repeats = phase_means(logs, phase, total)
    empty = repeats == 0
    if empty.any():
        by_day, _ = phase_means(logs, phase % per_day, per_day)
        seen = np.isfinite(logs)
        overall = np.where(seen, logs, 0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        borrowed = np.where(np.isnan(by_day), overall[:, None], by_day)[:, np.arange(total) % per_day]
        profile = np.where(empty, borrowed, profile)
    return Season(period, floor, profile, repeats, scale)


def phase_means(values: FloatArray, phase: NDArray[np.int64], total: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """(n, total) means of finite entries by phase, NaN where there are none, and their numbers.

    Entries are added in the order of time, home by home: the sums do not depend on which homes are in one array.
    """
    n = len(values)
    seen = np.isfinite(values)
    flat = (np.arange(n)[:, None] * total + phase[None, :]).ravel()
    repeats = np.bincount(flat, weights=seen.ravel(), minlength=n * total).reshape(n, total)
    sums = np.bincount(flat, weights=np.where(seen, values, 0.0).ravel(), minlength=n * total).reshape(n, total)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.where(repeats > 0, repeats, np.nan)), repeats.astype(np.int64)


Kind = TypeVar("Kind", Season, ArmaModels, InnovationChecks, "Forecasts")

QUERIES = ("point", "trajectory", "marginal", "as_in_paper")
#: Name and version of the file format.
FORMAT, VERSION = "shoal forecasts", 5
#: Negative eigenvalues of a correlation matrix below this share of the largest are taken for rounding.
ROUNDING = 1e-7


class AccountingWarning(UserWarning):
    """The law that is accounted for is not the law of what is released."""


@dataclass(frozen=True, repr=False)
class Forecasts:
    """Predictive laws of many households over one horizon, in ln kW, and how they came about.

    Of homes that export (``exports``), laws are on the scale asinh(p/s) instead
    (:mod:`shoal.product.sources.meters.predictive_laws`); ``power`` and ``interval`` are in kW for all.
    """

    households: tuple[str, ...]
    timestamps: pl.Series  #: (h,) instants of the horizon; the first is the origin
    log_mean: FloatArray  #: (n, h) E[ln p | history]
    error_cov: FloatArray  #: (n, h, h) covariance of ln p given the history
    mean_cov: FloatArray  #: (n, h, h) covariance of the conditional mean over histories
    season_part: FloatArray  #: (n, h) seasonal mean, the expectation before any history is seen
    season: Season
    models: ArmaModels
    checks: InnovationChecks
    quality: pl.DataFrame  #: one row per household read, those left out included
    left_out: Mapping[str, str]  #: household -> reason
    step: timedelta
    train_days: int
    history: TrainingWindow  #: of every household read, those left out included

    def __repr__(self) -> str:
        """Sizes only: a printed object must not release readings."""
        return f"Forecasts({len(self.households)} households, {self.horizon} steps from {self.origin})"

    @property
    def origin(self) -> datetime:
        """End of the training window and first instant of the horizon."""
        first = self.timestamps[0]
        assert isinstance(first, datetime)
        return first

    @property
    def horizon(self) -> int:
        """Number of steps that are forecast."""
        return int(self.log_mean.shape[1])

    @property
    def exports(self) -> NDArray[np.bool_]:
        """(n,) whether a home has readings below zero, so that its laws are on a scale of its own."""
        return np.asarray(self.season.scale > 0)

    @property
    def training_kw(self) -> FloatArray:
        """(n, T) readings of the training window in kW; NaN where missing."""
        place = {name: i for i, name in enumerate(self.history.households)}
        return self.history.kw[[place[name] for name in self.households]]

    @property
    def last_day_kw(self) -> FloatArray:
        """(n, steps of a day) readings of the day before the origin in kW; NaN where missing."""
        return self.training_kw[:, -int(timedelta(days=1) / self.step) :]

    def classes(self, query: str = "point", *, unit: str = "log") -> GaussianClasses:
        """Class laws in log power; ``query`` is ``"point"``, ``"trajectory"``, ``"marginal"`` or ``"as_in_paper"``.

        The constants of ``"point"`` can be had in kW as well: ``unit="kw"``. What each releases, what is random and
        what the attacker may know is written in :mod:`shoal.product.sources.meters.predictive_laws`.

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
        in_power = self._is_in_kilowatts(query, unit)
        if query == "point":
            return GaussianClasses.deterministic(self.power if in_power else self.log_mean, self.households)
        if query == "marginal":
            return GaussianClasses(self.season_part, clip_to_semidefinite(self.mean_cov), self.households)
        if query == "as_in_paper":
            warnings.warn(
                "query='as_in_paper' accounts for the prediction error as if it were released; what is released is the "
                "point forecast, which leaks more. Use 'point', 'trajectory' or 'marginal' for a guarantee.",
                AccountingWarning,
                stacklevel=2,
            )
        return GaussianClasses(self.log_mean, clip_to_semidefinite(self.error_cov), self.households)

    def answer(self, query: str = "point", normals: FloatArray | None = None, *, unit: str = "log") -> FloatArray:
        """(n, h) true answers in ln kW, or kW, that go into the mechanism.

        ``"trajectory"`` turns standard ``normals`` (n, h) into draws. The draw is part of the secret: for a real
        release its normals come from the same cryptographic source as the mechanism's noise, and a repeated question
        gets the stored draw again.
        """
        if self._is_in_kilowatts(query, unit):
            return self.power
        if query != "trajectory":
            return self.log_mean
        z = None if normals is None else validation.array(ndim=2, normals=normals)
        if z is None or z.shape != self.log_mean.shape:
            raise InputError(
                f"normals must hold standard normal draws of shape {self.log_mean.shape} for query='trajectory'"
            )
        values, vectors = eigh(self.error_cov)
        root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
        return np.asarray(self.log_mean + np.einsum("nij,nj->ni", root, z), dtype=np.float64)

    def _is_in_kilowatts(self, query: str, unit: str) -> bool:
        """Whether answers are in kW, as only constants may be: other laws are Gaussian in log power alone."""
        validation.choice(QUERIES, query=query)
        if validation.choice(("log", "kw"), unit=unit) == "kw" and query != "point":
            raise InputError("unit 'kw' is for the query 'point': other answers have Gaussian laws only in log power")
        if unit == "log" and self.exports.any():
            raise InputError(
                f"unit: {int(self.exports.sum())} homes export, and there is no logarithm of what is below zero; take "
                "classes('point', unit='kw'), or forecast(..., export=False)"
            )
        return unit == "kw"

    def to_power(self, log_values: Any) -> FloatArray:
        """Convert released values from ln kW to kW: exp, entry by entry.

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
        return self.season.to_kilowatts(self.log_mean)

    @property
    def error_std(self) -> FloatArray:
        """(n, h) standard deviation of ln p given the history; the season counts as known."""
        return np.asarray(np.sqrt(np.diagonal(self.error_cov, axis1=1, axis2=2)))

    def facts(self) -> FitFacts:
        """Facts for a release card: how many have a forecast, and whose model holds."""
        holds, n = np.array(list(self.checks.holds.values())), len(self.households)
        gaussian, white, stationary = (int(answers.sum()) for answers in holds)
        checks = ModelChecks(gaussian, white, stationary, all_three=int(holds.all(axis=0).sum()), of=n)
        return FitFacts(labels=n, noun="household", checks=checks)

    def estimation_basis(self, labels: Sequence[str]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Repeats, degrees of freedom and covariances behind the law of each label, for :func:`shoal.model_guard`.

        Repeats of the season behind the mean, degrees of freedom of the covariance (readings less parameters fitted),
        and the covariance of one observation.
        """
        place = {name: i for i, name in enumerate(self.households)}
        if not set(labels) <= set(place):
            raise InputError("training must hold a forecast for every label of the mechanism")
        rows = np.array([place[name] for name in labels])
        ahead = phase_numbers(self.timestamps, self.season.period, self.step)
        repeats = np.maximum(self.season.repeats[rows][:, ahead].min(axis=1), 1)
        fitted = self.season.profile.shape[1] + sum(self.models.order) + 1
        degrees = self.models.n_obs[rows] - fitted
        spread = self.error_cov[rows] + self.mean_cov[rows]
        return repeats.astype(np.float64), degrees.astype(np.float64), np.asarray(spread)

    def take(self, rows: Any) -> Forecasts:
        """The forecasts of the households at these positions."""
        part = map_arrays([self], lambda arrays: arrays[0][np.asarray(rows)])
        return replace(part, households=tuple(self.households[i] for i in rows))

    def save(self, path: str | Path) -> None:
        """Write a versioned file without pickle.

        It holds the readings of the training window, from which the next day's forecasts are made
        (``update_forecasts``): guard it like them.
        """
        save_record(self, path, FORMAT, VERSION)

    @staticmethod
    def load(path: str | Path) -> Forecasts:
        """Read a file that :meth:`save` wrote; a damaged or altered one is refused."""
        return load_record(Forecasts, path, FORMAT, VERSION)


def join_forecasts(parts: Sequence[Forecasts]) -> Forecasts:
    """Join forecasts of different households at one origin, with the last day of their training windows."""
    first = parts[0]
    names = tuple(name for part in parts for name in part.households)
    recent = np.concatenate([part.last_day_kw for part in parts])
    return replace(
        map_arrays(parts, np.concatenate),
        households=names,
        quality=pl.concat([part.quality for part in parts], how="diagonal_relaxed"),
        left_out={},
        history=TrainingWindow(names, first.history.timestamps[-recent.shape[1] :], recent),
    )


def map_arrays(parts: Sequence[Kind], change: Callable[[list[Any]], Any]) -> Kind:
    """The first record, with ``change`` of the list of all records' arrays in the place of each array.

    Those of forecasts' season, models and checks are among them; readings of the training window stay as they are.
    """
    arrays: dict[str, Any] = {}
    for name in (one.name for one in fields(parts[0])):
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], np.ndarray):
            arrays[name] = change(values)
        elif isinstance(values[0], Season | ArmaModels | InnovationChecks):
            arrays[name] = map_arrays(values, change)
    return replace(parts[0], **arrays)


def clip_to_semidefinite(covs: FloatArray) -> FloatArray:
    """(n, k, k) covariances without the slightly negative eigenvalues that rounding leaves in singular ones.

    Anything larger is left to be refused.
    """
    covs = 0.5 * (covs + np.swapaxes(covs, 1, 2))
    std = np.sqrt(np.maximum(np.diagonal(covs, axis1=1, axis2=2), 0))
    scale = np.where(std > 0, std, 1.0)
    outer = scale[:, :, None] * scale[:, None, :]
    values, vectors = eigh(covs / outer)
    rounding = (values[:, 0] < 0) & (values[:, 0] > -ROUNDING * values[:, -1])
    root = vectors[rounding] * np.sqrt(np.maximum(values[rounding], 0))[:, None, :]
    covs[rounding] = root @ np.swapaxes(root, 1, 2) * outer[rounding]
    return np.asarray(covs, dtype=np.float64)


def absolute_errors(truth: FloatArray, power: FloatArray) -> tuple[int, float]:
    """Number of entries whose truth is known, and the sum of the absolute errors there in kW."""
    known = np.isfinite(truth) & np.isfinite(power)
    return int(known.sum()), float(np.abs(power - truth)[known].sum())


def power_accuracy(mechanism: Mechanism) -> Accuracy:
    """Errors in kW of released power against the true answer, for a mechanism whose answers are in log power.

    The change η = shift + gain (q − μ) + noise has mean shift, variance diag(G Σ Gᵀ + N) and covariance diag(Σ Gᵀ) with
    the answer; :func:`power_error` has the rest.
    """
    means = mechanism.classes.means
    n, k = means.shape
    covs = np.broadcast_to(mechanism.classes.stored_covs, (n, k, k))
    together = 0.0 if mechanism.gain is None else np.diagonal(mechanism.gain @ covs, axis1=1, axis2=2)
    variance = np.diagonal(covs, axis1=1, axis2=2)
    bias, mse = power_error(means, mechanism.bias, mechanism.error_variance, log_var=variance, log_noise_cov=together)
    return accuracy_facts(mechanism, unit="kW", powers=(mse, bias, np.exp(means)))


def power_error(
    log_mean: FloatArray, noise_mean: Any, noise_var: Any, *, log_var: Any = 0.0, log_noise_cov: Any = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Bias E p̃ − p in kW and mean squared error E (p̃ − p)² in kW² of released power, each (n, h), exactly.

    The mechanism returns q + η in log power: p = e^q and p̃ = p e^η. With (q, η) jointly Gaussian, q ~ N(a, v) with
    ``log_mean`` a and ``log_var`` v, η ~ N(m, s²) with ``noise_mean`` m and ``noise_var`` s², Cov(q, η) = c, the
    log-normal moments E e^{αq+βη} = exp(αa + βm + ½(α²v + 2αβc + β²s²)) give

        E p̃ − p      = e^{a+v/2} (e^{m+c+s²/2} − 1)
        E (p̃ − p)²   = e^{2a+2v} (e^{2m+4c+2s²} − 2 e^{m+2c+s²/2} + 1)

    For a point forecast v = c = 0 (docs/theory.md, section 7). c ≠ 0 for mechanisms that move the answer with itself.

    >>> bias, mse = power_error(np.array([[0.0]]), noise_mean=0.0, noise_var=0.04)
    >>> print(f"{bias[0, 0]:.4f}", f"{mse[0, 0] ** 0.5:.4f}")
    0.0202 0.2071
    """
    a, m, s2, v, c = np.broadcast_arrays(log_mean, noise_mean, noise_var, log_var, log_noise_cov)
    with np.errstate(over="ignore"):
        bias = np.exp(a + v / 2) * np.expm1(m + c + s2 / 2)
        # e^{2g+s²} − 2e^g + 1 = e^{2g}(e^{s²} − 1) + (e^g − 1)² with g = m + 2c + s²/2: no cancellation.
        g = m + 2 * c + s2 / 2
        mse = np.exp(2 * a + 2 * v) * (np.exp(2 * g) * np.expm1(s2) + np.expm1(g) ** 2)
    return np.asarray(bias), np.asarray(mse)
