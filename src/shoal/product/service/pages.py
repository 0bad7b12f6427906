"""Pages for people: HTML without scripts, for people who signed in with a key or are named by a trusted proxy.

The cookie is kept from scripts and other sites; every form carries a token of the session.
"""

import json
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader
from starlette.exceptions import HTTPException

from shoal.product.service.access import COOKIE, Sender, Service, Visitor, access_of, guarded_router
from shoal.product.service.questions import QuestionService
from shoal.product.service.register import ROLES, SESSION, Caller, Key
from shoal.rounding import exactly, lower, upper

POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
Short = Annotated[str, Form(min_length=1, max_length=200)]
Role = Annotated[Literal["owner", "analyst"], Form()]

anyone, owners, analysts, members = (
    guarded_router(*roles, include_in_schema=False) for roles in ((), ("owner",), ("analyst",), tuple(ROLES))
)
ROUTERS = anyone, owners, analysts, members


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("shoal.product.service"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"up": upper, "down": lower, "exactly": exactly, "clock": local_minute}
    environment.filters["minute"] = lambda text: text[:16].replace("T", " ") + " UTC" if text else "no end"
    return environment


def render_page(
    request: Request, caller: Caller | None, template: str, title: str, status: int = 200, **facts: Any
) -> HTMLResponse:
    """An HTML page, with the token that its forms carry."""
    token = "" if caller is None else access_of(request).form_token(request, caller)
    text = _environment().get_template(template).render(title=title, caller=caller, csrf=token, **facts)
    return HTMLResponse(text, status_code=status, headers={"Content-Security-Policy": POLICY})


@anyone.get("/style.css")
def stylesheet() -> Response:
    return Response(
        files("shoal.product.service").joinpath("service.css").read_text(encoding="utf-8"), media_type="text/css"
    )


@anyone.get("/sign-in")
def sign_in_page(request: Request) -> Response:
    return render_page(request, None, "sign_in.html", "Sign in")


@anyone.post("/sign-in")
def sign_in(request: Request, service: Service, key: Annotated[str, Form(max_length=200)] = "") -> Response:
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise HTTPException(404)  # another site signs nobody in
    caller = service.register.key_holder(key)
    if caller is None:
        notice = "This is not a key that is in force. Look for missing characters, or ask the data owner for a new one."
        return render_page(request, None, "sign_in.html", "Sign in", 401, notice=notice)
    request.state.person = caller.person
    response = RedirectResponse("/", status_code=303)
    # Whoever claims HTTPS without it only keeps their own cookie from being sent.
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    age = int(SESSION.total_seconds())
    cookie = service.register.sign_in(caller)
    response.set_cookie(COOKIE, cookie, max_age=age, httponly=True, samesite="lax", secure=secure, path="/")
    return response


