"""The list of design methods. A method is a function (problem, settings, starts) → moves in a module of this folder.

One line of :data:`METHODS` is all that ``design``, ``calibrate``, ``frontier``, the settings of a run and the command
know of it. Reading the list loads no method and no NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.designs.barycenter import Center
    from shoal.designs.descent import Settings
    from shoal.designs.problem import DesignProblem, Moves
    from shoal.laws.classes import GaussianClasses


@dataclass(frozen=True)
class Method:
    """A design method: its name, which is that of its function, the module that has it, and how it is used.

    ``perturbs``: answers change. ``by_component``: every connected component is designed separately; the other methods
    look at all labels at once, and a search in several components is compared with them. ``searched``: it looks for
    the best and starts from earlier designs. ``timed``: it can end early, for lack of time. ``uses``: parts of a move
    (``"shift"``, ``"map"``) that a search may use; a design says which it made no use of. ``center``: function of
    :mod:`shoal.designs.barycenter` for the law at which the method makes labels equal, if it can.
    """

    name: str
    module: str
    perturbs: bool = True
    by_component: bool = True
    searched: bool = False
    timed: bool = False
    uses: tuple[str, ...] = ()
    center: str | None = None

    @cached_property
    def solve(self) -> Callable[[DesignProblem, Settings, Sequence[Moves]], Moves]:
        """The method's function (problem, settings, starts) → moves; its module is loaded on first use."""
        function: Any = getattr(import_module(f"shoal.designs.methods.{self.module}"), self.name)
        return function  # type: ignore[no-any-return]

    def common_law(self, classes: GaussianClasses) -> Center:
        """The law at which the method can make these labels equal, with its price."""
        assert self.center is not None
        law: Center = import_module("shoal.designs.barycenter").common_center(self.center, classes)
        return law

    @property
    def meets_only(self) -> bool:
        """Whether the method moves labels straight to one law, without a search for less."""
        return self.center is not None and not self.searched


#: Every method, by its name.
METHODS = {
    method.name: method
    for method in (
        Method("none", "searches", by_component=False, perturbs=False),
        Method("white", "searches", by_component=False),
        Method("paper", "paper", by_component=False, timed=True),
        Method("ellipsoid", "ellipsoid", timed=True),
        Method("covariance", "searches", searched=True, timed=True),
        Method("additive", "searches", searched=True, timed=True, uses=("shift",), center="additive_center"),
        Method("transport", "searches", searched=True, timed=True, uses=("map", "shift"), center="transport_center"),
        Method("center", "center", center="transport_center"),
        Method("mean", "center", center="mean_center"),
    )
}
