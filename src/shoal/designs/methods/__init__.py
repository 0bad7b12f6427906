"""One file per method, each with one function: (problem, settings, starts) → moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.designs.descent import Settings
from shoal.designs.methods.additive import additive
from shoal.designs.methods.center import center, mean
from shoal.designs.methods.covariance import covariance
from shoal.designs.methods.none import none
from shoal.designs.methods.paper import paper
from shoal.designs.methods.transport import transport
from shoal.designs.methods.white import white
from shoal.designs.moves import Moves
from shoal.designs.problem import DesignProblem


@dataclass(frozen=True)
class Method:
    """How a method is used.

    ``alone``: every connected component is designed for itself. ``searched``: it looks for the best, starts from
    earlier designs and takes time. ``price``: by which kind of move it makes labels equal, if it can at all.
    """

    solve: Callable[[DesignProblem, Settings, Sequence[Moves]], Moves]
    alone: bool = True
    searched: bool = False
    price: str | None = None


METHODS: dict[str, Method] = {
    "none": Method(none, alone=False),
    "white": Method(white, alone=False),
    "paper": Method(paper, alone=False),
    "covariance": Method(covariance, searched=True),
    "additive": Method(additive, searched=True, price="additive"),
    "transport": Method(transport, searched=True, price="transport"),
    "center": Method(center, price="transport"),
    "mean": Method(mean, price="mean"),
}
