"""Minimize the worst edge's ln δ over moves within the budgets.

The maximum over directed edges is smoothed, (1/τ) ln Σ e^{τ ln δ}, with τ raised in stages; each stage is L-BFGS on
variables that are scaled to the budget before use. Most steps look only at the edges that can become the worst; all of
them are evaluated between stages, and the best move seen over *all* edges is returned, also when time runs out or the
user interrupts.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from shoal.accounting.curve import NOTIONS
from shoal.accounting.gradient import NOTHING, Trace, edge_gradients, edge_values, empty_trace
from shoal.designs.parameters import certify
from shoal.designs.problem import DesignProblem, Moves, radii
from shoal.designs.quasi_newton import minimize
from shoal.mechanism.mechanism import Ending
from shoal.numerics.threads import n_threads
from shoal.validation import BoolArray, FloatArray

Result = TypeVar("Result")

#: Sharpness of the smoothed maximum, stage by stage, in units of 1 / |ln δ| once that exceeds one.
STAGES = (4.0, 16.0, 64.0, 256.0, 1024.0)
#: Below this ln δ nothing is left to gain.
ENOUGH = -745.0

#: Edges times entries up to which several starts are tried.
SMALL = 100
#: Edges beyond which the search starts with a sharp maximum, so that it can pass most of them over.
MANY = 500

#: Called after every stage with (stage, stages, best ln δ so far).
Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Settings:
    """How hard to search. Speed settings: none of them can change what a certificate means.

    ``deadline`` is a time of the monotonic clock after which every search returns its best so far; an interrupt does
    the same to this search and to all that would follow it, unless ``interruptible``: then it goes through.
    """

    iterations: int = 100
    deadline: float = math.inf
    report: Report | None = None
    seed: int = 0
    interrupted: threading.Event = field(default_factory=threading.Event)
    interruptible: bool = False

    @property
    def late(self) -> bool:
        return self.interrupted.is_set() or time.monotonic() > self.deadline

    @property
    def ending(self) -> Ending:
        """How the searches that had these settings ended."""
        if self.interrupted.is_set():
            return Ending.INTERRUPTED
        return Ending.OUT_OF_TIME if self.late else Ending.COMPLETE

    def part(self, share: float) -> Settings:
        """These settings with a share of the time that is left."""
        now = time.monotonic()
        return replace(self, deadline=now + share * max(self.deadline - now, 0.0))


def worst_value(problem: DesignProblem, moves: Moves) -> float:
    """Largest ln δ over all directed edges, in double precision and without a bracket."""
    return float(_values(problem, *_factored(problem, moves), np.ones(len(problem.pairs), dtype=bool)).max())


def search(
    problem: DesignProblem, candidates: Sequence[Moves], *, shifts: bool, settings: Settings, mapped: bool = False
) -> Moves:
    """The best of the candidates and of descents from them; the first of equals, so that simpler methods win ties.

    The descent starts from the best candidate; on small problems, where it is cheap, from the next best two as well.
    What is best in the end is decided by the certificates: they see what double precision and the ridge of nearly
    singular laws hide. Choices far behind by plain value are not tried.
    """
    ranked = sorted(candidates, key=lambda moves: worst_value(problem, moves))
    n_starts = 3 if len(problem.pairs) * problem.n_dims <= SMALL else 1
    descents = [
        descend(problem, start.with_map() if mapped else start, shifts=shifts, settings=settings)
        for start in ranked[:n_starts]
    ]
    choices = [*candidates, *descents]
    values = [worst_value(problem, moves) if _sound(problem, moves) else -math.inf for moves in choices]
    best, best_value = -1, math.inf
    for number in np.argsort(values, kind="stable"):
        if values[number] > best_value + 0.1:
            break
        value = certify(problem, choices[number])
        if value < best_value or (value == best_value and number < best):
            best, best_value = int(number), value
    return choices[best]


def _sound(problem: DesignProblem, moves: Moves) -> bool:
    """Whether the laws are far enough from singular for plain values to be trusted."""
    try:
        diagonal = np.diagonal(np.linalg.cholesky(moves.laws(problem)[1]), axis1=1, axis2=2)
    except np.linalg.LinAlgError:
        return False
    return bool((diagonal.min(axis=1) > 1e-5 * diagonal.max(axis=1)).all())


def descend(problem: DesignProblem, start: Moves, *, shifts: bool, settings: Settings) -> Moves:
    """The best move found from a start; shifts are kept at zero when ``shifts`` is False."""
    start = start.within(problem)
    if settings.late:
        return start
    everything = np.ones(len(problem.pairs), dtype=bool)
    values = _values(problem, *_factored(problem, start), everything).max(axis=1)
    best, best_value = start, float(values.max())
    layout = _Layout(problem, start.map is not None, shifts)
    point = _nudged(layout.flatten(start), problem.n_labels)
    # A little randomness leaves symmetric stationary points; the start itself stays a candidate.
    point = point + 1e-3 * np.std(point) * np.random.default_rng(settings.seed).standard_normal(len(point))
    try:
        stages = STAGES if len(problem.pairs) <= MANY else STAGES[2:]
        for number, stage in enumerate(stages):
            sharpness = stage / max(1.0, -best_value)
            active = _active(values, sharpness, problem.n_labels)
            for _ in range(4):
                smoothed = partial(_smoothed, problem, layout, sharpness, active)
                point = minimize(smoothed, point, iterations=settings.iterations, stop=lambda: settings.late)
                moves = layout.moves(point)
                values = _values(problem, *_factored(problem, moves), everything).max(axis=1)
                if values.max() < best_value:
                    best, best_value = moves, float(values.max())
                point = _nudged(layout.flatten(moves), problem.n_labels)
                missed = ~active & (values > values[active].max() - 2.0 / sharpness)
                if settings.late or not missed.any():
                    break
                active |= missed
            if settings.report is not None:
                settings.report(number + 1, len(stages), best_value)
            if settings.late or best_value < ENOUGH:
                break
    except KeyboardInterrupt:
        if settings.interruptible:
            raise
        settings.interrupted.set()  # the best move so far is a valid answer
    return best


def _nudged(x: FloatArray, n_labels: int) -> FloatArray:
    """Keep every slack off zero: there its derivative vanishes, and a label could never stop spending."""
    rows = x.reshape(n_labels, -1).copy()
    rows[:, -1] = np.maximum(rows[:, -1], 0.02 * np.linalg.norm(rows, axis=1))
    return rows.ravel()


def _active(values: FloatArray, sharpness: float, n_labels: int) -> BoolArray:
    """Edges close enough to the worst to matter at this sharpness, and at least a few per label."""
    keep = np.asarray(values > values.max() - 14.0 / sharpness)
    few = min(len(values), 4 * n_labels)
    keep[np.argpartition(-values, few - 1)[:few]] = True
    return keep


class _Placed(NamedTuple):
    """A point on its spheres: its moves (n, d), what the raw point was multiplied by, labels with two spheres."""

    scaled: FloatArray
    factor: FloatArray
    over: BoolArray


@dataclass(frozen=True)
class _Layout:
    """Moves as one vector per label, (b, B, C, slack), absent parts left out, scaled to the budget before use.

    The slack takes what a label does not spend, so that the vector with it lies on a sphere and the moves anywhere in
    the ball. Where the bias would exceed its share, shift and rest lie on a sphere each.
    """

    problem: DesignProblem
    mapped: bool
    shifts: bool

    def flatten(self, moves: Moves) -> FloatArray:
        """A point that yields the given moves, of length one per label: the search knows no units."""
        radius = radii(self.problem)[:, None]
        rows = self._rows(moves) / np.maximum(radius, 1e-300)
        slack = np.sqrt(np.maximum(1.0 - (rows**2).sum(axis=1), 0.0))
        return np.concatenate([rows, slack[:, None]], axis=1).ravel()

    def _rows(self, moves: Moves) -> FloatArray:
        parts = [moves.shift if self.shifts else None, moves.map, moves.noise]
        return np.concatenate([p.reshape(self.problem.n_labels, -1) for p in parts if p is not None], axis=1)

    def moves(self, x: FloatArray) -> Moves:
        return self.unpacked(self.placed(x).scaled)

    def unpacked(self, rows: FloatArray) -> Moves:
        n, k = self.problem.n_labels, self.problem.n_dims
        shift = np.zeros((n, k))
        if self.shifts:
            shift, rows = rows[:, :k], rows[:, k:]
        mapping = None
        if self.mapped:
            mapping, rows = rows[:, : k * k].reshape(n, k, k), rows[:, k * k :]
        return Moves(shift, mapping, rows[:, : k * k].reshape(n, k, k))

    @cached_property
    def _radii(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Radii, by label, of the sphere of its vector; of its bias and of the rest where the bias has its own."""
        radius, cap = radii(self.problem), np.sqrt(self.problem.max_bias * self.problem.budgets)
        return radius, cap, np.sqrt(np.maximum(radius**2 - cap**2, 0.0))

    def placed(self, x: FloatArray) -> _Placed:
        """The point with every label's vector scaled onto its spheres."""
        raw = x.reshape(self.problem.n_labels, -1)
        radius, cap, rest = self._radii
        size = np.linalg.norm(raw, axis=1)
        factor = (radius / np.maximum(size, 1e-300))[:, None]
        k = self.problem.n_dims if self.shifts else 0
        bias = np.linalg.norm(raw[:, :k], axis=1)
        over = bias * radius > cap * size
        if over.any():
            factor = np.repeat(factor, raw.shape[1], axis=1)
            factor[over, :k] = (cap / np.maximum(bias, 1e-300))[over, None]
            factor[over, k:] = (rest / np.maximum(np.linalg.norm(raw[:, k:], axis=1), 1e-300))[over, None]
        return _Placed(raw * factor, factor, over)

    def pull_back(self, at: _Placed, gradient: Moves) -> FloatArray:
        """Gradient in the raw point: on every sphere the part along the radius drops out."""
        scaled, factor, over = at
        rows = self._rows(gradient)
        flat = np.concatenate([rows, np.zeros((len(rows), 1))], axis=1)
        product = flat * scaled
        radius, cap, rest = (np.maximum(one**2, 1e-300) for one in self._radii)
        along = (product.sum(axis=1) / radius)[:, None]
        if over.any():
            k = self.problem.n_dims
            along = np.repeat(along, flat.shape[1], axis=1)
            along[over, :k] = (product[:, :k].sum(axis=1) / cap)[over, None]
            along[over, k:] = (product[:, k:].sum(axis=1) / rest)[over, None]
        return np.asarray((flat - along * scaled) * factor).ravel()


