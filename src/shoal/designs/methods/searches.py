"""``none`` and ``white``, which ignore the labels' laws, and the methods that search: covariance, additive, transport.

``covariance`` has noise of mean zero and a covariance per label, ``additive`` noise with a mean as well (the paper's
problem in full), ``transport`` affine maps plus noise, q̃ = q + b + B Σ^{−1/2}(q − μ) + C z. None is ever worse than the
methods it contains: their designs are starts, and certificates are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoal.designs.barycenter import common_center
from shoal.designs.descent import (
    ENOUGH,
    Settings,
    best_certified,
    glance_at_starts,
    log_odds_of,
    search_from_starts,
    worst_log_delta,
)
from shoal.designs.methods.center import additive_moves, budgets_cover, geodesic_moves, starts_with_white_noise
from shoal.designs.methods.ellipsoid import ellipsoid
from shoal.designs.methods.paper import paper
from shoal.designs.parameters import certified_log_delta
from shoal.designs.problem import DesignProblem, Moves, budget_radii
from shoal.laws.classes import GaussianClasses
from shoal.numerics.matrices import EPS, square_root
from shoal.validation import FloatArray

#: Share of the time left that Algorithm 1 may take; the search on the exact δ is worth more.
ALGORITHM_1 = 0.25
#: A weaker method is searched to its end where the log odds of a first look at it are at most this far above the best,
#: or this share of the best's.
CLOSE, CLOSE_SHARE = 1.0, 0.3
#: Share of each budget that goes into noise outside the span.
SLIVER = 1e-8


def none(problem: DesignProblem, settings: Settings | None = None, starts: Sequence[Moves] = ()) -> Moves:
    """Moves of zero: answers are released as they are."""
    return Moves.zeros(problem)


def white(problem: DesignProblem, settings: Settings | None = None, starts: Sequence[Moves] = ()) -> Moves:
    """Independent noise of equal variance in every entry, Σ_η = ρ I for every label."""
    n, k = problem.n_labels, problem.n_dims
    std = budget_radii(problem) / np.sqrt(k)
    return Moves(np.zeros((n, k)), None, std[:, None, None] * np.eye(k))


@dataclass(frozen=True)
class DifferenceSpan:
    """A problem over constants, the same problem in the span of their differences, and an orthonormal basis (k, r).

    Constants differ in n − 1 of k directions at most. Noise and shifts outside the span hide nothing and cost error, so
    nothing is lost. A finished design is lifted back with a sliver of noise in the other directions, without which the
    rounding of the span's basis would tell constants apart; it is certified where it is used, in all k entries.
    """

    whole: DesignProblem
    problem: DesignProblem
    basis: FloatArray

    @classmethod
    def of(cls, problem: DesignProblem) -> DifferenceSpan | None:
        """The smaller problem; None where answers are random, a noise floor is demanded or nothing becomes smaller."""
        if problem.classes.stored_variances.any() or problem.noise_floor > 0:
            return None
        gaps = problem.classes.means - problem.classes.means.mean(axis=0)
        _, sizes, rows = np.linalg.svd(gaps, full_matrices=False)
        rank = int((sizes > max(gaps.shape) * EPS * sizes[0]).sum()) if len(sizes) else 0
        if not 0 < rank < problem.n_dims:
            return None
        basis = np.ascontiguousarray(rows[:rank].T)
        inside = GaussianClasses.deterministic(gaps @ basis, problem.classes.labels)
        return cls(problem, replace(problem, classes=inside), basis)

    def project(self, moves: Moves) -> Moves:
        """Moves of the whole problem as moves inside the span; what a map does to a constant is noise."""
        noise = moves.noise @ np.swapaxes(moves.noise, 1, 2)
        if moves.map is not None:
            noise = noise + moves.map @ np.swapaxes(moves.map, 1, 2)
        inside = square_root(self.basis.T @ noise @ self.basis)
        return Moves(moves.shift @ self.basis, None, inside).within_budget(self.problem)

    def lift(self, moves: Moves) -> Moves:
        """Moves inside the span as moves of the whole problem, in all entries."""
        k, rank = self.basis.shape
        sliver = np.sqrt(SLIVER * self.whole.budgets / (k - rank))[:, None, None]
        inside = self.basis @ self.basis.T
        part = np.sqrt(1.0 - SLIVER)
        noise = part * self.basis @ moves.noise @ self.basis.T + sliver * (np.eye(k) - inside)
        return Moves(part * moves.shift @ self.basis.T, None, noise).within_budget(self.whole)


def covariance(problem: DesignProblem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """The best of nothing, white noise, one ellipsoid, the paper's answer and searches; never worse than any."""
    own = [m.within_budget(problem) for m in starts if m.map is None and not m.shift.any()]
    simple = [none(problem), white(problem), ellipsoid(problem, settings), *own]
    span = None if settings.is_late else DifferenceSpan.of(problem)
    if span is None:
        best = search_from_starts(problem, simple, simple, shifts=False, settings=settings)
    else:
        inside = span.problem
        simple_inside = [white(inside), ellipsoid(inside, settings), *(span.project(moves) for moves in own)]
        lifted = span.lift(search_from_starts(inside, simple_inside, simple_inside, shifts=False, settings=settings))
        best = best_certified(problem, [*simple, lifted])
    choices = [best]
    if not settings.is_late:
        with settings.ending_at_interrupt():
            choices.append(paper(problem, settings.part(ALGORITHM_1)))
    return best_certified(problem, choices)


