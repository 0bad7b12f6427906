"""Noisy crowds: what each home adds to the noisy vector, and the curves and counts that are rebuilt from it.

A home adds a function of its own curve and the public plan, in whole numbers. No operation mixes rows (no matrix
products, whose last bit may change with the number of rows), so that taking one home away changes the sum by exactly
that home's vector. What leaves is post-processing (docs/theory.md, section 16). Public curves, sixty shapes with their
shares and how loads spread around their mean, are derived from "SmartMeter Energy Consumption Data in London
Households" (UK Power Networks, Low Carbon London project, London Datastore), CC BY 4.0 (benchmarks/public_curves.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import scipy

from shoal import validation
from shoal.errors import InputError
from shoal.readings.plan import HIGHEST, LOWEST, CrowdsPlan
from shoal.rounding import count_of
from shoal.validation import FloatArray, IndexArray

#: Homes whose distances to the public curves are in memory at a time.
HOMES = 8192
#: kW beyond which a step is cut, far above any meter: no square overflows.
LARGEST = 1e9
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
    """Public tables of a noisy vector: weighted curves and the total."""

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

    def __repr__(self) -> str:
        rows, steps = self.curves.shape
        return f"NoisyCrowds({rows} curves of {count_of(steps, 'step')}, {self.plan!r})"

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
        curves: (n, k) kW, one row a home; not negative; at most as many rows as the plan has customers. A home behind
            several meters is one row. **With them you declare that each row is a function of that home's readings and
            of public settings alone: that no setting was inferred from the readings of all.** Forecasts need
            ``shoal.forecast(readings, origin=…, interval=…)``; encoding, unit, interval and time zone of files are
            named, not guessed. A run with ``secret="readings"`` sees to all of that itself.
        plan: from :func:`shoal.noisy_crowds_plan`.

    Returns:
        Curves, counts and total with their account. Two calls are two releases: their μ² add.

    >>> import numpy as np, shoal
    >>> plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0, typical_kw=1.0)
    >>> crowds = shoal.noisy_crowds(np.ones((486, 12)), plan)
    >>> crowds.total.shape, len(crowds.curves) == len(crowds.counts), crowds.crowd_of.shape
    ((12,), True, (486,))
    """
    if not isinstance(plan, CrowdsPlan):
        raise InputError("plan must come from shoal.noisy_crowds_plan")
    homes = check_curves(curves, plan)
    return noisy_crowds_from_vector(homes, plan.account.release(sum_of_home_vectors(homes, plan)), plan)


def noisy_crowds_from_vector(curves: Any, noisy: FloatArray, plan: CrowdsPlan) -> NoisyCrowds:
    """The release made from a noisy vector that was drawn before, with the curve that each home is in."""
    homes = check_curves(curves, plan)
    tables = public_tables(noisy, plan, homes.shape[1])
    level = np.clip(np.searchsorted(tables.levels, mean_loads(homes), side="right") - 1, 0, len(tables.levels) - 2)
    row = level * len(public_curve_shares()) + cell_positions(homes, plan)[2]
    return NoisyCrowds(**vars(tables), plan=plan, noisy=noisy, crowd_of=row)


def check_curves(curves: object, plan: CrowdsPlan) -> FloatArray:
    """Curves (n, k) in kW as a plan can take them; refuse more homes than customers, and homes that export."""
    checked = validation.array(ndim=2, curves=curves)
    if checked.shape[1] < 1:
        raise InputError("curves must have at least one step")
    if len(checked) > plan.customers:
        raise InputError(
            f"curves hold more homes than the plan's {plan.customers} customers: declare the number on the register"
        )
    if (checked < 0).any():
        raise InputError(
            "curves must not be negative: homes that export are outside this release. Leave them out, or give only "
            "their consumption"
        )
    return np.minimum(np.ascontiguousarray(checked), LARGEST)


def mean_loads(curves: FloatArray) -> FloatArray:
    """(n,) mean of each home's curve in kW, summed step by step so that no row depends on the others."""
    total = np.zeros(len(curves))
    for step in range(curves.shape[1]):
        total = total + curves[:, step]
    return np.asarray(total / curves.shape[1])


