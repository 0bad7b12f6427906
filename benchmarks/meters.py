"""End to end on meter readings: quality, time per stage, forecast error, interval coverage, a picture of three homes.

    python benchmarks/meters.py                       # the 486 Swiss homes, ../shared/data/swiss_residential_15min
    python benchmarks/meters.py --simulated 200       # simulated homes instead; needs no data
    python benchmarks/meters.py --picture-only --simulated 60 --picture docs/pictures/three_homes.png

Prints Markdown. A picture of real homes stays out of the repository: the readings are CC BY-SA 4.0 and not ours.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from evidence.backtest import backtest
from evidence.paper.clusters import cluster_graph
from shoal.arma.fit import fit_arma
from shoal.arma.predict import check_innovations, predict_series
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.forecast import forecast
from shoal.product.sources.meters.meter_files import meter_readings
from shoal.product.sources.meters.predictive_laws import Forecasts, log_power, phase_numbers, power_error
from shoal.product.sources.meters.quality import Readings, repair_readings
from shoal.product.sources.meters.simulate import simulate_meters

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "swiss_residential_15min"
DAYS = 49


def main() -> None:
    options = arguments()
    readings, spent = load(options)
    if not options.picture_only:
        report(readings, spent, options)
    picture(readings, options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA / "swiss15_clean.parquet")
    parser.add_argument("--simulated", type=int, default=0, metavar="N", help="simulate N homes instead of reading")
    parser.add_argument("--homes", type=int, default=0, metavar="N", help="only the first N homes")
    parser.add_argument("--origins", type=int, default=6, help="rolling origins, 29 hours apart")
    parser.add_argument("--seasons", nargs="+", default=["week", "day"])
    parser.add_argument("--auto-arima", type=int, default=12, metavar="N", help="homes for statsforecast (0: none)")
    parser.add_argument("--picture", type=Path, default=Path("out/three_homes.png"))
    parser.add_argument("--picture-season", default="day")
    parser.add_argument("--picture-only", action="store_true")
    return parser.parse_args()


def load(options: argparse.Namespace) -> tuple[Readings, tuple[float, float]]:
    if not options.simulated and not options.data.exists():
        raise SystemExit(f"no readings at {options.data}; pass --data or --simulated N")
    if options.simulated:
        readings, spent = timed(lambda: repair_readings(simulate_meters(options.simulated, DAYS, start="2018-10-29")))
    else:
        readings, spent = timed(lambda: meter_readings(options.data))
    if options.homes:
        chosen = readings.frame["household"].unique().sort().head(options.homes).implode()
        readings = repair_readings(readings.frame.filter(pl.col("household").is_in(chosen)))
    return readings, spent


# ---------------------------------------------------------------------- report


def report(readings: Readings, loading: tuple[float, float], options: argparse.Namespace) -> None:
    found = readings.totals()
    print("### Quality of the readings\n")
    table([{k: v for k, v in found.items() if v or k in ("ok", "repaired", "left out")}])

    fit_arma(np.random.default_rng(0).standard_normal((2, 200)), order=(6, 5))  # compile before timing
    times, fc = stages(readings)
    print("### Time\n")
    print(f"{len(fc.households)} households, 15 days of training, ARMA(6, 5), 12 steps, six clusters.\n")
    listed = {"read and put on the grid": loading} | times
    table([{"stage": k, "s": f"{wall:.2f}", "processor s": f"{busy:.2f}"} for k, (wall, busy) in listed.items()])

    print("### Model checks (share of households for which the model holds, level 0.01)\n")
    rows = []
    for season in options.seasons:
        checks = forecast(readings, season=season).checks
        rows.append(
            {"season": season}
            | {name: f"{holds.mean():.2f}" for name, holds in checks.holds.items()}
            | {"all three": f"{np.mean([v == 'holds' for v in checks.verdict]):.2f}"}
            | {"median excess kurtosis": f"{np.median(checks.excess_kurtosis):.2f}"}
        )
    table(rows)

    print("### Forecast error and coverage, per horizon step\n")
    for season in options.seasons:
        result = backtest(readings, options.origins, season=season)
        left = Counter(reason.split(":")[0] for gone in result.left_out for reason in gone.values())
        print(f"Season by {season}; {len(result.cases)} forecasts from {len(result.origins)} origins; ", end="")
        print(f"left out: {dict(left) or 'none'}. Naive: the reading one {season} earlier.\n")
        steps = result.table()
        mean = steps.mean().with_columns(step=pl.lit("mean"))
        table(rounded(pl.concat([steps.with_columns(pl.col("step").cast(pl.String)), mean])))
    if options.auto_arima:
        compare_auto_arima(readings, options)
    print("### Error that noise adds to the released power, point forecast\n")
    rows = []
    for rho in (0.05, 0.2, 0.5):
        bias, mse = power_error(fc.log_mean, 0.0, rho)
        relative = np.median(np.sqrt(mse) / fc.power)
        rows.append({"rho": rho, "median RMSE / forecast": f"{relative:.3f}", "mean bias kW": f"{bias.mean():.3f}"})
    table(rows)


def stages(readings: Readings) -> tuple[dict[str, tuple[float, float]], Forecasts]:
    """Time of each stage of one forecast, and of the forecast as a whole."""
    fc, whole = timed(lambda: forecast(readings))
    at = readings.find_origin(None)
    past, cutting = timed(lambda: readings.window(at, -15 * 96))
    phase = phase_numbers(past.timestamps, "week", readings.step)
    rows = np.searchsorted(np.array(past.households), np.array(fc.households))
    x = fc.season.residuals(past.kw[rows], phase)
    models, fitting = timed(lambda: fit_arma(x, order=(6, 5)))
    ahead, predicting = timed(lambda: predict_series(models, x, 12))
    _, checking = timed(lambda: check_innovations(ahead.innovations, sum(models.order)))
    graph, clustering = timed(lambda: cluster_graph(fc))
    _, building = timed(lambda: fc.classes("trajectory"))
    listed = {
        "cut the training window": cutting,
        f"fit ({1e3 * fitting[1] / len(x):.1f} processor ms each)": fitting,
        "predict": predicting,
        "check": checking,
        "forecast, all of the above": whole,
        f"six clusters ({graph.n_edges} edges)": clustering,
        "class laws": building,
    }
    return listed, fc


def compare_auto_arima(readings: Readings, options: argparse.Namespace) -> None:
    """The same log residuals, the same origins: exact ARMA(6, 5) beside statsforecast's AutoARIMA."""
    try:
        from statsforecast.models import AutoARIMA
    except ImportError:
        print("statsforecast is not installed: no AutoARIMA comparison.\n")
        return
    names = readings.frame["household"].unique().sort()
    chosen = names.gather_every(max(len(names) // options.auto_arima, 1)).head(options.auto_arima).implode()
    some = repair_readings(readings.frame.filter(pl.col("household").is_in(chosen)))
    end = some.find_origin(None)
    width = some.step // timedelta(microseconds=1)
    print(f"### Beside AutoARIMA, {options.auto_arima} households, two origins\n")
    rows = []
    for season in options.seasons:
        ours, theirs, ours_kw, theirs_kw = [], [], [], []
        seconds = {"shoal": 0.0, "AutoARIMA": 0.0}
        for back in (12, 12 + 116):
            at = end - back * width
            fc, spent = timed(
                lambda at=at, s=season: forecast(some, season=s, origin=clock.instant_in_zone(at, some.time_zone))
            )
            seconds["shoal"] += spent[1]
            past, future = some.window(at, -15 * 96), some.window(at, 12)
            keep = np.searchsorted(np.array(past.households), np.array(fc.households))
            x = fc.season.residuals(past.kw[keep], phase_numbers(past.timestamps, season, some.step))
            truth = future.kw[keep]
            for i in range(len(x)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    guess, spent = timed(lambda i=i, x=x: auto_arima(AutoARIMA, x[i]))
                seconds["AutoARIMA"] += spent[1]
                other = guess + fc.season_part[i]
                ours.append(fc.log_mean[i] - log_power(truth[i], fc.season.floor))
                theirs.append(other - log_power(truth[i], fc.season.floor))
                ours_kw.append(np.abs(fc.power[i] - truth[i]).mean())
                theirs_kw.append(np.abs(np.exp(other) - truth[i]).mean())
        for name, logs, kw in (("shoal", ours, ours_kw), ("AutoARIMA", theirs, theirs_kw)):
            error = np.array(logs)
            rmse = np.sqrt((error**2).mean(axis=0))
            rows.append(
                {
                    "season": season,
                    "method": name,
                    "log RMSE, step 1": f"{rmse[0]:.3f}",
                    "step 4": f"{rmse[3]:.3f}",
                    "step 12": f"{rmse[11]:.3f}",
                    "mean": f"{np.sqrt((error**2).mean()):.3f}",
                    "MAE kW": f"{np.mean(kw):.3f}",
                    "processor s per forecast": f"{seconds[name] / len(logs):.3f}",
                }
            )
    table(rows)


def auto_arima(model: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(model(season_length=1, max_p=6, max_q=5).forecast(y=x, h=12)["mean"])


def timed(work: Any) -> tuple[Any, tuple[float, float]]:
    """What the work returns; seconds by the clock and of processor time, all threads together."""
    start, busy = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - start, time.process_time() - busy)


def rounded(frame: pl.DataFrame) -> list[dict[str, str]]:
    return [{k: f"{v:.3f}" if isinstance(v, float) else str(v) for k, v in row.items()} for row in frame.to_dicts()]


def table(rows: list[dict[str, Any]]) -> None:
    print("| " + " | ".join(rows[0]) + " |")
    print("| " + " | ".join("---" for _ in rows[0]) + " |")
    for row in rows:
        print("| " + " | ".join(str(v) for v in row.values()) + " |")
    print()


# ---------------------------------------------------------------------- picture


def picture(readings: Readings, options: argparse.Namespace) -> None:
    """Three homes: the past day in gray, what came in red, the forecast in orange with its 80 % interval."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.dates import DateFormatter, HourLocator

    last = clock.instant_in_zone(readings.find_origin(None), readings.time_zone)
    origin = (last - timedelta(days=1)).replace(hour=17, minute=0)
    fc = forecast(readings, season=options.picture_season, origin=origin)
    at = readings.find_origin(origin)
    past, future = readings.window(at, -96), readings.window(at, 12)
    row = np.searchsorted(np.array(past.households), np.array(fc.households))
    order = np.argsort(past.kw[row].mean(axis=1))
    homes = [int(order[int(share * (len(order) - 1))]) for share in (0.25, 0.5, 0.75)]
    reach = 1.2816 * fc.error_std  # 80 % of a Gaussian law
    low, high = fc.to_power(fc.log_mean - reach), fc.to_power(fc.log_mean + reach)
    wall = [s.replace(tzinfo=None) for s in (*past.timestamps, *future.timestamps)]
    before, after = wall[:96], wall[96:]

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
    for number, (axis, home) in enumerate(zip(axes, homes, strict=True), start=1):
        history = past.kw[row[home]]
        joined = [before[-1], *after]
        axis.fill_between(after, low[home], high[home], color="tab:orange", alpha=0.22, lw=0, label="80 % interval")
        axis.plot(before, history, color="0.55", lw=1.2, label="past day")
        axis.plot(joined, [history[-1], *future.kw[row[home]]], color="tab:red", lw=1.6, label="truth")
        axis.plot(after, fc.power[home], color="tab:orange", lw=2, label="forecast")
        axis.set_title(f"Home {number}", fontsize=11)
        axis.set_ylim(0, 1.25 * max(history.max(), future.kw[row[home]].max(), fc.power[home].max()))
        axis.set_xlim(before[0], after[-1])
        axis.xaxis.set_major_locator(HourLocator(byhour=(0, 6, 12, 18)))
        axis.xaxis.set_major_formatter(DateFormatter("%H:%M"))
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel("time of day")
    axes[0].set_ylabel("power, kW")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=9, loc="outside lower center", ncols=4)
    credit = "simulated" if options.simulated else "data: Weigert et al. 2020, CC BY-SA 4.0"
    figure.suptitle(f"Twelve quarter-hours ahead, ARMA(6, 5) on 15 days ({credit})", fontsize=11)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.picture, dpi=130)
    assert isinstance(origin, datetime)
    print(f"Picture: {options.picture}")


if __name__ == "__main__":
    main()
