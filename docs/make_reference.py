"""Write docs/reference.md from the docstrings of the public names: python docs/make_reference.py."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import shoal

PAGE = Path(__file__).with_name("reference.md")
HEAD = """# Reference

Every public name with the first words of its docstring; `help(shoal.name)` has the rest: arguments, formulas, sources.
Made by `python docs/make_reference.py`; a test checks that it is up to date. Commands have [their own page](cli.md).

## By task

| to do | call |
|---|---|
| describe the laws and the neighbors | `GaussianClasses`, `NeighborGraph` |
| account exactly, compose releases | `privacy_curve`, `edge_deltas`, `epsilon_at`, `renyi_curve` |
| judge the risk | `identification_risk` |
| choose who hides among whom | `crowd_graph`, `NeighborGraph.groups` |
| choose a mechanism | `design`, `calibrate`, `frontier`, `perfect_rho`; for constants `codebook` |
| release an answer | `Mechanism.release` (cryptographic noise, exact arithmetic), `Mechanism.released_curve` |
| meter files to laws | `read_meters`, `forecast`, `Forecasts.classes`, `update_forecasts`, `simulate_meters` |
| release within budgets, on record | `Ledger.open`, `.budget`, `.release`, `.spent`, `.verify` |
| the same at scale | `Ledger.charge` |
| budgets for who chooses along the way | `Ledger.budget(mode="adaptive")` |
| any table with labels | `GaussianClasses.fit`, `.checks`, `LabelHider` |
| prove it | `prove`: ball arithmetic on the stored parameters, and a checker of one file |
| check the claim, describe it | `audit`, `model_guard`, `Run.card` |
| compare methods on your data | `compare` |
| test any mechanism, decide any claim | `testing.check_mechanism`, `testing.check_claim` |
| what a file reveals: the three questions | `attack_meters`, `attack_table`, `attack_run`, `find_published` |
| protect the readings themselves | `noisy_crowds_plan`, `noisy_crowds`, `population_error` |
| let others ask | the command `shoal serve` |
| deterministic queries | `sensitivity`, `analytic_sigma` |
| all of it, on a folder | `Run`, or the command `shoal` |
"""


def page() -> str:
    """The whole page: one table per room of ARCHITECTURE.md."""
    rooms: dict[str, list[str]] = {}
    for name, home in shoal._HOME.items():
        rooms.setdefault(home.split(".")[1], []).append(name)
    parts = [HEAD]
    for room, names in sorted(rooms.items()):
        rows = [f"| `{name}` | {first_words(getattr(shoal, name))} |" for name in sorted(names)]
        parts.append("\n".join([f"## {room}\n", "| name | what it is |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def first_words(thing: object) -> str:
    """The first paragraph of a docstring on one line, names as code."""
    words = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.sub(r":\w+:`", "`", words).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
