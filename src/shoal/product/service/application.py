"""The service over HTTP: JSON under ``/v1``, pages under ``/``, every route behind the table of roles.

| status | means |
| --- | --- |
| 401 | no key, or one that is not in force |
| 403 | refused by a budget or a rule of the ledger; the same document for every handle of a question |
| 404 | there is no such thing, or not for this key |
| 409 | it cannot be done as things are |
| 413 | too long |
| 422 | a body that makes no sense, or another one under the same Idempotency-Key |

Errors are problem documents (RFC 9457) with fixed texts: nothing of a request is ever repeated in a response.
"""

import contextlib
import errno
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import shoal
from shoal.errors import InputError, LedgerError, ShoalError
from shoal.files import write_whole
from shoal.product.ledger.ledger import Ledger
from shoal.product.ledger.storage import Storage
from shoal.product.runs.folder import hold_lock
from shoal.product.runs.owner_ledger import Place
from shoal.product.service import api, pages
from shoal.product.service.access import Access, TrustedProxy, guarded_router
from shoal.product.service.catalog import ledger_place
from shoal.product.service.questions import IdempotencyConflict, NotAllowed, QuestionService
from shoal.product.service.record import database_file
from shoal.product.service.register import Key, NotNow, Unknown

#: Bytes of a body.
BODY = 64 * 1024


#: Status -> title of its problem document.
TITLES = {
    400: "The request cannot be read",
    401: "A key is needed: send Authorization: Bearer KEY",
    403: "Refused",
    404: "There is no such thing here",
    405: "There is no such call",
    409: "It cannot be done as things are",
    413: "The request is too long",
    422: "The request does not make sense",
    500: "The service failed; nothing is shown that is not on record",
    503: "The ledger cannot be used now; the service's log says why",
}

#: A problem document of RFC 9457, for the description of the calls.
DOCUMENT = {
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {name: {"type": "string"} for name in ("type", "title", "detail")} | {"status": {"type": "integer"}},
}

#: Sent with every response.
HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]

METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")

#: Fields that a message may name.
MODELS = (api.GrantBody, api.PersonBody, api.KeyBody, api.QuoteBody, api.ReleaseBody)
FIELDS = {name for model in MODELS for name in model.model_fields} | {"idempotency-key", "size", "first", "second"}


