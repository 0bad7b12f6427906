"""What is refused is refused before the ledger, and what is released can be described."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from small_run import CONFIG, go, left_out, listing, opened

import shoal
from shoal.card.card import ReleaseCard
from shoal.runs.blocks import make_blocks
from shoal.runs.config import Config
from shoal.runs.run import Run
from shoal.runs.stages import card_stage, design_stage
from shoal.runs.stages.crowd_stage import WAITS
from shoal.sources.meters.answered import power_accuracy

#: Seven hours before the last reading: what came later is known.
EARLIER = "2024-01-16T17:00"
LOG = replace(CONFIG, query="trajectory", epsilon=1.0, delta=1e-5, horizon=2)


@pytest.fixture(scope="module")
def logarithmic(tmp_path_factory: pytest.TempPathFactory, days: tuple[Path, Path, Path]) -> Path:
    """A run with crowds, to be designed for in ln kW."""
    out = tmp_path_factory.mktemp("log") / "run"
    go(out, days[0], LOG, "crowds")
    return out


@pytest.mark.parametrize("method", ["white", "paper"])
def test_figures_off_by_more_than_any_load_are_refused_before_the_ledger(
    days: tuple[Path, Path, Path], tmp_path: Path, method: str
) -> None:
    """Noise that hides in ln kW is far above any load in kW, and may be above any number."""
    out = tmp_path / "run"
    run = go(out, days[0], replace(LOG, method=method), "design")
    assert run.design is not None
    assert run.design.meaningful
    assert not run.design.accuracy.beside_largest <= 10
    with pytest.raises(shoal.UnreachableError, match="10 times the largest forecast"):
        run.everything("release")
    assert not (out / "ledger.db").exists()
    assert run.state.releasing is None  # nothing was begun: other settings may follow


def test_the_crowds_own_curve_where_a_search_errs_more_in_kilowatts() -> None:
    """The search counts errors in ln kW, where noise costs little; exp makes it dear."""
    rng = np.random.default_rng(3)
    classes = shoal.GaussianClasses.deterministic(rng.uniform(-2.0, 2.0, (6, 2)), labels=list("abcdef"))
    graph = shoal.NeighborGraph.complete(classes.labels)
    searched = replace(shoal.calibrate(classes, graph, "white", 5.0, 1e-5), method="transport")  # of a bad search
    curve = shoal.calibrate(classes, graph, "mean", 5.0, 1e-5)
    shard = SimpleNamespace(accuracy=lambda mechanism: power_accuracy(mechanism))
    chosen = design_stage.cheaper(searched, curve, shard)  # type: ignore[arg-type]
    errors = [power_accuracy(one).rmse for one in (chosen, searched, curve)]
    assert errors[0] == min(errors) < max(errors)
    assert chosen is curve
    assert design_stage.cheaper(curve, searched, shard) is curve  # type: ignore[arg-type]
    assert curve.certificate.delta_upper <= 1e-5


def block_of(run: Run) -> str:
    return make_blocks(run)[0].path


def test_a_search_is_held_against_the_curve(logarithmic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run the worse of the two is not written."""
    block, real, asked = block_of(Run.open(logarithmic)), design_stage.calibrate, []

    def bad(classes: object, graph: object, method: str, *rest: object, **options: object) -> shoal.Mechanism:
        asked.append(method)
        made = real(classes, graph, "white" if method == "transport" else method, *rest, **options)  # type: ignore[arg-type]
        return replace(made, method=method)

    monkeypatch.setattr(design_stage, "calibrate", bad)
    out = str(tmp_path / "m.shoal")
    config = replace(LOG, method="transport", epsilon=5.0)
    assert design_stage.do(block, config, out).method == "mean"
    assert asked == ["transport", "mean"]
    assert shoal.load(out).method == "mean"  # type: ignore[union-attr]


@pytest.mark.parametrize("query", ["point", "trajectory", "marginal"])
def test_every_design_can_be_described(logarithmic: Path, tmp_path: Path, query: str) -> None:
    run = Run.open(logarithmic)
    assert run.fit is not None
    block = block_of(run)
    for method in ("white", "paper", "center", *(["codebook"] if query == "point" else [])):
        budget = (
            {"epsilon": 2.0} if method == "codebook" else {"epsilon": 2.0, "rho": 1e3 if method == "white" else 0.3}
        )
        config = Config(query=query, method=method, **budget)  # type: ignore[arg-type]
        card_stage.rehearse(run.fit, design_stage.do(block, config, str(tmp_path / "m.shoal")), None)