def cell_positions(curves: FloatArray, plan: CrowdsPlan) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Three (n,) positions for every home: level cell, level group and nearest public curve (flat without load)."""
    level = mean_loads(curves)
    shapes = np.where(level[:, None] > 0, curves / np.where(level > 0, level, 1.0)[:, None], 1.0)
    public = public_curves_over(curves.shape[1])
    nearest = [
        scipy.spatial.distance.cdist(shapes[i : i + HOMES], public, "cityblock").argmin(axis=1)
        for i in range(0, len(shapes), HOMES)
    ]
    return (
        np.searchsorted(np.array(plan.edges), level, side="right"),
        np.searchsorted(np.array(plan.cuts), level, side="right"),
        np.concatenate([np.empty(0, dtype=np.intp), *nearest]),
    )


def cosine_basis(steps: int, count: int) -> FloatArray:
    """(count, steps) cosine basis after the constant, each of mean square 1; zeros beyond steps − 1 of them."""
    at = (np.arange(steps) + 0.5) / steps
    order = np.arange(1, count + 1)[:, None]
    return np.asarray(np.where(order < steps, np.sqrt(2.0) * np.cos(np.pi * order * at), 0.0))


def home_vectors(curves: FloatArray, plan: CrowdsPlan) -> FloatArray:
    """(n, entries) the integer vector that each home adds, with ‖v‖² at most the plan's Δ²."""
    (level, group, shape), part_slices = cell_positions(curves, plan), plan.part_slices
    rows = np.arange(len(curves))
    vectors = np.zeros((len(curves), plan.entries))
    if plan.level_weight:
        vectors[rows, part_slices["level"].start + level] = plan.level_weight
    if plan.shape_weight:
        cell = group * plan.classes + shape_classes(plan.classes)[shape]
        vectors[rows, part_slices["shape"].start + cell] = plan.shape_weight
    load = np.minimum(mean_loads(curves) / plan.load_clip, 1.0)
    vectors[:, part_slices["load"].start] = np.floor(load * plan.load_weight)
    if plan.swing_weight:  # cosine coefficients, clipped together: whole numbers with a norm of at most the weight
        steps = curves.shape[1]
        basis, scaled = cosine_basis(steps, plan.swings), np.zeros((len(curves), plan.swings))
        for step in range(steps):
            scaled = scaled + (curves[:, step] / (steps * plan.swing_clip))[:, None] * basis[:, step]
        square = np.zeros(len(curves))
        for entry in range(plan.swings):
            square = square + scaled[:, entry] ** 2
        # A hair below the clip, far above the rounding of these few operations: the norm stays within the whole weight.
        shrink = (1 - 1e-9) * plan.swing_weight / np.sqrt(np.maximum(square, 1.0))
        vectors[:, part_slices["swing"]] = np.trunc(scaled * shrink[:, None])
    return vectors


def sum_of_home_vectors(curves: FloatArray, plan: CrowdsPlan) -> FloatArray:
    """(entries,) exact sum of the vectors of all homes; memory does not grow with their number."""
    total = np.zeros(plan.entries)
    for start in range(0, len(curves), HOMES):
        total = total + home_vectors(curves[start : start + HOMES], plan).sum(axis=0)
    return total


def public_tables(noisy: Any, plan: CrowdsPlan, steps: int) -> PublicTables:
    """Public tables of a noisy vector: a pure function of it, the plan and the number of steps."""
    vector = validation.array(ndim=1, noisy=noisy)
    if vector.shape != (plan.entries,):
        raise InputError(f"noisy must hold the plan's {plan.entries} entries")
    steps = validation.count(steps=steps)
    std = plan.account.sigma
    load = max(float(vector[plan.part_slices["load"].start]) * plan.load_clip / plan.load_weight, 0.0)
    load = max(load, plan.customers * plan.typical_kw * 1e-3)
    bounds, counts = _level_counts(vector, plan, load, std)
    middles = np.sqrt(bounds[1:] * bounds[:-1])
    weights = _curve_shares_by_level(vector, plan, middles, counts, std)
    curves = (middles[:, None, None] * public_curves_over(steps)).reshape(-1, steps)
    homes = (counts[:, None] * weights).ravel()
    over = float(counts @ np.maximum(middles - plan.load_clip, 0.0)) if plan.level_weight else 0.0
    shape = np.ones(steps)  # all homes' load over its mean: noisy cosines, each shrunk by what it is expected to be
    if plan.swing_weight:
        scale = plan.swing_clip / plan.swing_weight / load
        expected = (SWING_TRUST / np.sqrt(np.arange(2, plan.swings + 2))) ** 2
        kept = expected / (expected + (std * scale) ** 2)
        terms = (vector[plan.part_slices["swing"]] * scale * kept)[:, None] * cosine_basis(steps, plan.swings)
        shape = np.maximum(shape + terms.sum(axis=0), 0.1)
    total = np.asarray(shape / shape.mean()) * (load + over)
    return PublicTables(curves * (total / (homes @ curves)), homes, total, bounds)


