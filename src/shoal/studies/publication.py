"""What leaves of the homes at every origin: forecasts without protection, and releases of them of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shoal.designs.calibration import calibrate
from shoal.designs.design import design
from shoal.laws.classes import GaussianClasses
from shoal.laws.crowds import means
from shoal.laws.graph import NeighborGraph
from shoal.laws.membership import formed
from shoal.mechanism.codebook import codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.validation import FloatArray

#: Least power told apart from none in a released curve, kW.
LEAST = 1e-3


@dataclass(frozen=True)
class Release:
    """What left at all origins: rows (homes, k) of each, the crowd of every home, and what bounds naming inside it.

    ``likelihoods`` (homes, rows) of each origin are the logarithms of how likely a row is of a home of its crowd, up to
    what all homes of the crowd share: what somebody who knows everything else would go by.
    """

    name: str
    rows: tuple[FloatArray, ...]
    crowds: NDArray[np.int64] | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    rmse: float = 0.0
    likelihoods: tuple[FloatArray, ...] = ()

    def at(self, origins: Sequence[int]) -> Release:
        """What left at some of the origins."""
        rows, likelihoods = (tuple(one[o] for o in origins) if one else () for one in (self.rows, self.likelihoods))
        return replace(self, rows=rows, likelihoods=likelihoods)


@dataclass(frozen=True)
class Ways:
    """Everything that might leave of the same homes, whose crowds are for life, as a run forms and uses them."""

    names: Sequence[str]
    power: Sequence[FloatArray]  #: (homes, k) kW at every origin
    likeness: FloatArray  #: (homes, d) what crowds are formed by, at the first origin
    epsilon: float
    delta: float
    book_epsilon: float
    seed: int

    def all(self, crowd: int) -> list[Release]:
        """Forecasts without protection, and releases of them of every kind."""
        plain = Release("unprotected forecasts", tuple(shown(one) for one in self.power))
        return [plain, *self.noisy(crowd), self.means(crowd), self.books(crowd)]

    def crowds(self, crowd: int) -> NDArray[np.int64]:
        """(homes,) the crowd of each home, for all origins."""
        return formed(self.likeness, crowd, beside=self.power[0])

    def means(self, crowd: int) -> Release:
        """The default of a run: the mean of each crowd. All its rows are the same, so that nobody beats a guess."""
        crowds = self.crowds(crowd)
        rows = [means(answers, crowds)[crowds] for answers in self.power]
        nothing = tuple(np.zeros((len(crowds), len(crowds))) for _ in rows)
        return Release("crowds", tuple(shown(one) for one in rows), crowds, 0.0, 0.0, self._rmse(rows), nothing)

    def noisy(self, crowd: int) -> list[Release]:
        """White noise at (ε, δ), and the paper's method at the same largest error."""
        crowds = self.crowds(crowd)
        graph = NeighborGraph.within_groups(self.names, crowds.tolist())
        drawn: dict[str, list[tuple[FloatArray, FloatArray, float]]] = {"white noise": [], "the paper's method": []}
        for number, answers in enumerate(self.power):
            classes = GaussianClasses.deterministic(answers, labels=list(self.names))
            white = calibrate(classes, graph, method="white", epsilon=self.epsilon, delta=self.delta, scope="table")
            paper = design(classes, graph, "paper", epsilon=self.epsilon, rho=float(white.rho.max()), scope="table")
            deltas = self.delta, paper.certificate.delta_upper
            for way, mechanism, delta in zip(drawn.values(), (white, paper), deltas, strict=True):
                rows = noisy(mechanism, answers, self.seed + number)
                way.append((rows, gaussian(mechanism, rows, crowds), delta))
        return [
            Release(name, rows, crowds, self.epsilon, max(deltas), self._rmse(rows), likelihoods)
            for name, (rows, likelihoods, deltas) in ((n, zip(*way, strict=True)) for n, way in drawn.items())
        ]

    def books(self, crowd: int) -> Release:
        """A codebook at its ε, δ = 0."""
        crowds, draw = self.crowds(crowd), np.random.default_rng(self.seed)
        graph = NeighborGraph.within_groups(self.names, crowds.tolist())
        rows, likelihoods = [], []
        for answers in self.power:
            book = codebook(answers, graph, epsilon=self.book_epsilon, labels=self.names, scope="table")
            odds = [book.probabilities(name) for name in self.names]
            drawn = np.array([draw.choice(len(one), p=one / one.sum()) for one in odds])
            rows.append(np.stack([book.curves(name)[y] for name, y in zip(self.names, drawn, strict=True)]))
            likelihood = np.zeros((len(crowds), len(crowds)))
            for members in (np.flatnonzero(crowds == one) for one in np.unique(crowds)):
                likelihood[np.ix_(members, members)] = np.log([odds[i][drawn[members]] for i in members])
            likelihoods.append(likelihood)
        name = f"codebooks, ε = {self.book_epsilon:g}"
        curves = tuple(shown(one) for one in rows)
        return Release(name, curves, crowds, self.book_epsilon, 0.0, self._rmse(rows), tuple(likelihoods))

    def _rmse(self, rows: Sequence[FloatArray]) -> float:
        off = np.concatenate([one - answers for one, answers in zip(rows, self.power, strict=True)])
        return float(np.sqrt((off**2).mean()))


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
