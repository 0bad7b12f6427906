"""Labels that join, leave and become neighbors: a release counts for a pair if its mechanism has the edge."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from releasing import answer, exchanged, trajectory

import shoal
from shoal import BudgetError, GaussianClasses, InputError, Ledger, Mechanism, NeighborGraph

PLACES = {name: i for i, name in enumerate("abcdef")}


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """A wide budget: what is looked at is what counts."""
    with Ledger.open(url, timeout=20) as opened:
        opened.budget(1.0, 0.9)
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
        if pair[0] in graph and pair[1] in graph and graph.has_edge(*pair) and about in pair:
            families.append(mechanism.output.take([graph.index(name) for name in pair]))
            counts = np.column_stack([counts, [about == pair[0], about == pair[1]]])
    if not families:
        return 0.0
    joint = exchanged(families, *counts.astype(int).tolist())
    brackets = shoal.edge_brackets(joint, NeighborGraph.complete(joint.labels), epsilon)[0]
    return float(np.exp(brackets[:, 0].max()))


#: They agree on the labels they share, so they may come in any order.
GROWING = [made(["abc"], 1), made(["abcd"], 2), made(["bcd"], 3), made(["ade"], 4, k=3), made(["bc", "ef"], 5)]


@settings(max_examples=10, derandomize=True, deadline=None, phases=[Phase.generate])
@given(st.lists(st.tuples(st.sampled_from(GROWING), st.integers(0, 4)), min_size=1, max_size=8))
def test_every_account_is_that_of_the_stacked_laws(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[tuple[Mechanism, int]]
) -> None:
    releases = [(mechanism, mechanism.graph.labels[i % mechanism.graph.n_labels]) for mechanism, i in sequence]
    with Ledger.open(tmp_path_factory.mktemp("growth") / "ledger.db") as ledger:
        ledger.budget(1.0, 0.99)
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


def test_months_with_joiners_and_leavers(ledger: Ledger) -> None:
    """Who leaves keeps what was released, who joins starts with nothing, and pairs that stay add up."""
    months = [made(["abc"], 1), made(["abcd"], 2), made(["bcd"], 3)]
    for number, mechanism in enumerate(months[:2]):
        table(ledger, mechanism, f"month {number}")
    left = ledger.spent()["a"]
    table(ledger, months[2], "month 2")
    assert ledger.spent()["a"] == left
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
        with pytest.raises(InputError, match=r"become neighbors since|lost neighbors: 12 pair"):
            table(ledger, mechanism, "later")
        with pytest.raises(InputError, match=r"become neighbors since|lost neighbors"):
            ledger.cost(mechanism, "a")
    assert ledger.head == head
    asked = list("abcdef")
    answers = [answer(apart, label) + 2e-3 for label in asked]  # what is on record is still there for nothing
    assert ledger.charge(apart, answers, apart.release(answers, asked), asked, query_ids="before").shape == (6, 2)
    assert ledger.verify(head)


def test_neighbors_are_answered_through_one_mechanism(ledger: Ledger) -> None:
    """Two mechanisms, each with one of two neighbors, may not be the halves of one table."""
    table(ledger, made(["abcd"], 1), "one day")
    table(ledger, made(["ab"], 2), "halves")
    head = ledger.head
    other = made(["cd"], 3)
    with pytest.raises(InputError, match="different mechanisms"):
        table(ledger, other, "halves")
    with pytest.raises(InputError, match="different mechanisms"):
        ledger.release(other, answer(other, "c"), "c", query_id="halves")
    assert ledger.head == head
    table(ledger, other, "another day")  # whoever was absent then is back, and the other half is absent
    assert ledger.verify()


def test_the_same_graph_adds_no_rows(ledger: Ledger) -> None:
    def rows() -> list[int]:
        with ledger._storage.reading() as transaction:
            return [int(transaction.value(f"SELECT COUNT(*) FROM {name}")) for name in ("members", "graphs")]

    for day in range(3):
        table(ledger, made(["abc", "def"], day), f"day {day}")
        assert rows() == [6, day + 1]
    table(ledger, made(["abc", "de"], 9), "f left")
    assert rows() == [11, 4]


def test_a_joiner_is_held_to_budgets(ledger: Ledger) -> None:
    """A budget of the joiner's own holds for its pairs, and one for a group whose members were once together."""
    ledger.budget(1.0, 1e-9, label="d")
    table(ledger, made(["abc"], 1), "first")
    with pytest.raises(BudgetError, match="label d"):
        table(ledger, made(["abcd"], 2), "second")
    ledger.budget(1.0, 0.9, label="d")
    ledger.budget(1.0, 0.9, group="pair", members=["a", "d"])
    with pytest.raises(InputError, match="one graph"):
        table(ledger, made(["abc"], 3), "third")
    months = [made(["abc"], 1), made(["abcd"], 2), made(["abc"], 3)]
    table(ledger, months[1], "second")
    table(ledger, months[2], "third")
    account = next(a for a in ledger.spent() if a.name == "group pair")
    assert account.releases == 4
    worst = 0.0
    for member, other in itertools.product("ad", "abcd"):
        if member != other:  # whatever was released about a or d counts as if about this member
            about = [(month, member) for month in months for name in "ad" if name in month.graph]
            opposite = [(month, other) for month in months if other in month.graph]
            worst = max(worst, stacked(member + other, about + opposite, 1.0))
    assert account.spent == pytest.approx(worst, rel=1e-8)
    assert ledger.verify()


