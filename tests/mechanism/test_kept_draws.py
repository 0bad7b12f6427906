"""Draws that are kept: renewed day after day, with members who join and groups that merge, they cost ε once."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import iv

import shoal
from shoal.mechanism.odds import WHOLE, joining


def complete(names: str) -> shoal.NeighborGraph:
    return shoal.NeighborGraph.complete(list(names))


def crowd(n: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((n, 3)) * [2.0, 1.0, 0.3]


def at_most(ratio: Fraction, epsilon: float) -> bool:
    """Whether a ratio is at most e^ε for certain, by interval arithmetic."""
    iv.prec = 400
    return bool(iv.mpf(ratio.numerator) <= iv.exp(iv.mpf(epsilon)).a * iv.mpf(ratio.denominator))


def sequences(books: list[shoal.Codebook], label: str) -> Counter[bytes]:
    """How often, of 2^62 draws that are kept, each sequence of a label's answers is seen."""
    found: Counter[bytes] = Counter()
    group, row = books[0].place(label)
    for y, count in enumerate(group.counts[row].tolist()):
        found[b"".join(book.curves(label)[y if len(book.curves(label)) > 1 else 0].tobytes() for book in books)] += (
            count
        )
    return found


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_an_attacker_who_sees_every_day_learns_no_more_than_on_the_first(epsilon: float) -> None:
    """The exact odds of any two members, given all that was ever released about a row, whatever the days bring."""
    first = shoal.codebook(crowd(6, 0), complete("abcdef"), epsilon)
    assert len(first.curves("a")) > 1
    second = first.followed(complete("abcdef"), crowd(6, 1))
    third = second.followed(complete("abcdefgh"), crowd(8, 2))  # two join
    others = shoal.codebook(crowd(3, 5), complete("xyz"), epsilon)
    both = shoal.NeighborGraph.within_groups(list("abcdefghxyz"), [0] * 8 + [1] * 3)
    apart = third.followed(both, np.concatenate([crowd(8, 3), others.answers]))
    merged = apart.followed(complete("abcdefghxyz"), crowd(11, 4))
    assert len(merged.curves("a")) == 1
    assert merged.curves("a").tolist() == merged.curves("z").tolist()
    days = [first, second, third, apart, merged]
    since = {name: 0 if name in "abcdef" else 2 if name in "gh" else 3 for name in merged.labels}
    worst = Fraction(1)
    for one in merged.labels:
        for other in merged.labels:
            start = max(since[one], since[other])
            start = len(days) - 1 if (one in "xyz") != (other in "xyz") else start
            ours, theirs = (sequences(days[start:], name) for name in (one, other))
            assert set(ours) == set(theirs)
            worst = max(worst, *(Fraction(count, theirs[seen]) for seen, count in ours.items()))
    assert at_most(worst, epsilon)
    assert not at_most(worst**2, epsilon)  # had two days been drawn afresh, this attack would have told
    assert at_most(worst**2, 2 * epsilon)  # both rows of a pair, in a table


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.integers(2, 8), st.integers(1, 4), st.floats(0.05, 6.0), st.integers(0, 10_000))
def test_odds_of_those_who_join_are_within_epsilon_of_all(n: int, more: int, epsilon: float, seed: int) -> None:
    names = "abcdefghijkl"
    book = shoal.codebook(crowd(n, seed), complete(names[:n]), epsilon)
    after = book.followed(complete(names[: n + more]), crowd(n + more, seed + 1))
    (group,) = after.groups
    (old,) = book.groups
    assert group.counts[:n].tolist() == old.counts.tolist()
    assert all(sum(row) == WHOLE for row in group.counts.tolist())
    columns = list(zip(*group.counts.tolist(), strict=True))
    assert at_most(max(Fraction(max(column), min(column)) for column in columns), epsilon)
    assert np.allclose(group.shares.sum(axis=1), 1.0)
    assert shoal.Codebook.from_bytes(after.to_bytes()).digest == after.digest
    assert all(after.continues(book, name) for name in names[:n])


def test_who_joins_gets_the_odds_of_least_error() -> None:
    book = shoal.codebook(crowd(6, 0), complete("abcdef"), 2.0)
    (group,) = book.groups
    cost = ((group.curves - crowd(7, 9)[6]) ** 2).sum(axis=1)
    row = joining(group.counts, 2.0, cost)
    best = (row / WHOLE) @ cost
    assert all(best <= (there / WHOLE) @ cost * (1 + 1e-12) for there in group.counts)


def test_groups_only_grow() -> None:
    book = shoal.codebook(crowd(4, 0), complete("abcd"), 2.0)
    with pytest.raises(shoal.InputError, match="never loses members"):
        book.followed(complete("abc"), crowd(3, 1))
    apart = shoal.NeighborGraph.within_groups(list("abcd"), [0, 0, 1, 1])
    with pytest.raises(shoal.InputError, match="never loses members"):
        book.followed(apart, crowd(4, 1))
    other = shoal.codebook(crowd(4, 7), complete("abcd"), 2.0)
    assert not other.continues(book, "a")
