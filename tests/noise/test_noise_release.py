"""Mechanism.release: the law of what comes out, what an attacker sees in its last bits, refusals, and certificates."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import stats

import shoal
from shoal import (
    CertificationError,
    GaussianClasses,
    InputError,
    Mechanism,
    NeighborGraph,
    UnreachableError,
)
from shoal.laws.supports import RankWarning
from shoal.mechanism import mechanism as mechanism_module
from shoal.noise.factor import WIDTH
from shoal.noise.source import RESOLUTION, NotPrivate
from shoal.validation import FloatArray


def family(seed: int = 0, n: int = 3, k: int = 2) -> tuple[GaussianClasses, NeighborGraph]:
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, k, k + 2)) / np.sqrt(k)
    classes = GaussianClasses(rng.standard_normal((n, k)), factors @ np.swapaxes(factors, 1, 2))
    return classes, NeighborGraph.complete(classes.labels)


def mixed() -> Mechanism:
    """Shift, gain and correlated noise that differ between labels; the last label has no noise."""
    classes, graph = family(3)
    plain = shoal.design(classes, graph, "center", 1.0, 0.2)
    assert plain.gain is not None
    noise = np.array([[[0.5, 0.3], [0.3, 0.4]], [[0.1, -0.2], [-0.2, 0.9]], [[0.0, 0.0], [0.0, 0.0]]])
    return Mechanism(
        **{name: getattr(plain, name) for name in plain.__dataclass_fields__ if name != "noise_cov"}, noise_cov=noise
    )


def zeros(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace the source by zeros and record how many normals are asked for."""
    asked: list[int] = []

    def draw(count: int) -> list[int]:
        asked.append(count)
        return [0] * count

    monkeypatch.setattr(mechanism_module, "standard_normals", draw)
    return asked


# ------------------------------------------------------------------ the law


