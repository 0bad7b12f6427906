"""Answers drawn elsewhere and charged together: as if released one by one, in few statements."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from releasing import answer, fits, point, recorded, trajectory

from shoal import BudgetError, InputError, Ledger, Mechanism, NeighborGraph

LABELS = ["h0", "h1", "h2"]


def asked(mechanism: Mechanism, labels: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """True and noisy answers."""
    true = np.array([answer(mechanism, label) for label in labels])
    return true, mechanism.release(true, labels)


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


def test_what_is_decided_in_a_batch_counts_for_the_rest_of_it(ledger: Ledger) -> None:
    """As many releases about one label as its budget allows, in one batch; one more is refused as a whole."""
    mechanism = point()
    allowed = 0
    while fits(ledger, mechanism, "h0", allowed + 1):
        allowed += 1
    assert allowed > 3
    labels = ["h0"] * (allowed + 1)
    true = np.repeat(answer(mechanism, "h0")[None], allowed + 1, axis=0)
    drawn = mechanism.release(true, labels)
    ids = [str(i) for i in range(allowed + 1)]
    with pytest.raises(BudgetError) as refused:
        ledger.charge(mechanism, true, drawn, labels, query_ids=ids)
    assert 0.0099 < refused.value.remaining < 0.01  # nothing of the batch was charged
    assert not any(recorded(ledger, name) for name in ids)
    ledger.charge(mechanism, true[:-1], drawn[:-1], labels[:-1], query_ids=ids[:-1])
    assert not fits(ledger, mechanism, "h0")
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


def _moved(drawn: np.ndarray, value: float) -> np.ndarray:
    """The draws with another last entry."""
    return np.vstack([drawn[:-1], [[*drawn[-1, :-1], value]]])


#: What is handed in wrongly, given a mechanism and its draws.
WRONG: dict[str, Any] = {
    "shape": lambda m, drawn: {"drawn": drawn[:, :1]},
    "rows": lambda m, drawn: {"drawn": drawn[:2]},
    "nan": lambda m, drawn: {"drawn": _moved(drawn, np.nan)},
    "off grid": lambda m, drawn: {"drawn": _moved(drawn, drawn[-1, -1] + m.grid[1] / 2)},
    "out of range": lambda m, drawn: {"drawn": _moved(drawn, m.grid[1] * 2.0**53)},
    "ids": lambda m, drawn: {"query_ids": ["a", "b"]},
    "word": lambda m, drawn: {"query_ids": ["a", "b", ""]},
    "type": lambda m, drawn: {"mechanism": "mechanism.npz"},
}


@pytest.mark.parametrize("case", WRONG)
def test_what_can_be_checked_is(ledger: Ledger, case: str) -> None:
    mechanism = point()
    true, drawn = asked(mechanism, LABELS)
    head = ledger.head
    given = {"mechanism": mechanism, "drawn": drawn, "query_ids": "a"} | WRONG[case](mechanism, drawn)
    with pytest.raises(InputError):
        ledger.charge(answers=true, labels=LABELS, **given)
    assert ledger.head == head


def test_few_statements_by_an_index_whatever_the_number_of_labels(sqlite_url: str) -> None:
    """A shard of any size is charged by as many statements, and none of them walks a table."""
    from sqlalchemy import event

    counts, plans = [], []
    for n in (10, 400):
        mechanism = point(n, gap=0.01, prefix=f"p{n}-")
        labels = list(mechanism.classes.labels)
        true, drawn = asked(mechanism, labels)
        statements: list[tuple[str, Any]] = []

        def note(_connection: Any, _cursor: Any, text: str, parameters: Any, *_: Any) -> None:
            statements.append((text, parameters))  # noqa: B023

        with Ledger.open(sqlite_url) as ledger:
            ledger.budget(1.0, 0.01)
            engine = ledger.storage._engine
            event.listen(engine, "before_cursor_execute", note)
            ledger.charge(mechanism, true, drawn, labels, query_ids="a")
            event.remove(engine, "before_cursor_execute", note)
            with engine.connect() as connection:
                for text, parameters in statements:
                    if text.startswith("SELECT") and "FROM head" not in text:
                        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters).fetchall()
                        plans.append(" ".join(row[3] for row in plan))
        counts.append(len(statements))
    assert counts[0] == counts[1] < 40
    for index in ("entries_question (label=? AND query_id=?)", "entries_answer (label=? AND answer=?)"):
        assert any(index in plan for plan in plans)
    assert any("SEARCH totals USING PRIMARY KEY" in plan for plan in plans)
    assert not any(f"SCAN {name}" in plan for plan in plans for name in ("totals", "graph_labels", "crowd_members"))


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
    spent = ledger.spent()
    assert (len(spent), spent.releases) == (1200, 1200)
    assert json.loads(ledger.entries()[-1].payload)["label"] == labels[-1]


def test_what_a_budget_lets_through_a_larger_one_does(tmp_path: Path) -> None:
    """Several answers about each label of two pairs, in one batch."""
    plain = point(4)
    pairs = NeighborGraph.from_edges(plain.classes.labels, [("h0", "h1"), ("h2", "h3")])
    mechanism = dataclasses.replace(plain, graph=pairs, epsilon=np.ones(2))
    labels = [name for name in pairs.labels for _ in range(5)]
    ids = [str(i) for i in range(5)] * 4
    true = np.array([answer(mechanism, name) for name in labels])
    drawn = mechanism.release(true, labels)
    ends = []
    for number, delta in enumerate((1e-9, 1e-3, 3e-3, 0.01, 0.03, 0.5)):
        with Ledger.open(tmp_path / f"{number}.db") as ledger:
            ledger.budget(1.0, float(delta))
            try:
                ledger.charge(mechanism, true, drawn, labels, query_ids=ids)
                ends.append(True)
            except BudgetError:
                ends.append(False)
    assert ends == sorted(ends)
    assert {True, False} == set(ends)
