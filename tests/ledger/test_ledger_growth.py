"""Labels that join and become neighbors; a release counts for a pair if its mechanism has the edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from releasing import answer, exchanged, trajectory

import shoal
from shoal import BudgetError, GaussianClasses, InputError, Ledger, Mechanism, NeighborGraph
from shoal.accounting.curve import edge_brackets
from shoal.ledger.state import State

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
        ever = {frozenset(m.graph.labels[i] for i in edge) for m, _ in releases for edge in m.graph.edges}
        spent = ledger.spent()
        for label in {label for _, label in releases}:
            pairs = [label + other for other in PLACES if frozenset((label, other)) in ever]
            worst = max(stacked(pair, releases, 1.0) for pair in pairs)
            assert spent[label].spent == pytest.approx(worst, rel=1e-8)
            assert spent[label].spent >= worst
        assert ledger.overview(exact=1).largest_share >= max(account.spent for account in spent) / 0.99
        assert ledger.verify()


def test_months_with_joiners(ledger: Ledger) -> None:
    """Who joins starts with nothing, and pairs that were there before add up."""
    months = [made(["abc"], 1), made(["abcd"], 2), made(["abcd"], 3)]
    for number, mechanism in enumerate(months):
        table(ledger, mechanism, f"month {number}")
    releases = [(mechanism, label) for mechanism in months for label in mechanism.graph.labels]
    for label, others in {"a": "bcd", "b": "acd", "d": "abc"}.items():
        worst = max(stacked(label + other, releases, 1.0) for other in others)
        assert ledger.spent()[label].spent == pytest.approx(worst, rel=1e-8)
    assert ledger.verify()
    cost = ledger.cost(months[2], ["b", "c"])
    assert min(after.spent - before.spent for before, after in zip(cost.before, cost.after, strict=True)) > 0


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
        with pytest.raises(InputError, match="lacks neighbors"):
            ledger.cost(mechanism, "a")
    assert ledger.head == head
    asked = list("abcdef")
    answers = [answer(apart, label) + 2e-3 for label in asked]  # what is on record is still there for nothing
    assert ledger.charge(apart, answers, apart.release(answers, asked), asked, query_ids="before").shape == (6, 2)
    assert ledger.verify(head)


@pytest.mark.parametrize("name", ["one day", "another day"])
def test_neighbors_stay_neighbors_under_any_name(ledger: Ledger, name: str) -> None:
    """Two mechanisms, each with one of two neighbors, would tell them apart at no charge."""
    table(ledger, made(["abcd"], 1), "first day")
    head = ledger.head
    for half in (made(["ab"], 2), made(["cd"], 3), made(["abc"], 4), made(["ae"], 5)):
        with pytest.raises(InputError, match="stay neighbors, under any name"):
            table(ledger, half, name)
        with pytest.raises(InputError, match="stay neighbors, under any name"):
            ledger.cost(half, half.graph.labels[0])
        with pytest.raises(InputError, match="stay neighbors, under any name"):
            ledger.refuse_apart([half])
    assert ledger.head == head
    table(ledger, made(["abcd"], 6), name, labels="ab")  # the others are absent, and still neighbors
    assert ledger.verify()


def test_the_finding_of_two_names(tmp_path: Path) -> None:
    """Finding 6: neighbors on Monday, answered through two mechanisms under two names on Tuesday."""

    def mechanism(values: dict[str, float], rho: float) -> Mechanism:
        classes = GaussianClasses.deterministic(np.array(list(values.values()))[:, None], list(values))
        return shoal.design(classes, NeighborGraph.complete(classes.labels), "white", 1.0, rho)

    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.budget(1.0, 1e-3)
        together = mechanism({"a": 0.0, "b": 1.0}, 100.0)
        for label, value in (("a", 0.0), ("b", 1.0)):
            ledger.release(together, [value], label, query_id="monday")
        north, south = mechanism({"a": 0.0, "c": 0.0}, 1e-9), mechanism({"b": 1.0, "d": 1.0}, 1e-9)
        with pytest.raises(InputError, match="lacks neighbors"):
            ledger.release(north, [0.0], "a", query_id="tuesday north")
        with pytest.raises(InputError, match="lacks neighbors"):
            ledger.release(south, [1.0], "b", query_id="tuesday south")
        assert ledger.verify()


def test_halves_of_one_table_are_refused_before_the_first(ledger: Ledger) -> None:
    ledger.refuse_apart([made(["abc"], 1), made(["def"], 2)])
    with pytest.raises(InputError, match="lacks neighbors"):
        ledger.refuse_apart([made(["abc"], 1), made(["cde"], 2)])
    assert len(ledger.entries()) == 2


def test_the_same_graph_adds_no_rows(ledger: Ledger) -> None:
    def rows() -> list[int]:
        with ledger.storage.reading() as transaction:
            return [int(transaction.value(f"SELECT COUNT(*) FROM {name}")) for name in ("graph_labels", "mechanisms")]

    for day in range(3):
        table(ledger, made(["abc", "def"], day), f"day {day}")
        assert rows() == [6, day + 1]


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


def test_verify_finds_what_a_decision_would_have_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of somebody who has the keys and another program."""
    apart, merged = made(["abc", "def"], 1), made(["abcdef"], 2)
    table(ledger, merged, "first")
    assert ledger.verify()
    with monkeypatch.context() as patch:
        patch.setattr(State, "lacking", lambda *_: 0)
        table(ledger, apart, "second", "abc")
    assert "lacks neighbors that were recorded before" in ledger.verify().problem


def test_verify_finds_releases_through_a_graph_that_others_have_outgrown(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = made(["abc", "def"], 1)
    table(ledger, apart, "first")
    table(ledger, made(["abcdef"], 2), "merged")
    with monkeypatch.context() as patch:
        patch.setattr(State, "lacking", lambda *_: 0)
        table(ledger, apart, "second")
    assert "lacks neighbors of its label" in ledger.verify().problem


def test_labels_join_every_day(tmp_path: Path) -> None:
    """Decided by bounds, and seen by the overview, label by label once whatever the number of graphs."""
    size = 40
    names = [f"n{i:03}" for i in range(size + 6)]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.budget(1.0, 0.5, mode="fixed")
        spoken: set[str] = set()
        for day in range(6):
            inside = names[: size + day]
            places = np.arange(len(inside))[:, None] * 1e-3
            classes = GaussianClasses.deterministic(places, inside)
            graph = NeighborGraph.within_groups(inside, [int(name[1:]) // 8 for name in inside])
            mechanism = shoal.design(classes, graph, "white", 1.0, 1.0)
            asked = [name for name in inside if len(graph.neighbors(name))]
            spoken.update(asked)
            answers = classes.means[[inside.index(name) for name in asked]]
            ledger.charge(mechanism, answers, mechanism.release(answers, asked), asked, query_ids=f"day {day}")
        overview = ledger.overview()
        assert overview.labels == len(spoken)
        exact = max(a.spent for a in ledger.spent())
        assert overview.largest_share >= exact / 0.5
        assert ledger.verify()
