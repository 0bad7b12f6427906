"""Mixtures of Gaussian laws, one per label, and a δ that holds for them.

With P = Σ_i w_i p_i and Q = Σ_j v_j q_j, let a_ij ≥ 0 share out the first weights, Σ_j a_ij = w_i, and b_ij ≥ 0 at most
the second, Σ_i b_ij ≤ v_j. The hockey-stick divergence of sums is at most the sum of the terms' own,

    H_ε(P ‖ Q) ≤ Σ_ij a_ij H_{ε + ln(b_ij / a_ij)}(p_i ‖ q_j),

where a part that is paired with nothing costs its weight. With b_ij = r a_ij for r on a grid this is a linear program
over exact Gaussian edges; r = 1 alone is the best coupling of the components (docs/theory.md, section 14.2).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import scipy

from shoal import validation
from shoal.accounting.curve import PrivacyCurve
from shoal.accounting.releases import SCOPES, Releases
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.laws.supports import RankWarning
from shoal.mechanism.atoms import log_up, sum_up
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.sequence import gaussian_deltas
from shoal.noise.grid import edge_loss
from shoal.numerics.matrices import EPS
from shoal.validation import FloatArray, IndexArray

#: ln r: how much more of a component of Q than of P a pair may take.
SHIFTS = (-3.0, -2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0)
#: Covers the rounding of the few operations between a bound and what it is made of.
UP = 1 + 1e-12


@dataclass(frozen=True, eq=False)
class GaussianMixtureClasses:
    """A family of mixtures, one per label, from weights and components, such as scikit-learn's ``GaussianMixture`` has.

    ``components`` are the laws of all components, ``owner`` (m,) says whose each is, ``weights`` (m,) sum to 1 for
    every label, or nearly; ``tv`` (n,) is what finite precision adds. No δ below about 3/n follows from n rows alone.

    >>> import numpy as np
    >>> import shoal
    >>> parts = shoal.GaussianClasses([[-1.0], [1.0], [0.0]], [[4.0]])
    >>> mixtures = shoal.GaussianMixtureClasses(("a", "b"), np.array([0.5, 0.5, 1.0]), parts, np.array([0, 0, 1]))
    >>> graph = shoal.NeighborGraph.complete(mixtures.labels)
    >>> print(f"{mixtures.delta(graph, 0.1).delta_upper:.4f}")
    0.1593
    >>> mechanism = shoal.design(mixtures.gaussian, graph, "white", epsilon=1.0, rho=5.0)
    >>> print(mixtures.through(mechanism).components.covs[:, 0, 0].round(6))
    [9. 9. 9.]
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

    @property
    def gaussian(self) -> GaussianClasses:
        """The Gaussian laws with the mixtures' means and covariances: what a mechanism is designed for."""
        share = np.where(self.owner == np.arange(len(self.labels))[:, None], self.weights, 0.0)
        means = share @ self.components.means
        spread = self.components.means[None] - means[:, None]
        covs = np.einsum("nc,cij->nij", share, self.components.covs)
        covs += np.einsum("nc,nci,ncj->nij", share, spread, spread)
        return GaussianClasses(means, 0.5 * (covs + np.swapaxes(covs, 1, 2)), self.labels)

    def through(self, mechanism: Mechanism) -> GaussianMixtureClasses:
        """The laws of what a mechanism releases of such answers, rounding bounded, and finite precision in ``tv``."""
        if mechanism.classes.labels != self.labels:
            raise InputError("mechanism must have the labels of the mixtures in the same order")
        if mechanism.times > 1:
            raise InputError("mechanism is made for several answers about each label; mixtures are accounted for one")
        owner, k, centers = self.owner, mechanism.n_dims, self.components.means
        gain = np.zeros((len(owner), k, k)) if mechanism.gain is None else mechanism.gain[owner]
        away = centers - mechanism.classes.means[owner]
        own = replace(
            mechanism,
            classes=self.components,
            shift=mechanism.bias[owner] + np.einsum("nij,nj->ni", gain, away),
            gain=gain,
            noise_cov=np.broadcast_to(mechanism.noise_cov, (len(self.labels), k, k))[owner],
            mean_grid=None,
        )
        # The shift of a component is a rounded sum of these.
        size = np.einsum("nij,nj->ni", np.abs(np.eye(k) + gain), np.abs(away) + np.abs(centers))
        size += np.abs(mechanism.output.means[owner])
        laws = own.output.with_errors(np.zeros((1, k, k)), (8 * k + 16) * EPS * size)
        tv = mechanism.precision_tv.copy()
        np.maximum.at(tv, owner, own.precision_tv)
        return replace(self, components=laws, tv=tv if self.tv is None else (tv + self.tv) * UP)

    def delta(self, graph: NeighborGraph, epsilon: float, *, scope: str = "answer") -> PrivacyCurve:
        """An upper end of the worst edge's hockey-stick δ at one ε; ``scope`` as in :func:`shoal.privacy_curve`.

        It is exact where every label has one component and never below the true δ; nothing is said from below.
        """
        epsilon = validation.non_negative(epsilon=epsilon)
        validation.choice(SCOPES, scope=scope)
        if graph.labels != self.labels:
            raise InputError("graph must have the labels of the mixtures in the same order")
        if graph.n_edges == 0:
            raise InputError("graph has no edges: there is nobody to be told apart from")
        pairs = np.asarray(graph.edges, dtype=np.intp)
        directed = pairs if scope == "table" else np.concatenate([pairs, pairs[:, ::-1]])
        bounds = [self._bound(int(a), int(b), epsilon, scope) for a, b in directed]
        worst = int(np.argmax(bounds))
        # Normalizing weights moves less than twice what they miss a sum of 1 by.
        owned = [map(Fraction, self.weights[self.owner == i].tolist()) for i in range(len(self.labels))]
        missed = np.array([sum_up(2 * abs(sum(weights, Fraction(-1)))) for weights in owned])
        tv = (missed + (0.0 if self.tv is None else self.tv)) * UP
        loss = edge_loss(tv, pairs, np.full(len(pairs), epsilon), table=scope == "table")
        top = min((bounds[worst] + loss) * UP, 1.0)
        log, (a, b) = float(log_up(np.array(top))), directed[worst]
        return PrivacyCurve("dp", epsilon, top, log, 0.0, top, log, (self.labels[a], self.labels[b]), scope)

    def _bound(self, a: int, b: int, epsilon: float, scope: str) -> float:
        """The bound for one directed edge; in a table P and Q are products of both labels' laws, one for each row."""
        one, two = np.flatnonzero(self.owner == a), np.flatnonzero(self.owner == b)
        w, v = self.weights[one], self.weights[two]
        p, q = one[:, None], two[:, None]
        if scope == "table":
            p, q = (np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2) for x, y in ((one, two), (two, one)))
            w, v = np.outer(w, v).ravel(), np.outer(v, w).ravel()
        places = np.stack(np.broadcast_arrays(p[:, None], q[None, :]), axis=2)  # (P, Q, 2, rows)
        families = []
        for chosen in np.moveaxis(places, -1, 0).reshape(places.shape[-1], -1):
            laws = GaussianClasses(self.components.means[chosen], self.components.covs[chosen])
            if self.components.errors is not None:
                cov_error, mean_error = self.components.errors
                laws = laws.with_errors(cov_error if len(cov_error) == 1 else cov_error[chosen], mean_error[chosen])
            families.append(laws)
        pairs = np.arange(2 * len(p) * len(q)).reshape(-1, 2)
        costs = np.empty((len(SHIFTS), len(p), len(q)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)
            source = Releases.of(families)
            for place, level in enumerate(epsilon + shift for shift in SHIFTS):
                # Towards zero: the smaller |ε| the larger δ. Below, H_{−x}(P ‖ Q) = 1 − e^{−x} + e^{−x} H_x(Q ‖ P).
                ends = gaussian_deltas(source, pairs, abs(level) * (1 - 4 * EPS))
                upper = ends[:, 0] if level >= 0 else -math.expm1(level) + math.exp(level) * ends[:, 1]
                costs[place] = np.minimum(upper * UP, 1.0).reshape(len(p), len(q))
        return _shared_out(w, v, costs)


def _shared_out(w: FloatArray, v: FloatArray, costs: FloatArray) -> float:
    """The least Σ a_rij costs_rij + what is left of w, for Σ_rj a_rij ≤ w_i and Σ_ri e^{SHIFTS_r} a_rij ≤ v_j.

    The program's answer is made feasible before its cost is computed, so that any solver's error is on the safe side.
    """
    r, n, m = costs.shape
    takes = np.exp(np.array(SHIFTS))[:, None, None]
    first = np.tile(np.repeat(np.eye(n), m, axis=1), r)
    second = np.kron(takes.ravel(), np.tile(np.eye(m), n))
    optimum = scipy.optimize.linprog(costs.ravel() - 1.0, A_ub=np.vstack([first, second]), b_ub=np.concatenate([w, v]))
    if optimum.x is None:
        return 1.0
    a = np.maximum(np.asarray(optimum.x), 0.0).reshape(r, n, m)
    a *= np.minimum(v / np.maximum((a * takes).sum(axis=(0, 1)) * UP, 1e-300), 1.0)[None, None, :]
    a *= np.minimum(w / np.maximum(a.sum(axis=(0, 2)) * UP, 1e-300), 1.0)[None, :, None]
    left = np.maximum(w - a.sum(axis=(0, 2)), 0.0).sum() + 4 * n * m * r * EPS
    return float(min(((a * costs).sum() + left) * UP, 1.0))
