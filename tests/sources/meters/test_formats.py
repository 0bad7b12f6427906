"""Files as utilities hand them out: units, registers, dates, encodings, wide tables, NEM12."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import meter_formats
import numpy as np
import polars as pl
import pytest

from shoal import InputError, read_meters
from shoal.product.sources.meters.meter_files import meter_readings, understand_files

HOMES = meter_formats.homes()
Write = Callable[..., Path]


def assert_same(path: Any, expected: pl.DataFrame = HOMES, zone: str | None = None, **options: Any) -> None:
    read = meter_readings(path, **options).frame
    assert read["household"].to_list() == expected["household"].to_list()
    stamps = expected["timestamp"] if zone is None else expected["timestamp"].dt.replace_time_zone(zone)
    assert (read["timestamp"] == stamps).all()
    np.testing.assert_allclose(read["kw"].to_numpy(), expected["kw"].to_numpy(), rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------------- units


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("kw", "kw"), ("Power [W]", "w"), ("energy(kWh/hh)", "kwh"), ("Energy_Wh", "wh"), ("powerKW", "kw"),
        ("activeEnergyWh", "wh"), ("energykwh", "kwh"), ("MWh", "mwh"), ("Leistung in Kilowatt", "kw"),
        ("Wattstunden", "wh"), ("Use (kilowatt-hours)", "kwh"), ("use kW", "kw"), ("power_mw", "mw"),
    ],
)  # fmt: skip
def test_names_that_tell_the_unit(write: Write, name: str, unit: str) -> None:
    path = write("a.csv", f"id;time;{name}", "a;2024-01-01 00:00;1", "a;2024-01-01 00:30;2")
    assert meter_readings(path).unit.lower() == unit


@pytest.mark.parametrize("name", ["value", "Verbrauch", "raw", "W1", "h2w", "kW/h", "kWh/h", "kW or kWh", "KWARTAL"])
def test_names_that_do_not(write: Write, name: str) -> None:
    path = write("a.csv", f"id;time;{name}", "a;2024-01-01 00:00;1", "a;2024-01-01 00:30;2")
    with pytest.raises(InputError, match="unit: nothing says"):
        meter_readings(path)


@pytest.mark.parametrize(("unit", "factor"), [("W", 1e3), ("MW", 1e-3), ("Wh", 500.0), ("kWh", 0.5), ("MWh", 5e-4)])
def test_every_unit_becomes_kw(tmp_path: Path, unit: str, factor: float) -> None:
    values = HOMES.with_columns(pl.col("kw") * factor)
    values.rename({"kw": f"reading [{unit}]"}).write_csv(tmp_path / "named.csv")
    values.rename({"kw": "reading"}).with_columns(uom=pl.lit(unit)).write_csv(tmp_path / "field.csv")
    values.rename({"kw": "reading"}).write_csv(tmp_path / "told.csv")
    values.pivot(on="household", index="timestamp", values="kw").rename(lambda c: c if c == "timestamp" else f"{c} {unit}").write_csv(tmp_path / "wide.csv")  # fmt: skip # noqa: E501
    assert_same(tmp_path / "named.csv")
    assert_same(tmp_path / "field.csv")
    assert_same(tmp_path / "told.csv", unit=unit.lower())
    wide = HOMES.with_columns(household=pl.col("household") + f" {unit}")
    assert_same(tmp_path / "wide.csv", wide)
    read = meter_readings(tmp_path / "named.csv")
    assert (read.unit, read.quality["unit"].unique().to_list()) == (unit, [unit])
    assert f"reading [{unit}]" in understand_files([tmp_path / "named.csv"]).reason
    with pytest.raises(InputError, match=r"unit: nothing says .*'reading' of told.csv.*pass unit="):
        meter_readings(tmp_path / "told.csv")


def test_units_that_disagree_are_refused(write: Write) -> None:
    rows = ["a,2024-01-01 00:00,1,kWh", "a,2024-01-01 00:30,1,Wh"]
    with pytest.raises(InputError, match=r"'unit' of a\.csv names several units"):
        meter_readings(write("a.csv", "id,time,value,unit", *rows))
    one = write("kw.csv", "id,time,W", "a,2024-01-01 00:00,100", "a,2024-01-01 00:30,300")
    other = write("kwh.csv", "id,time,kWh", "b,2024-01-01 00:00,1", "b,2024-01-01 00:30,1")
    with pytest.raises(InputError, match="some files hold energy"):
        meter_readings([one, other])
    third = write("mw.csv", "id,time,MW", "c,2024-01-01 00:00,0.001", "c,2024-01-01 00:30,0.002")
    assert meter_readings([one, third]).frame["kw"].to_list() == [0.1, 0.3, 1.0, 2.0]


def test_columns_of_one_meter_are_not_households(write: Write) -> None:
    path = write("a.csv", "time,import kWh,export kWh", "2024-01-01 00:00,1,2", "2024-01-01 00:30,1,2")
    with pytest.raises(InputError, match="no household column"):
        meter_readings(path)


# ---------------------------------------------------------------------- registers


def test_registers_are_seen_and_differenced(tmp_path: Path) -> None:
    totals = meter_formats.register(HOMES)
    totals.write_csv(tmp_path / "a.csv")
    read = meter_readings(tmp_path / "a.csv")
    assert_same(tmp_path / "a.csv")
    assert read.quality["verdict"].unique().to_list() == ["ok"]
    with pytest.warns(UserWarning, match="3 of the households draw more than a home"):
        as_intervals = read_meters(tmp_path / "a.csv", unit="kwh-interval")
    assert as_intervals["kw"].min() > 20_000
    totals.rename({"kwh": "kW"}).write_csv(tmp_path / "b.csv")
    with pytest.raises(InputError, match="only rise, like the totals of a register, and are said to be power"):
        meter_readings(tmp_path / "b.csv")


def test_a_replaced_meter_and_a_missing_total_leave_holes(tmp_path: Path) -> None:
    """Where a register falls or is missing, what was used is unknown; everything else is exact."""
    totals = meter_formats.register(HOMES)
    first = totals["household"][0]
    at, gone = datetime(2024, 1, 11, 7), datetime(2024, 1, 12, 3)
    replaced = (pl.col("household") == first) & (pl.col("timestamp") >= at)
    absent = (pl.col("household") == first) & (pl.col("timestamp") == gone)
    totals.with_columns(kwh=pl.when(replaced).then(pl.col("kwh") - 12345.0).otherwise("kwh")).filter(~absent).write_csv(
        tmp_path / "a.csv"
    )
    read = meter_readings(tmp_path / "a.csv")
    row = read.quality.row(0, named=True)
    assert (row["falls"], row["missing"], row["verdict"]) == (1, 3, "repaired")
    joined = read.frame.join(HOMES, on=["household", "timestamp"], suffix="_true")
    holes = joined.filter(pl.col("kw").is_null())["timestamp"].to_list()
    half = timedelta(minutes=30)
    assert holes == [at - half, gone - half, gone]
    known = joined.drop_nulls()
    np.testing.assert_allclose(known["kw"], known["kw_true"], rtol=1e-9, atol=1e-11)


def test_a_home_that_is_no_register_among_registers_is_left_out(tmp_path: Path) -> None:
    odd = meter_formats.kwh(HOMES).filter(pl.col("household") == "H0000").with_columns(household=pl.lit("odd"))
    pl.concat([meter_formats.register(HOMES), odd]).write_csv(tmp_path / "a.csv")
    left = meter_readings(tmp_path / "a.csv").left_out
    assert list(left) == ["odd"]
    assert "fall too often for the register" in left["odd"]


# ---------------------------------------------------------------------- dates and clocks


@pytest.mark.parametrize(
    ("form", "exact"),
    [
        ("%d/%m/%Y %H:%M", True), ("%m/%d/%Y %I:%M %p", True), ("%d-%m-%Y %H:%M:%S", True), ("%d/%m/%y %H:%M", True),
        ("%m/%d/%y %H:%M", True), ("%s", False), ("ms", False),
    ],
)  # fmt: skip
def test_days_and_months_and_seconds(tmp_path: Path, form: str, exact: bool) -> None:
    late = HOMES.with_columns(pl.col("timestamp") + timedelta(days=5))  # the 15th to the 17th
    if exact:
        late.with_columns(pl.col("timestamp").dt.strftime(form)).write_csv(tmp_path / "a.csv")
        assert_same(tmp_path / "a.csv", late)
    else:
        numbers = late.with_columns(pl.col("timestamp").dt.epoch("s" if form == "%s" else "ms"))
        numbers.write_csv(tmp_path / "a.csv")
        numbers.write_parquet(tmp_path / "a.parquet")
        assert_same(tmp_path / "a.csv", late, "UTC")
        assert_same(tmp_path / "a.parquet", late, "UTC")


def test_day_and_month_are_decided_over_all_files(tmp_path: Path) -> None:
    """The 10th to the 12th of January: no number tells. A second file with the 15th decides for both."""
    HOMES.with_columns(pl.col("timestamp").dt.strftime("%d/%m/%Y %H:%M")).write_csv(tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"give timestamp_format='%d/%m/%Y %H:%M' where the day comes first"):
        meter_readings(tmp_path / "a.csv")
    assert_same(tmp_path / "a.csv", timestamp_format="%d/%m/%Y %H:%M")
    more = HOMES.with_columns(pl.col("timestamp") + timedelta(days=3))
    more.with_columns(pl.col("timestamp").dt.strftime("%d/%m/%Y %H:%M")).write_csv(tmp_path / "b.csv")
    assert_same([tmp_path / "a.csv", tmp_path / "b.csv"], pl.concat([HOMES, more]).sort("household", "timestamp"))


def test_a_date_and_a_time_in_two_columns(tmp_path: Path) -> None:
    stamp = pl.col("timestamp")
    parts = HOMES.select("household", Datum=stamp.dt.strftime("%d.%m.%Y"), Uhrzeit=stamp.dt.strftime("%H:%M"), kW="kw")
    parts.write_csv(tmp_path / "a.csv")
    assert_same(tmp_path / "a.csv")
    parts.rename({"Datum": "when", "Uhrzeit": "o'clock"}).write_csv(tmp_path / "b.csv")
    assert_same(tmp_path / "b.csv", columns={"timestamp": "when+o'clock"})
    HOMES.select("household", date=stamp.dt.date(), time=stamp.dt.time(), kw="kw").write_parquet(tmp_path / "c.parquet")
    assert_same(tmp_path / "c.parquet")
    # A date beside whole timestamps: the latter count.
    HOMES.select("household", date=stamp.dt.date(), time=stamp, kw="kw").write_csv(tmp_path / "d.csv")
    assert_same(tmp_path / "d.csv")


def test_a_row_per_home_and_day(tmp_path: Path) -> None:
    stamp = pl.col("timestamp")
    long = HOMES.select("household", date=stamp.dt.date(), clock=stamp.dt.strftime("%H:%M"), kw="kw")
    long.pivot(on="clock", index=["household", "date"], values="kw").write_csv(tmp_path / "a.csv")
    assert_same(tmp_path / "a.csv", unit="kw")
    assert meter_readings(tmp_path / "a.csv", unit="kw").quality["out_of_order"].sum() == 0


# ---------------------------------------------------------------------- encodings and other formats


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8-sig"])
@pytest.mark.parametrize("packed", [False, True])
def test_encodings(tmp_path: Path, encoding: str, packed: bool) -> None:
    named = HOMES.with_columns(household=pl.lit("Zürich ") + pl.col("household"))
    content = named.rename({"household": "Zähler"}).write_csv(separator=";").encode(encoding)
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert_same(path, named)


def test_an_encoding_that_nothing_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(HOMES.write_csv().encode("utf-16-le"))  # without a mark
    with pytest.raises(InputError, match="encoding"):
        meter_readings(tmp_path / "a.csv")
    assert_same(tmp_path / "a.csv", encoding="utf-16-le")


@pytest.mark.parametrize("extra", [False, True])
def test_nem12(tmp_path: Path, extra: bool) -> None:
    meter_formats.write_nem12(tmp_path / "a.csv", HOMES, extra=extra)
    assert_same(tmp_path / "a.csv", zone="Etc/GMT-10", time_zone="Etc/GMT-10")
    read = meter_readings(tmp_path / "a.csv")
    assert (read.unit, read.time_zone) == ("kWh", "UTC")
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "cut.csv").write_text(text.replace("300,20240111,", "300,20240111", 1))
    with pytest.raises(InputError, match=r"line \d+ of cut.csv is not a record of NEM12"):
        meter_readings(tmp_path / "cut.csv")
    (tmp_path / "null.csv").write_text(text.replace(",A,,,", ",N,,,", 1))
    assert meter_readings(tmp_path / "null.csv").frame["kw"].null_count() == 0  # a first day that is not there
    (tmp_path / "b.csv").write_text("100,NEM13,202402010000,A,B\n")
    with pytest.raises(InputError, match="NEM13"):
        meter_readings(tmp_path / "b.csv")


def test_xml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('<?xml version="1.0"?><feed></feed>')
    with pytest.raises(InputError, match="XML, which shoal does not read"):
        meter_readings(tmp_path / "a.csv")


def test_a_folder_without_what_shoal_wrote_there(tmp_path: Path) -> None:
    (tmp_path / "year").mkdir()
    run = tmp_path / "january"
    (run / "public").mkdir(parents=True)
    (run / "state.json").write_text('{"format": "shoal run"}')
    HOMES.filter(pl.col("household") == "H0000").write_csv(tmp_path / "a.csv")
    HOMES.filter(pl.col("household") != "H0000").write_parquet(tmp_path / "year" / "b.parquet")
    for name in (".hidden.csv", "january/released.csv", "january/public/released.csv"):
        (tmp_path / name).write_text("not readings")
    assert_same(tmp_path)
    with pytest.raises(InputError, match="january is a run of shoal"):
        read_meters(run)
