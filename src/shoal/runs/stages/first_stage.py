"""Which first stage a source has: everything after it is the same for all of them."""

from __future__ import annotations

from shoal.runs.context import SHARDS, Context, Made
from shoal.runs.sources import Source
from shoal.runs.stages import fit_stage, table_stage
from shoal.runs.store import sweep


def stage(context: Context) -> Made:
    """Class laws in shards of whole crowds, from meters or from a class table."""
    for folder in (context.home / SHARDS, context.home):  # nobody works in them yet
        sweep(folder)
    return table_stage.stage(context) if context.source.table else fit_stage.stage(context)


def settings(source: Source) -> tuple[str, ...]:
    """Settings that the stage depends on."""
    return table_stage.SETTINGS if source.table else fit_stage.SETTINGS


def daily(source: Source) -> tuple[str, ...]:
    """Those of them that may differ from one release to the next."""
    return table_stage.DAILY if source.table else fit_stage.DAILY


def doing(source: Source) -> str:
    """What the stage is doing, in words."""
    return "reading the table" if source.table else "reading meters"
