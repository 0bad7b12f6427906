"""The first week: the next release from any folder, lost files, moved and restored ledgers, settings with --update."""

from __future__ import annotations

import re
import shutil
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from calls import call

import shoal

SMALL = ["--horizon", "1h", "--set", "order=2,1", "--train-days", "14"]
#: Words of the inside that nobody should meet.
INSIDE = ("query_id", "lost neighbors", "digest", "a file;", "train_days", "shards:")


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Readings until three days, and a folder that released after the first, with its ledger."""
    folder = tmp_path_factory.mktemp("week")
    frame = shoal.simulate_meters(24, 20, seed=1)
    for number in (18, 19, 20):
        frame.filter(pl.col("timestamp") < datetime(2024, 1, number + 1)).write_csv(folder / f"{number}.csv")
    frame.filter(pl.col("timestamp") >= datetime(2024, 1, 19)).write_csv(folder / "19 alone.csv")
    done = call("run", folder / "18.csv", "--out", folder / "run", *SMALL, "--crowd", 5, "--ledger", folder / "own.db")
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def here(week: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(week / "run", tmp_path / "run")
    (tmp_path / "run" / "state.json").write_text(
        (week / "run" / "state.json").read_text().replace(str(week / "own.db"), str(tmp_path / "own.db"))
    )
    shutil.copy(week / "own.db", tmp_path / "own.db")
    for name in ("18.csv", "19.csv", "20.csv", "19 alone.csv"):
        shutil.copy(week / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "own.db"))
    return tmp_path


def refused(*arguments: object, code: int = 2) -> str:
    result = call(*arguments)
    assert result.code == code, result.err
    last = result.err.splitlines()[-1]
    assert last.startswith("shoal: ")
    assert not any(word in last for word in INSIDE), last
    return last


def test_the_next_day_from_another_folder_uses_the_crowds_on_record(here: Path) -> None:
    done = call("run", "19.csv", "--out", "other", *SMALL, "--json")
    assert done.code == 0, done.err
    assert done.json["config"]["crowd"] == 5
    key = ["household", "crowd"]
    first, second = (
        pl.read_parquet(here / name / "released.parquet").select(key).unique() for name in ("run", "other")
    )
    assert first.sort(key).equals(second.sort(key))


def test_a_ledger_that_is_gone_moved_exchanged_or_restored_is_told_at_once(here: Path) -> None:
    shutil.copy("own.db", "older.db")
    assert call("run", "19.csv", "--out", "run", "--update").code == 0
    shutil.move("own.db", "moved.db")
    for arguments in (("run", "--out", "run"), ("run", "20.csv", "--out", "run", "--update")):
        text = refused(*arguments)
        assert "own.db is missing, in which the releases of this folder are on record" in text
        assert "--ledger" in text
    text = refused("run", "--out", "run", "--ledger", "other.db")
    assert "there is no" in text
    assert "charged" not in text
    shutil.copy("older.db", "own.db")
    assert "was rolled back" in refused("run", "20.csv", "--out", "run", "--update")
    done = call("run", "20.csv", "--out", "run", "--update", "--ledger", here / "moved.db")
    assert done.code == 0, done.err
    assert call("run", "--out", "run").code == 0


def test_a_ledger_that_moved_and_came_back_is_found_from_anywhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.move("own.db", "moved.db")
    assert call("run", "--out", "run", "--ledger", "moved.db").code == 0
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert call("run", "--out", here / "run").code == 0
    shutil.move(here / "moved.db", here / "own.db")
    assert call("run", "--out", here / "run").code == 0
    assert call("run", here / "19.csv", "--out", here / "run", "--update").code == 0


def test_a_period_is_released_once_and_that_is_said(here: Path) -> None:
    again = call("run", "18.csv", "--out", "again", *SMALL)
    assert again.code == 0, again.err
    assert "of this period were released before. They are given again as recorded" in " ".join(again.out.split())
    assert (here / "again/public/released.csv").read_bytes() == (here / "run/public/released.csv").read_bytes()
    for horizon in ("2h", "8"):
        text = refused("run", "18.csv", "--out", "longer", *SMALL[2:], "--horizon", horizon)
        assert "on record with 4 steps, and a period is released once; --horizon 4 gives them again" in text


@pytest.mark.parametrize("lost", ["forecasts", "shards", "crowds.parquet", "fit.json", "released.csv", "public"])
def test_lost_files_do_not_end_a_series(here: Path, lost: str) -> None:
    gone = here / "run" / lost
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    done = call("run", "19.csv", "--out", "run", "--update")
    assert done.code == 0, done.err


def test_lost_forecasts_and_one_day_say_what_to_give(here: Path) -> None:
    shutil.rmtree(here / "run" / "forecasts")
    text = refused("run", "19 alone.csv", "--out", "run", "--update")
    assert "--train-days" in text
    assert "give a file with the last 14 days" in text


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (["--crowd", "7"], "formed with crowd 5, and now it is crowd 7"),
        (["--epsilon", "3"], "shoal: --epsilon: nothing here uses it"),
        (["--method", "codebook", "--epsilon", "3"], "formed with no method"),
        (["--largest-share", "0.5"], "with no --largest-share"),
        (["--train-days", "10"], "--train-days differs"),
        (["--set", "order=1,1"], "order differs"),
        (["--origin", "2024-01-15T00:00"], "needs a later period"),
    ],
)
def test_settings_with_update_are_refused_before_the_fit(here: Path, setting: list[str], words: str) -> None:
    before = {path: path.read_bytes() for path in (here / "run").rglob("*") if path.is_file()}
    assert words in refused("run", "19.csv", "--out", "run", "--update", *setting)
    assert {path: path.read_bytes() for path in (here / "run").rglob("*") if path.is_file()} == before


def test_a_horizon_with_update_takes_effect(here: Path) -> None:
    done = call("run", "19.csv", "--out", "run", "--update", "--horizon", "2h", "--json")
    assert done.code == 0, done.err
    assert done.json["config"]["horizon"] == 8
    assert pl.read_csv(here / "run" / "public" / "released.csv")["step"].max() == 8


def test_horizons_in_hours_are_steps(here: Path) -> None:
    assert pl.read_csv(here / "run" / "public" / "released.csv")["step"].max() == 4
    assert call("run", "--out", "run", "--horizon", "1h", "--json").json["did"] == []
    assert call("run", "--out", "run", "--horizon", "4", "--json").json["did"] == []
    assert "multiple of the 15 minutes" in refused("check", "19.csv", "--horizon", "50min")
    for text in ("soon", "3 hours", "-3h"):
        assert ": --horizon must be a number of steps, or a time such as 3h" in refused(
            "run", "19.csv", "--out", "new", f"--horizon={text}"
        )


def test_check_and_asking_on_the_command_line(here: Path) -> None:
    done = call("check", "20.csv", *SMALL, "--json")
    assert done.code == 0, done.err
    assert done.json["on_record"]
    assert done.json["crowd"] == 5
    words = call("check", "20.csv", *SMALL).out
    assert "24 of 24 households can be used" in words
    assert "No folder was made" in words
    assert sorted(path.name for path in here.iterdir() if path.is_dir()) == ["run"]
    done = call("run", "19.csv", "--out", "new", *SMALL, "--at-most", "1-in-4", "--ledger", here / "new.db")
    assert done.code == 0, done.err
    words = " ".join(done.out.split())
    assert "at most 1 in 4" in words
    assert "24 of these homes are on record in another ledger" in words
    assert "not both" in refused("run", "19.csv", "--out", "new", "--at-most", "1-in-4", "--crowd", "4")
    assert "at best" in refused(
        "run", "19.csv", "--out", "newer", *SMALL, "--at-most", "1-in-40", "--ledger", here / "x.db", code=4
    )


def test_too_few_homes_are_told_the_number_that_works(here: Path) -> None:
    frame = pl.read_csv("18.csv", try_parse_dates=True)
    ten = frame.filter(pl.col("household") < "H0010")
    ended = (pl.col("household") == "H0003") & (pl.col("timestamp") > datetime(2024, 1, 5))
    ten.filter(~ended).write_csv("ten.csv")
    text = refused("run", "ten.csv", "--out", "ten", *SMALL, "--ledger", here / "ten.db")
    assert "9 households can be used, and a crowd of 10 needs 10; --crowd 9 would work" in text
    preview = call("check", "ten.csv", *SMALL, "--ledger", here / "ten.db")
    assert preview.code == 2
    assert "9 of 10 households can be used" in preview.out
    speakers = pl.DataFrame({"speaker": [f"s{i}" for i in range(9)], "pitch": [float(i) for i in range(9)]})
    speakers.write_csv("speakers.csv")
    text = refused("run", "speakers.csv", "--out", "nine", "--label", "speaker", "--ledger", here / "nine.db")
    assert "9 speakers can be used" in text or "9 labels can be used" in text
    assert "--crowd 9 would work" in text


def test_everybody_without_a_row_is_counted_and_what_to_settle_is_told(here: Path) -> None:
    frame = pl.read_csv("18.csv", try_parse_dates=True)
    home, time, kw = pl.col("household"), pl.col("timestamp"), pl.col("kw")
    late = (home == "H0000") & (time < datetime(2024, 1, 14))
    ended = (home == "H0001") & (time > datetime(2024, 1, 3))
    gaps = (home == "H0002") & time.dt.day().is_between(10, 14)
    values = {"H0003": pl.lit(0.2), "H0004": -kw.abs() - 0.1}
    wrong = kw
    for name, value in values.items():
        wrong = pl.when(home == name).then(value).otherwise(wrong)
    twice = frame.filter((home == "H0010") & (time.dt.day() == 12)).with_columns(kw=kw + 1)
    pl.concat([frame, twice]).filter(~late & ~ended & ~gaps).with_columns(kw=wrong).write_csv("mixed.csv")
    done = call("run", "mixed.csv", "--out", "mixed", *SMALL, "--crowd", 5, "--ledger", here / "mixed.db")
    assert done.code == 0, done.err
    words = " ".join(done.out.split())
    assert "Without a row: 5 households" in words
    reasons = ("too short", "no readings", "too many gaps", "constant", "never above zero")
    assert all(re.search(rf"{reason}[^;]*\(1\)", words) for reason in reasons)
    assert "96 instants with several readings that differ, in 1 household;" in words
    assert "--time-zone Europe/London" in words
    assert "taken for export" not in words  # the one home below zero is left out
    preview = " ".join(call("check", "mixed.csv", *SMALL, "--crowd", 5, "--ledger", here / "new.db").out.split())
    assert "96 instants with several readings that differ, in 1 household;" in preview


def test_short_histories_name_the_days_of_training(here: Path) -> None:
    frame = pl.read_csv("18.csv", try_parse_dates=True).filter(pl.col("timestamp") < datetime(2024, 1, 11))
    frame.write_csv("ten_days.csv")
    text = refused("run", "ten_days.csv", "--out", "short", "--ledger", here / "short.db")
    assert "--train-days" in text
    assert (
        call("run", "ten_days.csv", "--out", "fits", "--train-days", "10", *SMALL[:4], "--ledger", here / "s.db").code
        == 0
    )


def test_options_are_named_as_the_user_knows_them(here: Path) -> None:
    text = refused("run", "18.csv", "--out", "x", "--method", "white", "--rho", "1", "--train-days", "0")
    assert "--train-days must be" in text


def test_how_a_file_is_read_may_change_from_day_to_day(here: Path) -> None:
    frame = pl.read_csv("19.csv").rename({"household": "home", "timestamp": "when", "kw": "used"})
    frame.with_columns(pl.col("used") * 1000).write_csv("other columns.csv")
    columns = ["--household-column", "home", "--timestamp-column", "when", "--value-column", "used", "--unit", "w"]
    done = call("run", "other columns.csv", "--out", "run", "--update", *columns, "--set", "max_kw=50")
    assert done.code == 0, done.err
    same = call("run", "19.csv", "--out", "again", *SMALL)
    assert same.code == 0, same.err
    assert (here / "run/public/released.csv").read_bytes() == (here / "again/public/released.csv").read_bytes()


def test_a_clock_with_a_zone_after_one_without_names_the_remedy(here: Path) -> None:
    pl.read_csv("19.csv").with_columns(pl.col("timestamp") + "Z").write_csv("zone.csv")
    last = refused("run", "zone.csv", "--out", "run", "--update")
    assert "no time zone" in last
    assert "as before" in last


def test_a_day_alone_in_a_new_folder_is_sent_to_the_folder_of_the_last_release(here: Path) -> None:
    last = refused("run", "19 alone.csv", "--out", "new", *SMALL, "--update")
    assert "--update in the folder of their last release" in last
    assert "would do" not in last


def test_a_member_without_new_readings_has_a_row_and_is_not_called_left_out(here: Path) -> None:
    frame = pl.read_csv("19 alone.csv")
    silent = frame["household"][0]
    frame.filter(pl.col("household") != silent).write_csv("without.csv")
    done = call("run", "without.csv", "--out", "run", "--update")
    assert done.code == 0, done.err
    assert silent in pl.read_csv("run/released.csv")["household"].to_list()
    assert silent not in pl.read_csv("run/left_out.csv", infer_schema=False)["household"].to_list()
    words = " ".join(done.out.split())
    assert "No figures of 1 household in crowds since 2024-01-19 (1):" in words
    assert "without a row" not in done.out
    for path in (here / "run" / "public").iterdir():
        assert "No figures of 1" not in path.read_text(), path


def test_a_skipped_day_is_said(here: Path) -> None:
    shutil.copy("own.db", "before.db")
    shutil.copytree("run", "daily")
    done = call("run", "19.csv", "--out", "daily", "--update")
    assert "day skipped" not in done.out
    shutil.copy("before.db", "own.db")
    done = call("run", "20.csv", "--out", "run", "--update")
    assert done.code == 0, done.err
    said = "Since the last release, about 2024-01-19T00:00, 1 day skipped."
    assert said in " ".join(done.out.split())
    for path in (here / "run" / "public").iterdir():
        assert "day skipped" not in path.read_text(), path


def test_a_ledger_that_is_begun_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_LEDGER", str(here / "another.db"))
    done = call("run", "19.csv", "--out", "first", *SMALL, "--crowd", 5)
    assert done.code == 0, done.err
    assert "one was begun" in done.out
    assert "another.db" in "".join(done.out.split())


def test_a_rehearsal_tells_the_cost_and_the_attacker(here: Path) -> None:
    done = call("run", "19.csv", "--out", "trial", *SMALL, "--rehearse")
    assert done.code == 0, done.err
    assert "Accuracy" in done.out
    assert "Attack" in done.out


def test_the_ledger_names_folder_and_tables(here: Path) -> None:
    line = call("ledger", "show", "run").out
    assert "1 release on record" in line
    assert "(folder run)" in line
    assert "24 labels" in line


def test_declarations_for_the_readings_are_asked_for_at_once(here: Path) -> None:
    last = refused("run", "19.csv", "--out", "noisy", "--secret", "readings")
    assert all(option in last for option in ("--customers", "--epsilon", "--origin", "--unit", "--interval"))
