"""What a grant allows: prices add up exactly where questions share a label, and an analyst has one budget."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.ledger import chain
from shoal.service import pages
from shoal.service.catalog import TableStatement
from shoal.service.questions import GrantAccount, NotAllowed, QuestionService
from shoal.service.register import Grant

PRICES = st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 1e-4)), max_size=6)


def account(epsilon: float, delta: float, charged: list[tuple[float, float]]) -> GrantAccount:
    entries: Any = [SimpleNamespace(content={"statement": {"epsilon": e, "delta": d}}) for e, d in charged]
    return GrantAccount.of(Grant("g", "p", "", None, None, ("q",), epsilon, delta), entries)


def question(epsilon: float, delta: float) -> Any:
    return SimpleNamespace(statement=TableStatement("", 2, 2, epsilon, delta))


@settings(derandomize=True, max_examples=200, deadline=None)
@given(PRICES, st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 1e-4)), st.floats(0.0, 9.0), st.floats(0.0, 1e-3))
def test_nothing_beyond_the_budget(
    charged: list[tuple[float, float]], price: tuple[float, float], epsilon: float, delta: float
) -> None:
    held = account(epsilon, delta, charged)
    sums = [sum(map(Fraction, column), Fraction()) for column in zip(*charged, price, strict=True)]
    assert held.allows(question(*price)) == (sums[0] <= Fraction(epsilon) and sums[1] <= Fraction(delta))
    left = held.remaining()
    assert Fraction(left["epsilon"]) <= max(Fraction(epsilon) - held.spent[0], 0)
    assert Fraction(left["delta"]) <= max(Fraction(delta) - held.spent[1], 0)
    assert 0.0 <= held.share <= 1.0


def test_an_analyst_has_one_budget_that_of_the_newest_grant(desk: QuestionService) -> None:
    (question,) = desk.catalog.questions
    desk.grant("ada", [question], 9.0, 1e-5, new=True)
    newest, key = desk.grant("ada", [question], 0.5, 1e-9)
    assert key is not None
    caller = desk.register.holder(key.text)
    assert caller is not None
    person = caller.person
    handle = desk.questions(caller)[0]["handles"][0]
    assert desk.quote(person, question)["budget"] == {"epsilon": 0.5, "delta": 1e-9}
    with pytest.raises(NotAllowed):
        desk.release(person, question, handle, "k")
    other = desk.grant("ada", [question], 9.0, 1e-5, with_key=False)[0]
    assert desk.release(person, question, handle, "k")
    assert other.id != newest.id
    assert [grant.refused for grant in desk.register.grants()] == [0, 1, 0]


def test_questions_add_up_unless_they_are_about_other_people(desk: QuestionService) -> None:
    (first,) = desk.catalog.questions.values()
    desk.grant("ada", [first.id], 3.0, 1e-5, new=True)
    person = desk.register.named("ada")
    assert person is not None
    desk.release(person, first.id, None, "k")
    with desk.ledger.storage.reading() as transaction:
        given = chain.of_kind(transaction, "receipt", analyst=person.id)
    label = next(iter(first.rows))
    overlapping: Any = SimpleNamespace(rows={label: [0.0], "somebody else": [1.0]}, statement=first.statement)
    apart: Any = SimpleNamespace(rows={"somebody else": [1.0]}, statement=first.statement)
    table_only: Any = SimpleNamespace(rows={}, statement=first.statement)
    (grant,) = desk.register.grants()
    for other, fits in ((overlapping, False), (table_only, False), (apart, True)):
        assert GrantAccount.of(grant, desk._counted(given, other)).allows(other) is fits


def test_a_page_rounds_what_is_left_down_and_what_is_used_up() -> None:
    parts: Any = pages._environment().get_template("parts.html").module
    shown = parts.gauge(0.123401, 0.99999, 9.99999e-6, "x")
    assert "12.4 % used; ε 0.9999, δ 9.999e-06 left" in shown
