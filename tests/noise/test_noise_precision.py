"""The bound on total variation against brute force, at resolutions coarse enough for it to matter."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from shoal.noise.grid import edge_delta_increase, label_total_variation, normal_total_variation
from shoal.noise.source import RESOLUTION, Resolution
from shoal.validation import FloatArray


def atoms(resolution: Resolution) -> tuple[FloatArray, FloatArray]:
    """Every value of z with its probability: discrete Gaussian, two words, all combinations."""
    sigma, f = 2**resolution.scale_bits, 2**resolution.fine_bits
    n = np.arange(-10 * sigma, 10 * sigma + 1)
    p = np.exp(-(n**2) / (2 * sigma**2))
    found: dict[int, float] = {}
    for whole, mass in zip(n.tolist(), (p / p.sum()).tolist(), strict=True):
        for one in range(f):
            for two in range(f):
                z = resolution.combine(whole, one, two)
                found[z] = found.get(z, 0.0) + mass / f**2
    return np.array(list(found)) / 2.0**resolution.unit_bits, np.array(list(found.values()))


def rounded_tv(resolution: Resolution, a: float, c: float, step: float) -> float:
    """True total variation between round(c + a z') and round(c + a z), z standard normal."""
    z, p = atoms(resolution)
    index = np.floor((c + a * z) / step + 0.5).astype(int)
    low, high = index.min() - 2, index.max() + 2
    drawn = np.bincount(index - low, weights=p, minlength=high - low + 1)
    edges = ((np.arange(low, high + 2) - 0.5) * step - c) / a
    return 0.5 * float(np.abs(drawn - np.diff(stats.norm.cdf(edges))).sum())


CASES = [
    (Resolution(2, 0), 1.0, 0.0, 0.3),
    (Resolution(3, 0), 1.0, 0.37, 0.11),
    (Resolution(3, 2), 0.7, -0.2, 0.05),
    (Resolution(1, 2), 2.5, 0.1, 1.0),
    (Resolution(4, 1), 1.3, 0.013, 2.0),
    (Resolution(1, 5), 1.0, 0.5, 4.0),
    (Resolution(2, 4), 0.01, 0.499, 1.0),
    (Resolution(2, 3), 0.01, 0.5, 1.0),
]


@pytest.mark.parametrize(("resolution", "a", "c", "step"), CASES)
def test_bound_covers_brute_force(resolution: Resolution, a: float, c: float, step: float) -> None:
    bound = label_total_variation(np.array([[a]]), np.array([step]), resolution)[0]
    assert rounded_tv(resolution, a, c, step) <= bound


def test_bound_is_not_absurdly_loose() -> None:
    """Worst offset of the grid; where both sides of the bound count."""
    for resolution, a, step in [
        (Resolution(3, 0), 1.0, 0.3),
        (Resolution(4, 0), 1.0, 0.2),
        (Resolution(1, 5), 1.0, 1.0),
        (Resolution(3, 0), 0.05, 1.0),
    ]:
        true = max(rounded_tv(resolution, a, c, step) for c in np.linspace(0, step, 23))
        bound = label_total_variation(np.array([[a]]), np.array([step]), resolution)[0]
        assert true <= bound <= 20 * true


@pytest.mark.parametrize("resolution", [Resolution(1, 1), Resolution(2, 0)])
def test_two_entries_with_correlated_noise(resolution: Resolution) -> None:
    """c + A z in the plane, cell by cell: the ideal mass of a cell is an integral over the first normal."""
    a = np.array([[1.0, 0.0], [0.8, 0.6]])
    steps, c = np.array([0.7, 0.9]), np.array([0.11, -0.23])
    z, p = atoms(resolution)
    one, two = np.meshgrid(z, z, indexing="ij")
    mass = p[:, None] * p[None, :]
    i = np.floor((c[0] + one) / steps[0] + 0.5).astype(int)
    j = np.floor((c[1] + a[1, 0] * one + a[1, 1] * two) / steps[1] + 0.5).astype(int)
    reach = 30
    drawn = np.zeros((2 * reach + 1, 2 * reach + 1))
    np.add.at(drawn, (i + reach, j + reach), mass)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    ideal = np.zeros_like(drawn)
    walls = (np.arange(-reach, reach + 2) - 0.5) * steps[1]
    for row in range(-reach, reach + 1):
        left = (row - 0.5) * steps[0] - c[0]
        x = left + 0.5 * steps[0] * (nodes + 1)
        density = stats.norm.pdf(x) * weights * 0.5 * steps[0]
        cells = np.diff(stats.norm.cdf((walls[None, :] - c[1] - a[1, 0] * x[:, None]) / a[1, 1]), axis=1)
        ideal[row + reach] = density @ cells
    assert ideal.sum() == pytest.approx(1.0, abs=1e-9)
    true = 0.5 * np.abs(drawn - ideal).sum()
    bound = label_total_variation(np.array([[1.0, 1.0]]), steps, resolution)[0]
    assert 1e-3 < true <= bound <= 20 * true


@pytest.mark.parametrize("bits", [0, 1, 2, 3])
def test_interpolated_density(bits: int) -> None:
    """Piecewise linear density through the discrete Gaussian's masses against the normal density, by quadrature."""
    sigma = 2**bits
    n = np.arange(-12 * sigma, 12 * sigma + 1)
    p = np.exp(-(n**2) / (2 * sigma**2))
    p /= p.sum()
    x = np.linspace(-11 * sigma, 11 * sigma, 400_001)
    gap = np.abs(np.interp(x, n, p) - stats.norm.pdf(x, scale=sigma))
    true = 0.5 * float(gap.sum() * (x[1] - x[0]))
    bound = normal_total_variation(Resolution(bits, 0))
    assert true <= bound <= 1.7 * true


def test_ordinary_mechanisms_lose_next_to_nothing() -> None:
    assert normal_total_variation() < 2e-35
    assert label_total_variation(np.ones((1, 12)), np.full(12, 2.0**-20))[0] < 1e-28
    assert label_total_variation(np.full((1, 12), 1e6), np.full(12, 2.0**-20))[0] < 1e-21


def test_formula_at_the_released_resolution() -> None:
    """The same bound in 50 digits: what is returned lies above it, and barely."""
    mpmath.mp.dps = 50
    s, step = [0.3, 0.0, 2.0], [2.0**-22, 1.0, 2.0**-19]
    t = mpmath.exp(mpmath.mpf(-1) / 2) / mpmath.sqrt(2 * mpmath.pi) / 4 * mpmath.mpf(2) ** (-2 * 56)
    exact = 3 * t + mpmath.mpf(2) ** -142
    for si, gi in zip(s, step, strict=True):
        if si:
            exact += 2 * mpmath.mpf(2) ** -120 * mpmath.sqrt(3) * (si / gi + mpmath.mpf("0.4"))
    found = label_total_variation(np.array([s]), np.array(step))[0]
    assert exact <= found <= exact * (1 + mpmath.mpf(10) ** -11)
    assert RESOLUTION.unit_bits == 120


def test_no_noise_no_loss() -> None:
    assert label_total_variation(np.zeros((2, 3)), np.ones(3)).tolist() == [0.0, 0.0]


def test_edge_loss() -> None:
    tv = np.array([1e-20, 3e-20, 0.0, 1.0])
    pairs = np.array([[0, 1], [2, 0]])
    wanted = 1e-20 + math.exp(1.0) * 3e-20
    assert wanted <= edge_delta_increase(tv, pairs, np.array([1.0, 0.0])) <= wanted * (1 + 1e-11)
    assert edge_delta_increase(tv, np.array([[1, 0]]), np.array([1.0])) == edge_delta_increase(
        tv, pairs[:1], np.array([1.0])
    )
    assert edge_delta_increase(tv, np.array([[2, 2]]), np.array([1e9])) == 0.0
    assert edge_delta_increase(tv, np.array([[0, 1]]), np.array([1e9])) == 1.0
    assert edge_delta_increase(tv, np.array([[2, 3]]), np.array([0.0])) == 1.0
