"""Check a mechanism's claim against the answers it releases.

Released answers are taken as they are; the mechanism's parameters are read only for what they claim. Three questions
(docs/theory.md, section 18):

1. Attacks (:mod:`shoal.audits.attacks`): is an event more telling than (ε, δ) allows? Gives δ_lower per edge.
2. Naming (:mod:`shoal.audits.naming`): is the label named more often than promised?
3. Law (:mod:`shoal.audits.law_tests`): do the answers follow the claimed laws, independently of each other?

What the attackers hold is the audit's scope: one row, or the whole table. What they are held against is the mechanism's
certificate, whatever it speaks of: one that speaks of one row is violated by a table that shows more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast, overload

import numpy as np

from shoal import validation
from shoal.accounting import tails
from shoal.accounting.curve import exp_rounded_up, log_delta_brackets
from shoal.accounting.releases import SCOPES, Releases
from shoal.audits.attacks import (
    FEWEST,
    Events,
    Release,
    ResidualLaws,
    count_events,
    draw_true_answers,
    likelihood_ratio_scores,
    release_every_label,
    row_exchange_scores,
)
from shoal.audits.codebook_audit import CodebookAudit, audit_codebook
from shoal.audits.confidence import SHARES, detectable_delta
from shoal.audits.law_tests import find_law_violations
from shoal.audits.naming import attack_single_answers, attack_whole_tables
from shoal.audits.results import HOLDS, Audit, Discrepancy
from shoal.errors import InputError
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import Releasable, check_releasable
from shoal.validation import FloatArray, IndexArray

#: Edges looked at. Of more, half are those with the largest claimed δ and half are drawn at random.
MOST_EDGES = 4000


@overload
def audit(
    mechanism: Codebook,
    graph: NeighborGraph | None = None,
    *,
    scope: str | None = None,
    n_samples: int = 20_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> CodebookAudit: ...


@overload
def audit(
    mechanism: Mechanism,
    graph: NeighborGraph | None = None,
    *,
    scope: str | None = None,
    n_samples: int = 20_000,
    confidence: float = 0.95,
    release: Release | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Audit: ...


def audit(
    mechanism: Releasable,
    graph: NeighborGraph | None = None,
    *,
    scope: str | None = None,
    n_samples: int = 20_000,
    confidence: float = 0.95,
    release: Release | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Audit | CodebookAudit:
    """Attack released answers and say whether they are consistent with what the mechanism claims.

    Args:
        mechanism: the mechanism whose claim is checked; of a codebook draws are, by
            :func:`shoal.audits.codebook_audit.audit_codebook`, and no other arguments than graph, scope, n_samples,
            confidence and seed apply.
        graph: edges to look at, all of them edges of the mechanism's graph (the default). Of more than 4,000 those
            2,000 with the largest claimed δ are attacked, and 2,000 others drawn at random.
        scope: what attackers hold: one ``"answer"``, or the ``"table"`` with a row of every label. By default what the
            mechanism is certified for. A certificate for one answer is held against a table too, if asked: that is
            what it comes to when everybody's row is passed on together.
        n_samples: released answers per label.
        confidence: probability that nothing in the result is false, over everything in it.
        release: function of (true answers (m, k), label) that returns the released ones; by default the mechanism's
            own ``release``. What it releases may be other answers than those it is given, real ones, or answers that
            were released before: then the check covers the class laws as well.
            :func:`shoal.audits.attacks.seeded_release` is quicker, for experiments.
        seed: seed of the simulated true answers.
        progress: called with (steps done, steps in all); a step is one label's answers released, or one edge attacked.

    Returns:
        The verdict with every lower bound beside what is promised, and what size of violation would have been seen.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
    >>> from shoal.audits.attacks import seeded_release
    >>> seeded = seeded_release(mechanism, 0)  # repeatable, not private
    >>> audit = shoal.audit(mechanism, n_samples=2000, release=seeded)
    >>> audit.verdict
    'consistent'
    >>> bool((audit.delta_lower <= mechanism.certificate.delta_upper).all())
    True
    >>> shoal.audit(mechanism, scope="table", n_samples=2000, release=seeded).scope
    'table'
    """
    if check_releasable(mechanism=mechanism).by_kind(mechanism=lambda _: False, codebook=lambda _: True):
        book = cast(Codebook, mechanism)
        return audit_codebook(book, scope=scope, n_samples=n_samples, confidence=confidence, seed=seed)
    n_samples = validation.count(n_samples=n_samples, at_least=FEWEST)
    own, done = cast(Mechanism, mechanism), itertools.count(1)
    graph = own.graph if graph is None else graph
    scope = own.scope if scope is None else validation.choice(SCOPES, scope=scope)
    error = 1.0 - validation.probability(confidence=confidence, below_one=True, above_zero=True)
    seed = validation.count(seed=seed, at_least=0)
    pairs = Releases.collect(own.output).edge_positions(graph)
    epsilons, n_edges = _tested_epsilons(own, pairs), len(pairs)
    if n_edges > MOST_EDGES:
        upper = _edge_brackets(own.output, pairs, epsilons[:, :1], scope)[:, :, 0, 2]
        chosen = _edges_to_attack(np.nan_to_num(upper, nan=0.0), seed)
        pairs, epsilons = pairs[chosen], epsilons[chosen]

    def report_step() -> None:
        """Tell ``progress`` that one more step is done."""
        if progress is not None:
            progress(next(done), len(own.labels) + len(pairs))

    true = draw_true_answers(own.classes, n_samples, np.random.default_rng(seed))
    released = release_every_label(own.release if release is None else release, true, own.labels, report_step)
    source = "mechanism.release" if release is None else "given release"
    return _attack_answers(own, graph, scope, pairs, epsilons, released, source, n_edges, error, seed, report_step)


def _attack_answers(
    gaussian: Mechanism,
    graph: NeighborGraph,
    scope: str,
    pairs: IndexArray,
    epsilons: FloatArray,
    released: list[FloatArray],
    source: str,
    n_edges: int,
    error: float,
    seed: int,
    step: Callable[[], None],
) -> Audit:
    """Attack released answers, hold what is proved against the claim, and return the audit.

    ``pairs`` (of ``n_edges``) are attacked at their ``epsilons``; nothing said is false but with probability ``error``.
    """
    labels = gaussian.labels
    certificate, claimed = gaussian.certificate, gaussian.scope
    upper = _edge_brackets(gaussian.output, pairs, epsilons, scope)[..., 2]
    edge_promise = exp_rounded_up(np.where(np.isnan(upper), 0.0, upper))  # 1 where nothing is certain
    claim = ResidualLaws.from_moments(gaussian.output.means, gaussian.output.covs)
    residuals = [claim.residuals(i, y) for i, y in enumerate(released)]
    own = [claim.log_density_of_residuals(i, z) for i, z in enumerate(residuals)]

    scores = likelihood_ratio_scores(claim, released, own)
    events = count_events(
        ("claim", "samples"),
        row_exchange_scores(scores) if scope == "table" else scores,
        pairs,
        epsilons,
        error * SHARES["events"],
        step,
        edge_promise.shape[1],
    )
    lower, findings = _broken_claims(labels, pairs, epsilons, events, certificate.delta_upper, edge_promise, scope)
    # The other notions are never below the hockey-stick δ, so whatever the notion, the claim must not be.
    wider = [("scope", scope)] if (scope, claimed) == ("table", "answer") else []
    for kind, holding in (*wider, ("accounting", claimed)):
        lows = _edge_brackets(gaussian.output, pairs, epsilons[:, :1], holding)[:, :, 0, 1]
        exact = np.exp(np.where(np.isnan(lows), -np.inf, lows)) * (1 - 1e-9)
        if exact.max() > certificate.delta_upper:
            e, d = np.unravel_index(int(np.argmax(exact)), exact.shape)
            facts = {"exact delta": float(exact[e, d]), "promised": certificate.delta_upper, "holding": HOLDS[holding]}
            findings.insert(0, Discrepancy(kind, _edge_labels(labels, pairs, int(e), int(d)), facts))
    findings += find_law_violations(claim, labels, residuals, pairs, error)
    share, design = error * SHARES["identification"], float(epsilons[:, 0].max())
    if scope == "table":
        promised = design, certificate.delta_upper
        namings = attack_whole_tables(gaussian.output, graph, claimed, *promised, claim, released, share, seed)
    else:
        namings = attack_single_answers(gaussian.output, graph, claimed, claim, released, own, share, seed)
    findings += [finding for naming in namings for finding in naming.violations]

    fewest = min(len(y) for y in released)
    return Audit(
        verdict="violated" if findings else "consistent",
        scope=scope,
        promised_scope=claimed,
        violations=tuple(findings),
        confidence=1.0 - error,
        n_samples=fewest,
        source=source,
        edges=tuple(_edge_labels(labels, pairs, e, 0) for e in range(len(pairs))),
        n_edges=n_edges,
        epsilon=epsilons,
        delta_lower_curve=lower,
        edge_promise=edge_promise,
        promise=certificate.delta_upper,
        epsilon_lower=events.epsilon_lower(certificate.delta_upper),
        notion=certificate.notion,
        detectable_delta=detectable_delta(certificate.delta_upper, design, fewest - fewest // 2, events.error),
        namings=namings,
    )


def _edges_to_attack(promise: FloatArray, seed: int) -> IndexArray:
    """Return positions of the edges to attack, by their claimed ln δ (n_edges, D) alone: nothing released has a say."""
    worst = np.argsort(-promise.max(axis=1), kind="stable")
    first, rest = worst[: MOST_EDGES // 2], worst[MOST_EDGES // 2 :]
    drawn = np.random.default_rng([seed, len(worst)]).choice(rest, MOST_EDGES - len(first), replace=False)
    return np.sort(np.concatenate([first, drawn]))


def _tested_epsilons(mechanism: Mechanism, pairs: IndexArray) -> FloatArray:
    """Return the ε that each edge is tested at, (n_edges, 4): the design's, then 0, half and twice that."""
    if len(pairs) == 0:
        raise InputError("graph has no edges: there is nothing to audit")
    own = map(frozenset, mechanism.pairs.tolist())
    known = dict(zip(own, mechanism.epsilon.tolist(), strict=True))
    wanted = list(map(frozenset, pairs.tolist()))
    missing = sum(pair not in known for pair in wanted)
    if missing:
        raise InputError(
            f"graph has {missing} edge(s) that are not in the mechanism's graph: nothing is promised there"
        )
    base = np.array([known[pair] for pair in wanted])[:, None]
    more = np.concatenate([0.0 * base, 0.5 * base, 2.0 * base], axis=1)
    return np.concatenate([base, np.where(base > 0, more, np.array([[0.25, 0.5, 1.0]]))], axis=1)


