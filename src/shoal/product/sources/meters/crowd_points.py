"""Crowds of meters: who is alike enough to be released together, now and later.

Crowds learned from the readings are themselves a statement about them. Publishing who is in which, or letting it change
with one home's data, is outside the guarantee; a graph from facts known anyway (feeder, postcode, dwelling type) has no
such cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.crowds.formation import Limits, least_spread_crowds
from shoal.errors import InputError
from shoal.laws.graph import NeighborGraph
from shoal.product.sources.meters.predictive_laws import Forecasts, phase_means, phase_numbers
from shoal.validation import FloatArray


def crowd_graph(
    source: Forecasts | Any,
    size: int = 10,
    by: Any = "forecast",
    largest_share: float | None = None,
    labels: Sequence[Any] | None = None,
    *,
    boundaries: Sequence[Any] | None = None,
) -> NeighborGraph:
    """Complete inside crowds of ``size`` to 2·size − 1 alike labels, with little total spread (``crowds``).

    Crowds are a function of the multiset of rows: neither the order of the labels nor their names has a say, so that
    exchanging two labels of a crowd changes nothing but their names.

    Crowds by forecast have the least error and hold for **one** release: on another day they differ, and whoever is in
    two of them hides only among those that they share. Crowds by profile look at the training history too and are made
    to be kept.

    Args:
        source: a :class:`Forecasts`, or (n, k) answers with their ``labels``.
        size: every label hides among at least so many, itself included.
        by: ``"forecast"``: the answers, in kW for forecasts; ``"profile"``: forecast and habits of the training window
            together, as a run forms its crowds (:func:`likeness_points`); or an (n, d) array.
        largest_share: nobody has more than this share of the crowd's total of ``source`` over all entries, export
            counted as consumption; 0.15 with crowds of 15 is 15/15 of the load over the horizon.
        labels: of the rows, where ``source`` is an array.
        boundaries: a value per label that crowds never cross: feeder, postcode, tariff.

    Returns:
        The graph whose groups are the crowds.

    >>> import shoal
    >>> shoal.crowd_graph([[0.0], [9.0], [1.0], [8.0], [7.0]], size=2, labels=list("abcde")).groups
    [('a', 'c'), ('b', 'd', 'e')]
    """
    if isinstance(source, Forecasts):
        answers, names = source.power, source.households
    else:
        answers = validation.array(ndim=2, answers=source)
        names = validation.labels(len(answers), labels)
    if isinstance(by, str):
        by = validation.choice(("forecast", "profile"), by=by)
        if by == "forecast":
            points = answers
        elif isinstance(source, Forecasts):
            points = likeness_points(source)
        else:
            raise InputError('by="profile" needs forecasts; for an array of answers give an (n, d) array of features')
    else:
        points = validation.array(ndim=2, by=by)
        if len(points) != len(answers):
            raise InputError(f"by must have one row per label: expected {len(answers)}, got {len(points)}")
    limits = Limits.of_share(np.abs(answers).sum(axis=1), largest_share)
    members = least_spread_crowds(points, size, limits=limits, boundaries=boundaries, beside=answers)
    return NeighborGraph.within_groups(names, members.tolist())


#: Weights in :func:`points_of_homes`: share of the usual load in what stands for the forecast, weight of the usual load
#: at the forecast's times, and weight of the whole usual day. Chosen on every second home of two data sets, for the
#: first release and for later ones at the same hour and at others; the other halves are reported in docs/evidence.md.
USUAL_SHARE, AHEAD_WEIGHT, DAY_WEIGHT = 0.2, 0.4, 0.3


def likeness_points(forecasts: Forecasts) -> FloatArray:
    """(n, d) points that crowds of meters are formed by: forecast and usual day together (:func:`points_of_homes`)."""
    return points_of_homes(
        forecasts.power, usual_day(forecasts), phase_numbers(forecasts.timestamps, "day", forecasts.step)
    )


def points_of_homes(
    curves: FloatArray,
    day: FloatArray,
    ahead: NDArray[np.int64],
    weights: tuple[float, float, float] = (USUAL_SHARE, AHEAD_WEIGHT, DAY_WEIGHT),
) -> FloatArray:
    """(n, d) points whose nearness makes crowds: forecast and usual day of each home side by side, in √kW.

        [(1 − s) √f + s √u,  a √u,  b √(k/H) √d]     s = 0.2, a = 0.4, b = 0.3

    with the forecast f and the usual load u at the same k times, the columns ``ahead`` of the usual ``day``, and the
    usual load d in the H hours of the day. √f is −√|f| where a home exports. A row is a function of its own home alone.
    """
    share, at_times, all_day = weights
    usual, hours = _signed_root(day[:, ahead]), _signed_root(_hourly_means(day))
    near = (1 - share) * _signed_root(curves) + share * usual
    return np.concatenate([near, at_times * usual, all_day * math.sqrt(len(ahead) / hours.shape[1]) * hours], axis=1)


def usual_day(forecasts: Forecasts) -> FloatArray:
    """(n, steps of a day) mean kW by time of the day in the training window: stored for life when a crowd is formed.

    Times without a reading take the home's mean.
    """
    values, column = forecasts.training_kw, phase_numbers(forecasts.history.timestamps, "day", forecasts.step)
    means, count = phase_means(values, column, int(timedelta(days=1) / forecasts.step))
    overall = np.array([math.fsum(row[np.isfinite(row)]) for row in values]) / np.maximum(count.sum(axis=1), 1)
    return np.where(count > 0, means, overall[:, None])


def _hourly_means(day: FloatArray) -> FloatArray:
    """(n, hours) means of the steps of each hour; the steps themselves where no whole number of them is an hour."""
    steps = day.shape[1]
    each = steps // 24 if steps % 24 == 0 else 1
    total = day[:, ::each]
    for step in range(1, each):
        total = total + day[:, step::each]
    return np.asarray(total / each)


def _signed_root(kw: FloatArray) -> FloatArray:
    """√ of the absolute value, with the sign of the value."""
    return np.asarray(np.sign(kw) * np.sqrt(np.abs(kw)))
