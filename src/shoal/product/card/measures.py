"""Facts of one mechanism, its errors and its audit, as the stages of a release hand them to its card.

Every privacy figure is an upper end of what :meth:`Mechanism.release` gives out. No fact holds an answer or a law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import UNTRIED, Releasable, ReleaseErrors
from shoal.product.card.facts import (
    LISTED,
    Accuracy,
    AuditFacts,
    DesignFacts,
    Guard,
    Named,
    crowd_naming_bound,
)
from shoal.product.card.promises import QUESTIONS
from shoal.proofs.proof import prove_mechanism
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.audits.codebook_audit import CodebookAudit
    from shoal.audits.guard import ModelGuard
    from shoal.audits.results import Audit

EPSILONS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
#: Largest standard deviation of a released entry that counts as a trace of noise beside the common answer: with a
#: guarantee, a release is then a group's, not a label's.
ALIKE = 1e-2
OWN = "the answer's own"
#: A δ below this is told at the next ε as well: what holds at an ε holds at every larger one.
SETTLED = 1e-20


def design_facts(
    released: Releasable,
    *,
    query: str | None = None,
    target: float | None = None,
    accuracy: Accuracy | None = None,
) -> DesignFacts:
    """Promise and cost of a mechanism or a codebook; the certificate of a mechanism is proved, if it can be.

    How often a label is named is bounded from δ(ε), where all labels of a group are neighbors of all. ``query`` is a
    key of :data:`QUESTIONS`; ``target`` is the δ that was asked for.
    """
    if query is not None:
        validation.choice(tuple(QUESTIONS), query=query)
    released = released.by_kind(mechanism=_prove_if_untried, codebook=lambda book: book)
    promised = released.by_kind(mechanism=_mechanism_fields, codebook=_codebook_fields)
    certificate, other = released.certificate, "answer" if released.scope == "table" else "table"
    sizes = group_sizes(released.graph)
    complete = int((sizes * (sizes - 1) // 2).sum()) == released.graph.n_edges
    return DesignFacts(
        **group_fields(released.graph),
        without_neighbors=int((sizes == 1).sum()),
        naming=crowd_naming_bound(len(sizes) / released.graph.n_labels, promised["curve"]) if complete else 1.0,
        entries=released.n_dims,
        accuracy=accuracy_facts(released) if accuracy is None else accuracy,
        query=query,
        target=target,
        scope=released.scope,
        insider=float(released.insider_error.min()),
        delta=certificate.delta_upper,
        finite_precision=certificate.finite_precision,
        worst_edge=certificate.worst_edge,
        other_delta=released.certificate_for(other).delta_upper,
        **promised,
    )


def _prove_if_untried(mechanism: Mechanism) -> Releasable:
    """The mechanism with a proved certificate, where nobody has tried yet and the proof succeeds."""
    return prove_mechanism(mechanism)[0] if mechanism.certificate.unproved == UNTRIED else mechanism


def _mechanism_fields(mechanism: Mechanism) -> dict[str, Any]:
    """Fields of :class:`DesignFacts` from a mechanism with Gaussian laws."""
    return {
        "method": mechanism.method,
        "epsilon": float(mechanism.epsilon.max(initial=0.0)),
        "curve": _delta_curve(mechanism),
        "all_alike": bool(np.sqrt(np.maximum(mechanism.output.stored_variances, 0.0)).max() < ALIKE),
        "notes": tuple(mechanism.notes)[:LISTED],
        "proved": "ball arithmetic" if mechanism.certificate.proved else "",
        "unproved": mechanism.certificate.unproved,
    }


def _codebook_fields(book: Codebook) -> dict[str, Any]:
    """Fields of :class:`DesignFacts` from a codebook."""
    grid = np.unique([*EPSILONS, book.epsilon, 2 * book.epsilon])
    curves = [len(group.curves) for group in book.crowds if len(group.members) > 1]
    return {
        "method": "codebook",
        "epsilon": book.epsilon,
        "curve": tuple(zip(grid.tolist(), np.minimum.accumulate(book.curve(grid).delta_upper).tolist(), strict=True)),
        "all_alike": all(count == 1 for count in curves),
        "notes": (
            f"each group has a few curves, {max(curves, default=1)} at most, of which one is drawn for each label, "
            "with probabilities of least mean squared error: δ = 0 at this ε",
        ),
        "proved": "integer odds",
    }


def accuracy_facts(
    released: Releasable,
    labels: Sequence[str] | None = None,
    unit: str = OWN,
    *,
    powers: tuple[FloatArray, FloatArray, FloatArray] | None = None,
) -> Accuracy:
    """Errors of released answers about these labels, all by default; ``unit`` is what the answers are in.

    Where answers are logarithms of what ``unit`` is of, ``powers`` are the (n, k) expected squared errors, expected
    errors and true values of that.
    """
    names = released.labels if labels is None else labels
    answers = released.classes.means[[released.position(name) for name in names]]
    off = released.expected_errors(labels)
    if powers is not None:
        squares, biases, answers = powers
        off = replace(off, squares=squares, biases=biases)
    groups = released.graph.components_of(names).astype(np.int64)
    return replace(error_facts(off, answers, groups, unit=unit), ratio=powers is not None)


def error_facts(off: ReleaseErrors, answers: FloatArray, groups: NDArray[np.int64], *, unit: str) -> Accuracy:
    """Errors of all labels from expected errors, true answers (n, k) and the crowd number (n,) of each label."""
    return Accuracy(
        labels=len(off.squares),
        unit=unit,
        rho=math.fsum(off.rho),
        rho_largest=float(off.rho.max()),
        squares=tuple(math.fsum(column) for column in off.squares.T),
        biases=tuple(math.fsum(column) for column in off.biases.T),
        square_largest=float(off.squares.mean(axis=1).max()),
        answers=math.fsum(np.abs(answers).mean(axis=1)),  # export is no load below zero
        total_error=_largest_relative_error_of_totals(off.squares, off.biases, answers, groups),
        beside_largest=_largest_relative_error(off.squares, answers, groups),
        noise_alone=off.noise_alone,
    )


def _largest_relative_error_of_totals(
    squares: FloatArray, biases: FloatArray, answers: FloatArray, groups: NDArray[np.int64]
) -> float | None:
    """Largest relative error of a group's total at an entry: root mean squared error over the true total.

    From mean squared errors and biases (n, k) of labels, and the group of each; None where all true totals are 0.
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


