"""What is refused is refused before the ledger, and what is released can be described."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_run import CONFIG, Days, go, left_out, shards

import shoal

#: Seven hours before the last reading: what came later is known.
EARLIER = "2024-01-16T17:00"
LOG = replace(CONFIG, query="trajectory", epsilon=1.0, delta=1e-5, horizon=2)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def logarithmic(tmp_path_factory: pytest.TempPathFactory, days: Days) -> Path:
    """A run with crowds, to be designed for in ln kW."""
    return go(tmp_path_factory.mktemp("log") / "run", days[0], LOG, "fit").path


@pytest.mark.parametrize("method", ["white", "paper"])
def test_figures_off_by_more_than_any_load_are_refused_before_the_ledger(
    days: Days, tmp_path: Path, method: str
) -> None:
    """Noise that hides in ln kW is far above any load in kW, and may be above any number."""
    out = tmp_path / "run"
    run = go(out, days[0], replace(LOG, method=method), "design")
    assert run.work.facts.design is not None
    assert run.work.facts.design.meaningful
    assert not run.work.facts.design.accuracy.beside_largest <= 10
    with pytest.raises(shoal.UnreachableError, match="10 times the largest forecast"):
        go(out)
    assert not (out / "ledger.db").exists()
    go(out, config=LOG, until="design")  # nothing was begun: other settings may follow


def test_a_search_that_errs_more_in_kilowatts_is_not_used(
    logarithmic: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The search counts errors in ln kW, where noise costs little; exp makes it dear. Crowds' own curves are used."""
    out, methods = Path(shutil.copytree(logarithmic, tmp_path / "run")), []

    def bad(classes: Any, graph: Any, method: str, *rest: Any, **options: Any) -> shoal.Mechanism:
        methods.append(method)
        options.pop("prove")
        mechanism = shoal.calibrate(classes, graph, "white" if method == "transport" else method, *rest, **options)
        return replace(mechanism, method=method)

    monkeypatch.setattr("shoal.product.runs.design_stage.calibrate", bad)
    run = go(out, config=replace(LOG, method="transport", epsilon=5.0, shard_size=100), until="design")
    assert methods == ["transport", "mean"]
    assert run.work.facts.design is not None
    assert run.work.facts.design.method == "mean"
    assert run.work.facts.design.delta <= 1e-5


@pytest.mark.parametrize("query", ["point", "trajectory", "marginal"])
@pytest.mark.parametrize("method", ["white", "paper", "center", "codebook"])
def test_every_design_can_be_described(logarithmic: Path, tmp_path: Path, query: str, method: str) -> None:
    if method == "codebook" and query != "point":
        pytest.skip("a codebook is for constants")
    budget = {} if method == "codebook" else {"rho": 1e3 if method == "white" else 0.3}
    out = Path(shutil.copytree(logarithmic, tmp_path / "run"))
    config = replace(LOG, query=query, method=method, epsilon=2.0, delta=None, **budget)  # type: ignore[arg-type]
    card = go(out, config=config, until="design").card_so_far
    assert all(text() for text in (card.to_json, card.to_markdown))


def test_what_cannot_be_printed_is_not_charged(designed: Path, monkeypatch: Patch) -> None:
    def fails(_: shoal.ReleaseCard) -> str:
        raise shoal.InputError("card: no words")

    monkeypatch.setattr(shoal.ReleaseCard, "to_markdown", fails)
    with pytest.raises(shoal.InputError, match="no words"):
        go(designed)
    assert not (designed / "ledger.db").exists()


