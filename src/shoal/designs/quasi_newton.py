"""L-BFGS with a weak Wolfe line search (Lewis & Overton 2013), which also serves functions with kinks.

SciPy's L-BFGS-B spends more time on its bounds than this library on values and gradients of ten thousand variables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from shoal.validation import FloatArray

#: Pairs of steps and gradient changes that are remembered, and numbers that they may take.
MEMORY, ROOM = 20, 1 << 22
#: Sufficient decrease and sufficient change of slope.
DECREASE, CURVATURE = 1e-4, 0.9
#: Least gain of a step, as a share of the value, and least slope that are worth going on.
GAIN, SLOPE = 1e-8, 1e-9

Function = Callable[[FloatArray], tuple[float, FloatArray]]


@dataclass
class StepMemory:
    """Remembered steps and changes of the gradient; they may go on from a function to one that is much like it."""

    steps: list[FloatArray] = field(default_factory=list)
    changes: list[FloatArray] = field(default_factory=list)

    def add(self, step: FloatArray, change: FloatArray) -> None:
        """Remember a pair of positive curvature; the oldest is forgotten."""
        if float(step @ change) <= 1e-16 * float(change @ change):
            return
        most = max(6, min(MEMORY, ROOM // (2 * len(step))))
        self.steps, self.changes = [*self.steps[1 - most :], step], [*self.changes[1 - most :], change]

    def clear(self) -> None:
        """Forget everything."""
        self.steps, self.changes = [], []

    def scale(self, gradient: FloatArray) -> FloatArray:
        """The product of the gradient with the inverse Hessian that the remembered pairs approximate."""
        q = gradient.copy()
        shares = []
        for step, change in zip(reversed(self.steps), reversed(self.changes), strict=True):
            share = float(step @ q) / float(step @ change)
            shares.append(share)
            q -= share * change
        if self.steps:
            q *= float(self.steps[-1] @ self.changes[-1]) / float(self.changes[-1] @ self.changes[-1])
        for step, change, share in zip(self.steps, self.changes, reversed(shares), strict=True):
            q += (share - float(change @ q) / float(step @ change)) * step
        return q


def minimize(
    function: Function,
    start: FloatArray,
    *,
    iterations: int,
    stop: Callable[[], bool],
    memory: StepMemory | None = None,
) -> tuple[FloatArray, bool]:
    """A point with a small value of ``function`` (value and gradient), and whether more iterations would gain more.

    Never above the value of the start. Ends when a step gains less than :data:`GAIN` of the value, when no entry of the
    gradient is above :data:`SLOPE` or when ``stop`` says so.
    """
    memory = StepMemory() if memory is None else memory
    x = start
    value, gradient = function(x)
    for _ in range(iterations):
        if not np.abs(gradient).max() > SLOPE or stop():
            return x, False
        direction = -memory.scale(gradient)
        slope = float(direction @ gradient)
        if not slope < 0.0:
            memory.clear()
            direction, slope = -gradient, -float(gradient @ gradient)
        first = 1.0 if memory.steps else min(1.0, 1.0 / float(np.abs(gradient).sum()))
        step_taken = _line_search(function, x, value, slope, direction, first, stop)
        if step_taken is None:
            if not memory.steps:
                return x, False
            memory.clear()
            continue
        new_x, new_value, new_gradient = step_taken
        memory.add(new_x - x, new_gradient - gradient)
        gain = value - new_value
        size = max(abs(value), abs(new_value), 1.0)
        x, value, gradient = new_x, new_value, new_gradient
        if gain <= GAIN * size:
            return x, False
    return x, True


def _line_search(
    function: Function, x: FloatArray, value: float, slope: float, direction: FloatArray, length: float,
    stop: Callable[[], bool],
) -> tuple[FloatArray, float, FloatArray] | None:  # fmt: skip
    """Point, value and gradient after a step with enough decrease and, where there is one, enough change of slope.

    None where no step decreases the value.
    """
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
        if stop():
            break
        length = 0.5 * (low + high) if high < np.inf else 2.0 * length
    return step
