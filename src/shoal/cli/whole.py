"""demo, run and init: the whole job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import shoal
from shoal.cli import options
from shoal.cli.screen import Outcome, Stages, command

Plan = Annotated[
    bool, typer.Option("--plan", help="Only say what it would take in time, memory and disk, measured on this machine.")
]

#: When the demo's forecasts begin: the evening after 16 of its 17 days.
DEMO_ORIGIN = "2024-01-17T18:00"


@command
@options.of_sections("forecast", "neighbors", "privacy", "audit", "run", "speed")
def demo(
    out: options.Out = Path("shoal-demo"),
    households: Annotated[int, typer.Option(help="Simulated households.")] = 100,
    plan: Plan = False,
    again: options.Again = False,
    **chosen: Any,
) -> Outcome:
    """The whole job on a simulated neighborhood: meters, forecasts, design, release, audit, report.

    Examples:

        shoal demo

        shoal demo --out my-demo --households 50 --delta 1e-3

        shoal demo --out budget --rho 0.2 --epsilon 2

        shoal demo --out many --households 5000 --workers processes
    """
    chosen.setdefault("origin", DEMO_ORIGIN)
    chosen["title"] = "A simulated neighborhood"
    source = shoal.SimulatedMeters(households, seed=chosen.get("seed", 0))
    return _everything(source, out, None, chosen, plan=plan, again=again)


@command
@options.of_sections(
    "meters", "table", "forecast", "neighbors", "privacy", "ledger", "audit", "update", "report", "run", "speed"
)
def run(
    meters: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="CSV or Parquet file of meter readings, or a folder of them; with --label any table, Arrow too. Not "
            "needed to continue.",
        ),
    ] = None,
    out: options.Out = Path("shoal-run"),
    config: options.ConfigFile = None,
    plan: Plan = False,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="FILE is a new day: go on from this folder's forecasts or crowds; a new release. In a new folder: "
            "begin with standing crowds.",
        ),
    ] = False,
    again: options.Again = False,
    **chosen: Any,
) -> Outcome:
    """From a file to a private table with its report; continues where an earlier run stopped.

    From meter readings, a forecast of every household. With --label, any table: one row per label is released as it is,
    several rows are draws of the label's law, and each of them is released; numeric columns are entries.

    A second run on the same folder releases nothing: it says what is there.

    Examples:

        shoal run meters.csv --out january

        shoal run meters.parquet --out january --epsilon 2 --delta 1e-6 --crowd 20

        shoal run meter.csv --out january --household-column Zähler --timestamp-column Zeit --value-column Verbrauch

        shoal run --out january

        shoal run voices.parquet --out voices --label speaker --crowd 9

        shoal run forecasts.csv --out tomorrow --label unique_id --timestamp-column ds --value-column AutoARIMA

        shoal run meters.parquet --out city --workers processes --plan

        shoal run tuesday.parquet --out city --update
    """
    return _everything(meters, out, config, chosen, plan=plan, again=again, update=update)


@command
def init(
    path: Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to write.")] = Path("shoal.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> Outcome:
    """Write a configuration file with every setting, its default and what it does.

    Examples:

        shoal init

        shoal init january.toml && shoal run meters.csv --out january --config january.toml
    """
    if path.exists() and not force:
        raise shoal.InputError(f"file: {path} is there already; --force replaces it")
    path.write_text(shoal.Config.template(), encoding="utf-8")
    return Outcome({"file": str(path)}, f"{path} written. Use it: shoal run METERS --out DIR --config {path}")


def _everything(
    source: Any, out: Path, file: Path | None, chosen: dict[str, Any], *, plan: bool, again: bool, update: bool = False
) -> Outcome:
    config = None if file is None else shoal.Config.read(file)
    if plan:
        made = shoal.plan(source, out, config=config, **chosen)
        return Outcome(made.to_dict(), parts=made.words())
    with Stages() as progress:
        done = shoal.run(source, out, config=config, again=again, update=update, progress=progress, **chosen)
    parts = done.summary()
    if not done.did:
        parts.insert(0, ("Nothing to do", [f"{out} holds a finished run; nothing was released again."]))
    return Outcome(done.to_dict(), parts=parts, code=done.exit_code)
