"""Runs that release codebooks: charged, carded, audited and shown like any other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_run import CONFIG, LATE, assert_released_as_charged, charged, go, listing, write_days

import shoal

ONCE = replace(CONFIG, crowds="once", epsilon=4.0, scope="table")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codebook")
    first, _, _ = write_days(folder)
    go(folder / "run", first, ONCE)
    return folder / "run"


def books(folder: Path) -> list[shoal.Codebook]:
    found = [shoal.load(part.path) for part in listing(folder, "design").parts]
    assert all(isinstance(one, shoal.Codebook) for one in found)
    return [one for one in found if isinstance(one, shoal.Codebook)]


def test_a_large_epsilon_buys_a_codebook(out: Path) -> None:
    assert any(len(group.curves) > 1 for book in books(out) for group in book.groups)
    card = json.loads((out / "card.json").read_text())
    assert card["mechanism"]["method"] == "codebook"
    assert card["guarantee"]["delta"] == 0.0
    assert card["guarantee"]["scope"] == "table"
    assert card["audit"]["verdict"] == "consistent"
    for book in books(out):
        assert book.curve(ONCE.epsilon, scope="table").delta_upper == 0.0
        assert book.answer_epsilon == ONCE.epsilon / 2


def test_what_is_released_is_a_curve_and_charged_once(out: Path) -> None:
    names = assert_released_as_charged(out)
    owners = {label: book for book in books(out) for label in book.labels}
    assert names <= set(owners)
    with shoal.Ledger.open(out / "ledger.db", create=False) as ledger:
        assert ledger.verify().ok
        for entry in ledger.entries():
            if entry.kind == "release":
                label = entry.content["label"]
                curves = owners[label].curves(label)
                assert any(np.array_equal(entry.content["released"], curve) for curve in curves)
        account = ledger.spent().largest
    assert account is not None
    assert account.spent == 0.0  # δ = 0 at the budget's ε


def test_errors_on_the_card_are_the_books(out: Path) -> None:
    found = shoal.Run.open(out).card.design.accuracy
    names = {name for book in books(out) for name in book.labels}
    rho = np.concatenate([book.rho for book in books(out)])
    assert found.labels <= len(names)
    assert found.rho_largest <= rho.max() * (1 + 1e-12)
    assert found.total_error is not None


def test_a_report_of_codebooks(out: Path) -> None:
    run = shoal.Run.open(out)
    with run.held():
        run.do("report")
    page = (out / "report.html").read_text()
    assert "By ε of one answer" in page
    assert "codebook" in page


@pytest.mark.parametrize(
    "settings", [{"rho": 0.1}, {"query": "trajectory"}, {"scale": "log"}, {"epsilon": 0.0}], ids=str
)
def test_where_a_codebook_does_not_apply(settings: dict[str, object]) -> None:
    with pytest.raises(shoal.InputError, match="codebook"):
        shoal.Config(method="codebook", **settings)  # type: ignore[arg-type]


def test_what_auto_means() -> None:
    assert shoal.Config().way == "auto"
    assert shoal.Config(crowds="standing").way == "auto"  # draws are kept
    assert shoal.Config(objective="worst", query="trajectory").way == "center"
    assert shoal.Config(query="trajectory").way == "mean"
    assert shoal.Config(rho=0.1).way == "transport"


def test_single_answers_have_no_table_to_pass_on(tmp_path: Path) -> None:
    """A guarantee for one row does not cover all of them: nothing is laid out to be passed on together."""
    first, _, _ = write_days(tmp_path)
    go(tmp_path / "run", first, replace(ONCE, scope="answer", epsilon=2.0), until="release")
    assert (tmp_path / "run" / "released.csv").is_file()
    assert not (tmp_path / "run" / "public").exists()
    with shoal.Ledger.open(tmp_path / "run" / "ledger.db", create=False) as ledger:
        budget = ledger.spent().largest
    assert budget is not None
    assert (budget.epsilon, budget.budget) == (4.0, 2e-5)  # two single answers together


def test_draws_of_standing_crowds_are_kept(tmp_path: Path) -> None:
    """Three days: whoever drew is shown that draw's curve of the day for nothing, who joins draws once."""
    monday, tuesday, wednesday = write_days(tmp_path)
    folder = tmp_path / "run"
    config = replace(CONFIG, epsilon=4.0, cell=30, shard_size=60)
    go(folder, monday, config, until="release")
    first = {label: book for book in books(folder) for label in book.labels}
    drew = {label for label, book in first.items() if len(book.curves(label)) > 1}
    assert drew
    with shoal.Ledger.open(folder / "ledger.db", create=False) as ledger:
        spent = {label: ledger.spent(label).largest for label in drew}
    kept = {}
    for day, path in enumerate((tuesday, wednesday), start=2):
        go(folder, path, update=True)
        shown = assert_released_as_charged(folder)
        (book,) = books(folder)
        with shoal.Ledger.open(folder / "ledger.db", create=False) as ledger:
            entries = {
                e.content["label"]: e for e in ledger.entries() if e.content.get("query_id", "").endswith(str(day))
            }
            assert {label: ledger.spent(label).largest for label in drew} == spent
        assert {label for label, entry in entries.items() if entry.kind == "renewed"} == shown & (drew | kept.keys())
        answers = charged(folder)
        for label in shown & drew:
            y = first[label].drawn(label, np.array(answers[label, first_name(folder)]))
            assert y is not None
            assert entries[label].content["released"] == book.curves(label)[y].tolist()
        if day == 2:
            assert entries[LATE].kind == "release"
            kept = {label: None for label in shown if len(book.curves(label)) > 1}
            assert LATE in kept
    card = json.loads((folder / "card.json").read_text())
    assert card["guarantee"]["delta"] == 0.0


def first_name(folder: Path) -> str:
    return f"run {shoal.Run.open(folder).state.run} release 1"
