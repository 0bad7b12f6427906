"""Every route against every role, from one table; forms without their token; keys that are wrong in every way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from routes import ANYONE, ROUTES
from starlette.routing import Route

from shoal.service.access import GuardedRoute
from shoal.service.application import application
from shoal.service.questions import QuestionService
from shoal.service.register import ROLES, Key

NO_PAGES = ("/v1", "/healthz", "/openapi", "/sign-in", "/style")


@pytest.fixture
def every(desk: QuestionService, owner: dict[str, str]) -> TestClient:
    return TestClient(application(desk), follow_redirects=False, raise_server_exceptions=False)


def test_the_table_is_all_there_is(every: TestClient) -> None:
    there = set(every.get("/openapi.json").json()["paths"])
    assert there == {path for _, path in ROUTES if path.startswith(("/v1", "/healthz"))}
    for method, path in ROUTES:
        assert every.request(method, re.sub(r"\{\w+\}", "x", path)).status_code not in (405, 500)
    assert "color-scheme" in every.get("/style.css").text


def test_every_route_and_role(every: TestClient, desk: QuestionService) -> None:
    assert set(ROLES) == {"owner", "analyst"}
    keys = {role: desk.register.admit(f"a {role}", role)[1].text for role in ROLES}
    for (method, path), allowed in ROUTES.items():
        if not path.startswith("/v1"):
            continue
        address = re.sub(r"\{\w+\}", "nothing", path)
        assert every.request(method, address).status_code == 401
        for role, key in keys.items():
            answer = every.request(method, address, headers={"Authorization": f"Bearer {key}"})
            if role not in allowed:
                assert answer.status_code == 404, (method, path, role)
                unknown = every.request(method, "/v1/no-such-thing", headers={"Authorization": f"Bearer {key}"})
                assert answer.content == unknown.content
            else:
                assert answer.status_code not in (401, 500), (method, path, role)


def test_pages_by_role(every: TestClient, desk: QuestionService) -> None:
    for role in ROLES:
        caller = desk.register.holder(desk.register.admit(f"b {role}", role)[1].text)
        assert caller is not None
        every.cookies.set("shoal_session", desk.register.sign_in(caller))
        for (method, path), allowed in ROUTES.items():
            if path.startswith(NO_PAGES) or method == "POST":
                continue
            answer = every.get(re.sub(r"\{\w+\}", "nothing", path))
            assert (answer.status_code in (200, 303)) <= (role in (allowed or ())), (path, role)
            assert answer.status_code != 500
        # A form without its token does nothing, whoever sends it, whatever stands in the token's place.
        for method, path in ROUTES:
            if method == "POST" and not path.startswith(("/v1", "/sign-in")):
                for token in ("0" * 64, "ü", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), ""):
                    form = {"analyst": "x", "question": "x", "name": "x", "role": "owner", "handle": "x", "csrf": token}
                    assert every.post(re.sub(r"\{\w+\}", "x", path), data=form).status_code == 404, (path, role)
        every.cookies.clear()
    assert every.get("/").headers["location"] == "/sign-in"
    assert ROUTES["GET", "/sign-in"] == ANYONE


def test_wrong_keys(every: TestClient, desk: QuestionService) -> None:
    key = desk.register.admit("eve", "analyst")[1]
    for text in (key.text[:-1], key.text + "0", key.text.swapcase(), Key.new("analyst").text, ""):
        assert every.get("/v1/questions", headers={"Authorization": f"Bearer {text}"}).status_code == 401
    assert every.get("/v1/questions", headers={"Authorization": f"Basic {key.text}"}).status_code == 401
    assert key.text not in repr(key)


def test_calls_and_pages_have_a_pace(desk: QuestionService, owner: dict[str, str]) -> None:
    slow = TestClient(application(desk, rate=0.001, burst=5), follow_redirects=False)
    assert {slow.get("/sign-in").status_code for _ in range(5)} == {200}
    assert slow.get("/sign-in").status_code == 429
    assert slow.get("/").status_code == 429  # not signed in: the same stranger
    assert slow.get("/", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 429  # nobody believes it
    assert [slow.get("/v1/people", headers=owner).status_code for _ in range(6)] == [200] * 5 + [429]
    key = owner["Authorization"].removeprefix("Bearer ")
    paced = TestClient(application(desk, rate=0.001, burst=5), follow_redirects=False)
    assert paced.post("/sign-in", data={"key": key}).status_code == 303
    assert [paced.get("/people").status_code for _ in range(6)] == [200] * 5 + [429]


def test_every_route_says_who_may_call_it_as_the_table_does(every: TestClient) -> None:
    def walk(routes: Iterable[Any]) -> Iterator[tuple[str, str, frozenset[str] | None]]:
        for route in routes:
            inner = getattr(route, "original_router", route)  # as FastAPI keeps an included router
            yield from walk(getattr(inner, "routes", None) or ())
            if isinstance(route, APIRoute):
                assert isinstance(route, GuardedRoute)
                yield from ((method, route.path, route.roles) for method in route.methods)
            elif isinstance(route, Route):
                yield from ((method, route.path, ANYONE) for method in route.methods or () if method != "HEAD")

    assert {(method, path): roles for method, path, roles in walk(every.app.routes)} == ROUTES


def test_what_a_request_says_of_its_address_is_nothing_to_go_by(every: TestClient, desk: QuestionService) -> None:
    """A header Host with a path in it makes no page of a call, and no call of a page."""
    key = desk.register.admit("olga", "owner")[1].text
    bearer = {"Authorization": f"Bearer {key}"}
    assert every.get("/people", headers={**bearer, "Host": "x/v1/"}).status_code == 303
    every.cookies.set("shoal_session", desk.register.sign_in(desk.register.holder(key)))  # type: ignore[arg-type]
    assert every.get("/v1/people", headers={"Host": "x?"}).status_code == 401
    assert every.get("/people", headers={"Host": "x/v1/"}).status_code == 200
