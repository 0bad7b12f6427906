"""Callers, and what they may call: decided before anything of a request is read.

A caller is known by a key, by the cookie of a page, or by the word of a trusted proxy, whose header says who the user
is (on pages, never under ``/v1``). A caller who may not make a call gets the answer of an unknown address.
"""

import hashlib
import hmac
import ipaddress
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from shoal.errors import InputError
from shoal.product.service.questions import QuestionService
from shoal.product.service.register import FIRST_OWNER, Caller

COOKIE = "shoal_session"


@dataclass(frozen=True)
class TrustedProxy:
    """The proxy in front: its address, and the header in which it says who the user is."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    user_header: str

    @classmethod
    def from_options(cls, user_header: str | None, address: str | None) -> "TrustedProxy | None":
        """The proxy that two options name; None if both are None, InputError if one is missing or malformed."""
        if user_header is None and address is None:
            return None
        if not user_header or not address:
            raise InputError("user_header and trust_proxy go together: the header is believed from that address only")
        if not user_header.isascii() or not all(c.isalnum() or c == "-" for c in user_header):
            raise InputError("user_header must be the name of a header, such as X-Forwarded-User")
        try:
            return cls(ipaddress.ip_address(address), user_header.lower())
        except ValueError:
            raise InputError("trust_proxy must be the address of the proxy, such as 127.0.0.1") from None

    def is_sender(self, request: Request) -> bool:
        """Whether the proxy itself is the peer."""
        try:
            return request.client is not None and ipaddress.ip_address(request.client.host) == self.address
        except ValueError:
            return False


class Access:
    """Tells callers apart."""

    def __init__(self, service: QuestionService, proxy: TrustedProxy | None = None) -> None:
        self.service, self.proxy = service, proxy

    def admit(self, request: Request, roles: frozenset[str] | None, path: str) -> Caller | None:
        """The caller of a route that ``roles`` may call; None if anyone may. Raises 401, 303 or 404 for others.

        ``path`` is the route's own: what a request says of its address is nothing to go by.
        """
        if roles is None:
            return None
        calls = path.startswith("/v1/")
        caller = None if calls else self._signed_in_caller(request)
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if calls and scheme.lower() == "bearer":
            caller = self.service.register.key_holder(text)
        if caller is None:
            raise HTTPException(401) if calls else HTTPException(303)  # to the page that signs in
        request.state.person = caller.person
        if caller.person.role not in roles:
            raise HTTPException(404)
        return caller

    def form_token(self, request: Request, caller: Caller) -> str:
        """The token that forms of a caller's pages carry against requests from other sites."""
        owner = request.cookies.get(COOKIE, "") if caller.key is not None else f"proxy {caller.person.id}"
        message = b"shoal form " + owner.encode("utf-8", "surrogatepass")
        return hmac.new(self.service.ledger.secret, message, hashlib.sha256).hexdigest()

    def _signed_in_caller(self, request: Request) -> Caller | None:
        """The person signed in by a cookie, or named by the trusted proxy and admitted here; None if nobody is."""
        cookie = request.cookies.get(COOKIE, "")
        caller = self.service.register.session_holder(cookie) if cookie else None
        if caller is None and self.proxy is not None and self.proxy.is_sender(request):
            names = request.headers.getlist(self.proxy.user_header)
            person = self.service.register.find_person(names[0]) if len(names) == 1 and names[0] else None
            # Nobody has admitted the first owner, whose name the service itself made up: that one needs the key.
            caller = None if person is None or person.name == FIRST_OWNER else Caller(person)
        return caller


class GuardedRoute(APIRoute):
    """A route whose caller is known and allowed before a body is read; for anyone without roles."""

    roles: frozenset[str] | None

    def get_route_handler(self) -> Callable[[Request], Any]:
        handler = super().get_route_handler()

        async def guard(request: Request) -> Any:
            request.state.caller = await run_in_threadpool(access_of(request).admit, request, self.roles, self.path)
            if self.path.startswith("/v1/"):
                refuse_repeated_fields(await request.body())
            return await handler(request)

        return guard


def refuse_repeated_fields(body: bytes) -> None:
    """Raise if a field stands twice in a JSON body: readers differ in which one they take."""

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise RequestValidationError([{"type": "twice", "loc": ("body",), "msg": "A field stands twice in it"}])
        return dict(pairs)

    with suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=fields)


def guarded_router(*roles: str, **settings: Any) -> APIRouter:
    """A router whose routes these roles may call, or anyone if no role is given."""
    kind = type("GuardedRoute", (GuardedRoute,), {"roles": frozenset(roles) or None})
    return APIRouter(route_class=kind, **settings)


#: Says in the description of the calls that they want a key.
BEARER = Depends(HTTPBearer(auto_error=False, description="A key of this service."))


def access_of(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def _request_caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def _request_service(request: Request) -> QuestionService:
    return access_of(request).service


def _form_sender(request: Request, csrf: Annotated[str, Form(max_length=100)] = "") -> Caller:
    """The caller who sent a form; 404 unless the form carries the caller's token."""
    caller = _request_caller(request)
    token = access_of(request).form_token(request, caller)
    if not hmac.compare_digest(csrf.encode("utf-8", "surrogatepass"), token.encode()):
        raise HTTPException(404)
    return caller


Visitor = Annotated[Caller, Depends(_request_caller)]
Sender = Annotated[Caller, Depends(_form_sender)]
Service = Annotated[QuestionService, Depends(_request_service)]
