"""One thing an audit found, with the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: What an attacker holds, in words.
HOLDS = {"answer": "one row", "table": "the whole table"}
#: Kind of finding -> what it means. All but the last group lessen privacy.
MEANINGS = {
    "accounting": "the certificate states less than the exact accounting of its own released laws",
    "scope": "the certificate speaks of one row, and whoever holds the whole table learns more than it states",
    "certificate": "an attack does better than the certificate allows",
    "curve": "an attack does better than the claimed curve allows",
    "edge": "an attack does better than the claimed laws of these two labels allow",
    "replay": "an attack on repeated releases does better than the claimed laws allow",
    "identification": "the label is named more often than promised",
    "matching": "matching the rows of a table to labels names more of them than promised",
    "too little spread": "released answers vary less than claimed",
    "gap": "released answers of two neighbors lie further apart than claimed",
    "spread ratio": "released answers of two neighbors differ more in their spread than claimed",
    "dependence": "released answers that should be independent are correlated: noise was reused",
    # Not a loss of privacy by themselves.
    "too much spread": "released answers vary more than claimed: the accuracy stated is not the accuracy had",
    "mean": "the mean of the released answers is not the one claimed",
    "support": "released answers vary where the claim says that they are constant",
    "shape": "released answers are not distributed as claimed",
}
HARMLESS = ("too much spread", "mean", "support", "shape")


@dataclass(frozen=True)
class Finding:
    """``kind`` is a key of :data:`MEANINGS`; ``labels`` whom it concerns (from, to, or all: empty)."""

    kind: str
    labels: tuple[str, ...]
    evidence: Mapping[str, Any]

    @property
    def meaning(self) -> str:
        return MEANINGS[self.kind]

    @property
    def lessens_privacy(self) -> bool:
        return self.kind not in HARMLESS

    def __str__(self) -> str:
        arrow = " ↔ " if self.evidence.get("holding") == HOLDS["table"] else " → "
        whom = arrow.join(self.labels) if self.labels else "all labels"
        facts = ", ".join(f"{name} {_shown(value)}" for name, value in self.evidence.items())
        return f"{self.kind} ({whom}): {self.meaning}; {facts}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "labels": list(self.labels),
            "meaning": self.meaning,
            "lessens_privacy": self.lessens_privacy,
            "evidence": dict(self.evidence),
        }


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
