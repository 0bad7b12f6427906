"""The studies on homes that do not exist, small: what they find is what was put in."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import shoal
from shoal.cli.main import app
from shoal.studies.attackers import Boosted, Hits, curves, posterior, ranked, scored, weekly
from shoal.studies.fingerprints import fingerprint
from shoal.studies.histograms import told_apart, totals
from shoal.studies.publication import Release, gaussian, noisy
from shoal.studies.reidentification import INFORMED, OWN, _attacked, _hidden, _raw
from shoal.studies.rule import INDEPENDENT, METERED, UNKNOWN, Population, _cost, _told

pytest.importorskip("matplotlib", reason="pictures need matplotlib")
ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "swiss_residential_15min" / "swiss15_clean.parquet"


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_evidence", ROOT / "docs" / "make_evidence.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures(evidence: ModuleType) -> dict[str, dict[str, object]]:
    stored: dict[str, dict[str, object]] = json.loads(evidence.FIGURES.read_text(encoding="utf-8"))
    return stored


# ---------------------------------------------------------------------- attackers


def test_ties_are_decided_by_lot() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    first, ten = ranked(scores)
    assert first.tolist() == [0.5, 0.0, pytest.approx(1 / 3)]
    assert ten.tolist() == [1.0, 1.0, 1.0]
    hits = Hits.of(np.ones((2, 50)), np.ones((2, 50)))
    assert hits.top_1 == 1.0
    assert hits.top_1_interval[0] > 0.9


def test_fewer_rows_against_every_choice_of_them() -> None:
    draw = np.random.default_rng(1)
    scores = draw.standard_normal((13, 13)).round(1)
    scores[:, 7:] = scores[:, :6]  # rows that are the same
    first, ten = ranked(scores, 12)
    for home in range(13):
        chances = []
        for left_out in np.delete(np.arange(13), home):
            there = np.delete(scores[home], [home, left_out])
            above, alike = (there > scores[home, home]).sum(), (there == scores[home, home]).sum() + 1
            chances.append([(above == 0) / alike, np.clip((10 - above) / alike, 0.0, 1.0)])
        assert [first[home], ten[home]] == pytest.approx(np.mean(chances, axis=0))


def _homes(draw: np.random.Generator) -> tuple[list[NDArray[np.float64]], NDArray[np.float64], tuple[int, ...]]:
    usual = np.exp(draw.standard_normal((60, 1, 96)) * 0.5)
    weeks = [usual * np.exp(0.3 * draw.standard_normal((60, 7, 96))) for _ in range(5)]
    weekend = np.array([False] * 5 + [True] * 2)
    made = [fingerprint(week, weekend) for week in weeks]
    return weeks, np.stack([one for one, _ in made], axis=1), made[0][1]


def test_attackers_find_what_repeats_and_nothing_else() -> None:
    weeks, prints, ends = _homes(np.random.default_rng(0))
    tables = [(prints[:30, week], prints[:30, week + 1]) for week in range(3)]
    for attacker in (*weekly(tables, ends)[:2], Boosted(partial(weekly, ends=ends)).learned(tables)):
        scores = scored(attacker, prints[30:, 3], prints[30:, 4])
        assert ranked(scores)[0].mean() > 0.6
        assert ranked(scores[:, ::-1])[0].mean() < 0.2, "the row of another home"
    rows = np.log(np.stack([week[:, 0, 40:52] for week in weeks], axis=1))
    expected = [np.log(week[:, :, 40:52]).mean(axis=1) for week in weeks]
    known = [np.concatenate([prints[:, week], expected[week]], axis=1) for week in range(4)]
    tables = [(known[week][:30], rows[:30, week + 1]) for week in range(3)]
    for attacker in (curves(tables)[0], Boosted(curves).learned(tables)):
        assert ranked(scored(attacker, known[3][30:], rows[30:, 4]))[1].mean() > 0.6
    rows = prints[:, :, 24:36]  # what the fingerprint of the week before says, and no forecast
    tables = [(np.concatenate([prints[:30, w], np.zeros((30, 12))], axis=1), rows[:30, w + 1]) for w in range(3)]
    found = scored(curves(tables)[1], np.concatenate([prints[30:, 3], np.zeros((30, 12))], axis=1), rows[30:, 4])
    assert ranked(found)[1].mean() > 0.6


def test_rows_that_are_the_same_get_the_same_score() -> None:
    _, prints, ends = _homes(np.random.default_rng(2))
    rows = prints[:, 4].copy()
    rows[30:] = rows[:30]
    tables = [(prints[:30, week], prints[:30, week + 1]) for week in range(3)]
    for attacker in (weekly(tables, ends)[0], Boosted(partial(weekly, ends=ends)).learned(tables)):
        scores = scored(attacker, prints[:, 3], rows)
        assert (scores[:, 30:] == scores[:, :30]).all()


def test_the_posterior_against_all_assignments() -> None:
    from itertools import permutations

    draw = np.random.default_rng(3)
    likelihood = 2 * draw.standard_normal((4, 4))
    odds = np.zeros((4, 4))
    for rows in permutations(range(4)):
        odds[range(4), rows] += np.exp(likelihood[range(4), rows].sum())
    assert posterior(likelihood) == pytest.approx(odds / odds.sum(axis=1, keepdims=True), abs=1e-9)


@pytest.mark.parametrize(("kept", "caught"), [(1.0, False), (0.01, True)])
def test_a_leak_is_caught_and_a_promise_that_is_kept_is_not(kept: float, caught: bool) -> None:
    """Noise as calibrated, and a release that has only a hundredth of it under the same promise."""
    draw = np.random.default_rng(4)
    names = [f"home {i}" for i in range(60)]
    answers = [np.exp(draw.standard_normal((60, 3))) for _ in range(2)]
    known = [np.concatenate([draw.standard_normal((60, 2)), one], axis=1) for one in answers]
    rows, groups, likelihoods = [], [], []
    for number, one in enumerate(answers):
        graph = shoal.crowd_graph(one, size=10, labels=names)
        classes = shoal.GaussianClasses.deterministic(one, labels=names)
        white = shoal.calibrate(classes, graph, method="white", epsilon=1.0, delta=1e-5, scope="table")
        rows.append(one + kept * (noisy(white, one, number) - one))
        groups.append(np.asarray(graph.components, dtype=np.int64))
        likelihoods.append(gaussian(white, rows[-1], groups[-1]))
    release = Release("white noise", tuple(rows), tuple(groups), 1.0, 1e-5, 0.0, tuple(likelihoods))
    findings, fewer = _attacked(release, known, 0, False)
    assert fewer == []
    found = {one.attacker: one for one in findings}
    assert found[INFORMED].exceeds == found[OWN].exceeds == caught
    assert any(one.exceeds for one in findings) == caught


# ---------------------------------------------------------------------- studies


def test_small_versions_are_what_is_stored(evidence: ModuleType, figures: dict[str, dict[str, object]]) -> None:
    """Made again from the same seeds; a rank may fall otherwise where sums are rounded otherwise."""

    def compared(one: object, other: object, where: str) -> None:
        if isinstance(one, dict) and isinstance(other, dict):
            assert one.keys() == other.keys(), where
            for name in one:
                compared(one[name], other[name], f"{where} {name}")
        elif isinstance(one, list) and isinstance(other, list):
            assert len(one) == len(other), where
            for number, pair in enumerate(zip(one, other, strict=True)):
                compared(*pair, f"{where} {number}")
        elif isinstance(one, float) and isinstance(other, float):
            assert one == pytest.approx(other, rel=1e-3, abs=0.1), where
        else:
            assert one == other, where

    compared(json.loads(json.dumps(evidence.small())), figures["small"], "small")


def test_the_page_is_what_is_stored(evidence: ModuleType, figures: dict[str, dict[str, object]]) -> None:
    assert evidence.PAGE.read_text(encoding="utf-8") == evidence.page(), "python docs/make_evidence.py"
    assert evidence.reidentification(figures["reidentify"]).exceeded == ()


def test_printed_bounds_are_not_below_what_is_certified(
    evidence: ModuleType, figures: dict[str, dict[str, object]]
) -> None:
    study = evidence.reidentification(figures["reidentify"])
    some = [one for one in (*study.findings, *study.by_size, *study.by_weeks) if one.bound is not None]
    assert some
    for one in some:
        sign, number, unit = _hidden(one)[1].split()
        assert (sign, unit) == ("≤", "%")
        assert Fraction(number) / 100 >= Fraction(one.bound)


@pytest.mark.skipif(not DATA.is_file(), reason="the Swiss homes are not here")
def test_raw_readings_of_real_homes_are_found_as_often_as_is_stored(
    evidence: ModuleType, figures: dict[str, dict[str, object]]
) -> None:
    from shoal.sources.meters.window import as_readings
    from shoal.studies.reidentification import _weeks

    study = evidence.reidentification(figures["reidentify"])
    _, weeks, _ = _weeks(as_readings(shoal.read_meters(DATA)))
    made = [fingerprint(week, weekend) for week, weekend in weeks]
    prints, last = np.stack([one for one, _ in made], axis=1), len(weeks)
    (found, profile), _ = _raw(prints, made[0][1], range(last - len(study.origins), last), 1, 0, False)
    stored = {one.attacker: one for one in study.findings if one.what == "raw readings"}
    for one in (found, profile):
        assert one.everywhere.top_1 == pytest.approx(stored[one.attacker].everywhere.top_1, abs=0.005)


def test_reidentify(tmp_path: Path, evidence: ModuleType, figures: dict[str, dict[str, object]]) -> None:
    study = evidence.reidentification(figures["small"]["reidentify"])
    by = {(one.what, one.attacker.split()[0]): one for one in study.findings}
    raw, curve, crowds = by["raw readings", "features,"], by["unprotected forecasts", "own"], by["crowds", "own"]
    assert raw.everywhere.top_1_interval[0] > 0.5
    assert curve.everywhere.top_1_interval[0] > 0.5
    assert crowds.everywhere.top_1 < 0.3
    for one in study.findings:
        if one.what == "crowds":
            assert one.inside is not None
            assert one.inside.top_1 <= (one.bound or 0.0) + 1e-12  # rows of a crowd are the same: a guess
    assert study.exceeded == ()
    known = [one for one in study.by_weeks if one.what == "unprotected forecasts"]
    assert [one.weeks for one in known] == [1, 2, 4]
    assert known[-1].everywhere.top_1 == 1.0, "whoever knows all that a forecast is made of makes it"
    assert {path.name for path in study.save(tmp_path)} == {
        "reidentify.md", "reidentify.json", "reidentify.png", "reidentify-sizes.png",
    }  # fmt: skip
    stored = json.loads((tmp_path / "reidentify.json").read_text())
    assert stored["homes"] == 24
    assert evidence.reidentification(stored) == study


def test_the_command_ends_with_4_where_a_bound_is_exceeded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    evidence: ModuleType,
    figures: dict[str, dict[str, object]],
) -> None:
    kept = evidence.reidentification(figures["small"]["reidentify"])
    (books,) = (o for o in kept.findings if o.what.startswith("codebooks") and o.attacker == INFORMED)
    broken = replace(kept, findings=(replace(books, bound=0.1),))
    assert broken.exceeded == broken.findings
    monkeypatch.setattr(shoal, "read_meters", lambda file: None)
    for study, code in ((kept, 0), (broken, 4)):
        monkeypatch.setattr(shoal, "reidentify", lambda readings, study=study, **settings: study)
        monkeypatch.setattr(type(study), "save", lambda study, out: [])
        shown = CliRunner().invoke(app, ["study", "reidentify", "meters.csv", "--out", str(tmp_path), "--json"])
        assert shown.exit_code == code
        assert json.loads(shown.stdout)["homes"] == 24


def test_what_reidentify_refuses() -> None:
    readings = shoal.simulate_meters(24, 37, step_minutes=60)
    with pytest.raises(shoal.InputError, match="too few"):
        shoal.reidentify(readings, crowd=20)
    with pytest.raises(shoal.InputError, match="weeks"):
        shoal.reidentify(shoal.simulate_meters(24, 12, step_minutes=60), crowd=6)


def test_rule(tmp_path: Path) -> None:
    readings = shoal.simulate_meters(40, 21, step_minutes=60)
    study = shoal.price_rule(readings, members=[5, 15], days=[1, 30], draws=12, resamples=2)
    rows = {(row.members, row.share, row.days, row.view): row for row in study.rows}
    assert (5, 0.15, 1, INDEPENDENT) not in rows  # five members cannot all be below 15 %
    few, many = rows[5, None, 1, INDEPENDENT], rows[5, None, 30, INDEPENDENT]
    assert many.delta > few.delta
    assert many.tpr > few.tpr
    assert rows[5, None, 30, "days correlated, weather known"].delta <= many.delta + 1e-9
    assert rows[5, None, 30, UNKNOWN].delta < rows[5, None, 30, "days correlated, weather known"].delta
    assert rows[15, None, 1, METERED].delta == pytest.approx(rows[15, None, 1, INDEPENDENT].delta, abs=0.15)
    costs = {(one.members, one.share, one.days): one for one in study.costs}
    assert costs[15, None, 1].mean < costs[5, None, 1].mean < costs[5, None, 1].noise < costs[5, None, 30].noise
    assert len(study.save(tmp_path)) == 3
    with pytest.raises(shoal.InputError, match="too few"):
        shoal.price_rule(readings, members=[50])


def test_rule_against_a_closed_form() -> None:
    """Equal variances: days are a Gaussian shift, and δ is that of its size; independent days add squares."""
    kwh = np.array([[2.0], [4.0], [6.0]]) + np.array([1.0, -1.0, 1.0, -1.0])
    people = Population(kwh, np.ones(3))
    people.__dict__["shared"] = np.ones(4)  # nothing is shared
    group = (np.array([2]), 0, 1)
    std = float(np.sqrt(2 * np.var([1.0, -1.0, 1.0, -1.0], ddof=1)))
    for days in (1, 9):
        ((deltas, powers),) = _told([(people, [group])], INDEPENDENT, days, 1.0)
        assert deltas[0] == pytest.approx(shoal.gaussian_delta(2.0 * np.sqrt(days), std, 1.0), rel=1e-9)
        assert powers[0] > 0.01


def test_certified_totals_cost_what_the_mechanisms_say() -> None:
    kwh = np.random.default_rng(5).gamma(4.0, 3.0, (7, 20))
    cost = _cost(kwh, [(np.arange(5), 5, 6)], 6, None, 20, 1.0, 1e-5)
    totals_without = kwh.sum(axis=0) - kwh
    names = [f"without {i}" for i in range(7)]
    classes, graph = shoal.GaussianClasses.deterministic(totals_without, names), shoal.NeighborGraph.complete(names)
    percent = 100.0 / (kwh.mean() * 6)
    mean = shoal.calibrate(classes, graph, method="mean", epsilon=1.0, delta=1e-5)
    assert cost.mean == pytest.approx(percent * np.sqrt(mean.rho.mean()), rel=1e-6)
    white = shoal.calibrate(classes, graph, method="white", epsilon=1.0, delta=1e-5)
    assert cost.noise == pytest.approx(percent * np.sqrt(white.rho.max()), rel=1e-3)


def test_histograms_against_gaussian_laws() -> None:
    """Days that are Gaussian but for their number: what histograms give is what the accounting gives."""
    from scipy.special import ndtri

    quantiles = ndtri((np.arange(400) + 0.5) / 400)
    quantiles /= quantiles.std()
    p, q = totals(np.stack([2.0 * quantiles, quantiles]), 1.0 + 0.8 * quantiles, 5.0 + quantiles)
    laws = shoal.GaussianClasses([[1.0], [5.0]], [[[5.64]], [[6.0]]])
    graph = shoal.NeighborGraph.complete(laws.labels)
    for days in (1, 30):
        delta, power = told_apart(p, q, days, 1.0, 0.01)
        exact = shoal.edge_deltas([laws] * days, graph, 1.0)[0, 0]
        assert delta == pytest.approx(exact, rel=0.02)
        assert power == pytest.approx(shoal.tpr_at_fpr([laws] * days, graph, 0.01)[0, 0], rel=0.02)
    same = told_apart(p, p, 30, 1.0, 0.01)
    assert same == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.01, abs=1e-9))
    assert told_apart(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5]), 2, 1.0, 0.01)[0] == pytest.approx(0.75)
