"""Signing in through a provider that the test starts: code, PKCE, nonce, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi.testclient import TestClient

from shoal.service.application import application
from shoal.service.desk import Desk
from shoal.service.pages import pages
from shoal.service.provider import Provider

CLIENT = "shoal-test"


class SmallProvider(ThreadingHTTPServer):
    """Knows one person. ``claims`` are put on top of the true ones."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.signs = self.key
        self.claims: dict[str, Any] = {}
        self.asked: dict[str, dict[str, str]] = {}
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: SmallProvider

    def log_message(self, *_: Any) -> None:
        pass

    def _json(self, content: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        one = self.server
        if self.path.startswith("/.well-known"):
            ends = {name: f"{one.issuer}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
            self._json({"issuer": one.issuer, **ends})
        else:
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(one.key.public_key()))
            self._json({"keys": [{**public, "kid": "1", "alg": "RS256", "use": "sig"}]})

    def do_POST(self) -> None:
        one = self.server
        sent = {
            name: v[0] for name, v in parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()).items()
        }
        known = one.asked.pop(sent.get("code", ""), None)
        digest = base64.urlsafe_b64encode(hashlib.sha256(sent.get("code_verifier", "").encode()).digest()).decode()
        if (
            known is None
            or digest.rstrip("=") != known["code_challenge"]
            or sent["redirect_uri"] != known["redirect_uri"]
        ):
            self._json({"error": "invalid_grant"}, 400)
            return
        now = int(time.time())
        claims = {"iss": one.issuer, "aud": CLIENT, "sub": "7", "iat": now, "exp": now + 60, "nonce": known["nonce"]}
        claims |= {"email": "ada@example.org", "email_verified": True, **one.claims}
        self._json({"id_token": jwt.encode(claims, one.signs, "RS256", headers={"kid": "1"})})


@pytest.fixture
def small() -> Iterator[SmallProvider]:
    server = SmallProvider()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def sign_in(client: TestClient, small: SmallProvider, **changed: str) -> Any:
    """What a browser does: to the provider, which sends it back with a code."""
    sent = client.get("/sign-in/provider")
    assert sent.status_code == 303
    asked = {name: value[0] for name, value in parse_qs(urlsplit(sent.headers["location"]).query).items()}
    assert (asked["code_challenge_method"], asked["response_type"]) == ("S256", "code")
    small.asked["the code"] = asked
    back = {"code": "the code", "state": asked["state"], **changed}
    return client.get("/sign-in/return", params=back)


def test_signing_in_through_a_provider(desk: Desk, small: SmallProvider) -> None:
    provider = Provider(small.issuer, CLIENT, desk.ledger.secret)
    app = application(desk, pages=partial(pages, provider=provider))
    with TestClient(app, follow_redirects=False) as client:
        assert sign_in(client, small).status_code == 401  # known to the provider, not here
        desk.register.person("ada@example.org", "analyst")
        found = sign_in(client, small)
        assert found.status_code == 303
        cookie = found.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite" in cookie
        assert "Your questions" in client.get("/").text
        client.cookies.delete("shoal_session")
        assert sign_in(client, small, state="another").status_code == 401
        assert sign_in(client, small, code="another").status_code == 401
        wrong = (
            {"nonce": "x"},
            {"aud": "x"},
            {"iss": "x"},
            {"exp": 1},
            {"email_verified": False},
            {"email": "eve@example.org"},
        )
        for claims in wrong:
            small.claims = claims
            assert sign_in(client, small).status_code == 401, claims
        small.claims = {}
        assert sign_in(client, small).status_code == 303
        other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        small.signs = other
        assert sign_in(client, small).status_code == 401
