"""A series of releases, of layouts of any kind, and the plans it is made of: never less than the exact figure."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

import shoal
from shoal.readings.class_tables import TablePlan, noisy_table_plan
from shoal.readings.crowds import check_curves, home_vectors
from shoal.readings.plan import CrowdsPlan
from shoal.readings.publication import PublicSettings, plan_in_series

CUSTOMERS = 1500
PLAN = partial(shoal.noisy_crowds_plan, typical_kw=1.5)
table_of = partial(noisy_table_plan, bounds={"kwh": (0.0, 1.0)})


def exact(square: Fraction, epsilon: float) -> mpmath.mpf:
    """δ of two Gaussians with so large a squared distance, with 50 digits."""
    with mpmath.workdps(50):
        mu, at = mpmath.sqrt(mpmath.mpf(square.numerator) / square.denominator), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - at / mu) - mpmath.exp(at) * mpmath.ncdf(-mu / 2 - at / mu)


# ------------------------------------------------------------------ series


@pytest.mark.parametrize(("first", "make"), [(0.99, PLAN), (0.98, table_of), (0.5, table_of)])
@pytest.mark.parametrize("releases", [100, 1000])
def test_layouts_may_be_mixed(first: float, make: Any, releases: int, tmp_path: Path) -> None:
    """Releases that the ledger takes one after the other, with other layouts: δ of the transcript, from integers."""
    one, whole = plan_in_series(CUSTOMERS, epsilon=first, budget_epsilon=1.0, make=make)
    other, same = plan_in_series(CUSTOMERS, epsilon=None, budget_epsilon=1.0, releases=releases, make=PLAN)
    assert whole.cap == same.cap
    more = int((Fraction(whole.cap) ** 2 - Fraction(one.mu) ** 2) / Fraction(other.mu) ** 2)
    assert more
    with shoal.Ledger.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        ledger.record_readings("0", period="2024", labels=["a"], mu=one.mu, cap=whole.cap)
        for number in range(1, min(more, 5) + 1):
            ledger.record_readings(str(number), period=str(2024 + number), labels=["a"], mu=other.mu, cap=same.cap)
    for plan, series in ((one, whole), (other, same)):
        for kind in (0, 1):
            distance = Fraction(one.squared_sensitivities[kind]) / Fraction(one.variance)
            distance += more * Fraction(other.squared_sensitivities[kind]) / Fraction(other.variance)
            assert mpmath.mpf(series.deltas(plan.account)[kind]) >= exact(distance, 1.0)


@pytest.mark.parametrize(
    ("customers", "epsilon", "delta", "releases"),
    [
        (15, 29.627008031536974, 3.3734592758890377e-07, 201),
        (1098, 20.934414669890288, 2.1298753725420293e-14, 135),
        (68_609, 14.803186524907103, 5.782037685609133e-16, 6),
        (4000, 1.0, None, 30),
    ],
)
def test_the_delta_of_a_series_is_never_below_the_true_one(
    customers: int, epsilon: float, delta: float | None, releases: int
) -> None:
    """Finding 18: plan.json's figure for a series includes what finite precision costs, as the card's does."""
    plan, series = plan_in_series(
        customers, epsilon=None, delta=delta, budget_epsilon=epsilon, releases=releases, make=PLAN
    )
    account = plan.account
    true = exact(releases * Fraction(account.zero_out_square) / Fraction(account.variance), epsilon)
    assert mpmath.mpf(series.delta) >= true + releases * mpmath.mpf(account.precision_loss(epsilon))
    assert series.delta >= series.deltas(account)[0]
    if delta is None:
        assert series.delta == 1 / (10 * customers)


@pytest.mark.parametrize("customers", [20, 486, 4000, 100_000])
def test_no_layout_is_farther_than_a_series_counts(customers: int) -> None:
    """Δ_rep²/Δ² of every plan that is made here, and finite precision of ten thousand of the largest."""
    plans = [shoal.noisy_crowds_plan(customers, 1.0, method=method, typical_kw=1.5) for method in ("mean", "cells")]
    plans += [noisy_table_plan(customers, 1.0, bounds={f"c{i}": (0.0, 1.0) for i in range(k)}) for k in range(1, 30)]
    largest = noisy_table_plan(customers, 1.0, bounds={"a": (0, 1)}, cells={"a": list(range(32_767))})
    _, series = plan_in_series(customers, epsilon=None, budget_epsilon=1.0, releases=10_000, make=PLAN)
    for plan in (*plans, largest):
        zero_out, replaced = series.deltas(plan.account)
        cap = Fraction(series.cap) ** 2
        precision = 10_000 * mpmath.mpf(largest.account.precision_loss(1.0))
        assert mpmath.mpf(zero_out) >= exact(cap, 1.0) + precision
        assert (
            mpmath.mpf(replaced)
            >= exact(cap * plan.squared_sensitivities[1] / plan.squared_sensitivities[0], 1.0) + precision
        )
    with pytest.raises(shoal.InputError, match="entries"):
        noisy_table_plan(customers, 1.0, bounds={"a": (0, 1)}, cells={"a": list(range(32_768))})


@pytest.mark.parametrize("releases", [1, 30])
def test_the_card_does_not_say_how_many_tables_there_are(releases: int) -> None:
    """The ledger holds Σμ² below M², and more, smaller tables may fit than such as this."""
    plan, series = plan_in_series(500, epsilon=None, budget_epsilon=1.0, releases=releases, make=PLAN)
    card = shoal.ReleaseCard.from_settings(PublicSettings(plan, series, "2024", "2024-01-01", forecasts="Curves."))
    text = card.to_markdown()
    assert "the whole series of tables" in text
    assert "at most 30 such" not in text
    assert "from this table to about" in text
    assert "√N times better" in text
    alone, only = plan_in_series(500, epsilon=1.0, make=PLAN)
    card = shoal.ReleaseCard.from_settings(PublicSettings(alone, only, "2024", "2024-01-01", forecasts="Curves."))
    assert "Any conclusion from this table is at most" in card.to_markdown()


def test_an_epsilon_is_printed_in_full() -> None:
    """(1, 1e-5) would be false of what was planned for ε = 1.0000049."""
    plan, series = plan_in_series(CUSTOMERS, epsilon=1.0000049, delta=1e-5, make=PLAN)
    assert exact(Fraction(plan.squared_sensitivities[0]) / Fraction(plan.variance), 1.0) > mpmath.mpf("1e-5")
    card = shoal.ReleaseCard.from_settings(PublicSettings(plan, series, "2024", "2024-01-01", forecasts="Curves."))
    assert "(ε, δ) = (1.0000049, " in repr(plan)
    assert "(ε = 1.0000049, " in card.to_markdown()


# ------------------------------------------------------------------ plans

CROWDS = {
    "load_clip": (-1e-6, 0.0, 5e-324), "swing_clip": (0.0, -1.0, 1e-300), "typical_kw": (0.0,),
    "swing_weight": (1 << 21, -1, 0.5),
    "load_weight": (0, 1 << 21), "shape_weight": (-5,), "customers": (0, 1 << 40), "swings": (0,), "classes": (0,),
    "edges": ([2.0, 1.0],), "cuts": ([1.0, 1.0],), "variance": (0.0, -1.0, 1.0), "delta_bound": (0.0, 1.0, 1e-9),
    "epsilon": (0.0, -1.0),
}  # fmt: skip
TABLES = {
    "bounds": ([], [["a", 1.0, 0.0]], [["a", -1.7e308, 1.7e308]]), "cells": ([["a", []]], [["a", [1.0, 0.0]]]),
    "count_weight": (0, 1 << 21), "value_weight": (0, -1, 1 << 21), "variance": (1.0,),
}  # fmt: skip
NOT_FINITE = (float("nan"), float("inf"))


@pytest.mark.parametrize("name", CROWDS)
def test_a_plan_that_its_sensitivity_does_not_hold_for_is_refused(name: str) -> None:
    plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0, method="cells", typical_kw=1.5)
    wrong = [*CROWDS[name], *(NOT_FINITE if isinstance(getattr(plan, name), float) else ())]
    for value in wrong:
        content = json.loads(plan.to_json()) | {name: value}
        with pytest.raises(shoal.InputError):
            CrowdsPlan.from_json(json.dumps(content))
        with pytest.raises(shoal.InputError):
            replace(plan, **{name: value})


@pytest.mark.parametrize("name", TABLES)
def test_a_table_plan_likewise(name: str) -> None:
    plan = noisy_table_plan(500, 1.0, bounds={"a": (0.0, 1.0)}, cells={"a": [0.5]})
    for value in TABLES[name]:
        with pytest.raises(shoal.InputError):
            TablePlan.from_json(json.dumps(json.loads(plan.to_json()) | {name: value}))


def test_bounds_whose_range_is_not_finite_are_refused_by_name() -> None:
    with pytest.raises(shoal.InputError, match="bounds"):
        noisy_table_plan(1000, 1.0, bounds={"a": (-1.7e308, 1.7e308)})


@pytest.mark.parametrize("method", ["mean", "cells"])
@pytest.mark.parametrize("typical", [1e-99, 1e-3, 1.5, 1e300])
def test_a_plan_that_is_taken_holds_for_every_home(method: str, typical: float) -> None:
    """‖v‖² of extreme homes in integers, whatever is declared."""
    plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0, typical_kw=typical, method=method)
    rng = np.random.default_rng(1)
    curves = np.concatenate([np.zeros((1, 12)), np.full((1, 12), 1e308), 10 ** rng.uniform(-320, 9, (50, 12))])
    vectors = [[int(entry) for entry in row] for row in home_vectors(check_curves(curves, plan), plan)]
    assert max(sum(entry**2 for entry in row) for row in vectors) <= plan.squared_sensitivities[0]
