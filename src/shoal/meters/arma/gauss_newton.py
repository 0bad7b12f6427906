"""Gauss–Newton steps on the prediction errors, each taken only if it raises the exact likelihood.

The objective f = ½ (n log S + log|Σ|/σ^{2n}) (``kalman.profile``) is a sum of squares of one-step prediction errors in all
but O(1) of its O(n) size, and far from noninvertible models those of the filter are soon those of the plain recursion

    e_t = x_t − Σ ar_i x_{t−i} − Σ ma_j e_{t−j},

started from zeros, a missing x_t replaced by its prediction. Their derivatives J follow the same recursion, so a step
solves (J'J + λ diag J'J) δ = −J'e · n/S (Levenberg–Marquardt, λ by the gain ratio: Nielsen 1999). What this leaves out of
the gradient is O(1); the end is within a fraction of a nat of the maximum nearby, where the estimate itself is uncertain
by (p + q)/2 nats. No step leaves the stationary and invertible region.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import kernel, summing
from shoal.meters.arma.kalman import profile
from shoal.meters.arma.parameters import is_stable
from shoal.meters.arma.regression import products, solve_positive
from shoal.validation import FloatArray

#: Nats: a step that promises less ends the search.
TOLERANCE = 0.1

#: Evaluations of the likelihood at most.
EVALUATIONS = 40

#: Damping to start with; up to which a small promise is that of the model, not of the damping; beyond which it is over.
FIRST_DAMPING, LIGHT_DAMPING, MOST_DAMPING = 1e-2, 0.1, 1e6


@summing
def linearized(x: FloatArray, coef: FloatArray, p: int, error: FloatArray, slopes: FloatArray) -> None:
    """Prediction errors, and their derivatives by coef = (ar, ma), one row each; both behind r zeros, zero at gaps.

    Without gaps the derivative by the second coefficient is that by the first one step later, and so on.
    """
    n, k = x.size, coef.size
    q = k - p
    lead = error.size - n
    seen, moved = np.zeros(lead + n), np.zeros(lead + n)
    gaps = 0
    for t in range(lead, lead + n):
        guess = 0.0
        for i in range(p):
            guess += coef[i] * seen[t - 1 - i]
        for j in range(q):
            guess += coef[p + j] * error[t - 1 - j]
        missing = math.isnan(x[t - lead])
        gaps += missing
        seen[t] = guess if missing else x[t - lead]
        error[t] = 0.0 if missing else seen[t] - guess
    for c in range(k):
        row = slopes[c]
        lag = c + 1 if c < p else c + 1 - p
        if gaps == 0 and lag > 1:
            above = slopes[c - 1]
            for t in range(lead, lead + n):
                row[t] = above[t - 1]
            continue
        driver = seen if c < p else error
        for t in range(lead, lead + n):
            value = -driver[t - lag]
            for j in range(q - 1, -1, -1):
                value -= coef[p + j] * row[t - 1 - j]
            if gaps > 0:
                for i in range(p):
                    value -= coef[i] * moved[t - 1 - i]
                missing = math.isnan(x[t - lead])
                moved[t] = -value if missing else 0.0
                value = 0.0 if missing else value
            row[t] = value


@kernel
def minimize(x: FloatArray, coef: FloatArray, p: int) -> tuple[float, bool]:
    """Descend from ``coef`` = (ar, ma), overwritten by the end point; (f, whether no step promises ``TOLERANCE``)."""
    k, lead = coef.size, max(p, coef.size - p)
    error, slopes = np.zeros(lead + x.size), np.zeros((k, lead + x.size))
    normal, slope, system = np.empty((k, k)), np.empty(k), np.empty((k, k))
    step, trial = np.empty(k), np.empty(k)
    value = profile(x, coef, p)[0]
    damping, growth, moved = FIRST_DAMPING, 2.0, True
    used = 1
    while used < EVALUATIONS and damping < MOST_DAMPING and value < math.inf:
        if moved:
            linearized(x, coef, p, error, slopes)
            products(slopes, error, lead, normal, slope)
            total, count = 0.0, 0
            for t in range(x.size):
                total += error[lead + t] * error[lead + t]
                count += 0 if math.isnan(x[t]) else 1
            moved = False
        for i in range(k):
            for j in range(k):
                system[i, j] = normal[i, j]
            system[i, i] += damping * normal[i, i] + 1e-9 * total
        promised = 0.0
        if solve_positive(system, slope, step):
            for i in range(k):
                trial[i] = coef[i] - step[i]
                promised += 0.5 * slope[i] * step[i] * count / total
            if promised < TOLERANCE:
                return value, damping <= LIGHT_DAMPING
        if not (promised > 0.0 and is_stable(trial, p)):
            damping *= 4.0
            continue
        reached = profile(x, trial, p)[0]
        used += 1
        if reached < value:
            gain = (value - reached) / promised
            damping = max(damping * max(0.1, 1.0 - (2.0 * gain - 1.0) ** 3), 1e-9)
            growth = 2.0
            for i in range(k):
                coef[i] = trial[i]
            value, moved = reached, True
        else:
            damping *= growth
            growth *= 2.0
    return value, False
