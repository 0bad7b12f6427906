"""Minimize the worst edge's δ over moves within the budgets.

First a divergence that costs little: the smoothed maximum of ln KL over the edges goes most of the way from the starts.
Then exactly: the smoothed maximum of the log odds of δ over the edges that can become the worst, by L-BFGS in stages of
growing sharpness (:mod:`objectives` has both). Inside a stage edges join and none leaves: the search would stall. All
edges are evaluated after every round of a few steps, and the best move seen over *all* of them is returned, also when
time runs out or the user interrupts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from shoal.designs.layout import Layout, objective_in_point, raise_slacks
from shoal.designs.objectives import (
    compares_all_pairs,
    log_deltas,
    log_odds,
    smoothed_divergence,
    smoothed_odds,
    trial_laws,
    worst_divergence,
)
from shoal.designs.parameters import certified_log_delta
from shoal.designs.problem import DesignProblem, Moves
from shoal.designs.problem import Report as Report
from shoal.designs.problem import Settings as Settings
from shoal.designs.quasi_newton import StepMemory, minimize
from shoal.validation import BoolArray, FloatArray, IndexArray

#: Sharpness and steps of the stages on ln KL.
DIVERGENCE = ((8.0, 40), (32.0, 40), (128.0, 40))
#: Those of a first look.
GLANCE = ((8.0, 20), (32.0, 20))
#: Sharpness and steps of the stages on the log odds; those of a δ below :data:`SMALL_ODDS`, which gains from more; and
#: those of noise with mean zero, which gains most, and of problems with few edges times entries, where steps are cheap.
STAGES = ((64.0, 40), (256.0, 20), (1024.0, 30))
LONG = ((64.0, 100), (256.0, 50), (1024.0, 40))
LONGEST = ((64.0, 200), (256.0, 100), (1024.0, 80))
CHEAP = 500
SMALL_ODDS = -2.0
#: Steps between two looks at all edges.
ROUND = 20
#: Below this ln δ nothing is left to gain.
ENOUGH = -745.0

#: Edges looked at first where one is enough.
LEADING = 64
#: Difference in ln δ by which plain values settle a comparison.
BEHIND = 0.1

#: Edges times entries up to which several starts are followed to their end.
SMALL = 100
#: Edges beyond which stages are cut short.
MANY = 6000


def worst_log_delta(problem: DesignProblem, moves: Moves, *, above: float = math.inf) -> float:
    """Largest ln δ over all directed edges after some moves, in double precision and without a bracket.

    Where it lies above the limit ``above``, a smaller value above that may be returned.
    """
    known = problem.known_log_deltas.get(moves)
    if known is not None:
        return known
    laws = trial_laws(problem, moves)
    if above < math.inf and len(problem.pairs) > 4 * LEADING and compares_all_pairs(problem):
        leading = np.argpartition(-worst_divergence(problem, laws), LEADING)[:LEADING]
        value = float(log_deltas(problem, laws, leading).max())
        if value > above:
            return value
    value = problem.known_log_deltas[moves] = float(log_deltas(problem, laws).max())
    return value


def log_odds_of(log_delta: float) -> float:
    """Log odds ln δ − ln(1 − δ) of a number ln δ."""
    return float(log_odds(np.array(log_delta)))


def search_from_starts(
    problem: DesignProblem,
    candidates: Sequence[Moves],
    starts: Sequence[Moves],
    *,
    shifts: bool,
    settings: Settings,
    mapped: bool = False,
) -> Moves:
    """The best of the candidates and of descents from the starts; of equals the first: simpler methods win ties.

    The best two starts are followed for a stage, the better of them to the end; on small problems, where it is cheap,
    each of the best three is. What is best in the end is decided by the certificates: they see what double precision
    and the ridge of nearly singular laws hide.
    """
    small = len(problem.pairs) * problem.n_dims <= SMALL
    if small or not compares_all_pairs(problem):
        ranked = sorted(starts, key=lambda moves: worst_log_delta(problem, moves))
    else:
        ranked = sorted(starts, key=lambda moves: worst_divergence(problem, trial_laws(problem, moves)).max())
    groups = [[moves] for moves in ranked[:3]] if small else [ranked[:2]]
    descents = [
        descend_from_starts(problem, group, shifts=shifts, mapped=mapped, settings=settings) for group in groups
    ]
    return best_certified(problem, [*candidates, *descents])


def best_certified(problem: DesignProblem, choices: Sequence[Moves]) -> Moves:
    """The moves with the least certified δ, the first of equals; those far behind in double precision are not tried.

    Where that can be trusted and leaves one, it needs no certificate to be chosen.
    """
    values = np.full(len(choices), -math.inf)
    least = math.inf
    for number in reversed(range(len(choices))):
        if _is_well_conditioned(problem, choices[number]):
            values[number] = worst_log_delta(problem, choices[number], above=least + BEHIND)
            least = min(least, values[number])
    near = np.flatnonzero(values <= least + BEHIND)
    if len(near) == 1:
        return choices[int(near[0])]
    best, best_value = -1, math.inf
    for number in np.argsort(values, kind="stable"):
        if values[number] > best_value + BEHIND:
            break
        value = certified_log_delta(problem, choices[number])
        if value < best_value or (value == best_value and number < best):
            best, best_value = int(number), value
    return choices[best]


def _is_well_conditioned(problem: DesignProblem, moves: Moves) -> bool:
    """Whether the laws after some moves are far enough from singular for values in double precision to be trusted."""
    try:
        diagonal = np.diagonal(np.linalg.cholesky(moves.laws(problem)[1]), axis1=1, axis2=2)
    except np.linalg.LinAlgError:
        return False
    return bool((diagonal.min(axis=1) > 1e-5 * diagonal.max(axis=1)).all())


def descend_from_starts(
    problem: DesignProblem, starts: Sequence[Moves], *, shifts: bool, settings: Settings, mapped: bool = False
) -> Moves:
    """The best moves found from some starts; shifts are kept at zero when ``shifts`` is False."""
    inside = [(start.with_map() if mapped else start).within_budget(problem) for start in starts]
    descent = _Descent(problem, Layout(problem, mapped, shifts), settings, inside[0])
    if not settings.is_late:
        with settings.ending_at_interrupt():
            descent.run(inside)
    return descent.best


def glance_at_starts(problem: DesignProblem, starts: Sequence[Moves], *, shifts: bool, settings: Settings) -> Moves:
    """Moves after a few steps on ln KL from some starts: about as good as the descent from them will be."""
    inside = [start.within_budget(problem) for start in starts]
    descent = _Descent(problem, Layout(problem, False, shifts), settings, inside[0])
    if not settings.is_late and compares_all_pairs(problem):
        with settings.ending_at_interrupt():
            descent.best = descent.layout.moves(descent.approach_by_divergence(inside, GLANCE))
    return descent.best


@dataclass
class _Descent:
    """A descent under way, with the best moves so far, judged over all edges."""

    problem: DesignProblem
    layout: Layout
    settings: Settings
    best: Moves
    best_value: float = math.inf
    rounds: int = 0
    leading: tuple[float, Moves] = field(init=False)

    def __post_init__(self) -> None:
        self.leading = math.inf, self.best

    def run(self, starts: Sequence[Moves]) -> None:
        """Approach by the divergence, then descend on the exact δ; the result is ``best``."""
        point = self.approach_by_divergence(starts, DIVERGENCE)
        values = self._evaluate_edges(point)
        stages = LONG if log_odds_of(self.best_value) <= SMALL_ODDS else STAGES
        cheap = len(values) * self.problem.n_dims <= CHEAP
        stages = stages if self.layout.shifts and not cheap else LONGEST
        share = 1.0 if len(values) <= MANY else 0.5
        plan = [(sharpness, self.settings.steps(int(share * usual))) for sharpness, usual in stages]
        total = sum(-(-steps // ROUND) for _, steps in plan)
        done = 0
        for sharpness, steps in plan:
            if self.settings.is_late or self.best_value < ENOUGH:
                break
            point, values = self._run_stage(point, values, sharpness, steps, total)
            done += -(-steps // ROUND)
            self.rounds = done
        self._report(total, total)

    def approach_by_divergence(self, starts: Sequence[Moves], stages: Sequence[tuple[float, int]]) -> FloatArray:
        """The point from which the exact descent starts: the best by ln KL that the starts lead to."""
        points = [self._perturbed_point(start) for start in starts]
        if not compares_all_pairs(self.problem):
            return points[0]
        for sharpness, usual in stages:
            objective = partial(objective_in_point, self.layout, partial(smoothed_divergence, self.problem, sharpness))
            ends = [
                minimize(objective, point, iterations=self.settings.steps(usual), stop=self._is_late)[0]
                for point in points
                if not self.settings.is_late
            ]
            if not ends:
                break
            points = ends if len(ends) == 1 else [min(ends, key=lambda end: objective(end)[0])]
        return points[0]

    def _run_stage(
        self, point: FloatArray, values: FloatArray, sharpness: float, steps: int, total: int
    ) -> tuple[FloatArray, FloatArray]:
        """The point and ln δ of all edges after steps at one sharpness, in rounds, from a point with these ``values``.

        Rounds evaluate the edges that led at the beginning, the last one all; should others stick out, one is added.
        """
        problem = self.problem
        odds = log_odds(values)
        n_pool = min(len(odds), 8 * problem.n_labels + 4 * LEADING)
        pool = np.zeros(len(odds), dtype=bool)
        pool[np.argpartition(-odds, n_pool - 1)[:n_pool]] = True
        active, memory = active_edges(odds, sharpness, problem.n_labels), StepMemory()
        taken = 0
        while taken < steps + ROUND:
            objective = partial(smoothed_odds, problem, np.flatnonzero(active), sharpness)
            point, unfinished = minimize(
                partial(objective_in_point, self.layout, objective),
                point,
                iterations=min(ROUND, steps - taken if taken < steps else steps),
                stop=self._is_late,
                memory=memory,
            )
            taken += ROUND
            whole = taken >= steps or not unfinished or self.settings.is_late
            values = self._evaluate_edges(point, None if whole else np.flatnonzero(pool))
            odds = log_odds(values)
            missed = ~active & (odds > odds[active].max() - 4.0 / sharpness)
            active |= missed
            self.rounds += 1
            self._report(min(self.rounds, total), total)
            if self.settings.is_late or (whole and not missed.any()) or (taken >= steps and not missed.any()):
                break
        return point, values

    def _perturbed_point(self, start: Moves) -> FloatArray:
        """Moves as a point of the search, with a little randomness that leaves symmetric stationary points."""
        point = raise_slacks(self.layout.point_of_moves(start), self.problem.n_labels)
        spread = 1e-3 * np.std(point)
        return np.asarray(point + spread * np.random.default_rng(self.settings.seed).standard_normal(len(point)))

    def _evaluate_edges(self, point: FloatArray, edges: IndexArray | None = None) -> FloatArray:
        """(edges,) ln δ of every edge at a point, -inf where it was not evaluated; keep the best moves over all edges.

        Moves that led over some edges are evaluated over all of them together with the next point that is.
        """
        moves = self.layout.moves(point)
        values = np.full(len(self.problem.pairs), -math.inf)
        chosen = log_deltas(self.problem, trial_laws(self.problem, moves), edges).max(axis=1)
        worst = float(chosen.max())
        if edges is not None and len(edges) < len(values):
            values[edges] = chosen
            if worst < min(self.best_value, self.leading[0]):
                self.leading = worst, moves
            return values
        self.problem.known_log_deltas[moves] = worst
        rivals = [(worst, moves)]
        if self.leading[0] < min(worst, self.best_value):
            rivals.append((worst_log_delta(self.problem, self.leading[1], above=worst), self.leading[1]))
        self.leading = math.inf, moves
        for value, rival in rivals:
            if value < self.best_value:
                self.best, self.best_value = rival, value
        return np.asarray(chosen)

    def _is_late(self) -> bool:
        """Whether time is up or the search was interrupted."""
        return self.settings.is_late

    def _report(self, done: int, total: int) -> None:
        """Report the rounds done and the best ln δ so far to the caller's function."""
        if self.settings.report is not None:
            self.settings.report(done, total, self.best_value)


def active_edges(odds: FloatArray, sharpness: float, n_labels: int) -> BoolArray:
    """(edges,) mask of edges near enough to the worst to matter at this sharpness; always the 2 n_labels + 20 worst."""
    keep = np.asarray(odds > odds.max() - 14.0 / sharpness)
    few = min(len(odds), 2 * n_labels + 20)
    keep[np.argpartition(-odds, few - 1)[:few]] = True
    return keep
