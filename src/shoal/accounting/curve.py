"""δ(ε) over a whole graph, the worst edge, and its inverse.

Every δ has a bracket. ``delta`` is the computed value; ``delta_upper`` is the end to rely on. Searches end on the
private side: what :func:`epsilon_at` returns satisfies its target with ``delta_upper``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.accounting import tails
from shoal.accounting.contour import EPS
from shoal.accounting.edges import LOOSE, bracket_edges
from shoal.accounting.releases import EdgeSource, Prior, Releases
from shoal.errors import CertificationError, InputError
from shoal.laws.graph import NeighborGraph
from shoal.numerics.threads import map_batches
from shoal.rounding import exactly, upper
from shoal.validation import FloatArray

#: Notion -> code of the kernels.
NOTIONS = {"dp": tails.DP, "pdp": tails.PDP, "pdp-two-sided": tails.PDP_TWO_SIDED, "chernoff": tails.CHERNOFF}
NO_EDGES = "graph has no edges: there is no worst edge to report"
#: Edges per block of work.
BLOCK = 1024
#: How many edges of a block are settled first among those whose bracket is loose; then eight times as many, and so on.
FIRST_SETTLED = 8
#: What an edge's bracket is not compared to where all brackets are wanted.
NO_FLOORS = np.empty(0)
#: The smallest positive double: an upper end that is not exactly zero never reads as zero.
TINIEST = 5e-324


@dataclass(frozen=True)
class PrivacyCurve:
    """δ at each ε over all edges of a graph.

    Each field has the shape of ``epsilon`` (plain numbers when ε was one). ``worst_edge`` holds the pair of labels
    (from, to) that attains ``delta``; ``delta_lower ≤ exact δ ≤ delta_upper``. ``scope`` says what somebody holds: one
    answer, or the table of all of them, where a pair has one figure for both directions.
    """

    notion: str
    epsilon: Any
    delta: Any
    log_delta: Any
    delta_lower: Any
    delta_upper: Any
    log_delta_upper: Any
    worst_edge: Any
    scope: str = "answer"

    @classmethod
    def vacuous(cls, notion: str, epsilon: float, edge: tuple[str, str], scope: str = "answer") -> PrivacyCurve:
        """Return the curve at one ε where nothing is certified: δ ≤ 1, with ``edge`` as the worst edge."""
        return cls(notion, epsilon, 1.0, 0.0, 0.0, 1.0, 0.0, edge, scope)

    def at_first_epsilon(self) -> PrivacyCurve:
        """Return the curve at its first ε, with plain numbers for arrays."""
        arrays = [name for name in self.__dataclass_fields__ if name not in ("notion", "scope")]
        return replace(self, **{name: getattr(self, name)[0] for name in arrays})

    def __repr__(self) -> str:
        eps, delta = np.atleast_1d(self.epsilon), np.atleast_1d(self.delta_upper)
        shown = ", ".join(f"δ({exactly(e)}) ≤ {upper(d)}" for e, d in list(zip(eps, delta, strict=True))[:4])
        return f"PrivacyCurve({self.notion}: {shown}{', …' if len(eps) > 4 else ''})"

    def _repr_html_(self) -> str:
        """Return the curve as an HTML table, for notebooks."""
        from shoal.plaintext import html_table

        eps, delta = np.atleast_1d(self.epsilon), np.atleast_1d(self.delta_upper)
        worst = [self.worst_edge] if np.ndim(self.epsilon) == 0 else self.worst_edge
        rows = [(exactly(e), f"{upper(d)}", f"{a} → {b}") for e, d, (a, b) in zip(eps, delta, worst, strict=True)]
        return html_table(f"Privacy curve ({self.notion})", ("ε", "δ, at most", "worst edge"), rows)


def privacy_curve(
    classes: Any, graph: NeighborGraph, epsilon: Any, notion: str = "dp", prior: Prior = None, *, scope: str = "answer"
) -> PrivacyCurve:
    """The worst δ over both directions of every edge, at each ε.

    With L = ln p_X / p_X' the privacy loss, the certificate is the hockey-stick δ_{X→X'}(ε) = E_X (1 − e^{ε − L})₊, the
    least δ with Pr_X(S) ≤ e^ε Pr_X'(S) + δ for every event S: a contour integral over K(t) = ln E_X e^{tL}, which has a
    closed form for Gaussian laws (docs/theory.md).

    Args:
        classes: laws of what was released, or a sequence of independent releases about the same label, which are
            composed exactly. Dependent releases go through :meth:`GaussianClasses.joint` first.
        graph: which labels must stay indistinguishable.
        epsilon: a number or a 1-D array, each at least 0.
        notion: ``"dp"`` (hockey-stick, the certificate), ``"pdp"`` (Pr(L > ε)), ``"pdp-two-sided"`` (Pr(|L| > ε), the
            paper's definition) or ``"chernoff"`` (the paper's Lemma 1 at its best s).
        prior: probability of each label, by name or in label order; the ε of an edge X → X' then shifts by
            −ln(prior of X / prior of X').
        scope: ``"answer"`` for who holds one answer; ``"table"`` for who holds the answers about all labels, names
            dropped, and asks whether the rows of two of them are exchanged: L_{X→X'} + L_{X'→X}, one figure per pair.

    Returns:
        ``delta``, its bracket and the worst edge at each ε: plain numbers for one ε, arrays for several.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> print(f"{shoal.privacy_curve(classes, graph, 0.1).delta_upper:.4f}")
    0.3523
    >>> print(f"{shoal.privacy_curve(classes, graph, 0.1, notion='pdp').delta_upper:.4f}")
    0.6554
    >>> twice = shoal.privacy_curve([classes, classes], graph, [0.1, 1.0])
    >>> print([f"{delta:.4f}" for delta in twice.delta_upper])
    ['0.4964', '0.2862']
    >>> print(f"{shoal.privacy_curve(classes, graph, 0.1, scope='table').delta_upper:.4f}")  # equal covariances: √2 μ
    0.4964
    """
    grid, scalar = validation.grid(epsilon=epsilon)
    releases, pairs, _, offsets = _check_request(classes, graph, notion, prior, scope)
    if len(pairs) == 0:
        raise InputError(NO_EDGES)
    curve = worst_curve(releases, pairs, notion, grid, offsets)
    return curve.at_first_epsilon() if scalar else curve


def _check_request(
    classes: Any, graph: NeighborGraph, notion: str, prior: Prior, scope: str
) -> tuple[Releases, NDArray[np.intp], int, FloatArray]:
    """Return the releases, the graph's edges as positions, the notion's code and every edge's shift of ε."""
    code = NOTIONS[validation.choice(list(NOTIONS), notion=notion)]
    releases = Releases.collect(classes, scope)
    pairs = releases.edge_positions(graph)
    if notion == "pdp-two-sided" and prior is not None:
        raise InputError("prior: two-sided PDP has no shifted form; use notion='dp' or 'pdp'")
    return releases, pairs, code, releases.epsilon_offsets(pairs, prior)


def worst_curve(
    releases: EdgeSource, pairs: NDArray[np.intp], notion: str, epsilons: FloatArray, offsets: FloatArray
) -> PrivacyCurve:
    """Return the curve of the worst edge at each ε, where edge e in direction d counts at epsilons + offsets[e, d]."""
    best, where = _worst_brackets(releases, pairs, NOTIONS[notion], epsilons, offsets)
    value, lower, upper = split_brackets(best)
    edges = []
    for e, direction in where:
        a, b = pairs[e] if direction == 0 else pairs[e][::-1]
        edges.append((releases.labels[a], releases.labels[b]))
    return PrivacyCurve(
        notion=notion,
        epsilon=epsilons,
        delta=np.exp(value),
        log_delta=value,
        delta_lower=exp_rounded_down(lower),
        delta_upper=exp_rounded_up(upper),
        log_delta_upper=upper,
        worst_edge=edges,
        scope=getattr(releases, "scope", "answer"),
    )


def edge_deltas(
    classes: Any,
    graph: NeighborGraph,
    epsilon: float,
    notion: str = "dp",
    prior: Prior = None,
    *,
    scope: str = "answer",
) -> FloatArray:
    """δ of every edge at one ε: (n_edges, 2), column 0 is i → j, column 1 is j → i; of a table (n_edges,).

    Args:
        classes, graph, notion, prior, scope: as in :func:`privacy_curve`.
        epsilon: one number, at least 0.

    Returns:
        The computed values, edges in the order of ``graph.edges``; :func:`edge_brackets` has the ends to rely on.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> print(shoal.edge_deltas(classes, graph, 1.0).round(4))
    [[0.1269 0.1269]]
    >>> print(shoal.edge_deltas(classes, graph, 1.0, scope="table").round(4))
    [0.2862]
    """
    return np.exp(edge_brackets(classes, graph, epsilon, notion, prior, scope=scope)[..., 0])


def edge_brackets(
    classes: Any,
    graph: NeighborGraph,
    epsilon: float,
    notion: str = "dp",
    prior: Prior = None,
    *,
    scope: str = "answer",
) -> FloatArray:
    """Return brackets of ln δ at one ε, (n_edges, 2, 3) or of a table (n_edges, 3): value, lower, upper."""
    grid = np.array([validation.non_negative(epsilon=epsilon)])
    releases, pairs, code, offsets = _check_request(classes, graph, notion, prior, scope)

    def bracket_block(part: slice) -> FloatArray:
        """Return the brackets of a block of edges."""
        return log_delta_brackets(releases, pairs[part], code, grid, offsets[part])[:, :, 0]

    parts = list(map_batches(bracket_block, len(pairs), BLOCK))
    logs = np.concatenate(parts) if parts else np.empty((0, releases.n_directions, 3))
    value, lower, upper = split_brackets(logs.reshape(-1, 3))
    ends = np.stack([value, lower, upper], axis=1).reshape(logs.shape)
    return ends if releases.n_directions == 2 else ends[:, 0]


def epsilon_at(
    classes: Any, graph: NeighborGraph, delta: float, notion: str = "dp", prior: Prior = None, *, scope: str = "answer"
) -> float:
    """The smallest ε at which δ(ε) ≤ ``delta`` is certain, to a relative accuracy of 1e-12 or better; inf if none.

    The returned ε satisfies the target with ``delta_upper``, never merely with ``delta``.

    Args:
        classes, graph, notion, prior, scope: as in :func:`privacy_curve`.
        delta: the target, at least 0 and below 1.

    Returns:
        ε, on the private side of the exact root.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> epsilon = shoal.epsilon_at(classes, graph, delta=1e-5)
    >>> print(f"{epsilon:.4f}")
    4.3772
    >>> bool(shoal.privacy_curve(classes, graph, epsilon).delta_upper <= 1e-5)
    True
    """
    delta = validation.probability(delta=delta, below_one=True)
    # δ's own logarithm, rounded down by what exp_rounded_up may add.
    target = math.log(delta) * (1 + EPS) - 8 * EPS if delta > 0 else -math.inf
    releases, pairs, code, offsets = _check_request(classes, graph, notion, prior, scope)
    if len(pairs) == 0:
        raise InputError(NO_EDGES)
    epsilon = 0.0
    # The worst edge at the current ε is solved alone; its ε is a lower bound for all, so the loop only moves up.
    for _ in range(len(pairs) * 2 + 1):
        best, where = _worst_brackets(releases, pairs, code, np.array([epsilon]), offsets)
        if best[0, 2] <= target:
            return epsilon
        e, direction = where[0]
        if best[0, 2] >= 0.0 and best[0, 1] == 0.0 and releases.spectra(pairs[e : e + 1]).disjoint[0]:
            return math.inf
        part, own = slice(e, e + 1), int(direction)

        def is_met_by_edge(at: float, part: slice = part, own: int = own) -> bool:
            """Whether δ of this edge alone is certain to meet the target at this ε."""
            logs = log_delta_brackets(releases, pairs[part], code, np.array([at]), offsets[part])
            return bool(logs[0, own, 0, 2] <= target)

        if target == -math.inf and not is_met_by_edge(1e9):
            return math.inf  # δ = 0 exactly needs a bounded loss
        moved = epsilon if is_met_by_edge(epsilon) else _least_epsilon(is_met_by_edge, epsilon, 1e-13)
        if moved == math.inf:
            return math.inf
        if moved <= epsilon:
            break  # another edge has the largest upper end, with a wide bracket
        epsilon = moved

    def is_target_met(at: float) -> bool:
        """Whether δ at this ε is certain to meet the target on every edge."""
        return bool(_worst_brackets(releases, pairs, code, np.array([at]), offsets)[0][0, 2] <= target)

    return _least_epsilon(is_target_met, epsilon, 1e-12)


def _least_epsilon(is_met: Callable[[float], bool], start: float, width: float) -> float:
    """Return the least ε above ``start`` at which ``is_met``, by bisection to a relative ``width``; inf if none."""
    low, high = start, max(1.0, 2.0 * start)
    while not is_met(high):
        low, high = high, 2.0 * high
        if high > 1e15:
            return math.inf
    for _ in range(200):
        middle = 0.5 * (low + high)
        if high - low <= width * high or not low < middle < high:
            break
        low, high = (low, middle) if is_met(middle) else (middle, high)
    return high


def log_delta_brackets(
    releases: EdgeSource, pairs: NDArray[np.integer], code: int, epsilons: FloatArray, offsets: FloatArray
) -> FloatArray:
    """Return brackets of ln δ, (edges, directions, ε, 3); loose ones are recomputed from precise spectra.

    ``offsets`` (edges, directions) is added to every ε.
    """
    out = np.empty((*offsets.shape, len(epsilons), 3))
    spectra = releases.spectra(pairs)
    bracket_edges(code, epsilons, offsets, spectra, NO_FLOORS, out)
    rows = np.flatnonzero(_is_wider(out, LOOSE).any(axis=(1, 2)))
    if len(rows):
        again = np.empty((len(rows), *out.shape[1:]))
        spectra = releases.spectra(pairs[rows], precise=True)
        bracket_edges(code, epsilons, offsets[rows], spectra, NO_FLOORS, again)
        out[rows] = _choose_brackets(out[rows], again)
    return out


def _is_wider(logs: FloatArray, width: float) -> NDArray[np.bool_]:
    """Return which brackets (last axis: value, lower, upper) are wider than ``width``; an exact zero is not."""
    upper = logs[..., 2]
    positive = upper > -np.inf
    return positive & ~(np.where(positive, upper, 0.0) - logs[..., 1] < width)


def _choose_brackets(old: FloatArray, new: FloatArray) -> FloatArray:
    """Return the brackets from precise spectra; the old where they are narrower, both where the two do not meet.

    Never the better end of each: a bracket that is wrong at one end is wrong at the other.
    """
    with np.errstate(invalid="ignore"):
        wider = ~(new[..., 2] - new[..., 1] <= old[..., 2] - old[..., 1]) & ~np.isnan(old).any(axis=-1)
        disjoint = (new[..., 1] > old[..., 2]) | (old[..., 1] > new[..., 2])
    # Both unbounded below: the difference is not a number where the upper end is −inf too, which is an exact zero.
    wider &= new[..., 2] > -np.inf
    result = np.where(wider[..., None], old, new)
    result[disjoint, 1] = np.minimum(new[disjoint, 1], old[disjoint, 1])
    result[disjoint, 2] = np.maximum(new[disjoint, 2], old[disjoint, 2])
    return result


def _worst_brackets(
    releases: EdgeSource, pairs: NDArray[np.intp], code: int, epsilons: FloatArray, offsets: FloatArray
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the worst bracket of ln δ at each ε, (n_epsilon, 3), and (edge, direction) that attain it."""
    n = len(epsilons)
    floors = np.full(n, -np.inf)

    def bracket_block(part: slice) -> tuple[FloatArray, NDArray[np.intp]]:
        """Return the worst bracket of a block of edges at each ε, and (edge, direction) that attain it."""
        logs = np.empty((*offsets[part].shape, n, 3))
        bracket_edges(code, epsilons, offsets[part], releases.spectra(pairs[part]), floors.copy(), logs)
        loose, count = _is_wider(logs, LOOSE), FIRST_SETTLED
        while True:
            best = np.where(loose[..., None], -np.inf, logs).max(axis=(0, 1))
            # The largest first: an edge whose loose upper end lies below that of one that is settled need not be.
            above = np.where(loose & (logs[..., 2] > best[:, 2]), logs[..., 2], -np.inf).max(axis=(1, 2))
            rows = np.flatnonzero(above > -np.inf)
            if len(rows) == 0:
                break
            rows = np.sort(rows[np.argsort(-above[rows], kind="stable")[:count]])
            logs[rows] = log_delta_brackets(releases, pairs[part][rows], code, epsilons, offsets[part][rows])
            loose[rows] = False
            count *= 8
        top = np.where(loose, -np.inf, logs[..., 0]).reshape(-1, n).argmax(axis=0)
        return best, np.stack([part.start + top // offsets.shape[1], top % offsets.shape[1]], axis=1)

    best, where = np.full((n, 3), -np.inf), np.zeros((n, 2), dtype=np.intp)
    for part_best, part_where in map_batches(bracket_block, len(pairs), BLOCK):
        better = part_best[:, 0] > best[:, 0]
        where[better] = part_where[better]
        best = np.maximum(best, part_best)
        floors[:] = best[:, 1]
    return best, where


def split_brackets(logs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (value, lower, upper) of brackets (m, 3); raise CertificationError where one says nothing.

    A loose bracket's value is its upper end. A bracket with a value of exact zero is not void, however wide: equal laws
    up to rounding, of which Pr(L > 0) may be anything, and is reported as its upper end.
    """
    value, lower, upper = logs[:, 0].copy(), logs[:, 1], logs[:, 2]
    loose = _is_wider(logs, 1e-6)
    void = (loose & (lower == -np.inf) & (upper > math.log(1e-3)) & (value > -np.inf)) | np.isnan(logs).any(axis=1)
    if void.any():
        raise CertificationError(
            f"{int(void.sum())} privacy figure(s) could not be certified: the covariances of the pair are too close to "
            "singular for their size. Add a little noise to every label (with_noise), or drop entries of the answer "
            "that are fixed by the others"
        )
    value[loose] = upper[loose]
    return value, lower, upper


def exp_rounded_up(log_value: FloatArray) -> FloatArray:
    """Return e^x rounded up; zero only where x is −inf, never above 1."""
    with np.errstate(under="ignore"):
        raised = np.maximum(np.nextafter(np.exp(log_value) * (1 + 4 * EPS), np.inf), TINIEST)
    return np.where(log_value == -np.inf, 0.0, np.minimum(raised, 1.0))


def exp_rounded_down(log_value: FloatArray) -> FloatArray:
    """Return e^x rounded down, never below 0."""
    with np.errstate(under="ignore"):
        return np.asarray(np.nextafter(np.exp(log_value) * (1 - 4 * EPS), 0.0))


def monotone_upper_ends(epsilon: Any, ends: Any) -> FloatArray:
    """Return the upper ends of δ (or ln δ) at each ε, each lowered to that of a smaller ε where this is less.

    δ(ε) does not rise with ε, so an upper end at a smaller ε is one here too. What finite precision adds does rise.
    """
    order = np.argsort(np.asarray(epsilon, dtype=np.float64), kind="stable")
    least = np.array(ends, dtype=np.float64)
    least[order] = np.minimum.accumulate(least[order])
    return least
