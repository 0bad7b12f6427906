"""Ways around the ledger: other names, other spellings, other orders, and rows changed behind its back."""

from __future__ import annotations

import json
import unicodedata

import numpy as np
import polars as pl
import pytest
from releasing import point
from test_ledger_crowds import SETTING, crowds, members, names, record

from shoal import GaussianClasses, InputError, Ledger, LedgerError, NeighborGraph, codebook, design
from shoal.ledger.budgets import later

FIRST, SECOND = "2025-01-01T18:00", "2025-01-02T18:00"


@pytest.fixture
def two(ledger: Ledger) -> tuple[Ledger, int, int]:
    """A ledger with two crowds of four, released on the first."""
    a, b = ledger.draw_crowd_numbers(2)
    rows = [(label, a) for label in names("a", 4)] + [(label, b) for label in names("b", 4)]
    record(ledger, "first", members(rows), crowds([(a, 4), (b, 4)], FIRST))
    return ledger, a, b


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
        record(ledger, "second", members([("a0", a)], last="y"), crowds([(a, 4)], again))


def test_periods_are_compared_with_their_own_kind() -> None:
    assert later("2025-01-02", "2025-01-01")
    assert later("2025-01-02T00:00", "2025-01-01")
    assert not later("2025-01-01T18:00", "2025-01-01")
    assert not later("2025-01-01T18:00", "2025-01")
    assert later("2025-01-01T18:00+00:00", "2025-01-01T18:00+01:00")
    assert later("week 2", "week 1")
    assert not later("Week 1 ", "week 1")


def _retired(ledger: Ledger, a: int, b: int, others: int, rests: tuple[str, ...], period: str, m: int) -> None:
    """Retire crowds and form one of their rests, three of four each, and of new labels."""
    (c,) = ledger.draw_crowd_numbers(1)
    number = {"a": a, "b": b}
    gone = crowds([(number[rest], 4) for rest in rests], FIRST, retired=True)
    moved = [members([(label, c) for label in names(rest, 3)], block=number[rest]) for rest in rests]
    new = members([(label, c) for label in names("c", others)])
    setting = json.dumps({**json.loads(SETTING), "m": m})
    formed = crowds([(c, 3 * len(rests) + others)], period, setting=setting)
    record(ledger, "second", pl.concat([*moved, new]), pl.concat([gone, formed]))


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
        record(ledger, "second", members([("a0", a)], last="y"), crowds([(a, 4)], SECOND))
    record(ledger, "second", members([("b0", b)], last="y"), crowds([(b, 4)], SECOND))
    assert ledger.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM crowd_members WHERE label = 'a0'",
        "UPDATE crowd_members SET crowd = (SELECT crowd FROM crowd_members WHERE label = 'b0') WHERE label = 'a0'",
        "UPDATE crowd_members SET last = 'z' WHERE label = 'a0'",
        "UPDATE crowds SET period = '2024-01-01T18:00'",
        "UPDATE crowds SET digest = 'x'",
    ],
)
def test_a_release_does_not_seal_tables_that_were_altered(two: tuple[Ledger, int, int], statement: str) -> None:
    ledger, a, b = two
    with ledger.storage.writing() as transaction:
        transaction.run(statement)
    with pytest.raises(LedgerError) as refusal:
        record(ledger, "second", members([("a1", a), ("b1", b)], last="y"), crowds([(a, 4), (b, 4)], SECOND))
    assert refusal.value.reason == "damaged"
    assert not ledger.verify()


def test_a_charge_sees_that_a_member_was_moved(two: tuple[Ledger, int, int]) -> None:
    ledger, _, _ = two
    with ledger.storage.writing() as transaction:
        transaction.run("DELETE FROM crowd_members WHERE label <> 'a0' AND label LIKE 'a%'")
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
        record(ledger, "first", members([(label, number) for label in labels]), crowds([(number, 3)], FIRST))


def test_a_name_may_be_that_of_a_release_of_each_kind(two: tuple[Ledger, int, int]) -> None:
    ledger, _, _ = two
    ledger.record_readings("first", period="2025-01-03", labels=["x"], mu=0.1, cap=1.0)
    assert ledger.verify()


def test_readings_and_mechanisms_made_from_them_refuse_each_other(ledger: Ledger) -> None:
    """A codebook's curves are made from all answers of a group, whoever it is asked about."""
    answers, labels = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]), ["h0", "h1", "h2"]
    book = codebook(answers, NeighborGraph.complete(labels), epsilon=1.0, labels=labels)
    tool = point()
    ledger.record_readings("monday", period="2025-01-06", labels=["h2"], mu=0.1, cap=1.0)
    for mechanism in (tool, book):
        with pytest.raises(InputError, match="readings"):
            ledger.release(mechanism, mechanism.classes.means[0], "h0")
    other = point(prefix="g")
    ledger.release(other, other.classes.means[0], "g0")
    with pytest.raises(InputError, match="labels"):
        ledger.record_readings("tuesday", period="2025-01-07", labels=["g1"], mu=0.1, cap=1.0)
    assert ledger.verify()
