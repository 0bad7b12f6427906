"""Labels that join and become neighbors; a release counts for a pair if its mechanism has the edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from releasing import answer, exchanged, trajectory

import shoal
from shoal import BudgetError, GaussianClasses, InputError, Ledger, Mechanism, NeighborGraph
from shoal.accounting.curve import edge_brackets
from shoal.product.ledger.state import State

PLACES = {name: i for i, name in enumerate("abcdef")}


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """A wide budget: what is looked at is what counts."""
    with Ledger.open(url, timeout=20) as opened:
        opened.budget(1.0, 0.9, mode="fixed")
        yield opened


def made(groups: Sequence[str], seed: int = 1, k: int = 2) -> Mechanism:
    """A mechanism whose labels are the letters of ``groups``, neighbors inside each; laws differ in every way."""
    labels = [name for group in groups for name in group]
    drawn = trajectory(len(PLACES), k, gap=0.2, seed=seed).classes
    classes = drawn.take([PLACES[name] for name in labels])
    named = GaussianClasses(classes.means, classes.covs, labels)
    where = [number for number, group in enumerate(groups) for _ in group]
    return shoal.design(named, NeighborGraph.within_groups(labels, where), "white", 1.0, 1.0)


def table(ledger: Ledger, mechanism: Mechanism, name: str, labels: str | None = None) -> None:
    asked = list(labels or mechanism.graph.labels)
    shift = 1e-3 * len(ledger.entries())  # another answer each time
    answers = np.array([answer(mechanism, label) + shift for label in asked])
    drawn = mechanism.release(answers, asked)
    ledger.charge(mechanism, answers, drawn, asked, query_ids=name)


def stacked(pair: str, releases: Sequence[tuple[Mechanism, str]], epsilon: float) -> float:
    """δ of the two worlds of a pair, written out over the releases whose mechanism has the edge."""
    families, counts = [], np.zeros((2, 0), dtype=int)
    for mechanism, about in releases:
        graph = mechanism.graph
        if pair[0] in graph and pair[1] in graph and pair[1] in graph.neighbors(pair[0]) and about in pair:
            families.append(mechanism.output.take([graph.index(name) for name in pair]))
            counts = np.column_stack([counts, [about == pair[0], about == pair[1]]])
    if not families:
        return 0.0
    joint = exchanged(families, *counts.astype(int).tolist())
    brackets = edge_brackets(joint, NeighborGraph.complete(joint.labels), epsilon)[0]
    return float(np.exp(brackets[:, 0].max()))


#: Each holds the neighbors of those before it, so they may be used in this order.
GROWING = [made(["abc"], 1), made(["abcd"], 2), made(["abcd"], 3), made(["abcd", "ef"], 4, k=3), made(["abcdef"], 5)]


@settings(max_examples=10, derandomize=True, deadline=None, phases=[Phase.generate])
@given(st.lists(st.tuples(st.integers(0, len(GROWING) - 1), st.integers(0, 5)), min_size=1, max_size=8))
def test_every_account_is_that_of_the_stacked_laws(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[tuple[int, int]]
) -> None:
    used = [(GROWING[stage], i) for stage, i in sorted(sequence)]
    releases = [(mechanism, mechanism.graph.labels[i % mechanism.graph.n_labels]) for mechanism, i in used]
    with Ledger.open(tmp_path_factory.mktemp("growth") / "ledger.db") as ledger:
        ledger.budget(1.0, 0.99, mode="fixed")
        for number, (mechanism, label) in enumerate(releases):
            ledger.release(mechanism, answer(mechanism, label) + 1e-3 * number, label, query_id=f"q{number}")
        joined = {frozenset(m.graph.labels[i] for i in edge) for m, _ in releases for edge in m.graph.edges}
        spent = ledger.spent()
        for label in {label for _, label in releases}:
            pairs = [label + other for other in PLACES if frozenset((label, other)) in joined]
            worst = max(stacked(pair, releases, 1.0) for pair in pairs)
            assert spent[label].spent == pytest.approx(worst, rel=1e-8)
            assert spent[label].spent >= worst
        assert spent.largest is not None
        assert spent.largest.share >= max(account.spent for account in spent) / 0.99
        assert ledger.verify()


def test_crowds_that_merge_count_from_then_on(ledger: Ledger) -> None:
    apart, merged = made(["abc", "def"], 1), made(["abcdef"], 2)
    table(ledger, apart, "before")
    before = ledger.spent()
    table(ledger, merged, "after")
    releases = [(mechanism, label) for mechanism in (apart, merged) for label in "abcdef"]
    assert ledger.spent()["a"].spent == pytest.approx(max(stacked("a" + o, releases, 1.0) for o in "bcdef"), rel=1e-8)
    assert stacked("ad", releases, 1.0) == stacked("ad", [(merged, label) for label in "ad"], 1.0) > 0
    assert ledger.spent()["a"].spent > before["a"].spent
    head = ledger.head
    for mechanism in (apart, made(["ad", "be", "cf"], 3)):  # nobody is set apart again
        with pytest.raises(InputError, match="lacks neighbors: 6 label"):
            table(ledger, mechanism, "later")
    assert ledger.head == head
    asked = list("abcdef")
    answers = [answer(apart, label) + 2e-3 for label in asked]  # what is on record is still there for nothing
    assert ledger.charge(apart, answers, apart.release(answers, asked), asked, query_ids="before").shape == (6, 2)
    assert ledger.verify(head)


@pytest.mark.parametrize("name", ["one day", "another day"])
def test_neighbors_stay_neighbors_under_any_name(ledger: Ledger, url: str, name: str) -> None:
    """Finding 6: two mechanisms, each with one of two neighbors, would tell them apart at no charge."""
    table(ledger, made(["abcd"], 1), "first day")
    head = ledger.head
    with Ledger.open(url) as other, pytest.raises(InputError, match="lacks neighbors: 3 label") as refused:
        table(other, made(["abc"], 2), name)  # another process
    assert "'" not in str(refused.value)
    for half in (made(["ab"], 2), made(["cd"], 3), made(["abc"], 4), made(["ae"], 5)):
        with pytest.raises(InputError, match="stay neighbors, under any name"):
            table(ledger, half, name)
        with pytest.raises(InputError, match="stay neighbors, under any name"):
            ledger.refuse_unusable([half])
    assert ledger.head == head
    table(ledger, made(["dbca"], 6), name, labels="ab")  # the same graph, spelled anew; the others are absent
    table(ledger, made(["ef"], 7), name)  # a crowd of its own
    assert ledger.verify()


def test_halves_of_one_table_are_refused_before_the_first(ledger: Ledger) -> None:
    ledger.refuse_unusable([made(["abc"], 1), made(["def"], 2)])
    with pytest.raises(InputError, match="lacks neighbors"):
        ledger.refuse_unusable([made(["abc"], 1), made(["cde"], 2)])
    assert len(ledger.entries()) == 2


def test_a_joiner_is_held_to_the_budget(ledger: Ledger) -> None:
    """Its pairs count as those of everybody else."""
    ledger.budget(1.0, 0.9)
    table(ledger, made(["abc"], 1), "first")
    spent = max(account.spent for account in ledger.spent())
    ledger.budget(1.0, spent * 1.0001)
    with pytest.raises(BudgetError, match="label"):
        table(ledger, made(["abcd"], 2), "second", "d")
    ledger.budget(1.0, 0.9)
    table(ledger, made(["abcd"], 2), "second", "d")
    assert ledger.verify()


@pytest.mark.parametrize(
    ("known", "problem"),
    [(False, "lacks neighbors that were recorded before"), (True, "lacks neighbors of its label")],
)
def test_verify_finds_what_a_decision_would_have_refused(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, known: bool, problem: str
) -> None:
    """Entries of somebody who has the keys and another program: a graph that others have outgrown, new or on record."""
    apart, merged = made(["abc", "def"], 1), made(["abcdef"], 2)
    for mechanism in (apart, merged) if known else (merged,):
        table(ledger, mechanism, "first" if mechanism is apart else "merged")
    assert ledger.verify()
    with monkeypatch.context() as patch:
        patch.setattr(State, "count_lacking_neighbors", lambda *_: 0)
        table(ledger, apart, "second", "abc")
    assert problem in ledger.verify().problem
