"""Meter files of many shapes lead to the same frame; faults are counted, and errors name what to fix."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import InputError, forecast, read_meters
from shoal.product.sources.meters.meter_files import meter_readings

Write = Callable[..., Path]
ZURICH = "Europe/Zurich"


def long_frame(n: int = 2, rows: int = 8, step: int = 15) -> pl.DataFrame:
    start = datetime(2024, 1, 1)
    return pl.DataFrame(
        [
            {"household": f"h{i}", "timestamp": start + timedelta(minutes=step * t), "kw": 0.5 + i + 0.1 * (t * 3 % 8)}
            for i in range(n)
            for t in range(rows)
        ]
    )


def stamps(frame: pl.DataFrame) -> list[str]:
    return frame["timestamp"].dt.strftime("%Y-%m-%d %H:%M").to_list()


# ---------------------------------------------------------------------- shapes and units


def test_long_wide_and_parquet_agree(tmp_path: Path) -> None:
    frame = long_frame(3)
    frame.write_csv(tmp_path / "long.csv", datetime_format="%Y-%m-%d %H:%M")
    frame.pivot(on="household", index="timestamp", values="kw").write_csv(
        tmp_path / "wide.csv", datetime_format="%Y-%m-%dT%H:%M:%S"
    )
    transposed = frame.with_columns(pl.col("timestamp").dt.strftime("%Y-%m-%d %H:%M")).pivot(
        on="timestamp", index="household", values="kw"
    )
    transposed.write_csv(tmp_path / "rows.csv")
    frame.write_parquet(tmp_path / "long.parquet")
    expected = read_meters(tmp_path / "long.csv")
    assert expected.columns == ["household", "timestamp", "kw"]
    assert expected.schema["timestamp"] == pl.Datetime("us")
    for name in ("wide.csv", "rows.csv", "long.parquet"):
        assert read_meters(tmp_path / name, unit="kw").equals(expected), name


def test_folder_pattern_and_list_agree(tmp_path: Path) -> None:
    frame = long_frame(3)
    folder = tmp_path / "many"
    folder.mkdir()
    for (name,), part in frame.group_by("household"):
        part.select("timestamp", "kw").write_csv(folder / f"{name}.csv")
    expected = frame.sort("household", "timestamp")
    for path in (folder, str(folder / "*.csv"), sorted(folder.iterdir())):
        assert read_meters(path).equals(expected)


@pytest.mark.parametrize("step", [15, 30, 60])
def test_energy_becomes_power(tmp_path: Path, step: int) -> None:
    frame = long_frame(1, step=step)
    frame.rename({"kw": "kwh"}).write_csv(tmp_path / "energy.csv")
    by_name = read_meters(tmp_path / "energy.csv")
    told = read_meters(tmp_path / "energy.csv", unit="kwh", interval=step)
    as_power = read_meters(tmp_path / "energy.csv", unit="kw")
    expected = frame["kw"].to_numpy() * 60 / step
    np.testing.assert_allclose(by_name["kw"].to_numpy(), expected, rtol=1e-15)
    assert told.equals(by_name)
    np.testing.assert_array_equal(as_power["kw"].to_numpy(), frame["kw"].to_numpy())


def test_semicolons_and_decimal_commas(write: Write) -> None:
    path = write("a.csv", "Meter;Time;kW", "a;01.02.2024 00:00;1,5", "a;01.02.2024 00:15;2,25", "a;01.02.2024 00:30;3")
    assert read_meters(path)["kw"].to_list() == [1.5, 2.25, 3.0]


def test_named_columns(write: Write) -> None:
    path = write("a.csv", "who,when,what,note", "a,2024-01-01 00:00,1,x", "a,2024-01-01 00:15,2,y")
    frame = read_meters(path, unit="kw", columns={"household": "who", "timestamp": "when", "value": "what"})
    assert frame["kw"].to_list() == [1.0, 2.0]


@pytest.mark.parametrize("columns", [{}, {"value": "Verbrauch [kWh]"}])
def test_a_number_of_a_meter_is_not_read_as_power(write: Write, columns: dict[str, str]) -> None:
    """Time, number and reading, the number's column unknown: not a wide file of two households."""
    path = write("a.csv", "Zeit,Nummer,Verbrauch [kWh]", "2024-01-01 00:00,1001,1", "2024-01-01 00:15,1001,2")
    with pytest.raises(InputError, match="no household column"):
        read_meters(path, columns={"timestamp": "Zeit", **columns})
    read = read_meters(path, columns={"timestamp": "Zeit", "household": "Nummer", **columns})
    assert read["household"].unique().to_list() == ["1001"]
    assert read["kw"].to_list() == [4.0, 8.0]


