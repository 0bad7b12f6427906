"""Neighbor graphs from meters: who must be indistinguishable from whom.

A graph learned from the readings (clusters, nearest households) is itself a statement about them. Publishing it, or
letting it change with one household's data, is outside the guarantee; a graph from facts known anyway (feeder,
postcode, dwelling type) has no such cost.
"""

from __future__ import annotations

import math
import warnings
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
from shoal.sources.meters.forecast import Forecasts
from shoal.sources.meters.season import phases
from shoal.validation import FloatArray


class LonelyWarning(UserWarning):
    """A household has no neighbor: nothing hides it, and no figure of the graph speaks about it."""


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
    two of them hides only among those that they share. Crowds by profile come from the training history and are made
    to be kept.

    Args:
        source: a :class:`Forecasts`, or (n, k) answers with their ``labels``.
        size: every label hides among at least so many, itself included.
        by: ``"forecast"``: the answers, in kW for forecasts; ``"profile"``: the habits of the training window
            (:func:`habits`); or an (n, d) array.
        largest_share: nobody has more than this share of the crowd's total of ``source`` over all entries; 0.15 with
            crowds of 15 is the 15/15 rule.
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
            points = habits(source)
        else:
            raise InputError('by="profile" needs forecasts; for an array of answers give an (n, d) array of features')
    else:
        points = validation.array(ndim=2, by=by)
        if len(points) != len(answers):
            raise InputError(f"by must have one row per label: expected {len(answers)}, got {len(points)}")
    totals = answers.sum(axis=1) if largest_share is not None else None
    members = crowds(points, size, totals=totals, largest_share=largest_share, boundaries=boundaries, beside=answers)
    return NeighborGraph.within_groups(names, members.tolist())


#: Weight of the forecast against the habits of the whole day, and of the habits at the forecast's hours, in
#: :func:`blend`. Chosen on every second Swiss home; the other half and London are reported in docs/evidence.md.
CURVE_WEIGHT, AHEAD_WEIGHT = 1.5, 1.0


def likeness(forecasts: Forecasts) -> FloatArray:
    """(n, d) points whose nearness makes a crowd that serves at once and for life: forecast and habits together.

    >>> import shoal
    >>> readings = shoal.simulate_meters(4, 10, step_minutes=60)
    >>> forecasts = shoal.forecast(readings, order=(1, 1), train_days=7, horizon=3, season="day")
    >>> likeness(forecasts).shape  # 24 hours, 3 of them once more, 3 steps of the forecast
    (4, 30)
    """
    return blend(forecasts.power, hourly_habits(forecasts), hours_ahead(forecasts))


