"""What a run is told: :class:`Config`, all that may change a result, and :class:`Speed`, what changes only how fast.

A setting is one field. Its default, its section of the help, its words and its option on the command line stand there
and nowhere else.
"""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from shoal.designs.methods import METHODS
from shoal.errors import InputError
from shoal.records import Record

#: Sections of the settings: panels of the command's help.
SECTIONS = ("input", "hiding", "guarantee", "ledger", "output", "speed")
#: Methods that take an ε, a δ or a ρ: the codebook, and every design that changes an answer.
CHARGED = ("codebook", *(name for name, method in METHODS.items() if method.perturbs))
READINGS = "readings"
#: Settings that belong to the readings' promise.
OF_READINGS = ("customers", "budget_epsilon", "releases", "bounds", "cells", "typical_kw")
#: Steps of the search of a design that searches, and the ε at which one that only spends a ρ states its δ.
SEARCH, STATED = 10, 1.0


def _setting(section: str, default: Any, text: str, *, rare: bool = False, kind: Any = None) -> Any:
    """Return a field with its section of the help and its words there.

    ``rare``: no option of its own, but ``--set NAME=VALUE``. ``kind``: type of the option, where not the setting's.
    """
    return field(default=default, metadata={"section": section, "text": text, "rare": rare, "kind": kind})


_input, _hiding, _guarantee = (functools.partial(_setting, section) for section in SECTIONS[:3])


