"""What a run is told: one flat value, read from TOML, written with its comments."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from shoal import validation
from shoal.errors import InputError

#: Fewest test answers per household that an audit takes: refused here, before anything is released.
FEWEST = 100


def _setting(section: str, default: Any, text: str) -> Any:
    """A field with its section of the file and the comment above it."""
    if isinstance(default, (list, dict)):
        raise TypeError("defaults are immutable")
    return field(default=default, metadata={"section": section, "text": text})


@dataclass(frozen=True)
class Config:
    """Settings of a run; None means "decide for me". ``rho`` and ``delta`` exclude each other."""

    unit: str | None = _setting("meters", None, '"kw" or "kwh"; by default what the column is called')
    interval: int | None = _setting("meters", None, "minutes between readings; by default the most common distance")
    time_zone: str | None = _setting("meters", None, 'zone of wall-clock timestamps, such as "Europe/Zurich"')
    max_kw: float | None = _setting("meters", None, "readings above it are taken for meter faults")
    household_column: str | None = _setting(
        "meters", None, "column that names the household, if its name does not tell"
    )
    timestamp_column: str | None = _setting("meters", None, "column of timestamps, if its name does not tell")
    value_column: str | None = _setting("meters", None, "column of readings, if its name does not tell")
    only: tuple[str, ...] = _setting("meters", (), "households to use; by default all")

    train_days: int = _setting("forecast", 15, "days of training before the origin")
    horizon: int = _setting("forecast", 12, "steps to forecast")
    order: tuple[int, ...] = _setting("forecast", (6, 5), "order (p, q) of the ARMA models")
    season: str = _setting("forecast", "auto", '"day", "week", or "auto": by day below four weeks of training')
    origin: str | None = _setting(
        "forecast", None, "first instant to forecast, ISO 8601; by default after the last reading"
    )

    clusters: int = _setting("neighbors", 6, "groups inside which households must stay indistinguishable")
    cluster_by: str = _setting("neighbors", "profile", '"profile" (mean day) or "forecast"; ignored with a table')
    table: str | None = _setting("neighbors", None, "CSV with one row per household: groups from facts known anyway")
    column: str | None = _setting("neighbors", None, "its column to group by: feeder, postcode, dwelling type")

    query: str = _setting("privacy", "point", '"point", "trajectory", "marginal" or "as_in_paper" (no guarantee)')
    method: str = _setting(
        "privacy", "transport", '"transport", "additive", "covariance", "center", "paper" or "white"'
    )
    epsilon: float = _setting("privacy", 1.0, "ε of the guarantee")
    delta: float | None = _setting("privacy", None, "δ to reach, at the least error; 1e-5 if neither δ nor ρ is given")
    rho: float | None = _setting("privacy", None, "or: mean squared error per step, in (ln kW)², to spend")
    design_seconds: float = _setting("privacy", 20.0, "time for the search; does not touch what a certificate means")

    ledger: str | None = _setting("ledger", None, "sqlite:///… or postgresql://…; by default ledger.db in the folder")
    budget_epsilon: float | None = _setting("ledger", None, "budget per household if the ledger has none: its ε")
    budget_delta: float | None = _setting("ledger", None, "and its δ; by default what this one release may cost")

    audit_samples: int = _setting("audit", 200, "test answers per household; more find smaller faults")
    confidence: float = _setting("audit", 0.999, "probability that nothing the audit says is false")

    engine: str | None = _setting(
        "scale", None, '"serial", "processes", "ray" or "ray://host:port": in shards; by default in one piece'
    )
    workers: int | None = _setting("scale", None, "processes or tasks at a time; by default one per core")
    shard_size: int = _setting("scale", 1000, "households per shard: what a worker holds in memory at once")
    group_cap: int = _setting("scale", 50, "largest group in shards: edges grow with its square")
    search: int = _setting(
        "scale", 0, "steps of the search per stage of a design in shards; 0 takes the straight way to the common law"
    )
    refit_days: int = _setting("scale", 7, "with --update: every household's model is fitted anew once in so many days")
    drift_level: float = _setting("scale", 1e-3, "with --update: and on drift, at this rate of false alarms a day")
    rho_tolerance: float = _setting(
        "scale", 0.1, "with --update: a design is kept while it errs this much more at most"
    )
    audit_groups: int = _setting("scale", 10, "groups that the audit of a run in shards attacks")

    title: str | None = _setting("report", None, "title of the report")
    seed: int = _setting("run", 0, "seed of clusters, search and audit; releases take none")

    def __post_init__(self) -> None:
        for one in ("train_days", "horizon", "clusters"):
            validation.count(**{one: getattr(self, one)})
        validation.count(at_least=FEWEST, audit_samples=self.audit_samples)
        validation.count(at_least=0, seed=self.seed)
        validation.count(at_least=0, search=self.search)
        validation.probability(drift_level=self.drift_level, below_one=True)
        validation.non_negative(rho_tolerance=self.rho_tolerance)
        for one in ("shard_size", "audit_groups", "refit_days"):
            validation.count(**{one: getattr(self, one)})
        validation.count(at_least=3, group_cap=self.group_cap)
        if self.workers is not None:
            validation.count(workers=self.workers)
        validation.non_negative(epsilon=self.epsilon)
        validation.positive(design_seconds=self.design_seconds)
        validation.probability(confidence=self.confidence, above_zero=True, below_one=True)
        validation.choice(("day", "week", "auto"), season=self.season)
        validation.choice(("profile", "forecast"), cluster_by=self.cluster_by)
        validation.choice(("point", "trajectory", "marginal", "as_in_paper"), query=self.query)
        methods = ("none", "white", "paper", "covariance", "additive", "transport", "center")
        validation.choice(methods, method=self.method)
        if self.delta is not None and self.rho is not None:
            raise InputError("delta and rho exclude each other: the one asks for a guarantee, the other for an error")
        if self.delta is not None:
            validation.probability(delta=self.delta, above_zero=True, below_one=True)
        if self.rho is not None:
            validation.positive(rho=self.rho)
        if (self.budget_epsilon is None) != (self.budget_delta is None):
            raise InputError("budget_epsilon and budget_delta belong together")
        if self.budget_delta is not None:
            validation.non_negative(budget_epsilon=self.budget_epsilon)
            validation.probability(budget_delta=self.budget_delta, below_one=True)
        if (self.table is None) != (self.column is None):
            raise InputError("table and column belong together: the file, and the column to group by")
        if len(self.order) != 2:
            raise InputError("order must be two whole numbers (p, q)")

    @property
    def target(self) -> float | None:
        """δ to reach; None where an error budget is given instead."""
        return None if self.rho is not None else self.delta if self.delta is not None else 1e-5

    @property
    def period(self) -> str:
        """The season in use."""
        return self.season if self.season != "auto" else "week" if self.train_days >= 28 else "day"

    @property
    def columns(self) -> dict[str, str]:
        """Columns that were named."""
        named = {"household": self.household_column, "timestamp": self.timestamp_column, "value": self.value_column}
        return {role: column for role, column in named.items() if column is not None}

    def part(self, *names: str) -> dict[str, Any]:
        """The named settings as plain values."""
        return {name: _plain(getattr(self, name)) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Every setting, as JSON can hold it."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "config") -> Config:
        """Settings by name; what is not named has its default."""
        known = {one.name: one for one in fields(cls)}
        strange = sorted(set(values) - set(known))
        if strange:
            raise InputError(f"{where}: unknown setting {strange[0]!r}; `shoal init` writes a file with all of them")
        return cls(**{name: _typed(known[name], value, where) for name, value in values.items()})

    @classmethod
    def read(cls, path: str | Path) -> Config:
        """Settings from a TOML file, in the sections that :func:`template` shows."""
        name = Path(path).name
        try:
            with Path(path).open("rb") as file:
                content = tomllib.load(file)
        except FileNotFoundError:
            raise InputError(f"config: there is no file {name}; `shoal init {name}` writes one") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"config: {name} is not valid TOML: {error}") from None
        except OSError as error:
            raise InputError(f"config: {name} cannot be read: {error.strerror}") from None
        values: dict[str, Any] = {}
        for section, inside in content.items():
            if not isinstance(inside, dict):
                raise InputError(f"config: {section!r} in {name} stands outside the sections")
            for setting, value in inside.items():
                own = next((f for f in fields(cls) if f.name == setting), None)
                if own is None or own.metadata["section"] != section:
                    where = f"it belongs in [{own.metadata['section']}]" if own else "there is no such setting"
                    raise InputError(f"config: [{section}] {setting} in {name}: {where}")
                values[setting] = value
        return cls.from_dict(values, name)

    def changed(self, **values: Any) -> Config:
        """With other values for the settings that are not None; δ displaces ρ and the reverse."""
        given = {name: value for name, value in values.items() if value is not None}
        if "rho" in given and "delta" not in given:
            given["delta"] = None
        elif "delta" in given and "rho" not in given:
            given["rho"] = None
        return replace(self, **given)


def template() -> str:
    """A commented configuration file with every setting at its default."""
    lines = ["# Settings of a shoal run. A line that starts with # shows the default and changes nothing.", ""]
    section = ""
    for one in fields(Config):
        if one.metadata["section"] != section:
            section = one.metadata["section"]
            lines += [f"[{section}]"]
        lines.append(f"# {one.metadata['text']}")
        assert one.default is not MISSING
        shown = '""' if one.default is None else _toml(one.default)
        lines += [f"#{one.name} = {shown}", ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _typed(one: Field[Any], value: Any, where: str) -> Any:
    """A value as the setting wants it; the annotation is the specification."""
    wanted = str(one.type)
    if value is None or (value == "" and "None" in wanted):
        if "None" not in wanted:
            raise InputError(f"{where}: {one.name} must have a value")
        return None
    if "tuple[str" in wanted:
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
            raise InputError(f"{where}: {one.name} must be a list of texts")
        return tuple(value)
    if "tuple[int" in wanted:
        if not isinstance(value, (list, tuple)) or not all(type(v) is int for v in value):
            raise InputError(f"{where}: {one.name} must be a list of whole numbers")
        return tuple(value)
    if wanted.startswith("str"):
        if not isinstance(value, str):
            raise InputError(f"{where}: {one.name} must be a text in quotes")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{where}: {one.name} must be a number")
    if wanted.startswith("int"):
        if not isinstance(value, int):
            raise InputError(f"{where}: {one.name} must be a whole number")
        return value
    return float(value)
