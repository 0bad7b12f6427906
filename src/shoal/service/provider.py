"""Signing in through an OpenID Connect provider: authorization code with PKCE (RFC 7636), for people on the page.

What begins a sign-in is kept in the browser, in a cookie that is sealed by the ledger's secret and lives for ten
minutes: state, nonce and verifier. The provider says who someone is; whether they may do anything is decided here, by
whether the owner admitted a person whose name is the e-mail address that the provider has verified.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx
import jwt
from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from shoal.errors import InputError

COOKIE, MINUTES = "shoal_sign_in", 10
#: Ways to sign an identity token that are accepted: with a private key, which only the provider has.
ALGORITHMS = ["RS256", "ES256", "EdDSA", "PS256"]


@dataclass
class Provider:
    """An OpenID Connect provider; ``secret`` seals the cookie, ``client_secret`` is sent where one is wanted."""

    issuer: str
    client_id: str
    secret: bytes = field(repr=False)
    client_secret: str | None = field(default=None, repr=False)
    name: str = "your organization"
    _found: dict[str, Any] = field(default_factory=dict, repr=False)

    def begin(self, back: str, *, secure: bool) -> Response:
        """Send the browser to the provider."""
        verifier = secrets.token_urlsafe(48)
        known = {
            "state": secrets.token_urlsafe(24),
            "nonce": secrets.token_urlsafe(24),
            "verifier": verifier,
            "back": back,
            "until": time.time() + 60 * MINUTES,
        }
        digest = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": back,
            "scope": "openid email",
            "state": known["state"],
            "nonce": known["nonce"],
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        answer = RedirectResponse(f"{self._endpoint('authorization_endpoint')}?{urlencode(asked)}", status_code=303)
        answer.set_cookie(
            COOKIE,
            self._sealed(known),
            max_age=60 * MINUTES,
            httponly=True,
            samesite="lax",
            secure=secure,
            path="/sign-in",
        )
        return answer

    def finish(self, request: Request) -> str | None:
        """The verified e-mail address of whoever comes back; None where anything does not hold."""
        known = self._opened(request.cookies.get(COOKIE, ""))
        code, state = request.query_params.get("code", ""), request.query_params.get("state", "")
        if known is None or not code or not hmac.compare_digest(state.encode(), known["state"].encode()):
            return None
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": known["back"],
            "client_id": self.client_id,
            "code_verifier": known["verifier"],
        }
        if self.client_secret is not None:
            sent["client_secret"] = self.client_secret
        try:
            answer = httpx.post(self._endpoint("token_endpoint"), data=sent, timeout=10.0).raise_for_status().json()
            token = answer["id_token"]
            keys = jwt.PyJWKSet.from_dict(httpx.get(self._endpoint("jwks_uri"), timeout=10.0).raise_for_status().json())
            wanted = jwt.get_unverified_header(token).get("kid")
            signed_by = next(key for key in keys.keys if wanted is None or key.key_id == wanted)
            claims = jwt.decode(
                token, signed_by, algorithms=ALGORITHMS, audience=self.client_id, issuer=self.issuer, leeway=30,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )  # fmt: skip
        except (httpx.HTTPError, jwt.PyJWTError, ValueError, KeyError, StopIteration, TypeError):
            return None
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), known["nonce"].encode()):
            return None
        address = claims.get("email")
        return address if isinstance(address, str) and claims.get("email_verified") is True else None

    def _endpoint(self, name: str) -> str:
        if not self._found:
            try:
                where = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
                found = httpx.get(where, timeout=10.0).raise_for_status().json()
            except (httpx.HTTPError, ValueError):
                raise InputError("provider: its description cannot be read; check the address of the issuer") from None
            if found.get("issuer") != self.issuer:
                raise InputError("provider: it calls itself otherwise than the issuer that was named")
            self._found = found
        return str(self._found[name])

    def _sealed(self, content: dict[str, Any]) -> str:
        body = base64.urlsafe_b64encode(json.dumps(content).encode()).decode()
        return f"{body}.{self._seal(body)}"

    def _opened(self, text: str) -> dict[str, Any] | None:
        body, _, seal = text.partition(".")
        if not hmac.compare_digest(seal.encode(), self._seal(body).encode()):
            return None
        content: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body))
        return content if content["until"] > time.time() else None

    def _seal(self, body: str) -> str:
        return hmac.new(self.secret, b"shoal sign in " + body.encode(), hashlib.sha256).hexdigest()
