"""The recursions of the likelihood: 1/θ(B) applied once or twice, several series side by side.

A recursion with few taps waits for its own last output, so independent ones are run in the same loop, where
they cost little more than one. Every array starts with ``lead`` zeros (the past), except raw input.
Up to six taps stay in registers; higher orders take the plain loop.
"""

from __future__ import annotations

import numpy as np

from shoal.compiled import kernel
from shoal.validation import FloatArray

#: Taps held in registers.
REGISTERS = 6

#: Response of 1/θ(B) below this is taken for zero (the sum of squares does not notice).
RESPONSE_FLOOR = 1e-14


@kernel
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
        now = ((x[t] - m6 * b6 - m5 * b5) - (m4 * b4 + m3 * b3) - m2 * b2) - m1 * b1
        b6, b5, b4, b3, b2, b1 = b5, b4, b3, b2, b1, now
        out[lead + t] = now


@kernel
def residuals(x: FloatArray, ar: FloatArray, ma: FloatArray, lead: int, b: FloatArray, e: FloatArray) -> None:
    """b = x/θ(B) and e = φ(B) b, from a past of zeros."""
    n, p, q = x.size, ar.size, ma.size
    if p > REGISTERS or q > REGISTERS:
        filter_by_ma(x, ma, lead, n, b)
        for t in range(lead, lead + n):
            total = b[t]
            for i in range(p):
                total -= ar[i] * b[t - 1 - i]
            e[t] = total
        return
    taps, lags = np.zeros(REGISTERS), np.zeros(REGISTERS)
    taps[:q] = ma
    lags[:p] = ar
    m1, m2, m3, m4, m5, m6 = taps[0], taps[1], taps[2], taps[3], taps[4], taps[5]
    a1, a2, a3, a4, a5, a6 = lags[0], lags[1], lags[2], lags[3], lags[4], lags[5]
    b1 = b2 = b3 = b4 = b5 = b6 = 0.0
    for t in range(n):
        now = ((x[t] - m6 * b6 - m5 * b5) - (m4 * b4 + m3 * b3) - m2 * b2) - m1 * b1
        e[lead + t] = (now - (a6 * b6 + a5 * b5)) - (a4 * b4 + a3 * b3) - (a2 * b2 + a1 * b1)
        b6, b5, b4, b3, b2, b1 = b5, b4, b3, b2, b1, now
        b[lead + t] = now


@kernel
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
        one = ((e[t] - m6 * a6 - m5 * a5) - (m4 * a4 + m3 * a3) - m2 * a2) - m1 * a1
        two = ((one - m6 * c6 - m5 * c5) - (m4 * c4 + m3 * c3) - m2 * c2) - m1 * c1
        three = ((b[t] - m6 * d6 - m5 * d5) - (m4 * d4 + m3 * d3) - m2 * d2) - m1 * d1
        a6, a5, a4, a3, a2, a1 = a5, a4, a3, a2, a1, one
        c6, c5, c4, c3, c2, c1 = c5, c4, c3, c2, c1, two
        d6, d5, d4, d3, d2, d1 = d5, d4, d3, d2, d1, three
        a[t] = one
        aa[t] = two
        bb[t] = three


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
