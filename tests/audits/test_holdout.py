"""Privacy loss observed on held-out answers."""

from __future__ import annotations

import json

import audit_cases as cases
import numpy as np
import pytest

import shoal
from shoal.audits.holdout import bernstein_lower
from shoal.audits.trials import seeded_release, simulated_answers
from shoal.errors import InputError


def held_out(mechanism: shoal.Mechanism, m: int, shrink: float = 1.0, seed: int = 1) -> dict[str, np.ndarray]:
    drawn = simulated_answers(mechanism.classes, m, np.random.default_rng(seed))
    means = mechanism.classes.means
    return {a: mean + shrink * (q - mean) for a, mean, q in zip(mechanism.classes.labels, means, drawn, strict=True)}


def test_true_laws_show_the_promised_loss():
    mechanism = cases.random_laws("white")
    seen = shoal.observed_loss(mechanism, held_out(mechanism, 3000), release=seeded_release(mechanism, 2))
    assert seen.verdict == "consistent"
    exact = shoal.edge_deltas(mechanism.output, mechanism.graph, 1.0)
    assert seen.delta == pytest.approx(exact, abs=0.03)
    assert seen.exceeded == pytest.approx(shoal.edge_deltas(mechanism.output, mechanism.graph, 1.0, "pdp"), abs=0.05)
    assert (seen.delta_lower <= exact).all()
    assert seen.pooled == pytest.approx(seen.pooled_promise, abs=0.02)


def test_answers_further_out_than_the_model_says_show_more_loss():
    mechanism = cases.random_laws("white", rho=0.3)
    wide = held_out(mechanism, 1000, shrink=3.0)
    seen = shoal.observed_loss(mechanism, wide, release=seeded_release(mechanism, 2))
    assert seen.verdict == "violated"
    assert (seen.delta_lower > seen.delta_promise).any()
    assert seen.pooled_lower > seen.pooled_promise


def test_one_answer_per_label_is_too_little_for_an_edge_but_counts_in_the_average():
    mechanism = cases.constants()
    seen = shoal.observed_loss(mechanism, mechanism.classes.means, draws=200, release=seeded_release(mechanism, 2))
    assert seen.n_answers == (1, 1, 1, 1)
    assert seen.delta_lower.max() == 0.0
    assert seen.pooled == pytest.approx(seen.pooled_promise, abs=0.05)
    assert json.loads(json.dumps(seen.to_dict()))["verdict"] == "consistent"
    assert "held-out answers: consistent" in str(seen)


def test_the_lower_end_of_a_mean_holds():
    rng = np.random.default_rng(3)
    missed = sum(bernstein_lower((rng.random(200) < 0.1).astype(float), 0.05) > 0.1 for _ in range(2000))
    assert missed <= 0.05 * 2000
    assert bernstein_lower(np.full(5000, 0.5), 0.01) > 0.49
    assert bernstein_lower(np.ones(1), 0.01) == 0.0


def test_bad_input_is_refused():
    mechanism = cases.constants()
    with pytest.raises(InputError, match="answers must name every label"):
        shoal.observed_loss(mechanism, {"0": np.zeros((5, 3))})
    with pytest.raises(InputError, match="draws must be at least 1"):
        shoal.observed_loss(mechanism, mechanism.classes.means, draws=0)
    with pytest.raises(InputError, match="epsilon must not be negative"):
        shoal.observed_loss(mechanism, mechanism.classes.means, epsilon=-1)
