"""Writers that race, and writers that are killed: nothing lost, nothing uncharged, nothing overspent."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import ledger_faults as faults
from releasing import answer, ask, fits, point, recorded

import shoal
from shoal import BudgetError, Ledger, Mechanism
from shoal.product.ledger import decide
from shoal.product.ledger.chain import Journal
from shoal.product.ledger.state import State
from shoal.product.ledger.storage import Transaction

#: Kills per database; the full count is ``SHOAL_KILLS=1000``.
KILLS = int(os.environ.get("SHOAL_KILLS", "25"))


def in_child(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked process; returns its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it was, the process must not go on as a second test run
        traceback.print_exc()
    finally:
        os._exit(status)


def in_threads(work: Callable[[int], None], number: int = 8) -> None:
    """Run ``work`` in several threads at once, and wait for them."""
    barrier = threading.Barrier(number)

    def run(i: int) -> None:
        barrier.wait()
        work(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def last_unit(ledger: Ledger, mechanism: Mechanism) -> int:
    """Spend h1's budget until exactly one more release fits; returns how many were made."""
    made = 0
    while fits(ledger, mechanism, "h1", 2):
        ask(ledger, mechanism, "h1", f"before {made}")
        made += 1
    assert fits(ledger, mechanism, "h1")
    return made


def test_threads_racing_for_the_last_unit(ledger: Ledger) -> None:
    mechanism = point()
    made = last_unit(ledger, mechanism)
    outcomes: list[str] = []

    def race(number: int) -> None:
        try:
            ask(ledger, mechanism, "h1", f"race {number}")
            outcomes.append("released")
        except BudgetError:
            outcomes.append("refused")

    in_threads(race)
    assert sorted(outcomes) == ["refused"] * 7 + ["released"]
    assert ledger.spent()["h1"].releases == made + 1
    assert ledger.spent()["h1"].spent <= 0.01
    assert ledger.verify()


def test_processes_racing_for_the_last_unit(ledger: Ledger, url: str, tmp_path: Path) -> None:
    mechanism = point()
    made = last_unit(ledger, mechanism)

    def race(number: int) -> None:
        try:
            with Ledger.open(url) as own:
                own.release(mechanism, answer(mechanism, "h1"), "h1", query_id=f"race {number}")
            (tmp_path / f"released{number}").touch()
        except BudgetError:
            (tmp_path / f"refused{number}").touch()

    children = [in_child(lambda i=i: race(i)) for i in range(6)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    assert (len(list(tmp_path.glob("released*"))), len(list(tmp_path.glob("refused*")))) == (1, 5)
    assert ledger.spent()["h1"].releases == made + 1
    assert ledger.verify()


def test_threads_asking_one_question_get_one_answer(ledger: Ledger) -> None:
    mechanism = point()
    answers: list[bytes] = []

    def work(_: int) -> None:
        answers.append(ask(ledger, mechanism, "h0", "the one").tobytes())

    in_threads(work)
    assert len(answers) == 8
    assert len(set(answers)) == 1
    assert ledger.spent()["h0"].releases == 1


def test_an_open_ledger_survives_a_fork(ledger: Ledger, tmp_path: Path) -> None:
    """A connection is not shared with the child."""
    mechanism = point()
    first = ask(ledger, mechanism, "h0", "0")

    def work() -> None:
        for i in range(5):
            ask(ledger, mechanism, "h0", f"child {i}")

    child = in_child(work)
    for i in range(5):
        ask(ledger, mechanism, "h0", f"parent {i}")
    assert os.waitpid(child, 0)[1] == 0
    assert ledger.spent()["h0"].releases == 11
    assert np.array_equal(ask(ledger, mechanism, "h0", "0"), first)
    assert ledger.verify()


#: When a process is killed: after which call of what (before it where the number is 0), and how much is charged then.
INSTANTS: dict[str, tuple[Any, str, int, int]] = {
    "locked": (decide, "charge_answers", 0, 0),
    "drawn": (decide, "check_drawn", 1, 0),
    "decided": (State, "apply", 2, 0),  # the second of three labels
    "inserted": (Transaction, "insert", 1, 0),  # the entries; the head still names the one before
    "appended": (Journal, "write", 1, 0),
    "indexed": (State, "write", 1, 0),
    "committed": (Ledger, "charge", 1, 3),
}


@pytest.mark.parametrize("instant", INSTANTS)
def test_killed_at_a_known_instant(ledger: Ledger, url: str, instant: str, tmp_path: Path) -> None:
    """All of a batch or none of it is charged, and none of it is shown before."""
    owner, name, calls, charged = INSTANTS[instant]
    mechanism = point()
    ask(ledger, mechanism, "h1", "before")
    labels = list(mechanism.classes.labels)
    true = np.array([answer(mechanism, label) for label in labels])
    head = ledger.head

    def work() -> None:
        own = Ledger.open(url)
        original, seen = getattr(owner, name), 0

        def wrapped(*args: Any, **named: Any) -> Any:
            nonlocal seen
            result = original(*args, **named) if calls else None
            seen += 1
            if seen >= calls:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, wrapped)
        shown = own.charge(mechanism, true, mechanism.release(true, labels), labels, query_ids="a")
        (tmp_path / "shown").write_bytes(shown.tobytes())

    assert os.WTERMSIG(os.waitpid(in_child(work), 0)[1]) == signal.SIGKILL
    assert not (tmp_path / "shown").exists()
    assert ledger.head.seq == head.seq + charged
    assert len(recorded(ledger, "a")) == charged
    assert ledger.verify(head=head)
    shown = ledger.charge(mechanism, true, mechanism.release(true, labels), labels, query_ids="a")
    assert ledger.head.seq == head.seq + 3  # charged once, whether before the kill or now
    assert [entry.content["released"] for entry in ledger.entries()[-3:]] == shown.tolist()
    assert ledger.verify(head=head)


