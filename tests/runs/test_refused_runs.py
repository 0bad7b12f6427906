"""What a refused run leaves: no folder where there was none, and no word that something was released."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from small_run import CHARGED, CONFIG, go

import shoal


@pytest.fixture
def meters(tmp_path: Path) -> Path:
    path = tmp_path / "meters.parquet"
    shoal.simulate_meters(24, 17, seed=1).write_parquet(path)
    return path


def test_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    """A file without readings, a setting that cannot be: what was there before is all that is there."""
    empty = tmp_path / "empty.csv"
    pl.DataFrame({"household": ["a"], "timestamp": ["2024-01-01T00:00"], "kw": [1.0]}).write_csv(empty)
    for out, source in ((tmp_path / "one", empty), (tmp_path / "two", tmp_path / "nothing.csv")):
        with pytest.raises(shoal.ShoalError):
            go(out, source, CONFIG)
        assert not out.exists()


def test_a_folder_whose_release_was_refused_has_not_released(meters: Path, tmp_path: Path) -> None:
    """Refused by a budget, with nothing charged: other settings may be tried in the same folder."""
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    with shoal.Ledger.open(ledger) as opened:
        opened.budget(0.01, 1e-300)
    with pytest.raises(shoal.BudgetError, match="nothing was charged"):
        go(tmp_path / "run", meters, CHARGED, ledger=ledger)
    run = shoal.Run(tmp_path / "run", meters, config=CONFIG, ledger=ledger, workers="serial")
    run.do_all_stages("release")  # "has released, and this is another method" until then
    assert run.is_done("release")
