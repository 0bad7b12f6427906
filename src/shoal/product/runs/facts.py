"""Facts of the stages of a run: what each wrote down, decoded once, when its folder is opened or it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from shoal.product.card.facts import AuditFacts, Course, DesignFacts, FitFacts, OwnAttack, ReleaseFacts
from shoal.records import Record


@dataclass(frozen=True)
class CrowdFacts(Record):
    """Crowds that were formed, beside the facts of the fit: the setting and period that are recorded, and the book."""

    fit: FitFacts
    setting: str
    period: str
    book: str  #: digest of what was on record about these labels
    columns: tuple[str, ...] = ()  #: of a table
    repeated: int = 0  #: rows that are repeated for lack of news
    recorded: int = 0  #: rows that were released before for this period


@dataclass(frozen=True)
class CardFacts(Record):
    """Which card was written, the statement on it, and what only this stage has measured."""

    digest: str
    statement: str
    attack: OwnAttack | None = None
    course: Course | None = None
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReportFacts(Record):
    """How many labels the page shows one by one, and whether the ledger is intact (None: too long to look)."""

    shown: int
    ledger_intact: bool | None


@dataclass(frozen=True)
class Facts:
    """The facts of every stage that is done, by its name; None where it is not."""

    fit: FitFacts | None = None
    crowds: CrowdFacts | None = None
    design: DesignFacts | None = None
    audit: AuditFacts | None = None
    release: ReleaseFacts | None = None
    card: CardFacts | None = None
    report: ReportFacts | None = None

    @property
    def known_fit(self) -> FitFacts:
        """Those of the first stage, which is done."""
        assert self.fit is not None
        return self.fit

    @property
    def plan(self) -> CrowdFacts:
        """Those of the stage of crowds, which is done."""
        assert self.crowds is not None
        return self.crowds

    @property
    def people(self) -> FitFacts | None:
        """Who is in it: of the first stage, with crowds where they are formed."""
        return self.fit if self.crowds is None else self.crowds.fit

    def has_failed(self, *stages: str) -> bool:
        """Whether shards were left out of one of these stages: "fit", "design" or "release"."""
        known = {"fit": self.people, "design": self.design, "release": self.release}
        return any(bool(facts.failed) for name in stages if (facts := known[name]) is not None)


RECORDS: dict[str, type[Record]] = {
    "fit": FitFacts, "crowds": CrowdFacts, "design": DesignFacts, "audit": AuditFacts, "release": ReleaseFacts,
    "card": CardFacts, "report": ReportFacts,
}  # fmt: skip
#: Stages of a run, in order.
STAGES = tuple(field.name for field in fields(Facts))


def decode_facts(stage: str, content: Mapping[str, Any]) -> Record:
    """The facts of a stage, from what the folder has of them."""
    return RECORDS[stage].from_json(content)
