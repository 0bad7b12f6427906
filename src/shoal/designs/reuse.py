"""Yesterday's design on today's class laws: kept where it still holds, made anew where it does not.

No tolerance on how far laws may move is assumed. Every group's certificate is computed again by the accounting, from
the parameters that would be used and the new laws, and so is the error; a group is kept only if both hold. Two
candidates are looked at, in this order:

- the parameters as they are, applied around the new means;
- the parameters aimed anew at the old *output* laws N(μ̃ + c, Σ̃): shift = μ̃ + c − μ, noise as before, and for methods
  that may map the answer the Gaussian optimal transport Σ^{−1/2}(Σ^{1/2} K Σ^{1/2})^{1/2} Σ^{−1/2} to what noise leaves
  of Σ̃, K = Σ̃ − noise_cov (Olkin & Pukelsheim 1982). Without a map the noise covariance becomes Σ̃ − Σ, its negative part
  cut off. c, one for the whole group, is how far its means moved on average: moving all laws together changes no pair's
  privacy. That is then what it was, up to rounding or the cut, and only the error moves.

Errors are held against (1 + tolerance) times what the design spent; a mechanism made here keeps those limits as its
budget, so that a tolerance taken day after day does not add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoal import validation
from shoal.accounting.curve import round_up
from shoal.designs.calibration import attained, calibrate
from shoal.designs.parts import joined
from shoal.designs.problem import Problem
from shoal.designs.stored import met
from shoal.errors import CertificationError, InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Mechanism
from shoal.numerics.eigenpairs import eigh
from shoal.numerics.matrices import inverse_root, ranks, square_root
from shoal.validation import FloatArray

#: What may be aimed anew, and of that what may shift means and map answers.
AIMED = ("covariance", "additive", "transport", "center")
SHIFTED = ("additive", "transport", "center")
MAPPED = ("transport", "center")

#: Relative accuracy of the error of a group that is designed anew.
TOLERANCE = 0.02
#: Note of a mechanism whose budgets are the limits of its errors from day to day.
LIMITED = "kept from day to day: budgets are the errors at which a group is designed anew"

UNCHANGED, KEPT, AIMED_ANEW, REDESIGN, ALONE = "unchanged", "kept", "aimed anew", "redesign", "alone"


@dataclass(frozen=True)
class GroupReuse:
    """What becomes of one connected group: ``decision`` is one of the five names above, ``reason`` says why.

    ``delta_upper`` is the certificate of what is kept, on the new laws; NaN where nothing is.
    """

    labels: tuple[str, ...]
    decision: str
    reason: str
    delta_upper: float
    part: Mechanism | None

    def __repr__(self) -> str:
        return f"GroupReuse({len(self.labels)} labels, {self.decision}: {self.reason})"


@dataclass(frozen=True, repr=False)
class Reuse:
    """An earlier mechanism held against new class laws.

    ``mechanism`` is what to release with, if every group could be kept; else None, and :func:`redesigned` makes it.
    """

    old: Mechanism
    problem: Problem
    delta: float
    rho_tolerance: float
    groups: tuple[GroupReuse, ...]
    mechanism: Mechanism | None

    def __repr__(self) -> str:
        found = [group.decision for group in self.groups]
        return f"Reuse({', '.join(f'{found.count(name)} {name}' for name in dict.fromkeys(found))})"

    @property
    def to_redesign(self) -> tuple[GroupReuse, ...]:
        """The groups whose design no longer holds."""
        return tuple(group for group in self.groups if group.decision == REDESIGN)


def reuse(
    mechanism: Mechanism,
    classes: GaussianClasses,
    *,
    delta: float,
    rho_tolerance: float = 0.05,
    graph: NeighborGraph | None = None,
) -> Reuse:
    """Decide group by group whether a mechanism can be used again for new laws of its labels.

    Args:
        mechanism: an earlier design; its ε, notion, scope, method and weights stay.
        classes: the new laws. Labels may have gone, and come where ``graph`` says who their neighbors are.
        delta: a group is kept only if its certificate, finite precision included, is not above this.
        rho_tolerance: and if no label's error exceeds what its design spent by more than this share.
        graph: neighbors from now on; by default the mechanism's edges between labels that are still there.

    Returns:
        The decision for every connected group, and the whole mechanism where all of them could be kept.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.calibrate(classes, graph, "center", epsilon=1.0, delta=1e-6)
    >>> moved = shoal.GaussianClasses.deterministic([[0.1], [1.1]], labels=["a", "b"])
    >>> found = shoal.reuse(mechanism, moved, delta=1e-6)
    >>> found.mechanism.certificate.delta_upper <= 1e-6
    True
    """
    delta = validation.probability(delta=delta, below_one=True)
    rho_tolerance = validation.non_negative(rho_tolerance=rho_tolerance)
    if not isinstance(classes, GaussianClasses) or classes.n_dims != mechanism.classes.n_dims:
        raise InputError(f"classes must be a GaussianClasses of {mechanism.classes.n_dims} entries, as the mechanism's")
    problem = _problem(mechanism, classes, graph)
    limits = limits_of(mechanism, rho_tolerance)
    groups = []
    for members in problem.components:
        part = problem.part(members) if len(members) > 1 else None
        labels = tuple(classes.labels[i] for i in members)
        groups.append(_decided(mechanism, labels, classes.take(members), part, limits, delta))
    whole = None
    if all(group.decision != REDESIGN for group in groups):
        whole = _whole(mechanism, problem, groups)
        if whole.certificate.delta_upper > delta:  # one grid for all labels can cost more than one for each group
            reason = "its certificate beside the other groups is above delta"
            groups = [g if g.decision == ALONE else replace(g, decision=REDESIGN, reason=reason) for g in groups]
            whole = None
    return Reuse(mechanism, problem, delta, rho_tolerance, tuple(groups), whole)


def redesigned(
    found: Reuse, *, method: str | None = None, seed: int = 0, iterations: int = 40, seconds: float | None = None
) -> Mechanism:
    """One mechanism for all groups: those that hold as they are, the others designed anew from where they were.

    The search is bounded by ``iterations``, so that equal arguments give equal mechanisms, or by ``seconds`` if given.
    The result meets ``found.delta``, or this is an :class:`UnreachableError`.

    Args:
        found: result of :func:`reuse`.
        method: of the groups designed anew; by default the earlier mechanism's.
        seed: seed of the search's own randomness.
        iterations: steps per stage of the search, as in :func:`shoal.design`.
        seconds: for all groups together, instead of ``iterations``.

    Returns:
        The mechanism for the new laws, ``certificate.delta_upper <= found.delta``.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.calibrate(classes, graph, "center", epsilon=1.0, delta=1e-6)
    >>> apart = shoal.GaussianClasses.deterministic([[0.0], [3.0]], labels=["a", "b"])
    >>> found = shoal.reuse(mechanism, apart, delta=1e-6)
    >>> found
    Reuse(1 redesign)
    >>> shoal.redesigned(found).certificate.delta_upper <= 1e-6
    True
    """
    if found.mechanism is not None:
        return found.mechanism
    old = found.old
    if old.notion != "dp" or not np.allclose(old.weights, 1.0):
        raise InputError("found: only designs of notion 'dp' without weights are designed anew; use calibrate()")
    name = old.method if method is None else method
    made = []
    for group in found.groups:
        if group.decision != REDESIGN:
            made.append(group)
            continue
        places = found.problem.original.places
        part = found.problem.part(np.array([places[label] for label in group.labels]))
        warm = None
        if set(group.labels) <= set(old.classes.labels):
            warm = old.part(group.labels)
            warm = aimed(warm, part.original) if warm.method in AIMED else replace(warm, classes=part.original)
        again = calibrate(
            part.original,
            part.graph,
            name,
            part.epsilons[:, 0].copy(),
            found.delta,
            seed=seed,
            scope=old.scope,
            times=old.times,
            tolerance=TOLERANCE,
            time_limit=None if seconds is None else seconds / len(found.to_redesign),
            iterations=iterations if seconds is None else None,
            start=warm,
            prove=False,
        )
        again = replace(again, budget=_at_least_tiny((1 + found.rho_tolerance) * again.weighted_rho))
        made.append(replace(group, part=again))
    return attained(_whole(replace(old, method=name), found.problem, made), found.delta)


def limits_of(mechanism: Mechanism, rho_tolerance: float) -> FloatArray:
    """(n,) errors beyond which a label's group is designed anew."""
    if LIMITED in mechanism.notes:
        return mechanism.budget
    return _at_least_tiny((1 + rho_tolerance) * mechanism.weighted_rho)


