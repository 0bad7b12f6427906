"""Families of hard pairs, and certified figures of the library held against enclosures of ``determinants``.

A check is one certified upper end compared with one enclosure, with no tolerance: it fails where the upper end is below
the enclosure's lower end. Lower ends are compared too and counted apart. A refusal (CertificationError) claims nothing
and is counted as such; any other exception counts as a crash. Everything follows from (family, seed).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

import determinants
import shoal
from determinants import Edge, Enclosure, Law, law, moved
from shoal.accounting import curve as accounting
from shoal.accounting.curve import edge_brackets
from shoal.accounting.deterministic import gaussian_delta
from shoal.accounting.releases import Releases
from shoal.accounting.renyi import gdp
from shoal.noise.factor import JITTER, jittered
from shoal.noise.source import RESOLUTION

Array = NDArray[np.float64]
NOTIONS = ("dp", "pdp", "pdp-two-sided")
#: ε of one sweep.
SWEEP = 160


@dataclass
class Tally:
    """What came of one seed of one family."""

    pairs: int = 0
    checks: int = 0
    lower_checks: int = 0
    refused: int = 0
    unresolved: int = 0
    violations: list[str] = field(default_factory=list)
    false_lower: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)

    def compare(self, what: str, log_upper: float, log_lower: float, truth: Enclosure) -> None:
        """Hold a bracket of ln δ against the truth."""
        with determinants.bits(256):
            self.checks += 1
            top = arb(log_upper).exp() if log_upper > -math.inf else arb(0)
            if math.isnan(log_upper) or top < truth.lower:
                self.violations.append(f"{what}: upper ln δ {log_upper!r}, proven {truth.log[0]!r}")
            self.lower_checks += 1
            if log_lower > -math.inf and arb(log_lower).exp() > truth.upper:
                self.false_lower.append(f"{what}: lower ln δ {log_lower!r}, proven at most {truth.log[1]!r}")

    def at_most(self, what: str, claimed: float, truth: Enclosure) -> None:
        """Hold a claimed upper end, as a number, against the truth."""
        self.checks += 1
        if math.isnan(claimed) or not determinants.above(claimed, truth):
            self.violations.append(f"{what}: {claimed!r}, proven e^{truth.log[0]!r}")

    def attempt(self, what: str, call: Callable[[], None]) -> None:
        """Run one comparison; a refusal claims nothing, an enclosure that was not found decides nothing."""
        try:
            call()
        except shoal.CertificationError:
            self.refused += 1
        except determinants.Unresolved:
            self.unresolved += 1
        except (ArithmeticError, ValueError, IndexError, AssertionError) as error:
            self.crashes.append(f"{what}: {type(error).__name__}: {error}"[:200])


def laws_of(classes: shoal.GaussianClasses) -> list[Law]:
    """The laws as stored, exactly."""
    return [law(mean, cov) for mean, cov in zip(classes.means, classes.covs, strict=True)]


def output_laws(mechanism: shoal.Mechanism) -> list[Law]:
    """Laws of what a mechanism gives out, exactly, from its stored parameters."""
    found = []
    for i, source in enumerate(laws_of(mechanism.classes)):
        gain = None if mechanism.gain is None else mechanism.gain[i]
        noise = mechanism.noise_cov[min(i, len(mechanism.noise_cov) - 1)]
        found.append(moved(source, exact_shift(mechanism, i), gain, noise))
    return found


def exact_shift(mechanism: shoal.Mechanism, i: int) -> list[Fraction]:
    """What is added to the mean: the stored shift, or the way to the grid point next to the rounded sum."""
    shift = np.broadcast_to(mechanism.shift, mechanism.classes.means.shape)[i].tolist()
    grid = [-1074] * len(shift) if mechanism.mean_grid is None else mechanism.mean_grid[i].tolist()
    result = []
    for mean, moved_by, exponent in zip(mechanism.classes.means[i].tolist(), shift, grid, strict=True):
        step = Fraction(2) ** exponent
        snapped = round(Fraction(mean + moved_by) / step) * step  # half to even, as IEEE rounds
        result.append(Fraction(moved_by) if exponent == -1074 else snapped - Fraction(mean))
    return result


def epsilons(rng: np.random.Generator, edge: Edge, count: int) -> list[float]:
    """0 and others at which δ is anything from near 1 to far below 1e-100; at most 1000."""
    mean, std = edge.loss()
    levels = rng.choice([0.0, 1.0, 3.0, 8.0, 20.0, 60.0], size=count - 1, replace=False)
    chosen = [max(mean, 0.0) + std * float(z) * float(rng.uniform(0.7, 1.3)) for z in levels]
    if rng.random() < 0.3:
        chosen[0] = float(rng.uniform(0.0, 50.0))
    return [0.0, *(min(e, 1000.0) for e in chosen)]


def brackets(
    tally: Tally,
    released: Any,
    edge: Edge,
    grid: Sequence[float],
    notions: Sequence[str] = NOTIONS,
    labels: tuple[str, str] = ("0", "1"),
) -> None:
    """Both directions of the only edge between two labels at every ε and notion."""
    tally.pairs += 1
    graph = shoal.NeighborGraph.from_edges(labels, [labels])
    for epsilon in grid:
        for notion in notions:
            what = f"ε={epsilon!r} {notion}"

            def call(epsilon: float = epsilon, notion: str = notion, what: str = what) -> None:
                found = edge_brackets(released, graph, epsilon, notion)[0]
                for direction in range(2):
                    truth = edge.delta(epsilon, notion, reverse=direction == 1)
                    tally.compare(f"{what} direction {direction}", found[direction, 2], found[direction, 1], truth)

            tally.attempt(what, call)
    sweeps(tally, released, edge, grid)


def sweeps(tally: Tally, released: Any, edge: Edge, grid: Sequence[float], scope: str = "answer") -> None:
    """δ at many ε about each of those given, in every direction, all of them from few sums."""
    releases = Releases.of(released, scope)
    pairs = releases.pairs(shoal.NeighborGraph.complete(("0", "1")))
    for epsilon in grid:
        for direction in range(releases.directions):

            def call(epsilon: float = epsilon, direction: int = direction) -> None:
                found = edge.around(epsilon, SWEEP, reverse=direction == 1)
                if not found:
                    return
                at = np.array([e for e, _ in found])
                every = accounting.brackets(releases, pairs, 0, at, releases.offsets(pairs, None))
                _, lows, highs = accounting.trusted(every[0, direction])
                for (e, truth), low, high in zip(found, lows.tolist(), highs.tolist(), strict=True):
                    tally.compare(f"about ε={e!r} direction {direction}", high, low, truth)

            tally.attempt(f"about ε={epsilon!r}", call)


def pair(
    tally: Tally,
    rng: np.random.Generator,
    means: Array,
    covs: Array,
    count: int = 4,
    grid: Callable[[Edge], Sequence[float]] | None = None,
) -> None:
    """Everything about two laws of full rank, or singular ones with exact parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            classes = shoal.GaussianClasses(means, covs)
        except shoal.InputError:
            tally.refused += 1
            return
        try:
            edge = Edge.of(tuple(laws_of(classes)))  # type: ignore[arg-type]
        except ValueError:
            return  # not a covariance once rounded
        brackets(tally, classes, edge, grid(edge) if grid else epsilons(rng, edge, count))


