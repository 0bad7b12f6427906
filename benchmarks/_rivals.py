"""Other people's mechanisms, from their papers, for constants and for Gaussian answers behind isotropic noise.

Where a paper's text was not at hand, its function says what was implemented. All figures are for ``rows`` rows of a
table at once, one for whoever holds a single answer, two for whoever holds the rows of both labels: independent rows
add their Rényi divergences. Nothing here is imported from shoal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import eigh, sqrtm
from scipy.special import betainc, gammaln, logsumexp, ndtr

Array = Any
#: Orders of Rényi divergences, from 1.02 to 4,100.
ORDERS = 1.0 + 2.0 ** np.linspace(-6, 12, 145)


def least(fits: Callable[[float], bool], low: float, high: float) -> float:
    """The least scale that fits, to a thousandth, on the side that fits; ``low`` does not fit and ``high`` does."""
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def renyi_delta(divergences: Array, epsilon: float) -> float:
    """The least δ that divergences at ORDERS prove at ε: Canonne, Kamath & Steinke 2020, proposition 12."""
    a = ORDERS
    with np.errstate(over="ignore"):
        log_delta = (a - 1) * (np.asarray(divergences) - epsilon + np.log1p(-1 / a)) - np.log(a)
    return float(np.exp(min(float(log_delta.min()), 0.0)))


# Noise for shifts: the general Wasserstein mechanism


def analytic_delta(shift: float, epsilon: float) -> float:
    """δ of N(0, 1) against N(shift, 1): Balle & Wang 2018, theorem 8."""
    if shift == 0.0:
        return 0.0
    return float(ndtr(shift / 2 - epsilon / shift) - math.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift))


def gaussian_std(far: float, epsilon: float, delta: float, rows: int) -> float:
    """The analytic Gaussian mechanism on the L2 distance ``far`` between two answers."""
    far *= math.sqrt(rows)
    return least(lambda std: analytic_delta(far / std, epsilon) <= delta, far * 1e-3, far * 1e4)


def wasserstein_gaussian_std(far: float, epsilon: float, delta: float, rows: int) -> float:
    """Gaussian noise by the general Wasserstein mechanism (arXiv 2312.13985): Rényi divergences α far² / 2σ².

    The divergence of noise against noise shifted by at most W∞, which for constants is their distance.
    """
    return least(
        lambda std: renyi_delta(rows * ORDERS * far**2 / (2 * std * std), epsilon) <= delta, far * 1e-3, far * 1e4
    )


def wasserstein_laplace_scale(far_1: float, epsilon: float, rows: int) -> float:
    """Laplace noise by the Wasserstein mechanism of Song, Wang & Chaudhuri 2017: pure ε, W∞ in the L1 norm."""
    return rows * far_1 / epsilon


# Noise for Gaussian laws


def normal_renyi(mean_1: Array, cov_1: Array, mean_2: Array, cov_2: Array) -> Array:
    """Rényi divergences at ORDERS of one normal law against another, infinite where they diverge (Gil et al. 2013).

    With Gaussian noise in the covariances: Rényi Pufferfish under Gaussian priors, the exact divergence that the
    abstract of arXiv 2604.23649 states. Its relaxed closed form only asks for more noise and is left out.
    """
    gamma, vectors = eigh(cov_1, cov_2)
    gap = vectors.T @ (np.asarray(mean_1) - mean_2)
    a = ORDERS[:, None]
    mixed = a + (1 - a) * gamma
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (0.5 * a * gap**2 / mixed - 0.5 * (np.log(mixed) - (1 - a) * np.log(gamma)) / (a - 1)).sum(axis=1)
    return np.where((mixed > 0).all(axis=1), found, np.inf)


def coupled_gap(mean_1: Array, cov_1: Array, mean_2: Array, cov_2: Array) -> tuple[Array, Array]:
    """X − Y of the coupling of two normal laws with the least mean square: independent entries, means and variances.

    Y = μ₂ + T(X − μ₁), T = Σ₁^{−½}(Σ₁^½ Σ₂ Σ₁^½)^½ Σ₁^{−½}.
    """
    root = np.real(sqrtm(cov_1))
    inverse = np.linalg.inv(root)
    rest = np.eye(len(root)) - inverse @ np.real(sqrtm(root @ cov_2 @ root)) @ inverse
    var, vectors = np.linalg.eigh(rest @ cov_1 @ rest.T)
    return vectors.T @ (np.asarray(mean_1) - mean_2), np.maximum(var, 0.0)


def log_moment(mean: Array, var: Array, s: Array) -> Array:
    """ln E e^{s‖D‖²} of independent normal entries, infinite where it diverges."""
    u = 1.0 - 2.0 * np.asarray(s)[..., None] * var
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (np.asarray(s)[..., None] * mean**2 / u - 0.5 * np.log(u)).sum(axis=-1)
    return np.where((u > 0).all(axis=-1), found, np.inf)


def distribution_aware_renyi(mean: Array, var: Array, std: float, rows: int) -> Array:
    """Rényi divergences behind noise of ``std`` from the law of the shift X − Y, not from its largest value.

    e^{(α−1)D} is jointly convex, so ≤ E e^{α(α−1)‖X−Y‖²/2σ²} over any coupling: the distribution-aware general
    Wasserstein mechanism of arXiv 2312.13985, with this expectation in place of a W_p distance that bounds it.
    """
    return rows * log_moment(mean, var, ORDERS * (ORDERS - 1) / (2 * std * std)) / (ORDERS - 1)


def likely_shift(mean: Array, var: Array, miss: float, rows: int) -> float:
    """z with P(‖X − Y‖ > z) ≤ miss over all rows, by the best exponential bound: a few percent above the quantile."""
    s = (1 - 2.0 ** -np.linspace(0.01, 30, 600)) / (2 * max(float(var.max()), 1e-300))
    return math.sqrt(float(((rows * log_moment(mean, var, s) - math.log(miss)) / s).min()))


def approximate_std(mean: Array, var: Array, epsilon: float, delta: float, rows: int) -> float:
    """The approximate general Wasserstein mechanism (arXiv 2312.13985): shifts beyond z are part of δ.

    If ‖X − Y‖ ≤ z but for a probability δ′ of a coupling, noise that is (ε, δ″) for shifts up to z is (ε, δ′ + δ″):
    here the analytic Gaussian mechanism, at the best of some shares δ′/δ.
    """
    return min(
        gaussian_std(likely_shift(mean, var, share * delta, rows), epsilon, (1 - share) * delta, rows=1)
        for share in (0.1, 0.3, 0.5, 0.7, 0.9)
    )


def pac_shape(means: Array, covs: Array) -> Array:
    """(Cov q)^½ over labels drawn evenly: the noise of PAC privacy, but for its size.

    Noise with eigenvalues e in the directions of the eigenvalues λ of Cov q leaves at most ½ Σ λ/e nats of mutual
    information, and the least Σ e for that has e ∝ √λ. PAC privacy: Xiao & Devadas, arXiv 2210.03458, of which the
    abstract was read; the rule was read in the code that the authors of Residual-PAC (arXiv 2506.06530) published.
    """
    means = np.asarray(means)
    within_budget = np.mean(np.broadcast_to(covs, (len(means), *np.shape(covs)[-2:])), axis=0)
    values, vectors = np.linalg.eigh(np.cov(means.T, bias=True).reshape(within_budget.shape) + within_budget)
    return (vectors * np.sqrt(np.maximum(values, 1e-12 * values[-1]))) @ vectors.T


# Sliced


def slices(n: int, k: int, seed: int = 0) -> Array:
    """Uniform directions, one per row."""
    u = np.random.default_rng(seed).standard_normal((n, k))
    return u / np.linalg.norm(u, axis=1, keepdims=True)


def sliced_renyi(squares: Array, std: float, rows: int, joint: bool) -> Array:
    """Rényi divergences of one random projection per row, from the largest squared shift along each direction.

    Sliced Rényi Pufferfish (arXiv 2512.01115), from its abstract: one-dimensional W∞ along each direction, Gaussian
    noise. Average: the mean over directions of their divergences. Joint, as read here: the divergence of direction and
    projection together, 1/(α−1) ln mean e^{(α−1) D(u)}. Neither speaks of an attacker who reads the whole row.
    """
    each = ORDERS[:, None] * squares / (2 * std * std)
    if not joint:
        return rows * each.mean(axis=1)
    mean = logsumexp((ORDERS[:, None] - 1) * each, axis=1) - math.log(len(squares))
    return rows * mean / (ORDERS - 1)


def sliced_std(gaps: Array, epsilon: float, delta: float, rows: int, joint: bool, n_slices: int = 1000) -> float:
    """Noise of the sliced mechanism for the differences of answers in ``gaps``, one per row."""
    squares = ((slices(n_slices, gaps.shape[1]) @ gaps.T) ** 2).max(axis=1)
    far = math.sqrt(float(squares.max()))
    fits = lambda std: renyi_delta(sliced_renyi(squares, std, rows, joint), epsilon) <= delta  # noqa: E731
    return least(fits, far * 1e-3, far * 1e4)


# Local differential privacy


def response_odds(n: int, epsilon: float) -> tuple[float, float]:
    """Randomized response among n: the probabilities of the own value and of each other one."""
    other = 1.0 / (math.exp(epsilon) + n - 1)
    return math.exp(epsilon) * other, other


def cap_share(offset: float, k: int) -> float:
    """The share of the unit sphere in k dimensions with ⟨u, v⟩ ≥ offset ≥ 0."""
    return 0.5 * float(betainc((k - 1) / 2, 0.5, 1.0 - offset**2))


def cap_probability(offset: float, k: int, epsilon: float) -> float:
    """The probability of the cap for which the density ratio of PrivUnit is e^ε exactly: p/A = e^ε (1 − p)/(1 − A)."""
    share = cap_share(offset, k)
    return math.exp(epsilon) * share / (1.0 - share + math.exp(epsilon) * share)


def priv_unit_length(offset: float, k: int, epsilon: float) -> float:
    """E⟨V, u⟩ of PrivUnit's draw V (Bhowmick et al. 2018, algorithm 1): V divided by it has the mean u."""
    share, p = cap_share(offset, k), cap_probability(offset, k, epsilon)
    front = math.exp(float(gammaln(k / 2) - gammaln((k - 1) / 2))) / math.sqrt(math.pi)
    return front * (1 - offset**2) ** ((k - 1) / 2) / (k - 1) * (p / share - (1 - p) / (1 - share))


