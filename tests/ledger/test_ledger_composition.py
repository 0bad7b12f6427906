"""What many releases cost together: the same number as one big computation, and below other accountants."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from releasing import answer, ask, charges, exchanged, point, spent_at, trajectory
from scipy.special import log_ndtr, ndtr

import oracle
import shoal
from shoal import GaussianClasses, Ledger, Mechanism, NeighborGraph
from shoal.accounting.curve import edge_brackets
from shoal.product.ledger.composition import (
    Composer,
    IncidentReleases,
    PairAccount,
    incident_spectra,
)


def mixed() -> list[Mechanism]:
    """Five mechanisms on one graph, of every form: shared, unequal and full covariances, several lengths of answer."""
    tools = [point(4, 2, rho=400.0), point(4, 3, rho=150.0, seed=3)]
    for seed, k in ((4, 2), (5, 1), (6, 4)):
        rng = np.random.default_rng(seed)
        factors = rng.standard_normal((4, k, 4 * k))
        covs = np.eye(k) + 0.004 * factors @ factors.transpose(0, 2, 1) / (4 * k)
        classes = GaussianClasses(0.008 * rng.standard_normal((4, k)), covs, tools[0].classes.labels)
        tools.append(shoal.design(classes, tools[0].graph, "white", 1.0, 0.5))
    return tools


def test_a_thousand_mixed_releases_are_one_stacked_computation(sqlite_url: str) -> None:
    tools = mixed()
    order = np.random.default_rng(0).integers(0, len(tools), 1000)
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.9, mode="fixed")
        for start in range(0, 1000, 100):
            for number, tool in enumerate(tools):
                chosen = [i for i in range(start, start + 100) if order[i] == number]
                rng = np.random.default_rng(start)
                spread = np.sqrt(np.broadcast_to(tool.classes.stored_variances, tool.classes.means.shape)[2])
                q = tool.classes.means[2] + spread * rng.standard_normal((len(chosen), tool.classes.n_dims))
                ledger.charge(tool, q, None, ["h2"] * len(chosen), query_ids=[f"q{i}" for i in chosen])
        grid = np.array([0.1, 1.0, 2.0, 4.0])
        spent = spent_at(ledger, "h2", *grid)
        assert ledger.spent()["h2"].releases == 1000
        # Independent of the ledger: one list of a thousand releases, over a graph that has only the edges of h2.
        star = NeighborGraph.from_edges(tools[0].graph.labels, [("h2", x) for x in ("h0", "h1", "h3")])
        whole = shoal.privacy_curve([tools[i] for i in order], star, grid)
        np.testing.assert_allclose(spent, whole.delta, rtol=1e-9, atol=1e-300)
        assert (spent >= whole.delta_lower).all()
        assert ledger.spent()["h2"].pair == whole.worst_edge[1]
        assert (spent > 1e-9).all()
        assert ledger.spent()["h2"].spent == spent[1]
        assert ledger.verify()
    with Ledger.open(sqlite_url) as fresh:  # another process would start from the database alone
        assert np.array_equal(spent_at(fresh, "h2", *grid), spent)


def test_below_the_privacy_loss_distribution_of_another_accountant(sqlite_url: str) -> None:
    """Equal covariances, so that dp-accounting can represent it: 1,000 releases of three noise levels."""
    counts, noises = [500, 300, 200], [60.0, 90.0, 45.0]
    tools = []
    for noise in noises:
        classes = GaussianClasses.deterministic([[0.0], [1.0]], ["a", "b"])
        tools.append(shoal.design(classes, NeighborGraph.complete(["a", "b"]), "white", 1.0, noise**2))
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.5, mode="fixed")
        for number, (tool, count) in enumerate(zip(tools, counts, strict=True)):
            ledger.charge(
                tool, np.zeros((count, 1)), None, ["a"] * count, query_ids=[f"{number} {i}" for i in range(count)]
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
            ours = spent_at(ledger, "a", epsilon)[0]
            closed = ndtr(length / 2 - epsilon / length) - math.exp(epsilon + log_ndtr(-length / 2 - epsilon / length))
            assert ledger.spent()["a"].releases == 1000
            assert ours == pytest.approx(closed, rel=1e-9)
            assert ours <= theirs.get_delta_for_epsilon(epsilon)
            assert theirs.get_delta_for_epsilon(epsilon) < 1.5 * closed + 1e-9


def test_finite_precision_adds_up(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mechanism, "finite_precision_tv", 1e-5)
    mechanism = point()
    for i in range(4):
        ask(ledger, mechanism, "h0", str(i))
    ask(ledger, mechanism, "h1", "neighbor")
    # Equal covariances: five releases about the pair, whoever they are about; h2 has none, but the most counts.
    ideal = np.exp(edge_brackets([mechanism] * 5, mechanism.graph, 1.0)[0, :, 2].max())
    fewer = np.exp(edge_brackets([mechanism] * 4, mechanism.graph, 1.0)[1, :, 2].max())
    ideal, term = max(ideal, fewer), 5 * (1 + math.e) * 1e-5
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
    ask(ledger, one, "h1", "a")
    ask(ledger, other, "h1", "b")
    straight = shoal.design(turned.take([2, 1, 3, 0]), one.graph, "white", 1.0, 1.0)
    star = NeighborGraph.from_edges(one.graph.labels, [("h1", x) for x in ("h0", "h2", "h3")])
    exact = shoal.privacy_curve([one, straight], star, 1.0).delta
    assert ledger.spent("h1")["h1"].spent == pytest.approx(exact, rel=1e-11)


def pair_of_laws(seed: int, k: int, spread: float) -> GaussianClasses:
    """Two laws with different covariances."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((2, k, 2 * k))
    covs = np.eye(k) + spread * factors @ factors.transpose(0, 2, 1) / (2 * k)
    return GaussianClasses(spread * rng.standard_normal((2, k)), covs, ["a", "b"])


