"""A mechanism that meets (ε, δ), group by group, in bounded time.

Connected components share no edge, so each is calibrated for itself and no household pays for a group that is harder to
hide in. The price of perfection of a group (:func:`shoal.perfect_rho`) always meets the target; the search then looks
for something cheaper: first a little below that price, since where δ jumps up there the rest need not be tried (point
forecasts are such a case), then by bisection. Certificates are those of the finished mechanism.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.classes import GaussianClasses
from shoal.errors import UnreachableError
from shoal.graph import NeighborGraph
from shoal.mechanisms.design import calibrate, design, perfect_rho
from shoal.mechanisms.mechanism import Mechanism
from shoal.mechanisms.problem import Problem
from shoal.privacy.curve import round_up

#: Relative distance to the price of perfection below which looking for less is not worth the time.
CLOSE = 0.02
#: Designs tried per group once one below the price of perfection has met the target.
STEPS = 6
#: Paid on top of the price of perfection, for the sliver of noise that covers rounding.
MARGIN = 1e-7
INTERRUPTED = "an interrupt ended the search"

#: Called with (groups done, groups).
Progress = Callable[[int, int], None]


def meet(
    classes: GaussianClasses,
    graph: NeighborGraph,
    *,
    method: str,
    epsilon: float,
    delta: float,
    seed: int = 0,
    seconds: float = 20.0,
    progress: Progress | None = None,
) -> Mechanism:
    """The least error found at which ``method`` meets (ε, δ); certainly met, or :class:`UnreachableError`."""
    if method not in ("transport", "additive", "center"):
        options: dict[str, Any] = {} if method in ("none", "white", "paper") else {"time_limit": seconds / 10}
        return interruptible(calibrate(classes, graph, method, epsilon, delta, seed=seed, **options))
    problem = Problem.of(classes, graph, epsilon, 1.0)
    groups = [members for members in problem.components if len(members) > 1]
    found: list[tuple[Any, Mechanism]] = []
    end = time.monotonic() + seconds
    for number, members in enumerate(groups):
        part = problem.part(members)
        share = max(end - time.monotonic(), 0.1) / (len(groups) - number)
        found.append((members, _one_group(part.original, part.graph, method, epsilon, delta, seed, share)))
        if progress is not None:
            progress(number + 1, len(groups))
    mechanism = _together(method, problem, found)
    if mechanism.certificate.delta_upper > delta:
        raise UnreachableError(
            f"delta: method {method!r} reaches {round_up(mechanism.certificate.delta_upper):.4g} at this epsilon, not "
            "the delta asked for; ask for a larger delta or epsilon"
        )
    return mechanism


def _one_group(
    classes: GaussianClasses, graph: NeighborGraph, method: str, epsilon: float, delta: float, seed: int, seconds: float
) -> Mechanism:
    end = time.monotonic() + seconds

    def attempt(rho: float, start: Mechanism | None = None) -> Mechanism:
        limit = max((end - time.monotonic()) / 2, 0.2)
        made = design(classes, graph, method, epsilon, rho, seed=seed, time_limit=limit, start=start)
        return interruptible(made)

    bare = design(classes, graph, "none", epsilon, 1.0)
    if bare.certificate.delta_upper <= delta:
        return bare
    high = perfect_rho(classes, graph, "additive" if method == "additive" else "transport") * (1 + MARGIN)
    best = attempt(high)
    if best.certificate.delta_upper > delta:
        raise UnreachableError(
            f"delta: method {method!r} does not meet the delta asked for even where all laws coincide; it is left with "
            f"{round_up(best.certificate.delta_upper):.4g}. Ask for a larger delta, or use method 'transport'"
        )
    low, middle = 0.0, high * (1 - CLOSE)
    for step in range(STEPS):
        if step and time.monotonic() > end:
            break
        tried = attempt(middle, best)
        if tried.certificate.delta_upper <= delta:
            best, high = tried, min(middle, float(tried.weighted_rho.max()))
        else:
            low = middle
        if low > high * (1 - 2 * CLOSE):
            break
        middle = high / 2 if low == 0 else math.sqrt(low * high)
    return best


def _together(method: str, problem: Problem, found: list[tuple[Any, Mechanism]]) -> Mechanism:
    """One mechanism for all labels; a label without neighbors is left as it is, and nothing is claimed about it."""
    n, k = problem.n_labels, problem.n_dims
    shift, noise, budget = np.zeros((n, k)), np.zeros((n, k, k)), np.full(n, np.finfo(np.float64).tiny)
    gain = np.zeros((n, k, k)) if any(m.gain is not None for _, m in found) else None
    notes: list[str] = []
    for members, mechanism in found:
        shift[members] = mechanism.bias
        noise[members] = mechanism.noise_cov
        budget[members] = mechanism.budget
        if gain is not None and mechanism.gain is not None:
            gain[members] = mechanism.gain
        notes += [note for note in mechanism.notes if note not in notes]
    return Mechanism(
        method=method,
        classes=problem.original,
        graph=problem.graph,
        epsilon=problem.epsilons[:, 0].copy(),
        notion=problem.notion,
        shift=shift,
        gain=gain,
        noise_cov=noise,
        budget=budget,
        weights=np.ones(k),
        lower_bound=max((m.lower_bound for _, m in found), default=0.0),
        notes=tuple(notes),
    )


def interruptible(mechanism: Mechanism) -> Mechanism:
    """A search ends with its best at Ctrl-C; a run ends there."""
    if any(note.startswith(INTERRUPTED) for note in mechanism.notes):
        raise KeyboardInterrupt
    return mechanism
