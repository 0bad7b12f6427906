"""Clipped answers: the bound covers every law inside the ellipsoids, and is attained where it can be."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import shoal
from shoal.mechanism.clip import _farthest, assumption_free
from shoal.proofs import checker

EPSILON = 1.0


def _hockey(one: tuple, two: tuple) -> float:
    """P(S) − e^ε Q(S), from exact probabilities of the set S where p > e^ε q on a grid: never above H_ε.

    Each law is (weights, centers, deviation) of a mixture of normals.
    """
    grid = np.linspace(-40.0, 40.0, 8001)
    p, q = (w @ stats.norm(c[:, None], s).pdf(grid) for w, c, s in (one, two))
    inside = np.concatenate([[False], p > math.exp(EPSILON) * q, [False]])
    ends = np.concatenate([[-np.inf], 0.5 * (grid[1:] + grid[:-1]), [np.inf]])
    change = np.diff(inside.astype(int))
    starts, stops = ends[np.flatnonzero(change == 1)], ends[np.flatnonzero(change == -1)]
    mass = []
    for w, c, s in (one, two):
        law = stats.norm(c[:, None], s)
        mass.append(float((w @ (law.cdf(stops) - law.cdf(starts))).sum()))
    return mass[0] - math.exp(EPSILON) * mass[1]


def _mechanism(noise: list[float], gain: float | None = None) -> tuple[shoal.Mechanism, shoal.Clip]:
    classes = shoal.GaussianClasses([[0.0], [0.7]], [[[0.04]], [[0.09]]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    made = shoal.design(classes, graph, "white", epsilon=EPSILON, rho=1.0)
    changed = {
        "noise_cov": np.array(noise)[:, None, None],
        "gain": None if gain is None else np.full((2, 1, 1), gain),
        "shift": np.zeros((2, 1)),
    }
    fields = {name: getattr(made, name) for name in made.__dataclass_fields__} | changed
    return shoal.Mechanism(**fields), shoal.Clip.of(classes, radius=2.0)


@pytest.mark.parametrize(("noise", "gain"), [([4.0, 4.0], None), ([4.0, 5.0], -0.3), ([9.0, 4.0], None)])
def test_no_law_inside_exceeds_it_in_one_dimension(noise, gain):
    """Direct integration over many laws on the intervals, point masses at their ends among them."""
    mechanism, clip = _mechanism(noise, gain)
    bound = assumption_free(mechanism, clip)
    rng = np.random.default_rng(0)
    kept = 1.0 + (gain or 0.0)
    worst = 0.0
    laws = [(np.array([[s], [t]]), np.ones((2, 1))) for s in (-1.0, 1.0) for t in (-1.0, 1.0)]
    laws += [(rng.uniform(-1, 1, size=(2, 4)), rng.dirichlet(np.ones(4), size=2)) for _ in range(20)]
    for points, weights in laws:
        released = []
        for i in range(2):
            centers = mechanism.classes.means[i] + kept * clip.roots[i, 0, 0] * points[i]
            released.append((weights[i], centers, math.sqrt(noise[i])))
        worst = max(worst, _hockey(*released), _hockey(*released[::-1]))
    assert worst <= bound.delta_upper
    if noise[0] == noise[1]:
        assert bound.delta_upper <= worst * (1 + 1e-3)  # attained by the two farthest points
    else:
        assert bound.delta_upper <= 1.6 * worst  # the looseness that the theory page states


def test_sampled_laws_in_three_dimensions_stay_below():
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(3, 3, 3))
    classes = shoal.GaussianClasses(rng.normal(size=(3, 3)), roots @ np.swapaxes(roots, 1, 2) * 0.05)
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "white", epsilon=EPSILON, rho=9.0)
    clip = shoal.Clip.of(classes, radius=2.0)
    for scope in ("answer", "table"):
        bound = assumption_free(mechanism, clip, scope=scope)
        worst = 0.0
        for _ in range(30):
            u = rng.normal(size=(3, 3))
            points = clip.centers + np.einsum("nij,nj->ni", clip.roots, u / np.linalg.norm(u, axis=1, keepdims=True))
            laws = shoal.GaussianClasses(points, mechanism.noise_cov[0])
            worst = max(worst, float(shoal.privacy_curve(laws, graph, EPSILON, scope=scope).delta_lower))
        assert worst <= bound.delta_upper < 1
        assert bound.modelled is not None


@given(seed=st.integers(0, 10_000), k=st.integers(1, 5))
@settings(derandomize=True, max_examples=40, deadline=None)
def test_no_point_is_farther(seed, k):
    rng = np.random.default_rng(seed)
    gap, first, second = rng.normal(size=k), rng.normal(size=(k, k)), rng.normal(size=(k, k)) * rng.integers(0, 2)
    bound = _farthest(gap, first, second)
    u, v = (x / np.linalg.norm(x, axis=0) for x in rng.normal(size=(2, k, 2000)))
    away = np.linalg.norm(gap[:, None] + first @ u + second @ v, axis=0).max()
    assert away <= bound
    assert bound <= (np.linalg.norm(gap) + np.linalg.norm(first, 2) + np.linalg.norm(second, 2)) * (1 + 1e-7)
    if not second.any() and k <= 2:
        assert bound <= away * 1.01


@given(seed=st.integers(0, 10_000))
@settings(derandomize=True, max_examples=30, deadline=None)
def test_clipped_answers_are_inside_and_others_stay(seed):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-8, 8, size=3)
    roots = rng.normal(size=(2, 3, 3)) * scale[:, None]
    clip = shoal.Clip(("a", "b"), rng.normal(size=(2, 3)) * scale, roots)
    rows = clip.centers[0] + rng.normal(size=(50, 3)) @ roots[0].T
    moved = clip.apply(rows, "a")
    size = np.linalg.norm(np.linalg.solve(roots[0] / scale[:, None], ((moved - clip.centers[0]) / scale).T), axis=0)
    before = np.linalg.norm(np.linalg.solve(roots[0] / scale[:, None], ((rows - clip.centers[0]) / scale).T), axis=0)
    assert (size <= 1 + 1e-9).all()
    np.testing.assert_array_equal(moved[before < 0.999], rows[before < 0.999])


def test_several_answers_are_counted():
    """Point masses: twice the same answer is a shift by √2 as much."""
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    twice = shoal.design(classes, graph, "white", epsilon=EPSILON, rho=9.0, times=2)
    found = assumption_free(twice, shoal.Clip.of(classes))
    assert found.delta_upper >= twice.certificate.delta_upper
    assert found.delta_upper == pytest.approx(twice.certificate.delta_upper, rel=1e-6)


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_what_clipping_moves_is_in_every_figure(scope, tmp_path):
    """Certificate, what the ledger charges, file, proof and checker; a proof without it is refused."""
    made, _ = _mechanism([0.01, 0.01])
    made = replace(made, scope=scope, times=3)
    clip = shoal.Clip.of(made.classes, radius=4.0)
    share = float(clip.outside[0])
    mechanism = replace(made, outside=share)
    added = 3 * (2 if scope == "table" else 1) * (1 + math.exp(EPSILON)) * share
    assert mechanism.certificate.finite_precision >= added
    assert mechanism.finite_precision_tv >= share
    assert mechanism.digest != made.digest
    mechanism.save(tmp_path / "clipped.shoal")
    assert shoal.Mechanism.load(tmp_path / "clipped.shoal").certificate == mechanism.certificate
    proof = shoal.prove(mechanism)
    assert proof.finite_precision >= added
    checker.check(json.loads(proof.to_json()), mechanism.to_bytes())
    understated = json.loads(proof.to_json()) | {
        "finite_precision": (added / 2).hex(),
        "delta_upper": (proof.ideal_upper + added / 2).hex(),
    }
    with pytest.raises(checker.Refused):
        checker.check(understated, mechanism.to_bytes())
    # The figure for any law has no share that is moved, and the modelled one counts it once.
    assert assumption_free(mechanism, clip).delta_upper == assumption_free(made, clip).delta_upper
    both = [assumption_free(one, clip).modelled for one in (mechanism, made)]
    assert both[0] == pytest.approx(both[1], rel=1e-6)


def test_without_noise_nothing_is_claimed():
    mechanism, clip = _mechanism([0.0, 0.0])
    assert assumption_free(mechanism, clip).delta_upper == 1.0


def test_refusals():
    mechanism, clip = _mechanism([1.0, 1.0])
    other = shoal.Clip(("x", "y"), clip.centers, clip.roots)
    with pytest.raises(shoal.InputError, match="clip must have the mechanism's labels"):
        assumption_free(mechanism, other)
    with pytest.raises(shoal.InputError, match="not one of the labels"):
        clip.apply([[0.0]], "z")
    with pytest.raises(shoal.InputError, match="must have 1 entries"):
        clip.apply([[0.0, 1.0]], "a")


def test_parts_of_a_mechanism_keep_the_share_that_clipping_moves():
    mechanism = replace(_mechanism([0.01, 0.01])[0], outside=0.25)
    assert mechanism.part(mechanism.classes.labels).outside == 0.25
