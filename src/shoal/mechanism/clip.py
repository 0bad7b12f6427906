"""Answers confined to ellipsoids, and the δ that then holds whatever their law is.

A mechanism turns an answer q about label X into N(m_X(q), N_X), m_X(q) = c_X + (I + gain)(q − μ_X). Whatever the law of
q on an ellipsoid E_X, what is released is a mixture of these, and the hockey-stick divergence H_ε is jointly convex:

    δ(X → X') ≤ sup over q in E_X, q' in E_X' of H_ε(N(m_X(q), N_X) ‖ N(m_X'(q'), N_X')).

Where N_X = N_X' that grows with the distance of the two means in units of the noise, which is bounded over the two
ellipsoids; where not, the change of the covariance is split off (docs/theory.md, section 14.2).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from shoal import validation
from shoal.accounting.deterministic import gaussian_delta
from shoal.accounting.releases import SCOPES, Releases
from shoal.errors import CertificationError, InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.supports import RankWarning
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.sequence import gaussian_deltas
from shoal.noise.grid import edge_loss
from shoal.numerics.matrices import EPS, correlation, square_root
from shoal.rounding import upper
from shoal.validation import BoolArray, FloatArray, IndexArray

#: Share of a Gaussian law that its ellipsoid holds, by default.
INSIDE = 0.99
#: Condition of a noise correlation beyond which distances in its units are not bounded.
CONDITION = 1e10
#: Shares of ε that the change of the covariance is given.
SPLITS = (0.0, 0.05, 0.125, 0.25, 0.5, 0.75, 1.0)
#: Covers the rounding of the few operations between a bound and what it is made of.
UP = 1 + 1e-8


@dataclass(frozen=True, eq=False)
class Clip:
    """One ellipsoid per label, {center + root u : ‖u‖ ≤ 1}; ``outside`` is the share of each law beyond it.

    Made by :meth:`of`, or from ellipsoids that are known otherwise: ``centers`` (n, k), ``roots`` (n, k, k).
    """

    labels: tuple[str, ...]
    centers: FloatArray
    roots: FloatArray
    outside: FloatArray | None = None

    @classmethod
    def of(cls, classes: GaussianClasses, radius: float | None = None) -> Clip:
        """Ellipsoids {q : (q − μ_X)ᵀ Σ_X⁻¹ (q − μ_X) ≤ radius²}; by default they hold 99 % of each law.

        Returns:
            The clip, whose ellipsoids depend on the laws alone and never on the answers that are clipped.

        >>> import shoal
        >>> clip = shoal.Clip.of(shoal.GaussianClasses([[0.0], [1.0]], [[4.0]]), radius=3.0)
        >>> clip.roots[:, 0, 0].tolist(), round(float(clip.outside[0]), 4)
        ([6.0, 6.0], 0.0027)
        """
        n, k = classes.means.shape
        if radius is None:
            radius = math.sqrt(float(scipy.stats.chi2.ppf(INSIDE, k)))
        radius = validation.positive(radius=radius)
        # Of the correlations: the root of a graded covariance would be wrong in its small entries.
        std = np.sqrt(classes.stored_variances)[:, :, None]
        roots = np.broadcast_to(radius * std * square_root(correlation(classes.stored_covs)), (n, k, k))
        return cls(classes.labels, np.array(classes.means), np.array(roots), np.full(n, outside_share(radius, k)))

    def apply(self, answers: Any, label: Any) -> FloatArray:
        """Answers (k,) or (m, k) about one label, or one label for each row, moved into their ellipsoids.

        An answer outside is moved straight towards the center; one inside stays as it is.

        Returns:
            What goes into the mechanism instead of the answers, in their shape.

        >>> import shoal
        >>> clip = shoal.Clip.of(shoal.GaussianClasses([[0.0], [1.0]], [[4.0]], labels=["a", "b"]), radius=3.0)
        >>> clip.apply([[1.0], [9.0]], "a").round(9).tolist()
        [[1.0], [6.0]]
        """
        q = validation.array(ndim=(1, 2), answers=answers)
        rows = np.atleast_2d(q)
        if rows.shape[1] != self.centers.shape[1]:
            raise InputError(f"answers must have {self.centers.shape[1]} entries")
        single = isinstance(label, str) or np.ndim(label) == 0
        names = np.full(len(rows), str(label)) if single else np.asarray(label).astype(str)
        if len(names) != len(rows):
            raise InputError("label must be one label, or one for each row of answers")
        places = {name: i for i, name in enumerate(self.labels)}
        if not set(names.tolist()) <= set(places):
            raise InputError("label is not one of the labels that are clipped")
        result = rows.copy()
        for name in np.unique(names):
            i, chosen = places[str(name)], names == name
            result[chosen] = _inside(rows[chosen], self.centers[i], self.roots[i])
        return result.reshape(q.shape)


def outside_share(radius: float, k: int) -> float:
    """Share of a Gaussian law of k entries that lies beyond so many of its deviations, at most."""
    return min(float(scipy.stats.chi2.sf((radius / UP) ** 2, k)) * UP, 1.0)


def moved_delta(outside: float, epsilon: float, times: int, scope: str) -> float:
    """What clipping adds to δ of so many answers about each label at most, if it moves this share of each law."""
    tv = np.full(2, times * outside * UP)
    return edge_loss(tv, np.array([[0, 1]]), np.array([epsilon]), table=scope == "table")


def _inside(rows: FloatArray, center: FloatArray, root: FloatArray) -> FloatArray:
    """Rows moved towards the center of {center + root u} until ‖u‖ ≤ 1, rounding included."""
    scale = np.linalg.norm(root, axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    shape = root / scale[:, None]
    units = ((rows - center) / scale) @ np.linalg.pinv(shape).T
    spread = np.linalg.svd(shape, compute_uv=False)
    rank = int((spread > len(scale) * EPS * spread[0]).sum())
    unsure = 64 * len(scale) * EPS * (spread[0] / spread[rank - 1] if rank else 1.0)
    size = np.linalg.norm(units, axis=1, keepdims=True) * (1 + unsure)
    moved = center + units @ root.T / np.maximum(size, 1.0)
    return np.where(size <= 1.0, rows, moved) if rank == len(scale) else moved


@dataclass(frozen=True)
class AssumptionFree:
    """Result of :func:`assumption_free`: δ at ε for any laws inside the ellipsoids, beside the one for Gaussian laws.

    ``modelled`` is what the class laws promise for clipped answers, what clipping moves included; None where the
    ellipsoids do not say how much lies beyond them.
    """

    epsilon: float
    delta_upper: float
    scope: str
    worst_edge: tuple[str, str]
    modelled: float | None

    def __str__(self) -> str:
        beside = "" if self.modelled is None else f"; δ ≤ {upper(self.modelled)} if the class laws are true"
        return f"δ ≤ {upper(self.delta_upper)} at ε = {self.epsilon:g} whatever the law of clipped answers{beside}"


def assumption_free(
    mechanism: Mechanism, clip: Clip, epsilon: float | None = None, *, scope: str | None = None
) -> AssumptionFree:
    """δ of clipped answers through a mechanism, for **any** law of the answers inside the ellipsoids.

    Args:
        mechanism: what is done to the answers, after ``clip.apply``.
        clip: the ellipsoids, of the same labels.
        epsilon: where δ is asked for; by default the design's (the smallest, if edges differ).
        scope: ``"answer"`` or ``"table"``, by default the design's.

    Returns:
        An upper bound for as many answers as the mechanism is made for, finite precision included; 1 where the noise
        leaves a direction free. It is attained by point masses where all labels have the same noise and the farthest
        points are ends of both ellipsoids.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [0.5]], [[0.01]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=4.0)
    >>> bound = assumption_free(mechanism, shoal.Clip.of(classes, radius=4.0))
    >>> bool(mechanism.certificate.delta_upper < bound.delta_upper < 0.06)
    True
    """
    if clip.labels != mechanism.classes.labels:
        raise InputError("clip must have the mechanism's labels in the same order")
    scope = mechanism.scope if scope is None else validation.choice(SCOPES, scope=scope)
    if epsilon is None:
        epsilon = float(mechanism.epsilon.min(initial=math.inf))
    epsilon = validation.non_negative(epsilon=epsilon)
    pairs, times = mechanism.pairs, mechanism.times
    if len(pairs) == 0:
        raise InputError("graph has no edges: there is nobody to be told apart from")
    gaps, equal = _gaps(mechanism, clip)
    # Of independent answers about a label, each may be of another point: the squares add.
    gaps = math.sqrt(times) * UP * gaps
    widths = np.ones((len(SPLITS), len(pairs), 2))
    usable = np.isfinite(gaps).all(axis=1) & ~equal
    if usable.any():
        widths[:, usable] = _width_deltas(mechanism, pairs[usable], epsilon, scope)
    deltas = np.array(
        [
            [_split(epsilon, gaps[e, [d, 1 - d]], widths[:, e, d], scope, bool(equal[e])) for d in (0, 1)]
            for e in range(len(pairs))
        ]
    )
    e, d = np.unravel_index(int(np.argmax(deltas)), deltas.shape)
    source, target = pairs[e, d], pairs[e, 1 - d]
    loss = edge_loss(times * mechanism.precision_tv * UP, pairs, np.full(len(pairs), epsilon), table=scope == "table")
    modelled = None
    if clip.outside is not None:
        left = max(float(clip.outside.max()) - mechanism.outside, 0.0)  # of which the mechanism knows is in its curve
        moved = moved_delta(left, epsilon, times, scope)
        modelled = min((float(mechanism.released_curve(epsilon, scope=scope).delta_upper) + moved) * UP, 1.0)
    total = min((float(deltas[e, d]) + loss) * UP, 1.0)
    return AssumptionFree(epsilon, total, scope, (clip.labels[source], clip.labels[target]), modelled)


def _split(epsilon: float, gaps: FloatArray, widths: FloatArray, scope: str, equal: bool) -> float:
    """The least of H_a(N ‖ N') + e^a H_{ε − a}(shift by N') and H_a(shift by N) + e^a H_{ε − a}(N ‖ N').

    ``gaps`` are in units of the noise of the source and of the target, ``widths`` the δ of the change of covariance
    at each share of ε. In a table both rows are shifted, one in each unit.
    """
    if not np.isfinite(gaps).all():
        return 1.0
    source, target = gaps.tolist() if scope == "answer" else [math.hypot(*gaps) * UP] * 2
    if equal:
        return gaussian_delta(max(source, target), 1.0, epsilon)
    best = 1.0
    for width, share in zip(widths.tolist(), SPLITS, strict=True):
        used, left = share * epsilon, (1 - share) * epsilon * (1 - EPS)
        first = width + math.exp(used) * gaussian_delta(target, 1.0, left)
        second = gaussian_delta(source, 1.0, left) + math.exp(left) * width
        best = min(best, first * UP, second * UP)
    return best


def _gaps(mechanism: Mechanism, clip: Clip) -> tuple[FloatArray, BoolArray]:
    """(n_edges, 2) bounds on the distance of a point of one label's ellipsoid, moved by the mechanism, from one of the
    other's, in units of the noise of either label, infinite where that leaves a direction free; and (n_edges,) whether
    both labels have the same noise.
    """
    (n, k), output = mechanism.classes.means.shape, mechanism.output
    linear = np.broadcast_to(np.eye(k) if mechanism.gain is None else np.eye(k) + mechanism.gain, (n, k, k))
    moved = clip.centers - mechanism.classes.means
    centers = output.means + np.einsum("nij,nj->ni", linear, moved)
    size = np.abs(output.means) + np.einsum("nij,nj->ni", np.abs(linear), np.abs(clip.centers) + np.abs(moved))
    errors = (8 * k + 16) * EPS * (size + np.einsum("nij,njl->ni", np.abs(linear), np.abs(clip.roots)))
    if output.errors is not None:
        errors = errors + output.errors[1]
    roots = linear @ clip.roots * UP
    whitening = [_whitening(cov) for cov in mechanism.noise_cov]
    gaps = np.full((len(mechanism.pairs), 2), math.inf)
    for e, (a, b) in enumerate(mechanism.pairs.tolist()):
        for side, unit in enumerate((a, b)):
            whiten, margin = whitening[min(unit, len(whitening) - 1)]
            if whiten is not None:
                error = float(np.linalg.norm(np.abs(whiten) @ (errors[a] + errors[b])))
                far = _farthest(whiten @ (centers[b] - centers[a]), whiten @ roots[a], whiten @ roots[b])
                gaps[e, side] = (far + error) * margin * UP
    kinds = np.unique(mechanism.noise_cov.reshape(-1, k * k), axis=0, return_inverse=True)[1].ravel()
    first, second = np.broadcast_to(kinds, (n,))[mechanism.pairs.T]
    return gaps, first == second


def _width_deltas(mechanism: Mechanism, pairs: IndexArray, epsilon: float, scope: str) -> FloatArray:
    """(len(SPLITS), n_edges, 2) upper ends of δ between N(0, N_X) and N(0, N_X') at each share of ε."""
    shape = mechanism.classes.means.shape
    laws = GaussianClasses(np.zeros(shape), np.broadcast_to(mechanism.noise_cov, (*shape, shape[1])))
    result = np.ones((len(SPLITS), len(pairs), 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        source = Releases.of(laws, scope, mechanism.times)
        for place, share in enumerate(SPLITS):
            try:
                result[place] = gaussian_deltas(source, pairs, share * epsilon * (1 - EPS), source.directions)
            except CertificationError:
                continue
    return result


def _whitening(cov: FloatArray) -> tuple[FloatArray | None, float]:
    """L⁻¹ with L Lᵀ = cov and a factor for its rounding; None where cov is singular or close to it."""
    std = np.sqrt(np.maximum(np.diagonal(cov), 0.0))
    if not (std > 0).all():
        return None, math.inf
    shape = correlation(cov[None])[0]
    condition = float(np.linalg.cond(shape))
    if not condition < CONDITION:
        return None, math.inf
    return np.linalg.inv(np.linalg.cholesky(shape)) / std, 1 + 16 * len(std) * EPS * condition


def _farthest(gap: FloatArray, first: FloatArray, second: FloatArray) -> float:
    """Upper bound on ‖gap + first u + second v‖ over unit balls u, v.

    With A and B for the two, A u + B v lies in the ellipsoid with matrix S = (1 + 1/t) A Aᵀ + (1 + t) B Bᵀ for every
    t > 0, and for every λ beyond the largest eigenvalue of S, ‖gap + S^{1/2} u‖² ≤ λ + Σ gapᵢ² λ/(λ − sᵢ) in its
    eigenvectors: the Lagrangian at λ, exact at the best one. Beside it stands the sum of the norms.
    """
    sizes = [float(np.linalg.norm(part, 2)) for part in (first, second)]
    best = (float(np.linalg.norm(gap)) + sum(sizes)) * UP
    if not any(sizes):
        return best
    shares = [(1.0, 1.0)]
    if min(sizes) > 0:
        ratios = {sizes[0] / sizes[1], math.sqrt((first**2).sum() / (second**2).sum())}
        shares = [(1 + 1 / t, 1 + t) for t in ratios]
    for one, two in shares:
        values, vectors = np.linalg.eigh(one * first @ first.T + two * second @ second.T)
        values, parts = np.maximum(values, 0.0), (vectors.T @ gap) ** 2

        def bound(log: float, values: FloatArray = values, parts: FloatArray = parts) -> float:
            multiplier = float(values[-1]) * UP * (1 + math.exp(log))
            return multiplier + float((parts * multiplier / (multiplier - values)).sum())

        optimum = scipy.optimize.minimize_scalar(bound, bounds=(-12.0, 30.0), method="bounded", options={"xatol": 1e-6})
        best = min(best, math.sqrt(max(float(optimum.fun), 0.0)) * UP)
    return best