# ---------------------------------------------------------------------- clocks


def test_offsets_are_instants(write: Write) -> None:
    rows = ["2024-03-31T01:30+01:00", "2024-03-31T01:45+01:00", "2024-03-31T03:00+02:00", "2024-03-31T01:15:00Z"]
    path = write("a.csv", "id,time,kw", *(f"a,{t},{i}" for i, t in enumerate(rows)))
    frame = read_meters(path, time_zone=ZURICH)
    assert stamps(frame) == ["2024-03-31 01:30", "2024-03-31 01:45", "2024-03-31 03:00", "2024-03-31 03:15"]
    assert frame["kw"].null_count() == 0


def test_spring_gap_is_no_gap(write: Write) -> None:
    rows = ["01:30", "01:45", "03:00", "03:15"]
    path = write("a.csv", "id,time,kw", *(f"a,2024-03-31 {t},1" for t in rows))
    loaded = meter_readings(path, time_zone=ZURICH)
    assert loaded.quality["missing"].to_list() == [0]
    assert loaded.quality["verdict"].to_list() == ["ok"]
    naive = meter_readings(path)
    assert naive.quality["missing"].to_list() == [4]


def test_times_that_spring_skips_are_reported(write: Write) -> None:
    rows = ["01:30", "01:45", "02:00", "02:15", "03:00"]
    path = write("a.csv", "id,time,kw", *(f"a,2024-03-31 {t},1" for t in rows))
    loaded = meter_readings(path, time_zone=ZURICH)
    assert loaded.quality["no_such_time"].to_list() == [2]
    assert loaded.quality["bad_time"].to_list() == [0]
    assert len(loaded.frame) == 3


@pytest.mark.parametrize("by_instant", [True, False])
def test_autumn_hour_is_told_apart(write: Write, by_instant: bool) -> None:
    walls = ["01:45", "02:00", "02:15", "02:30", "02:45", "02:00", "02:15", "02:30", "02:45", "03:00"]
    rows = list(zip(walls, range(len(walls)), strict=True))
    if not by_instant:  # sorted by wall time, the two readings of one wall time next to each other
        rows.sort(key=lambda row: row[0])
    path = write("a.csv", "id,time,kw", *(f"{h},2024-10-27 {t},{v}" for h in "ab" for t, v in rows))
    loaded = meter_readings(path, time_zone=ZURICH)
    for name in "ab":
        frame = loaded.frame.filter(pl.col("household") == name)
        assert frame["kw"].to_list() == list(range(10))
        assert frame["timestamp"].diff().drop_nulls().unique().to_list() == [timedelta(minutes=15)]
    assert loaded.quality["duplicates"].to_list() == [0, 0]


def test_meters_that_show_the_autumn_hour_once_have_a_gap(write: Write) -> None:
    walls = ["01:45", "02:00", "02:15", "02:30", "02:45", "03:00", "03:15"]
    path = write("a.csv", "id,time,kw", *(f"a,2024-10-27 {t},1" for t in walls))
    assert meter_readings(path, time_zone=ZURICH).quality["missing"].to_list() == [4]


