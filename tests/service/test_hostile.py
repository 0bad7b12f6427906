"""What a stranger, an analyst, a thief with a key or a forged header could try, each tried."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from live import NotServed, Service
from routes import ROUTES

import shoal
from shoal.errors import InputError
from shoal.service.access import TrustedProxy
from shoal.service.application import application
from shoal.service.questions import QuestionService
from shoal.service.register import Caller

Granted = Callable[..., dict[str, str]]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def made(client: TestClient, who: dict[str, str], path: str, **body: Any) -> Any:
    answer = client.post(path, json=body, headers=who)
    assert answer.status_code == 201, answer.text
    return answer.json()


def works(client: TestClient, who: dict[str, str]) -> bool:
    return client.get("/v1/keys", headers=who).status_code == 200


def current(client: TestClient, who: dict[str, str]) -> str:
    (id,) = [key["id"] for key in client.get("/v1/keys", headers=who).json() if key["current"]]
    return str(id)


def test_a_stolen_key_cannot_replace_the_keys_above_or_beside_it(client: TestClient, owner: dict[str, str]) -> None:
    """Replacing hands out a key in the place of another, which must not lift whoever replaces."""
    stolen = bearer(made(client, owner, "/v1/people", name="olga", role="owner")["key"])
    beside = bearer(made(client, owner, "/v1/people", name="otto", role="owner")["key"])
    for target in (owner, beside):
        body = {"replaces": current(client, target)}
        assert client.post("/v1/keys", json=body, headers=stolen).status_code == 404
        assert works(client, target)
    below = bearer(made(client, stolen, "/v1/keys")["key"])
    mine = bearer(made(client, stolen, "/v1/keys", replaces=current(client, below))["key"])
    again = bearer(made(client, stolen, "/v1/keys", replaces=current(client, stolen))["key"])
    assert works(client, mine)
    assert client.delete(f"/v1/keys/{current(client, again)}", headers=owner).status_code == 204
    assert not any(works(client, who) for who in (stolen, below, mine, again))


def test_nothing_made_with_a_stolen_key_outlives_it(
    client: TestClient, desk: QuestionService, owner: dict[str, str]
) -> None:
    """Keys, people (whom a proxy may sign in without one) and grants."""
    accomplice = bearer(made(client, owner, "/v1/people", name="ada", role="analyst")["key"])
    stolen = bearer(made(client, owner, "/v1/people", name="olga", role="owner")["key"])
    made(client, stolen, "/v1/people", name="mallory", role="owner")
    (question,) = client.get("/v1/questions", headers=owner).json()
    made(client, stolen, "/v1/grants", analyst="ada", question=question["question"], epsilon=9.0, delta=1e-5)
    assert client.get("/v1/questions", headers=accomplice).json()[0]["granted"]
    assert client.delete(f"/v1/keys/{current(client, stolen)}", headers=owner).status_code == 204
    assert not client.get("/v1/questions", headers=accomplice).json()[0]["granted"]
    assert not any(grant["in_force"] for grant in client.get("/v1/grants", headers=owner).json())
    assert desk.register.named("mallory") is None
    assert works(client, accomplice)


def test_whoever_became_an_analyst_under_the_first_owners_name_does_not_keep_the_owner_out(
    desk: QuestionService,
) -> None:
    first = desk.register.first_key()
    assert first is not None
    root = desk.register.holder(first.text)
    assert root is not None
    desk.register.admit("olga", "owner")  # from the ledger's file: under nobody's key
    desk.register.dismiss(root.person.id)
    desk.register.admit("owner", "analyst")
    again = desk.register.holder(desk.register.new_owner_key().text)
    assert again is not None
    assert again.is_owner


def test_one_person_has_one_spelling(desk: QuestionService) -> None:
    person, _ = desk.register.admit(" Zoe\u0308 ", "analyst")
    assert person.name == "Zo\u00eb"
    assert desk.register.named("Zoe\u0308") == person
    with pytest.raises(shoal.ShoalError):
        desk.register.admit("Zo\u00eb", "analyst")
    for empty in (" ", "\t", "\x00"):
        with pytest.raises(InputError):
            desk.register.admit(empty, "analyst")


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b'{"question": 1e999}', b"[" * 20_000])
def test_who_may_not_call_is_told_so_before_anything_is_read(
    desk: QuestionService, owner: dict[str, str], granted: Granted, content: bytes
) -> None:
    """A broken body must not tell a forbidden call from an unknown one, nor get a stranger past the pace."""
    client = TestClient(application(desk), raise_server_exceptions=False)
    who = granted()
    kinds = {"Content-Type": "application/json"}
    unknown = client.post("/v1/no-such-thing", content=content, headers={**who, **kinds})
    for method, path in ROUTES:
        if method != "POST" or not path.startswith("/v1"):
            continue
        assert client.post(path, content=content, headers=kinds).status_code == 401
        if "analyst" not in (ROUTES[method, path] or ()):
            answer = client.post(path, content=content, headers={**who, **kinds})
            assert (answer.status_code, answer.content) == (404, unknown.content), path
        else:
            assert client.post(path, content=content, headers={**who, **kinds}).status_code in (400, 422)
    slow = TestClient(application(desk, rate=0.001, burst=3))
    assert [slow.post("/v1/grants", content=content).status_code for _ in range(5)] == [401] * 3 + [429] * 2
    assert slow.get("/healthz").status_code == 429


def test_lengths_that_are_not_lengths(client: TestClient, owner: dict[str, str]) -> None:
    for stated in ("9" * 5000, "-1", "0x10", "1e3", " ", "65537"):
        answer = client.post("/v1/people", content=b"{}", headers={**owner, "Content-Length": stated})
        assert answer.status_code in (400, 413), stated


def test_another_site_signs_nobody_in(client: TestClient, owner: dict[str, str]) -> None:
    key = owner["Authorization"].removeprefix("Bearer ")
    for site in ("cross-site", "same-site"):
        answer = client.post("/sign-in", data={"key": key}, headers={"Sec-Fetch-Site": site})
        assert answer.status_code == 404
        assert "set-cookie" not in answer.headers
    answer = client.post(
        "/sign-in", data={"key": key}, headers={"Sec-Fetch-Site": "same-origin"}, follow_redirects=False
    )
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie


def test_a_form_of_one_session_does_not_serve_another(desk: QuestionService, owner: dict[str, str]) -> None:
    app = application(desk)
    pages = {}
    for name in ("olga", "otto"):
        client = TestClient(app, follow_redirects=False)
        client.post("/sign-in", data={"key": desk.register.admit(name, "owner")[1].text})
        token = re.search(r'name="csrf" value="(\w+)"', client.get("/people").text)
        assert token is not None
        pages[name] = (client, token[1])
    form = {"name": "mallory", "role": "owner", "csrf": pages["olga"][1]}
    assert pages["otto"][0].post("/people", data=form).status_code == 404
    assert pages["olga"][0].post("/people", data=form).status_code == 200
    fresh = pages["olga"][0]
    fresh.post("/sign-out", data={"csrf": pages["olga"][1]})
    assert fresh.post("/people", data={**form, "name": "eve"}).status_code in (303, 404)


def test_proxy_headers_in_every_wrong_way(desk: QuestionService, owner: dict[str, str]) -> None:
    desk.register.admit("ada", "analyst")
    proxy = TrustedProxy.of("X-User", "10.0.0.7")

    def visited(peer: str, *headers: tuple[str, str]) -> int:
        client = TestClient(application(desk, proxy=proxy), follow_redirects=False, client=(peer, 5))
        return client.get("/", headers=list(headers)).status_code

    assert visited("10.0.0.7", ("X-User", "ada")) == 200
    for peer in ("10.0.0.70", "110.0.0.7", "::ffff:10.0.0.8", "localhost", "", "10.0.0.7%eth0"):
        assert visited(peer, ("X-User", "ada")) == 303, peer
    for name in ("owner", "ADA", "ada,owner", "", "nobody", "x" * 3000):
        assert visited("10.0.0.7", ("X-User", name)) in (303, 422), name
    assert visited("10.0.0.7", ("X-User", "ada"), ("x-user", "ada")) == 303
    assert visited("10.0.0.7", ("X-Forwarded-User", "ada")) == 303


def test_another_body_under_one_key_and_one_key_of_two_people(
    client: TestClient, desk: QuestionService, granted: Granted
) -> None:
    ada, bob = granted("ada"), granted("bob")
    (mine,), (theirs,) = (client.get("/v1/questions", headers=who).json() for who in (ada, bob))

    def ask(who: dict[str, str], name: str, **body: object) -> int:
        sent = {"question": mine["question"], **body}
        return client.post("/v1/releases", json=sent, headers={**who, "Idempotency-Key": name}).status_code

    assert ask(ada, "k", handle=mine["handles"][0]) == 200
    assert ask(bob, "k", handle=theirs["handles"][1]) == 200
    assert ask(ada, "k") == ask(ada, "k", handle=mine["handles"][1]) == 422
    assert ask(ada, "k", handle=theirs["handles"][0]) == ask(ada, "k", question="nothing") == 404
    assert ask(ada, "K", handle=mine["handles"][1]) == 200  # another key
    assert ask(ada, "", handle=mine["handles"][1]) == 422
    receipts = [client.get("/v1/receipts", headers=who).json() for who in (ada, bob)]
    assert [len(listed) for listed in receipts] == [1, 1]
    other = receipts[1][0]["receipt"]
    known, unknown = (client.get(f"/v1/receipts/{id}/proof", headers=ada) for id in (other, "rc_none"))
    assert (known.status_code, known.content) == (unknown.status_code, unknown.content)
    size = desk.ledger.head.seq
    for wrong in (1, size + 1):
        assert (
            client.get(f"/v1/receipts/{receipts[0][0]['receipt']}/proof?size={wrong}", headers=ada).status_code == 404
        )


def test_a_receipt_does_not_give_away_its_neighbors_in_the_chain(
    client: TestClient, desk: QuestionService, owner: dict[str, str], granted: Granted
) -> None:
    """Who holds the hashes before and after an entry could try out what it says, if all of it could be guessed."""
    who = granted()
    (question,) = client.get("/v1/questions", headers=who).json()
    asked = {"question": question["question"]}
    client.post("/v1/releases", json=asked, headers={**who, "Idempotency-Key": "k"})
    before = desk.ledger.entries()[-1]
    desk.ledger.budget(1.0, 1e-6)
    (hidden,) = desk.ledger.entries()[before.seq :]
    content = hidden.content
    assert len(content.pop("salt")) == 32
    guess = json.dumps(content, sort_keys=True, separators=(",", ":"))
    text = "\n".join(("shoal ledger 1", str(hidden.seq), hidden.kind, before.hash, guess))
    assert hashlib.sha256(text.encode()).hexdigest() != hidden.hash
    salts = [entry.content.get("salt") for entry in desk.ledger.entries()]
    told = [salt for salt in salts if salt is not None]
    assert len(set(told)) == len(told)
    assert desk.ledger.verify()


def test_one_service_by_whatever_name_the_ledger_is_given(runs: Path, url: str, tmp_path: Path) -> None:
    service = Service(runs, url)
    link = tmp_path / "elsewhere.db"
    os.symlink(tmp_path / "ledger.db", link)
    for name in (f"sqlite:///{link}", str(link), f"sqlite:///{tmp_path}/./ledger.db"):
        with pytest.raises(NotServed, match="one process serves one ledger") as second:
            Service(runs, name)
        assert second.value.args[0] == 2
    assert service.stop() == 0


def test_what_a_key_shows_of_itself(desk: QuestionService, client: TestClient, owner: dict[str, str]) -> None:
    _, key = desk.register.admit("eve", "analyst")
    stored = Path(str(desk.ledger.storage._engine.url.database)).read_bytes()
    assert key.text.encode() not in stored
    assert key.text not in client.get("/v1/keys", headers=owner).text
    assert key.text not in repr(key)
    caller = desk.register.holder(key.text)
    assert isinstance(caller, Caller)
    cookie = desk.register.sign_in(caller)
    assert cookie.encode() not in Path(str(desk.ledger.storage._engine.url.database)).read_bytes()
