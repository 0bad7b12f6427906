"""The command ``shoal`` and its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.product.card import ladder
from shoal.product.cli import curves, ledgers, whole

app = typer.Typer(
    name="shoal",
    help="Differential privacy for class labels: a released row does not show which member of its crowd it is about."
    "\n\nStart with `shoal demo`; then `shoal run METERS --out DIR` on your own file.\n\n" + ladder.markdown(),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
ledger = typer.Typer(help="What has been spent, whether the record is intact, what is left.", no_args_is_help=True)

for group, functions in (
    (app, (whole.demo, whole.check, whole.run, whole.explain)),
    (app, (curves.curve, curves.frontier, curves.prove, curves.attack, whole.serve)),
    (ledger, (ledgers.show, ledgers.log, ledgers.verify, ledgers.budget)),
):
    for function in functions:
        group.command()(function)
app.add_typer(ledger, name="ledger")


def _version(wanted: bool) -> None:
    if wanted:
        import shoal

        print(f"shoal {shoal.__version__}")
        raise typer.Exit


@app.callback()
def shoal_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
