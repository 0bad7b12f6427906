"""Kills at durable steps of `shoal run`, `--again` and `--update`, on one piece and in shards: charged once each.

A step is durable when a file gets its name or a transaction of the ledger ends. A child process does the job and ends
itself, without a word to anyone, right before or right after one of them; the same command is then given again. What
must hold: every household that was released has one charge under the name of the release, what is written is what was
charged, bit by bit, and the ledger verifies. ``python benchmarks/run_kills.py [kills per row]`` prints the table.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

os.environ["SHOAL_LEDGER"] = "folder"

import polars as pl

import shoal
from shoal import files
from shoal.ledger.storage import Storage
from shoal.runs import folder as folders
from shoal.runs import store
from shoal.runs.config import Config
from shoal.runs.context import DESIGN
from shoal.runs.jobs import Listing
from shoal.runs.run import Run

CONFIG: dict[str, Any] = {
    "crowd": 5, "cell": 9, "crowds": "standing", "horizon": 4, "order": (2, 1), "train_days": 14,
    "audit_groups": 1, "audit_samples": 100,
}  # fmt: skip
STAGES = ("fit", "design", "release", "audit", "card")


def job(out: Path, meters: Path | None, *, again: bool = False, update: bool = False, shard: int = 100) -> None:
    """What the command does, but for the report, which is long and charges nothing."""
    run = Run(out, meters, Config(shard_size=shard, **CONFIG), workers="serial")
    with run.held(), run.unless_refused():
        if update:
            run.go_on()
        run._settle(again)
        for stage in STAGES:
            run.do(stage)
        run._renewed()


def stepped(at: int, after: bool) -> list[int]:
    """Count durable steps from here on; at number ``at`` the process ends. Returns the counter."""
    count = [0]

    def step(do: Callable[[], Any]) -> Any:
        count[0] += 1
        if count[0] == at and not after:
            os._exit(9)
        found = do()
        if count[0] == at:
            os._exit(9)
        return found

    whole, transaction = files.write_whole, Storage._transaction

    def write(*arguments: Any, **named: Any) -> Any:
        return step(lambda: whole(*arguments, **named))

    for module in (files, folders, store):
        if hasattr(module, "write_whole"):
            module.write_whole = write  # type: ignore[attr-defined]

    class Ending:
        """A transaction whose end is a step, where it writes."""

        def __init__(self, storage: Storage, begin: str, undone: str) -> None:
            self._inner, self._writes = transaction(storage, begin, undone), "IMMEDIATE" in begin

        def __enter__(self) -> Any:
            return self._inner.__enter__()

        def __exit__(self, *error: Any) -> Any:
            if self._writes and error[0] is None:
                return step(lambda: self._inner.__exit__(*error))
            return self._inner.__exit__(*error)

    Storage._transaction = lambda *given: Ending(*given)  # type: ignore[assignment,method-assign,return-value]
    return count


def child(do: Callable[[], int | None], at: int = 0, after: bool = False) -> tuple[int, int]:
    """Run a job in a process of its own: how it ended, and what it returns or how many durable steps it took."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            count = stepped(at, after)
            found = do()
            os.write(writing, str(count[0] if found is None else found).encode())
            code = 0
        except BaseException:  # noqa: BLE001 - told, and the process ends
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reading) as handle:
        told = handle.read()
    return os.waitstatus_to_exitcode(status), int(told or 0)


def charges(out: Path) -> dict[str, dict[str, list[float]]]:
    """Answers on record by release and household; one answer each."""
    found: dict[str, dict[str, list[float]]] = {}
    with shoal.Ledger.open(out / "ledger.db", create=False) as ledger:
        assert ledger.verify()
        for entry in ledger.entries():
            if entry.kind == "release":
                content = entry.content
                names = found.setdefault(content["query_id"], {})
                assert content["label"] not in names, "charged twice"
                names[content["label"]] = content["released"]
    return found


def written(monday: Path, tuesday: Path) -> None:
    """Meter files of 16 days and of the next two."""
    readings = shoal.simulate_meters(24, 18, seed=1)
    day = datetime(2024, 1, 17)
    readings.filter(pl.col("timestamp") < day).write_parquet(monday)
    readings.filter(pl.col("timestamp") >= day).write_parquet(tuesday)


def checked(out: Path, releases: int) -> int:
    """Households of the last release, each charged once and written as charged; there are so many releases."""
    found = charges(out)
    assert len(found) == releases, f"{len(found)} releases instead of {releases}"
    last = found[Run.open(out).release_name]
    rows_of = pl.read_parquet(out / "released.parquet").group_by("household", maintain_order=True)
    shown = {str(name): rows.sort("step")["released_kw"].to_list() for (name,), rows in rows_of}
    assert shown == last
    return len(last)


def main(kills: int = 10) -> None:
    print("| command | shards | durable steps | kills | charged |\n| --- | --- | --- | --- | --- |")
    total, begun = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        monday, tuesday = home / "monday.parquet", home / "tuesday.parquet"
        # The threads of Polars do not survive a fork: this process starts none, whatever touches a table is a child.
        assert child(lambda: written(monday, tuesday)) == (0, 0)
        for shard in (100, 12):
            base = home / f"base{shard}"
            assert child(lambda base=base, shard=shard: job(base, monday, shard=shard))[0] == 0  # type: ignore[misc]
            pieces = len(Listing.read(base / DESIGN, base).parts)
            for name, named, releases in (
                ("run", {"meters": monday}, 1),
                ("run --again", {"meters": None, "again": True}, 2),
                ("run --update", {"meters": tuesday, "update": True}, 2),
            ):

                def fresh(base: Path = base, first: bool = releases == 1) -> Path:
                    out = home / "tried"
                    shutil.rmtree(out, ignore_errors=True)
                    if not first:
                        shutil.copytree(base, out)
                    return out

                def do(named: dict[str, Any] = named, shard: int = shard) -> None:
                    job(home / "tried", **named, shard=shard)

                fresh()
                ended, steps = child(do)
                assert ended == 0
                _, households = child(lambda releases=releases: checked(home / "tried", releases))  # type: ignore[misc]
                assert households
                for number in range(kills):
                    at = 1 + number * (steps - 1) // max(kills - 1, 1)
                    # The end of the last step is the end of the command: asked for again, it is another one.
                    after = number % 2 == 1 and at < steps
                    out = fresh()
                    assert child(do, at, after)[0] == 9
                    assert child(do)[0] == 0
                    again = child(lambda out=out, releases=releases: checked(out, releases))  # type: ignore[misc]
                    assert again == (0, households), f"killed at step {at}, {'after' if after else 'before'} it"
                    total += 1
                print(f"| `{name}` | {pieces} | {steps} | {kills} | {households} households, once each |", flush=True)
    print(f"\n{total} kills in {time.monotonic() - begun:.0f} s: nothing charged twice, nothing shown uncharged.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
