"""How fast answers leave through the ledger: ``python -m benchmarks ledger``.

Answers of 12 entries about one of 13 labels, every pair joined, unequal covariances. A release takes the lock, composes
everything about the label, draws, writes, and waits until the disk has it.
"""

from __future__ import annotations

import tempfile
import time

import numpy as np

from shoal import GaussianClasses, Ledger, Mechanism, NeighborGraph, design

N_LABELS, N_DIMS, MEASURED = 13, 12, 200


def mechanism(seed: int) -> Mechanism:
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((N_LABELS, N_DIMS, 3 * N_DIMS))
    covs = np.eye(N_DIMS) + 0.01 * factors @ factors.transpose(0, 2, 1) / (3 * N_DIMS)
    classes = GaussianClasses(0.01 * rng.standard_normal((N_LABELS, N_DIMS)), covs)
    return design(classes, NeighborGraph.complete(classes.labels), "white", 1.0, 1.0)


def measured(url: str, earlier: int, kinds: int) -> tuple[float, float, float, float]:
    """Releases/s one by one, CPU ms of each, releases/s in batches of 100, and seconds to verify the whole ledger.

    ``earlier`` releases about the label came before, spread over ``kinds`` mechanisms.
    """
    rng = np.random.default_rng(0)
    tools = [mechanism(seed) for seed in range(kinds)]
    with Ledger.open(url) as ledger:
        ledger.budget(1.0, 0.999999)
        for number, tool in enumerate(tools):
            n = earlier // kinds
            if n:
                ids = [f"earlier {number} {i}" for i in range(n)]
                ledger.release_many(tool, rng.standard_normal((n, N_DIMS)), ["0"] * n, query_ids=ids)
        ledger.release(tools[0], rng.standard_normal(N_DIMS), "1", query_id="warm")
        answers = rng.standard_normal((MEASURED, N_DIMS))
        label = "0" if earlier else "2"
        # With nothing earlier the releases go around the labels, so that there are few about each.
        labels = [label if earlier else str(2 + i % 11) for i in range(MEASURED)]
        start, cpu = time.perf_counter(), time.process_time()
        for i in range(MEASURED):
            ledger.release(tools[i % kinds], answers[i], labels[i], query_id=f"measured {i}")
        single = MEASURED / (time.perf_counter() - start)
        busy = 1e3 * (time.process_time() - cpu) / MEASURED
        start = time.perf_counter()
        for i in range(0, MEASURED, 100):
            ids = [f"batch {i + j}" for j in range(100)]
            ledger.release_many(tools[0], answers[i : i + 100] + 1, labels[i : i + 100], query_ids=ids)
        batch = MEASURED / (time.perf_counter() - start)
        start = time.perf_counter()
        report = ledger.verify()
        assert report
        return single, busy, batch, time.perf_counter() - start


def main() -> None:
    from benchmarks import _postgres

    print("## Ledger\n")
    print("| database | earlier releases | mechanisms | releases/s | CPU ms each | in batches of 100 | verify, s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    cases = [(0, 1), (1000, 1), (1000, 100)]

    def row(name: str, url: str, earlier: int, kinds: int) -> None:
        single, busy, batch, verify = measured(url, earlier, kinds)
        print(f"| {name} | {earlier} | {kinds} | {single:.0f} | {busy:.1f} | {batch:.0f} | {verify:.2f} |", flush=True)

    for earlier, kinds in cases:
        with tempfile.TemporaryDirectory() as folder:
            row("SQLite", f"sqlite:///{folder}/ledger.db", earlier, kinds)
    found = _postgres.binaries()
    if found is None:
        print("PostgreSQL is not installed: skipped")
        return
    with _postgres.server(found) as address:
        for earlier, kinds in cases:
            row("PostgreSQL", _postgres.database(address, f"speed_{earlier}_{kinds}"), earlier, kinds)


if __name__ == "__main__":
    main()
