"""Commands that examine: curve, frontier, prove and attack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import shoal
from shoal.files import write_private
from shoal.product.cli import options
from shoal.product.cli.options import option
from shoal.product.cli.output import Outcome, command, print_message, refuse_unusable_folder
from shoal.rounding import exactly, lower, upper

LAWS_IN_JSON = (
    'a mechanism file, or JSON with "means" (a row per label) and "covs" (one matrix, or one per label) or "variances" '
    'of what is released, and if need be "labels" and "edges" (pairs of labels; all of them by default)'
)


@command()
def curve(
    target: Annotated[Path, typer.Argument(metavar="MECHANISM|DIR", help="Mechanism file, or folder of a run.")],
    epsilon: Annotated[str, option("Numbers 0.5,1,2 or from:to:count.")] = "0:4:17",
    notion: Annotated[
        str, option("dp (of what is released), or of the ideal law: pdp, pdp-two-sided, chernoff.")
    ] = "dp",
) -> Outcome:
    """δ(ε) of a mechanism or a run: of the worst pair, rounded up.

    Examples:
        shoal curve january
        shoal curve mechanism.shoal --epsilon 0.1:2:20 --notion pdp
    """
    from shoal.accounting.curve import monotone_upper_ends

    grid = options.parse_numbers(epsilon, "epsilon")
    worst: Any
    if target.is_dir():
        worst = shoal.Run.open(target).curve(grid, notion)
        method = worst.method
    else:
        mechanism = shoal.Mechanism.load(target)
        worst = mechanism.released_curve(grid) if notion == "dp" else mechanism.curve(grid, notion)
        method = mechanism.method
    deltas, edges = monotone_upper_ends(grid, worst.delta_upper), worst.worst_edge
    lines = [f"{'ε':>8}  {'δ at most':>11}  worst pair ({notion})"]
    lines += [f"{e:>8.4g}  {upper(d):>11}  {a} against {b}" for e, d, (a, b) in zip(grid, deltas, edges, strict=True)]
    of = "what is released" if notion == "dp" else "the ideal law, before rounding"
    content = {"method": method, "notion": notion, "of": of}
    return Outcome(content | {"epsilon": grid, "delta_upper": deltas, "worst_edge": edges}, "\n".join(lines))


@command()
def frontier(
    folder: options.Dir,
    rho: Annotated[str, option("Budgets: numbers 0.1,0.2 or from:to:count.")],
    method: Annotated[str, option("Methods, with commas.")] = "white,transport",
    epsilon: Annotated[float | None, option("ε of the guarantee. [default: that of the run]")] = None,
    search: Annotated[int, option("Steps of the search per stage of each design.")] = 10,
) -> Outcome:
    """δ against the mean squared error ρ that is spent, per method.

    Nothing is released or changed.

    Examples:
        shoal frontier january --rho 0.1:1:5
        shoal frontier january --rho 0.2,0.5 --method white,paper,transport --epsilon 2
    """
    budgets = sorted(options.parse_numbers(rho, "rho"))
    methods = [name.strip() for name in method.split(",")]
    run = shoal.Run.open(folder)
    at = run.config.stated_epsilon if epsilon is None else epsilon
    deltas = run.frontier(budgets, methods, epsilon=at, search=search)
    lines = [f"δ at ε = {exactly(at)}, at most", f"{'ρ':>10}" + "".join(f"{name:>14}" for name in methods)]
    for i, budget in enumerate(budgets):
        lines.append(f"{budget:>10.4g}" + "".join(f"{upper(deltas[name][i]):>14}" for name in methods))
    return Outcome({"epsilon": at, "rho": budgets, "delta_upper": deltas}, "\n".join(lines))


@command()
def prove(
    target: Annotated[
        Path,
        typer.Argument(metavar="DIR|FILE", help="Folder of a run, a mechanism file, or with --claim laws in JSON."),
    ],
    epsilon: Annotated[float | None, option("ε of the guarantee. [default: that of the design]")] = None,
    scope: Annotated[str | None, option("answer or table. [default: that of the design]")] = None,
    claim: Annotated[
        str | None, option("Prove or refute that FILE keeps this ε and δ.", None, "--claim", metavar="EPSILON:DELTA")
    ] = None,
) -> Outcome:
    """δ of what is released, as a theorem about the parameters.

    Ball arithmetic over every pair of neighbors. Writes a small file per mechanism, to DIR/proof/ or next to the
    mechanism file, that another program can check: `python -m shoal.proofs.checker PROOF MECHANISM`. Ends with 4 where
    nothing below 1 can be proved.

    With --claim: proves, refutes or leaves undecided that any Gaussian laws keep (ε, δ); ends with 4 unless proved.
    FILE may then be JSON with "means" and "covs" (or "variances") of what is released, "labels" and "edges".

    Examples:
        shoal prove january
        shoal prove mechanism.shoal --epsilon 2 --scope table
        shoal prove laws.json --claim 1:1e-5
    """
    if claim is not None:
        return _check_claim(target, claim, epsilon, scope)
    if target.is_dir():
        run = shoal.Run.open(target)
        proofs, where = run.prove(epsilon=epsilon, scope=scope), target / "proof"
    else:
        proof, where = shoal.prove(shoal.Mechanism.load(target), None, epsilon, scope), target.parent
        proof.save(where / f"{target.stem}.proof.json")
        proofs = {target.stem: proof}
    worst = max(proofs.values(), key=lambda proof: proof.delta_upper)
    lines = [f"{'mechanism':<20}  {'pairs':>7}  {'δ at least':>11}  {'δ at most':>11}  worst pair ({worst.scope})"]
    for name, proof in proofs.items():
        a, b = proof.worst_edge
        ends = f"{lower(proof.delta_lower):>11}  {upper(proof.delta_upper):>11}"
        lines.append(f"{name[:20]:<20}  {proof.n_edges:>7}  {ends}  {a} against {b}")
        lines += [f"  not settled: {reason}" for reason in proof.unsettled]
    lines.append(f"Proofs are in {where}.")
    parts = ("digest", "n_edges", "delta_lower", "delta_upper", "finite_precision", "unsettled")
    content = {
        "scope": worst.scope,
        "delta_lower": max(proof.delta_lower for proof in proofs.values()),
        "delta_upper": worst.delta_upper,
        "worst_edge": worst.worst_edge,
        "proofs": {name: {part: getattr(proof, part) for part in parts} for name, proof in proofs.items()},
    }
    return Outcome(content, "\n".join(lines), code=4 if worst.delta_upper >= 1 else 0)


def _check_claim(file: Path, claim: str, epsilon: float | None, scope: str | None) -> Outcome:
    """Prove or refute that the laws of a file keep a claim EPSILON:DELTA; the proof goes into a file beside it."""
    if epsilon is not None:
        raise shoal.InputError("epsilon must be left out with claim=, which names it")
    if file.is_dir():
        raise shoal.InputError("claim: name a file; of a run each mechanism is one, in its folder mechanism")
    try:
        claimed, delta = map(float, claim.split(":"))
    except ValueError:
        raise shoal.InputError("claim must be EPSILON:DELTA, such as 1:1e-5") from None
    classes, graph = _read_laws(file)
    check = shoal.testing.check_claim(classes, graph, claimed, delta, scope=scope)
    parts = ("verdict", "epsilon", "claimed", "delta_lower", "delta_upper", "worst_edge")
    proof, about = file.parent / f"{file.stem}.proof.json", file
    check.proof.save(proof)
    if isinstance(classes, shoal.GaussianClasses):  # as the checker reads them
        about = file.parent / f"{file.stem}.laws.shoal"
        import numpy as np

        from shoal import archive
        from shoal.mechanism.releasable import laws_file_parts

        write_private(about, archive.pack(*laws_file_parts(classes, np.array(check.proof.pairs))))
    content = {part: getattr(check, part) for part in parts} | {"proof": str(proof)}
    again = f"The proof is {proof}; another program checks it: python -m shoal.proofs.checker {proof} {about}"
    return Outcome(content, f"{check}.\n{again}", code=0 if check.verdict == "proved" else 4)


def _read_laws(path: Path) -> tuple[shoal.GaussianClasses | shoal.Mechanism, shoal.NeighborGraph | None]:
    """The laws that a claim is about, with their neighbors; None for a mechanism's own."""
    from shoal import archive  # loads NumPy

    content = path.read_bytes()
    if archive.format_of(content) is not None:
        return shoal.Mechanism.from_bytes(content, f"path: {path.name}"), None
    try:
        given: Any = json.loads(content)
    except ValueError:
        given = None
    names = set(given) if isinstance(given, dict) else set()
    known = {"means", "covs", "variances", "labels", "edges"}
    if len(names & {"covs", "variances"}) != 1 or not {"means"} <= names <= known:
        raise shoal.InputError(f"{path.name} must be {LAWS_IN_JSON}")
    make = shoal.GaussianClasses if "covs" in given else shoal.GaussianClasses.diagonal
    classes = make(given["means"], given.get("covs", given.get("variances")), given.get("labels"))
    if "edges" in given:
        return classes, shoal.NeighborGraph.from_edges(classes.labels, given["edges"])
    return classes, shoal.NeighborGraph.complete(classes.labels)


