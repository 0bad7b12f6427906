"""Rules of crowds for life: fixed sets, at least m with news, newcomers by lot, rests together; functions of values."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.crowds.formation import crowd_means, within_crowd_spread
from shoal.crowds.membership import (
    can_have_figures,
    form_crowds,
    formation_size,
    join_waiting_rests,
    waiting_size,
)

Sizes = st.integers(2, 6)


def points(n: int, seed: int, ties: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.gamma(2.0, 1.0, (n, 3))
    return values.round(0) if ties else values


def partition(member: np.ndarray, rows: np.ndarray) -> Counter[tuple[tuple[float, ...], ...]]:
    """The crowds as multisets of values."""
    crowds = {c: tuple(sorted(map(tuple, rows[member == c].tolist()))) for c in set(member.tolist()) if c >= 0}
    return Counter(crowds.values())


@settings(max_examples=40, deadline=None)
@given(m=Sizes, n=st.integers(1, 60), seed=st.integers(0, 10**6), ties=st.booleans())
def test_formed_crowds_have_room(m: int, n: int, seed: int, ties: bool) -> None:
    x = points(n, seed, ties)
    member = form_crowds(x, m)
    sizes = Counter(member.tolist())
    if n < m:
        assert set(sizes) == {-1}
        return
    assert -1 not in sizes
    if n < formation_size(m):
        assert sizes == {0: n}
    else:
        assert formation_size(m) <= min(sizes.values())
        assert max(sizes.values()) < 2 * formation_size(m)


@settings(max_examples=40, deadline=None)
@given(m=Sizes, n=st.integers(12, 50), seed=st.integers(0, 10**6), ties=st.booleans(), noise=st.booleans())
def test_crowds_and_rows_are_functions_of_the_multiset(m: int, n: int, seed: int, ties: bool, noise: bool) -> None:
    x = points(n, seed, ties)
    values = np.random.default_rng(seed + 1).gamma(1.0, 1.0, (n, 4))
    order = np.random.default_rng(seed + 2).permutation(n)

    def rows(at: np.ndarray) -> list[list[float]]:
        member = form_crowds(x[at], m, beside=values[at], seed=seed if noise else None)
        return sorted(crowd_means(values[at], member).tolist())

    assert rows(np.arange(n)) == rows(order)


def test_first_crowds_rest_on_a_secret_and_are_as_alike_as_without() -> None:
    """Who knows all figures does not know the crowds: else it could form them for each figure of a last member."""
    x = points(300, 4)
    formed = [form_crowds(x, 10, seed=seed) for seed in (None, 1, 2, 3)]
    assert len({frozenset(partition(member, x)) for member in formed}) == 4
    exact, *others = (within_crowd_spread(x, member) for member in formed)
    assert max(others) <= 1.1 * exact
    alike = np.zeros((24, 2))  # nothing to be alike in: any crowds do
    assert len({tuple(form_crowds(alike, 4, beside=x[:24], seed=seed).tolist()) for seed in range(3)}) == 3


@settings(max_examples=40, deadline=None)
@given(m=Sizes, n=st.integers(0, 120), seed=st.integers(0, 10**6))
def test_newcomers_wait_and_are_divided_by_lot(m: int, n: int, seed: int) -> None:
    x = points(n, seed)
    member = form_crowds(x, m, lambda k: np.random.default_rng(seed).permutation(k).tolist())
    sizes = Counter(member.tolist())
    if n < waiting_size(m):
        assert set(sizes) <= {-1}
        return
    assert -1 not in sizes
    assert formation_size(m) <= min(sizes.values())
    assert max(sizes.values()) < 2 * formation_size(m)


def test_a_lot_does_not_look_at_likeness() -> None:
    """Twenty sybils beside four homes: by likeness they would stand apart, by lot they do not."""
    x = np.concatenate([np.full((20, 1), 9.0) + np.arange(20)[:, None] * 1e-3, np.arange(4.0)[:, None]])
    together = 0
    for seed in range(200):
        member = form_crowds(x, 10, lambda k, seed=seed: np.random.default_rng(seed).permutation(k).tolist())  # type: ignore[misc]
        together += len({int(c) for c in member[20:]}) == 1
    assert together < 200 * 0.2  # by chance 2·C(20,8)/C(24,12) = 9 %


def test_lots_of_ten_crowds_are_alike_inside() -> None:
    x = np.random.default_rng(0).gamma(2, 1, (300, 2))
    member = form_crowds(x, 10, lambda k: list(range(k)))
    sizes = Counter(member.tolist())
    assert -1 not in sizes
    assert min(sizes.values()) >= 12
    inside = sum(((x[member == c] - x[member == c].mean(axis=0)) ** 2).sum() for c in sizes)
    assert inside < 0.5 * ((x - x.mean(axis=0)) ** 2).sum()


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(2, 5),
    crowds=st.lists(st.integers(1, 12), max_size=5),
    blocks=st.lists(st.integers(1, 4), max_size=5),
)
def test_rests_stay_together_among_at_least_m_others(m: int, crowds: list[int], blocks: list[int]) -> None:
    newcomers = {f"n{c}.{i}": c for c, size in enumerate(crowds) for i in range(size)}
    rests = {100 + b: [f"b{b}.{i}" for i in range(size)] for b, size in enumerate(blocks)}
    joined, waiting = join_waiting_rests(newcomers, rests, m)
    assert all(joined[name] == crowd for name, crowd in newcomers.items())
    for block, names in rests.items():
        if block in waiting:
            assert not set(names) & set(joined)
            continue
        [crowd] = {joined[name] for name in names}
        others = [name for name, c in joined.items() if c == crowd and name not in names]
        assert len(others) >= m
        assert not any(name.startswith("b") for name in others)
    assert len(rests) - len(waiting) <= sum(size >= m for size in crowds)


def test_who_can_still_have_figures() -> None:
    now = "2024-03-01T00:00:00Z"
    assert can_have_figures("", now, True, 30)
    assert not can_have_figures("", now, False, 30)
    assert can_have_figures("2024-02-10T00:00:00Z", now, False, 30)
    assert not can_have_figures("2024-01-10T00:00:00Z", now, False, 30)


def test_a_rest_crosses_no_boundary() -> None:
    sides = {"a": "north", "b": "north", "c": "south", "d": "south", "x": "south"}
    newcomers, rest = {"a": 0, "b": 0, "c": 1, "d": 1}, {7: ["x", "gone"]}
    assert join_waiting_rests(newcomers, rest, 2, None, sides) == ({**newcomers, "x": 1, "gone": 1}, set())
    assert join_waiting_rests(newcomers, {7: ["gone"]}, 2, None, sides) == (newcomers, {7}), "nobody knows where it is"
