"""Crowds improved by what they are expected to add to the error: how cheap could a first release be, and then later?

Where a home's forecast is off by σZ, Z normal, a row that differs from it by d adds

    E|σZ + d| − E|σZ| = σ√(2/π) (e^{−d²/2σ²} − 1) + |d| erf(|d|/(σ√2))

to its mean absolute error: d²/(σ√(2π)) where d is small, |d| where it is large. Crowds of least spread know neither σ
nor the bend. Here members of such crowds change places, or move to a crowd with room, as long as the sum over homes
and steps falls. It looks at every pair of homes: an experiment for some hundreds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.occasions import Occasion
from shoal.crowds.formation import least_spread_crowds
from shoal.numerics.compilation import kernel

#: Standard deviation over mean absolute deviation of a normal law.
PER_DEVIATION = math.sqrt(math.pi / 2)


def refined(homes: Occasion, usual: float, day: float, members: int) -> NDArray[np.int64]:
    """Crowd of each home: those of a run, then exchanges by expected added error.

    Args:
        homes: forecasts, usual days and how far homes stray from these.
        usual: weight of the usual load at the forecast's times, where that of the forecast is 1.
        day: weight of the usual load over the whole day.
        members: that a crowd is formed with.
    """
    habits = homes.habits
    assert habits is not None
    hours = (len(habits.day), 24, -1)
    at_times = PER_DEVIATION * habits.unsteady[:, habits.ahead]
    blocks = (
        (1.0, homes.power, at_times),
        (usual, habits.day[:, habits.ahead], at_times),
        (
            day * len(habits.ahead) / 24,
            habits.day.reshape(hours).mean(axis=2),
            PER_DEVIATION * habits.unsteady.reshape(hours).mean(axis=2),
        ),
    )
    used = [block for block in blocks if block[0] > 0]
    weights = np.concatenate([np.full(curves.shape[1], weight) for weight, curves, _ in used])
    curves = np.concatenate([curves for _, curves, _ in used], axis=1)
    std = np.concatenate([std for _, _, std in used], axis=1)
    start = least_spread_crowds(homes.points, members, beside=homes.power)
    return np.asarray(_exchanged(curves, std, weights, start, members))


@kernel
def added(d: float, std: float) -> float:
    """E|σZ + d| − E|σZ| for a normal Z.

    >>> added(3.0, 0.0), round(added(0.1, 1.0), 6)
    (3.0, 0.003986)
    """
    d = abs(d)
    if std <= 0:
        return d
    z = d / (std * math.sqrt(2.0))
    return std * math.sqrt(2.0 / math.pi) * (math.exp(-z * z) - 1.0) + d * math.erf(z)


@kernel
def _cost(crowd: Any, count: int, curves: Any, std: Any, weights: Any) -> float:
    total = 0.0
    for e in range(curves.shape[1]):
        mean = 0.0
        for s in range(count):
            mean += curves[crowd[s], e]
        mean /= count
        for s in range(count):
            total += weights[e] * added(mean - curves[crowd[s], e], std[crowd[s], e])
    return total


@kernel
def _exchanged(curves: Any, std: Any, weights: Any, start: Any, size: int) -> Any:
    """Exchanges and moves until none lowers the cost, fifty passes at most."""
    n, n_crowds, most = len(start), start.max() + 1, 2 * size - 1
    crowd = np.zeros((n_crowds, most + 1), dtype=np.int64)
    count = np.zeros(n_crowds, dtype=np.int64)
    for i in range(n):
        crowd[start[i], count[start[i]]] = i
        count[start[i]] += 1
    cost = np.zeros(n_crowds)
    for a in range(n_crowds):
        cost[a] = _cost(crowd[a], count[a], curves, std, weights)
    least = 1e-9 * cost.sum()
    for _ in range(50):
        changes = 0
        for a in range(n_crowds):
            for s in range(most):
                if s >= count[a]:
                    break
                i, last = crowd[a, s], crowd[a, count[a] - 1]
                gain, target, partner = -least, -1, -1
                for b in range(n_crowds):
                    if b == a:
                        continue
                    before = cost[a] + cost[b]
                    if count[a] > size and count[b] < most:
                        crowd[a, s], crowd[b, count[b]] = last, i
                        now = _cost(crowd[a], count[a] - 1, curves, std, weights)
                        now += _cost(crowd[b], count[b] + 1, curves, std, weights)
                        crowd[a, s] = i
                        if now - before < gain:
                            gain, target, partner = now - before, b, -1
                    for t in range(count[b]):
                        j = crowd[b, t]
                        crowd[a, s], crowd[b, t] = j, i
                        now = _cost(crowd[a], count[a], curves, std, weights)
                        now += _cost(crowd[b], count[b], curves, std, weights)
                        crowd[a, s], crowd[b, t] = i, j
                        if now - before < gain:
                            gain, target, partner = now - before, b, t
                if target < 0:
                    continue
                changes += 1
                if partner < 0:
                    crowd[a, s], crowd[target, count[target]] = last, i
                    count[a] -= 1
                    count[target] += 1
                else:
                    crowd[a, s], crowd[target, partner] = crowd[target, partner], i
                cost[a] = _cost(crowd[a], count[a], curves, std, weights)
                cost[target] = _cost(crowd[target], count[target], curves, std, weights)
        if changes == 0:
            break
    member = np.empty(n, dtype=np.int64)
    for a in range(n_crowds):
        member[crowd[a, : count[a]]] = a
    return member
