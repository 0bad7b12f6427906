"""Asking through the service: charged before shown, once, alike for every handle, and within one budget."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from callers import KeyHolder
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.product.service import pages
from shoal.product.service.catalog import TableStatement
from shoal.product.service.questions import GrantAccount, QuestionService
from shoal.product.service.register import Grant

PRICE = st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 1e-4))


def test_an_answer_is_charged_before_it_is_shown(owner: KeyHolder, ledger: shoal.Ledger, runs: Path) -> None:
    ada = owner.grants()
    question = ada.question()
    assert set(question) >= {"question", "handles", "entries", "unit", "guarantee"}
    labels = set(shoal.Run.open(runs / "january").released["household"].to_list())
    assert len(question["handles"]) == len(labels)
    assert not labels & set(question["handles"])
    before = ledger.head.seq
    answer = ada.asks(question["handles"][0])
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["answer"]) == question["entries"]
    assert answer.json()["statement"]["epsilon"] == 2.0
    assert ledger.head.seq > before
    assert ledger.verify()


def test_asked_again_the_same_bytes_and_no_charge(owner: KeyHolder, ledger: shoal.Ledger, runs: Path) -> None:
    ada = owner.grants()
    handles = ada.handles()
    first = ada.asks(handles[0], "one")
    charged = ledger.head
    assert first.content == ada.asks(handles[0], "one").content == ada.asks(handles[0], "two").content
    assert ada.asks(handles[1], "one").status_code == 422
    fresh = QuestionService(ledger, runs)  # another process, nothing remembered
    person = fresh.register.find_person("ada")
    assert person is not None
    assert fresh.release(person, ada.question()["question"], handles[0], "one") == first.content
    assert ledger.head == charged


def test_every_handle_looks_alike(owner: KeyHolder) -> None:
    ada = owner.grants()
    answers = [ada.asks(handle) for handle in ada.handles()]
    assert {answer.status_code for answer in answers} == {200}
    assert len({len(answer.content) for answer in answers}) == 1
    assert len({tuple(sorted(answer.headers.items())) for answer in answers}) == 1


def test_refused_by_the_grant_with_one_document(owner: KeyHolder, ledger: shoal.Ledger) -> None:
    ada, head = owner.grants(epsilon=0.5, delta=1e-9), ledger.head
    answers = [ada.asks(handle) for handle in ada.handles()]
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].headers["content-type"] == "application/problem+json"
    assert ledger.head == head
    assert ada.quote()["allowed"] is False
    (grant,) = owner.get("/v1/grants")
    assert grant["refused"] == len(answers)  # the owner sees it


def test_handles_differ_by_analyst_answers_do_not(owner: KeyHolder) -> None:
    ada, bob = owner.grants("ada"), owner.grants("bob")
    assert not set(ada.handles()) & set(bob.handles())
    rows = [sorted(json.dumps(who.asks(h).json()["answer"]) for h in who.handles()) for who in (ada, bob)]
    assert rows[0] == rows[1]
    assert ada.asks(bob.handles()[0]).status_code == 404


def test_quote_then_remaining(owner: KeyHolder) -> None:
    ada = owner.grants(epsilon=4.0, delta=1e-5)
    quote = ada.quote()
    assert (quote["epsilon"], quote["allowed"], quote["error"] > 0) == (2.0, True, True)
    ada.asks(ada.handles()[0])
    assert (ada.quote()["epsilon"], ada.quote()["delta"]) == (0.0, 0.0)


def test_a_grant_ends_at_once(owner: KeyHolder) -> None:
    ada = owner.grants()
    (grant,) = owner.get("/v1/grants")
    assert owner.delete(f"/v1/grants/{grant['grant']}") == 204
    assert not ada.works
    assert owner.delete(f"/v1/grants/{grant['grant']}") == 404


def test_an_analyst_has_one_budget_that_of_the_newest_grant(owner: KeyHolder) -> None:
    owner.grants(epsilon=9.0)
    ada = owner.grants(epsilon=0.5, delta=1e-9)
    assert ada.quote()["budget"] == {"epsilon": 0.5, "delta": 1e-9}
    assert ada.asks(ada.handles()[0]).status_code == 403
    owner.grants(epsilon=9.0)
    assert ada.asks(ada.handles()[0]).status_code == 200
    assert [grant["refused"] for grant in owner.get("/v1/grants")] == [0, 1, 0]


@settings(max_examples=200)
@given(st.lists(PRICE, max_size=6), PRICE, st.floats(0.0, 9.0), st.floats(0.0, 1e-3))
def test_nothing_beyond_the_budget(
    charged: list[tuple[float, float]], price: tuple[float, float], epsilon: float, delta: float
) -> None:
    entries: Any = [SimpleNamespace(content={"statement": {"epsilon": e, "delta": d}}) for e, d in charged]
    account = GrantAccount.from_receipts(Grant("g", "p", "", None, None, ("q",), epsilon, delta), entries)
    question: Any = SimpleNamespace(statement=TableStatement("", 2, 2, *price))
    sums = [sum(map(Fraction, column), Fraction()) for column in zip(*charged, price, strict=True)]
    assert account.may_afford(question) == (sums[0] <= Fraction(epsilon) and sums[1] <= Fraction(delta))
    left = account.remaining()
    assert Fraction(left["epsilon"]) <= max(Fraction(epsilon) - account.spent[0], 0)
    assert Fraction(left["delta"]) <= max(Fraction(delta) - account.spent[1], 0)
    assert 0.0 <= account.share <= 1.0


@pytest.mark.parametrize(("others", "adds_up"), [(["", "somebody else"], True), ([], True), (["somebody else"], False)])
def test_questions_add_up_unless_they_are_about_other_people(
    owner: KeyHolder, desk: QuestionService, others: list[str], adds_up: bool
) -> None:
    """A later question about some of the same labels, one of which only the table is offered, one about others."""
    (first,) = desk.catalog.questions.values()
    owner.grants(epsilon=3.0).asks()
    label = next(iter(first.rows))
    later: Any = SimpleNamespace(rows={name or label: [0.0] for name in others}, statement=first.statement)
    (grant,) = desk.register.grants()
    assert desk._is_allowed(desk._receipts(grant.person), later, grant) is not adds_up


def test_a_page_rounds_what_is_left_down_and_what_is_used_up() -> None:
    parts: Any = pages._environment().get_template("parts.html").module
    assert "12.4 % used; ε 0.9999, δ 9.999e-06 left" in parts.gauge(0.123401, 0.99999, 9.99999e-6, "x")


def test_figures_are_those_of_the_table(owner: KeyHolder, runs: Path) -> None:
    """What is printed is about what an analyst can hold: all rows together."""
    guarantee = owner.question()["guarantee"]
    books = [shoal.load(path) for path in (runs / "january" / "mechanism").glob("*.shoal")]
    assert books
    for book in books:
        reached = book.released_curve(guarantee["epsilon"], scope="table").delta_upper
        assert np.max(reached) <= guarantee["delta"]
        assert guarantee["epsilon"] >= 2 * (book.answer_epsilon or 0.0)  # and no ε below it would do
    ladder, table = guarantee["sentence"].split(" For someone who holds the whole table")
    assert ladder.startswith("Answers: label privacy with (ε, δ) = (2, ")
    assert table
    assert guarantee["scope"] == "table"
