"""Codebooks on the ledger: drawn, charged and composed exactly, alone and beside Gaussian releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from releasing import spent_at

import shoal

NAMES = ["a", "b", "c", "d"]
GRAPH = shoal.NeighborGraph.complete(NAMES)
ANSWERS = np.array([[0.0, 1.0], [0.4, 0.2], [1.5, 0.0], [1.0, 2.0]])
BOOK = shoal.codebook(ANSWERS, GRAPH, epsilon=1.0)


def opened(tmp_path: Path, epsilon: float = 1.0, delta: float = 1e-6) -> Any:
    ledger = shoal.Ledger.open(f"sqlite:///{tmp_path}/ledger.db")
    ledger.budget(epsilon=epsilon, delta=delta, mode="fixed")
    return ledger


def test_an_answer_is_a_curve_and_is_charged_once(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        first = ledger.release(BOOK, ANSWERS[0], "a", query_id="today")
        assert first.tolist() in BOOK.curves("a").tolist()
        assert ledger.release(BOOK, ANSWERS[0], "a", query_id="today").tolist() == first.tolist()
        assert ledger.spent()["a"].spent == 0.0  # pure ε within a budget at that ε
        assert "δ(1) ≤ 0 of 1e-06, though ε may be used up" in str(ledger.spent()["a"])
        ledger.verify()


def test_the_neighbors_row_counts_and_is_refused_beyond_the_budget(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.release(BOOK, ANSWERS[0], "a")
        with pytest.raises(shoal.BudgetError):
            ledger.release(BOOK, ANSWERS[1], "b")
        with pytest.raises(shoal.BudgetError):
            ledger.release(BOOK, ANSWERS[0], "a", query_id="another draw")
        ledger.budget(epsilon=2.0, delta=1e-6)
        for row, name in enumerate(NAMES[1:], start=1):
            ledger.release(BOOK, ANSWERS[row], name)
        assert ledger.spent()["a"].spent == 0.0
        ledger.verify()


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_a_table_costs_what_the_codebook_says(tmp_path: Path, epsilon: float) -> None:
    with opened(tmp_path, delta=0.999) as ledger:
        for row, name in enumerate(NAMES):
            ledger.release(BOOK, ANSWERS[row], name)
            if row == 0:
                alone = spent_at(ledger, "a", epsilon)[0]
        table = max(spent_at(ledger, name, epsilon)[0] for name in NAMES)
        exact = BOOK.curve(epsilon, "table")
        assert exact.delta_lower <= table <= exact.delta_upper + 1e-9
        assert alone <= BOOK.curve(epsilon, "answer").delta_upper + 1e-9
        assert (alone > 0.0) == (epsilon < 1.0)
        ledger.verify()


def test_beside_gaussian_releases(tmp_path: Path) -> None:
    classes = shoal.GaussianClasses.deterministic(ANSWERS, labels=NAMES)
    white = shoal.design(classes, GRAPH, "white", epsilon=1.0, rho=9.0)
    with opened(tmp_path, epsilon=1.5, delta=0.999) as ledger:
        ledger.release(BOOK, ANSWERS[0], "a")
        ledger.release(white, ANSWERS[0], "a", query_id="noisy")
        found = ledger.spent()["a"].spent
        pairs = shoal.NeighborGraph.from_edges(NAMES, [("a", name) for name in NAMES[1:]])
        exact = shoal.composed_delta([BOOK, white], pairs, 1.5).delta_upper
        assert exact <= found <= exact * (1 + 1e-6) + 1e-9
        assert found > shoal.privacy_curve(white.output, pairs, 1.5).delta_lower
        ledger.verify()


def test_answers_drawn_elsewhere_must_be_curves(tmp_path: Path) -> None:
    with opened(tmp_path, epsilon=2.0) as ledger:
        drawn = BOOK.release(NAMES)
        given = ledger.charge(BOOK, ANSWERS, drawn, NAMES, query_ids="table")
        assert given.tolist() == drawn.tolist()
        with pytest.raises(shoal.InputError, match="drawn"):
            ledger.charge(BOOK, ANSWERS, drawn + 0.5, NAMES, query_ids="again")
        with pytest.raises(shoal.InputError, match="not those the codebook was made for"):
            ledger.release(BOOK, ANSWERS[0] + 1.0, "a", query_id="other")
        ledger.verify()
    with shoal.Ledger.open(f"sqlite:///{tmp_path}/ledger.db") as again:
        assert again.release(BOOK, ANSWERS[2], "c", query_id="table").tolist() == drawn[2].tolist()
