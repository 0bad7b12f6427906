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


def test_round_trip(forecasts, tmp_path):
    forecasts.save(tmp_path / "f.zip")
    back = shoal.Forecasts.load(tmp_path / "f.zip")
    assert back.households == forecasts.households
    assert back.timestamps.to_list() == forecasts.timestamps.to_list()
    assert back.timestamps.dtype == forecasts.timestamps.dtype
    for name in ("log_mean", "error_cov", "mean_cov", "season_part"):
        assert np.array_equal(getattr(back, name), getattr(forecasts, name))
    assert np.array_equal(back.models.ar, forecasts.models.ar)
    assert back.models.status.tolist() == forecasts.models.status.tolist()
    assert back.checks.verdict == forecasts.checks.verdict
    assert back.quality.equals(forecasts.quality)
    assert (back.step, back.train_days, back.left_out) == (forecasts.step, forecasts.train_days, forecasts.left_out)
    assert np.array_equal(back.interval()[1], forecasts.interval()[1])
    assert np.array_equal(back.classes("trajectory").covs, forecasts.classes("trajectory").covs)


def test_equal_forecasts_make_equal_files(forecasts, tmp_path):
    forecasts.save(tmp_path / "f.zip")
    shoal.Forecasts.load(tmp_path / "f.zip").save(tmp_path / "g.zip")
    assert (tmp_path / "f.zip").read_bytes() == (tmp_path / "g.zip").read_bytes()


def _rewritten(source, target, change):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))


def test_an_altered_header_is_refused(forecasts, tmp_path):
    forecasts.save(tmp_path / "f.zip")

    def change(name: str, content: bytes) -> bytes:
        return json.dumps(json.loads(content) | {"floor": 0.5}).encode() if name == "header.json" else content

    _rewritten(tmp_path / "f.zip", tmp_path / "g.zip", change)
    with pytest.raises(shoal.InputError, match="digest"):
        shoal.Forecasts.load(tmp_path / "g.zip")


def test_an_altered_array_is_refused(forecasts, tmp_path):
    forecasts.save(tmp_path / "f.zip")
    _rewritten(
        tmp_path / "f.zip", tmp_path / "g.zip", lambda n, c: c[:-1] + bytes([c[-1] ^ 1]) if n == "log_mean.npy" else c
    )
    with pytest.raises(shoal.InputError, match="digest"):
        shoal.Forecasts.load(tmp_path / "g.zip")


def test_another_version_is_refused(forecasts, tmp_path):
    forecasts.save(tmp_path / "f.zip")

    def change(name: str, content: bytes) -> bytes:
        return json.dumps(json.loads(content) | {"version": 99}).encode() if name == "header.json" else content

    _rewritten(tmp_path / "f.zip", tmp_path / "g.zip", change)
    with pytest.raises(shoal.InputError, match="version"):
        shoal.Forecasts.load(tmp_path / "g.zip")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(shoal.InputError, match="there is no file nothing"):
        shoal.Forecasts.load(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(shoal.InputError, match="not a forecasts file"):
        shoal.Forecasts.load(tmp_path / "text")


def test_the_past_day_comes_back(tmp_path: Path) -> None:
    made = shoal.forecast(shoal.simulate_meters(3, 16, seed=5), order=(1, 0), horizon=2, season="day")
    assert made.recent is not None
    made.save(tmp_path / "forecasts.zip")
    back = shoal.Forecasts.load(tmp_path / "forecasts.zip")
    assert back.recent is not None
    np.testing.assert_array_equal(back.recent, made.recent)
