"""Answers drawn elsewhere and charged together: as if released one by one, in few statements."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from releasing import answer, point, recorded, trajectory

from shoal import BudgetError, InputError, Ledger, Mechanism, NeighborGraph
from shoal.ledger import accounts
from shoal.ledger.bounds import mechanism_bound
from shoal.ledger.storage import Transaction

LABELS = ["h0", "h1", "h2"]


def asked(mechanism: Mechanism, labels: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """True and noisy answers."""
    true = np.array([answer(mechanism, label) for label in labels])
    return true, mechanism.release(true, labels)


@contextmanager
def no_spectra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Any exact composition is an error."""

    def forbidden(*_: Any) -> None:
        raise AssertionError("an account was composed exactly")

    with monkeypatch.context() as patch:
        patch.setattr(accounts, "_composed", forbidden)
        yield


def test_charged_answers_are_recorded_and_come_back(ledger: Ledger) -> None:
    mechanism = point()
    true, drawn = asked(mechanism, LABELS)
    shown = ledger.charge(mechanism, true, drawn, LABELS, query_ids="day 1")
    assert shown.tobytes() == drawn.tobytes()
    other = mechanism.release(true, LABELS)
    assert (other != drawn).any()
    head = ledger.head
    again = ledger.charge(mechanism, true, other, LABELS, query_ids=["day 1"] * 3)
    assert again.tobytes() == drawn.tobytes()  # the new draw is thrown away
    assert ledger.head == head
    assert ledger.release(mechanism, true[1], "h1", query_id="day 1").tobytes() == drawn[1].tobytes()
    assert ledger.verify()


def test_the_same_entries_as_one_by_one(url: str, tmp_path: Path) -> None:
    """Entry for entry what release_many writes, apart from keys, times, salts and the draws themselves."""
    tools = [point(), trajectory(seed=3)]

    def plain(ledger: Ledger) -> list[tuple[str, dict[str, Any]]]:
        found = []
        for entry in ledger.entries():
            content = {
                k: v
                for k, v in entry.content.items()
                if k not in ("time", "salt", "answer", "released", "key", "ledger")
            }
            found.append((entry.kind, content))
        return found

    with Ledger.open(url) as one, Ledger.open(f"sqlite:///{tmp_path / 'other.db'}") as two:
        for ledger in (one, two):
            ledger.budget(1.0, 0.1)
        for day, mechanism in enumerate([*tools, tools[0]]):
            true, drawn = asked(mechanism, LABELS)
            one.charge(mechanism, true, drawn, LABELS, query_ids=f"day {day}")
            two.release_many(mechanism, true, LABELS, query_ids=[f"day {day}"] * 3)
        assert plain(one) == plain(two)
        assert [a.spent for a in one.spent()] == [a.spent for a in two.spent()]
        assert one.verify()


def test_a_batch_is_all_or_nothing(ledger: Ledger, tmp_path: Path) -> None:
    mechanism = point(gap=1.0)
    ledger.budget(1.0, 1e-6)
    head = ledger.head
    true, drawn = asked(mechanism, LABELS)
    with pytest.raises(BudgetError, match="label h0"):
        ledger.charge(mechanism, true, drawn, LABELS, query_ids="a")
    assert ledger.head == head
    assert recorded(ledger, "a") == []
    with Ledger.open(tmp_path / "empty.db") as fresh, pytest.raises(InputError, match="no budget"):
        fresh.charge(mechanism, true, drawn, LABELS, query_ids="a")


def test_what_is_decided_in_a_batch_counts_for_the_rest_of_it(ledger: Ledger) -> None:
    """As many releases about one label as its budget allows, in one batch; one more is refused as a whole."""
    mechanism = point()
    bound = mechanism_bound(mechanism, 1.0)
    allowed = 0
    while ledger.cost(mechanism, "h0", times=allowed + 1).allowed:
        allowed += 1
    assert allowed > 3
    labels = ["h0"] * (allowed + 1)
    true = np.repeat(answer(mechanism, "h0")[None], allowed + 1, axis=0)
    drawn = mechanism.release(true, labels)
    ids = [str(i) for i in range(allowed + 1)]
    with pytest.raises(BudgetError) as refused:
        ledger.charge(mechanism, true, drawn, labels, query_ids=ids, bounds=bound)
    assert 0.0099 < refused.value.remaining < 0.01  # nothing of the batch was charged
    assert not any(recorded(ledger, name) for name in ids)
    ledger.charge(mechanism, true[:-1], drawn[:-1], labels[:-1], query_ids=ids[:-1], bounds=bound)
    assert not ledger.cost(mechanism, "h0").allowed
    assert ledger.verify()


