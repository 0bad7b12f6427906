"""Who is calling, what they may call, and how often: decided before anything of a request is read.

A caller is known by a key, by the cookie of a page, or by the word of a trusted proxy. A header is believed only from
the one address that was named as the proxy's: who the user is (on pages, never under ``/v1``), and where a request came
from. Whoever may not make a call is told what an unknown address is told.
"""

import hashlib
import hmac
import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Form, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from shoal.errors import InputError
from shoal.service.desk import Desk
from shoal.service.people import FIRST_OWNER, Caller

COOKIE = "shoal_session"
#: Callers that are remembered.
CALLERS = 10_000
OWNER, ANALYST, ANYONE = frozenset({"owner"}), frozenset({"analyst"}), frozenset({"anyone"})
BOTH = OWNER | ANALYST

#: (method, path) -> roles that may call it; nothing else is there.
ROUTES: dict[tuple[str, str], frozenset[str]] = {
    ("GET", "/healthz"): ANYONE,
    ("GET", "/openapi.json"): ANYONE,
    ("POST", "/v1/people"): OWNER,
    ("GET", "/v1/people"): OWNER,
    ("DELETE", "/v1/people/{id}"): OWNER,
    ("POST", "/v1/keys"): BOTH,
    ("GET", "/v1/keys"): BOTH,
    ("DELETE", "/v1/keys"): BOTH,
    ("DELETE", "/v1/keys/{id}"): BOTH,
    ("POST", "/v1/grants"): OWNER,
    ("GET", "/v1/grants"): OWNER,
    ("DELETE", "/v1/grants/{id}"): OWNER,
    ("GET", "/v1/questions"): BOTH,
    ("POST", "/v1/quotes"): ANALYST,
    ("POST", "/v1/releases"): ANALYST,
    ("GET", "/v1/receipts"): BOTH,
    ("GET", "/v1/receipts/{id}/proof"): BOTH,
    ("GET", "/v1/ledger/head"): BOTH,
    ("GET", "/v1/ledger/consistency"): BOTH,
    ("GET", "/v1/ledger/verify"): OWNER,
    ("GET", "/sign-in"): ANYONE,
    ("POST", "/sign-in"): ANYONE,
    ("GET", "/style.css"): ANYONE,
    ("POST", "/sign-out"): BOTH,
    ("GET", "/"): BOTH,
    ("GET", "/questions/{id}"): ANALYST,
    ("POST", "/questions/{id}/ask"): ANALYST,
    ("GET", "/questions/{id}/{name}.csv"): ANALYST,
    ("POST", "/grants"): OWNER,
    ("POST", "/grants/{id}/end"): OWNER,
    ("GET", "/people"): OWNER,
    ("POST", "/people"): OWNER,
    ("POST", "/people/{id}/dismiss"): OWNER,
    ("POST", "/people/{id}/key"): OWNER,
    ("GET", "/keys"): BOTH,
    ("POST", "/keys/{id}/end"): BOTH,
    ("POST", "/keys/{id}/replace"): BOTH,
    ("GET", "/ledger"): OWNER,
}


class SignInNeeded(Exception):
    """Whoever asked for a page is not signed in."""


class Pace:
    """A bucket of tokens per caller: ``rate`` requests a second, ``burst`` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Take a token, or raise where there is none."""
        instant = time.monotonic()
        with self._lock:
            left, before = self._left.pop(caller, (self._burst, instant))
            left = min(left + (instant - before) * self._rate, self._burst)
            self._left[caller] = (left - 1.0 if left >= 1.0 else left, instant)
            if len(self._left) > CALLERS:
                self._left.popitem(last=False)
        if left < 1.0:
            raise HTTPException(429)