# ---------------------------------------------------------------------------------------------------------------
# Laws


def rotation(rng: np.random.Generator, k: int) -> Array:
    q, r = np.linalg.qr(rng.standard_normal((k, k)))
    return np.asarray(q * np.sign(np.diag(r)))


def covariance(rng: np.random.Generator, k: int, decades: float) -> Array:
    values = 10.0 ** rng.uniform(-decades, 0.0, k)
    half = rotation(rng, k) * np.sqrt(values)
    return np.asarray(half @ half.T)


def likeness(rng: np.random.Generator, half: Array, spread: float, length: float) -> tuple[Array, Array]:
    """A covariance and a mean gap that look moderate next to the factor given."""
    k = len(half)
    other = half @ (rotation(rng, k) * np.exp(spread * rng.standard_normal(k)))
    return other @ other.T, half @ rng.standard_normal(k) * length / math.sqrt(k)


def full_rank(seed: int, low: int = 1, high: int = 12) -> Tally:
    tally, rng = Tally(), np.random.default_rng([1, seed, high])
    k = int(rng.integers(low, high + 1))
    half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-float(rng.choice([0, 1, 4, 8])), 0.0, k))
    other, gap = likeness(rng, half, float(rng.choice([0.05, 0.3, 1.0])), float(10.0 ** rng.uniform(-2, 1)))
    mean = rng.standard_normal(k) * rng.choice([0.0, 1.0, 100.0])
    pair(tally, rng, np.array([mean, mean + gap]), np.array([half @ half.T, other]))
    return tally


def wide(seed: int) -> Tally:
    return full_rank(seed, 13, 24)


def widest(seed: int) -> Tally:
    """k from 25 to 60."""
    tally, rng = Tally(), np.random.default_rng([2, seed])
    k = int(rng.integers(25, 61))
    half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-2.0, 0.0, k))
    other, gap = likeness(rng, half, float(rng.choice([0.05, 0.3])), float(10.0 ** rng.uniform(-1, 0.7)))
    pair(tally, rng, np.array([np.zeros(k), gap]), np.array([half @ half.T, other]), count=5)
    return tally


def unrelated(seed: int) -> Tally:
    """Covariances that have nothing to do with each other: δ near 1, complements matter."""
    tally, rng = Tally(), np.random.default_rng([3, seed])
    k = int(rng.integers(1, 9))
    covs = np.array([covariance(rng, k, float(rng.choice([1, 4, 8]))) for _ in range(2)])
    pair(tally, rng, rng.standard_normal((2, k)), covs)
    return tally


def graded(seed: int) -> Tally:
    """Entries from 1e-12 to 1e12."""
    tally, rng = Tally(), np.random.default_rng([4, seed])
    k = int(rng.integers(2, 13))
    half = rotation(rng, k) * np.exp(0.3 * rng.standard_normal(k))
    other, gap = likeness(rng, half, 0.3, float(10.0 ** rng.uniform(-1, 1)))
    axes = 10.0 ** rng.permutation(np.linspace(-6.0, 6.0, k))
    covs = np.array([half @ half.T, other]) * axes[:, None] * axes[None, :]
    mean = axes * rng.standard_normal(k)
    pair(tally, rng, np.array([mean, mean + axes * gap]), covs)
    return tally


def near_equal(seed: int) -> Tally:
    """Laws that differ by 1e-1 down to a few units in the last place, means alike or not."""
    tally, rng = Tally(), np.random.default_rng([5, seed])
    k = int(rng.integers(1, 13))
    base = covariance(rng, k, float(rng.choice([0.5, 2.0, 5.0])))
    half = np.linalg.cholesky(base)
    size = 10.0 ** rng.uniform(-16.0, -1.0)
    change = rng.standard_normal((k, k))
    other = base + size * half @ (change + change.T) @ half.T
    gap = half @ rng.standard_normal(k) * size * rng.choice([0.0, 1.0, 100.0])
    mean = rng.standard_normal(k) * rng.choice([0.0, 1.0])
    pair(tally, rng, np.array([mean, mean + gap]), np.array([base, 0.5 * (other + other.T)]))
    return tally


