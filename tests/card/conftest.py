"""One small run of each kind of release for all tests of what is said about it, and where screenshots go."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest
from card_cases import NASTY

import shoal

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"crowd": 4, "horizon": 4, "order": (1, 0), "train_days": 14}
ORIGIN = "2024-01-16T12:00"


@pytest.fixture(scope="session")
def meters() -> pl.DataFrame:
    """60 homes over 18 days; one of them is called something hostile."""
    readings = shoal.simulate_meters(60, 18, seed=3)
    name = pl.when(pl.col("household") == "H0007").then(pl.lit(NASTY)).otherwise(pl.col("household"))
    return readings.with_columns(household=name)


@pytest.fixture(scope="session")
def means(meters: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    """A release of means whose hours were metered later, then the next day in the same folder."""
    folder = tmp_path_factory.mktemp("means")
    meters.write_parquet(folder / "meters.parquet")
    out = folder / "street"
    shoal.run(folder / "meters.parquet", out, origin=ORIGIN, title="A street", licence="CC-BY-4.0", **SMALL)
    return shoal.run(folder / "meters.parquet", out, update=True, origin="2024-01-17T12:00", **SMALL)


@pytest.fixture(scope="session")
def certified(meters: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    """A codebook's release."""
    folder = tmp_path_factory.mktemp("certified")
    meters.write_parquet(folder / "meters.parquet")
    return shoal.run(
        folder / "meters.parquet", folder / "street", origin=ORIGIN, method="codebook", epsilon=3.0, **SMALL
    )


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: the documentation with SHOAL_SCREENSHOTS=1, else a temporary folder."""
    if os.environ.get("SHOAL_SCREENSHOTS") == "1":
        return ROOT / "docs" / "pictures"
    return tmp_path_factory.mktemp("pictures")