def problem_document(status: int, detail: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """A problem document: fixed words, the same bytes for the same case."""
    content = {"type": "about:blank", "title": TITLES.get(status, "Error"), "status": status}
    more = ({"WWW-Authenticate": "Bearer"} if status == 401 else {}) | dict(headers or {})
    return JSONResponse(content | ({"detail": detail} if detail else {}), status, more, "application/problem+json")


def _fault_in_words(fault: Mapping[str, Any]) -> str:
    """The fault of a request's field in words that repeat nothing of the request."""
    if fault["type"] == "json_invalid":
        return "the body is not JSON"
    field = next((str(part) for part in fault["loc"][1:2] if part in FIELDS), "the body")
    if fault["type"] == "extra_forbidden":
        return (
            f"{field}: this call does not take it" if field in FIELDS else "the body has a field that is unknown here"
        )
    return f"{field}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


class RequestLog:
    """One line of JSON per request: routes, statuses and roles; no question, handle, analyst, answer or address."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def write_line(self, event: str, **facts: object) -> None:
        """Write one line."""
        if self._stream is not None:
            stamped = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
            print(json.dumps(stamped), file=self._stream, flush=True)


class OuterGuard:
    """Around everything: bodies of bounded length, headers that browsers obey, and a line in the log."""

    def __init__(self, app: ASGIApp, log: RequestLog) -> None:
        self._app, self._log = app, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, length = time.perf_counter(), 500, 0

        async def limit() -> Message:
            nonlocal length
            message = await receive()
            length += len(message.get("body", b""))
            if length > BODY:
                raise HTTPException(413)
            return message

        async def outward(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if not stated.isdigit() or len(stated) > 9 or int(stated) > BODY:
            await problem_document(413 if stated.isdigit() else 400)(scope, receive, outward)
        else:
            await self._app(scope, limit, outward)
        route = getattr(scope.get("route"), "path", "other")
        role = getattr(scope.get("state", {}).get("person"), "role", "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        taken = round(1000 * (time.perf_counter() - begun), 1)
        self._log.write_line("request", method=method, route=route, status=status, ms=taken, role=role)


#: What was raised -> the status.
STATUSES: dict[type[ShoalError], int] = {
    Unknown: 404,
    NotAllowed: 403,
    NotNow: 409,
    IdempotencyConflict: 422,
    InputError: 422,
    LedgerError: 503,
}


def make_application(
    service: QuestionService, log: RequestLog | None = None, *, proxy: TrustedProxy | None = None
) -> FastAPI:
    """The service as an ASGI application; it logs nothing without a ``log``."""
    log = log or RequestLog()
    document = {"application/problem+json": {"schema": DOCUMENT}}
    app = FastAPI(
        title="shoal",
        version=shoal.__version__,
        description="Private answers, on record. Keys go into `Authorization: Bearer KEY`.",
        docs_url=None,
        redoc_url=None,
        responses={
            status: {"description": title, "content": document} for status, title in TITLES.items() if status > 400
        },
    )
    app.state.access = Access(service, proxy)

    async def fail(request: Request, error: Exception) -> Response:
        """An error as a page for a browser, as a problem document for everybody else."""
        if isinstance(error, HTTPException) and error.status_code == 303:
            return RedirectResponse("/sign-in", status_code=303)
        status, detail, headers = 500, "", None
        if isinstance(error, HTTPException):
            status, headers = error.status_code, error.headers if error.status_code == 405 else None
        elif isinstance(error, RequestValidationError):
            status, detail = 422, "; ".join(sorted({_fault_in_words(fault) for fault in error.errors()}))
        else:
            status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)
            if status >= 500:
                log.write_line("failure", kind=type(error).__name__, said=str(error) if status == 503 else "")
            owner = getattr(getattr(request.state, "person", None), "role", "") == "owner"
            shown = isinstance(error, NotAllowed | NotNow | IdempotencyConflict) or (status == 422 and owner)
            detail = str(error) if shown else ""
        if not request.scope["path"].startswith("/v1/") and "text/html" in request.headers.get("accept", ""):
            return pages.render_page(request, None, "error.html", TITLES.get(status, "Error"), status, detail=detail)
        return problem_document(status, detail, headers)

    for kind in (HTTPException, RequestValidationError, ShoalError, Exception):
        app.add_exception_handler(kind, fail)
    health = guarded_router()

    @health.get("/healthz")
    def healthz() -> dict[str, str]:
        service.ledger.head  # noqa: B018
        return {"status": "ok"}

    for each in (health, *api.ROUTERS, *pages.ROUTERS):
        app.include_router(each)
    app.add_middleware(OuterGuard, log=log)
    return app


# ------------------------------------------------------------------ as a process


KEY_FILE = "owner-key.txt"
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
    """Serve the runs of a folder until the process is told to stop; ``shoal serve`` describes the arguments."""
    proxy = TrustedProxy.from_options(user_header, trust_proxy)
    place = ledger_place(folder, ledger)
    log = RequestLog(sys.stderr)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(open_listener(host, port)))
        used = stack.enter_context(Ledger.open(place.url))
        stack.enter_context(hold_alone(used, place))
        service = QuestionService(used, folder, log.write_line)
        service.record.compare_checkpoints()
        catalog = service.catalog
        if not catalog.questions:
            reasons = "".join(f". {title}: {reason}" for title, reason in catalog.left_out.items())
            reasons = reasons or "; `shoal run` makes a run"
            raise InputError(f"dir: nothing in {Path(folder).name} can be asked{reasons}")
        key = service.register.new_owner_key() if new_owner_key else service.register.first_key()
        if key is not None:
            deliver_key(key, Path(folder) / KEY_FILE)
        service.record.keep_checkpoint()
        for title, reason in catalog.left_out.items():
            print_notice(f"Not offered: {title}: {reason}")
        print_notice(f"{len(catalog.questions)} question(s) on http://{host}:{port}/")
        app = make_application(service, log, proxy=proxy)
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
        for name in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises again what stopped it
            stack.callback(signal.signal, name, signal.signal(name, lambda *_: setattr(server, "should_exit", True)))
        log.write_line("started", questions=len(catalog.questions))
        server.run(sockets=[listener])
        service.record.keep_checkpoint()
        log.write_line("stopped")


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket on the port; InputError says why there is none."""
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


def print_notice(text: str) -> None:
    """Print a notice for the operator on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def hold_alone(ledger: Ledger, place: Place) -> Iterator[None]:
    """Hold the ledger for this process as long as the block runs; LedgerError if another service holds it."""
    busy = LedgerError(
        f"ledger: another `shoal serve` uses {place.where}; one process serves one ledger. Stop that one first"
    )
    file = database_file(ledger.storage)
    if file is not None:
        with hold_lock(file.with_name(f"{file.name}-serving"), busy):
            yield
        return
    # A connection of its own, which nothing else uses and which holds the lock as long as it is open.
    with contextlib.closing(Storage.open(place.url, 30.0)) as storage:
        with storage.reading() as transaction:
            if not transaction.value("SELECT pg_try_advisory_lock(:key)", key=ADVISORY):
                raise busy
        yield


def deliver_key(key: Key, file: Path) -> None:
    """Show an owner key at a terminal, or put it into a file that only its owner reads: never into a log."""
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        print_notice(f"The owner's key, shown this once: {key.text}")
        return
    write_whole(file, file.with_name(f"{file.name}.part"), lambda rough: rough.write_bytes(f"{key.text}\n".encode()))
    print_notice(f"The owner's key is in {file}: keep it elsewhere and remove the file")
