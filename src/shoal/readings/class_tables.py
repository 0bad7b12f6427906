"""Class tables under the readings' promise: a noisy count and noisy means within declared bounds, cell by cell.

A label adds w to the count of its one cell and, for each of C columns, its value within the declared bounds, moved to
[−1, 1], in units of 1/v and rounded toward zero:

    Δ² = w² + C v²,    Δ_rep² = max(2 (w² + C v²), 4 C v²)

(another cell; the same cell and opposite ends of every column). Cells come from declared edges of named columns only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.readings.account import LOUD, UNIT, NoisePlan, check_declared_numbers
from shoal.validation import FloatArray

#: Share of μ² that counts get; the columns share the rest.
COUNT_SHARE = 0.4


@dataclass(frozen=True)
class TablePlan(NoisePlan):
    """Everything public about a noisy class table. Made by :func:`noisy_table_plan`."""

    FORM: ClassVar[str] = "shoal noisy table plan 1"

    bounds: tuple[tuple[str, float, float], ...]  #: column, low, high
    cells: tuple[tuple[str, tuple[float, ...]], ...]  #: column, edges between its cells
    count_weight: int
    value_weight: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each named column; (1,) without any."""
        return tuple(len(edges) + 1 for _, edges in self.cells) or (1,)

    @property
    def entries(self) -> int:
        """Length of the noisy vector: a count and one sum per column, for each cell."""
        return math.prod(self.shape) * (1 + len(self.bounds))

    @property
    def squared_sensitivities(self) -> tuple[int, int]:
        """Exact squared sensitivities Δ² (zero-out) and Δ_rep² (replace)."""
        values = len(self.bounds) * self.value_weight**2
        whole = self.count_weight**2 + values
        return whole, max(2 * whole, 4 * values)

    def __post_init__(self) -> None:
        """Refuse weights that are no shares of the vector, bounds without a finite range, edges that do not rise."""
        if not all(type(weight) is int and 0 < weight <= UNIT for weight in (self.count_weight, self.value_weight)):
            raise InputError("plan: weights must be whole numbers above 0")
        if not self.bounds or not all(0 < 2 * (high - low) < math.inf for _, low, high in self.bounds):
            raise InputError("bounds must name at least one column, each low end below the high end, in a finite range")
        if any(not row or list(row) != sorted(set(row)) for _, row in self.cells):
            raise InputError("cells must hold increasing edges for each named column")
        super().__post_init__()


def noisy_table_plan(
    customers: int,
    epsilon: float,
    delta: float | None = None,
    *,
    bounds: Mapping[str, tuple[float, float]],
    cells: Mapping[str, Sequence[float]] | None = None,
    cap_mu: float | None = None,
) -> TablePlan:
    """Plan a noisy count and means per cell, from declared numbers alone, as :func:`shoal.noisy_crowds_plan` does.

    ``bounds`` are column -> (low, high); values outside are cut. ``cells`` are column -> increasing edges between its
    cells; without any the whole table is one cell.
    >>> plan = noisy_table_plan(1000, 1.0, bounds={"age": (0, 100)}, cells={"age": [30, 60]})
    >>> plan.shape, plan.entries
    ((3,), 6)
    """
    customers, epsilon, bound = check_declared_numbers(customers, epsilon, delta)
    limits = tuple(
        (str(name), validation.real(bounds=low), validation.real(bounds=high)) for name, (low, high) in bounds.items()
    )
    edges = tuple(
        (str(name), tuple(validation.real(cells=edge) for edge in row)) for name, row in (cells or {}).items()
    )
    count = round(math.sqrt(COUNT_SHARE) * UNIT)
    value = math.floor(math.sqrt((1 - COUNT_SHARE) / max(len(limits), 1)) * UNIT)
    return TablePlan(customers, epsilon, bound, LOUD, limits, edges, count, value).calibrate(cap_mu)


def sum_of_label_vectors(columns: Mapping[str, Any], plan: TablePlan) -> FloatArray:
    """(entries,) exact sum of the integer vectors of all labels, from a mapping of column names to (n,) figures."""
    names = {name for name, _, _ in plan.bounds} | {name for name, _ in plan.cells}
    missing = names - set(columns)
    if missing:
        raise InputError(f"columns: the plan names {', '.join(sorted(missing))}, which the table does not have")
    values = {name: validation.array(ndim=1, columns=columns[name]) for name in names}
    rows = {len(column) for column in values.values()}
    if len(rows) != 1:
        raise InputError("columns must have one value a label each")
    if rows.pop() > plan.customers:
        raise InputError(f"columns hold more labels than the plan's {plan.customers} customers")
    size, cell = math.prod(plan.shape), np.zeros(len(next(iter(values.values()))), dtype=np.intp)
    if plan.cells:
        at = tuple(np.searchsorted(np.array(edges), values[name], side="right") for name, edges in plan.cells)
        cell = np.asarray(np.ravel_multi_index(at, plan.shape), dtype=np.intp)
    sums: list[FloatArray] = [np.bincount(cell, minlength=size).astype(np.float64) * plan.count_weight]
    for name, low, high in plan.bounds:
        inside = np.clip(values[name], low, high)
        unit = np.clip((inside - low) / (high - low) * 2 - 1, -1.0, 1.0)
        total = np.bincount(cell, weights=np.trunc(unit * plan.value_weight), minlength=size)
        sums.append(total.astype(np.float64))
    return np.concatenate(sums)


def public_class_table(noisy: Any, plan: TablePlan) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Noisy counts by cell and noisy means by column and cell: a pure function of the noisy vector and the plan.

    Means are drawn toward the middle of the bounds where a cell's noisy count is within two deviations of none.
    """
    vector = validation.array(ndim=1, noisy=noisy)
    if vector.shape != (plan.entries,):
        raise InputError(f"noisy must hold the plan's {plan.entries} entries")
    parts = vector.reshape(1 + len(plan.bounds), *plan.shape)
    counts = np.maximum(parts[0] / plan.count_weight, 0.0)
    held = np.maximum(counts, 2 * plan.account.sigma / plan.count_weight)
    means = {}
    for (name, low, high), sums in zip(plan.bounds, parts[1:], strict=True):
        unit = np.clip(sums / plan.value_weight / held, -1.0, 1.0)
        means[name] = low + (unit + 1) / 2 * (high - low)
    return counts, means
