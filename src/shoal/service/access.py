"""Who is calling: by a key, by the cookie of a page, or by the word of a trusted proxy; and how often they may.

A header is believed only from the one address that was named as the proxy's: who the user is (on pages, never under
``/v1``), and where a request came from. From every other peer such headers are ignored.
"""

import hashlib
import hmac
import ipaddress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Form, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from shoal.errors import InputError
from shoal.service.keys import parse_key
from shoal.service.limits import Pace
from shoal.service.people import Caller
from shoal.service.question_service import QuestionService
from shoal.service.roles import may

COOKIE = "shoal_session"


class SignInNeeded(Exception):
    """Whoever asked for a page is not signed in."""


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
        self, service: QuestionService, rate: float = 100.0, burst: float = 400.0, proxy: TrustedProxy | None = None
    ) -> None:
        self.service, self.proxy = service, proxy
        self._people, self._strangers, self._guesses = Pace(rate, burst), Pace(rate, burst), Pace(1.0, 20.0)

    def address(self, request: Request) -> str:
        """Where a request came from: the peer, or whom the trusted proxy names last."""
        peer = request.client.host if request.client else "-"
        if self.proxy is not None and self.proxy.sent(request):
            hops = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
            return hops[-1].strip() or peer
        return peer

    def stranger(self, request: Request) -> None:
        """Hold whoever is not known to a pace."""
        if not self._strangers.allows(self.address(request)):
            raise HTTPException(429)

    def guess(self, request: Request) -> None:
        """Hold whoever tries keys on the page to a slow pace."""
        if not self._guesses.allows(self.address(request)):
            raise HTTPException(429)

    def by_key(self, text: str) -> Caller | None:
        key = parse_key(text.strip())
        return None if key is None else self.service.register.holder(key)

    def on_page(self, request: Request) -> Caller | None:
        """Who is signed in: with a cookie, or named once by the trusted proxy and known here."""
        cookie = request.cookies.get(COOKIE, "")
        caller = self.service.register.session(cookie) if cookie else None
        if caller is None and self.proxy is not None and self.proxy.sent(request):
            names = request.headers.getlist(self.proxy.user_header)
            person = self.service.register.named(names[0]) if len(names) == 1 and names[0] else None
            caller = None if person is None else Caller(person)
        return caller

    def token(self, request: Request, caller: Caller) -> str:
        """What every form of a page carries: it belongs to the session, or to who the proxy says it is."""
        owner = request.cookies.get(COOKIE, "") if caller.key is not None else f"proxy {caller.person.id}"
        message = b"shoal form " + owner.encode("utf-8", "surrogatepass")
        return hmac.new(self.service.ledger.secret, message, hashlib.sha256).hexdigest()

    def admit(self, request: Request, caller: Caller) -> Caller:
        """Let someone known through, if they may call this and not too often."""
        request.state.person = caller.person
        if not self._people.allows(caller.person.id):
            raise HTTPException(429)
        if not may(caller.person.role, request.method, getattr(request.scope.get("route"), "path", "")):
            raise HTTPException(404)
        return caller


def access_of(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def service_of(request: Request) -> QuestionService:
    return access_of(request).service


_bearer = HTTPBearer(auto_error=False, description="A key of this service.")


def _key_holder(request: Request, sent: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Caller:
    access = access_of(request)
    caller = None if sent is None else access.by_key(sent.credentials)
    if caller is None:
        access.stranger(request)
        raise HTTPException(401)
    return access.admit(request, caller)


def _page_visitor(request: Request) -> Caller:
    access = access_of(request)
    caller = access.on_page(request)
    if caller is None:
        access.stranger(request)
        raise SignInNeeded
    return access.admit(request, caller)


def _form_sender(request: Request, csrf: Annotated[str, Form(max_length=100)] = "") -> Caller:
    caller = _page_visitor(request)
    token = access_of(request).token(request, caller)
    if not hmac.compare_digest(csrf.encode("utf-8", "surrogatepass"), token.encode()):
        raise HTTPException(404)
    return caller


Service = Annotated[QuestionService, Depends(service_of)]
KeyHolder = Annotated[Caller, Depends(_key_holder)]
Visitor = Annotated[Caller, Depends(_page_visitor)]
Sender = Annotated[Caller, Depends(_form_sender)]
