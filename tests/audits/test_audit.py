"""The audit on correct mechanisms: bounds that hold, silence at the stated rate, every kind of law and input."""

from __future__ import annotations

import json
import warnings

import audit_cases as cases
import numpy as np
import pytest
from benchmarks import audit as benchmark
from scipy import stats

import shoal
from shoal.audits.attacks import count_events, seeded_release
from shoal.errors import InputError
from shoal.laws.supports import RankWarning
from shoal.records import to_plain

# ------------------------------------------------------------------ what is proved


def test_bounds_lie_below_the_truth_and_close_to_it():
    mechanism = cases.random_laws("white")
    result = shoal.audit(mechanism, n_samples=20_000, seed=3)
    exact = shoal.edge_deltas(mechanism.output, mechanism.graph, 1.0)
    assert (result.delta_lower <= exact).all()
    assert (exact - result.delta_lower).max() < 0.08
    assert (result.edge_promise[:, :, 0] >= exact).all()
    worst = np.unravel_index(np.argmax(exact), exact.shape)
    assert result.delta_lower[worst] > 0.9 * exact[worst]
    needed = shoal.epsilon_at(mechanism.output, mechanism.graph, mechanism.certificate.delta_upper)
    assert 0.5 * needed < result.epsilon_lower.max() <= needed


def test_event_bounds_of_two_known_laws():
    """N(1, 1) against N(0, 1) at ε = 0.5, by counting; the truth is Φ(½ − ε) − e^ε Φ(−½ − ε)."""
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal(40_000) + 1.0, rng.standard_normal(40_000)
    events = count_events(("ratio",), lambda a, b: [(x - 0.5, y - 0.5)], np.array([[0, 1]]), np.array([[0.5]]), 0.01)
    lower, _ = events.delta_lower(np.array([0.5]))
    truth = stats.norm.cdf(0.0) - np.exp(0.5) * stats.norm.cdf(-1.0)
    assert (lower <= truth).all()
    assert lower == pytest.approx(np.full((1, 2), truth), abs=0.03)
    # The same scores the wrong way around prove nothing.
    turned = count_events(("ratio",), lambda a, b: [(0.5 - x, 0.5 - y)], np.array([[0, 1]]), np.array([[0.5]]), 0.01)
    assert turned.delta_lower(np.array([0.5]))[0].max() == 0.0


