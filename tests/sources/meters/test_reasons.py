"""Why homes are left out or questioned, in the words that settle it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.product.sources.meters.meter_files import meter_readings

SETTINGS = {"order": (1, 1), "train_days": 7, "horizon": 3, "season": "day"}


@pytest.fixture(scope="module")
def readings() -> pl.DataFrame:
    return shoal.simulate_meters(6, 8, step_minutes=60, seed=1)


def test_exporting_homes_are_not_called_short(readings: pl.DataFrame) -> None:
    names = readings["household"].unique().sort().to_list()
    sunny = pl.col("timestamp").dt.hour().is_between(9, 16)
    late = pl.col("timestamp") < datetime(2024, 1, 6)
    exported = pl.when(pl.col("household").is_in(names[:2]) & sunny).then(-pl.col("kw")).otherwise(pl.col("kw"))
    data = readings.with_columns(kw=exported).filter(~((pl.col("household") == names[2]) & late))
    reasons = dict(shoal.forecast(data, **SETTINGS).left_out)
    assert set(reasons) == set(names[:3])
    assert reasons[names[0]] == reasons[names[1]]  # one text for one trouble, so that homes can be counted by it
    assert reasons[names[0]].startswith("below zero too often (export?)")
    assert reasons[names[2]].startswith("too short a history: fewer than 80%")


def _written(folder: Path, frame: pl.DataFrame) -> Path:
    path = folder / "meters.csv"
    frame.with_columns(pl.col("timestamp").dt.strftime("%Y-%m-%d %H:%M")).write_csv(path)
    return path


def test_a_reading_of_120_kw_is_questioned(readings: pl.DataFrame, tmp_path: Path) -> None:
    one = pl.int_range(pl.len()) == 40
    data = readings.with_columns(kw=pl.when(one).then(120.0).otherwise(pl.col("kw")))
    assert meter_readings(_written(tmp_path, data)).quality["large"].sum() == 1
    with pytest.warns(UserWarning, match="1 of the households draw more than a home"):
        shoal.read_meters(_written(tmp_path, data))


def test_rows_that_disagree_name_the_zone(tmp_path: Path) -> None:
    """The autumn clock change on the wall clock: an hour comes twice."""
    instants = pl.datetime_range(datetime(2024, 10, 26), datetime(2024, 10, 28), "1h", time_zone="UTC", eager=True)
    wall = instants.dt.convert_time_zone("Europe/London").dt.replace_time_zone(None, ambiguous="earliest")
    kw = 0.5 + 0.3 * np.sin(np.arange(len(wall)))
    path = _written(tmp_path, pl.DataFrame({"household": "a", "timestamp": wall, "kw": kw}))
    (note,) = meter_readings(path).owner_notes()
    assert note.startswith("1 instant with several readings that differ, in 1 household;")
    assert "--time-zone" in note
    with pytest.warns(UserWarning, match="--time-zone"):
        shoal.read_meters(path)
    assert meter_readings(path, time_zone="Europe/London").owner_notes() == []


def test_wall_times_that_do_not_exist_and_export_are_told(tmp_path: Path) -> None:
    """A meter that ignores summer time, read as if it did not; and some readings below zero."""
    stamps = pl.datetime_range(datetime(2024, 3, 30), datetime(2024, 4, 1), "1h", eager=True)
    kw = np.where(np.arange(len(stamps)) < 3, -0.5, 0.3)
    path = _written(tmp_path, pl.DataFrame({"household": "a", "timestamp": stamps, "kw": kw}))
    skipped, export = meter_readings(path, time_zone="Europe/London").owner_notes()
    assert "1 reading at wall times that the spring clock change skips, in 1 household" in skipped
    assert "Etc/GMT-1" in skipped
    assert export.startswith("3 readings below zero, in 1 household, taken for export")


def test_pandas_frames_of_any_kind_of_column(readings: pl.DataFrame) -> None:
    pd = pytest.importorskip("pandas")
    times = pd.DatetimeIndex(readings["timestamp"].to_list())
    for stamps in (times, times.tz_localize("UTC").tz_convert("Europe/Zurich"), times.tz_localize("+01:00")):
        names = pd.Categorical(readings["household"].to_list())
        frame = pd.DataFrame({"household": names, "timestamp": stamps, "kw": readings["kw"].to_list()})
        frame.loc[5, "kw"] = float("nan")
        data = meter_readings(frame)
        assert data.frame["kw"].null_count() == 1
        assert data.time_zone == (None if stamps.tz is None else "Europe/Zurich" if "Z" in str(stamps.tz) else "UTC")
        first = data.frame["timestamp"].dt.epoch("us")[0]
        assert first == int(pd.Series(stamps).min().value) // 1000
    whole = pd.DataFrame({"household": [1, 1, 1], "timestamp": times[:3], "kw": pd.Series([1, None, 2], dtype="Int64")})
    assert meter_readings(whole).frame["kw"].to_list() == [1.0, None, 2.0]
    mixed = pd.DataFrame({"household": ["a", 3, 2.5], "timestamp": times[:3], "kw": [1.0, 2.0, 3.0]})
    with pytest.raises(shoal.InputError, match="a column mixes"):
        meter_readings(mixed)
