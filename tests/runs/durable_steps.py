"""Kill a run at every durable step, give the same command again, and hold the ledger against what is written.

A step is durable where a file gets its name (``os.replace``, ``os.rename``), a folder goes (``shutil.rmtree``) or a
transaction of the ledger is committed. A child process ends itself, without a word to anyone, right before such a step
(what it wrote has its temporary name by then) and right after it. ``python durable_steps.py FOLDER CASE`` walks one
case of :data:`CASES` and prints how many steps there were; it ends with an error where anything is charged or recorded
twice, shown without being on record, or otherwise than recorded.

The threads of Polars do not survive a fork: this process starts none, whatever touches a table is a child.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from small_run import (
    CHARGED,
    CONFIG,
    SECOND_DAY,
    assert_recorded,
    charged,
    go,
    largest_base,
    own_ledger,
    public,
    released,
)
from sqlalchemy import Connection

import shoal

KILLED = 9


def walked(at: int) -> list[int]:
    """Count the points before and after durable steps from here on; at number ``at`` the process ends."""
    count = [0]

    def point() -> None:
        count[0] += 1
        if count[0] == at:
            os._exit(KILLED)

    def stepped(do: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            point()
            result = do(*arguments, **named)
            point()
            return result

        return step

    for module, name in ((os, "replace"), (os, "rename"), (shutil, "rmtree")):
        setattr(module, name, stepped(getattr(module, name)))
    run = Connection.exec_driver_sql
    commit = stepped(run)

    def execute(self: Connection, statement: str, *more: Any, **named: Any) -> Any:
        return (commit if statement == "COMMIT" else run)(self, statement, *more, **named)

    Connection.exec_driver_sql = execute  # type: ignore[assignment,method-assign]
    return count


def child(do: Callable[[], None], at: int = 0) -> tuple[int, int]:
    """Run a job in a process of its own: how it ended, and how many points it passed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            count = walked(at)
            do()
            os.write(writing, str(count[0]).encode())
            code = 0
        except BaseException:  # noqa: BLE001 - told, and the process ends
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reading) as handle:
        points = handle.read()
    return os.waitstatus_to_exitcode(status), int(points or 0)


def job(out: Path, config: shoal.Config, meters: Path, until: str, *, update: bool = False) -> None:
    """What the command does."""
    go(out, meters, config, until, ledger="folder", update=update)


def check_means(out: Path, releases: int) -> None:
    """Every release of means is on record once, and what is written is what was recorded."""
    assert_recorded(out, releases)
    with own_ledger(out) as ledger:
        assert not any(entry.kind == "release" for entry in ledger.entries())  # nothing is charged
        book = ledger.crowds()
    rows = public(out).sort("crowd", "step")
    assert set(rows["crowd"]) == set(book.crowds["crowd"])
    for crowd, row in book.crowds.select("crowd", "row").iter_rows():
        assert rows.filter(pl.col("crowd") == crowd)["kw"].to_list() == np.frombuffer(row, "<f8").tolist()
    owner = shoal.Run.open(out).released
    assert owner["household"].n_unique() * 4 == len(owner)


def check_charged(out: Path, releases: int) -> None:
    """Every home is charged once for each release, and what is written is what was charged."""
    answers = charged(out)
    assert len({query for _, query in answers}) == releases
    with own_ledger(out) as ledger:
        assert sum(entry.kind == "crowds" for entry in ledger.entries()) == releases
    name = shoal.Run.open(out).work.release_name
    figures, shown = {label: row for (label, query), row in answers.items() if query == name}, released(out)
    base = largest_base(out, answers)  # rows are rounded and shifted
    assert shown.keys() == figures.keys()
    assert all(np.abs(np.array(shown[label]) - row).max() < base for label, row in figures.items())


#: Case -> settings, the stage it begins after, its last stage, whether it goes on with a second day, and the check.
CASES: dict[str, tuple[shoal.Config, str | None, str, bool, Callable[[Path, int], None]]] = {
    "means": (CONFIG, None, "report", False, check_means),
    "means, a second day": (CONFIG, "release", "release", True, check_means),
    "charged": (CHARGED, "fit", "release", False, check_charged),
}


def written(home: Path) -> None:
    """Meter files of 16 days and of the next one."""
    readings = shoal.simulate_meters(24, 18, seed=1).filter(pl.col("timestamp") < SECOND_DAY)
    first = pl.col("timestamp") < readings["timestamp"].min() + pl.duration(days=16)
    readings.filter(first).write_parquet(home / "monday.parquet")
    readings.filter(~first).write_parquet(home / "tuesday.parquet")


def walk(home: Path, case: str) -> int:
    """Kill at every point of a case; how many there were."""
    config, begun, until, update, check = CASES[case]
    meters, base, out = home / ("tuesday.parquet" if update else "monday.parquet"), home / "base", home / "run"
    releases = 2 if update else 1
    assert child(lambda: written(home))[0] == 0
    if begun is not None:
        assert child(lambda: job(base, config, home / "monday.parquet", begun))[0] == 0

    def fresh() -> None:
        shutil.rmtree(out, ignore_errors=True)
        if begun is not None:
            shutil.copytree(base, out)

    def do() -> None:
        job(out, config, meters, until, update=update)

    for _ in range(2):  # the first may have compiled kernels, whose files count as steps
        fresh()
        code, points = child(do)
        assert code == 0
    assert child(lambda: check(out, releases))[0] == 0
    for at in range(1, points + 1):
        fresh()
        assert child(do, at)[0] == KILLED, f"point {at} was not reached"
        assert child(do)[0] == 0, f"the same command fails after a kill at point {at} of {points}"
        assert child(lambda: check(out, releases))[0] == 0, f"killed at point {at} of {points}"
    return points


if __name__ == "__main__":
    print(walk(Path(sys.argv[1]), sys.argv[2]))
