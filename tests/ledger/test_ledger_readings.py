"""Releases under the readings' promise: one number per label, with a cap fixed before the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from releasing import answer, ask, crowds, members, names, point, record_crowds
from test_ledger_verify import rewritten

from shoal import BudgetError, InputError, Ledger, NeighborGraph, codebook
from shoal.product.cli.ledger_commands import list_releases


def day(ledger: Ledger, number: int, **other: Any) -> Any:
    given: dict[str, Any] = {"period": f"2025-01-{number:02}", "labels": ["a", "b"], "mu": 0.3, "cap": 0.6}
    return ledger.record_readings(f"day {number}", **(given | other))


def test_squares_add_up_to_the_cap_and_no_further(ledger: Ledger, url: str) -> None:
    """0.3² four times is 0.6² in real numbers; as doubles it is what the doubles are, and nothing is rounded."""
    for number in (1, 2, 3):
        day(ledger, number)
    day(ledger, 4, mu=0.29)
    head = ledger.head
    with pytest.raises(BudgetError, match="the budget of the series"):
        day(ledger, 5)
    with Ledger.open(url) as other, pytest.raises(BudgetError, match="the budget of the series"):
        day(other, 5, labels=["b", "z"])
    assert ledger.head == head
    assert ledger.verify()


def test_who_sent_readings_decides_nothing(ledger: Ledger) -> None:
    """The register is public, and who sent readings is not: whoever is in a file, the same is allowed and refused."""
    for number in (1, 2, 3, 4):
        day(ledger, number, labels=[f"home {number}"], mu=0.29)
    for labels in (["home 1"], ["home 9"], ["home 9", "home 1"]):
        with pytest.raises(BudgetError, match="the budget of the series"):
            day(ledger, 5, labels=labels)
    assert ledger.verify()
    ledger.rebuild()
    assert ledger.verify()


def test_there_is_a_most_of_releases(ledger: Ledger) -> None:
    """What finite precision costs is counted for 10,000 releases of a series: none is so small that more would fit."""
    day(ledger, 1, mu=0.01, cap=1.0)
    with pytest.raises(InputError, match="10000"):
        day(ledger, 2, mu=float(np.nextafter(0.01, 0.0)), cap=1.0)


def test_the_cap_is_fixed_with_the_first(ledger: Ledger) -> None:
    day(ledger, 1)
    with pytest.raises(InputError, match="cap"):
        day(ledger, 2, cap=100.0)
    assert ledger.verify()


@pytest.mark.parametrize("took_part", [True, False])
def test_a_second_series_is_refused_whoever_took_part_in_the_first(ledger: Ledger, took_part: bool) -> None:
    """Finding 18: the refusal of another cap is about the register, and says nothing about one home."""
    day(ledger, 1, labels=["a", "b", *(["x"] if took_part else [])])
    with pytest.raises(InputError, match="cap: a series of releases of readings is on record with another budget"):
        day(ledger, 2, labels=["x", "c"], mu=0.4, cap=0.4)
    day(ledger, 2, labels=["x", "c"])
    assert ledger.verify()


def test_training_windows_of_labels_and_readings_do_not_overlap(ledger: Ledger) -> None:
    """Finding 7: half an hour later the same training days are in it; the other order likewise."""
    setting = '{"m": 2, "kind": "forecast", "train_days": 7}'
    day(ledger, 9, labels=["x0", "x1"], period="2025-01-09T00:00:00Z", since="2025-01-02T00:00:00Z")
    (number,) = ledger.draw_crowd_numbers(1)
    rows = members([(label, number) for label in names("x", 4)])
    for origin in ("2025-01-09T00:30:00Z", "2025-01-15T23:30:00Z"):
        with pytest.raises(InputError, match="readings of a member from the same days"):
            record_crowds(ledger, "crowds", rows, crowds([(number, 4)], origin, setting=setting))
    record_crowds(ledger, "crowds", rows, crowds([(number, 4)], "2025-01-16T00:00:00Z", setting=setting))
    for origin, since in (("2025-01-16T00:30", "2025-01-09T00:30"), ("2025-01-22T23:30", "2025-01-15T23:30")):
        with pytest.raises(InputError, match="readings of the same days"):
            day(ledger, 10, labels=["x1"], period=f"{origin}:00Z", since=f"{since}:00Z")
    day(ledger, 10, labels=["x1"], period="2025-01-23T00:00:00Z", since="2025-01-16T00:00:00Z")
    assert ledger.verify()


def test_another_spelling_is_the_same_label(ledger: Ledger) -> None:
    """Finding 8: crowds and readings know a label by its key; two spellings are never two people."""
    (number,) = ledger.draw_crowd_numbers(1)
    labels = ["Zoé 1", "Zoé 2", "Zoé 3", "Zoé 4"]
    record_crowds(ledger, "day 1", members([(label, number) for label in labels]), crowds([(number, 4)], "2025-01-02"))
    for other in ("ZOÉ 1", "zoé\u00a01", "Zoé  1", "Zoé 1\u200b"):
        assert ledger.spellings([other, "Zoé 2", "Zoe 9"]) == {other: "Zoé 1"}
        assert set(ledger.crowds([other]).members["label"]) == set(labels)
        with pytest.raises(InputError, match="crowd of a label"):
            day(ledger, 2, labels=[other], period="2025-01-02")
        (fresh,) = ledger.draw_crowd_numbers(1)
        again = members([(other, fresh), ("n 1", fresh), ("n 2", fresh), ("n 3", fresh)])
        with pytest.raises(InputError, match="another spelling"):
            record_crowds(ledger, "again", again, crowds([(fresh, 4)], "2025-01-03"))
    entry = day(ledger, 3, labels=["ZOÉ 1", "Ann"], period="2025-01-03")
    assert entry.content["labels"] == ["Ann", "Zoé 1"]
    assert day(ledger, 3, labels=["zoé 1", "ANN"], period="2025-01-03") == entry
    with pytest.raises(InputError, match="one spelling"):
        day(ledger, 4, labels=["Bo", "BO"])
    ledger.rebuild()
    assert ledger.verify()
    assert ledger.spellings(["ann"]) == {"ann": "Ann"}


def test_the_same_rows_under_other_labels_are_refused(ledger: Ledger) -> None:
    """A first population of which m rows are on record, under other labels; few-valued columns do not count."""
    rng = np.random.default_rng(3)
    figures = np.column_stack([rng.integers(0, 2, 24), rng.normal(size=(24, 3)).round(3)]).astype("<f8")
    setting = '{"m": 4, "kind": "table", "columns": ["yes", "a", "b", "c"]}'

    def ask(name: str, labels: list[str], rows: Any, columns: str = setting) -> Any:
        (number,) = ledger.draw_crowd_numbers(1)
        table = members([(label, number) for label in labels])
        table = table.with_columns(stored=pl.Series([row.tobytes() for row in rows], dtype=pl.Binary))
        return record_crowds(ledger, name, table, crowds([(number, len(labels))], "2025-01-02", setting=columns))

    ask("first", names("p", 24), figures)
    other = figures[::-1].copy()
    other[4:] += 1
    with pytest.raises(InputError, match="4 rows of new labels are on record under other labels"):
        ask("again", names("q", 24), other)
    with pytest.raises(InputError, match="24 rows of new labels"):  # a column less, in another order
        ask("again", names("q", 24), figures[:, [3, 1, 2]], '{"m": 4, "kind": "table", "columns": ["c", "a", "b"]}')
    fewer = figures.copy()
    fewer[3:] += 1
    ask("others", names("q", 24), fewer)
    ask("two columns", names("r", 24), figures[:, :3], '{"m": 4, "kind": "table", "columns": ["yes", "a", "b"]}')


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
        transaction.execute("UPDATE readings_accounts SET spent = '0' WHERE label = 'a'")
    assert "index" in ledger.verify().problem
    ledger.rebuild()
    assert ledger.verify()


@pytest.mark.parametrize("wrong", [{"mu": 0.0}, {"cap": -1.0}, {"labels": []}, {"labels": ["a", "a"]}, {"period": ""}])
def test_arguments_that_make_no_sense(ledger: Ledger, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        day(ledger, 1, **wrong)


def test_the_list_of_releases(ledger: Ledger) -> None:
    mechanism = point()
    labels = list(mechanism.graph.labels)
    ledger.charge(mechanism, mechanism.classes.means, None, labels, query_ids=["table"] * 3)
    ask(ledger, mechanism, "h0", "more")
    day(ledger, 1)
    (number,) = ledger.draw_crowd_numbers(1)
    rows = members([(label, number) for label in names("c", 4)])
    facts = {"members": 4, "folder": "january"}
    record_crowds(ledger, "crowds of january", rows, crowds([(number, 4)], "2025-01-02"), facts=facts)
    log = list_releases(ledger)
    assert [(row["kind"], row["name"], row["labels"]) for row in log] == [
        ("answers", "table", 3),
        ("answers", "more", 1),
        ("readings", "day 1", 2),
        ("crowds", "crowds of january", 4),
    ]
    assert log[3]["folder"] == "january"
    assert [row["time"] for row in log] == sorted(row["time"] for row in log)
