"""Everything a report shows, gathered into one frozen value of plain numbers and text.

Every figure that the release card has comes from the card. A public report is made from the card alone, less the names
in it: whatever else is at hand (forecasts, readings, per-pair figures, other designs) is computed from the class laws
or is the data itself, and nobody has accounted for giving it out. Released answers stay out of it too, since shown
beside their labels they would tell whose they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import validation
from shoal.designs.design import Frontier
from shoal.errors import InputError
from shoal.graph import NeighborGraph
from shoal.mechanism import Mechanism
from shoal.report import evidence, homes, privacy, words
from shoal.report.section import Section
from shoal.report.words import Tile
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.meters.forecast import Forecasts

TITLE = "Release report"
#: Parts of a card that the report reads.
PARTS = (
    "software", "mechanism", "guarantee", "graph", "query", "curve", "tradeoff", "identification", "accuracy", "model",
)  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """A report before it becomes a page; ``to_dict`` is what the page carries as JSON."""

    title: str
    public: bool
    meaningful: bool
    statement: str
    digests: tuple[tuple[str, str], ...]
    summary: tuple[Tile, ...]
    sections: tuple[Section, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        return asdict(self)


def gather(
    *,
    mechanism: Mechanism,
    graph: NeighborGraph,
    card: Any,
    released: Any,
    forecasts: Forecasts | None = None,
    truth: Any = None,
    alternatives: Mapping[str, Mechanism] | None = None,
    frontier: Frontier | None = None,
    audit: Any = None,
    guard: Any = None,
    spent: Any = None,
    verification: Any = None,
    timings: Mapping[str, float] | None = None,
    title: str | None = None,
    public: bool = False,
) -> Contents:
    """The contents of a report; arguments as in :func:`shoal.write_report`."""
    facts = _facts(card, mechanism)
    answers = _like(mechanism, released=released)
    later = None if truth is None else _later(mechanism, truth)
    if forecasts is not None and tuple(forecasts.households) != mechanism.classes.labels:
        raise InputError("forecasts must be of the mechanism's labels, in the same order")
    if truth is not None and forecasts is None:
        raise InputError("truth is compared with forecasts: give forecasts as well")
    attacks = None if audit is None else dict(audit if isinstance(audit, Mapping) else audit.to_dict())
    if facts.get("audit") is None and audit is not None:
        raise InputError("card has no audit: make it with release_card(..., audit=audit), so that both say the same")
    if facts["model"]["guard"] is None and guard is not None:
        raise InputError("card has no guard: make it with release_card(..., guard=guard), so that both say the same")

    if public:
        facts = _nameless(facts)
        found: list[Section | None] = [
            privacy.curves(facts, None, public=True),
            homes.accuracy(facts, None, None, None),
            evidence.attack(facts, None),
            evidence.model(facts, None),
            evidence.ledger(facts, None, None),
        ]
    else:
        found = [
            privacy.curves(facts, alternatives, public=False),
            privacy.frontier_section(facts, frontier),
            privacy.edges(mechanism, graph, facts),
            homes.homes(mechanism, facts, answers, forecasts, later),
            homes.accuracy(facts, answers, forecasts, later),
            evidence.attack(facts, attacks),
            evidence.model(facts, None if forecasts is None else forecasts.checks),
            evidence.ledger(facts, spent, verification),
            evidence.timing(timings),
        ]
    found.append(words.limits(facts, public=public))
    return Contents(
        title=TITLE if title is None else str(title),
        public=public,
        meaningful=bool(facts["guarantee"]["meaningful"]),
        statement=str(facts["guarantee"]["statement"]),
        digests=_digests(facts),
        summary=words.summary(facts, public=public),
        sections=tuple(section for section in found if section is not None),
    )


def _facts(card: Any, mechanism: Mechanism) -> dict[str, Any]:
    """The card as a dictionary, checked to be a card of this mechanism."""
    if isinstance(card, Mapping):
        facts = dict(card)
    elif hasattr(card, "to_dict"):
        facts = dict(card.to_dict())
    else:
        raise InputError("card must be what shoal.release_card returns, or its dictionary")
    missing = [part for part in PARTS if part not in facts]
    if missing:
        raise InputError(f"card lacks {', '.join(missing)}: make it with shoal.release_card")
    stated = facts["mechanism"].get("digest")
    own = getattr(mechanism, "digest", None)
    if (stated and own and stated != own) or facts["mechanism"]["method"] != mechanism.method:
        raise InputError("card is of another mechanism: make it with shoal.release_card(mechanism, ...)")
    if len(facts["accuracy"]["rmse_by_step"]) != mechanism.classes.n_dims:
        raise InputError("card is of another mechanism: its answers have another number of entries")
    return facts


def _nameless(facts: dict[str, Any]) -> dict[str, Any]:
    """The card without the names of labels."""
    guarantee = {key: value for key, value in facts["guarantee"].items() if key != "worst_edge"}
    model = dict(facts["model"])
    if model["guard"] is not None:
        model["guard"] = {key: value for key, value in model["guard"].items() if key != "worst_edges"}
    return {**facts, "guarantee": guarantee, "model": model}


def _digests(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    software = facts["software"]
    rows = [("software", f"{software['name']} {software['version']}")]
    for name, value in (
        ("card", facts.get("digest")),
        ("mechanism", facts["mechanism"].get("digest")),
        ("graph", facts["graph"].get("digest")),
    ):
        if value:
            rows.append((name, str(value)))
    return tuple(rows)


def _like(mechanism: Mechanism, **named: Any) -> FloatArray:
    ((name, value),) = named.items()
    values = validation.array(ndim=2, **{name: value})
    if values.shape != mechanism.classes.means.shape:
        raise InputError(
            f"{name} must have shape {mechanism.classes.means.shape}: one row per label, in the mechanism's order"
        )
    return values


def _later(mechanism: Mechanism, truth: Any) -> FloatArray:
    """Later readings; NaN where there is none."""
    values = np.array(truth, dtype=np.float64)
    _like(mechanism, truth=np.where(np.isnan(values), 0.0, values))
    return values
