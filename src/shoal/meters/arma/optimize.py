"""Levenberg–Marquardt on the exact likelihood, with a secant correction of its Hessian.

The objective f = ½ (T log S + log|M|) is a sum of squares in all but O(1) of its O(T) size. A step solves
(H + A + λ diag(J'J)) δ = −∇f, ∇f exact, H the Hessian of the sum of squares and A what that leaves out, learned
from the gradients seen by symmetric rank-one updates (Dennis, Gay & Welsch 1981 for the structure). Next to
noninvertible moving averages A is what keeps the steps from crawling. Where the sum is not positive definite, H
alone and then its Gauss–Newton part take its place; λ follows the gain ratio (Nielsen 1999). Steps are taken in the
coefficients, where f is closest to quadratic; one that would leave the stationary and invertible region is taken in
the partial autocorrelations instead (``parameters.py``), where it cannot.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import inlined, kernel
from shoal.meters.arma.kalman import evaluate_gappy
from shoal.meters.arma.likelihood import evaluate
from shoal.meters.arma.parameters import COORDINATE_LIMIT, arma_from_free, free_from_arma, is_stable
from shoal.validation import FloatArray

#: Evaluations between two looks at whether there is still progress.
PATIENCE = 12

#: Longest step in one free coordinate.
LONGEST_STEP = 2.0

#: Evaluations before a descent may be given up, and how many times its promise is believed.
FAIR_TRIAL, HOPE = 4, 4.0

#: Damping to start with.
FIRST_DAMPING = 1e-2

#: Least cosine between a step and the error it shows for the correction to be updated (Nocedal & Wright 2006, 6.26).
LEAST_COSINE = 1e-6


@kernel
def solve_positive(matrix: FloatArray, right: FloatArray, out: FloatArray) -> bool:
    """out = matrix⁻¹ right by Cholesky (matrix overwritten); False when it is not positive definite."""
    n = right.size
    for j in range(n):
        d = matrix[j, j]
        for k in range(j):
            d -= matrix[j, k] * matrix[j, k]
        if not d > 0.0:
            return False
        d = math.sqrt(d)
        matrix[j, j] = d
        for i in range(j + 1, n):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / d
    for i in range(n):
        total = right[i]
        for k in range(i):
            total -= matrix[i, k] * out[k]
        out[i] = total / matrix[i, i]
    for i in range(n - 1, -1, -1):
        total = out[i]
        for k in range(i + 1, n):
            total -= matrix[k, i] * out[k]
        out[i] = total / matrix[i, i]
    return True


@kernel
def damped_step(
    model: FloatArray, metric: FloatArray, slope: FloatArray, damping: float, system: FloatArray, step: FloatArray
) -> bool:
    """step = −(model + damping·diag(metric))⁻¹ slope; False when that matrix is not positive definite."""
    k = slope.size
    for i in range(k):
        for j in range(k):
            system[i, j] = model[i, j]
        system[i, i] += damping * (metric[i, i] + 1e-3) + 1e-12
    return bool(solve_positive(system, -slope, step))


@kernel
def promise(model: FloatArray, slope: FloatArray, step: FloatArray) -> float:
    """Decrease of the quadratic model along the step."""
    return float(-np.dot(slope, step) - 0.5 * np.dot(step, np.dot(model, step)))


@kernel
def correct(
    correction: FloatArray, step: FloatArray, gradient: FloatArray, next_gradient: FloatArray, hessian: FloatArray
) -> None:
    """Rank-one update of A after which (H + A) ``step`` is the change of the gradient seen, H at the end point."""
    k = step.size
    error = np.empty(k)
    for i in range(k):
        total = next_gradient[i] - gradient[i]
        for j in range(k):
            total -= (hessian[i, j] + correction[i, j]) * step[j]
        error[i] = total
    along = np.dot(error, step)
    if abs(along) > LEAST_COSINE * math.sqrt(np.dot(error, error) * np.dot(step, step)):
        for i in range(k):
            for j in range(k):
                correction[i, j] += error[i] * error[j] / along


@kernel
def bent_step(
    coef: FloatArray,
    p: int,
    gradient: FloatArray,
    model: FloatArray,
    normal: FloatArray,
    damping: float,
    system: FloatArray,
    trial: FloatArray,
) -> float:
    """A step of the same model in the free coordinates, which cannot leave the stable region.

    Writes the coefficients it reaches into ``trial``; returns the decrease promised, negative for failure.
    """
    k = coef.size
    q = k - p
    jac_ar, jac_ma, jacobian = np.zeros((p, p)), np.zeros((q, q)), np.zeros((k, k))
    free = free_from_arma(coef[:p], coef[p:], math.tanh(COORDINATE_LIMIT))
    arma_from_free(free, p, jac_ar, jac_ma)
    jacobian[:p, :p] = jac_ar
    jacobian[p:, p:] = jac_ma
    slope = np.dot(jacobian.T, gradient)
    metric = np.dot(jacobian.T, np.dot(normal, jacobian))
    curved = np.dot(jacobian.T, np.dot(model, jacobian))
    step = np.zeros(k)
    if not damped_step(curved, metric, slope, damping, system, step):
        curved = metric
        if not damped_step(metric, metric, slope, damping, system, step):
            return -1.0
    largest = np.abs(step).max()
    if largest > LONGEST_STEP:
        step *= LONGEST_STEP / largest
    for i in range(k):
        step[i] = min(max(free[i] + step[i], -COORDINATE_LIMIT), COORDINATE_LIMIT) - free[i]
    ar, ma = arma_from_free(free + step, p, jac_ar, jac_ma)
    trial[:p] = ar
    trial[p:] = ma
    return max(float(promise(curved, slope, step)), 0.0)


@inlined
def score(
    x: FloatArray,
    gappy: bool,
    coef: FloatArray,
    p: int,
    gradient: FloatArray,
    normal: FloatArray,
    hessian: FloatArray,
    bound: float,
) -> tuple[float, float]:
    """``evaluate`` by the algorithm that the series calls for."""
    if gappy:
        value, total = evaluate_gappy(x, coef[:p], coef[p:], gradient, normal, hessian, bound)
    else:
        value, total = evaluate(x, coef[:p], coef[p:], gradient, normal, hessian, bound)
    return value, total


#: What a descent remembers besides coefficients and derivatives: f, damping, its growth, f at the last look at
#: progress, evaluations since then.
VALUE, DAMPING, GROWTH, MILESTONE, WAITED = range(5)


@kernel
def new_descent(k: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What ``descend`` writes to: memory, gradient, and the normal matrix, Hessian and correction; all unknown."""
    return np.full(5, np.nan), np.zeros(k), np.zeros((3, k, k))


