"""The service as a process: uvicorn over one ledger, one worker, ended gracefully.

Checkpoints go to ``checkpoints.jsonl`` in the served folder, outside of the database: at every start the last one must
be a beginning of the ledger that is there, so that a ledger that was rewritten or restored from an old copy is refused.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from shoal.errors import InputError, LedgerError
from shoal.ledger.ledger import Ledger
from shoal.service.application import application
from shoal.service.catalog import offers
from shoal.service.desk import Desk
from shoal.service.instruments import standard_log
from shoal.service.pages import pages
from shoal.service.provider import Provider

CHECKPOINTS = "checkpoints.jsonl"


def serve(
    folder: str | Path,
    *,
    ledger: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    tell: Callable[[str], Any] = print,
    issuer: str | None = None,
    client_id: str | None = None,
) -> None:
    """Serve the runs of a folder until the process is told to stop.

    Args:
        folder: a run, or a folder of runs.
        ledger: where it is kept; by default the one of the runs.
        host, port: where to listen. TLS is the proxy's in front.
        tell: called with what the operator must read: the first owner key, once.
        issuer, client_id: an OpenID Connect provider for people; its secret comes from ``SHOAL_OIDC_SECRET``.

    >>> serve("january", port=8000)  # doctest: +SKIP
    """
    import uvicorn

    questions = offers(folder)
    if not questions:
        raise InputError(f"dir: no run in {Path(folder).name} has a design yet; `shoal run` makes one")
    of_runs = next(iter(questions.values())).run
    with of_runs.ledger(create=True) if ledger is None else Ledger.open(ledger) as opened:
        desk = Desk(opened, folder)
        compared(desk, Path(folder) / CHECKPOINTS)
        key = desk.register.founded()
        if key is not None:
            tell(f"The first owner key, shown this once: {key.text}")
        tell(f"{len(questions)} question(s) on http://{host}:{port}/")
        provider = None
        if issuer is not None:
            if client_id is None:
                raise InputError("client_id: the provider knows this service by one; name it")
            provider = Provider(issuer, client_id, opened.secret, os.environ.get("SHOAL_OIDC_SECRET"))
        told = standard_log()
        app = application(desk, told, pages=partial(pages, provider=provider))
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=20,
            server_header=False,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its lines may quote what failed
        told.line("started", questions=len(questions))
        with _ended_by_signal():
            uvicorn.Server(config).run()
        written(desk, Path(folder) / CHECKPOINTS)
        told.line("stopped")


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Whoever ends the server by a signal gets the rest of this module done: uvicorn sends itself the signal again."""
    names = (signal.SIGTERM, signal.SIGINT)
    before = {name: signal.signal(name, lambda *_: None) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def compared(desk: Desk, path: Path) -> None:
    """Raise unless the last checkpoint that was written is a beginning of the ledger; then write the newest."""
    if path.is_file():
        lines = path.read_text().splitlines()
        last = json.loads(lines[-1]) if lines else None
        if last is not None:
            if last["ledger"] != desk.identity:
                raise LedgerError("ledger: it is not the one whose checkpoints lie in this folder; name that one")
            if last["size"] > desk.checkpoint()["size"]:
                raise LedgerError(
                    f"ledger: it has fewer entries than its last checkpoint ({last['size']}): an old copy was restored."
                    " Restore the newest one; what was given since is not on this record"
                )
            if desk.checkpoint(last["size"])["root"] != last["root"]:
                raise LedgerError("ledger: its history was rewritten since the last checkpoint; restore a true copy")
    written(desk, path)


def written(desk: Desk, path: Path) -> None:
    """Add the newest checkpoint, if there is a newer one than the last."""
    newest = json.dumps(desk.checkpoint(), sort_keys=True)
    lines = path.read_text().splitlines() if path.is_file() else []
    if not lines or lines[-1] != newest:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a") as file:
            file.write(newest + "\n")
            file.flush()
            os.fsync(file.fileno())