@dataclass(frozen=True)
class TrustedProxy:
    """The proxy in front: its address, and the header in which it says who the user is."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    user_header: str

    @classmethod
    def of(cls, user_header: str | None, address: str | None) -> "TrustedProxy | None":
        """The proxy as it was named; both or neither."""
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

    def sent(self, request: Request) -> bool:
        """Whether the proxy itself is the peer."""
        try:
            return request.client is not None and ipaddress.ip_address(request.client.host) == self.address
        except ValueError:
            return False


class Access:
    """Tells callers apart and holds them to a pace."""

    def __init__(
        self, desk: Desk, rate: float = 100.0, burst: float = 400.0, proxy: TrustedProxy | None = None
    ) -> None:
        self.desk, self.proxy = desk, proxy
        self._people, self._strangers, self._guesses = Pace(rate, burst), Pace(rate, burst), Pace(1.0, 20.0)

    def admit(self, request: Request, path: str) -> Caller | None:
        """Who makes a call, if they may make it and not too often; None for what anyone may call."""
        allowed = ROUTES.get((request.method, path), frozenset())
        if allowed == ANYONE:
            (self._guesses if request.method == "POST" else self._strangers).take(self._address(request))
            return None
        calls = path.startswith("/v1")
        caller = self._key_holder(request) if calls else self._visitor(request)
        if caller is None:
            self._strangers.take(self._address(request))
            raise HTTPException(401) if calls else SignInNeeded
        request.state.person = caller.person
        self._people.take(caller.person.id)
        if caller.person.role not in allowed:
            raise HTTPException(404)
        return caller

    def token(self, request: Request, caller: Caller) -> str:
        """What every form of a page carries: it belongs to the session, or to who the proxy says it is."""
        owner = request.cookies.get(COOKIE, "") if caller.key is not None else f"proxy {caller.person.id}"
        message = b"shoal form " + owner.encode("utf-8", "surrogatepass")
        return hmac.new(self.desk.ledger.secret, message, hashlib.sha256).hexdigest()

    def _address(self, request: Request) -> str:
        """Where a request came from: the peer, or whom the trusted proxy names last."""
        peer = request.client.host if request.client else "-"
        if self.proxy is not None and self.proxy.sent(request):
            hops = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
            return hops[-1].strip() or peer
        return peer

    def _key_holder(self, request: Request) -> Caller | None:
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        return self.desk.register.holder(text) if scheme.lower() == "bearer" else None

    def _visitor(self, request: Request) -> Caller | None:
        """Who is signed in: with a cookie, or named once by the trusted proxy and admitted here under that name."""
        cookie = request.cookies.get(COOKIE, "")
        caller = self.desk.register.session(cookie) if cookie else None
        if caller is None and self.proxy is not None and self.proxy.sent(request):
            names = request.headers.getlist(self.proxy.user_header)
            person = self.desk.register.named(names[0]) if len(names) == 1 and names[0] else None
            # Nobody has admitted the first owner, whose name the service itself made up: that one needs the key.
            caller = None if person is None or person.name == FIRST_OWNER else Caller(person)
        return caller


class GuardedRoute(APIRoute):
    """A route whose caller is known, allowed and within the pace before its body is read."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handler = super().get_route_handler()

        async def guarded(request: Request) -> Any:
            request.state.caller = await run_in_threadpool(access_of(request).admit, request, self.path)
            return await handler(request)

        return guarded


_bearer = HTTPBearer(auto_error=False, description="A key of this service.")  # for the description of the calls


def access_of(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def _key_holder(request: Request, _: Annotated[Any, Depends(_bearer)]) -> Caller:
    return _caller(request)


def _form_sender(request: Request, csrf: Annotated[str, Form(max_length=100)] = "") -> Caller:
    token = access_of(request).token(request, _caller(request))
    if not hmac.compare_digest(csrf.encode("utf-8", "surrogatepass"), token.encode()):
        raise HTTPException(404)
    return _caller(request)


def _desk(request: Request) -> Desk:
    return access_of(request).desk


TheDesk = Annotated[Desk, Depends(_desk)]
KeyHolder = Annotated[Caller, Depends(_key_holder)]
Visitor = Annotated[Caller, Depends(_caller)]
Sender = Annotated[Caller, Depends(_form_sender)]
