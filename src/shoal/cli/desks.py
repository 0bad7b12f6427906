"""serve: let others ask, under grants that the ledger enforces."""

from __future__ import annotations

import sys
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
    issuer: Annotated[str | None, typer.Option(help="An OpenID Connect provider for people on the page.")] = None,
    client_id: Annotated[str | None, typer.Option(help="By which the provider knows this service.")] = None,
) -> Outcome:
    """The release service and its web page: analysts ask, the ledger decides.

    The first owner key is printed once. JSON is under /v1, described at /openapi.json; pages for people are at /.

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
        issuer=issuer,
        client_id=client_id,
        tell=lambda text: print(text, file=sys.stderr, flush=True),
    )
    return Outcome({"served": str(folder)}, "Stopped; everything shown is on record.")
