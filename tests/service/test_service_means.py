"""A run without ε: its question is its public table and a row per handle, recorded and not charged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from callers import KeyHolder
from fastapi.testclient import TestClient
from live import SETTINGS, released

import shoal
from shoal.product.card.promises import KNOWS
from shoal.product.service import receipt_verifier
from shoal.product.service.application import make_application
from shoal.product.service.questions import QuestionService


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, QuestionService]]:
    home = tmp_path_factory.mktemp("means")
    url = f"sqlite:///{home}/ledger.db"
    released(home / "runs" / "january", url, method=None, epsilon=None)
    with shoal.Ledger.open(url) as ledger:
        yield home / "runs" / "january", QuestionService(ledger, home / "runs")


def test_the_public_table_and_a_row_per_handle(served: tuple[Path, QuestionService]) -> None:
    run, desk = served
    key = desk.register.first_key()
    assert key is not None
    owner = KeyHolder(TestClient(make_application(desk)), key.text)
    question = owner.question()
    guarantee = question["guarantee"]
    assert (question["charged"], guarantee["epsilon"], guarantee["delta"]) == (False, None, None)
    assert guarantee["crowd"] == SETTINGS["crowd"]
    assert KNOWS in guarantee["sentence"]
    assert question["error"] is None  # of fewer than ten crowds it would be a figure of their members
    body = {"analyst": "ada", "question": question["question"], "new": True}
    ada = KeyHolder(owner.client, owner.post("/v1/grants", **body)["key"])
    quote = ada.quote()
    assert (quote["epsilon"], quote["delta"], quote["remaining"], quote["allowed"]) == (None, None, None, True)
    spent = [entry for entry in desk.ledger.entries() if entry.kind == "release"]
    table = ada.asks().json()["table"]
    public = (run / "public" / "released.csv").read_text().splitlines()
    assert [",".join(row) for row in (table["columns"], *table["rows"])] == public
    frame = shoal.Run.open(run).released
    names = set(frame["household"].to_list())
    answers = [ada.asks(handle) for handle in ada.handles()]
    assert len(answers) == len(names) == guarantee["labels"]
    assert {answer.status_code for answer in answers} == {200}
    assert not any(name in answer.text for answer in answers for name in names)
    curves = [tuple(answer.json()["answer"]) for answer in answers]
    true = [tuple(home.sort("step")["kw"].to_list()) for home in frame.partition_by("household", maintain_order=True)]
    assert sorted(curves) == sorted(true)
    assert all(curves.count(curve) >= SETTINGS["crowd"] for curve in curves)  # rows of a crowd are identical
    first = answers[0].json()
    assert first["statement"]["epsilon"] is None
    assert len(first["times"]) == len(first["answer"]) == question["entries"]
    proof = ada.get(f"/v1/receipts/{first['receipt']['id']}/proof")
    receipt_verifier.check_receipt(first | proof, ada.get("/v1/ledger/head"))
    assert [entry for entry in desk.ledger.entries() if entry.kind == "release"] == spent
    assert desk.ledger.verify()


def test_a_second_table_from_the_same_readings_is_refused_and_not_offered(tmp_path: Path) -> None:
    """Eight homes, then the same and one more: the second table would give the ninth away."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    readings = shoal.simulate_meters(9, 8, step_minutes=60, seed=1)
    homes = readings["household"].unique(maintain_order=True).to_list()
    runs = {}
    for name, few in (("eight", homes[:8]), ("nine", homes)):
        file = tmp_path / f"{name}.csv"
        readings.filter(readings["household"].is_in(few)).write_csv(file)
        runs[name] = shoal.Run(tmp_path / "runs" / name, file, ledger=url, method="codebook", **SETTINGS)
    runs["eight"].do_all_stages("release")
    with pytest.raises(shoal.ShoalError):
        runs["nine"].do_all_stages("release")
    with shoal.Ledger.open(url) as ledger:
        catalog = QuestionService(ledger, tmp_path / "runs").catalog
    assert [question.title for question in catalog.questions.values()] == ["eight"]
    assert "released nothing yet" in catalog.left_out["nine"]


def test_a_changed_table_is_not_offered(served: tuple[Path, QuestionService]) -> None:
    run, desk = served
    file = run / "public" / "released.csv"
    content = file.read_bytes()
    try:
        file.write_bytes(content[:-2] + (b"1" if content[-2:-1] != b"1" else b"2") + content[-1:])
        catalog = QuestionService(desk.ledger, run.parent).catalog
        assert not catalog.questions
        assert "changed" in catalog.left_out["january"]
    finally:
        file.write_bytes(content)


def test_a_run_under_the_promise_about_readings_is_not_offered(
    served: tuple[Path, QuestionService], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row for one home is outside of that promise."""
    run, desk = served
    monkeypatch.setattr("shoal.product.runs.kinds.kind.Kind.has_rows", False)
    catalog = QuestionService(desk.ledger, run.parent).catalog
    assert not catalog.questions
    assert "share public/" in catalog.left_out["january"]
