"""prove: the guarantee of a run as a theorem about its stored parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import shoal
from shoal.cli.screen import Outcome, command, up


@command
def prove(
    target: Annotated[Path, typer.Argument(metavar="DIR|MECHANISM", help="Folder of a run, or a mechanism file.")],
    epsilon: Annotated[float | None, typer.Option(help="ε of the guarantee. [default: that of the design]")] = None,
    scope: Annotated[str | None, typer.Option(help="answer or table. [default: that of the design]")] = None,
) -> Outcome:
    """δ of what is released as a theorem about the stored parameters: ball arithmetic over every pair of neighbors.

    Writes a small file per mechanism, to DIR/proof/ or next to the mechanism file, that another program can check:
    `python -m shoal.proofs.checker PROOF MECHANISM`. Ends with 4 where nothing below 1 can be proved.

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
        ends = f"{proof.delta_lower:>11.4g}  {up(proof.delta_upper):>11}"
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
