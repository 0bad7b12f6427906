"""Certified figures against proofs that the checker confirmed: is any upper end below the truth?

    python -m benchmarks.safety [--checks N] [--quick] [--family TEXT] [--workers N] [--out FILE] [--fresh]

Runs every family of ``tests/campaign.py`` over its seeds, all families in step, until enough checks are done. Each
check holds one certified upper end against one proved lower end of the exact value, with no tolerance.
Results are kept in ``out/safety.jsonl``, so an interrupted campaign goes on where it stopped as long as the accounting
is the same. Prints Markdown; the exit code is 1 where an upper end was too small.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import campaign  # noqa: E402

#: Modules and rooms that no figure of the campaign passes through.
UNUSED = {
    "__init__", "__main__", "archive", "audits", "card", "cells", "cli", "codebooks", "crowds", "files", "ledger",
    "meters", "notebook", "runs", "workers",
}  # fmt: skip


def code_digest() -> str:
    """What the results depend on: the accounting, the designs and the reference."""
    digest, library = hashlib.sha256(), ROOT / "src/shoal"
    used = [path for path in library.rglob("*.py") if path.relative_to(library).parts[0].split(".")[0] not in UNUSED]
    for path in sorted([*used, ROOT / "tests/campaign.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def work(task: tuple[str, int]) -> dict[str, Any]:
    family, seed = task
    start = time.process_time()
    tally = campaign.run(family, seed)
    return {"family": family, "seed": seed, "seconds": time.process_time() - start, **asdict(tally)}


def known(path: Path, digest: str) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # cut short when the campaign was
            if record.pop("code", None) == digest:
                yield record


def run(tasks: list[tuple[str, int]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The records of the tasks in their order, up to the number of checks asked for."""
    digest, path = code_digest(), options.out
    done = {} if options.fresh else {(r["family"], r["seed"]): r for r in known(path, digest)}
    reached = sum(record["checks"] for task, record in done.items() if task in set(tasks))
    left = [task for task in tasks if task not in done]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file, multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for count, record in enumerate(pool.imap(work, left if reached < options.checks else []), start=1):
            done[record["family"], record["seed"]] = record
            file.write(json.dumps({"code": digest, **record}) + "\n")
            file.flush()
            if count % 50 == 0:
                found = sum(len(r["violations"]) for r in done.values())
                print(f"{reached:,} checks, {found} violations", file=sys.stderr, flush=True)
            reached += record["checks"]
            if reached >= options.checks:
                break
    return [done[task] for task in tasks if task in done]


def table(records: list[dict[str, Any]]) -> None:
    print("| family | seeds | pairs | checks | violations | lower ends | false | refused | undecided | crashes | s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for aimed in (False, True):
        groups = [name for name, (_, _, known_weakness) in campaign.FAMILIES.items() if known_weakness == aimed]
        chosen = [r for r in records if r["family"] in groups]
        for name in groups:
            rows = [r for r in chosen if r["family"] == name]
            if rows:
                row(name, rows)
        if chosen:
            row("**aimed, all**" if aimed else "**random, all**", chosen)


def row(name: str, records: list[dict[str, Any]]) -> None:
    seeds = [r["seed"] for r in records]
    cells = [
        name,
        f"{min(seeds)}–{max(seeds)}" if not name.startswith("**") else "",
        *(
            f"{sum(r[key] if isinstance(r[key], int) else len(r[key]) for r in records):,}"
            for key in (
                "pairs", "checks", "violations", "lower_checks", "false_lower", "refused", "unresolved", "crashes",
            )
        ),
        f"{sum(r['seconds'] for r in records):.0f}",
    ]  # fmt: skip
    print("| " + " | ".join(cells) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=50_000, help="how many are enough")
    parser.add_argument("--quick", action="store_true", help="one seed in twenty")
    parser.add_argument("--family", default="", help="only families whose name holds this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "out/safety.jsonl")
    parser.add_argument("--fresh", action="store_true", help="do not go on from earlier results")
    options = parser.parse_args()
    tasks = [
        (name, seed)
        for name, (_, seeds, _) in campaign.FAMILIES.items()
        if options.family in name
        for seed in range(max(seeds // 20, 1) if options.quick else seeds)
    ]
    tasks.sort(key=lambda task: task[1] / campaign.FAMILIES[task[0]][1])
    start = time.time()
    records = run(tasks, options)
    print("\n## Safety: certified figures against proofs\n")
    table(records)
    violations = [(r["family"], r["seed"], v) for r in records for v in r["violations"]]
    crashes = [(r["family"], r["seed"], v) for r in records for v in r["crashes"]]
    print(f"\n{time.time() - start:.0f} s on {options.workers} processes; processor seconds above.")
    for title, found in (("Violations", violations), ("Crashes", crashes)):
        if found:
            print(f"\n{title} (the first 40):\n")
            for family, seed, text in found[:40]:
                print(f"- {family}, seed {seed}: {text}")
    return 1 if violations else 0


if __name__ == "__main__":
    code = main()
    if code:
        sys.exit(code)
