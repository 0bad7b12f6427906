"""Plans of noisy crowds: what is asked of each home and how loudly, from declared numbers, never from readings.

Each home adds one integer vector to a sum (docs/theory.md, section 16):

| part | entries | what a home adds |
| --- | --- | --- |
| level | ``len(edges) + 1`` | ``level_weight`` to the cell of its mean load on a geometric grid |
| shape | ``(len(cuts) + 1) · classes`` | ``shape_weight`` to the class of the public curve nearest to its own |
| load | 1 | its mean load, clipped, in units of ``load_clip / load_weight`` |
| swing | ``swings`` | the first cosines of its curve, clipped together, in units of ``swing_clip / swing_weight`` |

    Δ² = level² + shape² + load² + swing²,    Δ_rep² = 2 level² + 2 shape² + load² + 4 swing²

in whole numbers, exactly. A weight of 0 leaves its part out; without level and shape the release is one private mean
times public curves, which for few homes is the better one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

from shoal import validation
from shoal.errors import InputError
from shoal.readings.account import LOUD, UNIT, NoisePlan, ReadingsAccount, check_declared_numbers
from shoal.rounding import count_of, exactly, upper

#: Level cells span these multiples of a typical home's mean load.
LOWEST, HIGHEST = 1 / 40, 12.0
#: Customers times μ from which on a noisy histogram of homes is expected to beat public curves alone, fitted on
#: simulated homes and on London homes that are not in the public curves (benchmarks/README.md).
CELLS_FROM = 250.0
#: What is asked from so many customers times μ on: shares of μ² of level, shape, load and swing; ratio of level cells;
#: cuts, in typical loads, between level groups with shapes of their own.
LAYOUTS: dict[float, tuple[tuple[float, ...], float, tuple[float, ...]]] = {
    0.0: ((0.20, 0.30, 0.40, 0.10), 1.5, ()),
    600.0: ((0.30, 0.30, 0.30, 0.10), 1.3, ()),
    2500.0: ((0.30, 0.30, 0.30, 0.10), 1.3, (0.5, 1.65)),
}
ONE_MEAN = ((0.0, 0.0, 0.80, 0.20), 1.5, ())


@dataclass(frozen=True)
class CrowdsPlan(NoisePlan):
    """Everything public about a release of noisy crowds. Made by :func:`noisy_crowds_plan`."""

    FORM: ClassVar[str] = "shoal noisy crowds plan 1"

    typical_kw: float
    edges: tuple[float, ...]  #: kW between level cells, increasing
    cuts: tuple[float, ...]  #: kW between the level groups that have shape classes of their own
    classes: int  #: classes that the public curves are joined into
    swings: int
    level_weight: int
    shape_weight: int
    load_weight: int
    swing_weight: int
    load_clip: float  #: kW
    swing_clip: float  #: kW, root mean square of a curve around its mean
    expected_w1: float  #: over the mean load, for homes like those it was fitted on (docs/theory.md, section 16)
    expected_total: float  #: mean absolute error of the horizon's total, relative, without clip bias

    def __repr__(self) -> str:
        promise = f"(ε, δ) = ({exactly(self.epsilon)}, {upper(self.delta_bound)})"
        return f"CrowdsPlan({count_of(self.customers, 'customer')}, {promise}, method {self.method!r})"

    @property
    def method(self) -> str:
        """``"mean"``, one private mean times public curves, or ``"cells"``, with a noisy histogram of homes."""
        return "cells" if self.level_weight or self.shape_weight else "mean"

    @cached_property
    def part_slices(self) -> dict[str, slice]:
        """Slice of the vector for each part of the table above; empty for parts that are left out."""
        sizes = {
            "level": (len(self.edges) + 1) * bool(self.level_weight),
            "shape": (len(self.cuts) + 1) * self.classes * bool(self.shape_weight),
            "load": 1,
            "swing": self.swings * bool(self.swing_weight),
        }
        ends = accumulate(sizes.values())
        return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}

    @property
    def entries(self) -> int:
        """Length of the noisy vector."""
        return int(self.part_slices["swing"].stop)

    @property
    def squared_sensitivities(self) -> tuple[int, int]:
        """Exact squared sensitivities Δ² (zero-out) and Δ_rep² (replace)."""
        level, shape, load, swing = (weight**2 for weight in self._part_weights)
        return level + shape + load + swing, 2 * level + 2 * shape + load + 4 * swing

    @property
    def _part_weights(self) -> tuple[int, int, int, int]:
        """Weights of level, shape, load and swing."""
        return self.level_weight, self.shape_weight, self.load_weight, self.swing_weight

    def __post_init__(self) -> None:
        """Refuse weights that are no shares of the vector, and clips that a curve squared over them may overflow."""
        if (
            not all(type(weight) is int and 0 <= weight <= UNIT for weight in self._part_weights)
            or self.load_weight == 0
        ):
            raise InputError("plan: weights must be whole numbers, that of the load above 0")
        if not all(1e-100 <= clip < math.inf for clip in (self.typical_kw, self.load_clip, self.swing_clip)):
            raise InputError("plan: typical_kw and clips must be finite, and at least 1e-100")
        if min(self.classes, self.swings) < 1 or any(list(e) != sorted(set(e)) for e in (self.edges, self.cuts)):
            raise InputError("plan: classes and swings must be at least 1, edges and cuts must rise")
        super().__post_init__()


def noisy_crowds_plan(
    customers: int,
    epsilon: float,
    delta: float | None = None,
    *,
    typical_kw: float,
    method: str | None = None,
    cap_mu: float | None = None,
) -> CrowdsPlan:
    """Plan a table of curves and counts that protects every home's whole readings; uses declared numbers only.

    Args:
        customers: homes on the register, whether they sent readings or not. At most so many curves are accepted.
        epsilon: ε of the release, for a home with all its readings or with none.
        delta: by default 1/(10 customers).
        typical_kw: mean load of a typical home, declared, from statistics and not from these readings: about 0.4 where
            homes heat with gas, 1.5 where they heat with electricity. Grids and clips are multiples of it: a wrong one
            costs accuracy (a factor of four makes the total worthless), never privacy.
        method: ``"mean"`` or ``"cells"``; by default what is expected to be the better for so many customers.
        cap_mu: for one release of a series: μ of this release instead of the one that ε and δ would allow. The series
            is then covered by the (ε, δ) of √Σμ², whose cap was fixed before the first (docs/theory.md, section 16).

    Returns:
        A frozen plan: cells, clips, weights, noise, and what errors to expect.

    >>> import shoal
    >>> plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0, typical_kw=1.5)
    >>> plan.delta(1.0) <= 1 / 5000
    True
    >>> plan.delta(1.0, neighbors="replace") > plan.delta(1.0)
    True
    """
    customers, epsilon, bound = check_declared_numbers(customers, epsilon, delta)
    typical = validation.positive(typical_kw=typical_kw)
    unit = ReadingsAccount.calibrate(UNIT**2, UNIT**2, 1, float(UNIT), epsilon=epsilon, delta=bound)
    mu = unit.mu if cap_mu is None else min(validation.positive(cap_mu=cap_mu), unit.mu)
    plan = _plan_before_noise(customers, epsilon, bound, typical, method, mu).calibrate(cap_mu)
    w1, total = _expected_errors(plan, plan.account.sigma, plan.mu)
    return replace(plan, expected_w1=w1, expected_total=total)


def _plan_before_noise(
    customers: int, epsilon: float, delta: float, typical: float, method: str | None, mu: float
) -> CrowdsPlan:
    """The plan for a release with this μ and typical load in kW, before its noise is calibrated."""
    strength = customers * mu  # how many noise deviations the count of all customers is
    choice = ("mean" if strength < CELLS_FROM else "cells") if method is None else method
    validation.choice(("mean", "cells"), method=choice)
    least = max(least for least in LAYOUTS if strength >= least)
    shares, ratio, cuts = ONE_MEAN if choice == "mean" else LAYOUTS[least]
    level, shape, load, swing = (round(math.sqrt(share) * UNIT) for share in shares)
    cells = math.ceil(math.log(HIGHEST / LOWEST) / math.log(ratio))
    reach = min(max(4.0 * (strength / 100) ** 0.25, 4.0), 10.0)
    return CrowdsPlan(
        customers=customers,
        epsilon=epsilon,
        delta_bound=delta,
        typical_kw=typical,
        edges=tuple(_six_digits(typical * LOWEST * ratio**i) for i in range(1, cells)),
        cuts=tuple(_six_digits(typical * cut) for cut in cuts),
        classes=60,
        swings=6,
        level_weight=level,
        shape_weight=shape,
        load_weight=load,
        swing_weight=swing,
        load_clip=_six_digits(typical * reach),
        swing_clip=_six_digits(typical * reach / 2),
        variance=LOUD,
        expected_w1=0.0,
        expected_total=0.0,
    )


def _expected_errors(plan: CrowdsPlan, sigma: float, mu: float) -> tuple[float, float]:
    """Expected errors of a plan: (W₁ over the mean load, relative error of the total), in two and three digits."""
    noise = sigma * plan.load_clip / plan.load_weight / (plan.customers * plan.typical_kw)
    strength = plan.customers * mu
    w1 = 0.22 + 1.2 / strength if plan.method == "mean" else 0.19 + 0.45 / math.sqrt(strength)
    return float(f"{w1:.2g}"), float(f"{math.sqrt(2 / math.pi) * noise:.3g}")


def _six_digits(value: float) -> float:
    """The number rounded to six significant digits."""
    return float(f"{value:.6g}")
