"""The paper's household study on real homes: what it states beside what is found, for the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evidence.homes import EVERY
from evidence.paper.meters_study import MetersStudy, reproduce_meters
from evidence.paper.meters_text import stated_rows

#: Where the horizons begin; without one, twelve steps before the end of the file.
ORIGINS = {"swiss": None, "london": "2013-11-20T18:00"}


def compact(study: MetersStudy) -> dict[str, Any]:
    """What the page shows of a study: the stated figures in every reading, claims and truths, three homes' errors."""
    claims = []
    for budget in map(float, study.budgets):
        for query in ("as_in_paper", "as_released", "no_season", "no_season_released"):
            wanted = {"query": query, "convention": "per entry", "method": "paper", "budget": budget, "notion": "dp"}
            pair = {edges: study.lines.at(1.0, edges=edges, **wanted) for edges in ("worst", "median")}
            claims.append({"budget": budget, "query": query, **pair})
    return {
        "homes": study.n_households,
        "origin": study.origin.isoformat(timespec="minutes"),
        "clusters": list(study.cluster_sizes),
        "pairs": study.n_edges,
        "stated": stated_rows(study),
        "claims": claims,
        "errors": [home.to_dict() for home in study.homes],
        "perfect_rho_per_entry": study.perfect,
    }


def study(progress: Callable[[str, float], None] | None = None) -> dict[str, Any]:
    """The stated figures on every data set that is at hand, 100 homes of each."""

    def counted(text: str, done: int, total: int) -> None:
        if progress is not None:
            progress(text, done / total)

    return {
        name: compact(reproduce_meters(homes.read(), origin=ORIGINS[name], stated_only=True, progress=counted))
        for name, homes in EVERY.items()
        if homes.there
    }