def priv_unit(k: int, epsilon: float) -> tuple[float, float]:
    """The cap that leaves the least error, and its length: the report is V/length, its mean square 1/length².

    p is exact for the density ratio, where the paper has sufficient conditions: this helps it.
    """
    offsets = np.linspace(0.0, 0.99, 500)
    lengths = [priv_unit_length(float(one), k, epsilon) for one in offsets]
    best = int(np.argmax(lengths))
    return float(offsets[best]), lengths[best]


def priv_unit_draw(unit: Array, offset: float, length: float, p: float, rng: np.random.Generator) -> Array:
    """One report of PrivUnit, by rejection: in the cap around ``unit`` with probability p, outside it else."""
    inside = rng.random() < p
    while True:
        v = rng.standard_normal(len(unit))
        v /= np.linalg.norm(v)
        if (v @ unit >= offset) == inside:
            return v / length


def scalar_report(r: Array, largest: float, epsilon: float, levels: int) -> tuple[Array, Array]:
    """Probabilities per r in [0, largest], and the values: rounded at random, randomized response, debiased.

    ScalarDP (Bhowmick et al. 2018): Ĵ among 0 … levels, r̂ = (Ĵ − b) a, a = (e^ε + levels)/(e^ε − 1) · largest/levels,
    b = levels(levels + 1)/2(e^ε + levels).
    """
    exact = np.asarray(r, dtype=float) / largest * levels
    low = np.minimum(np.floor(exact), levels - 1).astype(int)
    odds = np.zeros((len(exact), levels + 1))
    odds[np.arange(len(exact)), low] = 1 - (exact - low)
    odds[np.arange(len(exact)), low + 1] = exact - low
    own, other = response_odds(levels + 1, epsilon)
    a = (math.exp(epsilon) + levels) / math.expm1(epsilon) * largest / levels
    b = levels * (levels + 1) / 2 / (math.exp(epsilon) + levels)
    return other + (own - other) * odds, a * (np.arange(levels + 1) - b)


