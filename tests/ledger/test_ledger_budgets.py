"""Budgets for labels; what a release would cost."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from releasing import answer, exchanged, point, trajectory

import shoal
from shoal import BudgetError, InputError, Ledger, NeighborGraph
from shoal.accounting.curve import edge_brackets
from shoal.ledger import chain
from shoal.ledger.state import Memory, State


def ask(ledger: Ledger, mechanism: shoal.Mechanism, label: str, query: object) -> np.ndarray:
    return ledger.release(mechanism, answer(mechanism, label), label, query_id=str(query))


def until_refused(ledger: Ledger, mechanism: shoal.Mechanism, label: str) -> tuple[int, BudgetError]:
    start = ledger.head.seq
    for made in range(500):
        try:
            ask(ledger, mechanism, label, f"{label} {start} {made}")
        except BudgetError as error:
            return made, error
    raise AssertionError("the budget never ended")


def test_a_budget_spent_by_one_label_of_a_pair_is_spent_for_the_other(ledger: Ledger) -> None:
    """What was released about h1 tells h2 from h1 as well: h2 is refused before anything about it was released."""
    mechanism = point()
    made, error = until_refused(ledger, mechanism, "h1")
    assert made >= 1
    head = ledger.head
    with pytest.raises(BudgetError, match="label h2") as refused:
        ask(ledger, mechanism, "h2", "first")
    assert refused.value.remaining == pytest.approx(error.remaining, rel=1e-6)
    assert not ledger.cost(mechanism, "h2").allowed
    assert ledger.head == head
    account = ledger.spent("h2")["h2"]
    assert account.releases == 0
    assert account.pair is not None
    assert set(account.pair) == {"h1", "h2"}
    assert account.spent == pytest.approx(ledger.spent()["h1"].spent, rel=1e-9)
    assert ledger.cost(mechanism, "h0").allowed  # nearer to h1 than h2 is: its pairs have some left
    assert ledger.verify()


def test_halves_of_a_budget(ledger: Ledger) -> None:
    """Asked about in turns, a pair of labels gets as many answers in all as one of them would alone."""
    mechanism = point(2)
    made = 0
    while ledger.cost(mechanism, f"h{made % 2}").allowed:
        ask(ledger, mechanism, f"h{made % 2}", made)
        made += 1
    with pytest.raises(BudgetError):
        ask(ledger, mechanism, f"h{made % 2}", made)
    exact = [shoal.edge_deltas([mechanism] * n, mechanism.graph, 1.0).max() for n in (made, made + 1)]
    assert exact[0] <= 0.01 < exact[1]  # equal covariances: it does not matter whom they are about
    assert made > 3
    assert ledger.verify()


def test_who_was_left_out_has_nothing_that_day(ledger: Ledger) -> None:
    """A table without h2 costs its pairs the one row; the pair of the others costs both."""
    mechanism = trajectory(gap=0.05)
    labels = list(mechanism.graph.labels)
    for day, present in enumerate((labels, labels[:2], labels)):
        answers = [answer(mechanism, name) + 0.01 * day for name in present]
        ledger.release_many(mechanism, answers, present, query_ids=[f"day {day}"] * len(present))
    counts = {"h0": 3, "h1": 3, "h2": 2}
    for name in labels:
        ends = []
        for other in set(labels) - {name}:
            laws = mechanism.output.take([labels.index(name), labels.index(other)])
            joint = exchanged([laws], [counts[name]], [counts[other]])
            ends.append(edge_brackets(joint, NeighborGraph.complete(joint.labels), 1.0)[0].max(axis=0))
        account = ledger.spent(name)[name]
        assert np.log(account.spent) == pytest.approx(max(end[0] for end in ends), abs=1e-9)
        assert np.log(account.spent) >= max(end[1] for end in ends)
        assert account.releases == counts[name]
    assert ledger.verify()


def test_the_cost_of_a_table(ledger: Ledger) -> None:
    """All rows at once: what they cost one after the other comes to the same in the end."""
    mechanism = trajectory(gap=0.05)
    labels = list(mechanism.graph.labels)
    told = ledger.cost(mechanism, labels)
    assert told.allowed
    assert [a.name for a in told.after] == [f"label {name}" for name in labels]
    assert ledger.cost(mechanism, labels[0]).after[0].spent < told.after[0].spent
    ledger.release_many(mechanism, mechanism.classes.means, labels, query_ids=["a"] * 3)
    assert [a.spent for a in told.after] == [ledger.spent()[name].spent for name in labels]
    assert ledger.cost(mechanism, labels, query_id="a").repeated
    assert not ledger.cost(mechanism, labels, times=1000).allowed
    with pytest.raises(InputError, match="at least one"):
        ledger.cost(mechanism, [])


def test_a_budget_is_raised_and_lowered(ledger: Ledger) -> None:
    mechanism = point()
    ledger.budget(1.0, 1e-4)
    few, error = until_refused(ledger, mechanism, "h1")
    assert error.limit == "label h1"
    assert ledger.spent("h1")["h1"].budget == 1e-4
    ledger.budget(2.0, 0.05)  # the latest holds: raised
    more, _ = until_refused(ledger, mechanism, "h1")
    assert more > 0
    assert ledger.spent("h1")["h1"].epsilon == 2.0
    ledger.budget(2.0, 1e-9)  # lowered below what is spent
    assert until_refused(ledger, mechanism, "h1")[0] == 0
    assert ledger.spent("h1")["h1"].remaining == 0
    report = ledger.verify()
    assert report
    assert any("overdrawn" in note for note in report.notes)
    assert few >= 1


def test_cost_writes_nothing_and_tells_the_truth(ledger: Ledger) -> None:
    mechanism = point()
    head = ledger.head
    asked = ledger.cost(mechanism, "h1")  # of a mechanism the ledger has not seen
    assert ledger.head == head
    assert asked.allowed
    assert [a.name for a in asked.after] == ["label h1"]
    assert all(b.spent == 0 for b in asked.before)
    ask(ledger, mechanism, "h1", "a")
    assert asked.after[0].spent == ledger.spent()["h1"].spent
    again = ledger.cost(mechanism, "h1", query_id="a")
    assert (again.allowed, again.repeated) == (True, True)
    many = ledger.cost(mechanism, "h1", times=500)
    assert not many.allowed
    assert "refused" in repr(many)
    made, _ = until_refused(ledger, mechanism, "h1")
    assert not ledger.cost(mechanism, "h1").allowed
    assert not ledger.cost(mechanism, "h2").allowed  # the pair of the two has nothing left
    assert ledger.cost(mechanism, "h0").allowed
    with pytest.raises(InputError, match="label"):
        ledger.cost(mechanism, "nobody")
    assert made > 0


def test_bad_budgets(ledger: Ledger) -> None:
    head = ledger.head
    wrong = [
        lambda: ledger.budget(-1.0, 0.1),
        lambda: ledger.budget(1.0, 1.0),
        lambda: ledger.budget(1.0, float("nan")),
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
    assert ledger.spent("h0")["h0"].releases == 0


def test_the_index_is_what_the_chain_says(ledger: Ledger, url: str) -> None:
    """Two writers in turns, and batches that are undone: never another state than that of a replay."""
    mechanism = point()
    labels = list(mechanism.graph.labels)
    ledger.budget(1.0, 0.9)
    rng = np.random.default_rng(7)
    for label in labels:
        ask(ledger, point(rho=2.0), label, "taken")

    def charges(opened: Ledger, replayed: bool = False) -> list[object]:
        with opened.storage.reading() as transaction:
            state = State(transaction, Memory(), replayed=replayed)
            if replayed:
                for entry, _ in chain.entries(transaction):
                    state.apply(entry)
            return [state.charges(label) for label in labels]

    with Ledger.open(url) as other:
        for step in range(40):
            writer = (ledger, other)[int(rng.integers(2))]
            label = labels[int(rng.integers(3))]
            act = int(rng.integers(5))
            if act == 0:
                two = [answer(mechanism, label)] * 2
                with pytest.raises(InputError, match="another question"):
                    writer.release_many(mechanism, two, [label] * 2, query_ids=[str(step), "taken"])
            elif act <= 2:
                ask(writer, mechanism, "h0", "common")
            elif act == 3:
                true = np.array([answer(mechanism, name) for name in labels])
                drawn = mechanism.release(true, labels)
                writer.charge(mechanism, true, drawn, labels, query_ids=f"table {step}")
            else:
                ask(writer, mechanism, label, step)
            fresh = charges(Ledger(ledger.storage), replayed=True)
            assert charges(ledger) == fresh
            assert charges(other) == fresh
        assert ledger.verify()
        before = charges(ledger)
        with ledger.storage.writing() as transaction:
            transaction.run("UPDATE totals SET times = times + 1")
        assert "rebuild" in ledger.verify().problem
        ledger.rebuild()
        assert charges(ledger) == before
        assert ledger.verify()
