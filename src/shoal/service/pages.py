"""Pages for people: rendered here, without scripts and without anything from elsewhere.

Whoever signs in with a key gets a cookie that scripts cannot read and other sites cannot use; every form carries a
token that belongs to the session. What a page may do is in the same table of roles as the calls.
"""

import csv
import hashlib
import hmac
import io
import json
import math
from datetime import date, timedelta
from html import escape
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from starlette.exceptions import HTTPException

from shoal.card.digits import upper
from shoal.errors import InputError
from shoal.service.desk import Desk, Refused
from shoal.service.keys import ROLES, parsed
from shoal.service.limits import Pace
from shoal.service.people import SESSION, Person
from shoal.service.provider import Provider
from shoal.service.roles import may

COOKIE = "shoal_session"
POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
Text = Annotated[str, Form(max_length=1000)]
Short = Annotated[str, Form(min_length=1, max_length=200)]
Number = Annotated[float, Form(ge=0, le=1000)]


class SignIn(Exception):
    """Whoever asked is not signed in."""


def pages(app: FastAPI, desk: Desk, provider: Provider | None = None) -> None:
    """Add the pages to an application."""
    environment = Environment(loader=PackageLoader("shoal.service"), autoescape=True, trim_blocks=True)
    environment.filters["up"] = lambda value: upper(float(value)) if value else "0"
    guesses = Pace(1.0, 20.0)
    style = (
        files("shoal.card").joinpath("report.css").read_text()
        + files("shoal.service").joinpath("service.css").read_text()
    )

    def token(cookie: str) -> str:
        return hmac.new(desk.ledger.secret, b"shoal form " + cookie.encode(), hashlib.sha256).hexdigest()

    def shown(request: Request, template: str, title: str, status: int = 200, **known: Any) -> HTMLResponse:
        person = getattr(request.state, "person", None)
        cookie = request.cookies.get(COOKIE, "")
        text = environment.get_template(template).render(
            title=title, person=person, csrf=token(cookie) if person else "", **known
        )
        return HTMLResponse(text, status_code=status, headers={"Content-Security-Policy": POLICY})

    def person_of(request: Request) -> Person:
        cookie = request.cookies.get(COOKIE, "")
        person = desk.register.session(cookie) if cookie else None
        if person is None:
            raise SignIn
        request.state.person = person
        if not may(person.role, request.method, getattr(request.scope.get("route"), "path", "")):
            raise HTTPException(404)
        return person

    def person_of_form(request: Request, csrf: Annotated[str, Form(max_length=100)] = "") -> Person:
        person = person_of(request)
        if not hmac.compare_digest(csrf, token(request.cookies.get(COOKIE, ""))):
            raise HTTPException(404)
        return person

    Looking = Annotated[Person, Depends(person_of)]
    Doing = Annotated[Person, Depends(person_of_form)]

    @app.exception_handler(SignIn)
    async def to_sign_in(_: Request, __: SignIn) -> Response:
        return RedirectResponse("/sign-in", status_code=303)

    def begun(request: Request, person: Person, cookie: str) -> Response:
        answer = RedirectResponse("/", status_code=303)
        secure = request.url.scheme == "https"
        age = int(SESSION.total_seconds())
        answer.set_cookie(COOKIE, cookie, max_age=age, httponly=True, samesite="lax", secure=secure, path="/")
        return answer

    @app.get("/style.css", include_in_schema=False)
    def stylesheet() -> Response:
        return Response(style, media_type="text/css")

    @app.get("/sign-in", include_in_schema=False)
    def sign_in_page(request: Request) -> HTMLResponse:
        return shown(request, "sign_in.html", "Sign in", provider=provider.name if provider else None)

    @app.post("/sign-in", include_in_schema=False)
    def sign_in(request: Request, key: Annotated[str, Form(max_length=200)] = "") -> Response:
        if not guesses.allows(request.client.host if request.client else "-"):
            raise HTTPException(429)
        found = parsed(key.strip())
        person = desk.register.holder(found) if found is not None else None
        if person is None:
            said = "This is not a key that is in force. Look for missing characters, or ask for a new one."
            return shown(
                request, "sign_in.html", "Sign in", 401, notice=said, notice_tone="bad",
                provider=provider.name if provider else None,
            )  # fmt: skip
        return begun(request, person, desk.register.signed_in(person, found))

    if provider is not None:

        @app.get("/sign-in/provider", include_in_schema=False)
        def to_provider(request: Request) -> Response:
            return provider.begin(str(request.url_for("from_provider")), secure=request.url.scheme == "https")

        @app.get("/sign-in/return", include_in_schema=False)
        def from_provider(request: Request) -> Response:
            name = provider.finish(request)
            person = next((p for p in desk.register.people() if p.name == name), None) if name else None
            if person is None:
                said = "You are known to the provider, but nobody here has admitted you. Ask the data owner."
                return shown(
                    request, "sign_in.html", "Sign in", 401, notice=said, notice_tone="bad", provider=provider.name
                )
            return begun(request, person, desk.register.signed_in(person))

    @app.post("/sign-out", include_in_schema=False)
    def sign_out(request: Request, _: Doing) -> Response:
        desk.register.signed_out(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse("/sign-in", status_code=303)
        answer.delete_cookie(COOKIE, path="/")
        return answer

    @app.get("/", include_in_schema=False)
    def home(request: Request, person: Looking) -> Response:
        return overview(request, person)

    def overview(request: Request, person: Person, **known: Any) -> Response:
        if person.role == "analyst":
            return analyst_page(request, person, **known)
        if person.role == "auditor":
            return RedirectResponse("/ledger", status_code=303)
        questions = desk.questions(person)
        return shown(
            request,
            "owner.html",
            "Releases",
            questions=questions,
            titles=titles(),
            defaults={q["question"]: q["guarantee"] for q in questions},
            grants=desk.grants(),
            requests=desk.register.requests(),
            names=names(),
            people=desk.register.people(),
            **known,
        )

    def titles() -> dict[str, str]:
        return {name: offer.title for name, offer in desk.offers().items()}

    def names() -> dict[str, str]:
        return {person.id: person.name for person in desk.register.people()}

    def analyst_page(request: Request, person: Person, **known: Any) -> Response:
        mine = [{**q, "quote": desk.quote(person, q["question"])} for q in desk.questions(person)]
        asked = desk.register.requests(person.id)
        taken = {q["question"] for q in mine} | {r.question for r in asked if r.state == "pending"}
        others = [q for q in desk.every_question() if q["question"] not in taken]
        return shown(
            request, "analyst.html", "Your questions",
            questions=mine, others=others, requests=asked, titles=titles(), **known,
        )  # fmt: skip

    def question_page(request: Request, person: Person, id: str, **known: Any) -> Response:
        quote = desk.quote(person, id)
        question = next(q for q in desk.questions(person) if q["question"] == id)
        return shown(request, "question.html", question["title"], q=question, quote=quote, **known)

    @app.get("/questions/{id}", include_in_schema=False)
    def question(request: Request, person: Looking, id: str) -> Response:
        return question_page(request, person, id)

    @app.post("/questions/{id}/ask", include_in_schema=False)
    def ask(request: Request, person: Doing, id: str, handle: Short) -> Response:
        try:
            body = json.loads(desk.release(person, id, handle, f"page {id} {handle}"))
        except Refused as refused:
            return question_page(request, person, id, notice=f"Refused: {refused}.", notice_tone="bad")
        picture = Markup(plot(body["answer"], body["error"], body["unit"]))
        return question_page(request, person, id, answer=body, handle=handle, picture=picture)

    @app.get("/questions/{id}/answers.csv", include_in_schema=False)
    def download(person: Looking, id: str) -> Response:
        return Response(
            table(desk.sheet(person, id)),
            media_type="text/csv",
            headers={"Content-Disposition": 'attachment; filename="answers.csv"'},
        )

    @app.post("/questions/{id}/request", include_in_schema=False)
    def request_question(request: Request, person: Doing, id: str, reason: Text) -> Response:
        desk.requested(person, id, reason)
        return RedirectResponse("/", status_code=303)

    @app.post("/grants", include_in_schema=False)
    def grant(
        request: Request,
        person: Doing,
        analyst: Short,
        question: Short,
        epsilon: Number,
        delta: Number,
        expires: Text = "",
    ) -> Response:
        try:
            # The day that is named is the last one.
            until = (date.fromisoformat(expires) + timedelta(days=1)).isoformat() if expires else None
            _, key = desk.grant(analyst, (question,), epsilon, delta, expires=until, by=person)
        except (InputError, ValueError):
            return overview(
                request, person, notice="This cannot be granted: look at δ and the date.", notice_tone="bad"
            )
        return overview(request, person, key=key.text if key else None, key_for=analyst)

    @app.post("/grants/{id}/end", include_in_schema=False)
    def end(_: Doing, id: str) -> Response:
        if not desk.register.revoke(id):
            raise HTTPException(404)
        return RedirectResponse("/", status_code=303)

    @app.post("/people", include_in_schema=False)
    def admit(request: Request, person: Doing, name: Short, role: Short) -> Response:
        if role not in ROLES:
            raise HTTPException(404)
        return overview(request, person, key=desk.register.person(name, role).text, key_for=f"{name}, {role}")

    @app.post("/requests/{id}/decide", include_in_schema=False)
    def decide(
        request: Request, person: Doing, id: str, decision: Short, epsilon: Number, delta: Number, answer: Text = ""
    ) -> Response:
        if decision == "approve":
            desk.approved(id, epsilon, delta, None, answer, person)
        elif not answer.strip():
            return overview(request, person, notice="Say why it is denied.", notice_tone="bad")
        else:
            desk.denied(id, answer, person)
        return RedirectResponse("/", status_code=303)

    @app.get("/ledger", include_in_schema=False)
    def ledger(request: Request, person: Looking, verify: Annotated[int, Query(ge=0, le=1)] = 0) -> Response:
        return shown(
            request,
            "ledger.html",
            "Ledger",
            head=desk.checkpoint(),
            receipts=desk.receipts(person),
            titles=titles(),
            names=names(),
            verified=desk.ledger.verify() if verify else None,
        )


def plot(values: list[float], error: float, unit: str) -> str:
    """An answer as a line with its typical error around it, as SVG."""
    width, height, left, low = 640.0, 260.0, 64.0, 36.0
    step = _round_step(max(values) + error - min(*values, 0.0))
    top = step * math.ceil((max(values) + error) / step)
    bottom = step * math.floor(min(min(values) - error, 0.0) / step) if min(values) < 0 else 0.0
    span = top - bottom

    def x(i: int) -> float:
        return left + (width - left - 16) * (i / max(len(values) - 1, 1))

    def y(value: float) -> float:
        return 12 + (height - low - 12) * (top - max(value, bottom)) / span

    line = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values))
    above = [f"{x(i):.1f},{y(v + error):.1f}" for i, v in enumerate(values)]
    below = [f"{x(i):.1f},{y(v - error):.1f}" for i, v in enumerate(values)][::-1]
    ticks = "".join(
        f'<line class="grid" x1="{left}" x2="{width - 16}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text x="{left - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>'
        for v in (bottom + step * i for i in range(round(span / step) + 1))
    )
    dots = "".join(f'<circle cx="{x(i):.1f}" cy="{y(v):.1f}" r="3"/>' for i, v in enumerate(values))
    name = (
        f"Released answer of {len(values)} entries in {escape(unit)}, with its typical error of {error:.2g} around it"
    )
    return (
        f'<figure><svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{name}">{ticks}'
        f'<polygon class="band" points="{" ".join([*above, *below])}"/>'
        f'<polyline class="curve answer" points="{line}"/><g class="dots">{dots}</g>'
        f'<text class="axis" x="{left}" y="{height - 8}">entry 1</text>'
        f'<text class="axis" x="{width - 16}" y="{height - 8}" text-anchor="end">entry {len(values)}</text></svg>'
        f"<figcaption>Released, in {escape(unit)}; the band is ± the typical error.</figcaption></figure>"
    )


def _round_step(span: float) -> float:
    """A distance between grid lines that people read easily: four to eight of them."""
    rough = max(span, 1e-300) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return power * min((1, 2, 5, 10), key=lambda times: abs(times * power - rough))


def table(answers: dict[str, list[float]]) -> str:
    """All answers of a question as CSV: handle, entry, released."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["handle", "entry", "released"])
    for handle, values in answers.items():
        writer.writerows([handle, i + 1, repr(value)] for i, value in enumerate(values))
    return out.getvalue()
