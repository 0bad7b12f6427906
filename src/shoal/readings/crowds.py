"""Noisy crowds: curves and counts that may leave, rebuilt from the noisy vector and the public plan alone.

``publish`` is a pure function of both, so whatever it does is post-processing: counts are made non-negative together,
by least squares against public expectations; levels inside a cell are spread along a monotone curve through the noisy
distribution; shapes are public curves with noisy weights; what was clipped is put back from the noisy histogram; and
all curves are scaled so that they add up to the noisy total.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from shoal import validation
from shoal.errors import InputError
from shoal.readings.noisy import accepted, cosines, mean_load, places, vector_sum
from shoal.readings.plan import HIGHEST, LOWEST, CrowdsPlan
from shoal.readings.public_curves import class_of, curves_over, relative_levels, shares
from shoal.validation import FloatArray, IndexArray

#: Cells wider than this ratio are spread over two levels.
WIDE = 1.4
#: How far a population's counts are expected to lie from the public ones, relative.
LEVEL_TRUST, SHAPE_TRUST = 0.4, 1.0
#: Expected relative size of the first cosine of the mean curve.
SWING_TRUST = 0.35
#: Deviation of the homes that send readings from the customers on the register, relative.
REGISTER_TRUST = 0.03


@dataclass(frozen=True)
class PublicTables:
    """What may leave, noise included: weighted curves and the total."""

    curves: FloatArray  #: (m, k) kW
    counts: FloatArray  #: (m,) homes, fractions included
    total: FloatArray  #: (k,) kW
    levels: FloatArray = field(repr=False)  #: kW between the levels of the curves, before they were scaled


@dataclass(frozen=True)
class NoisyCrowds(PublicTables):
    """A release of noisy crowds. All but ``crowd_of`` may leave."""

    plan: CrowdsPlan
    noisy: FloatArray = field(repr=False)  #: the noisy vector: all that was drawn from the readings
    crowd_of: IndexArray = field(repr=False)  #: (n,) the row of ``curves`` each home is in: the owner's, never to leave

    @property
    def mu(self) -> float:
        """μ of the release for zero-out neighbors, rounded up."""
        return self.plan.mu

    def delta(self, epsilon: float, neighbors: str = "zero-out", meters: int = 1) -> float:
        """δ at ``epsilon`` of all that may leave, as :meth:`CrowdsPlan.delta` has it."""
        return self.plan.delta(epsilon, neighbors, meters)


def noisy_crowds(curves: Any, plan: CrowdsPlan) -> NoisyCrowds:
    """Release curves and counts that protect every home's whole readings.

    Each home adds one clipped vector of whole numbers to a sum (``shoal.readings.plan``); the sum gets noise from a
    cryptographic source in exact arithmetic; everything else is made from the noisy sum and the plan. No seed.

    Args:
        curves: (n, k) kW, one row a home, each a function of that home's readings and public settings alone; not
            negative; at most as many rows as the plan has customers. A home behind several meters is one row.
        plan: from :func:`shoal.noisy_crowds_plan`.

    Returns:
        Curves, counts and total with their account. Two calls are two releases: their μ² add.

    >>> import numpy as np, shoal
    >>> plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0)
    >>> crowds = shoal.noisy_crowds(np.ones((486, 12)), plan)
    >>> crowds.total.shape, len(crowds.curves) == len(crowds.counts), crowds.crowd_of.shape
    ((12,), True, (486,))
    """
    if not isinstance(plan, CrowdsPlan):
        raise InputError("plan must come from shoal.noisy_crowds_plan")
    homes = accepted(curves, plan)
    return described(homes, plan.account.released(vector_sum(homes, plan)), plan)


def described(curves: Any, noisy: FloatArray, plan: CrowdsPlan) -> NoisyCrowds:
    """The release of a noisy vector that was drawn before, with the row of each home: for the data owner."""
    homes = accepted(curves, plan)
    tables = publish(noisy, plan, homes.shape[1])
    level = np.clip(np.searchsorted(tables.levels, mean_load(homes), side="right") - 1, 0, len(tables.levels) - 2)
    row = level * len(shares()) + places(homes, plan).shape
    return NoisyCrowds(**vars(tables), plan=plan, noisy=noisy, crowd_of=row)


def publish(noisy: Any, plan: CrowdsPlan, steps: int) -> PublicTables:
    """The public tables of a noisy vector: a pure function of it, the plan and the number of steps."""
    vector = validation.array(ndim=1, noisy=noisy)
    if vector.shape != (plan.entries,):
        raise InputError(f"noisy must hold the plan's {plan.entries} entries")
    steps = validation.count(steps=steps)
    std = plan.account.sigma
    load = max(float(vector[plan.parts["load"].start]) * plan.load_clip / plan.load_weight, 0.0)
    load = max(load, plan.customers * plan.typical_kw * 1e-3)
    bounds, counts = _levels(vector, plan, load, std)
    middles = np.sqrt(bounds[1:] * bounds[:-1])
    weights = _shape_weights(vector, plan, middles, counts, std)
    curves = (middles[:, None, None] * curves_over(steps)).reshape(-1, steps)
    homes = (counts[:, None] * weights).ravel()
    over = float(counts @ np.maximum(middles - plan.load_clip, 0.0)) if plan.level_weight else 0.0
    total = _mean_curve(vector, plan, load, steps, std) * (load + over)
    return PublicTables(curves * (total / (homes @ curves)), homes, total, bounds)


def _levels(vector: FloatArray, plan: CrowdsPlan, load: float, std: float) -> tuple[FloatArray, FloatArray]:
    """Bounds in kW of the levels released, and how many homes have each."""
    edges = np.array([plan.typical_kw * LOWEST, *plan.edges, plan.typical_kw * HIGHEST])
    public = relative_levels() * load / plan.customers
    seats = np.bincount(np.searchsorted(edges[1:-1], public, side="right"), minlength=len(edges) - 1)
    expected: FloatArray = seats.astype(np.float64) / len(public) * plan.customers
    counts = expected
    if plan.level_weight:
        seen, noise = vector[plan.parts["level"]] / plan.level_weight, std / plan.level_weight
        counts = _together(seen, noise, expected, LEVEL_TRUST)
        counts = counts * _homes(seen, noise, plan.customers) / max(counts.sum(), 1e-9)
    below = np.concatenate([[0.0], np.cumsum(counts)])
    logs = np.log(edges)
    spread = 2 if edges[2] > WIDE * edges[1] else 1
    fine = np.interp(np.arange((len(edges) - 1) * spread + 1) / spread, np.arange(len(edges)), logs)
    return np.exp(fine), np.maximum(np.diff(scipy.interpolate.PchipInterpolator(logs, below)(fine)), 0.0)


def _homes(seen: FloatArray, spread: float, customers: int) -> float:
    """How many homes sent readings: the noisy sum of all cells, weighed against the register."""
    noise, trust = len(seen) * spread**2, (REGISTER_TRUST * customers) ** 2
    return float(np.clip(customers + (seen.sum() - customers) * trust / (trust + noise), 0.5 * customers, customers))


def _together(seen: FloatArray, spread: float, expected: FloatArray, trust: float) -> FloatArray:
    """Counts made non-negative together: least squares of noisy and expected counts, each by its deviation."""
    width = trust * np.maximum(expected, 0.1 * expected.sum() / len(expected))
    rows = np.vstack([np.eye(len(seen)) / spread, np.diag(1 / width)])
    return np.asarray(scipy.optimize.nnls(rows, np.concatenate([seen / spread, expected / width]))[0])


def _shape_weights(
    vector: FloatArray, plan: CrowdsPlan, levels: FloatArray, counts: FloatArray, std: float
) -> FloatArray:
    """(levels, 60) share of each public curve at each level."""
    public = shares()
    if not plan.shape_weight:
        return np.tile(public, (len(levels), 1))
    classes = class_of(plan.classes)
    expected: FloatArray = np.asarray(np.bincount(classes, weights=public, minlength=plan.classes), dtype=np.float64)
    group = np.searchsorted(np.array(plan.cuts), levels, side="right")
    seen = vector[plan.parts["shape"]].reshape(-1, plan.classes) / plan.shape_weight
    weights = np.empty((len(levels), len(public)))
    for number, row in enumerate(seen):
        homes = max(float(counts[group == number].sum()), 1.0)
        share = _together(row, std / plan.shape_weight, expected * homes, SHAPE_TRUST)
        share = share / share.sum() if share.sum() > 0 else expected
        weights[group == number] = (share / expected)[classes] * public
    return weights


def _mean_curve(vector: FloatArray, plan: CrowdsPlan, load: float, steps: int, std: float) -> FloatArray:
    """(steps,) all homes' load over its mean: noisy cosines, each shrunk by what it is expected to be."""
    curve = np.ones(steps)
    if plan.swing_weight:
        scale = plan.swing_clip / plan.swing_weight / load
        order = np.arange(1, plan.swings + 1)
        expected = (SWING_TRUST / np.sqrt(order + 1)) ** 2
        kept = expected / (expected + (std * scale) ** 2)
        terms = (vector[plan.parts["swing"]] * scale * kept)[:, None] * cosines(steps, plan.swings)
        curve = np.maximum(curve + terms.sum(axis=0), 0.1)
    return np.asarray(curve / curve.mean())
