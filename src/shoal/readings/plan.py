"""The plan of noisy crowds: what is asked of each home and how loudly, from declared numbers alone.

Every number here is public. A plan is a function of the customers on the register, ε, δ and a typical home's mean load:
never of readings, so that nothing is chosen after looking. Each home adds one integer vector to a sum (``noisy``):

| part | entries | what a home adds |
| --- | --- | --- |
| level | ``len(edges) + 1`` | ``level_weight`` to the cell of its mean load on a geometric grid |
| shape | ``(len(cuts) + 1) · classes`` | ``shape_weight`` to the class of the public curve nearest to its own |
| load | 1 | its mean load, clipped, in units of ``load_clip / load_weight`` |
| swing | ``swings`` | the first cosines of its curve, clipped together, in units of ``swing_clip / swing_weight`` |

Weights are whole numbers, clipped entries are rounded toward zero, so that the sensitivities are exact integers:

    Δ² = level² + shape² + load² + swing²,    Δ_rep² = 2 level² + 2 shape² + load² + 4 swing²

(two homes in different cells; loads are not negative, swings may be opposite). A weight of 0 leaves its part out: with
level and shape left out the release is one private mean times public curves, which for few homes is the better one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

from shoal import validation
from shoal.errors import InputError
from shoal.readings.account import UNIT, NoisePlan, ReadingsAccount, declared

#: Level cells span these multiples of a typical home's mean load.
LOWEST, HIGHEST = 1 / 40, 12.0


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

    @property
    def method(self) -> str:
        """``"mean"``, one private mean times public curves, or ``"cells"``, with a noisy histogram of homes."""
        return "cells" if self.level_weight or self.shape_weight else "mean"

    @cached_property
    def parts(self) -> dict[str, slice]:
        """Where each part of the vector lies; the others are empty."""
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
        return int(self.parts["swing"].stop)

    @property
    def squares(self) -> tuple[int, int]:
        """Δ² and Δ_rep², as the head of this module has them."""
        level, shape, load, swing = (weight**2 for weight in self._weights)
        return level + shape + load + swing, 2 * level + 2 * shape + load + 4 * swing

    @property
    def _weights(self) -> tuple[int, int, int, int]:
        return self.level_weight, self.shape_weight, self.load_weight, self.swing_weight

    def checked(self) -> CrowdsPlan:
        """Refuse weights that are no shares of the vector, and noise that does not give the stated δ."""
        if not all(0 <= weight <= UNIT for weight in self._weights) or self.load_weight == 0:
            raise InputError("plan: weights must be whole numbers, that of the load above 0")
        return super().checked()


def noisy_crowds_plan(
    customers: int,
    epsilon: float,
    delta: float | None = None,
    *,
    typical_kw: float = 1.5,
    method: str | None = None,
    cap_mu: float | None = None,
) -> CrowdsPlan:
    """Plan a table of curves and counts that protects every home's whole readings; uses declared numbers alone.

    Args:
        customers: homes on the register, whether they sent readings or not. At most so many curves are accepted.
        epsilon: ε of the release, for a home with all its readings or with none.
        delta: by default 1/(10 customers).
        typical_kw: mean load of a typical home, declared; grids and clips are multiples of it. Off by a factor of two
            it costs accuracy, never privacy.
        method: ``"mean"`` or ``"cells"``; by default what is expected to be the better for so many customers.
        cap_mu: for one release of a series: μ of this release instead of the one that ε and δ would allow. The series
            is then covered by the (ε, δ) of √Σμ², whose cap was fixed before the first (docs/theory.md, section 16).

    Returns:
        A frozen plan: cells, clips, weights, noise, and what errors to expect.

    >>> import shoal
    >>> plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0)
    >>> plan.delta(1.0) <= 1 / 5000
    True
    >>> plan.delta(1.0, neighbors="replace") > plan.delta(1.0)
    True
    """
    customers, epsilon, bound = declared(customers, epsilon, delta)
    typical = validation.positive(typical_kw=typical_kw)
    unit = ReadingsAccount.calibrated(UNIT**2, UNIT**2, 1, float(UNIT), epsilon=epsilon, delta=bound)
    mu = unit.mu if cap_mu is None else min(validation.positive(cap_mu=cap_mu), unit.mu)
    choice = ("mean" if customers * mu < CELLS_FROM else "cells") if method is None else method
    validation.choice(("mean", "cells"), method=choice)
    plan = _laid_out(customers, epsilon, bound, typical, choice, mu).calibrated(cap_mu)
    return replace(plan, **_expected(plan)).checked()


#: Customers times μ from which on a noisy histogram of homes is expected to beat public curves alone, fitted on
#: simulated homes and on London homes that are not in the public curves (benchmarks/README.md).
CELLS_FROM = 250.0


@dataclass(frozen=True)
class Layout:
    """Shares of μ² of level, shape, load and swing; ratio of level cells; level groups with shapes of their own."""

    shares: tuple[float, float, float, float]
    ratio: float = 1.5
    cuts: tuple[float, ...] = ()
    classes: int = 60


#: What is asked from so many customers times μ on; cuts in typical loads.
LAYOUTS = {
    0.0: Layout((0.20, 0.30, 0.40, 0.10)),
    600.0: Layout((0.30, 0.30, 0.30, 0.10), ratio=1.3),
    2500.0: Layout((0.30, 0.30, 0.30, 0.10), ratio=1.3, cuts=(0.5, 1.65)),
}
ONE_MEAN = Layout((0.0, 0.0, 0.80, 0.20))


def _laid_out(customers: int, epsilon: float, bound: float, typical: float, method: str, mu: float) -> CrowdsPlan:
    """A plan without its noise. ``strength`` is how many noise deviations the count of all customers is."""
    strength = customers * mu
    layout = ONE_MEAN if method == "mean" else LAYOUTS[max(least for least in LAYOUTS if strength >= least)]
    level, shape, load, swing = (round(math.sqrt(share) * UNIT) for share in layout.shares)
    cells = math.ceil(math.log(HIGHEST / LOWEST) / math.log(layout.ratio))
    edges = tuple(float(f"{typical * LOWEST * layout.ratio**i:.6g}") for i in range(1, cells))
    reach = min(max(4.0 * (strength / 100) ** 0.25, 4.0), 10.0)
    return CrowdsPlan(
        customers=customers,
        epsilon=epsilon,
        delta_bound=bound,
        typical_kw=typical,
        edges=edges,
        cuts=tuple(float(f"{typical * cut:.6g}") for cut in layout.cuts),
        classes=layout.classes,
        swings=6,
        level_weight=level,
        shape_weight=shape,
        load_weight=load,
        swing_weight=swing,
        load_clip=float(f"{typical * reach:.6g}"),
        swing_clip=float(f"{typical * reach / 2:.6g}"),
        variance=1.0,
        expected_w1=0.0,
        expected_total=0.0,
    )


def _expected(plan: CrowdsPlan) -> dict[str, Any]:
    """Errors to expect, from the plan alone."""
    noise = plan.account.sigma * plan.load_clip / plan.load_weight / (plan.customers * plan.typical_kw)
    strength = plan.customers * plan.mu
    w1 = 0.22 + 1.2 / strength if plan.method == "mean" else 0.19 + 0.45 / math.sqrt(strength)
    return {"expected_total": float(f"{math.sqrt(2 / math.pi) * noise:.3g}"), "expected_w1": float(f"{w1:.2g}")}
