"""Settings of a run under the readings' promise: everything is declared, nothing is inferred from the file.

Each home's curve must be a function of its own readings and public settings alone. Here every place where another
home's readings could enter is closed, or the setting is demanded (docs/which-secret.md has the list).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError

if TYPE_CHECKING:
    from shoal.product.runs.config import Config
    from shoal.product.runs.meter_rows import Grid
    from shoal.product.sources.meters.declared import Declared
    from shoal.readings.publication import Series

READINGS = "readings"
#: Settings that belong to the label's promise.
OF_LABELS = (
    "crowd", "boundaries", "largest_share", "method", "query", "rho", "within", "at_most",
)  # fmt: skip
#: Settings that belong to the readings' promise.
OF_READINGS = ("customers", "budget_epsilon", "releases", "bounds", "cells", "typical_kw")
#: What a release depends on.
SETTINGS = ("secret", *OF_READINGS, "epsilon", "delta")


def check(config: Config) -> None:
    """Refuse settings that the secret does not have, and a promise about readings that lacks one that it needs."""
    from shoal import validation

    validation.choice(("label", READINGS), secret=config.secret)
    if config.typical_kw is not None:
        validation.positive(typical_kw=config.typical_kw)
    defaults = {field.name: field.default for field in fields(config)}

    def given(names: tuple[str, ...]) -> str | None:
        return next((n for n in names if n in defaults and getattr(config, n) != defaults[n]), None)

    if config.secret != READINGS:
        name = given(OF_READINGS)
        if name is not None:
            raise InputError(f"{name} belongs to the readings' promise: say secret='readings' too, or leave it out")
        return
    name = given(OF_LABELS)
    if name is not None:
        raise InputError(f"{name} belongs to the label's promise: leave out {name}= with secret='readings'")
    missing: dict[str, str] = {}
    if config.customers is None:
        missing["customers"] = "customers= (the number of homes on the register)"
    if config.epsilon is None and config.releases is None:
        missing["epsilon"] = "epsilon= (or budget_epsilon= with releases= for a series)"
    if config.label is None and config.origin is None:
        missing["origin"] = "origin= (the first instant to forecast; the file's end may be one home's)"
    if config.label is None and config.typical_kw is None:
        missing["typical_kw"] = "typical_kw= (the mean load of a typical home, from statistics)"
    if missing:
        also = "" if config.label else "; and unit= and interval= where the file's columns do not declare them"
        raise InputError(f"{next(iter(missing))}: secret='readings' needs {', '.join(missing.values())}{also}")
    validation.count(customers=config.customers)
    if config.budget_epsilon is not None:
        validation.positive(budget_epsilon=config.budget_epsilon)
    if config.releases is not None:
        validation.count(releases=config.releases)
        if config.budget_epsilon is None:
            raise InputError("releases: share a budget out: releases= needs budget_epsilon=")
        if config.epsilon is not None:
            raise InputError("epsilon: releases= shares budget_epsilon= out; leave out epsilon=")
    if config.label is None:
        if config.bounds or config.cells:
            raise InputError("bounds and cells are for tables: name the column of their labels too (label=)")
    elif not config.bounds:
        raise InputError(
            "bounds: secret='readings' needs the ends of every column of a table, bounds='column=low:high'"
        )
    else:
        bounds_of(config), cells_of(config)


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


def planned(config: Config) -> tuple[Any, Series]:
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

    if config.label is not None or mean_kw is None or not mean_kw > 0:
        return ""
    plan, _ = planned(config)
    off = plan.expected_total * plan.typical_kw / mean_kw
    beyond = " More than it: declare another typical_kw= before you spend the budget." if off > 1 else ""
    return (
        f"These homes use {mean_kw:.2g} kW on average, and typical_kw={plan.typical_kw:g} was declared. Beside their "
        f"own load the noise puts the total off by about {percent(off)}, if all {plan.customers} customers are in it."
        f"{beyond} This figure is yours alone."
    )


# ------------------------------------------------------------------ meter files


def declared_of(config: Config) -> Declared:
    """What is declared about meter files; refuses what is lacking."""
    from shoal.product.sources.meters import clock
    from shoal.product.sources.meters.declared import Declared

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
