"""One promise, one sentence: what summary, card, pages, package, service and help say about every kind of release."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import shoal
from shoal.product.card.promises import LADDER, NOTHING_TO_PROVE
from shoal.product.cli.main import app

ORIGIN = "2024-01-16T12:00"
METERS: dict[str, Any] = {"crowd": 4, "horizon": 4, "order": (1, 0), "train_days": 14, "origin": ORIGIN}
TABLE: dict[str, Any] = {"label": "customer", "crowd": 4, "period": "2024-01"}
NOISY: dict[str, Any] = {"secret": "readings", "epsilon": 1.0}
#: Kind and what it is about -> settings of a run.
RELEASES: dict[str, dict[str, Any]] = {
    "averages of meters": METERS,
    "averages of a table": TABLE,
    "answers of meters": METERS | {"method": "center", "epsilon": 1.0, "delta": 1e-5},
    "answers of a table": TABLE | {"method": "white", "epsilon": 1.0, "delta": 1e-5},
    "codebook of meters": METERS | {"method": "codebook", "epsilon": 3.0},
    "samples of a table": {"label": "speaker", "crowd": 3, "epsilon": 1.0, "delta": 1e-5},
    "readings of meters": METERS
    | NOISY
    | {"customers": 40, "typical_kw": 1.5, "unit": "kw", "interval": 60, "crowd": None, "order": (2, 1)},
    "readings of a table": TABLE
    | NOISY
    | {"customers": 30, "bounds": ("kg=0:10",), "cells": ("kg=5",), "columns": ("kg",), "crowd": None},
}
INSIDER = "Someone who knows the other members' figures"
KINDS = {"averages": "averages", "answers": "answers", "codebook": "answers", "samples": "answers"}


def source(name: str) -> pl.DataFrame:
    """Rows for a release of this name."""
    rng = np.random.default_rng(3)
    if "meters" in name:
        return shoal.simulate_meters(31, 17, step_minutes=60, seed=2)
    if "samples" in name:
        parts = [
            pl.DataFrame({"speaker": [f"s{i}"] * 20, "x": rng.normal(i, 2, 20), "y": rng.normal(-i, 2, 20)})
            for i in range(4)
        ]
        return pl.concat(parts)
    return pl.DataFrame({"customer": [f"C{i:02d}" for i in range(26)], "kg": rng.normal(5, 1, 26)})


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, shoal.Run]:
    """One released run of each kind, each on a ledger of its own."""
    root = tmp_path_factory.mktemp("ladder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(root / "data"))
        return {
            name: shoal.run(
                source(name), root / name.replace(" ", "_"), ledger="folder", workers="serial",
                **{key: value for key, value in given.items() if value is not None},
            )
            for name, given in RELEASES.items()
        }  # fmt: skip


def flowing(text: str, *, page: bool = False) -> str:
    """Text as it is read."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL) if page else text
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).replace("`", "").split())


def documents(run: shoal.Run) -> Iterator[tuple[str, str]]:
    """Name and text of everything that people read about a release."""
    yield "summary", "\n".join(f"{heading}: {' '.join(lines)}" for heading, lines in run.summary())
    for path in (*run.explain(""), run.path / "report.html", run.path / "public" / "report.html"):
        yield str(path.relative_to(run.path)), flowing(path.read_text(), page=True)
    for name in ("card.md", "public/card.md", "public/README.txt"):
        yield name, flowing((run.path / name).read_text())
    package = json.loads((run.path / "public" / "datapackage.json").read_text())
    yield "datapackage.json", flowing(package["description"])


def sentence(run: shoal.Run) -> str:
    """The promise of a release, as its card has it."""
    (said,) = [one.sentence for one in run.card.public if one.key == "promise"]
    return said


@pytest.mark.parametrize("name", RELEASES)
def test_every_text_says_the_same_promise_first(releases: dict[str, shoal.Run], name: str) -> None:
    run = releases[name]
    assert run.card.kind == KINDS.get(name.split()[0], "readings")
    said = sentence(run)
    for document, text in documents(run):
        assert said in text, document
        others = {step.title for kind, step in LADDER.items() if kind != run.card.kind}
        assert not any(title in text for title in others), document
    assert run.summary()[0] == ("Promise", [said])
    assert (run.path / "card.md").read_text().splitlines()[2].startswith(f"**{said}".replace("<", "&lt;")[:60])
    for page in ("report.html", "public/report.html"):
        tile = re.search(
            r'<div class="tile"><h2>Promise</h2><p class="answer">(.*?)</p>', (run.path / page).read_text()
        )
        assert tile is not None
        assert "ε" in tile[1]


@pytest.mark.parametrize("name", RELEASES)
def test_epsilon_and_delta_stand_wherever_there_are_any(releases: dict[str, shoal.Run], name: str) -> None:
    """And on their safe side: δ is never below that of the certificate."""
    run = releases[name]
    if run.card.kind == "averages":
        assert "ε = 0, δ = 0 between members of a crowd, nothing between crowds" in sentence(run)
        return
    stated = re.search(r"\(ε, δ\) = \(([^,]+), ([^)]+)\)", sentence(run))
    assert stated is not None
    design = run.card.design
    facts = run.card.to_dict()
    true = (design.epsilon, design.delta) if design is not None else (facts["epsilon"], facts["delta"])
    assert float(stated[1]) == true[0]
    assert true[1] <= float(stated[2]) <= true[1] * 1.001


