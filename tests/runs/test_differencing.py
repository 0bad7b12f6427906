"""What public tables tell of single members: nothing from who joins, leaves or is silent, nothing from who is who."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_run import CONFIG

import shoal
from shoal.ledger.ledger import Ledger
from shoal.runs.config import Config
from shoal.runs.stages import crowd_stage
from shoal.runs.stages.crowd_stage import Book, Plan, as_period

COLUMNS = ["x0", "x1", "x2", "x3"]


def table_of(values: np.ndarray, names: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"who": names, **{c: values[:, j] for j, c in enumerate(COLUMNS)}})


def differences(before: pl.DataFrame, after: pl.DataFrame, columns: list[str]) -> np.ndarray:
    """n' c' − n c of every crowd that both tables have: all that differencing has to go by."""
    key = ["crowd", *(["step"] if "step" in before.columns else [])]
    both = before.join(after, on=key, suffix="_2")
    return np.array(
        [both["homes_2"].cast(pl.Float64) * both[f"{c}_2"] - both["homes"].cast(pl.Float64) * both[c] for c in columns]
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
        assert public["homes"].min() >= 12
        if last is not None:
            assert set(public["crowd"]) <= set(last["crowd"])  # a crowd with too few left is retired
            found = differences(last, public, COLUMNS)
            assert (found == 0).all()  # rows are repeated: fewer than ten have news
            assert not public["news"].any()
        last = public


def test_meters_tell_of_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over fifty changes of who is there, no difference of two tables is near one home's figures."""
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    rng = np.random.default_rng(0)
    n, days = 40, 52
    names = [f"H{i:04d}" for i in range(n)]
    # The rules themselves, on values as forecasts have them: fitting fifty days would add nothing.
    config = Config(crowd=5)
    book, here, last = Book(), set(range(30)), None
    level = rng.gamma(2, 0.5, (n, 1))
    errors, guesses = [], []
    for day in range(days):
        if day:
            joins = [i for i in range(n) if i not in here]
            if joins and rng.random() < 0.5:
                here.add(int(rng.choice(joins)))
            if rng.random() < 0.6:
                here.discard(int(rng.choice(sorted(here))))
        absent = {int(i) for i in rng.choice(sorted(here), 2)}
        present = sorted(here - absent) if day else sorted(here)
        value = level * (1 + 0.3 * rng.random((n, 4)))
        stored = np.repeat(level, 24, axis=1)
        curves = pl.DataFrame(
            {
                "label": [names[i] for i in present],
                "value": pl.Series(value[present], dtype=pl.Array(pl.Float64, 4)),
                "truth": pl.Series(value[present], dtype=pl.Array(pl.Float64, 4)),
                "habits": pl.Series(np.sqrt(stored[present]), dtype=pl.Array(pl.Float64, 24)),
                "stored": pl.Series(stored[present], dtype=pl.Array(pl.Float64, 24)),
            }
        )
        period = as_period((datetime(2024, 1, 1) + timedelta(days=day)).isoformat())
        plan = Plan.of(config, curves, book, period, {"m": 5}, [18, 18, 18, 18], None)
        rows = {number: (row.homes, row.values) for number, row in plan.rows.items()}
        if last is not None:
            for number, (homes, row) in rows.items():
                if number in last:
                    found = homes * row - last[number][0] * last[number][1]
                    gap = np.abs(np.abs(found) - value).max(axis=1).min()
                    errors.append(float(gap))
                    guesses.append(float(np.abs(rng.permutation(value)[0] - value).max(axis=1).min()))
        last = {_public(number): row for number, row in rows.items()}
        book = _recorded(book, plan)
    assert len(errors) > 150
    exact = sum(error < 0.002 for error in errors)
    assert exact == 0


def _public(number: int) -> int:
    return number if number >= 0 else 1000 - number


def _recorded(book: Book, plan: Plan) -> Book:
    """The book after a release, as the ledger keeps it."""
    members = dict(book.members)
    for name, one in plan.members.items():
        members[name] = {"crowd": _public(one.crowd), "stored": one.stored, "last": one.last, "block": one.block}
    crowds = dict(book.crowds)
    for number, row in plan.rows.items():
        content = np.array([float(row.news), *row.values]).tobytes()
        crowds[_public(number)] = {
            "setting": plan.setting, "period": plan.period, "row": content, "homes": row.homes, "retired": False,
        }  # fmt: skip
    for number in plan.retired:
        crowds[number] = {**crowds[number], "retired": True}
    return Book(members, crowds, "")