@settings(derandomize=True, deadline=None, max_examples=20)
@given(st.integers(min_value=0, max_value=8760 * 4 - 200), st.sampled_from([ZURICH, "UTC", "America/St_Johns"]))
def test_wall_clock_round_trip(start: int, zone: str) -> None:
    """Instants written on the wall clock and read back are the same instants, wherever in the year they lie."""
    first = datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")) + start * timedelta(minutes=15)
    instants = pl.datetime_range(first, first + timedelta(hours=30), "15m", eager=True).dt.convert_time_zone(zone)
    wall = instants.dt.replace_time_zone(None)
    frame = pl.DataFrame({"household": "a", "timestamp": wall, "kw": np.arange(len(wall)) * 37.0 % len(wall)})
    read = meter_readings(frame, time_zone=zone)
    assert read.quality["no_such_time"].sum() == 0
    back = pl.DataFrame({"timestamp": instants, "kw": frame["kw"]}).join(read.frame, on="timestamp", how="left")
    # The first or last repeated hour may be cut in two by the ends of the range; elsewhere it must be exact.
    cut = wall.dt.replace_time_zone(zone, ambiguous="null").is_null() & ~wall.is_duplicated()
    whole = back.filter(~cut)
    assert whole["kw"].to_list() == whole["kw_right"].to_list()


# ---------------------------------------------------------------------- repairs and their account


def test_counts_of_the_quality_table(write: Write) -> None:
    rows = [
        "a,2024-01-01 00:00,1",
        "a,2024-01-01 00:15,-3",  # export
        "a,2024-01-01 00:30,x",  # not a number
        "a,2024-01-01 00:45,999",  # above max_kw
        "a,2024-01-01 01:00,0",
        "a,2024-01-01 01:00,0",  # repeated
        "a,2024-01-01 01:15,2",
        "a,2024-01-01 01:15,4",  # repeated, in conflict: the later row counts
        "a,2024-01-01 01:52,1",  # between grid points
        "a,2024-01-01 02:00,5",
        "a,2024-01-01 01:45,6",  # out of order
        "a,never,5",
        "a,2024-01-01 02:15,",
        "a,2024-01-01 02:30,7",
        "b,2024-01-01 00:00,1",
        "b,2024-01-01 00:15,1",
        "b,2024-01-01 00:30,1",
    ]
    loaded = meter_readings(write("a.csv", "id,time,kw", *rows), max_kw=40)
    a, b = loaded.quality.to_dicts()
    expected = {
        "verdict": "repaired", "reason": None, "rows": 14, "bad_time": 1, "no_such_time": 0, "invalid": 1,
        "negative": 1, "above_max": 1, "out_of_order": 1, "off_grid": 1, "duplicates": 2, "conflicts": 1,
        "missing": 4, "longest_gap": 2, "zeros": 1, "flat": False,
    }  # fmt: skip
    assert {k: a[k] for k in expected} == expected
    assert (b["verdict"], b["flat"], b["missing"]) == ("ok", True, 0)
    values = loaded.frame.filter(pl.col("household") == "a")["kw"].to_list()
    assert values == [1, -3, None, None, 0, 4, None, 6, 5, None, 7]
    assert loaded.totals()["duplicates"] == 2


def test_repair_is_idempotent_and_ignores_row_order() -> None:
    frame = long_frame(3, 40)
    rng = np.random.default_rng(0)
    holes = frame.filter(pl.Series(rng.random(len(frame)) > 0.2))
    first = meter_readings(holes).frame
    assert meter_readings(first).frame.equals(first)
    shuffled = holes[rng.permutation(len(holes))]
    assert meter_readings(shuffled).frame.equals(first)


def test_a_bad_household_never_stops_the_others() -> None:
    start = datetime(2024, 1, 1)
    good = long_frame(2, 96)
    hourly = pl.DataFrame(
        {"household": "hourly", "timestamp": [start + timedelta(hours=i) for i in range(24)], "kw": 1.0}
    )
    dense = pl.DataFrame(
        {"household": "dense", "timestamp": [start + timedelta(minutes=i) for i in range(90)], "kw": 1.0}
    )
    stray = pl.DataFrame({"household": "stray", "timestamp": [start, datetime(2099, 1, 1)], "kw": [1.0, 2.0]})
    empty = pl.DataFrame({"household": "empty", "timestamp": [start], "kw": [float("inf")]})
    nobody = pl.DataFrame(
        {"household": [None], "timestamp": [start], "kw": [1.0]}, schema_overrides={"household": pl.String}
    )
    loaded = meter_readings(pl.concat([good, hourly, dense, stray, empty, nobody]))
    assert set(loaded.frame["household"]) == {"h0", "h1"}
    reasons = loaded.left_out
    assert set(reasons) == {"hourly", "dense", "stray", "empty", ""}
    assert "mixed intervals: 60" in reasons["hourly"]
    assert "mixed intervals" in reasons["dense"]
    assert "timestamps must be wrong" in reasons["stray"]
    assert reasons["empty"].startswith("no usable reading: none is a number")


