"""What each home adds to the noisy vector: a function of its own curve and the public plan, in whole numbers.

Only operations whose result for a row cannot depend on the other rows are used (elementwise arithmetic, comparisons,
distances pair by pair; no matrix products, whose last bit may change with the number of rows): taking one home away
changes the sum by that home's own vector exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.readings.plan import CrowdsPlan
from shoal.readings.public_curves import class_of, curves_over
from shoal.validation import FloatArray, IndexArray

#: Homes whose distances to the public curves are in memory at a time.
HOMES = 8192
#: kW beyond which a step is cut, far above any meter: no square overflows.
LARGEST = 1e9


@dataclass(frozen=True)
class Places:
    """Where each home falls: its level cell, level group and nearest public curve."""

    level: IndexArray
    group: IndexArray
    shape: IndexArray


def accepted(curves: object, plan: CrowdsPlan) -> FloatArray:
    """Curves (n, k) in kW that a plan can take; refuses more homes than customers, and homes that export."""
    checked = validation.array(ndim=2, curves=curves)
    if checked.shape[1] < 1:
        raise InputError("curves must have at least one step")
    if len(checked) > plan.customers:
        raise InputError(
            f"curves hold more homes than the plan's {plan.customers} customers: declare the number on the register"
        )
    if (checked < 0).any():
        raise InputError(
            "curves must not be negative: homes that export are outside this release. Leave them out, or give their "
            "consumption alone"
        )
    return np.minimum(np.ascontiguousarray(checked), LARGEST)


def mean_load(curves: FloatArray) -> FloatArray:
    """(n,) each home's mean over the steps, summed step by step."""
    total = np.zeros(len(curves))
    for step in range(curves.shape[1]):
        total = total + curves[:, step]
    return np.asarray(total / curves.shape[1])


def places(curves: FloatArray, plan: CrowdsPlan) -> Places:
    """The cells of every home; a home without load is nearest to the flat curve."""
    level = mean_load(curves)
    shapes = np.where(level[:, None] > 0, curves / np.where(level > 0, level, 1.0)[:, None], 1.0)
    public = curves_over(curves.shape[1])
    from scipy.spatial.distance import cdist

    nearest = [cdist(shapes[i : i + HOMES], public, "cityblock").argmin(axis=1) for i in range(0, len(shapes), HOMES)]
    return Places(
        np.searchsorted(np.array(plan.edges), level, side="right"),
        np.searchsorted(np.array(plan.cuts), level, side="right"),
        np.concatenate(nearest).astype(np.intp) if nearest else np.empty(0, dtype=np.intp),
    )


def cosines(steps: int, count: int) -> FloatArray:
    """(count, steps) the first cosines after the constant, each of mean square 1; zeros beyond steps − 1 of them."""
    at = (np.arange(steps) + 0.5) / steps
    order = np.arange(1, count + 1)[:, None]
    return np.asarray(np.where(order < steps, np.sqrt(2.0) * np.cos(np.pi * order * at), 0.0))


def contributions(curves: FloatArray, plan: CrowdsPlan) -> FloatArray:
    """(n, entries) one integer vector a home, with ‖v‖² at most the plan's Δ²."""
    where, parts = places(curves, plan), plan.parts
    rows = np.arange(len(curves))
    vectors = np.zeros((len(curves), plan.entries))
    if plan.level_weight:
        vectors[rows, parts["level"].start + where.level] = plan.level_weight
    if plan.shape_weight:
        cell = where.group * plan.classes + class_of(plan.classes)[where.shape]
        vectors[rows, parts["shape"].start + cell] = plan.shape_weight
    load = np.minimum(mean_load(curves) / plan.load_clip, 1.0)
    vectors[:, parts["load"].start] = np.floor(load * plan.load_weight)
    if plan.swing_weight:
        vectors[:, parts["swing"]] = _swings(curves, plan)
    return vectors


def _swings(curves: FloatArray, plan: CrowdsPlan) -> FloatArray:
    """(n, swings) whole numbers with a norm of at most ``swing_weight``: cosine coefficients, clipped together."""
    steps = curves.shape[1]
    basis = cosines(steps, plan.swings)
    scaled = np.zeros((len(curves), plan.swings))
    for step in range(steps):
        scaled = scaled + (curves[:, step] / (steps * plan.swing_clip))[:, None] * basis[:, step]
    square = np.zeros(len(curves))
    for entry in range(plan.swings):
        square = square + scaled[:, entry] ** 2
    # A hair below the clip, far above the rounding of these few operations: the norm stays within the whole weight.
    shrink = (1 - 1e-9) * plan.swing_weight / np.sqrt(np.maximum(square, 1.0))
    return np.trunc(scaled * shrink[:, None])


def vector_sum(curves: FloatArray, plan: CrowdsPlan) -> FloatArray:
    """(entries,) the exact sum of all homes' vectors; memory does not grow with the homes."""
    total = np.zeros(plan.entries)
    for start in range(0, len(curves), HOMES):
        total = total + contributions(curves[start : start + HOMES], plan).sum(axis=0)
    return total
