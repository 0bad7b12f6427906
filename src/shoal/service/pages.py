"""Pages for people: rendered here, without scripts and without anything from elsewhere.

Whoever signs in with a key gets a cookie that scripts cannot read and other sites cannot use; every form carries a
token that belongs to the session. What a page may do is in the same table of roles as the calls.
"""

import json
import math
from collections.abc import Sequence
from datetime import date, timedelta
from functools import cache
from html import escape
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from starlette.exceptions import HTTPException

from shoal.errors import InputError
from shoal.rounding import upper
from shoal.service.access import COOKIE, GuardedRoute, Sender, TheDesk, Visitor, access_of
from shoal.service.desk import Desk, NotAllowed
from shoal.service.people import ROLES, SESSION, Caller, Key, NotNow, Unknown

POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: Of the picture of an answer.
WIDTH, HEIGHT, LEFT, LOW, TOP, RIGHT = 420.0, 230.0, 44.0, 32.0, 10.0, 12.0
Short = Annotated[str, Form(min_length=1, max_length=200)]
Optional = Annotated[str, Form(max_length=200)]

router = APIRouter(include_in_schema=False, route_class=GuardedRoute)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("shoal.service"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["up"] = lambda value: upper(float(value)) if value else "0"
    environment.filters["clock"] = clock
    environment.filters["minute"] = lambda text: text[:16].replace("T", " ") + " UTC" if text else "no end"
    return environment


def render(
    request: Request, caller: Caller | None, template: str, title: str, status: int = 200, **facts: Any
) -> HTMLResponse:
    """A page, with the token that its forms need."""
    token = "" if caller is None else access_of(request).token(request, caller)
    text = _environment().get_template(template).render(title=title, caller=caller, csrf=token, **facts)
    return HTMLResponse(text, status_code=status, headers={"Content-Security-Policy": POLICY})


def wanted(request: Request) -> bool:
    """Whether whoever asks looks at pages, not at calls."""
    return not request.url.path.startswith("/v1/") and "text/html" in request.headers.get("accept", "")


def error_page(request: Request, status: int, title: str, detail: str) -> Response:
    """An error as a page: what is wrong, and the way back."""
    return render(request, None, "error.html", title, status, detail=detail)


@router.get("/style.css")
def stylesheet() -> Response:
    return Response(files("shoal.service").joinpath("service.css").read_text(encoding="utf-8"), media_type="text/css")


@router.get("/sign-in")
def sign_in_page(request: Request) -> Response:
    return render(request, None, "sign_in.html", "Sign in")


@router.post("/sign-in")
def sign_in(request: Request, desk: TheDesk, key: Annotated[str, Form(max_length=200)] = "") -> Response:
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise HTTPException(404)  # another site signs nobody in
    caller = desk.register.holder(key)
    if caller is None:
        notice = "This is not a key that is in force. Look for missing characters, or ask the data owner for a new one."
        return render(request, None, "sign_in.html", "Sign in", 401, notice=notice)
    request.state.person = caller.person
    response = RedirectResponse("/", status_code=303)
    # Whoever claims HTTPS without it only keeps their own cookie from being sent.
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    age = int(SESSION.total_seconds())
    cookie = desk.register.sign_in(caller)
    response.set_cookie(COOKIE, cookie, max_age=age, httponly=True, samesite="lax", secure=secure, path="/")
    return response


@router.post("/sign-out")
def sign_out(request: Request, desk: TheDesk, _: Sender) -> Response:
    desk.register.sign_out(request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(COOKIE, path="/")
    return response


@router.get("/")
def home(request: Request, caller: Visitor, desk: TheDesk) -> Response:
    return _overview(request, caller, desk) if caller.is_owner else analyst_page(request, caller, desk)


def _overview(request: Request, caller: Caller, desk: Desk, **facts: Any) -> Response:
    questions = desk.questions(caller)
    return render(
        request,
        caller,
        "owner.html",
        "Questions and grants",
        questions=questions,
        left_out=desk.catalog.left_out,
        titles={question["question"]: question["title"] for question in questions},
        grants=desk.list_grants(),
        analysts=[person for person in desk.register.people() if person.role == "analyst"],
        **facts,
    )


@router.post("/grants")
def grant(
    request: Request,
    caller: Sender,
    desk: TheDesk,
    analyst: Short,
    question: Short,
    epsilon: Optional = "",
    delta: Optional = "",
    expires: Optional = "",
) -> Response:
    try:
        # The day that is named is the last one.
        until = (date.fromisoformat(expires) + timedelta(days=1)).isoformat() if expires else None
        budget = [float(text) if text.strip() else None for text in (epsilon, delta)]
        desk.grant(analyst, (question,), *budget, expires=until, by=caller, with_key=False)
    except (InputError, NotNow, Unknown) as error:
        return _overview(request, caller, desk, notice=f"Not granted. {error}.")
    except (ValueError, OverflowError):
        return _overview(request, caller, desk, notice="Not granted: ε and δ are numbers, and the end is a day.")
    return RedirectResponse("/", status_code=303)


@router.post("/grants/{id}/end")
def end_grant(_: Sender, desk: TheDesk, id: str) -> Response:
    desk.end_grant(id)
    return RedirectResponse("/", status_code=303)


@router.get("/people")
def people(request: Request, caller: Visitor, desk: TheDesk) -> Response:
    return _people(request, caller, desk)


def _people(
    request: Request, caller: Caller, desk: Desk, key: Key | None = None, key_for: str = "", **facts: Any
) -> Response:
    """People and all keys, or an analyst's own keys; a new key is shown on the page that made it, and nowhere else."""
    everybody = desk.register.people() if caller.is_owner else [caller.person]
    keys = desk.register.list_keys(None if caller.is_owner else caller.person.id)
    return render(
        request,
        caller,
        "people.html" if caller.is_owner else "keys.html",
        "People and keys" if caller.is_owner else "Your keys",
        people=everybody,
        names={person.id: person.name for person in everybody},
        hints={key.id: key.hint for key in keys},
        keys=[key for key in keys if key.in_force],
        roles=sorted(ROLES),
        new_key=None if key is None else key.text,
        key_for=key_for,
        **facts,
    )


@router.post("/people")
def admit(request: Request, caller: Sender, desk: TheDesk, name: Short, role: Short) -> Response:
    try:
        _, key = desk.register.admit(name.strip(), role, caller)
    except (InputError, NotNow) as error:
        return _people(request, caller, desk, notice=f"Not admitted. {error}.")
    return _people(request, caller, desk, key, f"{name.strip()}, {role}")


@router.post("/people/{id}/dismiss")
def dismiss(request: Request, caller: Sender, desk: TheDesk, id: str) -> Response:
    try:
        desk.dismiss(id)
    except NotNow as error:
        return _people(request, caller, desk, notice=f"Not dismissed. {error}.")
    return RedirectResponse("/people", status_code=303)


@router.post("/people/{id}/key")
def make_key(request: Request, caller: Sender, desk: TheDesk, id: str) -> Response:
    person = next((person for person in desk.register.people() if person.id == id), None)
    if person is None:
        raise Unknown("there is no such person")
    _, key = desk.register.new_key(person, caller)
    return _people(request, caller, desk, key, f"{person.name}, {person.role}")


@router.get("/keys")
def keys(request: Request, caller: Visitor, desk: TheDesk) -> Response:
    return _people(request, caller, desk)


@router.post("/keys/{id}/end")
def end_key(request: Request, caller: Sender, desk: TheDesk, id: str) -> Response:
    try:
        count = desk.end_key(id, caller)
    except NotNow as error:
        return _people(request, caller, desk, notice=f"Not ended. {error}.")
    if caller.key in {key.id for key in desk.register.list_keys() if key.ended is not None}:
        return RedirectResponse("/sign-in", status_code=303)
    ended = "One key has ended." if count == 1 else f"{count} keys have ended: the one, and those made with it."
    return _people(request, caller, desk, notice=ended, notice_tone="good")


@router.post("/keys/{id}/replace")
def replace_key(request: Request, caller: Sender, desk: TheDesk, id: str) -> Response:
    record, key = desk.register.replace_key(id, caller)
    who = next((person.name for person in desk.register.people() if person.id == record.person), "")
    return _people(request, caller, desk, key, who)


@router.get("/ledger")
def ledger(request: Request, caller: Visitor, desk: TheDesk, verify: Annotated[int, Query(ge=0, le=1)] = 0) -> Response:
    return render(
        request,
        caller,
        "ledger.html",
        "Ledger",
        head=desk.record.checkpoint(),
        receipts=desk.receipts(caller),
        titles={id: question.title for id, question in desk.catalog.questions.items()},
        names={person.id: person.name for person in desk.register.people()},
        report=desk.ledger.verify() if verify else None,
    )


def analyst_page(request: Request, caller: Caller, desk: Desk) -> Response:
    every = desk.questions(caller)
    granted = [q | {"quote": desk.quote(caller.person, q["question"])} for q in every if q["granted"]]
    others = [q for q in every if not q["granted"]]
    return render(request, caller, "analyst.html", "Your questions", questions=granted, others=others)


def _question_page(request: Request, caller: Caller, desk: Desk, id: str, **facts: Any) -> Response:
    quote = desk.quote(caller.person, id)
    question = next(q for q in desk.questions(caller) if q["question"] == id)
    return render(request, caller, "question.html", question["title"], q=question, quote=quote, **facts)


@router.get("/questions/{id}")
def question(request: Request, caller: Visitor, desk: TheDesk, id: str) -> Response:
    return _question_page(request, caller, desk, id)


@router.post("/questions/{id}/ask")
def ask(request: Request, caller: Sender, desk: TheDesk, id: str, handle: Optional = "") -> Response:
    try:
        body = json.loads(desk.release(caller.person, id, handle or None, f"page {id} {handle}"))
    except NotAllowed as refused:
        return _question_page(request, caller, desk, id, notice=f"Refused: {refused}.")
    if not handle:
        return _question_page(request, caller, desk, id)
    picture = Markup(answer_plot(body["answer"], body["error"], body["unit"], body["times"]))
    return _question_page(request, caller, desk, id, answer=body, handle=handle, picture=picture)


@router.get("/questions/{id}/{name}.csv")
def download(caller: Visitor, desk: TheDesk, id: str, name: str) -> Response:
    """All rows by handle, or the table to pass on."""
    sheet = desk.sheet(caller.person, id)
    if name not in ("answers", "table"):
        raise Unknown("there is no such file")
    content = sheet.table.content if name == "table" else sheet.csv().encode()
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(content, media_type="text/csv", headers=headers)


def answer_plot(values: Sequence[float], error: float | None, unit: str, times: Sequence[str] | None) -> str:
    """An answer as a line, with its typical error around it where that is known."""
    around = error or 0.0
    step = _round_step(max(values) + around - min(*values, 0.0))
    top = step * math.ceil((max(values) + around) / step)
    bottom = step * math.floor(min(min(values) - around, 0.0) / step) if min(values) < 0 else 0.0
    span = (top - bottom) or 1.0

    def x(place: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (place / max(len(values) - 1, 1))

    def y(value: float) -> float:
        return TOP + (HEIGHT - LOW - TOP) * (top - max(value, bottom)) / span

    def points(shift: float) -> list[str]:
        return [f"{x(place):.1f},{y(value + shift):.1f}" for place, value in enumerate(values)]

    ticks = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>'
        for v in (bottom + step * i for i in range(round(span / step) + 1))
    )
    dots = "".join(f'<circle cx="{x(i):.1f}" cy="{y(v):.1f}" r="3"/>' for i, v in enumerate(values))
    band = "" if error is None else f'<polygon points="{" ".join([*points(error), *points(-error)[::-1]])}"/>'
    first, last = (clock(times[0]), clock(times[-1])) if times else ("entry 1", f"entry {len(values)}")
    label = f"Released answer of {len(values)} entries in {escape(unit)}"
    note = "" if error is None else f"; the band is ± the typical error of {error:.2g}"
    return (
        f'<figure><svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}{note}">{ticks}{band}'
        f'<polyline points="{" ".join(points(0.0))}"/><g>{dots}</g>'
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{escape(first)}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(last)}</text></svg>'
        f"<figcaption>Released, in {escape(unit)}{note}.</figcaption></figure>"
    )


def clock(text: str) -> str:
    """An instant to the minute, as its own clock shows it, with its offset from UTC where that is known.

    >>> clock("2025-01-31T18:00:00+01:00"), clock("2025-01-31T18:00:00")
    ('2025-01-31 18:00 +01:00', '2025-01-31 18:00')
    """
    return f"{text[:16].replace('T', ' ')} {text[19:]}".rstrip()


def _round_step(span: float) -> float:
    """A distance between grid lines that people read easily: four to eight of them."""
    rough = max(span, 1e-300) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return power * min((1, 2, 5, 10), key=lambda times: abs(times * power - rough))
