"""Every route against every role, from one table; keys that are wrong in every way."""

from __future__ import annotations

import re

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from shoal.service.application import application
from shoal.service.desk import Desk
from shoal.service.keys import ROLES, new_key, parsed
from shoal.service.pages import pages
from shoal.service.roles import ANYONE, ROUTES


@pytest.fixture
def every(desk: Desk) -> TestClient:
    return TestClient(application(desk, pages=pages), follow_redirects=False, raise_server_exceptions=False)


def test_the_table_is_all_there_is(every: TestClient) -> None:
    there = {
        (method, route.path) for route in every.app.routes if hasattr(route, "methods") for method in route.methods
    }
    there = {(m, p) for m, p in there if m != "HEAD"}
    optional = {("GET", "/sign-in/provider"), ("GET", "/sign-in/return")}
    assert there | optional == set(ROUTES)
    assert all(isinstance(route, APIRoute) or route.path == "/openapi.json" for route in every.app.routes)


def test_every_route_and_role(every: TestClient, desk: Desk) -> None:
    keys = {role: desk.register.person(f"a {role}", role).text for role in ROLES}
    for (method, path), allowed in ROUTES.items():
        if not path.startswith("/v1") and path != "/metrics":
            continue
        address = re.sub(r"\{\w+\}", "nothing", path)
        assert every.request(method, address).status_code == 401
        for role, key in keys.items():
            if (method, path) == ("DELETE", "/v1/keys"):
                continue
            answer = every.request(method, address, headers={"Authorization": f"Bearer {key}"})
            if role not in allowed:
                assert answer.status_code == 404, (method, path, role)
                unknown = every.request(method, "/v1/no-such-thing", headers={"Authorization": f"Bearer {key}"})
                assert answer.content == unknown.content
            else:
                assert answer.status_code not in (401, 500), (method, path, role)


def test_pages_by_role(every: TestClient, desk: Desk) -> None:
    for role in ROLES:
        key = desk.register.person(f"b {role}", role)
        person = desk.register.holder(key)
        assert person is not None
        every.cookies.set("shoal_session", desk.register.signed_in(person, key))
        for (method, path), allowed in ROUTES.items():
            if path.startswith(("/v1", "/metrics", "/healthz", "/openapi", "/sign-in", "/style")) or method == "POST":
                continue
            answer = every.get(re.sub(r"\{\w+\}", "nothing", path))
            assert (answer.status_code in (200, 303)) <= (role in allowed), (path, role)
            assert answer.status_code != 500
        # A form without its token does nothing, whoever sends it.
        for method, path in ROUTES:
            if method == "POST" and not path.startswith(("/v1", "/sign-in")):
                fields = {"analyst": "x", "question": "x", "epsilon": "1", "delta": "0", "name": "x", "role": "owner"}
                form = {**fields, "handle": "x", "reason": "x", "decision": "deny", "answer": "x", "csrf": "0" * 64}
                assert every.post(re.sub(r"\{\w+\}", "x", path), data=form).status_code == 404, (path, role)
        every.cookies.clear()
    assert every.get("/").headers["location"] == "/sign-in"
    assert ANYONE in ROUTES["GET", "/sign-in"]


def test_wrong_keys(every: TestClient, desk: Desk) -> None:
    key = desk.register.person("eve", "analyst")
    for text in (key.text[:-1], key.text + "0", key.text.swapcase(), new_key("analyst").text, ""):
        assert every.get("/v1/questions", headers={"Authorization": f"Bearer {text}"}).status_code == 401
    assert every.get("/v1/questions", headers={"Authorization": f"Basic {key.text}"}).status_code == 401
    assert parsed(key.text[:-1]) is None
    assert parsed(key.text) == key
    assert key.text not in repr(key)


def test_keys_rotate_without_a_gap_and_end_at_once(every: TestClient, desk: Desk) -> None:
    old = desk.register.person("eve", "auditor").text
    new = every.post("/v1/keys", headers={"Authorization": f"Bearer {old}"}).json()["key"]
    for key in (old, new):
        assert every.get("/v1/ledger/head", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    assert every.delete("/v1/keys", headers={"Authorization": f"Bearer {old}"}).status_code == 204
    assert every.get("/v1/ledger/head", headers={"Authorization": f"Bearer {old}"}).status_code == 401
    assert every.get("/v1/ledger/head", headers={"Authorization": f"Bearer {new}"}).status_code == 200
    with desk.ledger.storage.reading() as transaction:
        stored = " ".join(str(row) for row in transaction.rows("SELECT * FROM keys"))
    assert new not in stored
    assert old not in stored