def test_a_pair_against_exact_arithmetic() -> None:
    """Two mechanisms, used unequally about both labels: an oracle of many digits that shares no code."""
    families = [pair_of_laws(3, 2, 0.6), pair_of_laws(8, 1, 0.9)]
    about, opposite = [2, 1], [1, 3]
    gammas: list[list[Any]] = [[], []]
    nus: list[list[Any]] = [[], []]
    for family, n, m in zip(families, about, opposite, strict=True):
        for way, (i, j) in enumerate(((0, 1), (1, 0))):
            gamma, nu = oracle.spectrum(family.means[i], family.covs[i], family.means[j], family.covs[j], dps=80)
            for world, times in ((way, n), (1 - way, m)):
                gammas[world] += list(gamma) * times
                nus[world] += list(nu) * times
    parts = tuple(lambda precise, f=f: incident_spectra(f, "a", ["b"], precise=precise) for f in families)
    counts = [np.array([[float(n)] for n in side]) for side in (about, opposite)]
    for epsilon in (0.0, 1.0, 4.0):
        curve = IncidentReleases(("a", "b"), parts, *counts).curve(np.array([epsilon]), [0])
        exact = max(oracle.log_hockey(gamma, nu, epsilon) for gamma, nu in zip(gammas, nus, strict=True))
        assert curve.log_delta_upper[0] >= exact
        assert math.log(curve.delta[0]) == pytest.approx(float(exact), abs=1e-9)


TOOLS = [trajectory(4, 2, gap=0.3, seed=seed) for seed in (1, 2)]
COMPOSER = Composer()


@settings(max_examples=40, derandomize=True, deadline=None)
@example([(0, "h1"), (0, "h2")], 1.0, 0.0)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["h0", "h1", "h2", "h3"])), min_size=1, max_size=12),
    st.sampled_from([0.1, 1.0, 2.0]),
    st.floats(0.0, 1e-3),
)
def test_random_sequences_of_releases(sequence: list[tuple[int, str]], epsilon: float, tv: float) -> None:
    """A label's account is that of its worst pair, each stacked by hand, and no less than its own releases cost.

    "No less" is than certified lower ends: two upper ends of the same δ may differ in the last place, either way.
    """
    labels = TOOLS[0].graph.labels
    charged = {name: charges([(TOOLS[i].digest, tv, 1) for i, about in sequence if about == name]) for name in labels}
    by_digest = {tool.digest: tool for tool in TOOLS}.__getitem__
    for label in labels:
        sides = tuple(PairAccount(charged[label], charged[other], (other,)) for other in labels if other != label)
        composed = COMPOSER.compose(label, sides, epsilon, by_digest)
        worst, certain, alone = -math.inf, -math.inf, -math.inf
        for other in labels:
            counts = [[sum(pair == (i, name) for pair in sequence) for i in (0, 1)] for name in (label, other)]
            if other == label or not any(map(any, counts)):
                continue
            families = [tool.output.take([labels.index(label), labels.index(other)]) for tool in TOOLS]
            value, lower = _largest(exchanged(families, *counts), epsilon)
            worst, certain = max(worst, value), max(certain, lower)
            if any(counts[0]):
                alone = max(alone, _largest(exchanged(families, counts[0], [0, 0]), epsilon)[1])
        own = charged[label].releases
        with mp.workdps(40):
            imprecise = (1 + mp.exp(epsilon)) * mpf(tv)
            most = imprecise * max(own + charged[o].releases for o in labels if o != label)
            assert mpf(composed.delta_upper) >= min(mp.exp(certain) + most, 1)
            assert mpf(composed.delta_upper) >= min(mp.exp(alone) + imprecise * own, 1)
        assert composed.delta_upper == pytest.approx(min(math.exp(worst) + float(most), 1.0), rel=1e-8)


def _largest(joint: GaussianClasses, epsilon: float) -> tuple[float, float]:
    """ln δ of two laws in the worse direction, and its certified lower end."""
    brackets = edge_brackets(joint, NeighborGraph.complete(joint.labels), epsilon)[0]
    return float(brackets[:, 0].max()), float(brackets[:, 1].max())


def test_tables_are_the_scope_of_that_name(ledger: Ledger) -> None:
    """Everybody's answer, twice: the ledger's account of any label is the certificate's figure for the table."""
    tool = trajectory(gap=0.05)
    labels = list(tool.graph.labels)
    for day in range(2):
        answers = [answer(tool, label) + 0.01 * day for label in labels]
        ledger.charge(tool, answers, None, labels, query_ids=[f"day {day}"] * 3)
    for label in labels:
        star = NeighborGraph.from_edges(labels, [(label, other) for other in labels if other != label])
        table = shoal.privacy_curve([tool.output] * 2, star, [0.2, 1.0], scope="table")
        np.testing.assert_allclose(spent_at(ledger, label, 0.2, 1.0), table.delta, rtol=1e-9)
    assert ledger.verify()


def test_charges_count_and_never_round_down() -> None:
    total = charges([("b", 0.1, 2), ("a", 0.1, 1), ("b", 0.2, 1)])
    assert [use[:2] for use in total.uses] == [("a", 1), ("b", 3)]
    assert Fraction(total.tv) >= 3 * Fraction(0.1) + Fraction(0.2)
    assert total.releases == 4