def priv_unit_square(answers: Array, epsilon: float) -> Array:
    """Mean squared error per entry of PrivUnit on the direction and ScalarDP on the length, at the best split of ε."""
    n, k = answers.shape
    r = np.linalg.norm(answers, axis=1)
    largest = float(r.max())
    best = np.full(n, np.inf)
    for share in (0.2, 0.35, 0.5, 0.65, 0.8):
        length = priv_unit(k, share * epsilon)[1]
        for levels in (1, 2, 3, 5):
            odds, values = scalar_report(r, largest, (1 - share) * epsilon, levels)
            error = odds @ values**2 / length**2 - r**2
            best = error if error.mean() < best.mean() else best
    return best / k


# No guarantee


def synthetic_profiles(answers: Array, parts: int = 5, draws: int = 100_000) -> tuple[Array, Array]:
    """Profiles from a mixture of normal laws fitted to the logarithms of all homes: many, and one per home.

    A generator of the usual kind; it promises nothing about any home.
    """
    from sklearn.mixture import GaussianMixture

    fitted = GaussianMixture(parts, reg_covar=1e-3, random_state=0).fit(np.log(answers))
    drawn = np.random.default_rng(0).permutation(np.exp(fitted.sample(draws)[0]))
    return drawn, drawn[: len(answers)]


def matched(rows: Array, answers: Array) -> Array:
    """Each answer's row in the assignment with the least squared error, which takes the answers themselves to find."""
    from scipy.optimize import linear_sum_assignment

    away = ((answers[:, None, :] - rows[None, :, :]) ** 2).sum(axis=-1)
    return rows[linear_sum_assignment(away)[1]]
