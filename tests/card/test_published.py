"""What is passed on tells of the release and not of the answers behind it, and says the same wherever it says it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from card_cases import card_of

import shoal
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import AuditFacts, FitFacts, Guard, ReleaseFacts
from shoal.product.card.render import board_page, owner_report, public_page, regulator_annex, summary


def made(members: int, method: str = "center", *, private: bool = True, groups: int = 1) -> ReleaseCard:
    rng = np.random.default_rng(7)
    names = [f"Home-{i:03d} |`" for i in range(members * groups)]
    classes = shoal.GaussianClasses.deterministic(2 + rng.standard_normal((len(names), 2)), names)
    graph = shoal.NeighborGraph.within_groups(names, [i // members for i in range(len(names))])
    mechanism = (
        shoal.design(classes, graph, "white", 1.0, 400.0)
        if method == "white"
        else shoal.calibrate(classes, graph, method, 1.0, 1e-6)
    )
    return card_of(mechanism, noun="household", fitted_on_private_data=private)


def passed_on(card: ReleaseCard) -> dict[str, str]:
    """Every document that may be published, as text."""
    return {
        "json": card.to_json(),
        "md": card.to_markdown(),
        "html": public_page(card),
    }


def figures(card: ReleaseCard) -> dict[str, Any]:
    return {name: value for name, value in card.to_dict()["accuracy"].items() if value is not None}


def test_errors_of_fewer_than_a_crowd_are_not_told() -> None:
    """Two forecasts and the mean of both: the root mean square error is half their difference."""
    assert set(figures(made(2))) == {"unit"}
    assert "rmse" in figures(made(2, private=False))
    documents = passed_on(made(2))
    assert "mean squared error" not in documents["md"].lower()
    assert "The errors of fewer than 10 households would reveal something about a household." in documents["md"]
    assert "Accuracy is not published here." in documents["html"]
    told = figures(made(5, groups=2))
    assert "rmse" in told
    assert "rmse_by_step" not in told


def test_the_error_of_one_household_is_not_told() -> None:
    """Where labels are moved, the worst error is how far one answer lies from its group's."""
    card = made(12)
    assert card.design.accuracy.rmse_largest > card.design.accuracy.rmse
    assert not {"rho_largest", "rmse_worst_label"} & set(figures(card))
    for name, text in passed_on(card).items():
        assert "worst household" not in text, name
        assert "at worst" not in text.lower(), name
    assert "at worst" not in (board_page(card) + regulator_annex(card)).lower()
    noise = figures(made(12, "white"))
    assert {"rho_largest", "rmse_worst_label"} <= set(noise)


def test_accuracy_has_two_digits_and_lies_on_its_safe_side() -> None:
    card = made(12)
    card = replace(
        card,
        fit=replace(card.fit, later_known=24, later_absolute=12.3456789),
        release=ReleaseFacts("r", 12, "0:0", later_known=24, later_absolute=13.456789),
    )
    told = figures(card)
    numbers = [told[name] for name in ("rho_mean", "rmse", "answer_mean", "price")]
    numbers += [*told["rmse_by_step"], *told["bias_by_step"], *told["later_error"].values()]
    assert all(number == float(f"{number:.2e}") for number in numbers)
    assert told["rmse"] >= card.design.accuracy.rmse
    assert told["later_error"]["released"] >= 13.456789 / 24
    for text in passed_on(card).values():
        assert "12.3456" not in text
        assert "0.5607" not in text
        assert "0.514403" not in text


def test_no_document_to_pass_on_has_a_name() -> None:
    card = made(12)
    card = replace(card, fit=replace(card.fit, doubts=("no law for Home-003",), source="street-4711.csv"))
    for name, text in passed_on(card).items():
        assert "Home-" not in text, name
        assert "street" not in text, name
    assert "Home-003" in str(summary(card))  # the owner is told


def test_errors_without_bound_can_be_printed() -> None:
    """exp of wide noise is above any number: a card must not fail on it, nor say something else."""
    card = made(12)
    endless = replace(
        card.design.accuracy, squares=(math.inf, math.inf), biases=(math.inf, math.inf), square_largest=math.inf
    )
    card = replace(card, design=replace(card.design, accuracy=endless))
    assert all(passed_on(card).values())
    assert figures(card)["rmse_by_step"] == [None, None]
    assert owner_report(card)


@pytest.mark.parametrize("least", [1e-40, 0.5])
def test_one_figure_wherever_it_is_told(least: float) -> None:
    """A guard looks at some groups: what it finds there is not told beside a larger promise."""
    card = made(12)
    delta = card.design.delta
    guard = Guard(least, True, least, 0.95, least)
    audit = AuditFacts("consistent", 0.99, 200, "test", 1, 12, 0.0, delta / 2, 0.5, guard=guard)
    card = ReleaseCard(card.fit, card.design, card.release, audit)
    assert card.guard is not None
    told = card.to_dict()
    assert told["model"]["guard"]["promise"] == max(told["guarantee"]["delta"], least)
    assert told["audit"]["delta_promised"] == told["guarantee"]["delta"]
    assert dict(zip(told["curve"]["epsilon"], told["curve"]["delta"], strict=True))[1.0] == told["guarantee"]["delta"]


def test_the_card_of_no_release_says_who_is_left_out_in_counts_alone() -> None:
    card = made(12)
    fit: FitFacts = replace(card.fit, left_out=3, reasons=(("no usable reading", 2), ("joined late", 1)))
    told = replace(card, fit=fit).to_dict()["left_out"]
    assert told["labels"] == sum(number for _, number in told["reasons"]) == 3
