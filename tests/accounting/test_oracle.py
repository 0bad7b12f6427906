"""The oracle against formulas that share nothing with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

import cases
import oracle

mp.dps = 40
SPECTRA = {item["name"]: item for item in oracle.load_spectra()}


def close(a: Any, b: Any, digits: float = 24.0) -> bool:
    """Both are logarithms: compare the probabilities, and their complements when they are near 1."""
    with mp.workdps(90):
        if mp.isinf(a) or mp.isinf(b):
            return bool(a == b)
        tol = mpf(10) ** -digits
        return bool(abs(a - b) <= tol * min(mpf(1), max(abs(b), mpf(10) ** -60)) or abs(a - b) <= tol * abs(b))


# One dimension: roots of a quadratic and Φ ---------------------------------------------------------------------


def positive_set(a: mpf, b: mpf, c: mpf) -> list[tuple[mpf, mpf]]:
    """Where aξ² + bξ + c > 0, as intervals."""
    if a == 0:
        if b == 0:
            return [(-mp.inf, mp.inf)] if c > 0 else []
        return [(-c / b, mp.inf)] if b > 0 else [(-mp.inf, -c / b)]
    disc = b * b - 4 * a * c
    if disc <= 0:
        return [(-mp.inf, mp.inf)] if a > 0 else []
    root = mp.sqrt(disc)
    low, high = sorted([(-b - root) / (2 * a), (-b + root) / (2 * a)])
    return [(-mp.inf, low), (high, mp.inf)] if a > 0 else [(low, high)]


def normal_mass(intervals: list[tuple[mpf, mpf]], mean: mpf = 0, scale: mpf = 1) -> mpf:
    """Mass of N(mean, scale²); each interval from the tail it is nearer to."""
    total = mpf(0)
    for low, high in intervals:
        p, q = (low - mean) / scale, (high - mean) / scale
        if p > 0:
            p, q = -q, -p
        root = mp.sqrt(2)
        if q == mp.inf:
            total += mp.erfc(p / root) / 2
        else:
            total += (mp.erfc(-q / root) - (mp.erfc(-p / root) if p != -mp.inf else 0)) / 2
    return total


def one_dimension(gamma: float, nu: float, x: float, dps: int = 120) -> tuple[mpf, mpf]:
    """Pr(L > x) and the hockey-stick divergence at x."""
    with mp.workdps(dps):
        g, v, x = mpf(gamma), mpf(nu), mpf(x)
        region = positive_set((g - 1) / 2, -v * g, g * v * v / 2 - mp.log(g) / 2 - x)
        upper = normal_mass(region)
        return upper, upper - mp.exp(x) * normal_mass(region, v, 1 / mp.sqrt(g))


def log_of(p: mpf, dps: int = 120) -> mpf:
    with mp.workdps(dps):
        return mp.log(p) if p > 0 else -mp.inf


@pytest.mark.parametrize("kind", cases.KINDS)
def test_one_dimension(kind: str) -> None:
    gamma, nu = cases.spectrum_of_kind(kind, 1)
    eps = [float.fromhex(point["eps"]) for point in SPECTRA[f"{kind}-1"]["points"]]
    for x in {*eps[1::4], eps[-1], -0.3}:
        upper, hockey = one_dimension(gamma[0], nu[0], x)
        assert close(oracle.log_hockey(gamma, nu, x), log_of(hockey))
        assert close(oracle.log_upper_tail(gamma, nu, x), log_of(upper))
        if x == eps[-1]:
            with mp.workdps(400):
                assert close(oracle.log_lower_tail(gamma, nu, x), mp.log1p(-upper))


@pytest.mark.parametrize(
    ("gamma", "nu"), [(1 + 1e-12, 0.8), (1 - 1e-12, 0.8), (1 + 1e-12, 1e-6), (3.0, 40.0), (1e-4, 1.0)]
)
def test_one_dimension_extremes(gamma: float, nu: float) -> None:
    for x in (0.0, 1e-3, 2.0, 700.0):
        upper, hockey = one_dimension(gamma, nu, x, 200)
        if 0 < upper < mpf(10) ** -100000:
            continue
        assert close(oracle.log_upper_tail([gamma], [nu], x), log_of(upper, 200))
        assert close(oracle.log_hockey([gamma], [nu], x), log_of(hockey, 200))


def test_near_certainty() -> None:
    """δ = 1 − 1e-12 and nearer to 1: ln δ keeps its relative accuracy."""
    for gamma, nu, x in ((1.0, 16.0, 1.0), (0.7, 14.0, 0.5), (1.9, 12.0, 3.0), (1.0, 60.0, 10.0)):
        _, hockey = one_dimension(gamma, nu, x, 700)
        assert hockey > 1 - mpf(10) ** -9
        assert close(oracle.log_hockey([gamma], [nu], x), log_of(hockey, 700))


# Equal covariances: Φ ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-6, 0.3, 1.0, 5.0, 30.0])
def test_equal_covariances(size: float) -> None:
    rng = np.random.default_rng(3)
    nu = rng.standard_normal(7)
    nu *= size / np.linalg.norm(nu)
    for eps in (0.0, size * size / 2, 1.0 if size > 1e-3 else 1e-5, 40.0 if size > 0.5 else size, 700.0 * (size > 4)):
        with mp.workdps(800):
            eta = mp.sqrt(mp.fsum(mpf(v) ** 2 for v in nu))
            upper = mp.ncdf(eta / 2 - eps / eta)
            hockey = upper - mp.exp(eps) * mp.ncdf(-eta / 2 - eps / eta)
        gamma = np.ones(7)
        assert close(oracle.log_upper_tail(gamma, nu, eps), log_of(upper, 800))
        assert close(oracle.log_hockey(gamma, nu, eps), log_of(hockey, 800))


# Two dimensions: real space ------------------------------------------------------------------------------------


# Every γ equal: noncentral χ² ----------------------------------------------------------------------------------


# Centered, every γ twice: sums of exponentials, exact in any dimension -----------------------------------------


def exponential_sum(rates: list[mpf], x: mpf) -> mpf:
    """Pr(Σ βⱼEⱼ > x) for x ≥ 0, the βⱼ distinct and of any sign, the Eⱼ standard exponential."""
    return mp.fsum(
        mp.exp(-x / b) / mp.fprod(1 - c / b for j, c in enumerate(rates) if j != i)
        for i, b in enumerate(rates)
        if b > 0
    )


@pytest.mark.parametrize("k", [2, 12, 100])
@pytest.mark.parametrize("kind", ["mixed", "spread", "above_one"])
def test_paired_directions(k: int, kind: str) -> None:
    single, _ = cases.spectrum_of_kind(kind, k // 2)
    gamma, nu = np.repeat(single, 2), np.zeros(k)
    for eps in (0.3, 20.0, 200.0):
        with mp.workdps(700):
            g = [mpf(z) for z in single]
            shifted = mpf(eps) + mp.fsum(mp.log(z) for z in g)
            if shifted < 0:
                continue
            upper = exponential_sum([z - 1 for z in g], shifted)
            hockey = upper - mp.exp(eps) * exponential_sum([1 - 1 / z for z in g], shifted)
        assert close(oracle.log_upper_tail(gamma, nu, eps), log_of(upper, 700))
        assert close(oracle.log_hockey(gamma, nu, eps), log_of(hockey, 700))


# The integral itself, written out and integrated along another path --------------------------------------------


# Identities between strips and between the two directions of an edge -------------------------------------------


@pytest.mark.parametrize("kind", cases.KINDS)
def test_identities(kind: str) -> None:
    k = 12 if kind == "mixed" else 4
    gamma, nu = cases.spectrum_of_kind(kind, k)
    with mp.workdps(90):
        back = [1 / mpf(g) for g in gamma]
        away = [-mp.sqrt(mpf(g)) * mpf(v) for g, v in zip(gamma, nu, strict=True)]
        for eps in (0.7, -1.3) if k == 4 else (0.7,):
            delta, rest = (f() for f in oracle._hockey(gamma, nu, eps, 30))
            assert abs(mp.exp(delta) + mp.exp(rest) - 1) < mpf(10) ** -28
            mirrored = mp.exp(eps + oracle.log_hockey(back, away, -eps))
            assert abs(mp.exp(rest) + mirrored - mp.exp(eps)) < mpf(10) ** -27
            upper, lower = (f() for f in oracle._tails(gamma, nu, eps, 30))
            assert abs(mp.exp(upper) + mp.exp(lower) - 1) < mpf(10) ** -28
            # the loss of the reverse edge is −L under the other law
            other = mp.exp(oracle.log_lower_tail(back, away, -eps))
            assert abs(mp.exp(delta) - (mp.exp(upper) - mp.exp(eps) * other)) < mpf(10) ** -27


# Edges of the domain -------------------------------------------------------------------------------------------


def test_bounded_loss() -> None:
    gamma, nu = [0.3, 0.7, 1.0], [0.4, -0.2, 0.0]
    with mp.workdps(60):
        top = sum(
            -mp.log(mpf(g)) / 2 + mpf(g) * mpf(v) ** 2 / (2 * (1 - mpf(g)))
            for g, v in zip(gamma[:2], nu[:2], strict=True)
        )
        back, away = [1 / mpf(g) for g in gamma], [-mp.sqrt(mpf(g)) * mpf(v) for g, v in zip(gamma, nu, strict=True)]
        for x in (top + mpf(10) ** -40, top + 1, 700):
            assert oracle.log_hockey(gamma, nu, x) == -mp.inf
            assert oracle.log_upper_tail(gamma, nu, x) == -mp.inf
            assert oracle.log_lower_tail(gamma, nu, x) == 0
            assert oracle.log_lower_tail(back, away, -x) == -mp.inf
        # close below it the set {L > x} is a small ellipse: its area times the density at its center
        gap = mpf(10) ** -30
        g, v = [mpf(z) for z in gamma[:2]], [mpf(z) for z in nu[:2]]
        center = [-a * b / (1 - a) for a, b in zip(g, v, strict=True)]
        density = mp.exp(-(center[0] ** 2 + center[1] ** 2) / 2) / (2 * mp.pi)
        area = 2 * mp.pi * gap / mp.sqrt((1 - g[0]) * (1 - g[1]))
        assert abs(oracle.log_upper_tail(gamma, nu, top - gap) - mp.log(density * area)) < 1e-27


# Spectrum, Rényi, Chernoff -------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", cases.CONDITIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_spectra_are_those_of_the_matrices(condition: float | str, seed: int) -> None:
    """Rényi divergences from the matrices themselves."""
    mean_a, cov_a, mean_b, cov_b = cases.gaussian_pairs(5, condition, seed)
    gamma, nu = oracle.spectrum(mean_a, cov_a, mean_b, cov_b)
    with mp.workdps(90):
        edge = oracle._edge(gamma, nu)
        for t in (mpf("-0.7"), min(edge.high, mpf(2)) / 2):
            exact = oracle.divergence([mean_a, mean_b], [cov_a, cov_b], 1 + t)
            assert abs(oracle._cumulant(edge, t) / t - exact) < 1e-20


# The committed files -------------------------------------------------------------------------------------------


def test_reference_spectra() -> None:
    assert sum(len(item["points"]) for item in SPECTRA.values()) >= 300
    small = [(item, point) for item in SPECTRA.values() if len(item["gamma"]) <= 12 for point in item["points"]]
    for i in np.random.default_rng(11).choice(len(small), 16, replace=False):
        item, point = small[i]
        eps = float.fromhex(point["eps"])
        assert close(oracle.log_hockey(item["gamma"], item["nu"], eps, 40), mpf(point["hockey"]), 23)
        assert close(oracle.log_upper_tail(item["gamma"], item["nu"], eps, 40), mpf(point["upper"]), 23)
        assert close(oracle.log_lower_tail(item["gamma"], item["nu"], -eps, 40), mpf(point["lower"]), 23)


def test_reference_pairs() -> None:
    items = oracle.load_pairs()
    assert len(items) >= 60
    for item in [item for item in items if len(item["laws"][0]) in (2, 5)][::4]:
        gamma, nu = oracle.spectrum(*item["laws"], dps=80)
        point = item["points"][-1]
        assert close(oracle.log_hockey(gamma, nu, float.fromhex(point["eps"]), 40), mpf(point["hockey"]), 23)
