"""How far homes lie from rows, for the owner: one law pooled over all crowds, never a crowd's own spread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shoal

SMALL = {"horizon": 4, "order": (2, 1), "train_days": 14}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> shoal.Run:
    folder = tmp_path_factory.mktemp("reader")
    return shoal.run(shoal.SimulatedMeters(36, 16), folder / "run", crowd=2, **SMALL)


def test_the_law_is_that_of_all_homes_and_the_same_for_every_crowd(run: shoal.Run) -> None:
    owner = run.released
    numbers = owner["crowd"].unique().to_list()
    assert len(numbers) >= 10
    wide = owner.sort("household", "step").group_by("household", maintain_order=True).agg("kw", pl.col("crowd").first())
    rows = np.array(wide["kw"].to_list())
    members = pl.read_parquet(run.path / "crowds.parquet").sort("label")
    level = rows.mean(axis=1)[:, None]  # 0 in a crowd that is nearly off at night: it is not pooled
    off = ((members["value"].to_numpy() - rows) / np.where(level > 0, level, np.nan))[level[:, 0] > 0]
    relative = []
    for number in owner.group_by("crowd").agg(pl.col("kw").mean()).filter(pl.col("kw") > 0)["crowd"].to_list():
        table = run.reader(number)
        figures = np.array(table["row"].to_list())
        lower = np.array(table["below_10"].to_list())
        relative.append((lower - figures) / figures.mean())
    np.testing.assert_allclose(relative, np.broadcast_to(relative[0], np.shape(relative)), atol=1e-4)
    share = (off <= relative[0] + 0.005).mean(axis=0)
    assert ((share >= 0.1) & (share <= 0.25)).all()
    figures = run.reader(numbers[0])["row"].to_list()
    assert run.reader(figures).equals(run.reader(numbers[0])), "the figures are enough"


def test_how_far_members_lie_from_rows_is_in_no_public_file(run: shoal.Run) -> None:
    """Its order statistics are exact figures: with rows and the others' figures, a constant load within 0.05 kW."""
    table = pl.read_csv(run.path / "public" / "released.csv")
    assert table["crowd"].n_unique() >= 10
    names = {"released.csv", "datapackage.json", "card.json", "card.md", "report.html", "README.txt", "SHA256SUMS"}
    public = {path.name: path.read_text() for path in (run.path / "public").iterdir()}
    assert set(public) == names
    assert not [name for name, text in public.items() if "quantile" in text or "reader" in text]


def test_few_crowds_have_no_law(tmp_path: Path) -> None:
    run = shoal.run(shoal.SimulatedMeters(24, 16), tmp_path / "run", crowd=8, until="release", **SMALL)
    with pytest.raises(shoal.InputError, match="fewer than 10 crowds"):
        run.reader(run.released["crowd"][0])


def test_a_row_that_is_none_is_refused(run: shoal.Run) -> None:
    for wrong in (-1, [1.0], [float("nan")] * 4):
        with pytest.raises(shoal.InputError, match="row must be"):
            run.reader(wrong)  # type: ignore[arg-type]
