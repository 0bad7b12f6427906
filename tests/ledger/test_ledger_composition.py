"""What many releases cost together: the same number as one big computation, and below other accountants."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from releasing import answer, point, trajectory
from scipy.special import log_ndtr, ndtr

import shoal
from shoal import GaussianClasses, Ledger, Mechanism, NeighborGraph
from shoal.accounting.incident import IncidentReleases, incident_spectra
from shoal.ledger.composition import Charges, Composer


def mixed() -> list[Mechanism]:
    """Five mechanisms on one graph, of every form: shared, unequal and full covariances, several lengths of answer."""
    made = [point(4, 2, rho=400.0), point(4, 3, rho=150.0, seed=3)]
    for seed, k in ((4, 2), (5, 1), (6, 4)):
        rng = np.random.default_rng(seed)
        factors = rng.standard_normal((4, k, 4 * k))
        covs = np.eye(k) + 0.004 * factors @ factors.transpose(0, 2, 1) / (4 * k)
        classes = GaussianClasses(0.008 * rng.standard_normal((4, k)), covs, made[0].classes.labels)
        made.append(shoal.design(classes, made[0].graph, "white", 1.0, 0.5))
    return made


def test_a_thousand_mixed_releases_are_one_stacked_computation(sqlite_url: str) -> None:
    tools = mixed()
    order = np.random.default_rng(0).integers(0, len(tools), 1000)
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.9)
        for start in range(0, 1000, 100):
            for number, tool in enumerate(tools):
                chosen = [i for i in range(start, start + 100) if order[i] == number]
                rng = np.random.default_rng(start)
                spread = np.sqrt(np.broadcast_to(tool.classes.stored_variances, tool.classes.means.shape)[2])
                q = tool.classes.means[2] + spread * rng.standard_normal((len(chosen), tool.classes.n_dims))
                ledger.release_many(tool, q, ["h2"] * len(chosen), query_ids=[f"q{i}" for i in chosen])
        grid = np.array([0.1, 1.0, 2.0, 4.0])
        found = ledger.curve("h2", grid)
        assert found.releases == 1000
        # Independent of the ledger: one list of a thousand releases, over a graph that has only the edges of h2.
        star = NeighborGraph.from_edges(tools[0].graph.labels, [("h2", x) for x in ("h0", "h1", "h3")])
        whole = shoal.privacy_curve([tools[i] for i in order], star, grid)
        np.testing.assert_allclose(found.delta, whole.delta, rtol=1e-9, atol=1e-300)
        assert (found.delta_upper >= whole.delta_lower).all()
        assert found.worst_edge == tuple(whole.worst_edge)
        assert (found.delta_upper > 1e-9).all()
        assert ledger.spent()["h2"].spent == found.delta_upper[1]
        assert ledger.verify()
    with Ledger.open(sqlite_url) as fresh:  # another process would start from the database alone
        assert np.array_equal(fresh.curve("h2", grid).delta_upper, found.delta_upper)


def test_a_few_releases_are_one_joint_vector(ledger: Ledger) -> None:
    tools = mixed()
    for i, tool in enumerate(tools):
        for j in range(2):
            own = j * np.sqrt(np.broadcast_to(tool.classes.stored_variances, tool.classes.means.shape)[1])
            ledger.release(tool, answer(tool, "h1") + own, "h1", query_id=f"{i} {j}")
    joint = GaussianClasses.joint([tool.output for tool in tools for _ in range(2)])
    star = NeighborGraph.from_edges(joint.labels, [("h1", x) for x in ("h0", "h2", "h3")])
    for epsilon in (0.0, 0.05, 0.3):
        exact = shoal.privacy_curve(joint, star, epsilon)
        assert ledger.curve("h1", epsilon).delta[0] == pytest.approx(exact.delta, rel=1e-9)


def test_below_the_privacy_loss_distribution_of_another_accountant(sqlite_url: str) -> None:
    """Equal covariances, so that dp-accounting can represent it: 1,000 releases of three noise levels."""
    counts, noises = [500, 300, 200], [60.0, 90.0, 45.0]
    tools = []
    for noise in noises:
        classes = GaussianClasses.deterministic([[0.0], [1.0]], ["a", "b"])
        tools.append(shoal.design(classes, NeighborGraph.complete(["a", "b"]), "white", 1.0, noise**2))
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.5)
        for number, (tool, count) in enumerate(zip(tools, counts, strict=True)):
            ledger.release_many(
                tool, np.zeros((count, 1)), ["a"] * count, query_ids=[f"{number} {i}" for i in range(count)]
            )
        parts = [
            privacy_loss_distribution.from_gaussian_mechanism(noise, value_discretization_interval=1e-4).self_compose(
                count
            )
            for noise, count in zip(noises, counts, strict=True)
        ]
        theirs = parts[0].compose(parts[1]).compose(parts[2])
        length = math.sqrt(sum(c / n**2 for c, n in zip(counts, noises, strict=True)))
        for epsilon in (0.5, 1.0, 2.0):
            ours = ledger.curve("a", epsilon)
            closed = ndtr(length / 2 - epsilon / length) - math.exp(epsilon + log_ndtr(-length / 2 - epsilon / length))
            assert ours.releases == 1000
            assert ours.delta[0] == pytest.approx(closed, rel=1e-9)
            assert ours.delta_upper[0] <= theirs.get_delta_for_epsilon(epsilon)
            assert theirs.get_delta_for_epsilon(epsilon) < 1.5 * closed + 1e-9


def claimed(laws: list[tuple[float, float]], epsilon: float) -> float:
    """δ at ε of two-point laws multiplied: brute force over all outcomes."""
    total = 0.0
    for outcome in range(2 ** len(laws)):
        p = q = 1.0
        for i, (a, b) in enumerate(laws):
            p *= a if outcome >> i & 1 else 1 - a
            q *= b if outcome >> i & 1 else 1 - b
        total += max(p - math.exp(epsilon) * q, 0.0)
    return total


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)), min_size=2, max_size=6),
    st.floats(0.0, 3.0),
    st.floats(0.0, 2.0),
)
def test_the_rule_for_claims_is_on_the_safe_side(laws: list[tuple[float, float]], epsilon: float, part: float) -> None:
    """The formula of the composition module, for a claim about one release and exact knowledge of the others."""
    known = claimed(laws[:1], part)  # the first release is (part, known)-DP in this direction
    if part <= epsilon:
        assert claimed(laws, epsilon) <= known + claimed(laws[1:], epsilon - part) + 1e-12


def test_finite_precision_adds_up(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mechanism, "finite_precision_tv", 1e-5)
    mechanism = point()
    for i in range(4):
        ledger.release(mechanism, answer(mechanism, "h0"), "h0", query_id=str(i))
    ideal = np.exp(shoal.edge_brackets([mechanism] * 4, mechanism.graph, 1.0)[:2, :, 2].max())
    term = 4 * (1 + math.e) * 1e-5
    spent = ledger.spent()["h0"].spent
    assert spent == pytest.approx(ideal + term, rel=1e-12)
    assert spent >= ideal + term
    assert ledger.verify()
    monkeypatch.setattr(Mechanism, "finite_precision_tv", 0.0)
    assert ledger.spent()["h0"].spent == spent  # what was recorded counts, whatever a later version computes


def test_labels_in_another_order_compose(ledger: Ledger) -> None:
    one = trajectory(4, 2)
    turned = trajectory(4, 2, seed=5).classes.take([3, 1, 0, 2])
    other = shoal.design(turned, NeighborGraph.complete(turned.labels), "white", 1.0, 1.0)
    ledger.release(one, answer(one, "h1"), "h1", query_id="a")
    ledger.release(other, answer(other, "h1"), "h1", query_id="b")
    straight = shoal.design(turned.take([2, 1, 3, 0]), one.graph, "white", 1.0, 1.0)
    star = NeighborGraph.from_edges(one.graph.labels, [("h1", x) for x in ("h0", "h2", "h3")])
    assert ledger.curve("h1", 1.0).delta[0] == pytest.approx(
        shoal.privacy_curve([one, straight], star, 1.0).delta, rel=1e-11
    )


@settings(max_examples=25, derandomize=True, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 4), st.floats(0.0, 3.0))
def test_incident_releases_are_the_edges_of_the_label(seed: int, n: int, k: int, epsilon: float) -> None:
    families = [trajectory(n, k, gap=1.0, seed=seed + i).output for i in range(3)]
    labels = families[0].labels
    label, *others = labels
    parts = tuple(lambda precise, f=f: incident_spectra(f, label, others, precise=precise) for f in families)
    found = IncidentReleases((label, *others), parts, np.array([1.0, 3.0, 2.0])).curve(np.array([epsilon]))
    together = [families[i] for i in (0, 1, 1, 1, 2, 2)]
    exact = shoal.edge_brackets(together, NeighborGraph.complete(labels), epsilon)[: n - 1]
    assert found.log_delta[0] == pytest.approx(exact[:, :, 0].max(), rel=1e-10, abs=1e-12)


def test_charges_count_and_never_round_down() -> None:
    third = 1 / 3
    charges = Charges.of([("b", 0.1, 2), ("a", 0.1, 1), ("b", 0.2, 1)], [(third, 0.1, 3)])
    assert charges.used == (("a", 1), ("b", 3))
    assert Fraction(charges.tv) >= 3 * Fraction(0.1) + Fraction(0.2)
    assert charges.claimed_epsilon == 3 * Fraction(third)
    assert charges.releases == 7
    assert charges.plus("c", 0.1).used == (("a", 1), ("b", 3), ("c", 1))
    assert Fraction(charges.plus("c", 0.1).tv) >= Fraction(charges.tv) + Fraction(0.1)


def test_nothing_released_costs_nothing() -> None:
    found = Composer().curve(Charges(), "a", np.array([0.0, 1.0]), {}.__getitem__)
    assert found.delta_upper.tolist() == [0.0, 0.0]
    assert found.worst_edge == (None, None)
