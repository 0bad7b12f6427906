"""One home's cells decide about that home alone: two worlds, and all other homes' bits (theory, section 14)."""

from __future__ import annotations

from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from two_worlds import LAYOUTS, ODD, OTHERS, World, readings_of

#: Pairs of the quick test, worlds without the odd home that they share, and pairs of the campaign.
PAIRS, SHAPES, MANY = 300, 30, 10_000


def compare(seeds: range, shapes: int, folder: Path) -> None:
    """Pairs of worlds; in one of ten by the files and shards of a run, in one of fifty up to the forecasts."""
    many, without = len(seeds) > PAIRS, {}
    for seed in seeds:
        kind = "memory" if not many or seed % 10 else "shards" if seed % 50 else "curves"
        shape, days = 10_000 + seed % shapes, 2 if kind == "curves" else 1
        world = World(seed, shape, days)
        if (shape, kind) not in without:
            without[shape, kind] = readings_of(world.files(odd=False), World(shape, shape, days), folder, kind)
            # A home with too many gaps for a model has no forecast, in either world.
            assert len(without[shape, kind]) >= (1 if kind == "curves" else len(OTHERS))
        assert readings_of(world.files(odd=True), world, folder, kind) == without[shape, kind], (seed, world.layout)
    assert {World(seed, shape).layout for shape, _ in without} == set(LAYOUTS)


def test_one_home_decides_about_no_other(tmp_path: Path) -> None:
    """300 pairs: any layout, encoding and zone, and a home that sends whatever a cell can hold."""
    compare(range(PAIRS), SHAPES, tmp_path)


CELLS = 4 * 48
#: What one household's column of a Parquet file can be.
ODD_COLUMNS = {
    "text": pl.Series(["n/a", *["1.0"] * (CELLS - 1)]),
    "whole numbers": pl.Series([1] * CELLS),
    "large": pl.Series(np.where(np.arange(CELLS) % 9, 1.0, 1.7e308)),
    "small": pl.Series(np.full(CELLS, 1e-318)),
    "nothing": pl.Series([None] * CELLS, dtype=pl.Null),
    "yes and no": pl.Series([True] * CELLS),
    "dates": pl.Series([datetime(2024, 1, 1)] * CELLS),
    "lists": pl.Series([[1.0]] * CELLS),
    "structs": pl.Series([{"a": 1}] * CELLS),
    "categories": pl.Series(["1"] * CELLS, dtype=pl.Categorical),
    "bytes": pl.Series([b"1"] * CELLS),
    "decimals": pl.Series(["1.0"] * CELLS).cast(pl.Decimal(10, 2)),
}


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Float64, pl.String])
def test_the_type_of_one_column_decides_about_no_other(tmp_path: Path, dtype: type[pl.DataType]) -> None:
    """A Parquet file with a column per household: what one column holds, and of which type, moves no other bit."""
    world = World(7)
    world.origin, world.zone, world.instants = "2024-01-09T00:00", None, False
    start = datetime(2024, 1, 5)
    kw = np.random.default_rng(3).uniform(0.1, 3, (CELLS, len(OTHERS))).astype(np.float32)
    frame = pl.DataFrame({"timestamp": [start + timedelta(minutes=30 * i) for i in range(CELLS)]}).with_columns(
        pl.Series(home, own).cast(dtype) for home, own in zip(OTHERS, kw.T, strict=True)
    )

    def bits(table: pl.DataFrame) -> dict[str, bytes]:
        table.write_parquet(file := BytesIO())
        return readings_of({"meters.parquet": file.getvalue()}, world, tmp_path, "curves")

    without = bits(frame)
    assert len(without) == len(OTHERS)
    for what, column in ODD_COLUMNS.items():
        assert bits(frame.with_columns(column.alias(ODD))) == without, what


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_one_home_decides_about_no_other_in_ten_thousand_pairs(tmp_path: Path, part: int) -> None:
    """The same in earnest."""
    compare(range(part * MANY // 20, (part + 1) * MANY // 20), 95 + part, tmp_path)
