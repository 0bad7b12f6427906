"""A design kept for new laws is certified anew; what no longer holds is caught and designed again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.designs.reuse import AIMED_ANEW, ALONE, KEPT, LIMITED, REDESIGN, UNCHANGED, aimed

DELTA = 0.02


def _laws(seed: int, n: int = 8, k: int = 3, spread: float = 0.3) -> shoal.GaussianClasses:
    rng = np.random.default_rng(seed)
    factors = rng.normal(0, 0.3, (n, k, k)) + 0.7 * np.eye(k)
    return shoal.GaussianClasses(rng.normal(0, spread, (n, k)), factors @ factors.transpose(0, 2, 1))


def _moved(classes: shoal.GaussianClasses, size: float, seed: int = 0, rows: slice = slice(None)):
    """The laws with some means and covariances moved by a relative ``size``."""
    rng = np.random.default_rng(seed)
    means, covs = classes.means.copy(), classes.covs.copy()
    shape = means[rows].shape
    means[rows] += size * rng.normal(0, 0.5, shape)
    turn = np.eye(classes.n_dims) + size * rng.normal(0, 0.5, (*shape, shape[1]))
    covs[rows] = turn @ covs[rows] @ turn.transpose(0, 2, 1)
    return shoal.GaussianClasses(means, covs, classes.labels)


@pytest.fixture(scope="module")
def classes():
    return _laws(3)


@pytest.fixture(scope="module")
def graph(classes):
    return shoal.NeighborGraph.within_groups(classes.labels, ["a"] * 4 + ["b"] * 3 + ["alone"])


@pytest.fixture(scope="module")
def transport(classes, graph):
    return shoal.calibrate(classes, graph, "transport", 1.0, DELTA, tolerance=0.1, iterations=4)


@pytest.fixture(scope="module", params=["transport", "additive", "center"])
def mechanism(classes, graph, request):
    if request.param == "transport":
        return request.getfixturevalue("transport")
    return shoal.calibrate(classes, graph, request.param, 1.0, DELTA, tolerance=0.1, iterations=2)


def _fresh(mechanism: shoal.Mechanism) -> float:
    """The certificate of a mechanism built from nothing but the stored parameters."""
    return shoal.Mechanism.from_bytes(mechanism.to_bytes()).certificate.delta_upper


def test_meeting_a_target_in_steps_looks_at_no_clock(classes, graph, monkeypatch):
    made = shoal.calibrate(classes, graph, "covariance", 1.0, DELTA, tolerance=0.1, iterations=5)
    monkeypatch.setattr("time.monotonic", iter(np.arange(0.0, 1e9, 1e3)).__next__)
    again = shoal.calibrate(classes, graph, "covariance", 1.0, DELTA, tolerance=0.1, iterations=5)
    assert made.digest == again.digest


def test_unchanged_laws_are_recognized(mechanism, classes):
    found = shoal.reuse(mechanism, classes, delta=DELTA)
    assert [g.decision for g in found.groups] == [UNCHANGED, UNCHANGED, ALONE]
    assert found.mechanism is not None
    assert np.array_equal(found.mechanism.shift, mechanism.bias)
    assert np.array_equal(found.mechanism.noise_cov, mechanism.noise_cov)
    assert found.mechanism.certificate.delta_upper == pytest.approx(mechanism.certificate.delta_upper, rel=1e-9)
    assert shoal.redesigned(found) is found.mechanism


@settings(max_examples=25, derandomize=True, deadline=None)
@given(size=st.sampled_from([0.0, 1e-9, 1e-3, 0.01, 0.05, 0.2]), seed=st.integers(0, 10**6), tight=st.booleans())
def test_whatever_is_kept_has_a_fresh_certificate_within_delta(size, seed, tight):
    classes = _laws(seed, n=5, k=2)
    graph = shoal.NeighborGraph.within_groups(classes.labels, ["a", "a", "b", "b", "b"])
    old = shoal.design(classes, graph, "center", epsilon=0.7, rho=0.3)
    delta = old.certificate.delta_upper * (1.0 if tight else 1.5)
    if not 0 < delta < 1:
        return
    found = shoal.reuse(old, _moved(classes, size, seed), delta=delta, rho_tolerance=0.1)
    for group in found.groups:
        if group.decision == REDESIGN:
            assert group.part is None
            continue
        part = group.part
        assert group.delta_upper == _fresh(part) <= delta
        ends = part.graph.edges
        exact = shoal.privacy_curve(part.output, part.graph, 0.7)
        assert exact.delta <= group.delta_upper
        assert len(ends) == len(group.labels) * (len(group.labels) - 1) // 2
        positions = [old.classes.labels.index(name) for name in group.labels]
        assert (part.rho <= 1.1 * old.rho[positions] * (1 + 1e-12)).all()
    if found.mechanism is not None:
        assert _fresh(found.mechanism) == found.mechanism.certificate.delta_upper <= delta


@settings(max_examples=15, derandomize=True, deadline=None)
@given(seed=st.integers(0, 10**6), method=st.sampled_from(["center", "white", "paper"]))
def test_a_class_that_moved_far_is_caught(seed, method):
    classes = _laws(seed, n=4, k=2)
    graph = shoal.NeighborGraph.complete(classes.labels)
    old = shoal.design(classes, graph, method, epsilon=0.5, rho=0.4)
    delta = min(1.05 * old.certificate.delta_upper, 0.9)
    if old.certificate.delta_upper > delta or delta == 0:
        return
    means = classes.means.copy()
    means[0] += 30.0
    found = shoal.reuse(old, shoal.GaussianClasses(means, classes.covs), delta=delta)
    (group,) = found.groups
    assert group.decision == REDESIGN
    assert "as it is, delta is" in group.reason
    assert found.mechanism is None


def test_a_group_that_moved_does_not_touch_the_other(mechanism, classes, graph):
    moved = _moved(classes, 1.0, rows=slice(4, 7))
    found = shoal.reuse(mechanism, moved, delta=DELTA)
    first, second, third = found.groups
    assert (first.decision, third.decision) == (UNCHANGED, ALONE)
    assert second.decision == REDESIGN
    assert [g.labels for g in found.to_redesign] == [classes.labels[4:7]]
    again = shoal.redesigned(found, iterations=2)
    assert again.certificate.delta_upper <= DELTA
    assert _fresh(again) == again.certificate.delta_upper
    assert np.array_equal(again.shift[:4], mechanism.bias[:4])
    assert np.array_equal(again.noise_cov[:4], mechanism.noise_cov[:4])
    assert (again.weighted_rho <= again.budget).all()
    if mechanism.method == "additive":  # a search, and the quicker of the two
        assert shoal.redesigned(found, iterations=2).digest == again.digest
    assert again.classes.means.tobytes() == moved.means.tobytes()
    assert again.graph.edges.tolist() == graph.edges.tolist()


@pytest.mark.parametrize("method", ["transport", "additive"])
def test_aimed_anew_the_output_laws_are_the_old_ones(classes, graph, method):
    old = shoal.design(classes, graph, method, 1.0, 0.5, iterations=2)
    new = _moved(classes, 0.03, 5)
    again = aimed(old, new)
    together = (new.means - classes.means).mean(axis=0)
    np.testing.assert_allclose(again.output.means, old.output.means + together, atol=1e-12)
    if method == "transport":
        np.testing.assert_allclose(again.output.covs, old.output.covs, atol=1e-10)
        assert again.curve(1.0).delta == pytest.approx(old.curve(1.0).delta, rel=1e-6)
        # Of all maps between the laws, the optimal one moves answers least: the Bures distance, in closed form.
        for i in range(3):
            kept = (np.eye(3) + old.gain[i]) @ classes.covs[i] @ (np.eye(3) + old.gain[i]).T
            values = np.linalg.eigvals(new.covs[i] @ kept).real
            bures = np.trace(new.covs[i]) + np.trace(kept) - 2 * np.sqrt(np.maximum(values, 0)).sum()
            spent = bures + np.trace(old.noise_cov[i]) + ((old.output.means[i] + together - new.means[i]) ** 2).sum()
            assert again.rho[i] == pytest.approx(spent / 3, rel=1e-6)
    # What leaves really has that law: a million seeded answers.
    i, m = 1, 1_000_000
    q = np.random.default_rng(1).multivariate_normal(new.means[i], new.covs[i], size=m)
    out = np.asarray(again.sample(q, new.labels[i], seed=2))
    assert np.abs(out.mean(axis=0) - again.output.means[i]).max() < 6e-3
    assert np.abs(np.cov(out.T) - again.output.covs[i]).max() < 1e-2
    assert ((out - q) ** 2).mean() == pytest.approx(again.rho[i], rel=0.01)


def test_a_shifted_mean_breaks_the_parameters_but_not_the_aim(classes, transport):
    old = transport
    delta = old.certificate.delta_upper * (1 + 1e-6)
    means = classes.means.copy()
    means[:4] += np.random.default_rng(2).normal(0, 0.02, (4, 3))
    found = shoal.reuse(old, shoal.GaussianClasses(means, classes.covs), delta=delta, rho_tolerance=0.5)
    assert found.groups[0].decision == AIMED_ANEW
    part = found.groups[0].part
    plain = replace(old.part(part.classes.labels), classes=part.classes)
    assert plain.certificate.delta_upper > delta >= part.certificate.delta_upper


def test_constants_are_aimed_at_their_center():
    classes = shoal.GaussianClasses.deterministic([[0.0, 0.0], [1.0, 0.0], [0.2, 0.7]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    old = shoal.calibrate(classes, graph, "transport", 1.0, 1e-5, tolerance=0.1, iterations=5)
    moved = shoal.GaussianClasses.deterministic(classes.means * 0.99)
    found = shoal.reuse(old, moved, delta=1e-5)
    assert found.groups[0].decision == AIMED_ANEW
    assert _fresh(found.mechanism) <= 1e-5


def test_moving_together_costs_nothing(mechanism, classes):
    found = shoal.reuse(
        mechanism, shoal.GaussianClasses(classes.means + np.array([3.0, -1, 0.5]), classes.covs), delta=DELTA
    )
    assert found.mechanism is not None
    assert found.mechanism.rho == pytest.approx(mechanism.rho, rel=1e-9)
    assert found.mechanism.certificate.delta_upper == pytest.approx(mechanism.certificate.delta_upper, rel=1e-6)


def test_an_error_above_the_limit_is_caught(classes, graph):
    old = shoal.design(classes, graph, "center", 1.0, 0.5)
    new = shoal.GaussianClasses(classes.means, 9.0 * classes.covs)
    found = shoal.reuse(old, new, delta=0.999)
    assert "error of a label is above its limit" in found.groups[0].reason


def test_the_tolerance_does_not_add_up(classes, graph):
    first = shoal.design(classes, graph, "center", 1.0, 0.5)
    mechanism, laws = first, classes
    days = 0
    while days < 6:
        laws = shoal.GaussianClasses(laws.means, 1.03 * laws.covs)
        found = shoal.reuse(mechanism, laws, delta=0.999, rho_tolerance=0.05)
        if found.mechanism is None:
            break
        mechanism, days = found.mechanism, days + 1
        assert LIMITED in mechanism.notes
    assert days > 0
    assert found.mechanism is None
    assert (mechanism.rho <= 1.05 * first.rho * (1 + 1e-12)).all()


def test_labels_go_and_come(mechanism, classes, graph):
    fewer = classes.take(np.array([0, 1, 3, 4, 5, 6]))
    found = shoal.reuse(mechanism, fewer, delta=DELTA)
    assert [g.decision for g in found.groups] == [UNCHANGED, UNCHANGED]
    assert found.mechanism.graph.n_edges == 3 + 3
    more = shoal.GaussianClasses(
        np.concatenate([classes.means, [[0.1, 0.0, 0.0]]]),
        np.concatenate([classes.covs, classes.covs[:1]]),
        [*classes.labels, "new"],
    )
    with pytest.raises(shoal.InputError, match="graph must be given"):
        shoal.reuse(mechanism, more, delta=DELTA)
    wider = shoal.NeighborGraph.within_groups(more.labels, ["a"] * 4 + ["b"] * 3 + ["alone", "b"])
    found = shoal.reuse(mechanism, more, delta=DELTA, graph=wider)
    assert [g.decision for g in found.groups] == [UNCHANGED, REDESIGN, ALONE]
    assert found.groups[1].reason == "a label is new"
    assert shoal.redesigned(found, iterations=5).certificate.delta_upper <= DELTA


def test_an_epsilon_per_edge_stays_with_its_edge(classes):
    graph = shoal.NeighborGraph.within_groups(classes.labels, ["b", "a", "b", "a", "b", "a", "a", "b"])
    epsilon = np.linspace(0.2, 1.5, graph.n_edges)
    old = shoal.design(classes, graph, "center", epsilon, 0.5)
    found = shoal.reuse(old, _moved(classes, 1e-4, 3), delta=min(1.2 * old.certificate.delta_upper, 0.99))
    assert {g.decision for g in found.groups} <= {KEPT, AIMED_ANEW}
    assert np.array_equal(found.mechanism.epsilon, epsilon)
    ends = [(graph.labels[i], graph.labels[j]) for i, j in graph.edges]
    for group in found.groups:
        part = group.part
        for (i, j), value in zip(part.graph.edges, part.epsilon, strict=True):
            assert value == epsilon[ends.index((part.graph.labels[i], part.graph.labels[j]))]


def test_refusals(mechanism, classes):
    with pytest.raises(shoal.InputError, match="classes must be"):
        shoal.reuse(mechanism, _laws(1, k=2), delta=DELTA)
    with pytest.raises(shoal.InputError, match="delta"):
        shoal.reuse(mechanism, classes, delta=2.0)
    with pytest.raises(shoal.InputError, match="rho_tolerance"):
        shoal.reuse(mechanism, classes, delta=DELTA, rho_tolerance=-0.1)
    found = shoal.reuse(mechanism, classes, delta=1e-80)
    assert found.mechanism is None
    with pytest.raises(shoal.UnreachableError):
        shoal.redesigned(found, iterations=2)
    assert "." not in repr(found)