def _level_counts(vector: FloatArray, plan: CrowdsPlan, load: float, std: float) -> tuple[FloatArray, FloatArray]:
    """(levels + 1,) bounds in kW of the released levels of load, and (levels,) the estimated homes in each."""
    edges = np.array([plan.typical_kw * LOWEST, *plan.edges, plan.typical_kw * HIGHEST])
    public = public_load_quantiles() * load / plan.customers
    seats = np.bincount(np.searchsorted(edges[1:-1], public, side="right"), minlength=len(edges) - 1)
    expected: FloatArray = seats.astype(np.float64) / len(public) * plan.customers
    counts = expected
    if plan.level_weight:
        seen, noise = vector[plan.part_slices["level"]] / plan.level_weight, std / plan.level_weight
        counts = _nonnegative_counts(seen, noise, expected, LEVEL_TRUST)
        # How many homes sent readings: the noisy sum of all cells, weighed against the register.
        customers, spread_of_sum, trust = plan.customers, len(seen) * noise**2, (REGISTER_TRUST * plan.customers) ** 2
        homes = customers + (seen.sum() - customers) * trust / (trust + spread_of_sum)
        counts = counts * float(np.clip(homes, 0.5 * customers, customers)) / max(counts.sum(), 1e-9)
    below = np.concatenate([[0.0], np.cumsum(counts)])
    logs = np.log(edges)
    spread = 2 if edges[2] > WIDE * edges[1] else 1
    fine = np.interp(np.arange((len(edges) - 1) * spread + 1) / spread, np.arange(len(edges)), logs)
    return np.exp(fine), np.maximum(np.diff(scipy.interpolate.PchipInterpolator(logs, below)(fine)), 0.0)


def _nonnegative_counts(seen: FloatArray, spread: float, expected: FloatArray, trust: float) -> FloatArray:
    """Non-negative counts nearest to noisy and expected ones: least squares, each weighted by its deviation."""
    width = trust * np.maximum(expected, 0.1 * expected.sum() / len(expected))
    rows = np.vstack([np.eye(len(seen)) / spread, np.diag(1 / width)])
    return np.asarray(scipy.optimize.nnls(rows, np.concatenate([seen / spread, expected / width]))[0])


def _curve_shares_by_level(
    vector: FloatArray, plan: CrowdsPlan, levels: FloatArray, counts: FloatArray, std: float
) -> FloatArray:
    """(levels, 60) estimated share of each public curve among the homes of each level."""
    public = public_curve_shares()
    if not plan.shape_weight:
        return np.tile(public, (len(levels), 1))
    classes = shape_classes(plan.classes)
    expected: FloatArray = np.asarray(np.bincount(classes, weights=public, minlength=plan.classes), dtype=np.float64)
    group = np.searchsorted(np.array(plan.cuts), levels, side="right")
    seen = vector[plan.part_slices["shape"]].reshape(-1, plan.classes) / plan.shape_weight
    weights = np.empty((len(levels), len(public)))
    for number, row in enumerate(seen):
        homes = max(float(counts[group == number].sum()), 1.0)
        share = _nonnegative_counts(row, std / plan.shape_weight, expected * homes, SHAPE_TRUST)
        share = share / share.sum() if share.sum() > 0 else expected
        weights[group == number] = (share / expected)[classes] * public
    return weights


@cache
def _public_statistics() -> dict[str, Any]:
    """Content of the file of public curves and levels."""
    content: dict[str, Any] = json.loads(files("shoal.readings").joinpath("london.json").read_text(encoding="utf-8"))
    return content


@cache
def public_curve_shares() -> FloatArray:
    """(60,) share of homes with each public curve; they sum to 1."""
    counts = np.array(_public_statistics()["counts"], dtype=np.float64)
    return np.asarray(counts / counts.sum())


@cache
def public_load_quantiles() -> FloatArray:
    """Even quantiles of public homes' mean loads, over the mean of all; increasing."""
    return np.array(_public_statistics()["levels"])


@cache
def public_curves_over(steps: int) -> FloatArray:
    """(60, steps) public curves at so many steps, each of mean 1."""
    stored = np.array(_public_statistics()["curves"])
    at, known = (np.arange(steps) + 0.5) / steps, (np.arange(stored.shape[1]) + 0.5) / stored.shape[1]
    curves = np.array([np.interp(at, known, curve) for curve in stored])
    return np.asarray(curves / curves.mean(axis=1, keepdims=True))


@cache
def shape_classes(classes: int) -> IndexArray:
    """(60,) class of each public curve when they are joined into ``classes`` classes."""
    return np.array(_public_statistics()["classes"][str(classes)], dtype=np.intp)
