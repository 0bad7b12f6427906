"""What several tests of the card share."""

from __future__ import annotations

from typing import Any

import shoal
from shoal.laws.graph import NeighborGraph
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import FitFacts
from shoal.product.card.measures import design_facts, group_fields

#: A name that tries everything.
NASTY = "</script><img src=x onerror=\"document.title='caught'\">{{ 7*7 }}{% raw %}&amp;" + "wide" * 40


def fit_facts(graph: NeighborGraph, **given: Any) -> FitFacts:
    """Facts about labels of which nothing is known but who hides among whom."""
    return FitFacts(**{"source": "", "fitted_on_private_data": None, **group_fields(graph), **given})


def card_of(mechanism: shoal.Mechanism, query: str | None = None, **given: Any) -> ReleaseCard:
    """The card of a mechanism on its own, of which nothing was released."""
    return ReleaseCard(fit_facts(mechanism.graph, **given), design_facts(mechanism, query=query))