def test_a_question_twice_in_a_batch_is_one_release(ledger: Ledger) -> None:
    mechanism = trajectory()
    true, drawn = asked(mechanism, ["h0", "h0"])
    shown = ledger.charge(mechanism, true, drawn, ["h0", "h0"], query_ids="a")
    assert shown[0].tobytes() == shown[1].tobytes() == drawn[0].tobytes()
    assert ledger.spent()["h0"].releases == 1
    with pytest.raises(InputError, match="another question"):
        ledger.charge(mechanism, true + np.array([[1.0], [2.0]]), drawn, ["h0", "h0"], query_ids="b")
    assert ledger.spent()["h0"].releases == 1


def test_fresh_noise_on_a_random_answer_is_refused(ledger: Ledger) -> None:
    mechanism = trajectory()
    true, drawn = asked(mechanism, ["h0"])
    with pytest.raises(InputError, match="this very answer"):  # twice in one batch
        ledger.charge(mechanism, true.repeat(2, 0), drawn.repeat(2, 0), ["h0"] * 2, query_ids=["a", "b"])
    assert recorded(ledger, "a") == []
    ledger.charge(mechanism, true, drawn, ["h0"], query_ids="a")
    with pytest.raises(InputError, match="this very answer"):
        ledger.charge(mechanism, true, drawn, ["h0"], query_ids="b")
    with pytest.raises(InputError, match="another question"):
        ledger.charge(mechanism, true + 1, drawn, ["h0"], query_ids="a")


def test_another_graph_is_refused(ledger: Ledger) -> None:
    mechanism = point()
    true, drawn = asked(mechanism, LABELS)
    ledger.charge(mechanism, true, drawn, LABELS, query_ids="a")
    path = dataclasses.replace(
        mechanism, graph=NeighborGraph.from_edges(LABELS, [("h0", "h1"), ("h1", "h2")]), epsilon=np.ones(2)
    )
    with pytest.raises(InputError, match="2 label"):
        ledger.charge(path, true, drawn, LABELS, query_ids="b")


@pytest.mark.parametrize("case", ["shape", "rows", "nan", "off grid", "out of range", "bound", "ids", "type", "word"])
def test_what_can_be_checked_is(ledger: Ledger, case: str) -> None:
    mechanism = point()
    true, drawn = asked(mechanism, LABELS)
    head = ledger.head
    arguments: dict[str, Any] = {"query_ids": "a"}
    given: Any = mechanism
    if case == "shape":
        drawn = drawn[:, :1]
    elif case == "rows":
        drawn = drawn[:2]
    elif case == "nan":
        drawn[0, 0] = np.nan
    elif case == "off grid":
        drawn[2, 1] += mechanism.grid[1] / 2
    elif case == "out of range":
        drawn[2, 1] = mechanism.grid[1] * 2.0**53
    elif case == "bound":
        arguments["bounds"] = mechanism_bound(point(seed=5), 1.0)
    elif case == "ids":
        arguments["query_ids"] = ["a", "b"]
    elif case == "type":
        given = "mechanism.npz"
    else:
        arguments["query_ids"] = ["a", "b", ""]
    with pytest.raises(InputError):
        ledger.charge(given, true, drawn, LABELS, **arguments)
    assert ledger.head == head


def test_the_content_of_a_file_serves_as_well(ledger: Ledger) -> None:
    mechanism = trajectory()
    true, drawn = asked(mechanism, LABELS)
    ledger.charge(mechanism.to_bytes(), true, drawn, LABELS, query_ids="a", bounds=mechanism_bound(mechanism, 1.0))
    assert ledger.release(mechanism, true[0], "h0", query_id="a").tobytes() == drawn[0].tobytes()
    with pytest.raises(InputError, match="damaged"):
        ledger.charge(mechanism.to_bytes()[:-30], true, drawn, LABELS, query_ids="b")
    assert ledger.verify()


