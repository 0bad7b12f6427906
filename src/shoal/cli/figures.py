"""curve and frontier: δ against ε of a design, and against the error spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli import options
from shoal.cli.screen import Debug, Json, Outcome, command

if TYPE_CHECKING:
    from shoal.mechanism import Mechanism


@command
def curve(
    target: Annotated[Path, typer.Argument(metavar="MECHANISM|DIR", help="Mechanism file, or folder of a run.")],
    epsilon: Annotated[str, typer.Option(help="Numbers 0.5,1,2 or from:to:count.")] = "0:4:17",
    notion: Annotated[
        str, typer.Option(help="dp (of what is released), or of the ideal law: pdp, pdp-two-sided, chernoff.")
    ] = "dp",
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """δ(ε) of a mechanism: over the worst pair of neighbors, rounded up.

    Examples:

        shoal curve january

        shoal curve january/mechanism.shoal --epsilon 0.1:2:20 --notion pdp
    """
    from shoal.accounting.curve import round_up

    mechanism = _mechanism(target)
    grid = options.numbers(epsilon, "epsilon")
    found = mechanism.released_curve(grid) if notion == "dp" else mechanism.curve(grid, notion)
    upper = [float(value) for value in found.delta_upper]
    edges = [list(edge) for edge in found.worst_edge]
    lines = [f"{'ε':>8}  {'δ at most':>11}  worst pair ({notion})"]
    lines += [
        f"{e:>8.4g}  {round_up(d):>11.4g}  {a} against {b}" for e, d, (a, b) in zip(grid, upper, edges, strict=True)
    ]
    content = {
        "method": mechanism.method,
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
    epsilon: options.Epsilon = None,
    seconds: Annotated[float, typer.Option(help="Time for each design.")] = 5.0,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """δ against the mean squared error ρ that is spent, per method. Nothing is released or changed.

    Examples:

        shoal frontier january --rho 0.1:1:5

        shoal frontier january --rho 0.2,0.5 --method white,paper,transport --epsilon 2
    """
    from shoal.accounting.curve import round_up
    from shoal.designs.design import frontier as compare
    from shoal.engine.designing import laws
    from shoal.engine.fitting import FORECASTS, GRAPH, load_graph
    from shoal.engine.run import Run
    from shoal.meters.forecast import Forecasts

    budgets = options.numbers(rho, "rho")
    with Run.open(folder) as going:
        going.require("design")
        at = going.config.epsilon if epsilon is None else epsilon
        classes = laws(Forecasts.load(going.folder / FORECASTS), going.config.query)
        graph = load_graph(going.folder / GRAPH)
        seed = going.config.seed
    methods = [name.strip() for name in method.split(",")]
    found = compare(classes, graph, methods, at, budgets, seed=seed, time_limit=seconds)
    lines = [f"δ at ε = {at:g}, at most", f"{'ρ':>10}" + "".join(f"{name:>14}" for name in methods)]
    for i, budget in enumerate(found.rho):
        lines.append(
            f"{budget:>10.4g}" + "".join(f"{round_up(float(found.delta_upper[name][i])):>14.4g}" for name in methods)
        )
    content = {"epsilon": at, "rho": found.rho.tolist(), "delta_upper": found.delta_upper}
    return Outcome(content, "\n".join(lines))


def _mechanism(target: Path) -> Mechanism:
    from shoal.engine.designing import MECHANISM
    from shoal.errors import InputError
    from shoal.mechanism import Mechanism

    if not target.is_dir():
        return Mechanism.load(target)
    if not (target / MECHANISM).is_file():
        raise InputError(f"dir: {target.name} holds no mechanism yet; `shoal design {target.name}` makes one")
    return Mechanism.load(target / MECHANISM)
