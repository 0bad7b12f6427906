"""Results of audits: figures on the safe side, evidence, and a table to read (``records.plain`` makes them JSON)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from shoal.rounding import exactly, lower, upper
from shoal.validation import FloatArray

#: What an attacker holds, in words.
HOLDS = {"answer": "one row", "table": "the whole table"}
#: Kind of finding -> what it means. All lessen privacy.
MEANINGS = {
    "accounting": "the certificate states less than the exact accounting of its own released laws",
    "scope": "the certificate is about one row, and someone who holds the whole table learns more than it states",
    "certificate": "an attack does better than the certificate allows",
    "edge": "an attack does better than the claimed laws of these two labels allow",
    "identification": "the label is named more often than promised",
    "matching": "matching the rows of a table to labels names more of them than promised",
    "too little spread": "released answers vary less than claimed",
    "dependence": "released answers that should be independent are correlated: noise was reused",
}


@dataclass(frozen=True)
class Discrepancy:
    """``kind`` is a key of :data:`MEANINGS`; ``labels`` whom it concerns (from, to, or all: empty)."""

    kind: str
    labels: tuple[str, ...]
    evidence: Mapping[str, Any]

    @property
    def meaning(self) -> str:
        """What the finding means, in a sentence."""
        return MEANINGS[self.kind]

    def __str__(self) -> str:
        arrow = " ↔ " if self.evidence.get("holding") == HOLDS["table"] else " → "
        whom = arrow.join(self.labels) if self.labels else "all labels"
        facts = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in self.evidence.items())
        return f"{self.kind} ({whom}): {self.meaning}; {facts}"


#: Findings and edges that a printed summary shows.
SHOWN = 5


@dataclass(frozen=True)
class Naming:
    """Share of released answers whose label an attacker names, beside what is promised.

    ``attack`` says how: from ``"one row"``, or from a whole table by ``"matching"`` or by ``"marginals"``.
    """

    attack: str
    accuracy: float
    accuracy_lower: float
    accuracy_upper: float
    promise: float
    promise_upper: float
    guessing: float
    n_answers: int

    @property
    def violations(self) -> list[Discrepancy]:
        """The finding that more was named than promised, where that is so."""
        if self.accuracy_lower <= self.promise_upper:
            return []
        evidence = {"attack": self.attack, "named at least": self.accuracy_lower, "promised": self.promise_upper}
        kind = "matching" if self.attack == "matching" else "identification"
        return [Discrepancy(kind, (), evidence | {"answers": self.n_answers})]


@dataclass(frozen=True, eq=False)
class Audit:
    """Result of :func:`shoal.audit`.

    ``scope`` is what the attackers held, one ``"answer"`` (a row) or the whole ``"table"``; ``promised_scope`` what the
    certificate speaks of. ``edges`` are those looked at, of ``n_edges`` in all. ``delta_lower_curve`` and
    ``edge_promise`` are (edges, D, E): the proved lower bound and the δ that the claimed laws have in ``scope``, of an
    edge, direction and ε (``epsilon``, (edges, E), the design's first). D is 2 for an answer (0: as in ``edges``; 1:
    reversed) and 1 for a table, where exchanging two rows looks the same from both sides. ``promise`` is the
    certificate's δ, for every edge; ``epsilon_lower`` (edges, D) the ε proved to be needed at it. ``namings`` are the
    attacks that name labels. ``violations`` are claims found broken.
    """

    verdict: str
    scope: str
    promised_scope: str
    violations: tuple[Discrepancy, ...]
    confidence: float
    n_samples: int
    source: str
    edges: tuple[tuple[str, str], ...]
    n_edges: int
    epsilon: FloatArray
    delta_lower_curve: FloatArray
    edge_promise: FloatArray
    promise: float
    epsilon_lower: FloatArray
    notion: str
    detectable_delta: float
    namings: tuple[Naming, ...]

    @property
    def delta_lower(self) -> FloatArray:
        """Lower bounds on δ at the design's ε, (edges, D)."""
        return np.asarray(self.delta_lower_curve[:, :, 0])

    @property
    def naming(self) -> Naming | None:
        """The attack that named most; None where there are too many labels for the answers."""
        return max(self.namings, key=lambda one: one.accuracy, default=None)

    def __repr__(self) -> str:
        return (
            f"Audit({self.verdict}, {HOLDS[self.scope]}: δ ≥ {lower(self.delta_lower.max())} proved, "
            f"δ ≤ {upper(self.promise)} promised, {self.n_samples} answers per label)"
        )

    def __str__(self) -> str:
        unseen = "no violation of δ (the promise is too weak to break)"
        seen = unseen if self.detectable_delta >= 1.0 else f"a true δ of {upper(self.detectable_delta)}"
        lines = [
            f"audit: {self.verdict}, at confidence {exactly(self.confidence)}, "
            f"{self.n_samples} released answers per label ({self.source})",
            f"attackers hold {HOLDS[self.scope]}; the promise is about someone who holds {HOLDS[self.promised_scope]}",
            f"promised: δ ≤ {upper(self.promise)} ({self.notion}) at the design's ε",
            f"proved:   δ ≥ {lower(float(self.delta_lower.max()))}, "
            f"ε ≥ {lower(float(self.epsilon_lower.max()))} at the promised δ",
            f"would have seen: {seen}; less may pass unseen",
        ]
        order = np.argsort(-self.delta_lower, axis=None, kind="stable")[:SHOWN]
        arrow = "→" if self.scope == "answer" else "↔"
        heading = "from → to" if self.scope == "answer" else "exchanged"
        lines.append(f"{heading:<24}{'ε':>8}{'δ proved':>12}{'δ claimed':>12}{'ε proved':>12}")
        for flat in order:
            e, d = np.unravel_index(int(flat), self.delta_lower.shape)
            a, b = self.edges[e] if d == 0 else self.edges[e][::-1]
            lines.append(
                f"{f'{a} {arrow} {b}':<24}{exactly(self.epsilon[e, 0]):>8}{lower(float(self.delta_lower[e, d])):>12}"
                f"{upper(float(self.edge_promise[e, d, 0])):>12}"
                f"{lower(float(self.epsilon_lower[e, d])):>12}"
            )
        for one in self.namings:
            lines.append(
                f"naming labels ({one.attack}): right in {one.accuracy:.3g} of {one.n_answers} answers "
                f"[{lower(one.accuracy_lower, 3)}, {upper(one.accuracy_upper, 3)}], promised at most "
                f"{upper(one.promise_upper, 3)}, guessing {one.guessing:.3g}"
            )
        lines += [f"violated: {finding}" for finding in self.violations[:SHOWN]]
        if len(self.violations) > SHOWN:
            lines.append(f"violated: and {len(self.violations) - SHOWN} more")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the summary as HTML, for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"
