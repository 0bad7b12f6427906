"""Naming the label of a released answer, or of the rows of a whole table, among all that it might belong to.

Who holds one row names the likeliest label of the component. Of a whole table ``matching`` takes the likeliest
assignment of all rows at once, ``marginals`` names for each row the label with the largest posterior probability.
What is bounded is the mean over tables of the share of rows named right (docs/theory.md, section 18).

Released means are attacked by somebody who knows a curve of each label, takes the released row next to it, and names
one of its crowd at random.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.accounting.assignments import EXACT_ROWS, likeliest_assignments, match_probabilities
from shoal.accounting.risk import identification_risk, naming_bound
from shoal.audits.attacks import FEWEST, ResidualLaws
from shoal.audits.confidence import clopper_pearson_lower, clopper_pearson_upper, mean_lower_bound, mean_upper_bound
from shoal.audits.results import Naming
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.validation import FloatArray, IndexArray

#: Log-densities computed at most; with more labels fewer answers of each are looked at.
DENSITIES = 10_000_000
#: Log-likelihoods of rows under labels, times entries, that are computed at most for tables.
LIKELIHOODS = 48_000_000
#: Steps of the exact posterior at most.
STEPS = 200_000_000


def attack_single_answers(
    output: GaussianClasses,
    graph: NeighborGraph,
    scope: str,
    claim: ResidualLaws,
    released: list[FloatArray],
    own: list[FloatArray],
    error: float,
    seed: int,
) -> tuple[Naming, ...]:
    """Name the label of every answer by the Bayes attacker, told the component; ``scope`` is that of the promise.

    Hits are counted label by label with unequal probabilities; Clopper–Pearson bounds from their total still hold,
    since a sum of unequal Bernoulli variables is less spread than a binomial of the same mean (Hoeffding 1956).
    """
    n = output.n_classes
    m = min(min(len(y) for y in released), DENSITIES // n**2)
    if m < FEWEST:
        return ()
    component = graph.components_of(output.labels)
    rng = np.random.default_rng(seed)
    hits = 0
    for i, y in enumerate(released):
        mine, best, ties = own[i][:m], np.full(m, -np.inf), np.ones(m)
        near = 1e-9 * (1 + np.abs(mine))
        for j in np.flatnonzero((component == component[i]) & (np.arange(n) != i)):
            density = claim.log_density_of_answers(int(j), y[:m])
            best = np.maximum(best, density)
            ties += np.abs(density - mine) <= near
        # Among labels that are equally likely the attacker guesses.
        hits += int(((best <= mine + near) & (rng.random(m) * ties < 1.0)).sum())
    risk = identification_risk(output, graph, scope=scope, confidence=1 - error / 2, seed=seed)
    total = n * m
    low, high = (float(f(hits, total, error / 4)) for f in (clopper_pearson_lower, clopper_pearson_upper))
    return (Naming("one row", hits / total, low, high, risk.success, risk.success_upper, risk.prior_success, total),)


def attack_whole_tables(
    output: GaussianClasses,
    graph: NeighborGraph,
    scope: str,
    epsilon: float,
    delta: float,
    claim: ResidualLaws,
    released: list[FloatArray],
    error: float,
    seed: int,
) -> tuple[Naming, ...]:
    """Name rows by both attackers on tables made of the labels' first, second, third … answers, rows shuffled.

    Promised is what ``identification_risk`` gives for the claimed laws in ``scope``, or less where the certificate's
    (ε, δ) implies less. The work is bounded: groups are drawn at random where there are many, with the promise for
    those drawn, and where one alone is too large no table is attacked.
    """
    rng = np.random.default_rng(seed)
    room = LIKELIHOODS // (max(output.n_dims, 12) * FEWEST)
    groups = _draw_groups(graph.components_of(output.labels), room, rng)
    cells = sum(len(members) ** 2 for members in groups)
    tables = min(min(len(y) for y in released), LIKELIHOODS // (max(output.n_dims, 12) * cells))
    if tables < FEWEST:
        return ()
    chosen = np.sort(np.concatenate(groups))
    part = output.take(chosen)
    hidden = graph.restrict(part.labels)
    risk = identification_risk(part, hidden, scope=scope, confidence=1 - error / 2, seed=seed)
    promise = min(risk.success_upper, _certified_naming_bound(hidden, epsilon, delta))
    steps = sum(len(members) << len(members) for members in groups if len(members) <= EXACT_ROWS)
    fewer = min(tables, max(STEPS // max(steps, 1), FEWEST))
    shares = {"matching": np.zeros(tables), "marginals": np.zeros(fewer)}
    for members in groups:
        n = len(members)
        rows = np.concatenate([released[i][:tables] for i in members])
        densities = np.stack([claim.log_density_of_answers(int(i), rows) for i in members], axis=1).reshape(
            n, tables, n
        )
        order = rng.permuted(np.tile(np.arange(n), (tables, 1)), axis=1)  # whose row each one is
        scores = np.take_along_axis(densities.transpose(1, 0, 2), order[:, :, None], axis=1)
        matched = likeliest_assignments(scores)
        shares["matching"] += (matched == order).sum(axis=1) / len(chosen)
        named = match_probabilities(scores[:fewer], matched[:fewer]).argmax(axis=2)
        shares["marginals"] += (named == order[:fewer]).sum(axis=1) / len(chosen)
    namings = []
    for attack, values in shares.items():
        low, high = mean_lower_bound(values, error / 8), mean_upper_bound(values, error / 8)
        least, count = min(risk.success, promise), len(chosen) * len(values)
        namings.append(Naming(attack, float(values.mean()), low, high, least, promise, risk.prior_success, count))
    return tuple(namings)


def _draw_groups(component: IndexArray, room: int, rng: np.random.Generator) -> list[IndexArray]:
    """Return members of the groups to attack, in random order: all, or as many as have Σ n² within ``room``."""
    groups = [np.flatnonzero(component == number) for number in rng.permutation(int(component.max()) + 1)]
    used = np.cumsum([len(members) ** 2 for members in groups])
    return groups[: max(int(np.searchsorted(used, room, side="right")), 1)]


def _certified_naming_bound(graph: NeighborGraph, epsilon: float, delta: float) -> float:
    """Return the share of rows that (ε, δ) for every edge lets anyone name."""
    degrees = np.bincount(graph.edges.ravel(), minlength=graph.n_labels)
    named = 0.0
    for number in np.unique(graph.components):
        inside = degrees[graph.components == number]
        named += len(inside) * naming_bound(inside, epsilon, 0.5 * int(inside.sum()) * delta)
    return min(named / graph.n_labels * (1 + 1e-12), 1.0)


def attack_released_means(
    known: FloatArray,
    values: FloatArray,
    rows: FloatArray,
    crowd: NDArray[np.int64],
    homes: NDArray[np.int64],
    *,
    most: int = 2_000,
    seed: int = 0,
) -> tuple[int, float | None, float, float] | None:
    """Look for labels in released means by what an attacker knows of each; None where nothing can be looked for.

    ``known`` (n, k) is what the attacker knows of each label, NaN where nothing; ``values`` (n, k) the labels' own
    figures; ``rows`` (n, k) the row of each label's ``crowd`` (n,), of so many ``homes`` (n,). Of more than ``most``
    labels a sample is looked for. The result is (labels looked for, share found among unprotected rows, share named
    from the release, share of a guess).
    """
    targets = np.flatnonzero(np.isfinite(known).all(axis=1))
    if len(targets) > most:
        targets = np.sort(np.random.default_rng(seed).choice(targets, most, replace=False))
    if len(targets) < 2 or len(values) < 2:
        return None
    first = np.unique(crowd, return_index=True)[1]
    table, numbers = rows[first], crowd[first]
    own, hidden = 0.0, 0.0
    for i in targets:
        gaps = ((values - known[i]) ** 2).sum(axis=1)
        nearest = np.flatnonzero(gaps == gaps.min())
        own += float(i in nearest) / len(nearest)
        gaps = ((table - known[i]) ** 2).sum(axis=1)
        nearest = np.flatnonzero(gaps == gaps.min())
        hidden += float(crowd[i] in numbers[nearest]) / (len(nearest) * homes[i])
    guessing = float((1.0 / homes[targets]).mean())
    return len(targets), own / len(targets), hidden / len(targets), guessing
