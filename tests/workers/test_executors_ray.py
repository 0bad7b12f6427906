"""Ray: the same results as everywhere, workers that die, clusters that are not there or not the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import errands
import pytest
from errands import SECRET, Errand

from shoal.errors import InputError, StorageError
from shoal.numerics.threads import ONE_THREAD
from shoal.workers import cluster
from shoal.workers.cluster import versions
from shoal.workers.executor import TRIES, Executor, Failure, TaskError, open_executor

pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")


@pytest.fixture(scope="module")
def ray() -> Iterator[Executor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "local")  # a Ray that others may be running here is not ours to test on
        executor = open_executor("ray", 2)
    with executor:
        yield executor


def test_every_task_is_answered_once(ray: Executor) -> None:
    assert sorted(ray.run(errands.square, [Errand(i) for i in range(50)])) == [(i, i * i) for i in range(50)]
    assert list(ray.run(errands.square, [])) == []


def test_results_are_those_of_other_engines(ray: Executor) -> None:
    tasks = [Errand(i) for i in range(4)]
    with open_executor("serial") as serial:
        assert dict(ray.run(errands.arithmetic, tasks)) == dict(serial.run(errands.arithmetic, tasks))


def test_failures_bugs_and_full_disks(ray: Executor) -> None:
    tasks = [Errand(i) for i in range(5)]
    found = dict(ray.run(errands.refuse_odd, tasks))
    assert found == {i: Failure(f"shard {i} is refused") if i % 2 else i for i in range(5)}
    with pytest.raises(StorageError, match="the disk is full"):
        list(ray.run(errands.fill_disk, tasks))
    with pytest.raises(TaskError, match=r"KeyError at errands\.py:\d+ in fail") as raised:
        list(ray.run(errands.fail, tasks))
    assert SECRET not in str(raised.value)


def test_workers_and_the_libraries_in_them_use_one_thread(ray: Executor) -> None:
    ((_, found),) = ray.run(errands.settings, [Errand(0)])
    assert found == ONE_THREAD | {"shoal": 1, "numba": 1, "polars": 1, "blas": 1}


def test_workers_killed_at_random_lose_nothing(ray: Executor, tmp_path: Path) -> None:
    stop, killed = threading.Event(), []

    def kill() -> None:
        rng, seen = random.Random(4), set[int]()
        while len(killed) < 2 and not stop.wait(0.4):
            busy = {pid for pid in (int(path.name) for path in tmp_path.iterdir()) if _running(pid)}
            if busy & seen:
                killed.append(rng.choice(sorted(busy & seen)))
                os.kill(killed[-1], signal.SIGKILL)
            seen = busy

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        found = list(ray.run(errands.present, [Errand(i, 0.02, str(tmp_path)) for i in range(120)]))
    finally:
        stop.set()
        killer.join()
    assert sorted(found) == [(i, i) for i in range(120)]
    assert len(killed) == 2


def test_a_task_that_always_ends_its_worker_is_given_up(ray: Executor, tmp_path: Path) -> None:
    found = dict(ray.run(errands.die_at_three, [Errand(i, folder=str(tmp_path)) for i in range(6)]))
    failure = found.pop(3)
    assert isinstance(failure, Failure)
    assert f"died {TRIES} times" in failure.message
    assert len(list(tmp_path.iterdir())) == TRIES
    assert found == {i: i for i in range(6) if i != 3}


def test_few_tasks_are_under_way(ray: Executor) -> None:
    class Counted(list[Errand]):
        asked = 0

        def __getitem__(self, index):  # type: ignore[no-untyped-def]
            self.asked += 1
            return super().__getitem__(index)

    tasks = Counted(Errand(i) for i in range(300))
    results = ray.run(errands.square, tasks)
    for handled in range(1, 10):
        next(results)
        assert tasks.asked <= handled + 2 * ray.workers
    results.close()  # type: ignore[attr-defined]


def test_other_versions_on_workers_are_refused(ray: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    other = versions() | {"numpy": "1.0.0", "shoal": "missing"}
    monkeypatch.setattr(cluster, "worker_versions", lambda _: [versions(), other])
    with pytest.raises(InputError, match="workers: the cluster runs other versions") as refused:
        open_executor("ray")
    text = str(refused.value)
    assert f"numpy {versions()['numpy']} here, 1.0.0 on workers" in text
    assert f"shoal {versions()['shoal']} here, missing on workers" in text
    assert "polars" not in text
    assert dict(ray.run(errands.square, [Errand(3)])) == {0: 9}  # the refusal did not close another's Ray


def test_the_probe_asks_the_workers(ray: Executor) -> None:
    import ray as package

    assert cluster.worker_versions(package) == [versions()]


DRIVER = """
import sys
from shoal.workers.executor import open_executor
import errands
with open_executor("ray", 2) as executor:
    for _ in executor.run(errands.present, [errands.Errand(i, 60.0, sys.argv[1]) for i in range(4)]):
        pass
"""


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_an_interrupt_ends_the_tasks(ray: Executor, tmp_path: Path) -> None:
    import ray as package

    address = package.get_runtime_context().gcs_address
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "RAY_ADDRESS": address}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while len(list(tmp_path.iterdir())) < 2:
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)
    driver.send_signal(signal.SIGINT)
    out, text = driver.communicate(timeout=60)
    assert "KeyboardInterrupt" in text
    assert out == ""  # Ray says nothing where results are printed
    workers = [int(path.name) for path in tmp_path.iterdir()]
    end = time.monotonic() + 20
    while any(_running(pid) for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_running(pid) for pid in workers)
