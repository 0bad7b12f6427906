"""Exact log-likelihood reached and time per fit: shoal beside statsmodels and statsforecast, ARMA(6, 5).

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.arma [--quick] [--brief] [--effort NAME] [--only SET | --scale]

Two sets of 1,440 samples each: 50 simulated series (partial autocorrelations tanh(N(0, s²)), s cycling through 0.3,
0.5, 0.7 and 1.0: from short memory to roots within 0.001 of the unit circle), and 100 real households (log of
max(kW, 0.01) minus the time-of-week mean over the same 15 days; skipped when the file is not there). Every fit is
scored by the same evaluator, statsmodels' exact Kalman likelihood with its steady-state shortcut off and the
innovation variance profiled out; shoal's own figure is checked against it. Times are processor time of one thread;
the fitters take turns, ten series each.

Prints a Markdown table. ``--quick`` fits 8 + 12 series; ``--brief`` leaves statsmodels out; ``--only`` picks one of the
two sets; ``--scale`` times up to 10,000 series and the peak memory instead.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.meters.arma import ArmaModels, fit_arma, simulate_arma
from shoal.meters.arma.parameters import arma_from_free

Array = NDArray[np.float64]
ORDER = (6, 5)
LENGTH = 1440
TURN = 10
SWISS = Path(__file__).parents[1].parent / "shared/data/swiss_residential_15min/swiss15_clean.parquet"


def simulated(n: int) -> Array:
    p, q = ORDER
    rows = []
    for seed in range(n):
        free = np.random.default_rng(seed).normal(size=p + q) * (0.3, 0.5, 0.7, 1.0)[seed % 4]
        ar, ma = arma_from_free(free, p, np.empty((p, p)), np.empty((q, q)))
        rows.append(simulate_arma(ArmaModels.from_coefficients(ar, ma, 1.0), LENGTH, seed=seed)[0])
    return np.array(rows)


def households(path: Path, n: int) -> Array:
    import polars

    kw = polars.read_parquet(path)["kw"].to_numpy().astype(float).reshape(-1, 4704)
    kw = kw[np.linspace(0, len(kw) - 1, n).astype(int), :LENGTH]
    x = np.log(np.maximum(kw, 0.01))
    slot = np.arange(LENGTH) % 672
    return x - np.stack([x[:, slot == s].mean(axis=1) for s in range(672)], axis=1)[:, slot]


def judge(x: Array, coef: Array) -> float:
    """Exact profile log-likelihood by statsmodels; −inf where the fit has none."""
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    p, q = ORDER
    if not np.isfinite(coef).all() or np.abs(np.roots(np.r_[1, -coef[:p]])).max() >= 1:
        return -np.inf
    model = SARIMAX(x, order=(p, 0, q), trend="n", concentrate_scale=True)
    model.ssm.tolerance = 0
    return float(model.loglike(coef))


def by_statsmodels(x: Array) -> Array:
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    fitted = SARIMAX(x, order=(ORDER[0], 0, ORDER[1]), trend="n").fit(disp=0, maxiter=500)
    return np.asarray(fitted.params[: sum(ORDER)], dtype=float)


def by_statsforecast(x: Array) -> Array:
    from statsforecast.arima import arima

    fitted = arima(x, order=(ORDER[0], 0, ORDER[1]), include_mean=False, method="CSS-ML")
    return np.array([float(v) for v in fitted["coef"].values()])


def in_turns(series: Array, effort: str, brief: bool) -> tuple[dict[str, Array], dict[str, float], Array]:
    """Coefficients and seconds a fit of every fitter, and shoal's own likelihoods.

    The fitters take turns, ``TURN`` series each, so that what else the machine does meets them alike.
    """

    def by_shoal(block: Array) -> Array:
        models = fit_arma(block, ORDER, effort=effort, threads=1)
        likelihoods.append(models.log_likelihood)
        return np.concatenate([models.ar, models.ma], axis=1)

    fitters: dict[str, Callable[[Array], Array]] = {
        "shoal": by_shoal,
        "statsforecast CSS-ML": lambda block: np.array([by_statsforecast(x) for x in block]),
        "statsmodels SARIMAX": lambda block: np.array([by_statsmodels(x) for x in block]),
    }
    if brief:
        del fitters["statsmodels SARIMAX"]
    likelihoods: list[Array] = []
    for fit in fitters.values():
        fit(series[:1])  # compile, import
    likelihoods.clear()
    coefs: dict[str, list[Array]] = {name: [] for name in fitters}
    seconds = dict.fromkeys(fitters, 0.0)
    for first in range(0, len(series), TURN):
        for name, fit in fitters.items():
            start = time.process_time()
            coefs[name].append(fit(series[first : first + TURN]))
            seconds[name] += (time.process_time() - start) / len(series)
    return {name: np.concatenate(rows) for name, rows in coefs.items()}, seconds, np.concatenate(likelihoods)


def compare(name: str, series: Array, effort: str, brief: bool) -> list[str]:
    results, seconds, own = in_turns(series, effort, brief)
    scores = {k: np.array([judge(x, c) for x, c in zip(series, v, strict=True)]) for k, v in results.items()}
    agreement = np.abs(scores["shoal"] / own - 1).max()
    best = np.max(list(scores.values()), axis=0)
    lines = []
    for fitter, spent in seconds.items():
        valid = np.isfinite(scores[fitter])
        short = (best - scores[fitter])[valid]
        lead = (scores["shoal"] - scores[fitter])[valid]
        lines.append(
            f"| {name} | {fitter} | {len(series)} | {short.mean():.3f} | {np.median(short):.3f} | {short.max():.2f} "
            f"| {(short < 0.1).mean():.0%} | {lead.mean():+.3f} | {(~valid).sum()} | {spent * 1e3:.1f} "
            f"| {spent / seconds['shoal']:.1f}× |"
        )
    lines.append(f"<!-- {name}: shoal's likelihood equals statsmodels' to {agreement:.0e} relative -->")
    return lines


def scale(effort: str) -> list[str]:
    """Linear in the number of series, bounded memory."""
    base = simulated(50)
    lines = [
        "",
        "| series | threads | wall s | processor s | ms a series (processor) | input MiB | peak memory MiB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for n in (1000, 3000, 10000):
        many = np.resize(base, (n, LENGTH))
        start, busy = time.perf_counter(), time.process_time()
        fit_arma(many, ORDER, effort=effort)
        wall, busy = time.perf_counter() - start, time.process_time() - busy
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lines.append(
            f"| {n} | {os.cpu_count()} | {wall:.1f} | {busy:.1f} | {busy / n * 1e3:.2f} "
            f"| {many.nbytes / 2**20:.0f} | {peak:.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="ARMA(6, 5) fits beside statsmodels and statsforecast")
    parser.add_argument("--quick", action="store_true", help="8 simulated and 12 real series")
    parser.add_argument("--effort", default="standard", help="quick, standard or thorough")
    parser.add_argument("--meters", type=Path, default=SWISS, help="the Swiss meters, Parquet")
    parser.add_argument("--scale", action="store_true", help="time 1,000, 3,000 and 10,000 series instead")
    parser.add_argument("--only", choices=("simulated", "households"), help="one of the two sets")
    parser.add_argument("--brief", action="store_true", help="without statsmodels, which takes most of the time")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    fit_arma(simulated(1), ORDER, threads=1)  # compile
    if arguments.scale:
        print("\n".join(scale(arguments.effort)))
        return
    lines = [
        "| series | fitter | fits | mean shortfall, nats | median | worst | within 0.1 | shoal ahead by, mean "
        "| failed | ms a fit | time against shoal |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    if arguments.only != "households":
        lines += compare("simulated", simulated(8 if arguments.quick else 50), arguments.effort, arguments.brief)
    if arguments.only != "simulated":
        if arguments.meters.exists():
            meters = households(arguments.meters, 12 if arguments.quick else 100)
            lines += compare("households", meters, arguments.effort, arguments.brief)
        else:
            lines.append("| households | skipped: the meters are not here | | | | | | | | | |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