@kernel
def descend(
    x: FloatArray,
    gappy: bool,
    coef: FloatArray,
    p: int,
    budget: int,
    tolerance: float,
    rival: float,
    memory: FloatArray,
    gradient: FloatArray,
    matrices: FloatArray,
) -> tuple[float, int, bool]:
    """``minimize``, or more of it: the last three arguments, from ``new_descent``, carry a descent on."""
    k = coef.size
    normal, hessian, correction = matrices[0], matrices[1], matrices[2]
    used = 0
    if math.isnan(memory[VALUE]):
        value, _ = score(x, gappy, coef, p, gradient, normal, hessian, math.inf)
        used = 1
        memory[VALUE], memory[DAMPING], memory[GROWTH] = value, FIRST_DAMPING, 2.0
        memory[MILESTONE], memory[WAITED] = value, 0.0
        correction[:, :] = 0.0
    value, damping, growth = memory[VALUE], memory[DAMPING], memory[GROWTH]
    if not math.isfinite(value):
        return math.inf, used, False
    next_gradient, next_normal, next_hessian = np.zeros(k), np.zeros((k, k)), np.zeros((k, k))
    system, step, trial, corrected = np.zeros((k, k)), np.zeros(k), np.zeros(k), np.zeros((k, k))
    converged = False
    while used < budget:
        for i in range(k):
            for j in range(k):
                corrected[i, j] = hessian[i, j] + correction[i, j]
        model = corrected
        if not damped_step(corrected, normal, gradient, damping, system, step):
            model = hessian
            if not damped_step(hessian, normal, gradient, damping, system, step):
                model = normal
                if not damped_step(normal, normal, gradient, damping, system, step):
                    damping = max(4.0 * damping, 1e-8)
                    if damping > 1e12:
                        break
                    continue
        promised = promise(model, gradient, step)
        trial[:] = coef + step
        if not (is_stable(trial[:p]) and is_stable(-trial[p:])):
            promised = bent_step(coef, p, gradient, corrected, normal, damping, system, trial)
            if promised < 0.0:
                damping = max(4.0 * damping, 1e-8)
                if damping > 1e12:
                    break
                continue
        if promised < tolerance and damping < 0.1:
            converged = True
            break
        if used >= FAIR_TRIAL and value - HOPE * promised > rival:
            break
        next_value, _ = score(x, gappy, trial, p, next_gradient, next_normal, next_hessian, value)
        used += 1
        memory[WAITED] += 1.0
        if math.isfinite(next_value) and next_value < value:
            gain = (value - next_value) / max(promised, 1e-300)
            damping *= max(0.1 if growth == 2.0 else 0.5, 1.0 - (2.0 * gain - 1.0) ** 3)
            damping = max(damping, 1e-9)
            growth = 2.0
            value = next_value
            step[:] = trial - coef
            correct(correction, step, gradient, next_gradient, next_hessian)
            coef[:] = trial
            gradient[:] = next_gradient
            normal[:, :] = next_normal
            hessian[:, :] = next_hessian
        else:
            damping *= growth
            growth *= 2.0
            if damping > 1e10:
                converged = promised < tolerance
                break
        if memory[WAITED] >= PATIENCE:
            progress = memory[MILESTONE] - value
            memory[MILESTONE], memory[WAITED] = value, 0.0
            if progress < 100.0 * tolerance:
                converged = True
                break
    memory[VALUE], memory[DAMPING], memory[GROWTH] = value, damping, growth
    return value, used, converged


@kernel
def minimize(
    x: FloatArray, gappy: bool, coef: FloatArray, p: int, budget: int, tolerance: float, rival: float
) -> tuple[float, int, bool]:
    """Descend from ``coef`` = (ar, ma), overwritten by the end point; (f, evaluations used, converged).

    Converged: the decrease that the quadratic model still promises is below ``tolerance`` nats, or the last
    ``PATIENCE`` evaluations together gained less than a hundred times that (a maximum on the boundary). A descent that
    by ``HOPE`` times its promise would not come below ``rival`` is given up after a few evaluations.
    """
    memory, gradient, matrices = new_descent(coef.size)
    value, used, converged = descend(x, gappy, coef, p, budget, tolerance, rival, memory, gradient, matrices)
    return value, used, converged
