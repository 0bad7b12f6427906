"""fit, design, release, audit and report: the stages of a run, one by one over the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import shoal
from shoal.cli import options
from shoal.cli.screen import Outcome, Stages, command

#: What is asked: crowds are formed in its unit, so the first stage has to know.
ASKED = ("query", "scale")


@command
@options.of_sections("meters", "table", "forecast", "neighbors", "run", "speed", also=ASKED)
def fit(
    target: Annotated[
        Path, typer.Argument(metavar="DIR|FILE", help="Folder of a run; or a meter file or table, with --out.")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run, where FILE is given.")] = None,
    config: options.ConfigFile = None,
    again: options.Again = False,
    **chosen: Any,
) -> Outcome:
    """Read the meters, forecast every household, and group the households; of a table, the labels.

    Examples:

        shoal fit meters.csv --out january

        shoal fit january --crowd 20
    """
    if out is None:
        return _stage(target, ("fit",), chosen, config, again=again)
    return _stage(out, ("fit",), chosen, config, source=target, again=again)


@command
@options.of_sections("privacy", "speed", but=ASKED)
def design(
    folder: options.Dir, config: options.ConfigFile = None, again: options.Again = False, **chosen: Any
) -> Outcome:
    """Choose how to perturb the forecasts: by a guarantee to reach (--delta) or by an error to spend (--rho).

    Examples:

        shoal design january --epsilon 1 --delta 1e-6

        shoal design january --rho 0.3 --method additive
    """
    return _stage(folder, ("design",), chosen, config, again=again)


@command
@options.of_sections("ledger", "speed")
def release(folder: options.Dir, again: options.Again = False, **chosen: Any) -> Outcome:
    """Release every household's forecast through the ledger: charged once, recorded before it is shown.

    Examples:

        shoal release january

        shoal release january --ledger postgresql://owner@db/ledger

        shoal release january --again
    """
    return _stage(folder, ("release",), chosen, again=again)


@command
@options.of_sections("audit", "speed")
def audit(folder: options.Dir, **chosen: Any) -> Outcome:
    """Attack answers released through the mechanism, and compare with what it promises. Nothing is charged.

    Examples:

        shoal audit january

        shoal audit january --samples 5000 --confidence 0.99
    """
    return _stage(folder, ("audit",), chosen)


@command
@options.of_sections("report")
def report(folder: options.Dir, **chosen: Any) -> Outcome:
    """Write the release card and the report page.

    Examples:

        shoal report january

        shoal report january --title "January forecasts"
    """
    return _stage(folder, ("card", "report"), chosen)


def _stage(
    folder: Path,
    stages: tuple[str, ...],
    chosen: dict[str, Any],
    file: Path | None = None,
    *,
    source: Path | None = None,
    again: bool = False,
) -> Outcome:
    config = None if file is None else shoal.Config.read(file)
    with Stages() as progress:
        going = shoal.Run(folder, source, config, progress=progress, **chosen)
        for stage in stages:
            going.do(stage, again=again)
    parts = going.summary()
    if not going.did:
        parts.insert(0, ("Nothing to do", [f"The stage {stages[-1]!r} of {folder} is done as configured."]))
    return Outcome(going.to_dict(), parts=parts, code=going.exit_code)
