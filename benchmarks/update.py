"""A new day: CPU time and forecast error of an update, against a forecast from nothing every day.

    python benchmarks/update.py                    # simulated homes; needs no data
    python benchmarks/update.py --real             # homes of ../shared/data/swiss_residential_15min

Prints Markdown. Each day ends at 17:00, when the 12 quarter-hours ahead are least alike from day to day.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from evidence.backtest import wide_std
from shoal.product.sources.meters.forecast import forecast, update_forecasts
from shoal.product.sources.meters.meter_files import meter_readings
from shoal.product.sources.meters.predictive_laws import Forecasts, log_power
from shoal.product.sources.meters.quality import Readings, repair_readings
from shoal.product.sources.meters.simulate import simulate_meters

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "swiss_residential_15min"
TRAIN, DAYS, HOUR = 15, 7, 17


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--homes", type=int, default=200)
    parser.add_argument("--season", default="day")
    options = parser.parse_args()
    readings = _readings(options)
    first = readings.frame["timestamp"].min()
    assert isinstance(first, datetime)
    origins = [first.replace(hour=HOUR) + timedelta(days=TRAIN + 1 + day) for day in range(DAYS + 1)]
    _fit(_part(readings, origins[0] - timedelta(days=TRAIN + 1), origins[0], homes=2), options)  # compiles
    begin = _fit(_part(readings, first, origins[0]), options)
    kind = "Swiss" if options.real else "simulated"
    print(f"\n{len(begin.households)} {kind} homes, season by {options.season}, {DAYS} days one by one.\n")
    print("| each day | CPU ms per home and day | log RMSE | 95 % interval covers |")
    print("| --- | ---: | ---: | ---: |")
    ways = {"a forecast": _daily(readings, origins, options), "an update": _updated(readings, begin, origins)}
    for name, steps in ways.items():
        seconds, misses, inside = 0.0, [], []
        for made, spent in steps:
            seconds += spent
            miss = _truth(readings, made) - made.log_mean
            misses.append(miss)
            inside.append((np.abs(miss) < 1.959964 * wide_std(made))[np.isfinite(miss)])
        each = 1e3 * seconds / DAYS / len(begin.households)
        error = float(np.sqrt(np.nanmean(np.concatenate(misses) ** 2)))
        covered = float(np.concatenate(inside).mean())
        print(f"| {name} | {each:.2f} | {error:.4f} | {covered:.1%} |", flush=True)


def _readings(options: argparse.Namespace) -> Readings:
    if not options.real:
        return repair_readings(simulate_meters(options.homes, TRAIN + DAYS + 3, seed=11))
    whole = meter_readings(DATA / "swiss15_clean.parquet").frame
    names = whole["household"].unique().sort()
    chosen = names.gather_every(max(len(names) // options.homes, 1)).head(options.homes)
    start = whole["timestamp"].min()
    assert isinstance(start, datetime)
    part = whole.filter(
        pl.col("household").is_in(chosen.implode()) & (pl.col("timestamp") < start + timedelta(days=TRAIN + DAYS + 4))
    )
    return repair_readings(part)


def _part(readings: Readings, start: datetime, end: datetime, homes: int | None = None) -> pl.DataFrame:
    frame = readings.frame.filter((pl.col("timestamp") >= start) & (pl.col("timestamp") < end))
    if homes is None:
        return frame
    return frame.filter(pl.col("household").is_in(frame["household"].unique().sort().head(homes).implode()))


def _fit(frame: pl.DataFrame, options: argparse.Namespace) -> Forecasts:
    return forecast(frame, season=options.season, train_days=TRAIN)


def _daily(
    readings: Readings, origins: list[datetime], options: argparse.Namespace
) -> Iterator[tuple[Forecasts, float]]:
    for origin in origins[1:]:
        frame = _part(readings, origin - timedelta(days=TRAIN), origin)
        start = time.process_time()
        made = _fit(frame, options)
        yield made, time.process_time() - start


def _updated(readings: Readings, made: Forecasts, origins: list[datetime]) -> Iterator[tuple[Forecasts, float]]:
    for before, origin in pairwise(origins):
        frame = _part(readings, before, origin)
        start = time.process_time()
        made, _ = update_forecasts(made, frame)
        yield made, time.process_time() - start


def _truth(readings: Readings, made: Forecasts) -> np.ndarray:
    """(n, h) what came, in ln kW."""
    found = readings.window(readings.find_origin(made.origin), made.horizon)
    rows = np.searchsorted(np.array(found.households), np.array(made.households))
    return log_power(found.kw[rows], made.season.floor)


if __name__ == "__main__":
    main()