def test_noise_is_drawn_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer has its own normals, and its own label, wherever a block ends."""
    mechanism, asked = mixed(), zeros(monkeypatch)
    rows, labels = np.random.default_rng(0).normal(size=(5, 2)), ["0", "1", "0", "1", "1"]
    together = mechanism.release(rows, labels)
    monkeypatch.setattr(mechanism_module, "DRAWN", 2)
    assert mechanism.release(rows, labels).tolist() == together.tolist()
    assert asked == [10, 4, 4, 2]


@pytest.mark.parametrize("label", ["0", "1"])
def test_law_of_released_answers(label: str) -> None:
    """Given q: the stated mean and covariance, and normal in every direction tried. Errors at 1 in 10⁶."""
    mechanism = mixed()
    assert mechanism.gain is not None
    i, m = int(label), 15_000
    q = np.array([0.3, -1.1])
    found = mechanism.release(np.tile(q, (m, 1)), label)
    center = q + mechanism.shift[i] + mechanism.gain[i] @ (q - mechanism.classes.means[i])
    white = np.linalg.solve(np.linalg.cholesky(mechanism.noise_cov[i]), (found - center).T)
    for direction in ([1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.6, -0.8]):
        assert stats.kstest(np.array(direction) @ white, "norm").pvalue > 1e-6
    assert np.abs(white.mean(axis=1)).max() < 5 / math.sqrt(m)
    assert np.abs(white @ white.T / m - np.eye(2)).max() < 5 * math.sqrt(2 / m)


def test_a_label_without_noise_is_rounded_only() -> None:
    mechanism = mixed()
    assert mechanism.gain is not None
    q = np.array([0.7, 0.2])
    exact = q + mechanism.shift[2] + mechanism.gain[2] @ (q - mechanism.classes.means[2])
    found = mechanism.release(q, "2")
    assert np.abs(found - exact).max() <= 0.51 * mechanism.grid.max()


# ------------------------------------------------------------------ what the bits tell


def is_coarse(answers: FloatArray) -> FloatArray:
    """The attack: near zero, is the answer a multiple of 2^−53? A sum 1 + noise is; noise alone seldom is."""
    near = np.asarray(answers).ravel()
    near = near[np.abs(near) < 1 / 16]
    return np.asarray(near * 2.0**53 == np.round(near * 2.0**53))


def pair() -> Mechanism:
    classes = GaussianClasses.deterministic([[0.0], [1.0]])
    return shoal.design(classes, NeighborGraph.complete(classes.labels), "white", 1.0, 1.0)


def test_last_bits_betray_seeded_samples_but_not_releases() -> None:
    mechanism = pair()
    naive, secure = {}, {}
    for label, mean in (("0", 0.0), ("1", 1.0)):
        naive[label] = is_coarse(mechanism.sample(np.full((60_000, 1), mean), label, seed=1))
        secure[label] = is_coarse(mechanism.release(np.full((6_000, 1), mean), label))
    assert naive["1"].all()
    assert naive["0"].mean() < 0.2
    assert min(len(v) for v in (*naive.values(), *secure.values())) > 100
    assert secure["0"].all()
    assert secure["1"].all()


def test_low_bits_of_the_index_are_uniform_for_every_label() -> None:
    mechanism = pair()
    table = []
    for label, mean in (("0", 0.0), ("1", 1.0)):
        index = mechanism.release(np.full((8_000, 1), mean), label)[:, 0] / mechanism.grid[0]
        assert (index == np.round(index)).all()
        low = np.bincount(index.astype(np.int64) % 32, minlength=32)
        assert stats.chisquare(low).pvalue > 1e-6
        table.append(low)
    assert stats.chi2_contingency(np.array(table)).pvalue > 1e-6


def test_every_label_reaches_every_grid_point() -> None:
    """Whatever the target, some draw of the normals leads there, from any label with noise."""
    mechanism = mixed()
    rng = np.random.default_rng(0)
    exact = mechanism._exact
    for label in (0, 1):
        factor = np.linalg.cholesky(mechanism.noise_cov[label])
        center = np.array(exact.indices([0.0, 0.0], label, [0, 0])) * mechanism.grid
        for target in rng.integers(-(2**20), 2**20, (50, 2)):
            z = np.linalg.solve(factor, target * mechanism.grid - center)
            # A step of the grid is about 2^100 units of z: a first guess, then at most a few corrections.
            for _ in range(4):
                units = [round(v * 2.0**60) << (RESOLUTION.unit_bits - 60) for v in z.tolist()]
                missed = np.array(exact.indices([0.0, 0.0], label, units)) - target
                z = z - np.linalg.solve(factor, 0.9 * missed * mechanism.grid)
            assert not missed.any()


def test_one_grid_for_all_labels() -> None:
    mechanism = mixed()
    answers = np.repeat(mechanism.classes.means, 20, axis=0)
    found = mechanism.release(answers, np.repeat(["0", "1", "2"], 20))
    assert (found / mechanism.grid == np.round(found / mechanism.grid)).all()
    assert (np.log2(mechanism.grid) % 1 == 0).all()
    deviations = np.sqrt(np.diagonal(mechanism.output.covs, axis1=1, axis2=2)).min(axis=0)
    assert (mechanism.grid <= 2.0**-20 * deviations).all()
    assert (mechanism.grid > 2.0**-22 * deviations).all()


# ------------------------------------------------------------------ the same work for every label


def test_as_many_draws_for_every_label(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, mechanism = zeros(monkeypatch), mixed()
    for label in "012":
        mechanism.release([0.0, 0.0], label)
    mechanism.release(np.zeros((5, 2)), ["0", "2", "2", "1", "0"])
    assert asked == [2, 2, 2, 10]


def test_all_labels_are_prepared_together(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros(monkeypatch)
    mechanism = mixed()
    mechanism.release([0.0, 0.0], "2")
    assert len(mechanism._exact.noise) == len(mechanism._exact.offset) == 3


def test_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros(monkeypatch)
    mechanism = mixed()
    answers = np.random.default_rng(0).standard_normal((4, 2))
    labels = ["2", "0", "1", "0"]
    whole = mechanism.release(answers, labels)
    assert whole.shape == (4, 2)
    for row, label, found in zip(answers, labels, whole, strict=True):
        one = mechanism.release(row, label)
        assert one.shape == (2,)
        np.testing.assert_array_equal(one, found)
    np.testing.assert_array_equal(mechanism.release(answers, "1")[2], whole[2])
    np.testing.assert_array_equal(mechanism.release(answers, np.array(labels)), whole)
    assert mechanism.release(np.empty((0, 2)), "1").shape == (0, 2)


@pytest.mark.parametrize(
    ("q", "label", "word"),
    [
        ([0.0, 0.0], "nobody", "label"),
        ([0.0, 0.0], None, "label"),
        ([0.0], "0", "q"),
        ([0.0, 0.0, 0.0], "0", "q"),
        ([0.0, math.nan], "0", "q"),
        ([0.0, math.inf], "0", "q"),
        ("text", "0", "q"),
        (np.zeros((2, 2, 2)), "0", "q"),
        (np.zeros((3, 2)), ["0", "1"], "label"),
        (np.zeros((2, 2)), ["0", "nobody"], "label"),
        ([0.0, 0.0], ["0"], "label"),
    ],
)
def test_refusals_draw_nothing(q: Any, label: Any, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, mechanism = zeros(monkeypatch), mixed()
    with pytest.raises(InputError, match=rf"^{word}\b"):
        mechanism.release(q, label)
    assert asked == []


def test_noise_that_cannot_be_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plain = zeros(monkeypatch), mixed()
    fields = {name: getattr(plain, name) for name in plain.__dataclass_fields__ if name != "noise_cov"}
    for cov in ([[1.0, 1.1], [1.1, 1.0]], [[-1e-9, 0.0], [0.0, 1.0]]):
        broken = plain.noise_cov.copy()
        broken[1] = cov
        mechanism = Mechanism(**fields, noise_cov=broken)
        for label in "012":
            with pytest.raises(CertificationError, match="semidefinite"):
                mechanism.release([0.0, 0.0], label)
    assert mechanism.rounding_tv[1] == 1.0
    assert asked == []


def test_no_seed_is_accepted() -> None:
    with pytest.raises(TypeError):
        mixed().release([0.0, 0.0], "0", seed=1)  # type: ignore[call-arg]


def test_samples_are_marked() -> None:
    found = pair().sample([[0.0], [0.0]], "0", seed=3)
    assert isinstance(found, NotPrivate)
    assert isinstance(found + 1.0, NotPrivate)
    assert repr(found).startswith("NotPrivate(")
    assert not isinstance(np.asarray(found), NotPrivate)
    assert not isinstance(pair().release([0.0], "0"), NotPrivate)
    np.testing.assert_array_equal(found, pair().sample([[0.0], [0.0]], "0", seed=3))


# ------------------------------------------------------------------ what is certified


def test_certificate_includes_finite_precision() -> None:
    mechanism = pair()
    certificate, ideal = mechanism.certificate, mechanism.curve(1.0)
    assert 0 < certificate.finite_precision < 1e-27
    assert certificate.finite_precision >= (1 + math.e) * mechanism.rounding_tv.max()
    assert mechanism.finite_precision_tv == mechanism.rounding_tv.max()
    assert certificate.delta == ideal.delta
    assert certificate.delta_upper >= ideal.delta_upper + certificate.finite_precision
    assert certificate.delta_upper == pytest.approx(ideal.delta_upper, rel=1e-9)
    assert str(certificate).endswith("(dp; one answer), worst for 0 against 1")


def test_finite_precision_is_the_floor_of_a_perfect_design() -> None:
    classes, graph = family(1)
    found = shoal.design(classes, graph, "additive", 1.0, 1.01 * shoal.perfect_rho(classes, graph, "additive"))
    assert found.curve(1.0).log_delta_upper < -1e6
    certificate = found.certificate
    assert 1e-32 < certificate.finite_precision <= certificate.delta_upper < 1e-26
    assert certificate.log_delta_upper == pytest.approx(math.log(certificate.finite_precision), rel=1e-9)
    with mp.workdps(40):
        assert mp.exp(mpf(certificate.log_delta_upper)) >= certificate.finite_precision


def test_without_noise_the_rounding_is_all() -> None:
    """A map without noise rests on the answer's own law; exact arithmetic and rounding add nothing to δ."""
    classes, graph = family(1)
    found = shoal.design(classes, graph, "center", 1.0, 0.5 * shoal.perfect_rho(classes, graph))
    assert not found.noise_cov.any()
    assert found.certificate.finite_precision == 0.0
    assert found.certificate.delta_upper == found.curve(1.0).delta_upper


