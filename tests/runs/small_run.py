"""A small run: 24 simulated homes and a few odd ones, in two buckets, and what it released and was charged."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

import shoal
from shoal.runs.config import Config
from shoal.runs.folder import STAGES
from shoal.runs.run import Run
from shoal.runs.shards import Listing
from shoal.sources.meters.predictive import Forecasts

#: Means of crowds: the default, in small.
CONFIG = Config(shard_size=12, crowd=5, horizon=4, order=(2, 1), train_days=14)
#: The same under an ε: charged, audited, proved.
CHARGED = replace(CONFIG, method="center", epsilon=1.0, delta=1e-5)
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
            if run.charged or stage not in ("design", "audit"):
                run.do(stage)
    return run


def listing(out: Path, stage: str) -> Listing:
    return Listing.read(out / f"{stage}.json", out)


def mechanisms(out: Path) -> list[shoal.Mechanism]:
    return [shoal.Mechanism.load(part.path) for part in listing(out, "design").parts]


def left_out(out: Path) -> dict[str, str]:
    return dict(pl.read_csv(out / "left_out.csv", infer_schema=False).iter_rows())


def public(out: Path) -> pl.DataFrame:
    """The table that is passed on."""
    return pl.read_csv(out / "public" / "released.csv")


def crowds(out: Path) -> dict[str, int]:
    """Household -> crowd, as the owner has it."""
    table = pl.read_parquet(out / "released.parquet")
    return dict(table.select(table.columns[0], "crowd").unique().iter_rows())


def recorded(out: Path) -> list[str]:
    """Names of the releases of crowds on record; the ledger is intact."""
    with shoal.Ledger.open(f"sqlite:///{out}/ledger.db", create=False) as ledger:
        assert ledger.verify().ok
        return [entry.content["query_id"] for entry in ledger.entries() if entry.kind == "crowds"]


def released(out: Path) -> dict[str, list[float]]:
    """Figures by household, from the owner's table; none before it is written."""
    if not (out / "released.parquet").is_file():
        return {}
    rows = pl.read_parquet(out / "released.parquet").group_by("household", maintain_order=True)
    return {str(name): part.sort("step")["kw"].to_list() for (name,), part in rows}


def charged(out: Path) -> dict[tuple[str, str], list[float]]:
    """Every answer on record by household and name of the release; the record is intact and has no answer twice."""
    answers: dict[tuple[str, str], list[float]] = {}
    if not (out / "ledger.db").is_file():
        return answers
    with shoal.Ledger.open(f"sqlite:///{out}/ledger.db", create=False) as ledger:
        assert ledger.verify().ok
        for entry in ledger.entries():
            if entry.kind == "release":
                name = entry.content["label"], entry.content["query_id"]
                assert name not in answers
                answers[name] = entry.content["released"]
    return answers


def assert_released_as_charged(out: Path) -> set[str]:
    """What the last release wrote is, bit by bit, what the ledger has for it, in every file; whom it is about."""
    answers, name = charged(out), Run.open(out).release_name
    log = Run.open(out).config.answers == "log"
    table = pl.read_parquet(out / "released.parquet")
    assert pl.read_csv(out / "released.csv")["kw"].to_list() == table["kw"].to_list()
    passed_on = public(out)
    assert passed_on.columns == ["crowd", "row", "step", "timestamp", "kw"]
    assert passed_on["kw"].to_list() == table["kw"].to_list()
    numbers = table.filter(pl.col("step") == 1).group_by("crowd").agg(pl.col("row").sort())
    assert all(rows.to_list() == list(range(1, len(rows) + 1)) for rows in numbers["row"])
    figures = {str(home): rows["kw"].to_numpy() for (home,), rows in table.group_by("household")}
    seen: set[str] = set()
    release = Run.open(out).release
    lost = {one.key for one in release.failed} if release else set()
    for block in (block for part, block in listing(out, "design").pairs if part.key not in lost):
        known = Forecasts.load(block.path)
        for household in known.households:
            assert household not in seen
            seen.add(household)
            answer = np.array(answers[household, name])
            np.testing.assert_array_equal(known.to_power(answer) if log else answer, figures[household])
    assert seen == set(figures) == {household for household, query in answers if query == name}
    return seen


def digests(out: Path) -> dict[str, dict[str, str]]:
    """Digests of all files of forecasts and mechanisms, by the key of their shard."""
    names = ("fit", "design") if (out / "design.json").is_file() else ("fit",)
    return {part.key: part.files for name in names for part in listing(out, name).parts}


def damage(path: str | Path) -> None:
    """Flip one bit in the middle of a file."""
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(path).write_bytes(data)


def remove(path: str | Path) -> None:
    """Remove all files of a shard, as the message about a damaged one says."""
    for file in Path(path).parent.glob(f"{Path(path).name.split('.')[0]}.*"):
        file.unlink()
