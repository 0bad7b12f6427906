"""Kill workers and the driver of a run, over and over, and hold what it released against its ledger.

``python -m benchmarks.scale_faults [households] [workers ...]`` (10,000 on processes and ray by default). SIGKILL goes
to a random worker every few seconds, and to the driver at random moments, half of them during the release; the same
command is then given again until it is done. After every death of the driver, the owner's tables of released rows,
finished or not, are looked up in the ledger. White noise is the method: its rows are the charged answers, unrounded.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from shoal import Ledger
from shoal.product.card.facts import FitFacts
from shoal.product.runs.folder import CSV, PARQUET, Folder
from shoal.product.runs.shards import Listing

HOUSEHOLDS, KINDS = 10_000, ("processes", "ray")
WORKER_KILLS, DRIVER_KILLS = 20, 6
#: A run under an ε, so that there is something to charge, in forty shards.
COMMAND = """
import sys
import shoal
out, households, workers, size = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
run = shoal.run(
    shoal.SimulatedMeters(households, 17), out, order=(2, 1), horizon=4, crowd=10, method="white", epsilon=1.0,
    delta=1e-5, shard_size=size, workers=workers, cores=2,
)
sys.exit(run.exit_code)
"""
#: Seconds between kills of workers: time enough for one to come up and do something, since a task whose workers die
#: three times in a row is given up until the next run.
PAUSE = 2.0, 6.0
#: A worker that has a task, by what its command line holds.
WORKER = {"processes": b"multiprocessing.spawn", "ray": b"ray::attempt"}


@dataclass
class Tally:
    """What was counted on the way and at the end."""

    workers_killed: int = 0
    drivers_killed: int = 0
    in_release: int = 0
    given_up: int = 0
    uncharged: int = 0
    twice: int = 0
    altered: int = 0
    missing: int = 0
    released: int = 0
    left_out: int = 0
    shards: int = 0
    intact: bool = False
    seconds: float = 0.0
    made: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.intact and not (self.uncharged or self.twice or self.altered or self.missing)


def descendants(pid: int) -> dict[int, bytes]:
    """Command lines of all processes below one, by their id."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents.setdefault(int((entry / "stat").read_text().rsplit(") ", 1)[1].split()[1]), []).append(
                int(entry.name)
            )
        except (OSError, IndexError):
            continue
    found: dict[int, bytes] = {}
    todo = [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            todo.append(child)
            try:
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue
    return found


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def releasing(out: Path) -> bool:
    """Whether the release has begun and is not done."""
    try:
        return json.loads((out / "state.json").read_text())["releasing"] is not None
    except (OSError, ValueError):
        return False


def torment(out: Path, households: int, workers: str, seed: int = 0) -> Tally:
    """Give the same command until it ends by itself and well, killing all the while."""
    choose = random.Random(seed)
    tally, begun = Tally(), time.monotonic()
    size = max(10, households // 40)
    command = [sys.executable, "-c", COMMAND, str(out), str(households), workers, str(size)]
    environment = {**os.environ, "RAY_ADDRESS": "local", "SHOAL_THREADS": "1"}
    for _ in range(10 * DRIVER_KILLS):
        driver = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # Every other driver lives until the release has begun, and dies a little later.
        late = tally.drivers_killed % 2 == 1
        life = choose.uniform(0.0, 3.0) if late else choose.uniform(3.0, 3.0 + min(households / 50, 20.0))
        doomed = tally.drivers_killed < DRIVER_KILLS
        started = time.monotonic()
        next_kill = started + choose.uniform(*PAUSE)
        while driver.poll() is None:
            time.sleep(0.05)
            now = time.monotonic()
            in_release = releasing(out)
            if doomed and late and not in_release:
                started = now
            elif doomed and now - started > life:
                left = descendants(driver.pid)
                end(driver.pid)
                tally.drivers_killed += 1
                tally.in_release += in_release
                driver.wait()
                time.sleep(1.0)
                for pid, line in left.items():  # what a killed Ray leaves running; workers of processes end themselves
                    if Path(f"/proc/{pid}/cmdline").exists() and b"ray" in line:
                        end(pid)
            if now > next_kill and tally.workers_killed < WORKER_KILLS:
                busy = [pid for pid, line in descendants(driver.pid).items() if WORKER[workers] in line]
                if busy:
                    end(choose.choice(busy))
                    tally.workers_killed += 1
                next_kill = now + choose.uniform(*PAUSE)
        text = b"" if driver.stderr is None else driver.stderr.read()
        tally.uncharged += uncharged(out)
        if driver.returncode == 0:
            break
        if b"worker" in text:
            tally.given_up += 1  # tasks given up, or workers that did not start: the same command goes on
        elif driver.returncode != -signal.SIGKILL:
            sys.exit(text.decode()[-2000:])
    else:
        sys.exit("the run does not come to an end")
    checked(out, households, tally)
    tally.seconds = time.monotonic() - begun
    return tally


def uncharged(out: Path) -> int:
    """Households with released figures on disk, finished or not, that the ledger has no charge for."""
    files = [path for name in (CSV, PARQUET) for path in (out / name, out / f".{name}.part") if path.is_file()]
    if not files:
        return 0
    charged = charges(out)
    count = 0
    for path in files:
        read = pl.read_csv if CSV in path.name else pl.read_parquet
        try:
            names = read(path, columns=["household"])["household"].unique()
        except (pl.exceptions.PolarsError, OSError):  # cut off in the middle of being written, or given its name by now
            continue
        count += sum(name not in charged for name in names)
    return count


def charges(out: Path) -> dict[str, list[list[float]]]:
    """Every charged answer by household."""
    answers: dict[str, list[list[float]]] = {}
    with Ledger.open(f"sqlite:///{out.resolve()}/ledger.db", create=False) as ledger:
        for entry in ledger.entries():
            if entry.kind == "release":
                answers.setdefault(entry.content["label"], []).append(entry.content["released"])
    return answers


def checked(out: Path, households: int, tally: Tally) -> None:
    """The finished run against its ledger: each household charged once, and written once as it was charged."""
    with Ledger.open(f"sqlite:///{out.resolve()}/ledger.db", create=False) as ledger:
        tally.intact = bool(ledger.verify())
    charged = charges(out)
    tally.twice += sum(len(answers) != 1 for answers in charged.values())
    fitted, designed = (Listing.read(out / f"{name}.json", out).parts for name in ("fit", "design"))
    written: dict[str, list[list[float]]] = {}
    for (name, _), rows in pl.read_parquet(out / PARQUET).partition_by("household", "row", as_dict=True).items():
        written.setdefault(str(name), []).append(rows.sort("step")["kw"].to_list())
    tally.twice += sum(len(rows) > 1 for rows in written.values())
    tally.altered += sum(rows != charged.get(name) for name, rows in written.items())
    tally.released, tally.left_out = len(written), sum(part.facts_as(FitFacts).left_out for part in fitted)
    tally.missing = households - tally.released - tally.left_out + len(set(charged) - set(written))
    tally.shards = len(designed)
    done = Folder(out).state().stages
    tally.made = {part.key: json.dumps(part.files, sort_keys=True) for part in (*fitted, *designed)}
    assert set(done) >= {"fit", "design", "release", "audit", "card", "report"}


def main() -> None:
    households = int(sys.argv[1]) if len(sys.argv) > 1 else HOUSEHOLDS
    kinds = sys.argv[2:] or list(KINDS)
    print("## Scale: faults\n")
    print(f"`python -m benchmarks.scale_faults {households} {' '.join(kinds)}`; load {os.getloadavg()[0]:.1f} at the")
    print(
        f"start on {os.cpu_count()} cores. Households charged or written more than once, released without a charge at"
    )
    print("any death of the driver, written otherwise than charged, or neither released nor left out.\n")
    print(
        "| workers | households | shards | s | workers killed | drivers killed (in the release) | given up and ", end=""
    )
    print("mended | released | left out | twice | uncharged | altered | missing | ledger |\n| --- |" + " ---: |" * 13)
    shards = []
    for workers in kinds:
        with tempfile.TemporaryDirectory() as folder:
            tally = torment(Path(folder, "run"), households, workers)
        print(
            f"| {workers} | {households} | {tally.shards} | {tally.seconds:.0f} | {tally.workers_killed} | "
            f"{tally.drivers_killed} ({tally.in_release}) | {tally.given_up} | {tally.released} | {tally.left_out} | "
            f"{tally.twice} | {tally.uncharged} | {tally.altered} | {tally.missing} | "
            f"{'intact' if tally.intact else 'BROKEN'} |",
            flush=True,
        )
        if not tally.ok:
            sys.exit(1)
        shards.append(tally.made)
    if len(shards) > 1:
        same = all(one == shards[0] for one in shards)
        print(f"\nForecasts and mechanisms of all shards, byte for byte: {'the same' if same else 'DIFFERENT'}.")
        if not same:
            sys.exit(1)


if __name__ == "__main__":
    main()