def test_random_kills_lose_nothing_and_overspend_nothing(url: str, tmp_path: Path) -> None:
    outcome = faults.torment(url, KILLS, tmp_path)
    assert outcome.kills == KILLS
    assert outcome.shown > 0
    assert outcome.intact
    assert (outcome.lost, outcome.altered, outcome.recharged, outcome.overspent, outcome.errors) == (0, 0, 0, 0, 0)
    assert outcome.recorded >= outcome.unshown


def test_the_fault_checker_finds_faults(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness above must be able to fail: an answer shown without a record, one altered, one overspent."""
    tools = faults.mechanisms(5)
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(faults.EPSILON, faults.DELTA)
        first = ledger.release(tools[0], tools[0].classes.means[0], "h0", query_id="q0")
    (tmp_path / "shown-1").write_text(f"h0 q0 {first.tobytes().hex()}\n")
    assert faults.checked(sqlite_url, tools, 0, tmp_path, 0.0).ok
    (tmp_path / "shown-2").write_text(f"h0 q0 {(first + 1).tobytes().hex()}\n")
    assert faults.checked(sqlite_url, tools, 0, tmp_path, 0.0).altered == 1
    (tmp_path / "shown-2").write_text(f"h1 q2 {first.tobytes().hex()}\n")
    outcome = faults.checked(sqlite_url, tools, 0, tmp_path, 0.0)
    assert outcome.lost == 1
    assert not outcome.ok
    monkeypatch.setattr(faults, "DELTA", 1e-300)
    assert faults.checked(sqlite_url, tools, 0, tmp_path, 0.0).overspent > 0
    exact = shoal.edge_deltas([tools[0]] * 3 + [tools[1]] * 2, tools[0].graph, 1.0)
    every = range(faults.N_LABELS)
    mine = max(faults.spent(tools, [[2, 0] if j == i else [1, 2] for j in every], i) for i in every)
    assert mine == pytest.approx(exact.max(), rel=1e-9)
