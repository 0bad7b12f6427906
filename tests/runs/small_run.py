"""A small run: 24 simulated homes and a few odd ones, in shards of about 12, and what it released and was charged."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

import shoal
from shoal.runs.config import Config
from shoal.runs.jobs import Listing
from shoal.runs.run import Run
from shoal.runs.stages.release_stage import Shown
from shoal.sources.meters.forecast import Forecasts

CONFIG = Config(
    shard_size=12,
    crowd=5,
    cell=9,
    crowds="standing",
    horizon=4,
    order=(2, 1),
    train_days=14,
    audit_groups=1,
    audit_samples=100,
)
#: All that comes before the report, which takes longest.
STAGES = ("fit", "design", "release", "audit", "card")
FIRST_DAY, SECOND_DAY, THIRD_DAY = (datetime(2024, 1, day) for day in (17, 18, 19))
#: Homes without readings on the second day, one of them with too few left to go on; one that joins on that day with its
#: past, and one with too few readings on the first.
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


def opened(out: Path, meters: Path | None = None, config: Config | None = None, workers: str = "serial") -> Run:
    return Run(out, meters, config, workers=workers, cores=2)


def go(
    out: Path,
    meters: Path | None = None,
    config: Config | None = None,
    until: str = "card",
    *,
    update: bool = False,
    workers: str = "serial",
) -> Run:
    """Every stage up to one of them."""
    run = opened(out, meters, config, workers)
    with run.held():
        if update:
            run.go_on()
        for stage in STAGES[: STAGES.index(until) + 1]:
            run.do(stage)
    return run


def listing(out: Path, stage: str) -> Listing:
    return Listing.read(out / f"{stage}.json", out)


def mechanisms(out: Path) -> list[shoal.Mechanism]:
    return [shoal.Mechanism.load(part.path) for part in listing(out, "design").parts]


def left_out(out: Path) -> dict[str, str]:
    return dict(pl.read_csv(out / "left_out.csv", infer_schema=False).iter_rows())


def released(out: Path) -> dict[str, list[float]]:
    """Figures by household, from every file that lies in released/; no household has two."""
    found: dict[str, list[float]] = {}
    for path in sorted((out / "released").glob("*.parquet")):
        for (name,), rows in pl.read_parquet(path).group_by("household", maintain_order=True):
            assert str(name) not in found
            found[str(name)] = rows.sort("step")["released_kw"].to_list()
    return found


def charged(out: Path) -> dict[tuple[str, str], list[float]]:
    """Every answer on record, renewals of kept draws too, by household and name of the release; the record is intact
    and has no answer twice.
    """
    found: dict[tuple[str, str], list[float]] = {}
    if not (out / "ledger.db").is_file():
        return found
    with shoal.Ledger.open(f"sqlite:///{out}/ledger.db", create=False) as ledger:
        assert ledger.verify().ok
        for entry in ledger.entries():
            if entry.kind in ("release", "renewed"):
                name = entry.content["label"], entry.content["query_id"]
                assert name not in found
                found[name] = entry.content["released"]
    return found


def assert_released_as_charged(out: Path) -> set[str]:
    """What the last release wrote is, bit by bit, what the ledger has for it, in every file; whom it is about."""
    forecasts = {part.key: made_of for part, made_of in listing(out, "design").pairs}
    answers, name = charged(out), Run.open(out).release_name
    log = Run.open(out).config.answers == "log"
    table = pl.read_parquet(out / "released.parquet")
    parts = listing(out, "release").parts
    shards = pl.concat([pl.read_parquet(part.path) for part in parts])
    assert shards.drop("group").equals(table.drop("group"))
    assert pl.read_csv(out / "released.csv")["released_kw"].to_list() == table["released_kw"].to_list()
    passed_on = pl.read_csv(out / "public" / "released.csv")
    assert passed_on.columns == ["group", "row", "step", "timestamp", "released_kw"]
    assert passed_on["released_kw"].to_list() == table["released_kw"].to_list()
    numbers = table.filter(pl.col("step") == 1).group_by("group").agg(pl.col("row").sort())
    assert all(rows.to_list() == list(range(1, len(rows) + 1)) for rows in numbers["row"])
    figures = {str(one): rows["released_kw"].to_numpy() for (one,), rows in table.group_by("household")}
    seen: set[str] = set()
    for part in parts:
        known = Forecasts.load(forecasts[part.told(Shown).mechanism].path)
        for household in known.households:
            assert household not in seen
            seen.add(household)
            answer = np.array(answers[household, name])
            np.testing.assert_array_equal(known.to_power(answer) if log else answer, figures[household])
    assert seen == set(figures) == {household for household, query in answers if query == name}
    return seen


def digests(out: Path) -> dict[str, dict[str, str]]:
    """Digests of all files of forecasts and mechanisms, by the key of their shard."""
    return {part.key: part.files for name in ("fit", "design") for part in listing(out, name).parts}


def damage(path: str | Path) -> None:
    """Flip one bit in the middle of a file."""
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(path).write_bytes(data)


def remove(path: str | Path) -> None:
    """Remove all files of a shard, as the message about a damaged one says."""
    for file in Path(path).parent.glob(f"{Path(path).name.split('.')[0]}.*"):
        file.unlink()
