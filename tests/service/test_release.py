"""Asking through the service: charged before shown, once, and alike for every handle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fastapi.testclient import TestClient

from shoal.service import receipt_verifier
from shoal.service.questions import QuestionService

Granted = Callable[..., dict[str, str]]


def asked(client: TestClient, who: dict[str, str]) -> dict[str, object]:
    (question,) = client.get("/v1/questions", headers=who).json()
    return question


def release(client: TestClient, who: dict[str, str], handle: str, name: str = "") -> object:
    question = asked(client, who)["question"]
    headers = {**who, "Idempotency-Key": name or f"ask {handle}"}
    return client.post("/v1/releases", json={"question": question, "handle": handle}, headers=headers)


def test_answer_receipt_and_statement(client: TestClient, desk: QuestionService, granted: Granted) -> None:
    who = granted()
    question = asked(client, who)
    assert set(question) >= {"question", "handles", "entries", "unit", "guarantee"}
    labels = {name for one in desk.catalog.questions.values() for name in one.rows}
    assert len(question["handles"]) == len(labels)
    assert not labels & set(question["handles"])
    before = desk.ledger.head.seq
    answer = release(client, who, question["handles"][0])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert len(body["answer"]) == question["entries"]
    assert body["statement"]["epsilon"] == 2.0
    assert desk.ledger.head.seq > before
    assert desk.ledger.verify()
    proof = client.get(f"/v1/receipts/{body['receipt']['id']}/proof", headers=who).json()
    head = client.get("/v1/ledger/head", headers=who).json()
    receipt_verifier.check_receipt({**proof, "receipt": body["receipt"], "answer": body["answer"]}, head)


def test_asked_again_the_same_bytes_and_no_charge(
    client: TestClient, desk: QuestionService, granted: Granted, runs: Path
) -> None:
    who = granted()
    handles = asked(client, who)["handles"]
    first = release(client, who, handles[0], "one")
    charged = desk.ledger.head
    again = release(client, who, handles[0], "one")
    renamed = release(client, who, handles[0], "two")
    assert first.content == again.content == renamed.content
    assert desk.ledger.head == charged
    other = release(client, who, handles[1], "one")
    assert other.status_code == 422
    fresh = QuestionService(desk.ledger, runs)  # another process, nothing remembered
    person = desk.register.people()[-1]
    assert fresh.release(person, asked(client, who)["question"], handles[0], "one") == first.content
    assert desk.ledger.head == charged


def test_every_handle_looks_alike(client: TestClient, granted: Granted) -> None:
    who = granted()
    handles = asked(client, who)["handles"]
    answers = [release(client, who, handle) for handle in handles]
    assert {a.status_code for a in answers} == {200}
    assert len({len(a.content) for a in answers}) == 1
    assert len({tuple(sorted((k, v) for k, v in a.headers.items())) for a in answers}) == 1


def test_refused_by_the_grant_with_one_document(
    client: TestClient, desk: QuestionService, owner: dict[str, str], granted: Granted
) -> None:
    who = granted(epsilon=0.5, delta=1e-9)
    before = [e for e in desk.ledger.entries() if e.kind == "release"]
    answers = [release(client, who, handle) for handle in asked(client, who)["handles"]]
    assert {a.status_code for a in answers} == {403}
    assert len({a.content for a in answers}) == 1
    assert answers[0].headers["content-type"] == "application/problem+json"
    assert [e for e in desk.ledger.entries() if e.kind == "release"] == before
    quote = client.post("/v1/quotes", json={"question": asked(client, who)["question"]}, headers=who).json()
    assert quote["allowed"] is False
    (grant,) = client.get("/v1/grants", headers=owner).json()
    assert grant["refused"] == len(answers)  # the owner sees it


def test_handles_differ_by_analyst_answers_do_not(client: TestClient, granted: Granted) -> None:
    ada, bob = granted("ada"), granted("bob")
    mine, theirs = asked(client, ada)["handles"], asked(client, bob)["handles"]
    assert not set(mine) & set(theirs)
    of_ada = sorted(json.dumps(release(client, ada, h).json()["answer"]) for h in mine)
    of_bob = sorted(json.dumps(release(client, bob, h).json()["answer"]) for h in theirs)
    assert of_ada == of_bob
    assert release(client, ada, theirs[0]).status_code == 404


def test_quote_then_remaining(client: TestClient, granted: Granted) -> None:
    who = granted(epsilon=4.0, delta=1e-5)
    question = asked(client, who)
    quote = client.post("/v1/quotes", json={"question": question["question"]}, headers=who).json()
    assert (quote["epsilon"], quote["allowed"]) == (2.0, True)
    assert quote["error"] > 0
    release(client, who, question["handles"][0])
    after = client.post("/v1/quotes", json={"question": question["question"]}, headers=who).json()
    assert (after["epsilon"], after["delta"]) == (0.0, 0.0)


def test_revoked_at_once_and_expired(client: TestClient, owner: dict[str, str], granted: Granted) -> None:
    who = granted()
    assert client.get("/v1/questions", headers=who).status_code == 200
    (grant,) = client.get("/v1/grants", headers=owner).json()
    assert client.delete(f"/v1/grants/{grant['grant']}", headers=owner).status_code == 204
    assert client.get("/v1/questions", headers=who).status_code == 401
    assert client.delete(f"/v1/grants/{grant['grant']}", headers=owner).status_code == 404