def test_few_statements_whatever_the_number_of_labels(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[str] = []
    for name in ("rows", "one", "run", "insert"):
        real = getattr(Transaction, name)

        def counted(self: Transaction, statement: Any, *args: Any, _real: Any = real, **named: Any) -> Any:
            counts.append(str(statement))
            return _real(self, statement, *args, **named)

        monkeypatch.setattr(Transaction, name, counted)
    used = []
    for n in (10, 400):
        mechanism = point(n, gap=0.01, prefix=f"p{n}-")
        labels = list(mechanism.classes.labels)
        true, drawn = asked(mechanism, labels)
        bound = mechanism_bound(mechanism, 1.0)
        with Ledger.open(sqlite_url) as ledger:
            ledger.budget(1.0, 0.01)
            counts.clear()
            with no_spectra(monkeypatch):
                ledger.charge(mechanism, true, drawn, labels, query_ids="a", bounds=bound)
            used.append(len(counts))
    assert used[0] == used[1] < 32


def test_answers_and_accounts_are_found_by_an_index(sqlite_url: str) -> None:
    from sqlalchemy import event

    mechanism = point()
    true, drawn = asked(mechanism, LABELS)
    seen: list[tuple[str, Any]] = []
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.01)
        engine = ledger.storage._engine

        def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            seen.append((statement, parameters))

        event.listen(engine, "before_cursor_execute", note)
        ledger.charge(mechanism, true, drawn, LABELS, query_ids="a", bounds=mechanism_bound(mechanism, 1.0))
        event.remove(engine, "before_cursor_execute", note)
        plans = []
        with engine.connect() as connection:
            for text, parameters in seen:
                if text.startswith("SELECT") and "FROM head" not in text:
                    rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters).fetchall()
                    plans.append(" ".join(row[3] for row in rows))
                    assert not any(
                        f"SCAN {table}" in plans[-1] for table in ("totals", "graph_labels", "crowd_members")
                    )
    for index in ("entries_question (label=? AND query_id=?)", "entries_answer (label=? AND answer=?)"):
        assert any(index in plan for plan in plans)
    assert any("SEARCH totals USING PRIMARY KEY" in plan for plan in plans)


def test_many_labels_go_through_in_blocks(ledger: Ledger) -> None:
    """More labels than one block of a statement holds, half of them on record already."""
    mechanism = point(1200, 1, gap=0.01)
    labels = list(mechanism.classes.labels)
    graph = NeighborGraph.within_groups(labels, [i // 4 for i in range(1200)])
    mechanism = dataclasses.replace(mechanism, graph=graph, epsilon=np.ones(graph.n_edges))
    true, drawn = asked(mechanism, labels)
    first = ledger.charge(mechanism, true[:600], drawn[:600], labels[:600], query_ids="a")
    fresh = mechanism.release(true, labels)
    both = ledger.charge(mechanism, true, fresh, labels, query_ids="a")
    assert both[:600].tobytes() == first.tobytes()
    assert both[600:].tobytes() == fresh[600:].tobytes()
    seen = ledger.overview()
    assert (seen.labels, seen.releases, seen.entries) == (1200, 1200, ledger.head.seq)
    assert json.loads(ledger.entries()[-1].payload)["label"] == labels[-1]


def test_bounds_decide_as_the_exact_figures_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several answers about each of two pairs: bounds may let them through; nothing else changes by it."""
    plain = point(4)
    pairs = NeighborGraph.from_edges(plain.classes.labels, [("h0", "h1"), ("h2", "h3")])
    mechanism = dataclasses.replace(plain, graph=pairs, epsilon=np.ones(2))
    labels = [name for name in pairs.labels for _ in range(5)]
    ids = [str(i) for i in range(5)] * 4
    true = np.array([answer(mechanism, name) for name in labels])
    drawn, bound = mechanism.release(true, labels), mechanism_bound(mechanism, 1.0)
    ends = []
    for number, delta in enumerate((1e-9, 1e-3, 3e-3, 0.01, 0.03, 0.5)):
        found = []
        for bounded in (True, False):
            with monkeypatch.context() as patched, Ledger.open(tmp_path / f"{number} {bounded}.db") as ledger:
                if not bounded:
                    patched.setattr(accounts, "most_spent", lambda *_: 1.0)
                ledger.budget(1.0, float(delta))
                try:
                    ledger.charge(mechanism, true, drawn, labels, query_ids=ids, bounds=bound)
                    found.append((True, [a.spent for a in ledger.spent()]))
                except BudgetError as error:
                    found.append((False, str(error)))
        assert found[0] == found[1]
        ends.append(found[0][0])
    assert ends == sorted(ends), "what a budget lets through, a larger one does"
    assert {True, False} == set(ends)
