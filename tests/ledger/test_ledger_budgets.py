"""Budgets for labels, groups and analysts; releases made elsewhere; what a release would cost."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from releasing import answer, point

import shoal
from shoal import BudgetError, GaussianClasses, InputError, Ledger, NeighborGraph


def ask(
    ledger: Ledger, mechanism: shoal.Mechanism, label: str, query: object, analyst: str | None = None
) -> np.ndarray:
    return ledger.release(mechanism, answer(mechanism, label), label, query_id=str(query), analyst=analyst)


def until_refused(
    ledger: Ledger, mechanism: shoal.Mechanism, label: str, analyst: str | None = None
) -> tuple[int, BudgetError]:
    start = ledger.head.seq
    for made in range(500):
        try:
            ask(ledger, mechanism, label, f"{label} {analyst} {start} {made}", analyst)
        except BudgetError as error:
            return made, error
    raise AssertionError("the budget never ended")


def test_a_label_of_its_own_budget(ledger: Ledger) -> None:
    mechanism = point()
    ledger.budget(1.0, 1e-4, label="h1")
    few, error = until_refused(ledger, mechanism, "h1")
    assert error.limit == "label h1"
    assert ledger.spent("h1")["h1"].budget == 1e-4
    assert ledger.spent("h0")["h0"].budget == 0.01
    ledger.budget(2.0, 0.05, label=["h1", "h2"])  # the latest holds: raised
    more, _ = until_refused(ledger, mechanism, "h1")
    assert more > 0
    assert ledger.spent("h1")["h1"].epsilon == 2.0
    ledger.budget(2.0, 1e-9, label="h1")  # lowered below what is spent
    assert until_refused(ledger, mechanism, "h1")[0] == 0
    assert ledger.spent("h1")["h1"].remaining == 0
    report = ledger.verify()
    assert report
    assert any("overdrawn" in note for note in report.notes)
    assert few >= 1


def test_a_group_counts_all_its_members_as_one(ledger: Ledger) -> None:
    mechanism = point()
    ledger.budget(1.0, 0.002, group="feeder", members=["h0", "h1"])
    ask(ledger, mechanism, "h0", "a")
    ask(ledger, mechanism, "h1", "a")
    ask(ledger, mechanism, "h2", "a")  # no member
    (feeder,) = (a for a in ledger.spent() if a.name == "group feeder")
    deltas = shoal.edge_brackets([mechanism, mechanism], mechanism.graph, 1.0)
    assert feeder.spent == pytest.approx(np.exp(deltas[:, :, 2].max()), rel=1e-12)  # edges of h0 or h1: all three
    assert feeder.releases == 2
    made, error = 0, None
    for i in range(200):
        try:
            ask(ledger, mechanism, f"h{i % 2}", f"more {i}")
            made += 1
        except BudgetError as refused:
            error = refused
            break
    assert error is not None
    assert error.limit == "group feeder"
    assert ledger.spent()["h0"].spent < 0.002
    ask(ledger, mechanism, "h2", "b")
    assert ledger.verify()
    exact = shoal.edge_brackets([mechanism] * (made + 3), mechanism.graph, 1.0)[:, :, 2].max()
    assert np.exp(exact) > 0.002


def test_a_group_belongs_to_one_graph(ledger: Ledger) -> None:
    here, there = point(), point(prefix="flat")
    ledger.budget(1.0, 0.01, group="mixed", members=["h0", "flat0"])
    for mechanism, label in ((here, "h0"), (there, "flat0")):
        with pytest.raises(InputError, match="one graph"):
            ask(ledger, mechanism, label, "a")
    ask(ledger, here, "h1", "a")


def test_an_analyst_is_charged_for_what_they_are_shown(ledger: Ledger) -> None:
    mechanism = point()
    ledger.budget(1.0, 0.001, analyst="eve")
    made, error = until_refused(ledger, mechanism, "h1", "eve")
    assert error.limit == "analyst eve about h1"
    head = ledger.head
    first = ask(ledger, mechanism, "h1", "bob's", "bob")  # the label has budget left
    assert ledger.head.seq == head.seq + 1
    head = ledger.head
    with pytest.raises(BudgetError, match="analyst eve"):
        ask(ledger, mechanism, "h1", "bob's", "eve")  # shown to eve it would be too much, though it is on record
    assert ledger.head == head
    with pytest.raises(BudgetError, match="analyst eve"):
        ask(ledger, mechanism, "h1", "bob's")  # anyone includes eve
    before = ledger.spent()["h1"].spent
    assert np.array_equal(ask(ledger, mechanism, "h1", "bob's", "dan"), first)
    assert ledger.spent()["h1"].spent == before  # the label is not charged twice
    assert [e.kind for e in ledger.entries()][-1] == "shown"
    head = ledger.head
    ask(ledger, mechanism, "h1", "bob's", "dan")
    ask(ledger, mechanism, "h1", "bob's", "bob")
    assert ledger.head == head
    ledger.budget(1.0, 0.001, analyst="dan")
    assert ledger.spent(analyst="dan")["h1"].releases == 1
    assert ledger.spent(analyst="eve")["h1"].releases == made
    with pytest.raises(InputError, match="no budget"):
        ledger.spent(analyst="nobody")
    assert ledger.verify()


def test_what_anyone_may_see_counts_for_every_analyst(ledger: Ledger) -> None:
    mechanism = point()
    ledger.budget(1.0, 0.005, analyst="eve")
    ask(ledger, mechanism, "h0", "public")
    assert ledger.spent(analyst="eve")["h0"].releases == 1
    head = ledger.head
    ask(ledger, mechanism, "h0", "public", "eve")
    assert ledger.head == head  # counted already
    ask(ledger, mechanism, "h0", "bob's", "bob")
    ask(ledger, mechanism, "h0", "bob's")
    assert ledger.spent(analyst="eve")["h0"].releases == 2
    ask(ledger, mechanism, "h0", "bob's", "eve")
    assert ledger.spent(analyst="eve")["h0"].releases == 2
    ledger.declare("h0", mechanism, times=3)
    assert ledger.spent(analyst="eve")["h0"].releases == 5
    ledger.declare("h0", mechanism, analyst="bob")
    assert ledger.spent(analyst="eve")["h0"].releases == 5
    assert ledger.spent()["h0"].releases == 6


def test_cost_writes_nothing_and_tells_the_truth(ledger: Ledger) -> None:
    mechanism = point()
    ledger.budget(1.0, 0.004, analyst="eve")
    head = ledger.head
    asked = ledger.cost(mechanism, "h1", analyst="eve")  # of a mechanism the ledger has not seen
    assert ledger.head == head
    assert asked.allowed
    assert [a.name for a in asked.after] == ["label h1", "analyst eve about h1"]
    assert all(b.spent == 0 for b in asked.before)
    ask(ledger, mechanism, "h1", "a", "eve")
    assert asked.after[0].spent == ledger.spent()["h1"].spent
    again = ledger.cost(mechanism, "h1", query_id="a", analyst="eve")
    assert (again.allowed, again.repeated) == (True, True)
    shown = ledger.cost(mechanism, "h1", query_id="a")
    assert not shown.repeated
    assert [a.name for a in shown.after] == ["analyst eve about h1"]
    many = ledger.cost(mechanism, "h1", times=500)
    assert not many.allowed
    assert "refused" in repr(many)
    made, _ = until_refused(ledger, mechanism, "h1", "bob")
    assert not ledger.cost(mechanism, "h1", analyst="bob").allowed
    assert ledger.cost(mechanism, "h0", analyst="bob").allowed
    with pytest.raises(InputError, match="label"):
        ledger.cost(mechanism, "nobody")
    assert made > 0


def test_declared_releases_count_exactly(ledger: Ledger) -> None:
    mechanism, other = point(), point(rho=3.0)
    laws = GaussianClasses(mechanism.classes.means, 4.0 * np.eye(2), mechanism.classes.labels)
    ask(ledger, mechanism, "h0", "a")
    ledger.declare("h0", other, times=2)
    ledger.declare("h0", laws, graph=mechanism.graph, note="letter of 3 May")
    together = [mechanism.output, other.output, other.output, laws]
    exact = np.exp(shoal.edge_brackets(together, mechanism.graph, 1.0)[:2, :, 2].max())
    assert ledger.spent()["h0"].spent == pytest.approx(exact, rel=1e-11)
    assert ledger.spent()["h0"].releases == 4
    assert ledger.verify()


def test_declared_claims_add_up(ledger: Ledger) -> None:
    mechanism = point()
    with pytest.raises(InputError, match="register"):
        ledger.declare("h0", epsilon=0.25, delta=1e-4)
    ask(ledger, mechanism, "h0", "a")
    ledger.declare("h0", epsilon=0.25, delta=1e-4, times=2)
    exact = np.exp(shoal.edge_brackets(mechanism, mechanism.graph, 0.5)[:2, :, 2].max())
    spent = ledger.spent()["h0"].spent
    assert spent == pytest.approx(2e-4 + exact, rel=1e-12)
    assert spent >= 2e-4 + exact
    ledger.declare("h1", epsilon=1.0, delta=1e-4)  # all of ε, and nothing else was released
    assert ledger.spent()["h1"].spent == pytest.approx(1e-4, rel=1e-12)
    ledger.declare("h1", epsilon=1e-9, delta=0.0)
    assert ledger.spent()["h1"].spent == 1.0  # more than all of ε
    with pytest.raises(BudgetError) as refused:
        ask(ledger, mechanism, "h1", "a")
    assert refused.value.remaining == 0.0
    report = ledger.verify()
    assert report
    assert any("label h1 is overdrawn" in note for note in report.notes)


def test_bad_declarations_and_budgets(ledger: Ledger) -> None:
    mechanism = point()
    ledger.register(mechanism)
    head = ledger.head
    wrong = [
        lambda: ledger.declare("h0"),
        lambda: ledger.declare("h0", epsilon=1.0),
        lambda: ledger.declare("h0", mechanism, epsilon=1.0, delta=0.0),
        lambda: ledger.declare("nobody", mechanism),
        lambda: ledger.declare("h0", mechanism, times=0),
        lambda: ledger.declare("h0", epsilon=-1.0, delta=0.0),
        lambda: ledger.declare("h0", epsilon=1.0, delta=1.5),
        lambda: ledger.declare("h0", mechanism.output, graph=mechanism.graph),
        lambda: ledger.declare("h0", mechanism.classes),
        lambda: ledger.declare("h0", mechanism.classes, graph=NeighborGraph.complete(["h0", "h1"])),
        lambda: ledger.budget(-1.0, 0.1),
        lambda: ledger.budget(1.0, 1.0),
        lambda: ledger.budget(1.0, float("nan")),
        lambda: ledger.budget(1.0, 0.1, label="h0", analyst="eve"),
        lambda: ledger.budget(1.0, 0.1, group="g"),
        lambda: ledger.budget(1.0, 0.1, members=["h0"]),
        lambda: ledger.budget(1.0, 0.1, group="g", members=[]),
        lambda: ledger.budget(1.0, 0.1, label=[]),
        lambda: ledger.budget(1.0, 0.1, analyst=""),
    ]
    for call in wrong:
        with pytest.raises(InputError):
            call()
    assert ledger.head == head


def test_refusals_travel_between_processes() -> None:
    error = BudgetError("text", remaining=1e-7, epsilon=1.0, limit="label a")
    again = pickle.loads(pickle.dumps(error))
    assert (again.remaining, again.epsilon, again.limit, str(again)) == (1e-7, 1.0, "label a", "text")


def test_spent_reads_well_and_rounds_to_the_safe_side(ledger: Ledger) -> None:
    mechanism = point()
    ask(ledger, mechanism, "h1", "a")
    account = ledger.spent()["h1"]
    text = repr(ledger.spent())
    shown_spent, shown_left = (float(text.split(mark)[1].split()[0].rstrip(",")) for mark in ("≤ ", "of 0.01, "))
    assert account.spent <= shown_spent <= account.spent * 1.001
    assert account.remaining * 0.999 <= shown_left <= account.remaining <= account.budget - account.spent
    assert ledger.spent().largest == account
    assert ledger.spent().delta == account.spent
    assert ledger.spent("h0")["h0"].spent == 0
