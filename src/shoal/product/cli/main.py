"""The command ``shoal`` and its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.product.card import promises
from shoal.product.cli import analysis_commands as analysis
from shoal.product.cli import ledger_commands as ledgers
from shoal.product.cli import run_commands as runs

app = typer.Typer(
    name="shoal",
    help="Differential privacy for class labels: a released row does not show which member of its crowd it is about."
    "\n\nStart with `shoal demo`; then `shoal run METERS --out DIR` on your own file.\n\n" + promises.ladder_markdown(),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
ledger = typer.Typer(help="What has been spent, whether the record is intact, what is left.", no_args_is_help=True)

for function in (runs.demo, runs.check, runs.run, runs.explain, analysis.curve, analysis.frontier, analysis.prove,
                 analysis.attack, runs.serve):  # fmt: skip
    app.command()(function)
for of_ledger in (ledgers.show, ledgers.verify, ledgers.budget):
    ledger.command()(of_ledger)
app.add_typer(ledger, name="ledger")


def _print_version(wanted: bool) -> None:
    """Print the version and leave, if it was asked for."""
    if wanted:
        import shoal

        print(f"shoal {shoal.__version__}")
        raise typer.Exit


@app.callback()
def shoal_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options of the command itself; help shows the words of ``app``."""