def additive(problem: DesignProblem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """Searches from the way to the common law and from simpler noise; never worse than the covariance design."""
    common = common_center("additive_center", problem.classes, settings)
    towards = additive_moves(problem, common)
    if budgets_cover(problem, common) and certified_log_delta(problem, towards) < ENOUGH:
        return towards
    own = [m.within_budget(problem) for m in starts if m.map is None]
    span = None if settings.is_late else DifferenceSpan.of(problem)
    if span is not None:
        inside = additive(span.problem, settings, [span.project(moves) for moves in own])
        simple = [white(problem), towards, ellipsoid(problem, settings)]
        best = best_certified(problem, [*simple, *own, span.lift(inside)])
    else:
        simple = [white(problem), ellipsoid(problem, settings)]
        candidates = [*simple, towards, *own]
        starts_here = [*candidates, *starts_with_white_noise(problem, towards)]
        best = search_from_starts(problem, candidates, starts_here, shifts=True, settings=settings)
    rough = [glance_at_starts(problem, simple[-1:], shifts=False, settings=settings), white(problem)]
    if settings.is_late or not any(is_competitive(problem, moves, best) for moves in rough):
        return best
    zero_mean = covariance(problem, settings, starts)
    return best_certified(problem, [zero_mean, best])


def transport(problem: DesignProblem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """Searches from the geodesic to the common law; never worse than it, nor than the additive design."""
    if not problem.classes.stored_variances.any():
        return additive(problem, settings, starts)  # what a map makes of a constant is noise
    common = common_center("transport_center", problem.classes, settings)
    towards = geodesic_moves(problem, common)
    if budgets_cover(problem, common) and certified_log_delta(problem, towards) < ENOUGH:
        return towards
    own = [m.within_budget(problem) for m in starts]
    candidates = [white(problem), towards, *own]
    starts_here = [*candidates, *starts_with_white_noise(problem, towards)]
    best = search_from_starts(problem, candidates, starts_here, shifts=True, mapped=True, settings=settings)
    if settings.is_late or not is_competitive(
        problem, glance_at_starts(problem, [white(problem)], shifts=True, settings=settings), best
    ):
        return best
    added = additive(problem, settings, starts)
    return best_certified(problem, [added, best])


def compare_with_undivided(problem: DesignProblem, moves: Moves, settings: Settings, *, uses: Sequence[str]) -> Moves:
    """The best of a design by components and of the methods that look at all labels together.

    Each component has tried these but for Algorithm 1 on all of them, which a stronger search need not wait for where
    equal noise is far behind.
    """
    choices = [moves, white(problem), *([none(problem)] if problem.noise_floor == 0 else [])]
    if not settings.is_late and (not uses or is_competitive(problem, white(problem), moves)):
        with settings.ending_at_interrupt():
            choices.append(paper(problem, settings.part(ALGORITHM_1)))
    return best_certified(problem, choices)


def is_competitive(problem: DesignProblem, rough: Moves, best: Moves) -> bool:
    """Whether the δ of a rough design is close enough to the best's for a search from it to come out below."""
    odds = log_odds_of(worst_log_delta(problem, best))
    limit = odds + CLOSE + CLOSE_SHARE * abs(odds)
    log_limit = -math.log1p(math.exp(min(-limit, 700.0)))
    return worst_log_delta(problem, rough, above=log_limit) <= log_limit
