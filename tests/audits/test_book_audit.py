"""Audits of codebooks: draws that follow their odds pass, others do not, and a table names more than one row does."""

from __future__ import annotations

import numpy as np
import pytest

import shoal
from shoal.mechanism.integer_probabilities import WHOLE


def book(n: int = 6, epsilon: float = 2.0, scope: str = "answer") -> shoal.Codebook:
    answers = np.random.default_rng(2).standard_normal((n, 3))
    graph = shoal.NeighborGraph.complete([f"h{i}" for i in range(n)])
    return shoal.codebook(answers, graph, epsilon, scope=scope)


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_a_codebook_is_consistent(scope: str) -> None:
    found = shoal.audit(book(scope=scope), n_samples=1500, confidence=0.999999)
    assert found.verdict == "consistent"
    assert found.scope == scope
    assert found.naming.accuracy_lower <= found.naming.promise_upper
    assert found.naming.accuracy_lower <= found.naming.accuracy <= found.naming.accuracy_upper
    assert found.naming.guessing == pytest.approx(1 / 6)


def test_draws_with_other_odds_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, rng = book(), np.random.default_rng(0)
    counts = np.array(claimed.crowds[0].counts)
    top = counts[0].argmax()
    moved = counts[0].astype(float) / WHOLE
    moved[top] += 0.15
    moved /= moved.sum()

    def draw(self: shoal.Codebook, label: str) -> int:
        row = self.crowd_and_row(label)[1]
        odds = moved if row == 0 else self.probabilities(label)
        return int(rng.choice(len(odds), p=odds))

    monkeypatch.setattr(shoal.Codebook, "draw", draw)
    found = shoal.audit(claimed, n_samples=4000, confidence=0.999)
    assert found.verdict == "violated"
    assert found.wrong_laws == 1


def test_a_group_with_one_curve_names_nobody() -> None:
    answers = np.random.default_rng(3).standard_normal((5, 2))
    graph = shoal.NeighborGraph.complete([str(i) for i in range(5)])
    center = shoal.codebook(answers, graph, 1e-15)
    assert len(center.crowds[0].curves) == 1
    found = shoal.audit(center, n_samples=2000, confidence=0.9999)
    assert found.verdict == "consistent"
    assert found.naming.accuracy_upper < 0.3
