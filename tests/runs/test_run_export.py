"""A run with homes that export: they hide among their like, and the public table has figures below zero."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from small_run import crowds, go, left_out, public, shards

import shoal

CONFIG = shoal.Config(crowd=5, horizon=24, order=(1, 1), train_days=7, largest_share=0.6)

#: Homes with panels on the roof that send out more at noon than any home draws.
SOLAR = {"H0000", "H0001", "H0004", "H0005", "H0006", "H0012"}


@pytest.fixture
def meters(tmp_path: Path) -> Path:
    readings = shoal.simulate_meters(14, 8, step_minutes=60, seed=3)
    hour = pl.col("timestamp").dt.hour()
    sun = (1 - ((hour - 12) / 4.5) ** 2).clip(0) * 12
    solar = pl.col("household").is_in(SOLAR)
    readings.with_columns(kw=pl.when(solar).then(pl.col("kw") - sun).otherwise("kw")).write_parquet(
        tmp_path / "m.parquet"
    )
    return tmp_path / "m.parquet"


def test_export_is_released(meters: Path, tmp_path: Path) -> None:
    go(tmp_path / "out", meters, CONFIG, "report")
    assert not left_out(tmp_path / "out")
    table, member = public(tmp_path / "out"), crowds(tmp_path / "out")
    together = {
        number: {name in SOLAR for name, crowd in member.items() if crowd == number} for number in member.values()
    }
    assert all(len(kinds) == 1 for kinds in together.values())  # nobody hides among homes of the other kind
    noon = table.filter(pl.col("step") == 13)
    assert {row["crowd"]: row["kw"] < 0 for row in noon.to_dicts()} == {
        n: True in kinds for n, kinds in together.items()
    }


def test_laws_in_log_power_leave_them_out(meters: Path, tmp_path: Path) -> None:
    settings = shoal.Config(crowd=5, horizon=4, order=(1, 1), train_days=7, query="trajectory", epsilon=1.0, delta=1e-5)
    go(tmp_path / "out", meters, settings, "fit")
    quality = pl.read_csv(tmp_path / "out" / "quality.csv", infer_schema=False)
    gone = quality.filter(pl.col("verdict") == "left out")
    assert len(gone)
    assert set(gone["household"]) <= SOLAR
    assert gone["reason"].str.starts_with("below zero too often").all()
    forecasts = [shoal.Forecasts.load(part.path) for part in shards(tmp_path / "out", "fit")]
    assert not any(part.exports.any() for part in forecasts)  # in log power there is consumption alone
