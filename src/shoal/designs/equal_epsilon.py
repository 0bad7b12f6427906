"""What each kind of mechanism makes of an ε: error at equal guarantee, and what none can go below.

For constants a codebook has δ = 0 at its ε and the least mean squared error of all ε-private mechanisms; its proved
lower bound is theirs. Gaussian methods are calibrated to (ε, δ), a weaker guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import validation
from shoal.designs.calibration import calibrate
from shoal.errors import InputError, UnreachableError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.codebook import codebook
from shoal.numerics.notebook import axes_or_new
from shoal.validation import FloatArray

BOOK = "codebook"


@dataclass(frozen=True)
class EpsilonFrontier:
    """Mean squared error per entry, mean over labels: ``rho[method]`` and ``lower_bound`` follow ``epsilon``.

    NaN where a method does not reach the guarantee.
    """

    epsilon: FloatArray
    delta: float
    scope: str
    rho: dict[str, FloatArray]
    lower_bound: FloatArray

    def plot(self, axes: Any = None) -> Any:
        """Draw errors against ε, a line per method and the lower bound, with matplotlib and return the axes."""
        axes = axes_or_new(axes)
        for name, values in self.rho.items():
            axes.semilogy(self.epsilon, values, "o-", label=name)
        axes.semilogy(self.epsilon, self.lower_bound, "k:", label="no ε-private mechanism goes below")
        axes.set(xlabel=f"ε ({self.scope})", ylabel="mean squared error per entry")
        axes.legend()
        return axes


def epsilon_frontier(
    answers: Any,
    graph: NeighborGraph,
    epsilon: Any,
    methods: Sequence[str] = ("mean", "codebook", "white"),
    *,
    delta: float = 1e-5,
    scope: str = "answer",
    iterations: int = 5,
) -> EpsilonFrontier:
    """Error of several methods at equal ε, for constant answers.

    Args:
        answers: (n, k), rows in the order of the graph's labels.
        graph: who hides among whom, complete inside groups.
        epsilon: a number or several, above 0.
        methods: ``"codebook"``, and methods of :func:`shoal.calibrate`.
        delta: what Gaussian methods are calibrated to; a codebook has δ = 0.
        scope: what the guarantee is about, as in :func:`shoal.privacy_curve`.
        iterations: steps per stage of methods that search.

    Returns:
        Mean errors per method, and the proved lower bound of all mechanisms that are ε-private (for groups up to 20).

    >>> import shoal
    >>> found = shoal.epsilon_frontier([[-1.0], [1.0]], shoal.NeighborGraph.complete(["a", "b"]), [1.0, 2.0])
    >>> print(found.rho["mean"].round(2), found.rho["codebook"].round(2), found.lower_bound.round(2))
    [1. 1.] [0.79 0.42] [0.79 0.42]
    """
    grid, _ = validation.grid(epsilon=epsilon)
    if (grid <= 0).any():
        raise InputError("epsilon must be above 0")
    classes = GaussianClasses.deterministic(answers, graph.labels)
    books = [codebook(classes.means, graph, float(e), scope=scope) for e in grid]

    def spent(method: str, e: float) -> float:
        try:
            found = calibrate(
                classes, graph, method, e, delta, scope=scope, tolerance=0.02, iterations=iterations, prove=False
            )
        except UnreachableError:
            return float("nan")
        return float(found.rho.mean())

    rho = {
        name: np.array([book.mean_rho for book in books])
        if name == BOOK
        else np.array([spent(name, float(e)) for e in grid])
        for name in methods
    }
    return EpsilonFrontier(grid, delta, scope, rho, np.array([book.lower_bound for book in books]))