def diagonal(seed: int) -> Tally:
    """Independent entries, by construction."""
    tally, rng = Tally(), np.random.default_rng([6, seed])
    k = int(rng.integers(1, 13))
    v = 10.0 ** rng.uniform(-6, 6, k)
    other = v * np.exp(rng.standard_normal(k) * 10.0 ** rng.uniform(-8, 0.3))
    other = np.where(rng.random(k) < 0.3, v, other)
    gap = np.sqrt(v) * rng.standard_normal(k) * 10.0 ** rng.uniform(-3, 0.7)
    classes = shoal.GaussianClasses.diagonal(np.array([np.zeros(k), gap]), np.array([v, other]))
    edge = Edge.of(tuple(laws_of(classes)))  # type: ignore[arg-type]
    brackets(tally, classes, edge, epsilons(rng, edge, 4))
    return tally


def constants(seed: int) -> Tally:
    """Deterministic answers behind one shared noise, and the closed forms built on it."""
    tally, rng = Tally(), np.random.default_rng([7, seed])
    k = int(rng.integers(1, 13))
    means = rng.standard_normal((2, k)) * 10.0 ** rng.uniform(-6, 6)
    size = float(np.linalg.norm(means[0] - means[1]) * 10.0 ** rng.uniform(-1, 2))
    noise: Any = size**2 if rng.random() < 0.3 else size**2 * covariance(rng, k, 3.0)
    classes = shoal.GaussianClasses.deterministic(means).with_noise(noise)
    edge = Edge.of(tuple(laws_of(classes)))  # type: ignore[arg-type]
    grid = epsilons(rng, edge, 4)
    brackets(tally, classes, edge, grid)
    gap, sigma = float(10.0 ** rng.uniform(-3, 3)), float(10.0 ** rng.uniform(-3, 3))
    scalar = Edge.of(
        (
            law([0.0], [[1.0]]),
            Law((determinants.rational(gap) / determinants.rational(sigma),), law([0.0], [[1.0]]).cov),
        )
    )
    for epsilon in epsilons(rng, scalar, 4):
        for notion in ("dp", "pdp"):
            tally.at_most(
                f"gaussian_delta {gap!r} {sigma!r} {epsilon!r} {notion}",
                gaussian_delta(gap, sigma, epsilon, notion),
                scalar.delta(epsilon, notion),
            )
    return tally


def closed_line(seed: int) -> Tally:
    """One entry, variances unequal: 60 pairs in closed form."""
    tally, rng = Tally(), np.random.default_rng([19, seed])
    n = 61
    sizes = np.exp(rng.standard_normal(n) * 10.0 ** rng.uniform(-6, 0.5, n)) * 10.0 ** rng.choice([-12, 0, 0, 12])
    means = np.cumsum(rng.standard_normal(n) * np.sqrt(sizes) * 10.0 ** rng.uniform(-3, 0.8, n))
    classes = shoal.GaussianClasses.diagonal(means[:, None], sizes[:, None])
    graph = shoal.NeighborGraph.from_edges(classes.labels, list(zip(classes.labels, classes.labels[1:], strict=False)))
    means, sizes = classes.means[:, 0], classes.stored_variances[:, 0]
    for epsilon in (0.0, *(50.0 * rng.random(7) ** 4).tolist()):

        def call(epsilon: float = epsilon) -> None:
            found = edge_brackets(classes, graph, epsilon)
            for (i, j), both in zip(graph.edges.tolist(), found.tolist(), strict=True):
                for a, b, (_, low, high) in ((i, j, both[0]), (j, i, both[1])):
                    gap = determinants.rational(means[b]) - determinants.rational(means[a])
                    truth = (
                        determinants.on_a_line(gap, sizes[a], sizes[b], epsilon)
                        if sizes[a] != sizes[b]
                        else Edge.of((law([means[a]], [[sizes[a]]]), law([means[b]], [[sizes[b]]]))).delta(epsilon)
                    )
                    tally.compare(f"line {i}-{j} ε={epsilon!r}", high, low, truth)

        tally.attempt(f"line ε={epsilon!r}", call)
    tally.pairs += graph.n_edges
    return tally


def closed_constants(seed: int) -> Tally:
    """Constants behind white noise, k = 1 to 60: 60 pairs in closed form."""
    tally, rng = Tally(), np.random.default_rng([20, seed])
    n, k = 61, int(rng.integers(1, 61))
    means = np.cumsum(rng.standard_normal((n, k)) * 10.0 ** rng.uniform(-4, 1, (n, 1)) / math.sqrt(k), axis=0)
    size = float(10.0 ** rng.uniform(-1, 1))
    classes = shoal.GaussianClasses.deterministic(means).with_noise(size)
    graph = shoal.NeighborGraph.from_edges(classes.labels, list(zip(classes.labels, classes.labels[1:], strict=False)))
    rows = [[determinants.rational(v) for v in row] for row in classes.means.tolist()]
    squares = [
        sum(((y - x) ** 2 for x, y in zip(rows[i], rows[j], strict=True)), start=determinants.rational(0.0))
        / determinants.rational(size)
        for i, j in graph.edges
    ]
    edges = [Edge.gaussian(square) for square in squares]
    for epsilon in (0.0, *(50.0 * rng.random(7) ** 4).tolist()):

        def call(epsilon: float = epsilon) -> None:
            found = edge_brackets(classes, graph, epsilon)
            for edge, both in zip(edges, found.tolist(), strict=True):
                for _, low, high in both:
                    tally.compare(f"white noise, k={k} ε={epsilon!r}", high, low, edge.delta(epsilon))

        tally.attempt(f"white noise ε={epsilon!r}", call)
    tally.pairs += graph.n_edges
    return tally


