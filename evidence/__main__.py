"""``python -m evidence``: the paper's experiments, what a rule of today gives, prices on real homes, and the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import shoal
from evidence import homes
from shoal.product.cli.analysis_commands import refuse_folder_for_study, show_progress
from shoal.product.cli.output import Outcome, command, print_message

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for figures and tables.")]
Quick = Annotated[bool, typer.Option("--quick", help="Smaller and in seconds; for a first look.")]
Seed = Annotated[int, typer.Option(help="Seed of all that is drawn.")]
Meters = Annotated[str, typer.Argument(metavar="METERS", help="Meter file, or `swiss` or `london`, if at hand.")]


@command()
def synthetic(out: Out = Path("out/synthetic"), quick: Quick = False, seed: Seed = 0) -> Outcome:
    """The paper's synthetic study: four classes, (ε, δ) curves over its eight budgets, our mechanisms in the same axes.

    Examples:
        python -m evidence reproduce synthetic
        python -m evidence reproduce synthetic --out figures --quick
    """
    from evidence.paper.synthetic_study import reproduce_synthetic

    return _shown(reproduce_synthetic(_study_folder(out), seed=seed, quick=quick, progress=_counted), out)


@command()
def meters(
    file: Annotated[
        str, typer.Argument(metavar="[METERS]", help="Meter file, `swiss` or `london`; simulated homes without.")
    ] = "",
    out: Out = Path("out/meters"),
    origin: Annotated[str, typer.Option(help="Where the forecasts begin; by default 12 steps before the end.")] = "",
    quick: Quick = False,
    stated_only: Annotated[
        bool, typer.Option("--stated-only", help="White noise and the paper's method at its stated budgets alone.")
    ] = False,
    seed: Seed = 0,
) -> Outcome:
    """The paper's household study: ARMA forecasts of 100 homes in six clusters, on a meter file or on simulated homes.

    Examples:
        python -m evidence reproduce meters
        python -m evidence reproduce meters london --origin 2013-11-20T18:00 --out figures
    """
    from evidence.paper.meters_study import reproduce_meters

    readings, source = _read(file) if file else (None, None)
    study = reproduce_meters(
        readings,
        _study_folder(out),
        origin=origin or None,
        source=source,
        quick=quick,
        stated_only=stated_only,
        seed=seed,
        progress=_counted,
    )
    return _shown(study, out)


@command()
def rule(
    file: Meters,
    out: Out = Path("out/rule"),
    members: Annotated[str, typer.Option(help="Sizes of groups.")] = "5,15,100",
    share: Annotated[float, typer.Option(help="Largest share of a group's total that one member may have.")] = 0.15,
    days: Annotated[str, typer.Option(help="Days of totals that are released.")] = "1,30,365",
    draws: Annotated[int, typer.Option(help="Groups that are drawn.", min=1)] = 100,
    seed: Seed = 0,
) -> Outcome:
    """What a rule of today gives: daily totals of a group, one member exchanged for another, priced exactly.

    Examples:
        python -m evidence rule swiss
        python -m evidence rule meters.parquet --members 15 --share 0.15 --days 1,30,365
    """
    from evidence.rule import price_rule

    study = price_rule(
        _read(file)[0],
        members=_numbers("members", members),
        share=share,
        days=_numbers("days", days),
        draws=draws,
        seed=seed,
        progress=show_progress,
    )
    study.save(_study_folder(out))
    return Outcome({"out": str(out), **study.to_dict()}, f"{study}\n\nTables and picture: {out}")


@command()
def measure(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="One of `prices`, `blends`, `year`, `paper`, `rivals`, `reidentify`, `rule`, `rule_year`, `rows`, "
            "`three`, `small`, `opening`.",
        ),
    ],
    keep: Annotated[
        Path | None, typer.Option(help="Folder in which forecasts and parts are kept between calls.")
    ] = None,
) -> Outcome:
    """Run a study on the real homes that are at hand and store what it finds; `page` puts it on the pages.

    Examples:
        python -m evidence measure prices --keep out/forecasts
        python -m evidence measure reidentify --keep out/forecasts
        python -m evidence measure paper
    """
    from evidence import blends, inference, opening, prices, reidentification, rivals, rows, storage, year
    from evidence import page as pages
    from evidence.paper import real
    from evidence.rule import price_rule

    studies: dict[str, Callable[[], dict[str, Any]]] = {
        "prices": lambda: prices.study(keep, show_progress),
        "blends": lambda: blends.study(keep, show_progress),
        "year": lambda: year.study(keep, show_progress),
        "paper": lambda: real.study(show_progress),
        "rivals": lambda: rivals.study(keep, show_progress),
        "reidentify": lambda: reidentification.study(homes.SWISS.read(), keep=keep, progress=show_progress).to_dict(),
        "rule": lambda: price_rule(homes.SWISS.read(), progress=show_progress).to_dict(),
        "rule_year": lambda: price_rule(homes.LONDON.read(), members=[15], progress=show_progress).to_dict(),
        "rows": lambda: rows.study(keep, show_progress),
        "three": lambda: inference.study(keep, show_progress),
        "small": pages.small,
        "opening": lambda: opening.study(keep, show_progress),
    }
    if study not in studies:
        raise shoal.InputError(f"study must be one of {', '.join(studies)}")
    if not all(data.there for data in homes.EVERY.values()):
        return Outcome({"stored": None}, "Skipped: the real homes are not at hand (../shared/data).")
    path = storage.store(study, studies[study]())
    if study == "year":
        year.draw_year(storage.stored("year"))
    pages.draw(study)
    return Outcome({"stored": str(path)}, f"Stored: {path}")


@command()
def page() -> Outcome:
    """Write docs/evidence.md and docs/reproduction.md from the stored figures.

    Examples:
        python -m evidence page
    """
    from evidence import page as pages

    written = [str(path) for path in pages.write()]
    return Outcome({"pages": written}, f"Written: {', '.join(written)}")


def _read(file: str) -> tuple[Any, str | None]:
    """Readings by the name of a data set or a file, and what to call them."""
    if file in homes.EVERY:
        return homes.EVERY[file].read(), f"{homes.EVERY[file].name} homes"
    return shoal.read_meters(file), None


def _numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise shoal.InputError(f"{name} must be whole numbers with commas between them, such as 5,15,100") from None


def _shown(study: Any, out: Path) -> Outcome:
    return Outcome({"out": str(out), **study.to_dict()}, f"{study}\n\nFigures and tables: {out}")


def _study_folder(out: Path) -> Path:
    """The folder of a study, made if need be; a run's is refused."""
    refuse_folder_for_study(out)
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    return out


def _counted(text: str, done: int, total: int) -> None:
    print_message(f"{text}: {done} of {total}")


app = typer.Typer(
    name="evidence",
    help="What shoal's claims rest on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
reproduce = typer.Typer(help="The paper's experiments, its figures, and ours beside them.", no_args_is_help=True)
reproduce.command()(synthetic)
reproduce.command()(meters)
app.command()(rule)
app.command()(measure)
app.command()(page)
app.add_typer(reproduce, name="reproduce")

if __name__ == "__main__":
    app(prog_name="python -m evidence")
