"""Mechanisms for other accountants: a privacy loss distribution of dp_accounting, a measurement of OpenDP.

Above: δ(ε) of what is released, the worst over all pairs in both directions, is convex in e^ε, and a pair of laws with
exactly this profile dominates every pair (Zhu, Dong & Wang 2022). :func:`to_pld` hands its values on a grid to the
connect-the-dots discretization (Doroshenko et al. 2022), which is above it between the grid points. Where rounding left
a value above the convex hull of the others, the largest such gap is added at infinity. Below: the losses of the one
worst pair, each rounded down to the grid, with lower ends of Pr(L ≥ each): δ of any composition rises with L.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.curve import edge_brackets
from shoal.errors import InputError
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import Releasable, releasable
from shoal.validation import FloatArray

#: Above what was computed here, so that it is above what other routes to the same δ find as well.
HEADROOM = 1e-9
#: Put at infinity for the rounding of dp_accounting's own sums.
SUMS = 1e-12


def to_pld(
    mechanism: Releasable,
    *,
    scope: str = "answer",
    interval: float = 1e-3,
    largest: float = 10.0,
    pessimistic: bool = True,
) -> Any:
    """A mechanism as a privacy loss distribution of dp_accounting, to be composed there with whatever it knows.

    Args:
        mechanism: a mechanism or a codebook.
        scope: what leaves, ``"answer"`` or ``"table"``.
        interval: distance between losses.
        largest: losses beyond it count as infinite (above), or as this one (below, where those under its negative are
            left out).
        pessimistic: True for an upper bound of every δ(ε), over all pairs; False for a lower bound, that of the pair
            that is worst at ε = 0, for laws before rounding, and up to that of dp_accounting's own sums (about 1e-13).

    Returns:
        The distribution; ``get_delta_for_epsilon`` and ``self_compose`` are dp_accounting's.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=4.0)
    >>> pld = shoal.to_pld(mechanism)
    >>> bool(pld.get_delta_for_epsilon(1.0) >= mechanism.certificate.delta_upper)
    True
    """
    try:
        pld_pmf: Any = import_module("dp_accounting.pld.pld_pmf")
        distribution: Any = import_module("dp_accounting.pld.privacy_loss_distribution").PrivacyLossDistribution
    except ImportError:
        raise InputError("to_pld needs dp_accounting: pip install dp-accounting") from None
    releasable(mechanism=mechanism)
    interval, largest = validation.positive(interval=interval), validation.positive(largest=largest)
    count = int(np.ceil(largest / interval))
    if count > 1_000_000:
        raise InputError("interval is too small for this largest loss: at most a million steps")
    if not pessimistic:
        pmf = _losses_below(mechanism, scope, interval, count)
        return distribution.create_from_rounded_probability(pmf, 0.0, interval, pessimistic_estimate=False)
    steps = np.unique(np.concatenate([np.arange(0, count, max(1, count // 2000)), [count]]))
    above = _profile(mechanism, steps * interval, scope)
    # δ(−ε) = 1 − e^{−ε} (1 − δ(ε)) for the reverse of each pair, and both directions are in the worst.
    mirrored = 1.0 - np.exp(-steps[:0:-1] * interval) * (1.0 - above[:0:-1])
    at = np.concatenate([-steps[:0:-1], steps])
    deltas = np.minimum(np.concatenate([mirrored, above]) * (1 + 2.0**-50), 1.0)
    hull = _convex(np.exp(at * interval), deltas)
    gap = float(np.max(deltas - hull)) * (1 + 2.0**-40) + SUMS
    raised = np.minimum.accumulate(np.minimum(hull + gap, 1.0))
    dotted = pld_pmf.create_pmf_pessimistic_connect_dots(interval, at, raised)
    return distribution(dotted)


def to_opendp(mechanism: Releasable, answers: Any) -> Any:
    """A mechanism as a measurement of OpenDP: a label in, its released answer out, with the privacy profile as map.

    The input metric is discrete: d_in = 1 is one label for another, so every pair of labels must be one of neighbors.

    Args:
        mechanism: a mechanism or a codebook on a complete graph.
        answers: (n, k) the true answers, in the mechanism's order; who can call the measurement can release them.

    Returns:
        The measurement; ``map(1)`` is its privacy profile, ``map(1).delta(epsilon)`` an upper end of δ.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=4.0)
    >>> measurement = shoal.to_opendp(mechanism, classes.means)
    >>> len(measurement("a")), measurement.map(1).delta(1.0) >= mechanism.certificate.delta_upper
    (1, True)
    """
    from opendp.domains import atom_domain
    from opendp.measurements import make_user_measurement
    from opendp.measures import new_privacy_profile, smoothed_max_divergence
    from opendp.metrics import discrete_distance
    from opendp.mod import enable_features

    labels = releasable(mechanism=mechanism).labels
    n = len(labels)
    if mechanism.graph.n_edges != n * (n - 1) // 2:
        raise InputError("mechanism: OpenDP's metric knows no groups; export each group of a graph by itself")
    values = validation.array(ndim=2, answers=answers)
    if values.shape != (n, mechanism.n_dims):
        raise InputError(f"answers must have shape {(n, mechanism.n_dims)}: one row per label")
    enable_features("contrib", "honest-but-curious")
    place = {label: i for i, label in enumerate(labels)}

    def released(label: str) -> list[float]:
        if label not in place:
            raise InputError("label is not one of the mechanism's")
        return [float(value) for value in mechanism.release(values[place[label]], label)]

    def profile(d_in: int) -> Any:
        def delta(epsilon: float) -> float:
            return 0.0 if d_in == 0 else float(_profile(mechanism, np.array([max(epsilon, 0.0)]), "answer")[0])

        made: Any = new_privacy_profile
        return made(delta).curve

    return make_user_measurement(
        atom_domain(T=str), discrete_distance(), smoothed_max_divergence(), released, profile, TO="Vec<f64>"
    )


def _profile(mechanism: Releasable, epsilon: FloatArray, scope: str) -> FloatArray:
    """δ(ε) of what is released, finite precision included, as upper ends."""
    curve = np.asarray(mechanism.curve(epsilon, scope=scope).delta_upper, dtype=np.float64)
    rows = 1.0 if scope == "answer" else 2.0
    beside = rows * mechanism.finite_precision_tv * (1.0 + np.exp(np.minimum(epsilon, 700.0)))
    delta: FloatArray = np.minimum((curve + beside) * (1 + HEADROOM), 1.0)
    return delta


def _convex(x: FloatArray, y: FloatArray) -> FloatArray:
    """The largest convex function below points with rising x, at these x."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    hull: FloatArray = np.interp(x, x[corners], y[corners])
    return np.minimum(hull, y)


