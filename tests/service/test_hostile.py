"""What a stranger, an analyst or a thief could try with bodies, lengths, names of files and receipts, each tried."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from callers import KeyHolder
from fastapi.testclient import TestClient
from live import NotServed, Service

import shoal
from shoal.product.service.register import Key


def test_lengths_that_are_not_lengths(client: TestClient, owner: KeyHolder) -> None:
    for stated in ("9" * 5000, "-1", "0x10", "1e3", " ", "65537"):
        answer = client.post("/v1/people", content=b"{}", headers={**owner.headers, "Content-Length": stated})
        assert answer.status_code in (400, 413), stated


def test_a_field_that_stands_twice_is_refused_wherever_it_stands(owner: KeyHolder, ledger: shoal.Ledger) -> None:
    """Whoever reads the same body with the first one would see another budget, analyst or question."""
    question, before = owner.question()["question"], ledger.head
    headers = {**owner.headers, "Content-Type": "application/json"}
    rest = f'"question": "{question}", "delta": 1e-5, "new": true}}'
    for body in (
        f'{{"analyst": "ada", "epsilon": 1.0, "epsilon": 4.0, {rest}',
        f'{{"analyst": "ada", "analyst": "ben", "epsilon": 1.0, {rest}',
        f'{{"analyst": "ada", "epsilon": 1.0, "\\u0065psilon": 4, {rest}',
        f'[{{"analyst": "ada", "more": {{"a": 1, "a": 1}}, {rest}]',
    ):
        answer = owner.client.post("/v1/grants", content=body, headers=headers)
        assert (answer.status_code, answer.json()["detail"]) == (422, "the body: a field stands twice in it")
    assert owner.get("/v1/grants") == []
    assert ledger.head == before
    for body in (b"[" * 50_000, b'{"analyst": \xff', b'{"analyst"'):  # no JSON: left to the call, as before
        assert owner.client.post("/v1/grants", content=body, headers=headers).status_code in (400, 422)


def test_another_body_under_one_key_and_one_key_of_two_people(owner: KeyHolder, ledger: shoal.Ledger) -> None:
    ada, bob = owner.grants("ada"), owner.grants("bob")
    mine, theirs = ada.handles(), bob.handles()
    assert ada.asks(mine[0], "k").status_code == 200
    assert bob.asks(theirs[1], "k").status_code == 200
    assert ada.asks(name="k").status_code == ada.asks(mine[1], "k").status_code == 422
    assert ada.asks(theirs[0], "k").status_code == ada.asks(name="k", question="nothing").status_code == 404
    assert ada.asks(mine[1], "K").status_code == 200  # another key
    assert ada.asks(mine[1], "x" * 201).status_code == 422
    (own,), (other,) = (who.get("/v1/receipts") for who in (ada, bob))
    size = ledger.head.seq
    paths = [f"{other['receipt']}/proof", "rc_none/proof", *(f"{own['receipt']}/proof?size={n}" for n in (1, size + 1))]
    answers = [ada.client.get(f"/v1/receipts/{path}", headers=ada.headers) for path in paths]
    assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}


def test_a_receipt_does_not_give_away_its_neighbors_in_the_chain(owner: KeyHolder, ledger: shoal.Ledger) -> None:
    """Who holds the hashes before and after an entry could try out what it says, if all of it could be guessed."""
    owner.grants().asks()
    before = ledger.entries()[-1]
    ledger.budget(1.0, 1e-6)
    (hidden,) = ledger.entries()[before.seq :]
    content = hidden.content
    assert len(content.pop("salt")) == 32
    guess = json.dumps(content, sort_keys=True, separators=(",", ":"))
    text = "\n".join(("shoal ledger 1", str(hidden.seq), hidden.kind, before.hash, guess))
    assert hashlib.sha256(text.encode()).hexdigest() != hidden.hash
    salts = [entry.content["salt"] for entry in ledger.entries() if "salt" in entry.content]
    assert len(set(salts)) == len(salts)
    assert ledger.verify()


def test_one_service_by_whatever_name_the_ledger_is_given(runs: Path, url: str, tmp_path: Path) -> None:
    service = Service(runs, url)
    link = tmp_path / "elsewhere.db"
    os.symlink(tmp_path / "ledger.db", link)
    for name in (f"sqlite:///{link}", str(link), f"sqlite:///{tmp_path}/./ledger.db"):
        with pytest.raises(NotServed, match="one process serves one ledger") as second:
            Service(runs, name)
        assert second.value.args[0] == 2
    assert service.stop() == 0


def test_what_a_key_shows_of_itself(client: TestClient, owner: KeyHolder, tmp_path: Path) -> None:
    eve = owner.admits("eve")
    cookie = client.post("/sign-in", data={"key": eve.key}).cookies["shoal_session"]
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("ledger.db*"))
    assert eve.key.encode() not in stored
    assert cookie.encode() not in stored
    assert eve.key not in client.get("/v1/keys", headers=owner.headers).text
    assert eve.key not in repr(Key(eve.key))
