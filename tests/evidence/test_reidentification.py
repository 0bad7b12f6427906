"""The study of re-identification: leaks are caught, parts are kept, and more weeks find more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import shoal
from evidence import page
from evidence.reidentification import (
    INFORMED,
    AttackStudy,
    Parts,
    Release,
    attacked,
    findings_of,
    gaussian,
    naming_bound,
    noisy,
    posterior,
    ranked_among,
)
from evidence.sizes_picture import sizes_picture
from evidence.storage import stored
from shoal.product.studies.meter_attack import OWN


def test_fewer_rows_against_every_choice_of_them() -> None:
    draw = np.random.default_rng(1)
    scores = draw.standard_normal((13, 13)).round(1)
    scores[:, 7:] = scores[:, :6]  # rows that are the same
    first, ten = ranked_among(scores, 12)
    for home in range(13):
        chances = []
        for left_out in np.delete(np.arange(13), home):
            there = np.delete(scores[home], [home, left_out])
            above, alike = (there > scores[home, home]).sum(), (there == scores[home, home]).sum() + 1
            chances.append([(above == 0) / alike, np.clip((10 - above) / alike, 0.0, 1.0)])
        assert [first[home], ten[home]] == pytest.approx(np.mean(chances, axis=0))


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
    graph = shoal.crowd_graph(answers[0], size=10, labels=names)
    crowds = np.asarray(graph.components, dtype=np.int64)
    rows, likelihoods = [], []
    for number, one in enumerate(answers):
        classes = shoal.GaussianClasses.deterministic(one, labels=names)
        white = shoal.calibrate(classes, graph, method="white", epsilon=1.0, delta=1e-5, scope="table")
        rows.append(one + kept * (noisy(white, one, number) - one))
        likelihoods.append(gaussian(white, rows[-1], crowds))
    bound = naming_bound(crowds, 1.0, 1e-5)
    release = Release("white noise", tuple(rows), crowds, bound, 0.0, tuple(likelihoods))
    findings = findings_of(release, [attacked(release, known, origin, 0, False) for origin in range(2)])
    found = {one.attacker: one for one in findings}
    assert found[INFORMED].exceeds == found[OWN].exceeds == caught
    assert any(one.exceeds for one in findings) == caught


def test_whoever_knows_all_that_a_forecast_is_made_of_makes_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    study: AttackStudy = page.stored_as(AttackStudy, stored("small")["reidentify"])
    known = [one for one in study.by_weeks if one.what == "unprotected forecasts"]
    assert [one.weeks for one in known] == [1, 2, 4]
    assert known[-1].everywhere.top_1 == 1.0
    assert study.exceeded == ()
    assert sizes_picture(study, tmp_path / "sizes.png").stat().st_size > 10_000


def test_parts_are_made_once(tmp_path: Path) -> None:
    """What was done before a study was stopped is read again; a part is there whole or not at all."""
    calls = []

    def make() -> dict[str, np.ndarray]:
        calls.append(1)
        return {"values, of one": np.arange(3.0)}

    def stopped() -> dict[str, np.ndarray]:
        raise KeyboardInterrupt

    shares: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        Parts(tmp_path, None, 2).get("other", stopped)
    for _ in range(2):
        parts = Parts(tmp_path, lambda text, share: shares.append(share), 2)
        for _ in range(2):
            assert parts.get("one", make)["values, of one"].tolist() == [0.0, 1.0, 2.0]
    assert (calls, shares) == ([1], [0.0, 0.0])
    assert [path.name for path in tmp_path.iterdir()] == ["one.npz"]
