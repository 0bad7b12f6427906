"""Kernels of nobody: what is found, what is not called violated, and what the harness says of itself."""

import numpy as np
import pytest
from benchmarks.harness import checked, constants, gaussian, geometric, laplace

import shoal
from shoal.testing import check_mechanism


@pytest.mark.parametrize("seed", range(6))
def test_a_fifth_too_little_noise_is_found_where_counting_sees_nothing(seed):
    result = checked(gaussian(1e-3, 0.8, seed))
    assert result.verdict == "violated"
    assert result.by == "gap"
    assert result.power > 0.99
    assert result.detectable_delta > 0.01
    assert "fifth too little noise" in str(result)
    assert repr(result).startswith("violated")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1])
def test_the_right_amount_of_gaussian_noise_is_consistent(delta, seed):
    result = checked(gaussian(delta, 1.0, 50 + seed))
    assert result.verdict == "consistent"
    assert result.delta_lower <= delta


@pytest.mark.parametrize(
    "case", [laplace(1.0, 1.0, 1), laplace(0.5, 1.0, 2), laplace(1.0, 1.0, 3, k=40), geometric(1.0, 4)]
)
def test_pure_privacy_is_not_taken_for_gaussian(case):
    """Forty Laplace entries add up to something nearly Gaussian, of which no δ below 1e-9 is concluded."""
    result = checked(case)
    assert result.verdict == "consistent"
    assert result.delta_lower == 0.0


def test_too_little_laplace_and_no_noise_are_found():
    assert checked(laplace(1.0, 0.6, 1, k=1)).verdict == "violated"
    classes, graph = constants(2, 3, 0)
    bare = check_mechanism(lambda label: classes.means[int(label)], classes, graph, 1.0, 0.5, n=1000)
    assert bare.verdict == "violated"
    assert bare.by == "counting"
    assert not bare.gaussian


def test_nothing_is_assumed_where_that_is_asked():
    _, release, classes, graph, epsilon, delta = gaussian(1e-3, 0.8, 0)
    result = check_mechanism(release, classes, graph, epsilon, delta, gaussian=False)
    assert result.by == "counting"
    assert result.verdict == "consistent"
    assert result.power < 0.5


def test_a_leak_outside_the_means_is_found():
    """Equal means, and one label's noise twice as wide: the means say nothing."""
    classes = shoal.GaussianClasses.deterministic([[0.0, 0.0], [0.0, 0.0]], labels=["a", "b"])
    rng, width = np.random.default_rng(0), {"a": 1.0, "b": 1.3}
    graph = shoal.NeighborGraph.complete(classes.labels)
    result = check_mechanism(lambda label: width[label] * rng.standard_normal(2), classes, graph, 1.0, 1e-4)
    assert result.verdict == "violated"
    assert result.by == "spread"
    other = shoal.GaussianClasses.deterministic([[0.0], [0.0]], labels=["a", "b"])  # answers of another length
    moved = check_mechanism(lambda label: rng.standard_normal(3) + (label == "b"), other, graph, 1.0, 1e-3)
    assert moved.verdict == "violated"


def test_of_many_pairs_those_furthest_apart_are_tested():
    classes = shoal.GaussianClasses.deterministic(np.arange(12.0)[:, None])
    graph = shoal.NeighborGraph.complete(classes.labels)
    rng = np.random.default_rng(0)
    result = check_mechanism(lambda label: [int(label) + 30 * rng.standard_normal()], classes, graph, 1.0, 0.1, n=400)
    assert (result.edges_tested, result.n_edges) == (32, 66)
    assert "32 of 66 pairs" in str(result)


def test_refusals():
    classes, graph = constants(2, 1, 0)
    alone = shoal.NeighborGraph(classes.labels, np.empty((0, 2), dtype=int))
    for release, bonds, n, message in (
        (3, graph, 1000, "release must be a function"),
        (lambda label: [1.0], alone, 1000, "graph has no edges"),
        (lambda label: [1.0], graph, 10, "n must be at least 200"),
        (lambda label: "secret", graph, 400, "release must be a number"),
        (lambda label: [float("nan")], graph, 400, "release must be finite"),
        (lambda label: [1.0] * (1 + int(label)), graph, 400, "answers of one length"),
    ):
        with pytest.raises(shoal.InputError, match=message) as refused:
            check_mechanism(release, classes, bonds, 1.0, 0.1, n=n)
        assert "secret" not in str(refused.value)


def test_few_answers_are_taken_for_no_law():
    """200 answers with Laplace noise often pass for Gaussian; (1, 0) holds, and nothing says that it does not."""
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        check = check_mechanism(lambda label, rng=rng: [int(label) + rng.laplace()], classes, graph, 1.0, 0.0, n=200)
        assert check.verdict == "consistent", seed
