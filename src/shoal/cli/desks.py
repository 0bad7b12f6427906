"""serve: let others ask, under grants that the ledger enforces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.screen import Outcome, command


@command
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run, or a folder of runs.")],
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; TLS is the business of a proxy in front.")
    ] = "127.0.0.1",
    ledger: Annotated[
        str | None, typer.Option(help="sqlite:///… or postgresql://…; by default that of the runs.")
    ] = None,
    user_header: Annotated[
        str | None, typer.Option(help="Header in which a proxy names who is signed in; with --trust-proxy.")
    ] = None,
    trust_proxy: Annotated[
        str | None, typer.Option(help="Address of that proxy; its headers are believed from nowhere else.")
    ] = None,
    new_owner_key: Annotated[
        bool, typer.Option("--new-owner-key", help="Make an owner key in the place of a lost one.")
    ] = False,
) -> Outcome:
    """The release service and its page: the ledger decides.

    The first owner key is shown once on the terminal; where there is none it is put into DIR/owner-key.txt, which only
    you can read. JSON is under /v1, described at /openapi.json; pages for people are at /.

    Examples:

        shoal serve runs

        shoal serve runs --port 8443 --ledger postgresql://shoal@db/ledger
    """
    from shoal.service import server

    server.serve(
        folder,
        ledger=ledger,
        host=host,
        port=port,
        user_header=user_header,
        trust_proxy=trust_proxy,
        new_owner_key=new_owner_key,
    )
    return Outcome({"served": str(folder)}, "Stopped; everything shown is on record.")
