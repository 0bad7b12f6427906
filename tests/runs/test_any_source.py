"""The same rows from a file, a lazy frame, DuckDB or pandas make the same release, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_run import assert_recorded, draw_alike, go, shards
from typer.testing import CliRunner

import shoal
from shoal.product.cli.main import app

CONFIG = shoal.Config(crowd=5, horizon=4, order=(1, 1), train_days=7)
SQL = "SELECT household, timestamp, kw FROM readings ORDER BY household, timestamp"


@pytest.fixture(scope="module")
def meters() -> pl.DataFrame:
    return shoal.simulate_meters(14, 8, step_minutes=60, seed=3)


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


class Stream:
    """What any library of Arrow tables has, and nothing else."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


class Protocol:
    """What frames had before Arrow streams, and nothing else."""

    def __init__(self, frame: pl.DataFrame, folder: Path) -> None:
        self._frame = as_pandas(frame, folder)

    def __dataframe__(self, *given: Any, **named: Any) -> object:
        return self._frame.__dataframe__(*given, **named)


WAYS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "polars": lambda frame, folder: frame,
    "lazy": as_lazy,
    "arrow": lambda frame, folder: Stream(frame),
    "pandas": as_pandas,
    "protocol": Protocol,
    "duckdb": as_duckdb,
}


def outcome(out: Path, source: Any, patch: pytest.MonkeyPatch) -> tuple[bytes, list[dict[str, str]], list[str]]:
    """Release; the public table, digests of all files of forecasts, and the stored source, named by its digest."""
    draw_alike(patch)
    run = go(out, source, CONFIG)
    assert_recorded(out)
    assert run.fit is not None
    stored = [path.name for path in (out / "shards" / "source").glob("*")]
    assert (run.fit.source == "a frame") == bool(stored)
    return (out / "public/released.csv").read_bytes(), [part.files for part in shards(out, "fit")], stored


@pytest.mark.parametrize("way", WAYS)
def test_every_source_makes_the_same_release(
    way: str, meters: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, files, stored = outcome(tmp_path / "other", WAYS[way](meters, tmp_path), monkeypatch)
    assert (table, files, []) == outcome(tmp_path / "file", as_csv(meters, tmp_path), monkeypatch)
    if way != "pandas":  # whose instants are stored in another unit
        assert stored == outcome(tmp_path / "frame", meters, monkeypatch)[2]


@pytest.mark.parametrize("way", WAYS)
def test_readings_are_read_alike(way: str, meters: pl.DataFrame, tmp_path: Path) -> None:
    assert shoal.read_meters(WAYS[way](meters, tmp_path)).equals(shoal.read_meters(as_csv(meters, tmp_path)))


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


def test_what_is_no_source_is_said_by_name() -> None:
    for wrong in (5, None, object()):
        with pytest.raises(shoal.InputError, match="path: expected a path"):
            shoal.read_meters(wrong)  # type: ignore[arg-type]
