"""The default run: rows are means of crowds for life; recorded once, whatever interrupts it, and charged nowhere."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_run import (
    CONFIG,
    GAP,
    LATE,
    SHORT,
    SILENT,
    Days,
    assert_recorded,
    crowds,
    go,
    left_out,
    on_call,
    own_ledger,
    public,
    shards,
)

import shoal

Patch = pytest.MonkeyPatch


def base_of(out: Path) -> dict[int, float]:
    """Crowd -> the precision of its row, as it is passed on."""
    listed = json.loads((out / "public/datapackage.json").read_text())["precision"]
    return {int(number): float(base) for number, base in listed.items()}


@pytest.fixture(scope="module")
def released_once(tmp_path_factory: pytest.TempPathFactory, days: Days) -> Path:
    return go(tmp_path_factory.mktemp("means") / "monday", days[0], CONFIG, "report").path


@pytest.fixture
def monday(released_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(released_once, tmp_path / "monday"))


def test_rows_are_means_of_whole_crowds(monday: Path) -> None:
    table, member = public(monday), crowds(monday)
    assert table.columns == ["crowd", "members", "step", "timestamp", "kw"]
    assert table["crowd"].to_list() == sorted(table["crowd"].to_list())
    bases = base_of(monday)
    curves = (pl.read_parquet(part.path.with_suffix(".curves.parquet")) for part in shards(monday, "fit"))
    values = {label: value for part in curves for label, value in part.select("label", "value").iter_rows()}
    for (number,), rows in table.group_by("crowd"):
        inside = [values[name] for name, crowd in member.items() if crowd == number]
        assert rows["members"].unique().to_list() == [len(inside)]
        assert 6 <= len(inside) < 12  # formed with 1.2 m
        kw, base = rows.sort("step")["kw"].to_numpy(), bases[int(number)]  # type: ignore[call-overload]
        assert (np.abs(kw - np.mean(inside, axis=0)) < base + 1e-9).all()  # rounded, and half a base of offset
        np.testing.assert_allclose(kw / base, np.rint(kw / base), atol=1e-6)
    assert set(member) | set(left_out(monday)) == {f"H{i:04d}" for i in range(24)}
    assert SHORT in left_out(monday)


def test_no_greek_anywhere(monday: Path) -> None:
    run = shoal.Run.open(monday)
    assert run.card.kind == "averages"
    texts = [(monday / name).read_text() for name in ("card.md", "card.json", "public/report.html")]
    for text in texts:
        text = re.sub("<script.*?</script>", "", text, flags=re.DOTALL)
        assert "δ ≤" not in text
        text = re.sub("</?code>", "`", text).replace("&#39;", "'")
        assert "Someone who knows the other members' figures" in text
    _, sentences = run.summary()[0]
    assert "At least 5 households share each row" in " ".join(sentences) + " ".join(
        line for _, lines in run.summary() for line in lines
    )
    assert any(
        line.startswith("Someone who knows the other members' figures") for _, lines in run.summary() for line in lines
    )
    with own_ledger(monday) as ledger:
        assert "release" not in {entry.kind for entry in ledger.entries()}
    with pytest.raises(shoal.InputError, match="nothing is certified about figures"):
        run.prove()
    assert "Run('monday', release 1, done until report)" in repr(run)


def test_a_second_run_does_nothing(monday: Path) -> None:
    # The lock is taken all the same, and older versions of filelock touch it.
    files = [path for path in monday.rglob("*") if path.is_file() and path.name != ".lock"]
    before = {path: path.stat().st_mtime_ns for path in files if "ledger" not in path.name}
    assert go(monday, until="report").did == []
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert_recorded(monday)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)  # it is for the owner alone


# ------------------------------------------------------------------ the next day


def test_the_next_day_has_the_same_crowds(monday: Path, days: Days) -> None:
    member, first = crowds(monday), public(monday)
    (monday / "board.html").write_text("about Monday")
    go(monday, days[1], update=True)
    assert not (monday / "board.html").exists()  # it was about the release before
    assert crowds(monday) == member
    second = public(monday)
    assert second.select("crowd", "members", "step").equals(first.select("crowd", "members", "step"))
    assert second["kw"].to_list() != first["kw"].to_list()
    left = left_out(monday)
    assert "waits" in left[LATE]
    assert not {GAP, SILENT} & set(left)  # they have a row: their usual day stands in
    assert any("No figures of 2 households" in line for line in shoal.Run.open(monday).card.fit.doubts)
    assert_recorded(monday, 2)
    go(monday, days[2], update=True)
    assert crowds(monday) == member
    assert go(monday, days[2], update=True).did == []


def test_who_is_silent_enters_with_what_entered_last(monday: Path, days: Days) -> None:
    first = pl.read_parquet(monday / "crowds.parquet").filter(pl.col("label") == SILENT).to_dicts()[0]
    go(monday, days[1], update=True)
    second = pl.read_parquet(monday / "crowds.parquet").filter(pl.col("label") == SILENT).to_dicts()[0]
    assert second["value"] is None
    usual = np.frombuffer(first["stored"], dtype="<i8")
    np.testing.assert_array_equal(np.frombuffer(second["entered"], dtype="<i8"), usual[:4])  # the same quarter hours
    assert second["last"] == first["last"]


def test_a_home_that_jumps_alone_is_held_until_it_is_hidden(monday: Path, days: Days, tmp_path: Path) -> None:
    name = "H0005"
    more = pl.when(pl.col("household") == name).then(25.0).otherwise(0.0)
    jumped = tmp_path / "jumped.parquet"
    pl.read_parquet(days[1]).with_columns(kw=pl.col("kw") + more).write_parquet(jumped)
    run = go(monday, jumped, update=True)
    members = pl.read_parquet(monday / "crowds.parquet")
    held = members.filter(pl.col("held") != "")["label"].to_list()
    assert name in held
    assert run.card.fit.held == len(held)
    said = [line for _, lines in run.summary(verbose=True) for line in lines]
    assert any(line.startswith(f"{len(held)} household") and " held (the first since" in line for line in said)
    for text in ("public/card.md", "public/README.txt", "public/card.json"):
        assert not (monday / text).exists() or "held (the first since" not in (monday / text).read_text()


@pytest.mark.parametrize("change", [{"crowd": 4}, {"order": (1, 1)}, {"train_days": 13}, {"largest_share": 0.9}])
def test_the_setting_is_for_life(tmp_path: Path, days: Days, monkeypatch: Patch, change: dict[str, Any]) -> None:
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    go(tmp_path / "first", days[0], CONFIG)
    with pytest.raises(shoal.InputError, match="fixed for a crowd's life"):
        go(tmp_path / "second", days[0], replace(CONFIG, origin="2024-01-16T12:00", **change))
    assert not (tmp_path / "second" / "public").exists()


def test_another_folder_uses_the_crowds_and_says_so(tmp_path: Path, days: Days, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    go(tmp_path / "first", days[0], replace(CONFIG, origin="2024-01-16T12:00"))
    later = go(tmp_path / "second", days[0], CONFIG)
    assert crowds(tmp_path / "first") == crowds(tmp_path / "second")
    assert any("those on record" in line for _, lines in later.summary(verbose=True) for line in lines)
    with pytest.raises(shoal.InputError, match="needs a later period"):
        go(tmp_path / "third", days[0], replace(CONFIG, origin="2024-01-16T18:00"))


def test_a_lost_folder_is_rebuilt(tmp_path: Path, days: Days, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    go(tmp_path / "run", days[0], CONFIG)
    go(tmp_path / "run", days[1], update=True)
    public_files = sorted((tmp_path / "run/public").iterdir())
    before = {path.name: path.read_bytes() for path in public_files}
    whole = tmp_path / "both.parquet"
    pl.concat([pl.read_parquet(day) for day in days[:2]]).write_parquet(whole)
    shutil.rmtree(tmp_path / "run")
    run = go(tmp_path / "run", whole, replace(CONFIG, origin="2024-01-18T00:00"))
    assert (tmp_path / "run/public/released.csv").read_bytes() == before["released.csv"]
    assert run.work.facts.release is not None
    assert run.work.facts.release.recorded_before == run.work.facts.release.crowds
    with shoal.Ledger.open(tmp_path / "owner.db", create=False) as ledger:
        assert sum(entry.kind == "crowds" for entry in ledger.entries()) == 2


def test_a_rehearsal_leaves_no_trace(tmp_path: Path, days: Days, monkeypatch: Patch) -> None:
    owner = tmp_path / "owner.db"
    monkeypatch.setenv("SHOAL_LEDGER", str(owner))
    for _ in range(2):
        run = go(tmp_path / "run", days[0], CONFIG, rehearse=True)
    assert not owner.exists()
    assert not (tmp_path / "run" / "public").exists()
    assert not (tmp_path / "run" / "released.csv").exists()
    table = pl.read_csv(tmp_path / "run/rehearsal/not_released.csv")
    assert table["status"].unique().to_list() == ["not released"]
    assert "Nothing was released" in run.summary()[0][1][0] or "nothing was released" in run.summary()[0][1][0]
    go(tmp_path / "run")
    assert owner.exists()
    with pytest.raises(shoal.InputError, match="has released"):
        go(tmp_path / "run", rehearse=True)


# ------------------------------------------------------------------ interrupted


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("point", ["draw_crowd_numbers", "record_crowds"])
def test_killed_around_the_record(tmp_path: Path, days: Days, monkeypatch: Patch, point: str, after: bool) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        stopped = on_call(1, getattr(shoal.Ledger, point), KeyboardInterrupt(), after=after)
        patch.setattr(shoal.Ledger, point, stopped)
        with pytest.raises(KeyboardInterrupt):
            go(out, days[0], CONFIG)
    assert not (out / "public").exists()
    go(out)
    assert_recorded(out)


def test_somebody_else_releases_meanwhile(tmp_path: Path, days: Days, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    mine, other = tmp_path / "mine", tmp_path / "other"
    go(mine, days[0], CONFIG, "fit")
    go(other, days[0], replace(CONFIG, origin="2024-01-16T12:00"))
    go(mine)
    assert crowds(mine) == crowds(other)
