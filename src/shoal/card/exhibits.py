"""What the data owner's page shows beside the card: computed from the data, and accounted for nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from shoal.card.section import Plot

if TYPE_CHECKING:
    from shoal.card.facts import Accuracy, FitFacts
    from shoal.designs.design import Frontier
    from shoal.laws.graph import NeighborGraph
    from shoal.ledger.accounts import Account
    from shoal.ledger.verify import Verification
    from shoal.mechanism.mechanism import Mechanism


@dataclass(frozen=True, eq=False)
class Exhibits:
    """True answers beside released ones, other designs, pairs, accounts. Every part may be missing.

    ``mechanism`` is that of the labels shown. Of a large release that is one group, and ``scope`` says which, in words
    that follow "of": "the hardest of 40 groups".
    """

    mechanism: Mechanism | None = None
    alternatives: Mapping[str, Mechanism] = field(default_factory=dict)  #: designs of other methods at the same ρ
    frontier: Frontier | None = None
    price: tuple[Plot, ...] = ()  #: what hiding costs
    price_says: tuple[str, ...] = ()
    heading: str = "Released answers"  #: above the traces
    says: tuple[str, ...] = ()
    traces: tuple[Plot, ...] = ()  #: one plot per label
    later: tuple[tuple[str, tuple[float | None, ...]], ...] = ()  #: measured errors by entry: what of, root mean square
    verdicts: tuple[tuple[str, str], ...] = ()  #: label, whether its law holds
    accounts: tuple[Account, ...] = ()  #: the fullest
    n_accounts: int = 0  #: of how many
    verification: Verification | None = None
    timings: Mapping[str, float] = field(default_factory=dict)  #: stage -> seconds
    scope: str = ""


class AnswerSource(Protocol):
    """Where class laws come from, if it can describe itself and show its answers: :class:`shoal.Forecasts`."""

    def facts(self, graph: NeighborGraph) -> FitFacts:
        """Who has a law, who was left out, and which laws hold."""

    def accuracy(self, mechanism: Mechanism) -> Accuracy:
        """Errors in the unit in which answers are used."""

    def exhibits(self, mechanism: Mechanism, released: Any, truth: Any = None) -> Exhibits:
        """True and released answers, label by label."""
