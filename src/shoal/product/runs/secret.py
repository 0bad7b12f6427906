"""Settings of a run under the readings' promise: everything is declared, nothing is inferred from the file.

Each home's curve must be a function of its own readings and public settings alone. Here every place where another
home's readings could enter is closed, or the setting is demanded (docs/which-secret.md has the list).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError

if TYPE_CHECKING:
    from shoal.product.runs.config import Config
    from shoal.product.runs.meter_rows import Grid
    from shoal.product.sources.meters.declaration import Declared
    from shoal.readings.publication import Series

READINGS = "readings"
#: Settings that belong to the readings' promise.
OF_READINGS = ("customers", "budget_epsilon", "releases", "bounds", "cells", "typical_kw")
#: What a release depends on.
SETTINGS = ("secret", *OF_READINGS, "epsilon", "delta")


def bounds_of(config: Config) -> dict[str, tuple[float, float]]:
    """Column -> its declared ends."""
    wrong = "bounds must look like column=low:high, with the low end below the high one, such as bounds='age=0:100'"
    ends = _numbers(config.bounds, ":", wrong)
    if any(len(pair) != 2 for pair in ends.values()):
        raise InputError(wrong)
    return {name: (low, high) for name, (low, high) in ends.items()}


def cells_of(config: Config) -> dict[str, list[float]]:
    """Column -> the declared edges between its cells."""
    return _numbers(config.cells, ",", "cells must look like column=edges, increasing, such as cells='age=30,60'")


def _numbers(texts: Sequence[str], between: str, wrong: str) -> dict[str, list[float]]:
    """Column -> increasing numbers, from texts such as age=30,60."""
    columns: dict[str, list[float]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            columns[name] = [float(number) for number in numbers.split(between)]
        except ValueError:
            name = ""
        if not name or columns[name] != sorted(set(columns[name])):
            raise InputError(wrong)
    return columns


def make_plan(config: Config) -> tuple[Any, Series]:
    """The plan and its series, from the settings alone."""
    from functools import partial

    from shoal.readings.plan import noisy_crowds_plan
    from shoal.readings.publication import series_plan
    from shoal.readings.tables import noisy_table_plan

    make: Any
    if config.label is None:
        assert config.typical_kw is not None
        make = partial(noisy_crowds_plan, typical_kw=config.typical_kw)
    else:
        make = partial(noisy_table_plan, bounds=bounds_of(config), cells=cells_of(config))
    assert config.customers is not None
    return series_plan(
        config.customers,
        epsilon=config.epsilon,
        delta=config.delta,
        budget_epsilon=config.budget_epsilon,
        releases=config.releases,
        make=make,
    )


def price(config: Config, mean_kw: float | None) -> str:
    """What the noise is beside the homes' own mean load, for the owner alone; nothing where that is not known."""
    from shoal.rounding import percent

    if config.label is not None or mean_kw is None or not 0 < mean_kw < inf:
        return ""
    plan, _ = make_plan(config)
    off = plan.expected_total * plan.typical_kw / mean_kw
    beyond = " More than it: declare another typical_kw= before you spend the budget." if off > 1 else ""
    return (
        f"These homes use {mean_kw:.2g} kW on average, and typical_kw={plan.typical_kw:g} was declared. Compared "
        "with their "
        f"own load the noise puts the total off by about {percent(off)}, if all {plan.customers} customers are in it."
        f"{beyond} This figure is only for you."
    )


# ------------------------------------------------------------------ meter files


def declared_of(config: Config) -> Declared:
    """What is declared about meter files; refuses what is lacking."""
    from shoal.product.sources.meters import clock
    from shoal.product.sources.meters.declaration import Declared

    needed = {"unit": "the unit of the readings (unit='kw')", "interval": "the minutes between them (interval=15)"}
    missing = [name for name in needed if getattr(config, name) is None]
    if missing:
        raise InputError(f"{missing[0]}: secret='readings' needs {' and '.join(needed[name] for name in missing)}")
    try:
        instants = datetime.fromisoformat(str(config.origin)).tzinfo is not None
    except ValueError:
        instants = clock.instant(str(config.origin), None, name="origin").tzinfo is not None  # says what is wrong
    if instants and config.time_zone is None:
        raise InputError(
            "time_zone: the timestamps have an offset; name the zone of the homes' clocks, such as Europe/Zurich"
        )
    return Declared(
        str(config.unit), instants, config.named_columns, config.timestamp_format, config.time_zone, config.encoding
    )


def declared_grid(config: Config, *, energy: bool) -> Grid:
    """The grid that the origin lies on, with the declared interval; nothing is taken from readings."""
    from shoal.product.runs.meter_rows import MICROSECOND, Grid
    from shoal.product.sources.meters import clock
    from shoal.product.sources.meters.columns import named_meter
    from shoal.product.sources.meters.quality import decided

    width = clock.step(config.interval)
    assert width is not None
    step = width // MICROSECOND
    origin = clock.instant(str(config.origin), config.time_zone, name="origin")
    naive = origin if origin.tzinfo is None else origin.astimezone(UTC).replace(tzinfo=None)
    at = (naive - datetime(1970, 1, 1)) // MICROSECOND
    return Grid(step, at % step, decided(0, 0, energy=energy, meter=named_meter(config.unit) or "interval"))