def test_false_alarms_stay_within_the_stated_confidence():
    """36 of the benchmark's correct mechanisms: every method on every kind of family."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        violated, _ = benchmark.false_alarms(36, 300, seed=5)
    assert len(violated) <= stats.binom.ppf(0.995, 36, 0.05)


# ------------------------------------------------------------------ laws of every kind


def test_constants_without_noise_are_told_apart_and_promised_nothing():
    classes = shoal.GaussianClasses.deterministic([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0]])
    result = shoal.audit(cases.design(classes, "none", 1.0), n_samples=1000)
    assert result.verdict == "consistent"
    assert result.promise == 1.0
    assert result.delta_lower[0].min() > 0.9  # 0 and 1 differ
    assert result.delta_lower[1].max() == 0.0  # 0 and 2 do not
    assert result.detectable_delta == 1.0


def test_singular_laws_on_one_line():
    along = np.array([[1.0], [-2.0]])
    covs = np.array([s * along @ along.T for s in (1.0, 2.0)])
    classes = shoal.GaussianClasses(np.array([[0.0, 0.0], [0.5, -1.0]]), covs)
    mechanism = cases.design(classes, "none", 1.0)
    result = shoal.audit(mechanism, n_samples=20_000, seed=2)
    assert result.verdict == "consistent"
    exact = shoal.edge_deltas(mechanism.output, mechanism.graph, 1.0)
    assert result.delta_lower.max() > 0.5 * exact.max()
    assert (result.delta_lower <= exact).all()


@pytest.mark.parametrize("method", ["transport", "center"])
def test_perfect_designs_prove_nothing_against_them(method):
    classes = cases.random_laws().classes
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(
        classes, graph, method=method, epsilon=1.0, rho=1.001 * shoal.perfect_rho(classes, graph), iterations=10
    )
    result = shoal.audit(mechanism, n_samples=4000, seed=1)
    assert result.verdict == "consistent"
    assert result.delta_lower_curve.max() == 0.0
    assert result.naming is not None
    assert result.naming.accuracy_lower < 0.25 < result.naming.accuracy_upper


def test_a_fine_grid_on_a_law_with_constant_entries_is_on_its_support():
    classes = shoal.GaussianClasses.diagonal([[0.0, 0.3], [0.5, 0.3]], [1.0, 0.0])
    mechanism = cases.design(classes, "none", 1.0)
    plain = seeded_release(mechanism, 2)
    cell = 2.0**-20
    rounded = shoal.audit(
        mechanism, n_samples=1000, release=lambda q, label: np.round(plain(q, label) / cell) * cell, seed=1
    )
    assert rounded.verdict == "consistent"


def test_epsilon_per_edge():
    classes = cases.random_laws().classes
    graph = shoal.NeighborGraph.complete(classes.labels)
    epsilon = np.linspace(0.3, 2.0, 6)
    mechanism = shoal.design(classes, graph, method="white", epsilon=epsilon, rho=1.0)
    result = shoal.audit(mechanism, n_samples=2000, seed=1)
    assert result.epsilon[:, 0] == pytest.approx(epsilon)
    assert result.edge_promise[:, :, 0].max() == pytest.approx(mechanism.certificate.delta_upper, rel=1e-9)
    assert result.verdict == "consistent"


# ------------------------------------------------------------------ arguments and results


def test_the_result_reads_and_travels():
    mechanism = cases.constants()
    result = shoal.audit(mechanism, mechanism.graph, n_samples=500, seed=2)
    again = json.loads(json.dumps(to_plain(result)))
    assert again["verdict"] == result.verdict == "consistent"
    assert again["delta_lower_curve"] == result.delta_lower_curve.tolist()
    text = str(result)
    assert "at confidence 0.95" in text
    assert "would have seen" in text
    assert repr(result).startswith("Audit(consistent, one row: δ ≥ ")
    wrong = shoal.audit(mechanism, n_samples=500, release=cases.instead(mechanism, noise_cov=mechanism.noise_cov / 9))
    assert "violated: certificate (" in str(wrong)
    assert json.loads(json.dumps(to_plain(wrong)))["violations"][0]["evidence"]["delta at least"] > 0


def test_the_mechanisms_own_release_is_the_default(monkeypatch, fresh_releases):
    mechanism = cases.constants()
    inner = seeded_release(mechanism, 9)
    monkeypatch.setattr(shoal.Mechanism, "release", lambda self, q, label: inner(q, label))
    assert shoal.audit(mechanism, n_samples=200).source == "mechanism.release"


def test_part_of_the_graph_and_further_epsilons():
    mechanism = cases.constants()
    part = shoal.NeighborGraph.from_edges(mechanism.classes.labels, [("0", "1"), ("2", "1")])
    result = shoal.audit(mechanism, part, n_samples=500)
    assert result.edges == (("0", "1"), ("1", "2"))
    further = [0.0, 0.5, 2.0]
    assert result.epsilon.tolist() == [[1.0, *further]] * 2
    assert result.promise == mechanism.certificate.delta_upper
    exact = [shoal.edge_deltas(mechanism.output, part, epsilon) for epsilon in further]
    assert result.edge_promise[:, :, 1:] == pytest.approx(np.stack(exact, axis=2), rel=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 10}, "n_samples must be at least 100"),
        ({"confidence": 1.0}, "confidence must lie in"),
        ({"release": lambda q, label: q[:1]}, "release must return one released answer"),
        ({"release": lambda q, label: q[:, :2]}, "release must return one released answer"),
        ({"release": lambda q, label: np.nan * q}, "release must be finite"),
    ],
)
def test_bad_input_is_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        shoal.audit(cases.constants(), **{"n_samples": 200, **options})


def test_edges_without_a_promise_are_refused():
    classes = cases.constants().classes
    sparse = shoal.NeighborGraph.from_edges(classes.labels, [("0", "1")])
    mechanism = shoal.design(classes, sparse, method="white", epsilon=1.0, rho=0.5)
    with pytest.raises(InputError, match=r"5 edge\(s\) that are not in the mechanism's graph"):
        shoal.audit(mechanism, shoal.NeighborGraph.complete(classes.labels), n_samples=200)
    with pytest.raises(InputError, match="no edges"):
        shoal.audit(mechanism, shoal.NeighborGraph.from_edges(classes.labels, []), n_samples=200)


@pytest.mark.parametrize("method", ["white", "covariance", "transport"])
def test_what_is_really_released_is_consistent(method, fresh_releases):
    """Cryptographic noise, unseeded: at this confidence a false alarm in this test is a once-in-ten-thousand event."""
    result = shoal.audit(cases.random_laws(method), n_samples=1000, confidence=0.9999)
    assert result.source == "mechanism.release"
    assert result.verdict == "consistent", str(result)


def test_progress_counts_every_step():
    mechanism = cases.random_laws("white")
    told: list[tuple[int, int]] = []
    shoal.audit(mechanism, n_samples=100, progress=lambda *step: told.append(step))
    assert told == [(i, len(told)) for i in range(1, len(told) + 1)]
    assert len(told) >= mechanism.graph.n_edges
