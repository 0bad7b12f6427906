"""What public tables tell of single members: nothing from who joins, leaves or is silent, nothing from who is who."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_run import CONFIG, draw_alike, go

import shoal

COLUMNS = ["x0", "x1", "x2", "x3"]


def table_of(values: np.ndarray, names: Sequence[str]) -> pl.DataFrame:
    return pl.DataFrame({"who": names, **{c: values[:, j] for j, c in enumerate(COLUMNS)}})


def differences(before: pl.DataFrame, after: pl.DataFrame, columns: list[str]) -> np.ndarray:
    """n' c' − n c of every crowd that both tables have: all that differencing has to go by."""
    key = ["crowd", *(["step"] if "step" in before.columns else [])]
    both = before.join(after, on=key, suffix="_2")
    return np.array(
        [
            both["members_2"].cast(pl.Float64) * both[f"{c}_2"] - both["members"].cast(pl.Float64) * both[c]
            for c in columns
        ]
    ).T


@pytest.mark.parametrize("seed", range(5))
def test_class_tables_tell_of_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Ten changes each: a joiner, somebody gone, or both; others have the values they had."""
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    rng = np.random.default_rng(seed)
    values = rng.gamma(2, 1.5, (60, 4)).round(3)
    names = [f"h{i:03d}" for i in range(60)]
    here = set(range(48))
    months = [f"2024-{month:02d}" for month in range(1, 12)]
    last = None
    for number, month in enumerate(months):
        if number:
            change = rng.integers(3)
            if change != 1:
                here.add(int(rng.choice([i for i in range(60) if i not in here])))
            if change != 0:
                here.discard(int(rng.choice(sorted(here))))
        rows = sorted(here)
        run = shoal.run(
            table_of(values[rows], [names[i] for i in rows]),
            tmp_path / "city",
            label="who",
            period=month,
            update=number > 0,
            until="release",
        )
        public = pl.read_csv(run.path / "public" / "released.csv")
        assert public["members"].min() >= 12
        if last is not None:
            assert set(public["crowd"]) <= set(last["crowd"])  # a crowd with too few left is retired
            assert (differences(last, public, COLUMNS) == 0).all()  # who is missing enters with its last figures
        last = public


#: Meters in small: hourly readings, fits that take no time.
METERS = shoal.Config(crowd=5, horizon=4, order=(1, 1), train_days=4)


def written(readings: pl.DataFrame, path: Path, *, watts: bool = False) -> Path:
    """A meter file; or the same readings exported in W, as a CSV file."""
    if not watts:
        readings.write_parquet(path.with_suffix(".parquet"))
        return path.with_suffix(".parquet")
    exported = readings.select("household", "timestamp", w=(1000 * pl.col("kw")).round(0).cast(pl.Int64))
    exported.write_csv(path.with_suffix(".csv"), datetime_format="%Y-%m-%dT%H:%M:%S")
    return path.with_suffix(".csv")


def forecasts_of(out: Path) -> dict[str, np.ndarray]:
    """Home -> its own forecast, which no table may give away."""
    table = pl.read_parquet(out / "crowds.parquet", columns=["label", "value"]).drop_nulls("value")
    return dict(zip(table["label"].to_list(), table["value"].to_numpy(), strict=True))


def curves_of(out: Path) -> dict[int, tuple[int, np.ndarray]]:
    """Crowd -> homes and curve, as everybody has them."""
    table = pl.read_csv(out / "public" / "released.csv").sort("crowd", "step")
    return {
        int(number): (int(rows["members"][0]), rows["kw"].to_numpy())
        for (number,), rows in table.group_by("crowd", maintain_order=True)
    }


def attacked(before: Path, after: Path, truth: np.ndarray) -> tuple[float, float]:
    """Errors in kW of two who look for one home's forecast, and are told afterwards which crowd was the best to take.

    The first takes ±(n' c' − n c) of two tables, the second only a crowd's curve of one of them: a guess.
    """
    old, new = curves_of(before), curves_of(after)
    sums = [new[n][0] * new[n][1] - old[n][0] * old[n][1] for n in old if n in new]
    by_difference = min(float(np.abs(sign * total - truth).max()) for total in sums for sign in (1, -1))
    return by_difference, min(float(np.abs(row - truth).max()) for _, row in (*old.values(), *new.values()))


