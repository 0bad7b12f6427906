"""Forecast files: what is written comes back, and nothing else is accepted."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shoal


@pytest.fixture(scope="module", params=[None, "Europe/Zurich"])
def forecasts(request: pytest.FixtureRequest) -> shoal.Forecasts:
    readings = shoal.simulate_meters(4, 8, seed=3)
    if request.param:
        readings = readings.with_columns(pl.col("timestamp").dt.replace_time_zone(request.param))
    return shoal.forecast(readings, order=(2, 1), train_days=6, horizon=4, season="day", origin="2024-01-08T18:00")


def test_round_trip(forecasts: shoal.Forecasts, tmp_path: Path) -> None:
    forecasts.save(tmp_path / "f.zip")
    back = shoal.Forecasts.load(tmp_path / "f.zip")
    assert back.households == forecasts.households
    assert back.timestamps.to_list() == forecasts.timestamps.to_list()
    assert back.timestamps.dtype == forecasts.timestamps.dtype
    for name in ("log_mean", "error_cov", "mean_cov", "season_part", "last_day_kw"):
        np.testing.assert_array_equal(getattr(back, name), getattr(forecasts, name))
    np.testing.assert_array_equal(back.models.ar, forecasts.models.ar)
    assert back.models.status.tolist() == forecasts.models.status.tolist()
    assert back.checks.verdict == forecasts.checks.verdict
    assert back.quality.equals(forecasts.quality)
    assert (back.step, back.train_days, back.left_out) == (forecasts.step, forecasts.train_days, forecasts.left_out)
    back.save(tmp_path / "g.zip")  # equal forecasts make equal files
    assert (tmp_path / "f.zip").read_bytes() == (tmp_path / "g.zip").read_bytes()


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("header.json", lambda text: json.dumps(json.loads(text) | {"floor": 0.5}).encode(), "digest"),
        ("header.json", lambda text: json.dumps(json.loads(text) | {"version": 99}).encode(), "version"),
        ("log_mean.npy", lambda content: content[:-1] + bytes([content[-1] ^ 1]), "digest"),
    ],
)
def test_an_altered_file_is_refused(forecasts, tmp_path, file, change, says):
    forecasts.save(tmp_path / "f.zip")
    with zipfile.ZipFile(tmp_path / "f.zip") as old, zipfile.ZipFile(tmp_path / "g.zip", "w") as new:
        for name in old.namelist():
            new.writestr(name, change(old.read(name)) if name == file else old.read(name))
    with pytest.raises(shoal.InputError, match=says):
        shoal.Forecasts.load(tmp_path / "g.zip")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(shoal.InputError, match="there is no file nothing"):
        shoal.Forecasts.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(shoal.InputError, match="not a forecasts file"):
        shoal.Forecasts.load(tmp_path / "text")
