"""Releases through the ledger: charged once, shown again for nothing, refused without a trace."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from releasing import answer, ask, fits, point, trajectory

import shoal
from shoal import BudgetError, GaussianClasses, InputError, Ledger, LedgerError, Mechanism, NeighborGraph
from shoal.accounting.curve import edge_brackets


def untouched(ledger: Ledger, before: Any) -> bool:
    return ledger.head == before and bool(ledger.verify())


def test_the_contract(url: str) -> None:
    mechanism = point()
    ledger = shoal.Ledger.open(url)
    ledger.budget(epsilon=1.0, delta=1e-6)
    released = ask(ledger, mechanism, "h0", "monday")
    assert released.shape == (2,)
    assert released.dtype == np.float64
    spent = ledger.spent()
    exact = edge_brackets(mechanism.output, mechanism.graph, 1.0)[:2, :, 2].max()  # edges of h0: the first two
    assert spent["h0"].spent == pytest.approx(np.exp(exact), rel=1e-12)
    assert spent["h0"].spent >= np.exp(exact)
    assert spent["h0"].releases == spent.releases == 1
    assert 0 < spent["h0"].remaining <= 1e-6
    assert ledger.verify()
    ledger.close()
    again = shoal.Ledger.open(url, create=False)
    assert again.release(mechanism, answer(mechanism, "h0"), "h0", query_id="monday").tobytes() == released.tobytes()
    assert [entry.kind for entry in again.entries()] == ["created", "budget", "mechanism", "release"]


def test_the_same_question_is_free_and_another_is_not(ledger: Ledger) -> None:
    mechanism = point()
    first = ask(ledger, mechanism, "h1", "a")
    head, cost = ledger.head, ledger.spent()["h1"].spent
    for _ in range(3):
        again = ask(ledger, mechanism, "h1", "a")
        assert again.tobytes() == first.tobytes()
    assert ledger.head == head
    other = ask(ledger, mechanism, "h1", "b")
    assert not np.array_equal(other, first)
    assert ledger.spent()["h1"].spent > cost
    assert ledger.spent()["h1"].releases == 2
    assert "h0" not in ledger.spent().by_label  # nothing was released about it, though its pair with h1 has an account
    assert ledger.spent("h0")["h0"].spent > 0


def test_without_a_name_equal_answers_are_one_question(ledger: Ledger) -> None:
    mechanism = trajectory()
    q = answer(mechanism, "h1")
    first = ledger.release(mechanism, q, "h1")
    assert np.array_equal(ledger.release(mechanism, q.copy(), "h1"), first)
    assert not np.array_equal(ledger.release(mechanism, q + 1e-9, "h1"), first)
    zero = ledger.release(mechanism, np.zeros(2), "h1")
    assert np.array_equal(ledger.release(mechanism, -np.zeros(2), "h1"), zero)


@pytest.mark.parametrize("change", ["answer", "mechanism"])
def test_a_query_id_means_one_question(ledger: Ledger, change: str) -> None:
    mechanism, other = trajectory(), trajectory(seed=2)
    q = answer(mechanism, "h0")
    ledger.release(mechanism, q, "h0", query_id="a")
    ledger.release(other, answer(other, "h1") + 2.0, "h1", query_id="other")
    head = ledger.head
    question = (mechanism, q + 1.0) if change == "answer" else (other, q)
    with pytest.raises(InputError, match="query_id was already used"):
        ledger.release(*question, "h0", query_id="a")
    assert untouched(ledger, head)
    ask(ledger, mechanism, "h1", "a")  # another label, another question


def bad_inputs() -> dict[str, tuple[Any, Any, Any, Any, str]]:
    mechanism = point()
    q = answer(mechanism, "h0")
    lonely = GaussianClasses.deterministic([[0.0], [1.0], [2.0]], ["x", "y", "z"])
    alone = shoal.design(lonely, NeighborGraph.from_edges(lonely.labels, [("x", "y")]), "white", 1.0, 1e4)
    return {
        "unknown label": (mechanism, q, "nobody", "a", "label is not one"),
        "too short": (mechanism, q[:1], "h0", "a", "must have 2 entries"),
        "too long": (mechanism, np.zeros(3), "h0", "a", "must have 2 entries"),
        "matrix": (mechanism, np.zeros((2, 2)), "h0", "a", "dimension"),
        "nan": (mechanism, [0.0, np.nan], "h0", "a", "finite"),
        "inf": (mechanism, [0.0, np.inf], "h0", "a", "finite"),
        "words": (mechanism, ["a", "b"], "h0", "a", "numbers"),
        "empty id": (mechanism, q, "h0", "", "query_id"),
        "null in id": (mechanism, q, "h0", "a\x00b", "query_id"),
        "number as id": (mechanism, q, "h0", 7, "query_id"),
        "not a mechanism": (mechanism.output, q, "h0", "a", "mechanism"),
        "no neighbors": (alone, [2.0], "z", "a", "no neighbors"),
    }


@pytest.mark.parametrize("case", bad_inputs())
def test_bad_input_leaves_no_trace(ledger: Ledger, case: str) -> None:
    mechanism, q, label, query_id, message = bad_inputs()[case]
    head = ledger.head
    with pytest.raises(InputError, match=message):
        ledger.release(mechanism, q, label, query_id=query_id)
    assert untouched(ledger, head)


def test_no_budget_no_release(url: str) -> None:
    mechanism = point()
    with Ledger.open(url) as ledger:
        head = ledger.head
        with pytest.raises(InputError, match="no budget"):
            ask(ledger, mechanism, "h0", "a")
        with pytest.raises(InputError, match="no budget"):
            ledger.spent()
        assert ledger.head == head


def test_an_exhausted_budget_refuses_and_says_what_remains(ledger: Ledger) -> None:
    mechanism = point()
    made = 0
    while fits(ledger, mechanism, "h1"):
        ask(ledger, mechanism, "h1", str(made))
        made += 1
    with pytest.raises(BudgetError, match="Nothing was released") as refused:
        ask(ledger, mechanism, "h1", str(made))
    head, spent = ledger.head, ledger.spent()["h1"]
    assert made >= 1
    assert spent.releases == made
    assert spent.spent <= 0.01
    assert refused.value.remaining == spent.remaining
    assert refused.value.remaining <= 0.01 - spent.spent
    assert (refused.value.epsilon, refused.value.limit) == (1.0, "label h1")
    # One more would really have been too much, by an account that shares nothing with the ledger's.
    more = shoal.edge_deltas([mechanism] * (made + 1), mechanism.graph, 1.0)[[0, 2]].max()
    assert more > 0.01
    with pytest.raises(BudgetError):
        ask(ledger, mechanism, "h1", "more")
    assert untouched(ledger, head)
    assert ask(ledger, mechanism, "h1", "0").shape == (2,)


def test_a_batch_is_all_or_nothing(ledger: Ledger) -> None:
    mechanism = point()
    q = mechanism.classes.means[[0, 1, 2]]
    released = ledger.charge(mechanism, q, None, ["h0", "h1", "h2"], query_ids=["a", "b", "c"])
    assert released.shape == (3, 2)
    one = ledger.release(mechanism, q[1], "h1", query_id="b")
    assert np.array_equal(one, released[1])
    head = ledger.head
    ids = [f"m{i}" for i in range(400)]
    with pytest.raises(BudgetError):
        ledger.charge(mechanism, np.repeat(q[:1], 400, 0), None, ["h0"] * 400, query_ids=ids)
    with pytest.raises(InputError, match="label"):
        ledger.charge(mechanism, q[:2], None, ["h0", "nobody"], query_ids=["x", "y"])
    with pytest.raises(InputError, match="query_id was already used"):
        ledger.charge(trajectory(), q[:2], None, ["h1", "h1"], query_ids=["same", "same"])
    assert untouched(ledger, head)
    for wrong in ({"labels": ["h0"]}, {"labels": "h0"}, {"labels": ["h0", "h1"], "query_ids": ["a"]}):
        with pytest.raises(InputError, match=r"one (label|name) per answer"):
            ledger.charge(mechanism, q[:2], None, **{"query_ids": ["x", "y"], **wrong})  # type: ignore[arg-type]


def test_fresh_noise_on_a_random_answer_is_refused(ledger: Ledger) -> None:
    """The answer's own randomness was counted as protection; the second time it is the same draw."""
    random, constant = trajectory(), point()
    q = np.array(constant.classes.means[0])
    ledger.release(random, q, "h0", query_id="a")
    head = ledger.head
    with pytest.raises(InputError, match="already released"):
        ledger.release(random, q, "h0", query_id="b")
    with pytest.raises(InputError, match="already released"):
        ledger.release(constant, q, "h0", query_id="b")
    with pytest.raises(InputError, match="this very answer"):  # twice in one batch
        ledger.charge(random, [q + 0.1, q + 0.1], None, ["h0"] * 2, query_ids=["b", "c"])
    assert untouched(ledger, head)
    ledger.release(random, q + 0.1, "h0", query_id="b")
    ask(ledger, constant, "h1", "a")
    ask(ledger, constant, "h1", "b")  # a constant answer has no randomness to reuse
    with pytest.raises(InputError, match="already released"):
        ledger.release(random, answer(constant, "h1"), "h1", query_id="c")


