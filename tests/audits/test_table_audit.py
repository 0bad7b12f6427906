"""Attackers who hold the whole table: what they prove, when they are silent, and the certificates that they break."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import audit_cases as cases
import numpy as np
import pytest
from scipy import stats

import shoal
from shoal.audits import audit as audits
from shoal.audits import naming
from shoal.audits.attacks import count_events, row_exchange_scores
from shoal.records import to_plain


def kinds(found: tuple[object, ...]) -> set[str]:
    return {f.kind for f in found}  # type: ignore[attr-defined]


def family(n: int, k: int, seed: int) -> shoal.GaussianClasses:
    return shoal.GaussianClasses.deterministic(np.random.default_rng(seed).standard_normal((n, k)))


def white(classes: shoal.GaussianClasses, delta: float, scope: str) -> shoal.Mechanism:
    """White noise at the one-answer δ given, certified for ``scope``."""
    graph = shoal.NeighborGraph.complete(classes.labels)
    found = shoal.calibrate(classes, graph, method="white", epsilon=1.0, delta=delta)
    return replace(found, scope=scope)


# ------------------------------------------------------------------ certified for a row, released as a table


@pytest.mark.parametrize(("delta", "n"), [(0.0155, 3), (0.267, 4), (0.481, 5)])
def test_a_certificate_for_one_row_does_not_cover_the_table(delta, n):
    """Seeded bug: everything is as designed, but the rows of all labels are passed on together."""
    mechanism = white(family(n, 3, n), delta, "answer")
    release = cases.instead(mechanism)
    alone = shoal.audit(mechanism, n_samples=40_000, release=release, seed=1)
    assert alone.verdict == "consistent"  # an attack row by row cannot see it
    together = shoal.audit(mechanism, scope="table", n_samples=40_000, release=release, seed=1)
    assert together.verdict == "violated"
    assert {"scope", "certificate"} <= kinds(together.violations)
    assert together.promised_scope == "answer"
    proved = float(together.delta_lower.max())
    table = mechanism.certificate_for("table").delta_upper
    assert mechanism.certificate.delta_upper < proved <= table
    assert proved > 0.5 * table
    honest = shoal.audit(replace(mechanism, scope="table"), n_samples=40_000, release=release, seed=1)
    assert honest.verdict == "consistent"
    assert honest.scope == honest.promised_scope == "table"


@pytest.mark.parametrize(("n", "k", "rho", "seed"), [(6, 3, 1.2, 2), (8, 3, 0.8, 1), (8, 4, 0.9, 3)])
def test_matching_names_more_rows_than_a_row_by_row_figure_allows(n, k, rho, seed):
    classes = family(n, k, seed)
    mechanism = shoal.design(classes, shoal.NeighborGraph.complete(classes.labels), "white", epsilon=1.0, rho=rho)
    row_by_row = shoal.identification_risk(mechanism.output, mechanism.graph).success_upper
    result = shoal.audit(mechanism, scope="table", n_samples=4000, release=cases.instead(mechanism))
    assert {"matching", "identification"} <= kinds(result.violations)
    assert {one.attack for one in result.namings} == {"matching", "marginals"}
    assert all(one.accuracy_lower > row_by_row for one in result.namings)
    (found,) = [f for f in result.violations if f.kind == "matching"]
    assert found.evidence["named at least"] > found.evidence["promised"] >= row_by_row - 0.02
    honest = replace(mechanism, scope="table")
    result = shoal.audit(honest, n_samples=4000, release=cases.instead(mechanism))
    assert result.verdict == "consistent"
    figure = shoal.identification_risk(mechanism.output, mechanism.graph, scope="table")
    assert all(one.accuracy_lower <= figure.success_upper for one in result.namings)
    assert result.naming is not None
    assert result.naming.accuracy == pytest.approx(figure.success, abs=0.03)


@pytest.mark.parametrize("method", ["white", "paper", "additive", "transport"])
@pytest.mark.parametrize("make", [cases.constants, cases.random_laws])
def test_matching_stays_within_the_promise_to_the_table(method, make):
    """Eight audits that must all be silent: at this confidence a correct library fails one in 125 sets of seeds."""
    classes = make("white", n=5, k=2, seed=2).classes
    mechanism = cases.design(classes, method, 1.0, scope="table")
    result = shoal.audit(mechanism, n_samples=2000, confidence=0.999, release=cases.instead(mechanism), seed=2)
    assert result.scope == "table"
    assert result.verdict == "consistent", str(result)
    assert len(result.namings) == 2
    assert all(one.accuracy_lower <= one.promise_upper for one in result.namings)
    assert all(one.accuracy - one.promise_upper < 0.05 for one in result.namings)


def test_a_certificate_that_states_less_than_its_laws_give():
    mechanism = white(family(5, 3, 1), 0.267, "table")
    stated = mechanism.certificate_for("answer").delta_upper
    vars(mechanism)["certificate"] = replace(mechanism.certificate, delta=stated, delta_upper=stated)
    result = shoal.audit(mechanism, n_samples=8000, release=cases.instead(mechanism))
    assert {"accounting", "certificate"} <= kinds(result.violations)
    assert "scope" not in kinds(result.violations)


# ------------------------------------------------------------------ exchanging two rows


def test_events_on_exchanged_rows_of_two_known_laws():
    """N(1, 1) and N(0, 1) at ε = 0.5: the table's δ is that of one answer at distance √2, and one direction is all."""
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal(40_000) + 1.0, rng.standard_normal(41_000)
    events = count_events(
        ("ratio",),
        row_exchange_scores(lambda a, b: [(x - 0.5, y - 0.5)]),
        np.array([[0, 1]]),
        np.array([[0.5]]),
        0.01,
        directions=1,
    )
    lower, _ = events.delta_lower(np.array([0.5]))
    mu = math.sqrt(2)
    truth = stats.norm.cdf(mu / 2 - 0.5 / mu) - math.exp(0.5) * stats.norm.cdf(-mu / 2 - 0.5 / mu)
    assert lower.shape == (1, 1)
    assert (lower <= truth).all()
    assert lower[0, 0] == pytest.approx(truth, abs=0.03)


