"""Gauss–Newton steps on the innovations of the Kalman filter, each taken only if it raises the exact likelihood.

The objective f = ½ (n log S + log|Σ|/σ^{2n}), S = Σ z² (``kalman.profile``), is a sum of squares in all but O(1) of its
O(n) size. With J the derivatives of z that the filter gives, a step solves (J'J + λ diag J'J) δ = −J'z (Levenberg–
Marquardt; λ by the gain ratio: Nielsen 1999). J leaves out what is zero in expectation, so the search ends near the
maximum next to its start, mostly within a fraction of a nat; the estimate itself is uncertain by (p + q)/2 nats there.
No step leaves the stationary and invertible region.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.numerics.compiled import kernel
from shoal.sources.meters.arma.kalman import profile
from shoal.sources.meters.arma.parameters import is_stable
from shoal.sources.meters.arma.regression import products, solve_positive
from shoal.validation import FloatArray

#: Nats: a step that promises less ends the search.
TOLERANCE = 0.1

#: Evaluations of the likelihood at most.
EVALUATIONS = 40

#: Damping to start with; up to which a small promise is that of the model, not of the damping; beyond which it is over.
FIRST_DAMPING, LIGHT_DAMPING, MOST_DAMPING = 1e-2, 0.1, 1e6


@kernel
def minimize(x: FloatArray, coef: FloatArray, p: int) -> tuple[float, bool]:
    """Descend from ``coef`` = (ar, ma), overwritten by the end point; (f, whether no step promises ``TOLERANCE``)."""
    n, k = x.size, coef.size
    z, slopes = np.empty(n), np.empty((k, n))
    normal, slope, system = np.empty((k, k)), np.empty(k), np.empty((k, k))
    step, trial = np.empty(k), coef.copy()
    value, total, count = profile(x, coef, p, z, slopes)
    damping, growth, moved = FIRST_DAMPING, 2.0, True
    used = 1
    while used < EVALUATIONS and damping < MOST_DAMPING and value < math.inf:
        if moved:
            for t in range(n):
                z[t] = 0.0 if math.isnan(z[t]) else z[t]
            products(slopes, z, normal, slope)
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
        reached, at_trial, _ = profile(x, trial, p, z, slopes)
        used += 1
        if reached < value:
            gain = (value - reached) / promised
            damping = max(damping * max(0.1, 1.0 - (2.0 * gain - 1.0) ** 3), 1e-9)
            growth = 2.0
            for i in range(k):
                coef[i] = trial[i]
            value, total, moved = reached, at_trial, True
        else:
            damping *= growth
            growth *= 2.0
    return value, False