def test_an_answer_is_drawn_by_the_mechanism_as_recorded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = point()
    seen: list[Mechanism] = []
    draw = Mechanism.release  # type: ignore[attr-defined]

    def watched(self: Mechanism, q: Any, label: Any) -> Any:
        seen.append(self)
        return draw(self, q, label)

    monkeypatch.setattr(Mechanism, "release", watched)
    ask(ledger, mechanism, "h0", "a")
    mechanism.noise_cov.flags.writeable = True
    mechanism.noise_cov[...] *= 1e-9  # a caller's object changes under the ledger's hands
    ask(ledger, mechanism, "h0", "b")
    assert len(seen) == 2
    assert all(m is not mechanism and m.noise_cov.max() > 0.1 for m in seen)
    flattered = point(seed=8)
    assert flattered.digest  # taken before the change
    flattered.noise_cov.flags.writeable = True
    flattered.noise_cov[...] *= 1e9
    with pytest.raises(InputError, match="changed after it was made"):
        ask(ledger, flattered, "h0", "c")
    assert ledger.verify()


def test_a_failed_draw_charges_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = point()
    ask(ledger, mechanism, "h1", "before")
    head = ledger.head
    for wrong in (lambda *_: np.array([np.nan, 0.0]), lambda *_: np.zeros(5)):
        monkeypatch.setattr(Mechanism, "release", wrong)
        with pytest.raises((InputError, LedgerError)):
            ask(ledger, mechanism, "h0", "a")
        assert untouched(ledger, head)


