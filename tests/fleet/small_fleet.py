"""A small fleet: 24 simulated homes and a few odd ones, in shards of about 12, and what it released and was charged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shoal
from shoal.engine import sources
from shoal.engine.config import Config
from shoal.engine.run import Run
from shoal.fleet.jobs import parts_of, read_list
from shoal.fleet.sharded import Sharded
from shoal.meters.forecast import Forecasts

CONFIG = Config(
    engine="serial",
    shard_size=12,
    group_cap=5,
    horizon=4,
    order=(2, 1),
    train_days=14,
    audit_groups=2,
    audit_samples=100,
)
#: All that comes before the report, which takes longest.
STAGES = ("fit", "design", "release", "audit", "card")
FIRST_DAY, SECOND_DAY, THIRD_DAY = (datetime(2024, 1, day) for day in (17, 18, 19))
#: Homes without readings on the second day, one of them with too few left to go on; one that joins on that day, and
#: one with too few readings on the first.
SILENT, GAP, LATE, SHORT = "H0003", "H0011", "N0001", "H0007"


def write_days(folder: Path) -> tuple[Path, Path, Path]:
    """Meter files of 16 days, and of each of the next two."""
    every = shoal.simulate_meters(24, 18, seed=1)
    when = pl.col("timestamp")
    first, second = folder / "monday.parquet", folder / "tuesday.parquet"
    short = (pl.col("household") == SHORT) & (when < datetime(2024, 1, 16))
    thin = (pl.col("household") == SILENT) & when.is_between(datetime(2024, 1, 10), datetime(2024, 1, 12, 12))
    every.filter((when < FIRST_DAY) & ~short & ~thin).write_parquet(first)
    late = every.filter(pl.col("household") == "H0001").with_columns(household=pl.lit(LATE, dtype=pl.String))
    new = every.filter((when >= FIRST_DAY) & ~pl.col("household").is_in([SILENT, GAP]))
    pl.concat([new, late]).filter(when < SECOND_DAY).write_parquet(second)
    third = folder / "wednesday.parquet"
    every.filter(when.is_between(SECOND_DAY, THIRD_DAY, closed="left")).write_parquet(third)
    return first, second, third


@contextmanager
def going(out: Path, meters: Path | None = None, config: Config | None = None) -> Iterator[Run]:
    """A run in shards, held."""
    source = None if meters is None else sources.files(meters)
    with Run.start(out, source, config, None, Sharded()) as run:
        yield run


def go(out: Path, meters: Path | None = None, config: Config | None = None, until: str = "card") -> Run:
    """Every stage up to one of them."""
    with going(out, meters, config) as run:
        for stage in STAGES[: STAGES.index(until) + 1]:
            getattr(run, stage)()
        return run


def released(out: Path) -> dict[str, list[float]]:
    """Figures by household, from every file that lies in released/; no household has two."""
    found: dict[str, list[float]] = {}
    for path in sorted((out / "released").glob("*.parquet")):
        for (name,), rows in pl.read_parquet(path).group_by("household", maintain_order=True):
            assert str(name) not in found
            found[str(name)] = rows.sort("step")["released_kw"].to_list()
    return found


def charged(out: Path) -> dict[tuple[str, str], list[float]]:
    """Every answer on record, by household and name of the release; the record is intact and has no answer twice."""
    found: dict[tuple[str, str], list[float]] = {}
    if not (out / "ledger.db").is_file():
        return found
    with shoal.Ledger.open(f"sqlite:///{out}/ledger.db", create=False) as ledger:
        assert ledger.verify().ok
        for entry in ledger.entries():
            if entry.kind == "release":
                name = entry.content["label"], entry.content["query_id"]
                assert name not in found
                found[name] = entry.content["released"]
    return found


def assert_released_as_charged(out: Path) -> dict[str, Forecasts]:
    """What the last release wrote is, shard by shard and bit by bit, what the ledger has for it."""
    made, _, beside = read_list(out / "design.json", out)
    given, _, more = read_list(out / "release.json", out)
    forecasts = dict(zip((part.key for part in made), parts_of(beside["forecasts"], out), strict=True))
    answers = charged(out)
    seen = {}
    for part in given:
        known = Forecasts.load(forecasts[part.facts["mechanism"]].path)
        recorded = np.array([answers[name, more["name"]] for name in known.households])
        table = pl.read_parquet(part.path)
        assert table["household"].unique(maintain_order=True).to_list() == list(known.households)
        np.testing.assert_array_equal(known.to_power(recorded).ravel(), table["released_kw"].to_numpy())
        for name in known.households:
            assert name not in seen
            seen[name] = known
    assert set(seen) == {household for household, name in answers if name == more["name"]}
    return seen


def digests(out: Path) -> dict[str, dict[str, str]]:
    """Digests of all files of forecasts and mechanisms, by the key of their shard."""
    parts = [*read_list(out / "fit.json", out)[0], *read_list(out / "design.json", out)[0]]
    return {part.key: part.shard.files for part in parts}


def damage(path: str | Path) -> None:
    """Flip one bit in the middle of a file."""
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(path).write_bytes(data)


def remove(path: str | Path) -> None:
    """Remove all files of a shard, as the message about a damaged one says."""
    for file in Path(path).parent.glob(f"{Path(path).name.split('.')[0]}.*"):
        file.unlink()


def facts(out: Path, stage: str) -> dict[str, Any]:
    with going(out) as run:
        return run.facts(stage)