def test_bounds_lie_below_the_exact_figure_of_the_table_and_close_to_it():
    mechanism = replace(cases.random_laws("white"), scope="table")
    result = shoal.audit(mechanism, n_samples=20_000, release=cases.instead(mechanism), seed=3)
    exact = shoal.edge_deltas(mechanism.output, mechanism.graph, 1.0, scope="table")
    assert result.delta_lower.shape == (6, 1)
    assert (result.delta_lower[:, 0] <= exact).all()
    assert (exact - result.delta_lower[:, 0]).max() < 0.08
    assert (result.edge_promise[:, 0, 0] >= exact).all()
    needed = shoal.epsilon_at(mechanism.output, mechanism.graph, mechanism.certificate.delta_upper, scope="table")
    assert 0.5 * needed < result.epsilon_lower.max() <= needed


# ------------------------------------------------------------------ labels made alike


@pytest.mark.parametrize("n", [4, 15])
def test_constants_that_meet_are_named_at_chance(n):
    classes = family(n, 3, 5)
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "center", epsilon=1.0, rho=9.0, scope="table")
    result = shoal.audit(mechanism, n_samples=500, seed=1)
    assert result.verdict == "consistent"
    assert result.delta_lower_curve.max() == 0.0
    assert len(result.namings) == 2
    for one in result.namings:
        assert one.guessing == pytest.approx(1 / n)
        assert one.promise_upper == pytest.approx(1 / n, rel=1e-6)
        assert one.accuracy_lower <= 1 / n <= one.accuracy_upper


