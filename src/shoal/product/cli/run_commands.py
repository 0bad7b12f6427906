"""Commands for runs: demo, check, run, explain and serve."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

import shoal
from shoal.numerics import warmup
from shoal.product.cli import options
from shoal.product.cli.options import option
from shoal.product.cli.output import Outcome, StageProgress, as_command_options, command, refuse_unusable_folder

#: When the demo's forecasts begin: the evening after 16 of its 17 days.
DEMO_ORIGIN = "2024-01-17T18:00"
#: What a row of the table of methods says.
COMPARED = (
    "Error: what hiding adds, kW root mean square, least that reaches (ε, δ); –: never does. ρ: mean squared error of\n"
    "the household that has the largest. Noise: its share of the squared error.\n"
    "Named: how often the best attacker names the household behind a row of its crowd, at shoal's error.\n"
    "Computed for about 60 households in whole crowds, which stand for all."
)
#: The files that the demo names, and what they are.
OPENED = {
    "public/report.html": "the page to share, with a picture of the released table",
    "report.html": "the page for you: what was released, and from what; keep it private",
    "public/released.csv": "the released table",
}
FILE = (
    "CSV, Parquet or Arrow file of meter readings, or a folder of them; with --label any table. Not needed to continue."
)
WITHIN = "Instead of --crowd: the largest of ten or more with at most this much more error, as rehearsed on past days."
DOUBTFUL = "Release although the rows of many labels do not follow the Gaussian law that the guarantee rests on."


@command("hiding", "guarantee", "speed", also=("horizon", "origin", "train_days"))
def demo(
    out: options.Out = Path("shoal-demo"),
    households: Annotated[int, option("Simulated households.")] = 150,
    until: options.Until = "report",
    verbose: options.Verbose = False,
    **chosen: Any,
) -> Outcome:
    """The whole job on a simulated neighborhood.

    Compares the methods on it, at (ε, δ) = (1, 1e-5), then releases a table. No real person is behind it.

    Examples:
        shoal demo
        shoal demo --out my-demo --households 50 --crowd 5
        shoal demo --out drawn --method codebook --epsilon 3
        shoal demo --out many --households 5000 --workers processes
    """
    chosen.setdefault("origin", DEMO_ORIGIN)
    chosen["title"] = "A simulated neighborhood"
    source, text, content = shoal.SimulatedMeters(households), "", {}
    refuse_unusable_folder(out)
    with StageProgress() as progress:
        warmup.compile_kernels(lambda words: progress("compile", words, 0, 0), rooms=("arma", "crowds"))
        fitted = shoal.run(source, out, progress=progress, until="fit", **chosen)
        if not fitted.has_released and fitted.config.secret == "label":
            progress("compare", "comparing methods", 0, 0)
            compared = fitted.compare()
            text, content = f"{compared}\n{COMPARED}\n", {"compared": compared.rows}
    done = _run_and_summarize(source, out, chosen, verbose, until=until)
    files = [f"{out / name}: {words}" for name, words in OPENED.items() if (out / name).is_file()]
    parts = [*done.parts, *([("Open", files)] if files else [])]
    return replace(done, content=done.content | content, text=text, parts=parts)


@command("input", "hiding", "guarantee", "ledger", "output", "speed")
def run(
    meters: Annotated[str | None, typer.Argument(metavar="[FILE]", help=FILE)] = None,
    out: options.Out = Path("shoal-run"),
    update: Annotated[
        bool, option("Go on with a new day or table in this folder: a new release.", None, "--update")
    ] = False,
    rehearse: Annotated[
        bool, option("Everything up to the release; recorded and charged nowhere.", None, "--rehearse")
    ] = False,
    at_most: Annotated[
        str | None, option("Instead of --crowd: the risk of being named.", "Hiding", metavar="1-in-20")
    ] = None,
    within: Annotated[str | None, option(WITHIN, "Hiding", metavar="10%")] = None,
    accept_doubtful_law: Annotated[bool, option(DOUBTFUL, "Guarantee", "--accept-doubtful-law")] = False,
    until: options.Until = "report",
    verbose: options.Verbose = False,
    **chosen: Any,
) -> Outcome:
    """From a file to a table that may be shared, with its report.

    Takes meter readings and forecasts every household; with --label, takes any table. Each row is an average of at
    least ten (--crowd). Crowds are formed once, are permanent, and are recorded in the owner's ledger.

    It continues where an earlier run stopped; on a finished folder it releases nothing and says what is there.

    Examples:
        shoal run meters.csv --out january
        shoal run meters.parquet --out january --crowd 20
        shoal run meter.csv --out january --household-column Zähler --timestamp-column Zeit --value-column Verbrauch
        shoal run tuesday.parquet --out january --update
        shoal run voices.parquet --out voices --label speaker --crowd 9 --epsilon 1 --delta 1e-6
        shoal run forecasts.csv --out tomorrow --label unique_id --timestamp-column ds --value-column AutoARIMA
        shoal run meters.parquet --out drawn --method codebook --epsilon 3
        shoal run meters.parquet --out january --at-most 1-in-20
        shoal run meters.parquet --out january --within 10%
        shoal run meters.parquet --out try --rehearse
    """
    chosen |= {"at_most": at_most, "within": within}
    if accept_doubtful_law:
        chosen["accept"] = (*chosen.get("accept", ()), "doubtful-law")
    return _run_and_summarize(meters, out, chosen, verbose, until=until, update=update, rehearse=rehearse)


@command("input", "hiding", "ledger", "speed")
def check(
    meters: Annotated[str, typer.Argument(metavar="FILE", help="File, as for `shoal run`.")],
    epsilon: Annotated[
        float | None, option("Compare methods that add noise with averages, at this ε and --delta.")
    ] = None,
    delta: Annotated[float, option("δ of that comparison.")] = 1e-5,
    **chosen: Any,
) -> Outcome:
    """Check what a run would find in a file: homes, crowds, accuracy.

    Reads, questions what is implausible, and rehearses; makes no folder and writes to no ledger. Exit code 2 where a
    run would be refused.

    Examples:
        shoal check meters.csv
        shoal check meters.csv --crowd 20 --horizon 3h
        shoal check meters.csv --epsilon 1 --delta 1e-5
    """
    at = None if epsilon is None else (epsilon, delta)
    with StageProgress() as progress:
        preview = shoal.check(meters, progress=progress, compare_at=at, **chosen)
    preview = replace(preview, refusal=as_command_options(preview.refusal))
    return Outcome(preview.to_dict(), parts=preview.parts(), code=0 if preview.ok else 2)


def _run_and_summarize(source: Any, out: Path, chosen: dict[str, Any], verbose: bool, **terms: Any) -> Outcome:
    """Run all stages into a folder, with progress; the outcome is the summary of the run."""
    refuse_unusable_folder(out)
    with StageProgress() as progress:
        done = shoal.run(source, out, progress=progress, **terms, **chosen)
    parts = done.summary(verbose=verbose)
    if not done.did:
        parts.insert(0, ("Nothing to do", [f"{out} holds a finished run; nothing was released again."]))
    return Outcome(done.to_dict(), parts=parts, code=done.exit_code, brief=not verbose)


@command()
def explain(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run that has released.")],
    purpose: Annotated[str, option("What the release is for, in a sentence: a chapter of the annex.")] = "",
    attack: Annotated[Path | None, option("attack.json of `shoal attack`, whose findings the pages then have.")] = None,
) -> Outcome:
    """A page for a board and an annex for a regulator, about a run.

    Both are made from the release card. They are HTML and print well, the first on one sheet. They name no member.

    Examples:
        shoal explain january
        shoal explain january --purpose "Planning of the feeder at Hauptstrasse"
        shoal explain january --attack shoal-attack/attack.json
    """
    board, annex = shoal.Run.open(folder).explain(purpose, attack)
    words = {"board": f"{board}: one sheet, in plain words.", "regulator": f"{annex}: an annex by the usual chapters."}
    parts = [(f"For a {reader}", [sentence]) for reader, sentence in words.items()]
    return Outcome({"board": str(board), "annex": str(annex)}, parts=parts)


@command()
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run, or a folder of runs.")],
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    host: Annotated[str, option("Address to listen on; TLS is the business of a proxy in front.")] = "127.0.0.1",
    ledger: Annotated[str | None, option("sqlite:///… or postgresql://…; by default that of the runs.")] = None,
    user_header: Annotated[
        str | None, option("Header in which a proxy names who is signed in; with --trust-proxy.")
    ] = None,
    trust_proxy: Annotated[
        str | None, option("Address of that proxy; its headers are believed from nowhere else.")
    ] = None,
    new_owner_key: Annotated[
        bool, option("Make an owner key in the place of a lost one.", None, "--new-owner-key")
    ] = False,
) -> Outcome:
    """The release service and its page: the ledger decides.

    The first owner key is shown once on the terminal; where there is none it is put into DIR/owner-key.txt, which only
    you can read. JSON is under /v1, described at /openapi.json; pages for people are at /.

    Examples:
        shoal serve runs
        shoal serve runs --port 8443 --ledger postgresql://shoal@db/ledger
    """
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn", "multipart")):
        raise shoal.InputError("serve needs packages that are missing here: pip install 'shoal[serve]'")
    from shoal.product.service import application

    proxy: dict[str, Any] = {"user_header": user_header, "trust_proxy": trust_proxy}
    application.serve(folder, ledger=ledger, host=host, port=port, new_owner_key=new_owner_key, **proxy)
    return Outcome({"served": str(folder)}, "Stopped; everything shown is on record.")
