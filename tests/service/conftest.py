"""A released run that the service offers, made once; tests work on copies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs shoal[serve]")

from callers import KeyHolder
from fastapi.testclient import TestClient
from live import released

import shoal
from shoal.product.service.application import make_application
from shoal.product.service.questions import QuestionService


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
def ledger(url: str) -> Iterator[shoal.Ledger]:
    with shoal.Ledger.open(url) as opened:
        yield opened


@pytest.fixture
def desk(runs: Path, ledger: shoal.Ledger) -> QuestionService:
    return QuestionService(ledger, runs)


@pytest.fixture
def client(desk: QuestionService) -> TestClient:
    return TestClient(make_application(desk), follow_redirects=False, raise_server_exceptions=False)


@pytest.fixture
def owner(desk: QuestionService, client: TestClient) -> KeyHolder:
    key = desk.register.first_key()
    assert key is not None
    return KeyHolder(client, key.text)
