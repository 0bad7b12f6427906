"""Facts: what stages hand to the card, the same whether labels lie in one shard or in many."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from card_cases import fit_facts
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.product.card.card import ReleaseCard
from shoal.product.card.facts import LISTED, AuditFacts, DesignFacts, FitFacts, crowd_naming_bound
from shoal.product.card.measures import audit_facts, design_facts
from shoal.product.card.render import summary
from shoal.records import Record

GROUPS = (("a", "b", "c"), ("d", "e"), ("f", "g", "h", "i"))


def labels() -> list[str]:
    return [name for group in GROUPS for name in group]


@pytest.fixture(scope="module")
def whole() -> shoal.Mechanism:
    """Constants with noise of their own in three groups of different sizes."""
    rng = np.random.default_rng(5)
    classes = shoal.GaussianClasses.deterministic(rng.standard_normal((9, 2)), labels=labels())
    graph = shoal.NeighborGraph.within_groups(labels(), [i for i, group in enumerate(GROUPS) for _ in group])
    return shoal.design(classes, graph, "covariance", 1.0, 2.0, iterations=10)


@pytest.fixture(scope="module")
def parts(whole: shoal.Mechanism) -> list[DesignFacts]:
    return [design_facts(whole.for_labels(list(group)), query="point") for group in GROUPS]


def test_many_shards_say_what_one_says(whole: shoal.Mechanism, parts: list[DesignFacts]) -> None:
    one, many = design_facts(whole, query="point"), DesignFacts.merge(parts)
    for name in ("labels", "groups", "smallest_group", "largest_group", "without_neighbors", "edges", "epsilon"):
        assert getattr(many, name) == getattr(one, name), name
    assert many.worst_edge == one.worst_edge
    assert many.delta == pytest.approx(one.delta, rel=1e-9)
    assert np.array(many.curve) == pytest.approx(np.array(one.curve), rel=1e-9)
    assert many.naming == pytest.approx(one.naming, rel=1e-9)
    assert many.guessing == one.guessing == pytest.approx(1 / 3)
    for name in ("rho_mean", "rho_largest", "rmse", "rmse_largest", "rmse_by_entry", "bias_by_entry", "answer_mean"):
        assert getattr(many.accuracy, name) == pytest.approx(getattr(one.accuracy, name), rel=1e-12), name
    shards = [fit_facts(whole.for_labels(list(group)).graph) for group in GROUPS]
    card = ReleaseCard(FitFacts.merge(shards), many)
    assert card.statement == ReleaseCard(fit_facts(whole.graph), one).statement
    assert card.to_dict()["graph"] == ReleaseCard(fit_facts(whole.graph), one).to_dict()["graph"]


def test_no_figure_of_many_shards_is_below_one_of_theirs(parts: list[DesignFacts]) -> None:
    many = DesignFacts.merge(parts)
    assert many == DesignFacts.merge(parts[::-1])
    for part in parts:
        assert many.delta >= part.delta
        assert many.finite_precision >= part.finite_precision
        assert many.accuracy.rho_largest >= part.accuracy.rho_largest
        own = dict(part.curve)
        assert all(value >= own[x] for x, value in many.curve)
    assert many.accuracy.rmse >= math.sqrt(
        sum(sum(part.accuracy.squares) for part in parts) / sum(part.labels * part.entries for part in parts)
    )


@pytest.mark.parametrize("method", ["white", "covariance"])
@pytest.mark.parametrize("rho", [0.5, 5.0])
def test_naming_stays_below_its_bound(method: str, rho: float) -> None:
    rng = np.random.default_rng(1)
    classes = shoal.GaussianClasses.deterministic(rng.standard_normal((9, 2)), labels=labels())
    graph = shoal.NeighborGraph.within_groups(labels(), [i for i, group in enumerate(GROUPS) for _ in group])
    mechanism = shoal.design(classes, graph, method, 0.5, rho, iterations=5)
    risk = shoal.identification_risk(mechanism.output, graph, seed=3)
    found = design_facts(mechanism)
    assert risk.success_lower <= found.naming <= 1.0
    assert found.guessing == risk.prior_success


@settings(derandomize=True, max_examples=200)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.floats(0.0, 5.0), st.floats(0.0, 0.5))
def test_the_bound_covers_the_best_mechanism_of_every_group(sizes: Sequence[int], epsilon: float, delta: float) -> None:
    """Randomized response: the label itself e^ε times as often as any other, or with probability δ in clear."""
    labels = sum(sizes)
    bound = crowd_naming_bound(len(sizes) / labels, [(epsilon, delta)])
    with mpmath.workdps(40):
        power = mpmath.exp(epsilon)
        achieved = sum(n * (delta + (1 - mpmath.mpf(delta)) * power / (power + n - 1)) for n in sizes) / labels
        assert achieved <= bound <= 1.0


@pytest.fixture(scope="module")
def attacked(whole: shoal.Mechanism) -> list[AuditFacts]:
    return [
        replace(audit_facts(shoal.audit(whole.for_labels(list(group)), n_samples=200, seed=1)), of_groups=3, rule="all")
        for group in GROUPS
    ]


def test_audits_of_groups_add_up(attacked: list[AuditFacts]) -> None:
    merged = AuditFacts.merge(attacked)
    assert (merged.groups, merged.of_groups, merged.labels) == (3, 3, 9)
    assert merged.delta_proved == max(part.delta_proved for part in attacked)
    assert merged.detectable_delta == max(part.detectable_delta for part in attacked)
    assert merged.named is not None
    assert merged.named.n_answers == sum(part.named.n_answers for part in attacked if part.named is not None)
    bad = replace(attacked[1], verdict="violated", violations=1)
    assert AuditFacts.merge([attacked[0], bad]).verdict == "violated"


def test_an_audit_does_not_grow_with_its_labels() -> None:
    """Edges, and figures of single edges, stay with the audit."""
    sizes = []
    for n in (4, 16):
        classes = shoal.GaussianClasses.deterministic(np.linspace(0, 1, n)[:, None])
        graph = shoal.NeighborGraph.complete(classes.labels)
        mechanism = shoal.design(classes, graph, "white", 1.0, 4.0)
        sizes.append(len(json.dumps(audit_facts(shoal.audit(mechanism, n_samples=100)).to_json())))
    assert max(sizes) < 4000
    assert abs(sizes[0] - sizes[1]) < 400


def test_facts_survive_json(whole: shoal.Mechanism, parts: list[DesignFacts], attacked: list[AuditFacts]) -> None:
    # White noise on logarithms can have no finite error in kW.
    endless = replace(parts[0], accuracy=replace(parts[0].accuracy, squares=(math.inf, 1.0), square_largest=math.inf))
    many = DesignFacts.merge([endless, *parts[1:]])
    assert many.accuracy.square_largest == math.inf
    records: list[Record] = [fit_facts(whole.graph), many, DesignFacts.merge(parts), AuditFacts.merge(attacked)]
    for facts in records:
        assert type(facts).from_json(json.loads(json.dumps(facts.to_json(), allow_nan=False))) == facts
        with pytest.raises(shoal.InputError, match=type(facts).__name__):
            type(facts).from_json({"strange": 1})


def test_lists_are_bounded_and_who_is_left_out_is_said(whole: shoal.Mechanism) -> None:
    reasons = tuple((f"reason {i}", 1) for i in range(3 * LISTED))
    shards = [replace(fit_facts(whole.graph), left_out=60, reasons=reasons) for _ in range(2)]
    merged = FitFacts.merge(shards)
    assert len(merged.reasons) == LISTED
    assert merged.left_out == 120
    said = dict(summary(ReleaseCard(merged), verbose=True))["Without a row"]
    assert "No row for 120 labels" in said[0]
    card = ReleaseCard(merged, design_facts(whole))
    assert "Without a row" in card.to_markdown()


def test_nothing_is_claimed_about_naming_where_not_all_are_neighbors() -> None:
    names = list("abcdefgh")
    classes = shoal.GaussianClasses(np.arange(8.0)[:, None], [[1.0]], labels=names)
    graph = shoal.NeighborGraph.from_edges(names, list(itertools.pairwise(names)))
    facts = design_facts(shoal.design(classes, graph, "white", epsilon=1.0, rho=250.0))
    assert facts.naming == DesignFacts.merge([facts, facts]).naming == 1.0
