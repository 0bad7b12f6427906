"""The stages of a run as a table: what each is called while it works, rests on, depends on, and what does it.

| run | stages |
| --- | --- |
| means of crowds, the default | fit, crowds, release, card, report |
| a method, under an ε | fit, crowds, design, audit, release, card, report |
| the secret readings | fit, release, card, report |

They are done in this order: nothing is charged before all that can fail has been seen to work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shoal.runs import secret
from shoal.runs.config import Config
from shoal.runs.context import Made
from shoal.runs.stages import (
    card_stage,
    crowd_stage,
    design_stage,
    fit_stage,
    readings_stage,
    release_stage,
    report_stage,
    table_stage,
)
from shoal.runs.stages.crowd_stage import CrowdFacts

if TYPE_CHECKING:
    from shoal.runs.results import Results


@dataclass(frozen=True)
class Stage:
    """One stage: words for its progress, the stages it rests on, settings that its result depends on, its function."""

    doing: str
    needs: tuple[str, ...]
    settings: tuple[str, ...]
    work: Callable[[Results], Made]


METERS = Stage("reading meters", (), fit_stage.SETTINGS, lambda run: fit_stage.stage(run))
TABLE = Stage(table_stage.DOING, (), table_stage.SETTINGS, lambda run: table_stage.stage(run))
NOISY_TABLE = Stage(
    TABLE.doing,
    (),
    (*TABLE.settings, "secret", "bounds", "cells"),
    lambda run: readings_stage.read_table(run),
)
CROWDS = Stage(
    crowd_stage.DOING,
    ("fit",),
    crowd_stage.SETTINGS,
    lambda run: crowd_stage.stage(run, run.known_fit),
)
DESIGN = Stage(design_stage.DOING, ("crowds",), design_stage.SETTINGS, lambda run: design_stage.stage(run))
AUDIT = Stage(
    design_stage.ATTACKING, ("design",), design_stage.AUDIT_SETTINGS, lambda run: design_stage.audit_stage(run)
)
MEANS = Stage(
    release_stage.RECORDING, ("crowds",), release_stage.SETTINGS, lambda run: release_stage.means(run, run.plan)
)
DRAWN = Stage(
    release_stage.DRAWING,
    ("crowds", "design"),
    release_stage.SETTINGS,
    lambda run: release_stage.method(run, run.plan),
)
NOISY = Stage(
    readings_stage.DOING,
    ("fit",),
    readings_stage.SETTINGS,
    lambda run: readings_stage.stage(run, run.known_fit),
)
CARD = Stage(
    card_stage.DOING,
    ("release",),
    card_stage.SETTINGS,
    lambda run: card_stage.stage(run, run.card, run.facts("crowds", CrowdFacts)),
)
REPORT = Stage(
    report_stage.DOING,
    ("card",),
    report_stage.SETTINGS,
    lambda run: report_stage.stage(
        run, run.card, run.facts("crowds", CrowdFacts), run.handing, run.timings, run.released_on
    ),
)


def pipeline(config: Config, *, table: bool, charged: bool) -> dict[str, Stage]:
    """The stages of a run by name, in order; ``charged`` is whether a method releases under an ε."""
    if config.secret == secret.READINGS:
        return {
            "fit": NOISY_TABLE if table else METERS,
            "release": NOISY,
            "card": CARD,
            "report": REPORT,
        }
    first = {"fit": TABLE if table else METERS, "crowds": CROWDS}
    if not charged:
        return {**first, "release": MEANS, "card": CARD, "report": REPORT}
    audited = replace(CARD, needs=("audit", "release"))
    return {**first, "design": DESIGN, "audit": AUDIT, "release": DRAWN, "card": audited, "report": REPORT}
