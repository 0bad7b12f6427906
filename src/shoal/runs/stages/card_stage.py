"""The fifth stage: the release card, from what the stages before it have told."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.card.card import ReleaseCard
from shoal.card.facts import AuditFacts, DesignFacts, FitFacts, Record, ReleaseFacts
from shoal.runs.context import Context, Made

SETTINGS = ("query",)
FILES = ("card.json", "card.md", "card.yaml")


@dataclass(frozen=True)
class CardFacts(Record):
    """Which card was written, and the guarantee it states."""

    digest: str
    statement: str


def stage(context: Context, fit: FitFacts, design: DesignFacts, release: ReleaseFacts, audit: AuditFacts) -> Made:
    """Write the card for machines, for people and for the registry."""
    card = ReleaseCard.of(fit, design, release, audit)
    for name, text in zip(FILES, (card.to_json(), card.to_markdown(), card.to_yaml()), strict=True):
        context.folder.put(name, text)
    return Made(FILES, CardFacts(card.digest, card.statement))
