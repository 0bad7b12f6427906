"""The release card, from what the stages before it have told."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.card.aggregate import AggregateCard
from shoal.card.card import ReleaseCard
from shoal.card.contents import gather
from shoal.card.facts import AuditFacts, DesignFacts, FitFacts, Record, ReleaseFacts
from shoal.card.page import page
from shoal.card.readings import ReadingsCard
from shoal.runs.context import Context, Made

SETTINGS = ("query",)
DOING = "writing the release card"


@dataclass(frozen=True)
class CardFacts(Record):
    """Which card was written, and the statement on it."""

    digest: str
    statement: str


def rehearse(fit: FitFacts, design: DesignFacts, audit: AuditFacts | None) -> None:
    """Print everything that will be published, but for what the ledger adds: what cannot be is not to be charged."""
    nothing = ReleaseFacts(name="", labels=design.labels, ledger="", head="")
    card = ReleaseCard.of(fit, design, nothing, audit)
    for printed in (ReleaseCard.to_json, ReleaseCard.to_markdown, ReleaseCard.to_yaml):
        printed(card)
    page(gather(card))


def stage(context: Context, card: ReleaseCard | AggregateCard | ReadingsCard) -> Made:
    """Write the card for machines and for people, and where something is certified for the registry."""
    texts = {"card.json": card.to_json(), "card.md": card.to_markdown()}
    if isinstance(card, ReleaseCard):
        texts["card.yaml"] = card.to_yaml()
    for name, text in texts.items():
        context.folder.put(name, text)
    return Made(tuple(texts), CardFacts(card.digest, card.statement))
