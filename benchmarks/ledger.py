"""How fast answers leave through the ledger: ``python -m benchmarks ledger``; ``--pairs 1000 20000`` for that part
alone, at these sizes.

Answers of 12 entries about one of 13 labels, every pair joined, unequal covariances. A release draws, takes the lock,
composes everything about the label and its neighbors, writes, and waits until the disk has it. Earlier releases were
about that label alone, or about everyone alike, as in tables.

"Charging shards": 1,000 labels in groups of 25, 12,000 edges, each shard with its own mechanism. ``charge`` gets
answers that were drawn elsewhere, or draws them.

"Pairs": processor time of what is done to ledgers of 1,000 and 20,000 entries, tables of 1,000 rows in groups of 25: a
charge in a batch, a release, what one label and what all have spent, a verification.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from shoal import GaussianClasses, Ledger, Mechanism, NeighborGraph, design

N_LABELS, N_DIMS, MEASURED = 13, 12, 200
SHARD, GROUP, FILLED, SHARDS = 1000, 25, 200_000, 5


def mechanism(seed: int) -> Mechanism:
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((N_LABELS, N_DIMS, 3 * N_DIMS))
    covs = np.eye(N_DIMS) + 0.01 * factors @ factors.transpose(0, 2, 1) / (3 * N_DIMS)
    classes = GaussianClasses(0.01 * rng.standard_normal((N_LABELS, N_DIMS)), covs)
    return design(classes, NeighborGraph.complete(classes.labels), "white", 1.0, 1.0)


def measured(url: str, earlier: int, kinds: int, everyone: bool) -> tuple[float, float, float, float]:
    """Releases/s one by one, CPU ms of each, releases/s in batches of 100, and seconds to verify the whole ledger.

    ``earlier`` releases came before, spread over ``kinds`` mechanisms: about the label, or about all labels in turn.
    """
    rng = np.random.default_rng(0)
    tools = [mechanism(seed) for seed in range(kinds)]
    with Ledger.open(url) as ledger:
        ledger.budget(1.0, 0.999999, mode="fixed")
        for number, tool in enumerate(tools):
            n = earlier // kinds
            if n:
                ids = [f"earlier {number} {i}" for i in range(n)]
                whom = [str(i % N_LABELS) if everyone else "0" for i in range(n)]
                ledger.charge(tool, rng.standard_normal((n, N_DIMS)), None, whom, query_ids=ids)
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
            ledger.charge(tools[0], answers[i : i + 100] + 1, None, labels[i : i + 100], query_ids=ids)
        batch = MEASURED / (time.perf_counter() - start)
        start = time.perf_counter()
        report = ledger.verify()
        assert report
        return single, busy, batch, time.perf_counter() - start


class Shards:
    """Shards whose laws differ in their labels only, so that one draw serves all of them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        factors = rng.standard_normal((SHARD, N_DIMS, 3 * N_DIMS))
        self._covs = np.eye(N_DIMS) + 0.01 * factors @ factors.transpose(0, 2, 1) / (3 * N_DIMS)
        self.answers = 0.01 * rng.standard_normal((SHARD, N_DIMS))
        first = self.mechanism(0)
        self._drawn = first.release(self.answers, list(first.classes.labels))

    def mechanism(self, number: int) -> Mechanism:
        labels = [f"{number:06d}-{i:04d}" for i in range(SHARD)]
        graph = NeighborGraph.within_groups(labels, [i // GROUP for i in range(SHARD)])
        return design(GaussianClasses(self.answers, self._covs, labels), graph, "white", 1.0, 1.0)

    def charge(self, ledger: Ledger, mechanism: Mechanism, query: int) -> tuple[float, float]:
        """Seconds and CPU seconds to charge a shard."""
        labels = list(mechanism.classes.labels)
        start, cpu = time.perf_counter(), time.process_time()
        ledger.charge(mechanism, self.answers + query, self._drawn, labels, query_ids=str(query))
        return time.perf_counter() - start, time.process_time() - cpu

    def release(self, ledger: Ledger, mechanism: Mechanism, query: int) -> tuple[float, float]:
        """The same with answers that the ledger draws."""
        labels = list(mechanism.classes.labels)
        start, cpu = time.perf_counter(), time.process_time()
        ledger.charge(mechanism, self.answers + query, None, labels, query_ids=[str(query)] * SHARD)
        return time.perf_counter() - start, time.process_time() - cpu


def pairs(entries: int) -> None:
    """One row per thing that is done to a ledger of so many entries, with the processor time it takes."""
    shards = Shards()
    with tempfile.TemporaryDirectory() as folder, Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
        ledger.budget(1.0, 0.999999, mode="fixed")
        tools = [shards.mechanism(number) for number in range(max(entries // SHARD, 1))]
        for tool in tools:
            shards.charge(ledger, tool, 0)
        last, label = tools[-1], tools[-1].classes.labels[0]
        ledger.release(last, shards.answers[0] + 7, label, query_id="warm")
        ledger.spent(label)

        def row(what: str, times: int, unit: str, act: Callable[[int], object]) -> None:
            start = time.process_time()
            for i in range(times):
                act(i)
            taken = (time.process_time() - start) / times
            print(f"| {entries:,} | {what} | {taken * (1e3 if unit == 'ms' else 1.0):.3g} {unit} |", flush=True)

        def second(i: int) -> None:
            shards.charge(ledger, last, 1 + i)

        row("charge the table of a shard again, 1,000 rows", 5, "ms", second)
        names = last.classes.labels
        row("release one answer", 100, "ms", lambda i: ledger.release(last, shards.answers[i] + 9, names[i]))
        row("spent(label)", 50, "ms", lambda i: ledger.spent(names[i]))
        row("spent()", 1, "s", lambda _: ledger.spent())
        row("verify()", 1, "s", lambda _: ledger.verify())


def charging(url: str) -> None:
    """Rates on an empty ledger and on a full one; what opening, the head and all accounts of the full one take."""
    shards = Shards()
    print("| entries before | how | labels/s | labels per CPU second | largest memory, MB |")
    print("| ---: | --- | ---: | ---: | ---: |")

    def row(before: int, how: str, taken: list[tuple[float, float]]) -> None:
        wall, cpu = SHARD / np.mean(taken, axis=0)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {before:,} | {how} | {wall:,.0f} | {cpu:,.0f} | {memory:,.0f} |", flush=True)

    with Ledger.open(url) as ledger:
        ledger.budget(1.0, 0.999999, mode="fixed")
        fill = FILLED // SHARD
        for before in (0, fill):
            for number in range(1 if before else 0, before):
                shards.charge(ledger, shards.mechanism(1000 + number), 0)
            entries = ledger.head.seq
            tools = [shards.mechanism(10_000 + before + i) for i in range(SHARDS)]
            shards.charge(ledger, shards.mechanism(20_000 + before), 0)
            row(entries, "charge, mechanism new", [shards.charge(ledger, tool, 0) for tool in tools])
            row(entries, "charge, the second time", [shards.charge(ledger, tool, 1) for tool in tools])
            row(entries, "charge that draws", [shards.release(ledger, shards.mechanism(30_000 + before), 0)])
    start = time.perf_counter()
    with Ledger.open(url) as ledger:
        opened = time.perf_counter()
        entries = ledger.head.seq
        told = time.perf_counter()
        spent = ledger.spent()
        print(
            f"\n{entries:,} entries: opened in {1e3 * (opened - start):.0f} ms, "
            f"head in {1e3 * (told - opened):.1f} ms, "
            f"accounts of {len(spent):,} labels in {time.perf_counter() - told:.1f} s\n"
        )


def main() -> None:
    from benchmarks import _postgres

    print("## Ledger: pairs\n")
    print("| entries | what | processor time |")
    print("| ---: | --- | ---: |")
    for entries in [int(word) for word in sys.argv[1:] if word.isdigit()] or [1000, FILLED]:
        pairs(entries)
    if "--pairs" in sys.argv:
        return
    print("\n## Ledger: charging shards\n")
    with tempfile.TemporaryDirectory() as folder:
        charging(f"sqlite:///{folder}/ledger.db")
    print("## Ledger\n")
    print("| database | earlier releases | about | mechanisms | releases/s | CPU ms each | in batches | verify, s |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    cases = [(0, 1, False), (1000, 1, False), (1000, 100, False), (13000, 1, True), (1300, 100, True)]

    def row(name: str, url: str, earlier: int, kinds: int, everyone: bool) -> None:
        single, busy, batch, verify = measured(url, earlier, kinds, everyone)
        whom = "everyone" if everyone else "the label"
        print(
            f"| {name} | {earlier} | {whom} | {kinds} | {single:.0f} | {busy:.1f} | {batch:.0f} | {verify:.2f} |",
            flush=True,
        )

    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            row("SQLite", f"sqlite:///{folder}/ledger.db", *case)
    found = _postgres.binaries()
    if found is None:
        print("PostgreSQL is not installed: skipped")
        return
    with _postgres.server(found) as address:
        for case in cases:
            row("PostgreSQL", _postgres.database(address, f"speed_{case[0]}_{case[1]}"), *case)


if __name__ == "__main__":
    main()
