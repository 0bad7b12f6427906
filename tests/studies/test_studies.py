"""The studies on homes that do not exist, small: what they find is what was put in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.studies.fingerprints import Expectation, Hits, fingerprint, nearest, ranked, within_metric

MATPLOTLIB = pytest.importorskip("matplotlib", reason="pictures need matplotlib")


def test_ties_are_decided_by_lot() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    first, ten = ranked(scores)
    assert first.tolist() == [0.5, 0.0, pytest.approx(1 / 3)]
    assert ten.tolist() == [1.0, 1.0, 1.0]
    hits = Hits.of(np.ones(50), np.ones(50))
    assert hits.top_1 == 1.0
    assert hits.top_1_interval[0] > 0.9


def test_plain_attackers_find_what_repeats() -> None:
    draw = np.random.default_rng(0)
    usual = np.exp(draw.standard_normal((40, 1, 96)) * 0.5)
    weeks = [usual * np.exp(0.3 * draw.standard_normal((40, 7, 96))) for _ in range(4)]
    weekend = np.array([False] * 5 + [True] * 2)
    prints = np.stack([fingerprint(week, weekend) for week in weeks], axis=1)
    scores = nearest(prints[20:, 2], prints[20:, 3], within_metric(prints[:20]))
    assert ranked(scores)[0].mean() > 0.9
    strangers = nearest(prints[20:, 2], prints[20:, 3][::-1], within_metric(prints[:20]))
    assert ranked(strangers)[0].mean() < 0.1
    curves = np.log(np.stack([week[:, 0, 40:52] for week in weeks], axis=1))
    known = Expectation.learned(prints[:20, :3].reshape(60, -1), curves[:20, 1:].reshape(60, -1))
    assert ranked(known.scores(prints[20:, 2], curves[20:, 3]))[1].mean() > 0.6


def test_reidentify(tmp_path: Path) -> None:
    readings = shoal.simulate_meters(24, 37, step_minutes=60)
    study = shoal.reidentify(readings, crowd=6, order=(1, 1), train_days=14, horizon=4, origins=2)
    by = {(one.what, one.attacker.split()[0]): one for one in study.findings}
    raw, crowds = by["raw readings", "features,"], by["crowds", "expected"]
    assert raw.everywhere.top_1_interval[0] > 0.5
    assert crowds.everywhere.top_1_interval[0] < 0.2
    assert crowds.inside is not None
    assert crowds.inside.top_1 <= (crowds.bound or 0.0) + 1e-12  # rows of a crowd are the same: a guess
    assert study.exceeded == ()
    again = shoal.reidentify(readings, crowd=6, order=(1, 1), train_days=14, horizon=4, origins=2, learned=False)
    assert [f for f in again.findings] == [f for f in study.findings if "boosting" not in f.attacker]  # noqa: C416
    written = study.save(tmp_path)
    assert {path.name for path in written} == {"reidentify.md", "reidentify.json", "reidentify.png"}
    assert json.loads(written[1].read_text())["homes"] == 24
    with pytest.raises(shoal.InputError, match="too few"):
        shoal.reidentify(readings, crowd=20)
    with pytest.raises(shoal.InputError, match="weeks"):
        shoal.reidentify(shoal.simulate_meters(24, 12, step_minutes=60), crowd=6)


def test_rule(tmp_path: Path) -> None:
    readings = shoal.simulate_meters(40, 21, step_minutes=60)
    study = shoal.price_rule(readings, members=[5, 15], days=[1, 30], draws=20)
    rows = {(row.members, row.share, row.days, row.view): row for row in study.rows}
    view = "days independent, weather known"
    assert (5, 0.15, 1, view) not in rows  # five members cannot all be below 15 %
    few, many = rows[5, None, 1, view], rows[5, None, 30, view]
    assert many.delta > few.delta
    assert many.tpr > few.tpr
    assert rows[15, None, 1, view].error < few.error
    assert rows[5, None, 30, "days correlated, weather known"].delta <= many.delta + 1e-9
    assert len(study.save(tmp_path)) == 3
    with pytest.raises(shoal.InputError, match="too few"):
        shoal.price_rule(readings, members=[50])


def test_rule_against_a_closed_form() -> None:
    """Equal variances: one day is a Gaussian shift, and δ is that of its size."""
    from shoal.studies.rule import _priced

    means, left = np.array([1.0, 2.0, 3.0]), np.tile([[1.0, -1.0, 1.0, -1.0]], (3, 1))
    row = _priced(means, left, [(np.array([2]), 0, 1)], 2, None, 1, "", 0.0, 1.0)
    variance = 2 * np.var([1.0, -1.0, 1.0, -1.0], ddof=1)
    assert row.delta == pytest.approx(float(shoal.gaussian_delta(1.0, float(np.sqrt(variance)), 1.0)), rel=1e-9)
