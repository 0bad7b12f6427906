"""One pair of labels, edge or not: what actually holds for it, and what the edges between imply."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.curve import NOTIONS, brackets, exp_up, trusted
from shoal.accounting.releases import Releases
from shoal.laws.graph import NeighborGraph


@dataclass(frozen=True)
class PairPrivacy:
    """Privacy between two labels at one ε.

    ``delta_upper`` is what holds for (a → b, b → a), computed from their own laws; in a table the two are equal.
    ``hops`` is their distance in the graph (inf without a path) and ``hop_bound`` what the guarantee along a shortest
    path implies for the worse
    direction: for an edge that is the edge's own δ, for a pair far apart it is usually much weaker than the truth.
    """

    a: str
    b: str
    notion: str
    epsilon: float
    delta_upper: tuple[float, float]
    hops: float
    hop_bound: float


def pair_privacy(
    classes: Any,
    graph: NeighborGraph,
    a: Any,
    b: Any,
    epsilon: float,
    notion: str = "dp",
    *,
    scope: str = "answer",
) -> PairPrivacy:
    """What holds between two labels that need not be neighbors, and the bound that h hops give.

    Group privacy along a path X₀, …, X_h with ε/h per hop: δ ≤ Σ_j e^{jε/h} δ_{X_j → X_{j+1}}(ε/h). It holds for the
    hockey-stick δ; for other notions ``hop_bound`` is 1 beyond one hop. In a table (``scope``) neighbors are exchanged
    along the path and back, (X₀X₁) … (X_{h−1}X_h) … (X₀X₁): 2h − 1 steps with ε/(2h − 1) each.

    Returns:
        What holds in both directions, the hops between the labels and what these imply.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [1.0], [2.0]], [[1.0]], labels=["a", "b", "c"])
    >>> graph = shoal.NeighborGraph.from_edges(classes.labels, [("a", "b"), ("b", "c")])
    >>> found = shoal.pair_privacy(classes, graph, "a", "c", epsilon=1.0)
    >>> print(found.hops, f"{found.delta_upper[0]:.4f}", found.hop_bound >= max(found.delta_upper))
    2 0.5099 True
    """
    code = NOTIONS[validation.choice(list(NOTIONS), notion=notion)]
    epsilon = validation.non_negative(epsilon=epsilon)
    releases = Releases.of(classes, scope)
    releases.pairs(graph)
    position = {name: i for i, name in enumerate(releases.labels)}
    i, j = graph.index(a), graph.index(b)
    if i == j:
        return PairPrivacy(str(a), str(b), notion, epsilon, (0.0, 0.0), 0, 0.0)
    pair = np.array([[position[str(a)], position[str(b)]]], dtype=np.intp)
    found = brackets(releases, pair, code, np.array([epsilon]), releases.offsets(pair))[0, :, 0]
    own = np.broadcast_to(exp_up(trusted(found)[2]), (2,))
    path = graph.path(a, b)
    if path is None:
        bound, hops = 1.0, math.inf
    else:
        hops = len(path) - 1
        if hops == 1:
            bound = float(own.max())
        elif notion != "dp":
            bound = 1.0
        else:
            steps = np.array([[position[p], position[q]] for p, q in pairwise(path)], dtype=np.intp)
            if scope == "table":
                steps = np.concatenate([steps, steps[-2::-1]])
            n = len(steps)
            each = brackets(releases, steps, code, np.array([epsilon / n]), releases.offsets(steps))[:, :, 0]
            delta = np.broadcast_to(exp_up(trusted(each.reshape(-1, 3))[2]).reshape(n, -1), (n, 2))
            growth = np.exp(np.minimum(np.arange(n) * epsilon / n, 700.0))  # beyond, any δ > 0 makes the bound 1
            forth, back = (growth * delta[:, 0]).sum(), (growth * delta[::-1, 1]).sum()
            bound = float(min(max(forth, back) * (1 + 1e-12), 1.0))
            if epsilon > 700.0 and delta.any():
                bound = 1.0
    return PairPrivacy(str(a), str(b), notion, epsilon, (float(own[0]), float(own[1])), hops, bound)
