"""The laws of released answers against exact rational arithmetic on the stored parameters."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import shoal
from shoal.mechanism.mechanism import Mechanism
from shoal.noise.exact_map import EXACT
from shoal.noise.factor import JITTER, needs_jitter

Matrix = list[list[Fraction]]


def rational(values: Any) -> Any:
    return [rational(v) for v in values] if np.ndim(values) else Fraction(float(values))


def product(a: Matrix, b: Matrix) -> Matrix:
    return [[sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in zip(*b, strict=True)] for row in a]  # fmt: skip  # noqa: E501


def exact_law(mechanism: Mechanism, i: int) -> tuple[list[Fraction], Matrix]:
    """Mean and covariance of what is released about label i."""
    k = mechanism.classes.n_dims
    mean, shift = (
        rational(mechanism.classes.means[i]),
        rational(np.broadcast_to(mechanism.shift, mechanism.classes.means.shape)[i]),
    )
    total = [a + b for a, b in zip(mean, shift, strict=True)]
    if mechanism.mean_grid is not None:
        for j, exponent in enumerate(mechanism.mean_grid[i].tolist()):
            if exponent > EXACT:
                # The grid acts on the rounded sum; the value itself must lie on it.
                total[j] = Fraction(float(mechanism.output.means[i, j]))
                assert (total[j] / Fraction(2) ** exponent).denominator == 1
                assert abs(total[j] - mean[j] - shift[j]) <= Fraction(2) ** (exponent + 1)
    noise = mechanism.noise_cov[min(i, len(mechanism.noise_cov) - 1)]
    drawn = [[(a + b) / 2 for a, b in zip(x, y, strict=True)] for x, y in zip(rational(noise), rational(noise.T), strict=True)]  # fmt: skip  # noqa: E501
    if needs_jitter(noise[None])[0]:
        for j in range(k):
            drawn[j][j] *= 1 + Fraction(JITTER * k, 2**52)
    cov = rational(mechanism.classes.covs[i])
    if mechanism.gain is not None:
        kept = rational(mechanism.gain[i])
        for j in range(k):
            kept[j][j] += 1
        cov = product(product(kept, cov), [list(c) for c in zip(*kept, strict=True)])
    return total, [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(cov, drawn, strict=True)]


def assert_covered(mechanism: Mechanism) -> None:
    output = mechanism.output
    errors = output.errors or (np.zeros((1, output.n_dims, output.n_dims)), np.zeros(output.means.shape))
    cov_errors = np.broadcast_to(errors[0], output.covs.shape)
    for i in range(output.n_classes):
        mean, cov = exact_law(mechanism, i)
        for j in range(output.n_dims):
            assert abs(mean[j] - Fraction(float(output.means[i, j]))) <= Fraction(float(errors[1][i, j]))
            for m in range(output.n_dims):
                missed = abs(cov[j][m] - Fraction(float(output.covs[i, j, m])))
                assert missed <= Fraction(float(cov_errors[i, j, m]))


def graded(rng: np.random.Generator, n: int, k: int, rank: int) -> shoal.GaussianClasses:
    """Class laws of one rank whose entries span nine orders of magnitude."""
    scale = 10.0 ** rng.uniform(-1, 8, size=k)
    roots = rng.normal(size=(n, k, rank)) * scale[:, None]
    return shoal.GaussianClasses(rng.normal(size=(n, k)) * scale, roots @ np.swapaxes(roots, 1, 2))


@pytest.mark.filterwarnings("ignore::shoal.laws.supports.RankWarning")
@pytest.mark.parametrize("method", ["none", "white", "paper", "covariance", "additive", "transport", "center"])
@pytest.mark.parametrize("rank", [1, 3, 4])
def test_output_laws_cover_what_is_released(method: str, rank: int) -> None:
    rng = np.random.default_rng(5 * rank)
    for _ in range(3 if rank > 1 else 1):  # common laws of lines are the slowest to find
        classes = graded(rng, 3, 4, rank)
        graph = shoal.NeighborGraph.complete(classes.labels)
        rho = float(classes.stored_variances.mean()) * 10.0 ** rng.uniform(-3, 1)
        floor = 0.0 if method == "none" else 1e-9 * rho
        mechanism = shoal.design(classes, graph, method, 1.0, rho, noise_floor=floor, iterations=5)
        assert_covered(mechanism)


def test_noise_that_is_not_symmetric() -> None:
    rng = np.random.default_rng(5)
    classes = graded(rng, 3, 4, 4)
    graph = shoal.NeighborGraph.complete(classes.labels)
    rho = float(classes.stored_variances.mean())
    mechanism = shoal.design(classes, graph, "transport", 1.0, rho, iterations=5)
    assert_covered(mechanism)
    noise = np.array(mechanism.noise_cov)
    noise[:, 0, 1] *= 1 + 2.0**-51
    from dataclasses import replace

    assert_covered(replace(mechanism, noise_cov=noise))


@pytest.mark.parametrize("method", ["center", "additive", "transport"])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_constants_that_meet_are_released_with_exactly_equal_laws(method: str, size: float) -> None:
    rng = np.random.default_rng(3)
    classes = shoal.GaussianClasses.deterministic(size + rng.normal(size=(6, 5)))
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, method, 0.0, 1.01 * shoal.perfect_rho(classes, graph))
    assert_covered(mechanism)
    assert (mechanism.output.means == mechanism.output.means[0]).all()
    assert mechanism.output.errors is None
    assert mechanism.curve(0.0).delta_upper == 0.0
    assert (mechanism.rho <= mechanism.budget).all()
    means = [mechanism._exact.start[i][j] + mechanism._exact.offset[i][j] for i in range(6) for j in range(5)]
    assert means == means[:5] * 6, "in what is released"


def test_the_grid_survives_files_and_groups(tmp_path: Any) -> None:
    rng = np.random.default_rng(8)
    classes = shoal.GaussianClasses.deterministic(rng.normal(size=(6, 3)))
    graph = shoal.NeighborGraph.within_groups(classes.labels, [0, 0, 0, 1, 1, 1])
    mechanism = shoal.design(classes, graph, "center", 0.0, 1.01 * shoal.perfect_rho(classes, graph))
    mechanism.save(tmp_path / "m")
    again = shoal.Mechanism.load(tmp_path / "m")
    assert again.digest == mechanism.digest
    assert (again.output.means == mechanism.output.means).all()
    assert again.for_labels(classes.labels[:3]).curve(0.0).delta_upper == 0.0
    assert_covered(again)


@pytest.mark.parametrize("method", ["center", "additive", "transport"])
def test_sums_equal_in_double_precision_only_are_told_apart(method: str) -> None:
    first = 1e8 + 2.0**-25
    second = first + 2.0**-26
    classes = shoal.GaussianClasses.deterministic([[first], [second]], ["a", "b"])
    graph = shoal.NeighborGraph.complete(["a", "b"])
    least = 1e-18 * (1 + 1e-6)
    mechanism = shoal.design(classes, graph, method, 1.0, [least, least + (0.6 * 2.0**-26) ** 2], noise_floor=1e-18)
    assert_covered(mechanism)
    assert mechanism.certificate.delta_upper >= 0.49
    gap = abs(exact_law(mechanism, 0)[0][0] - exact_law(mechanism, 1)[0][0])
    square = Fraction(gap) ** 2 / Fraction(float(mechanism.noise_cov.max()))
    with mpmath.workdps(60):
        mu = mpmath.sqrt(mpmath.mpf(square.numerator) / square.denominator)
        exact = mpmath.ncdf(mu / 2 - 1 / mu) - mpmath.e * mpmath.ncdf(-mu / 2 - 1 / mu)
        assert mechanism.certificate.delta_upper >= exact


def test_an_error_of_the_class_means_is_mapped_as_the_answers_are() -> None:
    """q is off by e: released is (I + gain) q, off by (I + gain) e in every entry, not by e."""
    rng = np.random.default_rng(5)
    exact = shoal.GaussianClasses(rng.standard_normal((3, 2)), np.stack([np.eye(2)] * 3))
    known = np.full((3, 2), 1e-6)
    doubted = exact.with_errors(np.zeros((1, 2, 2)), known)
    graph = shoal.NeighborGraph.complete(doubted.labels)
    base = shoal.design(exact, graph, "white", 1.0, 1.0)
    gain = np.stack([np.array([[0.0, 40.0], [-7.0, 2.0]])] * 3)
    mechanism = dataclasses.replace(base, classes=doubted, gain=gain)
    assert mechanism.output.errors is not None
    true = (np.eye(2) + gain) @ known[:, :, None]
    worst = np.abs(np.eye(2) + gain) @ known[:, :, None]
    assert (mechanism.output.errors[1] >= worst[:, :, 0]).all()
    assert (np.abs(true[:, :, 0]) <= mechanism.output.errors[1]).all()
    # Two labels whose true means differ by that much are told apart by it, and the certificate covers it.
    moved = exact.means + np.array([1.0, -1.0, 1.0])[:, None] * known
    truly = dataclasses.replace(base, classes=shoal.GaussianClasses(moved, exact.covs, exact.labels), gain=gain)
    means = truly.output.means + (gain @ (moved - exact.means)[:, :, None])[:, :, 0]
    released = shoal.GaussianClasses(means, truly.output.covs, exact.labels)
    assert mechanism.curve(0.1).delta_upper >= shoal.privacy_curve(released, graph, 0.1).delta


def test_a_mechanism_file_without_edges_is_read_and_certifies_nothing(tmp_path: Any) -> None:
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]])
    mechanism = shoal.design(classes, shoal.NeighborGraph.complete(classes.labels), "white", 1.0, 16.0)
    mechanism.for_labels(["0"]).save(tmp_path / "m")
    again = shoal.Mechanism.load(tmp_path / "m")
    for figure in (lambda: again.certificate, lambda: again.certificate_for("table"), lambda: again.curve(1.0)):
        with pytest.raises(shoal.InputError, match="graph has no edges"):
            figure()
