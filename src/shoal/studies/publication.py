"""What leaves of the homes at every origin: forecasts without protection, and releases of them of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.designs.calibration import calibrate
from shoal.designs.design import design
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.codebook import codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.sources.meters.neighborhoods import crowd_graph
from shoal.validation import FloatArray

#: Least power told apart from none in a released curve, kW.
LEAST = 1e-3


@dataclass(frozen=True)
class Release:
    """What left at all origins: rows (homes, k) of each, where homes hide, and what is promised of it.

    ``likelihoods`` (homes, rows) of each origin are the logarithms of how likely a row is of a home of its group, up to
    what all homes of the group share: what somebody who knows everything else would go by.
    """

    name: str
    rows: tuple[FloatArray, ...]
    groups: tuple[NDArray[np.int64], ...] | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    rmse: float = 0.0
    likelihoods: tuple[FloatArray, ...] | None = None

    def at(self, origins: Sequence[int]) -> Release:
        """What left at some of the origins."""

        def some(values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
            return None if values is None else tuple(values[o] for o in origins)

        return replace(
            self,
            rows=tuple(self.rows[o] for o in origins),
            groups=some(self.groups),
            likelihoods=some(self.likelihoods),
        )


def releases(
    names: Sequence[str],
    power: Sequence[FloatArray],
    crowd: int,
    epsilon: float,
    delta: float,
    book_epsilon: float,
    seed: int,
    only: Sequence[str] = (),
) -> list[Release]:
    """Everything that might leave at every origin."""
    releases: dict[str, list[tuple[FloatArray, NDArray[np.int64], FloatArray]]] = {}
    promise: dict[str, tuple[float, float]] = {}
    draw = np.random.default_rng(seed)
    for number, answers in enumerate(power):
        graph = crowd_graph(answers, size=crowd, labels=list(names))
        groups = np.asarray(graph.components, dtype=np.int64)
        classes = GaussianClasses.deterministic(answers, labels=list(names))

        def put(name: str, rows: FloatArray, likelihood: FloatArray, e: float, d: float, groups: Any = groups) -> None:
            releases.setdefault(name, []).append((rows, groups, likelihood))
            promise[name] = (e, max(d, promise.get(name, (0.0, 0.0))[1]))

        if not only:
            white = calibrate(classes, graph, method="white", epsilon=epsilon, delta=delta, scope="table")
            rows = noisy(white, answers, seed + number)
            put("white noise", rows, gaussian(white, rows, groups), epsilon, delta)
            paper = design(classes, graph, "paper", epsilon=epsilon, rho=float(white.rho.max()), scope="table")
            rows = noisy(paper, answers, seed + number)
            likelihood = gaussian(paper, rows, groups)
            put("the paper's method", rows, likelihood, epsilon, paper.certificate.delta_upper)
        if not only or "crowds" in only:
            mean = calibrate(classes, graph, method="mean", epsilon=epsilon, delta=delta, scope="table")
            rows, same = mean.output.means, np.zeros((len(names), len(names)))
            alike = replace(mean, epsilon=np.zeros_like(mean.epsilon))  # the same laws, so that nothing is gained by ε
            put("crowds", rows, same, 0.0, alike.certificate.delta_upper)
        if not only or "codebooks" in only:
            book = codebook(answers, graph, epsilon=book_epsilon, scope="table")
            odds = [book.probabilities(name) for name in names]
            drawn = np.array([draw.choice(len(one), p=one / one.sum()) for one in odds])
            rows = np.stack([book.curves(name)[y] for name, y in zip(names, drawn, strict=True)])
            likelihood = np.zeros((len(names), len(names)))
            for group in np.unique(groups):
                members = np.flatnonzero(groups == group)
                likelihood[np.ix_(members, members)] = np.log([odds[i][drawn[members]] for i in members])
            put(f"codebooks, ε = {book_epsilon:g}", rows, likelihood, book_epsilon, 0.0)
    plain = [] if only else [Release("unprotected forecasts", tuple(shown(p) for p in power))]
    for name, made in releases.items():
        off = np.concatenate([rows - answers for (rows, _, _), answers in zip(made, power, strict=True)])
        all_rows, all_groups, likelihoods = zip(*made, strict=True)
        positive = name not in ("white noise", "the paper's method")
        curves = tuple(shown(rows) if positive else rows for rows in all_rows)
        plain.append(Release(name, curves, all_groups, *promise[name], float(np.sqrt((off**2).mean())), likelihoods))
    return plain


def shown(kw: FloatArray) -> FloatArray:
    """Curves as attackers compare them: differences are shares of power."""
    return np.asarray(np.log(np.maximum(kw, LEAST)))


def noisy(mechanism: Mechanism, answers: FloatArray, seed: int) -> FloatArray:
    """Answers with seeded noise, label by label."""
    draws = np.random.default_rng(seed).integers(0, 2**31, len(answers))
    rows = [
        np.asarray(mechanism.sample(answer, name, seed=int(number)))
        for answer, name, number in zip(answers, mechanism.classes.labels, draws, strict=True)
    ]
    return np.stack(rows)


def gaussian(mechanism: Mechanism, rows: FloatArray, groups: NDArray[np.int64]) -> FloatArray:
    """(homes, rows) log-likelihoods of noisy rows inside groups, 0 elsewhere."""
    laws = mechanism.output
    matrix = np.zeros((len(rows), len(rows)))
    for i, (mean, group) in enumerate(zip(laws.means, groups, strict=True)):
        members = np.flatnonzero(groups == group)
        root = np.linalg.cholesky(laws.covs[min(i, len(laws.covs) - 1)])
        off = np.linalg.solve(root, (rows[members] - mean).T)
        matrix[i, members] = -0.5 * (off**2).sum(axis=0) - np.log(np.diag(root)).sum()
    return matrix
