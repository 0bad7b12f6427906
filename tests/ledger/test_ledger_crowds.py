"""Crowds that last: what the ledger records, gives back and refuses, whoever asks, under whatever name."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from releasing import SETTING, TABLE, crowds, members, names, point, record_crowds

from shoal import GaussianClasses, InputError, Ledger, LedgerError, NeighborGraph, design
from shoal.product.ledger.budgets import is_later

FIRST, SECOND = "2025-01-01T18:00", "2025-01-02T18:00"


def test_what_is_recorded_comes_back(two: tuple[Ledger, int, int], url: str) -> None:
    ledger, a, _ = two
    book = ledger.crowds(["a2"])
    assert book.members["label"].to_list() == names("a", 4)
    assert book.crowds.rows(named=True) == crowds([(a, 4)], FIRST).rows(named=True)
    assert np.frombuffer(book.members["stored"][0]).tolist() == [1.0] * 4
    assert ledger.crowds(["nobody"]).crowds.is_empty()
    with Ledger.open(url) as again:
        assert again.crowds().digest == book.digest == ledger.crowds().digest
        assert again.crowds().members.height == 8
    assert ledger.verify()
    assert ledger.has("first")


def test_the_same_release_again_changes_nothing(two: tuple[Ledger, int, int]) -> None:
    ledger, a, b = two
    m, c = members([("a0", a)], last="y"), crowds([(a, 4)], SECOND)
    stale = ledger.crowds().digest
    entry = record_crowds(ledger, "second", m, c)
    head = ledger.head
    assert record_crowds(ledger, "second", m, c, book_digest=stale) == entry
    assert ledger.recorded_crowds("second") == entry
    assert ledger.recorded_crowds("third") is None
    assert ledger.head == head
    assert entry.content["facts"] == {"members": 1}
    for other in ({"table_digest": "cd" * 32}, {"facts": {"members": 2}}):
        with pytest.raises(InputError, match="name"):
            record_crowds(ledger, "second", m, c, **other)
    with pytest.raises(InputError, match="name"):
        record_crowds(ledger, "second", m, crowds([(b, 4)], SECOND))


def test_who_released_meanwhile_is_told(two: tuple[Ledger, int, int]) -> None:
    ledger, a, b = two
    stale = ledger.crowds().digest
    record_crowds(ledger, "second", members([]), crowds([(a, 4)], SECOND))
    with pytest.raises(LedgerError, match="read them again") as refused:
        record_crowds(ledger, "third", members([]), crowds([(b, 4)], SECOND), book_digest=stale)
    assert refused.value.reason == "stale"


#: What is handed in (members and crowds, given two crowds on record and a number that was drawn) against each rule.
KEPT = '{"bases": ["0.1"], "offsets": [1], "decimals": [3], "from": ""}'
BROKEN: dict[str, Callable[[int, int, int], Any]] = {
    "moves": lambda a, b, new: (members([("a0", b)]), crowds([(b, 4)], SECOND)),
    "joins": lambda a, b, new: (members([("new", a)]), crowds([(a, 5)], SECOND)),
    "joins quietly": lambda a, b, new: (members([("new", a)]), crowds([(a, 4)], SECOND)),
    "too small": lambda a, b, new: (members([("c0", new), ("c1", new)]), crowds([(new, 2)], SECOND)),
    "same period": lambda a, b, new: (members([]), crowds([(a, 4)], FIRST)),
    "earlier": lambda a, b, new: (members([]), crowds([(a, 4)], "2024-12-31T18:00")),
    "other setting": lambda a, b, new: (members([]), crowds([(a, 4)], SECOND, setting=json.dumps({"m": 4}))),
    "not drawn": lambda a, b, new: (members([(n, 7) for n in names("c", 4)]), crowds([(7, 4)], SECOND)),
    "taken": lambda a, b, new: (members([(n, a) for n in names("c", 4)]), crowds([(a, 4)], SECOND)),
    "other offset": lambda a, b, new: (members([]), crowds([(a, 4)], SECOND).with_columns(kept=pl.lit(KEPT))),
    "no crowd": lambda a, b, new: (members([("c0", new)]), crowds([(a, 4)], SECOND)),
    "wrong count": lambda a, b, new: (members([(n, new) for n in names("c", 4)]), crowds([(new, 5)], SECOND)),
    "retired releases": lambda a, b, new: (members([]), crowds([(a, 4)], SECOND, retired=True)),
    "block of nothing": lambda a, b, new: (members([("a0", a)], block=a), crowds([(a, 4)], SECOND)),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_rules_that_hold_whoever_calls(two: tuple[Ledger, int, int], rule: str) -> None:
    ledger, a, b = two
    m, c = BROKEN[rule](a, b, *ledger.draw_crowd_numbers(1))
    before, head = ledger.crowds(), ledger.head
    with pytest.raises(InputError, match="Nothing was recorded"):
        record_crowds(ledger, "second", m, c)
    after = ledger.crowds()
    assert after.digest == before.digest
    assert after.members.equals(before.members)
    assert ledger.head == head


def test_the_rest_of_a_retired_crowd_moves_as_a_block(two: tuple[Ledger, int, int]) -> None:
    ledger, a, b = two
    (c,) = ledger.draw_crowd_numbers(1)
    gone = crowds([(a, 4)], FIRST, retired=True)
    new = [(n, c) for n in names("c", 3)]
    rest = [("a0", c), ("a1", c)]
    formed = crowds([(c, 5)], SECOND)
    with pytest.raises(InputError, match="retired"):  # the old crowd is not
        record_crowds(ledger, "second", pl.concat([members(new), members(rest, block=a)]), formed)
    with pytest.raises(InputError, match="block"):
        record_crowds(ledger, "second", pl.concat([members(new), members(rest)]), pl.concat([gone, formed]))
    few = crowds([(c, 4)], SECOND)
    with pytest.raises(InputError, match="fewer"):  # two others are fewer than three
        record_crowds(ledger, "second", pl.concat([members(new[:2]), members(rest, block=a)]), pl.concat([gone, few]))
    waiting = members([("a0", a), ("a1", a), ("a2", a)], block=a)
    record_crowds(ledger, "second", waiting, gone)
    with pytest.raises(InputError, match="as a whole"):  # a2 stays behind
        record_crowds(ledger, "third", pl.concat([members(new), members(rest, block=a)]), formed)
    with pytest.raises(InputError, match="leaves a crowd that is not retired"):
        record_crowds(
            ledger, "third", pl.concat([members(new), members([("b0", c)], block=b)]), crowds([(c, 4)], "2025-01-02")
        )
    every = pl.concat([members(new), members([*rest, ("a2", c)], block=a, stored=3.0)])
    record_crowds(ledger, "third", every, crowds([(c, 6)], SECOND))
    with pytest.raises(InputError, match="fixed set"):  # who was gone when it was retired does not follow alone
        record_crowds(ledger, "fourth", members([("a3", c)], block=a), crowds([(c, 6)], "2025-01-03T18:00"))
    assert set(ledger.crowds(["a0"]).members["label"]) == {"a0", "a1", "a2", *names("c", 3)}
    assert ledger.crowds(["a3"]).crowds["retired"].to_list() == [True]
    assert ledger.verify()


def test_numbers_are_drawn_once(ledger: Ledger) -> None:
    first, second = ledger.draw_crowd_numbers(500), ledger.draw_crowd_numbers(500)
    assert len({*first, *second}) == 1000
    assert all(100_000 <= number < 1_000_000 for number in first)
    assert first != sorted(first)
    assert len(str(min(ledger.draw_crowd_numbers(90_000)))) == 7


def test_charged_releases_keep_crowds_together(two: tuple[Ledger, int, int]) -> None:
    ledger, _, _ = two
    classes = GaussianClasses.deterministic(np.zeros((3, 2)), ["a0", "a1", "other"])
    apart = design(classes, NeighborGraph.complete(classes.labels), "white", 1.0, 1.0)
    with pytest.raises(InputError, match="crowd on record"):
        ledger.release(apart, [0.0, 0.0], "a0")
    ledger.release(apart, [0.0, 0.0], "other")
    whole = point(n=4, prefix="b")
    ledger.release(whole, whole.classes.means[1], "b1")
    assert ledger.verify()


def test_new_crowds_keep_neighbors_on_record_together(ledger: Ledger) -> None:
    tool = point(n=4, prefix="h")
    ledger.release(tool, tool.classes.means[0], "h0")
    (number,) = ledger.draw_crowd_numbers(1)
    some = [(label, number) for label in ("h0", "h1", "h2")]
    with pytest.raises(InputError, match="neighbor"):
        record_crowds(ledger, "first", members(some), crowds([(number, 3)], "2025"))
    record_crowds(ledger, "first", members([*some, ("h3", number)]), crowds([(number, 4)], "2025"))
    ledger.release(tool, tool.classes.means[1], "h1")
    assert ledger.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE crowd_members SET last = 'z' WHERE label = 'a0'",
        "UPDATE crowd_members SET block = 3 WHERE label = 'a0'",
        "UPDATE crowd_members SET crowd = (SELECT crowd FROM crowd_members WHERE label = 'b0') WHERE label = 'a0'",
        "DELETE FROM crowd_members WHERE label = 'a0'",
        "DELETE FROM crowds WHERE period LIKE '2025%'",
        "UPDATE crowds SET period = '2024-01-01T18:00'",
        "UPDATE crowds SET digest = 'x'",
    ],
)
def test_altered_tables_are_found_and_sealed_by_no_release(two: tuple[Ledger, int, int], statement: str) -> None:
    ledger, a, b = two
    assert ledger.verify()
    with ledger.storage.writing() as transaction:
        transaction.execute(statement)
    report = ledger.verify()
    assert not report
    assert "crowds" in report.problem
    with pytest.raises(LedgerError) as refused:
        record_crowds(ledger, "second", members([("a1", a), ("b1", b)], last="y"), crowds([(a, 4), (b, 4)], SECOND))
    assert refused.value.reason == "damaged"


@pytest.mark.parametrize(
    "again",
    [
        "2025-01-01T18:00+00:00",  # the same instant, with its zone
        "2025-01-01T18:00Z",
        "2025-01-01 18:00",
        "2025-01-01",  # the day that it lies in
        "20250101T1800",
        "later",  # a text after any year
    ],
)
def test_one_period_has_one_release_however_it_is_spelled(two: tuple[Ledger, int, int], again: str) -> None:
    ledger, a, _ = two
    with pytest.raises(InputError, match="period"):
        record_crowds(ledger, "second", members([("a0", a)], last="y"), crowds([(a, 4)], again))


def test_periods_are_compared_with_their_own_kind() -> None:
    assert is_later("2025-01-02", "2025-01-01")
    assert is_later("2025-01-02T00:00", "2025-01-01")
    assert not is_later("2025-01-01T18:00", "2025-01-01")
    assert not is_later("2025-01-01T18:00", "2025-01")
    assert is_later("2025-01-01T18:00+00:00", "2025-01-01T18:00+01:00")
    assert is_later("week 2", "week 1")
    assert not is_later("Week 1 ", "week 1")


def _retired(ledger: Ledger, a: int, b: int, others: int, rests: tuple[str, ...], period: str, m: int) -> None:
    """Retire crowds and form one of their rests, three of four each, and of new labels."""
    (c,) = ledger.draw_crowd_numbers(1)
    number = {"a": a, "b": b}
    gone = crowds([(number[rest], 4) for rest in rests], FIRST, retired=True)
    moved = [members([(label, c) for label in names(rest, 3)], block=number[rest]) for rest in rests]
    new = members([(label, c) for label in names("c", others)])
    setting = json.dumps({**json.loads(SETTING), "m": m})
    formed = crowds([(c, 3 * len(rests) + others)], period, setting=setting)
    record_crowds(ledger, "second", pl.concat([*moved, new]), pl.concat([gone, formed]))


def test_the_rest_of_a_crowd_is_not_the_others_of_another_rest(two: tuple[Ledger, int, int]) -> None:
    """Three and three of two crowds of four: the three rows give the sum of the two that are gone."""
    ledger, a, b = two
    with pytest.raises(InputError, match="fewer members"):
        _retired(ledger, a, b, 0, ("a", "b"), SECOND, 3)
    _retired(ledger, a, b, 3, ("a", "b"), SECOND, 3)


def test_a_new_crowd_of_old_members_releases_later_and_promises_no_less(two: tuple[Ledger, int, int]) -> None:
    ledger, a, b = two
    with pytest.raises(InputError, match="period"):
        _retired(ledger, a, b, 3, ("a",), FIRST, 3)
    with pytest.raises(InputError, match="m = 3"):
        _retired(ledger, a, b, 3, ("a",), SECOND, 2)
    _retired(ledger, a, b, 3, ("a",), SECOND, 3)


def test_a_crowd_releases_nothing_once_a_member_has_neighbors_outside(two: tuple[Ledger, int, int]) -> None:
    """Two that are neighbors on record stay neighbors, also where the crowd was there before the mechanism."""
    ledger, a, b = two
    wide = point(n=5, prefix="a")
    ledger.release(wide, wide.classes.means[4], "a4")
    with pytest.raises(InputError, match="neighbor"):
        record_crowds(ledger, "second", members([("a0", a)], last="y"), crowds([(a, 4)], SECOND))
    record_crowds(ledger, "second", members([("b0", b)], last="y"), crowds([(b, 4)], SECOND))
    assert ledger.verify()


def test_a_charge_sees_that_a_member_was_moved(two: tuple[Ledger, int, int]) -> None:
    ledger, _, _ = two
    with ledger.storage.writing() as transaction:
        transaction.execute("DELETE FROM crowd_members WHERE label <> 'a0' AND label LIKE 'a%'")
    classes = GaussianClasses.deterministic(np.zeros((2, 2)), ["a0", "z"])
    alone = design(classes, NeighborGraph.complete(classes.labels), "white", 1.0, 1.0)
    with pytest.raises(LedgerError) as refusal:
        ledger.release(alone, [0.0, 0.0], "a0")
    assert refusal.value.reason == "damaged"


def test_one_label_has_one_spelling(ledger: Ledger) -> None:
    """A composed and a decomposed é look alike and would be two labels with a budget each."""
    labels = [unicodedata.normalize("NFD", "café"), "b", "c"]
    classes = GaussianClasses.deterministic(np.zeros((3, 2)), labels)
    tool = design(classes, NeighborGraph.complete(labels), "white", 1.0, 1.0)
    with pytest.raises(InputError, match="Unicode"):
        ledger.release(tool, [0.0, 0.0], "b")
    with pytest.raises(InputError, match="Unicode"):
        ledger.record_readings("day", period="2025-01-01", labels=labels, mu=0.1, cap=1.0)
    (number,) = ledger.draw_crowd_numbers(1)
    with pytest.raises(InputError, match="Unicode"):
        record_crowds(ledger, "first", members([(label, number) for label in labels]), crowds([(number, 3)], FIRST))


@pytest.mark.parametrize(
    "wrong",
    [
        {"members": members([("a0", 1), ("a0", 1)])},
        {"members": pl.DataFrame({"label": ["a"]})},
        {"crowds": crowds([(1, 4)], "2025", setting="[]")},
        {"crowds": crowds([(1, 4)], "2025", setting='{"m": 1}')},
        {"crowds": crowds([(1, 4)], "")},
        {"members": members([("a0", 1)], stored=float("nan"))},
        {"table_digest": "short"},
        {"facts": {"a": float("nan")}},
        {"facts": {"a": "b" * 20_000}},
        {"name": ""},
    ],
)
def test_arguments_that_make_no_sense(ledger: Ledger, wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "name": "first",
        "book_digest": ledger.crowds().digest,
        "members": members([]),
        "crowds": crowds([], "2025"),
        "table_digest": TABLE,
        "facts": {},
    }
    with pytest.raises(InputError):
        ledger.record_crowds(**(given | wrong))
