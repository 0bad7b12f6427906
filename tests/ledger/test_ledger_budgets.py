"""Budgets for labels."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from releasing import answer, ask, fits, point

import shoal
from shoal import BudgetError, InputError, Ledger


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
    assert not fits(ledger, mechanism, "h2")
    assert ledger.head == head
    account = ledger.spent("h2")["h2"]
    assert account.releases == 0
    assert account.pair is not None
    assert set(account.pair) == {"h1", "h2"}
    assert account.spent == pytest.approx(ledger.spent()["h1"].spent, rel=1e-9)
    assert fits(ledger, mechanism, "h0")  # nearer to h1 than h2 is: its pairs have some left
    assert ledger.verify()


def test_halves_of_a_budget(ledger: Ledger) -> None:
    """Asked about in turns, a pair of labels gets as many answers in all as one of them would alone."""
    mechanism = point(2)
    made = 0
    while fits(ledger, mechanism, f"h{made % 2}"):
        ask(ledger, mechanism, f"h{made % 2}", made)
        made += 1
    with pytest.raises(BudgetError):
        ask(ledger, mechanism, f"h{made % 2}", made)
    exact = [shoal.edge_deltas([mechanism] * n, mechanism.graph, 1.0).max() for n in (made, made + 1)]
    assert exact[0] <= 0.01 < exact[1]  # equal covariances: it does not matter whom they are about
    assert made > 3
    assert ledger.verify()


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


def test_labels_without_a_place_in_the_mechanism(ledger: Ledger) -> None:
    head = ledger.head
    with pytest.raises(InputError, match="label"):
        ledger.release(point(), [0.0, 0.0], "nobody")
    assert ledger.head == head


def test_bad_budgets(ledger: Ledger) -> None:
    head = ledger.head
    for wrong in ((-1.0, 0.1), (1.0, 1.0), (1.0, float("nan"))):
        with pytest.raises(InputError):
            ledger.budget(*wrong)
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
    """Two writers in turns, and batches that are undone: verify() holds the index against a replay after each."""
    mechanism = point()
    labels = list(mechanism.graph.labels)
    ledger.budget(1.0, 0.9)
    rng = np.random.default_rng(7)
    for label in labels:
        ask(ledger, point(rho=2.0), label, "taken")
    with Ledger.open(url) as other:
        for step in range(16):
            writer, reader = ((ledger, other), (other, ledger))[int(rng.integers(2))]
            label = labels[int(rng.integers(3))]
            if step % 4 == 0:
                two = [answer(mechanism, label)] * 2
                with pytest.raises(InputError, match="another question"):
                    writer.charge(mechanism, two, None, [label] * 2, query_ids=[str(step), "taken"])
            elif step % 4 == 1:
                ask(writer, mechanism, "h0", "common")
            elif step % 4 == 2:
                writer.charge(mechanism, mechanism.classes.means, None, labels, query_ids=[f"table {step}"] * 3)
            else:
                ask(writer, mechanism, label, step)
            assert reader.verify()
            assert repr(reader.spent()) == repr(writer.spent())
    before = repr(ledger.spent())
    with ledger.storage.writing() as transaction:
        transaction.execute("UPDATE totals SET times = times + 1")
    assert "rebuild" in ledger.verify().problem
    ledger.rebuild()
    assert repr(ledger.spent()) == before
    assert ledger.verify()
