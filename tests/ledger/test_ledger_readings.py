"""Releases under the readings' promise: one number per label, with a cap fixed before the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from releasing import answer, ask, crowds, members, names, point, record_crowds
from test_ledger_verify import rewritten

from shoal import BudgetError, InputError, Ledger, NeighborGraph, codebook


def day(ledger: Ledger, number: int, **other: Any) -> Any:
    given: dict[str, Any] = {"period": f"2025-01-{number:02}", "labels": ["a", "b"], "mu": 0.3, "cap": 0.6}
    return ledger.record_readings(f"day {number}", **(given | other))


def test_squares_add_up_to_the_cap_and_no_further(ledger: Ledger, url: str) -> None:
    """0.3² four times is 0.6² in real numbers; as doubles it is what the doubles are, and nothing is rounded."""
    for number in (1, 2, 3):
        day(ledger, number)
    day(ledger, 4, mu=0.29)
    head = ledger.head
    with pytest.raises(BudgetError, match="sum of squares"):
        day(ledger, 5)
    with Ledger.open(url) as other, pytest.raises(BudgetError, match="sum of squares"):
        day(other, 5, labels=["b", "z"])
    assert ledger.head == head
    day(ledger, 5, labels=["z"])
    assert ledger.verify()


def test_the_cap_is_fixed_with_the_first(ledger: Ledger) -> None:
    day(ledger, 1)
    with pytest.raises(InputError, match="cap"):
        day(ledger, 2, cap=100.0)
    day(ledger, 2, labels=["c"], cap=100.0)
    assert ledger.verify()


def test_the_same_release_is_recorded_once(ledger: Ledger) -> None:
    entry, head = day(ledger, 1), ledger.head
    assert day(ledger, 1, labels=["b", "a"]) == entry
    assert ledger.head == head
    with pytest.raises(InputError, match="name"):
        day(ledger, 1, mu=0.1)


def test_labels_and_readings_refuse_each_other(ledger: Ledger) -> None:
    """Answers about a label, crowds of the same period, and readings: whichever comes second is refused."""
    mechanism = point()
    ledger.release(mechanism, answer(mechanism, "h0"), "h0")
    with pytest.raises(InputError, match="labels' promise"):
        day(ledger, 1, labels=["h0", "a"])
    with pytest.raises(InputError, match="labels' promise"):  # a mechanism is made from all its labels' answers
        day(ledger, 1, labels=["h1"])
    day(ledger, 1, labels=["x0", "x1"])
    graph = NeighborGraph.complete(names("x", 3))
    for other in (point(prefix="x"), codebook(np.arange(6.0).reshape(3, 2), graph, epsilon=1.0, labels=graph.labels)):
        with pytest.raises(InputError, match="readings' promise"):
            ledger.release(other, other.classes.means[2], "x2")
    (number,) = ledger.draw_crowd_numbers(1)
    rows = members([(label, number) for label in names("x", 4)])
    with pytest.raises(InputError, match="readings' promise"):
        record_crowds(ledger, "crowds", rows, crowds([(number, 4)], "2025-01-01"))
    record_crowds(ledger, "day 1", rows, crowds([(number, 4)], "2025-01-02"))  # a name may be that of another kind
    with pytest.raises(InputError, match="crowd of a label"):
        day(ledger, 2, labels=["x1"])
    day(ledger, 3, labels=["x1"])
    with pytest.raises(InputError, match="readings' promise"):
        record_crowds(ledger, "more", members([]), crowds([(number, 4)], "2025-01-03"))
    assert ledger.verify()


def test_verify_finds_what_exceeds_a_cap(ledger: Ledger) -> None:
    for number in (1, 2, 3):
        day(ledger, number)
    rewritten(ledger, lambda contents: contents[-1][1].update(mu=0.5))
    report = ledger.verify()
    assert (bool(report), report.bad_entry) == (False, ledger.head.seq)
    rewritten(ledger, lambda contents: contents[-1][1].update(mu=0.3))
    assert ledger.verify()
    with ledger.storage.writing() as transaction:
        transaction.run("UPDATE readings_accounts SET spent = '0' WHERE label = 'a'")
    assert "index" in ledger.verify().problem
    ledger.rebuild()
    assert ledger.verify()


@pytest.mark.parametrize("wrong", [{"mu": 0.0}, {"cap": -1.0}, {"labels": []}, {"labels": ["a", "a"]}, {"period": ""}])
def test_arguments_that_make_no_sense(ledger: Ledger, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        day(ledger, 1, **wrong)


def test_the_log_says_what_happened(ledger: Ledger) -> None:
    mechanism = point()
    labels = list(mechanism.graph.labels)
    ledger.release_many(mechanism, mechanism.classes.means, labels, query_ids=["table"] * 3)
    ask(ledger, mechanism, "h0", "more")
    day(ledger, 1)
    (number,) = ledger.draw_crowd_numbers(1)
    rows = members([(label, number) for label in names("c", 4)])
    facts = {"homes": 4, "folder": "january"}
    record_crowds(ledger, "crowds of january", rows, crowds([(number, 4)], "2025-01-02"), facts=facts)
    log = ledger.log()
    assert [(row.kind, row.name, row.labels) for row in log] == [
        ("budget", "every label", 0),
        ("answers", "table", 3),
        ("answers", "more", 1),
        ("readings", "day 1", 2),
        ("crowds", "crowds of january", 4),
    ]
    assert log[0].cost == "δ(1) ≤ 0.01 allowed"
    assert "charged" in log[1].cost
    assert (log[4].folder, log[4].cost) == ("january", "nothing was charged")
    assert [row.time for row in log] == sorted(row.time for row in log)