def blend(curves: FloatArray, habits: FloatArray, ahead: NDArray[np.int64]) -> FloatArray:
    """Put forecasts and habits of a whole population side by side, each relative to its spread over the homes.

        [h / s(h),  a · h_ahead / s(h_ahead),  w · √f / s(√f)],   s(x)² = Σ over columns of the variance over homes,

    with w = 1.5 and a = 1. The root weighs small and large homes by what an error costs either, √f is −√|f| where a
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
    times, kw = _past(forecasts, "habits")
    hour = _hours(times, forecasts.step)
    hours = np.unique(hour)
    total, count = np.zeros((len(kw), len(hours))), np.zeros((len(kw), len(hours)))
    roots = _root(kw)
    for step, column in enumerate(np.searchsorted(hours, hour)):
        seen = np.isfinite(roots[:, step])
        total[:, column] += np.where(seen, roots[:, step], 0.0)
        count[:, column] += seen
    overall, number = np.zeros(len(kw)), np.zeros(len(kw))
    for column in range(len(hours)):
        overall += total[:, column]
        number += count[:, column]
    overall /= np.maximum(number, 1)
    return np.where(count > 0, total / np.maximum(count, 1), overall[:, None])


def hours_ahead(forecasts: Forecasts) -> NDArray[np.int64]:
    """Columns of :func:`hourly_habits` that the forecast covers, ascending."""
    times, _ = _past(forecasts, "habits")
    hours = np.unique(_hours(times, forecasts.step))
    return np.flatnonzero(np.isin(hours, _hours(forecasts.timestamps, forecasts.step)))


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


def habits(forecasts: Forecasts) -> FloatArray:
    """(n, d) what makes tomorrow's forecasts alike too: the mean of √kW by hour of the day in the training window.

    The root weighs small and large homes by what an error costs either. The hours that the forecast covers count as
    much as the whole day: releases go on at the same hours. Hours without any reading take the household's mean.
    """
    times, kw = _past(forecasts, 'by="profile"')
    width = max(int(timedelta(hours=1) / forecasts.step), 1)
    slot, ahead = (phases(when, "day", forecasts.step) // width for when in (times, forecasts.timestamps))
    return day_habits(np.sqrt(np.maximum(kw, 0)), slot, ahead)


def _past(forecasts: Forecasts, what: str) -> tuple[pl.Series, FloatArray]:
    """Instants of the training window, and (n, T) what the households used then."""
    past = forecasts.history
    if past is None:
        raise InputError(f"{what} needs forecasts that come with their training window")
    place = {name: i for i, name in enumerate(past.households)}
    return past.timestamps, past.kw[[place[name] for name in forecasts.households]]


def day_habits(values: FloatArray, slot: NDArray[np.int64], ahead: NDArray[np.int64]) -> FloatArray:
    """Means of (n, T) values by time of the day, (T,), and once more at the times ``ahead``; both count alike."""
    mean, times = means_by_time(values, slot), np.unique(slot)
    covered = mean[:, np.isin(times, ahead)]
    return np.concatenate([mean / np.sqrt(len(times)), covered / np.sqrt(max(covered.shape[1], 1))], axis=1)


def means_by_time(values: FloatArray, slot: NDArray[np.int64]) -> FloatArray:
    """(n, times) means of (n, T) values by time, (T,), in order; a time without any takes the mean of all."""
    seen = np.isfinite(values)
    overall = np.where(seen, values, 0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    times = np.unique(slot)
    mean = np.empty((len(values), len(times)))
    for column, time in enumerate(times):
        here = slot == time
        count = seen[:, here].sum(axis=1)
        total = np.where(seen[:, here], values[:, here], 0).sum(axis=1)
        mean[:, column] = np.where(count > 0, total / np.maximum(count, 1), overall)
    return mean


def cluster_graph(
    source: Forecasts | Any,
    n_clusters: int = 6,
    seed: int = 0,
    *,
    by: str = "profile",
    labels: Sequence[Any] | None = None,
) -> NeighborGraph:
    """Complete inside each k-means cluster of households (the paper's study has six clusters).

    ``source`` is a :class:`Forecasts` or an (n, d) array of profiles with its ``labels``. For forecasts, ``by``
    says what is clustered: ``"profile"``, the mean log power over the season's period in the training window, or
    ``"forecast"``, the point forecast in log power.

    Returns:
        The graph over the households; a :class:`shoal.LonelyWarning` says how many have no neighbor.

    >>> import shoal
    >>> shoal.cluster_graph([[0.0], [0.1], [5.0], [5.1]], n_clusters=2).edges.tolist()
    [[0, 1], [2, 3]]
    """
    points, names = _points(source, by, labels)
    members = clusters(points, n_clusters, seed)
    return _checked(NeighborGraph.within_groups(names, [str(m) for m in members]))


def clusters(points: Any, n_clusters: int = 6, seed: int = 0) -> NDArray[np.int64]:
    """(n,) cluster number of each row: scikit-learn's k-means, best of ten starts."""
    from sklearn.cluster import KMeans

    x = validation.array(ndim=2, points=points)
    n_clusters = validation.count(n_clusters=n_clusters)
    seed = validation.count(at_least=0, seed=seed)
    if n_clusters > len(x):
        raise InputError(f"n_clusters must not exceed the number of households ({len(x)})")
    found = KMeans(n_clusters=n_clusters, n_init=10, random_state=seed).fit_predict(x)
    return np.asarray(found, dtype=np.int64)


def _points(source: Forecasts | Any, by: str, labels: Sequence[Any] | None) -> tuple[FloatArray, tuple[str, ...]]:
    if isinstance(source, Forecasts):
        by = validation.choice(("profile", "forecast"), by=by)
        return (source.season.profile if by == "profile" else source.log_mean), source.households
    points = validation.array(ndim=2, profiles=source)
    return points, validation.labels(len(points), labels)


def _checked(graph: NeighborGraph) -> NeighborGraph:
    alone = graph.n_labels - len(np.unique(graph.edges))
    if alone:
        warnings.warn(f"{alone} household(s) have no neighbor in this graph", LonelyWarning, stacklevel=3)
    return graph