@pytest.mark.parametrize("notion", ["pdp", "pdp-two-sided", "chernoff"])
def test_claims_become_dp_once_rounded(notion: str) -> None:
    classes, graph = family(2)
    mechanism = shoal.design(classes, graph, "white", 1.0, 0.5, notion)
    certificate = mechanism.certificate
    assert certificate.notion == notion
    assert certificate.released_notion == "dp"
    assert f"(dp, once rounded; designed for {notion}; one answer)" in str(certificate)
    assert certificate.delta == mechanism.curve(1.0, notion).delta
    assert certificate.delta_upper >= mechanism.released_curve(1.0).delta_upper


def test_released_curve() -> None:
    mechanism = pair()
    grid = np.array([0.0, 1.0, 3.0, 40.0, 1000.0])
    ideal, released = mechanism.curve(grid), mechanism.released_curve(grid)
    np.testing.assert_array_equal(ideal.delta, released.delta)
    known = mpf(1)  # δ(ε) only falls, so what holds at a smaller ε holds from there on
    for j, epsilon in enumerate(grid):
        with mp.workdps(60):
            least = (1 + mp.exp(mpf(float(epsilon)))) * mpf(float(mechanism.rounding_tv.max()))
            known = min(mpf(float(ideal.delta_upper[j])) + least, known)
            assert released.delta_upper[j] >= known
        assert released.log_delta_upper[j] >= ideal.log_delta_upper[j]
        assert released.delta_lower[j] == 0.0
    assert mechanism.released_curve(1000.0).delta_upper == 1.0  # e^1000 times anything
    assert (np.diff(released.delta_upper) <= 0).all()
    assert mechanism.released_curve(1.0).delta_upper == released.delta_upper[1] == mechanism.certificate.delta_upper


