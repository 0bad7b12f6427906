"""Whatever is done to the record is found, and the first bad entry is named."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from releasing import ask, fits, point, spent_after

import shoal
from shoal import InputError, Ledger, LedgerError
from shoal.product.ledger import chain
from shoal.product.ledger.chain import Head, canonical_json, lookup_columns, next_entry


def unguarded(ledger: Ledger, *statements: str, **parameters: Any) -> None:
    """Run statements on the raw database with the guards against change taken away."""
    from sqlalchemy import text

    with ledger.storage._engine.connect() as connection:
        for table in ("entries", "mechanisms"):
            for action in ("update", "delete"):
                on = f" ON {table}" if ledger.storage.postgres else ""
                connection.execute(text(f"DROP TRIGGER IF EXISTS {table}_no_{action}{on}"))
        connection.execute(text("DROP INDEX IF EXISTS entries_question"))
        for statement in statements:
            wanted = {k: v for k, v in parameters.items() if f":{k}" in statement}
            connection.execute(text(statement), wanted)


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """created, budget, mechanism, then releases 4 to 9."""
    mechanism = point()
    for i in range(6):
        ask(ledger, mechanism, f"h{i % 2}", i)
    assert ledger.verify()
    assert ledger.head.seq == 9
    return ledger


def rewritten(ledger: Ledger, change: Callable[[list[tuple[str, dict[str, Any]]]], None]) -> None:
    """Forge the whole chain anew, hashes and head included, after a change of its contents."""
    contents = [(entry.kind, entry.content) for entry in ledger.entries()]
    change(contents)
    head, chain = Head(0, "0" * 64), []
    for kind, content in contents:
        entry = next_entry(head, kind, content)
        chain.append(entry)
        head = entry.head
    unguarded(ledger, "DELETE FROM entries")
    with ledger.storage.writing() as transaction:
        transaction.insert("entries", *(vars(entry) | lookup_columns(entry.content) for entry in chain))
        transaction.execute("UPDATE head SET seq = :seq, hash = :hash", seq=head.seq, hash=head.hash)
    with contextlib.suppress(KeyError, LedgerError):  # what makes no sense has no index
        ledger.rebuild()


SIMPLE: dict[str, tuple[list[str], int | None, str]] = {
    "payload altered": (["UPDATE entries SET payload = replace(payload, 'h1', 'h2') WHERE seq = 5"], 5, "altered"),
    "one digit of an answer": (["UPDATE entries SET payload = replace(payload, 'ed\":[', 'ed\":[1') WHERE seq = 6"],
                               6, "altered"),
    "kind altered": (["UPDATE entries SET kind = 'shown' WHERE seq = 4"], 4, "altered"),
    "hash altered": (["UPDATE entries SET hash = '" + "a" * 64 + "' WHERE seq = 7"], 7, "altered"),
    "label looked up elsewhere": (["UPDATE entries SET label = 'h2' WHERE seq = 5"], 5, "looks up"),
    "analyst looked up": (["UPDATE entries SET analyst = 'x' WHERE seq = 5"], 5, "looks up"),
    "removed": (["DELETE FROM entries WHERE seq = 6"], 6, "missing"),
    "first removed": (["DELETE FROM entries WHERE seq = 1"], 1, "missing"),
    "last removed": (["DELETE FROM entries WHERE seq = 9"], 9, "missing"),
    "removed and renumbered": (["DELETE FROM entries WHERE seq = 6",
                                "UPDATE entries SET seq = 6 WHERE seq = 7", "UPDATE entries SET seq = 7 WHERE seq = 8",
                                "UPDATE entries SET seq = 8 WHERE seq = 9"], 6, "follow"),
    "reordered": (["UPDATE entries SET seq = 99 WHERE seq = 5", "UPDATE entries SET seq = 5 WHERE seq = 7",
                   "UPDATE entries SET seq = 7 WHERE seq = 99"], 5, "follow"),
    "all removed": (["DELETE FROM entries"], 1, "missing"),
    "head moved back": (["UPDATE head SET seq = 8"], 9, "head"),
    "head row gone": (["DELETE FROM head"], None, "head row"),
    "mechanism gone": (["DELETE FROM mechanisms"], 3, "missing"),
    "label moved to another graph": (["UPDATE graph_labels SET graph = 'x' WHERE label = 'h1'"], None, "labels"),
    "label forgotten": (["DELETE FROM graph_labels WHERE label = 'h1'"], None, "labels"),
    "graph of a mechanism": (["UPDATE mechanisms SET graph = 'x'"], None, "mechanisms"),
    "total lowered": (["UPDATE totals SET times = 1 WHERE label = 'h1'"], None, "what was released"),
    "total forgotten": (["DELETE FROM totals WHERE label = 'h1'"], None, "what was released"),
    "total invented": (["INSERT INTO totals SELECT label, 'eve', times, tv, first, last FROM totals"],
                       None, "what was released"),
    "key replaced": (["UPDATE meta SET value = '00' WHERE name = 'answer_key'"], 1, "key"),
}  # fmt: skip


@pytest.mark.parametrize("case", SIMPLE)
def test_tampering_is_found_and_named(filled: Ledger, case: str) -> None:
    statements, bad, words = SIMPLE[case]
    unguarded(filled, *statements)
    report = filled.verify()
    assert not report
    assert report.bad_entry == bad
    assert words in report.problem
    assert "NOT intact" in str(report)


def test_an_inserted_entry_is_found(filled: Ledger) -> None:
    last = filled.entries()[-1]
    forged = last.payload.replace('"query_id":"5"', '"query_id":"forged"')
    unguarded(
        filled,
        "INSERT INTO entries (seq, kind, payload, previous, hash, label, query_id) "
        "VALUES (10, 'release', :payload, :previous, :hash, 'h1', 'forged')",
        payload=forged, previous=last.hash, hash="0" * 64,
    )  # fmt: skip
    report = filled.verify()
    assert (bool(report), report.bad_entry) == (False, 10)
    mechanism = point()
    with pytest.raises(LedgerError, match="last entry"):  # and nothing is added to a chain that does not hold
        ask(filled, mechanism, "h0", "new")


def test_an_altered_mechanism_is_found(filled: Ledger) -> None:
    stronger = point(rho=1e6)
    unguarded(filled, "UPDATE mechanisms SET content = :content", content=stronger.to_bytes())
    report = filled.verify()
    assert (bool(report), report.bad_entry) == (False, 3)
    fresh = Ledger(filled.storage)  # a process that has not read the mechanism before
    with pytest.raises(LedgerError, match="digest"):
        fresh.spent()


def test_a_rewritten_chain_is_found_by_a_head_kept_elsewhere(filled: Ledger) -> None:
    seal = filled.head
    middle = filled.entries()[6].head
    assert filled.verify(head=seal)
    assert filled.verify(head=str(middle))
    rewritten(filled, lambda contents: contents.pop())  # forget the last release
    assert filled.verify()  # nothing in the database can tell
    assert any("kept elsewhere" in note for note in filled.verify().notes)
    report = filled.verify(head=seal)
    assert (bool(report), report.bad_entry) == (False, 9)
    assert filled.verify(head=middle)

    def relabel(contents: list[tuple[str, dict[str, Any]]]) -> None:
        contents[5][1]["label"] = "h2"

    rewritten(filled, relabel)
    report = filled.verify(head=middle)
    assert (bool(report), report.bad_entry) == (False, 7)
    assert "rewritten" in report.problem
    for wrong in ("x", "12", f"x:{'0' * 64}", "3:abc"):
        with pytest.raises(InputError, match="head"):
            filled.verify(head=wrong)


def test_a_forged_chain_must_still_make_sense(filled: Ledger) -> None:
    """Even with all hashes recomputed: budgets, questions, mechanisms and graphs are checked."""
    original = [(entry.kind, entry.content) for entry in filled.entries()]
    one, two = (shoal.edge_deltas([point()] * n, point().graph, 1.0).max() for n in (1, 2))
    assert one < 1e-12 < two  # the pair of h1 and h2; h1 was asked about in entries 5, 7 and 9

    def forged(number: int, **change: Any) -> Callable[[list[Any]], None]:
        def apply(contents: list[Any]) -> None:
            contents[:] = [(kind, dict(content)) for kind, content in original]
            contents[number - 1][1].update(change)

        return apply

    unbudgeted = [
        (kind, {**content, "batch": content["batch"] - 1} if "batch" in content else content)
        for kind, content in original[:1] + original[2:]
    ]
    cases: list[tuple[Callable[[list[Any]], None], int, str]] = [
        (forged(2, delta=1e-12), 7, "exceeds the budget"),
        (forged(2, delta=1e-30), 4, "exceeds the budget"),
        (forged(5, mechanism="0" * 64), 5, "not recorded"),
        (forged(5, label="nobody"), 5, "not recorded"),
        (forged(5, label="h0", query_id="0"), 5, "answered before"),
        (forged(5, released=[1.0]), 5, "length"),
        (forged(3, graph="0" * 64), 3, "graph"),
        (forged(1, ledger="another"), 1, "identity"),
        (lambda contents: contents.__setitem__(slice(None), unbudgeted), 3, "without a budget"),
    ]
    for change, bad, words in cases:
        rewritten(filled, change)
        report = filled.verify()
        assert (bool(report), report.bad_entry) == (False, bad), words
        assert words in report.problem
    rewritten(filled, forged(2))
    assert filled.verify()


def test_a_budget_missed_by_a_hair_is_found(filled: Ledger) -> None:
    """No slack: a δ above the budget is above it, by however little."""
    account = filled.spent()["h1"]
    contents = [(entry.kind, entry.content) for entry in filled.entries()]
    for factor, holds in ((1 - 1e-12, False), (1 + 1e-12, True)):
        contents[1][1]["delta"] = account.spent * factor
        rewritten(filled, lambda old: old.__setitem__(slice(None), contents))
        report = filled.verify()
        assert bool(report) == holds
        assert holds or (report.bad_entry == 9 and "exceeds the budget" in report.problem)


def test_a_release_leaves_room_for_another_machine(ledger: Ledger) -> None:
    """Whatever verifies it elsewhere finds the same δ up to rounding: what is decided here is decided with room."""
    mechanism = point(gap=1.0)
    after = spent_after(ledger, mechanism, "h0").spent
    ledger.budget(1.0, after * (1 + 0.5e-9))
    assert not fits(ledger, mechanism, "h0")
    with pytest.raises(ValueError, match="budget"):
        ask(ledger, mechanism, "h0", "a")
    ledger.budget(1.0, after * (1 + 1.5e-9))
    ask(ledger, mechanism, "h0", "a")
    assert ledger.verify()


def test_clock_going_backwards_is_noted_and_changes_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = point()

    class Backwards(datetime.datetime):
        hours = 0

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            cls.hours += 1
            return datetime.datetime(2030, 1, 30, tzinfo=tz) - datetime.timedelta(hours=cls.hours)

    monkeypatch.setattr(chain, "datetime", Backwards)
    first = ask(ledger, mechanism, "h1", "a")
    for i in range(5):
        ask(ledger, mechanism, "h1", str(i))
    ledger.budget(1.0, 1e-9)  # the latest by order, the earliest by the clock
    with pytest.raises(ValueError, match="budget"):
        ask(ledger, mechanism, "h1", "more")
    assert np.array_equal(ask(ledger, mechanism, "h1", "a"), first)
    entries = ledger.entries()
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    report = ledger.verify()
    assert report
    assert sum("clock" in note for note in report.notes) == 6  # transactions, each before the last


def test_the_database_itself_forbids_change(filled: Ledger) -> None:
    for statement in (
        "UPDATE entries SET label = 'x' WHERE seq = 5",
        "DELETE FROM entries WHERE seq = 5",
        "DELETE FROM mechanisms",
        "UPDATE members SET graph = 'x'",
    ):
        with pytest.raises(LedgerError), filled.storage.writing() as transaction:
            transaction.execute(statement)
    assert filled.verify()


def test_numbers_are_recorded_to_the_last_bit() -> None:
    numbers = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3]
    assert [float(x).hex() for x in json.loads(canonical_json({"x": numbers}))["x"]] == [x.hex() for x in numbers]
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": float("nan")})