def bounded(seed: int) -> Tally:
    """One law inside the other: a bounded loss, at ε about its supremum."""
    tally, rng = Tally(), np.random.default_rng([21, seed])
    k = int(rng.integers(1, 9))
    g = -np.minimum(10.0 ** rng.uniform(-6, 0, k), 0.99)
    w = rng.standard_normal(k) * np.sqrt(-g) * 10.0 ** rng.uniform(-2, 0.5)
    half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-float(rng.choice([0, 3])), 0.0, k))
    covs = np.array([half @ np.diag(1 + g) @ half.T, half @ half.T])
    top = float(-0.5 * np.log1p(g).sum() - 0.5 * (w**2 / g).sum())
    near = [top * (1 + sign * 10.0 ** rng.uniform(-15, -0.5)) for sign in (-1, -1, 1)]
    pair(tally, rng, np.array([np.zeros(k), half @ w]), covs, grid=lambda edge: [0.0, *near])
    return tally


def duplicated(seed: int) -> Tally:
    """Whitened differences with equal eigenvalues, exactly, in turned coordinates."""
    tally, rng = Tally(), np.random.default_rng([22, seed])
    blocks = int(rng.integers(1, 4))
    turn = np.kron(np.eye(blocks), np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2)
    k = 4 * blocks
    values = rng.choice([0.5, 1.0, 1.0, 1.25, 2.0, 1 + 2.0**-20, 1 - 2.0**-30], k)
    sizes = 2.0 ** rng.integers(-8, 9, k).astype(float)
    covs = np.array([(turn * values) @ turn.T, np.eye(k)]) * sizes[:, None] * sizes[None, :]
    gap = sizes * (turn @ np.round(rng.standard_normal(k) * 4)) * 2.0 ** -int(rng.integers(2, 12))
    pair(tally, rng, np.array([np.zeros(k), gap]), covs)
    return tally


def clustered(seed: int) -> Tally:
    """Whitened differences with clusters of eigenvalues; of many, the one whose eigenvectors are least orthogonal."""
    tally, rng = Tally(), np.random.default_rng([8, seed])
    k = int(rng.integers(26, 61))
    clusters = [0.0, 1e-9, -1e-9, 1e-12, -1e-12, 0.05, 0.05 + 1e-11, -0.04, -0.04 + 1e-10]
    worst, chosen = -1.0, np.eye(k)
    for _ in range(40):
        turn = rotation(rng, k)
        found = (turn * rng.choice(clusters, size=k)) @ turn.T
        found = 0.5 * (found + found.T)
        cov = np.eye(k) + found
        try:
            vectors = np.linalg.eigh(cov - np.eye(k))[1]
            skew = float(np.abs(vectors.T @ vectors - np.eye(k)).max())
        except np.linalg.LinAlgError:  # LAPACK gave up
            skew = math.inf
        if skew > worst:
            worst, chosen = skew, cov
    gap = rng.standard_normal(k) * 10.0 ** rng.uniform(-2, 0) / math.sqrt(k)
    pair(tally, rng, np.array([np.zeros(k), gap]), np.array([chosen, np.eye(k)]), count=5)
    return tally


def nearly_singular(seed: int) -> Tally:
    """Correlations with an eigenvalue of 1e-16 to 1e-8, full rank in exact arithmetic."""
    tally, rng = Tally(), np.random.default_rng([9, seed])
    k = int(rng.integers(2, 9))
    values = np.ones(k)
    values[: int(rng.integers(1, k))] = 10.0 ** rng.uniform(-16.0, -8.0)
    half = rotation(rng, k) * np.sqrt(values)
    other, gap = likeness(rng, half, 0.3, 1.0)
    mean = rng.standard_normal(k) * rng.choice([0.0, 1.0, 1e4])
    pair(tally, rng, np.array([mean, mean + gap]), np.array([half @ half.T, other]))
    return tally


def _dyadic(rng: np.random.Generator, shape: tuple[int, ...], size: int) -> Array:
    return rng.integers(-size, size + 1, shape).astype(float)


