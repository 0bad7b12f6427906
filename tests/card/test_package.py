"""``public/`` is a data package that others' tools read, and nothing in it is the owner's."""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from card_cases import NASTY

import shoal
from shoal.product.card.package import build_package
from shoal.readings.publication import PublicSettings, plan_in_series, public_files


@pytest.fixture(scope="module")
def public(means: shoal.Run) -> Path:
    return means.path / "public"


def test_the_files_are_there_with_their_checksums(public: Path) -> None:
    names = {path.name for path in public.iterdir()}
    assert names == {
        "released.csv", "datapackage.json", "card.json", "card.md", "report.html", "README.txt", "SHA256SUMS",
    }  # fmt: skip
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=public, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(names) - 1


def test_frictionless_validates_it(public: Path, certified: shoal.Run) -> None:
    frictionless = pytest.importorskip("frictionless")
    for folder in (public, certified.path / "public"):
        described = frictionless.Package(str(folder / "datapackage.json"))
        outcome = described.validate()
        assert outcome.valid, outcome.flatten(["rowNumber", "fieldName", "type", "note"])
        assert outcome.stats["errors"] == 0
        left = {"datapackage.json", "card.json", "card.md", "report.html", "README.txt", "SHA256SUMS"}
        assert {resource.path for resource in described.resources} == {path.name for path in folder.iterdir()} - left


def test_frictionless_validates_a_release_of_readings(tmp_path: Path) -> None:
    frictionless = pytest.importorskip("frictionless")
    plan, series = plan_in_series(500, epsilon=1.0, make=partial(shoal.noisy_crowds_plan, typical_kw=1.5))
    settings = PublicSettings(plan, series, "2024-01-16T18:00:00", "2024-01-17", "2024-01-16T18:00", 60.0, 6)
    files = public_files(np.zeros(plan.entries), settings)
    for name, content in {**files, **build_package(shoal.ReleaseCard.from_settings(settings), files)}.items():
        (tmp_path / name).write_bytes(content)
    outcome = frictionless.Package(str(tmp_path / "datapackage.json")).validate()
    assert outcome.valid, outcome.flatten(["rowNumber", "fieldName", "type", "note"])
    assert {"released.csv", "total.csv", "plan.json", "noisy.json"} == files.keys()
    assert all(
        f"\n{name}  " in (tmp_path / "README.txt").read_text() for name in ("noisy.json      ", "total.csv       ")
    )


def test_it_says_what_its_columns_are_and_under_which_licence(public: Path, means: shoal.Run) -> None:
    described = json.loads((public / "datapackage.json").read_text())
    (table,) = described["resources"]
    content = (public / "released.csv").read_bytes()
    assert table["path"] == "released.csv"
    assert table["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert table["bytes"] == len(content)
    fields = {field["name"]: field for field in table["schema"]["fields"]}
    assert list(fields) == pl.read_csv(content).columns == ["crowd", "members", "step", "timestamp", "kw"]
    assert fields["kw"]["unit"] == "kW"
    assert fields["members"]["constraints"]["minimum"] == 4
    assert described["licenses"] == [{"name": "CC-BY-4.0", "title": "CC-BY-4.0"}]
    assert described["guarantee"]["statement"] == means.card.statement
    assert means.card.digest[:16] in described["citation"]
    assert "about 2024-01-17T12:00:00. Made" in described["citation"]  # no zone is known: no Z
    assert described["time_zone"] in (public / "README.txt").read_text()


def test_the_readme_is_half_a_page(public: Path) -> None:
    lines = (public / "README.txt").read_text().splitlines()
    assert len(lines) <= 32
    assert all(len(line) <= 100 for line in lines)


def test_nothing_in_it_is_the_owners(public: Path, means: shoal.Run) -> None:
    names = means.released["household"].unique().to_list()
    for path in public.iterdir():
        text = path.read_text()
        assert not any(name in text for name in names if name != NASTY), path.name
        assert "onerror" not in text, path.name
        assert "meters.parquet" not in text, path.name


def test_released_figures_have_the_digits_they_can_mean(public: Path) -> None:
    figures = pl.read_csv(public / "released.csv", infer_schema=False)["kw"].to_list()
    assert all(len(text.partition(".")[2]) <= 3 for text in figures)