@command()
def attack(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Meter file of five weeks or more; --label: a table; --known: what was published, or a run's folder.",
        ),
    ],
    known: Annotated[Path | None, option("File of homes, or with --label of labels, to look for in FILE.")] = None,
    label: Annotated[str | None, option("Column of labels: FILE, or --known, is a table with a row for each.")] = None,
    sensitive: Annotated[list[str] | None, option("With --label: a column that crowds must not be alike in.")] = None,
    out: Annotated[Path, option("Folder for two sheets to file, and the figures.", None, "--out", "-o")] = Path(
        "shoal-attack"
    ),
    crowd: Annotated[int, typer.Option(help="Members of a crowd, at least.", min=2)] = 10,
    origins: Annotated[int, typer.Option(help="Weeks that are looked at, the last ones.", min=2)] = 4,
    seed: Annotated[int, option("Seed of the members that attackers learn from.")] = 0,
) -> Outcome:
    """Attack a file: singling out, linkability, inference.

    What can be found out before and after protection? Each figure has its interval, what a guess
    achieves, and the least excess that would have been seen. Nothing is released or recorded. Members with gaps are
    left out, and counted. The folder gets two sheets to file with an impact assessment.

    FILE may be the folder of a run that has released: then the files that left are attacked, by what is on record
    alone. With --known, the attack looks for these homes or labels in a table that was published.

    Ends with 4 where an attack does better than the promise allows, beyond its interval.

    Examples:
        shoal attack meters.parquet
        shoal attack meters.parquet --crowd 20 --out study
        shoal attack people.csv --label person --sensitive smokes
        shoal attack january
        shoal attack january --known meters.parquet
        shoal attack published.csv --known meters.parquet
        shoal attack published.csv --known people.csv --label person
    """  # fmt: skip
    refuse_folder_for_study(out)
    if known is None and label is None and (file / "state.json").is_file():
        left = shoal.attack_run(file)
        left.save(out)
        return Outcome({"out": str(out), **left.to_dict()}, str(left), code=4 if left.alarms else 0)
    if known is not None:
        study = shoal.find_published(file, known if label else shoal.read_meters(known), label=label, seed=seed)
    elif label is not None:
        study = shoal.attack_table(file, label, crowd=crowd, sensitive=sensitive or (), seed=seed)
    else:
        given: dict[str, Any] = {"crowd": crowd, "origins": origins, "seed": seed}
        study = shoal.attack_meters(shoal.read_meters(file), progress=show_progress, **given)
    study.save(out)
    content = {"out": str(out), **study.to_dict()}
    return Outcome(content, f"{study}\n\nTwo sheets to file: {out / 'attack.html'}", code=4 if study.exceeded else 0)


def show_progress(text: str, share: float) -> None:
    """Show on standard error what a study is doing, and the share that is done."""
    print_message(f"{share:4.0%} {text}")


def refuse_folder_for_study(out: Path) -> None:
    """Raise unless the sheets of a study can be written to this folder, which must not be a run's."""
    refuse_unusable_folder(out)
    if (out / "state.json").is_file():
        raise shoal.InputError(f"out: {out.name} holds a shoal run; name another folder")
