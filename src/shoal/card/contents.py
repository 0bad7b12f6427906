"""Everything a page shows, gathered into one frozen value of plain numbers and text.

Every figure that the release card has comes from the card. A public page is made from the card alone, less the names in
it: whatever else is at hand (answers, what came later, per-pair figures, other designs) is computed from the class laws
or is the data itself, and nobody has accounted for giving it out. Released answers stay out of it too, since shown
beside their labels they would tell whose they are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from shoal import __version__
from shoal.card import answers, evidence, privacy
from shoal.card.book_measures import METHOD as BOOK
from shoal.card.card import ReleaseCard
from shoal.card.exhibits import Exhibits
from shoal.card.section import Section
from shoal.card.tiles import Tile, limits, tiles

TITLE = "Release report"


@dataclass(frozen=True)
class Contents:
    """A page before it becomes HTML; ``to_dict`` is what the page carries as JSON."""

    title: str
    about: tuple[str, ...]  #: what the data are and from when
    public: bool
    meaningful: bool
    statement: str
    digests: tuple[tuple[str, str], ...]
    summary: tuple[Tile, ...]
    sections: tuple[Section, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        return asdict(self)


def gather(card: ReleaseCard, shown: Exhibits | None = None, title: str | None = None, made: str = "") -> Contents:
    """The contents of the data owner's page; without exhibits, of the public one. ``made`` is when it was released."""
    public = shown is None
    found: list[Section | None] = []
    if shown is not None and shown.price:
        found.append(Section("price", "What privacy costs", shown.price_says, shown.price))
    if shown is not None:
        found.append(answers.answers(card, shown))
    found.append(privacy.curves(card, shown))
    if shown is not None:
        found.append(privacy.frontier_section(card, shown))
        if card.design.method != BOOK:  # all pairs of a group are alike
            found.append(privacy.edges(shown, card.fit.noun))
    found += [
        answers.accuracy(card, shown),
        evidence.attack(card, shown),
        evidence.model(card, shown),
        evidence.ledger(card, shown),
        None if shown is None else evidence.timing(shown.timings),
        limits(card, public=public),
    ]
    return Contents(
        title=TITLE if title is None else str(title),
        about=(
            *([f"Data: {card.fit.source}."] if card.fit.source and not public else []),
            *card.fit.about,
            *([f"Released {made}."] if made else []),
        ),
        public=public,
        meaningful=card.meaningful,
        statement=card.statement,
        digests=(
            ("software", f"shoal {__version__}"),
            ("card", card.digest),
            *(() if public else (("mechanism", card.design.digest), ("graph", card.design.graph_digest))),
        ),
        summary=tiles(card, public=public),
        sections=tuple(section for section in found if section is not None),
    )
