"""What a row tells about a property of its members that is not in it: the third of the three questions.

The attacker knows which row a member belongs to and, of the members of other rows, who has the property. It learns by
ridge regression how the share of members with the property follows from a row, and applies that to rows it has not
learned from (:data:`FOLDS`). All members of a row have the same score, so a row of ten tells less than a row of one.

    area under the curve   P(score of a member with the property > score of one without) + ½ P(equal); a guess has ½
    share right            members for whom "more likely than not" is true; a guess says what most members are

Both are over all origins; the two of a pair are of one. The null hypothesis is that rows say nothing about the members
behind them: then rows may be exchanged, all origins together, and the attack is repeated on :data:`DRAWS` such worlds.
An interval reaches as far below and above its figure as 95 % of those lie around the guess, and at least over 95 % of
resampled rows. So a release that tells nothing is above its guess in at most 2.5 % of studies, whatever the properties
and the rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shoal.product.studies.findings import DETECTED, Finding
from shoal.validation import FloatArray

#: Worlds in which rows tell nothing, and resamples of rows: with 199, five of them are the outer 2.5 %.
DRAWS = 199
#: Folds of rows, and the ridge as a share of the rows learned from.
FOLDS, RIDGE = 5, 0.1
#: Members with a property, and without it, at least, over all origins.
LEAST = 10
AREA, RIGHT = "area under the curve", "share right"


@dataclass(frozen=True)
class ReleasedRows:
    """Released rows, origin after origin: (rows, f) features of each, and which row each member has.

    A member of a release without protection has a row of its own.
    """

    release: str  #: as findings name it
    values: tuple[FloatArray, ...]
    member: NDArray[np.int64]  #: (n,)


def infer_property(
    rows: ReleasedRows,
    truth: FloatArray,
    what: str,
    *,
    each: bool = False,
    seed: int = 0,
) -> list[Finding]:
    """Findings on what rows tell about a property of their members.

    Args:
        rows: what leaves.
        truth: (origins, n) 1 for members with the property, 0 without, NaN where it is unknown; a member counts where
            it is known at all origins.
        what: the property and what the attacker knows, for the findings.
        each: the features are the score itself, (rows, 1), at each origin: nothing is learned.
        seed: of folds and worlds.

    Returns:
        The findings; none where fewer than :data:`LEAST` members have the property, or lack it.

    >>> draw = np.random.default_rng(0)
    >>> fact = np.repeat(draw.integers(0, 2, 20), 10)[None].astype(float)
    >>> values = fact[0, ::10, None] + 0.1 * draw.standard_normal((20, 1))
    >>> rows = ReleasedRows("table", (values,), np.repeat(range(20), 10))
    >>> infer_property(rows, fact, "a fact that all members of a row share")[0].is_above_guess
    True
    """
    tried = _attack_measures(rows, truth, each, seed, (AREA, RIGHT))
    return [_finding_with_interval(rows.release, what, one) for one in tried]


def infer_columns(
    rows: ReleasedRows, truth: FloatArray, names: Sequence[str], what: str, *, features: str = "others", seed: int = 0
) -> list[Finding]:
    """Findings on what rows tell about k columns (n, k) of facts: the mean over columns, and the column told most.

    ``features`` are ``"own"``: the row's figure in the column itself, or ``"others"``: its figures in all others. All
    columns are attacked in the same worlds, so that the most of many columns is held against the most of as many.
    """
    (values,) = rows.values
    own = features == "own"
    tried: list[_AttackedMeasure] = []
    told: list[str] = []
    for j, name in enumerate(names):
        part = values[:, j : j + 1] if own else np.delete(values, j, axis=1)
        one = _attack_measures(ReleasedRows(rows.release, (part,), rows.member), truth[:, j][None], own, seed, [AREA])
        tried, told = tried + one, told + [name] * len(one)
    if not tried:
        return []
    figures, again = np.stack([one.figures for one in tried]), np.stack([one.again for one in tried])
    most = int(figures[:, 0].argmax())
    mean = replace(tried[0], figures=figures.mean(axis=0), again=again.mean(axis=0))
    largest = replace(tried[most], figures=figures.max(axis=0))
    found = [_finding_with_interval(rows.release, f"{what}: mean of {len(tried)} columns", mean)]
    return [*found, _finding_with_interval(rows.release, f"{what}: {told[most]}, which is told most", largest)][
        : len(tried)
    ]


def is_above_median(values: FloatArray) -> FloatArray:
    """1 where a value is above its column's median; in columns with many equal values, above the mean."""
    middle = np.median(values, axis=0)
    tied = (values == middle).mean(axis=0) > 0.3
    return np.asarray(values > np.where(tied, values.mean(axis=0), middle), dtype=np.float64)


@dataclass(frozen=True)
class _AttackedMeasure:
    """A figure of the attack as it is and in worlds in which rows tell nothing, and again over resampled rows."""

    measure: str
    guess: float
    tests: int
    figures: FloatArray  #: (1 + worlds,)
    again: FloatArray  #: (worlds,)


