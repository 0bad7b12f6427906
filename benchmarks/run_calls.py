"""What a default run does, counted: calls, ledgers opened, transactions, loads of the crowds, records decoded.

``python benchmarks/run_calls.py [homes] [folder]`` runs that many simulated homes (60) once to be warm and once under a
profiler, and prints one line of JSON. Times say little on a busy machine; counts are the same everywhere.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("SHOAL_LEDGER", "folder")

import polars as pl

import shoal
from shoal.records import Record

SOURCE = str(Path(shoal.__file__).parent)


def counted(counts: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, and a count of its calls."""

    def call(*arguments: Any, **named: Any) -> Any:
        counts[name(*arguments) if callable(name) else name] += 1
        return function(*arguments, **named)

    return call


def measure(homes: int, folder: Path, profile: bool = True) -> dict[str, Any]:
    """Counts of one run of simulated homes."""
    counts: Counter[str] = Counter()
    rooms: Counter[str] = Counter()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            counts["calls"] += 1
            file = frame.f_code.co_filename
            if file.startswith(SOURCE):
                path = file[len(SOURCE) + 1 :].removeprefix("product/")
                rooms[path.split("/")[0]] += 1

    storage = sys.modules[shoal.Ledger.__module__.replace(".ledger.ledger", ".ledger.storage")]
    kept = [
        (owner, name, owner.__dict__[name])
        for owner, name in ((shoal.Ledger, "open"), (storage.Storage, "_transaction"), (Record, "from_json"))
    ]
    read = pl.read_parquet
    shoal.Ledger.open = counted(counts, "ledgers opened", shoal.Ledger.open)  # type: ignore[method-assign]
    storage.Storage._transaction = counted(counts, "transactions", storage.Storage._transaction)  # type: ignore
    decode = Record.__dict__["from_json"].__func__

    def from_json(cls: Any, content: Any) -> Any:
        counts["decoded"] += 1
        counts[f"decoded {cls.__name__}"] += 1
        return decode(cls, content)

    Record.from_json = classmethod(from_json)  # type: ignore[assignment]

    def read_parquet(source: Any, *arguments: Any, **named: Any) -> Any:
        counts[f"loads of {Path(source).name}"] += Path(str(source)).name in ("crowds.parquet", "rows.parquet")
        return read(source, *arguments, **named)

    pl.read_parquet = read_parquet
    try:
        if profile:
            sys.setprofile(look)
        shoal.run(shoal.SimulatedMeters(homes), folder, workers="serial")
    finally:
        sys.setprofile(None)
        pl.read_parquet = read
        for owner, name, value in kept:
            setattr(owner, name, value)
    counts["calls in runs and records"] = rooms["runs"] + rooms["records.py"]
    return {**{name: count for name, count in sorted(counts.items()) if count}, "rooms": dict(rooms.most_common(12))}


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as base:
        measure(number, Path(base) / "warm", profile=False)
        print(json.dumps(measure(number, Path(base) / "run"), indent=1))
