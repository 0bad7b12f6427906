"""The fifth stage: the release card, from what the stages before it have told."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.card.card import ReleaseCard
from shoal.card.contents import gather
from shoal.card.facts import AuditFacts, DesignFacts, FitFacts, Record, ReleaseFacts
from shoal.card.page import page
from shoal.runs.context import Context, Made

SETTINGS = ("query",)
DOING = "writing the release card"
FILES = ("card.json", "card.md", "card.yaml")


@dataclass(frozen=True)
class CardFacts(Record):
    """Which card was written, and the guarantee it states."""

    digest: str
    statement: str


def rehearse(fit: FitFacts, design: DesignFacts, audit: AuditFacts | None) -> None:
    """Print everything that will be published, but for what the ledger adds: what cannot be is not to be charged."""
    nothing = ReleaseFacts(name="", labels=design.labels, ledger="", head="")
    card = ReleaseCard.of(fit, design, nothing, audit)
    for printed in (ReleaseCard.to_json, ReleaseCard.to_markdown, ReleaseCard.to_yaml):
        printed(card)
    page(gather(card))


def stage(context: Context, fit: FitFacts, design: DesignFacts, release: ReleaseFacts, audit: AuditFacts) -> Made:
    """Write the card for machines, for people and for the registry."""
    card = ReleaseCard.of(fit, design, release, audit)
    for name, text in zip(FILES, (card.to_json(), card.to_markdown(), card.to_yaml()), strict=True):
        context.folder.put(name, text)
    return Made(FILES, CardFacts(card.digest, card.statement))
