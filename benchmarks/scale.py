"""Runs at growing sizes: seconds and peak memory per stage, the same output on all workers, a cost model.

    python -m benchmarks scale                       1,000 and 10,000 households end to end, 100,000 up to groups
    python -m benchmarks.scale --sizes 1000 --workers ray
    python -m benchmarks.scale --same 200            digests of all shards on serial, processes and ray

Simulated households, 17 days of quarter-hours, ARMA(6, 5), 12 steps, point forecasts, groups of at most 50, shards of
1,000. Memory is the resident set, sampled from /proc: the driver's peak and that of its largest worker.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from shoal.runs.neighborhood import grouped_readings

import shoal

DAYS, ORIGIN = 17, "2024-01-17T18:00"
#: What the driver says it is doing -> stage of the table.
STEPS = {
    "simulating": "simulate", "profiles of the day": "group", "clusters of profiles": "group",
    "nearest clusters": "group", "forming cells": "group", "sorting by group": "group",
    "shards of whole groups": "group", "fitting forecasts": "fit", "designing mechanisms": "design",
    "releasing through the ledger": "release",
}  # fmt: skip
STAGES = ("simulate", "group", "fit", "design", "release")


class Watch:
    """Seconds and memory by stage: told by the run what it does, asking /proc meanwhile."""

    def __init__(self) -> None:
        self.stage = "simulate"
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

    def __call__(self, stage: str, text: str, done: int, total: int) -> None:
        found = STEPS.get(text)
        if found is not None and found != self.stage:
            self._turn(found)

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
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def one(households: int, args: argparse.Namespace) -> dict[str, Any]:
    """One size: end to end through the release, or only as far as shards of whole groups."""
    source = shoal.SimulatedMeters(households, DAYS)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, Watch() as watch:
        out = Path(folder) / "run"
        run = shoal.Run(
            out,
            source,
            progress=watch,
            workers=args.workers,
            cores=args.cores,
            shard_size=args.shard_size,
            origin=ORIGIN,
        )
        with run.held():
            if households > args.whole:
                context = run.context("fit")
                with context.workers() as executor:
                    grouped_readings(executor, out / "shards", context.source, run.config, context.tell)
            else:
                for stage in ("fit", "design", "release"):
                    run.do(stage)
        disk = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
        facts = {name: value for facts in (run.fit, run.design) if facts for name, value in facts.to_json().items()}
    return {
        "households": households,
        "seconds": {name: watch.seconds[name] for name in STAGES if name in watch.seconds},
        "driver": watch.driver,
        "worker": watch.worker,
        "disk": disk,
        "delta": facts.get("delta"),
        "edges": facts.get("edges"),
    }


def sizes(args: argparse.Namespace) -> None:
    """The tables."""
    rows = [one(n, args) for n in args.sizes]
    print(
        f"\nSeconds, workers {args.workers}, shards of {args.shard_size} (CPU cores: {len(os.sched_getaffinity(0))}):\n"
    )
    print("| households | " + " | ".join(STAGES) + " | all | ms per household | edges | largest δ |")
    print("| ---: " * (len(STAGES) + 5) + "|")
    for row in rows:
        cells = [f"{row['seconds'][name]:.1f}" if name in row["seconds"] else "not run" for name in STAGES]
        total = sum(row["seconds"].values())
        edges = "" if row["edges"] is None else f"{row['edges']:,}"
        delta = "" if row["delta"] is None else f"{row['delta']:.3g}"
        each = f"{total / row['households'] * 1e3:.2f}"
        print(f"| {row['households']:,} | " + " | ".join(cells) + f" | {total:.1f} | {each} | {edges} | {delta} |")
    print("\nPeak resident memory in MiB, driver / largest worker, and MB on disk:\n")
    print("| households | " + " | ".join(STAGES) + " | disk |")
    print("| ---: " * (len(STAGES) + 2) + "|")
    for row in rows:
        cells = [
            f"{row['driver'].get(name, 0):.0f} / {row['worker'].get(name, 0):.0f}" if name in row["seconds"] else ""
            for name in STAGES
        ]
        print(f"| {row['households']:,} | " + " | ".join(cells) + f" | {row['disk'] / 1e6:.0f} |")
    model(rows)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


def model(rows: list[dict[str, Any]]) -> None:
    """Seconds per household at the largest size at which a stage ran, starting included, times households."""
    print("\nCost model, seconds = each × households:\n")
    print("| stage | measured at | each, ms | at 1 million | at 10 million |")
    print("| --- | ---: | ---: | ---: | ---: |")
    whole = 0.0
    for name in STAGES:
        known = [(row["households"], row["seconds"][name]) for row in rows if name in row["seconds"]]
        if known:
            n, seconds = known[-1]
            whole += (each := seconds / n)
            print(f"| {name} | {n:,} | {each * 1e3:.2f} | {each * 1e6 / 3600:.2f} h | {each * 1e7 / 3600:.1f} h |")
    print(f"| all | | {whole * 1e3:.2f} | {whole * 1e6 / 3600:.1f} h | {whole * 1e7 / 3600:.0f} h |")


def same(households: int, args: argparse.Namespace) -> None:
    """Digests of every shard up to the design, on all workers."""
    found: dict[str, dict[str, str]] = {}
    for workers in ("serial", "processes", "ray"):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            out = Path(folder) / "run"
            size = max(households // 4, 10)
            source = shoal.SimulatedMeters(households, DAYS)
            run = shoal.Run(out, source, workers=workers, shard_size=size, crowd=10, cell=size, origin=ORIGIN)
            for stage in ("fit", "design"):
                run.do(stage)
            digests = {}
            for name in ("fit.json", "design.json"):
                for shard in json.loads((out / name).read_text())["shards"]:
                    digests[shard["key"]] = json.dumps(shard["files"], sort_keys=True)
            found[workers] = digests
        print(f"{workers}: {len(digests)} shards", flush=True)
    alike = all(digests == found["serial"] for digests in found.values())
    print(f"{households} households: shards on serial, processes and ray are {'identical' if alike else 'DIFFERENT'}")
    if not alike:
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--whole", type=int, default=10_000, help="larger sizes stop at shards of whole groups")
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
