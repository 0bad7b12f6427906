"""What a design costs: memory, evaluations under a deadline, what is found once; and centers against other routes."""

from __future__ import annotations

import signal
import tracemalloc
import weakref

import cvxpy as cp
import numpy as np
import pytest
from design_cases import family, random_covs

import shoal
from shoal import GaussianClasses, NeighborGraph
from shoal.designs import barycenter, descent, design, dominating, objectives
from shoal.designs import problem as problems


@pytest.mark.parametrize("few", [1, 100], ids=["coarse", "fine"])
@pytest.mark.parametrize(("seed", "n", "k"), [(0, 3, 2), (1, 5, 4), (2, 2, 6)])
def test_least_dominating_agrees_with_a_convex_solver(
    seed: int, n: int, k: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dominating, "FEW", few)
    covs = random_covs(np.random.default_rng(seed), n, k)
    found, lower = dominating.least_dominating(covs)
    shape = cp.Variable((k, k), symmetric=True)
    cp.Problem(cp.Minimize(cp.trace(shape)), [shape - own >> 0 for own in covs]).solve(solver=cp.CLARABEL)
    best = float(cp.trace(shape).value)
    assert np.linalg.eigvalsh(found - covs).min() >= 0
    assert lower <= best * (1 + 1e-7)
    assert lower <= np.trace(found) <= best * (1 + 3e-6)
    assert np.trace(found) - lower <= 3e-6 * lower


def test_a_late_center_is_still_one() -> None:
    """Its price is what it really costs, above the least; and it is not kept."""
    classes, _ = family(3, 6, 4)
    is_late = problems.Settings(deadline=-1.0)
    for name in ("transport_center", "additive_center"):
        early = barycenter.common_center(name, classes, is_late)
        whole = barycenter.common_center(name, classes)
        assert early.price >= whole.price * (1 - 1e-9)
        assert whole is barycenter.common_center(name, classes)
        assert (early.costs >= ((early.mean - classes.means) ** 2).sum(axis=1)).all()


def test_a_center_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """``design`` after ``perfect_rho`` has it, for every component, and so has the next design."""
    classes, _ = family(3, 6, 2)
    graph = NeighborGraph.from_edges(classes.labels, [("0", "1"), ("1", "2"), ("3", "4"), ("4", "5")])
    calls = []
    plain = barycenter.transport_center
    monkeypatch.setattr(barycenter, "transport_center", lambda *a, **o: calls.append(1) or plain(*a, **o))
    price = shoal.perfect_rho(classes, graph)
    for share in (0.3, 0.5):
        shoal.design(classes, graph, "transport", 1.0, share * price, iterations=2)
        shoal.design(classes, graph, "center", 1.0, share * price)
    assert len(calls) == 2


