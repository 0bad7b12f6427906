"""The service over HTTP: JSON under ``/v1``, pages under ``/``, every route behind the table of roles.

| status | means |
| --- | --- |
| 401 | no key, or one that is not in force |
| 403 | refused by a budget; the same document for every handle of a question |
| 404 | there is no such thing, or not for this key |
| 413, 429 | too long, too often |
| 422 | a body that makes no sense, or another one under the same Idempotency-Key |

Errors are problem documents (RFC 9457) with fixed texts: nothing of a request is ever repeated in a response.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import shoal
from shoal.errors import InputError, LedgerError, ShoalError
from shoal.service.desk import Clash, Desk, Refused, Unknown
from shoal.service.instruments import Instruments
from shoal.service.keys import Key, parsed
from shoal.service.limits import BODY, Pace
from shoal.service.people import Person
from shoal.service.roles import may

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
Identifier = Annotated[str, Field(min_length=1, max_length=100)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Window(_Body):
    """A part of the budget that renews: (ε, δ) in any so many days."""

    days: float = Field(gt=0, le=36500)
    epsilon: float = Field(ge=0, le=1000)
    delta: float = Field(ge=0, lt=1)


class Granting(_Body):
    """Who may ask what, within which budget."""

    analyst: Name
    question: Identifier | list[Identifier]
    epsilon: float = Field(ge=0, le=1000)
    delta: float = Field(ge=0, lt=1)
    expires: Annotated[datetime, Field(strict=False)] | None = None
    window: Window | None = None


class Admitting(_Body):
    name: Name
    role: Literal["owner", "approver", "analyst", "auditor"]


class Asking(_Body):
    question: Identifier


class Releasing(_Body):
    question: Identifier
    handle: Identifier


class Requesting(_Body):
    question: Identifier
    reason: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]


class Approving(_Body):
    epsilon: float = Field(ge=0, le=1000)
    delta: float = Field(ge=0, lt=1)
    expires: Annotated[datetime, Field(strict=False)] | None = None
    answer: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")] = ""


class Denying(_Body):
    answer: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]


class Problem(BaseModel):
    """A problem document, RFC 9457."""

    type: str
    title: str
    status: int
    detail: str = ""


#: Status -> title of its problem document.
TITLES = {
    400: "The request cannot be read",
    401: "A key is needed: send Authorization: Bearer KEY",
    403: "Refused by a budget",
    404: "There is no such thing here",
    405: "There is no such call",
    409: "It cannot be done now",
    413: "The request is too long",
    422: "The request does not make sense",
    429: "Too many requests; wait a little",
    500: "The service failed; nothing is shown that is not on record",
    503: "The ledger cannot be reached",
}


def problem(status: int, detail: str = "", more: Mapping[str, str] | None = None) -> Response:
    """A problem document: fixed words, the same bytes for the same case."""
    content = {"type": "about:blank", "title": TITLES.get(status, "Error"), "status": status}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": "1"} if status == 429 else {}
    return JSONResponse(
        {**content, "detail": detail} if detail else content,
        status_code=status,
        headers={**headers, **(more or {})},
        media_type="application/problem+json",
    )


class Guarded:
    """Around everything: bodies of bounded length, headers that browsers obey, and the instruments."""

    def __init__(self, app: ASGIApp, instruments: Instruments) -> None:
        self._app, self._instruments = app, instruments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, length = time.perf_counter(), 500, 0
        headers = dict(scope["headers"])

        async def limited() -> Message:
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

        stated = headers.get(b"content-length", b"0")
        if not stated.isdigit() or int(stated) > BODY:
            await problem(413 if stated.isdigit() else 400)(scope, receive, outward)
        else:
            await self._app(scope, limited, outward)
        route = getattr(scope.get("route"), "path", "other")
        role = getattr(scope.get("state", {}).get("person"), "role", "none")
        self._instruments.told(_method(scope["method"]), route, status, time.perf_counter() - begun, role)


#: Sent with every response.
HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]


def _method(text: str) -> str:
    return text if text in ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS") else "other"


def application(
    desk: Desk,
    instruments: Instruments | None = None,
    *,
    rate: float = 100.0,
    burst: float = 400.0,
    pages: Callable[[FastAPI, Desk], None] | None = None,
) -> FastAPI:
    """The service as an ASGI application.

    Args:
        desk: what it serves.
        instruments: where it counts; by default new ones without a log.
        rate, burst: requests a second of one key, and at once.
        pages: adds the pages for people.
    """
    told = instruments or Instruments()
    pace, strangers = Pace(rate, burst), Pace(rate, burst)
    app = FastAPI(
        title="shoal",
        version=shoal.__version__,
        description="Private answers under a budget. Keys go into `Authorization: Bearer KEY`.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        responses={
            status: {
                "description": TITLES[status],
                "content": {"application/problem+json": {"schema": Problem.model_json_schema()}},
            }
            for status in (401, 403, 404, 413, 422, 429, 503)
        },
    )
    app.state.desk, app.state.instruments = desk, told

    bearer = HTTPBearer(auto_error=False, description="A key of this service.")

    def caller(request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> Person:
        """Who calls, if they may call this."""
        route = getattr(request.scope.get("route"), "path", "")
        address = request.client.host if request.client else "-"
        key = parsed(sent.credentials.strip()) if sent is not None else None
        person = desk.register.holder(key) if key is not None else None
        if person is None or key is None:
            if not strangers.allows(address):
                raise HTTPException(429)
            raise HTTPException(401)
        if not pace.allows(person.id):
            raise HTTPException(429)
        request.state.person, request.state.key = person, key
        if not may(person.role, request.method, route):
            raise HTTPException(404)
        return person

    Caller = Annotated[Person, Depends(caller)]

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        return problem(error.status_code, more=error.headers if error.status_code == 405 else None)

    @app.exception_handler(RequestValidationError)
    async def senseless(_: Request, error: RequestValidationError) -> Response:
        places = {str(part) for one in error.errors() for part in one.get("loc", ())[1:2]}
        known = sorted(places & _FIELDS)
        return problem(422, f"look at: {', '.join(known)}" if known else "")

    @app.exception_handler(ShoalError)
    async def failed(_: Request, error: ShoalError) -> Response:
        if isinstance(error, Unknown):
            return problem(404)
        if isinstance(error, Refused):
            return problem(403, str(error))
        if isinstance(error, (Clash, InputError)):
            return problem(422, str(error))
        if isinstance(error, LedgerError):
            return problem(503)
        return problem(500)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        told.line("failure", kind=type(error).__name__)
        return problem(500)

    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        desk.ledger.head  # noqa: B018
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    def metrics(_: Caller) -> str:
        return told.exposition(desk.ledger.head.seq)

    @app.post("/v1/people", status_code=201)
    def admit(_: Caller, body: Admitting) -> dict[str, str]:
        return {"name": body.name, "role": body.role, "key": desk.register.person(body.name, body.role).text}

    @app.get("/v1/people")
    def people(_: Caller) -> list[dict[str, str]]:
        return [vars(one) for one in desk.register.people()]

    @app.delete("/v1/people/{id}", status_code=204)
    def dismiss(_: Caller, id: str) -> Response:
        if id not in {one.id for one in desk.register.people()}:
            raise Unknown("there is no such person")
        desk.register.revoke_person(id)
        return Response(status_code=204)

    @app.post("/v1/keys", status_code=201)
    def rotate(_: Caller, request: Request) -> dict[str, str]:
        return {"key": desk.register.rotated(request.state.key).text}

    @app.delete("/v1/keys", status_code=204)
    def end_key(_: Caller, request: Request) -> Response:
        key: Key = request.state.key
        desk.register.revoke_key(key.digest)
        return Response(status_code=204)

    @app.post("/v1/grants", status_code=201)
    def grant(person: Caller, body: Granting) -> dict[str, Any]:
        questions = tuple(body.question) if isinstance(body.question, list) else (body.question,)
        made, key = desk.grant(
            body.analyst,
            questions,
            body.epsilon,
            body.delta,
            expires=None if body.expires is None else body.expires.isoformat(),
            window=None if body.window is None else (body.window.days, body.window.epsilon, body.window.delta),
            by=person,
        )
        return {"grant": made.id, "key": None if key is None else key.text, "expires": made.expires}

    @app.get("/v1/grants")
    def grants(_: Caller) -> list[dict[str, Any]]:
        return desk.grants()

    @app.delete("/v1/grants/{id}", status_code=204)
    def revoke(_: Caller, id: str) -> Response:
        if not desk.register.revoke(id):
            raise Unknown("there is no such grant")
        return Response(status_code=204)

    @app.get("/v1/questions")
    def questions(person: Caller) -> list[dict[str, Any]]:
        return desk.questions(person)

    @app.post("/v1/quotes")
    def quote(person: Caller, body: Asking) -> dict[str, Any]:
        return desk.quote(person, body.question)

    @app.post("/v1/releases")
    def release(
        person: Caller,
        body: Releasing,
        idempotency_key: Annotated[str, Header(min_length=1, max_length=200)],
    ) -> Response:
        content = desk.release(person, body.question, body.handle, idempotency_key)
        return Response(content, media_type="application/json")

    @app.get("/v1/receipts")
    def receipts(person: Caller) -> list[dict[str, Any]]:
        return desk.receipts(person)

    @app.get("/v1/receipts/{id}/proof")
    def proof(person: Caller, id: str, size: Annotated[int | None, Query(ge=1, le=2**53)] = None) -> dict[str, Any]:
        return desk.proof(person, id, size)

    @app.get("/v1/ledger/head")
    def head(_: Caller) -> dict[str, Any]:
        return desk.checkpoint()

    @app.get("/v1/ledger/consistency")
    def consistency(
        _: Caller, first: Annotated[int, Query(ge=1, le=2**53)], second: Annotated[int | None, Query(ge=1)] = None
    ) -> dict[str, Any]:
        return desk.consistency(first, second)

    @app.get("/v1/ledger/verify")
    def verify(_: Caller) -> dict[str, Any]:
        found = desk.ledger.verify()
        return {"intact": bool(found), "entries": found.entries, "problem": found.problem, "head": str(found.head)}

    @app.post("/v1/requests", status_code=201)
    def request(person: Caller, body: Requesting) -> dict[str, Any]:
        return vars(desk.requested(person, body.question, body.reason))

    @app.get("/v1/requests")
    def requests(person: Caller) -> list[dict[str, Any]]:
        mine = person.id if person.role == "analyst" else None
        return [vars(one) for one in desk.register.requests(mine)]

    @app.post("/v1/requests/{id}/approve")
    def approve(person: Caller, id: str, body: Approving) -> dict[str, Any]:
        until = None if body.expires is None else body.expires.isoformat()
        return desk.approved(id, body.epsilon, body.delta, until, body.answer, person)

    @app.post("/v1/requests/{id}/deny")
    def deny(person: Caller, id: str, body: Denying) -> dict[str, Any]:
        return desk.denied(id, body.answer, person)

    if pages is not None:
        pages(app, desk)
    app.add_middleware(Guarded, instruments=told)
    return app


#: Fields that a message may name.
_FIELDS = {
    name
    for model in (Granting, Admitting, Asking, Releasing, Requesting, Approving, Denying)
    for name in model.model_fields
} | {"idempotency-key", "size", "first", "second"}
