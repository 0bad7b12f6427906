"""fit, design, release, audit and report: the stages of a run, one by one over the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli import options
from shoal.cli.running import configured, meter_source, verdict
from shoal.cli.screen import Debug, Json, Outcome, Stages, command


@command
def fit(
    target: Annotated[Path, typer.Argument(metavar="DIR|METERS", help="Folder of a run; or a meter file, with --out.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run, where METERS is given.")] = None,
    config: options.ConfigFile = None,
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
    seed: options.Seed = None,
    again: options.Again = False,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """Read the meters, forecast every household, and group the households.

    Examples:

        shoal fit meters.csv --out january

        shoal fit january --clusters 8
    """
    chosen = options.settings(locals())
    if out is None:
        return _stage(target, "fit", chosen, config, again=again)
    return _stage(out, "fit", chosen, config, source=meter_source(target), again=again)


@command
def design(
    folder: options.Dir,
    config: options.ConfigFile = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    method: options.Method = None,
    query: options.Query = None,
    seconds: options.Seconds = None,
    again: options.Again = False,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """Choose how to perturb the forecasts: by a guarantee to reach (--delta) or by an error to spend (--rho).

    Examples:

        shoal design january --epsilon 1 --delta 1e-6

        shoal design january --rho 0.3 --method additive
    """
    chosen = options.settings(locals())
    return _stage(folder, "design", chosen, config, again=again)


@command
def release(
    folder: options.Dir,
    ledger: options.LedgerUrl = None,
    again: options.Again = False,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """Release every household's forecast through the ledger: charged once, recorded before it is shown.

    Examples:

        shoal release january

        shoal release january --ledger postgresql://owner@db/ledger

        shoal release january --again
    """
    return _stage(folder, "release", options.settings(locals()), None, again=again)


@command
def audit(
    folder: options.Dir,
    samples: options.Samples = None,
    confidence: Annotated[float | None, typer.Option(help="Probability that nothing in it is false.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """Attack answers released through the mechanism, and compare with what it promises. Nothing is charged.

    Examples:

        shoal audit january

        shoal audit january --samples 5000 --confidence 0.99
    """
    return _stage(folder, "audit", options.settings(locals()), None)


@command
def report(
    folder: options.Dir,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """Write the release card and the report page.

    Examples:

        shoal report january

        shoal report january --title "January forecasts"
    """
    return _stage(folder, "report", options.settings(locals()), None)


def _stage(
    folder: Path,
    stage: str,
    chosen: dict[str, Any],
    file: Path | None,
    *,
    source: dict[str, Any] | None = None,
    again: bool = False,
) -> Outcome:
    from shoal.engine.run import Run
    from shoal.engine.summary import summary, to_dict
    from shoal.fleet.sharded import pipeline_of

    if source is None:
        from shoal.engine.folder import Folder

        Folder(folder).state()
    config = configured(folder, file, chosen)
    with Stages() as progress, Run.start(folder, source, config, progress, pipeline_of(config)) as going:
        if stage in ("fit", "design", "release"):
            getattr(going, stage)(again=again)
        elif stage == "audit":
            going.audit()
        else:
            going.card()
            going.report()
        parts = summary(going)
        if not going.did:
            parts.insert(0, ("Nothing to do", [f"The stage {stage!r} of {folder} is done as configured."]))
        return Outcome(to_dict(going), parts=parts, code=verdict(going))
