"""Forecast error, likelihood and time per fit: shoal beside statsforecast and statsmodels, ARMA(6, 5).

    OPENBLAS_NUM_THREADS=1 SHOAL_THREADS=1 python -m benchmarks.arma [--homes N] [--others N] [--scale]

Real homes (skipped when the file is not there) and simulated ones: 15 days of quarter-hours up to each of six origins
at different times of the day; log of max(kW, 0.01) minus the time-of-week mean over the same days, ARMA(6, 5), the
next 12 steps against what was metered. The search was chosen on the homes with even numbers; the table is about the
odd ones. Each fitter forecasts through the same exact filter from its own coefficients, and is compared with shoal on
the same forecasts: "error" is the ratio of mean absolute errors in kW, minus one, with its standard error; "nats" the
mean difference of exact log-likelihoods. Times are processor time of one thread, the fitters one after another.

``--others`` is the number of homes, at two origins each, that the slow fitters get; those not installed are left out.
``--scale`` times up to 10,000 series and the peak memory instead.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shoal
from shoal.arma.fit import ArmaModels, fit_arma
from shoal.arma.likelihood import best_innovation_variance
from shoal.arma.predict import predict_series
from shoal.arma.search import hannan_rissanen_start
from shoal.numerics.threads import n_threads

Array = NDArray[np.float64]
ORDER = (6, 5)
STEPS, WEEK, DAY = 1440, 672, 96
HORIZON = 12
#: Five days and five hours apart: every quarter of the day is visited.
ORIGINS = tuple(STEPS + k * (5 * DAY + 20) for k in range(1, 7))
SWISS = Path(__file__).parents[1].parent / "shared/data/swiss_residential_15min/swiss15_clean.parquet"


def homes(kw: Array, origins: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """x, season of the horizon and metered kW of every home at every origin."""
    parts = []
    for origin in origins:
        y = np.log(np.maximum(kw[:, origin - STEPS : origin], 0.01))
        slot = np.arange(origin - STEPS, origin) % WEEK
        season = np.stack([y[:, slot == s].mean(axis=1) for s in range(WEEK)], axis=1)
        ahead = np.arange(origin, origin + HORIZON)
        parts.append((y - season[:, slot], season[:, ahead % WEEK], kw[:, ahead]))
    x, season, truth = (np.concatenate(column) for column in zip(*parts, strict=True))
    return x, season, truth


def given(x: Array, coefs: Array) -> tuple[ArmaModels, Array]:
    """Models with these coefficients and the variance that suits them best, and their exact log-likelihoods."""
    best = [best_innovation_variance(row, coef, ORDER[0]) for row, coef in zip(x, coefs, strict=True)]
    stable = np.array([value > -np.inf for _, value in best])
    n = len(x)
    models = ArmaModels(
        order=ORDER,
        ar=np.where(stable[:, None], coefs[:, : ORDER[0]], 0.0),
        ma=np.where(stable[:, None], coefs[:, ORDER[0] :], 0.0),
        innovation_var=np.where(stable, [var for var, _ in best], 1.0),
        log_likelihood=np.array([value for _, value in best]),
        ok=np.ones(n, dtype=np.bool_),
        converged=np.ones(n, dtype=np.bool_),
        status=np.full(n, "full"),
        n_obs=np.zeros(n, dtype=np.int64),
    )
    return models, models.log_likelihood


def by_shoal(x: Array) -> Array:
    models = fit_arma(x, ORDER)
    return np.concatenate([models.ar, models.ma], axis=1)


def by_regression(x: Array) -> Array:
    return np.array([hannan_rissanen_start(row, *ORDER) for row in x])


def by_statsforecast(x: Array) -> Array:
    from statsforecast.arima import arima

    fits = [arima(row, order=(ORDER[0], 0, ORDER[1]), include_mean=False, method="CSS-ML") for row in x]
    return np.array([[float(v) for v in fit["coef"].values()] for fit in fits])


def by_statsmodels(x: Array) -> Array:
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    fits = [SARIMAX(row, order=(ORDER[0], 0, ORDER[1]), trend="n").fit(disp=0, maxiter=500) for row in x]
    return np.array([fit.params[: sum(ORDER)] for fit in fits])


FITTERS: dict[str, tuple[Callable[[Array], Array], bool]] = {
    "shoal": (by_shoal, False),
    "regression alone": (by_regression, False),
    "statsforecast CSS-ML": (by_statsforecast, True),
    "statsmodels SARIMAX": (by_statsmodels, True),
}


def compare(name: str, kw: Array, others: int) -> None:
    many, few = homes(kw, ORIGINS), homes(kw[:others], ORIGINS[::3])
    own = {}
    for fitter, (fit, slow) in FITTERS.items():
        if slow and importlib.util.find_spec(fitter.split()[0]) is None:
            continue
        x, season, truth = few if slow else many
        fit(x[:1])  # compile, import
        start = time.process_time()
        coefs = fit(x)
        spent = (time.process_time() - start) / len(x)
        if fitter == "shoal":
            own = {len(rows): outcome(*given(rows, fit(rows)), rows, s, t) for rows, s, t in (many, few)}
        error, log_error, value = outcome(*given(x, coefs), x, season, truth)
        base_error, base_log_error, base = own[len(x)]
        usable = np.isfinite(value)
        lead = (error - base_error)[usable]
        ratio, spread = lead.mean() / base_error.mean(), lead.std() / np.sqrt(len(lead)) / base_error.mean()
        print(
            f"| {name} | {fitter} | {len(x)} | {error[usable].mean():.4f} | {ratio:+.2%} ± {spread:.2%} "
            f"| {(log_error - base_log_error)[usable].mean() / base_log_error.mean():+.2%} "
            f"| {(value - base)[usable].mean():+.2f} | {(~usable).sum()} | {spent * 1e3:.2f} |",
            flush=True,
        )


def outcome(models: ArmaModels, value: Array, x: Array, season: Array, truth: Array) -> tuple[Array, Array, Array]:
    """Mean absolute error of each forecast in kW and in ln kW, and the log-likelihood."""
    mean = season + predict_series(models, x, HORIZON).mean
    log_error = np.abs(mean - np.log(np.maximum(truth, 0.01))).mean(axis=1)
    return np.abs(np.exp(mean) - truth).mean(axis=1), log_error, value


def scale(base: Array) -> list[str]:
    """Linear in the number of series, bounded memory."""
    lines = [
        "| series | threads | wall s | processor s | ms a series (processor) | input MiB | peak memory MiB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for n in (1000, 3000, 10000):
        many = np.resize(base, (n, STEPS))
        start, busy = time.perf_counter(), time.process_time()
        fit_arma(many, ORDER)
        wall, busy = time.perf_counter() - start, time.process_time() - busy
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lines.append(
            f"| {n} | {n_threads()} | {wall:.1f} | {busy:.1f} | {busy / n * 1e3:.2f} "
            f"| {many.nbytes / 2**20:.0f} | {peak:.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="ARMA(6, 5) fits beside statsforecast and statsmodels")
    parser.add_argument("--homes", type=int, default=243, help="real homes, and at most 150 simulated ones")
    parser.add_argument("--others", type=int, default=12, help="homes for the slow fitters")
    parser.add_argument("--meters", type=Path, default=SWISS, help="the Swiss meters, Parquet")
    parser.add_argument("--scale", action="store_true", help="time 1,000, 3,000 and 10,000 series instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    days = max(ORIGINS) // DAY + 1
    n = 2 * min(options.homes, 150)
    simulated = shoal.simulate_meters(n, days, seed=11)["kw"].to_numpy().reshape(n, -1)[1::2]
    if options.scale:
        series = homes(simulated[:50], ORIGINS[:1])[0]
        fit_arma(series[:1], ORDER)  # compile
        print("\n".join(scale(series)))
        return
    print(
        "| homes | fitter | fits | mean absolute error, kW | error beside shoal | the same in ln kW | nats | failed "
        "| ms a fit |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    if options.meters.exists():
        import polars

        kw = polars.read_parquet(options.meters)["kw"].to_numpy().astype(float).reshape(-1, 49 * DAY)
        compare("real", kw[1::2][: options.homes], options.others)
    compare("simulated", simulated, options.others)


if __name__ == "__main__":
    main()
