"""The integer factor: A Aᵀ is the covariance up to the stated residual, in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import CertificationError
from shoal.noise.factor import EPS, JITTER, WIDTH, Factor, certified_factor, floor_to_dyadic, needs_jitter
from shoal.validation import FloatArray


def matrix(factor: Factor) -> list[list[Fraction]]:
    k = len(factor.rows)
    result = [[Fraction(0)] * k for _ in range(k)]
    for i, row in enumerate(factor.rows):
        for j, value in enumerate(row):
            result[i][j] = value * Fraction(2) ** (factor.exponents[i] - WIDTH)
    return result


def residual(factor: Factor, cov: FloatArray, jitter: bool) -> Fraction:
    """Largest |A Aᵀ − cov − jitter| relative to 2^(e_i + e_j)."""
    a, k = matrix(factor), len(cov)
    worst = Fraction(0)
    for i in range(k):
        for j in range(k):
            wanted = Fraction(float(cov[i, j]))
            if jitter and i == j:
                wanted *= 1 + Fraction(JITTER * k, 2**52)
            gap = sum((x * y for x, y in zip(a[i], a[j], strict=True)), Fraction(0)) - wanted
            worst = max(worst, abs(gap) / Fraction(2) ** (factor.exponents[i] + factor.exponents[j]))
    return worst


def random_cov(seed: int, k: int, rank: int, spread: float) -> FloatArray:
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((k, rank)) * 10.0 ** rng.uniform(-spread, spread, (k, 1))
    cov = factors @ factors.T
    return np.asarray(0.5 * (cov + cov.T))


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from([0.0, 3.0, 60.0]))
def test_full_rank(seed: int, k: int, spread: float) -> None:
    cov = random_cov(seed, k, k + 3, spread)
    if needs_jitter(cov[None])[0]:
        return
    factor = certified_factor(cov, jitter=False)
    assert residual(factor, cov, False) <= Fraction(1, 2 ** (WIDTH - 1))
    for i, exponent in enumerate(factor.exponents):
        assert Fraction(1, 4) <= Fraction(float(cov[i, i])) / Fraction(4) ** exponent < 1


@pytest.mark.parametrize("k", [2, 5, 12])
@pytest.mark.parametrize("rank", [1, 2])
def test_low_rank_takes_the_jitter_and_no_more(k: int, rank: int) -> None:
    for seed in range(10):
        cov = random_cov(seed, k, rank, 2.0)
        singular = bool(needs_jitter(cov[None])[0])
        assert singular == (rank < k)
        assert residual(certified_factor(cov, jitter=singular), cov, singular) <= Fraction(1, 2 ** (WIDTH - 1))


def test_both_triangles_count() -> None:
    """Products of matrices can come out with triangles that differ in the last digits."""
    cov = np.array([[2.0, 0.5], [0.5 + 2**-40, 1.0]])
    factor = certified_factor(cov, jitter=False)
    assert residual(factor, 0.5 * (cov + cov.T), False) <= Fraction(1, 2 ** (WIDTH - 1))
    assert factor == certified_factor(cov.T, jitter=False)


@pytest.mark.parametrize("rank", [1, 3, 50])
def test_many_entries_of_low_rank(rank: int) -> None:
    """What products in double precision leave below zero stays within the jitter at k = 100."""
    rng = np.random.default_rng(rank)
    factors = rng.standard_normal((100, rank))
    cov = factors @ factors.T
    assert needs_jitter(cov[None])[0]
    certified_factor(cov, jitter=True)


def test_entries_without_noise_stay_without() -> None:
    cov = np.zeros((4, 4))
    cov[np.ix_([0, 2], [0, 2])] = [[2.0, 0.5], [0.5, 1.0]]
    factor = certified_factor(cov, jitter=bool(needs_jitter(cov[None])[0]))
    assert not any(factor.rows[1])
    assert not any(factor.rows[3])
    assert residual(factor, cov, False) <= Fraction(1, 2 ** (WIDTH - 1))
    assert not any(map(any, certified_factor(np.zeros((2, 2)), jitter=False).rows))


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300])
def test_extreme_sizes(scale: float) -> None:
    cov = np.array([[4.0, 0.0], [0.0, 9.0]]) * scale
    assert residual(certified_factor(cov, jitter=False), cov, False) <= Fraction(1, 2 ** (WIDTH - 1))


@pytest.mark.parametrize(
    "cov",
    [
        [[1.0, 1.0 + 1e-12], [1.0 + 1e-12, 1.0]],
        [[1.0, 2.0], [2.0, 1.0]],
        [[-1e-300, 0.0], [0.0, 1.0]],
        [[0.0, 1e-9], [1e-9, 1.0]],
    ],
)
def test_what_rounding_does_not_explain_is_refused(cov: list[list[float]]) -> None:
    with pytest.raises(CertificationError, match="noise_floor") as caught:
        certified_factor(np.array(cov), jitter=True)
    assert "1.0" not in str(caught.value)


def test_jitter_is_decided_on_correlations() -> None:
    tiny = np.diag([1e-200, 1.0, 1e200])
    nearly = np.array([[1.0, 1.0 - EPS], [1.0 - EPS, 1.0]])
    assert not needs_jitter(tiny[None])[0]
    assert needs_jitter(nearly[None])[0]


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_dyadic_is_exact(value: float) -> None:
    assert Fraction(floor_to_dyadic(value, 1074), 2**1074) == Fraction(value)
    if value:
        assert floor_to_dyadic(value, 3) == (Fraction(value) * 8).__floor__()
