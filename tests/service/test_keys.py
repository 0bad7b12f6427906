"""Keys have a list, an end and a parent; there is always an owner; grants go to people who are known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from shoal.service.questions import QuestionService

Granted = Callable[..., dict[str, str]]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def works(client: TestClient, who: dict[str, str]) -> bool:
    return client.get("/v1/keys", headers=who).status_code == 200


def made(client: TestClient, who: dict[str, str], path: str, **body: Any) -> Any:
    answer = client.post(path, json=body, headers=who)
    assert answer.status_code == 201, answer.text
    return answer.json()


def end_own(client: TestClient, who: dict[str, str]) -> Any:
    """End the key of this very call."""
    (mine,) = [key["id"] for key in client.get("/v1/keys", headers=who).json() if key["current"]]
    return client.delete(f"/v1/keys/{mine}", headers=who)


def test_ending_a_key_ends_what_was_made_with_it(client: TestClient, owner: dict[str, str], granted: Granted) -> None:
    rightful = bearer(made(client, owner, "/v1/people", name="olga", role="owner")["key"])
    stolen = bearer(made(client, rightful, "/v1/people", name="otto", role="owner")["key"])
    second = bearer(made(client, stolen, "/v1/keys")["key"])
    third = bearer(made(client, second, "/v1/people", name="mallory", role="owner")["key"])
    fourth = bearer(made(client, third, "/v1/people", name="trudy", role="analyst")["key"])
    assert all(works(client, who) for who in (second, third, fourth))
    listed = client.get("/v1/keys", headers=owner).json()
    (taken,) = [key["id"] for key in client.get("/v1/keys", headers=stolen).json() if key["current"]]
    assert client.delete(f"/v1/keys/{taken}", headers=owner).status_code == 204
    assert not any(works(client, who) for who in (stolen, second, third, fourth))
    assert works(client, rightful)
    assert works(client, owner)
    assert not any("shoal_" in str(key) and len(key["hint"]) > 20 for key in listed)


def test_a_session_ends_with_its_key(client: TestClient, owner: dict[str, str]) -> None:
    who = bearer(made(client, owner, "/v1/people", name="eve", role="analyst")["key"])
    client.post("/sign-in", data={"key": who["Authorization"].removeprefix("Bearer ")})
    assert client.get("/", follow_redirects=False).status_code == 200
    assert end_own(client, who).status_code == 204
    assert client.get("/", follow_redirects=False).status_code == 303
    assert not works(client, who)


def test_replaced_keys_leave_those_made_with_them(client: TestClient, owner: dict[str, str]) -> None:
    analyst = bearer(made(client, owner, "/v1/people", name="ada", role="analyst")["key"])
    (root,) = [key for key in client.get("/v1/keys", headers=owner).json() if key["current"]]
    assert root["parent"] is None
    fresh = bearer(made(client, owner, "/v1/keys", replaces=root["id"])["key"])
    assert not works(client, owner)
    assert works(client, fresh)
    assert works(client, analyst)
    (mine,) = client.get("/v1/keys", headers=analyst).json()
    (current,) = [key for key in client.get("/v1/keys", headers=fresh).json() if key["current"]]
    assert mine["parent"] == current["id"]


def test_a_key_ends_no_later_than_the_one_that_made_it(client: TestClient, owner: dict[str, str]) -> None:
    short = made(client, owner, "/v1/people", name="olga", role="owner", expires="2090-01-01T00:00:00Z")["key"]
    child = made(client, bearer(short), "/v1/keys", expires="2095-01-01T00:00:00Z")
    assert child["expires"] < "2090-01-02"
    unsaid = made(client, bearer(short), "/v1/keys")
    assert unsaid["expires"] < "2090"
    for past in ("2020-01-01T00:00:00Z", "2020-01-01"):
        assert client.post("/v1/keys", json={"expires": past}, headers=owner).status_code == 422


def test_analysts_see_and_end_their_own_keys_only(client: TestClient, owner: dict[str, str]) -> None:
    ada = bearer(made(client, owner, "/v1/people", name="ada", role="analyst")["key"])
    bob = made(client, owner, "/v1/people", name="bob", role="analyst")
    (his,) = [key for key in client.get("/v1/keys", headers=owner).json() if key["person"] == bob["id"]]
    assert his["id"] not in client.get("/v1/keys", headers=ada).text
    assert client.delete(f"/v1/keys/{his['id']}", headers=ada).status_code == 404
    assert client.post("/v1/keys", json={"replaces": his["id"]}, headers=ada).status_code == 404
    assert client.post("/v1/keys", json={"person": bob["id"]}, headers=ada).status_code == 404
    assert works(client, bearer(bob["key"]))


def test_there_is_always_an_owner(client: TestClient, desk: QuestionService, owner: dict[str, str]) -> None:
    (first,) = client.get("/v1/people", headers=owner).json()
    assert client.delete(f"/v1/people/{first['id']}", headers=owner).status_code == 409
    answer = end_own(client, owner)
    assert answer.status_code == 409
    assert "--new-owner-key" in answer.json()["detail"]
    # An owner whose only key hangs on the one that ends does not count.
    made(client, owner, "/v1/people", name="olga", role="owner")
    assert end_own(client, owner).status_code == 409
    assert works(client, owner)
    fresh = bearer(desk.register.new_owner_key().text)
    assert not works(client, owner)
    assert works(client, fresh)
    assert client.delete(f"/v1/people/{first['id']}", headers=fresh).status_code == 409


def test_who_is_dismissed_is_gone_and_comes_back_with_the_same_account(
    client: TestClient, owner: dict[str, str], granted: Granted
) -> None:
    who = granted("ada")
    (ada,) = [person for person in client.get("/v1/people", headers=owner).json() if person["name"] == "ada"]
    (question,) = client.get("/v1/questions", headers=who).json()
    body = {"question": question["question"], "handle": question["handles"][0]}
    first = client.post("/v1/releases", json=body, headers={**who, "Idempotency-Key": "k"}).json()
    assert client.delete(f"/v1/people/{ada['id']}", headers=owner).status_code == 204
    assert not works(client, who)
    assert not any(grant["in_force"] for grant in client.get("/v1/grants", headers=owner).json())
    again = made(client, owner, "/v1/people", name="ada", role="analyst")
    assert again["id"] == ada["id"]
    (seen,) = client.get("/v1/questions", headers=bearer(again["key"])).json()
    assert (seen["granted"], seen["handles"]) == (False, [])
    who = granted("ada")
    (question,) = client.get("/v1/questions", headers=who).json()
    assert client.post("/v1/releases", json=body, headers={**who, "Idempotency-Key": "k"}).json() == first
    quote = client.post("/v1/quotes", json={"question": question["question"]}, headers=who).json()
    assert quote["given"]


@pytest.mark.parametrize("expires", ["2020-01-01T00:00:00Z", "1970-01-01T00:00:00+14:00"])
def test_a_grant_that_has_ended_is_refused(client: TestClient, owner: dict[str, str], expires: str) -> None:
    made(client, owner, "/v1/people", name="ada", role="analyst")
    (question,) = client.get("/v1/questions", headers=owner).json()
    body = {"analyst": "ada", "question": question["question"], "epsilon": 1.0, "delta": 1e-5, "expires": expires}
    answer = client.post("/v1/grants", json=body, headers=owner)
    assert (answer.status_code, "future" in answer.json()["detail"]) == (422, True)
    assert client.get("/v1/grants", headers=owner).json() == []


def test_a_grant_to_an_unknown_name_asks(client: TestClient, owner: dict[str, str]) -> None:
    made(client, owner, "/v1/people", name="ada", role="analyst")
    (question,) = client.get("/v1/questions", headers=owner).json()
    body = {"analyst": "adda", "question": question["question"], "epsilon": 1.0, "delta": 1e-5}
    before = client.get("/v1/people", headers=owner).json()
    answer = client.post("/v1/grants", json=body, headers=owner)
    assert (answer.status_code, "spelling" in answer.json()["detail"]) == (409, True)
    assert client.get("/v1/people", headers=owner).json() == before
    for wrong in ({"analyst": "owner"}, {"analyst": "ada", "new": True}):
        assert client.post("/v1/grants", json=body | wrong, headers=owner).status_code == 409
    for wrong in ({"epsilon": None, "delta": None}, {"delta": None}, {"expires": "2020-01-01T00:00:00Z"}):
        assert client.post("/v1/grants", json=body | wrong | {"new": True}, headers=owner).status_code == 422
    assert client.get("/v1/people", headers=owner).json() == before
    made(client, owner, "/v1/grants", **body, new=True)


def test_before_a_grant_questions_show_what_may_be_asked_for(client: TestClient, owner: dict[str, str]) -> None:
    who = bearer(made(client, owner, "/v1/people", name="ada", role="analyst")["key"])
    (question,) = client.get("/v1/questions", headers=who).json()
    assert (question["granted"], question["handles"]) == (False, [])
    assert question["guarantee"]["sentence"]
    body = {"question": question["question"]}
    assert client.post("/v1/quotes", json=body, headers=who).status_code == 404
    assert client.post("/v1/releases", json=body, headers={**who, "Idempotency-Key": "k"}).status_code == 404


def test_the_table_without_a_handle(client: TestClient, desk: QuestionService, granted: Granted, runs: Path) -> None:
    who = granted()
    (question,) = client.get("/v1/questions", headers=who).json()
    body = {"question": question["question"]}
    table = client.post("/v1/releases", json=body, headers={**who, "Idempotency-Key": "t"})
    assert table.status_code == 200, table.text
    content = table.json()["table"]
    public = (runs / "january" / "public" / "released.csv").read_text().splitlines()
    assert [",".join(row) for row in (content["columns"], *content["rows"])] == public
    assert not set(question["handles"]) & {cell for row in content["rows"] for cell in row}
    before = desk.ledger.head
    one = client.post(
        "/v1/releases", json={**body, "handle": question["handles"][0]}, headers={**who, "Idempotency-Key": "h"}
    ).json()
    assert one["receipt"]["entry"] == table.json()["receipt"]["entry"]
    payload = json.loads(one["receipt"]["entry"]["payload"])
    assert payload["table"] == hashlib.sha256((runs / "january" / "public" / "released.csv").read_bytes()).hexdigest()
    figures = {float(row[-1]) for row in content["rows"]}
    assert set(one["answer"]) <= figures
    assert desk.ledger.head == before
    again = {**body, "handle": question["handles"][0]}
    assert client.post("/v1/releases", json=again, headers={**who, "Idempotency-Key": "t"}).status_code == 422