def _support(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """A map onto a subspace and two covariances inside it, badly conditioned or not, whose products are exact."""
    k = int(rng.integers(2, 7))
    r = int(rng.integers(1, k))
    onto = _dyadic(rng, (k, r), 4)
    if rng.random() < 0.5:  # columns that are nearly parallel
        onto = onto[:, :1] + onto * 2.0 ** -int(rng.integers(2, 12))
    finest = int(rng.choice([0, 4, 8]))
    sizes = 2.0 ** -rng.integers(0, finest + 1, r).astype(float)
    inner = []
    for _ in range(2):
        factor = np.tril(_dyadic(rng, (r, r), 2), -1) + np.eye(r)
        factor = factor * sizes * rng.choice([1.0, 1.0, 2.0], r)
        inner.append(onto @ (factor @ factor.T) @ onto.T)
    return onto, inner[0], inner[1]


def singular(seed: int) -> Tally:
    """Singular laws on one support, with exact parameters, means far from zero or not."""
    tally, rng = Tally(), np.random.default_rng([10, seed])
    onto, a, b = _support(rng)
    scale = 2.0 ** rng.integers(-20, 21, len(onto)).astype(float) if rng.random() < 0.3 else np.ones(len(onto))
    mean = np.round(rng.standard_normal(len(onto)) * float(rng.choice([0.0, 1.0, 2.0**20])))
    gap = onto @ _dyadic(rng, (onto.shape[1],), 3) * rng.choice([0.0, 1.0])
    covs = np.array([a, b]) * scale[:, None] * scale[None, :]
    pair(tally, rng, np.array([mean * scale, (mean + gap) * scale]), covs)
    return tally


def apart(seed: int) -> Tally:
    """Singular laws on supports that differ a little: δ = 1."""
    tally, rng = Tally(), np.random.default_rng([11, seed])
    onto, a, b = _support(rng)
    k = len(onto)
    mean = np.round(rng.standard_normal(k) * float(rng.choice([0.0, 1.0, 2.0**13, 2.0**30])))
    other = mean + onto @ _dyadic(rng, (onto.shape[1],), 3)
    # A gap of a few units in the last place of the means, in one entry: off the support, nearly always.
    entry = int(rng.integers(k))
    other[entry] += np.spacing(max(1.0, abs(other[entry]))) * float(rng.choice([1, 3, 10, 30, 100, 1e4, 1e8]))
    pair(tally, rng, np.array([mean, other]), np.array([a, b if rng.random() < 0.5 else a]))
    return tally


# ---------------------------------------------------------------------------------------------------------------
# Mechanisms


def _mechanism(tally: Tally, rng: np.random.Generator, mechanism: shoal.Mechanism, grid: Sequence[float]) -> None:
    """A design's certificate and curves against the exact laws of what it gives out."""
    laws = output_laws(mechanism)
    edges = [Edge.of((laws[i], laws[j])) for i, j in mechanism.pairs]
    tally.pairs += len(edges)

    def worst(epsilon: Sequence[float] | float, notion: str) -> Enclosure:
        each = np.broadcast_to(epsilon, (len(edges),))
        found = [
            edge.delta(float(e), notion, reverse=back)
            for edge, e in zip(edges, each, strict=True)
            for back in (False, True)
        ]
        top = max(found, key=lambda one: one.lower)
        return Enclosure(top.lower, max((one.upper for one in found), key=lambda one: one))

    def certificate() -> None:
        tally.at_most(
            f"{mechanism.method} certificate", mechanism.certificate.delta_upper, worst(mechanism.epsilon, "dp")
        )

    tally.attempt(f"{mechanism.method} certificate", certificate)
    for epsilon in grid:
        for notion in NOTIONS:
            what = f"{mechanism.method} curve ε={epsilon!r} {notion}"

            def call(epsilon: float = epsilon, notion: str = notion, what: str = what) -> None:
                found = mechanism.curve(epsilon, notion)
                truth = worst(epsilon, notion)
                tally.compare(
                    what,
                    found.log_delta_upper,
                    math.log(found.delta_lower) if found.delta_lower > 0 else -math.inf,
                    truth,
                )

            tally.attempt(what, call)

    for epsilon in grid:
        edge = edges[int(np.argmax([float(edge.delta(epsilon).lower) for edge in edges]))]
        for back in (False, True):

            def sweep(epsilon: float = epsilon, back: bool = back, edge: Edge = edge) -> None:
                found = edge.around(epsilon, SWEEP, reverse=back)
                if found:
                    curve = mechanism.curve([e for e, _ in found])
                    for (e, truth), high in zip(found, curve.log_delta_upper.tolist(), strict=True):
                        tally.compare(f"{mechanism.method} about ε={e!r}", high, -math.inf, truth)

            tally.attempt(f"{mechanism.method} about ε={epsilon!r}", sweep)


METHODS = ("none", "white", "paper", "covariance", "additive", "transport", "center")


def _asked(rng: np.random.Generator, seed: int) -> Callable[[], shoal.Mechanism]:
    """A design of the seed's method, with floors, weights, budgets per label and ε per edge."""
    method = METHODS[seed % len(METHODS)]
    n, k = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    size = 10.0 ** float(rng.choice([-3.0, 0.0, 0.0, 4.0]))
    means = rng.standard_normal((n, k)) * size
    if rng.random() < 0.25:
        classes = shoal.GaussianClasses.deterministic(means)
    else:
        classes = shoal.GaussianClasses(means, np.array([covariance(rng, k, 1.0) for _ in range(n)]) * size**2)
    graph = shoal.NeighborGraph.complete(classes.labels)
    rho: Any = float(size**2 * 10.0 ** rng.uniform(-1.0, 0.7))
    options: dict[str, Any] = {}
    if method != "none":
        if rng.random() < 0.4:
            options["noise_floor"] = rho * 10.0 ** rng.uniform(-6.0, -0.5)
        if rng.random() < 0.3:
            options["weights"] = 10.0 ** rng.uniform(-1, 1, k)
    if rng.random() < 0.3:
        rho = [rho * float(rng.uniform(1.0, 2.0)) for _ in range(n)]
    epsilon: Any = float(rng.choice([0.1, 1.0, 3.0]))
    if rng.random() < 0.2:
        epsilon = rng.uniform(0.1, 3.0, graph.n_edges)
    return lambda: shoal.design(classes, graph, method, epsilon, rho, iterations=8, seed=seed, **options)


def designed(seed: int) -> Tally:
    """Every method in turn."""
    tally, rng = Tally(), np.random.default_rng([12, seed])
    _design(tally, rng, _asked(rng, seed))
    return tally


def drawn_noise(cov: Array) -> list[list[Fraction]]:
    """The covariance that is drawn: one that is singular up to rounding gets a little of its diagonal on top."""
    exact = [[Fraction(value) for value in row] for row in cov.tolist()]
    if jittered(cov[None])[0]:
        for i in range(len(exact)):
            exact[i][i] *= 1 + Fraction(JITTER * len(exact), 2**52)
    return exact


def drawn(seed: int) -> Tally:
    """Entries given out by a design, from given normals, against the map and a factor of the noise in balls."""
    tally, rng = Tally(), np.random.default_rng([18, seed])

    def call() -> None:
        mechanism = _asked(rng, seed)()
        n, k = mechanism.classes.means.shape
        unit = RESOLUTION.unit_bits
        normals = [(int(z * 2.0**60) << unit) >> 60 for z in rng.standard_normal(8 * k)]
        labels = [int(i) for i in rng.integers(n, size=8)]
        answers = mechanism.classes.means[labels] + rng.standard_normal((8, k)) * np.sqrt(
            mechanism.output.covs[0].max()
        )
        found = mechanism._exact.released(answers, labels, normals)
        steps = [determinants.rational(step) for step in mechanism.grid]
        for row, label in enumerate(labels):
            noise = drawn_noise(mechanism.noise_cov[min(label, len(mechanism.noise_cov) - 1)])
            gain = None if mechanism.gain is None else mechanism.gain[label]
            z = normals[row * k : (row + 1) * k]
            exact = determinants.given_out(
                answers[row], mechanism.classes.means[label], exact_shift(mechanism, label), gain, noise, z, unit
            )
            for i, value in enumerate(exact):
                tally.checks += 1
                index = determinants.nearest(value, steps[i])
                if index is None:
                    tally.unresolved += 1
                elif determinants.rational(found[row, i]) != index * steps[i]:
                    tally.violations.append(f"{mechanism.method} entry {i}: {found[row, i]!r}")

    tally.attempt("draw", call)
    return tally


def _design(
    tally: Tally, rng: np.random.Generator, make: Callable[[], shoal.Mechanism], grid: Sequence[float] = ()
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def call() -> None:
            mechanism = make()
            chosen = grid or [0.0, float(rng.uniform(0.0, 1.0)), float(rng.uniform(1.0, 5.0))]
            _mechanism(tally, rng, mechanism, chosen)

        try:
            tally.attempt("design", call)
        except shoal.InputError:
            tally.refused += 1


def meeting(seed: int) -> Tally:
    """Designs with enough budget to bring all labels to one law: equal on paper, not after rounding."""
    tally, rng = Tally(), np.random.default_rng([13, seed])
    method = ("center", "transport", "additive")[seed % 3]
    n, k = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    means = rng.standard_normal((n, k)) * 10.0 ** rng.uniform(-2, 3)
    if rng.random() < 0.4:
        classes = shoal.GaussianClasses.deterministic(means)
    else:
        classes = shoal.GaussianClasses(means, np.array([covariance(rng, k, 1.0) for _ in range(n)]))
    graph = shoal.NeighborGraph.complete(classes.labels)
    price = shoal.perfect_rho(classes, graph, "additive" if method == "additive" else "transport")
    floor = price * 10.0 ** rng.uniform(-12.0, -1.0)
    rho: Any = (price + floor) * rng.choice([1.0 + 1e-9, 1.2, 3.0])
    if rng.random() < 0.3:
        rho = [rho * float(rng.uniform(1.0, 1.5)) for _ in range(n)]
    _design(
        tally,
        rng,
        lambda: shoal.design(classes, graph, method, 1.0, rho, noise_floor=floor, iterations=8, seed=seed),
        [0.0, float(10.0 ** rng.uniform(-14.0, 0.0)), 1.0],
    )
    return tally


def rough_constants(seed: int) -> Tally:
    """Constants next to each other in the last bits of large numbers, with a tiny floor: what rounding hides."""
    tally, rng = Tally(), np.random.default_rng([14, seed])
    method = ("center", "transport", "additive")[seed % 3]
    base = 2.0 ** float(rng.integers(10, 30))
    unit = base * 2.0**-52
    means = base + unit * rng.integers(0, 8, (2, 1)).astype(float)
    if means[0, 0] == means[1, 0]:
        means[1, 0] += unit
    floor = (unit * 10.0 ** rng.uniform(-3.0, 1.0)) ** 2
    rho = [floor * (1 + 1e-6) + (float(rng.uniform(0.0, 2.0)) * unit) ** 2 for _ in range(2)]
    classes = shoal.GaussianClasses.deterministic(means)
    graph = shoal.NeighborGraph.complete(classes.labels)
    _design(
        tally,
        rng,
        lambda: shoal.design(classes, graph, method, 1.0, rho, noise_floor=floor, iterations=8, seed=seed),
        [0.0, 1.0],
    )
    return tally


def truncated(seed: int) -> Tally:
    """Designs for singular class laws whose entries span 1e-1 to 1e8."""
    tally, rng = Tally(), np.random.default_rng([15, seed])
    method = ("center", "transport")[seed % 2]
    n, k = 2, int(rng.integers(2, 5))
    axes = 10.0 ** rng.uniform(-1.0, 8.0, k)
    covs = []
    for _ in range(n):
        half = (rotation(rng, k) * np.exp(0.3 * rng.standard_normal(k)))[:, : k - 1]
        covs.append(axes[:, None] * (half @ half.T) * axes[None, :])
    classes = None
    try:
        classes = shoal.GaussianClasses(axes * rng.standard_normal((n, k)), np.array(covs))
    except shoal.InputError:
        tally.refused += 1
        return tally
    graph = shoal.NeighborGraph.complete(classes.labels)
    price = shoal.perfect_rho(classes, graph, "transport")
    floor = 10.0 ** rng.uniform(-2.0, 2.0)
    rho = max(price * float(rng.uniform(0.3, 1.5)), 2 * floor)
    _design(
        tally,
        rng,
        lambda: shoal.design(classes, graph, method, 0.1, rho, noise_floor=floor, iterations=8, seed=seed),
        [0.0, 0.1, 1.0],
    )
    return tally


def compositions(seed: int) -> Tally:
    """Two to four releases, some repeated, up to a thousand times."""
    tally, rng = Tally(), np.random.default_rng([16, seed])
    released: list[Any] = []
    laws = []
    for _ in range(int(rng.integers(2, 5))):
        k = int(rng.integers(1, 5))
        half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-2.0, 0.0, k))
        times = int(rng.choice([1, 1, 2, 5, 40, 330]))
        spread = float(rng.choice([0.0, 1e-6, 0.2])) / math.sqrt(times)
        other, gap = likeness(rng, half, spread, float(10.0 ** rng.uniform(-2, 0)) / math.sqrt(times))
        classes = shoal.GaussianClasses(np.array([np.zeros(k), gap]), np.array([half @ half.T, other]))
        released += [classes] * times
        a, b = laws_of(classes)
        laws.append((a, b, times))
    edge = Edge.of(*laws)
    brackets(tally, released, edge, epsilons(rng, edge, 4))
    return tally