def test_a_whole_run_is_attacked_before_it_is_charged(designed: Path, monkeypatch: Patch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise shoal.InputError("audit: not today")

    monkeypatch.setattr("shoal.product.runs.design_stage.audit", fails)
    with pytest.raises(shoal.InputError, match="not today"):
        go(designed)
    assert not (designed / "ledger.db").exists()


@pytest.mark.parametrize(
    ("query", "method"), [("point", "center"), ("point", None), ("trajectory", "center"), ("marginal", None)]
)
def test_whatever_is_released_gets_its_card_and_its_report(
    tmp_path: Path, days: Days, query: str, method: str | None
) -> None:
    guarantee = {} if (query, method) == ("point", None) else {"epsilon": 1.0, "delta": 1e-3}
    small: dict[str, Any] = {"crowd": 11, "horizon": 2, "order": (1, 0), "train_days": 4}
    run = go(tmp_path / "run", days[0], until="report", query=query, method=method, **small, **guarantee)
    stages = ["fit", "crowds", "design", "audit", "release", "card", "report"]
    assert run.did == [name for name in stages if guarantee or name not in ("design", "audit")]
    assert run.report.is_file()
    names = run.released["household"].unique().to_list()
    assert len(names) >= 22
    for document in ("card.md", "card.json", "public/report.html"):
        text = (tmp_path / "run" / document).read_text()
        assert not [name for name in names if name in text], document
    assert "Internal" in run.report.read_text()


def test_every_file_has_the_same_reason_for_who_is_left_out(finished: Path, days: Days) -> None:
    for day in range(2):
        if day:
            go(finished, days[1], update=True)
        gone = left_out(finished)
        quality = pl.read_csv(finished / "quality.csv", infer_schema=False)
        assert quality["household"].is_unique().all()
        unusable = quality.filter(pl.col("verdict") == "left out")
        reasons = dict(zip(unusable["household"], unusable["reason"], strict=True))
        waiting = {name: why for name, why in gone.items() if name not in reasons}
        assert {**reasons, **waiting} == gone != {}
        assert all("it waits until enough newcomers" in why for why in waiting.values())
        released = set(pl.read_parquet(finished / "released.parquet")["household"])
        assert not released & set(gone)
        assert released | set(gone) == set(quality["household"])
        fit = shoal.Run.open(finished).work.facts.people
        assert fit is not None
        assert dict(fit.reasons) == Counter(gone.values())
        assert fit.left_out == len(gone)


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, method="codebook", epsilon=6.0)], ids=["means", "codebook"])
def test_errors_against_what_came_are_those_of_all_shards(tmp_path: Path, days: Days, config: shoal.Config) -> None:
    out = tmp_path / "run"
    run = go(out, days[0], replace(config, origin=EARLIER, train_days=7))
    parts = [pl.read_parquet(part.path.with_suffix(".curves.parquet")) for part in shards(out, "fit")]
    assert len(parts) == 2
    curves = pl.concat(parts).sort("label")
    value, truth = curves["value"].to_numpy(), curves["truth"].to_numpy()
    assert run.card.fit.later_error == pytest.approx(float(np.abs(value - truth).mean()), rel=1e-12)
    figures = pl.read_parquet(out / "released.parquet").sort("household", "step")["kw"].to_numpy()
    assert run.card.release is not None
    assert run.card.release.later_error == pytest.approx(float(np.abs(figures - truth.ravel()).mean()), rel=1e-12)


def test_large_homes_are_questioned_in_a_file_and_not_among_simulated_ones(tmp_path: Path, monkeypatch: Patch) -> None:
    """Of 100,000 simulated homes two draw more than a home does; the demo of them is not refused."""
    simulate = shoal.simulate_meters
    large = pl.when(pl.col("household") == "H0001").then(pl.col("kw") * 200).otherwise("kw")

    def simulated(*given: Any, **named: Any) -> pl.DataFrame:
        return simulate(*given, **named).with_columns(kw=large)

    small: dict[str, Any] = {"crowd": 4, "horizon": 2, "order": (1, 0), "train_days": 4, "until": "fit"}
    with pytest.raises(shoal.InputError, match="1 of 8 households draw more than a home"):
        go(tmp_path / "file", simulated(8, 6, 60), **small)
    monkeypatch.setattr("shoal.product.runs.meter_rows.simulate_meters", simulated)
    with pytest.raises(shoal.UnreachableError, match="dominance, 1 of 1 rows"):  # of eight, one makes most of a row
        go(tmp_path / "simulated", shoal.SimulatedMeters(8, 6, 60), **small)
