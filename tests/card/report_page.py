"""The page of a release from its parts, as a run puts them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import shoal
from shoal.card.answers import plain_exhibits
from shoal.card.page import write_page


def write_report(
    path: Path,
    *,
    mechanism: shoal.Mechanism,
    graph: shoal.NeighborGraph,
    card: shoal.ReleaseCard,
    released: Any,
    forecasts: Any = None,
    truth: Any = None,
    alternatives: Mapping[str, shoal.Mechanism] | None = None,
    frontier: Any = None,
    spent: Any = None,
    verification: Any = None,
    timings: Mapping[str, float] | None = None,
    title: str | None = None,
    public: bool = False,
) -> Path:
    """Write the owner's page, or the public one, which is made from the card alone."""
    if public:
        return write_page(path, card, title=title)
    if forecasts is None:
        shown = plain_exhibits(mechanism, released, card.fit.noun)
    else:
        shown = forecasts.exhibits(mechanism, released, truth)
    accounts = () if spent is None else tuple(spent)
    shown = replace(
        shown,
        alternatives=alternatives or {},
        frontier=frontier,
        accounts=accounts,
        n_accounts=len(accounts),
        verification=verification,
        timings=timings or {},
    )
    return write_page(path, card, shown, title=title)
