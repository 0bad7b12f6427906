"""What a run would take, before it starts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import shoal.runs.plan as planning
from shoal.errors import InputError
from shoal.runs.config import Config
from shoal.runs.pieces import extent
from shoal.runs.plan import (
    STAGES,
    TABLE_STAGES,
    Units,
    duration,
    pilot,
    plan,
    size,
    table_extent,
    table_pilot,
)
from shoal.runs.sources import SimulatedMeters
from shoal.sources.meters.simulate import simulate_meters

SMALL = Config(order=(1, 0), horizon=2, train_days=4, crowd=5, shard_size=100)
UNITS = Units(seconds=dict.fromkeys(STAGES, 1e-3), disk={"shards": 900.0, "ledger": 100.0}, memory=1e5, memory_once=1e8)


@pytest.fixture
def known_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "measured", lambda config, simulated: UNITS)


@pytest.mark.usefixtures("known_units")
def test_a_plan_is_units_times_households() -> None:
    made = plan(SimulatedMeters(1000, 5), workers="processes", cores=2, shard_size=100, crowd=20)
    assert (made.households, made.readings, made.shards, made.groups) == (1000, 1000 * 5 * 96, 10, 50)
    assert made.edges == 50 * 20 * 19 // 2
    assert made.seconds["fit"] == pytest.approx(0.5)
    assert made.seconds["charge"] == pytest.approx(1.0), "one place keeps the ledger, whatever the workers"
    assert made.memory == pytest.approx(3 * 1e8 + 2 * 100 * 1e5), "two workers and the driver, a shard each"
    assert made.disk == pytest.approx(1000 * 1000.0)
    assert made.to_dict()["total_seconds"] == pytest.approx(5 * 0.5 + 1.0)


@pytest.mark.usefixtures("known_units")
def test_memory_does_not_grow_with_the_households_and_time_does() -> None:
    few, many = (plan(SimulatedMeters(n), workers="processes", cores=2) for n in (10_000, 1_000_000))
    assert many.memory == few.memory
    assert many.total_seconds == pytest.approx(100 * few.total_seconds)


@pytest.mark.usefixtures("known_units")
def test_one_shard_uses_one_worker() -> None:
    made = plan(SimulatedMeters(50), workers="processes", cores=8)
    assert made.shards == 1
    assert made.seconds["fit"] == pytest.approx(0.05)


def test_a_pilot_goes_through_every_stage() -> None:
    found = pilot(SMALL, True, 12)
    assert set(found["seconds"]) == set(STAGES)
    assert all(seconds >= 0 for seconds in found["seconds"].values())
    assert found["disk"]["shards"] > 0
    assert found["disk"]["ledger"] > 0
    assert found["memory"] > 1e7


def test_a_pilot_of_files_reads_a_file() -> None:
    config = SMALL.changed(query="trajectory", shard_size=7)
    assert pilot(config, False, 12)["seconds"]["readings"] > 0


def test_a_pilot_elsewhere_says_what_is_wrong_with_the_settings() -> None:
    config = Config(order=(9, 9), train_days=1, season="day")
    with pytest.raises(InputError, match="pilot cannot run with these settings: train_days"):
        planning.measured(config, simulated=True)


def test_the_extent_of_files(tmp_path: Path) -> None:
    frame = simulate_meters(7, 2, 60)
    frame.write_parquet(tmp_path / "long.parquet")
    frame.pivot("household", index="timestamp", values="kw").write_csv(tmp_path / "wide.csv")
    assert extent(tmp_path / "long.parquet") == (7, 7 * 48)
    assert extent(tmp_path / "wide.csv", unit="kw") == (7, 7 * 48)


@pytest.mark.usefixtures("known_units")
def test_the_disk_is_that_of_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    statvfs = planning.os.statvfs

    def seen(path: Path) -> os.statvfs_result:
        asked.append(Path(path))
        return statvfs(path)

    monkeypatch.setattr(planning.os, "statvfs", seen)
    plan(SimulatedMeters(50), tmp_path / "not" / "there" / "yet")
    assert asked == [tmp_path]


def costs(labels: int, rows: int) -> dict[str, Any]:
    """A pilot whose stages take 1 s once, 1 ms a label and 0.1 ms a row, and twice that on disk."""
    cost = 1.0 + 1e-3 * labels + 1e-4 * labels * rows
    return {"seconds": dict.fromkeys(TABLE_STAGES, cost), "disk": {"shards": 2 * cost, "ledger": 0.0}, "memory": 1e8}


@pytest.mark.parametrize(("rows", "pilots"), [(1, 3), (1000, 4)], ids=["constants", "samples"])
def test_a_table_costs_by_labels_and_rows(
    rows: int, pilots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def known(config: Config, entries: int, labels: int, rows: int) -> dict[str, Any]:
        asked.append(entries)
        return costs(labels, rows)

    monkeypatch.setattr(planning, "table_pilot", known)
    monkeypatch.setattr(planning, "_elsewhere", lambda work: work())
    frame = pl.DataFrame({"who": [f"w{i % 50}" for i in range(50 * rows)], "x": 1.5, "y": 2.5, "word": "a"})
    made = plan(frame, tmp_path, label="who", workers="processes", cores=2, shard_size=25, crowd=5)
    assert (made.households, made.readings, made.shards, made.groups) == (50, 50 * rows, 2, 10)
    assert asked == [2] * pilots
    each = 50 * (1e-3 + 1e-4 * rows)
    assert made.seconds["draw"] == pytest.approx(each / 2)
    assert made.seconds["charge"] == made.seconds["rows"] == pytest.approx(each)
    assert made.disk == pytest.approx(2 * each)
    assert "50 labels" in str(made.words())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rows", [1, 12])
def test_a_pilot_of_a_table_goes_through_every_stage(rows: int) -> None:
    found = table_pilot(Config(label="speaker", crowd=3, columns=("a", "b"), weights=("a=2",)), 2, 6, rows)
    assert set(found["seconds"]) == set(TABLE_STAGES)
    assert found["disk"]["shards"] > 0
    assert found["disk"]["ledger"] > 0


def test_the_extent_of_a_table(tmp_path: Path) -> None:
    frame = pl.DataFrame({"who": ["a", "a", "b", "c"], "x": [1.0, 2, 3, 4], "y": [1.0, 2, 3, 4], "word": ["u"] * 4})
    frame.write_csv(tmp_path / "table.csv")
    for source in (tmp_path / "table.csv", frame, frame.to_pandas()):
        assert table_extent(source, Config(label="who")) == (3, 4, 2)
    assert table_extent(frame, Config(label="who", drop=("y",), only=("a", "b"))) == (2, 3, 1)
    long = pl.DataFrame({"who": ["a", "a", "b", "b"], "at": ["1", "2"] * 2, "x": [1.0, 2, 3, 4]})
    assert table_extent(long, Config(label="who", timestamp_column="at", value_column="x")) == (2, 2, 2)
    with pytest.raises(InputError, match="fewer than two labels"):
        table_extent(frame, Config(label="word"))
    with pytest.raises(InputError, match="no column 'speaker'"):
        plan(frame, label="speaker")


def test_units_for_people() -> None:
    assert [duration(s) for s in (3.2, 240, 86_400)] == ["3 s", "4 min", "24.0 h"]
    assert [size(b) for b in (2_500, 5e7, 3.2e9, 4e12)] == ["2.5 kB", "50 MB", "3.2 GB", "4.0 TB"]


@pytest.mark.usefixtures("known_units")
def test_the_command_plans_and_does_nothing(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from shoal.cli.main import app

    out = tmp_path / "run"
    done = CliRunner().invoke(
        app, ["demo", "--households", "5000", "--workers", "processes", "--plan", "--json", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["households"] == 5000
    assert not out.exists()
