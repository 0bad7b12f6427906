"""The page of evidence is what is stored, a small version is made again, and the rule study against closed forms."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import shoal
from evidence import page, storage
from evidence.histograms import told_apart, totals
from evidence.homes import SWISS
from evidence.reidentification import AttackStudy, Hits
from evidence.rule import INDEPENDENT, METERED, UNKNOWN, Population, _cost, _told, price_rule
from evidence.tradeoff import tradeoff_curve
from shoal.accounting.deterministic import gaussian_delta
from shoal.product.studies.attackers import rank_rows
from shoal.product.studies.meter_attack import Weeks, raw_scores

pytest.importorskip("matplotlib", reason="pictures need matplotlib")


@pytest.fixture(scope="module")
def figures() -> dict[str, dict[str, object]]:
    return {name: storage.stored(name) for name in ("reidentify", "small")}


# ---------------------------------------------------------------------- studies


def test_small_versions_are_what_is_stored(figures: dict[str, dict[str, object]]) -> None:
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

    stored = {name: part for name, part in figures["small"].items() if name not in ("made", "version")}
    compared(json.loads(json.dumps(page.small())), stored, "small")


def test_the_page_is_what_is_stored(figures: dict[str, dict[str, object]]) -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "python -m evidence page"
    assert page.stored_as(AttackStudy, figures["reidentify"]).exceeded == ()


def test_the_promise_says_what_averages_show() -> None:
    """The default's page has the stored figures for absence, level of use and heating of Swiss homes."""
    promise = " ".join((page.PAGE.parent / "promise.md").read_text(encoding="utf-8").split())
    for word in ("absence", "level of use", "heating_type"):
        every = [one for one in storage.stored("three")["swiss"]["findings"] if one["release"] == "averages"]
        (one,) = (one for one in every if one["what"].startswith(word) and one["measure"] == "area under the curve")
        low, high = one["interval"]
        assert f"{one['figure']:.2f} ({low:.2f} to {high:.2f})" in promise, word
        assert (low > 0.5) == (word != "heating_type")


def test_printed_bounds_are_not_below_what_is_certified(figures: dict[str, dict[str, object]]) -> None:
    study = page.stored_as(AttackStudy, figures["reidentify"])
    some = [one for one in (*study.findings, *study.by_size, *study.by_weeks) if one.bound is not None]
    assert some
    for one in some:
        sign, number, unit = one.cells[5].split()
        assert (sign, unit) == ("≤", "%")
        assert Fraction(number) / 100 >= Fraction(one.bound)


@pytest.mark.skipif(not SWISS.there, reason="the Swiss homes are not here")
def test_raw_readings_of_real_homes_are_found_as_often_as_is_stored(figures: dict[str, dict[str, object]]) -> None:
    study = page.stored_as(AttackStudy, figures["reidentify"])
    weeks = Weeks.of_readings(SWISS.read(), 3, len(study.origins), study.crowd)
    fingerprints, ends = weeks.fingerprints
    scores = [raw_scores(fingerprints, ends, week, 1, 0) for week in weeks.judged]
    stored = {one.attacker: one for one in study.findings if one.what == "raw readings"}
    for attacker in scores[0]:
        hits = Hits.over([rank_rows(one[attacker]) for one in scores])
        assert hits.top_1 == pytest.approx(stored[attacker].everywhere.top_1, abs=0.005)


def test_rule(tmp_path: Path) -> None:
    readings = shoal.simulate_meters(40, 21, step_minutes=60)
    study = price_rule(readings, members=[5, 15], days=[1, 30], draws=12, resamples=2)
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
        price_rule(readings, members=[50])


def test_rule_against_a_closed_form() -> None:
    """Equal variances: days are a Gaussian shift, and δ is that of its size; independent days add squares."""
    kwh = np.array([[2.0], [4.0], [6.0]]) + np.array([1.0, -1.0, 1.0, -1.0])
    people = Population(kwh, np.ones(3))
    people.__dict__["shared"] = np.ones(4)  # nothing is shared
    group = (np.array([2]), 0, 1)
    std = float(np.sqrt(2 * np.var([1.0, -1.0, 1.0, -1.0], ddof=1)))
    for days in (1, 9):
        ((deltas, powers),) = _told([(people, [group])], INDEPENDENT, days, 1.0)
        assert deltas[0] == pytest.approx(gaussian_delta(2.0 * np.sqrt(days), std, 1.0), rel=1e-9)
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
        assert power == pytest.approx(tradeoff_curve([laws] * days, "0", "1", 0.01).tpr_upper[0], rel=0.02)
    same = told_apart(p, p, 30, 1.0, 0.01)
    assert same == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.01, abs=1e-9))
    assert told_apart(np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5]), 2, 1.0, 0.01)[0] == pytest.approx(0.75)


@pytest.mark.slow
def test_three_questions_about_a_class_table_are_made_again() -> None:
    """All but the readings' promise, whose noise is drawn from the cryptographic source."""
    from evidence.inference import class_tables, table_study

    stored = storage.stored("three")["diabetes"]
    again = json.loads(json.dumps(table_study(*class_tables()["diabetes"])))
    for part in (stored, again):
        part["findings"] = [one for one in part["findings"] if one["release"] != "readings"]
    for one, other in zip(stored["findings"], again["findings"], strict=True):
        assert one["what"] == other["what"]
        if one["release"] == "raw rows":  # crowds may fall otherwise where sums are rounded otherwise
            assert other["figure"] == pytest.approx(one["figure"], abs=1e-3), one["what"]
            assert other["interval"] == pytest.approx(one["interval"], abs=5e-3), one["what"]
        else:
            assert other["figure"] == pytest.approx(one["figure"], abs=0.05), one["what"]
    for which in ("with", "without"):
        share = [part["diversity"][which]["known_share"] for part in (stored, again)]
        assert share[0] == pytest.approx(share[1], abs=0.03), which
