"""Pages for people: rendered here, without scripts and without anything from elsewhere. Signing in and out.

Whoever signs in with a key gets a cookie that scripts cannot read and other sites cannot use; every form carries a
token that belongs to the session. What a page may do is in the same table of roles as the calls.
"""

from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader

from shoal.card.digits import upper
from shoal.service.access import COOKIE, Sender, Service, access_of
from shoal.service.drawing import clock
from shoal.service.people import SESSION, Caller

POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
Short = Annotated[str, Form(min_length=1, max_length=200)]
Optional = Annotated[str, Form(max_length=200)]

router = APIRouter(include_in_schema=False)


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
def stylesheet(request: Request) -> Response:
    access_of(request).stranger(request)
    return Response(files("shoal.service").joinpath("service.css").read_text(encoding="utf-8"), media_type="text/css")


@router.get("/sign-in")
def sign_in_page(request: Request) -> Response:
    access_of(request).stranger(request)
    return render(request, None, "sign_in.html", "Sign in")


@router.post("/sign-in")
def sign_in(request: Request, service: Service, key: Annotated[str, Form(max_length=200)] = "") -> Response:
    access = access_of(request)
    access.guess(request)
    caller = access.by_key(key)
    if caller is None:
        notice = "This is not a key that is in force. Look for missing characters, or ask the data owner for a new one."
        return render(request, None, "sign_in.html", "Sign in", 401, notice=notice)
    request.state.person = caller.person
    response = RedirectResponse("/", status_code=303)
    # Whoever claims HTTPS without it only keeps their own cookie from being sent.
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    age = int(SESSION.total_seconds())
    cookie = service.register.sign_in(caller)
    response.set_cookie(COOKIE, cookie, max_age=age, httponly=True, samesite="lax", secure=secure, path="/")
    return response


@router.post("/sign-out")
def sign_out(request: Request, service: Service, _: Sender) -> Response:
    service.register.sign_out(request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/sign-in", status_code=303)
    response.delete_cookie(COOKIE, path="/")
    return response
