"""The loops over the series: 1/θ(B) applied once or twice, several series side by side, and lagged inner products.

A recursion with few taps waits for its own last output, so independent ones are run in the same loop, where
they cost little more than one. Every array starts with ``lead`` zeros (the past), except raw input.
Up to six taps stay in registers; higher orders take the plain loop.
"""

from __future__ import annotations

import numpy as np

from shoal.compiled import kernel, summing
from shoal.validation import FloatArray

#: Taps held in registers.
REGISTERS = 6

#: Response of 1/θ(B) below this is taken for zero (the sum of squares does not notice).
RESPONSE_FLOOR = 1e-14


@summing
def filter_by_ma(x: FloatArray, ma: FloatArray, lead: int, n: int, out: FloatArray) -> None:
    """out_t = x_t − Σ ma_j out_{t−j} for t < n; x has no lead."""
    q = ma.size
    if q > REGISTERS:
        for t in range(n):
            total = x[t]
            for j in range(q - 1, -1, -1):
                total -= ma[j] * out[lead + t - 1 - j]
            out[lead + t] = total
        return
    taps = np.zeros(REGISTERS)
    taps[:q] = ma
    m1, m2, m3, m4, m5, m6 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5]
    b1 = b2 = b3 = b4 = b5 = b6 = 0.0
    for t in range(n):
        now = x[t] - m6 * b6 - m5 * b5 - m4 * b4 - m3 * b3 - m2 * b2 - m1 * b1
        b6, b5, b4, b3, b2, b1 = b5, b4, b3, b2, b1, now
        out[lead + t] = now


@summing
def weighted_lags(b: FloatArray, ar: FloatArray, lead: int, n: int, e: FloatArray) -> None:
    """e = φ(B) b; ``lead`` is at least the number of lags and at least ``REGISTERS``."""
    p = ar.size
    if p > REGISTERS:
        for t in range(lead, lead + n):
            total = b[t]
            for i in range(p):
                total -= ar[i] * b[t - 1 - i]
            e[t] = total
        return
    lags = np.zeros(REGISTERS)
    lags[:p] = ar
    a1, a2, a3, a4, a5, a6 = lags[0], lags[1], lags[2], lags[3], lags[4], lags[5]
    past, out = b[lead - REGISTERS : lead + n], e[lead : lead + n]
    for t in range(n):
        near = past[t + 6] - a1 * past[t + 5] - a2 * past[t + 4] - a3 * past[t + 3]
        out[t] = near - a4 * past[t + 2] - a5 * past[t + 1] - a6 * past[t]


@kernel
def residuals(x: FloatArray, ar: FloatArray, ma: FloatArray, lead: int, b: FloatArray, e: FloatArray) -> None:
    """b = x/θ(B) and e = φ(B) b, from a past of zeros."""
    filter_by_ma(x, ma, lead, x.size, b)
    weighted_lags(b, ar, lead, x.size, e)


@summing
def inner_products(first: FloatArray, start: int, second: FloatArray, other: int, n: int, out: FloatArray) -> None:
    """out_k = Σ_{t<n} first_{start+t} second_{other−k+t} for every k < out.size."""
    count = out.size
    for k in range(0, count, REGISTERS):
        low = other - k - (REGISTERS - 1)
        if low >= 0 and count - k > 2:
            s1 = s2 = s3 = s4 = s5 = s6 = 0.0
            one, two = first[start : start + n], second[low : low + n + REGISTERS - 1]
            for t in range(n):
                u = one[t]
                s1 += u * two[t + 5]
                s2 += u * two[t + 4]
                s3 += u * two[t + 3]
                s4 += u * two[t + 2]
                s5 += u * two[t + 1]
                s6 += u * two[t]
            sums = (s1, s2, s3, s4, s5, s6)
            for i in range(min(REGISTERS, count - k)):
                out[k + i] = sums[i]
        else:
            for i in range(k, min(k + REGISTERS, count)):
                total = 0.0
                one, two = first[start : start + n], second[other - i : other - i + n]
                for t in range(n):
                    total += one[t] * two[t]
                out[i] = total