def _edge_brackets(released: Any, pairs: IndexArray, epsilons: FloatArray, scope: str) -> FloatArray:
    """Return brackets of the exact ln δ of each edge at its own ε (n_edges, E): (n_edges, D, E, 3), as in the curve.

    D is 2, both directions, for an answer and 1 for a table.
    """
    family = Releases.collect(released, scope)
    offsets = [np.repeat(column[:, None], family.n_directions, axis=1) for column in epsilons.T]
    return np.concatenate([log_delta_brackets(family, pairs, tails.DP, np.zeros(1), each) for each in offsets], axis=2)


def _edge_labels(labels: tuple[str, ...], pairs: IndexArray, e: int, direction: int) -> tuple[str, str]:
    """Return the labels (from, to) of edge e in a direction."""
    a, b = pairs[e] if direction == 0 else pairs[e][::-1]
    return labels[a], labels[b]


def _broken_claims(
    labels: tuple[str, ...],
    pairs: IndexArray,
    epsilons: FloatArray,
    events: Events,
    certified: float,
    edge_promise: FloatArray,
    scope: str,
) -> tuple[FloatArray, list[Discrepancy]]:
    """Return δ_lower (n_edges, D, E), and for every directed edge the gravest claim that it breaks.

    That is the certificate, of the first ε, or else the δ that the claimed laws have at one of the ε.
    """
    columns = [events.delta_lower(epsilons[:, j]) for j in range(epsilons.shape[1])]
    lower = np.stack([value for value, _ in columns], axis=2)
    over_certificate, excess = lower[:, :, 0] - certified, lower - edge_promise
    findings = []
    for e, d in np.argwhere((over_certificate > 0) | (excess > 0).any(axis=2)):
        worse = bool(over_certificate[e, d] > 0)
        j = 0 if worse else int(np.argmax(excess[e, d]))
        evidence = {
            "epsilon": float(epsilons[e, j]),
            "delta at least": float(lower[e, d, j]),
            "promised": certified if worse else float(edge_promise[e, d, j]),
            "holding": HOLDS[scope],
            **_event_evidence(events, int(e), int(d), int(columns[j][1][e, d])),
        }
        finding = Discrepancy("certificate" if worse else "edge", _edge_labels(labels, pairs, int(e), int(d)), evidence)
        findings.append((not worse, -float(over_certificate[e, d] if worse else excess[e, d, j]), finding))
    findings.sort(key=lambda item: item[:2])
    return lower, [finding for *_, finding in findings]


def _event_evidence(events: Events, e: int, d: int, at: int) -> dict[str, Any]:
    """Return what was counted: the attack, its threshold, and how often it was exceeded under either label."""
    attack, event = np.unravel_index(at, events.own.shape[2:])
    here = (e, d, attack, event)
    return {
        "attack": events.attacks[int(attack)],
        "score above": float(events.threshold[here]),
        "own": f"{events.own[here]} of {events.own_trials[here]}",
        "other": f"{events.other[here]} of {events.other_trials[here]}",
    }
