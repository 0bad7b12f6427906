"""Registers: meters that show a total, whose differences are the energy of intervals.

A household's values are like those of a register where rises outnumber falls :data:`RATIO` to one, of at least
:data:`LEAST` changes: a reading of an interval falls about as often as it rises. Where most households that can be
judged are like that, all are taken for registers.

The energy between two totals belongs to the interval that begins at the first. Where a total is missing, or falls (the
meter was replaced, or began again at zero), what lies between is unknown, and the interval is missing. A household
whose totals fall more often than once in :data:`RATIO` readings is no register and is left out.
"""

from __future__ import annotations

import polars as pl

from shoal import validation
from shoal.errors import InputError

RATIO = 20
LEAST = 20

#: What is added to the reason of a unit.
REGISTER = ", and they only rise, so that they are totals of a register and differences are taken"
RISING_POWER = (
    "unit: the readings only rise, like the totals of a register, and are said to be power; pass unit='kwh' (or 'wh') "
    "for the totals of a register, or meter='interval' if they are power all the same"
)


def rising(rows: pl.DataFrame) -> tuple[int, int]:
    """Of the households in rows of household, timestamp and kw: how many only rise, and how many can be judged."""
    usable = pl.col("kw").is_finite() & pl.col("timestamp").is_not_null()
    change = pl.col("kw").sort_by("timestamp").diff()
    counted = (
        rows.lazy()
        .filter(usable)
        .group_by("household")
        .agg(rises=(change > 0).sum().cast(pl.Int64), falls=(change < 0).sum().cast(pl.Int64))
        .select(
            like=((pl.col("rises") >= LEAST) & (pl.col("rises") >= RATIO * pl.col("falls"))).sum(),
            judged=(pl.col("rises") + pl.col("falls") >= LEAST).sum(),
        )
        .collect()
    )
    return int(counted["like"].item()), int(counted["judged"].item())


def decided(like: int, judged: int, *, energy: bool, meter: str | None) -> bool:
    """Whether readings are totals: as the caller says, or as most households look."""
    if meter is not None:
        if validation.choice(("register", "interval"), meter=meter) == "register" and not energy:
            raise InputError("unit: the total of a register is energy; pass unit='kwh' (or 'wh', 'mwh')")
        return meter == "register"
    found = judged > 0 and 2 * like > judged
    if found and not energy:
        raise InputError(RISING_POWER)
    return found


def differences(totals: pl.DataFrame) -> pl.DataFrame:
    """Totals by household and slot, sorted, as energy of the interval that begins there; ``falls`` marks falls."""
    after = pl.col("slot").shift(-1).over("household") == pl.col("slot") + 1
    change = pl.when(after).then(pl.col("kw").shift(-1).over("household") - pl.col("kw"))
    return (
        totals.with_columns(change=change)
        .with_columns(kw=pl.when(pl.col("change") >= 0).then("change"), falls=(pl.col("change") < 0).fill_null(False))
        .drop("change")
    )