def tables(seed: int) -> Tally:
    """Pairs exchanged in one table, or in several: against proofs, pairs stacked by hand, and one answer."""
    tally, rng = Tally(), np.random.default_rng([17, seed])
    released, stacked, laws = [], [], []
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        k = int(rng.integers(1, 13))
        half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-float(rng.choice([0, 1, 6])), 0.0, k))
        spread = float(rng.choice([0.0, 1e-9, 1e-5, 0.05, 0.5, 1.5]))
        other, gap = likeness(rng, half, spread, float(10.0 ** rng.uniform(-3, 0.7)))
        means, covs = np.array([np.zeros(k), gap]), np.array([half @ half.T, other])
        classes = shoal.GaussianClasses(means, covs)
        times = int(rng.choice([1, 1, 2, 7]))
        released += [classes] * times
        both = np.zeros((2, 2 * k, 2 * k))
        for world, (i, j) in enumerate(((0, 1), (1, 0))):
            both[world, :k, :k], both[world, k:, k:] = classes.covs[i], classes.covs[j]
        rows = np.array([np.concatenate([means[i], means[j]]) for i, j in ((0, 1), (1, 0))])
        stacked += [shoal.GaussianClasses(rows, both)] * times
        a, b = laws_of(classes)
        laws += [(a, b, times), (b, a, times)]
    edge = Edge.of(*laws)
    tally.pairs += 1
    graph = shoal.NeighborGraph.complete(("0", "1"))
    for epsilon in epsilons(rng, edge, 5):
        for notion in NOTIONS:
            what = f"ε={epsilon!r} {notion}"

            def call(epsilon: float = epsilon, notion: str = notion, what: str = what) -> None:
                _, low, high = edge_brackets(released, graph, epsilon, notion, scope="table")[0]
                tally.compare(what, high, low, edge.delta(epsilon, notion))
                by_hand = edge_brackets(stacked, graph, epsilon, notion)[0]
                if (by_hand[:, 1] > high).any() or (by_hand[:, 2] < low).any():
                    tally.violations.append(f"{what}: not the pair stacked by hand")
                if notion == "dp" and (edge_brackets(released, graph, epsilon)[0, :, 1] > high).any():
                    tally.violations.append(f"{what}: below one answer")

            tally.attempt(what, call)
    sweeps(tally, released, edge, [0.0, *epsilons(rng, edge, 4)], "table")
    return tally


