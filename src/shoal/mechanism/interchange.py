"""Mechanisms for another accountant: a privacy loss distribution of dp_accounting.

Above: δ(ε) of what is released, the worst over all pairs in both directions, is convex in e^ε, and a pair of laws with
exactly this profile dominates every pair (Zhu, Dong & Wang 2022). :func:`to_pld` hands its values on a grid to the
connect-the-dots discretization (Doroshenko et al. 2022), which is above it between the grid points. Where rounding left
a value above the convex hull of the others, the largest such gap is added at infinity.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.mechanism.releasable import Releasable, check_releasable
from shoal.validation import FloatArray

#: Above what was computed here, so that it is above what other routes to the same δ find as well.
HEADROOM = 1e-9
#: Put at infinity for the rounding of dp_accounting's own sums.
SUMS = 1e-12


def to_pld(mechanism: Releasable, *, scope: str = "answer", interval: float = 1e-3, largest: float = 10.0) -> Any:
    """A mechanism as a privacy loss distribution of dp_accounting, to be composed there with whatever it knows.

    Args:
        mechanism: a mechanism or a codebook.
        scope: what leaves, ``"answer"`` or ``"table"``.
        interval: distance between losses.
        largest: losses beyond it count as infinite.

    Returns:
        The distribution, whose δ(ε) is above that of every pair; ``get_delta_for_epsilon`` and ``self_compose`` are
        dp_accounting's. Where δ is 1 up to ``largest`` there is none: dp_accounting cannot compose it.

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
    check_releasable(mechanism=mechanism)
    interval, largest = validation.positive(interval=interval), validation.positive(largest=largest)
    count = int(np.ceil(largest / interval))
    if count > 1_000_000:
        raise InputError("interval is too small for this largest loss: at most a million steps")
    steps = np.unique(np.concatenate([np.arange(0, count, max(1, count // 2000)), [count]]))
    above = _profile(mechanism, steps * interval, scope)
    # δ(−ε) = 1 − e^{−ε} (1 − δ(ε)) for the reverse of each pair, and both directions are in the worst.
    mirrored = 1.0 - np.exp(-steps[:0:-1] * interval) * (1.0 - above[:0:-1])
    at = np.concatenate([-steps[:0:-1], steps])
    deltas = np.minimum(np.concatenate([mirrored, above]) * (1 + 2.0**-50), 1.0)
    hull = _convex(np.exp(at * interval), deltas)
    gap = float(np.max(deltas - hull)) * (1 + 2.0**-40) + SUMS
    raised = np.minimum.accumulate(np.minimum(hull + gap, 1.0))
    if raised[-1] >= 1.0:
        raise InputError(
            f"mechanism: δ is 1 at every ε up to {largest:g}, a loss without bound that dp_accounting cannot compose; "
            "choose a larger value for largest, or a mechanism with more noise"
        )
    return distribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, at, raised))


def _profile(mechanism: Releasable, epsilon: FloatArray, scope: str) -> FloatArray:
    """δ(ε) of what is released, finite precision included, as upper ends."""
    curve = np.asarray(mechanism.curve(epsilon, scope=scope).delta_upper, dtype=np.float64)
    rows = mechanism.times * (1.0 if scope == "answer" else 2.0)
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