@summing
def second_filters(
    b: FloatArray, e: FloatArray, ma: FloatArray, lead: int, n: int, a: FloatArray, aa: FloatArray, bb: FloatArray
) -> None:
    """a = e/θ(B), aa = a/θ(B) and bb = b/θ(B), from a past of zeros."""
    q = ma.size
    if q > REGISTERS:
        filter_by_ma(e[lead:], ma, lead, n, a)
        filter_by_ma(a[lead:], ma, lead, n, aa)
        filter_by_ma(b[lead:], ma, lead, n, bb)
        return
    taps = np.zeros(REGISTERS)
    taps[:q] = ma
    m1, m2, m3, m4, m5, m6 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5]
    a1 = a2 = a3 = a4 = a5 = a6 = 0.0
    c1 = c2 = c3 = c4 = c5 = c6 = 0.0
    d1 = d2 = d3 = d4 = d5 = d6 = 0.0
    for t in range(lead, lead + n):
        one = e[t] - m6 * a6 - m5 * a5 - m4 * a4 - m3 * a3 - m2 * a2 - m1 * a1
        two = one - m6 * c6 - m5 * c5 - m4 * c4 - m3 * c3 - m2 * c2 - m1 * c1
        three = b[t] - m6 * d6 - m5 * d5 - m4 * d4 - m3 * d3 - m2 * d2 - m1 * d1
        a6, a5, a4, a3, a2, a1 = a5, a4, a3, a2, a1, one
        c6, c5, c4, c3, c2, c1 = c5, c4, c3, c2, c1, two
        d6, d5, d4, d3, d2, d1 = d5, d4, d3, d2, d1, three
        a[t] = one
        aa[t] = two
        bb[t] = three


@kernel
def lagged_products(
    first: FloatArray, second: FloatArray, lead: int, n: int, row: int, col: int, rows: int, cols: int
) -> FloatArray:
    """C[i, k] = Σ_{t<n} first_{t−row−i} second_{t−col−k}, both series zero before t = 0 (``lead`` zeros).

    Only the first row and column are summed: C[i+1, k+1] = C[i, k] − first_{n−1−row−i} second_{n−1−col−k}.
    """
    out = np.empty((rows, cols))
    if rows == 0 or cols == 0:
        return out
    inner_products(first, lead - row, second, lead - col, n, out[0])
    if rows > 1:
        down = np.empty(rows - 1)
        inner_products(second, lead - col, first, lead - row - 1, n, down)
        out[1:, 0] = down
    last = lead + n - 1
    for i in range(1, rows):
        for k in range(1, cols):
            out[i, k] = out[i - 1, k - 1] - first[last - row - i + 1] * second[last - col - k + 1]
    return out


@kernel
def lagged_squares(series: FloatArray, lead: int, n: int, lag: int, rows: int) -> FloatArray:
    """``lagged_products`` of a series with itself, C[i, k] = Σ_{t<n} series_{t−lag−i} series_{t−lag−k}."""
    out = np.empty((rows, rows))
    if rows == 0:
        return out
    inner_products(series, lead - lag, series, lead - lag, n, out[0])
    last = lead + n - 1 - lag
    for i in range(rows):
        out[i, 0] = out[0, i]
        for k in range(1, i + 1):
            out[i, k] = out[i - 1, k - 1] - series[last - i + 1] * series[last - k + 1]
            out[k, i] = out[i, k]
    return out


@kernel
def normal_matrix(
    b: FloatArray, a: FloatArray, lead: int, n: int, p: int, q: int, scale: float, out: FloatArray
) -> None:
    """Gauss–Newton matrix of ½ scale·Σ ê², from ∂ê_t/∂ar_i = −b_{t−i} and ∂ê_t/∂ma_j = −a_{t−j}."""
    out[:p, :p] = lagged_squares(b, lead, n, 1, p)
    out[p:, p:] = lagged_squares(a, lead, n, 1, q)
    out[:p, p:] = lagged_products(b, a, lead, n, 1, 1, p, q)
    for i in range(p):
        for j in range(q):
            out[p + j, i] = out[i, p + j]
    out *= scale


@kernel
def ma_response(ma: FloatArray, n: int, out: FloatArray) -> int:
    """Response g of 1/θ(B) into out[:n], zero beyond the returned length."""
    q = ma.size
    out[:n] = 0.0
    out[0] = 1.0
    if q == 0:
        return 1
    if q > REGISTERS:
        for t in range(1, n):
            total = 0.0
            for j in range(min(q, t)):
                total -= ma[j] * out[t - 1 - j]
            out[t] = total
            if t % q == 0 and np.abs(out[t - q + 1 : t + 1]).max() < RESPONSE_FLOOR:
                return t + 1
        return n
    taps = np.zeros(REGISTERS)
    taps[:q] = ma
    m1, m2, m3, m4, m5, m6 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5]
    b1 = 1.0
    b2 = b3 = b4 = b5 = b6 = 0.0
    for block in range(1, n, 16):
        stop = min(block + 16, n)
        for t in range(block, stop):
            now = (-(m6 * b6 + m5 * b5) - (m4 * b4 + m3 * b3) - m2 * b2) - m1 * b1
            b6, b5, b4, b3, b2, b1 = b5, b4, b3, b2, b1, now
            out[t] = now
        if max(abs(b1), abs(b2), abs(b3), abs(b4), abs(b5), abs(b6)) < RESPONSE_FLOOR:
            return stop
    return n
