"""Options that several commands share, each described once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the run: new, empty, or a run to continue.")]
Dir = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")]
Again = Annotated[bool, typer.Option("--again", help="Make a new release although there is one; it is charged.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="Settings in TOML; `shoal init` writes one.")]
Epsilon = Annotated[float | None, typer.Option(help="ε of the guarantee. [default: 1]")]
Delta = Annotated[float | None, typer.Option(help="δ to reach, at the least error found. [default: 1e-5]")]
Rho = Annotated[float | None, typer.Option(help="Or: mean squared error per step to spend, in (ln kW)².")]
Method = Annotated[
    str | None,
    typer.Option(help="transport, additive, covariance, center, paper, white or none. [default: transport]"),
]
Query = Annotated[str | None, typer.Option(help="point, trajectory, marginal or as_in_paper. [default: point]")]
Season = Annotated[str | None, typer.Option(help="day, week or auto. [default: auto]")]
Clusters = Annotated[int | None, typer.Option(help="Groups of households. [default: 6]")]
Horizon = Annotated[int | None, typer.Option(help="Steps to forecast. [default: 12]")]
TrainDays = Annotated[int | None, typer.Option(help="Days of training. [default: 15]")]
Origin = Annotated[
    str | None, typer.Option(help="First instant to forecast, ISO 8601. [default: after the last reading]")
]
Order = Annotated[str | None, typer.Option(help="Order of the ARMA models as p,q. [default: 6,5]")]
Samples = Annotated[
    int | None, typer.Option("--samples", help="Test answers per household in the audit. [default: 200]")
]
Seconds = Annotated[float | None, typer.Option("--seconds", help="Time for the search of the design. [default: 20]")]
LedgerUrl = Annotated[
    str | None, typer.Option("--ledger", help="sqlite:///… or postgresql://…. [default: ledger.db in the folder]")
]
Household = Annotated[
    list[str] | None, typer.Option("--household", help="Use only this household; repeat for more. [default: all]")
]
HouseholdColumn = Annotated[
    str | None, typer.Option("--household-column", help="Column that names the household, if its name does not tell.")
]
TimestampColumn = Annotated[
    str | None, typer.Option("--timestamp-column", help="Column of timestamps, if its name does not tell.")
]
ValueColumn = Annotated[
    str | None, typer.Option("--value-column", help="Column of readings, if its name does not tell.")
]
Unit = Annotated[str | None, typer.Option(help="kw or kwh. [default: what the column of readings is called]")]
Engine = Annotated[
    str | None,
    typer.Option(
        help="Run in shards, for many households: serial, processes, ray or ray://host:port. [default: one piece]"
    ),
]
Workers = Annotated[int | None, typer.Option(help="Processes or tasks at a time. [default: one per core]")]
ShardSize = Annotated[int | None, typer.Option("--shard-size", help="Households per shard. [default: 1000]")]
GroupCap = Annotated[int | None, typer.Option("--group-cap", help="Largest group, in shards. [default: 50]")]
Seed = Annotated[int | None, typer.Option(help="Seed of clusters, search and audit; releases take none. [default: 0]")]


#: Option -> the setting of a run that it changes.
SETTINGS = {
    "epsilon": "epsilon", "delta": "delta", "rho": "rho", "method": "method", "query": "query", "season": "season",
    "clusters": "clusters", "horizon": "horizon", "train_days": "train_days", "origin": "origin", "order": "order",
    "household": "only", "samples": "audit_samples", "confidence": "confidence", "seconds": "design_seconds",
    "ledger": "ledger", "title": "title", "seed": "seed",
    "household_column": "household_column", "timestamp_column": "timestamp_column", "value_column": "value_column",
    "unit": "unit", "engine": "engine", "workers": "workers", "shard_size": "shard_size", "group_cap": "group_cap",
}  # fmt: skip


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a command as settings of a run; those that are no settings, or not given, are left out."""
    chosen = {SETTINGS[name]: value for name, value in given.items() if name in SETTINGS and value not in (None, [])}
    if "order" in chosen:
        chosen["order"] = pair(chosen["order"])
    if "only" in chosen:
        chosen["only"] = tuple(chosen["only"])
    return chosen


def pair(text: str) -> tuple[int, int]:
    """``"6,5"`` as two whole numbers."""
    from shoal.errors import InputError

    try:
        p, q = (int(part) for part in text.split(","))
    except ValueError:
        raise InputError("order must be two whole numbers with a comma between them, such as 6,5") from None
    return p, q


def numbers(text: str, name: str) -> list[float]:
    """``"0.1:2:20"`` (from, to, how many) or ``"0.5,1,2"`` as numbers."""
    from shoal.errors import InputError

    wrong = InputError(f"{name} must be numbers with commas, such as 0.5,1,2, or from:to:count, such as 0.1:2:20")
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        first, last, count = text.split(":")
        low, high, many = float(first), float(last), int(count)
    except ValueError:
        raise wrong from None
    if many < 2 or not low < high:
        raise wrong
    return [low + (high - low) * i / (many - 1) for i in range(many)]
