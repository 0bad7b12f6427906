"""Facts of a codebook: what it promises and costs, and what an audit of it came to."""

from __future__ import annotations

import numpy as np

from shoal.audits.book_audit import BookAudit
from shoal.card.facts import Accuracy, AuditFacts, DesignFacts, Found, Named, NamingFacts, naming_bound, tpr_bound
from shoal.card.measures import EPSILONS, FALSE_ALARMS, ORDERS, group_sizes, groups_digest, hiding
from shoal.mechanism.codebook import Codebook

METHOD = "codebook"


def book_facts(
    book: Codebook, accuracy: Accuracy, *, query: str | None = None, target: float | None = None
) -> DesignFacts:
    """What a codebook promises and costs; ``accuracy`` is that of the labels that are released."""
    sizes = group_sizes(book.graph)
    epsilon, certificate = book.epsilon, book.certificate
    other = book.certified("answer" if book.scope == "table" else "table")
    grid = np.unique([*EPSILONS, epsilon, 2 * epsilon])
    deltas = np.minimum.accumulate(book.curve(grid).delta_upper)
    curve = tuple(zip(grid.tolist(), deltas.tolist(), strict=True))
    rows = 2.0 if book.scope == "table" else 1.0  # divergences of both rows add
    guessing = len(sizes) / book.graph.n_labels
    curves = [len(group.curves) for group in book.crowds if len(group.members) > 1]
    return DesignFacts(
        method=METHOD,
        epsilon=epsilon,
        epsilons=(epsilon,),
        delta=certificate.delta_upper,
        log_delta=None if certificate.delta_upper == 0 else certificate.log_delta_upper,
        notion="dp",
        designed_for="dp",
        finite_precision=0.0,
        worst_edge=certificate.worst_edge,
        best_possible=0.0,
        **hiding(book.graph),
        alone=int((sizes == 1).sum()),
        entries=book.answers.shape[1],
        curve=curve,
        renyi=tuple((order, rows * book.divergence(order)) for order in ORDERS),
        tradeoff=tuple((rate, tpr_bound(rate, curve)) for rate in FALSE_ALARMS),
        naming=NamingFacts(naming_bound(guessing, curve), guessing),
        accuracy=accuracy,
        query=query,
        target=target,
        all_alike=all(count == 1 for count in curves),
        scope=book.scope,
        other_delta=other.delta_upper,
        digest=book.digest,
        graph_digest=groups_digest(book.graph),
        notes=(
            f"each group has a few curves, {max(curves, default=1)} at most, of which one is drawn for each label, "
            "with probabilities of least mean squared error: δ = 0 at this ε",
        ),
        proved="integer odds",
    )


def book_audit_facts(audit: BookAudit, book: Codebook) -> AuditFacts:
    """What an audit of a codebook came to."""
    groups = sum(len(group.members) > 1 for group in book.crowds)
    wrong = Found("law", (), "draws do not come as often as the stored probabilities say", True)
    return AuditFacts(
        verdict=audit.verdict,
        confidence=audit.confidence,
        n_samples=audit.n_samples,
        source="draws of the codebook itself",
        groups=groups,
        labels=audit.n_labels,
        curve=((book.epsilon, 0.0, book.certified(audit.scope).delta_upper),),
        detectable_delta=1.0,
        detectable_shortage=1.0,
        scope=audit.scope,
        of_groups=groups,
        violations=audit.violations,
        findings=(wrong,) if audit.wrong_laws else (),
        named=Named(
            accuracy=audit.named / max(audit.n_rows, 1),
            accuracy_lower=audit.named_lower,
            accuracy_upper=audit.named_upper,
            promise_upper=audit.promise_upper,
            guessing=audit.guessing,
            n_answers=audit.n_rows,
        ),
    )