def _attack_measures(
    rows: ReleasedRows, truth: FloatArray, each: bool, seed: int, measures: Sequence[str]
) -> list[_AttackedMeasure]:
    """Attack a property of members (origins, n) by their rows: a result per measure, or none if too few."""
    known = np.isfinite(truth).all(axis=0)
    truth, place = truth[:, known], rows.member[known]
    used, unit = np.unique(place, return_inverse=True)
    some = (truth.max(axis=1, initial=0) == 1) & (truth.min(axis=1, initial=1) == 0)
    if len(used) < 2 * FOLDS or min(truth[some].sum(), (1 - truth[some]).sum()) < LEAST:
        return []
    count = np.bincount(unit).astype(np.float64)
    having = np.stack([np.bincount(unit, weights=one) for one in truth[some]]).astype(np.float64)
    values = [one[used] for one, there in zip(rows.values, some, strict=True) if there]
    draw = np.random.default_rng([seed, len(used)])
    order = np.stack([np.arange(len(used)), *(draw.permutation(len(used)) for _ in range(DRAWS))])
    if each:  # (worlds, origins, rows)
        scores = np.stack(values)[None, :, :, 0]
    else:
        scores = _cross_fitted_shares(values, (having / count)[:, order].transpose(1, 0, 2), draw)
    worlds = having[:, order].transpose(1, 0, 2), count[order][:, None]
    weights = draw.multinomial(len(used), np.full(len(used), 1 / len(used)), DRAWS)[:, None].astype(np.float64)
    share = float(np.mean([max(one, 1 - one) for one in having.sum(axis=1) / count.sum()]))
    return [
        _AttackedMeasure(measure, guess, int(count.sum()), figure_of(scores, *worlds),
                figure_of(scores[:1], having * weights, count * weights))
        for measure, figure_of, guess in ((AREA, area_under, 0.5), (RIGHT, _share_right, share)) if measure in measures
    ]  # fmt: skip


def _cross_fitted_shares(values: Sequence[FloatArray], shares: FloatArray, draw: np.random.Generator) -> FloatArray:
    """(worlds, origins, rows) shares of members with the property, as expected from rows that were not learned from."""
    worlds, origins, units = shares.shape
    scaled = np.stack([(one - one.mean(axis=0)) / (one.std(axis=0) + 1e-12) for one in values])
    design = np.concatenate([np.ones((origins, units, 1)), scaled], axis=2)
    scores = np.empty(shares.shape)
    for fold in np.array_split(draw.permutation(units), FOLDS):
        rest = np.setdiff1d(np.arange(units), fold)
        x = design[:, rest].reshape(-1, design.shape[2])
        penalty = RIDGE * len(x) * np.eye(x.shape[1])
        penalty[0, 0] = 0.0
        weights = np.linalg.solve(x.T @ x + penalty, x.T @ shares[:, :, rest].reshape(worlds, -1).T)
        scores[:, :, fold] = (design[:, fold].reshape(-1, x.shape[1]) @ weights).T.reshape(worlds, origins, -1)
    return scores


def area_under(scores: FloatArray, having: FloatArray, count: FloatArray) -> FloatArray:
    """(worlds,) share of right pairs of all origins; ``having`` of a row's ``count`` members have the property.

    >>> area_under(np.array([[[1.0, 2.0]]]), np.array([[[0.0, 2.0]]]), np.array([[[2.0, 2.0]]])).tolist()
    [1.0]
    """
    order = np.argsort(scores, axis=-1, kind="stable")  # once for all worlds with the same scores
    sort = np.broadcast_to(order, np.broadcast_shapes(order.shape, having.shape))
    having, count = (np.take_along_axis(np.broadcast_to(one, sort.shape), sort, axis=-1) for one in (having, count))
    without, place = count - having, np.arange(order.shape[-1])
    new = np.diff(np.take_along_axis(scores, order, axis=-1), axis=-1, prepend=-np.inf) > 1e-12
    first = np.maximum.accumulate(np.where(new, place, 0), axis=-1)  # of the rows with the same score
    end = np.concatenate([new[..., 1:], np.ones_like(new[..., :1])], axis=-1)
    last = np.minimum.accumulate(np.where(end, place, len(place))[..., ::-1], axis=-1)[..., ::-1]
    below = np.cumsum(without, axis=-1)
    first, last = (np.broadcast_to(one, sort.shape) for one in (first, last))
    before = np.take_along_axis(below - without, first, axis=-1)
    wins = having * (before + np.take_along_axis(below, last, axis=-1)) / 2
    pairs = having.sum(axis=-1) * without.sum(axis=-1)
    return np.asarray(wins.sum(axis=(-1, -2)) / np.maximum(pairs.sum(axis=-1), 1e-12))


def _share_right(scores: FloatArray, having: FloatArray, count: FloatArray) -> FloatArray:
    """(worlds,) mean share of members for whom the likelier answer is true."""
    right = np.where(scores > 0.5, having, count - having).sum(axis=-1)
    return np.asarray((right / (0 * having + count).sum(axis=-1)).mean(axis=-1))


def _finding_with_interval(release: str, what: str, attack: _AttackedMeasure) -> Finding:
    """A finding whose interval comes from worlds in which rows tell nothing, and from resampled rows."""
    figure, null, guess = float(attack.figures[0]), attack.figures[1:], attack.guess
    outer = (DRAWS + 1) * 25 // 1000
    low, high = np.sort(null)[[outer - 1, DRAWS - outer]].tolist()
    ends = np.sort(attack.again)[[outer - 1, DRAWS - outer]].tolist()
    low, high = min(low, guess), max(high, guess)
    interval = max(min(figure - (high - guess), ends[0]), 0.0), min(max(figure + (guess - low), ends[1]), 1.0)
    seen = high - guess + DETECTED * float(np.hypot(null.std(), attack.again.std()))
    return Finding("inference", release, what, attack.measure, figure, interval, guess, attack.tests, seen)
