"""curve and frontier: δ against ε of a design, and against the error spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import shoal
from shoal.cli import options
from shoal.cli.screen import Outcome, command, up


@command
def curve(
    target: Annotated[Path, typer.Argument(metavar="MECHANISM|DIR", help="Mechanism file, or folder of a run.")],
    epsilon: Annotated[str, typer.Option(help="Numbers 0.5,1,2 or from:to:count.")] = "0:4:17",
    notion: Annotated[
        str, typer.Option(help="dp (of what is released), or of the ideal law: pdp, pdp-two-sided, chernoff.")
    ] = "dp",
) -> Outcome:
    """δ(ε) of a mechanism, or of all in a run: over the worst pair of neighbors, rounded up.

    Examples:

        shoal curve january

        shoal curve mechanism.shoal --epsilon 0.1:2:20 --notion pdp
    """
    grid = options.numbers(epsilon, "epsilon")
    if target.is_dir():
        going = shoal.Run.open(target)
        worst = going.curve(grid, notion)
        upper, edges, method = list(worst.delta_upper), [list(edge) for edge in worst.worst_edge], going.config.way
    else:
        mechanism = shoal.Mechanism.load(target)
        found = mechanism.released_curve(grid) if notion == "dp" else mechanism.curve(grid, notion)
        upper, edges = [float(value) for value in found.delta_upper], [list(edge) for edge in found.worst_edge]
        method = mechanism.method
    lines = [f"{'ε':>8}  {'δ at most':>11}  worst pair ({notion})"]
    lines += [f"{e:>8.4g}  {up(d):>11}  {a} against {b}" for e, d, (a, b) in zip(grid, upper, edges, strict=True)]
    content = {
        "method": method,
        "notion": notion,
        "of": "what is released" if notion == "dp" else "the ideal law, before rounding",
        "epsilon": grid,
        "delta_upper": upper,
        "worst_edge": edges,
    }
    return Outcome(content, "\n".join(lines))


@command
def frontier(
    folder: options.Dir,
    rho: Annotated[str, typer.Option(help="Budgets: numbers 0.1,0.2 or from:to:count.")],
    method: Annotated[str, typer.Option(help="Methods, with commas.")] = "white,transport",
    epsilon: Annotated[float | None, typer.Option(help="ε of the guarantee. [default: that of the run]")] = None,
    search: Annotated[int, typer.Option(help="Steps of the search per stage of each design.")] = 10,
) -> Outcome:
    """δ against the mean squared error ρ that is spent, per method. Nothing is released or changed.

    Examples:

        shoal frontier january --rho 0.1:1:5

        shoal frontier january --rho 0.2,0.5 --method white,paper,transport --epsilon 2
    """
    budgets = options.numbers(rho, "rho")
    methods = [name.strip() for name in method.split(",")]
    going = shoal.Run.open(folder)
    at = going.config.epsilon if epsilon is None else epsilon
    found = going.frontier(budgets, methods, epsilon=at, search=search)
    lines = [f"δ at ε = {at:g}, at most", f"{'ρ':>10}" + "".join(f"{name:>14}" for name in methods)]
    for i, budget in enumerate(sorted(budgets)):
        lines.append(f"{budget:>10.4g}" + "".join(f"{up(found[name][i]):>14}" for name in methods))
    return Outcome({"epsilon": at, "rho": sorted(budgets), "delta_upper": found}, "\n".join(lines))