def _losses_below(mechanism: Releasable, scope: str, interval: float, count: int) -> dict[int, float]:
    """Step -> probability of the losses of the worst pair, rounded down; what is left out adds nothing to δ."""
    a, b = mechanism.curve(0.0, scope=scope).worst_edge
    return mechanism.by_kind(
        mechanism=lambda gaussian: _law_losses_below(gaussian, a, b, scope, interval, count),
        codebook=lambda book: _book_losses_below(book, a, b, scope, interval, count),
    )


def _law_losses_below(
    mechanism: Mechanism, a: str, b: str, scope: str, interval: float, count: int
) -> dict[int, float]:
    """The losses of a pair of Gaussian laws, rounded down."""
    pair = NeighborGraph.from_edges([a, b], [(a, b)])
    laws = mechanism.output.take([mechanism.classes.labels.index(a), mechanism.classes.labels.index(b)])
    steps = np.unique(np.concatenate([np.arange(0, count, max(1, count // 500)), [count]]))

    def ends(notion: str) -> FloatArray:
        """(steps, 2) least and most of Pr(L > ε) or Pr(|L| > ε), of the one direction from a to b."""
        bounds = [edge_brackets(laws, pair, float(e), notion=notion, scope=scope)[0] for e in steps * interval]
        # A table has one figure for both directions.
        logs = np.array([one[0, 1:] if np.ndim(one) == 2 else one[1:] for one in bounds])
        return np.asarray(np.exp(logs) * (1 + np.array([-(2.0**-50), 2.0**-50])))

    over, outside = ends("pdp")[:, 0], ends("pdp-two-sided")[:, 1]
    # Pr(L ≥ −ε) = 1 − Pr(L < −ε), and Pr(L < −ε) = Pr(|L| > ε) − Pr(L > ε).
    down = np.maximum(1.0 - (outside - over) - 2.0**-50, 0.0)[:0:-1]
    tails = np.concatenate([down, over])
    tails = np.maximum.accumulate(tails[::-1])[::-1]
    mass = (tails - np.append(tails[1:], 0.0)) * (1 - 2.0**-40)
    at = np.concatenate([-steps[:0:-1], steps])
    return {int(step): float(p) for step, p in zip(at, mass, strict=True) if p > 0}


def _book_losses_below(book: Codebook, a: str, b: str, scope: str, interval: float, count: int) -> dict[int, float]:
    """The losses of two labels from their stored odds, finitely many, rounded down."""
    (crowd, i), (_, j) = book.place(a), book.place(b)
    ours, theirs = (crowd.counts[row] / float(sum(crowd.counts[row].tolist())) for row in (i, j))
    losses, odds = np.log(ours / theirs), ours
    if scope == "table":
        losses, odds = (losses[:, None] - losses[None, :]).ravel(), np.outer(ours, theirs).ravel()
    steps = np.minimum(np.floor((losses - 1e-13 * (1.0 + np.abs(losses))) / interval), count).astype(int)
    kept = steps >= -count
    masses = np.bincount(steps[kept] + count, weights=odds[kept] * (1 - 2.0**-40))
    return {int(step) - count: float(p) for step, p in enumerate(masses) if p > 0}
