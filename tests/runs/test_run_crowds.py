"""Crowds of a run: for one release or for many, never below their size, and totals that add up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_run import CONFIG, GAP, LATE, SILENT, charged, go, left_out, listing

import shoal
from shoal.errors import InputError
from shoal.runs.run import Run
from shoal.runs.stages.fit_stage import THIN, crowds_of
from shoal.sources.meters.forecast import Forecasts


def totals(out: Path) -> tuple[np.ndarray, np.ndarray]:
    """Released and true totals of each group and step."""
    true = []
    for part in listing(out, "fit").parts:
        fc = Forecasts.load(part.path)
        steps = np.tile(np.arange(1, fc.horizon + 1), len(fc.households))
        true.append(pl.DataFrame({"household": np.repeat(fc.households, fc.horizon), "step": steps, "kw": fc.power.ravel()}))  # fmt: skip # noqa: E501
    table = pl.read_parquet(out / "released.parquet").with_columns(pl.col("step").cast(pl.Int64))
    both = table.join(pl.concat(true), on=["household", "step"], how="left")
    sums = both.group_by("group", "step").agg(pl.col("released_kw").sum(), pl.col("kw").sum())
    return sums["released_kw"].to_numpy(), sums["kw"].to_numpy()


def test_totals_add_up_and_the_card_says_so(finished: Path) -> None:
    released, true = totals(finished)
    card = shoal.Run.open(finished).card
    stated = card.to_dict()["accuracy"]["total_error"]
    assert stated < 1e-3
    assert np.abs(released / true - 1).max() < 6 * stated  # a root mean square, and a few dozen totals
    rows = pl.read_parquet(finished / "released.parquet").group_by("group").agg(pl.col("household").n_unique())
    assert rows["household"].min() == card.fit.smallest_group >= CONFIG.crowd
    words = f"Every household hides among at least {card.fit.smallest_group}, itself included."
    assert words in card.to_markdown()


def test_crowds_for_one_release_are_for_one(days: tuple[Path, Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "once"
    once = replace(CONFIG, crowds=None, cell=30, shard_size=60)
    go(out, days[0], once, "release")
    before = charged(out)
    released, true = totals(out)
    assert np.abs(released / true - 1).max() < 1e-3
    with pytest.raises(
        InputError, match=r"crowds: those of once were chosen .* whoever is in both would hide only among"
    ):
        go(out, days[1], update=True)
    with pytest.raises(InputError, match="start a new folder with --crowds standing"):
        Run(out).do("release", again=True)
    with pytest.raises(InputError, match="for that one release"):
        go(out, None, replace(once, crowds="standing"))
    assert charged(out) == before
    assert go(out, None, None, "release").did == []


def without(path: Path, names: tuple[str, ...], to: Path) -> Path:
    pl.read_parquet(path).filter(~pl.col("household").is_in(names)).write_parquet(to)
    return to


def test_a_crowd_that_is_too_thin_is_left_out_and_then_merged(days: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """23 homes in crowds of 11 and 12, of which two are silent on the second day and on the third."""
    out, config = tmp_path / "thin", replace(CONFIG, crowd=11, cell=30, shard_size=60)
    go(out, days[0], config, "release")
    (part,) = listing(out, "fit").parts
    crowds = crowds_of(part.path)
    assert sorted(np.bincount(list(crowds.values()))) == [11, 12]
    go(out, without(days[1], (LATE,), tmp_path / "tuesday.parquet"), update=True, until="release")
    (again,) = listing(out, "fit").parts
    assert crowds_of(again.path) == crowds
    present = {name for name in crowds if name not in (SILENT, GAP)}
    by_crowd = {c: {name for name in present if crowds[name] == c} for c in (0, 1)}
    whole = [names for names in by_crowd.values() if len(names) >= 11]
    assert len(whole) == 1
    table = pl.read_parquet(out / "released.parquet")
    assert set(table["household"]) == whole[0]
    reasons = left_out(out)
    assert {name for name, why in reasons.items() if why == THIN} == present - whole[0]
    released, true = totals(out)
    assert np.abs(released / true - 1).max() < 1e-3
    told = Run.open(out).fit
    assert told is not None
    assert told.smallest_group == len(whole[0])
    go(out, without(days[2], (SILENT, GAP), tmp_path / "wednesday.parquet"), update=True, until="release")
    told = Run.open(out).fit
    assert told is not None
    assert told.merged_groups == 1  # thin twice in a row, and 21 fit into one crowd
    assert set(crowds_of(listing(out, "fit").parts[0].path).values()) == {next(iter({crowds[n] for n in whole[0]}))}
    assert set(pl.read_parquet(out / "released.parquet")["household"]) == present
    released, true = totals(out)
    assert np.abs(released / true - 1).max() < 1e-3
    charged(out)


def test_update_begins_with_standing_crowds(days: tuple[Path, Path, Path], tmp_path: Path) -> None:
    out, config = tmp_path / "new", replace(CONFIG, crowds=None, cell=30, shard_size=60)
    run = go(out, days[0], config, "release", update=True)
    assert run.config.standing
    before = charged(out)
    assert go(out, days[0], update=True, until="release").did == []
    go(out, days[1], update=True, until="release")
    assert charged(out).items() > before.items()


def test_boundaries_and_refusals(days: tuple[Path, Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"crowd: \d+ can be used, and a crowd has at least 30"):
        go(tmp_path / "few", days[0], replace(CONFIG, crowd=30, cell=100), "fit")
    with pytest.raises(InputError, match="cell must be at least 19"):
        replace(CONFIG, crowd=10, cell=18)
    with pytest.raises(InputError, match="crowds must be one of"):
        replace(CONFIG, crowds="twice")
