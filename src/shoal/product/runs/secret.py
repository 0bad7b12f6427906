"""Settings of a run under the readings' promise: everything is declared, nothing is inferred from the file.

Each home's curve must be a function of its own readings and public settings alone. Here every place where another
home's readings could enter is closed, or the setting is demanded (docs/which-secret.md has the list).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError

if TYPE_CHECKING:
    from shoal.product.runs.config import Config
    from shoal.product.runs.meter_rows import Grid
    from shoal.product.sources.meters.readings import Opened
    from shoal.readings.publication import Series

READINGS = "readings"
#: Settings that belong to the readings' promise.
OF_READINGS = ("customers", "budget_epsilon", "releases", "bounds", "cells")
#: What a release depends on.
SETTINGS = ("secret", *OF_READINGS, "epsilon", "delta", "typical_kw")
#: Layouts of timestamps that are understood without being named, whatever the file holds.
ISO = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")


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

    make: Any = partial(noisy_crowds_plan, typical_kw=config.typical_kw)
    if config.label is not None:
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


# ------------------------------------------------------------------ meter files


def check_files(config: Config, opened: Opened) -> None:
    """Refuse meter files whose reading would take a decision from the readings themselves."""
    from shoal.product.sources.meters import clock
    from shoal.product.sources.meters.columns import recognize

    needed = {"unit": "the unit of the readings (unit='kw')", "interval": "the minutes between them (interval=15)"}
    missing = [name for name in needed if getattr(config, name) is None]
    if missing:
        raise InputError(f"{missing[0]}: secret='readings' needs {' and '.join(needed[name] for name in missing)}")
    try:
        instants = datetime.fromisoformat(str(config.origin)).tzinfo is not None
    except ValueError:
        instants = clock.instant(str(config.origin), None, name="origin").tzinfo is not None  # says what is wrong
    for file in opened.sources:
        name = file.file.name
        if file.reason != "you said so (unit)":
            raise InputError(f"path: {name} is in a format with units of its own; with secret='readings' give CSV or "
                             "Parquet")  # fmt: skip
        if file.epoch is not None:
            raise InputError(f"path: {name} counts time since 1970, in a unit that its first rows tell; with "
                             "secret='readings' give ISO 8601 text or a column of datetimes")  # fmt: skip
        if recognize(list(file.table.raw.collect_schema()), config.named_columns or None, name).clock is not None:
            raise InputError(f"timestamp_column: {name} has date and time in two columns; with secret='readings' give "
                             "one column of timestamps")  # fmt: skip
        if file.forms and not file.named and file.forms != ISO:
            raise InputError(f"timestamp_format: the timestamps of {name} are not ISO 8601; with secret='readings' "
                             "name their layout, timestamp_format=…")  # fmt: skip
        if (file.time_zone is not None) != instants:
            how = "with" if file.time_zone is not None else "without"
            zone = "" if instants or config.time_zone else ", and name the zone of the homes' clocks (time_zone=)"
            raise InputError(f"origin: write it {how} an offset from UTC, as the timestamps of {name} are{zone}: with "
                             "secret='readings' it declares which")  # fmt: skip
    if instants and config.time_zone is None:
        raise InputError(
            "time_zone: the timestamps have an offset; name the zone of the homes' clocks, such as Europe/Zurich"
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
