"""Power of tests between two neighbors: f-DP trade-off curves and true positives at fixed false positives.

For every ε, Pr_X(S) ≤ e^ε Pr_X'(S) + δ(ε), so a test with false-positive rate α has

    TPR(α) ≤ α e^ε + δ_{X→X'}(ε)      for every real ε, with equality at the ε where Pr_X'(L > ε) = α

(Neyman–Pearson; Dong, Roth & Su 2022, proposition 2.12). Any ε yields a valid bound, so the answer here is on the safe
side however roughly the best ε is found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import rounding, validation
from shoal.accounting.curve import TINIEST
from shoal.accounting.edges import EdgeBatch, loss_law
from shoal.accounting.generating import HOCKEY, LEFT, RIGHT, TAIL, LossLaw, slopes
from shoal.accounting.releases import Releases
from shoal.accounting.tails import is_trivial, tail
from shoal.errors import InputError
from shoal.numerics.compilation import kernel
from shoal.plaintext import table
from shoal.validation import FloatArray


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

    def _repr_html_(self) -> str:
        pairs = zip(np.atleast_1d(self.fpr), np.atleast_1d(self.tpr_upper), strict=True)
        rows = [(rounding.exactly(wrong), rounding.upper(right)) for wrong, right in pairs]
        return table(repr(self), ("wrong claims", "right claims, at most"), rows)

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
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> curve = shoal.tradeoff_curve(classes, "b", "a", fpr=[0.05, 0.5])
    >>> print(curve.tpr_upper.round(4))
    [0.2595 0.8413]
    """
    releases = Releases.of(classes, scope)
    a, b = (_position(releases, name) for name in (claim, instead))
    if a == b:
        raise InputError("claim and instead must be different labels")
    rates = np.linspace(0, 1, 101) if fpr is None else validation.grid(fpr=fpr)[0]
    if (rates > 1).any():
        raise InputError("fpr must lie in [0, 1]")
    power = np.empty(len(rates))
    _fill_rates(rates, releases.spectra(np.array([[a, b]], dtype=np.intp), precise=True), power)
    return TradeoffCurve(str(claim), str(instead), rates, power)


def _position(releases: Releases, name: Any) -> int:
    try:
        return releases.labels.index(str(name))
    except ValueError:
        raise InputError("claim and instead must be labels of classes") from None


@kernel
def _fill_rates(rates: FloatArray, pair: EdgeBatch, out: FloatArray) -> None:
    """The largest true-positive rate at each false-positive rate, of the one pair in the forward direction."""
    if pair.disjoint[0]:
        out[:] = 1.0
        return
    forth, back = loss_law(pair, 0, 0), loss_law(pair, 0, 1)
    for j in range(len(rates)):
        out[j] = _best_rate(rates[j], forth, back)


@kernel
def _rate(alpha: float, epsilon: float, forth: LossLaw) -> float:
    """α e^ε + δ(ε), rounded up."""
    _, _, upper = tail(HOCKEY, RIGHT, epsilon, forth, -math.inf)
    if math.isnan(upper):
        return 1.0  # no certified δ: nothing is claimed
    rate = alpha * math.exp(epsilon) + math.exp(upper)
    return min(max(rate * (1.0 + 1e-15) + TINIEST, alpha), 1.0)


@kernel
def _best_rate(alpha: float, forth: LossLaw, back: LossLaw) -> float:
    """min over ε of α e^ε + δ(ε): by bisection for the one where Pr_X'(L > ε) = Pr(L' < −ε) equals α."""
    if is_trivial(forth):
        return alpha
    if alpha >= 1.0:
        return 1.0
    if alpha <= 0.0:
        return 0.0
    target = math.log(alpha)
    mean, spread = slopes(0.0, back)
    low, high = -mean, -mean
    step = math.sqrt(spread) + 1e-12
    for _ in range(60):
        if tail(TAIL, LEFT, -low, back, -math.inf)[0] >= target:
            break
        low -= step
        step *= 2.0
    step = math.sqrt(spread) + 1e-12
    for _ in range(60):
        if tail(TAIL, LEFT, -high, back, -math.inf)[0] <= target:
            break
        high += step
        step *= 2.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        if tail(TAIL, LEFT, -middle, back, -math.inf)[0] > target:
            low = middle
        else:
            high = middle
    return _rate(alpha, high, forth)
