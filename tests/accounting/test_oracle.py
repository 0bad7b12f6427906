"""The oracle against formulas that share nothing with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpc, mpf
from scipy import stats

import cases
import oracle

mp.dps = 40


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
    eps = [0.0, *cases.epsilons(gamma, nu)]
    for x in {*eps[1::4], eps[-1], -0.3}:
        upper, hockey = one_dimension(gamma[0], nu[0], x)
        assert close(oracle.log_hockey(gamma, nu, x), log_of(hockey))
        assert close(oracle.log_upper_tail(gamma, nu, x), log_of(upper))
        if x == eps[-1]:
            with mp.workdps(400):
                assert close(oracle.log_one_minus_hockey(gamma, nu, x), mp.log1p(-hockey))
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
            bound = -((eps - eta**2 / 2) ** 2) / (2 * eta**2) if eps > eta**2 / 2 else mpf(0)
        gamma = np.ones(7)
        assert close(oracle.log_upper_tail(gamma, nu, eps), log_of(upper, 800))
        assert close(oracle.log_hockey(gamma, nu, eps), log_of(hockey, 800))
        assert abs(oracle.log_chernoff(gamma, nu, eps) - bound) <= 1e-25 * (1 + abs(bound))


def test_gamma_near_one_is_continuous() -> None:
    nu = [0.4, -0.9, 0.2]
    at_one = oracle.log_hockey([1.0] * 3, nu, 1.5)
    for step, bound in ((1e-6, 1e-4), (1e-10, 1e-8), (1e-12, 1e-10)):
        near = oracle.log_hockey([1 + step, 1 - step, 1 + 2 * step], nu, 1.5)
        assert 0 < abs(near - at_one) < bound


# Two dimensions: real space ------------------------------------------------------------------------------------


def two_dimensions(gamma: list[float], nu: list[float], x: float) -> tuple[mpf, mpf]:
    """Integrate over ξ₂ what one dimension gives for ξ₁; split where the section of {L > x} appears or splits."""
    with mp.workdps(45):
        (g, h), (v, w), x = [mpf(z) for z in gamma], [mpf(z) for z in nu], mpf(x)
        a, b = (g - 1) / 2, -v * g
        flat = g * v * v / 2 + h * w * w / 2 - mp.log(g * h) / 2 - x
        changes = [z for ends in positive_set(-2 * a * (h - 1), 4 * a * w * h, b * b - 4 * a * flat) for z in ends]
        inside = [z for z in changes if abs(z) < 16]
        reach = mpf(16)
        knots = sorted({-reach, mpf(-3), mpf(3), reach, *inside})

        def both(z: mpf) -> tuple[mpf, mpf]:
            region = positive_set(a, b, flat + (h - 1) / 2 * z * z - w * h * z)
            return normal_mass(region) * mp.npdf(z), normal_mass(region, v, 1 / mp.sqrt(g)) * mp.npdf(
                z, w, 1 / mp.sqrt(h)
            )

        upper = mp.quad(lambda z: both(z)[0], knots)
        return upper, upper - mp.exp(x) * mp.quad(lambda z: both(z)[1], knots)


@pytest.mark.parametrize(
    ("gamma", "nu", "x"),
    [([2.5, 0.6], [0.7, -0.4], 1.0), ([1.4, 3.0], [-0.5, 0.9], 2.0), ([0.5, 0.8], [1.0, 0.6], 0.4)],
)
def test_two_dimensions(gamma: list[float], nu: list[float], x: float) -> None:
    upper, hockey = two_dimensions(gamma, nu, x)
    assert close(oracle.log_upper_tail(gamma, nu, x), log_of(upper), 20)
    assert close(oracle.log_hockey(gamma, nu, x), log_of(hockey), 20)


# Every γ equal: noncentral χ² ----------------------------------------------------------------------------------


def noncentral_upper(k: int, noncentrality: mpf, point: mpf) -> mpf:
    """Pr(χ'²_k > point) as a Poisson mixture of Γ tails."""
    half, total, weight, j = noncentrality / 2, mpf(0), mp.exp(-noncentrality / 2), 0
    tail = mp.gammainc(mpf(k) / 2, point / 2, mp.inf, regularized=True)
    shape = mpf(k) / 2
    bump = mp.exp(shape * mp.log(point / 2) - point / 2 - mp.loggamma(shape + 1))
    while j < 40 or weight > mpf(10) ** -mp.dps * total:
        total += weight * tail
        tail, bump = tail + bump, bump * (point / 2) / (shape + j + 1)
        j += 1
        weight *= half / j
    return total


@pytest.mark.parametrize(("k", "gamma", "scale"), [(3, 1.7, 0.8), (12, 1.2, 0.5), (12, 0.6, 0.5), (100, 1.5, 0.1)])
def test_noncentral_chi_square(k: int, gamma: float, scale: float) -> None:
    rng = np.random.default_rng(k)
    nu = scale * rng.standard_normal(k)
    for x in (0.3, 9.0):
        with mp.workdps(60):
            g, b = mpf(gamma), mpf(gamma) - 1
            square = mp.fsum(mpf(v) ** 2 for v in nu)
            constant = -k * mp.log(g) / 2 + g * square / 2 - g * g * square / (2 * b)
            point = 2 * (x - constant) / b
            lam = square * g * g / (b * b)
            if point <= 0:
                expected, rough = (-mp.inf, -math.inf) if b < 0 else (mpf(0), 0.0)
            else:
                above = noncentral_upper(k, lam, point)
                expected = mp.log(above) if b > 0 else mp.log1p(-above)
                law = stats.ncx2(k, float(lam))
                rough = float(law.logsf(float(point)) if b > 0 else law.logcdf(float(point)))
        value = oracle.log_upper_tail([gamma] * k, nu, x)
        assert close(value, expected, 22)
        if expected > -20:
            assert float(value) == pytest.approx(rough, rel=1e-6, abs=1e-9)


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
    targets = (-0.01, -5.0, -690.0) if k < 50 else (-5.0, -300.0)
    for eps in cases.epsilons(gamma, nu, targets):
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


def by_quadrature(gamma: Any, nu: Any, x: float, c: float, turn: int, pole: Callable[[Any], Any]) -> mpf:
    """Up a vertical segment from c, then along a ray; Gauss–Legendre, K as it stands in the theory."""
    with mp.workdps(40):

        def integrand(t: Any) -> Any:
            total = -t * x
            for g, v in zip(gamma, nu, strict=True):
                g, v = mpf(float(g)), mpf(float(v))
                u = 1 - t * (g - 1)
                total += -t * mp.log(g) / 2 - mp.log(u) / 2 + t * (1 + t) * g * v * v / (2 * u)
            return mp.exp(total) / pole(t)

        start, corner = mpf(c), mpc(c, 1.3 * c)
        direction = mpc(0.4 * turn, 1)
        stops = [corner + direction * z * c for z in (0, 1, 3, 8, 20, 60, 200, 1000)]
        total = mp.quad(integrand, [start, (start + corner) / 2, *stops], method="gauss-legendre")
        return mp.im(total) / mp.pi


@pytest.mark.parametrize(("kind", "k", "eps", "c", "turn"), [("mixed", 5, 9.0, 0.31, 1), ("above_one", 3, 6.0, 0.5, 1)])
def test_other_path(kind: str, k: int, eps: float, c: float, turn: int) -> None:
    gamma, nu = cases.spectrum_of_kind(kind, k)
    assert c < 1 / (gamma.max() - 1)
    hockey = by_quadrature(gamma, nu, eps, c, turn, lambda t: t * (t + 1))
    upper = by_quadrature(gamma, nu, eps, c, turn, lambda t: t)
    assert close(oracle.log_hockey(gamma, nu, eps), log_of(hockey), 20)
    assert close(oracle.log_upper_tail(gamma, nu, eps), log_of(upper), 20)


# Identities between strips and between the two directions of an edge -------------------------------------------


@pytest.mark.parametrize("kind", cases.KINDS)
def test_identities(kind: str) -> None:
    k = 12 if kind == "mixed" else 4
    gamma, nu = cases.spectrum_of_kind(kind, k)
    with mp.workdps(90):
        back = [1 / mpf(g) for g in gamma]
        away = [-mp.sqrt(mpf(g)) * mpf(v) for g, v in zip(gamma, nu, strict=True)]
        for eps in (0.7, -1.3) if k == 4 else (0.7,):
            delta, rest, excess = (f() for f in oracle._hockey(gamma, nu, eps, 30))
            assert abs(mp.exp(delta) + mp.exp(rest) - 1) < mpf(10) ** -28
            assert abs(mp.exp(rest) + mp.exp(excess) - mp.exp(eps)) < mpf(10) ** -28
            mirrored = oracle.log_hockey(back, away, -eps)
            assert abs(excess - eps - mirrored) < mpf(10) ** -28 * max(1, abs(mirrored))
            upper, lower = (f() for f in oracle._tails(gamma, nu, eps, 30))
            assert abs(mp.exp(upper) + mp.exp(lower) - 1) < mpf(10) ** -28
            # the loss of the reverse edge is −L under the other law
            other = mp.exp(oracle.log_lower_tail(back, away, -eps))
            assert abs(mp.exp(delta) - (mp.exp(upper) - mp.exp(eps) * other)) < mpf(10) ** -27


def test_digits() -> None:
    """More digits change the precision, the nodes and often the path, never the value."""
    for case in cases.spectrum_cases((3, 12), ("mixed", "spread")):
        for eps in case.eps[1::4]:
            assert close(
                oracle.log_hockey(case.gamma, case.nu, eps), oracle.log_hockey(case.gamma, case.nu, eps, 45), 28
            )


def test_composition_adds() -> None:
    """Order and grouping of the concatenated directions cannot matter, and idle directions change nothing."""
    gamma, nu = cases.spectrum_of_kind("mixed", 5)
    value = oracle.log_hockey(gamma, nu, 2.0)
    assert close(oracle.log_hockey([*gamma[::-1], 1.0, 1.0], [*nu[::-1], 0.0, 0.0], 2.0), value, 28)
    # k repeats of the same equal-covariance release are one release with √k times the shift
    assert close(oracle.log_hockey([1.0] * 9, [0.5] * 9, 1.0), oracle.log_hockey([1.0], [1.5], 1.0), 28)


# Edges of the domain -------------------------------------------------------------------------------------------


def test_equal_laws() -> None:
    one, zero = [1.0, 1.0], [0.0, 0.0]
    for f, values in (
        (oracle.log_hockey, {0.0: -mp.inf, 1.0: -mp.inf}),
        (oracle.log_upper_tail, {-1.0: 0, 0.0: -mp.inf, 1.0: -mp.inf}),
        (oracle.log_lower_tail, {-1.0: -mp.inf, 0.0: -mp.inf, 1.0: 0}),
        (oracle.log_one_minus_hockey, {0.0: 0, 1.0: 0}),
    ):
        for x, expected in values.items():
            assert f(one, zero, x) == expected
    assert close(oracle.log_hockey(one, zero, -1.0), mp.log(1 - mp.exp(-1)))
    assert oracle.renyi(one, zero, 3.0) == 0


def test_bounded_loss() -> None:
    gamma, nu = [0.3, 0.7, 1.0], [0.4, -0.2, 0.0]
    with mp.workdps(60):
        top = sum(
            -mp.log(mpf(g)) / 2 + mpf(g) * mpf(v) ** 2 / (2 * (1 - mpf(g)))
            for g, v in zip(gamma[:2], nu[:2], strict=True)
        )
        back, away = [1 / mpf(g) for g in gamma], [-mp.sqrt(mpf(g)) * mpf(v) for g, v in zip(gamma, nu, strict=True)]
        assert close(oracle.renyi(gamma, nu, mp.inf), top)
        for x in (top + mpf(10) ** -40, top + 1, 700):
            assert oracle.log_hockey(gamma, nu, x) == -mp.inf
            assert oracle.log_upper_tail(gamma, nu, x) == -mp.inf
            assert oracle.log_chernoff(gamma, nu, x) == -mp.inf
            assert oracle.log_lower_tail(gamma, nu, x) == 0
            assert oracle.log_one_minus_hockey(gamma, nu, x) == 0
            assert oracle.log_lower_tail(back, away, -x) == -mp.inf
        # close below it the set {L > x} is a small ellipse: its area times the density at its center
        gap = mpf(10) ** -30
        g, v = [mpf(z) for z in gamma[:2]], [mpf(z) for z in nu[:2]]
        center = [-a * b / (1 - a) for a, b in zip(g, v, strict=True)]
        density = mp.exp(-(center[0] ** 2 + center[1] ** 2) / 2) / (2 * mp.pi)
        area = 2 * mp.pi * gap / mp.sqrt((1 - g[0]) * (1 - g[1]))
        assert abs(oracle.log_upper_tail(gamma, nu, top - gap) - mp.log(density * area)) < 1e-27


def test_far_below_any_float() -> None:
    value = oracle.log_hockey([1.0, 1.0], [3e-5, 4e-5], 3.0)
    assert float(value) == pytest.approx(-((3.0 / 5e-5 - 2.5e-5) ** 2) / 2, rel=1e-7)
    assert oracle.log_hockey([1.3, 0.6], [1e-7, 1e-7], 700.0) > -mp.inf


# Spectrum, Rényi, Chernoff -------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", cases.CONDITIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_spectrum_and_renyi(condition: float | str, seed: int) -> None:
    """Rényi divergences from the matrices themselves."""
    k = 5
    pair = cases.gaussian_pairs(k, condition, seed)
    gamma, nu = oracle.spectrum(*pair)
    with mp.workdps(90):
        a, b = oracle._matrix(pair[1], k), oracle._matrix(pair[3], k)
        shift = mp.matrix([mpf(y) - mpf(x) for x, y in zip(pair[0].tolist(), pair[2].tolist(), strict=True)])
        limit = max(gamma) / (max(gamma) - 1) if max(gamma) > 1 else mp.inf
        for order in (mpf("0.3"), (1 + min(limit, mpf(3))) / 2):
            mixed = (1 - order) * a + order * b
            quad = (shift.T * mp.lu_solve(mixed, shift))[0]
            logs = mp.log(mp.det(mixed)) - (1 - order) * mp.log(mp.det(a)) - order * mp.log(mp.det(b))
            assert abs(oracle.renyi(gamma, nu, order) - (order * quad / 2 - logs / (2 * (order - 1)))) < 1e-20
        kl = ((shift.T * mp.lu_solve(b, shift))[0] - k + mp.log(mp.det(b) / mp.det(a))) / 2
        inverse = b**-1
        kl += mp.fsum(inverse[i, j] * a[j, i] for i in range(k) for j in range(k)) / 2
        assert abs(oracle.renyi(gamma, nu, 1) - kl) < 1e-20 * (1 + kl)
        if limit < mp.inf:
            assert oracle.renyi(gamma, nu, limit * (1 + mpf(10) ** -20)) == mp.inf


def test_chernoff() -> None:
    for kind in ("mixed", "above_one", "below_one", "some_ones"):
        gamma, nu = cases.spectrum_of_kind(kind, 3)
        mean = float(oracle.renyi(gamma, nu, 1))
        assert oracle.log_chernoff(gamma, nu, mean - 0.1) == 0
        x = mean + 0.4 * min(4.0, cases.supremum(gamma, nu) - mean)
        bound = oracle.log_chernoff(gamma, nu, x)
        high = 1.0 / (gamma.max() - 1.0) if gamma.max() > 1.0 else 60.0
        grid = [oracle.cumulant(gamma, nu, t) - x * t for t in np.linspace(0.0, high, 402)[1:-1]]
        assert bound <= min(grid) < bound + 1e-3 * (1 + abs(bound))
        assert oracle.log_hockey(gamma, nu, x) < oracle.log_upper_tail(gamma, nu, x) < bound


# Monte Carlo from the laws themselves --------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 12])
def test_monte_carlo(k: int) -> None:
    mean_a, cov_a, mean_b, cov_b = cases.gaussian_pairs(k, 1e2, 0)
    gamma, nu = oracle.spectrum(mean_a, cov_a, mean_b, cov_b)
    rng = np.random.default_rng(5)
    sample = mean_a + rng.standard_normal((1_000_000, k)) @ np.linalg.cholesky(cov_a).T

    def log_density(mean: Any, cov: Any) -> Any:
        half = np.linalg.cholesky(cov)
        scaled = (sample - mean) @ np.linalg.inv(half).T
        return -0.5 * (scaled * scaled).sum(axis=1) - np.log(np.diag(half)).sum()

    loss = log_density(mean_a, cov_a) - log_density(mean_b, cov_b)
    for eps in (0.2, 1.5):
        for values, log_value in (
            (loss > eps, oracle.log_upper_tail(gamma, nu, eps)),
            (loss < -eps, oracle.log_lower_tail(gamma, nu, -eps)),
            (np.abs(loss) > eps, oracle.log_two_sided(gamma, nu, eps)),
            (np.maximum(-np.expm1(eps - loss), 0.0), oracle.log_hockey(gamma, nu, eps)),
        ):
            error = values.std() / math.sqrt(len(loss))
            assert abs(values.mean() - float(mp.exp(log_value))) < 4.5 * error


# The committed files -------------------------------------------------------------------------------------------


def test_reference_spectra() -> None:
    items = oracle.load_spectra()
    points = [(item, point) for item in items for point in item.points]
    assert len(points) >= 300
    rng = np.random.default_rng(11)
    small = [pair for pair in points if len(pair[0].gamma) <= 12]
    for i in rng.choice(len(small), 8, replace=False):
        item, point = small[i]
        eps = float.fromhex(point["eps"])
        assert close(oracle.log_hockey(item.gamma, item.nu, eps, 40), mpf(point["hockey"]), 23)
        assert close(oracle.log_upper_tail(item.gamma, item.nu, eps, 40), mpf(point["upper"]), 23)
        assert close(oracle.log_lower_tail(item.gamma, item.nu, -eps, 40), mpf(point["lower"]), 23)


def test_reference_pairs() -> None:
    items = oracle.load_pairs()
    assert len(items) >= 60
    for item in [item for item in items if len(item.mean_a) in (2, 5)][::4]:
        gamma, nu = oracle.spectrum(item.mean_a, item.cov_a, item.mean_b, item.cov_b, 80)
        point = item.points[-1]
        eps = float.fromhex(point["eps"])
        assert close(oracle.log_hockey(gamma, nu, eps, 40), mpf(point["hockey"]), 23)


def test_reference_files_agree_with_identities() -> None:
    """δ ≤ Pr(L > ε) everywhere, and every value is a logarithm of a probability."""
    for item in [*oracle.load_spectra(), *oracle.load_pairs()]:
        for point in item.points:
            hockey, upper, lower = (mpf(point[key]) for key in ("hockey", "upper", "lower"))
            assert hockey <= upper <= 0
            assert lower <= 0
