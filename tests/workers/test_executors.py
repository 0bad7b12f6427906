"""Serial and processes: the same results, whatever happens to workers."""

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
from shoal.workers.executor import TRIES, Executor, Failure, TaskError, open_executor


@pytest.fixture(params=["serial", "processes"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with open_executor(request.param, 2) as opened:
        yield opened


@pytest.fixture
def processes() -> Iterator[Executor]:
    with open_executor("processes", 2) as opened:
        yield opened


def children() -> set[int]:
    """Worker processes of this process, from the process table."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if (
                int(state[1]) == os.getpid()
                and state[0] != "Z"
                and b"multiprocessing.spawn" in (entry / "cmdline").read_bytes()
            ):
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def gone(pid: int, within: float = 20.0) -> bool:
    """Whether a process ends (a zombie has ended) within some seconds."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_every_task_is_answered_once(executor: Executor) -> None:
    found = list(executor.run(errands.square, [Errand(i) for i in range(50)]))
    assert sorted(found) == [(i, i * i) for i in range(50)]
    assert list(executor.run(errands.square, [])) == []


def test_an_executor_can_be_used_again_after_a_run_was_left(executor: Executor) -> None:
    results = executor.run(errands.square, [Errand(i, 0.01) for i in range(20)])
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert dict(executor.run(errands.square, [Errand(7), Errand(8)])) == {0: 49, 1: 64}


def test_results_do_not_depend_on_engine_or_workers() -> None:
    tasks = [Errand(i) for i in range(6)]
    found = []
    for workers, cores in (("serial", 1), ("processes", 1), ("processes", 3)):
        with open_executor(workers, cores) as executor:
            found.append(dict(executor.run(errands.arithmetic, tasks)))
    assert found[0] == found[1] == found[2]
    assert len(set(found[0].values())) == 6


def test_an_error_of_shoal_is_a_failure_and_the_rest_completes(executor: Executor) -> None:
    found = dict(executor.run(errands.refuse_odd, [Errand(i) for i in range(6)]))
    assert found == {i: Failure(f"shard {i} is refused") if i % 2 else i for i in range(6)}


def test_a_task_without_memory_is_a_failure(executor: Executor) -> None:
    ((_, failure),) = executor.run(errands.exhaust, [Errand(0)])
    assert isinstance(failure, Failure)
    assert "fewer workers" in failure.message


def test_a_full_disk_ends_the_run(executor: Executor) -> None:
    with pytest.raises(StorageError, match="the disk is full"):
        list(executor.run(errands.fill_disk, [Errand(i) for i in range(5)]))


def test_a_bug_is_raised_with_its_type_and_place_but_not_its_text(executor: Executor) -> None:
    with pytest.raises(TaskError, match=r"KeyError at errands\.py:\d+ in fail") as raised:
        list(executor.run(errands.fail, [Errand(i) for i in range(5)]))
    assert SECRET not in str(raised.value)
    assert raised.value.__context__ is None  # nor in what a traceback would print before it


def test_what_does_not_travel_is_a_bug(processes: Executor) -> None:
    with pytest.raises(TaskError, match="what a task returns does not travel"):
        list(processes.run(errands.unpicklable, [Errand(0)]))


def test_workers_and_the_libraries_in_them_use_one_thread(processes: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "2")
    ((_, found),) = processes.run(errands.settings, [Errand(0)])
    assert found == ONE_THREAD | {"shoal": 1, "numba": 1, "polars": 1, "blas": 1}


def test_serial_restores_the_settings_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    ((_, found),) = open_executor("serial").run(errands.settings, [Errand(0)])
    assert isinstance(found, dict)
    assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"], found["blas"]) == ("1", "1", 1)
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert "MKL_NUM_THREADS" not in os.environ


def test_workers_killed_at_random_lose_nothing(processes: Executor) -> None:
    stop, killed = threading.Event(), []

    def kill() -> None:
        rng = random.Random(3)
        while not stop.wait(0.4):
            found = sorted(children())
            if found:
                killed.append(rng.choice(found))
                os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        found = list(processes.run(errands.square, [Errand(i, 0.02) for i in range(200)]))
    finally:
        stop.set()
        killer.join()
    assert sorted(found) == [(i, i * i) for i in range(200)]
    assert len(killed) >= 3


def test_every_task_may_lose_its_worker_once(processes: Executor, tmp_path: Path) -> None:
    found = list(processes.run(errands.die_once, [Errand(i, folder=str(tmp_path)) for i in range(8)]))
    assert sorted(found) == [(i, i) for i in range(8)]


def test_a_task_that_always_ends_its_worker_is_given_up(processes: Executor, tmp_path: Path) -> None:
    found = dict(processes.run(errands.die_at_three, [Errand(i, folder=str(tmp_path)) for i in range(10)]))
    failure = found.pop(3)
    assert isinstance(failure, Failure)
    assert f"died {TRIES} times" in failure.message
    assert len(list(tmp_path.iterdir())) == TRIES
    assert "out of memory?" in failure.message
    assert found == {i: i for i in range(10) if i != 3}


class Counted(list[Errand]):
    """Tasks that notice when they are asked for."""

    asked = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        self.asked += 1
        return super().__getitem__(index)


def test_few_tasks_are_under_way(executor: Executor) -> None:
    tasks = Counted(Errand(i) for i in range(500))
    results = executor.run(errands.square, tasks)
    for handled in range(1, 20):
        next(results)
        assert tasks.asked <= handled + 2 * executor.workers


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
from shoal.workers.executor import open_executor
import errands
with open_executor("processes", 2) as executor:
    for _ in executor.run(errands.present, [errands.Errand(i, 60.0, sys.argv[1]) for i in range(4)]):
        pass
"""


def _driver(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A driver whose two workers are in the middle of long tasks."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)], env=environment, stderr=subprocess.PIPE, text=True
    )
    while len(list(folder.iterdir())) < 2:
        assert driver.poll() is None
        time.sleep(0.02)
    return driver, [int(path.name) for path in folder.iterdir()]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_its_driver(tmp_path: Path, sent: signal.Signals) -> None:
    driver, workers = _driver(tmp_path)
    driver.send_signal(sent)
    _, text = driver.communicate(timeout=30)
    assert driver.returncode != 0
    assert ("KeyboardInterrupt" in text) == (sent == signal.SIGINT)
    assert all(gone(pid) for pid in workers)


@pytest.mark.parametrize(("cores", "shards", "elsewhere"), [(1, 5, False), (2, 1, False), (2, 5, True)])
def test_auto_follows_the_shards_and_the_cores(cores: int, shards: int, elsewhere: bool) -> None:
    with open_executor("auto", cores) as executor:
        executor.expect(shards)
        found = dict(executor.run(errands.process, [Errand(0), Errand(1)]))
        assert (os.getpid() not in found.values()) == elsewhere


@pytest.mark.parametrize("workers", ["", "rays", "http://host", None, 3])
def test_an_unknown_engine_is_refused(workers: str) -> None:
    with pytest.raises(InputError, match=r"^workers must be"):
        open_executor(workers)


def test_no_workers_is_refused() -> None:
    with pytest.raises(InputError, match=r"^cores must be at least 1"):
        open_executor("processes", 0)
