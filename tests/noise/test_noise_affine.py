"""The release in integers against the same sums in fractions, and the grid it ends on."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.noise.exact_map import ExactMap
from shoal.noise.factor import WIDTH
from shoal.noise.grid import LIMIT, NoiseGrid
from shoal.noise.source import RESOLUTION
from shoal.validation import FloatArray


def by_fractions(exact: ExactMap, params: dict[str, FloatArray], answer: FloatArray, label: int, z: list[int]) -> list:
    """⌊y/G + ½⌋ with y from the definition; only the factor A is taken over."""
    factor, k = exact.noise[label], len(answer)
    result = []
    for i in range(k):
        y = Fraction(answer[i]) + Fraction(params["shift"][label, i])
        for j in range(k):
            y += Fraction(params["gain"][label, i, j]) * (Fraction(answer[j]) - Fraction(params["means"][label, j]))
        for a, unit in zip(factor.rows[i], z, strict=False):
            y += a * Fraction(2) ** (factor.exponents[i] - WIDTH) * Fraction(unit, 2**RESOLUTION.unit_bits)
        index = math.floor(y / Fraction(2) ** exact.grid.exponents[i] + Fraction(1, 2))
        result.append(min(max(index, -LIMIT), LIMIT))
    return result


def parameters(seed: int, k: int, spread: float) -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.uniform(-spread, spread, k)
    factors = rng.standard_normal((3, k, k + 1)) * size[:, None]
    factors[2] = 0.0  # a label without noise
    gain = rng.standard_normal((3, k, k)) * size[:, None] / size
    gain[1] = 0.0
    return {
        "means": rng.standard_normal((3, k)) * size,
        "shift": rng.standard_normal((3, k)) * size,
        "gain": gain,
        "noise_cov": factors @ np.swapaxes(factors, 1, 2),
    }


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([0.0, 4.0, 120.0]), st.booleans(), st.booleans())
def test_exact(seed: int, k: int, spread: float, tiny: bool, diagonal: bool) -> None:
    params = parameters(seed, k, spread)
    if diagonal:
        params["noise_cov"] *= np.eye(k)
    rng = np.random.default_rng(seed + 1)
    std = np.sqrt(np.maximum(np.diagonal(params["noise_cov"], axis1=1, axis2=2), 1e-200))
    exact = ExactMap.from_parameters(**params, grid=NoiseGrid.from_moments(params["means"], std))
    assert exact.diagonal == (diagonal or k == 1)
    answers, normals = [], []
    for label in range(3):
        answer = params["means"][label] * rng.uniform(0.5, 1.5, k) * (1e-290 if tiny else 1.0)
        z = [int(v) << 60 for v in rng.integers(-(2**62), 2**62, k)]
        assert exact.indices(answer.tolist(), label, z) == by_fractions(exact, params, answer, label, z)
        answers.append(answer)
        normals += z
    together = np.ldexp(exact.release(np.array(answers), range(3), normals), -np.array(exact.grid.exponents))
    for label, answer in enumerate(answers):
        assert together[label].tolist() == exact.indices(answer.tolist(), label, normals[label * k : (label + 1) * k])


@pytest.mark.parametrize("spread", [0.0, 4.0])
def test_products_have_one_width_for_every_label(spread: float) -> None:
    """Labels without noise, without a map, with zeros: the same number of 30-bit digits everywhere."""
    for seed in range(5):
        params = parameters(seed, 4, spread)
        params["noise_cov"][0] = np.diag(np.diag(params["noise_cov"][0]))
        exact = ExactMap.from_parameters(**params, grid=NoiseGrid((-20,) * 4))
        assert exact.gain is not None
        for matrices in (exact.gain, exact.factor):
            digits = {-(-value.bit_length() // 30) for rows in matrices for row in rows for value in row}
            assert len(digits) == 1
        assert not any(map(any, exact.noise[2].rows))


def test_without_gain_and_with_one_covariance_for_all() -> None:
    params = parameters(4, 3, 1.0)
    cov = params["noise_cov"][:1]
    grid = NoiseGrid((-20, -20, -20))
    one = ExactMap.from_parameters(params["means"], params["shift"], None, cov, grid)
    params["gain"][:] = 0.0
    all_ = ExactMap.from_parameters(params["means"], params["shift"], params["gain"], np.repeat(cov, 3, axis=0), grid)
    z = [3 << 118, -5 << 116, 7 << 110]
    for label in range(3):
        assert one.indices([0.1, 0.2, 0.3], label, z) == all_.indices([0.1, 0.2, 0.3], label, z)


def test_clamp_is_common_to_all_labels() -> None:
    params = parameters(6, 2, 0.0)
    exact = ExactMap.from_parameters(**params, grid=NoiseGrid((-40, -1074)))
    for label in range(3):
        for sign in (1.0, -1.0):
            out = exact.release(np.array([[sign * 1e308, sign * 1e3]]), [label], [0, 0])
            assert np.isfinite(out).all()
            if label == 1:  # no gain
                assert out[0].tolist() == [sign * 2.0**12, sign * math.ldexp(1.0, 52 - 1074)]


@pytest.mark.parametrize(
    ("means", "std", "exponent"),
    [
        ([[0.0], [0.0]], [[1.0], [8.0]], -20),
        ([[0.0], [0.0]], [[1.9], [0.0]], -20),  # the least positive deviation
        ([[3.0], [0.0]], [[0.0], [0.0]], 2 - 51),  # constants: from their size
        ([[0.0], [0.0]], [[0.0], [0.0]], -20),
        ([[2.0**40], [0.0]], [[1.0], [1.0]], 41 - 51),  # doubles are no finer there
        ([[1e308], [0.0]], [[1e307], [1.0]], 1024 - 51),
        ([[0.0], [0.0]], [[5e-324], [5e-324]], -1074),
    ],
)
def test_grid(means: list[list[float]], std: list[list[float]], exponent: int) -> None:
    grid = NoiseGrid.from_moments(np.array(means), np.array(std))
    assert grid.exponents == (min(exponent, 970),)
    assert grid.steps[0] == math.ldexp(1.0, grid.exponents[0]) > 0
    assert math.isfinite(LIMIT * grid.steps[0])