#: Few homes, one of which makes most of their only row: nothing is released.
REFUSED = {41}
PAIRS = [pytest.param(seed, marks=pytest.mark.slow if seed > 2 else ()) for seed in range(50)]


@pytest.mark.parametrize("seed", PAIRS)
def test_one_home_more_or_less_in_the_same_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Finding 2: a second folder, one home more, less or silent, the same readings in W: the rows on record, again."""
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    rng = np.random.default_rng(seed)
    readings = shoal.simulate_meters(30, 6, step_minutes=60, seed=seed)
    names = sorted(readings["household"].unique().to_list())
    first = rng.permutation(names)[: int(rng.integers(6, 30))].tolist()
    other = str(rng.choice([name for name in names if name not in first]))
    change = ("joins", "leaves", "is silent")[seed % 3]
    who = other if change == "joins" else str(rng.choice(first))
    here = pl.col("household").is_in([*first, who])
    changed = readings.filter(here if change == "joins" else here & (pl.col("household") != who))
    if change == "is silent":
        silent = (pl.col("household") == who) & (pl.col("timestamp") >= readings["timestamp"].max() - timedelta(days=5))
        changed = readings.filter(here & ~silent)
    before, after = tmp_path / "before", tmp_path / "after"
    old = written(readings.filter(pl.col("household").is_in(first)), tmp_path / "old")
    new = written(changed, tmp_path / "new", watts=bool(seed % 2))
    if seed in REFUSED:
        with pytest.raises(shoal.UnreachableError, match="dominance, 1 of 1 rows"):
            shoal.run(old, before, config=METERS, until="release")
        return
    shoal.run(old, before, config=METERS, until="release")
    shoal.run(new, after, config=METERS, until="release", unit="w" if seed % 2 else "kw")
    assert curves_of(before).keys() == curves_of(after).keys()
    for number, (homes, curve) in curves_of(before).items():
        assert homes == curves_of(after)[number][0]
        assert curve.tolist() == curves_of(after)[number][1].tolist()


@pytest.mark.parametrize("days", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_homes_that_come_and_go_day_by_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Differences of tables of following days tell no more of who came, went or was silent than a guess does."""
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    rng = np.random.default_rng(0)
    readings = shoal.simulate_meters(40, days + 6, step_minutes=60, seed=4)
    names = sorted(readings["household"].unique().to_list())
    here, out, crowd = set(names[:30]), tmp_path / "city", {}
    start = readings["timestamp"].min()
    assert isinstance(start, datetime)
    differenced, guessed = [], []
    for day in range(days + 1):
        left: list[str] = []
        silent: set[str] = set()
        if day:
            shutil.rmtree(tmp_path / "before", ignore_errors=True)
            shutil.copytree(out, tmp_path / "before")
            joins = sorted(set(names) - here)
            if joins and rng.random() < 0.5:
                here.add(str(rng.choice(joins)))
            if rng.random() < 0.5 and len(here) > 24:
                left = [str(rng.choice(sorted(here)))]
                here -= set(left)
            silent = {str(name) for name in rng.choice(sorted(here), 2, replace=False)}
        end = start + timedelta(days=6 + day)
        window = pl.col("timestamp").is_between(end - timedelta(days=1 if day else 6), end, closed="left")
        today = readings.filter(window & pl.col("household").is_in(sorted(here - silent)))
        known = forecasts_of(out) if day else {}
        run = shoal.run(
            written(today, tmp_path / f"day{day}"), out, config=METERS, update=day > 0, until="release"
        )  # fmt: skip
        numbers = dict(run.released.select("household", "crowd").unique().iter_rows())
        assert all(numbers[name] == crowd[name] for name in numbers if name in crowd)  # for life
        crowd |= numbers
        now = forecasts_of(out)
        for name in {*left, *silent, *(now.keys() - known.keys())} if day else ():
            truth = known.get(name, now.get(name))
            if truth is not None:
                errors = attacked(tmp_path / "before", out, truth)
                differenced.append(errors[0])
                guessed.append(errors[1])
    assert len(differenced) >= 2 * days
    assert min(differenced) > 0.002
    assert np.median(differenced) > np.median(guessed)


