"""From one series to its best model: regress, place pole–zero pairs on the spectrum, and exchange them.

The likelihood of a large ARMA model has many maxima. They differ in which features of the spectrum the spare
poles and zeros sit on (a boiler cycle, a daily harmonic), so the search moves those:

1. Start from a Hannan–Rissanen regression, and from a model one pair smaller with a pair added at each of the
   strongest remaining features (``spectrum.py``); a few steps each. Orders with p or q below two get a single real pole
   and zero instead, or more regressions, and no exchange.
2. Exchange: take the pair out of the leader whose loss costs least, add one elsewhere, a few steps each; repeat
   from the new leader. Then the same once with a single real pole and zero.
3. Run the leaders to convergence.

Models are rows (ar, ma). Nothing is random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.compiled import kernel
from shoal.meters.arma.likelihood import evaluate
from shoal.meters.arma.optimize import descend, minimize, new_descent
from shoal.meters.arma.parameters import is_stable, pulled_in
from shoal.meters.arma.roots import (
    over_linear,
    over_quadratic,
    quadratic_factors,
    reciprocal_roots,
    reflected,
    times_linear,
    times_quadratic,
)
from shoal.meters.arma.spectrum import best_pairs, residual_power
from shoal.meters.arma.start import burg, hannan_rissanen
from shoal.validation import FloatArray


@dataclass(frozen=True)
class Effort:
    """How long to look: pairs tried first, exchange rounds at most, pairs per round; evaluations for a look, for a
    smaller model and for a finalist; the number of finalists, of pairs taken out of a leader in vain, and of
    single real roots tried in the end."""

    pairs: int
    rounds: int
    swaps: int
    look: int = 20
    smaller: int = 5
    final: int = 400
    finalists: int = 2
    removals: int = 2
    singles: int = 1


#: (pole, zero) of a real pair, tried with both signs.
SINGLE_ROOTS = tuple(
    (sign * pole, sign * zero)
    for sign in (1.0, -1.0)
    for pole, zero in ((0.7, 0.4), (0.4, 0.7), (0.95, 0.85), (0.85, 0.95), (0.995, 0.975))
)

#: Orders of the long autoregression behind the first regression, and behind others where there are no pairs to place.
LONG_ORDER, OTHER_LONG_ORDERS = 24, (12, 48)

#: Nats behind the leader beyond which a look is broken off when it does not promise more, and beyond which a model is
#: not run to convergence.
LOOK_REACH, REACH = 2.0, 4.0

#: Fresh descents from the end point at most, while each gains this many nats.
RESTARTS, WORTH_A_RESTART = 8, 0.01

#: Nats: how close is close enough, while looking and at the end.
LOOK_TOLERANCE, FINAL_TOLERANCE = 1e-3, 1e-5


@kernel
def joined(ar: FloatArray, ma: FloatArray) -> FloatArray:
    """One row (ar, ma), pulled just inside the stationary and invertible region where necessary."""
    out = np.empty(ar.size + ma.size)
    out[: ar.size] = pulled_in(ar)
    out[ar.size :] = -pulled_in(-ma)
    return out


@kernel
def regression_start(x: FloatArray, long_order: int, p: int, q: int) -> FloatArray:
    """Hannan–Rissanen, with roots on the wrong side of the circle mirrored to the right one."""
    ar, ma = hannan_rissanen(x, p, q, burg(x, min(long_order, max(1, x.size // 8))))
    if not is_stable(ar):
        ar = -reflected(-ar)
    if not is_stable(-ma):
        ma = reflected(ma)
    return joined(ar, ma)


@kernel
def with_pairs(x: FloatArray, twiddle: FloatArray, base: FloatArray, p: int, avoid: float, n_pairs: int) -> FloatArray:
    """Extend a model of orders (p, ·) by one pair in the ``n_pairs`` most promising ways, one row each.

    No pair is placed next to the angle ``avoid``; a negative angle avoids nothing.
    """
    ar, ma = base[:p].copy(), base[p:].copy()
    pairs = np.empty((n_pairs, 4))
    found = best_pairs(residual_power(x, ar, ma, twiddle), twiddle, avoid, pairs)
    out = np.empty((found, base.size + 4))
    for row in range(found):
        cosine, pole, zero = pairs[row, 1], pairs[row, 2], pairs[row, 3]
        more_ar = -times_quadratic(-ar, -2.0 * pole * cosine, pole * pole)
        more_ma = times_quadratic(ma, -2.0 * zero * cosine, zero * zero)
        out[row] = joined(more_ar, more_ma)
    return out


@kernel
def without_pair(x: FloatArray, coef: FloatArray, p: int) -> tuple[FloatArray, FloatArray]:
    """Take out one pole pair and one zero pair, in every way: the smaller models, that which costs least first.

    Returns them, one row each, and the angles of the poles removed.
    """
    ar, ma = coef[:p].copy(), coef[p:].copy()
    poles, zeros = quadratic_factors(-ar), quadratic_factors(ma)
    k, count = coef.size - 4, len(poles) * len(zeros)
    gradient, normal, hessian = np.empty(k), np.empty((k, k)), np.empty((k, k))
    values, angles, models = np.empty(count), np.empty(count), np.empty((count, k))
    for i in range(len(poles)):
        less_ar = -over_quadratic(-ar, poles[i, 0], poles[i, 1])
        cosine = -0.5 * poles[i, 0] / math.sqrt(max(poles[i, 1], 1e-12))
        for j in range(len(zeros)):
            row = i * len(zeros) + j
            less_ma = over_quadratic(ma, zeros[j, 0], zeros[j, 1])
            value, _ = evaluate(x, less_ar, less_ma, gradient, normal, hessian, -math.inf)
            values[row] = value if math.isfinite(value) else math.inf
            angles[row] = math.acos(min(max(cosine, -1.0), 1.0))
            models[row] = joined(less_ar, less_ma)
    order = np.argsort(values, kind="mergesort")
    return models[order], angles[order]


def with_single(x: FloatArray, base: FloatArray, p: int) -> list[FloatArray]:
    """Extend a model of orders (p, ·) by one real pole and one real zero, the most promising first."""
    k = base.size + 2
    gradient, normal, hessian = np.empty(k), np.empty((k, k)), np.empty((k, k))
    found = []
    for pole, zero in SINGLE_ROOTS:
        model = joined(-times_linear(-base[:p], -pole), times_linear(base[p:], -zero))
        value, _ = evaluate(x, model[: p + 1], model[p + 1 :], gradient, normal, hessian, -math.inf)
        found.append((float(value), model))
    found.sort(key=lambda row: row[0])
    return [model for _, model in found]


def without_single(x: FloatArray, coef: FloatArray, p: int) -> FloatArray | None:
    """Take out the real pole and the real zero that cost least; None where one of the two kinds is missing."""
    ar, ma = coef[:p], coef[p:]
    k = coef.size - 2
    gradient, normal, hessian = np.empty(k), np.empty((k, k)), np.empty((k, k))
    lowest, best = math.inf, None
    for pole in _real(reciprocal_roots(-ar)):
        less_ar = -over_linear(-ar, -pole)
        for zero in _real(reciprocal_roots(ma)):
            less_ma = over_linear(ma, -zero)
            value, _ = evaluate(x, less_ar, less_ma, gradient, normal, hessian, -math.inf)
            if value < lowest:
                lowest, best = value, joined(less_ar, less_ma)
    return best


def _real(roots: NDArray[np.complex128]) -> list[float]:
    return [float(z.real) for z in roots if abs(z.imag) <= 1e-9 * (1.0 + abs(z.real))]


class Pool:
    """The models visited so far and their values; each gets a few steps when it enters, and may be carried on later."""

    def __init__(self, x: FloatArray, p: int) -> None:
        self.x, self.p = x, p
        self.models: list[FloatArray] = []
        self.values: list[float] = []
        self.converged: list[bool] = []
        self.descents: list[tuple[FloatArray, FloatArray, FloatArray]] = []

    def add(self, model: FloatArray, budget: int) -> None:
        rival = min(self.values, default=math.inf) + LOOK_REACH
        self.models.append(model)
        self.values.append(math.inf)
        self.converged.append(False)
        self.descents.append(new_descent(model.size))
        self.improve(len(self.models) - 1, budget, LOOK_TOLERANCE, rival)

    def improve(self, which: int, budget: int, tolerance: float, rival: float = math.inf) -> None:
        memory, gradient, matrices = self.descents[which]
        value, _, converged = descend(
            self.x, False, self.models[which], self.p, budget, tolerance, rival, memory, gradient, matrices
        )
        self.values[which], self.converged[which] = value, converged

    def ranking(self) -> list[int]:
        return [int(i) for i in np.argsort(np.array(self.values), kind="stable")]


def search(x: FloatArray, twiddle: FloatArray, p: int, q: int, effort: Effort) -> tuple[FloatArray, float, bool]:
    """The best model found for a gap-free series: (ar, ma) in one row, f, and whether it converged."""
    pool = Pool(x, p)
    pool.add(regression_start(x, LONG_ORDER, p, q), effort.look)
    if p >= 2 and q >= 2:
        base = regression_start(x, LONG_ORDER, p - 2, q - 2)
        minimize(x, False, base, p - 2, effort.look, LOOK_TOLERANCE, math.inf)
        for model in with_pairs(x, twiddle, base, p - 2, -1.0, effort.pairs):
            pool.add(model, effort.look)
        leader, skip = -1, 0
        for _ in range(effort.rounds):
            top = pool.ranking()[0]
            skip = skip + 1 if top == leader else 0
            if skip == effort.removals:
                break
            if top != leader:
                leader = top
                if not pool.converged[top]:
                    pool.improve(top, effort.look, LOOK_TOLERANCE)
                bases, gone = without_pair(x, pool.models[top], p)
            if len(bases) == 0:
                break
            which = min(skip, len(bases) - 1)
            base = bases[which].copy()
            minimize(x, False, base, p - 2, effort.smaller, LOOK_TOLERANCE, math.inf)
            for model in with_pairs(x, twiddle, base, p - 2, gone[which], effort.swaps):
                pool.add(model, effort.look)
        single = without_single(x, pool.models[pool.ranking()[0]], p)
        if single is not None and effort.rounds > 0:
            minimize(x, False, single, p - 1, effort.smaller, LOOK_TOLERANCE, math.inf)
            for model in with_single(x, single, p - 1)[: effort.singles]:
                pool.add(model, effort.look)
    else:
        for long_order in OTHER_LONG_ORDERS:
            pool.add(regression_start(x, long_order, p, q), effort.look)
        if p >= 1 and q >= 1:
            base = regression_start(x, LONG_ORDER, p - 1, q - 1)
            minimize(x, False, base, p - 1, effort.look, LOOK_TOLERANCE, math.inf)
            for model in with_single(x, base, p - 1)[: 2 + effort.rounds]:
                pool.add(model, effort.look)
    finished = 0
    for which in pool.ranking():
        lowest = min(pool.values)
        if finished == effort.finalists or pool.values[which] > lowest + REACH:
            break
        if finished > 0 and pool.converged[which] and pool.values[which] >= lowest:
            continue
        pool.descents[which] = new_descent(p + q)  # a correction learned far away can make the end crawl
        pool.improve(which, effort.final, FINAL_TOLERANCE, lowest if finished > 0 else math.inf)
        finished += 1
    top = pool.ranking()[0]
    model, value, converged = pool.models[top], pool.values[top], pool.converged[top]
    for _ in range(RESTARTS):
        before = value
        value, _, converged = minimize(x, False, model, p, effort.final, FINAL_TOLERANCE, math.inf)
        if not before - value > WORTH_A_RESTART:
            break
    return model, value, converged