def test_warns_when_something_was_done(tmp_path: Path) -> None:
    frame = long_frame(2)
    frame.write_parquet(tmp_path / "fine.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_meters(tmp_path / "fine.parquet")
    pl.concat([frame, frame.head(1)]).write_parquet(tmp_path / "twice.parquet")
    with pytest.warns(UserWarning, match="1 were repaired and 0 left out"):
        read_meters(tmp_path / "twice.parquet")


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "bad.csv is empty or cannot be read"),
        (["id,time,kw"], "bad.csv has a header and no rows"),
        (["a,b,c", "1,2,3"], "bad.csv has no timestamp column; found 'a', 'b', 'c'"),
        (["H7,2024-01-01T00:00,1.53"], r"found 3 entries, numbers among them \(is the header missing"),
        (["id,time,note,more", "1,2024-01-01 00:00,3,4"], "no column that looks like power"),
        (["id,time,kw", "a,31 Dec 24,1"], "no timestamp of bad.csv can be read; pass timestamp_format"),
        (["id,time,kw", "a,2024-01-01 00:00,1"], "interval cannot be inferred"),
        (["id,time,kw", "a,2024-01-01 00:00,1", "a,2024-01-01 00:07,1"], "does not divide one day"),
        (["id,time,kw", "a,2024-01-01 00:00,1,2,3,4"], "bad.csv"),
    ],
)
def test_bad_files(write: Write, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        meter_readings(write("bad.csv", *lines))


def test_bad_arguments(write: Write, tmp_path: Path) -> None:
    path = write("a.csv", "id,time,kw", "a,2024-01-01 00:00,1", "a,2024-01-01 00:15,1")
    broken = tmp_path / "b.parquet"
    broken.write_bytes(b"no parquet at all")
    for kwargs, message in [
        ({"unit": "watt"}, "unit must be one of"),
        ({"interval": 7}, "divide one day"),
        ({"interval": "15m"}, "interval must be"),
        ({"time_zone": "Mars/Olympus"}, "time_zone must name"),
        ({"columns": {"value": "nope"}}, "no column 'nope' for value; found 'id', 'time', 'kw'"),
        ({"columns": {"watt": "kw"}}, "got the role"),
        ({"max_kw": -1}, "max_kw must be above 0"),
    ]:
        with pytest.raises(InputError, match=message):
            meter_readings(path, **kwargs)
    for missing in (tmp_path / "gone.csv", tmp_path / "*.pq", []):
        with pytest.raises(InputError, match="path"):
            meter_readings(missing)
    with pytest.raises(InputError, match=r"b\.parquet"):
        meter_readings(broken)
    (tmp_path / "void").mkdir()
    with pytest.raises(InputError, match="void holds no"):
        meter_readings(tmp_path / "void")
    for frame in (
        pl.DataFrame({"household": ["a"]}),
        pl.DataFrame({"household": ["a"], "timestamp": ["x"], "kw": [1]}),
    ):
        with pytest.raises(InputError, match="readings"):
            forecast(frame)


def test_wall_clock_and_zoned_files_do_not_mix(write: Write) -> None:
    rows = ["id,time,kw", "a,2024-01-01 00:00{},1", "a,2024-01-01 00:15{},1"]
    paths = [write(f"{i}.csv", *(row.format(zone) for row in rows)) for i, zone in enumerate(("", "Z"))]
    with pytest.raises(InputError, match="time_zone"):
        meter_readings(paths)
    assert len(meter_readings(paths, time_zone=ZURICH).frame) > 0


def test_no_reading_in_an_error(write: Write) -> None:
    path = write("a.csv", "id,time,kw", "a,2024-01-01 00:00,123.456", '"a,2024-01-01 00:15,98.7654')
    with pytest.raises(InputError) as caught:
        meter_readings(path)
    assert "123" not in str(caught.value)
    assert "98.7" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("texts", "layout"),
    [
        (["2024-05-01", "2024-05-01 00:15:00", "2024-05-01T00:30"], None),
        (["01.05.2024 00:00", "01.05.2024 00:15:00", "1.5.2024 00:30"], None),
        (["2024/05/01 00:00", "2024/05/01 00:15:00.0", "2024/05/01 00:30"], None),
        (["20240501 00:00", "20240501 00:15", "202405010030"], None),
        (["05/01/24 12:00 AM", "05/01/24 12:15 AM", "05/01/24 12:30 AM"], "%m/%d/%y %I:%M %p"),
        (["2024-05-01T00:00T", "2024-05-01T00:15T", "2024-05-01T00:30T"], "%Y-%m-%dT%H:%MT"),
    ],
)
def test_layouts_of_time(write: Write, texts: list[str], layout: str | None) -> None:
    path = write("a.csv", "id,time,kw", *(f"a,{t},1" for t in texts))
    loaded = meter_readings(path, timestamp_format=layout)
    assert stamps(loaded.frame) == ["2024-05-01 00:00", "2024-05-01 00:15", "2024-05-01 00:30"]
    assert loaded.quality["bad_time"].to_list() == [0]