def test_claims_count_for_every_pair_ever(ledger: Ledger) -> None:
    table(ledger, made(["abc"], 1), "first")
    ledger.declare("a", epsilon=0.0, delta=0.004)
    table(ledger, made(["ad"], 2), "second")
    assert ledger.spent()["d"].spent >= 0.004
    assert ledger.spent()["b"].spent >= 0.004
    assert ledger.verify()


def test_verify_finds_what_a_decision_would_have_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of somebody who has the keys and another program."""
    registry = type(ledger._books.registry)
    apart, merged = made(["abc", "def"], 1), made(["abcdef"], 2)
    table(ledger, merged, "first")
    assert ledger.verify()
    with monkeypatch.context() as patch:
        patch.setattr(registry, "compatible", lambda *_: [])
        ledger.register(apart)
    assert "lacks neighbors that were recorded before" in ledger.verify().problem


def test_verify_finds_releases_through_an_outgrown_graph(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = type(ledger._books.registry)
    apart = made(["abc", "def"], 1)
    table(ledger, apart, "first")
    table(ledger, made(["abcdef"], 2), "merged")
    with monkeypatch.context() as patch:
        patch.setattr(registry, "compatible", lambda *_: [])
        table(ledger, apart, "second")
    assert "lacks neighbors recorded since" in ledger.verify().problem


def test_verify_finds_neighbors_answered_apart(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    table(ledger, made(["abcd"], 1), "one day")
    table(ledger, made(["ab"], 2), "halves")
    monkeypatch.setattr(type(ledger._books), "refuse_apart", lambda *_: None)
    table(ledger, made(["cd"], 3), "halves")
    assert "another mechanism" in ledger.verify().problem


def test_a_label_joins_and_one_leaves_every_day(tmp_path: Path) -> None:
    """Decided by bounds, and seen by the overview, label by label once whatever the number of graphs."""
    size = 40
    names = [f"n{i:03}" for i in range(size + 6)]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.budget(1.0, 0.5)
        spoken: set[str] = set()
        for day in range(6):
            inside = names[day : size + day]
            classes = GaussianClasses.deterministic(np.zeros((size, 1)) + np.arange(size)[:, None] * 1e-3, inside)
            groups = [int(name[1:]) // 8 for name in inside]
            graph = NeighborGraph.within_groups(inside, groups)
            mechanism = shoal.design(classes, graph, "white", 1.0, 1.0)
            asked = [name for name in inside if len(graph.neighbors(name))]
            spoken.update(asked)
            answers = classes.means[[inside.index(name) for name in asked]]
            ledger.charge(mechanism, answers, mechanism.release(answers, asked), asked, query_ids=f"day {day}")
        overview = ledger.overview()
        assert (overview.labels, overview.without_budget) == (len(spoken), 0)
        exact = max(a.spent for a in ledger.spent())
        assert overview.largest_share >= exact / 0.5
        assert ledger.verify()
