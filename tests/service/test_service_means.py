"""A run without ε: its question is its public table and a row per handle, recorded and not charged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from live import SETTINGS, released

import shoal
from shoal.card.statements import KNOWS
from shoal.service import receipt_verifier
from shoal.service.application import application
from shoal.service.questions import QuestionService


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, QuestionService]]:
    home = tmp_path_factory.mktemp("means")
    url = f"sqlite:///{home}/ledger.db"
    released(home / "runs" / "january", url, method=None, epsilon=None)
    with shoal.Ledger.open(url) as ledger:
        yield home / "runs" / "january", QuestionService(ledger, home / "runs")


def test_the_public_table_and_a_row_per_handle(served: tuple[Path, QuestionService]) -> None:
    run, desk = served
    client = TestClient(application(desk))
    key = desk.register.first_key()
    assert key is not None
    owner = {"Authorization": f"Bearer {key.text}"}
    (question,) = client.get("/v1/questions", headers=owner).json()
    assert question["charged"] is False
    assert (question["guarantee"]["epsilon"], question["guarantee"]["delta"]) == (None, None)
    assert question["guarantee"]["crowd"] == SETTINGS["crowd"]
    assert KNOWS in question["guarantee"]["sentence"]
    assert question["error"] is None  # of fewer than ten crowds it would be a figure of their members
    body = {"analyst": "ada", "question": question["question"], "new": True}
    granted = client.post("/v1/grants", json=body, headers=owner)
    assert granted.status_code == 201, granted.text
    who = {"Authorization": f"Bearer {granted.json()['key']}"}
    quote = client.post("/v1/quotes", json={"question": question["question"]}, headers=who).json()
    assert (quote["epsilon"], quote["delta"], quote["remaining"], quote["allowed"]) == (None, None, None, True)
    (mine,) = client.get("/v1/questions", headers=who).json()
    spent = [entry for entry in desk.ledger.entries() if entry.kind == "release"]
    asked = {"question": mine["question"]}
    table = client.post("/v1/releases", json=asked, headers={**who, "Idempotency-Key": "t"}).json()
    public = (run / "public" / "released.csv").read_text().splitlines()
    assert [",".join(row) for row in (table["table"]["columns"], *table["table"]["rows"])] == public
    frame = shoal.Run.open(run).released
    names = set(frame["household"].to_list())
    assert len(mine["handles"]) == len(names) == question["guarantee"]["labels"]
    answers = [
        client.post("/v1/releases", json={**asked, "handle": handle}, headers={**who, "Idempotency-Key": handle})
        for handle in mine["handles"]
    ]
    assert {answer.status_code for answer in answers} == {200}
    assert not any(name in answer.text for answer in answers for name in names)
    curves = [tuple(answer.json()["answer"]) for answer in answers]
    true = [tuple(one.sort("step")["kw"].to_list()) for one in frame.partition_by("household", maintain_order=True)]
    assert sorted(curves) == sorted(true)
    assert all(curves.count(curve) >= SETTINGS["crowd"] for curve in curves)  # rows of a crowd are identical
    first = answers[0].json()
    assert first["statement"]["epsilon"] is None
    assert len(first["times"]) == len(first["answer"]) == mine["entries"]
    proof = client.get(f"/v1/receipts/{first['receipt']['id']}/proof", headers=who).json()
    head = client.get("/v1/ledger/head", headers=who).json()
    receipt_verifier.check_receipt({**proof, "receipt": first["receipt"], "answer": first["answer"]}, head)
    assert [entry for entry in desk.ledger.entries() if entry.kind == "release"] == spent
    assert desk.ledger.verify()


def test_a_changed_table_is_not_offered(served: tuple[Path, QuestionService], tmp_path: Path) -> None:
    run, desk = served
    file = run / "public" / "released.csv"
    kept = file.read_bytes()
    try:
        file.write_bytes(kept.replace(b"true", b"false", 1))
        catalog = QuestionService(desk.ledger, run.parent).catalog
        assert not catalog.questions
        assert "changed" in catalog.left_out["january"]
    finally:
        file.write_bytes(kept)


def test_a_run_under_the_promise_about_readings_is_not_offered(
    served: tuple[Path, QuestionService], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row for one home is outside of that promise."""
    run, desk = served
    monkeypatch.setattr(shoal.Run, "of_readings", True)
    catalog = QuestionService(desk.ledger, run.parent).catalog
    assert not catalog.questions
    assert "hand out public/" in catalog.left_out["january"]
