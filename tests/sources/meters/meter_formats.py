"""The same readings, kW of a few homes every half hour, in the formats that utilities hand out."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl

import shoal

STEP = timedelta(minutes=30)


def homes(n: int = 3, days: int = 3) -> pl.DataFrame:
    """household, timestamp, kw; rounded to whole Wh, as meters show them."""
    frame = shoal.simulate_meters(n, days, 30, seed=5, start="2024-01-10")
    return frame.with_columns(kw=(pl.col("kw") * 500).round() / 500)


def kwh(frame: pl.DataFrame) -> pl.DataFrame:
    """Energy per interval instead of power."""
    return frame.with_columns(kwh=pl.col("kw") / 2).drop("kw")


def register(frame: pl.DataFrame, start: float = 12345.0) -> pl.DataFrame:
    """Totals at the beginning of each interval, and at the end of the last."""
    energy = kwh(frame)
    totals = energy.with_columns(kwh=start + pl.col("kwh").cum_sum().over("household") - pl.col("kwh"))
    last = energy.group_by("household").agg(pl.col("timestamp").max() + STEP, kwh=start + pl.col("kwh").sum())
    return pl.concat([totals, last.select(totals.columns)]).sort("household", "timestamp")


def write_nem12(path: Path, frame: pl.DataFrame, *, extra: bool = False) -> None:
    """Channel E1 in kWh, B1 beside it; with ``extra`` a controlled load E2 in Wh that takes half of E1's energy."""
    lines = ["100,NEM12,202402010000,MDP1,Retailer"]
    for (name,), home in kwh(frame).group_by("household", maintain_order=True):
        share = 0.5 if extra else 1.0
        channels = [("E1", "kWh", share), ("B1", "kWh", 0.1), *([("E2", "Wh", 500.0)] if extra else [])]
        for channel, unit, factor in channels:
            lines.append(f"200,{name},E1B1,1,{channel},N1,METER{name},{unit},30,20240601")
            for (_,), day in home.group_by(pl.col("timestamp").dt.date(), maintain_order=True):
                values = ",".join(f"{value * factor:.6f}" for value in day["kwh"])
                lines.append(f"300,{day['timestamp'][0]:%Y%m%d},{values},A,,,20240131000000,")
    path.write_text("\r\n".join([*lines, "900"]) + "\r\n")
