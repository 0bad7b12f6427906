"""Names from files do nothing: on a terminal, in a page, in a spreadsheet."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.plaintext import as_html, cell, escape_controls, html_table
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import FitFacts
from shoal.product.card.measures import design_facts, group_fields
from shoal.product.card.render import summary
from shoal.product.sources.frames import spreadsheet_safe

EVIL = 'a\x1b]0;owned\x07\x9b31m\u202eb\r\n"<script>'


@settings(derandomize=True, max_examples=200)
@given(st.text(alphabet=st.characters(), max_size=12))
def test_printable_text_has_no_controls_and_other_text_stays(text: str) -> None:
    shown = escape_controls(text)
    assert all(ord(c) >= 32 and not 127 <= ord(c) < 160 for c in shown)
    assert escape_controls(shown) == shown
    if text.isprintable():
        assert shown == text


@settings(derandomize=True, max_examples=200)
@given(st.lists(st.one_of(st.text(alphabet="'=+-@\t\ra1 ", max_size=4), st.none()), max_size=6))
def test_cells_are_no_formulas_and_can_be_turned_back(texts: list[str | None]) -> None:
    frame = pl.DataFrame({"name": texts, "n": [-1.5] * len(texts)}, schema={"name": pl.String, "n": pl.Float64})
    shown = spreadsheet_safe(frame)
    assert spreadsheet_safe(frame.lazy()).collect().equals(shown)
    assert shown["n"].to_list() == frame["n"].to_list()
    for before, after in zip(texts, shown["name"].to_list(), strict=True):
        assert after == (None if before is None else cell(before))
        if after is not None:
            assert not after.startswith(tuple("=+-@\t\r"))
            assert after.removeprefix("'") == before


def test_summaries_tables_and_pages_show_no_controls() -> None:
    fit = FitFacts(EVIL, 4, 2, 2, 2, 2, about=(f"Readings: {EVIL}.",), reasons=((EVIL, 1),), left_out=1)
    for text in (
        str(summary(shoal.ReleaseCard(fit), verbose=True)),
        html_table(EVIL, (EVIL,), [(EVIL,)]),
        as_html(EVIL),
    ):
        assert not any(c in text for c in "\x1b\x07\x9b\u202e\r")
    assert "<script>" not in html_table(EVIL, (EVIL,), [(EVIL,)])
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=[EVIL, "b"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
    card = ReleaseCard(FitFacts(EVIL, **group_fields(graph)), design_facts(mechanism))
    assert not any(c in card.to_markdown() for c in "\x1b\x07\x9b\u202e\r")


EVIL_COLUMN = '=HYPERLINK("http://x","y")'


def headers(folder: Path) -> list[str]:
    """First line of every CSV file of a run, as cells."""
    files = [path for path in folder.rglob("*.csv") if path.stat().st_size]
    assert len(files) >= 2
    return [name for path in files for name in next(csv.reader(path.read_text().splitlines()))]


@pytest.mark.parametrize(
    "given",
    [
        {"crowd": 4},
        {"crowd": 4, "method": "white", "epsilon": 1.0, "delta": 1e-5},
        {"secret": "readings", "customers": 30, "epsilon": 1.0, "bounds": (f"{EVIL_COLUMN}=0:10",)},
    ],
    ids=["averages", "answers", "readings"],
)
def test_names_of_columns_are_cells_in_every_table(given: dict[str, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    people = pl.DataFrame({"person": [f"={i}" for i in range(24)], EVIL_COLUMN: rng.normal(5, 1, 24)})
    settings = {"label": "person", "columns": (EVIL_COLUMN,), "period": "2024-01", "ledger": "folder"}
    run = shoal.run(people, tmp_path / "run", workers="serial", **settings, **given)
    assert cell(EVIL_COLUMN) in headers(tmp_path / "run")
    assert not any(name.startswith(tuple("=+-@\t\r")) for name in headers(tmp_path / "run"))
    assert EVIL_COLUMN in run.released.columns  # the names are as they were where nothing runs them
    owner = list(csv.DictReader((tmp_path / "run" / "released.csv").read_text().splitlines()))
    assert {name for row in owner for name in row.values() if name.startswith("'=")} == {f"'={i}" for i in range(24)}
    package = json.loads((tmp_path / "run" / "public" / "datapackage.json").read_text())
    assert [field["name"] for field in package["resources"][0]["schema"]["fields"]][-1] == cell(EVIL_COLUMN)


def test_the_service_shows_columns_by_their_own_names_and_writes_cells(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the service needs shoal[serve]")
    from shoal.product.service.catalog import read_catalog

    rng = np.random.default_rng(1)
    people = pl.DataFrame({"person": [f"p{i}" for i in range(24)], EVIL_COLUMN: rng.normal(5, 1, 24)})
    shoal.run(people, tmp_path / "run", label="person", crowd=4, period="2024-01", ledger="folder", workers="serial")
    with shoal.Ledger.open(f"sqlite:///{tmp_path}/run/ledger.db") as ledger:
        (question,) = read_catalog(tmp_path / "run", ledger).questions.values()
    assert question.entries == (EVIL_COLUMN,)
    assert len(question.rows) == 24
    assert question.cells[0][-1] == cell(EVIL_COLUMN)
