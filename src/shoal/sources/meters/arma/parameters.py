"""Which coefficients are stationary and invertible, by their partial autocorrelations.

A polynomial 1 − c_1 B − … − c_p B^p has all its roots outside the unit circle exactly when its partial
autocorrelations r_1 … r_p lie in (−1, 1) (Barndorff-Nielsen & Schou 1973); the Durbin–Levinson recursion

    c_{k,k} = r_k,    c_{k,j} = c_{k−1,j} − r_k c_{k−1,k−j},    j < k

maps one to the other. The moving average 1 + Σ ma_j B^j has c = −ma.
"""

from __future__ import annotations

from shoal.numerics.compiled import kernel
from shoal.validation import FloatArray

#: A start may not sit closer to the boundary than this partial autocorrelation.
START_LIMIT = 0.9999


@kernel
def largest_partial(c: FloatArray) -> float:
    """max |r_k| by the recursion run backwards, broken off at the first that is not below one; stable when it is."""
    work, copy = c.copy(), c.copy()
    largest: float = 0.0
    for m in range(c.size - 1, -1, -1):
        r = work[m]
        largest = max(largest, abs(r))
        if not abs(r) < 1.0:
            return max(largest, 1.0)
        scale = 1.0 / (1.0 - r * r)
        for j in range(m):
            copy[j] = work[j]
        for j in range(m):
            work[j] = (copy[j] + r * copy[m - 1 - j]) * scale
    return largest


@kernel
def is_stable(coef: FloatArray, p: int) -> bool:
    """Whether coef = (ar, ma) is stationary and invertible."""
    ma = coef[p:].copy()
    for j in range(ma.size):
        ma[j] = -ma[j]
    return bool(largest_partial(coef[:p]) < 1.0 and largest_partial(ma) < 1.0)


@kernel
def pull_in(c: FloatArray) -> None:
    """c_j → c_j s^j, in place, which moves every root out by 1/s; s = 1 if that is stable with |r| ≤ START_LIMIT."""
    shrunk = c.copy()
    scale = 1.0
    while largest_partial(shrunk) > START_LIMIT:
        scale *= 0.995 if scale > 0.9 else 0.95
        power = 1.0 if scale > 1e-3 else 0.0
        for j in range(c.size):
            power *= scale
            shrunk[j] = c[j] * power
    for j in range(c.size):
        c[j] = shrunk[j]
