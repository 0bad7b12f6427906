"""Budgets for a series fixed in advance, and for releases that may be chosen in the light of earlier answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.adaptive_filter import AdaptiveFilter
from releasing import answer, ask, fits, point, spent_at, trajectory
from test_ledger_verify import rewritten

import shoal
from shoal import BudgetError, GaussianClasses, InputError, Ledger, NeighborGraph
from shoal.mechanism.composition import GAUSSIAN

#: Two rounds that exact composition lets through either way, and whose choice by the first answer costs 1.5759 as much.
FIRST, LITTLE, MUCH = 1.1090563, 1.1276778, 0.207368


def two(first: float, second: float, gap: float = 0.0) -> shoal.Mechanism:
    """One entry and two labels, released as they are: variances, and a difference of means."""
    classes = GaussianClasses([[gap], [0.0]], [[[first]], [[second]]], labels=["a", "b"])
    return shoal.design(classes, NeighborGraph.complete(["a", "b"]), "none", 1.0, 1.0)


def shift(gap: float) -> shoal.Mechanism:
    """Constants of two labels, noise of variance 1."""
    classes = GaussianClasses.deterministic([[0.0], [gap]], labels=["h0", "h1"])
    return shoal.design(classes, NeighborGraph.complete(["h0", "h1"]), "white", 1.0, 1.0)


def allowed(ledger: Ledger, mechanism: shoal.Mechanism, label: str) -> int:
    """How many releases, one after the other, until one is refused."""
    made = 0
    while fits(ledger, mechanism, label):
        ask(ledger, mechanism, label, made)
        made += 1
    with pytest.raises(BudgetError):
        ask(ledger, mechanism, label, made)
    return made


def test_the_choice_that_costs_half_as_much_again(sqlite_url: str) -> None:
    """Fixed: the first round and either second. Adaptive: no second round after it."""
    seconds = [two(LITTLE, 1.0), two(1.0, 1.0, MUCH)]
    for second in seconds:
        together = shoal.privacy_curve([two(FIRST, 1.0), second], second.graph, 1.0).delta_upper
        assert 0.9999e-5 < together <= 1e-5
    for number, (mode, follows) in enumerate((("fixed", True), ("adaptive", False), (None, False))):
        for i, second in enumerate(seconds):
            with Ledger.open(sqlite_url.replace("ledger.db", f"{number}{i}.db")) as ledger:
                ledger.budget(1.0, 1e-5, mode=mode)
                ask(ledger, two(FIRST, 1.0), "a", "first")
                assert ledger.spent()["a"].mode == (mode or "adaptive")
                assert fits(ledger, second, "a") == follows
                if follows:
                    ledger.release(second, [0.5], "a", query_id="second")
                else:
                    with pytest.raises(BudgetError, match="adaptive"):
                        ledger.release(second, [0.5], "a", query_id="second")
                assert ledger.verify()


def test_what_is_spent_is_what_the_filter_counts(ledger: Ledger) -> None:
    """Pair by pair, in both directions, releases about either label counted."""
    equal, unequal = point(), trajectory()
    ledger.budget(1.0, 0.01, mode="adaptive")
    rule = AdaptiveFilter(1.0, 0.01)
    ask(ledger, equal, "h1", "a")
    alone = ledger.spent()["h1"]
    assert alone.spent == pytest.approx(spent_at(ledger, "h1", 1.0)[0])  # the first batch is a fixed series
    ask(ledger, equal, "h1", "b")
    exact = spent_at(ledger, "h1", 1.0)[0]
    assert ledger.spent()["h1"].spent == pytest.approx(exact / GAUSSIAN, rel=1e-6)
    ask(ledger, unequal, "h1", "c")
    counted = 0.0
    for other in ("h0", "h2"):
        ends = [equal.classes.labels.index(name) for name in ("h1", other)]
        laws = [mechanism.output.take(ends) for mechanism in (equal, equal, unequal)]
        counted = max(counted, rule.spent(laws, NeighborGraph.complete(["h1", other])))
    assert ledger.spent()["h1"].spent == pytest.approx(counted, rel=1e-6)
    largest = ledger.spent().largest
    assert largest is not None
    assert largest.mode == "adaptive"
    assert ledger.verify()


def test_one_batch_is_a_fixed_series_and_what_follows_is_not(ledger: Ledger) -> None:
    """A table that takes all of an adaptive budget is released; nothing comes after it, not even one row of it."""
    mechanism = shift(0.3)
    labels = ["h0", "h1"]
    table = mechanism.curve(1.0, scope="table").delta_upper
    ledger.budget(1.0, float(table) * 1.001, mode="adaptive")
    true = mechanism.classes.means
    ledger.charge(mechanism, true, None, labels, query_ids=["a", "a"])
    assert ledger.spent()["h0"].spent == pytest.approx(table, rel=1e-6)
    with pytest.raises(BudgetError, match="whatever was chosen"):
        ask(ledger, mechanism, "h0", "b")
    assert ledger.verify()


def test_one_row_and_then_the_other_is_not_one_batch(ledger: Ledger) -> None:
    mechanism = shift(0.3)
    table = mechanism.curve(1.0, scope="table").delta_upper
    ledger.budget(1.0, float(table) * 1.001, mode="adaptive")
    ask(ledger, mechanism, "h0", "a")
    with pytest.raises(BudgetError):
        ask(ledger, mechanism, "h1", "a")
    with pytest.raises(BudgetError):
        ledger.charge(mechanism, mechanism.classes.means, None, ["h0", "h1"], query_ids=["b", "b"])


def test_fewer_releases_than_a_fixed_series(sqlite_url: str) -> None:
    mechanism = shift(0.05)
    counts = {}
    for mode in ("fixed", "adaptive"):
        with Ledger.open(sqlite_url.replace("ledger.db", f"{mode}.db")) as ledger:
            ledger.budget(1.0, 1e-6, mode=mode)
            counts[mode] = allowed(ledger, mechanism, "h1")
            assert ledger.spent()["h1"].spent <= 1e-6
            assert ledger.verify()
    assert 0.8 * counts["fixed"] < counts["adaptive"] < counts["fixed"]


def test_adaptive_is_the_default_and_fixed_is_asked_for(sqlite_url: str) -> None:
    """Finding 8: a budget of which nothing is said holds for any choice."""
    mechanism = point()
    with Ledger.open(sqlite_url) as ledger:
        assert not ledger.has_budget
        ledger.charge(mechanism, [answer(mechanism, "h0")], None, ["h0"], query_ids=["a"], budget=(1.0, 0.01))
        assert ledger.has_budget
        ask(ledger, mechanism, "h1", "b")
        assert {account.mode for account in ledger.spent()} == {"adaptive"}
        assert ledger.verify()
    with Ledger.open(sqlite_url.replace("ledger.db", "other.db")) as ledger:
        ledger.budget(1.0, 0.01, mode="fixed")
        ledger.budget(1.0, 0.009)  # not said: it stays
        ask(ledger, mechanism, "h0", "a")
        ask(ledger, mechanism, "h0", "b")
        assert ledger.spent()["h0"].mode == "fixed"
        ledger.budget(1.0, 0.01, mode="adaptive")
        ledger.budget(1.0, 0.009)
        assert ledger.spent()["h0"].mode == "adaptive"
        assert ledger.verify()


def test_no_way_back_to_fixed(ledger: Ledger) -> None:
    mechanism = point()
    ledger.budget(1.0, 0.01, mode="fixed")
    ledger.budget(1.0, 0.01, mode="adaptive")
    ledger.budget(1.0, 0.01, mode="fixed")  # nothing was released yet
    ask(ledger, mechanism, "h0", "a")
    ledger.budget(1.0, 0.02, mode="fixed")
    ledger.budget(1.0, 0.02, mode="adaptive")
    head = ledger.head
    with pytest.raises(InputError, match="mode"):
        ledger.budget(1.0, 0.01, mode="fixed")
    assert ledger.head == head
    assert ledger.verify()
    contents = [(entry.kind, entry.content) for entry in ledger.entries()]
    late = ("budget", {"epsilon": 1.0, "delta": 0.01, "mode": "fixed", "time": "2030"})
    rewritten(ledger, lambda was: was.__setitem__(slice(None), [*contents, late]))
    report = ledger.verify()
    assert (bool(report), report.bad_entry) == (False, len(contents) + 1)
    assert "fixed in advance" in report.problem


def test_words_that_make_no_sense(ledger: Ledger) -> None:
    for wrong in ({"mode": "open"}, {"mode": ""}):
        with pytest.raises(InputError, match="mode"):
            ledger.budget(1.0, 0.01, **wrong)


def test_forged_batches_are_found(ledger: Ledger) -> None:
    """What was chosen after an answer cannot be said to have been chosen with it."""
    mechanism = point()
    ledger.budget(1.0, 0.9, mode="adaptive")
    for i in range(3):
        ask(ledger, mechanism, "h1", i)
    original = [(entry.kind, entry.content) for entry in ledger.entries()]
    batches = [content.get("batch") for _, content in original]
    assert [b for b in batches if b is not None] == sorted(set(batches) - {None})

    def forged(batch: int | None) -> list[Any]:
        contents = [(kind, dict(content)) for kind, content in original]
        contents[-1][1]["batch"] = batch
        if batch is None:
            del contents[-1][1]["batch"]
        return contents

    for now in map(forged, (batches[-3], 1, len(original) + 1, None)):
        rewritten(ledger, lambda was, now=now: was.__setitem__(slice(None), now))
        report = ledger.verify()
        assert (bool(report), report.bad_entry) == (False, len(original))
        assert "chosen" in report.problem
    rewritten(ledger, lambda was: was.__setitem__(slice(None), original))
    assert ledger.verify()


def test_codebooks_by_their_epsilon(ledger: Ledger) -> None:
    """Pure ε adds up to all of ε whatever is chosen; one more is refused, and a Gaussian release counts with them."""
    graph = NeighborGraph.complete(["a", "b"])
    values = np.array([[0.0], [1.0]])
    book = shoal.codebook(values, graph, epsilon=0.25)
    ledger.budget(1.0, 1e-9, mode="adaptive")
    for i in range(4):
        ledger.release(book, values[i % 2], "ab"[i % 2], query_id=str(i))
    assert ledger.spent()["a"].spent == 0.0
    with pytest.raises(BudgetError):
        ledger.release(book, values[0], "a", query_id="more")
    ledger.budget(1.0, 0.01, mode="adaptive")
    noisy = shoal.design(GaussianClasses.deterministic(values, graph.labels), graph, "white", 1.0, 4000.0)
    ledger.budget(2.0, 0.01, mode="adaptive")
    ledger.release(noisy, values[0], "a", query_id="noisy")
    counted = AdaptiveFilter(2.0, 0.01).spent([book] * 4 + [noisy], graph)
    assert ledger.spent()["a"].spent == pytest.approx(counted, rel=1e-9)
    assert shoal.composed_delta([book] * 4 + [noisy], graph, 2.0).delta_upper <= counted
    assert ledger.verify()