def test_figures_of_yesterday_in_other_digits_are_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table exported again as float32 has nothing new: with one label gone, its difference would be that label's."""
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    rng = np.random.default_rng(2)
    names = [f"h{i:03d}" for i in range(24)]
    first, second = rng.gamma(2, 1.5, (24, 4)), rng.gamma(2, 1.5, (24, 4))
    tables = [
        table_of(first, names), table_of(second, names),
        table_of(second, names).with_columns(pl.col(COLUMNS).cast(pl.Float32)).filter(pl.col("who") != "h007"),
    ]  # fmt: skip
    rows = []
    for month, table in enumerate(tables, start=1):
        run = shoal.run(
            table, tmp_path / "city", label="who", period=f"2024-{month:02d}", update=month > 1, until="release"
        )
        rows.append(pl.read_csv(run.path / "public" / "released.csv"))
    assert (differences(rows[1], rows[2], COLUMNS) == 0).all()


# ------------------------------------------------------------------ who is who


def public_bytes(out: Path, values: np.ndarray, names: Sequence[str], patch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The public files of a run of its own ledger, with the same draws each time."""
    shutil.rmtree(out, ignore_errors=True)
    draw_alike(patch)
    run = shoal.run(table_of(values, names), out, label="who", crowd=4, period="2024-01", until="release")
    return {path.name: path.read_bytes() for path in (run.path / "public").iterdir()}


def test_exchanges_and_permutations_change_no_public_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchange two members of a crowd, shuffle all crowds inside, or list labels in another order: the bytes stay."""
    rng = np.random.default_rng(3)
    values = rng.gamma(2, 1.5, (60, 4)).round(2)
    values[::7] = values[0]  # ties
    names = [f"h{i:03d}" for i in range(60)]
    out = tmp_path / "city"
    first = public_bytes(out, values, names, monkeypatch)
    assert set(first) == {"released.csv"}
    crowd = dict(pl.read_csv(out / "released.csv").select("label", "crowd").iter_rows())
    numbers = np.array([crowd[name] for name in names])
    for trial in range(100):
        order = np.arange(60)
        if trial < 40:  # one exchange
            a = int(rng.integers(60))
            b = int(rng.choice(np.flatnonzero((numbers == numbers[a]) & (order != a))))
            order[[a, b]] = b, a
        elif trial < 70:  # every crowd
            for number in set(crowd.values()):
                inside = np.flatnonzero(numbers == number)
                order[inside] = rng.permutation(inside)
        if trial < 70:
            assert public_bytes(out, values[order], names, monkeypatch) == first
        else:  # the lines of the table
            order = rng.permutation(60)
            assert public_bytes(out, values[order], [names[i] for i in order], monkeypatch) == first


def test_homes_exchanged_in_the_file_change_no_public_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole way, fits included, and in other shards."""
    readings = shoal.simulate_meters(24, 16, seed=5)
    names = sorted(readings["household"].unique().to_list())
    rng = np.random.default_rng(0)
    tables = set()
    for number in range(4):
        order = names if not number else [names[i] for i in rng.permutation(24)]
        renamed = readings.with_columns(pl.col("household").replace_strict(names, order))
        path = tmp_path / f"{number}.parquet"
        (renamed.sort("household", "timestamp") if number % 2 else renamed).write_parquet(path)
        draw_alike(monkeypatch)
        tables.add((go(tmp_path / f"run{number}", path, CONFIG).path / "public" / "released.csv").read_bytes())
    assert len(tables) == 1


def test_numbers_do_not_follow_names(tmp_path: Path) -> None:
    """Finding 7: where numbers follow the first names of crowds, a name tells its crowd. They are drawn."""
    names = [f"h{i:03d}" for i in range(36)]
    right = total = 0
    for seed in range(20):
        values = np.random.default_rng(seed).gamma(2, 1.5, (36, 4)).round(2)
        run = shoal.run(
            table_of(values, names), tmp_path / f"{seed}", label="who", ledger="folder", until="release"
        )  # fmt: skip
        crowd = dict(run.released.select("label", "crowd").iter_rows())
        numbers = sorted(set(crowd.values()))
        appeared = list(dict.fromkeys(crowd[name] for name in names))  # crowds in the order of their first names
        right += sum(mine == guess for mine, guess in zip(appeared, numbers, strict=True))
        total += 1
    # A random order of k crowds has one in its place on average, with a variance of one.
    assert abs(right - total) < 4 * np.sqrt(total)
