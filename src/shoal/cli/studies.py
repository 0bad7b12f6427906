"""reproduce synthetic and meters: the paper's experiments, and ours beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import shoal
from shoal.cli.screen import Outcome, command, said

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for figures and tables.")]
Quick = Annotated[bool, typer.Option("--quick", help="Smaller and in seconds; for a first look.")]
Seed = Annotated[int, typer.Option(help="Seed of all that is drawn.")]


@command
def synthetic(out: Out = Path("shoal-synthetic"), quick: Quick = False, seed: Seed = 0) -> Outcome:
    """The paper's synthetic study: four classes, (ε, δ) curves over its eight budgets, our mechanisms in the same axes.

    Examples:

        shoal reproduce synthetic

        shoal reproduce synthetic --out figures --quick
    """
    return _shown(shoal.reproduce_synthetic(_free(out), seed=seed, quick=quick, progress=_progress), out)


@command
def meters(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Meter file; simulated homes without.")] = None,
    out: Out = Path("shoal-meters"),
    quick: Quick = False,
    seed: Seed = 0,
) -> Outcome:
    """The paper's household study: ARMA forecasts of 100 homes in six clusters, on your file or on simulated homes.

    Examples:

        shoal reproduce meters

        shoal reproduce meters meters.parquet --out figures
    """
    readings = None if file is None else shoal.read_meters(file)
    return _shown(shoal.reproduce_meters(readings, _free(out), quick=quick, seed=seed, progress=_progress), out)


def _shown(study: Any, out: Path) -> Outcome:
    return Outcome({"out": str(out), **study.to_dict()}, f"{study}\n\nFigures and tables: {out}")


def _free(out: Path) -> Path:
    """The folder, made if need be, unless it is a run's."""
    if out.exists() and not out.is_dir():
        raise shoal.InputError(f"out: {out.name} is a file; name a folder")
    if (out / "state.json").is_file():
        raise shoal.InputError(f"out: {out.name} holds a shoal run; name another folder")
    out.mkdir(parents=True, exist_ok=True)
    return out


def _progress(text: str, done: int, total: int) -> None:
    said(f"{text}: {done} of {total}")
