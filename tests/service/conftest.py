"""A released run that the service offers, made once; tests work on copies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs shoal[serve]")

from fastapi.testclient import TestClient
from live import released

import shoal
from shoal.service.application import application
from shoal.service.questions import QuestionService


@pytest.fixture(scope="session")
def released_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ledger, and a run that has released on it through codebooks."""
    home = tmp_path_factory.mktemp("served")
    released(home / "runs" / "january", f"sqlite:///{home}/ledger.db")
    return home


@pytest.fixture
def runs(released_run: Path, tmp_path: Path) -> Path:
    """A copy of the runs; the ledger is beside them."""
    shutil.copytree(released_run, tmp_path, dirs_exist_ok=True)
    return tmp_path / "runs"


@pytest.fixture
def url(runs: Path) -> str:
    return f"sqlite:///{runs.parent}/ledger.db"


@pytest.fixture
def desk(runs: Path, url: str) -> Iterator[QuestionService]:
    with shoal.Ledger.open(url) as ledger:
        yield QuestionService(ledger, runs)


@pytest.fixture
def client(desk: QuestionService) -> TestClient:
    return TestClient(application(desk))


@pytest.fixture
def owner(desk: QuestionService) -> dict[str, str]:
    key = desk.register.first_key()
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
