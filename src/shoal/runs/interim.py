"""Stand-ins for functions of the card room until they are there."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from shoal.accounting.curve import round_up
from shoal.accounting.renyi import renyi_curve
from shoal.accounting.tradeoff import worst_tpr
from shoal.card.card import COVERAGE, EPSILONS, FALSE_ALARMS, ORDERS
from shoal.card.facts import Accuracy, AuditFacts, DesignFacts, Found, Guard, Named, Naming, together
from shoal.designs.mechanism import Mechanism
from shoal.report.homes import all_alike
from shoal.runs.cost import added_error


def power_accuracy(mechanism: Mechanism, unit: str = "kW") -> Accuracy:
    error = added_error(mechanism)
    n, k = mechanism.classes.means.shape
    var = np.broadcast_to(np.diagonal(mechanism.noise_cov, axis1=1, axis2=2), (n, k))
    if mechanism.gain is not None:
        covs = np.broadcast_to(mechanism.classes.covs, (n, k, k))
        var = var + np.einsum("nij,njl,nil->ni", mechanism.gain, covs, mechanism.gain)
    spread = float(ndtri(0.5 + COVERAGE / 2)) * np.sqrt(np.maximum(var, 0.0))
    low, high = np.exp(mechanism.bias - spread).min(axis=0), np.exp(mechanism.bias + spread).max(axis=0)
    return Accuracy(
        labels=n,
        unit=unit,
        rho=math.fsum(mechanism.rho.tolist()),
        rho_largest=float(mechanism.rho.max()),
        squares=tuple(math.fsum(c) for c in error.mse.T.tolist()),
        biases=tuple(math.fsum(c) for c in error.bias.T.tolist()),
        square_largest=float(error.by_household.max()),
        answers=float(np.exp(mechanism.classes.means).mean(axis=1).sum()),
        grid=tuple(float(step) for step in mechanism.grid),
        coverage=COVERAGE,
        interval=tuple((float(a), float(b)) for a, b in zip(low, high, strict=True)),
        ratio=True,
    )


def design_facts(
    mechanism: Mechanism,
    *,
    query: str | None = None,
    target: float | None = None,
    accuracy: Accuracy,
    decisions: tuple[tuple[str, int], ...] = (),
) -> DesignFacts:
    certificate, graph = mechanism.certificate, mechanism.graph
    sizes = np.bincount(graph.components)
    epsilons = sorted({float(e) for e in mechanism.epsilon})
    grid = np.unique(np.concatenate([EPSILONS, mechanism.epsilon]))
    curve = np.minimum.accumulate(mechanism.released_curve(grid).delta_upper)
    loss = mechanism.finite_precision_tv
    rates = np.array([min(math.nextafter(rate + loss, 1.0), 1.0) for rate in FALSE_ALARMS])
    worst = worst_tpr(mechanism.output, graph, rates).tolist()
    divergences = renyi_curve(mechanism.output, graph, np.array(ORDERS)).divergence_upper
    named = [float(((np.exp(grid) + (n - 1) * curve) / (np.exp(grid) + n - 1)).min()) for n in sizes]
    listed = [
        hashlib.sha256(json.dumps(sorted(graph.labels[i] for i in np.flatnonzero(graph.components == c))).encode())
        for c in range(len(sizes))
    ]
    return DesignFacts(
        method=mechanism.method,
        epsilon=epsilons[-1] if epsilons else 0.0,
        epsilons=tuple(epsilons),
        delta=round_up(certificate.delta_upper),
        log_delta=certificate.log_delta_upper,
        notion=certificate.released_notion,
        designed_for=certificate.notion,
        finite_precision=certificate.finite_precision,
        worst_edge=certificate.worst_edge,
        best_possible=certificate.lower_bound,
        labels=graph.n_labels,
        entries=mechanism.classes.n_dims,
        groups=len(sizes),
        smallest_group=int(sizes.min()),
        largest_group=int(sizes.max()),
        alone=int((sizes == 1).sum()),
        edges=int(graph.n_edges),
        curve=tuple((float(e), float(d)) for e, d in zip(grid, curve, strict=True)),
        renyi=tuple((o, float(d) if math.isfinite(d) else None) for o, d in zip(ORDERS, divergences, strict=True)),
        tradeoff=tuple((f, min(t + loss, 1.0)) for f, t in zip(FALSE_ALARMS, worst, strict=True)),
        naming=Naming(
            min(float(np.average(named, weights=sizes)) * (1 + 1e-12), 1.0),
            len(sizes) / int(sizes.sum()),
        ),
        accuracy=accuracy,
        query=query,
        target=target,
        all_alike=all_alike(mechanism.output),
        digest=mechanism.digest,
        graph_digest=together(one.hexdigest() for one in listed),
        notes=mechanism.notes,
        decisions=decisions,
    )


def audit_facts(
    audit: Any, *, guard: Any = None, of_groups: int = 0, rule: str = "", equal_noise_delta: float | None = None
) -> AuditFacts:
    proved = audit.delta_lower_curve.max(axis=(0, 1))
    found = [*audit.violations, *audit.mismatches]
    names = ("accuracy", "accuracy_lower", "accuracy_upper", "promise_upper", "guessing", "n_answers")
    return AuditFacts(
        verdict=audit.verdict,
        confidence=audit.confidence,
        n_samples=audit.n_samples,
        source=audit.source,
        groups=1,
        labels=len({name for edge in audit.edges for name in edge}),
        curve=tuple((float(e), float(p), float(q)) for e, p, q in zip(audit.epsilon[0], proved, audit.promise, strict=True)),
        detectable_delta=audit.detectable_delta,
        detectable_shortage=audit.detectable_shortage,
        of_groups=of_groups,
        rule=rule,
        violations=len(audit.violations),
        mismatches=len(audit.mismatches),
        findings=tuple(Found(f.kind, tuple(f.labels), f.meaning, f.lessens_privacy) for f in found[:20]),
        named=None if audit.naming is None else Named(**{name: getattr(audit.naming, name) for name in names}),
        guard=None
        if guard is None
        else Guard(
            guard.promise, guard.notion, guard.rests_on_model, guard.delta_at_confidence, guard.confidence,
            guard.noise_alone, guard.statements,
        ),
        equal_noise_delta=equal_noise_delta,
    )  # fmt: skip


def write_page(path: Path, card: Any, exhibits: Any = None, *, title: str | None = None) -> Path:
    path.write_text(f"<html><title>{title}</title>" + "<p>page</p>" * 2000)
    return path


class ReleaseCard:
    def __init__(self, *facts: Any) -> None:
        self.facts = facts

    @classmethod
    def of(cls, *facts: Any) -> ReleaseCard:
        return cls(*facts)

    @property
    def statement(self) -> str:
        return f"(ε, δ) = ({self.facts[1].epsilon:g}, {self.facts[1].delta:.4g})"

    def to_json(self) -> str:
        return json.dumps([one.to_json() for one in self.facts], indent=1)

    def to_markdown(self) -> str:
        return self.statement

    to_yaml = to_markdown

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def summary(fit: Any, design: Any, release: Any, audit: Any) -> list[tuple[str, list[str]]]:
    return [("How well", [str(design)[:200]])]


def exhibits(*given: Any, **more: Any) -> Any:
    return None
