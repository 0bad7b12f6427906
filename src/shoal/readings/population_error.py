"""Errors of a release of noisy crowds as a description of its population: for the data owner, never to leave.

W₁, mean absolute kW per step under the best assignment over the mean load, is found by entropic regularization lowered
step by step (Cuturi 2013). Its plan made feasible (Altschuler, Weed & Rigollet 2017) is an upper end, the dual
potentials give a lower one; the gap is 1 to 3 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import validation
from shoal.crowds.formation import crowd_means, least_spread_crowds
from shoal.errors import InputError
from shoal.readings.crowds import NoisyCrowds, mean_loads
from shoal.validation import FloatArray

#: Regularization, in mean loads: from where steps are large to where the plan is nearly that of no regularization.
SCALES = (0.3, 0.1, 0.05, 0.025, 0.012, 0.006, 0.003, 0.002, 0.0015)
#: Scalings between two absorptions into the potentials, and absorptions per width.
ROUNDS, ABSORBED = 20, 2
#: Logarithms below it are cut: single precision holds its products.
FAINTEST = np.float32(-70.0)
#: The search ends when the upper end is at most so many times the lower.
CLOSE = 1.01
#: More homes than this are represented by so many of them, evenly in the order of their load.
LARGEST = 4000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
#: Members of the crowds without noise that a release is compared with.
CROWD = 10


@dataclass(frozen=True)
class PopulationError:
    """Errors of a release against the homes' own curves; ratios to the mean load. For the data owner only."""

    w1: float  #: upper end
    w1_lower: float
    total: float  #: of the horizon: released over true, less 1
    total_by_step: FloatArray  #: (k,)
    quantiles: dict[float, tuple[float, float]]  #: of homes' mean loads in kW: released, true
    crowds_of_ten: float  #: W₁ of crowds of ten without noise
    one_mean: float  #: W₁ of the released mean alone


def population_error(curves: Any, crowds: NoisyCrowds) -> PopulationError:
    """Compare a release with the curves it was made from: W₁, total and quantiles, and the same of simpler releases.

    Args:
        curves: (n, k) kW, as given to :func:`shoal.noisy_crowds`.
        crowds: its result.

    Returns:
        The errors. They are functions of the readings without noise: for the data owner, never to leave.

    >>> import numpy as np, shoal
    >>> homes = np.linspace(0.2, 4.0, 480)[:, None] * np.ones(4)
    >>> crowds = shoal.noisy_crowds(homes, shoal.noisy_crowds_plan(customers=480, epsilon=1.0, typical_kw=2.0))
    >>> error = shoal.population_error(homes, crowds)
    >>> error.w1_lower <= error.w1, error.w1 < error.one_mean
    (True, True)
    """
    if not isinstance(crowds, NoisyCrowds):
        raise InputError("crowds must come from shoal.noisy_crowds")
    homes = validation.array(ndim=2, curves=curves)
    if homes.shape[1] != crowds.curves.shape[1] or not len(homes) or not homes.mean() > 0:
        raise InputError("curves must be those of the release, with some load")
    upper, lower = w1_bounds(homes, crowds.curves, crowds.counts)
    mean = crowds.total / max(float(crowds.counts.sum()), 1e-9)
    crowd = least_spread_crowds(homes, CROWD) if len(homes) >= CROWD else np.zeros(len(homes), dtype=np.int64)
    true, loads = homes.sum(axis=0), crowds.curves.mean(axis=1)
    order = np.argsort(loads)
    below = np.cumsum(crowds.counts[order]) / crowds.counts.sum()
    released = [float(loads[order[min(int(np.searchsorted(below, q)), len(order) - 1)]]) for q in QUANTILES]
    own = np.quantile(mean_loads(homes), QUANTILES).tolist()
    return PopulationError(
        w1=upper,
        w1_lower=lower,
        total=float(crowds.total.sum() / true.sum() - 1),
        total_by_step=crowds.total / np.where(true > 0, true, np.nan) - 1,
        quantiles=dict(zip(QUANTILES, zip(released, own, strict=True), strict=True)),
        crowds_of_ten=w1_bounds(homes, crowd_means(homes, crowd), np.bincount(crowd).astype(np.float64))[0],
        one_mean=float(np.abs(homes - mean).mean() / homes.mean()),
    )


def w1_bounds(homes: FloatArray, curves: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """Upper and lower end of W₁ between homes (n, k) and curves (m, k) with counts (m,), over the mean load."""
    scale = float(homes.mean())
    if len(homes) > LARGEST:
        order = np.argsort(homes.mean(axis=1), kind="stable")
        homes = homes[order[((np.arange(LARGEST) + 0.5) * len(homes) / LARGEST).astype(int)]]
    held = counts > 1e-9 * counts.sum()
    share: Any = (counts[held] / counts[held].sum()).astype(np.float32)
    from scipy.spatial.distance import cdist

    cost: Any = (cdist(homes, curves[held], "cityblock") / (homes.shape[1] * scale)).astype(np.float32)
    mass: Any = np.full(len(homes), 1 / len(homes), dtype=np.float32)
    rows, columns = mass / mass.sum(dtype=np.float64), share / share.sum(dtype=np.float64)
    value: Any = np.zeros(len(homes), dtype=np.float32)
    price: Any = np.zeros(len(share), dtype=np.float32)
    upper, lower = np.inf, 0.0
    for width in SCALES:
        for _ in range(ABSORBED):
            kernel = np.exp(np.maximum((value[:, None] + price - cost) / width, FAINTEST))
            row: Any = np.ones_like(mass)
            column: Any = np.ones_like(share)
            for _ in range(ROUNDS):
                row = mass / (kernel @ column)
                column = share / (row @ kernel)
            value, price = value + width * np.log(row), price + width * np.log(column)
        # Rows and columns of the plan are cut to what they may hold, and the rest is spread in proportion.
        moved = (row[:, None] * kernel * column).astype(np.float64)
        moved = moved * np.minimum(rows / moved.sum(axis=1), 1.0)[:, None]
        moved = moved * np.minimum(columns / moved.sum(axis=0), 1.0)
        left, room = np.maximum(rows - moved.sum(axis=1), 0.0), np.maximum(columns - moved.sum(axis=0), 0.0)
        upper = min(upper, float((moved * cost).sum() + left @ cost @ room / max(float(left.sum()), 1e-300)))
        lower = max(lower, float((cost - price).min(axis=1).mean(dtype=np.float64) + price @ share))
        if upper <= CLOSE * lower:
            break
    return upper, lower