def test_decimal_commas_between_commas_and_mixed_offsets_are_told(write: Write) -> None:
    """They were missing readings without a word that says what to change."""
    times = [f"2024-01-01 {hour:02}:00" for hour in range(4)]
    commas = meter_readings(write("a.csv", "id,time,kw", *(f'a,{at},"0,{i}"' for i, at in enumerate(times))))
    assert "separated by semicolons" in commas.left_out["a"]
    (sentence,) = commas.owner_notes()
    assert sentence.startswith("4 readings that are no numbers, in 1 household")
    rows = [f"{home},{at}{'+01:00' if home == 'a' else ''},1.5" for home in "ab" for at in times]
    mixed = meter_readings(write("b.csv", "id,time,kw", *rows))
    (reason,) = mixed.left_out.values()
    assert "all with an offset" in reason


def test_a_file_given_twice_is_counted_where_people_read_it(write: Write) -> None:
    rows = [f"a,2024-01-01 {hour:02}:00,{hour}" for hour in range(5)]
    once = write("a.csv", "id,time,kw", *rows)
    loaded = meter_readings([once, write("b.csv", "id,time,kw", *rows)])
    (sentence,) = loaded.owner_notes()
    assert sentence.startswith("5 readings that are in the input more than once, in 1 household")
    assert meter_readings(once).owner_notes() == []


def test_empty_cells_of_a_wide_file_count_for_nobody(write: Write) -> None:
    """Rows that are there because of one home, every ten minutes or in the autumn hour, are no rows of the others."""
    hours = [f"2024-10-27 {hour:02}:{minute}" for hour in (0, 1, 2, 2, 3, 4) for minute in ("00", "30")]
    lines = [f"{at},,{i}" for i, at in enumerate(hours)]
    alone = meter_readings(write("a.csv", "timestamp,A,B", *lines), time_zone="Europe/Zurich", interval=30, unit="kw")
    odd = [f"2024-10-27 0{hour}:{minute},{minute}," for hour in range(5) for minute in range(10, 60, 10)]
    odd += ["2024-10-27 02:00,7,"] * 5
    both = meter_readings(write("a.csv", "timestamp,A,B", *lines[:5], *odd, *lines[5:]), time_zone="Europe/Zurich",
                          interval=30, unit="kw")  # fmt: skip
    mine = pl.col("household") == "B"
    assert both.frame.filter(mine).equals(alone.frame.filter(mine))
    assert both.quality.filter(mine).equals(alone.quality.filter(mine))
    assert "A" in alone.left_out
