"""What a grant allows: the filter over prices, first questions, windows, and people who do not add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.ledger.bounds import mechanism_bound
from shoal.service import desk as desks
from shoal.service.allowance import Allowance, Price, spent
from shoal.service.desk import Desk

LABELS = ["a", "b", "c"]


def noisy(gap: float, seed: int) -> shoal.Mechanism:
    draw = np.random.default_rng(seed)
    classes = shoal.GaussianClasses.deterministic(gap * draw.standard_normal((3, 2)), labels=LABELS)
    return shoal.design(classes, shoal.NeighborGraph.complete(LABELS), "white", epsilon=1.0, rho=16.0)


def price(mechanism: shoal.Mechanism, epsilon: float) -> Price:
    return Price.of([(mechanism, mechanism_bound(mechanism, epsilon))])


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 2.0), st.integers(0, 5)), min_size=1, max_size=4), st.floats(0.3, 3.0))
def test_never_below_what_a_fixed_sequence_costs(uses: list[tuple[float, int]], epsilon: float) -> None:
    mechanisms = [noisy(gap, seed) for gap, seed in uses]
    prices = [Price.from_json(price(one, epsilon).to_json()) for one in mechanisms]
    found = spent(prices, epsilon, 1e-5)
    exact = shoal.privacy_curve([one.output for one in mechanisms], mechanisms[0].graph, epsilon, scope="table").delta
    assert found >= min(float(exact), 1.0)
    assert spent(prices[:1], epsilon, 1e-5) <= 1.0


def test_the_first_question_is_held_by_its_own_delta_and_the_next_by_the_filter() -> None:
    mechanism = noisy(1.0, 0)
    own = price(mechanism, 1.0)
    exact = own.delta_at(1.0)
    budget = exact * 1.001
    assert Allowance.of([], own, 1.0, budget).allowed
    assert not Allowance.of([own], own, 1.0, budget).allowed
    assert not Allowance.of([], own, 1.0, exact * 0.999).allowed


def test_pure_losses_add_up() -> None:
    book = shoal.codebook([[0.0], [1.0], [3.0]], shoal.NeighborGraph.complete(LABELS), epsilon=0.5)
    own = Price.of([(book, mechanism_bound(book, 1.0))])
    two = Allowance.of([own], own, 2.0, 0.0)
    assert two.allowed
    assert two.remaining_epsilon == pytest.approx(1.0)
    assert two.share == pytest.approx(0.5)
    assert not Allowance.of([own, own], own, 2.0, 0.0).allowed


def test_a_window_renews_and_the_total_wins(desk: Desk) -> None:
    (question,) = desk.offers()
    _, key = desk.grant("ada", (question,), 9.0, 1e-5, window=(30.0, 0.5, 1e-9))
    assert key is not None
    person = desk.register.holder(key)
    assert person is not None
    handle = desk.questions(person)[0]["handles"][0]
    assert desk.quote(person, question)["allowed"] is False
    with pytest.raises(desks.Refused):
        desk.release(person, question, handle, "k")
    _, wide = desk.grant("bob", (question,), 9.0, 1e-5, window=(30.0, 4.0, 1e-5))
    assert wide is not None
    other = desk.register.holder(wide)
    assert other is not None
    assert desk.release(other, question, desk.questions(other)[0]["handles"][0], "k")
    assert desk.quote(other, question)["budget"] == {"epsilon": 9.0, "delta": 1e-5}


def test_an_analyst_has_one_budget_that_of_the_newest_grant(desk: Desk) -> None:
    (question,) = desk.offers()
    desk.grant("ada", (question,), 9.0, 1e-5, keyed=False)
    newest, key = desk.grant("ada", (question,), 0.5, 1e-9)
    assert key is not None
    person = desk.register.holder(key)
    assert person is not None
    handle = desk.questions(person)[0]["handles"][0]
    assert desk.quote(person, question)["budget"] == {"epsilon": 0.5, "delta": 1e-9}
    with pytest.raises(desks.Refused):
        desk.release(person, question, handle, "k")
    other = desk.grant("ada", (question,), 9.0, 1e-5, keyed=False)[0]
    assert desk.release(person, question, handle, "k")
    assert other.id != newest.id