# ------------------------------------------------------------------ who is who


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of crowds, and lots, that are the same in every run."""

    def numbers(self: Ledger, n: int) -> list[int]:
        from shoal.ledger.schema import CROWD_NUMBERS  # noqa: F401

        with self._storage.writing() as transaction:
            transaction.insert("crowd_numbers", *({"crowd": 500000 + i} for i in range(n)))
        return [500000 + i for i in range(n)]

    monkeypatch.setattr(Ledger, "draw_crowd_numbers", numbers)
    monkeypatch.setattr(crowd_stage, "shuffle", lambda n: list(range(n)))


def released(out: Path, frame: pl.DataFrame, **settings: object) -> dict[str, bytes]:
    """The public files of a run of its own ledger."""
    import shutil

    shutil.rmtree(out, ignore_errors=True)
    run = shoal.run(frame, out, label="who", period="2024-01", ledger="folder", until="release", **settings)
    return {path.name: path.read_bytes() for path in (run.path / "public").iterdir()}


def test_five_hundred_exchanges_and_fifty_permutations(tmp_path: Path, drawn: None) -> None:
    """Exchange two members of a crowd, or list labels in another order: the public bytes stay."""
    rng = np.random.default_rng(3)
    values = rng.gamma(2, 1.5, (60, 4)).round(2)
    values[::7] = values[0]  # ties
    names = [f"h{i:03d}" for i in range(60)]
    out = tmp_path / "city"
    first = released(out, table_of(values, names))
    owner = pl.read_csv(out / "released.csv")
    crowd = dict(owner.select("label", "crowd").iter_rows())
    config = Config(label="who", columns=("x0",))
    for number in range(500):
        a = int(rng.integers(60))
        mates = [i for i in range(60) if crowd[names[i]] == crowd[names[a]] and i != a]
        b = int(rng.choice(mates))
        exchanged = values.copy()
        exchanged[[a, b]] = exchanged[[b, a]]
        if number < 10:
            assert released(out, table_of(exchanged, names)) == first
        assert _rows(config, exchanged, names) == _rows(config, values, names)
    for number in range(50):
        order = rng.permutation(60)
        if number < 10:
            assert released(out, table_of(values[order], [names[i] for i in order])) == first
        renamed = [names[i] for i in order]
        assert _rows(config, values, renamed) == _rows(config, values, names)


def _rows(config: Config, values: np.ndarray, names: list[str]) -> list[tuple[int, list[float]]]:
    """Rows by crowd as the plan of a first release has them, to the last bit."""
    curves = pl.DataFrame(
        {
            "label": names,
            "value": pl.Series(values, dtype=pl.Array(pl.Float64, 4)),
            "truth": pl.Series(values, dtype=pl.Array(pl.Float64, 4)),
            "habits": pl.Series(np.concatenate([values, 0 * values], axis=1), dtype=pl.Array(pl.Float64, 8)),
            "stored": pl.Series(values, dtype=pl.Array(pl.Float64, 4)),
        }
    ).sort("label")
    plan = Plan.of(config, curves, Book(), "2024-01-01T00:00:00Z", {"m": 10, "decimals": [17] * 4}, None, None)
    return sorted((number, row.values.tolist()) for number, row in plan.rows.items())


def test_homes_exchanged_in_the_file_change_no_public_byte(tmp_path: Path, drawn: None) -> None:
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
        run = shoal.run(path, tmp_path / f"run{number}", config=CONFIG, ledger="folder", until="release")
        tables.add((run.path / "public" / "released.csv").read_bytes())
    assert len(tables) == 1


def test_numbers_do_not_follow_names(tmp_path: Path) -> None:
    """Finding 7: numbers in order of the first name told the crowd of the first names."""
    firsts = []
    for seed in range(12):
        values = np.random.default_rng(seed).gamma(2, 1.5, (24, 4)).round(2)
        run = shoal.run(
            table_of(values, [f"h{i:03d}" for i in range(24)]), tmp_path / f"{seed}", label="who", ledger="folder",
            until="release",
        )  # fmt: skip
        owner = run.released.sort("label")
        firsts.append(owner["crowd"][0] == owner["crowd"].min())
    assert 0 < sum(firsts) < 12
