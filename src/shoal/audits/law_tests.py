"""Are released answers distributed as claimed? Exact tests on whitened residuals.

An attack on the worst edge does not notice a little too little noise: 5 % less variance hardly moves a δ of 0.1. The
residuals z = T⁻¹(q̃ − μ̃) of a label's answers are N(0, I) if the claim holds, in r directions that vary, so with m
answers:

- Σ‖z − z̄‖² ~ χ² with (m − 1) r degrees of freedom; summed over labels, χ² again;
- along a direction u chosen on the first half of the answers, Σ(uᵀz − mean)² over the second half ~ χ²_{m/2 − 1};
- for two sequences that should be independent, with u, v chosen on the first half, Σ(uᵀx + vᵀy)²/Σ(uᵀx − vᵀy)² over
  the second half, means removed, is an F variable;
- for answers l steps between, S = Σ zᵢ·z_{i+l} over E products has ln E e^{θS} ≤ θ²E/2(1 − 2θ) (it is a quadratic form
  whose matrix has eigenvalues within ±1 and squares summing to E/2), so S > √(2Eu) + 2u has probability below e^{−u}.

Each p-value is exact, or an upper bound, if the claim is true.
"""

from __future__ import annotations

import numpy as np
import scipy

from shoal.audits.attacks import ResidualLaws, split_in_halves
from shoal.audits.confidence import SHARES
from shoal.audits.results import Discrepancy
from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray, IndexArray


def find_law_violations(
    claim: ResidualLaws, labels: tuple[str, ...], residuals: list[FloatArray], pairs: IndexArray, error: float
) -> list[Discrepancy]:
    """Return the findings of every test of this page, which share ``error``.

    ``residuals`` (m, k) of each label are whitened by its claimed law; ``pairs`` are the edges looked at.
    """
    n = len(labels)
    varying = [z[:, ~claim.null[i]] for i, z in enumerate(residuals)]
    dependence_level = error * SHARES["dependence"] / (n + len(pairs))
    findings: list[Discrepancy] = []
    total, degrees = 0.0, 0
    for i, z in enumerate(varying):
        if z.shape[1]:
            findings += _find_missing_spread(labels[i], z, error * SHARES["spread"] / (2 * n))
            total += float(((z - z.mean(axis=0)) ** 2).sum())
            degrees += (len(z) - 1) * z.shape[1]
    if degrees:
        p = float(scipy.stats.chi2.cdf(total, degrees))
        if p < error * SHARES["overall"]:
            findings.append(Discrepancy("too little spread", (), {"variance ratio": total / degrees, "p": p}))
    for a, b in pairs:
        findings += _find_dependence((labels[a], labels[b]), varying[a], varying[b], dependence_level)
    for i, z in enumerate(varying):
        if z.shape[1]:
            findings += _find_reused_noise(labels[i], z, dependence_level)
    return findings


def _find_missing_spread(label: str, z: FloatArray, level: float) -> list[Discrepancy]:
    """Return findings where one label's residuals z (m, r) vary too little, in all or in their narrowest direction."""
    (m, r), (first, second) = z.shape, split_in_halves(z)
    sums = [("variance ratio", float(((z - z.mean(axis=0)) ** 2).sum()), (m - 1) * r)]
    if r > 1:
        centered = first - first.mean(axis=0)
        along = second @ eigh(centered.T @ centered)[1][:, 0]
        square = float(((along - along.mean()) ** 2).sum())
        sums.append(("variance ratio in one direction", square, len(second) - 1))
    found = [(name, square / df, float(scipy.stats.chi2.cdf(square, df))) for name, square, df in sums]
    return [
        Discrepancy("too little spread", (label,), {name: ratio, "n": m, "p": p})
        for name, ratio, p in found
        if p < level
    ]


def _find_dependence(names: tuple[str, ...], x: FloatArray, y: FloatArray, level: float) -> list[Discrepancy]:
    """Return a finding where answers of two labels at the same place of their sequences are correlated."""
    m = min(len(x), len(y))
    if m < 4 or not x.shape[1] or not y.shape[1]:
        return []
    (x1, x2), (y1, y2) = split_in_halves(x[:m]), split_in_halves(y[:m])
    left, _, right = np.linalg.svd((x1 - x1.mean(axis=0)).T @ (y1 - y1.mean(axis=0)))
    p_along, q_along = x2 @ left[:, 0], y2 @ right[0]
    p_along, q_along = p_along - p_along.mean(), q_along - q_along.mean()
    plus, minus = float(((p_along + q_along) ** 2).sum()), float(((p_along - q_along) ** 2).sum())
    ratio = plus / minus if minus > 0 else np.inf if plus > 0 else 0.0
    p = float(scipy.stats.f.sf(ratio, len(p_along) - 1, len(p_along) - 1))
    if p >= level:
        return []
    return [Discrepancy("dependence", names, {"correlation": (plus - minus) / (plus + minus), "p": p})]


def _find_reused_noise(label: str, z: FloatArray, level: float) -> list[Discrepancy]:
    """Return a finding where answers of one label, any number of steps between, are correlated."""
    m, r = z.shape
    size = 2 ** int(np.ceil(np.log2(2 * m)))

    def lag_products(values: FloatArray) -> FloatArray:
        """Return Σᵢ zᵢ·z_{i+l} for the lags l = 1, 2, …, by the Fourier transform."""
        power = (np.abs(np.fft.rfft(values, size, axis=0)) ** 2).sum(axis=1)
        return np.asarray(np.fft.irfft(power, size)[1:m])

    pairs = r * np.arange(m - 1, 0, -1.0)
    # Other means, or more spread, than claimed would look like a dependence: it must show without them too.
    centered = z - z.mean(axis=0)
    sums = np.minimum(lag_products(z), lag_products(centered)) / max(float((centered**2).mean()), 1.0)
    u = np.log((m - 1) / level)
    excess = sums - np.sqrt(2 * pairs * u) - 2 * u
    lag = int(np.argmax(excess))
    if excess[lag] <= 0:
        return []
    return [
        Discrepancy("dependence", (label,), {"steps between": lag + 1, "correlation": float(sums[lag] / pairs[lag])})
    ]