def test_per_edge_epsilon() -> None:
    classes, graph = family(2)
    mechanism = shoal.design(classes, graph, "white", [0.1, 5.0, 0.2], 0.5)
    assert mechanism.certificate.finite_precision >= (1 + math.exp(5.0)) * mechanism.rounding_tv.min()


def test_calibration_below_the_floor_is_unreachable() -> None:
    classes = GaussianClasses.deterministic([[0.0], [1.0]])
    graph = NeighborGraph.complete(classes.labels)
    with pytest.raises(UnreachableError, match=r"finite precision.*e-\d\d"):
        shoal.calibrate(classes, graph, "white", 1.0, 1e-60)
    found = shoal.calibrate(classes, graph, "white", 1.0, 1e-20)
    assert found.certificate.delta_upper <= 1e-20


@pytest.mark.parametrize("shared", [True, False])
def test_the_accounting_covers_the_covariance_that_is_drawn(shared: bool) -> None:
    """Rank-deficient noise is drawn with a little more on its diagonal; narrow laws make that count."""
    rng = np.random.default_rng(1)
    n, k = 2, 4
    factors = rng.standard_normal((n, k, 1))
    noise = factors @ np.swapaxes(factors, 1, 2)
    noise = noise[:1] if shared else noise
    classes = GaussianClasses(rng.standard_normal((n, k)), 1e-9 * np.stack([np.eye(k), 2 * np.eye(k)]))
    graph = NeighborGraph.complete(classes.labels)
    plain = shoal.design(classes, graph, "none", 1.0, 1.0)
    fields = {name: getattr(plain, name) for name in plain.__dataclass_fields__ if name != "noise_cov"}
    mechanism = Mechanism(**fields, noise_cov=noise)
    assert mechanism.output.relative_errors is not None
    with mpmath.workdps(60):
        for i, factor in enumerate(mechanism._exact.noise):
            a = mpmath.zeros(k, k)
            for r, row in enumerate(factor.rows):
                for c, value in enumerate(row):
                    a[r, c] = mpmath.ldexp(mpmath.mpf(value), factor.exponents[r] - WIDTH)
            drawn = mpmath.matrix(classes.covs[i].tolist()) + a * a.T
            stated = mpmath.matrix(mechanism.output.covs[i].tolist())
            inverse = mpmath.cholesky(stated) ** -1
            gap = inverse * (drawn - stated) * inverse.T
            largest = max(abs(v) for v in mpmath.eigsy(0.5 * (gap + gap.T), eigvals_only=True))
            assert 1e-8 < largest <= mechanism.output.relative_errors[0][i]


def test_no_claim_where_supports_rest_on_rounding() -> None:
    """Laws on one line that a rounded map moved: alike on paper, told apart by the last digits."""
    along = np.array([[1.0], [-2.0], [0.3]])
    classes = GaussianClasses(np.zeros((2, 3)), np.array([along @ along.T, 3.0 * along @ along.T]))
    graph = NeighborGraph.complete(classes.labels)
    moved, bare, white = (shoal.design(classes, graph, method, 1.0, 0.01) for method in ("center", "none", "white"))
    with pytest.warns(RankWarning):
        assert moved.certificate.delta_upper == 1.0
    assert moved.rounding_tv.tolist() == [1.0, 1.0]
    assert bare.rounding_tv.tolist() == [0.0, 0.0]
    assert white.rounding_tv.max() < 1e-27