def _largest_relative_error(squares: FloatArray, answers: FloatArray, groups: NDArray[np.int64]) -> float:
    """Largest over labels: root mean squared error over the largest absolute answer of the label's crowd."""
    most = np.zeros(int(groups.max()) + 1)
    np.maximum.at(most, groups, np.abs(answers).max(axis=1))
    error = np.sqrt(squares.mean(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(error > 0, error / most[groups], 0.0)
    return float(np.where(np.isnan(ratios), np.inf, ratios).max())


def audit_facts(audit: Audit, *, guard: ModelGuard | None = None) -> AuditFacts:
    """Facts of an audit of a mechanism, in a size that does not grow with the number of labels."""
    labels = list(dict.fromkeys(name for edge in audit.edges for name in edge))
    groups = len(NeighborGraph.from_edges(labels, audit.edges).groups) if labels else 0
    return AuditFacts(
        verdict=audit.verdict,
        confidence=audit.confidence,
        n_samples=audit.n_samples,
        source=audit.source,
        groups=groups,
        labels=len(labels),
        delta_proved=float(audit.delta_lower_curve.max(axis=(0, 1), initial=0.0)[0]),
        delta_promised=audit.promise,
        detectable_delta=audit.detectable_delta,
        scope=audit.scope,
        of_groups=groups,
        violations=len(audit.violations),
        named=None if audit.naming is None else Named.from_attributes(audit.naming),
        guard=None if guard is None else Guard.from_attributes(guard),
    )


def codebook_audit_facts(audit: CodebookAudit, book: Codebook) -> AuditFacts:
    """Facts of an audit of a codebook."""
    groups = sum(len(group.members) > 1 for group in book.crowds)
    return AuditFacts(
        verdict=audit.verdict,
        confidence=audit.confidence,
        n_samples=audit.n_samples,
        source="draws of the codebook itself",
        groups=groups,
        labels=audit.n_labels,
        delta_proved=0.0,
        delta_promised=book.certificate_for(audit.scope).delta_upper,
        detectable_delta=1.0,
        scope=audit.scope,
        of_groups=groups,
        violations=audit.violations,
        named=Named.from_attributes(audit.naming),
    )


def group_sizes(graph: NeighborGraph) -> NDArray[np.int64]:
    """Number of members of each connected component of a graph."""
    return np.asarray(np.bincount(graph.components) if graph.n_labels else np.zeros(1, dtype=np.int64))


def group_fields(graph: NeighborGraph) -> dict[str, Any]:
    """Numbers of labels, groups and edges of a graph, and its smallest and largest group."""
    sizes = group_sizes(graph)
    return {
        "labels": graph.n_labels,
        "groups": len(sizes),
        "smallest_group": int(sizes.min()),
        "largest_group": int(sizes.max()),
        "edges": graph.n_edges,
    }


def _delta_curve(mechanism: Mechanism) -> tuple[tuple[float, float], ...]:
    """(ε, δ at most) of a mechanism's released answers, with δ never rising in ε."""
    grid = np.unique(np.concatenate([EPSILONS, mechanism.epsilon]))
    computed = mechanism.released_curve(grid[:2]).delta_upper
    if computed[-1] > SETTLED:
        computed = np.concatenate([computed, mechanism.released_curve(grid[2:]).delta_upper])
    # What holds at an ε holds at every larger one; the cost of finite precision alone would grow with ε.
    deltas = np.minimum.accumulate(np.concatenate([computed, np.full(len(grid) - len(computed), computed[-1])]))
    if len(set(mechanism.epsilon.tolist())) == 1:
        # So that the curve and the guarantee say the same at the design's ε.
        deltas = np.where(grid <= mechanism.epsilon[0], np.maximum(deltas, mechanism.certificate.delta_upper), deltas)
    return tuple(zip(grid.tolist(), deltas.tolist(), strict=True))
