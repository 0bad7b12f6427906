"""Runs at growing sizes: seconds and peak memory per stage, the same output on all workers, a cost model.

    python -m benchmarks scale                       1,000 and 10,000 households end to end
    python -m benchmarks.scale --sizes 100000
    python -m benchmarks.scale --same 200            digests of shards and rows on serial, processes and ray

Simulated households, 17 days of quarter-hours, the defaults of a run: ARMA(6, 5), 12 steps, crowds of 10, shards of
1,000. Memory is the resident set, sampled from /proc: the driver's peak and that of its largest worker.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl

import shoal

DAYS, ORIGIN = 17, "2024-01-17T18:00"
STAGES = ("simulate", "fit", "crowds", "release", "card", "report")


class Watch:
    """Seconds and memory by stage: told by the run what it does, asking /proc meanwhile."""

    def __init__(self, first: str = "simulate") -> None:
        self.stage = first
        self.seconds: dict[str, float] = {}
        self.driver: dict[str, float] = {}
        self.worker: dict[str, float] = {}
        self._since = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._turn("")
        self._stop.set()
        self._thread.join()

    def __call__(self, stage: str, text: str, done: float, total: int) -> None:
        name = "simulate" if text in ("simulating", "reading meters") else stage
        if name != self.stage:
            self._turn(name)

    def _turn(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self._since
        self.stage, self._since = stage, now

    def _sample(self) -> None:
        me = os.getpid()
        while not self._stop.wait(0.2):
            stage = self.stage
            self.driver[stage] = max(self.driver.get(stage, 0.0), resident(me))
            for child in descendants(me):
                self.worker[stage] = max(self.worker.get(stage, 0.0), resident(child))


def resident(pid: int) -> float:
    """MiB that a process holds; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


def descendants(pid: int) -> list[int]:
    """The processes below one."""
    below: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            below += [child, *descendants(child)]
    return below


def processor() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def measured(households: int, args: argparse.Namespace) -> dict[str, Any]:
    """One size, end to end."""
    source, before = shoal.SimulatedMeters(households, DAYS), processor()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, Watch() as watch:
        out = Path(folder) / "run"
        run = shoal.run(
            source, out, progress=watch, workers=args.workers, cores=args.cores, shard_size=args.shard_size,
            origin=ORIGIN,
        )  # fmt: skip
        disk = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
        assert run.work.facts.release is not None
        crowds = run.work.facts.release.crowds
    return {
        "households": households,
        "seconds": {name: watch.seconds.get(name, 0.0) for name in STAGES},
        "processor": processor() - before,
        "driver": watch.driver,
        "worker": watch.worker,
        "disk": disk,
        "crowds": crowds,
    }


def sizes(args: argparse.Namespace) -> None:
    """The tables."""
    rows = [measured(n, args) for n in args.sizes]
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(
        f"\nSeconds, workers {args.workers}, shards of {args.shard_size}, {cores} cores, load {load:.1f} at the end:\n"
    )
    print("| households | " + " | ".join(STAGES) + " | all | processor | ms per household | crowds |")
    print("| ---: " * (len(STAGES) + 5) + "|")
    for row in rows:
        cells = [f"{row['seconds'][name]:.1f}" for name in STAGES]
        total = sum(row["seconds"].values())
        print(
            f"| {row['households']:,} | {' | '.join(cells)} | {total:.1f} | {row['processor']:.1f} | "
            f"{total / row['households'] * 1e3:.2f} | {row['crowds']:,} |"
        )
    print("\nPeak resident memory in MiB, driver / largest worker, and MB on disk:\n")
    print("| households | " + " | ".join(STAGES) + " | disk |")
    print("| ---: " * (len(STAGES) + 2) + "|")
    for row in rows:
        cells = [f"{row['driver'].get(name, 0):.0f} / {row['worker'].get(name, 0):.0f}" for name in STAGES]
        print(f"| {row['households']:,} | {' | '.join(cells)} | {row['disk'] / 1e6:.0f} |")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


def same(households: int, args: argparse.Namespace) -> None:
    """Digests of every shard, and the rows of every crowd, on all workers."""
    contents: dict[str, tuple[dict[str, str], list[Any]]] = {}
    for workers in ("serial", "processes", "ray"):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            out = Path(folder) / "run"
            source, size = shoal.SimulatedMeters(households, DAYS), max(households // 4, 10)
            shoal.run(source, out, workers=workers, shard_size=size, origin=ORIGIN, until="release")
            shards = json.loads((out / "fit.json").read_text())["parts"]
            digests = {shard["path"]: json.dumps(shard["files"], sort_keys=True) for shard in shards}
            public = pl.read_csv(out / "public" / "released.csv").drop("crowd")
            contents[workers] = digests, sorted(public.rows())
        print(f"{workers}: {len(digests)} shards", flush=True)
    alike = all(content == contents["serial"] for content in contents.values())
    print(f"{households} households: shards and rows are {'identical' if alike else 'DIFFERENT'} on all workers")
    if not alike:
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--workers", default="processes")
    parser.add_argument("--cores", type=int, default=None)
    parser.add_argument("--shard-size", type=int, default=1000)
    parser.add_argument("--same", type=int, default=0, help="households of the comparison of workers; 0 leaves it out")
    parser.add_argument("--folder", default=None, help="where the runs lie while they run")
    parser.add_argument("--json", default=None, help="file for the numbers")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    args = parser.parse_args()
    if args.quick:
        args.sizes, args.shard_size, args.same = [60, 120], 40, 40
    if args.same:
        same(args.same, args)
    if args.sizes:
        sizes(args)


if __name__ == "__main__":
    main()
