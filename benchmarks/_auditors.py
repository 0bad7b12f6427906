"""Auditors of other people, from their papers: released answers about two labels in, a proved lower bound out.

Each takes samples (m, k) of two laws P and Q and an error probability, learns on the first half what to look for, and
counts on the second. Nothing of shoal is used, so that what they find is a second opinion.

- :func:`hockey_stick`: the tester of DP-Auditorium (Kong, Muñoz Medina, Ribero & Syed 2024, arXiv 2307.05608): a small
  network tells P, with weight 1, from Q, with weight e^ε; what it gets right is P(S) − e^ε Q(S) for the event S that it
  calls P, which is at most δ(ε). Hoeffding's inequality makes it a bound.
- :func:`kernel`: its tester by maximum mean discrepancy. A kernel with 0 ≤ k ≤ 1 and k(x, x) = 1 has MMD² ≤ 2 TV², and
  (ε, δ) in both directions bounds TV by (e^ε − 1 + 2δ)/(e^ε + 1) (Kairouz, Oh & Viswanath 2015).
- :func:`sniper`: DP-Sniper (Bichsel, Steffen, Bogunovic & Vechev 2021): the most telling answers by the posterior of a
  logistic classifier, as many as Q gives with probability c; Clopper and Pearson's limits bound both probabilities.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

Array = NDArray[np.float64]


def hockey_stick(first: Array, second: Array, epsilon: float, error: float, seed: int = 0) -> float:
    """A lower bound of δ(ε) from P = law of ``first`` to Q = law of ``second``; below zero it says nothing."""
    (p, q), (p_test, q_test) = _halves(first, second)
    # As many of each as its weight: the sum of P's and Q's mistakes is then what a classifier minimizes.
    share = 1.0 / (1.0 + math.exp(epsilon))
    p, p_test = p[: int(share * len(p))], p_test[: int(share * len(p_test))]
    q, q_test = q[int(share * len(q)) :], q_test[int(share * len(q_test)) :]
    model = make_pipeline(
        StandardScaler(),
        MLPClassifier((12, 12, 12), learning_rate_init=1e-2, batch_size=100, max_iter=3, random_state=seed),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.concatenate([p, q]), np.repeat([1, 0], [len(p), len(q)]))
    gain = float(model.predict(p_test).mean() - math.exp(epsilon) * model.predict(q_test).mean())
    spread = 1.0 / len(p_test) + math.exp(2 * epsilon) / len(q_test)
    return gain - math.sqrt(0.5 * math.log(1 / error) * spread)


def kernel(first: Array, second: Array, epsilon: float, error: float) -> float:
    """A lower bound of the larger δ(ε) of both directions; below zero it says nothing."""
    (p, q), (p_test, q_test) = _halves(first, second)
    width = float(np.median(np.linalg.norm(p - q, axis=1)) ** 2)

    def alike(x: Array, y: Array) -> Array:
        return np.asarray(np.exp(-((x - y) ** 2).sum(axis=1) / width))

    (xa, ya), (xb, yb) = _halves(p_test, q_test)
    terms = alike(xa, xb) + alike(ya, yb) - alike(xa, yb) - alike(xb, ya)
    n, log = len(terms), math.log(2 / error)
    # Empirical Bernstein (Maurer & Pontil 2009) for terms in [-2, 2].
    slack = math.sqrt(2 * float(terms.var(ddof=1)) * log / n) + 28 * log / (3 * (n - 1))
    distance = math.sqrt(max(float(terms.mean()) - slack, 0.0) / 2)
    return (math.expm1(epsilon) * (distance - 1) + 2 * distance) / 2


def sniper(first: Array, second: Array, delta: float, error: float, share: float = 0.05, seed: int = 0) -> float:
    """A lower bound of the ε that holds at δ, from P = law of ``first`` to Q = law of ``second``."""
    (p, q), (p_test, q_test) = _halves(first, second)
    model = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), LogisticRegression(C=1e4))
    model.fit(np.concatenate([p, q]), np.repeat([1, 0], [len(p), len(q)]))
    # The event: all answers above the threshold, and of those at it, as released curves are, a share by lot.
    known = model.decision_function(q)
    threshold = float(np.sort(known)[::-1][int(share * len(known))])
    at, beyond = float((known == threshold).mean()), float((known > threshold).mean())
    lot = min(max((share - beyond) / at, 0.0), 1.0)
    draw = np.random.default_rng([seed, 977])  # a stream of its own: lots must not follow what was drawn

    def hits(samples: Array) -> int:
        score = model.decision_function(samples)
        return int(((score > threshold) | ((score == threshold) & (draw.random(len(score)) < lot))).sum())

    low = _least(hits(p_test), len(p_test), error / 2)
    high = 1 - _least(len(q_test) - hits(q_test), len(q_test), error / 2)
    return math.log((low - delta) / high) if low > delta else -math.inf


def _least(hits: int, trials: int, error: float) -> float:
    """Clopper and Pearson's lower limit of a probability."""
    return float(stats.beta.ppf(error, hits, trials - hits + 1)) if hits else 0.0


def _halves(first: Array, second: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    count = min(len(first), len(second))
    middle = count // 2
    return (first[:middle], second[:middle]), (first[middle : 2 * middle], second[middle : 2 * middle])
