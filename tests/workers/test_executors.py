"""Serial, processes and Ray: the same results, whatever happens to workers.

A worker that is killed, a bug in a task or a lack of memory cannot be had through a run, so that executors are given
tasks of their own here (:mod:`errands`).
"""

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
from typing import Any

import errands
import pytest
from errands import SECRET, Errand

import shoal
from shoal.numerics.threads import ONE_THREAD
from shoal.product import workers as cluster
from shoal.product.workers import TRIES, Executor, TaskError, open_executor

RAY = pytest.param("ray", marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray of our own: one that others may be running here is not ours to test on."""
    package = pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    package.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=128 * 2**20)
    yield package
    package.shutdown()


@pytest.fixture(params=["serial", "processes", RAY])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "ray":
        request.getfixturevalue("ray")
    with open_executor(request.param, 2) as opened:
        yield opened


@pytest.fixture(params=["processes", RAY])
def elsewhere(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """Workers in processes of their own."""
    if request.param == "ray":
        request.getfixturevalue("ray")
    with open_executor(request.param, 2) as opened:
        yield opened


def children() -> set[int]:
    """Worker processes of this process, from the process table."""
    workers = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == os.getpid() and b"multiprocessing.spawn" in (entry / "cmdline").read_bytes():
                workers.add(int(entry.name))
        except OSError:
            continue
    return workers


def running(pid: int) -> bool:
    """Whether a process is there; a zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, within: float = 20.0) -> bool:
    """Whether a process ends within some seconds."""
    end = time.monotonic() + within
    while running(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not running(pid)


def test_every_task_is_answered_once(executor: Executor) -> None:
    results = list(executor.run(errands.square, [Errand(i) for i in range(50)]))
    assert sorted(results) == [(i, i * i) for i in range(50)]
    assert list(executor.run(errands.square, [])) == []


def test_an_executor_can_be_used_again_after_a_run_was_left(executor: Executor) -> None:
    results = executor.run(errands.square, [Errand(i, 0.01) for i in range(20)])
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert dict(executor.run(errands.square, [Errand(7), Errand(8)])) == {0: 49, 1: 64}


def test_results_do_not_depend_on_engine_or_workers(executor: Executor) -> None:
    tasks = [Errand(i) for i in range(6)]
    with open_executor("processes", 3) as others:
        results = dict(others.run(errands.arithmetic, tasks))
    assert dict(executor.run(errands.arithmetic, tasks)) == results
    assert len(set(results.values())) == 6


def test_an_error_of_shoal_ends_the_run_with_its_text(executor: Executor) -> None:
    with pytest.raises(shoal.InputError, match=r"shard \d is refused"):
        list(executor.run(errands.refuse_odd, [Errand(i) for i in range(6)]))


def test_a_task_without_memory_ends_the_run_with_a_remedy(executor: Executor) -> None:
    with pytest.raises(shoal.InputError, match="fewer workers"):
        list(executor.run(errands.exhaust, [Errand(0)]))


def test_a_full_disk_ends_the_run(executor: Executor) -> None:
    with pytest.raises(shoal.StorageError, match="the disk is full"):
        list(executor.run(errands.fill_disk, [Errand(i) for i in range(5)]))


def test_a_bug_is_raised_with_its_type_and_place_but_not_its_text(executor: Executor) -> None:
    with pytest.raises(TaskError, match=r"KeyError at errands\.py:\d+ in fail") as raised:
        list(executor.run(errands.fail, [Errand(i) for i in range(5)]))
    assert SECRET not in str(raised.value)
    assert raised.value.__context__ is None  # nor in what a traceback would print before it


def test_what_does_not_travel_is_a_bug() -> None:
    """Ray carries functions too."""
    with (
        open_executor("processes", 2) as processes,
        pytest.raises(TaskError, match="what a task returns does not travel"),
    ):
        list(processes.run(errands.unpicklable, [Errand(0)]))


def test_workers_and_the_libraries_in_them_use_one_thread(elsewhere: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "2")
    ((_, settings),) = elsewhere.run(errands.settings, [Errand(0)])
    assert settings == ONE_THREAD | {"shoal": 1, "numba": 1, "polars": 1, "blas": 1}


def test_serial_restores_the_settings_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    ((_, settings),) = open_executor("serial").run(errands.settings, [Errand(0)])
    assert isinstance(settings, dict)
    assert (settings["OMP_NUM_THREADS"], settings["MKL_NUM_THREADS"], settings["blas"]) == ("1", "1", 1)
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert "MKL_NUM_THREADS" not in os.environ


def test_workers_killed_at_random_lose_nothing(elsewhere: Executor, tmp_path: Path) -> None:
    """Whoever is at work, as the marks of tasks show, may be killed; a worker just started is spared."""
    stop, killed = threading.Event(), []

    def kill() -> None:
        rng, seen = random.Random(3), set[int]()
        while len(killed) < 3 and not stop.wait(0.4):
            busy = {pid for pid in (int(path.name) for path in tmp_path.iterdir()) if running(pid)}
            if busy & seen:
                killed.append(rng.choice(sorted(busy & seen)))
                os.kill(killed[-1], signal.SIGKILL)
            seen = busy

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        results = list(elsewhere.run(errands.present, [Errand(i, 0.02, str(tmp_path)) for i in range(200)]))
    finally:
        stop.set()
        killer.join()
    assert sorted(results) == [(i, i) for i in range(200)]
    assert len(killed) >= 2


def test_every_task_may_lose_its_worker_once(elsewhere: Executor, tmp_path: Path) -> None:
    results = list(elsewhere.run(errands.die_once, [Errand(i, folder=str(tmp_path)) for i in range(8)]))
    assert sorted(results) == [(i, i) for i in range(8)]


def test_a_task_that_always_ends_its_worker_is_given_up(elsewhere: Executor, tmp_path: Path) -> None:
    with pytest.raises(shoal.WorkerError, match=rf"died {TRIES} times on this task; out of memory\?.*run again"):
        list(elsewhere.run(errands.die_at_three, [Errand(i, folder=str(tmp_path)) for i in range(10)]))
    assert len(list(tmp_path.iterdir())) == TRIES


class Counted(list[Errand]):
    """Tasks that notice when they are read."""

    read = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.read += 1
        return super().__getitem__(index)


def test_few_tasks_are_under_way(executor: Executor) -> None:
    tasks = Counted(Errand(i) for i in range(500))
    results = executor.run(errands.square, tasks)
    for handled in range(1, 20):
        next(results)
        assert tasks.read <= handled + 2 * executor.workers
    results.close()  # type: ignore[attr-defined]


def test_closing_ends_the_workers() -> None:
    executor = open_executor("processes", 2)
    list(executor.run(errands.square, [Errand(i) for i in range(8)]))
    before = children()
    assert 1 <= len(before) <= 2
    executor.close()
    executor.close()
    assert not before & children()
    with pytest.raises(RuntimeError, match="closed"):
        next(executor.run(errands.square, [Errand(0)]))


DRIVER = """
import sys
from shoal.product.workers import open_executor
import errands
with open_executor(sys.argv[2], 2) as executor:
    for _ in executor.run(errands.present, [errands.Errand(i, 60.0, sys.argv[1]) for i in range(4)]):
        pass
"""


def interrupted(folder: Path, workers: str, sent: signal.Signals, **more: str) -> str:
    """End a driver whose two workers are in the middle of long tasks; what it wrote to standard error."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder), workers],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]), **more},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while len(list(folder.iterdir())) < 2:
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.02)
    driver.send_signal(sent)
    out, text = driver.communicate(timeout=60)
    assert driver.returncode != 0
    assert out == ""  # nobody speaks where results are printed
    assert all(gone(int(path.name)) for path in folder.iterdir())
    return text


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)])
def test_no_worker_outlives_its_driver(tmp_path: Path, sent: signal.Signals) -> None:
    assert ("KeyboardInterrupt" in interrupted(tmp_path, "processes", sent)) == (sent == signal.SIGINT)


@pytest.mark.parametrize(
    ("cores", "shards", "tasks", "far"), [(1, 5, 2, False), (2, 1, 2, False), (2, None, 1, False), (2, 5, 2, True)]
)
def test_auto_follows_the_shards_and_the_cores(cores: int, shards: int | None, tasks: int, far: bool) -> None:
    with open_executor("auto", cores, shards) as executor:
        results = dict(executor.run(errands.process, [Errand(i) for i in range(tasks)]))
        assert (os.getpid() not in results.values()) == far


@pytest.mark.parametrize("workers", ["", "rays", "http://host", None, 3])
def test_an_unknown_engine_is_refused(workers: str) -> None:
    with pytest.raises(shoal.InputError, match=r"^workers must be"):
        open_executor(workers)


def test_no_workers_is_refused() -> None:
    with pytest.raises(shoal.InputError, match=r"^cores must be at least 1"):
        open_executor("processes", 0)


# ------------------------------------------------------------------ Ray alone


@pytest.mark.slow
def test_other_versions_on_workers_are_refused(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there = cluster.versions()
    monkeypatch.setattr(cluster, "versions", lambda: there | {"numpy": "1.0.0"})
    with (
        pytest.raises(shoal.InputError, match="workers: the cluster runs other versions") as refused,
        open_executor("ray") as executor,
    ):
        list(executor.run(errands.process, [Errand(1)]))
    text = str(refused.value)
    assert f"numpy 1.0.0 here, {there['numpy']} on workers" in text
    assert "polars" not in text
    assert ray.is_initialized()  # the refusal did not close another's Ray


@pytest.mark.slow
def test_an_interrupt_ends_the_tasks_on_ray(ray: Any, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    assert "KeyboardInterrupt" in interrupted(tmp_path, "ray", signal.SIGINT, RAY_ADDRESS=address)
