"""What a run is told: :class:`Config`, all that may change a result, and :class:`Speed`, what changes only how fast.

A setting is one field. Its default, its section in the TOML file, its words and its option on the command line stand
there and nowhere else.
"""

from __future__ import annotations

import json
import math
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from shoal.errors import InputError

#: Fewest test answers per household that an audit takes: refused here, before anything is released.
FEWEST = 100
#: δ that a run is to reach where neither a δ nor an error is asked for.
DELTA = 1e-5


def _setting(section: str, default: Any, text: str, flag: str = "") -> Any:
    """A field with its section of the file, the words above it there, and its option, if not called like it."""
    return field(default=default, metadata={"section": section, "text": text, "flag": flag})


@dataclass(frozen=True)
class Config:
    """Settings of a run; None means "decide for me". ``rho`` and ``delta`` exclude each other.

    >>> Config(epsilon=2.0).target
    1e-05
    """

    unit: str | None = _setting(
        "meters", None, '"w", "kw", "mw" (power) or "wh", "kwh", "mwh" (energy per interval); by default what the '
        "columns are called or a column of units says, and asked for where nothing tells"
    )  # fmt: skip
    meter: str | None = _setting(
        "meters", None, '"register": readings are totals that only rise, and differences are taken; "interval": each '
        "is that of its interval; by default seen from the readings"
    )  # fmt: skip
    interval: int | None = _setting("meters", None, "minutes between readings; by default the most common distance")
    time_zone: str | None = _setting("meters", None, 'zone of wall-clock timestamps, such as "Europe/Zurich"')
    timestamp_format: str | None = _setting(
        "meters", None, 'layout of timestamps, such as "%d/%m/%Y %H:%M", where it is not understood or leaves day and month open'  # noqa: E501
    )  # fmt: skip
    max_kw: float | None = _setting("meters", None, "readings above it are taken for meter faults and become missing")
    accept_large: bool = _setting(
        "meters", False, "go on although households draw more than a home: on some day a mean above 50 kW, or a reading above 100 kW"  # noqa: E501
    )  # fmt: skip
    household_column: str | None = _setting(
        "meters", None, "column that names the household, if its name does not tell"
    )
    timestamp_column: str | None = _setting(
        "meters", None, 'column of timestamps, if its name does not tell; "Date+Time" for a date and a time in two columns'  # noqa: E501
    )  # fmt: skip
    value_column: str | None = _setting("meters", None, "column of readings, if its name does not tell")
    only: tuple[str, ...] = _setting("meters", (), "use only this household, repeat for more; by default all", "household")  # fmt: skip # noqa: E501

    label: str | None = _setting(
        "table", None, "column of labels: the file is a table with a row per answer, not one of meter readings"
    )
    columns: tuple[str, ...] = _setting(
        "table", (), "columns that are released, with commas between them; by default every column of numbers"
    )
    drop: tuple[str, ...] = _setting("table", (), "columns that are not released")
    weights: tuple[str, ...] = _setting(
        "table", (), "what an error in a column costs, COLUMN=NUMBER; by default one over the column's spread"
    )
    clip: float | None = _setting(
        "table", None, "with several rows per label: rows are first moved into the ellipsoid of so many standard "
        "deviations around their label's mean, and the card says what then holds whatever their law is"
    )  # fmt: skip

    train_days: int = _setting("forecast", 15, "days of training before the origin")
    horizon: int = _setting("forecast", 12, "steps to forecast")
    order: tuple[int, ...] = _setting("forecast", (6, 5), "order (p, q) of the ARMA models")
    season: str = _setting("forecast", "auto", '"day", "week", or "auto": by day below four weeks of training')
    origin: str | None = _setting(
        "forecast", None, "first instant to forecast, ISO 8601; by default after the last reading"
    )

    crowd: int = _setting("neighbors", 10, "every household hides among at least so many, itself included")
    crowds: str | None = _setting(
        "neighbors", None, '"once": by this release\'s forecasts, for one release (the default); "standing": by the '
        "training history, to be kept for releases to come (the default of a folder begun with --update)"
    )  # fmt: skip
    largest_share: float | None = _setting(
        "neighbors", None, "no household has more than this share of its crowd's load; 0.15 with --crowd 15 is the 15/15 rule"  # noqa: E501
    )  # fmt: skip
    table: str | None = _setting(
        "neighbors", None, "CSV with one row per household: boundaries that crowds never cross"
    )
    column: str | None = _setting("neighbors", None, "its column of boundaries: feeder, postcode, tariff")
    table_household: str | None = _setting(
        "neighbors", None, "its column that names the household, if its name does not tell"
    )

    query: str = _setting("privacy", "point", '"point", "trajectory", "marginal" or "as_in_paper" (no guarantee)')
    method: str | None = _setting(
        "privacy", None, '"auto", "codebook", "center", "mean", "transport", "additive", "covariance", "paper", '
        '"white" or "none"; by default "auto" to reach a δ (the crowd\'s curve, or a codebook where that errs 2 % '
        'less), "transport" to spend a ρ'
    )  # fmt: skip
    scope: str = _setting(
        "privacy", "table", 'whom the guarantee is about: "table", who holds all released rows; "answer", who gets one'
    )  # fmt: skip
    epsilon: float = _setting("privacy", 1.0, "ε of the guarantee")
    delta: float | None = _setting("privacy", None, "δ to reach, at the least error found; 1e-5 without a ρ")
    rho: float | None = _setting(
        "privacy", None, "or: mean squared error per step to spend, in the unit of scale, squared"
    )
    scale: str = _setting(
        "privacy", "kw", 'in which errors cost: "kw", or "log" for ln kW; queries other than "point" are in ln kW'
    )  # fmt: skip
    objective: str = _setting(
        "privacy", "mean", 'what "center" keeps small: the "mean" error, and with it the crowd\'s total, or the "worst"'
    )  # fmt: skip
    search: int = _setting("privacy", 10, "steps of the search per stage of a design, for methods that search")

    ledger: str | None = _setting(
        "ledger", None, "path, sqlite:///… or postgresql://…; by default the data owner's: SHOAL_LEDGER, or a user's"
    )  # fmt: skip
    accept_no_guarantee: bool = _setting("ledger", False, "release even where δ is above 0.01, which hides nobody")
    budget_epsilon: float | None = _setting("ledger", None, "budget per household if the ledger has none: its ε")
    budget_delta: float | None = _setting("ledger", None, "and its δ; by default the guarantee that is asked for")

    audit_samples: int = _setting(
        "audit", 200, "test answers per household in the audit; more find smaller faults", "samples"
    )
    confidence: float = _setting("audit", 0.999, "probability that nothing the audit says is false")
    audit_groups: int = _setting("audit", 3, "groups attacked at most: the hardest to hide in, others at random")

    rho_tolerance: float = _setting(
        "update", 0.1, "with --update: a design is kept while it errs this much more at most"
    )

    title: str | None = _setting("report", None, "title of the report")
    public: bool = _setting("report", False, "write public/report.html too, to pass on: no names, no true forecasts")
    shard_size: int = _setting("run", 1000, "households per shard: what a worker holds in memory at once")
    cell: int = _setting(
        "run", 1000, "alike households among whom crowds are formed, at most; a shard holds whole cells"
    )
    seed: int = _setting("run", 0, "seed of clusters, search and audit; releases take none")

    def __post_init__(self) -> None:
        from shoal import validation  # here, so that the command's help loads no NumPy

        for one in ("train_days", "horizon", "search", "shard_size", "audit_groups", "cell"):
            validation.count(**{one: getattr(self, one)})
        validation.count(at_least=FEWEST, audit_samples=self.audit_samples)
        validation.count(at_least=0, seed=self.seed)
        if self.unit is not None:
            validation.choice(("w", "kw", "mw", "wh", "kwh", "mwh"), unit=self.unit.lower())
        if self.meter is not None:
            validation.choice(("register", "interval"), meter=self.meter)
        validation.count(at_least=2, crowd=self.crowd)
        validation.count(at_least=2 * self.crowd - 1, cell=self.cell)
        if self.crowds is not None:
            validation.choice(("once", "standing"), crowds=self.crowds)
        if self.largest_share is not None:
            validation.probability(largest_share=self.largest_share, above_zero=True)
        validation.choice(("kw", "log"), scale=self.scale)
        validation.choice(("mean", "worst"), objective=self.objective)
        validation.non_negative(rho_tolerance=self.rho_tolerance)
        validation.non_negative(epsilon=self.epsilon)
        validation.probability(confidence=self.confidence, above_zero=True, below_one=True)
        validation.choice(("day", "week", "auto"), season=self.season)
        validation.choice(("point", "trajectory", "marginal", "as_in_paper"), query=self.query)
        validation.choice(("table", "answer"), scope=self.scope)
        if self.method is not None:
            methods = ("none", "white", "paper", "covariance", "additive", "transport", "center", "mean")
            validation.choice((*methods, "auto", "codebook"), method=self.method)
        if self.method == "codebook" and not self.discrete:
            raise InputError(
                "method: a codebook is for point forecasts in kW and an ε above 0, to be reached with δ = 0; leave out "
                "rho and other settings of query and scale, or choose another method"
            )
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
        if self.clip is not None:
            validation.positive(clip=self.clip)
        self._check_table()

    def _check_table(self) -> None:
        """Settings of a class table: with a label only, and beside none of those that forecasts alone have."""
        if self.label is None:
            given = next((name for name in ("columns", "drop", "weights", "clip") if getattr(self, name)), None)
            if given is not None:
                raise InputError(f"{given} is for tables: name the column of their labels too (--label)")
            return
        if self.query != "point" or self.scale != "kw":
            raise InputError("query and scale are for forecasts from meters; rows of a table are released as they are")
        if self.largest_share is not None:
            raise InputError("largest_share is about the load of meters; rows of a table have none")

    @property
    def target(self) -> float | None:
        """δ to reach; None where an error budget is given instead."""
        return None if self.rho is not None else self.delta if self.delta is not None else DELTA

    @property
    def way(self) -> str:
        """The method in use.

        Constants at a guarantee worth having are best released as the crowd's own curve, which takes no search: its
        mean, or its center where the worst error counts.
        """
        found = self.method or ("auto" if self.rho is None else "transport")
        if found == "auto" and not self.discrete:
            found = "center"
        return "mean" if found == "center" and self.objective == "mean" else found

    @property
    def discrete(self) -> bool:
        """Whether answers are constants in the unit that is released, and one of a few curves could be."""
        return self.query == "point" and self.scale == "kw" and self.rho is None and self.epsilon > 0

    @property
    def standing(self) -> bool:
        """Whether crowds are made to be kept."""
        return self.crowds == "standing"

    @property
    def answers(self) -> str:
        """Unit of the answers, as :meth:`shoal.Forecasts.classes` has it."""
        return self.scale if self.query == "point" else "log"

    @property
    def period(self) -> str:
        """The season in use."""
        return self.season if self.season != "auto" else "week" if self.train_days >= 28 else "day"

    @property
    def named_columns(self) -> dict[str, str]:
        """Columns of a meter file that were named."""
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
        kinds, known = typing.get_type_hints(cls), {one.name for one in fields(cls)}
        strange = sorted(set(values) - known)
        if strange:
            raise InputError(f"{where}: unknown setting {strange[0]!r}; `shoal init` writes a file with all of them")
        return cls(**{name: typed(name, kinds[name], value, where) for name, value in values.items()})

    @classmethod
    def read(cls, path: str | Path) -> Config:
        """Settings from a TOML file, in the sections that :meth:`template` shows."""
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
        kinds = typing.get_type_hints(Config)
        return replace(self, **{name: typed(name, kinds[name], value, "settings") for name, value in given.items()})

    @classmethod
    def template(cls) -> str:
        """A commented configuration file with every setting at its default."""
        lines = ["# Settings of a shoal run. A line that starts with # shows the default and changes nothing.", ""]
        section = ""
        for one in fields(cls):
            if one.metadata["section"] != section:
                section = one.metadata["section"]
                lines += [f"[{section}]"]
            lines.append(f"# {one.metadata['text']}")
            assert one.default is not MISSING
            shown = '""' if one.default is None else json.dumps(_plain(one.default), ensure_ascii=False)
            lines += [f"#{one.name} = {shown}", ""]
        return "\n".join(lines)

    @staticmethod
    def options() -> dict[str, tuple[Field[Any], Any]]:
        """Name on the command line -> the setting and its type, of this kind and of :class:`Speed`."""
        found: dict[str, tuple[Field[Any], Any]] = {}
        for kind in (Config, Speed):
            hints = typing.get_type_hints(kind)
            for one in fields(kind):
                found[one.metadata["flag"] or one.name] = (one, hints[one.name])
        return found


