"""Another spelling is the same household: in one file, in the next, and in a file of a household."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.plaintext import name_key

OTHER: dict[str, Callable[[str], str]] = {
    "capitals": str.upper,
    "decomposed": lambda name: unicodedata.normalize("NFD", name),
    "no-break space": lambda name: name.replace(" ", "\u00a0"),
    "two spaces": lambda name: name.replace(" ", "  "),
    "zero width": lambda name: name + "\u200b",
    "full width": lambda name: name.replace("0", "０"),
}
SETTINGS: dict[str, Any] = {"label": "p", "workers": "serial", "ledger": "folder"}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with the crowds of 36 people."""
    out = tmp_path_factory.mktemp("first")
    ledger = out / "ledger.db"
    shoal.run(people(), out / "run", **{**SETTINGS, "ledger": str(ledger)}, period="2024-01")
    return ledger


def people(rename: Callable[[str], str] = str, without: int | None = None) -> pl.DataFrame:
    values = np.round(np.random.default_rng(5).lognormal(1, 0.5, 36), 2)
    rows = [(rename(f"Zoé {i:02d}"), values[i]) for i in range(36) if i != without]
    return pl.DataFrame(rows, schema=["p", "v"], orient="row")


@pytest.mark.parametrize("way", OTHER)
def test_the_same_people_in_another_spelling_stay_in_their_crowds(first: Path, tmp_path: Path, way: str) -> None:
    """Finding 8: they were a new population, and the one who is missing was the difference of two public totals."""
    ledger = tmp_path / "ledger.db"
    ledger.write_bytes(first.read_bytes())
    settings = {**SETTINGS, "ledger": str(ledger), "period": "2024-02"}
    run = shoal.run(people(OTHER[way], without=7), tmp_path / "run", **settings)
    with shoal.Ledger.open(f"sqlite:///{ledger}") as book:
        members = book.crowds().members
    assert set(members["label"]) == {f"Zoé {i:02d}" for i in range(36)}
    assert set(run.released["label"]) <= set(members["label"])


def test_two_spellings_in_one_file_are_refused(tmp_path: Path) -> None:
    twice = pl.concat([people(), pl.DataFrame({"p": ["ZOÉ 07"], "v": [1.0]})])
    with pytest.raises(shoal.InputError, match="two spellings"):
        shoal.run(twice, tmp_path / "run", **SETTINGS, period="2024-01")
    readings = shoal.simulate_meters(2, 2, 60).with_columns(pl.col("household").replace({"H0001": "h0000"}))
    readings.write_csv(tmp_path / "meters.csv")
    with pytest.raises(shoal.InputError, match="two spellings"):
        shoal.read_meters(tmp_path / "meters.csv")


def test_the_same_rows_under_other_names_are_refused(tmp_path: Path) -> None:
    """A first population that is on record under other labels; with other figures it is another."""
    rng = np.random.default_rng(2)
    rows = pl.DataFrame({"p": [f"P{i}" for i in range(30)], **{c: rng.normal(size=30).round(3) for c in "abc"}})
    settings = {**SETTINGS, "ledger": str(tmp_path / "ledger.db"), "period": "2024-01"}
    shoal.run(rows, tmp_path / "a", **settings)
    others = rows.with_columns(p="Q" + pl.col("p"))
    with pytest.raises(shoal.InputError, match="30 rows of new labels are on record under other labels"):
        shoal.run(others.select("p", "c", "a", "b"), tmp_path / "b", **settings)
    assert not (tmp_path / "b" / "public").exists()
    shoal.run(others.with_columns(pl.col("a") + 1), tmp_path / "c", **settings)


def test_file_names_lose_known_suffixes_only(tmp_path: Path) -> None:
    """Finding 6: site.1.csv, site.2.csv are two households."""
    for (name,), home in shoal.simulate_meters(3, 2, 60).group_by("household"):
        home.select("timestamp", "kw").write_csv(tmp_path / f"site.{str(name)[-1]}.csv")
    assert set(shoal.read_meters(tmp_path)["household"]) == {"site.0", "site.1", "site.2"}


def test_keys_of_names() -> None:
    for way in OTHER.values():
        assert name_key(way("Zoé 01")) == name_key("Zoé 01") == "zoé 01"
    assert len({name_key(name) for name in ("H1", "H 1", "H-1", "Hl", "H10")}) == 5
    assert all(name_key(name_key(name)) == name_key(name) for name in map(chr, range(0x2FFF)))
