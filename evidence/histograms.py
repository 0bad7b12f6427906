"""Daily totals as they were metered, without a Gaussian law: sums of homes, and sums of losses over days.

The days of a home are as likely as they were seen. The law of a total is the convolution of its members' on a grid, and
the law of the loss over independent days that of one day's loss on another. Masses are split between neighboring grid
points so that means are kept; both go through Fourier's transform, whose rounding is the least that counts
(:data:`NOTHING`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.validation import FloatArray

#: Grid points of a total and of a loss.
TOTALS, LOSSES = 2048, 8192
#: Probabilities below it are rounding.
NOTHING = 1e-13
#: Standard deviations on either side that a grid reaches.
REACH = 12.0


def totals(others: FloatArray, one: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Laws of a day's total of ``others`` (members, days) with the one or the other (days,) as the last member."""
    rest = others - others.mean(axis=1, keepdims=True)
    last = np.stack([one, other])
    last = last - 0.5 * (last.max() + last.min())
    span = 2 * REACH * np.sqrt(rest.var(axis=1).sum()) + np.ptp(last)
    step = float(span) / TOTALS or 1.0
    flows = np.fft.rfft(_placed(rest / step, TOTALS), axis=1).prod(axis=0)
    laws = np.fft.irfft(flows * np.fft.rfft(_placed(last / step, TOTALS), axis=1), TOTALS, axis=1)
    laws = np.where(laws > NOTHING, laws, 0.0)
    laws /= laws.sum(axis=1, keepdims=True)
    return laws[0], laws[1]


def told_apart(p: FloatArray, q: FloatArray, days: int, epsilon: float, fpr: float) -> tuple[float, float]:
    """δ(ε) of p against q over independent days, and the power of the best test at a false-positive rate."""
    both = (p > 0) & (q > 0)
    sure = 1.0 - p[both].sum() ** days  # on some day, what q never gives
    a, b = p[both], q[both]
    loss = np.log(a / b)
    if not both.any() or np.ptp(loss) == 0.0:
        return float(sure), float(sure + (1 - sure) * fpr)
    means = [days * float(w @ loss / w.sum()) for w in (a, b)]
    wide = [np.sqrt(days * float(w @ (loss - w @ loss / w.sum()) ** 2 / w.sum())) for w in (a, b)]
    far = 2 * float(np.abs(loss).max())
    low = min(m - REACH * s for m, s in zip(means, wide, strict=True)) - far
    high = max(m + REACH * s for m, s in zip(means, wide, strict=True)) + far
    step = (high - low) / LOSSES
    masses = _placed(np.broadcast_to(loss / step, (2, len(loss))), LOSSES, np.stack([a, b]))
    sums = np.fft.irfft(np.fft.rfft(masses, axis=1) ** days, LOSSES, axis=1).clip(0.0)
    start = int(np.ceil(low / step))
    places = np.arange(start, start + LOSSES)
    ours, theirs = sums[:, places % LOSSES]
    above = places * step > epsilon
    delta = sure + float(np.maximum(ours - np.exp(epsilon) * theirs, 0.0)[above].sum())
    claimed, right = np.cumsum(theirs[::-1]), np.cumsum(ours[::-1])
    power = sure + float(np.interp(fpr, np.concatenate([[0.0], claimed]), np.concatenate([[0.0], right])))
    return min(delta, 1.0), min(power, 1.0)


def _placed(values: FloatArray, size: int, weights: FloatArray | None = None) -> FloatArray:
    """(m, ``size``) masses of (m, d) values in units of the grid, around its end, split so that means are kept."""
    shares = np.full(values.shape, 1.0 / values.shape[1]) if weights is None else weights
    below = np.floor(values)
    part = values - below
    at: NDArray[np.int64] = below.astype(np.int64)
    row = size * np.arange(len(values))[:, None]
    places = np.concatenate([(row + at % size).ravel(), (row + (at + 1) % size).ravel()])
    masses = np.concatenate([(shares * (1.0 - part)).ravel(), (shares * part).ravel()])
    found: FloatArray = np.bincount(places, masses, len(values) * size).astype(np.float64)
    return found.reshape(len(values), size)
