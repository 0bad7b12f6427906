"""What two public tables, or one, told about a member, as a hostile review read it: through files alone."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_run import draw_alike

import shoal


def last_public(out: Path) -> pl.DataFrame:
    return pl.read_csv(out / "public" / "released.csv")


def size_of(table: pl.DataFrame) -> str:
    return next(name for name in ("members", "homes") if name in table.columns)


def release(rows: pl.DataFrame, folder: Path, *, out: str = "run", period: str, **more: object) -> pl.DataFrame:
    """A table of people through the command's own function, next months in the same folder."""
    file = folder / "table.csv"
    rows.write_csv(file)
    more |= {"update": True} if (folder / out / "state.json").exists() else {}
    shoal.run(file, folder / out, ledger=str(folder / "l.db"), label="person", period=period, workers="serial", **more)
    return last_public(folder / out)


@pytest.mark.parametrize(("n", "seed"), [(150, 0), (300, 1)])
def test_no_row_says_that_all_its_members_smoke(n: int, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    smokes = (rng.random(n) < 0.4).astype(int)
    people = pl.DataFrame(
        {
            "person": [f"p{i}" for i in range(n)],
            "income": rng.gamma(3, 4, n),
            "rent": rng.gamma(2, 1, n),
            "smokes": smokes,
        }
    )
    release(people, tmp_path, period="2024-01")
    own = pl.read_csv(tmp_path / "run" / "released.csv").join(people, left_on="label", right_on="person", suffix="_own")
    shares = own.group_by("crowd").agg(pl.col("smokes_own").mean())["smokes_own"]
    unanimous = ((shares == 0) | (shares == 1)).mean()
    assert unanimous is not None
    assert unanimous <= 0.06
    assert (shares - smokes.mean()).abs().max() <= 0.6 * smokes.std() + 1e-9  # type: ignore[operator]
    text = (tmp_path / "run" / "public" / "card.md").read_text()
    assert "In smokes every crowd stays within 0.6 standard deviations" in text


def test_a_counter_is_no_news_and_one_raise_is_not_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    salary, tenure = np.round(rng.lognormal(8.4, 0.3, 36), -1), rng.integers(3, 200, 36)
    names = [f"person {i:02d}" for i in range(36)]
    after = salary.copy()
    after[17] += 7300.0
    tables = [
        release(pl.DataFrame({"person": names, "tenure": tenure + m, "salary": s}), tmp_path, period=f"2024-0{m + 1}")
        for m, s in ((0, salary), (1, after))
    ]
    assert tables[0]["salary"].to_list() == tables[1]["salary"].to_list()
    run = shoal.Run.open(tmp_path / "run")
    assert run.card.fit.held == 1
    assert any("1 person held" in line for _, lines in run.summary(verbose=True) for line in lines)
    public = "".join(path.read_text() for path in (tmp_path / "run" / "public").iterdir())
    assert " held (" not in public


def test_who_is_missing_once_is_not_seen(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    salary, tenure = np.round(rng.lognormal(8.4, 0.3, 36), -1), rng.integers(3, 200, 36)
    raised = np.round(salary * rng.uniform(1.0, 1.04, 36), 0)
    raised[11] += 900
    names = [f"person {i:02d}" for i in range(36)]
    tables = []
    for m, s in ((0, salary), (1, raised), (2, raised)):
        rows = pl.DataFrame({"person": names, "tenure": tenure, "salary": s})
        rows = rows.filter(pl.col("person") != names[11]) if m == 2 else rows
        tables.append(release(rows, tmp_path, period=f"2024-0{m + 1}"))
    assert tables[1].equals(tables[2])


def test_a_home_that_was_silent_and_comes_back_alone_is_not_read(tmp_path: Path) -> None:
    n, step, horizon = 36, 30, 48
    full = shoal.simulate_meters(n, days=24, step_minutes=step, seed=3)
    start = full["timestamp"].min()
    assert isinstance(start, dt.datetime)
    first, second = start + dt.timedelta(days=16), start + dt.timedelta(days=23)
    name = "H0021"
    of_it = pl.col("household") == name
    away = full.with_columns(
        kw=pl.when(of_it & (pl.col("timestamp") >= start + dt.timedelta(days=17)))
        .then(0.1 * pl.col("kw"))
        .otherwise("kw")
    )
    settings = {"unit": "kw", "interval": step, "horizon": horizon, "train_days": 14, "order": (2, 1)}

    def table(until: dt.datetime, *, silent: bool) -> pl.DataFrame:
        rows = away.filter((pl.col("timestamp") < until) & ~(of_it & silent & (pl.col("timestamp") >= first)))
        rows.write_csv(tmp_path / "meters.csv")
        more = {"update": True} if (tmp_path / "run").exists() else {}
        ledger = str(tmp_path / "l.db")
        shoal.run(tmp_path / "meters.csv", tmp_path / "run", ledger=ledger, workers="serial", **settings, **more)
        return last_public(tmp_path / "run")

    table(first, silent=False)
    before = table(second, silent=True)
    after = table(second + dt.timedelta(minutes=step), silent=False)
    both = before.join(after, on=["crowd", "timestamp"], suffix="_2")
    number = {entry["household"]: entry["crowd"] for entry in pl.read_csv(tmp_path / "run/released.csv").to_dicts()}[
        name
    ]
    rows = both.filter(pl.col("crowd") == number)
    seen = rows[size_of(rows)].to_numpy() * (rows["kw_2"] - rows["kw"]).to_numpy()
    usual = full.filter(of_it & (pl.col("timestamp") < first))["kw"].mean()
    assert isinstance(usual, float)
    base = float(np.abs(np.diff(np.unique(before["kw"].to_numpy()))).min())
    assert base > 0
    # Its change is minus 0.9 of its usual load at every instant: what is seen are steps of n b, and no such mean.
    assert not abs(seen.mean() + 0.9 * usual) <= 0.3 * 0.9 * usual


def test_under_a_method_who_knows_the_others_does_not_have_the_last_home(tmp_path: Path) -> None:
    readings, origin = shoal.simulate_meters(24, days=17, step_minutes=60), "2024-01-17T00:00:00"
    readings.write_csv(tmp_path / "meters.csv")
    run = shoal.run(
        tmp_path / "meters.csv", tmp_path / "r", ledger=str(tmp_path / "l.db"), origin=origin, method="center",
        epsilon=1.0, delta=1e-5, workers="serial", order=(2, 1), unit="kw", until="report",
    )  # fmt: skip
    own, public = run.released, last_public(tmp_path / "r")
    forecasts = shoal.forecast(readings, season="day", origin=origin, horizon=12, order=(2, 1))
    power = dict(zip(forecasts.households, np.asarray(forecasts.power), strict=True))
    errors = []
    for (number,), rows in public.group_by("crowd"):
        members = own.filter(pl.col("crowd") == number)["household"].unique().to_list()
        total = rows.group_by("step").agg(pl.col("kw").sum()).sort("step")["kw"].to_numpy()
        others = sum(power[name] for name in members)
        errors += [abs(float((total - (others - power[name]) - power[name]).mean())) for name in members]
    stated = run.card.fit.insider[0][1]
    assert np.median(errors) > 0.1 * stated
    for name in ("card.md", "public/card.md", "public/README.txt", "report.html"):
        text = (tmp_path / "r" / name).read_text().replace("&#39;", "'")
        assert "Someone who knows the other members' figures" in text, name


def test_newcomers_in_a_folder_of_their_own_are_newcomers(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    old = pl.DataFrame({"person": [f"p{i:02d}" for i in range(36)], "v": rng.normal(5, 1, 36).round(3)})
    ten = pl.DataFrame({"person": ["real", *(f"invented {i}" for i in range(9))], "v": [7.321] + [5.0] * 9})
    release(old, tmp_path, period="2024-01")
    with pytest.raises(shoal.InputError, match="no label has a crowd yet"):
        release(ten, tmp_path, out="own", period="2024-03")
    assert not (tmp_path / "own" / "public").exists()


def test_a_rehearsal_has_an_offset_of_its_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    people = pl.DataFrame({"person": [f"p{i}" for i in range(60)], "income": rng.gamma(3, 4, 60)})
    people.write_csv(tmp_path / "t.csv")
    shown = []
    for _ in range(4):
        shoal.run(
            tmp_path / "t.csv", tmp_path / "run", ledger=str(tmp_path / "l.db"), label="person", rehearse=True,
            workers="serial",
        )  # fmt: skip
        shown.append(pl.read_csv(tmp_path / "run/rehearsal/not_released.csv")["income"].to_list())
    assert len({tuple(sorted(figures)) for figures in shown}) > 1


def test_a_table_that_cannot_keep_a_rule_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    income = rng.gamma(3, 0.001, 30)
    income[4] = 1e6
    people = pl.DataFrame({"person": [f"p{i}" for i in range(30)], "income": income, "age": rng.normal(40, 9, 30)})
    with pytest.raises(shoal.UnreachableError, match=r"'income' \(dominance, .*Ways out: a larger crowd"):
        release(people, tmp_path, period="2024-01")
    with pytest.raises(shoal.InputError, match="sensitive: the table has no column 'smokes'"):
        release(people.drop("income"), tmp_path, out="two", period="2024-01", sensitive=("smokes",))


def test_newcomers_cannot_choose_a_base_that_hides_nothing(tmp_path: Path) -> None:
    """Invented labels that are alike, beside one that is not: the base of their crowds rests on all labels."""
    rng, names = np.random.default_rng(5), [f"p{i}" for i in range(60)]
    first = np.round(rng.normal(50, 10, 60), 3)
    release(pl.DataFrame({"person": names, "income": first}), tmp_path, period="2024-01")
    alike = 50 + np.arange(23) * 1e-3
    people = {"person": [*names, "one", *(f"x{i}" for i in range(23))], "income": [*first, 63.127, *alike]}
    release(pl.DataFrame(people), tmp_path, period="2024-02")
    described = json.loads((tmp_path / "run" / "public" / "datapackage.json").read_text())["precision"]
    bases = [float(one) for base in described.values() for one in (base.values() if isinstance(base, dict) else [base])]
    assert len(bases) > 5
    assert min(bases) >= 0.5


def test_a_period_is_released_once_with_update_too(tmp_path: Path) -> None:
    people = pl.DataFrame({"person": [f"p{i}" for i in range(24)], "income": np.arange(24.0) + 100})
    release(people, tmp_path, period="2024-01")
    with pytest.raises(shoal.InputError, match="later period than the last"):
        release(people.with_columns(pl.col("income") * 2), tmp_path, period="2024-01")


def test_a_figure_that_is_held_shows_in_no_public_file(tmp_path: Path) -> None:
    """One of 150 members jumps and is held: rows and errors are what they are if it jumps ten times as far."""
    rng = np.random.default_rng(3)
    people = pl.DataFrame({"person": [f"p{i}" for i in range(150)], "income": np.round(rng.normal(50, 10, 150), 2)})
    told = []
    for factor in (40.0, 400.0):
        folder = tmp_path / str(factor)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shoal.product.runs.crowd_rows.draw_offset", lambda n: n // 3)
            release(people, folder, period="2024-01")
            jump = pl.when(pl.col("person") == "p7").then(pl.col("income") + factor).otherwise("income")
            release(people.with_columns(jump.alias("income")), folder, period="2024-02")
        card = json.loads((folder / "run" / "public" / "card.json").read_text())
        told.append((sorted(last_public(folder / "run")["income"].to_list()), card["rmse"], card["price"]))
    assert told[0] == told[1]


def test_first_crowds_of_a_run_rest_on_a_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who knows all figures but one cannot form the crowds for each value of that one, and compare rows."""
    rng = np.random.default_rng(3)
    people = pl.DataFrame({"person": [f"p{i}" for i in range(60)], "income": rng.normal(50, 10, 60).round(2)})
    formed = []
    for part in (2, 3, 5):
        (tmp_path / str(part)).mkdir()
        with monkeypatch.context() as patch:
            patch.setattr("shoal.product.runs.crowd_rows.draw_offset", lambda n, part=part: n // part)
            release(people, tmp_path / str(part), period="2024-01")
        own = pl.read_csv(tmp_path / str(part) / "run" / "released.csv").group_by("crowd").agg("label")
        formed.append(frozenset(map(frozenset, own["label"].to_list())))
    assert len(set(formed)) == 3


def public_texts(folder: Path) -> dict[str, str]:
    """The public files of the last release, without digests and the time at which they were made."""
    files = sorted((folder / "run" / "public").iterdir())
    known = {path.name: path.read_text() for path in files}
    return {name: re.sub(r"[0-9a-f]{16,64}|20\d\d-\d\d-\d\d[ T,]*\d\d:\d\d[:.\d]*", "", known[name]) for name in known}


def test_public_files_beside_the_rows_tell_nothing_of_one_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member smokes or not; one is silent or held: where rows are the same, so are all public files."""
    rng = np.random.default_rng(0)
    names, income = [f"p{i:02d}" for i in range(12)], np.round(rng.normal(50, 10, 12), 2)
    smokes = np.where(np.arange(12) < 1, 1, 0)
    other = np.where(np.arange(12) == 11, 1, smokes)
    later = np.round(income * rng.uniform(1, 1.06, 12), 2)
    jump = np.where(np.arange(12) == 5, later + 400, later)
    one = pl.DataFrame({"person": names, "income": income, "smokes": smokes})
    worlds = {
        "no": [one],
        "yes": [one.with_columns(smokes=pl.Series(other))],
        "held": [one, one.with_columns(income=pl.Series(jump))],
        "silent": [one, one.with_columns(income=pl.Series(later)).filter(pl.col("person") != "p05")],
    }
    told = {}
    for world, releases in worlds.items():
        (tmp_path / world).mkdir()
        with monkeypatch.context() as patch:
            draw_alike(patch)
            patch.setattr("shoal.product.runs.crowd_rows.draw_offset", lambda n: n // 10)
            for month, rows in enumerate(releases, 1):
                release(rows, tmp_path / world, period=f"2024-0{month}")
        told[world] = public_texts(tmp_path / world)
    assert told["no"] == told["yes"]
    assert told["held"] == told["silent"]


def test_a_table_whose_figures_outgrow_their_base_is_withheld_and_the_owner_knows(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pay, bonus = np.round(rng.lognormal(8, 0.3, 24)), np.round(rng.lognormal(7, 0.5, 24))
    people = pl.DataFrame({"person": [f"p{i:02d}" for i in range(24)], "pay": pay, "bonus": np.arange(24) % 8 == 3})
    people = people.with_columns(pl.col("bonus").cast(pl.Int64))
    release(people, tmp_path, period="2024-01")
    later = release(people.with_columns(bonus=pl.Series(bonus)), tmp_path, period="2024-02")
    assert later["bonus"].null_count() == len(later)
    assert later["pay"].null_count() == 0
    known = str(shoal.Run(tmp_path / "run", ledger=str(tmp_path / "l.db")).summary(verbose=True))
    assert "More than ten values by now in bonus" in known
    assert "Withheld in bonus: figures have grown to several times" in known
    kept = pl.read_parquet(tmp_path / "run" / "rows.parquet")["kept"].to_list()
    assert [json.loads(text)["grown"] for text in kept] == [[1]] * len(kept)
    again = release(people.with_columns(bonus=pl.Series(bonus)), tmp_path, period="2024-03")
    assert again["bonus"].null_count() == len(again)


def test_columns_that_say_the_same_are_named_to_the_owner(tmp_path: Path) -> None:
    """Each column has an offset of its own: someone who knows the others averages over copies."""
    rng = np.random.default_rng(1)
    pay = np.round(rng.lognormal(8, 0.3, 24))
    people = pl.DataFrame({"person": [f"p{i:02d}" for i in range(24)], "pay": pay, "gross": pay * 1.2, "age": pay % 47})
    people.write_csv(tmp_path / "table.csv")
    known = str(shoal.check(tmp_path / "table.csv", label="person", workers="serial").parts())
    release(people, tmp_path, period="2024-01")
    for text in (known, str(shoal.Run(tmp_path / "run", ledger=str(tmp_path / "l.db")).summary())):
        assert "Columns that say nearly what others say: pay, gross. Rounding hides a figure column by column" in text
