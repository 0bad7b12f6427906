"""A designed run that the service offers, made once; tests work on copies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs shoal[serve]")

from fastapi.testclient import TestClient
from live import designed

import shoal
from shoal.service.application import application
from shoal.service.question_service import QuestionService


@pytest.fixture(scope="session")
def designed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(designed(tmp_path_factory.mktemp("served") / "january"))


@pytest.fixture
def runs(designed_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(designed_run, tmp_path / "runs" / "january")
    return tmp_path / "runs"


@pytest.fixture
def service(runs: Path) -> Iterator[QuestionService]:
    with shoal.Ledger.open(f"sqlite:///{runs.parent}/ledger.db") as ledger:
        ledger.budget(20.0, 1e-3)
        yield QuestionService(ledger, runs, f"sqlite:///{runs.parent}/ledger.db")


@pytest.fixture
def client(service: QuestionService) -> TestClient:
    return TestClient(application(service))


@pytest.fixture
def owner(service: QuestionService) -> dict[str, str]:
    key = service.register.first_key()
    assert key is not None
    return {"Authorization": f"Bearer {key.text}"}


@pytest.fixture
def granted(client: TestClient, owner: dict[str, str]) -> Callable[..., dict[str, str]]:
    """Grants the one question to a new or known analyst and returns what the analyst sends."""

    def grant(analyst: str = "ada", epsilon: float = 4.0, delta: float = 1e-5, **rest: object) -> dict[str, str]:
        (question,) = client.get("/v1/questions", headers=owner).json()
        known = {person["name"] for person in client.get("/v1/people", headers=owner).json()}
        body = {"analyst": analyst, "question": question["question"], "epsilon": epsilon, "delta": delta, **rest}
        body["new"] = analyst not in known
        answer = client.post("/v1/grants", json=body, headers=owner)
        assert answer.status_code == 201, answer.text
        return {"Authorization": f"Bearer {answer.json()['key']}"}

    return grant
