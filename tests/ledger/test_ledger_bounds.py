"""Bounds that decide without spectra: never below the exact figure, and checked like everything else."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from releasing import answer, ask, charges, point, trajectory
from test_ledger_composition import mixed

from shoal import CertificationError, GaussianClasses, InputError, Ledger, NeighborGraph, design
from shoal.product.ledger import budgets as bounds
from shoal.product.ledger.budgets import MechanismBound, bound_delta, mechanism_bound
from shoal.product.ledger.composition import NOTHING, Charges, Composer, LabelAccount, PairAccount

TOOLS = [*mixed(), trajectory(4, 2, gap=0.3, seed=9), trajectory(4, 3, gap=0.01, seed=10)]
TOOL_OF = {tool.digest: tool for tool in TOOLS}.__getitem__
BOUNDS = {tool.digest: mechanism_bound(tool, [0.5, 1.0]) for tool in TOOLS}
COMPOSER = Composer()


def star(label: str, about: Charges, opposite: Charges = NOTHING) -> LabelAccount:
    """The same about every neighbor."""
    around = tuple(name for name in ("h0", "h1", "h2", "h3") if name != label)
    return LabelAccount(label, about.releases, (PairAccount(about, opposite, around),))


USES = st.dictionaries(st.integers(0, len(TOOLS) - 1), st.integers(1, 40), max_size=4)


@settings(max_examples=150, derandomize=True, deadline=None)
@example({0: 1}, {1: 1}, 0.5, 1e-9, 0)  # the two upper ends differ by rounding only, the bound's being the smaller
@given(USES, USES, st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.0]), st.sampled_from([0.0, 1e-9, 1e-4]), st.integers(0, 3))
def test_never_below_the_exact_composition(
    uses: dict[int, int], neighbors: dict[int, int], epsilon: float, tv: float, number: int
) -> None:
    """Upper ends of the mechanisms' part are compared as they are; finite precision with its exact value.

    That part is added by both, and each rounds it up along a sum of its own: neither of the two results is the larger.
    """
    about, opposite = (_used(side, tv) for side in (uses, neighbors))
    upper = bound_delta(about, opposite, epsilon, BOUNDS.get)
    precise = COMPOSER.compose(star(f"h{number}", *(_used(side, 0.0) for side in (uses, neighbors))), epsilon, TOOL_OF)
    total = sum((Fraction(each) for side in (about, opposite) for _, _, each in side.uses), Fraction(0))
    with mp.workdps(60):
        added = (1 + mp.exp(mpf(epsilon))) * total.numerator / total.denominator
        # Stated with headroom, which covers that one edge is computed from its two ends.
        assert mpf(upper) >= min(mpf(precise.delta_upper) + added, 1)
        # The figure that decides where the bound does not is not below it either.
        exact = COMPOSER.compose(star(f"h{number}", about, opposite), epsilon, TOOL_OF)
        assert mpf(exact.delta_upper) >= min(mpf(precise.delta_upper) + added, 1)
    assert bound_delta(opposite, about, epsilon, BOUNDS.get) == upper


def _used(times_of: dict[int, int], tv: float) -> Charges:
    return charges([(TOOLS[i].digest, tv, times) for i, times in times_of.items()])


@pytest.mark.parametrize("tool", TOOLS[:3], ids=["point", "another", "unequal"])
@pytest.mark.parametrize("scope", ["answer", "table"])
def test_one_use_is_the_certificate(tool: Any, scope: str) -> None:
    """One use, or one table, costs what the whole graph's worst edge does: nothing is lost where it matters."""
    once = charges([(tool.digest, tool.finite_precision_tv, 1)])
    opposite = once if scope == "table" else NOTHING
    upper = bound_delta(once, opposite, 1.0, BOUNDS.get)
    assert upper == pytest.approx(tool.released_curve(1.0, scope=scope).delta_upper, rel=3e-9, abs=1e-300)
    worst = max(
        COMPOSER.compose(star(label, once, opposite), 1.0, TOOL_OF).delta_upper for label in tool.classes.labels
    )
    assert upper == pytest.approx(worst, rel=3e-9, abs=1e-300)
    assert upper >= worst


def test_moments_are_the_gaussian_formula() -> None:
    """Equal covariances: D_α = α μ²/2, and the formula for δ worked out independently."""
    tool = point(2, 1, gap=1.0, rho=4.0)
    bound = mechanism_bound(tool, 1.0)
    first, second = (Fraction(float(mean)) for mean in tool.classes.means[:, 0])
    square = (first - second) ** 2 / Fraction(float(tool.noise_cov[0, 0, 0]))
    gap = math.sqrt(square)
    for order, divergence in bound.renyi.items():
        assert divergence == pytest.approx(order * gap**2 / 2, rel=3e-9)
        assert Fraction(divergence) >= Fraction(order) * square / 2
    only = dataclasses.replace(bound, delta={}, table={})
    with mp.workdps(40):  # Canonne, Kamath & Steinke
        spent = 3 * mpf(square.numerator) / square.denominator / 2
        orders = [mpf(a) for a in bound.renyi]
        best = min(mp.exp((a - 1) * (a * spent - 1)) / (a - 1) * (1 - 1 / a) ** a for a in orders)
    upper = bound_delta(charges([(tool.digest, 0.0, 3)]), NOTHING, 1.0, {tool.digest: only}.get)
    assert upper == pytest.approx(float(min(best, 1)), rel=1e-6)
    assert mpf(upper) >= min(best, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"digest": "short"},
        {"delta": {0.0: 0.1, 1.0: 1.5}},
        {"delta": {0.0: 0.1, 1.0: float("nan")}},
        {"delta": {float("nan"): 0.1}},
        {"delta": {-1.0: 0.1}},
        {"delta": [(0.0, 0.1)]},
        {"delta": {0: 0.1}},
        {"renyi": {0.5: 1.0}},
        {"renyi": {1.0: 1.0}},
        {"renyi": {2.0: float("inf")}},
        {"renyi": {2.0: -0.1}},
        {"table": {0.0: 1.5}},
    ],
)
def test_bounds_that_make_no_sense(wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"digest": "a" * 64, "delta": {0.0: 0.2, 1.0: 0.1}}
    MechanismBound(**good)
    with pytest.raises(InputError, match="bounds"):
        MechanismBound(**{**good, **wrong})


