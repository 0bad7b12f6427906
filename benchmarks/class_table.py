"""A class table of a million rows: ``python -m benchmarks.class_table [rows] [columns] [labels]``.

Gaussian rows of labels whose laws differ, in Parquet, through all that ``shoal run`` does, by two worker processes at
(ε, δ) = (1, 1e-5) for all rows of a label together, crowds of 10. Memory is the resident set, sampled.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

import shoal
from benchmarks import scale

ROWS, COLUMNS, LABELS = 1_000_000, 32, 1_000
STAGES = ("fit", "crowds", "design", "audit", "release", "card", "report")


def written(path: Path, rows: int, columns: int, labels: int) -> None:
    """Rows of all labels in turn, in row groups."""
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    means, scales = rng.normal(size=(labels, columns)), rng.uniform(0.5, 2.0, size=(labels, columns))
    roots = rng.normal(size=(columns, columns)) / np.sqrt(columns) + np.eye(columns)
    writer = None
    for first in range(0, rows, 100_000):
        label = np.arange(first, min(first + 100_000, rows)) % labels
        values = means[label] + scales[label] * (rng.normal(size=(len(label), columns)) @ roots)
        frame = pl.DataFrame({"speaker": label, **{f"x{j}": values[:, j] for j in range(columns)}}).to_arrow()
        writer = writer or pq.ParquetWriter(path, frame.schema)
        writer.write_table(frame)
    assert writer is not None
    writer.close()


def main() -> None:
    rows, columns, labels = (int(a) for a in (*sys.argv[1:4], *map(str, (ROWS, COLUMNS, LABELS)[len(sys.argv) - 1 :])))
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "table.parquet", Path(folder) / "run"
        written(file, rows, columns, labels)
        begun, before = time.monotonic(), scale.processor()
        with scale.Watch("fit") as watch:
            run = shoal.run(
                file, out, label="speaker", epsilon=1.0, delta=1e-5, workers="processes", cores=2, progress=watch
            )
        total, processor = time.monotonic() - begun, scale.processor() - before
        disk = sum(f.stat().st_size for f in out.rglob("*") if f.is_file()) / 1e6
        assert run.work.facts.design is not None
        print("## Class table\n")
        print(f"Python {platform.python_version()}, NumPy {np.__version__}, polars {pl.__version__}, load", end=" ")
        print(", ".join(f"{load:.1f}" for load in os.getloadavg()), "at the end\n")
        print(
            "| rows × columns × labels | "
            + " | ".join(STAGES)
            + " | all, s | processor, s | driver, MiB | worker, MiB | disk, MB | δ |"
        )
        print("| --- |" + " ---: |" * (len(STAGES) + 6))
        seconds = " | ".join(f"{watch.seconds.get(stage, 0.0):.0f}" for stage in STAGES)
        memory = f"{max(watch.driver.values()):.0f} | {max(watch.worker.values()):.0f}"
        print(
            f"| {rows:,} × {columns} × {labels:,} | {seconds} | {total:.0f} | {processor:.0f} | {memory} | "
            f"{disk:.0f} | {run.work.facts.design.delta:.2g} |"
        )


if __name__ == "__main__":
    main()
