"""A mechanism that meets (ε, δ), group by group, in bounded time or a bounded number of steps.

Connected components share no edge, so each is calibrated for itself and no household pays for a group that is harder to
hide in. The price of perfection of a group (:func:`shoal.perfect_rho`) always meets the target; the search then looks
for something cheaper: first a little below that price, since where δ jumps up there the rest need not be tried (point
forecasts are such a case), then by bisection. Certificates are those of the finished mechanism.

Bounded by seconds, a design depends on how busy the machine is. Bounded by ``iterations`` no clock is looked at, and
the same arguments give the same mechanism.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.curve import round_up
from shoal.classes import GaussianClasses
from shoal.designs.design import calibrate, design, perfect_rho
from shoal.designs.mechanism import Mechanism
from shoal.designs.problem import Problem
from shoal.errors import UnreachableError
from shoal.graph import NeighborGraph

#: Relative distance to the price of perfection below which looking for less is not worth the time.
CLOSE = 0.02
#: Designs tried per group once one below the price of perfection has met the target.
STEPS = 6
#: Paid on top of the price of perfection, for the sliver of noise that covers rounding.
MARGIN = 1e-7

#: Called with (groups done, groups).
Progress = Callable[[int, int], None]


def meet(
    classes: GaussianClasses,
    graph: NeighborGraph,
    *,
    method: str,
    epsilon: Any,
    delta: float,
    seed: int = 0,
    seconds: float = 20.0,
    iterations: int | None = None,
    start: Mechanism | None = None,
    progress: Progress | None = None,
) -> Mechanism:
    """The least error found at which ``method`` meets (ε, δ); certainly met, or :class:`UnreachableError`.

    ``seconds`` bounds the search, unless ``iterations`` (steps per stage, as in :func:`shoal.design`) is given.
    ``start`` is an earlier mechanism for the same labels: what it spends is tried first, from its parameters.
    """
    if iterations is not None:
        iterations = validation.count(iterations=iterations)
    problem = Problem.of(classes, graph, epsilon, 1.0)
    groups = [members for members in problem.components if len(members) > 1]
    found: list[tuple[Any, Mechanism]] = []
    end = time.monotonic() + seconds
    for number, members in enumerate(groups):
        part = problem.part(members)
        share = max(end - time.monotonic(), 0.1) / (len(groups) - number)
        limits = _Limits(iterations, time.monotonic() + share)
        warm = None if start is None else part_of(start, part.original.labels)
        found.append((members, _one_group(part, method, delta, seed, limits, warm)))
        if progress is not None:
            progress(number + 1, len(groups))
    return attained(joined(method, problem, found), delta)


def attained(mechanism: Mechanism, delta: float) -> Mechanism:
    """The mechanism, if its certificate meets ``delta``."""
    if mechanism.certificate.delta_upper > delta:
        raise UnreachableError(
            f"delta: method {mechanism.method!r} reaches {round_up(mechanism.certificate.delta_upper):.4g} at this "
            "epsilon, not the delta asked for; ask for a larger delta or epsilon"
        )
    return mechanism


@dataclass(frozen=True)
class _Limits:
    """What ends a search: steps, or a time of the monotonic clock, which is then not looked at."""

    iterations: int | None
    end: float

    @property
    def late(self) -> bool:
        return self.iterations is None and time.monotonic() > self.end

    @property
    def options(self) -> dict[str, Any]:
        if self.iterations is not None:
            return {"iterations": self.iterations}
        return {"time_limit": max((self.end - time.monotonic()) / 2, 0.2)}


def _one_group(
    part: Problem, method: str, delta: float, seed: int, limits: _Limits, warm: Mechanism | None
) -> Mechanism:
    classes, graph, epsilon = part.original, part.graph, part.epsilons[:, 0].copy()

    def attempt(rho: float, *starts: Mechanism) -> Mechanism:
        return design(
            classes, graph, method, epsilon, rho, seed=seed, start=starts, interruptible=True, **limits.options
        )

    if method not in ("transport", "additive", "center"):
        return calibrate(classes, graph, method, epsilon, delta, seed=seed, interruptible=True, **limits.options)
    if method == "center" and not classes.stored_variances.any():
        # Constants either meet or can be told apart: there is nothing in between to look for.
        price = perfect_rho(classes, graph) * (1 + MARGIN)
        return attempt(price) if price > 0 else design(classes, graph, "none", epsilon, 1.0)
    bare = design(classes, graph, "none", epsilon, 1.0)
    if bare.certificate.delta_upper <= delta:
        return bare
    earlier = () if warm is None else (warm,)
    high = perfect_rho(classes, graph, "additive" if method == "additive" else "transport") * (1 + MARGIN)
    best, middle = None, high * (1 - CLOSE)
    spent = 0.0 if warm is None else float(warm.rho.max())
    if 0.0 < spent < middle:
        tried = attempt(spent, *earlier)
        if tried.certificate.delta_upper <= delta:
            best, high = tried, min(spent, float(tried.weighted_rho.max()))
            middle = high * (1 - CLOSE)
    if best is None:
        best = attempt(high)
    if best.certificate.delta_upper > delta:
        left = f"{round_up(best.certificate.delta_upper):.4g}"
        if best._ideal.delta_upper <= delta:
            raise UnreachableError(
                f"delta lies below what finite precision costs a release of method {method!r}, about {left}; ask for a "
                "larger delta"
            )
        raise UnreachableError(
            f"delta: method {method!r} does not meet the delta asked for even where all laws coincide; it is left with "
            f"{left}. Ask for a larger delta" + ("" if method == "transport" else ", or use method 'transport'")
        )
    low = 0.0
    for step in range(STEPS):
        if step and limits.late:
            break
        tried = attempt(middle, best, *earlier)
        if tried.certificate.delta_upper <= delta:
            best, high = tried, min(middle, float(tried.weighted_rho.max()))
        else:
            low = middle
        if low > high * (1 - 2 * CLOSE):
            break
        middle = high / 2 if low == 0 else math.sqrt(low * high)
    return best


def part_of(mechanism: Mechanism, labels: Sequence[str]) -> Mechanism:
    """The mechanism of some of its labels, with the edges between them."""
    members = np.array([mechanism._position(name) for name in labels], dtype=np.intp)
    place = np.full(mechanism.classes.n_classes, -1, dtype=np.intp)
    place[members] = np.arange(len(members))
    pairs = place[mechanism._pairs]
    inside = np.flatnonzero((pairs >= 0).all(axis=1))
    pairs = np.sort(pairs[inside], axis=1)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    noise = np.broadcast_to(mechanism.noise_cov, (mechanism.classes.n_classes, *mechanism.noise_cov.shape[1:]))
    return replace(
        mechanism,
        classes=mechanism.classes.take(members),
        graph=NeighborGraph(labels, pairs[order]),
        epsilon=mechanism.epsilon[inside][order],
        shift=mechanism.bias[members],
        gain=None if mechanism.gain is None else mechanism.gain[members],
        noise_cov=noise[members].copy(),
        budget=mechanism.budget[members],
        lower_bound=0.0,
        history=np.empty(0),
    )


def joined(method: str, problem: Problem, found: list[tuple[Any, Mechanism]]) -> Mechanism:
    """One mechanism for all labels from those of groups; a label in none is left as it is: nothing is claimed of it."""
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
        weights=problem.scale**2,
        lower_bound=max((m.lower_bound for _, m in found), default=0.0),
        notes=tuple(notes),
    )
