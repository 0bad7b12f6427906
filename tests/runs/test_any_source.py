"""The same rows from a file, a lazy frame, an Arrow stream or pandas make the same release, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_run import assert_recorded, draw_alike, go, shards

import shoal

CONFIG = shoal.Config(crowd=5, horizon=4, order=(1, 1), train_days=7)


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


class Stream:
    """What any library of Arrow tables has, and nothing else."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


WAYS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "polars": lambda frame, folder: frame,
    "lazy": as_lazy,
    "arrow": lambda frame, folder: Stream(frame),
    "pandas": as_pandas,
}


def outcome(out: Path, source: Any, patch: pytest.MonkeyPatch) -> tuple[bytes, list[dict[str, str]], list[str]]:
    """Release; the public table, digests of all files of forecasts, and the stored source, named by its digest."""
    draw_alike(patch)
    run = go(out, source, CONFIG)
    assert_recorded(out)
    assert run.work.facts.people is not None
    stored = [path.name for path in (out / "shards" / "source").glob("*")]
    assert (run.work.facts.people.source == "a frame") == bool(stored)
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


def test_what_is_no_source_is_said_by_name() -> None:
    for wrong in (5, None, object()):
        with pytest.raises(shoal.InputError, match="path: expected a path"):
            shoal.read_meters(wrong)  # type: ignore[arg-type]
