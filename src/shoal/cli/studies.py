"""attack: could somebody find a household in these readings, and in what a run would release?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import shoal
from shoal.cli.screen import Outcome, command, said

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for tables and pictures.")]


@command
def attack(
    file: Annotated[Path, typer.Argument(metavar="READINGS", help="Meter file, five weeks at least.")],
    out: Out = Path("shoal-attack"),
    crowd: Annotated[int, typer.Option(help="Homes of a crowd, at least.", min=2)] = 10,
    epsilon: Annotated[float, typer.Option(help="ε of white noise and crowds, for the table.")] = 1.0,
    delta: Annotated[float, typer.Option(help="And its δ.")] = 1e-5,
    origins: Annotated[int, typer.Option(help="Weeks that are looked at, the last ones.", min=2)] = 4,
    learned: Annotated[bool, typer.Option(help="Let gradient boosting attack as well.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of all that is drawn.")] = 0,
) -> Outcome:
    """Could somebody find a household in these readings?

    And in what a run would release? Attackers who know a home's week look for it in what leaves, before and after
    protection. Homes with gaps or without forecasts are left out, and counted. Nothing is released or recorded.

    Ends with 4 where an attacker is right more often than is certified, beyond its interval.

    Examples:

        shoal attack meters.parquet

        shoal attack meters.parquet --crowd 20 --origins 3 --out study
    """
    study = shoal.reidentify(
        shoal.read_meters(file),
        crowd=crowd,
        epsilon=epsilon,
        delta=delta,
        origins=origins,
        learned=learned,
        seed=seed,
        progress=tell,
    )
    study.save(folder_for(out))
    return Outcome(
        {"out": str(out), **study.to_dict()}, f"{study}\n\nTables and picture: {out}", code=4 if study.exceeded else 0
    )


def tell(text: str, share: float) -> None:
    """Show the progress of a study on standard error."""
    said(f"{share:4.0%} {text}")


def folder_for(out: Path) -> Path:
    """The folder of a study, made if need be, unless it is a run's."""
    if out.exists() and not out.is_dir():
        raise shoal.InputError(f"out: {out.name} is a file; name a folder")
    if (out / "state.json").is_file():
        raise shoal.InputError(f"out: {out.name} holds a shoal run; name another folder")
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    return out