def peak(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_labels_times_entries_squared() -> None:
    """Arrays at the peak: some hundred numbers per label and squared entry, where one array once took k²/4 of them."""
    n, k = 6, 40
    classes, graph = family(2, n, k)
    assert peak(lambda: barycenter.additive_center(classes.means, classes.covs)) < 60 * n * k**2 * 8
    assert peak(lambda: barycenter.transport_center(classes.means, classes.covs)) < 60 * n * k**2 * 8
    price = shoal.perfect_rho(classes, graph)
    assert peak(lambda: shoal.design(classes, graph, "transport", 1.0, 0.5 * price, iterations=3)) < 250 * n * k**2 * 8


def test_laws_are_let_go() -> None:
    """What is found about laws once is kept as long as they are, and keeps them no longer."""
    classes, graph = family(2, 3, 4)
    shoal.privacy_curve(classes, graph, 1.0)
    shoal.perfect_rho(classes, graph)
    gone = weakref.ref(classes)
    del classes
    assert gone() is None


def test_gradients_do_not_need_room_for_all_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    classes, graph = family(4, 8, 3)
    problem = design.DesignProblem.of(classes, graph, 1.0, 0.3)
    moves = design.METHODS["white"].solve(problem, problems.UNHURRIED, ())
    laws, edges = objectives.trial_laws(problem, moves), np.arange(len(problem.pairs))
    whole = objectives.smoothed_odds(problem, edges, 20.0, laws)
    monkeypatch.setattr(objectives, "ROOM", 9 * 8)
    parts = objectives.smoothed_odds(problem, edges, 20.0, laws)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


class Clock:
    """A clock on which only the work of a design takes time: a second for every look at laws or roots."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        for module, name in (
            (descent, "log_deltas"), (objectives, "log_deltas_with_trace"), (descent, "smoothed_divergence"),
            (barycenter, "_closest_rotations"), (dominating, "_newton_step"),
        ):  # fmt: skip
            self._tick(monkeypatch, module, name)
        for module in (problems, design):
            monkeypatch.setattr(module, "monotonic", lambda: self.now)

    def _tick(self, monkeypatch: pytest.MonkeyPatch, module, name: str) -> None:
        plain = getattr(module, name)

        def slow(*args, **options):
            self.now += 1.0
            return plain(*args, **options)

        monkeypatch.setattr(module, name, slow)


@pytest.mark.parametrize("method", ["covariance", "additive", "transport", "ellipsoid"])
@pytest.mark.parametrize("limit", [3, 15, 60, 150])
def test_time_limit_is_heeded(method: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In centers, in the approach and in the descent: little is done once the time is up, and white is not better."""
    classes, graph = family(1, 9, 5)
    price = shoal.perfect_rho(GaussianClasses(classes.means, classes.covs), graph)
    white = shoal.design(classes, graph, "white", 1.0, 0.5 * price)
    clock = Clock(monkeypatch)
    mechanism = shoal.design(classes, graph, method, 1.0, 0.5 * price, time_limit=limit)
    assert clock.now <= limit + 40
    assert mechanism.certificate.delta_upper <= white.certificate.delta_upper * (1 + 1e-9)
    assert (mechanism.rho <= mechanism.budget).all()
    if method != "ellipsoid":
        assert any("time limit" in note for note in mechanism.notes)


@pytest.mark.parametrize("where", ["_closest_rotations", "_newton_step", "smoothed_divergence"])
def test_an_interrupt_anywhere_keeps_the_best(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    classes, graph = family(1, 6, 4)
    price = shoal.perfect_rho(GaussianClasses(classes.means, classes.covs), graph)
    module = {"_closest_rotations": barycenter, "_newton_step": dominating, "smoothed_divergence": descent}[where]
    plain, calls = getattr(module, where), []

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return plain(*args, **options)

    monkeypatch.setattr(module, where, interrupted)
    method = "additive" if where == "_newton_step" else "transport"
    mechanism = shoal.design(classes, graph, method, 1.0, 0.5 * price)
    assert len(calls) >= 5
    assert any("interrupt" in note for note in mechanism.notes)
    white = shoal.design(classes, graph, "white", 1.0, 0.5 * price)
    assert mechanism.certificate.delta_upper <= white.certificate.delta_upper


def test_ctrl_c_loses_nothing_that_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halfway down the divergence, long before anything was looked at exactly."""
    classes, graph = family(1, 12, 9)
    rho = 0.5 * shoal.perfect_rho(classes, graph)
    plain, calls = descent.smoothed_divergence, []

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == 30:
            signal.raise_signal(signal.SIGINT)
        return plain(*args, **options)

    monkeypatch.setattr(descent, "smoothed_divergence", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        mechanism = shoal.design(classes, graph, "transport", 1.0, rho)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(calls) < 40
    assert any("interrupt" in note for note in mechanism.notes)
    geodesic_moves = shoal.design(classes, graph, "center", 1.0, rho)
    assert mechanism.certificate.delta_upper < 0.9 * geodesic_moves.certificate.delta_upper


def test_where_delta_is_near_one_the_search_still_moves() -> None:
    """ln δ is flat there; its log odds are not."""
    rng = np.random.default_rng(0)
    classes = GaussianClasses(30.0 * rng.standard_normal((5, 3)), random_covs(rng, 5, 3))
    graph = NeighborGraph.complete(classes.labels)
    rho = 0.35 * shoal.perfect_rho(classes, graph)
    geodesic_moves, own = (shoal.design(classes, graph, name, 1.0, rho) for name in ("center", "transport"))
    assert geodesic_moves.certificate.delta > 0.99
    # Complements of δ, from ln δ: they differ by far more than δ itself.
    assert -np.expm1(own.certificate.log_delta) > 2.0 * -np.expm1(geodesic_moves.certificate.log_delta)


def test_center_asked_is_center_answered() -> None:
    classes, graph = family(2, 4, 2)
    price = shoal.perfect_rho(classes, graph)
    assert shoal.design(classes, graph, "center", 1.0, 0.5 * price).method == "center"
    assert shoal.calibrate(classes, graph, "center", 1.0, 1e-3).method == "center"
