"""Pictures of laws and curves, with matplotlib (``pip install shoal[plot]``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.accounting.curve import PrivacyCurve
from shoal.classes import GaussianClasses
from shoal.errors import InputError
from shoal.notebook import COLORS


def draw_laws(axes: Any, classes: GaussianClasses, *, n_std: tuple[float, ...] = (1.0, 2.0)) -> None:
    """Contours of two-dimensional laws: the ellipses that hold one and two standard deviations."""
    if classes.n_dims != 2:
        raise InputError("classes must have two entries to be drawn in the plane")
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for i, label in enumerate(classes.labels):
        color = COLORS[i % len(COLORS)]
        values, vectors = np.linalg.eigh(classes.covs[i])
        root = vectors * np.sqrt(np.maximum(values, 0))
        for number, size in enumerate(n_std):
            x, y = classes.means[i][:, None] + size * root @ circle
            axes.plot(x, y, color=color, linewidth=1.6 if number == 0 else 0.8, label=label if number == 0 else None)
        axes.plot(*classes.means[i], marker="+", color=color)
    axes.set_aspect("equal", adjustable="datalim")


def draw_curves(axes: Any, curves: Mapping[str, PrivacyCurve]) -> None:
    """δ(ε) of several releases, upper ends, on a logarithmic scale where they span more than two decades."""
    lowest = 1.0
    for i, (name, curve) in enumerate(curves.items()):
        delta = np.atleast_1d(curve.delta_upper)
        axes.plot(np.atleast_1d(curve.epsilon), delta, color=COLORS[i % len(COLORS)], label=name)
        lowest = min(lowest, float(delta[delta > 0].min(initial=1.0)))
    if lowest < 1e-2:
        axes.set_yscale("log")
        axes.set_ylim(max(lowest, 1e-12) / 3, 1.5)
    else:
        axes.set_ylim(0, 1.02)
    axes.set_xlabel("ε")
    axes.set_ylabel("δ")
    axes.grid(alpha=0.3)
