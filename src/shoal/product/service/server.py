"""The service as a process: uvicorn over one ledger, one process, ended gracefully.

Before anything is served, the port is taken, the ledger is taken (nobody else may serve it), and the checkpoints in the
served folder are held against it (:mod:`shoal.product.service.record`).
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.errors import InputError, LedgerError
from shoal.files import write_whole
from shoal.product.ledger.ledger import Ledger
from shoal.product.ledger.storage import Storage
from shoal.product.runs.folder import hold_lock
from shoal.product.runs.owner_ledger import Place
from shoal.product.service.catalog import ledger_place
from shoal.product.service.record import database_file
from shoal.product.service.register import Key

KEY_FILE = "owner-key.txt"
NEEDED = ("fastapi", "uvicorn", "jinja2", "multipart")
#: Key of the advisory lock that a service holds on PostgreSQL ("serve" in ASCII).
ADVISORY = 0x7365727665


def serve(
    folder: str | Path,
    *,
    ledger: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    user_header: str | None = None,
    trust_proxy: str | None = None,
    new_owner_key: bool = False,
) -> None:
    """Serve the runs of a folder until the process is told to stop.

    Args:
        folder: a run, or a folder of runs.
        ledger: where it is kept; by default the one of the runs.
        host, port: where to listen. TLS is the proxy's in front.
        user_header: header in which a proxy says who the user of the pages is; with ``trust_proxy``.
        trust_proxy: the proxy's address, from which alone its headers are believed.
        new_owner_key: make an owner key in the place of a lost one.

    >>> serve("january", port=8000)  # doctest: +SKIP
    """
    if any(importlib.util.find_spec(name) is None for name in NEEDED):
        raise InputError("serve needs packages that are missing here: pip install 'shoal[serve]'")
    import uvicorn

    from shoal.product.service.access import TrustedProxy
    from shoal.product.service.application import RequestLog, application
    from shoal.product.service.questions import QuestionService

    proxy = TrustedProxy.of(user_header, trust_proxy)
    place = ledger_place(folder, ledger)
    log = RequestLog(sys.stderr)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(listening(host, port)))
        used = stack.enter_context(Ledger.open(place.url))
        stack.enter_context(alone(used, place))
        service = QuestionService(used, folder, log.line)
        service.record.compare()
        catalog = service.catalog
        if not catalog.questions:
            reasons = "".join(f". {title}: {reason}" for title, reason in catalog.left_out.items())
            reasons = reasons or "; `shoal run` makes a run"
            raise InputError(f"dir: nothing in {Path(folder).name} can be asked{reasons}")
        key = service.register.new_owner_key() if new_owner_key else service.register.first_key()
        if key is not None:
            deliver(key, Path(folder) / KEY_FILE)
        service.record.keep()
        for title, reason in catalog.left_out.items():
            tell(f"Not offered: {title}: {reason}")
        tell(f"{len(catalog.questions)} question(s) on http://{host}:{port}/")
        app = application(service, log, proxy=proxy)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=20,
            server_header=False,
            proxy_headers=False,  # shoal.service.access believes the one trusted proxy, and nobody else
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its lines may quote what failed
        server = uvicorn.Server(config)
        with _stopped_by_signal(lambda: setattr(server, "should_exit", True)):
            log.line("started", questions=len(catalog.questions))
            server.run(sockets=[listener])
        service.record.keep()
        log.line("stopped")


def listening(host: str, port: int) -> socket.socket:
    """A socket on the port, or a sentence that says why there is none."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: f"port: {port} is in use on {host}; stop what listens there, or choose another --port",
            errno.EACCES: f"port: this user may not listen on {port}; choose a --port above 1023",
        }
        other = "host must be an address of this machine, such as 127.0.0.1"
        raise InputError(reasons.get(error.errno or 0, other)) from None


def tell(text: str) -> None:
    """Say what the operator must read."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def alone(ledger: Ledger, place: Place) -> Iterator[None]:
    """Hold a ledger for this service: two would each believe that nobody else shows answers."""
    busy = LedgerError(
        f"ledger: another `shoal serve` uses {place.where}; one process serves one ledger. Stop that one first"
    )
    file = database_file(ledger.storage)
    if file is not None:
        with hold_lock(file.with_name(f"{file.name}-serving"), busy):
            yield
        return
    # A connection of its own, which nothing else uses and which holds the lock as long as it is open.
    storage = Storage.open(place.url, 30.0)
    try:
        with storage.reading() as transaction:
            if not transaction.value("SELECT pg_try_advisory_lock(:key)", key=ADVISORY):
                raise busy
        yield
    finally:
        storage.close()


def deliver(key: Key, file: Path) -> None:
    """Show an owner key at a terminal, or put it into a file that only its owner reads: never into a log."""
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        tell(f"The owner's key, shown this once: {key.text}")
        return
    write_whole(file, file.with_name(f"{file.name}.part"), lambda rough: rough.write_bytes(f"{key.text}\n".encode()))
    tell(f"The owner's key is in {file}: keep it elsewhere and remove the file")


@contextlib.contextmanager
def _stopped_by_signal(stop: Callable[[], None]) -> Iterator[None]:
    """A signal stops the server, also before uvicorn listens to signals; at its end uvicorn sends it again."""
    before = {name: signal.signal(name, lambda *_: stop()) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
