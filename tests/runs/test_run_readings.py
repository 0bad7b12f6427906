"""Runs under the readings' promise: what leaves is made without the readings, once, and charged before it leaves."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_run import on_call, shards
from typer.testing import CliRunner

import shoal
from shoal.product.cli.main import app
from shoal.readings.account import ReadingsAccount

ORIGIN = "2024-01-16T18:00"
SETTINGS: dict[str, Any] = {
    "secret": "readings", "customers": 40, "origin": ORIGIN, "epsilon": 1.0, "unit": "kw", "interval": 60,
    "order": (2, 1), "horizon": 4, "train_days": 14, "shard_size": 10, "workers": "serial", "ledger": "folder",
    "typical_kw": 1.5,
}  # fmt: skip
#: Where the vector lies that was drawn.
NOISY = "noisy_vector.json"
PUBLIC = {
    "released.csv", "total.csv", "plan.json", "noisy.json", "report.html", "card.json", "card.md", "README.txt",
    "datapackage.json", "SHA256SUMS",
}  # fmt: skip


def go(source: Any, out: Path, **other: Any) -> shoal.Run:
    given = {**SETTINGS, **other}
    return shoal.run(source, out, **{name: value for name, value in given.items() if value is not None})


@pytest.fixture(scope="module")
def meters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("meters") / "meters.parquet"
    shoal.simulate_meters(31, 17, step_minutes=60, seed=2).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def fitted(meters: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with curves that has released nothing."""
    return go(meters, tmp_path_factory.mktemp("runs") / "fitted", until="fit").path