def test_what_cannot_be_certified_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    def void(*_: Any, **__: Any) -> None:
        raise CertificationError("void")

    monkeypatch.setattr(bounds, "privacy_curve", void)
    bound = mechanism_bound(point(), 1.0)
    assert set(bound.delta.values()) == set(bound.table.values()) == {1.0}


# ---------------------------------------------------------------------- in the ledger


def charged(ledger: Ledger, bound: MechanismBound | None = None, query: str = "a", **named: Any) -> None:
    mechanism = point(**named)
    labels = list(mechanism.classes.labels)
    true = np.array([answer(mechanism, label) for label in labels])
    bound = mechanism_bound(mechanism, 1.0) if bound is None else bound
    ledger.charge(mechanism, true, mechanism.release(true, labels), labels, query_ids=query, bounds=bound)


def test_a_bound_above_the_budget_decides_nothing(ledger: Ledger) -> None:
    """A useless bound is not a refusal, and does not replace what is stored."""
    mechanism = point()
    useless = MechanismBound(mechanism.digest, {0.0: 1.0})
    charged(ledger, useless)
    charged(ledger, None, "b")
    assert ledger.spent()["h0"].releases == 2
    assert ledger.verify()


@pytest.mark.parametrize("kind", ["delta", "renyi", "table"])
def test_a_stored_bound_that_was_lowered_is_found(ledger: Ledger, kind: str) -> None:
    charged(ledger)
    assert ledger.verify()
    with ledger.storage.writing() as transaction:
        transaction.run("UPDATE bounds SET value = value * 1.01 WHERE kind = :kind", kind=kind)
    assert ledger.verify()  # larger than need be: safe
    with ledger.storage.writing() as transaction:
        transaction.run("UPDATE bounds SET value = value * 0.98 WHERE kind = :kind", kind=kind)
    report = ledger.verify()
    assert not report
    assert "bound" in report.problem
    with ledger.storage.writing() as transaction:
        transaction.run("DELETE FROM bounds")  # derived: nothing is lost
    assert ledger.verify()
    with ledger.storage.writing() as transaction:
        transaction.run("INSERT INTO bounds (mechanism, kind, point, value) VALUES ('x', 'delta', 0, 1)")
    assert "never recorded" in ledger.verify().problem


def test_an_overspent_ledger_is_found_behind_a_false_bound(ledger: Ledger) -> None:
    """Whoever hands in a false bound can overspend; verify() composes anew and finds it even if the bound is gone."""
    mechanism = point(gap=1.0)
    charged(ledger, MechanismBound(mechanism.digest, {0.0: 1e-9, 1.0: 1e-9}), gap=1.0)
    assert "bound" in ledger.verify().problem
    with ledger.storage.writing() as transaction:
        transaction.run("DELETE FROM bounds")
    assert "exceeds the budget" in ledger.verify().problem


def test_overview_is_above_every_account(ledger: Ledger) -> None:
    for i, tool in enumerate(TOOLS[:4]):
        for label in ("h0", "h1", "h2")[: i + 1]:
            ask(ledger, tool, label, str(i))
    charged(ledger, prefix="x")  # a second graph, whose labels count once too
    spent = ledger.spent()
    largest = max(a.spent / a.budget for a in spent)
    for exact in (1, 3, 50):
        seen = ledger.overview(exact)
        assert seen.largest_share >= largest
        assert len(seen.worst) == min(exact, len(spent))
        assert (seen.labels, seen.releases) == (len(spent.by_label), spent.releases)
        assert {(a.name, a.spent) for a in seen.worst} <= {(a.name, a.spent) for a in spent}
    assert seen.largest_share == pytest.approx(largest, rel=1e-12)
    assert seen.worst[0].name == max(spent, key=lambda a: a.spent / a.budget).name


def test_overview_covers_what_it_did_not_compose(ledger: Ledger) -> None:
    """The account with the largest bound is not the worst: the worst one still counts, by its own bound."""
    means = np.array([[0.0], [0.001], [0.0], [1.0]])
    laws = GaussianClasses.deterministic(means, ["near0", "near1", "far0", "far1"])
    pairs = NeighborGraph.within_groups(laws.labels, [0, 0, 1, 1])
    uneven = design(laws, pairs, "white", 1.0, 4.0)
    ledger.budget(0.0, 0.9)
    for i in range(4):
        ledger.release(uneven, means[0], "near0", query_id=str(i))
    ledger.release(uneven, means[2], "far0", query_id="once")
    seen = ledger.overview(1)
    assert seen.worst[0].name == "label near0"
    assert seen.worst[0].spent < ledger.spent()["far0"].spent
    assert seen.largest_share >= ledger.spent()["far0"].spent / 0.9


def test_overview_of_little(url: str) -> None:
    with Ledger.open(url) as ledger:
        assert ledger.overview().largest_share == 0.0
        ledger.budget(1.0, 0.5)
        tool = point()
        ledger.release(tool, answer(tool, "h1"), "h1")
        seen = ledger.overview()
        assert seen.labels == 1
        ledger.budget(1.0, 0.0)
        assert ledger.overview().largest_share == float("inf")
        with pytest.raises(InputError, match="exact"):
            ledger.overview(0)
