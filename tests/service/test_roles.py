"""Every route against every role, from one table; forms without their token; keys that are wrong in every way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from callers import KeyHolder
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.routing import Route

from shoal.product.service.access import GuardedRoute
from shoal.product.service.register import Key

OWNER, ANALYST, ANYONE = frozenset({"owner"}), frozenset({"analyst"}), None
BOTH = OWNER | ANALYST

#: (method, path) -> roles that may call it; nothing else is there.
ROUTES: dict[tuple[str, str], frozenset[str] | None] = {
    ("GET", "/healthz"): ANYONE,
    ("GET", "/openapi.json"): ANYONE,
    ("POST", "/v1/people"): OWNER,
    ("GET", "/v1/people"): OWNER,
    ("DELETE", "/v1/people/{id}"): OWNER,
    ("POST", "/v1/keys"): BOTH,
    ("GET", "/v1/keys"): BOTH,
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
    ("GET", "/v1/ledger/verify"): OWNER,
    ("GET", "/sign-in"): ANYONE,
    ("POST", "/sign-in"): ANYONE,
    ("GET", "/style.css"): ANYONE,
    ("POST", "/sign-out"): BOTH,
    ("GET", "/"): BOTH,
    ("GET", "/questions/{id}"): ANALYST,
    ("POST", "/questions/{id}/ask"): ANALYST,
    ("GET", "/questions/{id}/table.csv"): ANALYST,
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
NO_PAGES = ("/v1", "/healthz", "/openapi", "/sign-in", "/style")


def signed_in(client: TestClient, who: KeyHolder) -> TestClient:
    """A browser with the cookie of whoever signs in."""
    visitor = TestClient(client.app, follow_redirects=False, raise_server_exceptions=False)
    assert visitor.post("/sign-in", data={"key": who.key}).status_code == 303
    return visitor


def token_of(visitor: TestClient, path: str = "/people") -> str:
    """The token that the forms of a page carry."""
    token = re.search(r'name="csrf" value="(\w+)"', visitor.get(path).text)
    assert token is not None
    return token[1]


def test_every_route_says_who_may_call_it_as_the_table_does(client: TestClient) -> None:
    def walk(routes: Iterable[Any]) -> Iterator[tuple[str, str, frozenset[str] | None]]:
        for route in routes:
            inner = getattr(route, "original_router", route)  # as FastAPI keeps an included router
            yield from walk(getattr(inner, "routes", None) or ())
            if isinstance(route, APIRoute):
                assert isinstance(route, GuardedRoute)
                yield from ((method, route.path, route.roles) for method in route.methods)
            elif isinstance(route, Route):
                yield from ((method, route.path, ANYONE) for method in route.methods or () if method != "HEAD")

    assert {(method, path): roles for method, path, roles in walk(client.app.routes)} == ROUTES
    described = set(client.get("/openapi.json").json()["paths"])
    assert described == {path for _, path in ROUTES if path.startswith(("/v1", "/healthz"))}


def test_every_call_and_role(client: TestClient, owner: KeyHolder) -> None:
    holders = {role: owner.admits(f"a {role}", role) for role in BOTH}
    for (method, path), allowed in ROUTES.items():
        if not path.startswith("/v1"):
            continue
        address = re.sub(r"\{\w+\}", "nothing", path)
        assert client.request(method, address).status_code == 401
        for role, who in holders.items():
            answer = client.request(method, address, headers=who.headers)
            if role not in (allowed or ()):
                unknown = client.request(method, "/v1/no-such-thing", headers=who.headers)
                assert (answer.status_code, answer.content) == (404, unknown.content), (method, path, role)
            else:
                assert answer.status_code not in (401, 500), (method, path, role)


@pytest.mark.parametrize("role", sorted(BOTH))
def test_pages_by_role(client: TestClient, owner: KeyHolder, role: str) -> None:
    visitor = signed_in(client, owner.admits(f"b {role}", role))
    for (method, path), allowed in ROUTES.items():
        if path.startswith(NO_PAGES):
            continue
        if method == "GET":
            answer = visitor.get(re.sub(r"\{\w+\}", "nothing", path))
            assert (answer.status_code in (200, 303)) <= (role in (allowed or ())), (path, role)
            assert answer.status_code != 500
            continue
        # A form without its token does nothing, whoever sends it, whatever stands in the token's place.
        for token in ("0" * 64, "ü", "😀", ""):
            form = {"analyst": "x", "question": "x", "name": "x", "role": "owner", "handle": "x", "csrf": token}
            assert visitor.post(re.sub(r"\{\w+\}", "x", path), data=form).status_code == 404, (path, role)
    assert client.get("/").headers["location"] == "/sign-in"
    assert "color-scheme" in client.get("/style.css").text


def test_wrong_keys(client: TestClient, owner: KeyHolder) -> None:
    key = owner.admits("eve").key
    for text in (key[:-1], key + "0", key.swapcase(), Key.draw("analyst").text, ""):
        assert not KeyHolder(client, text).works
    assert client.get("/v1/questions", headers={"Authorization": f"Basic {key}"}).status_code == 401


def test_what_a_request_says_of_its_address_is_nothing_to_go_by(client: TestClient, owner: KeyHolder) -> None:
    """A header Host with a path in it makes no page of a call, and no call of a page."""
    assert client.get("/people", headers={**owner.headers, "Host": "x/v1/"}).status_code == 303
    visitor = signed_in(client, owner)
    assert visitor.get("/v1/people", headers={"Host": "x?"}).status_code == 401
    assert visitor.get("/people", headers={"Host": "x/v1/"}).status_code == 200


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b'{"question": 1e999}', b"[" * 20_000])
def test_who_may_not_call_is_told_so_before_anything_is_read(
    client: TestClient, owner: KeyHolder, content: bytes
) -> None:
    """A broken body must not tell a forbidden call from an unknown one."""
    kinds = {"Content-Type": "application/json"}
    headers = {**owner.grants().headers, **kinds}
    unknown = client.post("/v1/no-such-thing", content=content, headers=headers)
    for (method, path), allowed in ROUTES.items():
        if method != "POST" or not path.startswith("/v1"):
            continue
        assert client.post(path, content=content, headers=kinds).status_code == 401
        answer = client.post(path, content=content, headers=headers)
        if "analyst" in (allowed or ()):
            assert answer.status_code in (400, 422)
        else:
            assert (answer.status_code, answer.content) == (404, unknown.content), path


def test_another_site_signs_nobody_in(client: TestClient, owner: KeyHolder) -> None:
    for site in ("cross-site", "same-site", "same-origin"):
        answer = client.post("/sign-in", data={"key": owner.key}, headers={"Sec-Fetch-Site": site})
        assert answer.status_code == (303 if site == "same-origin" else 404)
        assert ("set-cookie" in answer.headers) == (site == "same-origin")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie


def test_a_form_of_one_session_does_not_serve_another(client: TestClient, owner: KeyHolder) -> None:
    olga, otto = (signed_in(client, owner.admits(name, "owner")) for name in ("olga", "otto"))
    form = {"name": "mallory", "role": "owner", "csrf": token_of(olga)}
    assert otto.post("/people", data=form).status_code == 404
    assert olga.post("/people", data=form).status_code == 200
    olga.post("/sign-out", data={"csrf": form["csrf"]})
    assert olga.post("/people", data={**form, "name": "eve"}).status_code in (303, 404)
