"""Homes are looked for in a published table: what is found is counted by hand, with names, a record, or neither."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.product.studies.findings import Study

START = datetime(2024, 1, 1)


def readings(levels: list[float], days: int = 9) -> pl.DataFrame:
    """Homes whose load is a level of their own with a little swing, hourly."""
    rng = np.random.default_rng(0)
    times = [START + timedelta(hours=h) for h in range(24 * days)]
    swing = 1 + 0.2 * np.sin(np.arange(len(times)) * 2 * np.pi / 24)
    parts = [
        pl.DataFrame(
            {"household": f"h{i}", "timestamp": times, "kw": level * swing * rng.uniform(0.97, 1.03, len(times))}
        )
        for i, level in enumerate(levels)
    ]
    return pl.concat(parts)


LEVELS = [0.2, 0.4, 0.8, 2.4, 3.2, 6.4]
HOMES = readings(LEVELS)
AT = START + timedelta(days=8)


def published(rows: dict[str, float], column: str, homes: int | None = None) -> pl.DataFrame:
    times = [(AT + timedelta(hours=h)).isoformat() for h in range(3)]
    frames = [pl.DataFrame({column: name, "timestamp": times, "kw": level}) for name, level in rows.items()]
    table = pl.concat(frames)
    return table if homes is None else table.with_columns(members=pl.lit(homes))


def found(attack: Study) -> float:
    return attack.findings_of("linkability")[0].figure


def named(attack: Study) -> tuple[float, float]:
    (one,) = attack.findings_of("singling out")
    return one.figure, one.guess


def test_a_table_with_names_is_judged_by_them() -> None:
    rows = {f"h{i}": level for i, level in enumerate(LEVELS)}
    attack = shoal.find_published(published(rows, "household"), HOMES)
    assert (attack.members, found(attack), named(attack)) == (6, 1.0, (1.0, 1.0))
    swapped = rows | {"h0": LEVELS[1], "h1": LEVELS[0]}
    attack = shoal.find_published(published(swapped, "household"), HOMES)
    assert found(attack) == pytest.approx(4 / 6)


def test_rows_of_a_run_are_judged_by_its_record(tmp_path: Path) -> None:
    """Two crowds of three: every row is found, and a guess among three is left."""
    crowd = {"11": LEVELS[:3], "22": LEVELS[3:]}
    table = published({name: float(np.mean(part)) for name, part in crowd.items()}, "crowd", homes=3)
    (tmp_path / "public").mkdir()
    table.write_csv(tmp_path / "public" / "released.csv")
    record = pl.DataFrame({"household": [f"h{i}" for i in range(6)], "crowd": ["11"] * 3 + ["22"] * 3})
    record.write_csv(tmp_path / "released.csv")
    for target in (tmp_path, tmp_path / "public" / "released.csv"):
        attack = shoal.find_published(target, HOMES)
        assert found(attack) == 1.0
        assert named(attack) == pytest.approx((1 / 3, 1 / 3))
        (one,) = attack.findings_of("singling out")
        assert one.interval[0] <= 1 / 3 <= one.interval[1]
    (tmp_path / "released.csv").unlink()
    attack = shoal.find_published(tmp_path, HOMES)
    assert attack.findings == ()
    assert "is unknown" in str(attack)


def test_rows_that_are_the_same_are_told_apart_by_lot() -> None:
    attack = shoal.find_published(published({f"h{i}": 1.0 for i in range(6)}, "household"), HOMES)
    assert found(attack) == pytest.approx(1 / 6)


def test_readings_that_end_before_the_table_are_enough_and_too_few_are_refused() -> None:
    rows = published({f"h{i}": level for i, level in enumerate(LEVELS)}, "household")
    before = HOMES.filter(pl.col("timestamp") < AT)
    assert found(shoal.find_published(rows, before)) == 1.0
    with pytest.raises(shoal.InputError, match="known: no home"):
        shoal.find_published(rows, HOMES.filter(pl.col("timestamp") < START + timedelta(days=2)))
    with pytest.raises(shoal.InputError, match="published: expected the columns"):
        shoal.find_published(rows.rename({"household": "curve"}), HOMES)
    with pytest.raises(shoal.InputError, match="there is no file"):
        shoal.find_published("nowhere.csv", HOMES)


def test_noisy_weights_are_no_homes() -> None:
    table = published({"1": 0.5, "2": 2.0}, "crowd").with_columns(members=pl.lit(2.5))
    with pytest.raises(shoal.InputError, match="noisy weights"):
        shoal.find_published(table, HOMES)


def test_what_is_no_such_table_is_said_without_rows(tmp_path: Path) -> None:
    half = published({"h0": 0.2, "h1": 0.4}, "household").with_columns(
        timestamp=pl.Series([f"2024-01-09T00:{m:02}:00" for m in (0, 30, 59)] * 2)
    )
    with pytest.raises(shoal.InputError, match="published: its instants are not at a distance of 1:00:00"):
        shoal.find_published(half, HOMES)
    has_time_zone = published({"h0": 0.2, "h1": 0.4}, "household").with_columns(pl.col("timestamp") + "+01:00")
    with pytest.raises(shoal.InputError, match="known: no home of these readings can be looked for"):
        shoal.find_published(has_time_zone, HOMES)
    (tmp_path / "no times.csv").write_text("household,kw\nsecret home,1.5\n", encoding="utf-8")
    (tmp_path / "no table.parquet").write_text("secret home", encoding="utf-8")
    for name in ("no times.csv", "no table.parquet"):
        with pytest.raises(shoal.InputError, match="published: ") as refused:
            shoal.find_published(tmp_path / name, HOMES)
        assert "secret" not in str(refused.value)
