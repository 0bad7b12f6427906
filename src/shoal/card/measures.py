"""Facts of one mechanism, one audit, one ledger: what the stages of a release measure and hand to its card.

Every privacy figure is an upper end of what :meth:`Mechanism.release` gives out. No fact holds an answer, a mean or a
covariance; the labels of the worst edge are named.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from shoal import validation
from shoal.accounting.renyi import renyi_curve
from shoal.accounting.risk import identification_risk
from shoal.accounting.tradeoff import worst_tpr
from shoal.card.assumptions import QUESTIONS
from shoal.card.facts import (
    LISTED,
    Accuracy,
    AuditFacts,
    DesignFacts,
    FitFacts,
    Found,
    Guard,
    Named,
    NamingFacts,
    ReleaseFacts,
    SpentFacts,
    naming_bound,
    together,
    tpr_bound,
)
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import COVERAGE, UNTRIED, Releasable
from shoal.proofs.proof import proved
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.audits.guard import ModelGuard
    from shoal.audits.verdict import Audit
    from shoal.ledger.ledger import Ledger

EPSILONS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
ORDERS = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
FALSE_ALARMS = (0.001, 0.01, 0.05, 0.1)
#: Largest standard deviation of a released entry that counts as a trace of noise.
ALIKE = 1e-2
OWN = "the answer's own"
#: Edges up to which a thorough description looks at every one for itself.
THOROUGH = 5000
#: A δ below this is told at the next ε as well: what holds at an ε holds at every larger one.
SETTLED = 1e-20
#: Share of a false positive rate that a bound from the curve may give away before edges are searched.
CLOSE = 0.01


class AnswerSource(Protocol):
    """Where class laws come from, if it can describe itself: :class:`shoal.Forecasts`."""

    def facts(self, graph: NeighborGraph) -> FitFacts:
        """Who has a law, who was left out, and which laws hold."""

    def accuracy(self, mechanism: Mechanism) -> Accuracy:
        """Errors in the unit in which answers are used."""


def fit_facts(graph: NeighborGraph, *, fitted_on_private_data: bool | None = None) -> FitFacts:
    """Who hides among whom, where nothing is known about where the laws come from."""
    return FitFacts(source="", **hiding(graph), fitted_on_private_data=fitted_on_private_data)


def design_facts(
    mechanism: Mechanism,
    *,
    query: str | None = None,
    target: float | None = None,
    accuracy: Accuracy | None = None,
    thorough: bool = False,
    seed: int = 0,
) -> DesignFacts:
    """What a mechanism promises and what it costs, from its final parameters; its certificate is proved, if it can be.

    Args:
        mechanism: what releases the answers.
        query: how the answers come about, a key of :data:`shoal.card.assumptions.QUESTIONS`; None for another kind.
        target: δ that was asked for.
        accuracy: errors in another unit than the answer's own.
        thorough: search every edge for the best test, and sample how often a label can be named. Otherwise both are
            bounded from δ(ε) alone: little work, and the figures of several mechanisms together do not depend on how
            labels are spread over them.
        seed: seed of the sampling.
    """
    if query is not None:
        validation.choice(tuple(QUESTIONS), query=query)
    if mechanism.certificate.unproved == UNTRIED:
        mechanism, _ = proved(mechanism)
    certificate, graph = mechanism.certificate, mechanism.graph
    sizes = group_sizes(graph)
    epsilons = sorted({float(epsilon) for epsilon in mechanism.epsilon})
    curve = _curve(mechanism)
    thorough = thorough and graph.n_edges <= THOROUGH
    log_delta = float(certificate.log_delta_upper)
    return DesignFacts(
        method=mechanism.method,
        epsilon=epsilons[-1] if epsilons else 0.0,
        epsilons=tuple(epsilons[-LISTED:]),
        delta=certificate.delta_upper,
        log_delta=log_delta if math.isfinite(log_delta) else None,
        notion=certificate.released_notion,
        designed_for=certificate.notion,
        finite_precision=certificate.finite_precision,
        worst_edge=certificate.worst_edge,
        best_possible=certificate.lower_bound,
        **hiding(graph),
        alone=int((sizes == 1).sum()),
        entries=mechanism.classes.n_dims,
        curve=curve,
        renyi=_renyi(mechanism),
        tradeoff=_tradeoff(mechanism, curve, thorough),
        naming=_naming(mechanism, curve, sizes, seed if thorough else None),
        accuracy=accuracy_facts(mechanism) if accuracy is None else accuracy,
        query=query,
        target=target,
        all_alike=all_alike(mechanism.output),
        scope=mechanism.scope,
        other_delta=mechanism.certified("answer" if mechanism.scope == "table" else "table").delta_upper,
        digest=mechanism.digest,
        graph_digest=groups_digest(graph),
        notes=tuple(mechanism.notes)[:LISTED],
        proved="ball arithmetic" if certificate.proved else "",
        unproved=certificate.unproved,
        proof=certificate.proof,
    )


def accuracy_facts(mechanism: Releasable, labels: Sequence[str] | None = None, unit: str = OWN) -> Accuracy:
    """Errors of released answers about these labels, all by default; ``unit`` is what the answers are in."""
    names = mechanism.labels if labels is None else labels
    off = mechanism.errors(labels)
    found = errors(
        off.rho,
        off.squares,
        off.biases,
        mechanism.classes.means[[mechanism.position(name) for name in names]],
        mechanism.graph.components_of(names).astype(np.int64),
        unit=unit,
        interval=off.interval,
        coverage=off.coverage,
    )
    return replace(found, grid=tuple(float(step) for step in off.grid), noise_alone=off.noise_alone)


def accuracy_of(
    mechanism: Mechanism,
    squares: FloatArray,
    biases: FloatArray,
    *,
    unit: str,
    answers: FloatArray | None = None,
    ratio: bool = False,
) -> Accuracy:
    """Errors in some unit from their (n, k) expected squares and biases.

    With ``ratio`` the design speaks of logarithms, and the interval is of released over true values.
    """
    mean, var = np.broadcast_to(mechanism.bias, squares.shape), mechanism.error_variance
    reach = float(ndtri(0.5 + COVERAGE / 2)) * np.sqrt(var)
    low, high = (mean - reach).min(axis=0), (mean + reach).max(axis=0)
    if ratio:
        low, high = np.exp(low), np.exp(high)
    place = {name: i for i, name in enumerate(mechanism.graph.labels)}
    found = errors(
        mechanism.rho,
        squares,
        np.broadcast_to(biases, squares.shape),
        answers,
        mechanism.graph.components[[place[name] for name in mechanism.classes.labels]].astype(np.int64),
        unit=unit,
        interval=(low, high),
        coverage=COVERAGE,
    )
    alone = mechanism.gain is None and not mechanism.bias.any()
    return replace(found, grid=tuple(float(step) for step in mechanism.grid), ratio=ratio, noise_alone=alone)


def errors(
    rho: FloatArray,
    squares: FloatArray,
    biases: FloatArray,
    answers: FloatArray | None,
    groups: NDArray[np.int64],
    *,
    unit: str,
    interval: tuple[FloatArray, FloatArray],
    coverage: float,
) -> Accuracy:
    """Errors from those of every label, (n, k) expected squares and biases; ``groups`` is who hides among whom."""
    return Accuracy(
        labels=len(squares),
        unit=unit,
        rho=math.fsum(rho),
        rho_largest=float(rho.max()),
        squares=tuple(math.fsum(column) for column in squares.T),
        biases=tuple(math.fsum(column) for column in biases.T),
        square_largest=float(squares.mean(axis=1).max()),
        answers=None if answers is None else math.fsum(answers.mean(axis=1)),
        grid=(0.0,) * squares.shape[1],
        coverage=coverage,
        interval=tuple((float(a), float(b)) for a, b in zip(*interval, strict=True)),
        total_error=None if answers is None else _total_error(squares, biases, answers, groups),
        beside_largest=0.0 if answers is None else _beside_largest(squares, answers, groups),
    )


def _total_error(
    squares: FloatArray, biases: FloatArray, answers: FloatArray, groups: NDArray[np.int64]
) -> float | None:
    """Root mean squared error of a group's total at an entry, relative to the true total; the largest of all.

    Rows are drawn independently: expected errors add up, and so do variances.
    """

    def total(values: FloatArray) -> FloatArray:
        sums = np.zeros((int(groups.max()) + 1, values.shape[1]))
        np.add.at(sums, groups, values)
        return sums

    with np.errstate(over="ignore", invalid="ignore"):
        error = np.sqrt(total(biases) ** 2 + total(np.maximum(squares - biases**2, 0.0)))
    error = np.where(np.isnan(error), np.inf, error)  # of an infinite square less an infinite bias nothing is known
    true = np.abs(total(answers))
    return float((error[true > 0] / true[true > 0]).max()) * (1 + 1e-9) if (true > 0).any() else None


def _beside_largest(squares: FloatArray, answers: FloatArray, groups: NDArray[np.int64]) -> float:
    """The largest root mean squared error of a label over the largest answer, in amount, of its group."""
    most = np.zeros(int(groups.max()) + 1)
    np.maximum.at(most, groups, np.abs(answers).max(axis=1))
    error = np.sqrt(squares.mean(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(error > 0, error / most[groups], 0.0)
    return float(np.where(np.isnan(found), np.inf, found).max())


def audit_facts(audit: Audit, *, guard: ModelGuard | None = None, equal_noise_delta: float | None = None) -> AuditFacts:
    """What an audit came to, in a size that does not grow with the number of labels."""
    proved = audit.delta_lower_curve.max(axis=(0, 1), initial=0.0)
    same = len(audit.epsilon) > 0 and bool((audit.epsilon == audit.epsilon[0]).all())
    shown = range(len(audit.promise)) if same else range(min(len(audit.promise), 1))
    epsilon = audit.epsilon.max(axis=0) if len(audit.epsilon) else np.zeros(len(audit.promise))
    found = (*audit.violations, *audit.mismatches)
    labels, groups = _spread(audit.edges)
    return AuditFacts(
        verdict=audit.verdict,
        confidence=audit.confidence,
        n_samples=audit.n_samples,
        source=audit.source,
        groups=groups,
        labels=labels,
        curve=tuple((float(epsilon[j]), float(proved[j]), float(audit.promise[j])) for j in shown),
        detectable_delta=audit.detectable_delta,
        detectable_shortage=audit.detectable_shortage,
        scope=audit.scope,
        of_groups=groups,
        violations=len(audit.violations),
        mismatches=len(audit.mismatches),
        findings=tuple(Found.like(one) for one in found[:LISTED]),
        named=None if audit.naming is None else Named.like(audit.naming),
        guard=None if guard is None else Guard.like(guard),
        equal_noise_delta=equal_noise_delta,
    )


def ledger_facts(ledger: Ledger, *, labels: int) -> ReleaseFacts:
    """What a ledger has on record, every account looked at; ``labels`` are those of this release."""
    spent = ledger.spent()
    worst = spent.largest
    return ReleaseFacts(
        name="",
        labels=labels,
        ledger="",
        head=str(ledger.head),
        releases=spent.releases,
        ledger_labels=len(spent.by_label),
        worst=None if worst is None else SpentFacts.like(worst),
    )


def all_alike(output: GaussianClasses) -> bool:
    """Whether noise is small beside the common answer: with a guarantee, a release is then a group's, not a label's."""
    return bool(np.sqrt(np.maximum(output.stored_variances, 0.0)).max() < ALIKE)


def group_sizes(graph: NeighborGraph) -> NDArray[np.int64]:
    """Members of each connected component."""
    return np.asarray(np.bincount(graph.components) if graph.n_labels else np.zeros(1, dtype=np.int64))


def hiding(graph: NeighborGraph) -> dict[str, Any]:
    """The fields of a record that say who hides among whom."""
    sizes = group_sizes(graph)
    return {
        "labels": graph.n_labels,
        "groups": len(sizes),
        "smallest_group": int(sizes.min()),
        "largest_group": int(sizes.max()),
        "edges": graph.n_edges,
    }


def groups_digest(graph: NeighborGraph) -> str:
    """Of who hides among whom: the digests of the groups together, wherever each one is kept."""
    inside: list[list[tuple[str, str]]] = [[] for _ in range(len(group_sizes(graph)))]
    for i, j in graph.edges.tolist():
        a, b = sorted((graph.labels[i], graph.labels[j]))
        inside[graph.components[i]].append((a, b))
    members: list[list[str]] = [[] for _ in inside]
    for name, group in zip(graph.labels, graph.components.tolist(), strict=True):
        members[group].append(name)
    return together(
        hashlib.sha256(json.dumps([sorted(names), sorted(pairs)]).encode()).hexdigest()
        for names, pairs in zip(members, inside, strict=True)
    )


def _curve(mechanism: Mechanism) -> tuple[tuple[float, float], ...]:
    grid = np.unique(np.concatenate([EPSILONS, mechanism.epsilon]))
    found = mechanism.released_curve(grid[:2]).delta_upper
    if found[-1] > SETTLED:
        found = np.concatenate([found, mechanism.released_curve(grid[2:]).delta_upper])
    # What holds at an ε holds at every larger one; the cost of finite precision alone would grow with ε.
    deltas = np.minimum.accumulate(np.concatenate([found, np.full(len(grid) - len(found), found[-1])]))
    if len(set(mechanism.epsilon.tolist())) == 1:
        # So that the curve and the guarantee say the same at the design's ε.
        deltas = np.where(grid <= mechanism.epsilon[0], np.maximum(deltas, mechanism.certificate.delta_upper), deltas)
    return tuple(zip(grid.tolist(), deltas.tolist(), strict=True))


def _renyi(mechanism: Mechanism) -> tuple[tuple[float, float | None], ...]:
    released = [mechanism.output] * mechanism.times
    found = renyi_curve(released, mechanism.graph, np.array(ORDERS), scope=mechanism.scope).divergence_upper
    return tuple(
        (order, float(value) if math.isfinite(value) else None) for order, value in zip(ORDERS, found, strict=True)
    )


def _tradeoff(
    mechanism: Mechanism, curve: Sequence[tuple[float, float]], thorough: bool
) -> tuple[tuple[float, float], ...]:
    """Largest true positive rate of any test between neighbors, at some false positive rates."""
    bounds = {rate: tpr_bound(rate, curve) for rate in FALSE_ALARMS}
    loose = [rate for rate, bound in bounds.items() if bound > (1 + CLOSE) * rate]
    if thorough and loose:
        released = [mechanism.output] * mechanism.times
        loss = mechanism.finite_precision_tv * mechanism.times * (2 if mechanism.scope == "table" else 1)
        # Both rates of a test on what is really released are within the loss of those on the ideal answer.
        rates = np.array([min(math.nextafter(rate + loss, 1.0), 1.0) for rate in loose])
        worst = worst_tpr(released, mechanism.graph, rates, scope=mechanism.scope).tolist()
        bounds |= {
            rate: min(math.nextafter(tpr + loss, math.inf), bounds[rate])
            for rate, tpr in zip(loose, worst, strict=True)
        }
    return tuple(bounds.items())


def _naming(
    mechanism: Mechanism, curve: Sequence[tuple[float, float]], sizes: NDArray[np.int64], seed: int | None
) -> NamingFacts:
    complete = int((sizes * (sizes - 1) // 2).sum()) == mechanism.graph.n_edges
    if complete and (seed is None or mechanism.times > 1):  # sampling is of one answer about each label
        guessing = len(sizes) / mechanism.graph.n_labels
        return NamingFacts(naming_bound(guessing, curve), guessing)
    found = identification_risk(mechanism.output, mechanism.graph, scope=mechanism.scope, seed=seed or 0)
    rows = int(sizes.max()) if mechanism.scope == "table" else 1
    return NamingFacts(
        success_upper=min(math.nextafter(found.success_upper + rows * mechanism.finite_precision_tv, math.inf), 1.0),
        guessing=found.prior_success,
        exact=bool(found.exact),
        confidence=found.confidence,
    )


def _spread(edges: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """Labels that edges join, and the groups they form."""
    labels = list(dict.fromkeys(name for edge in edges for name in edge))
    return len(labels), len(NeighborGraph.from_edges(labels, edges).groups) if labels else 0