def _smoothed(
    problem: DesignProblem, layout: _Layout, sharpness: float, active: BoolArray, x: FloatArray
) -> tuple[float, FloatArray]:
    """Smoothed maximum over the active edges and its gradient in the raw variables."""
    at = layout.placed(x)
    moves = layout.unpacked(at.scaled)
    means, covs, factors = _factored(problem, moves)
    trace = empty_trace(int(active.sum()), problem.n_dims)
    values = _values(problem, means, covs, factors, active, trace)
    top = float(values.max())
    shares = np.exp(sharpness * (values - top))
    total = float(shares.sum())
    shares /= total
    shares[(shares < 1e-7) | (values <= NOTHING)] = 0.0
    cov_grad, mean_grad = _gradients(problem, values, factors, active, shares, trace)
    # ∂/∂b, ∂/∂B = 2 G (Σ^{1/2} + B), ∂/∂C = 2 G C for G = ∂/∂Σ̃.
    mapped = None if moves.map is None else 2.0 * cov_grad @ (problem.roots + moves.map)
    gradient = Moves(mean_grad, mapped, 2.0 * cov_grad @ moves.noise)
    return top + np.log(total) / sharpness, layout.pull_back(at, gradient)


def _factored(problem: DesignProblem, moves: Moves) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Means, covariances and their Cholesky factors; a tiny ridge keeps a nearly singular trial point finite."""
    means, covs = moves.laws(problem)
    k = problem.n_dims
    covs = np.ascontiguousarray(np.broadcast_to(covs, (len(means), k, k)))
    try:
        factors = np.linalg.cholesky(covs)
    except np.linalg.LinAlgError:
        size = (np.trace(covs, axis1=1, axis2=2) + problem.budgets.max()) / k
        covs = covs + (1e-12 * size)[:, None, None] * np.eye(k)
        factors = np.linalg.cholesky(covs)
    return _fixed(means), _fixed(covs), _fixed(factors)


def _fixed(values: Any) -> FloatArray:
    """A read-only view, as class laws are: kernels are compiled for one kind of array."""
    view = np.ascontiguousarray(values, dtype=np.float64).view()
    view.flags.writeable = False
    return view


def _values(
    problem: DesignProblem, means: FloatArray, covs: FloatArray, factors: FloatArray, on: BoolArray, trace: Any = None
) -> FloatArray:
    """ln δ of the edges that are on, one column per direction; a trace to fill lets :func:`_gradients` follow."""
    pairs, epsilons = problem.pairs[on], problem.epsilons[on]
    out = np.empty(epsilons.shape)

    def work(part: slice) -> None:
        own = None if trace is None else Trace(*(array[part] for array in trace))
        room = own or empty_trace(part.stop - part.start, means.shape[1])
        edge_values(NOTIONS[problem.notion], epsilons[part], factors, covs, means, pairs[part], room, out[part])

    _spread(work, len(pairs), max(32, min(512, -(-len(pairs) // n_threads()))))
    out[np.isnan(out)] = 0.0  # laws too narrow for their distance: told apart
    return out


#: Threads of this process, by its number: a fork starts its own. A search makes thousands of short calls.
_threads: dict[int, ThreadPoolExecutor] = {}


def _spread(work: Callable[[slice], Result], n_items: int, block: int) -> list[Result]:
    """Apply ``work`` to consecutive slices on threads that stay; results in order."""
    slices = [slice(start, min(start + block, n_items)) for start in range(0, n_items, block)]
    if len(slices) == 1 or n_threads() == 1:
        return [work(part) for part in slices]
    pool = _threads.get(os.getpid())
    if pool is None:
        pool = _threads[os.getpid()] = ThreadPoolExecutor(n_threads())
    return list(pool.map(work, slices))


def _gradients(
    problem: DesignProblem, values: FloatArray, factors: FloatArray, on: BoolArray, shares: FloatArray, trace: Trace
) -> tuple[FloatArray, FloatArray]:
    """Σ shares · ∂ ln δ over the edges that are on."""
    pairs, epsilons = problem.pairs[on], problem.epsilons[on]
    shape = (problem.n_labels, problem.n_dims)

    def work(part: slice) -> tuple[FloatArray, FloatArray]:
        cov_grad, mean_grad = np.zeros((*shape, shape[1])), np.zeros(shape)
        edges = NOTIONS[problem.notion], epsilons[part], values[part], shares[part], factors, pairs[part]
        edge_gradients(*edges, Trace(*(array[part] for array in trace)), cov_grad, mean_grad)
        return cov_grad, mean_grad

    cov_grad, mean_grad = np.zeros((*shape, shape[1])), np.zeros(shape)
    # One block per thread, but a number that does not depend on it: sums must not either.
    for part_cov, part_mean in _spread(work, len(pairs), max(32, -(-len(pairs) // 4))):
        cov_grad += part_cov
        mean_grad += part_mean
    return cov_grad, mean_grad