@dataclass(frozen=True)
class Config(Record):
    """Settings of a run; None means "decide for me". Sections are the panels of the command's help.

    Constants (point forecasts, tables with one row per label) are released as the mean of their crowd and need neither
    ε nor δ. What a method adds is asked for with it:

    >>> Config().charged
    False
    >>> Config(method="codebook", epsilon=3.0).charged
    True
    """

    crowd: int = _hiding(10, "every row is an average over at least so many")
    unit: str | None = _input(
        None, '"w", "kw", "mw" (power) or "wh", "kwh", "mwh" (energy per interval), by default what the columns are '
        'called or a column of units says; "kwh-register": totals that only rise, "kw-interval": figures that only '
        "rise and are no totals, by default seen from the readings"
    )  # fmt: skip
    interval: int | None = _input(None, "minutes between readings; by default the most common distance")
    time_zone: str | None = _input(None, 'zone of wall-clock timestamps, such as "Europe/Zurich"')
    timestamp_format: str | None = _input(None, 'layout of timestamps, such as "%d/%m/%Y %H:%M"', rare=True)
    max_kw: float | None = _input(None, "readings above it are taken for faults and become missing", rare=True)
    encoding: str | None = _input(
        None, "encoding of text files, such as cp1252; by default UTF-8, or what they look like"
    )
    household_column: str | None = _input(None, "column that names the household, if its name does not show it")
    timestamp_column: str | None = _input(
        None, 'column of timestamps, if its name does not show it; "Date+Time" for two columns'
    )
    value_column: str | None = _input(None, "column of readings, if its name does not show it")
    label: str | None = _input(None, "column of labels: the file is a table with a row per answer, not of meters")
    columns: tuple[str, ...] = _input((), "columns that are released, or all but -NAME; by default all of numbers")
    period: str | None = _input(None, "what a table is about, such as 2024-03: each release needs a later one")
    train_days: int = _input(15, "days of training before the origin")
    horizon: int = _input(12, "steps to forecast, or on the command line a time such as 3h", kind=str)
    order: tuple[int, ...] = _input((6, 5), "order (p, q) of the ARMA models", rare=True)
    origin: str | None = _input(None, "first instant to forecast, ISO 8601; by default after the last reading")

    secret: str = _hiding(
        "label",
        '"label": which member of a crowd a row is about; "readings": all that a home sent',
    )
    customers: int | None = _hiding(None, "for the secret readings: homes (or labels) on the register, declared")
    bounds: tuple[str, ...] = _hiding((), "for the secret readings of a table: column=low:high, declared; repeatable")
    cells: tuple[str, ...] = _hiding(
        (), "for the secret readings of a table: column=edges, such as age=30,60: a count and means per cell"
    )
    typical_kw: float | None = _hiding(
        None, "for the secret readings: mean load of a typical home, declared; grids and clips are multiples of it"
    )
    largest_share: float | None = _hiding(
        None,
        "no household has more than this share of its crowd's load over the horizon; 0.15 with --crowd 15 is "
        "15/15 of the load over the horizon",
    )
    sensitive: tuple[str, ...] = _hiding(
        (), "sensitive columns of a table, added to those with few values: crowds stay diverse in them; repeatable"
    )
    closeness: float | None = _hiding(
        None, "how far a crowd may be from all labels in such a column, in standard deviations; by default 0.6"
    )
    boundaries: str | None = _hiding(
        None, "FILE:COLUMN, a CSV with a row per label and the column (feeder, postcode) that crowds never cross"
    )

    method: str | None = _guarantee(
        None, '"codebook", "white", "paper", "covariance", "additive", "transport" or "center": a row per label under '
        "an ε, charged to the ledger; by default the mean of each crowd, which needs none"
    )  # fmt: skip
    query: str = _guarantee("point", '"point", "trajectory", "marginal" or "as_in_paper" (no guarantee)')
    epsilon: float | None = _guarantee(None, "ε of the guarantee, for a method or the secret readings")
    delta: float | None = _guarantee(None, "δ to reach, for a method; for the secret readings 1/(10 customers)")
    budget_epsilon: float | None = _guarantee(
        None, "for the secret readings: ε of a whole series of releases, fixed with its first"
    )
    releases: int | None = _guarantee(None, "share --budget-epsilon out evenly over so many releases")
    rho: float | None = _guarantee(None, "or: mean squared error per step to spend, for a method")
    accept: tuple[str, ...] = _guarantee(
        (), '"large": readings that no home has; "doubtful-law": rows that do not follow a Gaussian law; '
        '"no-guarantee": a δ above 0.01, which protects no label', rare=True
    )  # fmt: skip

    ledger: str | None = _setting(
        "ledger", None, "path, sqlite:///… or postgresql://…; by default the data owner's: SHOAL_LEDGER, or a user's"
    )
    title: str | None = _setting("output", None, "title of the report", rare=True)
    licence: str | None = _setting("output", None, 'licence of the public table, such as "CC-BY-4.0"', rare=True)
    shard_size: int = _setting("speed", 1000, "labels per shard: what a worker holds in memory at once", rare=True)

    def __post_init__(self) -> None:
        from shoal import validation  # here, so that the command's help loads no NumPy
        from shoal.product.runs.kinds import choose_kind

        for name in ("train_days", "horizon", "shard_size"):
            validation.count(**{name: getattr(self, name)})
        if self.unit is not None:
            unit, dash, meter = self.unit.lower().partition("-")
            validation.choice(("w", "kw", "mw", "wh", "kwh", "mwh"), unit=unit)
            if dash:
                validation.choice(("register", "interval"), unit=meter)
        for what in self.accept:
            validation.choice(("large", "doubtful-law", "no-guarantee"), accept=what)
        validation.count(at_least=2, crowd=self.crowd)
        if self.largest_share is not None:
            validation.probability(largest_share=self.largest_share, above_zero=True)
        if self.closeness is not None:
            validation.positive(closeness=self.closeness)
        validation.choice(("point", "trajectory", "marginal", "as_in_paper"), query=self.query)
        if len(self.order) != 2:
            raise InputError("order must be two whole numbers (p, q)")
        validation.choice(("label", READINGS), secret=self.secret)
        if self.typical_kw is not None:
            validation.positive(typical_kw=self.typical_kw)
        kind = choose_kind(self)
        kind.refuse_settings(self)
        if self.method is not None:
            validation.choice(CHARGED, method=self.method)
        if self.epsilon is not None:
            validation.non_negative(epsilon=self.epsilon)
        if self.delta is not None and self.rho is not None:
            raise InputError(
                "delta and rho exclude each other: the one asks for a guarantee, the other for an error",
                argument="delta",
            )
        if self.delta is not None:
            validation.probability(delta=self.delta, above_zero=True, below_one=True)
        if self.rho is not None:
            validation.positive(rho=self.rho)
        kind.check_settings(self)
        self._check_table()

    def _check_table(self) -> None:
        """Raise InputError for settings of a class table without a label, or of forecasts with one."""
        if self.label is None:
            given = next((n for n in ("columns", "period", "sensitive", "closeness") if getattr(self, n)), None)
            if given is not None:
                raise InputError(f"{given} is for tables: name the column of their labels too (label=)")
            return
        if self.query != "point":
            raise InputError("query is for forecasts from meters; rows of a table are released as they are")
        if self.largest_share is not None:
            raise InputError("largest_share is about the load of meters; rows of a table keep dominance without it")

    @property
    def charged(self) -> bool:
        """Whether a method or a query was chosen that releases a row per label under an ε."""
        return self.method is not None or self.query != "point"

    @property
    def declares(self) -> bool:
        """Whether everything is declared and nothing is inferred from readings."""
        return self.secret == READINGS

    @property
    def guarantee_setting(self) -> str | None:
        """The first setting that asks for a guarantee, or spends an error; None where none does."""
        return next((name for name in ("epsilon", "delta", "rho") if getattr(self, name) is not None), None)

    @property
    def names_target(self) -> bool:
        """Whether there is a guarantee to reach, or an error to spend."""
        return self.rho is not None or not (self.epsilon is None or self.delta is None)

    @property
    def stated_epsilon(self) -> float:
        """The ε of the guarantee; where only an error is spent, the one at which δ is stated."""
        return STATED if self.epsilon is None else self.epsilon

    @property
    def design_method(self) -> str:
        """The method asked for, else "mean", which moves all to the crowd's own law, or "transport" to spend a ρ."""
        chosen = self.method or ("center" if self.rho is None else "transport")
        return "mean" if chosen == "center" else chosen

    @property
    def answer_unit_of_query(self) -> str:
        """The unit of the answers, "kw" or "log", as :meth:`shoal.Forecasts.classes` has it."""
        return "kw" if self.query == "point" else "log"

    @property
    def takes_export(self) -> bool:
        """Whether readings below zero are taken as export; log power and the readings' promise are of consumption."""
        return self.answer_unit_of_query == "kw" and not self.declares

    @property
    def season(self) -> str:
        """The season of the forecasts: "week" from four weeks of training on, since with less it fits badly."""
        return "week" if self.train_days >= 28 and not self.declares else "day"

    @property
    def named_columns(self) -> dict[str, str]:
        """The columns of a meter file that the settings name: role -> column."""
        named = {"household": self.household_column, "timestamp": self.timestamp_column, "value": self.value_column}
        return {role: column for role, column in named.items() if column is not None}

    def with_settings(self, **values: Any) -> Config:
        """Return these settings with other values for those that are not None; δ displaces ρ and the reverse."""
        given = {name: value for name, value in values.items() if value is not None}
        if "rho" in given and "delta" not in given:
            given["delta"] = None
        elif "delta" in given and "rho" not in given:
            given["rho"] = None
        return replace(self, **_check_types(given))

    @staticmethod
    @functools.cache
    def options() -> dict[str, tuple[Field[Any], Any]]:
        """Return name of each setting with an option -> its field and type, of this class and of :class:`Speed`."""
        hints = {kind: typing.get_type_hints(kind) for kind in (Config, Speed)}
        settings = ((setting, hints[kind][setting.name]) for kind in hints for setting in fields(kind))
        return {setting.name: (setting, hint) for setting, hint in settings if not setting.metadata["rare"]}

    @staticmethod
    def parse_setting(text: str) -> tuple[str, Any]:
        """Return name and value of a setting from ``NAME=VALUE``, as ``--set`` takes it.

        >>> Config.parse_setting("max_kw=50"), Config.parse_setting("columns=a,b")
        (('max_kw', 50), ('columns', ('a', 'b')))
        """
        name, _, value = text.partition("=")
        kind = {**typing.get_type_hints(Config), **typing.get_type_hints(Speed)}.get(name)
        if kind is None or not value:
            raise InputError("set must be NAME=VALUE with a setting of shoal.Config, such as max_kw=50 or order=2,1")
        if typing.get_origin(kind) is tuple:
            parts = [part.strip() for part in value.split(",")]
            whole = typing.get_args(kind)[0] is int and all(part.isdigit() for part in parts)
            return name, tuple(map(int, parts)) if whole else tuple(parts)
        if str in (typing.get_args(kind) or (kind,)):
            return name, value
        try:
            return name, int(value) if value.isdigit() else float(value)
        except ValueError:
            return name, value  # refused by its type


