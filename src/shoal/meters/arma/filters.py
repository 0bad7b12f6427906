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
def filter_twice(e: FloatArray, ma: FloatArray, lead: int, n: int, a: FloatArray, aa: FloatArray) -> None:
    """a = e/θ(B) and aa = a/θ(B), from a past of zeros."""
    q = ma.size
    if q > REGISTERS:
        filter_by_ma(e[lead:], ma, lead, n, a)
        filter_by_ma(a[lead:], ma, lead, n, aa)
        return
    taps = np.zeros(REGISTERS)
    taps[:q] = ma
    m1, m2, m3, m4, m5, m6 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5]
    a1 = a2 = a3 = a4 = a5 = a6 = 0.0
    c1 = c2 = c3 = c4 = c5 = c6 = 0.0
    for t in range(lead, lead + n):
        one = e[t] - m6 * a6 - m5 * a5 - m4 * a4 - m3 * a3 - m2 * a2 - m1 * a1
        two = one - m6 * c6 - m5 * c5 - m4 * c4 - m3 * c3 - m2 * c2 - m1 * c1
        a6, a5, a4, a3, a2, a1 = a5, a4, a3, a2, a1, one
        c6, c5, c4, c3, c2, c1 = c5, c4, c3, c2, c1, two
        a[t] = one
        aa[t] = two


@summing
def filter_both(
    b: FloatArray, g: FloatArray, ma: FloatArray, lead: int, n: int, reach: int, bb: FloatArray, gg: FloatArray
) -> None:
    """bb = b/θ(B) for t < n and gg = g/θ(B) for t < ``reach`` ≤ n, from a past of zeros."""
    q = ma.size
    if q > REGISTERS:
        filter_by_ma(b[lead:], ma, lead, n, bb)
        filter_by_ma(g[lead:], ma, lead, reach, gg)
        return
    taps = np.zeros(REGISTERS)
    taps[:q] = ma
    m1, m2, m3, m4, m5, m6 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5]
    a1 = a2 = a3 = a4 = a5 = a6 = 0.0
    c1 = c2 = c3 = c4 = c5 = c6 = 0.0
    for t in range(lead, lead + reach):
        one = b[t] - m6 * a6 - m5 * a5 - m4 * a4 - m3 * a3 - m2 * a2 - m1 * a1
        two = g[t] - m6 * c6 - m5 * c5 - m4 * c4 - m3 * c3 - m2 * c2 - m1 * c1
        a6, a5, a4, a3, a2, a1 = a5, a4, a3, a2, a1, one
        c6, c5, c4, c3, c2, c1 = c5, c4, c3, c2, c1, two
        bb[t] = one
        gg[t] = two
    for t in range(lead + reach, lead + n):
        one = b[t] - m6 * a6 - m5 * a5 - m4 * a4 - m3 * a3 - m2 * a2 - m1 * a1
        a6, a5, a4, a3, a2, a1 = a5, a4, a3, a2, a1, one
        bb[t] = one


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


@summing
def filter_and_response(x: FloatArray, ma: FloatArray, lead: int, b: FloatArray, g: FloatArray) -> int:
    """b = x/θ(B) and the response g of 1/θ(B), both behind ``lead``; g is zero beyond the returned length."""
    n, q = x.size, ma.size
    g[: lead + n] = 0.0
    g[lead] = 1.0
    if q == 0 or q > REGISTERS:
        filter_by_ma(x, ma, lead, n, b)
        if q == 0:
            return 1
        for t in range(1, n):
            total = 0.0
            for j in range(min(q, t)):
                total -= ma[j] * g[lead + t - 1 - j]
            g[lead + t] = total
            if t % q == 0 and np.abs(g[lead + t - q + 1 : lead + t + 1]).max() < RESPONSE_FLOOR:
                return t + 1
        return n
    taps = np.zeros(REGISTERS)
    taps[:q] = ma
    m1, m2, m3, m4, m5, m6 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5]
    b1 = b2 = b3 = b4 = b5 = b6 = 0.0
    g1, g2, g3, g4, g5, g6 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    impulse, length = 1.0, n
    for block in range(0, n, 16):
        stop = min(block + 16, n)
        for t in range(block, stop):
            now = x[t] - m6 * b6 - m5 * b5 - m4 * b4 - m3 * b3 - m2 * b2 - m1 * b1
            b6, b5, b4, b3, b2, b1 = b5, b4, b3, b2, b1, now
            b[lead + t] = now
            now = impulse - m6 * g6 - m5 * g5 - m4 * g4 - m3 * g3 - m2 * g2 - m1 * g1
            g6, g5, g4, g3, g2, g1 = g5, g4, g3, g2, g1, now
            g[lead + t] = now
            impulse = 0.0
        if max(abs(g1), abs(g2), abs(g3), abs(g4), abs(g5), abs(g6)) < RESPONSE_FLOOR:
            length = stop
            break
    for t in range(length, n):
        now = x[t] - m6 * b6 - m5 * b5 - m4 * b4 - m3 * b3 - m2 * b2 - m1 * b1
        b6, b5, b4, b3, b2, b1 = b5, b4, b3, b2, b1, now
        b[lead + t] = now
    return length


@summing
def subtract_ripple(g: FloatArray, start: FloatArray, lead: int, reach: int, e: FloatArray) -> None:
    """e_t −= Σ_k start_k g_{t−k} for t < ``reach``: what a start other than zero adds to the residuals."""
    r = start.size
    if r > REGISTERS:
        for t in range(lead, lead + reach):
            total = e[t]
            for k in range(r):
                total -= start[k] * g[t - k]
            e[t] = total
        return
    taps = np.zeros(REGISTERS)
    taps[:r] = start
    s0, s1, s2, s3, s4, s5 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5]
    past, out = g[lead - REGISTERS : lead + reach], e[lead : lead + reach]
    for t in range(reach):
        near = s0 * past[t + 6] + s1 * past[t + 5] + s2 * past[t + 4]
        out[t] -= near + (s3 * past[t + 3] + s4 * past[t + 2] + s5 * past[t + 1])