def test_rows_in_order_give_nothing_away():
    """Rows are shuffled before they are attacked: with nothing to go by, a matching is a guess."""
    mechanism = shoal.design(
        shoal.GaussianClasses(np.zeros((6, 2)), np.eye(2)),
        shoal.NeighborGraph.complete([str(i) for i in range(6)]),
        "white",
        epsilon=1.0,
        rho=1.0,
        scope="table",
    )
    result = shoal.audit(mechanism, n_samples=4000, release=cases.instead(mechanism))
    matching = next(one for one in result.namings if one.attack == "matching")
    assert matching.accuracy == pytest.approx(1 / 6, abs=0.02)


# ------------------------------------------------------------------ any number of labels


def test_of_many_edges_the_worst_are_looked_at_and_a_group_too_large_is_not_named(monkeypatch):
    monkeypatch.setattr(naming, "LIKELIHOODS", 12 * 100 * 1000)
    monkeypatch.setattr(audits, "MOST_EDGES", 30)
    classes = family(40, 3, 7)
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=20.0, scope="table")
    told: list[tuple[int, int]] = []
    result = shoal.audit(
        mechanism, n_samples=200, release=cases.instead(mechanism), progress=lambda *step: told.append(step)
    )
    assert result.verdict == "consistent"
    assert len(result.edges) == 30
    assert result.n_edges == 780
    exact = shoal.edge_deltas(mechanism.output, graph, 1.0, scope="table")
    worst = tuple(classes.labels[i] for i in graph.edges[int(np.argmax(exact))])
    assert worst in result.edges
    assert result.namings == ()
    assert told[-1] == (len(told), len(told))


def test_many_groups_are_sampled(monkeypatch):
    monkeypatch.setattr(naming, "LIKELIHOODS", 12 * 100 * 40)
    classes = family(24, 2, 8)
    graph = shoal.NeighborGraph.within_groups(classes.labels, [i // 4 for i in range(24)])
    mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=2.0, scope="table")
    result = shoal.audit(mechanism, n_samples=200, release=cases.instead(mechanism))
    assert result.verdict == "consistent"
    assert [one.n_answers for one in result.namings] == [8 * 125, 8 * 125]  # two groups of four
    for one in result.namings:
        assert one.guessing == pytest.approx(1 / 4)
        assert one.accuracy_lower <= one.promise_upper


def test_a_sparse_graph_and_labels_on_their_own():
    classes = family(7, 2, 9)
    graph = shoal.NeighborGraph.from_edges(classes.labels, [("0", "1"), ("1", "2"), ("2", "3"), ("4", "5")])
    mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=2.0, scope="table")
    result = shoal.audit(mechanism, n_samples=2000, release=cases.instead(mechanism))
    assert result.verdict == "consistent"
    assert result.naming is not None
    assert result.naming.guessing == pytest.approx(3 / 7)
    assert result.naming.accuracy_lower > 1 / 7  # the label without neighbors is always named


# ------------------------------------------------------------------ arguments and results


def test_the_result_names_its_scope():
    mechanism = replace(cases.constants(), scope="table")
    result = shoal.audit(mechanism, n_samples=500, release=cases.instead(mechanism), seed=2)
    text = str(result)
    assert "attackers hold the whole table; the promise is about someone who holds the whole table" in text
    assert "naming labels (matching)" in text
    assert " ↔ " in text
    assert repr(result).startswith("Audit(consistent, the whole table: δ ≥ ")
    again = json.loads(json.dumps(to_plain(result)))
    assert (again["scope"], again["promised_scope"]) == ("table", "table")
    assert [one["attack"] for one in again["namings"]] == ["matching", "marginals"]
    row = shoal.audit(mechanism, scope="answer", n_samples=500, release=cases.instead(mechanism), seed=2)
    assert row.verdict == "consistent"
    assert "attackers hold one row; the promise is about someone who holds the whole table" in str(row)
    assert row.delta_lower.shape == (6, 2)


def test_a_guard_speaks_of_what_is_certified():
    row = cases.random_laws("white")
    table = replace(row, scope="table")
    one, other = (shoal.model_guard(m, training=60, n_draws=20) for m in (row, table))
    assert other.promise == table.certificate.delta_upper
    assert (other.deltas >= one.deltas).all()
    assert other.noise_alone >= one.noise_alone
