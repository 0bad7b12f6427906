"""Keys have a list, an end and a parent; there is always an owner; grants go to people who are known."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from callers import KeyHolder
from fastapi.testclient import TestClient

import shoal
from shoal.product.service.questions import QuestionService


def test_ending_a_key_ends_what_was_made_with_it(owner: KeyHolder) -> None:
    rightful = owner.admits("olga", "owner")
    stolen = rightful.admits("otto", "owner")
    second = stolen.makes_key()
    third = second.admits("mallory", "owner")
    fourth = third.admits("trudy")
    assert all(who.works for who in (second, third, fourth))
    assert not any("shoal_" in str(key) and len(key["hint"]) > 20 for key in owner.get("/v1/keys"))
    assert owner.delete(f"/v1/keys/{stolen.key_id}") == 204
    assert not any(who.works for who in (stolen, second, third, fourth))
    assert rightful.works
    assert owner.works


def test_nothing_made_with_a_stolen_key_outlives_it(owner: KeyHolder) -> None:
    """People (whom a proxy may sign in without a key) and grants."""
    accomplice, stolen = owner.admits("ada"), owner.admits("olga", "owner")
    stolen.admits("mallory", "owner")
    stolen.grants("ada", epsilon=9.0)
    assert accomplice.question()["granted"]
    assert owner.delete(f"/v1/keys/{stolen.key_id}") == 204
    assert not accomplice.question()["granted"]
    assert not any(grant["in_force"] for grant in owner.get("/v1/grants"))
    assert "mallory" not in {person["name"] for person in owner.get("/v1/people")}
    assert accomplice.works


def test_a_stolen_key_cannot_replace_the_keys_above_or_beside_it(owner: KeyHolder) -> None:
    """Replacing hands out a key in the place of another, which must not lift whoever replaces."""
    stolen, beside = owner.admits("olga", "owner"), owner.admits("otto", "owner")
    for target in (owner, beside):
        assert stolen.refused("/v1/keys", replaces=target.key_id)[0] == 404
        assert target.works
    below = stolen.makes_key()
    mine = stolen.makes_key(replaces=below.key_id)
    again = stolen.makes_key(replaces=stolen.key_id)
    assert mine.works
    assert owner.delete(f"/v1/keys/{again.key_id}") == 204
    assert not any(who.works for who in (stolen, below, mine, again))


def test_a_session_ends_with_its_key(client: TestClient, owner: KeyHolder) -> None:
    eve = owner.admits("eve")
    client.post("/sign-in", data={"key": eve.key})
    assert client.get("/").status_code == 200
    assert eve.delete(f"/v1/keys/{eve.key_id}") == 204
    assert client.get("/").status_code == 303
    assert not eve.works


def test_replaced_keys_leave_those_made_with_them(owner: KeyHolder) -> None:
    ada = owner.admits("ada")
    (root,) = [key for key in owner.get("/v1/keys") if key["current"]]
    assert root["parent"] is None
    fresh = owner.makes_key(replaces=root["id"])
    assert not owner.works
    assert fresh.works
    (mine,) = ada.get("/v1/keys")
    assert mine["parent"] == fresh.key_id


def test_a_key_ends_no_later_than_the_one_that_made_it(owner: KeyHolder) -> None:
    short = owner.admits("olga", "owner", expires="2090-01-01T00:00:00Z")
    assert short.post("/v1/keys", expires="2095-01-01T00:00:00Z")["expires"] < "2090-01-02"
    assert short.post("/v1/keys")["expires"] < "2090"
    for past in ("2020-01-01T00:00:00Z", "2020-01-01"):
        assert owner.refused("/v1/keys", expires=past)[0] == 422


def test_analysts_see_and_end_their_own_keys_only(owner: KeyHolder) -> None:
    ada, bob = owner.admits("ada"), owner.admits("bob")
    (his,) = bob.get("/v1/keys")
    assert his["id"] not in {key["id"] for key in ada.get("/v1/keys")}
    assert ada.delete(f"/v1/keys/{his['id']}") == 404
    assert ada.refused("/v1/keys", replaces=his["id"])[0] == 404
    assert ada.refused("/v1/keys", person=his["person"])[0] == 404
    assert bob.works


def test_there_is_always_an_owner(owner: KeyHolder, desk: QuestionService) -> None:
    (first,) = owner.get("/v1/people")
    assert owner.delete(f"/v1/people/{first['id']}") == 409
    answer = owner.client.delete(f"/v1/keys/{owner.key_id}", headers=owner.headers)
    assert answer.status_code == 409
    assert "--new-owner-key" in answer.json()["detail"]
    owner.admits("olga", "owner")  # whose only key hangs on the one that would end: that does not count
    assert owner.delete(f"/v1/keys/{owner.key_id}") == 409
    assert owner.works
    fresh = KeyHolder(owner.client, desk.register.new_owner_key().text)
    assert not owner.works
    assert fresh.delete(f"/v1/people/{first['id']}") == 409


def test_whoever_became_an_analyst_under_the_first_owners_name_does_not_keep_the_owner_out(
    owner: KeyHolder, desk: QuestionService
) -> None:
    (first,) = owner.get("/v1/people")
    desk.register.admit_person("olga", "owner")  # from the ledger's file: under nobody's key
    assert owner.delete(f"/v1/people/{first['id']}") == 204
    desk.register.admit_person("owner", "analyst")
    assert KeyHolder(owner.client, desk.register.new_owner_key().text).get("/v1/people")


def test_who_is_dismissed_is_gone_and_comes_back_with_the_same_account(owner: KeyHolder) -> None:
    ada = owner.grants("ada")
    (before,) = [person for person in owner.get("/v1/people") if person["name"] == "ada"]
    handle = ada.handles()[0]
    first = ada.asks(handle).content
    assert owner.delete(f"/v1/people/{before['id']}") == 204
    assert not ada.works
    assert not any(grant["in_force"] for grant in owner.get("/v1/grants"))
    again = owner.post("/v1/people", name="ada", role="analyst")
    assert again["id"] == before["id"]
    seen = KeyHolder(owner.client, again["key"]).question()
    assert (seen["granted"], seen["handles"]) == (False, [])
    ada = owner.grants("ada")
    assert ada.asks(handle).content == first
    assert ada.quote()["given"]


def test_one_person_has_one_spelling(owner: KeyHolder) -> None:
    owner.admits(" Zoe\u0308 ")
    assert "Zo\u00eb" in {person["name"] for person in owner.get("/v1/people")}
    assert owner.refused("/v1/people", name="Zo\u00eb", role="analyst")[0] == 409
    for empty in (" ", "\t", "\x00"):
        assert owner.refused("/v1/people", name=empty, role="analyst")[0] == 422


@pytest.mark.parametrize("expires", ["2020-01-01T00:00:00Z", "1970-01-01T00:00:00+14:00"])
def test_a_grant_that_has_ended_is_refused(owner: KeyHolder, expires: str) -> None:
    body = {"question": owner.question()["question"], "epsilon": 1.0, "delta": 1e-5, "expires": expires}
    status, detail = owner.refused("/v1/grants", analyst="ada", new=True, **body)
    assert (status, "future" in detail) == (422, True)
    assert owner.get("/v1/grants") == []


def test_a_grant_to_an_unknown_name_asks(owner: KeyHolder) -> None:
    owner.admits("ada")
    body = {"analyst": "adda", "question": owner.question()["question"], "epsilon": 1.0, "delta": 1e-5}
    before = owner.get("/v1/people")
    status, detail = owner.refused("/v1/grants", **body)
    assert (status, "spelling" in detail) == (409, True)
    for wrong in ({"analyst": "owner"}, {"analyst": "ada", "new": True}):
        assert owner.refused("/v1/grants", **body | wrong)[0] == 409
    for wrong in ({"epsilon": None, "delta": None}, {"delta": None}, {"expires": "2020-01-01T00:00:00Z"}):
        assert owner.refused("/v1/grants", **body | wrong | {"new": True})[0] == 422
    assert owner.get("/v1/people") == before
    owner.post("/v1/grants", **body, new=True)


def test_before_a_grant_questions_show_what_may_be_asked_for(owner: KeyHolder) -> None:
    ada = owner.admits("ada")
    question = ada.question()
    assert (question["granted"], question["handles"]) == (False, [])
    assert question["guarantee"]["sentence"]
    assert ada.refused("/v1/quotes", question=question["question"])[0] == 404
    assert ada.asks().status_code == 404


def test_the_table_without_a_handle(owner: KeyHolder, ledger: shoal.Ledger, runs: Path) -> None:
    ada = owner.grants()
    handle = ada.handles()[0]
    table = ada.asks(name="t")
    assert table.status_code == 200, table.text
    content, public = table.json()["table"], runs / "january" / "public" / "released.csv"
    assert [",".join(row) for row in (content["columns"], *content["rows"])] == public.read_text().splitlines()
    assert not set(ada.handles()) & {cell for row in content["rows"] for cell in row}
    before = ledger.head
    row = ada.asks(handle, "h").json()
    assert row["receipt"]["entry"] == table.json()["receipt"]["entry"]
    assert json.loads(row["receipt"]["entry"]["payload"])["table"] == hashlib.sha256(public.read_bytes()).hexdigest()
    assert set(row["answer"]) <= {float(cells[-1]) for cells in content["rows"]}
    assert ledger.head == before
    assert ada.asks(handle, "t").status_code == 422


def test_a_request_that_makes_no_sense_is_told_what_is_expected_and_nothing_of_itself(owner: KeyHolder) -> None:
    owner.admits("ada")
    body = {"analyst": "ada", "question": owner.question()["question"], "epsilon": 1.0, "delta": 1e-5}
    for wrong, expected in (
        ({"epsilon": -71.5}, "epsilon: input should be greater than or equal to 0"),
        ({"delta": 71.5}, "delta: input should be less than 1"),
        ({"epsilon": "71.5"}, "epsilon: input should be a valid number"),
        ({"expires": "in 71.5 days"}, "expires: input should be a valid datetime"),
        ({"handle": "71.5"}, "handle: this call does not take it"),
        ({"field 71.5": 1}, "the body has a field that is unknown here"),
    ):
        status, detail = owner.refused("/v1/grants", **body | wrong)
        assert (status, expected in detail, "71.5" in detail) == (422, True, False), detail
    headers = {**owner.headers, "Content-Type": "application/json"}
    assert owner.client.post("/v1/grants", content="{71.5", headers=headers).json()["detail"] == "the body is not JSON"
    del body["analyst"]
    assert owner.refused("/v1/grants", **body) == (422, "analyst: field required")
