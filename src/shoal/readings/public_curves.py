"""Public curves: sixty shapes of a home's next twelve steps, their shares, and how loads spread around their mean.

Derived from "SmartMeter Energy Consumption Data in London Households" (UK Power Networks, Low Carbon London project,
London Datastore), CC BY 4.0: forecasts of every second home of a sample, over the mean of all at the same step and
over their own mean, joined into sixty by k-means (``benchmarks/public_curves.py``). Nobody's readings who is in a
release enter here: a plan and what is rebuilt from a noisy vector use them as known beforehand.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from shoal.validation import FloatArray, IndexArray

#: Numbers of classes that the curves can be joined into.
CLASSES = (8, 16, 30, 60)


@cache
def _stored() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files("shoal.readings").joinpath("london.json").read_text(encoding="utf-8"))
    return content


@cache
def shares() -> FloatArray:
    """(60,) how often each curve occurs; they sum to 1."""
    counts = np.array(_stored()["counts"], dtype=np.float64)
    return np.asarray(counts / counts.sum())


@cache
def relative_levels() -> FloatArray:
    """Even quantiles of homes' mean loads over the mean of all, increasing."""
    return np.array(_stored()["levels"])


@cache
def curves_over(steps: int) -> FloatArray:
    """(60, steps) the curves at so many steps, each of mean 1."""
    stored = np.array(_stored()["curves"])
    at, known = (np.arange(steps) + 0.5) / steps, (np.arange(stored.shape[1]) + 0.5) / stored.shape[1]
    curves = np.array([np.interp(at, known, curve) for curve in stored])
    return np.asarray(curves / curves.mean(axis=1, keepdims=True))


@cache
def class_of(classes: int) -> IndexArray:
    """(60,) the class of each curve when they are joined into so many."""
    return np.array(_stored()["classes"][str(classes)], dtype=np.intp)
