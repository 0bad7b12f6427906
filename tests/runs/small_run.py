"""A small run: 24 simulated homes and a few odd ones, in two buckets, and what it released and was charged."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import shoal

#: Means of crowds: the default, in small.
CONFIG = shoal.Config(shard_size=12, crowd=5, horizon=4, order=(2, 1), train_days=14)
#: The same under an ε: charged, audited, proved.
CHARGED = replace(CONFIG, method="center", epsilon=1.0, delta=1e-5)
FIRST_DAY, SECOND_DAY, THIRD_DAY = (datetime(2024, 1, day) for day in (17, 18, 19))
#: Homes without readings on the second day, one of them with too few left to go on; one that joins on that day with its
#: past, and one with too few readings on the first.
SILENT, GAP, LATE, SHORT = "H0003", "H0011", "N0001", "H0007"
Days = tuple[Path, Path, Path]


def write_days(folder: Path) -> Days:
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


def go(
    out: Path, source: Any = None, config: shoal.Config | None = None, until: str = "release", **more: Any
) -> shoal.Run:
    """A run, by default in this process and until something is released."""
    return shoal.run(source, out, config=config, until=until, **{"workers": "serial", "cores": 2, **more})


def draw_alike(patch: pytest.MonkeyPatch) -> None:
    """From here on numbers of crowds, and lots, are drawn in one order: those of the next run are known."""
    numbers = itertools.count()
    patch.setattr("shoal.product.ledger.crowds.secrets", SimpleNamespace(randbelow=lambda n: next(numbers)))
    patch.setattr("shoal.product.runs.crowd_rows.shuffle", lambda n: list(range(n)))
    patch.setattr("shoal.product.runs.crowd_rows.draw_offset", lambda n: n // 3)


class Shard(NamedTuple):
    """A shard as the list of its stage has it."""

    path: Path
    files: dict[str, str]  #: suffix -> digest
    facts: dict[str, Any]

    @property
    def key(self) -> str:
        return self.path.name.split(".")[0]


def shards(out: Path, stage: str, which: str = "parts") -> list[Shard]:
    """The shards that a stage lists, or with "inputs" what each of them was made of."""
    listed = json.loads((out / f"{stage}.json").read_text())[which]
    return [Shard(out / part["path"], part["files"], part["facts"]) for part in listed]


def mechanisms(out: Path) -> list[shoal.Mechanism]:
    return [shoal.Mechanism.load(part.path) for part in shards(out, "design")]


def left_out(out: Path) -> dict[str, str]:
    return dict(pl.read_csv(out / "left_out.csv", infer_schema=False).iter_rows())


def public(out: Path) -> pl.DataFrame:
    """The table that is passed on."""
    return pl.read_csv(out / "public" / "released.csv")


def crowds(out: Path) -> dict[str, int]:
    """Household -> crowd, as the owner has it."""
    table = pl.read_parquet(out / "released.parquet")
    return dict(table.select(table.columns[0], "crowd").unique().iter_rows())


def own_ledger(out: Path) -> shoal.Ledger:
    """The ledger in a run's folder, which is intact."""
    ledger = shoal.Ledger.open(f"sqlite:///{out}/ledger.db", create=False)
    assert ledger.verify().ok
    return ledger


def assert_recorded(out: Path, releases: int = 1) -> None:
    """So many releases of crowds are on record, and the last is the table that is passed on."""
    with own_ledger(out) as ledger:
        entries = [entry.content for entry in ledger.entries() if entry.kind == "crowds"]
    assert len(entries) == releases
    assert entries[-1]["query_id"] == shoal.Run.open(out).work.release_name
    assert entries[-1]["table"] == hashlib.sha256((out / "public/released.csv").read_bytes()).hexdigest()


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
    with own_ledger(out) as ledger:
        for entry in ledger.entries():
            if entry.kind == "release":
                name = entry.content["label"], entry.content["query_id"]
                assert name not in answers
                answers[name] = entry.content["released"]
    return answers


def largest_base(out: Path, answers: dict[tuple[str, str], list[float]]) -> float:
    """The largest base of the crowds of these labels."""
    with own_ledger(out) as ledger:
        kept = ledger.crowds(sorted({name for name, _ in answers})).crowds["kept"].to_list()
    return max(float(base) for one in kept if one for base in json.loads(one)["bases"])


def assert_released_as_charged(out: Path) -> set[str]:
    """What the last release wrote is, bit by bit, what the ledger has for it, in every file; whom it is about."""
    run = shoal.Run.open(out)
    answers, name, log = charged(out), run.work.release_name, run.config.query != "point"
    table = pl.read_parquet(out / "released.parquet")
    assert pl.read_csv(out / "released.csv")["kw"].to_list() == table["kw"].to_list()
    passed_on = public(out)
    assert passed_on.columns == ["crowd", "row", "step", "timestamp", "kw"]
    assert passed_on["kw"].to_list() == table["kw"].to_list()
    numbers = table.filter(pl.col("step") == 1).group_by("crowd").agg(pl.col("row").sort())
    assert all(rows.to_list() == list(range(1, len(rows) + 1)) for rows in numbers["row"])
    figures = {str(home): rows["kw"].to_numpy() for (home,), rows in table.group_by("household")}
    seen: set[str] = set()
    for block in shards(out, "design", "inputs"):
        known = shoal.Forecasts.load(block.path)
        for household in known.households:
            assert household not in seen
            seen.add(household)
            answer = np.array(answers[household, name])
            if (
                run.work.facts.release is not None and run.work.facts.release.rounded
            ):  # within a base of what is on record
                assert (np.abs(answer - figures[household]) < largest_base(out, answers)).all()
                continue
            np.testing.assert_array_equal(known.to_power(answer) if log else answer, figures[household])
    assert seen == set(figures) == {household for household, query in answers if query == name}
    return seen


def digests(out: Path) -> dict[str, dict[str, str]]:
    """Digests of all files of forecasts and mechanisms, by the key of their shard."""
    names = ("fit", "design") if (out / "design.json").is_file() else ("fit",)
    return {part.key: part.files for name in names for part in shards(out, name)}


def damage(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    """Remove all files of a shard, as the message about a damaged one says."""
    for file in path.parent.glob(f"{path.name.split('.')[0]}.*"):
        file.unlink()


def on_call(number: int, function: Callable[..., Any], error: BaseException, *, after: bool) -> Callable[..., Any]:
    """The function, which at its n-th call raises instead of, or after, doing its work."""
    calls = 0

    def stopped(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != number:
            return function(*arguments, **named)
        if after:
            function(*arguments, **named)
        raise error

    return stopped