@pytest.mark.parametrize("name", RELEASES)
def test_no_two_sentences_contradict_each_other(releases: dict[str, shoal.Run], name: str) -> None:
    run = releases[name]
    for document, text in documents(run):
        assert "not differential privacy" not in text, document
        if run.card.kind != "averages":
            assert "no differential privacy" not in text, document
            assert "ε = 0, δ = 0" not in text, document
            assert not re.search(r"\b(without noise|share one row|mean of each crowd|mean over the members)\b", text), (
                document
            )
        if run.card.kind == "answers":
            assert "differential privacy of the label" in text or "differential privacy" not in text, document
        for epsilon, delta in re.findall(r"\(ε, δ\) = \(([^,]+), ([^)]+)\)", text):
            assert f"(ε, δ) = ({epsilon}, {delta})" in sentence(run), document
    for figure in (
        r"\d+ \w+ in \d+ crowds? of [\d to]*\d",
        r"[Aa]t least \d+ \w+ share each row",
        r"register of [\d,]+",
    ):
        said = {found for _, text in documents(run) for found in re.findall(figure, text)}
        assert len(said) <= 1, said


@pytest.mark.parametrize("name", [name for name in RELEASES if "readings" not in name])
def test_who_knows_the_others_is_in_every_text_about_labels(releases: dict[str, shoal.Run], name: str) -> None:
    wanted = {"card.md", "public/card.md", "public/README.txt", "report.html", "public/report.html", "board.html"}
    said = {document for document, text in documents(releases[name]) if INSIDER in text}
    assert wanted | {"annex.html"} <= said


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("averages of meters", "crowd and step"),
        ("averages of a table", "crowd"),
        ("answers of meters", "household and step"),
        ("codebook of meters", "household and step"),
        ("answers of a table", "customer"),
        ("samples of a table", "row of a speaker"),
        ("readings of meters", "curve and step"),
        ("readings of a table", "cell"),
    ],
)
def test_the_readme_counts_rows_by_what_they_are_about(releases: dict[str, shoal.Run], name: str, row: str) -> None:
    public = releases[name].path / "public"
    rows = len((public / "released.csv").read_text().splitlines()) - 1
    assert f"{rows} rows, one per {row}: " in (public / "README.txt").read_text()
    fields = json.loads((public / "datapackage.json").read_text())["resources"][0]["schema"]["fields"]
    about = {field["name"]: field["description"] for field in fields}
    figure = "kw" if "kw" in about else next(reversed(about))
    assert ("members of the crowd" in about[figure]) == name.startswith("averages")


def test_a_noisy_table_is_drawn_from_its_public_files_on_both_pages(releases: dict[str, shoal.Run]) -> None:
    meters, table = (releases[f"readings of {what}"].path for what in ("meters", "a table"))
    total = pl.read_csv(meters / "public" / "total.csv")["kw"]
    first = re.compile(r'<path class="curve row" stroke-width="[\d.]+" d="([^"]+)"/>')
    for page in (meters / "report.html", meters / "public" / "report.html"):
        text = page.read_text()
        drawn = [float(point.split(",")[1]) for point in first.findall(text)[0].lstrip("M").split("L")]
        top, low = 3.0, 87.0  # the largest figure stands at the top, zero at the bottom
        assert drawn == pytest.approx([low - (low - top) * kw / total.max() for kw in total], abs=0.06)
        assert "12:00</span>" in text
    for page in (table / "report.html", table / "public" / "report.html"):
        counts = pl.read_csv(table / "public" / "released.csv")["count"]
        assert ("Count of each cell, with noise" in page.read_text()) == (counts.n_unique() > 1 and counts.max() > 0)
    assert "Drawn from the public files" not in (releases["averages of meters"].path / "report.html").read_text()


def test_the_service_says_the_same(releases: dict[str, shoal.Run]) -> None:
    pytest.importorskip("fastapi", reason="the service needs shoal[serve]")
    from shoal.product.service.catalog import read_catalog

    for name in ("averages of meters", "codebook of meters", "answers of a table"):
        run = releases[name]
        with shoal.Ledger.open(f"sqlite:///{run.path}/ledger.db") as ledger:
            (question,) = read_catalog(run.path, ledger).questions.values()
        assert question.statement.sentence.startswith(sentence(run))


def test_the_help_has_the_whole_ladder() -> None:
    shown = re.sub(r"[│╭╮╰╯─]", " ", CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output)
    text = " ".join(shown.split())
    for step in LADDER.values():
        assert f"{step.name} ({step.command}): {step.apart}. Promise: {step.promise}." in text


def test_there_is_nothing_to_prove_about_averages(releases: dict[str, shoal.Run]) -> None:
    for name in ("averages of meters", "averages of a table"):
        shown = CliRunner().invoke(app, ["prove", str(releases[name].path)])
        assert shown.exit_code == 2
        assert " ".join(shown.stderr.split()) == f"shoal: {NOTHING_TO_PROVE}"
    assert NOTHING_TO_PROVE == (
        "nothing to prove: all members of a crowd share one row (ε = 0, δ = 0); nothing is certified about figures"
    )


def test_a_budget_that_was_not_chosen_is_said_on_the_first_day(releases: dict[str, shoal.Run]) -> None:
    for name, run in releases.items():
        warned = any("No budget was chosen" in line for _, lines in run.summary() for line in lines)
        assert warned == (run.card.kind == "answers"), name
    shown = CliRunner().invoke(app, ["ledger", "show", str(releases["codebook of meters"].path)]).output
    assert "0 of the budget" not in shown


def test_the_ladder_is_said_in_one_place() -> None:
    """No other module or template of the product spells the promise of averages out."""
    product = Path(shoal.__file__).parent / "product"
    texts = [path for path in product.rglob("*") if path.suffix in (".py", ".txt", ".html", ".md")]
    assert [path.name for path in texts if "nothing between crowds" in path.read_text()] == ["promises.py"]
