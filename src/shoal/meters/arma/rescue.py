"""A second optimizer, for the edge of invertibility: BFGS in the partial autocorrelations.

Next to noninvertible moving averages the sum of squares is a bad guide to the likelihood, Gauss–Newton steps point
out of the region and shrink, and the search crawls or settles on the edge. BFGS with the exact gradient, in
coordinates that cannot leave the region, is slower elsewhere but does not mind.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.meters.arma.likelihood import evaluate
from shoal.meters.arma.parameters import COORDINATE_LIMIT, START_LIMIT, arma_from_free, free_from_arma
from shoal.validation import FloatArray

#: Stands in for the value outside the region that numbers can follow.
FAR = 1e12

#: Nats still promised at which to stop; longest step in a coordinate; backtracking (Armijo 1966).
TOLERANCE, LONGEST_STEP, SUFFICIENT, BACKTRACK, MAX_BACKTRACKS = 1e-2, 2.0, 1e-4, 0.4, 25


def rescue(x: FloatArray, coef: FloatArray, p: int, steps: int) -> FloatArray:
    """Descend from ``coef`` = (ar, ma) on a gap-free series; the end point, in the same form."""
    k = coef.size
    jac_ar, jac_ma = np.empty((p, p)), np.empty((k - p, k - p))
    gradient, normal, hessian = np.empty(k), np.empty((k, k)), np.empty((k, k))

    def objective(free: FloatArray) -> tuple[float, FloatArray]:
        inside = np.clip(free, -COORDINATE_LIMIT, COORDINATE_LIMIT)
        ar, ma = arma_from_free(inside, p, jac_ar, jac_ma)
        value, _ = evaluate(x, ar, ma, gradient, normal, hessian, math.inf)
        if not math.isfinite(value):
            return FAR, np.zeros(k)
        return value, np.concatenate([jac_ar.T @ gradient[:p], jac_ma.T @ gradient[p:]])

    here = free_from_arma(coef[:p].copy(), coef[p:].copy(), START_LIMIT)
    value, slope = objective(here)
    inverse = np.eye(k) / max(float(np.linalg.norm(slope)), 1e-12)
    for step in range(steps):
        direction = -inverse @ slope
        descent = float(direction @ slope)
        if not descent < 0.0:
            inverse, direction = np.eye(k), -slope
            descent = -float(slope @ slope)
        if -descent < TOLERANCE:
            break
        direction *= min(1.0, LONGEST_STEP / float(np.abs(direction).max()))
        length, descent = 1.0, float(direction @ slope)
        for _ in range(MAX_BACKTRACKS):
            new_value, new_slope = objective(here + length * direction)
            if new_value < value + SUFFICIENT * length * descent:
                break
            length *= BACKTRACK
        else:
            break
        move, turn = length * direction, new_slope - slope
        curvature = float(move @ turn)
        if curvature > 1e-10 * float(np.linalg.norm(move) * np.linalg.norm(turn)):
            if step == 0:
                inverse = np.eye(k) * (curvature / float(turn @ turn))
            product = inverse @ turn
            inverse += np.outer(move, move) * ((curvature + float(turn @ product)) / curvature**2)
            inverse -= (np.outer(product, move) + np.outer(move, product)) / curvature
        here, value, slope = here + move, new_value, new_slope
    free = np.clip(here, -COORDINATE_LIMIT, COORDINATE_LIMIT)
    return np.concatenate(arma_from_free(free, p, jac_ar, jac_ma))
