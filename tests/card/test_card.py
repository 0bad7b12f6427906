"""The release card: its figures are those of the accounting, on the safe side, and it says what it should."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from card_cases import card_of

import shoal
from shoal.product.card.facts import MEANINGLESS, DesignFacts
from shoal.product.card.render import public_page
from shoal.product.sources.meters.predictive_laws import power_accuracy


def family(n: int = 4, k: int = 3) -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    rng = np.random.default_rng(8)
    factors = rng.standard_normal((n, k, k + 2)) / np.sqrt(k)
    labels = [f"home |{i}`" for i in range(n)]
    classes = shoal.GaussianClasses(rng.standard_normal((n, k)), factors @ np.swapaxes(factors, 1, 2), labels)
    return classes, shoal.NeighborGraph.complete(labels)


@pytest.fixture(scope="module")
def strong() -> shoal.Mechanism:
    classes, graph = family()
    return shoal.design(classes, graph, "transport", 1.0, 0.95 * shoal.perfect_rho(classes, graph))


@pytest.fixture(scope="module")
def weak() -> shoal.Mechanism:
    return shoal.design(*family(), "white", 1.0, 0.05)


def test_the_card_states_the_certificate_and_never_less(strong: shoal.Mechanism) -> None:
    card = card_of(strong, noun="household").to_dict()
    claim, certificate = card["guarantee"], strong.certificate
    assert certificate.delta_upper <= claim["delta"] <= 1.001 * certificate.delta_upper
    assert claim["finite_precision"] >= certificate.finite_precision > 0
    assert claim["scope"] == certificate.scope == "answer"
    table = strong.certificate_for("table").delta_upper
    assert claim["delta_whole_table"] >= table >= claim["delta_one_row"] * (1 - 1e-3)
    stated, curve = np.array(card["curve"]["delta"]), strong.released_curve(np.array(card["curve"]["epsilon"]))
    assert (stated >= np.minimum.accumulate(curve.delta_upper)).all()
    assert (np.diff(stated) <= 0).all()
    risk = shoal.identification_risk(strong.output, strong.graph, seed=0)
    assert card["identification"]["success_upper"] >= risk.success_upper


def test_a_large_delta_is_called_no_guarantee(strong: shoal.Mechanism, weak: shoal.Mechanism) -> None:
    assert weak.certificate.delta_upper > MEANINGLESS > strong.certificate.delta_upper
    card = card_of(weak)
    assert not card.meaningful
    assert "No meaningful guarantee" in card.to_markdown()
    good = card_of(strong)
    assert good.meaningful
    assert "meaningful" not in good.to_markdown()


def test_what_is_said_of_each_query(strong: shoal.Mechanism) -> None:
    assert not card_of(strong, query="as_in_paper").meaningful
    drawn = card_of(strong, query="trajectory")
    assert "not in the figures" in drawn.to_markdown()
    assert "not in the figures" not in card_of(strong, query="point").to_markdown()
    with pytest.raises(shoal.InputError, match="query"):
        card_of(strong, query="guess")


def test_accuracy_is_that_of_simulated_releases(strong: shoal.Mechanism) -> None:
    found = card_of(strong).design.accuracy
    rng = np.random.default_rng(0)
    errors = []
    for i, label in enumerate(strong.classes.labels):
        q = rng.multivariate_normal(strong.classes.means[i], strong.classes.covs[i], 40_000)
        errors.append(np.asarray(strong.sample(q, label, seed=i)) - q)
    squares = np.array([(e**2).mean(axis=0) for e in errors])
    assert found.rmse_by_entry == pytest.approx(np.sqrt(squares.mean(axis=0)), rel=0.02)
    assert found.rmse == pytest.approx(np.sqrt(squares.mean()), rel=0.02)
    assert found.bias_by_entry == pytest.approx(np.mean(errors, axis=(0, 1)), abs=0.02)


def test_accuracy_in_power_of_forecasts() -> None:
    readings = shoal.simulate_meters(6, 16, seed=1)
    forecasts = shoal.forecast(readings, order=(2, 1), horizon=3, season="day")
    graph = shoal.NeighborGraph.complete(forecasts.households)
    mechanism = shoal.design(forecasts.classes("point"), graph, "additive", 1.0, 0.5, iterations=20)
    found = power_accuracy(mechanism)
    assert found.unit == "kW"
    true = forecasts.to_power(forecasts.log_mean)
    released = np.stack(
        [
            forecasts.to_power(np.asarray(mechanism.sample(np.tile(q, (40_000, 1)), name, seed=i)))
            for i, (q, name) in enumerate(zip(forecasts.log_mean, forecasts.households, strict=True))
        ]
    )
    rmse = np.sqrt(((released - true[:, None, :]) ** 2).mean(axis=(0, 1)))
    assert found.rmse_by_entry == pytest.approx(rmse, rel=0.1)


def test_json_and_digest(strong: shoal.Mechanism, weak: shoal.Mechanism) -> None:
    card = card_of(strong)
    assert json.loads(card.to_json()) == card.to_dict()
    assert card.digest == card_of(strong).digest
    assert card.digest != card_of(weak).digest
    assert card.digest in card.to_markdown()


@pytest.mark.parametrize(("members", "told"), [(2, False), (9, False), (10, True)])
def test_errors_by_step_are_told_of_crowds_only(members: int, told: bool) -> None:
    """A mean error and a mean square are two equations: with one released answer they give back a group of two."""
    rng = np.random.default_rng(4)
    classes = shoal.GaussianClasses.deterministic(rng.standard_normal((members, 3)))
    graph = shoal.NeighborGraph.complete(classes.labels)
    card = card_of(shoal.calibrate(classes, graph, "center", 1.0, 1e-6))
    found = card.to_dict()["accuracy"]
    assert (found["rmse_by_step"] is not None) is told
    assert (found["bias_by_step"] is not None) is told
    assert ("| step |" in card.to_markdown()) is told
    if told:
        assert all(f"{value:.1e}" == f"{value:e}".replace("00000", "") for value in found["rmse_by_step"])
        for shown, true in zip(found["rmse_by_step"], card.design.accuracy.rmse_by_entry, strict=True):
            assert true <= shown <= true * 1.1


def test_a_card_names_its_scope() -> None:
    table = card_of(shoal.design(*family(), "white", 1.0, 60.0, scope="table"))
    text = table.to_markdown()
    assert "by someone who holds the whole table" in text or "Someone who holds the whole table" in text
    assert "For someone who holds one row, δ ≤" in text
    assert table.to_dict()["guarantee"]["delta_one_row"] < table.to_dict()["guarantee"]["delta_whole_table"]


def test_the_card_says_that_its_delta_is_a_theorem(strong: shoal.Mechanism) -> None:
    card = card_of(strong)
    claim = card.to_dict()["guarantee"]
    assert claim["proved"] is True
    assert claim["proof"] == {"by": "ball arithmetic", "why_not": None}
    words = "proved (ball arithmetic)"
    assert f"This δ is {words}." in card.to_markdown()
    other = replace(card.design, proved="", unproved="it would take too long")
    both = DesignFacts.merge([card.design, other])
    assert both.proof_words == "not proved: it would take too long"
    assert DesignFacts.merge([card.design, replace(card.design, proved="integer odds")]).proof_words == (
        "proved (ball arithmetic and integer odds)"
    )


def public_texts(mechanism: shoal.Mechanism) -> str:
    """Everything that a card publishes: JSON, Markdown and the public page."""
    card = card_of(mechanism)
    return "\n".join([json.dumps(card.to_dict()), card.to_markdown(), public_page(card)])


def test_nothing_public_is_a_function_of_who_is_who() -> None:
    """Exchange the answers of two labels: the public bytes stay, and no private digest is among them."""
    values = np.array([0, 1, 1, 0, 0, 1, 0, 1, 1, 0], dtype=float)[:, None]
    names = [f"home {i}" for i in range(10)]
    graph = shoal.NeighborGraph.complete(names)
    made = []
    for i, j in ((0, 0), (0, 1), (3, 5), (8, 9)):
        order = np.arange(10)
        order[[i, j]] = j, i
        classes = shoal.GaussianClasses.deterministic(values[order], names)
        made.append(shoal.design(classes, graph, "white", 1.0, 30.0, scope="table"))
    texts = [public_texts(mechanism) for mechanism in made]
    assert made[0].digest != made[1].digest
    assert set(texts) == {texts[0]}
    for mechanism in made:
        assert mechanism.digest[:16] not in texts[0]