@members.post("/sign-out")
def sign_out(request: Request, service: Service, _: Sender) -> Response:
    service.register.sign_out(request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(COOKIE, path="/")
    return response


@members.get("/")
def home_page(request: Request, caller: Visitor, service: Service) -> Response:
    questions = service.questions(caller)
    if not caller.is_owner:
        granted = [q | {"quote": service.quote(caller.person, q["question"])} for q in questions if q["granted"]]
        others = [q for q in questions if not q["granted"]]
        return render_page(request, caller, "analyst.html", "Your questions", questions=granted, others=others)
    facts: dict[str, Any] = {
        "left_out": service.catalog.left_out,
        "titles": {question["question"]: question["title"] for question in questions},
        "grants": service.list_grants(),
        "analysts": [person for person in service.register.people() if person.role == "analyst"],
    }
    return render_page(request, caller, "owner.html", "Questions and grants", questions=questions, **facts)


@owners.post("/grants")
def make_grant(
    caller: Sender,
    service: Service,
    analyst: Short,
    question: Short,
    epsilon: Annotated[float | None, Form(ge=0, le=1000, allow_inf_nan=False)] = None,
    delta: Annotated[float | None, Form(ge=0, lt=1, allow_inf_nan=False)] = None,
    expires: Annotated[date | None, Form(lt=date(9999, 1, 1))] = None,
) -> Response:
    # The day that is named is the last one.
    until = None if expires is None else datetime.combine(expires + timedelta(days=1), time(), UTC)
    service.grant(analyst, (question,), epsilon, delta, expires=until, by=caller, with_key=False)
    return RedirectResponse("/", status_code=303)


@owners.post("/grants/{id}/end")
def end_grant(_: Sender, service: Service, id: str) -> Response:
    service.register.end_grant(id)
    return RedirectResponse("/", status_code=303)


@owners.get("/people")
@members.get("/keys")
def keys_page(request: Request, caller: Visitor, service: Service) -> Response:
    return _render_keys(request, caller, service)


def _render_keys(
    request: Request, caller: Caller, service: QuestionService, key: Key | None = None, whose: str = ""
) -> Response:
    """The page of people and keys, or of an analyst's own keys; a new key is shown on this page only."""
    people = service.register.people() if caller.is_owner else [caller.person]
    keys = service.register.list_keys(caller)
    facts: dict[str, Any] = {
        "names": {person.id: person.name for person in people},
        "hints": {key.id: key.hint for key in keys},
        "keys": [key for key in keys if key.in_force],
        "roles": sorted(ROLES),
        "new_key": None if key is None else key.text,
        "key_for": next((f"{person.name}, {person.role}" for person in people if person.id == whose), ""),
    }
    title = "People and keys" if caller.is_owner else "Your keys"
    return render_page(request, caller, "people.html", title, people=people, **facts)


@owners.post("/people")
def admit_person(request: Request, caller: Sender, service: Service, name: Short, role: Role) -> Response:
    person, key = service.register.admit_person(name, role, caller)
    return _render_keys(request, caller, service, key, person.id)


@owners.post("/people/{id}/dismiss")
def dismiss_person(_: Sender, service: Service, id: str) -> Response:
    service.register.dismiss_person(id)
    return RedirectResponse("/people", status_code=303)


@owners.post("/people/{id}/key")
def make_key(request: Request, caller: Sender, service: Service, id: str) -> Response:
    record, key = service.register.new_key(id, caller)
    return _render_keys(request, caller, service, key, record.person)


@members.post("/keys/{id}/end")
def end_key(caller: Sender, service: Service, id: str) -> Response:
    service.register.end_key(id, caller)
    return RedirectResponse("/keys", status_code=303)


@members.post("/keys/{id}/replace")
def replace_key(request: Request, caller: Sender, service: Service, id: str) -> Response:
    record, key = service.register.replace_key(id, caller)
    return _render_keys(request, caller, service, key, record.person)


@owners.get("/ledger")
def ledger_page(
    request: Request, caller: Visitor, service: Service, verify: Annotated[int, Query(ge=0, le=1)] = 0
) -> Response:
    facts: dict[str, Any] = {
        "receipts": service.receipts(caller),
        "titles": {id: question.title for id, question in service.catalog.questions.items()},
        "names": {person.id: person.name for person in service.register.people()},
        "report": service.ledger.verify() if verify else None,
    }
    return render_page(request, caller, "ledger.html", "Ledger", head=service.record.checkpoint(), **facts)


@analysts.get("/questions/{id}")
def question_page(request: Request, caller: Visitor, service: Service, id: str) -> Response:
    return _render_question(request, caller, service, id)


def _render_question(request: Request, caller: Caller, service: QuestionService, id: str, **facts: Any) -> Response:
    quote = service.quote(caller.person, id)
    question = next(q for q in service.questions(caller) if q["question"] == id)
    return render_page(request, caller, "question.html", question["title"], q=question, quote=quote, **facts)


@analysts.post("/questions/{id}/ask")
def ask_question(
    request: Request, caller: Sender, service: Service, id: str, handle: Annotated[str, Form(max_length=200)] = ""
) -> Response:
    body = json.loads(service.release(caller.person, id, handle or None, f"page {id} {handle}"))
    return _render_question(request, caller, service, id, answer=body if handle else None, handle=handle)


@analysts.get("/questions/{id}/table.csv")
def download_table(caller: Visitor, service: Service, id: str) -> Response:
    """The public table of a question as a CSV file."""
    headers = {"Content-Disposition": 'attachment; filename="table.csv"'}
    return Response(service.given_table(caller.person, id), media_type="text/csv", headers=headers)


def local_minute(text: str) -> str:
    """An instant to the minute, as its own clock shows it, with its offset from UTC where that is known.

    >>> local_minute("2025-01-31T18:00:00+01:00"), local_minute("2025-01-31T18:00:00")
    ('2025-01-31 18:00 +01:00', '2025-01-31 18:00')
    """
    return f"{text[:16].replace('T', ' ')} {text[19:]}".rstrip()