# ---------------------------------------------------------------------------------------------------------------
# Other figures


def _log_ratio(a: float, b: float) -> tuple[Any, Any]:
    """Rationals below and above ln(a/b), close together."""
    with determinants.bits(300):
        value = (arb(a) / arb(b)).log()
        return value.lower().fmpq(), value.upper().fmpq()


def others(seed: int) -> Tally:
    """Priors, ε for a δ, Rényi divergences, trade-off curves, naming one of two, GDP: one pair, every figure."""
    tally, rng = Tally(), np.random.default_rng([17, seed])
    k = int(rng.integers(1, 7))
    half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-1.0, 0.0, k))
    size = float(rng.choice([0.0, 1e-12, 1e-8, 1e-4, 0.1, 0.5]))
    other, gap = likeness(rng, half, 0.0, 1.0)
    turn = rotation(rng, k)
    moves = np.maximum(size * rng.standard_normal(k), -0.9)
    other = half @ (np.eye(k) + (turn * moves) @ turn.T) @ half.T if size else half @ half.T
    base = half @ half.T
    base, other = 0.5 * (base + base.T), 0.5 * (other + other.T)
    if not size:
        other = base.copy()
    gap = gap * float(rng.choice([0.0, 1e-10, 1e-3, 1.0])) if size else gap * float(rng.choice([1e-8, 1e-3, 1.0]))
    classes = shoal.GaussianClasses(np.array([np.zeros(k), gap]), np.array([base, other]))
    graph = shoal.NeighborGraph.complete(classes.labels)
    edge = Edge.of(tuple(laws_of(classes)))  # type: ignore[arg-type]
    tally.pairs += 1
    mean, std = edge.loss()

    def prior_figures() -> None:
        weights = (
            rng.choice([0.5, 0.3, 0.9, 1 - 1e-6, 1e-3]) if rng.random() < 0.7 else 0.5 + 0.25 * std * rng.uniform(-1, 1)
        )
        weights = float(min(max(weights, 1e-6), 1 - 1e-6))
        prior = np.array([weights, 1.0 - weights])
        low, high = _log_ratio(prior[0], prior[1])
        for epsilon in (0.0, abs(math.log(prior[0] / prior[1])), float(mean + 3 * std)):
            for notion in ("dp", "pdp"):
                found = edge_brackets(classes, graph, epsilon, notion, prior)[0]
                exact = determinants.rational(epsilon)
                for back, far in ((False, exact - low), (True, exact + high)):
                    truth = edge.tail(far, notion, back)[0]  # δ falls, so the larger x has the smaller δ
                    tally.compare(
                        f"prior {prior[0]!r} ε={epsilon!r} {notion} back={back}", found[int(back), 2], -math.inf, truth
                    )

    def inverse() -> None:
        for delta in (0.3, 1e-3, 1e-9, 1e-40):
            for notion in ("dp", "pdp"):
                epsilon = shoal.epsilon_at(classes, graph, delta, notion)
                if epsilon == math.inf:
                    continue
                for back in (False, True):
                    tally.at_most(
                        f"epsilon_at {delta!r} {notion} {epsilon!r}", delta, edge.delta(epsilon, notion, reverse=back)
                    )

    def renyi() -> None:
        orders = [0.5, 1.0 + 1e-7, 2.0, 10.0, 1e3, math.inf]
        curve = shoal.renyi_curve(classes, graph, orders)
        for order, claimed in zip(orders, curve.divergence_upper, strict=True):
            for back in (False, True):
                tally.checks += 1
                truth = edge.renyi_lower(order, reverse=back)
                if claimed < math.inf and (truth is None or arb(claimed) < truth):
                    shown = "inf" if truth is None else truth.str(20)
                    tally.violations.append(f"renyi order {order!r}: {claimed!r}, proven {shown}")

    def tradeoff() -> None:
        rates = np.array([1e-6, 0.2])
        found = shoal.tradeoff_curve(classes, "0", "1", rates)
        for rate, claimed in zip(rates, found.tpr_upper, strict=True):
            # The best test at this rate: TPR = α e^x + δ(x) where Pr'(L > x) = α. Every x gives a test of rate
            # Pr'(L > x) and power Pr(L > x); one with a rate at most α and a higher power refutes the claim.
            x = edge.threshold(rate)
            power = edge.tail(x, "pdp", False)[0]
            size_of_test = edge.tail(-x, "pdp", True)[1]
            if size_of_test.upper <= arb(rate):
                tally.at_most(f"tradeoff at {rate!r}", float(claimed), power)

    def naming() -> None:
        weight = float(rng.choice([0.5, 0.3, 0.9]))
        prior = np.array([weight, 1.0 - weight])
        found = shoal.identification_risk(classes, prior=prior)
        _, high = _log_ratio(prior[1], prior[0])
        delta = edge.tail(high, "dp", False)[0]
        with determinants.bits(300):
            truth = arb(prior[1]) + arb(prior[0]) * delta.lower
            total = arb(prior[0]) + arb(prior[1])
            tally.at_most("identification_risk", found.success_upper, Enclosure((truth / total).lower(), arb(1)))

    def gaussian() -> None:
        claimed = gdp(classes, graph)
        if claimed < math.inf:
            tally.checks += 1
            if size or not determinants.rational(claimed) ** 2 >= edge.squared_gap:
                tally.violations.append(f"gdp {claimed!r}")

    for name, call in (
        ("prior", prior_figures), ("epsilon_at", inverse), ("renyi", renyi), ("tradeoff", tradeoff),
        ("risk", naming), ("gdp", gaussian),
    ):  # fmt: skip
        tally.attempt(f"{name} size={size!r}", call)
    return tally


