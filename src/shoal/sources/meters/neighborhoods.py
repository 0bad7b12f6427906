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
import polars as pl
from numpy.typing import NDArray

from shoal import validation
from shoal.errors import InputError
from shoal.laws.crowds import crowds
from shoal.laws.graph import NeighborGraph
from shoal.sources.meters.predictive import Forecasts
from shoal.sources.meters.season import phase_means, phases
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
            together, as a run forms its crowds (:func:`likeness`); or an (n, d) array.
        largest_share: nobody has more than this share of the crowd's total of ``source`` over all entries, export
            counted as consumption; 0.15 with crowds of 15 is the 15/15 rule.
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
            points = likeness(source)
        else:
            raise InputError('by="profile" needs forecasts; for an array of answers give an (n, d) array of features')
    else:
        points = validation.array(ndim=2, by=by)
        if len(points) != len(answers):
            raise InputError(f"by must have one row per label: expected {len(answers)}, got {len(points)}")
    totals = np.abs(answers).sum(axis=1) if largest_share is not None else None
    members = crowds(points, size, totals=totals, largest_share=largest_share, boundaries=boundaries, beside=answers)
    return NeighborGraph.within_groups(names, members.tolist())


#: Weight of the forecast against the habits of the whole day, and of the habits at the forecast's hours, in
#: :func:`blend`. Chosen on every second home of two data sets, for the first release and for one three weeks later; the
#: other halves are reported in docs/evidence.md.
CURVE_WEIGHT, AHEAD_WEIGHT = 6.0, 4.0


def likeness(forecasts: Forecasts) -> FloatArray:
    """(n, d) points whose nearness makes a crowd that serves at once and for life: forecast and habits together."""
    return blend(forecasts.power, hourly_habits(forecasts), hours_ahead(forecasts))


def blend(curves: FloatArray, habits: FloatArray, ahead: NDArray[np.int64]) -> FloatArray:
    """Put forecasts and habits of a whole population side by side, each relative to its spread over the homes.

        [h / s(h),  a · h_ahead / s(h_ahead),  w · √f / s(√f)],   s(x)² = Σ over columns of the variance over homes,

    with w = 6 and a = 4. The root weighs small and large homes by what an error costs either, √f is −√|f| where a
    home exports. A row is a function of its own home and of sums over all homes, which are exactly rounded: in another
    order of homes the same rows come out, to the last bit.

    Args:
        curves: (n, k) forecasts in kW.
        habits: (n, hours) of the same homes (:func:`hourly_habits`); shards may be made apart and put together.
        ahead: columns of ``habits`` that the forecast covers (:func:`hours_ahead`).
    """
    parts = ((habits, 1.0), (habits[:, ahead], AHEAD_WEIGHT), (_root(curves), CURVE_WEIGHT))
    return np.concatenate([weight * _relative(part) for part, weight in parts], axis=1)


def hourly_habits(forecasts: Forecasts) -> FloatArray:
    """(n, hours) mean of √kW by hour of the day in the training window; hours without a reading take the home's mean.

    Readings are added in the order of time, home by home: the sums do not depend on which homes are in one array.
    """
    hours, column = np.unique(_hours(forecasts.history.timestamps, forecasts.step), return_inverse=True)
    return _means_by_time(_root(forecasts.past), column, len(hours))


def hours_ahead(forecasts: Forecasts) -> NDArray[np.int64]:
    """Columns of :func:`hourly_habits` that the forecast covers, ascending."""
    hours = np.unique(_hours(forecasts.history.timestamps, forecasts.step))
    return np.flatnonzero(np.isin(hours, _hours(forecasts.timestamps, forecasts.step)))


def usual_day(forecasts: Forecasts) -> FloatArray:
    """(n, steps of a day) mean kW by time of the day in the training window: stored for life when a crowd is formed."""
    column = phases(forecasts.history.timestamps, "day", forecasts.step)
    return _means_by_time(forecasts.past, column, int(timedelta(days=1) / forecasts.step))


def _hours(times: pl.Series, step: timedelta) -> NDArray[np.int64]:
    """(T,) hour of the day of each instant, or its step of the day where steps are longer."""
    return np.asarray(phases(times, "day", step) // max(int(timedelta(hours=1) / step), 1))


def _root(kw: FloatArray) -> FloatArray:
    return np.asarray(np.sign(kw) * np.sqrt(np.abs(kw)))


def _relative(x: FloatArray) -> FloatArray:
    """Columns over the root of their total variance over the rows; zeros where nothing varies."""
    n = len(x)
    centers = np.array([math.fsum(column) / n for column in x.T.tolist()])
    variance = math.fsum(math.fsum(column) for column in ((x - centers) ** 2).T.tolist()) / n
    return x / math.sqrt(variance) if variance > 0 else np.zeros_like(x)


def _means_by_time(values: FloatArray, column: NDArray[np.int64], n: int) -> FloatArray:
    """(n, columns) means of (n, T) values by column, (T,); a column without any takes the mean of all."""
    means, count = phase_means(values, column, n)
    overall = np.array([math.fsum(row[np.isfinite(row)]) for row in values]) / np.maximum(count.sum(axis=1), 1)
    return np.where(count > 0, means, overall[:, None])
