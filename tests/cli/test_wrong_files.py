"""Ten files that are not what they seem: each is read as what it is, with a word about it, or refused with a remedy."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from calls import call

import shoal

QUICK = ["--train-days", "7", "--set", "order=1,0", "--horizon", "2", "--crowd", "2"]
HALF_HOUR = timedelta(minutes=30)


@pytest.fixture(scope="module")
def homes() -> pl.DataFrame:
    """Four homes from the 10th to the 18th, in whole Wh per half hour."""
    frame = shoal.simulate_meters(4, 9, 30, seed=3, start="2024-01-10")
    return frame.with_columns(kw=((pl.col("kw") + 4.0) * 500).round() / 500)  # so that no home makes most of a row


def _kwh(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("household", "timestamp", kwh=pl.col("kw") / 2)


def _register(frame: pl.DataFrame, path: Path) -> None:
    total = _kwh(frame).with_columns(kwh=8000.0 + pl.col("kwh").cum_sum().over("household") - pl.col("kwh"))
    last = total.group_by("household").agg(
        pl.col("timestamp").max() + HALF_HOUR, pl.col("kwh").max() + _kwh(frame)["kwh"].last()
    )
    pl.concat([total, last.select(total.columns)]).sort("household", "timestamp").write_csv(path)


def _watt_hours(frame: pl.DataFrame, path: Path) -> None:
    _kwh(frame).with_columns(pl.col("kwh") * 1000).rename({"kwh": "energy [Wh]"}).write_csv(path)


def _wide(frame: pl.DataFrame, path: Path) -> None:
    wide = _kwh(frame).pivot(on="household", index="timestamp", values="kwh")
    wide.rename(lambda name: name if name == "timestamp" else f"{name} kWh").write_csv(path)


def _uk_dates(frame: pl.DataFrame, path: Path) -> None:
    frame.with_columns(pl.col("timestamp").dt.strftime("%d/%m/%Y %H:%M")).write_csv(path)


def _utf_16(frame: pl.DataFrame, path: Path) -> None:
    path.write_text(frame.write_csv(separator="\t"), encoding="utf-16")


@pytest.mark.parametrize(
    ("write", "says", "kw_of"),
    [
        (
            _register,
            "kWh every 30 minutes: the column's name says so ('kwh'), and they only rise, so that they are totals"
            " of a register and differences are taken; households from the column 'household', times from "
            "'timestamp', readings from 'kwh'.",
            "{}",
        ),
        (_watt_hours, "Wh every 30 minutes: the column's name says so ('energy [Wh]'); households from the", "{}"),
        (_wide, "kWh every 30 minutes: the names of all columns say so; a column per household, times", "{} kWh"),
        (_uk_dates, "kW every 30 minutes: the column's name says so ('kw'); households from the column", "{}"),
        (_utf_16, "kW every 30 minutes: the column's name says so ('kw'); households from the column", "{}"),
    ],
)
def test_files_that_are_read(
    homes: pl.DataFrame, tmp_path: Path, write: Callable[[pl.DataFrame, Path], None], says: str, kw_of: str
) -> None:
    path = tmp_path / "meters.csv"
    write(homes, path)
    read = shoal.read_meters(path)
    expected = homes.with_columns(household=pl.format(kw_of, pl.col("household")))
    both = expected.join(read, on=["household", "timestamp"], how="left", suffix="_read")
    last = both["timestamp"] == both["timestamp"].max()
    whole = both.filter(~last)  # of a register, the last total ends the last interval of the last home only
    np.testing.assert_allclose(whole["kw_read"].to_numpy(), whole["kw"].to_numpy(), rtol=1e-9, atol=1e-9)
    done = call("run", path, "--out", tmp_path / "run", "--until", "fit", "--verbose", *QUICK)
    assert done.code == 0, done.err
    assert f"Readings: {says}" in " ".join(done.out.split())
    facts = shoal.Run.open(tmp_path / "run").work.facts.people
    assert facts is not None
    assert facts.unit == says.split()[0]
    assert pl.read_csv(tmp_path / "run" / "quality.csv")["unit"].unique().to_list() == [facts.unit]


def _no_unit(frame: pl.DataFrame, path: Path) -> None:
    frame.rename({"kw": "Verbrauch"}).write_csv(path)


def _spikes(frame: pl.DataFrame, path: Path) -> None:
    spike = (pl.col("timestamp").dt.hour() == 4) & (pl.col("household") == "H0001")
    frame.with_columns(kw=pl.when(spike).then(1e9).otherwise("kw")).write_csv(path)


def _excel(frame: pl.DataFrame, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("[Content_Types].xml", "<Types/>")
        book.writestr("xl/styles.xml", "<styles/>")


def _row_numbers(frame: pl.DataFrame, path: Path) -> None:
    frame.rename({"household": "site code"}).with_row_index("id").write_csv(path)


def _negative(frame: pl.DataFrame, path: Path) -> None:
    frame.with_columns(-pl.col("kw") - 0.001).write_csv(path)


QUESTIONED: list[tuple[Callable[[pl.DataFrame, Path], None], str, list[str] | None]] = [
    (
        _no_unit,
        "unit: nothing says whether the column 'Verbrauch' of meters.csv holds power or energy per interval, and "
        "in which unit; pass --unit, one of w, kw, mw, wh, kwh, mwh",
        ["--unit", "kw"],
    ),
    (
        _spikes,
        "readings: 1 of 4 households draw more than a home (the rule of plausible power: on some day a mean above"
        " 50 kW, or a reading above 100 kW). Nothing was released. If the unit is wrong, name it with --unit "
        "(it was read as kW); if they are totals, say --unit kwh-register; if single readings are faults, leave them "
        "out with --set max_kw=50; if these are large customers, go on with --set accept=large",
        ["--set", "max_kw=50"],
    ),
    (
        _excel,
        "path: meters.csv is a spreadsheet workbook (Excel or OpenDocument), which shoal does not read; open it, "
        "save the sheet with the readings as CSV (UTF-8), and name that file",
        None,
    ),
    (
        _row_numbers,
        "columns: every row has another entry in 'id', so that this column numbers rows rather than naming "
        "households; name the column of the households. Name them: --household-column, --timestamp-column and "
        "--value-column",
        ["--household-column", "site code"],
    ),
    (
        _negative,
        "readings: none of the 4 households can be used: never above zero and often below: a meter of generation, or "
        "the sign is turned round (4). Consumption is positive: name its column with --value-column, or turn the sign "
        "round in the file",
        None,
    ),
]


@pytest.mark.parametrize(("write", "sentence", "remedy"), QUESTIONED)
def test_files_that_are_questioned(
    homes: pl.DataFrame,
    tmp_path: Path,
    write: Callable[[pl.DataFrame, Path], None],
    sentence: str,
    remedy: list[str] | None,
) -> None:
    """The sentence says what is wrong and what to do, without a reading; doing it in the same folder goes on."""
    path = tmp_path / "meters.csv"
    write(homes, path)
    refused = call("run", path, "--out", tmp_path / "run", "--until", "fit", *QUICK)
    assert refused.code == 2
    assert refused.err.splitlines()[-1] == f"shoal: {sentence}"
    if remedy is not None:
        done = call("run", path, "--out", tmp_path / "run", "--until", "fit", *QUICK, *remedy)
        assert done.code == 0, done.err


def test_the_page_has_every_sentence() -> None:
    page = " ".join((Path(__file__).resolve().parents[2] / "docs" / "wrong-files.md").read_text().split())
    assert [sentence for _, sentence, _ in QUESTIONED if sentence not in page] == []
