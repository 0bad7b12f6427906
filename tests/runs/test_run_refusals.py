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
from shoal.runs.config import Config
from shoal.runs.run import Run
from shoal.runs.stages import audit_stage, card_stage, design_stage, report_stage
from shoal.runs.stages.fit_stage import TRUTH
from shoal.sources.meters.forecast import Forecasts
from shoal.sources.meters.traces import power_accuracy

#: Seven hours before the last reading: what came later is known.
EARLIER = "2024-01-16T17:00"
LOG = replace(CONFIG, scale="log", horizon=2, search=1)


@pytest.fixture(scope="module")
def logarithmic(tmp_path_factory: pytest.TempPathFactory, days: tuple[Path, Path, Path]) -> Path:
    """A run with forecasts, to be designed for in ln kW."""
    out = tmp_path_factory.mktemp("log") / "run"
    go(out, days[0], LOG, "fit")
    return out


def designed(out: Path, **settings: object) -> Run:
    run = Run(out, config=LOG, workers="serial", **settings)
    run.do("design")
    return run


@pytest.mark.parametrize("method", ["white", "paper"])
def test_figures_off_by_more_than_any_load_are_refused_before_the_ledger(logarithmic: Path, method: str) -> None:
    """Noise that hides in ln kW is far above any load in kW, and may be above any number."""
    run = designed(logarithmic, method=method, delta=1e-5)
    assert run.design is not None
    assert run.design.meaningful
    assert not run.design.accuracy.beside_largest <= 10
    with pytest.raises(shoal.UnreachableError, match="10 times the largest forecast"):
        run.do("release")
    assert not (logarithmic / "ledger.db").exists()
    assert run.state.releasing is None  # nothing was begun: other settings may follow


def test_the_crowds_own_curve_where_a_search_errs_more_in_kilowatts() -> None:
    """The search counts errors in ln kW, where noise costs little; exp makes it dear."""
    rng = np.random.default_rng(3)
    classes = shoal.GaussianClasses.deterministic(rng.uniform(-2.0, 2.0, (6, 2)), labels=list("abcdef"))
    graph = shoal.NeighborGraph.complete(classes.labels)
    searched = replace(shoal.calibrate(classes, graph, "white", 5.0, 1e-5), method="transport")  # of a bad search
    curve = shoal.calibrate(classes, graph, "mean", 5.0, 1e-5)
    shard = SimpleNamespace(accuracy=lambda mechanism: power_accuracy(mechanism, "log"))
    for objective, error in (("mean", "rmse"), ("worst", "rmse_largest")):
        chosen = design_stage.cheaper(searched, curve, shard, objective)  # type: ignore[arg-type]
        errors = [float(getattr(power_accuracy(one, "log"), error)) for one in (chosen, searched, curve)]
        assert errors[0] == min(errors) < max(errors)
        assert chosen is curve
        assert design_stage.cheaper(curve, searched, shard, objective) is curve  # type: ignore[arg-type]
    assert curve.certificate.delta_upper <= 1e-5


