"""Power of tests between two neighbors: f-DP trade-off curves and true positives at fixed false positives.

For every ε, Pr_X(S) ≤ e^ε Pr_X'(S) + δ(ε), so a test with false-positive rate α has

    TPR(α) ≤ α e^ε + δ_{X→X'}(ε)      for every real ε, with equality at the ε where Pr_X'(L > ε) = α

(Neyman–Pearson; Dong, Roth & Su 2022, proposition 2.12). Any ε yields a valid bound, so the answer here is on the safe
side however roughly the best ε is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting import tails
from shoal.accounting.curve import TINIEST, exp_rounded_up, log_delta_brackets
from shoal.accounting.releases import Releases
from shoal.errors import InputError
from shoal.validation import FloatArray

#: Where the best ε is looked for, as its inverse hyperbolic sine: Pr(L > ε) ≤ e^−ε, so none lies above −ln α.
GRID = np.linspace(-10.0, 7.25, 139)
#: Share of an interval that a golden section keeps, and how often it is cut.
GOLDEN, SECTIONS = 0.5 * (np.sqrt(5.0) - 1.0), 40


@dataclass(frozen=True)
class TradeoffCurve:
    """The best test of "the label is ``claim``" against "it is ``instead``".

    ``tpr_upper`` is the largest true-positive rate at each false-positive rate ``fpr``, rounded up, and
    ``fnr_lower`` = 1 − tpr_upper is the f-DP trade-off function f(fpr), rounded down.
    """

    claim: str
    instead: str
    fpr: FloatArray
    tpr_upper: FloatArray

    def __repr__(self) -> str:
        return f"TradeoffCurve({self.claim} against {self.instead}, {np.size(self.fpr)} rates)"

    @property
    def fnr_lower(self) -> FloatArray:
        rest = 1.0 - self.tpr_upper
        return np.asarray(np.where(1.0 - rest < self.tpr_upper, np.nextafter(rest, 0.0), rest))


def tradeoff_curve(classes: Any, claim: Any, instead: Any, fpr: Any = None, *, scope: str = "answer") -> TradeoffCurve:
    """The f-DP trade-off curve of one pair of labels, edge or not. ``fpr`` defaults to 101 rates from 0 to 1.

    TPR(α) ≤ min over ε of α e^ε + δ_{X→X'}(ε), with equality at the best ε (Neyman–Pearson; Dong, Roth & Su 2022).

    Args:
        classes: laws of what was released, or a sequence of independent releases about the same label.
        claim: the label X that the test claims.
        instead: the label X' under which a claim is a false positive.
        fpr: false-positive rates α, a number or a 1-D array.
        scope: ``"answer"``, or ``"table"``: which of two rows is the one label's and which the other's.

    Returns:
        True-positive rates, rounded up, and the f-DP trade-off function, rounded down.

    >>> import shoal
    >>> from evidence.tradeoff import tradeoff_curve
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> curve = tradeoff_curve(classes, "b", "a", fpr=[0.05, 0.5])
    >>> print(curve.tpr_upper.round(4))
    [0.2595 0.8413]
    """
    releases = Releases.collect(classes, scope)
    try:
        pair = np.array([[releases.labels.index(str(name)) for name in (claim, instead)]], dtype=np.intp)
    except ValueError:
        raise InputError("claim and instead must be labels of classes") from None
    if pair[0, 0] == pair[0, 1]:
        raise InputError("claim and instead must be different labels")
    rates = np.linspace(0, 1, 101) if fpr is None else validation.grid(fpr=fpr)[0]
    if (rates > 1).any():
        raise InputError("fpr must lie in [0, 1]")
    offsets = np.zeros((1, releases.n_directions))

    def power(at: FloatArray, alpha: FloatArray) -> FloatArray:
        """α e^ε + δ(ε) at ε = sinh(at), rounded up; 1, which claims nothing, where no δ is certified."""
        epsilon = np.sinh(at)
        upper = log_delta_brackets(releases, pair, tails.DP, epsilon, offsets)[0, 0, :, 2]
        delta = np.where(np.isnan(upper), 1.0, exp_rounded_up(np.where(np.isnan(upper), 0.0, upper)))
        return np.clip((alpha * np.exp(epsilon) + delta) * (1.0 + 1e-15) + TINIEST, alpha, 1.0)

    spectra = releases.spectra(pair)
    if spectra.disjoint[0]:
        return TradeoffCurve(str(claim), str(instead), rates, np.ones(len(rates)))
    if not any(part.any() for part in spectra[:5]):  # equal laws, for certain
        return TradeoffCurve(str(claim), str(instead), rates, rates)
    inside = np.unique(rates[(rates > 0) & (rates < 1)])
    # The bound falls and then rises with ε: the best of a grid, and a golden section between its neighbors.
    delta = power(GRID, np.zeros(len(GRID)))
    best = np.argmin(np.exp(np.sinh(GRID)) * inside[:, None] + delta, axis=1)
    low, high = GRID[np.maximum(best - 1, 0)], GRID[np.minimum(best + 1, len(GRID) - 1)]
    for _ in range(SECTIONS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        first = power(left, inside) <= power(right, inside)
        low, high = np.where(first, low, left), np.where(first, right, high)
    least = np.minimum(power(low, inside), power(high, inside))
    return TradeoffCurve(str(claim), str(instead), rates, np.interp(rates, [0, *inside, 1], [0, *least, 1]))
