"""The same rows from a file, a lazy frame, DuckDB or pandas make the same release, to the last bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from small_run import go, listing
from typer.testing import CliRunner

import shoal
from shoal.cli.main import app
from shoal.runs.config import Config
from shoal.sources.meters.answered import ForecastAnswers
from shoal.sources.meters.predictive import Forecasts

CONFIG = Config(crowd=5, horizon=4, order=(1, 1), train_days=7)
SQL = "SELECT household, timestamp, kw FROM readings ORDER BY household, timestamp"


@pytest.fixture(scope="module")
def meters() -> pl.DataFrame:
    return shoal.simulate_meters(14, 8, step_minutes=60, seed=3)


def draw_alike(patch: pytest.MonkeyPatch) -> None:
    """Numbers of crowds that are the same in every run."""
    drawn = itertools.count()
    patch.setattr("shoal.ledger.crowds.secrets", SimpleNamespace(randbelow=lambda n: next(drawn)))


@pytest.fixture(autouse=True)
def own_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_LEDGER", "folder")


def as_csv(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_csv(folder / "meters.csv")
    return folder / "meters.csv"


def as_lazy(frame: pl.DataFrame, folder: Path) -> pl.LazyFrame:
    frame.write_parquet(folder / "meters.parquet")
    return pl.scan_parquet(folder / "meters.parquet")


def as_pandas(frame: pl.DataFrame, folder: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame(frame.to_dict(as_series=False))


def database(frame: pl.DataFrame, folder: Path) -> Path:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    frame.write_parquet(folder / "rows.parquet")
    with duckdb.connect(str(folder / "meters.duckdb")) as connection:
        connection.execute(f"CREATE TABLE readings AS SELECT * FROM '{folder}/rows.parquet'")
    return folder / "meters.duckdb"


def as_duckdb(frame: pl.DataFrame, folder: Path) -> Any:
    path = database(frame, folder)
    return pytest.importorskip("duckdb").connect(str(path), read_only=True).sql(SQL)


WAYS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "polars": lambda frame, folder: frame,
    "lazy": as_lazy,
    "pandas": as_pandas,
    "duckdb": as_duckdb,
}


def outcome(out: Path) -> tuple[bytes, str, list[str]]:
    """The public table, its digest on record, and the digests of readings that a charge is recorded with."""
    run = shoal.Run.open(out)
    with run.ledger() as ledger:
        entry = ledger.recorded_crowds(run.release_name)
    assert entry is not None
    shards = [Forecasts.load(part.path) for part in listing(out, "fit").parts]
    digests = [digest for shard in shards for digest in ForecastAnswers(shard, "point", "kw").readings()]
    return (out / "public/released.csv").read_bytes(), entry.content["table"], digests


@pytest.mark.parametrize("way", WAYS)
def test_every_source_makes_the_same_release(
    way: str, meters: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_alike(monkeypatch)
    run = go(tmp_path / "other", WAYS[way](meters, tmp_path), CONFIG, "release")
    assert str(run.state.source) == "a frame"
    draw_alike(monkeypatch)
    go(tmp_path / "file", as_csv(meters, tmp_path), CONFIG, "release")
    assert outcome(tmp_path / "other") == outcome(tmp_path / "file")


@pytest.mark.parametrize("way", WAYS)
def test_readings_are_read_alike(way: str, meters: pl.DataFrame, tmp_path: Path) -> None:
    assert shoal.read_meters(WAYS[way](meters, tmp_path)).equals(shoal.read_meters(as_csv(meters, tmp_path)))


def test_rows_of_any_origin_are_stored_as_the_same_bytes(meters: pl.DataFrame, tmp_path: Path) -> None:
    from shoal.sources.frames import stored

    kept = [stored(WAYS[way](meters, tmp_path)) for way in ("polars", "lazy", "duckdb")]
    assert len({rows.path.read_bytes() for rows in kept if rows is not None}) == 1
    assert stored(tmp_path / "rows.parquet") is None  # local files are read where they are


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://nowhere-at-all/meters.xlsx", "the address cannot be read|shoal\\[delta\\]"),
        ("unknown://bucket/meters.parquet", "the address cannot be read"),
    ],
)
def test_addresses_that_cannot_be_read_are_refused(address: str, message: str) -> None:
    with pytest.raises(shoal.InputError, match=message):
        shoal.read_meters(address)


def test_an_address_is_scanned(meters: pl.DataFrame, tmp_path: Path) -> None:
    meters.write_parquet(tmp_path / "meters.parquet")
    assert shoal.read_meters(f"file://{tmp_path}/meters.parquet").equals(shoal.read_meters(tmp_path / "meters.parquet"))


def test_the_command_reads_a_database(meters: pl.DataFrame, tmp_path: Path) -> None:
    path = database(meters, tmp_path)
    small = ["--crowd", "5", "--horizon", "4", "--set", "order=1,1", "--train-days", "7", "--until", "fit"]

    def call(*arguments: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["run", *map(str, arguments), "--out", str(tmp_path / "out"), *small])
        return result.exit_code, result.output

    assert call("--database", path)[0] == 2
    assert call("--database", path, "--query", "SELECT nothing FROM readings")[0] == 2
    assert call(path, "--database", path, "--query", SQL)[0] == 2
    code, text = call("--database", path, "--query", SQL)
    assert code == 0, text
    assert shoal.Run.open(tmp_path / "out").config.query == "point"