def aimed(old: Mechanism, classes: GaussianClasses) -> Mechanism:
    """A mechanism for the new laws whose output laws are those of ``old``, as far as its method can reach them.

    They move together by the average movement of the means, where the method shifts means at all.
    """
    validation.choice(AIMED, method=old.method)
    covs, before = classes.covs, old.classes.covs
    moves = classes.means - old.classes.means
    shift = old.bias + (moves.mean(axis=0) - moves) if old.method in SHIFTED else old.bias
    eye = np.eye(classes.n_dims)
    kept = eye if old.gain is None else eye + old.gain
    target = kept @ before @ np.swapaxes(np.broadcast_to(kept, before.shape), 1, 2)
    noise = np.array(np.broadcast_to(old.noise_cov, covs.shape))
    gain = None
    if old.method in MAPPED:
        gain, missed = _transport(covs, target)
        noise = noise + missed
    else:
        noise = _positive(target + noise - covs)
    made = replace(
        old,
        classes=classes,
        mean_grid=None,
        shift=shift,
        gain=gain if gain is not None and gain.any() else None,
        noise_cov=0.5 * (noise + np.swapaxes(noise, 1, 2)),
        lower_bound=0.0,
    )
    return met(made, [np.arange(classes.n_classes)]) or made


def _transport(covs: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gains of the optimal maps between centered Gaussians, and what a singular covariance cannot be mapped to."""
    back, null = inverse_root(covs)
    root = square_root(covs)
    middle = root @ target @ root
    inner = square_root(0.5 * (middle + np.swapaxes(middle, 1, 2)))
    gain = back @ inner @ back - (np.eye(covs.shape[1]) - null)
    missed = np.zeros_like(covs)
    partial = ranks(covs) < covs.shape[1]
    if partial.any():
        reached = back[partial] @ inner[partial] @ inner[partial] @ back[partial]
        missed[partial] = _positive(target[partial] - reached)
    return gain, missed


def _positive(matrices: FloatArray) -> FloatArray:
    """The nearest positive semidefinite matrices."""
    values, vectors = eigh(0.5 * (matrices + np.swapaxes(matrices, 1, 2)))
    if (values >= 0).all():
        return matrices
    return np.asarray((vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2))


def _problem(mechanism: Mechanism, classes: GaussianClasses, graph: NeighborGraph | None) -> Problem:
    """The new laws on the graph from now on, with the mechanism's ε."""
    if graph is None:
        known = set(mechanism.classes.labels)
        if not set(classes.labels) <= known:
            raise InputError("graph must be given where classes hold labels that the mechanism does not know")
        part = mechanism.part(classes.labels)
        graph, epsilon = part.graph, part.epsilon
    else:
        several = np.unique(mechanism.epsilon)
        if len(several) != 1:
            raise InputError("graph must be left out where the mechanism has an epsilon per edge")
        epsilon = np.full(graph.n_edges, several[0])
    return Problem.of(classes, graph, epsilon, 1.0, mechanism.notion, scope=mechanism.scope, times=mechanism.times)


def _decided(
    mechanism: Mechanism,
    labels: tuple[str, ...],
    classes: GaussianClasses,
    part: Problem | None,
    limits: FloatArray,
    delta: float,
) -> GroupReuse:
    known = [name in mechanism.classes.places for name in labels]
    if not all(known):
        if part is None:
            return GroupReuse(labels, ALONE, "a new label without neighbors: nothing is claimed", float("nan"), None)
        return GroupReuse(labels, REDESIGN, "a label is new", float("nan"), None)
    before = mechanism.part(labels)
    allowed = limits[[mechanism.position(name) for name in labels]]
    before = replace(before, budget=allowed, notes=())
    if part is None:
        as_it_is = replace(before, classes=classes)
        return GroupReuse(labels, ALONE, "without neighbors: nothing is claimed", float("nan"), as_it_is)
    placed = replace(before, graph=part.graph, epsilon=part.epsilons[:, 0].copy())
    candidates = [(KEPT, replace(placed, classes=classes))]
    if _same(before.classes, classes):
        candidates = [(UNCHANGED, candidates[0][1])]
    elif mechanism.method in AIMED:
        candidates.append((AIMED_ANEW, aimed(placed, classes)))
    reasons = []
    for decision, candidate in candidates:
        against = _against(candidate, allowed, delta)
        if against is None:
            reason = "certificate and error hold on the new laws"
            return GroupReuse(labels, decision, reason, candidate.certificate.delta_upper, candidate)
        reasons.append(f"{'as it is' if decision != AIMED_ANEW else decision}, {against}")
    return GroupReuse(labels, REDESIGN, "; ".join(reasons), float("nan"), None)


def _against(candidate: Mechanism, allowed: FloatArray, delta: float) -> str | None:
    """Why a candidate cannot be used; None where it can."""
    if not (candidate.weighted_rho <= allowed).all():
        return "the error of a label is above its limit"
    try:
        reached = candidate.certificate.delta_upper
    except CertificationError:
        return "delta cannot be certified"
    if not reached <= delta:
        return f"delta is {round_up(reached):.4g}"
    return None


def _same(before: GaussianClasses, now: GaussianClasses) -> bool:
    """Whether two families are equal bit for bit."""
    return before.means.tobytes() == now.means.tobytes() and before.covs.tobytes() == now.covs.tobytes()


def _whole(old: Mechanism, problem: Problem, groups: Sequence[GroupReuse]) -> Mechanism:
    places = problem.original.places
    found = [
        (np.array([places[name] for name in group.labels]), group.part) for group in groups if group.part is not None
    ]
    made = joined(old.method, problem, found)
    return replace(made, weights=old.weights, lower_bound=0.0, notes=(*made.notes, LIMITED))


def _at_least_tiny(values: FloatArray) -> FloatArray:
    return np.maximum(values, np.finfo(np.float64).tiny)
