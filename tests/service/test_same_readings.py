"""What a run would refuse, the service refuses; and the figures printed are about what an analyst can hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from live import designed

import shoal
from shoal.service.application import application
from shoal.service.question_service import QuestionService


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the same readings, the second with one home more; no budget is in any ledger."""
    root = tmp_path_factory.mktemp("same")
    readings = shoal.simulate_meters(9, 8, step_minutes=60, seed=1)
    homes = readings["household"].unique(maintain_order=True).to_list()
    for name, few in (("eight", homes[:8]), ("nine", homes)):
        readings.filter(readings["household"].is_in(few)).write_csv(root / f"{name}.csv")
        designed(root / "runs" / name, meters=root / f"{name}.csv")
    return root / "runs"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[shoal.Ledger]:
    with shoal.Ledger.open(f"sqlite:///{tmp_path}/ledger.db") as opened:
        yield opened


def test_two_questions_from_the_same_readings(two_runs: Path, ledger: shoal.Ledger, tmp_path: Path) -> None:
    service = QuestionService(ledger, two_runs, f"sqlite:///{tmp_path}/ledger.db")
    client = TestClient(application(service))
    key = service.register.first_key()
    assert key is not None
    owner = {"Authorization": f"Bearer {key.text}"}
    questions = client.get("/v1/questions", headers=owner).json()
    assert {q["title"] for q in questions} == {"eight", "nine"}
    body = {"analyst": "ada", "question": [q["question"] for q in questions], "epsilon": 9.0, "delta": 1e-5}
    assert client.post("/v1/grants", json=body, headers=owner).status_code == 409  # nobody of this name
    granted = client.post("/v1/grants", json={**body, "new": True}, headers=owner).json()
    who = {"Authorization": f"Bearer {granted['key']}"}
    first, second = client.get("/v1/questions", headers=who).json()

    def asked(question: dict[str, object]) -> list[int]:
        return [
            client.post(
                "/v1/releases",
                json={"question": question["question"], "handle": handle},
                headers={**who, "Idempotency-Key": handle},
            ).status_code
            for handle in question["handles"]
        ]

    quote = client.post("/v1/quotes", json={"question": first["question"]}, headers=who).json()
    assert quote["allowed"]  # although nobody has set a budget: the grant gave the labels that of the run
    assert set(asked(first)) == {200}
    quote = client.post("/v1/quotes", json={"question": second["question"]}, headers=who).json()
    assert (quote["allowed"], "data owner can see why" in quote["reason"]) == (False, True)
    assert set(asked(second)) == {403}
    (refusal,) = client.get("/v1/refusals", headers=owner).json()
    assert refusal["analyst"] == "ada"
    assert refusal["title"] == second["title"]
    assert "same readings" in refusal["reason"]
    assert (
        "same readings"
        not in client.post(
            "/v1/releases",
            json={"question": second["question"], "handle": second["handles"][0]},
            headers={**who, "Idempotency-Key": "again"},
        ).text
    )
    # Nobody else gets the second question either.
    other = client.post("/v1/grants", json={**body, "analyst": "bob", "new": True}, headers=owner).json()
    who = {"Authorization": f"Bearer {other['key']}"}
    for question in client.get("/v1/questions", headers=who).json():
        assert set(asked(question)) == ({200} if question["title"] == first["title"] else {403})


def test_figures_are_those_of_the_table(tmp_path: Path, ledger: shoal.Ledger) -> None:
    home = designed(tmp_path / "runs" / "single", method="white", scope="answer", delta=1e-4, epsilon=1.0)
    run = shoal.Run.open(home)
    assert run.design is not None
    assert run.design.scope == "answer"
    mechanism = shoal.load(next((home / "mechanism").glob("*.shoal")))
    table = mechanism.certified("table").delta_upper
    assert table > run.design.delta
    ledger.budget(1.0, 0.5, mode="adaptive")
    service = QuestionService(ledger, tmp_path / "runs", f"sqlite:///{tmp_path}/ledger.db")
    client = TestClient(application(service))
    key = service.register.first_key()
    assert key is not None
    owner = {"Authorization": f"Bearer {key.text}"}
    (question,) = client.get("/v1/questions", headers=owner).json()
    body = {"analyst": "ada", "question": question["question"], "epsilon": 1.0, "delta": 0.5, "new": True}
    who = {"Authorization": f"Bearer {client.post('/v1/grants', json=body, headers=owner).json()['key']}"}
    (mine,) = client.get("/v1/questions", headers=who).json()
    quote = client.post("/v1/quotes", json={"question": question["question"]}, headers=who).json()
    asked = {"question": question["question"], "handle": mine["handles"][0]}
    answer = client.post("/v1/releases", json=asked, headers={**who, "Idempotency-Key": "k"}).json()
    for figures in (mine["guarantee"], quote, answer["statement"]):
        assert figures["epsilon"] == 1.0
        assert table <= figures["delta"] <= table * 1.01
    assert answer["statement"]["scope"] == "table"
    assert answer["statement"]["sentence"].startswith("For who holds the whole table")
    assert len(answer["times"]) == len(answer["answer"]) == mine["entries"]
