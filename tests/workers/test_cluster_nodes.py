"""Ray on several machines: one goes down with tasks on it, and nothing is lost or charged twice."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import shoal

SETTINGS: dict[str, Any] = {
    "shard_size": 3, "crowd": 3, "horizon": 3, "order": (1, 1), "train_days": 14, "ledger": "folder",
}  # fmt: skip
#: Bytes of shared memory of a machine.
STORE = 80 * 2**20


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that only coordinates, and two machines of one core."""
    utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed: pip install shoal[ray]")
    # A machine that is silent is given up within seconds; workers are not put behind all else that runs here.
    settings = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "worker_niceness": 0}
    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False, "_system_config": settings}
    cluster = utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=STORE)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster
    finally:
        cluster.shutdown()


def at_work(machine: Any) -> list[int]:
    """Processes with a task on a machine: Ray writes the task over their command line."""
    raylet = machine.all_processes["raylet"][0].process.pid
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == raylet and (entry / "cmdline").read_bytes().startswith(b"ray::attempt"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def outcome(run: shoal.Run) -> tuple[pl.DataFrame, int]:
    """Whose row is which, to the last digit, and how often the release is on record."""
    with run.work.ledger as ledger:
        assert ledger.verify().ok
        records = sum(entry.kind == "crowds" for entry in ledger.entries())
    return run.released.drop("crowd").sort("household", "step"), records


def test_a_machine_that_goes_down_loses_nothing_and_doubles_nothing(machines: Any, tmp_path: Path) -> None:
    meters = tmp_path / "meters.parquet"
    shoal.simulate_meters(24, 15, step_minutes=60, seed=2).write_parquet(meters)
    lost: list[int] = []

    def kill(stage: str, text: str, done: float, total: int) -> None:
        """When some shards are done and others are under way: a machine goes down, with all that runs on it."""
        end = time.monotonic() + 2.0
        while stage == "fit" and 1 <= done < total and not lost and time.monotonic() < end:
            for machine in list(machines.worker_nodes):
                lost.extend(at_work(machine))
                if lost:
                    for pid in lost:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    machines.remove_node(machine, allow_graceful=False)
                    break

    runs = [shoal.Run(tmp_path / "serial", meters, workers="serial", **SETTINGS),
            shoal.Run(tmp_path / "ray", meters, workers="ray", progress=kill, **SETTINGS)]  # fmt: skip
    for run in runs:
        run.do_all_stages()
    assert lost
    (rows, records), (others, other_records) = (outcome(run) for run in runs)
    assert rows.equals(others)
    assert records == other_records == 1
    assert rows["household"].n_unique() == 24