def test_a_search_is_held_against_the_curve(logarithmic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run the worse of the two is not written."""
    forecasts, real, asked = listing(logarithmic, "fit").parts[0].path, design_stage.calibrate, []

    def bad(classes: object, graph: object, method: str, *rest: object, **options: object) -> shoal.Mechanism:
        asked.append(method)
        made = real(classes, graph, "white" if method == "transport" else method, *rest, **options)  # type: ignore[arg-type]
        return replace(made, method=method)

    monkeypatch.setattr(design_stage, "calibrate", bad)
    out = str(tmp_path / "m.shoal")
    config = Config(scale="log", method="transport", epsilon=5.0, search=1)
    assert design_stage.do(forecasts, config, None, out).method == "mean"
    assert asked == ["transport", "mean"]
    assert shoal.load(out).method == "mean"  # type: ignore[union-attr]


def test_a_larger_epsilon_or_delta_costs_no_more_in_kilowatts(tmp_path: Path, days: tuple[Path, Path, Path]) -> None:
    out = tmp_path / "run"
    config = replace(CONFIG, crowds=None, horizon=2)
    go(out, days[0], config, "fit")
    errors = []
    for epsilon, delta in ((0.5, 1e-6), (0.5, 1e-3), (4.0, 1e-3), (9.0, 1e-3)):
        run = Run(out, config=config, workers="serial", epsilon=epsilon, delta=delta)
        run.do("design")
        assert run.design is not None
        errors.append(run.design.accuracy.rmse)
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.9 * errors[0]  # a codebook: ε does buy something


@pytest.mark.parametrize("scope", ["answer", "table"])
@pytest.mark.parametrize("query", ["point", "trajectory", "marginal"])
def test_every_design_can_be_described(logarithmic: Path, tmp_path: Path, query: str, scope: str) -> None:
    fit = Run.open(logarithmic).fit
    assert fit is not None
    forecasts = listing(logarithmic, "fit").parts[0].path
    for unit in ("kw", "log") if query == "point" else ("log",):
        for method in ("none", "white", "paper", "center", "mean", *(["codebook"] if unit == "kw" else [])):
            delta, rho = (1e-3, None) if method == "codebook" else (None, 1e3 if method == "white" else 0.3)
            config = Config(
                query=query, scale=unit, method=method, epsilon=2.0, delta=delta, rho=rho, search=1, scope=scope,
                objective="worst" if method == "center" else "mean",
            )  # fmt: skip
            card_stage.rehearse(fit, design_stage.do(forecasts, config, None, str(tmp_path / "m.shoal")), None)


def test_what_cannot_be_printed_is_not_charged(designed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: ReleaseCard) -> str:
        raise shoal.InputError("card: no words")

    with monkeypatch.context() as patch:
        patch.setattr(ReleaseCard, "to_yaml", fails)
        with pytest.raises(shoal.InputError, match="no words"):
            opened(designed).do("release")
    assert not (designed / "ledger.db").exists()


def test_a_whole_run_is_attacked_before_it_is_charged(designed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise shoal.InputError("audit: not today")

    with monkeypatch.context() as patch:
        patch.setattr(audit_stage, "stage", fails)
        with pytest.raises(shoal.InputError, match="not today"):
            opened(designed).everything()
    assert not (designed / "ledger.db").exists()


QUERIES = [
    ("point", "log", "answer", "mean"),
    ("trajectory", "kw", "table", "center"),
    ("marginal", "kw", "table", None),
]


@pytest.mark.parametrize(("query", "scale", "scope", "method"), QUERIES)
def test_whatever_is_released_gets_its_card_and_its_report(
    tmp_path: Path, days: tuple[Path, Path, Path], query: str, scale: str, scope: str, method: str | None
) -> None:
    config = Config(
        query=query, scale=scale, scope=scope, method=method, crowd=11, horizon=2, order=(1, 0), train_days=4,
        audit_groups=1, audit_samples=100, search=1, delta=1e-3, public=True,
    )  # fmt: skip
    run = Run(tmp_path / "run", days[0], config, workers="serial")
    run.everything()
    assert run.did == ["fit", "design", "audit", "release", "card", "report"]
    assert run.card.meaningful
    assert run.report.is_file()
    names = run.released["household"].unique().to_list()
    assert len(names) >= 22
    for document in ("card.md", "card.json", "card.yaml", "public/report.html"):
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
        told = quality.filter(pl.col("verdict") == "left out")
        assert dict(zip(told["household"], told["reason"], strict=True)) == gone != {}
        released = set(pl.read_parquet(finished / "released.parquet")["household"])
        assert not released & set(gone)
        assert released | set(gone) == set(quality["household"])
        fit = Run.open(finished).fit
        assert fit is not None
        assert dict(fit.reasons) == Counter(gone.values())
        assert fit.left_out == len(gone)


def test_errors_against_what_came_are_those_of_all_shards_or_say_whose(
    tmp_path: Path, days: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    run = go(out, days[0], replace(CONFIG, crowds=None, epsilon=6.0, origin=EARLIER, train_days=7))
    parts = listing(out, "design").pairs
    assert len(parts) == 2
    off = [np.abs(Forecasts.load(f.path).power - np.load(f.beside(TRUTH))).ravel() for _, f in parts]
    assert run.card.fit.later_error == pytest.approx(float(np.concatenate(off).mean()), rel=1e-12)
    figures = pl.read_parquet(out / "released.parquet").sort("household", "step")["released_kw"].to_numpy()
    names = np.concatenate([np.array(Forecasts.load(f.path).households) for _, f in parts])
    truth = np.concatenate([np.load(f.beside(TRUTH)) for _, f in parts])[np.argsort(names)].ravel()
    assert run.card.release is not None
    assert run.card.release.later_error == pytest.approx(float(np.abs(figures - truth).mean()), rel=1e-12)
    # One group of a codebook on the page: its errors are not those of all.
    assert run.design is not None
    assert run.design.method == "codebook"
    monkeypatch.setattr(report_stage, "LABELS", 1)
    run.do("report")
    assert f"of the 1 of {run.design.groups} groups that are hardest to hide in" in run.report.read_text()