def test_what_cannot_be_printed_is_not_charged(designed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: ReleaseCard) -> str:
        raise shoal.InputError("card: no words")

    with monkeypatch.context() as patch:
        patch.setattr(ReleaseCard, "to_yaml", fails)
        with pytest.raises(shoal.InputError, match="no words"):
            opened(designed).everything("release")
    assert not (designed / "ledger.db").exists()


def test_a_whole_run_is_attacked_before_it_is_charged(designed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise shoal.InputError("audit: not today")

    with monkeypatch.context() as patch:
        patch.setattr(design_stage, "audit_stage", fails)
        with pytest.raises(shoal.InputError, match="not today"):
            opened(designed).everything()
    assert not (designed / "ledger.db").exists()


@pytest.mark.parametrize(
    ("query", "method"), [("point", "center"), ("point", None), ("trajectory", "center"), ("marginal", None)]
)
def test_whatever_is_released_gets_its_card_and_its_report(
    tmp_path: Path, days: tuple[Path, Path, Path], query: str, method: str | None
) -> None:
    guarantee = {} if (query, method) == ("point", None) else {"epsilon": 1.0, "delta": 1e-3}
    config = Config(
        query=query, method=method, crowd=11, horizon=2, order=(1, 0), train_days=4, **guarantee,  # type: ignore[arg-type]
    )  # fmt: skip
    run = Run(tmp_path / "run", days[0], config, workers="serial")
    run.everything()
    stages = ["fit", "crowds", "design", "audit", "release", "card", "report"]
    assert run.did == [name for name in stages if guarantee or name not in ("design", "audit")]
    assert run.report.is_file()
    names = run.released["household"].unique().to_list()
    assert len(names) >= 22
    for document in ("card.md", "card.json", *(["card.yaml"] if guarantee else []), "public/report.html"):
        text = (tmp_path / "run" / document).read_text()
        assert not [name for name in names if name in text], document
    assert "Internal" in run.report.read_text()


def test_every_file_has_the_same_reason_for_who_is_left_out(finished: Path, days: tuple[Path, Path, Path]) -> None:
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
        assert set(waiting.values()) <= {WAITS}
        released = set(pl.read_parquet(finished / "released.parquet")["household"])
        assert not released & set(gone)
        assert released | set(gone) == set(quality["household"])
        fit = Run.open(finished).fit
        assert fit is not None
        assert dict(fit.reasons) == Counter(gone.values())
        assert fit.left_out == len(gone)


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, method="codebook", epsilon=6.0)], ids=["means", "codebook"])
def test_errors_against_what_came_are_those_of_all_shards(
    tmp_path: Path, days: tuple[Path, Path, Path], config: Config
) -> None:
    out = tmp_path / "run"
    run = go(out, days[0], replace(config, origin=EARLIER, train_days=7))
    parts = listing(out, "fit").parts
    assert len(parts) == 2
    curves = pl.concat([pl.read_parquet(part.beside("curves.parquet")) for part in parts]).sort("label")
    value, truth = curves["value"].to_numpy(), curves["truth"].to_numpy()
    assert run.card.fit.later_error == pytest.approx(float(np.abs(value - truth).mean()), rel=1e-12)
    figures = pl.read_parquet(out / "released.parquet").sort("household", "step")["kw"].to_numpy()
    assert run.card.release is not None
    assert run.card.release.later_error == pytest.approx(float(np.abs(figures - truth.ravel()).mean()), rel=1e-12)


def test_large_homes_are_questioned_in_a_file_and_not_among_simulated_ones() -> None:
    """Of 100,000 simulated homes two draw more than a home does; the demo of them is not refused."""
    from shoal.runs.meter_rows import ShardFacts
    from shoal.runs.stages.fit_stage import _refuse_implausible

    known = [ShardFacts(5, 0, (), 900_000_000, None, large=1)]
    _refuse_implausible(known, Config(), simulated=True)
    with pytest.raises(shoal.InputError, match="1 of 5 households draw more than a home"):
        _refuse_implausible(known, Config(), simulated=False)
