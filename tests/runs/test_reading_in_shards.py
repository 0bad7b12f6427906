"""Meter files read in batches and shards give what reading them whole gives, household by household."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import go

import shoal
from shoal.product.sources.meters.meter_files import meter_readings

ZURICH = "Europe/Zurich"
BATCH = "shoal.product.sources.meters.meter_files.BATCH"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def writer(name: str, *lines: str) -> Path:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return writer


def sharded(path: Any, folder: Path, size: int, batch: int = 5, **options: Any) -> tuple[list[Path], list[Path]]:
    """Shards of readings that a run writes, and their quality tables; too few rows for forecasts are no matter here."""
    shutil.rmtree(folder, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(shoal.InputError):
        patch.setattr(BATCH, batch)
        patch.setattr("shoal.product.runs.folder.Folder.clear", lambda folder: None)  # a refused run keeps its shards
        go(folder, path, until="fit", shard_size=size, **options)
    every = sorted((folder / "shards" / "readings").glob("*.parquet"))
    quality = [file for file in every if file.name.endswith(".quality.parquet")]
    return [file for file in every if file not in quality], quality


def compare(path: Any, folder: Path, size: int = 1, batch: int = 5, **options: Any) -> pl.DataFrame:
    """Shards of about ``size`` households hold exactly what is read in one go; the quality table."""
    whole = meter_readings(path, **options)
    readings, quality = sharded(path, folder, size, batch, **options)
    frames = [pl.read_parquet(file) for file in readings]
    assert all(frame["household"].is_sorted() for frame in frames)
    assert {pl.read_parquet_metadata(file)["step_us"] for file in readings} == {str(whole.step // timedelta(0, 0, 1))}
    table = pl.concat([pl.read_parquet(file) for file in quality]).sort("household")
    assert table.schema == whole.quality.schema
    assert table.equals(whole.quality), (table, whole.quality)
    frame = pl.concat(frames).sort("household", maintain_order=True)
    assert frame.schema == whole.frame.schema
    assert frame.equals(whole.frame)
    return table


def dirty(rng: np.random.Generator, n: int = 7, rows: int = 60) -> pl.DataFrame:
    """Households with gaps, repeats, disorder, faults and different beginnings."""
    parts = []
    for i in range(n):
        start = datetime(2024, 1, 1) + timedelta(minutes=15 * int(rng.integers(0, 9)))
        part = pl.DataFrame(
            {
                "id": f"m{i}",
                "time": [start + timedelta(minutes=15 * t) for t in range(rows)],
                "kw": rng.choice([0.0, 0.4, 1.2, -1.0, 77.0], rows, p=[0.1, 0.4, 0.4, 0.05, 0.05]),
            }
        )
        heard = part.filter(pl.Series(rng.random(rows) > 0.15))
        parts += [heard, heard.sample(4, seed=i).with_columns(pl.col("kw") + 0.1)]
    return pl.concat(parts)[rng.permutation(sum(map(len, parts)))]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_dirty_files_in_many_shapes(tmp_path: Path, size: int) -> None:
    frame = dirty(np.random.default_rng(0))
    frame.write_csv(tmp_path / "a.csv", datetime_format="%Y-%m-%d %H:%M")
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=17)
    for name in ("a.csv", "a.parquet"):
        compare(tmp_path / name, tmp_path / "out", size, max_kw=50.0)
    (tmp_path / "many").mkdir()
    for i in range(4):
        frame[i * 100 : (i + 1) * 100].write_csv(tmp_path / "many" / f"{i}.csv")
    compare(tmp_path / "many", tmp_path / "out", size)
    compare(tmp_path / "many", tmp_path / "out", size, interval=30)
    compare(tmp_path / "many", tmp_path / "out", size, unit="kwh")


def test_wide_files(tmp_path: Path) -> None:
    frame = shoal.simulate_meters(5, 1, 60, seed=1).with_columns(pl.col("timestamp").dt.strftime("%Y-%m-%d %H:%M"))
    wide = frame.pivot(on="household", index="timestamp", values="kw")
    wide.write_csv(tmp_path / "wide.csv")
    compare(tmp_path / "wide.csv", tmp_path / "out", 2, unit="kw")
    rows = frame.pivot(on="timestamp", index="household", values="kw")
    # A household in two rows far apart: in the file's order of columns nothing is out of order.
    twice = pl.concat([rows, rows.head(2).with_columns(pl.col("2024-01-01 03:00") + 1.0)])
    twice.write_csv(tmp_path / "rows.csv")
    compare(tmp_path / "rows.csv", tmp_path / "out", 2, unit="kw")
    assert meter_readings(tmp_path / "rows.csv", unit="kw").quality["out_of_order"].sum() == 0
    (tmp_path / "single").mkdir()
    for (name,), part in frame.group_by("household"):
        part.select("timestamp", "kw").write_csv(tmp_path / "single" / f"{name}.csv")
    compare(tmp_path / "single", tmp_path / "out", 2)


def test_files_as_utilities_hand_them_out(tmp_path: Path) -> None:
    """A row per home and day, totals of a register with a replaced meter, and NEM12, in batches of five rows."""
    homes = shoal.simulate_meters(3, 2, 60, seed=1)
    stamp = pl.col("timestamp")
    long = homes.select("household", date=stamp.dt.date(), clock=stamp.dt.strftime("%H:%M"), kw="kw")
    long.pivot(on="clock", index=["household", "date"], values="kw").write_csv(tmp_path / "days.csv")
    compare(tmp_path / "days.csv", tmp_path / "out", 2, unit="kw")
    total = homes.select("household", "timestamp", kwh=pl.col("kw").cum_sum().over("household"))
    later = (pl.col("household") == "H0001") & (stamp >= datetime(2024, 1, 2))
    total.with_columns(kwh=pl.when(later).then(pl.col("kwh") / 100).otherwise("kwh")).write_csv(tmp_path / "total.csv")
    assert sorted(compare(tmp_path / "total.csv", tmp_path / "out", 2)["falls"]) == [0, 0, 1]
    values = [part["kw"].to_list() for (_,), part in homes.group_by("household", maintain_order=True)]
    lines = ["100,NEM12,202402010000,A,B"]
    for number, row in enumerate(values):
        lines.append(f"200,N{number},E1,1,E1,N1,M,kWh,60,")
        lines += [f"300,2024010{d + 1},{','.join(map(str, row[24 * d : 24 * d + 24]))},A,,,," for d in (0, 1)]
    (tmp_path / "nem12.csv").write_text("\n".join([*lines, "900"]))
    compare(tmp_path / "nem12.csv", tmp_path / "out", 2)


def test_faults_of_every_kind(write: Write, tmp_path: Path) -> None:
    rows = ["a,2024-01-01 00:00,1", "a,2024-01-01 00:15,-3", "a,2024-01-01 00:30,x", "a,2024-01-01 00:45,999"]
    rows += ["a,2024-01-01 01:00,0", "a,2024-01-01 01:00,0", "a,2024-01-01 01:15,2", "a,2024-01-01 01:15,4"]
    rows += ["a,2024-01-01 01:52,1", "a,2024-01-01 02:00,5", "a,2024-01-01 01:45,6", "a,never,5", "a,2024-01-01 02:15,"]
    rows += ["b,2024-01-01 00:00,1", "b,2024-01-01 00:15,1", "b,2024-01-01 00:30,1", " b ,2024-01-01 00:45,1"]
    rows += [",2024-01-01 00:00,1", "c,2024-01-01 00:00,-1", "stray,2024-01-01 00:00,1", "stray,2099-01-01 00:00,1"]
    rows += [f"hourly,2024-01-01 {h:02d}:00,1" for h in range(24)]
    rows += [f"d,2024-01-01 0{h}:{m:02d},1" for h in range(9) for m in (0, 15, 30, 45)]
    rows += [f"e,2024-01-01 0{h}:{m:02d},1" for h in range(9) for m in (0, 15, 30, 45)]
    path = write("a.csv", "id,time,kw", *rows)
    for size in (1, 2, 9):
        quality = compare(path, tmp_path / "out", size, max_kw=40.0)
    assert set(quality.filter(pl.col("verdict") == "left out")["household"]) == {"", "hourly", "stray"}


@pytest.mark.parametrize("by_instant", [True, False])
def test_clock_changes(write: Write, tmp_path: Path, by_instant: bool) -> None:
    walls = ["01:45", "02:00", "02:15", "02:30", "02:45", "02:00", "02:15", "02:30", "02:45", "03:00"]
    rows = list(zip(walls, range(len(walls)), strict=True))
    if not by_instant:
        rows.sort(key=lambda row: row[0])
    spring = ["01:30", "01:45", "02:00", "02:15", "03:00"]
    lines = [f"{h},2024-10-27 {t},{v}" for t, v in rows for h in "ab"]
    lines += [f"c,2024-03-31 {t},1" for t in spring]
    first = write("a.csv", "id,time,kw", *lines)
    # A second file that shows the same autumn hour again, for itself; and one with offsets.
    second = write("b.csv", "id,time,kw", *(f"b,2024-10-27 {t},{v + 100}" for t, v in rows))
    third = write("c.csv", "id,time,kw", "z,2024-10-27T00:45Z,1", "z,2024-10-27T01:00Z,1", "z,2024-10-27T01:15Z,2")
    compare(first, tmp_path / "out", time_zone=ZURICH)
    compare(third, tmp_path / "out")
    compare(third, tmp_path / "out", time_zone="America/St_Johns")
    compare(first.parent, tmp_path / "out", 2, time_zone=ZURICH)
    second.unlink()
    with pytest.raises(shoal.InputError, match="time_zone"):
        go(tmp_path / "other", first.parent)


def test_zones_in_parquet(tmp_path: Path) -> None:
    frame = shoal.simulate_meters(3, 1, 60)
    has_time_zone = [frame.with_columns(pl.col("timestamp").dt.replace_time_zone(z)) for z in (ZURICH, "UTC")]
    for i, each in enumerate(has_time_zone):
        each.write_parquet(tmp_path / f"{i}.parquet")
    compare(tmp_path / "0.parquet", tmp_path / "out")
    compare(str(tmp_path / "*.parquet"), tmp_path / "out", 2)


@settings(derandomize=True, deadline=None, max_examples=12)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(3, 40))
def test_any_order_any_batch(tmp_path_factory: pytest.TempPathFactory, seed: int, size: int, batch: int) -> None:
    folder = tmp_path_factory.mktemp("any")
    dirty(np.random.default_rng(seed), 4, 25).write_parquet(folder / "a.parquet", row_group_size=13)
    compare(folder / "a.parquet", folder / "out", size, batch)


def test_the_grid_is_that_of_the_whole(write: Write, tmp_path: Path) -> None:
    """A shard alone would find another interval and another phase than all of them together."""
    lines = [f"a,2024-01-01 0{h}:07,1" for h in range(9)]
    lines += [f"{h},2024-01-01 0{t}:{m:02d},1" for h in "bc" for t in range(9) for m in (0, 15, 30, 45)]
    path = write("b.csv", "id,time,kw", *(line.replace(":07", ":08") for line in lines))
    compare(path, tmp_path / "out")
    path = write(
        "c.csv", "id,time,kw", *(f"{h},2024-01-01 0{t}:{m},1" for h in "de" for t in "12" for m in (11, 26, 41))
    )
    compare(path, tmp_path / "out")
    quality = compare(write("a.csv", "id,time,kw", *lines), tmp_path / "out")
    assert quality.filter(pl.col("verdict") == "left out")["household"].to_list() == ["a"]
    with pytest.raises(shoal.InputError, match="interval cannot be inferred"):
        go(tmp_path / "other", write("d.csv", "id,time,kw", *(f"{h},2024-01-01 00:00,1" for h in "ab")))


def test_simulated_shards_are_stretches_of_the_whole(tmp_path: Path) -> None:
    readings, _ = sharded(shoal.SimulatedMeters(9, 2, 30, 4), tmp_path / "out", 4)
    assert len(readings) == 3
    frame = pl.concat([pl.read_parquet(file) for file in readings]).sort("household", maintain_order=True)
    assert frame.equals(shoal.simulate_meters(9, 2, 30, seed=4))


def test_shards_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    dirty(np.random.default_rng(3)).write_parquet(path)
    first, again = (
        [file.read_bytes() for files in sharded(path, tmp_path / str(batch), 3, batch) for file in files]
        for batch in (5, 1000)
    )
    assert first == again


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["id,time,kw"], "bad.csv has a header and no rows"),
        (["a,b,c", "1,2,3"], "bad.csv has no timestamp column"),
        (["id,time,kw", "a,31 Dec 24,1"], "no timestamp of bad.csv can be read; pass timestamp_format"),
        (["id,time,kw", "a,2024-01-01 00:00,123.456", "a,2024-01-01 00:15,1,2,3,4"], "bad.csv"),
        (["id,time,kwh", "a,2024-01-01 00:00,1", "a,2024-01-01 00:15,1"], "unit: some files hold energy"),
        (["id,time,note,more", "a,2024-01-01 00:00,1,2"], "bad.csv has no column that looks like power"),
    ],
)
def test_bad_files_are_named(write: Write, tmp_path: Path, lines: list[str], message: str) -> None:
    write("fine.csv", "id,time,kw", "a,2024-01-01 00:00,1", "a,2024-01-01 00:15,1")
    bad = write("bad.csv", *lines)
    folder = tmp_path / "run"
    with pytest.raises(shoal.InputError, match=message) as caught:
        go(folder, bad.parent)
    assert "123" not in str(caught.value)
    assert not list(folder.rglob("*.arrow"))  # nothing of a refused file is left


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "watt"}, "unit must be one of"),
        ({"interval": 7}, "divide one day"),
        ({"time_zone": "Mars/Olympus"}, "time_zone must name"),
        ({"value_column": "nope"}, "no column 'nope'"),
        ({"max_kw": -1.0}, "max_kw must be above 0"),
        ({"shard_size": 0}, "shard_size must be at least 1"),
    ],
)
def test_bad_settings_are_named(write: Write, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = write("a.csv", "id,time,kw", "a,2024-01-01 00:00,1", "a,2024-01-01 00:15,1")
    with pytest.raises(shoal.InputError, match=message):
        go(tmp_path / "out", path, **options)
    with pytest.raises(shoal.InputError, match="path"):
        go(tmp_path / "out", tmp_path / "gone.csv")