def test_a_new_file_is_for_its_owner_only(sqlite_url: str, tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with Ledger.open(sqlite_url) as ledger:
            ledger.budget(1.0, 0.01)
            for path in tmp_path.glob("ledger.db*"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(mask)


def test_messages_and_entries_carry_no_true_answer(ledger: Ledger) -> None:
    mechanism = trajectory()
    q = np.array([123.456789, -0.987654321])
    ledger.release(mechanism, q, "h0", query_id="a")
    record = " ".join(entry.payload for entry in ledger.entries())
    assert "123.456789" not in record
    with pytest.raises(InputError) as error:
        ledger.release(mechanism, [98765.4321, np.nan], "h0", query_id="b")
    assert "98765" not in str(error.value)


def test_an_answer_that_the_label_s_law_excludes_leaves_no_trace(ledger: Ledger) -> None:
    """A constant label, another value: no promise is about it, in whichever way it is asked for."""
    mechanism = point()
    true = answer(mechanism, "h0")
    drawn = mechanism.release(true[None], ["h0"])
    for wrong in (np.nextafter(true, 1.0), answer(mechanism, "h1"), np.array([54321.5, 0.0])):
        head = ledger.head
        with pytest.raises(InputError, match="answer: 1 of 1") as error:
            ledger.release(mechanism, wrong, "h0", query_id="a")
        assert "54321" not in str(error.value)
        with pytest.raises(InputError, match="answer: 1 of 2"):
            ledger.charge(mechanism, np.array([true, wrong]), None, ["h0", "h0"], query_ids=["a", "b"])
        with pytest.raises(InputError, match="answer: 1 of 1"):
            ledger.charge(mechanism, wrong[None], drawn, ["h0"], query_ids="a")
        assert untouched(ledger, head)
    ledger.charge(mechanism, true[None], drawn, ["h0"], query_ids="a")


def test_labels_of_every_alphabet(ledger: Ledger) -> None:
    names = ["été", "日本", "quo\"te's; --"]
    classes = GaussianClasses.deterministic(0.1 * np.eye(3)[:, :2], names)
    mechanism = shoal.design(classes, NeighborGraph.complete(names), "white", 1.0, 1.0)
    for name in names:
        first = ask(ledger, mechanism, name, "%s :x {}")
        assert np.array_equal(ask(ledger, mechanism, name, "%s :x {}"), first)
    assert set(ledger.spent().by_label) == set(names)
    assert ledger.verify()
