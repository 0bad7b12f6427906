"""Runs that release codebooks, where asked for: charged, carded, audited and shown like any other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_run import CONFIG, assert_released_as_charged, go, shards, write_days

import shoal

BOOK = replace(CONFIG, method="codebook", epsilon=4.0)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codebook")
    first, _, _ = write_days(folder)
    return go(folder / "run", first, BOOK, "report").path


def books(folder: Path) -> list[shoal.Codebook]:
    loaded = [shoal.load(part.path) for part in shards(folder, "design")]
    codebooks = [book for book in loaded if isinstance(book, shoal.Codebook)]
    assert len(codebooks) == len(loaded)
    return codebooks


def test_a_large_epsilon_buys_several_curves(out: Path) -> None:
    assert any(len(group.curves) > 1 for book in books(out) for group in book.crowds)
    card = json.loads((out / "card.json").read_text())
    assert card["mechanism"]["method"] == "codebook"
    assert card["guarantee"]["delta"] == 0.0
    assert card["guarantee"]["scope"] == "table"
    assert card["audit"]["verdict"] == "consistent"
    assert "codebook" in (out / "report.html").read_text()
    for book in books(out):
        assert book.curve(BOOK.epsilon, scope="table").delta_upper == 0.0
        assert book.answer_epsilon == BOOK.epsilon / 2


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
    accuracy = shoal.Run.open(out).card.design.accuracy
    names = {name for book in books(out) for name in book.labels}
    rho = np.concatenate([book.rho for book in books(out)])
    assert accuracy.labels <= len(names)
    assert accuracy.rho_largest <= rho.max() * (1 + 1e-12)
    assert accuracy.total_error is not None


@pytest.mark.parametrize(
    "settings",
    [{"rho": 0.1}, {"epsilon": 1.0, "query": "trajectory"}, {}, {"epsilon": 0.0}, {"epsilon": 1.0, "delta": 1e-5}],
    ids=str,
)
def test_where_a_codebook_does_not_apply(settings: dict[str, object]) -> None:
    with pytest.raises(shoal.InputError, match="codebook"):
        shoal.Config(method="codebook", **settings)  # type: ignore[arg-type]


def test_what_is_used_where_no_method_is_named() -> None:
    assert not shoal.Config().charged
    assert shoal.Config(query="trajectory", epsilon=1.0, delta=1e-5).design_method == "mean"
    assert shoal.Config(query="trajectory", rho=0.1).design_method == "transport"
    for given in ({"epsilon": 1.0}, {"delta": 1e-5}, {"rho": 0.1}):
        with pytest.raises(shoal.InputError, match=r"nothing here uses it.*codebook, white, paper"):
            shoal.Config(**given)  # type: ignore[arg-type]
    for needs in ({"method": "white"}, {"query": "trajectory"}, {"method": "white", "epsilon": 1.0}):
        with pytest.raises(shoal.InputError, match=r"epsilon= and delta=, or an error to spend, rho="):
            shoal.Config(**needs)  # type: ignore[arg-type]
