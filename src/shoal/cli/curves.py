"""curve, frontier and prove: δ of a design against ε and against the error spent, and as a theorem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import shoal
from shoal.cli import options
from shoal.cli.screen import Outcome, command
from shoal.rounding import lower, upper


@command
def curve(
    target: Annotated[Path, typer.Argument(metavar="MECHANISM|DIR", help="Mechanism file, or folder of a run.")],
    epsilon: Annotated[str, typer.Option(help="Numbers 0.5,1,2 or from:to:count.")] = "0:4:17",
    notion: Annotated[
        str, typer.Option(help="dp (of what is released), or of the ideal law: pdp, pdp-two-sided, chernoff.")
    ] = "dp",
) -> Outcome:
    """δ(ε) of a mechanism or a run: of the worst pair, rounded up.

    Examples:

        shoal curve january

        shoal curve mechanism.shoal --epsilon 0.1:2:20 --notion pdp
    """
    from shoal.accounting.curve import falling

    grid = options.numbers(epsilon, "epsilon")
    if target.is_dir():
        going = shoal.Run.open(target)
        worst = going.curve(grid, notion)
        ends, edges, method = worst.delta_upper, [list(edge) for edge in worst.worst_edge], going.config.way
    else:
        mechanism = shoal.Mechanism.load(target)
        whole = mechanism.released_curve(grid) if notion == "dp" else mechanism.curve(grid, notion)
        ends, edges, method = whole.delta_upper, [list(edge) for edge in whole.worst_edge], mechanism.method
    deltas = falling(grid, ends).tolist()
    lines = [f"{'ε':>8}  {'δ at most':>11}  worst pair ({notion})"]
    lines += [f"{e:>8.4g}  {upper(d):>11}  {a} against {b}" for e, d, (a, b) in zip(grid, deltas, edges, strict=True)]
    content = {
        "method": method,
        "notion": notion,
        "of": "what is released" if notion == "dp" else "the ideal law, before rounding",
        "epsilon": grid,
        "delta_upper": deltas,
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
    """δ against the mean squared error ρ that is spent, per method.

    Nothing is released or changed.

    Examples:

        shoal frontier january --rho 0.1:1:5

        shoal frontier january --rho 0.2,0.5 --method white,paper,transport --epsilon 2
    """
    budgets = options.numbers(rho, "rho")
    methods = [name.strip() for name in method.split(",")]
    going = shoal.Run.open(folder)
    at = going.config.stated_epsilon if epsilon is None else epsilon
    found = going.frontier(budgets, methods, epsilon=at, search=search)
    lines = [f"δ at ε = {at:g}, at most", f"{'ρ':>10}" + "".join(f"{name:>14}" for name in methods)]
    for i, budget in enumerate(sorted(budgets)):
        lines.append(f"{budget:>10.4g}" + "".join(f"{upper(found[name][i]):>14}" for name in methods))
    return Outcome({"epsilon": at, "rho": sorted(budgets), "delta_upper": found}, "\n".join(lines))


@command
def prove(
    target: Annotated[Path, typer.Argument(metavar="DIR|MECHANISM", help="Folder of a run, or a mechanism file.")],
    epsilon: Annotated[float | None, typer.Option(help="ε of the guarantee. [default: that of the design]")] = None,
    scope: Annotated[str | None, typer.Option(help="answer or table. [default: that of the design]")] = None,
) -> Outcome:
    """δ of what is released, as a theorem about the parameters.

    Ball arithmetic over every pair of neighbors. Writes a small file per mechanism, to DIR/proof/ or next to the
    mechanism file, that another program can check: `python -m shoal.proofs.checker PROOF MECHANISM`. Ends with 4 where
    nothing below 1 can be proved.

    Examples:

        shoal prove january

        shoal prove mechanism.shoal --epsilon 2 --scope table
    """
    if target.is_dir():
        found = shoal.Run.open(target).prove(epsilon=epsilon, scope=scope)
        where = target / "proof"
    else:
        mechanism = shoal.Mechanism.load(target)
        found = {target.stem: shoal.prove(mechanism, None, epsilon, scope)}
        where = target.parent
        found[target.stem].save(where / f"{target.stem}.proof.json")
    worst = max(found.values(), key=lambda proof: proof.delta_upper)
    lines = [f"{'mechanism':<20}  {'pairs':>7}  {'δ at least':>11}  {'δ at most':>11}  worst pair ({worst.scope})"]
    for name, proof in found.items():
        a, b = proof.worst_edge
        ends = f"{lower(proof.delta_lower):>11}  {upper(proof.delta_upper):>11}"
        lines.append(f"{name[:20]:<20}  {proof.n_edges:>7}  {ends}  {a} against {b}")
        lines += [f"  not settled: {reason}" for reason in proof.unsettled]
    lines.append(f"Proofs are in {where}.")
    content = {
        "scope": worst.scope,
        "delta_lower": max(proof.delta_lower for proof in found.values()),
        "delta_upper": worst.delta_upper,
        "worst_edge": list(worst.worst_edge),
        "proofs": {
            name: {
                "digest": proof.digest,
                "n_edges": proof.n_edges,
                "delta_lower": proof.delta_lower,
                "delta_upper": proof.delta_upper,
                "finite_precision": proof.finite_precision,
                "unsettled": list(proof.unsettled),
            }
            for name, proof in found.items()
        },
    }
    return Outcome(content, "\n".join(lines), code=4 if worst.delta_upper >= 1 else 0)
