"""Mixtures of Gaussian laws, one per label, and a δ that holds for them.

With P = Σ_i w_i p_i and Q = Σ_j v_j q_j, let a_ij ≥ 0 share out the first weights, Σ_j a_ij = w_i, and b_ij ≥ 0 at most
the second, Σ_i b_ij ≤ v_j. The hockey-stick divergence of sums is at most the sum of the terms' own,

    H_ε(P ‖ Q) ≤ Σ_ij a_ij H_{ε + ln(b_ij / a_ij)}(p_i ‖ q_j),

where a part that is paired with nothing costs its weight. With b_ij = r a_ij for r on a grid this is a linear program
over exact Gaussian edges; r = 1 alone is the best coupling of the components (docs/theory.md, section 14.3).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize, sparse

from shoal import validation
from shoal.accounting.curve import edge_brackets, exp_up
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.estimates import labeled
from shoal.laws.graph import NeighborGraph
from shoal.laws.supports import RankWarning
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.output import moved_covs
from shoal.noise.grid import edge_loss
from shoal.numerics.matrices import EPS
from shoal.rounding import upper
from shoal.validation import FloatArray, IndexArray

#: ln r: how much more of a component of Q than of P a pair may take.
SHIFTS = (-3.0, -2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0)
#: Rows per entry that a component needs before a label may have another.
ROWS = 10
#: Added to the variances of components, in units of each entry's own: as wide as a component is at least.
NARROWEST = 1e-3
#: Covers the rounding of the few operations between a bound and what it is made of.
UP = 1 + 1e-12


@dataclass(frozen=True)
class MixtureBound:
    """Result of :meth:`GaussianMixtureClasses.delta`: an upper end of δ over all edges and directions."""

    epsilon: float
    delta_upper: float
    scope: str
    worst_edge: tuple[str, str]

    def __str__(self) -> str:
        a, b = self.worst_edge
        return f"δ ≤ {upper(self.delta_upper)} at ε = {self.epsilon:g} ({self.scope}), worst for {a} against {b}"


@dataclass(frozen=True, eq=False)
class GaussianMixtureClasses:
    """A family of mixtures, one per label. Made by :meth:`fit`, or from weights and components.

    ``components`` are the laws of all components, ``owner`` (m,) says whose each is, ``weights`` (m,) sum to 1 for
    every label. ``tv`` (n,) is what finite precision adds to the law of each label's answers.
    """

    labels: tuple[str, ...]
    weights: FloatArray
    components: GaussianClasses
    owner: IndexArray
    tv: FloatArray | None = None

    def __post_init__(self) -> None:
        totals = np.bincount(self.owner, self.weights, len(self.labels))
        if not ((self.weights >= 0).all() and (np.abs(totals - 1) <= 1e-9).all()):
            raise InputError("weights must be numbers, none of them negative, and must sum to 1 for every label")

    @classmethod
    def fit(cls, samples: Any, labels: Any, *, n_components: int = 3, seed: int = 0) -> GaussianMixtureClasses:
        """Mixtures from samples, by expectation and maximization; the number of components by BIC.

        Args:
            samples: (m, k) array of numbers, one row per observed answer.
            labels: m labels, one per row.
            n_components: at most so many per label; a label has fewer where its rows do not support them.
            seed: seed of the starts.

        Returns:
            The family. Estimated mixtures are not the true laws; no δ below about 3/n follows from n rows alone.

        >>> import numpy as np
        >>> import shoal
        >>> rng = np.random.default_rng(0)
        >>> labels = np.repeat(["a", "b"], 300)
        >>> rows = rng.normal(size=(600, 1)) + 8.0 * rng.integers(0, 2, size=(600, 1))
        >>> mixtures = shoal.GaussianMixtureClasses.fit(rows, labels)
        >>> np.bincount(mixtures.owner).tolist()
        [2, 2]
        """
        from sklearn.mixture import GaussianMixture

        rows, names = labeled(samples, labels)
        most = validation.count(n_components=n_components)
        seed = validation.count(seed=seed, at_least=0)
        known = tuple(np.unique(names).tolist())
        if len(known) < 2:
            raise InputError("labels must name at least two labels: with one there is nothing to hide it among")
        scale = rows.std(axis=0)
        if not (scale > 0).all():
            raise InputError("samples: a column does not vary; leave it out")
        k = rows.shape[1]
        if min(int((names == name).sum()) for name in known) < 2 * (k + 1):
            raise InputError(f"samples must hold at least {2 * (k + 1)} rows of every label for {k} columns")
        weights, means, covs, owner = [], [], [], []
        for i, name in enumerate(known):
            own = rows[names == name] / scale
            sizes = range(1, max(min(most, len(own) // (ROWS * k)), 1) + 1)
            tried = [GaussianMixture(size, reg_covar=NARROWEST, n_init=2, random_state=seed).fit(own) for size in sizes]
            best = min(tried, key=lambda model: float(model.bic(own)))
            weights += list(best.weights_ / best.weights_.sum())
            means += list(best.means_ * scale)
            covs += list(best.covariances_ * np.outer(scale, scale))
            owner += [i] * best.n_components
        covs = [0.5 * (cov + cov.T) for cov in covs]
        return cls(known, np.array(weights), GaussianClasses(means, covs), np.array(owner, dtype=np.intp))

    @property
    def gaussian(self) -> GaussianClasses:
        """The Gaussian laws with the mixtures' means and covariances: what a mechanism is designed for."""
        means, covs = [], []
        for i in range(len(self.labels)):
            chosen = np.flatnonzero(self.owner == i)
            w, mu = self.weights[chosen], self.components.means[chosen]
            mean = w @ mu
            spread = mu - mean
            means.append(mean)
            covs.append(np.einsum("c,cij->ij", w, self.components.covs[chosen]) + (spread * w[:, None]).T @ spread)
        return GaussianClasses(means, [0.5 * (cov + cov.T) for cov in covs], self.labels)

    def through(self, mechanism: Mechanism) -> GaussianMixtureClasses:
        """The laws of what a mechanism releases, if these are the laws of the answers.

        Returns:
            The family of released laws, with bounds on their rounding, and with what finite precision adds.

        >>> import numpy as np
        >>> import shoal
        >>> parts = shoal.GaussianClasses([[-1.0], [1.0], [0.0]], [[1.0]])
        >>> mixtures = shoal.GaussianMixtureClasses(("a", "b"), np.array([0.5, 0.5, 1.0]), parts, np.array([0, 0, 1]))
        >>> graph = shoal.NeighborGraph.complete(mixtures.labels)
        >>> mechanism = shoal.design(mixtures.gaussian, graph, "white", epsilon=1.0, rho=8.0)
        >>> print(mixtures.through(mechanism).components.covs[:, 0, 0].round(6))
        [9. 9. 9.]
        """
        if mechanism.classes.labels != self.labels:
            raise InputError("mechanism must have the labels of the mixtures in the same order")
        if mechanism.times > 1:
            raise InputError("mechanism is made for several answers about each label; mixtures are accounted for one")
        k, owner = self.components.n_dims, self.owner
        output = mechanism.output
        gain = None if mechanism.gain is None else np.broadcast_to(mechanism.gain, (len(self.labels), k, k))[owner]
        noise = np.broadcast_to(mechanism.noise_cov, (len(self.labels), k, k))[owner]
        linear = np.broadcast_to(np.eye(k), noise.shape) if gain is None else np.eye(k) + gain
        moved = self.components.means - mechanism.classes.means[owner]
        means = output.means[owner] + np.einsum("nij,nj->ni", linear, moved)
        size = np.abs(output.means[owner]) + np.einsum(
            "nij,nj->ni", np.abs(linear), np.abs(moved) + np.abs(self.components.means)
        )
        mean_error = (8 * k + 16) * EPS * size
        covs, cov_error = moved_covs(self.components.covs, gain, noise)
        if output.errors is not None:
            mean_error = mean_error + output.errors[1][owner]
            cov_error = cov_error + np.broadcast_to(output.errors[0], (len(self.labels), k, k))[owner]
        laws = GaussianClasses(means, covs).doubted(cov_error, mean_error)
        return replace(self, components=laws, tv=mechanism.precision_tv)

    def delta(self, graph: NeighborGraph, epsilon: float, *, scope: str = "answer") -> MixtureBound:
        """An upper end of the worst edge's hockey-stick δ at ε.

        Args:
            graph: which labels must stay indistinguishable.
            epsilon: one number, at least 0.
            scope: ``"answer"`` or ``"table"``, as in :func:`shoal.privacy_curve`.

        Returns:
            The bound. It is exact where every label has one component, and never below the true δ.

        >>> import numpy as np
        >>> import shoal
        >>> parts = shoal.GaussianClasses([[-1.0], [1.0], [0.0]], [[4.0]])
        >>> mixtures = shoal.GaussianMixtureClasses(("a", "b"), np.array([0.5, 0.5, 1.0]), parts, np.array([0, 0, 1]))
        >>> bound = mixtures.delta(shoal.NeighborGraph.complete(mixtures.labels), 0.1)
        >>> print(f"{bound.delta_upper:.4f}")
        0.1593
        """
        epsilon = validation.non_negative(epsilon=epsilon)
        validation.choice(("answer", "table"), scope=scope)
        if graph.labels != self.labels:
            raise InputError("graph must have the labels of the mixtures in the same order")
        if graph.n_edges == 0:
            raise InputError("graph has no edges: there is nobody to be told apart from")
        worst, edge = -1.0, (0, 0)
        for a, b in graph.edges.tolist():
            for source, target in ((a, b),) if scope == "table" else ((a, b), (b, a)):
                bound = self._bound(source, target, epsilon, scope)
                if bound > worst:
                    worst, edge = bound, (source, target)
        if self.tv is not None:
            pairs = np.asarray(graph.edges, dtype=np.intp)
            worst += edge_loss(self.tv, pairs, np.full(len(pairs), epsilon), table=scope == "table")
        return MixtureBound(epsilon, min(worst * UP, 1.0), scope, (self.labels[edge[0]], self.labels[edge[1]]))

    def _bound(self, a: int, b: int, epsilon: float, scope: str) -> float:
        one, two = np.flatnonzero(self.owner == a), np.flatnonzero(self.owner == b)
        p: list[tuple[Any, ...]]
        q: list[tuple[Any, ...]]
        if scope == "answer":
            p, q = [(i,) for i in one], [(j,) for j in two]
            w, v = self.weights[one], self.weights[two]
        else:
            p, q = [(i, j) for i in one for j in two], [(j, i) for j in two for i in one]
            w = np.outer(self.weights[one], self.weights[two]).ravel()
            v = np.outer(self.weights[two], self.weights[one]).ravel()
        return _shared_out(w, v, self._divergences(p, q, epsilon))

    def _divergences(self, p: Sequence[tuple[Any, ...]], q: Sequence[tuple[Any, ...]], epsilon: float) -> FloatArray:
        """(len(SHIFTS), len(p), len(q)) upper ends of H_{ε + shift}(p_i ‖ q_j); several places are a product of laws.

        Below zero, H_{−x}(P ‖ Q) = 1 − e^{−x} + e^{−x} H_x(Q ‖ P).
        """
        pairs = [(i, j) for i in range(len(p)) for j in range(len(q))]
        names = [str(n) for n in range(2 * len(pairs))]
        graph = NeighborGraph.from_edges(names, [(names[2 * n], names[2 * n + 1]) for n in range(len(pairs))])
        families = []
        for row in range(len(p[0])):
            chosen = np.array([place[row] for i, j in pairs for place in (p[i], q[j])], dtype=np.intp)
            laws = GaussianClasses(self.components.means[chosen], self.components.covs[chosen], names)
            if self.components.errors is not None:
                cov_error, mean_error = self.components.errors
                cov_error = cov_error if len(cov_error) == 1 else cov_error[chosen]
                laws = laws.doubted(cov_error, mean_error[chosen])
            families.append(laws)
        result = np.ones((len(SHIFTS), len(p), len(q)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)
            for place, shift in enumerate(SHIFTS):
                level = epsilon + shift
                # Towards zero: the smaller |ε| the larger δ.
                upper = exp_up(edge_brackets(families, graph, abs(level) * (1 - 4 * EPS))[..., 2])
                if level >= 0:
                    ends = upper[:, 0]
                else:
                    ends = -math.expm1(level) + math.exp(level) * upper[:, 1]
                result[place] = np.minimum(ends * UP, 1.0).reshape(len(p), len(q))
        return result


def _shared_out(w: FloatArray, v: FloatArray, costs: FloatArray) -> float:
    """The least Σ a_rij costs_rij + what is left of w, for Σ_rj a_rij ≤ w_i and Σ_ri e^{SHIFTS_r} a_rij ≤ v_j.

    The program's answer is made feasible before its cost is computed, so that any solver's error is on the safe side.
    """
    r, n, m = costs.shape
    places = np.arange(r * n * m).reshape(r, n, m)
    takes = np.exp(np.array(SHIFTS))
    first = sparse.csr_matrix(
        (np.ones(places.size), (np.broadcast_to(np.arange(n)[None, :, None], places.shape).ravel(), places.ravel()))
    )
    used = np.broadcast_to(takes[:, None, None], places.shape)
    second = sparse.csr_matrix(
        (used.ravel(), (np.broadcast_to(np.arange(m)[None, None, :], places.shape).ravel(), places.ravel()))
    )
    optimum = optimize.linprog(
        costs.ravel() - 1.0, A_ub=sparse.vstack([first, second]), b_ub=np.concatenate([w, v]), bounds=(0, None)
    )
    if optimum.x is None:
        return 1.0
    a = np.maximum(np.asarray(optimum.x), 0.0).reshape(r, n, m)
    a *= np.minimum(v / np.maximum((a * used).sum(axis=(0, 1)) * UP, 1e-300), 1.0)[None, None, :]
    a *= np.minimum(w / np.maximum(a.sum(axis=(0, 2)) * UP, 1e-300), 1.0)[None, :, None]
    left = np.maximum(w - a.sum(axis=(0, 2)), 0.0).sum() + 4 * n * m * r * EPS
    return float(min(((a * costs).sum() + left) * UP, 1.0))