@pytest.fixture(scope="module")
def released(fitted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has released."""
    out = Path(shutil.copytree(fitted, tmp_path_factory.mktemp("runs") / "released"))
    return shoal.run(None, out).path


@pytest.fixture
def begun(fitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted, tmp_path / "run"))


def entries(out: Path) -> list[dict[str, Any]]:
    if not (out / "ledger.db").is_file():
        return []
    with shoal.Ledger.open(f"sqlite:///{out}/ledger.db", create=False) as ledger:
        assert ledger.verify().ok
        return [entry.content for entry in ledger.entries() if entry.kind == "readings"]


def curves(out: Path) -> dict[str, bytes]:
    """Home -> the bits of its curve."""
    every = pl.concat([pl.read_parquet(part.path.with_suffix(".curves.parquet")) for part in shards(out, "fit")])
    return {label: curve.tobytes() for label, curve in zip(every["label"], every["value"].to_numpy(), strict=True)}


# ------------------------------------------------------------------ what leaves

REBUILD = """
import json, sys
from pathlib import Path
from shoal.readings.publication import PublicSettings, public_files
from shoal.product.card.card import ReleaseCard
from shoal.product.card.package import build_package
given, out = Path(sys.argv[1]), Path(sys.argv[2])
settings = PublicSettings.from_json((given / "plan.json").read_text())
files = public_files(json.loads((given / "noisy.json").read_text()), settings)
for name, content in {**files, **build_package(ReleaseCard.from_settings(settings), files)}.items():
    (out / name).write_bytes(content)
"""


def test_everything_public_is_rebuilt_without_the_readings(released: Path, tmp_path: Path) -> None:
    """Another process that has the noisy vector and the settings alone makes every public byte."""
    given, out = tmp_path / "given", tmp_path / "out"
    given.mkdir(), out.mkdir()
    for name in ("noisy.json", "plan.json"):
        shutil.copy(released / "public" / name, given)
    subprocess.run([sys.executable, "-c", REBUILD, given, out], check=True, cwd=tmp_path)
    public = {path.name: path.read_bytes() for path in (released / "public").iterdir()}
    assert set(public) == PUBLIC
    assert all(public[name] == (released / name).read_bytes() for name in ("card.json", "card.md"))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == public


def test_nothing_public_tells_how_many_homes_sent_readings(released: Path) -> None:
    run = shoal.Run.open(released)
    homes = run.released["household"].unique().to_list()
    assert len(homes) == 31
    for path in (released / "public").iterdir():
        assert not any(home in path.read_text() for home in homes)
    for name in ("card.md", "README.txt"):
        assert not re.search(r"\b31\b", (released / "public" / name).read_text())
    owner = json.loads((released / "owner.json").read_text())
    assert (owner["members"], owner["left_out"]) == (31, 0)
    table = pl.read_csv(released / "public" / "released.csv")
    assert table.columns == ["crowd", "members", "step", "timestamp", "kw"]
    assert table["crowd"].n_unique() <= 240
    assert (table["kw"] >= 0).all()


def test_joined_curves_add_up_to_the_total(released: Path) -> None:
    table = pl.read_csv(released / "public" / "released.csv")
    both = pl.col("members") * pl.col("kw")
    # Homes are rounded to a tenth and curves to three digits, whatever noise was drawn.
    rounding = (0.05 * pl.col("kw").abs() + 0.006 * both.abs() + 0.001 * pl.col("members").abs()).sum()
    by_step = table.group_by("step").agg(both.sum().alias("sum"), rounding.alias("rounding")).sort("step")
    total = pl.read_csv(released / "public" / "total.csv")["kw"].to_numpy()
    off = np.abs(by_step["sum"].to_numpy() - total)
    assert (off <= by_step["rounding"].to_numpy() + 1e-3 * np.abs(total) + 1e-3).all()


def test_the_card_says_what_is_protected_first(released: Path) -> None:
    run = shoal.Run.open(released)
    card = run.card
    assert card.secret == "readings"
    assert card.statement == "This table protects every home's readings, against someone who knows all others."
    first, secret = (said.sentence for said in card.public[:2])
    assert "differential privacy with (ε, δ) = (1, 0.0025)" in first
    assert secret.startswith(card.statement)
    assert "at most 2.72 times as likely" in secret
    content = json.loads((released / "card.json").read_text())
    plan = shoal.noisy_crowds_plan(customers=40, epsilon=1.0, typical_kw=1.5)
    assert content["delta"] == plan.delta(1.0) <= 1 / 400
    assert content["delta_replaced"] == plan.delta(1.0, "replace")
    assert any("curves, counts and total only" in said.sentence for said in card.public)
    assert run.summary()[0][1][0] == first


def test_a_second_run_releases_nothing(released: Path) -> None:
    before = {path: path.read_bytes() for path in released.rglob("*") if path.is_file() and path.name != ".lock"}
    run = shoal.run(None, released)
    assert run.did == []
    assert {path: path.read_bytes() for path in before} == before
    (entry,) = entries(released)
    card = json.loads((released / "card.json").read_text())
    assert (entry["mu"], entry["cap"]) == (card["mu"], card["cap"])
    assert entry["labels"] == sorted(run.released["household"].unique().to_list())
    shown = CliRunner().invoke(app, ["ledger", "show", str(released)]).output
    assert f"1 release of the readings of {len(entry['labels'])} labels: μ = " in shown
    with pytest.raises(shoal.InputError, match="the readings' promise"):
        run.prove()


# ------------------------------------------------------------------ one home and the others


def odd_home(frame: pl.DataFrame) -> pl.DataFrame:
    """Readings that would change what is inferred for everybody: another interval, longer, rising, off the grid."""
    times = pl.datetime_range(
        frame["timestamp"].min() - timedelta(days=3, minutes=7),  # type: ignore[operator]
        frame["timestamp"].max() + timedelta(days=2),  # type: ignore[operator]
        "5m",
        eager=True,
    ).cast(frame.schema["timestamp"])
    kw = np.arange(len(times)) * 0.001
    return pl.DataFrame({"household": "A", "timestamp": times, "kw": kw}, schema=frame.schema)


@pytest.mark.parametrize("kind", ["parquet", "csv", "zoned"])
def test_taking_one_home_away_changes_no_other_curve(meters: Path, tmp_path: Path, kind: str) -> None:
    """Any home, also one that would decide the grid, phase, interval or number of shards for the others."""
    frame = pl.read_parquet(meters)
    odd = odd_home(frame)
    files = {"all": pl.concat([odd, frame]), "without odd": frame}
    files["without H0003"] = files["all"].filter(pl.col("household") != "H0003")
    more: dict[str, Any] = {}
    if kind == "zoned":
        more = {"origin": f"{ORIGIN}+01:00", "time_zone": "Europe/Zurich"}
    bits = {}
    for name, rows in files.items():
        path = tmp_path / f"{name}.{'parquet' if kind == 'parquet' else 'csv'}"
        if kind == "parquet":
            rows.write_parquet(path)
        else:
            ends = "%Y-%m-%dT%H:%M:%S" + ("+01:00" if kind == "zoned" else "")
            rows.with_columns(pl.col("timestamp").dt.strftime(ends)).write_csv(path)
        bits[name] = curves(go(path, tmp_path / name, until="fit", accept=("large",), **more).path)
    assert len(bits["without odd"]) == 31
    for name, some in bits.items():
        assert set(some) >= {f"H{i:04}" for i in range(31) if i != 3}, name
        assert all(bits["all"][home] == curve for home, curve in some.items()), name


# ------------------------------------------------------------------ kills


class Killed(BaseException):
    """The process ends here."""


def killed(out: Path, where: Any, name: str, number: int, *, after: bool = False, **more: Any) -> bool:
    """Release, and end the process at the n-th call of a function; whether it got so far."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, on_call(number, getattr(where, name), Killed(), after=after))
        try:
            shoal.run(None, out, until="release", **more)
        except Killed:
            return True
    return False


def test_what_is_recorded_is_what_is_written_wherever_it_is_killed(fitted: Path, tmp_path: Path) -> None:
    """Before each file that gets its name, and right after the record."""
    points = [(shoal.Ledger, "record_readings", 1, True), *((os, "replace", number, False) for number in range(1, 100))]
    for trial, (where, name, number, after) in enumerate(points):
        out = Path(shutil.copytree(fitted, tmp_path / str(trial)))
        if not killed(out, where, name, number, after=after):
            break
        recorded = len(entries(out))
        drawn = json.loads((out / NOISY).read_text())["noisy"] if (out / NOISY).is_file() else None
        assert recorded == 1 or not list((out / "public").glob("*.csv"))  # recorded before anything is written
        assert recorded == 0 or drawn is not None  # and kept before it is recorded
        shoal.run(None, out, until="release")
        assert drawn in (None, json.loads((out / "public" / "noisy.json").read_text()))
        assert len(entries(out)) == 1
    assert trial > 8


def test_a_vector_that_is_on_record_is_never_drawn_again(begun: Path) -> None:
    assert killed(begun, shoal.Ledger, "record_readings", 1, after=True)
    (begun / NOISY).unlink()
    with pytest.raises(shoal.ShoalError, match="never drawn again"):
        shoal.run(None, begun)
    assert not (begun / "public").exists()
    assert len(entries(begun)) == 1


def test_a_copy_of_the_folder_does_not_release_another_vector(begun: Path, tmp_path: Path) -> None:
    """Both have drawn; one is on record."""
    ledger, copy = str(tmp_path / "ledger.db"), Path(shutil.copytree(begun, tmp_path / "copy"))
    assert killed(copy, shoal.Ledger, "record_readings", 1, ledger=ledger)
    go(None, begun, ledger=ledger, until="release")
    with pytest.raises(shoal.ShoalError, match="never drawn again"):
        go(None, copy, ledger=ledger)
    assert not (copy / "public").exists()


# ------------------------------------------------------------------ accounts


def test_a_series_shares_its_budget_and_ends_with_it(meters: Path, tmp_path: Path) -> None:
    series = {"epsilon": None, "budget_epsilon": 1.0, "releases": 2, "ledger": str(tmp_path / "ledger.db")}
    days = ["2024-01-16T18:00", "2024-01-17T06:00", "2024-01-17T12:00"]
    run = go(meters, tmp_path / "run", **{**series, "origin": days[0]})
    content = json.loads((run.path / "card.json").read_text())
    assert content["releases"] == 2
    assert 2 * content["mu"] ** 2 <= content["cap"] ** 2  # the budget of two releases, shared evenly
    assert content["mu"] == pytest.approx(content["cap"] / np.sqrt(2), rel=1e-6)
    # What is printed is the cap's (ε, δ), for the whole series.
    assert content["delta"] <= 1 / 400
    assert content["delta"] == pytest.approx(1 / 400, rel=1e-6)
    go(None, run.path, update=True, **{**series, "origin": days[1]})
    with pytest.raises(shoal.BudgetError, match="budget_epsilon"):
        go(None, run.path, update=True, **{**series, "origin": days[2]})
    with pytest.raises(shoal.InputError, match="cap"):  # it is fixed with the first, from whichever folder
        go(meters, tmp_path / "other", **{**series, "budget_epsilon": 5.0, "origin": days[2]})
    assert not (tmp_path / "other" / "public").exists()


def test_one_release_is_the_only_one_without_a_series(meters: Path, fitted: Path, tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    first = go(None, Path(shutil.copytree(fitted, tmp_path / "first")), ledger=ledger)
    assert first.card.secret == "readings"
    out = tmp_path / "second"
    with pytest.raises(shoal.BudgetError):
        go(meters, out, ledger=ledger)
    assert not (out / "public").exists()
    state = json.loads((out / "state.json").read_text())
    assert state["releasing"] is None  # settings may be mended


def test_labels_and_readings_refuse_each_other(meters: Path, fitted: Path, tmp_path: Path) -> None:
    """About the same homes and period, whichever comes second."""
    label = dict.fromkeys(("customers", "epsilon", "typical_kw")) | {"secret": "label", "crowd": 5}
    ledger = str(tmp_path / "ledger.db")
    go(meters, tmp_path / "label", ledger=ledger, **label)
    with pytest.raises(shoal.InputError, match="labels' promise"):
        go(None, Path(shutil.copytree(fitted, tmp_path / "a")), ledger=ledger)
    ledger = str(tmp_path / "other.db")
    go(None, Path(shutil.copytree(fitted, tmp_path / "b")), ledger=ledger)
    with pytest.raises(shoal.InputError, match="readings' promise"):
        go(meters, tmp_path / "c", ledger=ledger, **label)
    assert not (tmp_path / "a" / "public").exists()
    assert not (tmp_path / "c" / "public").exists()


def test_the_summary_of_a_label_run_names_the_other_secret(meters: Path, tmp_path: Path) -> None:
    label = dict.fromkeys(("customers", "epsilon", "typical_kw")) | {"secret": "label", "crowd": 5}
    run = go(meters, tmp_path / "label", until="fit", **label)
    (line,) = [line for _, lines in run.summary() for line in lines if "would protect" in line]
    every = pl.concat([pl.read_parquet(part.path.with_suffix(".curves.parquet")) for part in shards(run.path, "fit")])
    load = float(f"{every['value'].to_numpy().mean():.2g}")  # the homes' own, whatever is typical elsewhere
    plan = shoal.noisy_crowds_plan(customers=31, epsilon=1.0, typical_kw=load)
    assert f"of {load:g} kW, the mean load here" in line
    assert "`--secret readings` would protect every" in line
    assert f"{100 * plan.expected_w1:.3g}" in line


# ------------------------------------------------------------------ the attack before the release


def test_noise_that_is_too_small_is_found_before_anything_is_released(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampler draws 20 % too little; the account does not know."""
    drawn = ReadingsAccount.release

    def less(account: ReadingsAccount, sums: Any) -> Any:
        return drawn(replace(account, variance=0.64 * account.variance), sums)

    monkeypatch.setattr(ReadingsAccount, "release", less)
    with pytest.raises(shoal.UnreachableError, match="audit"):
        shoal.run(None, begun)
    assert entries(begun) == []
    assert not (begun / "public").exists()
    assert not (begun / NOISY).exists()


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"customers": None}, "customers"),
        ({"origin": None}, "origin"),
        ({"epsilon": None}, "epsilon"),
        ({"typical_kw": None}, "typical_kw"),
        ({"encoding": "shift_jis"}, "encoding"),
        ({"encoding": "klingon"}, "encoding"),
        ({"crowd": 12}, "crowd"),
        ({"boundaries": "feeders.csv:feeder"}, "boundaries"),
        ({"largest_share": 0.2}, "largest_share"),
        ({"method": "codebook"}, "method"),
        ({"query": "trajectory"}, "query"),
        ({"at_most": "1-in-20"}, "at_most"),
        ({"within": "10%"}, "within"),
        ({"releases": 3}, "releases"),
        ({"releases": 3, "budget_epsilon": 1.0}, "epsilon"),
        ({"bounds": ("kw=0:1",)}, "bounds"),
        ({"secret": "label", "epsilon": None}, "customers"),
        ({"secret": "names"}, "secret"),
        ({"unit": None}, "unit"),
        ({"interval": None}, "interval"),
        ({"origin": f"{ORIGIN}+01:00"}, "time_zone"),
        ({"origin": f"{ORIGIN}+01:00", "time_zone": "Europe/Zurich"}, "origin"),
        ({"customers": 30}, "customers"),
    ],
)
def test_what_is_missing_or_out_of_place_is_named(
    meters: Path, tmp_path: Path, other: dict[str, Any], names: str
) -> None:
    with pytest.raises(shoal.InputError, match=f"^{names}"):
        go(meters, tmp_path / "run", **other)
    assert not (tmp_path / "run" / "public").exists()
    assert entries(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("form", "names"),
    [("%d/%m/%Y %H:%M", "none of the 31 .*timestamp_format"), ("%s", "none of the 31"), ("%Y-%m-%d+%H:%M", "")],
)
def test_timestamps_that_need_a_look_at_the_file_are_missing(
    meters: Path, tmp_path: Path, form: str, names: str
) -> None:
    """Row by row; a date and a time of the day in two columns are known by the header."""
    frame = pl.read_parquet(meters)
    stamp = pl.col("timestamp").dt.strftime(form) if form != "%s" else pl.col("timestamp").dt.epoch("s").cast(pl.String)
    rows = frame.with_columns(timestamp=stamp)
    if "+" in form:
        parts = pl.col("timestamp").str.split("+")
        rows = rows.with_columns(date=parts.list.get(0), time=parts.list.get(1)).drop("timestamp")
    rows.write_csv(tmp_path / "meters.csv")
    if not names:
        assert len(curves(go(tmp_path / "meters.csv", tmp_path / "run", until="fit").path)) == 31
        return
    with pytest.raises(shoal.InputError, match=names):
        go(tmp_path / "meters.csv", tmp_path / "run")


# ------------------------------------------------------------------ class tables


def table(n: int) -> pl.DataFrame:
    rng = np.random.default_rng(5)
    ages = rng.uniform(18, 90, n)
    return pl.DataFrame({"person": [f"P{i}" for i in range(n)], "age": ages, "income": 1000 * rng.lognormal(1, 1, n)})


TABLE: dict[str, Any] = {
    "secret": "readings", "label": "person", "customers": 400, "epsilon": 2.0, "ledger": "folder",
    "bounds": ("income=0:10000",), "cells": ("age=40,65",), "period": "2024-03",
}  # fmt: skip


def test_a_class_table_has_counts_and_means_within_declared_bounds(tmp_path: Path) -> None:
    rows = table(400)
    run = shoal.run(rows, tmp_path / "run", **TABLE)
    public = pl.read_csv(tmp_path / "run" / "public" / "released.csv")
    assert public.columns == ["age from", "age below", "count", "income"]
    assert len(public) == 3
    cell = (pl.col("age") >= 40).cast(int) + (pl.col("age") >= 65).cast(int)
    truth = rows.with_columns(pl.col("income").clip(0, 10_000), cell=cell)
    by_cell = truth.group_by("cell").agg(pl.len(), pl.col("income").mean()).sort("cell")
    # Noise of a count: about 2.3 at ε = 2; six deviations.
    assert np.abs(public["count"].to_numpy() - by_cell["len"].to_numpy()).max() < 20
    assert np.abs(public["income"].to_numpy() - by_cell["income"].to_numpy()).max() < 2000
    assert run.card.secret == "readings"
    assert [entry["period"] for entry in entries(run.path)] == ["2024-03-01T00:00:00Z"]


@pytest.mark.parametrize(
    ("rows", "changes", "names"),
    [
        (table(40), {"bounds": ()}, "bounds"),
        (table(40), {"bounds": ("income",)}, "bounds"),
        (table(40), {"cells": ("age=65,40",)}, "cells"),
        (table(40), {"customers": 39}, "customers"),
    ],
)
def test_what_a_class_table_lacks_is_named(
    tmp_path: Path, rows: pl.DataFrame, changes: dict[str, Any], names: str
) -> None:
    with pytest.raises(shoal.InputError, match=f"^{names}"):
        shoal.run(rows, tmp_path / "run", **{**TABLE, **changes})


def test_a_label_of_a_table_decides_about_itself_alone(tmp_path: Path) -> None:
    """Text, an empty cell, several rows, an unreadable name, a line of another length: that label is left out."""
    lines = [f"P{i},{20 + i},{1000 + i}" for i in range(30)]
    odd = [
        "X1,n/a,5",
        "X2,,5",
        "X3,30,inf",
        "X4,30,1",
        "x4,31,2",
        ",30,1",
        "X5,30",
        "X6,3,0,1",
        'X7,"30,1',
        "P\xff,1,1",
    ]
    sums = []
    for name, rows in (("without", lines), ("with", [*odd[:5], *lines, *odd[5:]])):
        path = tmp_path / f"{name}.csv"
        path.write_bytes("\n".join(["person,age,income", *rows, ""]).encode("latin-1"))
        run = shoal.run(path, tmp_path / name, **TABLE)
        assert json.loads((run.path / "owner.json").read_text())["members"] == 30
        sums.append(pl.read_parquet(run.path / "rows.parquet").sort("label").rows())
    assert sums[0] == sums[1]


def test_training_days_of_labels_and_readings_do_not_overlap(meters: Path, tmp_path: Path) -> None:
    """Finding 7: half an hour later means are made of the same days; both orders are refused."""
    label = dict.fromkeys(("customers", "epsilon", "typical_kw")) | {"secret": "label", "crowd": 5}
    frame = pl.read_parquet(meters)
    longer = pl.concat([frame, frame.with_columns(pl.col("timestamp") + timedelta(days=17))]).sort(
        "household", "timestamp"
    )
    ledgers = {name: str(tmp_path / f"{name}.db") for name in ("readings first", "labels first")}
    go(longer, tmp_path / "a", ledger=ledgers["readings first"])
    go(longer, tmp_path / "b", ledger=ledgers["labels first"], **label)
    for number, origin in enumerate(("2024-01-16T19:00", "2024-01-30T17:00")):
        with pytest.raises(shoal.InputError, match="readings of a member from the same days"):
            go(longer, tmp_path / f"c{number}", ledger=ledgers["readings first"], origin=origin, **label)
        with pytest.raises(shoal.InputError, match="from readings of the same days"):
            go(longer, tmp_path / f"d{number}", ledger=ledgers["labels first"], origin=origin)
    go(longer, tmp_path / "e", ledger=ledgers["readings first"], origin="2024-01-30T18:00", **label)


def test_the_owner_is_quoted_the_price_at_the_homes_own_mean_load(fitted: Path) -> None:
    said = dict(shoal.Run.open(fitted).summary())
    (line,) = [line for line in said["Warnings"] if "typical_kw=1.5 was declared" in line]
    every = pl.concat([pl.read_parquet(part.path.with_suffix(".curves.parquet")) for part in shards(fitted, "fit")])
    assert f"These homes use {every['value'].to_numpy().mean():.2g} kW on average" in line


def test_the_command_takes_the_secret_and_names_what_is_missing(meters: Path, tmp_path: Path) -> None:
    """Through the command line: exit code 2 and one sentence with the option; then a release."""
    given = [
        "--secret",
        "readings",
        "--customers",
        "40",
        "--typical-kw",
        "1.5",
        "--origin",
        ORIGIN,
        "--unit",
        "kw",
        "--horizon",
        "4",
    ]
    given += ["--set", "order=2,1", "--train-days", "14", "--ledger", "folder", "--workers", "serial"]
    refused = CliRunner().invoke(app, ["run", str(meters), "--out", str(tmp_path / "x"), *given, "--epsilon", "1"])
    assert refused.exit_code == 2
    assert "--interval" in refused.stderr
    series = ["--interval", "60", "--budget-epsilon", "1", "--releases", "5"]
    done = CliRunner().invoke(app, ["run", str(meters), "--out", str(tmp_path / "run"), *given, *series])
    assert done.exit_code == 0, done.stderr
    assert "protects every home's readings" in " ".join(done.stdout.split())
    assert "the whole series of tables" in " ".join(done.stdout.split())
    assert {path.name for path in (tmp_path / "run" / "public").iterdir()} == PUBLIC


def test_a_rehearsal_would_look_at_the_readings(begun: Path) -> None:
    with pytest.raises(shoal.InputError, match=r"rehearse: .*noisy_crowds_plan"):
        shoal.run(None, begun, rehearse=True)
