"""reproduce: the paper's experiments, and ours beside them. study: who can be found, and what today's rules give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import shoal
from shoal.cli import options
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

#: Settings by which a meter file is understood.
READING = (
    "unit", "meter", "interval", "time_zone", "timestamp_format", "max_kw", "household_column", "timestamp_column",
    "value_column",
)  # fmt: skip


@command
@options.of_sections(also=READING)
def meters(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Meter file; simulated homes without.")] = None,
    out: Out = Path("shoal-meters"),
    quick: Quick = False,
    seed: Seed = 0,
    **chosen: Any,
) -> Outcome:
    """The paper's household study: ARMA forecasts of 100 homes in six clusters, on your file or on simulated homes.

    Examples:

        shoal reproduce meters

        shoal reproduce meters meters.parquet --out figures
    """
    columns = {role: chosen.pop(f"{role}_column", None) for role in ("household", "timestamp", "value")}
    named = {role: column for role, column in columns.items() if column is not None}
    readings = None if file is None else shoal.read_meters(file, columns=named, **chosen)
    return _shown(shoal.reproduce_meters(readings, _free(out), quick=quick, seed=seed, progress=_progress), out)


@command
def reidentify(
    file: Annotated[Path, typer.Argument(metavar="METERS", help="Meter file, five weeks at least.")],
    out: Out = Path("shoal-study"),
    crowd: Annotated[int, typer.Option(help="Homes of a crowd, at least.", min=2)] = 10,
    epsilon: Annotated[float, typer.Option(help="ε of white noise and crowds, for the table.")] = 1.0,
    delta: Annotated[float, typer.Option(help="And its δ.")] = 1e-5,
    origins: Annotated[int, typer.Option(help="Weeks that are looked at, the last ones.", min=2)] = 4,
    learned: Annotated[bool, typer.Option(help="Let gradient boosting attack as well.")] = True,
    seed: Seed = 0,
) -> Outcome:
    """Could somebody find a household in this? Attackers who know a home's week, on what leaves before and after.

    Ends with 4 where an attacker is right more often than is certified, beyond its interval.

    Examples:

        shoal study reidentify meters.parquet

        shoal study reidentify meters.parquet --crowd 20 --origins 3 --out study
    """
    study = shoal.reidentify(
        shoal.read_meters(file),
        crowd=crowd,
        epsilon=epsilon,
        delta=delta,
        origins=origins,
        learned=learned,
        seed=seed,
        progress=_told,
    )
    study.save(_free(out))
    return Outcome(
        {"out": str(out), **study.to_dict()}, f"{study}\n\nTables and picture: {out}", code=4 if study.exceeded else 0
    )


@command
def rule(
    file: Annotated[Path, typer.Argument(metavar="METERS", help="Meter file, two weeks at least.")],
    out: Out = Path("shoal-study"),
    members: Annotated[str, typer.Option(help="Sizes of groups.")] = "5,15,100",
    share: Annotated[float, typer.Option(help="Largest share of a group's total that one member may have.")] = 0.15,
    days: Annotated[str, typer.Option(help="Days of totals that are released.")] = "1,30,365",
    draws: Annotated[int, typer.Option(help="Groups that are drawn.", min=1)] = 100,
    seed: Seed = 0,
) -> Outcome:
    """What a rule of today gives: daily totals of a group, one member exchanged for another, priced exactly.

    Examples:

        shoal study rule meters.parquet

        shoal study rule meters.parquet --members 15 --share 0.15 --days 1,30,365
    """
    study = shoal.price_rule(
        shoal.read_meters(file),
        members=_numbers("members", members),
        share=share,
        days=_numbers("days", days),
        draws=draws,
        seed=seed,
        progress=_told,
    )
    study.save(_free(out))
    return Outcome({"out": str(out), **study.to_dict()}, f"{study}\n\nTables and picture: {out}")


def _numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise shoal.InputError(f"{name} must be whole numbers with commas between them, such as 5,15,100") from None


def _told(text: str, share: float) -> None:
    said(f"{share:4.0%} {text}")


def _shown(study: Any, out: Path) -> Outcome:
    return Outcome({"out": str(out), **study.to_dict()}, f"{study}\n\nFigures and tables: {out}")


def _free(out: Path) -> Path:
    """The folder, made if need be, unless it is a run's."""
    if out.exists() and not out.is_dir():
        raise shoal.InputError(f"out: {out.name} is a file; name a folder")
    if (out / "state.json").is_file():
        raise shoal.InputError(f"out: {out.name} holds a shoal run; name another folder")
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    return out


def _progress(text: str, done: int, total: int) -> None:
    said(f"{text}: {done} of {total}")
