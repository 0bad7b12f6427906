"""``calibrate``: the least error at which a method meets (ε, δ), group by group.

A method that can make labels equal starts from the price of that (:func:`shoal.perfect_rho`) and looks for something
cheaper, a little below first, then in growing steps and by bisection; others double a guess until it is enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shoal import validation
from shoal.designs.design import design, perfect_rho
from shoal.designs.methods import METHODS, Method
from shoal.designs.parameters import merge_mechanisms
from shoal.designs.problem import DesignProblem
from shoal.errors import UnreachableError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Mechanism
from shoal.proofs.proof import prove_mechanism
from shoal.rounding import upper

#: Paid on top of the price of perfection, for the sliver of noise that covers rounding.
MARGIN = 1e-7
#: Budgets tried, each twice the one before, until one is enough.
DOUBLINGS = 60
#: So many of them that meet the target but for finite precision say that more error will not help.
FLOORS = 3

#: Called with (groups done, groups).
Progress = Callable[[int, int], None]


def calibrate(
    classes: GaussianClasses,
    graph: NeighborGraph,
    method: str = "transport",
    epsilon: Any = 1.0,
    delta: float = 1e-6,
    notion: str = "dp",
    seed: int = 0,
    *,
    scope: str = "answer",
    times: int = 1,
    tolerance: float = 2e-3,
    noise_floor: float = 0.0,
    time_limit: float | None = None,
    iterations: int | None = None,
    progress: Progress | None = None,
    prove: bool = True,
) -> Mechanism:
    """The mechanism of least ρ at which a method meets (ε, δ), group by group of connected labels.

    The other arguments are those of :func:`shoal.design`. A label without neighbors is left as it is.

    Args:
        delta: the target, for the ``notion`` of δ.
        tolerance: relative accuracy of each group's ρ.
        time_limit: seconds for all groups together; what was found until then is returned.
        iterations: steps per stage of a search; with them no clock is looked at.
        progress: called with (groups done, groups).
        prove: whether the certificate is to be proved, within bounds on the work; it then says that it is, or why not.

    Returns:
        A mechanism with ``certificate.delta_upper <= delta``, finite precision included; an UnreachableError where
        there is none, or δ lies below what finite precision costs. For the searched methods "least" means the least
        that the search found. An interrupt goes through.

    Example:
        >>> import shoal
        >>> classes = shoal.GaussianClasses.deterministic([[0.0, 0.0], [1.0, 0.5], [0.2, 0.7]])
        >>> graph = shoal.NeighborGraph.complete(classes.labels)
        >>> mechanism = shoal.calibrate(classes, graph, "center", epsilon=1.0, delta=1e-6)
        >>> mechanism.certificate.delta_upper <= 1e-6, mechanism.certificate.proved
        (True, True)
    """
    validation.choice(list(METHODS), method=method)
    delta = validation.probability(delta=delta, below_one=True)
    tolerance = validation.positive(tolerance=tolerance)
    limit = math.inf if time_limit is None else validation.positive(time_limit=time_limit)
    problem = DesignProblem.of(classes, graph, epsilon, max(1.0, 2 * noise_floor), notion, noise_floor, scope, times)
    groups = [members for members in problem.components if len(members) > 1]
    end = time.monotonic() + limit
    mechanisms: list[tuple[Any, Mechanism]] = []
    for number, members in enumerate(groups):
        now = time.monotonic()
        until = now + max(end - now, 0.1) / (len(groups) - number)
        group = _GroupCalibration(problem.part(members), method, delta, seed, iterations, until)
        mechanisms.append((members, group.cheapest_mechanism(tolerance)))
        if progress is not None:
            progress(number + 1, len(groups))
    if not any(METHODS[mechanism.method].perturbs for _, mechanism in mechanisms) and noise_floor == 0:
        calibrated = design(classes, graph, "none", epsilon, 1.0, notion, scope=scope, times=times)
    elif len(groups) == 1 and len(groups[0]) == problem.n_labels:
        calibrated = mechanisms[0][1]
    else:
        calibrated = merge_mechanisms(method, problem, mechanisms)
    if calibrated.certificate.delta_upper > delta:
        raise UnreachableError(
            f"delta: method {calibrated.method!r} reaches {upper(calibrated.certificate.delta_upper)} at this epsilon, "
            "not the delta asked for; ask for a larger delta or epsilon"
        )
    certain = prove_mechanism(calibrated)[0] if prove else calibrated
    if certain.certificate.delta_upper > delta:
        above = replace(calibrated.certificate, unproved="what can be proved lies above delta, if by a rounding")
        return calibrated.with_certificate(above)
    return certain


@dataclass(frozen=True)
class _GroupCalibration:
    """The calibration of one connected group, and what bounds its search: steps, or a time of the monotonic clock."""

    part: DesignProblem
    method: str
    delta: float
    seed: int
    iterations: int | None
    end: float

    def design_at(self, rho: float, *starts: Mechanism, method: str | None = None) -> Mechanism:
        """The group's design at a budget ρ, searched from earlier mechanisms."""
        part, method, limit = self.part, method or self.method, None
        if self.iterations is None and self.end < math.inf:
            limit = max((self.end - time.monotonic()) / 2, 0.2)
        return design(
            part.classes,
            part.graph,
            method,
            part.epsilons[:, 0].copy(),
            rho,
            part.notion,
            self.seed,
            scope=part.scope,
            times=part.times,
            noise_floor=part.noise_floor if METHODS[method].perturbs else 0.0,
            time_limit=limit,
            iterations=self.iterations,
            interruptible=True,
            start=starts if METHODS[method].searched else (),
        )

    def meets_target(self, mechanism: Mechanism) -> bool:
        """Whether the certified δ is at most the target."""
        return mechanism.certificate.delta_upper <= self.delta

    def cheapest_mechanism(self, tolerance: float) -> Mechanism:
        """The mechanism of least error found that meets the target."""
        method = METHODS[self.method]
        floor = self.part.noise_floor
        if floor == 0:
            bare = self.design_at(1.0, method="none")
            if self.meets_target(bare):
                return bare
            if not method.perturbs:
                raise UnreachableError(
                    f"method {self.method!r} gives delta = {upper(bare.certificate.delta_upper)} at this epsilon, not "
                    "the delta asked for; choose a method that adds noise"
                )
        best = self._sufficient_mechanism(self._first_budget(method))
        # What a mechanism really spends can be less than its budget.
        high, low, ratio = float(best.rho.max()), floor, 0.5 if method.center is None else 1 - tolerance
        if method.meets_only and not self.part.classes.stored_variances.any():
            return best  # constants either meet or can be told apart: there is nothing in between
        middle = high * ratio if low == 0 or method.center is not None else math.sqrt(low * high)
        while high > low * (1 + 1.5 * tolerance) and low < middle < high:
            if self.iterations is None and time.monotonic() > self.end:
                break
            tried = self.design_at(middle, best)
            if self.meets_target(tried):
                best, high = tried, min(middle, float(tried.rho.max()))
                ratio *= ratio if low == 0 and ratio > 1e-6 else 1.0
            else:
                low = middle
            middle = high * ratio if low == 0 else math.sqrt(low * high)
        return best

    def _first_budget(self, method: Method) -> float:
        """The budget ρ to try first: the price of equal labels where the method can, else the spread of the means."""
        part, floor = self.part, self.part.noise_floor
        if method.center is not None:
            enough = perfect_rho(part.classes, part.graph, method.name) * (1 + MARGIN) + floor
        else:
            gaps = part.classes.means[part.pairs[:, 0]] - part.classes.means[part.pairs[:, 1]]
            enough = ((gaps**2).sum(axis=1).max() + part.classes.stored_variances.sum(axis=1).max()) / part.n_dims
        return max(float(enough), 2 * floor, 1e-300)

    def _sufficient_mechanism(self, budget: float) -> Mechanism:
        """A mechanism that meets the target, at a budget doubled until it does."""
        floors: list[float] = []
        for _ in range(DOUBLINGS):
            tried = self.design_at(budget)
            if self.meets_target(tried):
                return tried
            if tried.ideal_curve.delta_upper <= self.delta <= tried.certificate.finite_precision < 1:
                floors.append(tried.certificate.finite_precision)
            if len(floors) == FLOORS:
                raise UnreachableError(
                    f"delta lies below what finite precision costs a release of method {self.method!r}, about "
                    f"{upper(min(floors), 1)}; ask for a larger delta"
                )
            budget *= 2.0
        raise UnreachableError(
            f"method {self.method!r} did not reach the delta asked for up to rho = {budget / 2:.4g}; allow less "
            "noise_floor, or choose a larger epsilon"
        )
