"""Crowds that last: what the ledger records, gives back and refuses, whoever asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from releasing import point

from shoal import GaussianClasses, InputError, Ledger, LedgerError, NeighborGraph, design

SETTING = json.dumps({"query": "point", "unit": "kW", "m": 3})
TABLE = "ab" * 32


def values(seed: float, size: int = 4) -> bytes:
    return np.full(size, seed).tobytes()


def members(
    rows: Sequence[tuple[str, int]], *, stored: float = 1.0, last: str = "x", block: Any = None
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "label": [label for label, _ in rows],
            "crowd": [crowd for _, crowd in rows],
            "stored": [values(stored)] * len(rows),
            "last": [last] * len(rows),
            "block": [block] * len(rows),
        },
        schema={"label": pl.String, "crowd": pl.Int64, "stored": pl.Binary, "last": pl.String, "block": pl.Int64},
    )


def crowds(
    rows: Sequence[tuple[int, int]], period: str, *, setting: str = SETTING, retired: bool = False
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "crowd": [number for number, _ in rows],
            "setting": setting,
            "period": period,
            "row": [values(float(len(period)))] * len(rows),
            "homes": [homes for _, homes in rows],
            "retired": retired,
        },
        schema={
            "crowd": pl.Int64,
            "setting": pl.String,
            "period": pl.String,
            "row": pl.Binary,
            "homes": pl.Int64,
            "retired": pl.Boolean,
        },
    )


def record(ledger: Ledger, name: str, m: pl.DataFrame, c: pl.DataFrame, **other: Any) -> Any:
    given = {"book_digest": ledger.crowds().digest, "table_digest": TABLE, "facts": {"homes": m.height}} | other
    return ledger.record_crowds(name, members=m, crowds=c, **given)


def names(prefix: str, n: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


@pytest.fixture
def two(ledger: Ledger) -> tuple[Ledger, int, int]:
    """A ledger with two crowds of four, released on the first."""
    a, b = ledger.draw_crowd_numbers(2)
    rows = [(label, a) for label in names("a", 4)] + [(label, b) for label in names("b", 4)]
    record(ledger, "first", members(rows), crowds([(a, 4), (b, 4)], "2025-01-01T18:00"))
    return ledger, a, b


def test_what_is_recorded_comes_back(two: tuple[Ledger, int, int], url: str) -> None:
    ledger, a, _ = two
    book = ledger.crowds(["a2"])
    assert book.members["label"].to_list() == names("a", 4)
    assert book.crowds.rows(named=True) == crowds([(a, 4)], "2025-01-01T18:00").rows(named=True)
    assert np.frombuffer(book.members["stored"][0]).tolist() == [1.0] * 4
    assert ledger.crowds(["nobody"]).crowds.is_empty()
    with Ledger.open(url) as again:
        assert again.crowds().digest == book.digest == ledger.crowds().digest
        assert again.crowds().members.height == 8
    assert ledger.verify()
    assert ledger.has("first")


def test_the_same_release_again_changes_nothing(two: tuple[Ledger, int, int]) -> None:
    ledger, a, b = two
    m, c = members([("a0", a)], last="y"), crowds([(a, 4)], "2025-01-02T18:00")
    stale = ledger.crowds().digest
    entry = record(ledger, "second", m, c)
    head = ledger.head
    assert record(ledger, "second", m, c, book_digest=stale) == entry
    assert ledger.recorded_crowds("second") == entry
    assert ledger.recorded_crowds("third") is None
    assert ledger.head == head
    assert entry.content["facts"] == {"homes": 1}
    for other in ({"table_digest": "cd" * 32}, {"facts": {"homes": 2}}):
        with pytest.raises(InputError, match="name"):
            record(ledger, "second", m, c, **other)
    with pytest.raises(InputError, match="name"):
        record(ledger, "second", m, crowds([(b, 4)], "2025-01-02T18:00"))


def test_who_released_meanwhile_is_told(two: tuple[Ledger, int, int]) -> None:
    ledger, a, b = two
    stale = ledger.crowds().digest
    record(ledger, "second", members([]), crowds([(a, 4)], "2025-01-02T18:00"))
    with pytest.raises(LedgerError, match="read them again") as refused:
        record(ledger, "third", members([]), crowds([(b, 4)], "2025-01-02T18:00"), book_digest=stale)
    assert refused.value.reason == "stale"


def _moves(ledger: Ledger, a: int, b: int) -> Any:
    return members([("a0", b)]), crowds([(b, 4)], "2025-01-02T18:00")


def _joins(ledger: Ledger, a: int, b: int) -> Any:
    return members([("new", a)]), crowds([(a, 5)], "2025-01-02T18:00")


def _joins_quietly(ledger: Ledger, a: int, b: int) -> Any:
    return members([("new", a)]), crowds([(a, 4)], "2025-01-02T18:00")


def _too_small(ledger: Ledger, a: int, b: int) -> Any:
    (c,) = ledger.draw_crowd_numbers(1)
    return members([("c0", c), ("c1", c)]), crowds([(c, 2)], "2025-01-02T18:00")


def _same_period(ledger: Ledger, a: int, b: int) -> Any:
    return members([]), crowds([(a, 4)], "2025-01-01T18:00")


def _earlier(ledger: Ledger, a: int, b: int) -> Any:
    return members([]), crowds([(a, 4)], "2024-12-31T18:00")


def _other_setting(ledger: Ledger, a: int, b: int) -> Any:
    return members([]), crowds([(a, 4)], "2025-01-02T18:00", setting=json.dumps({"m": 4}))


def _not_drawn(ledger: Ledger, a: int, b: int) -> Any:
    return members([(n, 7) for n in names("c", 4)]), crowds([(7, 4)], "2025-01-02T18:00")


def _taken(ledger: Ledger, a: int, b: int) -> Any:
    return members([(n, a) for n in names("c", 4)]), crowds([(a, 4)], "2025-01-02T18:00")


def _other_stored(ledger: Ledger, a: int, b: int) -> Any:
    return members([("a0", a)], stored=2.0), crowds([(a, 4)], "2025-01-02T18:00")


def _no_crowd(ledger: Ledger, a: int, b: int) -> Any:
    (c,) = ledger.draw_crowd_numbers(1)
    return members([("c0", c)]), crowds([(a, 4)], "2025-01-02T18:00")


def _wrong_count(ledger: Ledger, a: int, b: int) -> Any:
    (c,) = ledger.draw_crowd_numbers(1)
    return members([(n, c) for n in names("c", 4)]), crowds([(c, 5)], "2025-01-02T18:00")


def _retired_releases(ledger: Ledger, a: int, b: int) -> Any:
    return members([]), crowds([(a, 4)], "2025-01-02T18:00", retired=True)


def _block_of_nothing(ledger: Ledger, a: int, b: int) -> Any:
    return members([("a0", a)], block=a), crowds([(a, 4)], "2025-01-02T18:00")


@pytest.mark.parametrize(
    "change",
    [
        _moves,
        _joins,
        _joins_quietly,
        _too_small,
        _same_period,
        _earlier,
        _other_setting,
        _not_drawn,
        _taken,
        _other_stored,
        _no_crowd,
        _wrong_count,
        _retired_releases,
        _block_of_nothing,
    ],
)
def test_rules_that_hold_whoever_calls(two: tuple[Ledger, int, int], change: Callable[..., Any]) -> None:
    ledger, a, b = two
    m, c = change(ledger, a, b)
    before, head = ledger.crowds(), ledger.head
    with pytest.raises(InputError, match="Nothing was recorded"):
        record(ledger, "second", m, c)
    after = ledger.crowds()
    assert after.digest == before.digest
    assert after.members.equals(before.members)
    assert ledger.head == head


def test_the_rest_of_a_retired_crowd_moves_as_a_block(two: tuple[Ledger, int, int]) -> None:
    ledger, a, b = two
    (c,) = ledger.draw_crowd_numbers(1)
    gone = crowds([(a, 4)], "2025-01-01T18:00", retired=True)
    new = [(n, c) for n in names("c", 3)]
    rest = [("a0", c), ("a1", c)]
    formed = crowds([(c, 5)], "2025-01-02T18:00")
    with pytest.raises(InputError, match="retired"):  # the old crowd is not
        record(ledger, "second", pl.concat([members(new), members(rest, block=a)]), formed)
    with pytest.raises(InputError, match="block"):
        record(ledger, "second", pl.concat([members(new), members(rest)]), pl.concat([gone, formed]))
    few = crowds([(c, 4)], "2025-01-02T18:00")
    with pytest.raises(InputError, match="fewer"):  # two others are fewer than three
        record(ledger, "second", pl.concat([members(new[:2]), members(rest, block=a)]), pl.concat([gone, few]))
    waiting = members([("a0", a), ("a1", a), ("a2", a)], block=a)
    record(ledger, "second", waiting, gone)
    with pytest.raises(InputError, match="as a whole"):  # a2 stays behind
        record(ledger, "third", pl.concat([members(new), members(rest, block=a)]), formed)
    with pytest.raises(InputError, match="leaves a crowd that is not retired"):
        record(
            ledger, "third", pl.concat([members(new), members([("b0", c)], block=b)]), crowds([(c, 4)], "2025-01-02")
        )
    every = pl.concat([members(new), members([*rest, ("a2", c)], block=a, stored=3.0)])
    record(ledger, "third", every, crowds([(c, 6)], "2025-01-02T18:00"))
    with pytest.raises(InputError, match="fixed set"):  # who was gone when it was retired does not follow alone
        record(ledger, "fourth", members([("a3", c)], block=a), crowds([(c, 6)], "2025-01-03T18:00"))
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
        record(ledger, "first", members(some), crowds([(number, 3)], "2025"))
    record(ledger, "first", members([*some, ("h3", number)]), crowds([(number, 4)], "2025"))
    ledger.release(tool, tool.classes.means[1], "h1")
    assert ledger.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE crowd_members SET last = 'z' WHERE label = 'a0'",
        "UPDATE crowd_members SET block = 3 WHERE label = 'a0'",
        "DELETE FROM crowd_members WHERE label = 'a0'",
        "DELETE FROM crowds WHERE period LIKE '2025%'",
        "UPDATE crowds SET period = '2024-01-01T18:00'",
        "UPDATE crowds SET digest = 'x'",
    ],
)
def test_verify_holds_the_tables_against_the_chain(two: tuple[Ledger, int, int], statement: str) -> None:
    ledger, _, _ = two
    assert ledger.verify()
    with ledger.storage.writing() as transaction:
        transaction.run(statement)
    report = ledger.verify()
    assert not report
    assert "crowds" in report.problem


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