@dataclass(frozen=True)
class Speed:
    """How a run is worked off; nothing here changes a result."""

    workers: str = _setting(
        "speed", "auto", '"serial", "processes", "ray" or "ray://host:port"; by default processes for several shards'
    )
    cores: int | None = _setting("speed", None, "tasks at a time; by default one per core")

    def __post_init__(self) -> None:
        from shoal import validation

        if self.workers not in ("auto", "serial", "processes", "ray") and not str(self.workers).startswith("ray://"):
            raise InputError("workers must be serial, processes, ray, ray://host:port or auto")
        if self.cores is not None:
            validation.count(cores=self.cores)


def shared(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Speed]:
    """Keywords sorted into those of :class:`Config` and a :class:`Speed`; any other is refused by name."""
    config, speed = ({one.name for one in fields(kind)} for kind in (Config, Speed))
    strange = sorted(set(settings) - config - speed)
    if strange:
        raise InputError(f"{strange[0]} is not a setting of a run; shoal.Config has them all")
    chosen = {name: value for name, value in settings.items() if name in speed and value is not None}
    return {name: value for name, value in settings.items() if name in config}, Speed(**chosen)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def typed(name: str, kind: Any, value: Any, where: str) -> Any:
    """A value as the setting wants it; the annotation is the specification."""
    wanted = typing.get_args(kind) or (kind,)
    if value is None or (value == "" and type(None) in wanted):
        if type(None) not in wanted:
            raise InputError(f"{where}: {name} must have a value")
        return None
    if typing.get_origin(kind) is tuple:
        texts = wanted[0] is str
        if texts and isinstance(value, Mapping):
            value = [f"{key}={number!r}" for key, number in value.items()]
        if not isinstance(value, (list, tuple)) or not all(type(one) is wanted[0] for one in value):
            raise InputError(f"{where}: {name} must be a list of {'texts' if texts else 'whole numbers'}")
        return tuple(value)
    if str in wanted:
        if not isinstance(value, (str, Path)):
            raise InputError(f"{where}: {name} must be a text in quotes")
        return str(value)
    if bool in wanted:
        if not isinstance(value, bool):
            raise InputError(f"{where}: {name} must be true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{where}: {name} must be a number")
    if int in wanted:
        if not isinstance(value, int):
            raise InputError(f"{where}: {name} must be a whole number")
        return value
    return float(value)
