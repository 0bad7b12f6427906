"""L-BFGS with a weak Wolfe line search: the limited-memory quasi-Newton method without bounds.

SciPy's L-BFGS-B carries the machinery of bounds along and spends more time in it than this library does on values and
gradients once there are some ten thousand variables. The line search is that of Lewis & Overton (2013), which also
serves functions with kinks, such as a sharp maximum.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shoal.validation import FloatArray

#: Pairs of steps and gradient changes that are remembered.
MEMORY = 20
#: Sufficient decrease and sufficient change of slope.
DECREASE, CURVATURE = 1e-4, 0.9
#: Least gain of a step, as a share of the value, and least slope that are worth going on.
GAIN, SLOPE = 1e-8, 1e-9

Function = Callable[[FloatArray], tuple[float, FloatArray]]


def minimize(function: Function, start: FloatArray, *, iterations: int, stop: Callable[[], bool]) -> FloatArray:
    """A point with a small value of ``function`` (value and gradient), never above that of the start.

    Ends when a step gains less than :data:`GAIN` of the value, when no entry of the gradient is above :data:`SLOPE` or
    when ``stop`` says so.
    """
    x = start
    value, gradient = function(x)
    steps: list[FloatArray] = []
    changes: list[FloatArray] = []
    for _ in range(iterations):
        if not np.abs(gradient).max() > SLOPE or stop():
            break
        direction = -_two_loops(gradient, steps, changes)
        slope = float(direction @ gradient)
        if not slope < 0.0:
            steps, changes = [], []
            direction, slope = -gradient, -float(gradient @ gradient)
        first = 1.0 if steps else min(1.0, 1.0 / float(np.abs(gradient).sum()))
        step_taken = _line_search(function, x, value, slope, direction, first)
        if step_taken is None:
            if not steps:
                break
            steps, changes = [], []
            continue
        new_x, new_value, new_gradient = step_taken
        step, change = new_x - x, new_gradient - gradient
        if float(step @ change) > 1e-16 * float(change @ change):
            steps = [*steps[1 - MEMORY :], step]
            changes = [*changes[1 - MEMORY :], change]
        gain = value - new_value
        size = max(abs(value), abs(new_value), 1.0)
        x, value, gradient = new_x, new_value, new_gradient
        if gain <= GAIN * size:
            break
    return x


def _two_loops(gradient: FloatArray, steps: list[FloatArray], changes: list[FloatArray]) -> FloatArray:
    """The inverse Hessian that the remembered pairs stand for, times the gradient."""
    q = gradient.copy()
    shares = []
    for step, change in zip(reversed(steps), reversed(changes), strict=True):
        share = float(step @ q) / float(step @ change)
        shares.append(share)
        q -= share * change
    if steps:
        q *= float(steps[-1] @ changes[-1]) / float(changes[-1] @ changes[-1])
    for step, change, share in zip(steps, changes, reversed(shares), strict=True):
        q += (share - float(change @ q) / float(step @ change)) * step
    return q


def _line_search(
    function: Function, x: FloatArray, value: float, slope: float, direction: FloatArray, length: float
) -> tuple[FloatArray, float, FloatArray] | None:
    """A point with enough decrease and, where it can be had, enough change of slope; None without decrease."""
    low, high = 0.0, np.inf
    step = None
    for _ in range(25):
        trial = x + length * direction
        new_value, new_gradient = function(trial)
        if not new_value <= value + DECREASE * length * slope:
            high = length
        else:
            step = trial, new_value, new_gradient
            if float(new_gradient @ direction) >= CURVATURE * slope:
                break
            low = length
        length = 0.5 * (low + high) if high < np.inf else 2.0 * length
    return step
