"""Posteriors of who is in which row, against enumeration of all assignments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.accounting.assignments import EXACT_ROWS, likeliest_assignments, match_probabilities


def enumerated(scores: np.ndarray) -> tuple[np.ndarray, float]:
    """Marginals and the largest total of one table, from all n! assignments."""
    n = len(scores)
    orders = np.array(list(itertools.permutations(range(n))))
    totals = scores[np.arange(n), orders].sum(axis=1)
    weights = np.exp(totals - totals.max())
    out = np.zeros((n, n))
    for r in range(n):
        np.add.at(out[r], orders[:, r], weights / weights.sum())
    return out, float(totals.max())


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(1, 6), st.sampled_from([0.0, 1.0, 30.0, 3000.0]), st.integers(0, 10**6))
def test_marginals_are_those_of_all_assignments(n, scale, seed):
    scores = scale * np.random.default_rng(seed).standard_normal((2, n, n))
    matched = likeliest_assignments(scores)
    found = match_probabilities(scores, matched)
    for table, order, ours in zip(scores, matched, found, strict=True):
        theirs, best = enumerated(table)
        assert ours == pytest.approx(theirs, abs=1e-9)
        assert table[np.arange(n), order].sum() == pytest.approx(best, abs=1e-9)


def test_what_is_common_to_a_row_or_a_label_does_not_count():
    """Log-likelihoods of −1e5 and the like: what differs between assignments is all there is."""
    rng = np.random.default_rng(1)
    scores = rng.standard_normal((3, 8, 8))
    moved = scores + 1e5 * rng.standard_normal((3, 8, 1)) - 1e5 * rng.random((3, 1, 8))
    assert match_probabilities(moved, likeliest_assignments(moved)) == pytest.approx(
        match_probabilities(scores, likeliest_assignments(scores)), abs=1e-8
    )


@pytest.mark.parametrize("n", [9, EXACT_ROWS])
def test_rows_and_labels_sum_to_one(n):
    scores = 5.0 * np.random.default_rng(n).standard_normal((4, n, n))
    found = match_probabilities(scores, likeliest_assignments(scores))
    assert found.sum(axis=1) == pytest.approx(np.ones((4, n)), abs=1e-12)
    assert found.sum(axis=2) == pytest.approx(np.ones((4, n)), abs=1e-12)


def test_larger_tables_are_scaled():
    """Beyond the exact posterior: a distribution over labels for every row, right where the rows are plain."""
    n = EXACT_ROWS + 3
    order = np.random.default_rng(5).permutation(n)
    scores = np.full((1, n, n), -50.0)
    scores[0, np.arange(n), order] = 0.0
    found = match_probabilities(scores, likeliest_assignments(scores))
    assert found.sum(axis=2) == pytest.approx(np.ones((1, n)))
    assert found[0].argmax(axis=1).tolist() == order.tolist()