@dataclass(frozen=True)
class Speed:
    """How a run is worked off; nothing here changes a result."""

    workers: str = _setting(
        "speed", "auto", '"serial", "processes", "ray" or "ray://host:port"; by default processes for several shards'
    )
    cores: int | None = _setting("speed", None, "tasks at a time; by default one per core", rare=True)

    def __post_init__(self) -> None:
        from shoal import validation

        if self.workers not in ("auto", "serial", "processes", "ray") and not str(self.workers).startswith("ray://"):
            raise InputError("workers must be serial, processes, ray, ray://host:port or auto")
        if self.cores is not None:
            validation.count(cores=self.cores)


def split_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Speed, str | None]:
    """Return keywords as settings of :class:`Config`, a :class:`Speed`, and a horizon given as a time, such as 3h."""
    config, speed = ({setting.name for setting in fields(kind)} for kind in (Config, Speed))
    strange = sorted(set(settings) - config - speed)
    if strange:
        raise InputError(f"{strange[0]} is not a setting of a run; shoal.Config has them all")
    fast = Speed(**{name: value for name, value in settings.items() if name in speed and value is not None})
    chosen = {name: value for name, value in settings.items() if name in config}
    horizon = chosen.get("horizon")
    if not isinstance(horizon, str):
        return chosen, fast, None
    if horizon.strip().isdigit():
        return chosen | {"horizon": int(horizon)}, fast, None
    from shoal.product.sources.meters import clock

    clock.parse_steps(horizon, timedelta(minutes=1))  # refused here, if it is no time
    del chosen["horizon"]
    return chosen, fast, horizon


def _check_types(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in the types of their settings' annotations; raise InputError for one that does not fit."""
    kinds = typing.get_type_hints(Config)
    right: dict[str, Any] = {}
    for name, value in values.items():
        if name not in kinds:
            raise InputError(f"settings: unknown setting {name!r}; shoal.Config has them all")
        wanted = typing.get_args(kinds[name]) or (kinds[name],)
        number = not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
        if type(None) in wanted and value in (None, ""):
            right[name], what = None, ""
        elif typing.get_origin(kinds[name]) is tuple:
            what = f"a list of {'texts' if wanted[0] is str else 'whole numbers'}"
            value = (value,) if isinstance(value, str) and wanted[0] is str else value
            if isinstance(value, (list, tuple)) and all(type(item) is wanted[0] for item in value):
                right[name] = tuple(value)
        elif str in wanted:
            what = "a text in quotes"
            if isinstance(value, (str, Path)):
                right[name] = str(value)
        else:
            what = "a whole number" if number and int in wanted else "a number"
            if number and (float in wanted or isinstance(value, int)):
                right[name] = float(value) if float in wanted else value
        if name not in right:
            raise InputError(f"settings: {name} must be {what}")
    return right
