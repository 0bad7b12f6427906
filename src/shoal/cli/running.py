"""demo, run and init: the whole job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import options
from shoal.cli.screen import Debug, Json, Outcome, Stages, command

if TYPE_CHECKING:
    from shoal.engine.run import Run

Plan = Annotated[
    bool, typer.Option("--plan", help="Only say what it would take in time, memory and disk, measured on this machine.")
]

#: Length of the simulated readings, and when the demo's forecasts begin: the evening after 16 days.
DEMO_DAYS, DEMO_ORIGIN = 17, "2024-01-17T18:00"


@command
def demo(
    out: options.Out = Path("shoal-demo"),
    households: Annotated[int, typer.Option(help="Simulated households.")] = 100,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    method: options.Method = None,
    query: options.Query = None,
    clusters: options.Clusters = None,
    horizon: options.Horizon = None,
    order: options.Order = None,
    samples: options.Samples = None,
    seconds: options.Seconds = None,
    engine: options.Engine = None,
    workers: options.Workers = None,
    shard_size: options.ShardSize = None,
    group_cap: options.GroupCap = None,
    plan: Plan = False,
    seed: options.Seed = None,
    again: options.Again = False,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """The whole job on a simulated neighborhood: meters, forecasts, design, release, audit, report.

    Examples:

        shoal demo

        shoal demo --out my-demo --households 50 --delta 1e-3

        shoal demo --out budget --rho 0.2 --epsilon 2

        shoal demo --out many --households 5000 --engine processes
    """
    from shoal.engine import sources

    chosen = options.settings(locals())
    chosen.setdefault("origin", DEMO_ORIGIN)
    chosen.setdefault("title", "A simulated neighborhood")
    source = sources.simulated(households, DEMO_DAYS, 15, seed or 0)
    if plan:
        return _planned(source, out, None, chosen)
    return _everything(out, source, None, chosen, again)


@command
def run(
    meters: Annotated[
        Path | None,
        typer.Argument(metavar="[METERS]", help="CSV or Parquet file, or a folder of them. Not needed to continue."),
    ] = None,
    out: options.Out = Path("shoal-run"),
    config: options.ConfigFile = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    method: options.Method = None,
    query: options.Query = None,
    season: options.Season = None,
    clusters: options.Clusters = None,
    horizon: options.Horizon = None,
    train_days: options.TrainDays = None,
    origin: options.Origin = None,
    order: options.Order = None,
    household: options.Household = None,
    household_column: options.HouseholdColumn = None,
    timestamp_column: options.TimestampColumn = None,
    value_column: options.ValueColumn = None,
    unit: options.Unit = None,
    samples: options.Samples = None,
    seconds: options.Seconds = None,
    ledger: options.LedgerUrl = None,
    engine: options.Engine = None,
    workers: options.Workers = None,
    shard_size: options.ShardSize = None,
    group_cap: options.GroupCap = None,
    plan: Plan = False,
    update: Annotated[
        bool, typer.Option("--update", help="METERS is a new day: go on from this folder's forecasts; a new release.")
    ] = False,
    seed: options.Seed = None,
    again: options.Again = False,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """From a meter file to a private forecast with its report; continues where an earlier run stopped.

    A second run on the same folder releases nothing: it says what is there.

    Examples:

        shoal run meters.csv --out january

        shoal run meters.parquet --out january --epsilon 2 --delta 1e-6 --clusters 8

        shoal run meter.csv --out january --household-column Zähler --timestamp-column Zeit --value-column Verbrauch

        shoal run --out january

        shoal run meters.parquet --out city --engine processes --plan

        shoal run tuesday.parquet --out city --update
    """
    chosen = options.settings(locals())
    if plan:
        return _planned(meter_source(meters), out, config, chosen)
    return _everything(out, meter_source(meters), config, chosen, again, update)


@command
def init(
    path: Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to write.")] = Path("shoal.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """Write a configuration file with every setting, its default and what it does.

    Examples:

        shoal init

        shoal init january.toml && shoal run meters.csv --out january --config january.toml
    """
    from shoal.engine.config import template
    from shoal.errors import InputError

    if path.exists() and not force:
        raise InputError(f"file: {path} is there already; --force replaces it")
    path.write_text(template(), encoding="utf-8")
    return Outcome({"file": str(path)}, f"{path} written. Use it: shoal run METERS --out DIR --config {path}")


def meter_source(meters: Path | None) -> dict[str, Any] | None:
    """The readings named on the command line."""
    if meters is None:
        return None
    from shoal.engine import sources

    return sources.files(meters)


def configured(folder: Path, file: Path | None, chosen: dict[str, Any]) -> Any:
    """Settings from a file, or those of the folder, or the defaults; options come on top."""
    from shoal.engine.config import Config
    from shoal.engine.folder import Folder

    if file is not None:
        base = Config.read(file)
    elif Folder(folder).is_run:
        base = Config.from_dict(Folder(folder).state().config, "state.json")
    else:
        base = Config()
    return base.changed(**chosen)


def _everything(
    out: Path,
    source: dict[str, Any] | None,
    file: Path | None,
    chosen: dict[str, Any],
    again: bool,
    update: bool = False,
) -> Outcome:
    from shoal.engine.run import Run
    from shoal.engine.summary import summary, to_dict
    from shoal.fleet.sharded import pipeline_of

    config = configured(out, file, chosen)
    with Stages() as progress, Run.start(out, source, config, progress, pipeline_of(config)) as going:
        if update:
            going.go_on()
        going.everything(again=again)
        parts = summary(going)
        if not going.did:
            parts.insert(0, ("Nothing to do", [f"{out} holds a finished run; nothing was released again."]))
        return Outcome(to_dict(going), parts=parts, code=verdict(going))


def verdict(going: Run) -> int:
    """Exit code of a run: a violation found by the audit is a guarantee not met; shards left out are bad input."""
    if going.is_done("audit") and going.facts("audit").get("verdict") == "violated":
        return 4
    return 2 if any(going.facts(stage).get("failed") for stage in ("fit", "design", "release")) else 0


def _planned(source: dict[str, Any] | None, out: Path, file: Path | None, chosen: dict[str, Any]) -> Outcome:
    from shoal.errors import InputError
    from shoal.fleet.plan import plan

    if source is None:
        raise InputError("meters: name the meter file to plan for")
    made = plan(source, configured(out, file, chosen))
    return Outcome(made.to_dict(), parts=made.words())