#: name -> (what to run on a seed, seeds of the full campaign, whether it was aimed at a known weakness)
FAMILIES: dict[str, tuple[Callable[[int], Tally], int, bool]] = {
    "full rank, k ≤ 12": (full_rank, 700, False),
    "full rank, k ≤ 24": (wide, 250, False),
    "full rank, k ≤ 60": (widest, 60, False),
    "unrelated covariances": (unrelated, 400, False),
    "graded 1e-12 to 1e12": (graded, 500, False),
    "nearly equal": (near_equal, 700, False),
    "independent entries": (diagonal, 500, False),
    "constants behind noise": (constants, 500, False),
    "one entry, closed form": (closed_line, 250, False),
    "constants behind white noise, closed form": (closed_constants, 250, False),
    "bounded losses at their supremum": (bounded, 400, False),
    "duplicated eigenvalues": (duplicated, 300, False),
    "compositions": (compositions, 400, False),
    "tables": (tables, 700, False),
    "designs, every method": (designed, 700, False),
    "priors, inverses, Rényi, trade-offs, naming": (others, 500, False),
    "entries given out": (drawn, 210, False),
    "clustered eigenvalues, k > 25": (clustered, 120, True),
    "nearly singular": (nearly_singular, 250, True),
    "singular, one support": (singular, 300, True),
    "singular, supports apart": (apart, 300, True),
    "designs that meet": (meeting, 300, True),
    "constants alike but for rounding": (rough_constants, 300, True),
    "designs for truncated laws": (truncated, 300, True),
}


def run(family: str, seed: int) -> Tally:
    """One seed of one family."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FAMILIES[family][0](seed)
