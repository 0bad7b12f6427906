"""Families of hard pairs, and certified figures of the library held against proofs that the checker has confirmed.

A check is one certified upper end compared with one proved lower end, with no tolerance: it fails where the upper end
is below. Lower ends are compared too and counted apart. The proof names the paths; ``shoal.proofs.checker``, which
shares no code with the library, encloses δ along them again, and what it refuses counts as a crash. A refusal of the
library (CertificationError) claims nothing and is counted as such. Everything follows from (family, seed).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

import shoal
from shoal import archive
from shoal.accounting.curve import edge_brackets
from shoal.mechanism.releasable import laws_file_parts
from shoal.noise.factor import JITTER, needs_jitter
from shoal.noise.source import RESOLUTION
from shoal.proofs import checker

Array = NDArray[np.float64]
EDGE = shoal.NeighborGraph.complete(["0", "1"])
#: ε of a pair beside those that a family chooses, and binary digits of exact answers.
COUNT, DIGITS = 3, 1200


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

    def compare(self, what: str, log_upper: float, log_lower: float, lower: float, upper: float) -> None:
        """Hold a bracket of ln δ against proved ends of δ."""
        with ctx.workprec(256):
            self.checks += 1
            top = arb(log_upper).exp() if log_upper > -math.inf else arb(0)
            if math.isnan(log_upper) or top < arb(lower):
                self.violations.append(f"{what}: upper ln δ {log_upper!r}, proved {lower!r}")
            self.lower_checks += 1
            if log_lower > -math.inf and arb(log_lower).exp() > arb(upper):
                self.false_lower.append(f"{what}: lower ln δ {log_lower!r}, proved at most {upper!r}")

    def at_most(self, what: str, claimed: float, lower: float) -> None:
        """Hold a claimed upper end against a proved lower one."""
        self.checks += 1
        if not claimed >= lower:
            self.violations.append(f"{what}: {claimed!r}, proved {lower!r}")

    def attempt(self, what: str, call: Callable[[], None]) -> None:
        """Run one comparison; a refusal claims nothing."""
        try:
            call()
        except shoal.CertificationError:
            self.refused += 1
        except (ArithmeticError, ValueError, IndexError, AssertionError, checker.Refused) as error:
            self.crashes.append(f"{what}: {type(error).__name__}: {error}"[:200])


def confirmed(released: shoal.GaussianClasses | shoal.Mechanism, epsilon: float | None, scope: str) -> shoal.Proof:
    """A proof, over every pair, that the checker has confirmed from the files alone."""
    graph = shoal.NeighborGraph.complete(released.labels)
    proof = shoal.prove(released, graph, epsilon, scope)
    if isinstance(released, shoal.Mechanism):
        content = released.to_bytes()
    else:
        content = archive.pack(*laws_file_parts(released, graph.edges))
    checker.check(checker.parse(proof.to_json().encode()), content)
    return proof


def loss(classes: shoal.GaussianClasses) -> tuple[float, float]:
    """Mean and deviation of the privacy loss of the first label against the second, roughly."""
    (a, b), gap = classes.covs, classes.means[1] - classes.means[0]
    scale = np.sqrt(np.where(np.diagonal(b) > 0, np.diagonal(b), 1.0))
    a, b, gap = a / scale / scale[:, None], b / scale / scale[:, None], gap / scale
    inverse = np.linalg.pinv(b)
    moved, ratio = inverse @ gap, inverse @ a
    logs = np.log(np.abs(np.linalg.eigvals(ratio)) + 1e-300)
    mean = 0.5 * (np.trace(ratio) - len(gap) + gap @ moved - logs.sum())
    std = math.sqrt(abs(0.5 * np.trace((ratio - np.eye(len(gap))) @ (ratio - np.eye(len(gap)))) + moved @ a @ moved))
    return float(mean), std


def epsilons(rng: np.random.Generator, classes: shoal.GaussianClasses) -> list[float]:
    """0 and others at which δ is anything from near 1 to far below 1e-100; at most 1000."""
    mean, std = loss(classes)
    levels = rng.choice([0.0, 1.0, 3.0, 8.0, 20.0, 60.0], size=COUNT - 1, replace=False)
    chosen = [max(mean, 0.0) + std * float(z) * float(rng.uniform(0.7, 1.3)) for z in levels]
    return [0.0, *(min(e, 1000.0) if math.isfinite(e) else 1.0 for e in chosen)]


def brackets(
    tally: Tally, rng: np.random.Generator, classes: shoal.GaussianClasses, grid: Sequence[float] | None = None
) -> None:
    """Every direction that a proof encloses, of one answer and of a table, at every ε."""
    tally.pairs += 1
    for epsilon in epsilons(rng, classes) if grid is None else grid:
        for scope in ("answer", "table"):
            what = f"ε={epsilon!r} {scope}"

            def call(epsilon: float = epsilon, scope: str = scope, what: str = what) -> None:
                proof = confirmed(classes, epsilon, scope)
                if proof.unsettled:
                    tally.unresolved += 1
                found = edge_brackets(classes, EDGE, epsilon, scope=scope)[0].reshape(-1, 3)
                for entry in proof.edges:
                    for row in range(len(found)) if entry.by == "apart" else [int(entry.direction == "backward")]:
                        low, high = found[row, 1:].tolist()
                        tally.compare(f"{what} direction {row}", high, low, entry.lower, entry.upper)
                if len(proof.equal):
                    tally.compare(f"{what} equal", float(found[:, 2].max()), float(found[:, 1].max()), 0.0, 0.0)

            tally.attempt(what, call)


def pair(
    tally: Tally, rng: np.random.Generator, means: Array, covs: Array, grid: Sequence[float] | None = None
) -> None:
    """Everything about two laws of full rank, or singular ones with exact parameters."""
    try:
        classes = shoal.GaussianClasses(means, covs)
    except shoal.InputError:
        tally.refused += 1
        return
    brackets(tally, rng, classes, grid)


# ---------------------------------------------------------------------------------------------------------------
# Laws

#: name -> (what to run on a seed, seeds of the full campaign, whether it was aimed at a known weakness)
FAMILIES: dict[str, tuple[Callable[[int], Tally], int, bool]] = {}


def family(name: str, seeds: int, stream: int, *more: int, aimed: bool = False) -> Callable[[Any], Any]:
    """Enter a function of a tally, a generator and a seed as a family; the stream keeps its generators apart."""

    def entered(compare: Callable[[Tally, np.random.Generator, int], None]) -> Any:
        def of_seed(seed: int) -> Tally:
            tally = Tally()
            compare(tally, np.random.default_rng([stream, seed, *more]), seed)
            return tally

        FAMILIES[name] = of_seed, seeds, aimed
        return compare

    return entered


def rotation(rng: np.random.Generator, k: int) -> Array:
    q, r = np.linalg.qr(rng.standard_normal((k, k)))
    return np.asarray(q * np.sign(np.diag(r)))


def covariance(rng: np.random.Generator, k: int, decades: float) -> Array:
    values = 10.0 ** rng.uniform(-decades, 0.0, k)
    half = rotation(rng, k) * np.sqrt(values)
    return np.asarray(half @ half.T)


def likeness_points(rng: np.random.Generator, half: Array, spread: float, length: float) -> tuple[Array, Array]:
    """A covariance and a mean gap that look moderate next to the factor given."""
    k = len(half)
    other = half @ (rotation(rng, k) * np.exp(spread * rng.standard_normal(k)))
    return other @ other.T, half @ rng.standard_normal(k) * length / math.sqrt(k)


def full_rank(tally: Tally, rng: np.random.Generator, low: int, high: int) -> None:
    k = int(rng.integers(low, high + 1))
    half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-float(rng.choice([0, 1, 4, 8])), 0.0, k))
    other, gap = likeness_points(rng, half, float(rng.choice([0.05, 0.3, 1.0])), float(10.0 ** rng.uniform(-2, 1)))
    mean = rng.standard_normal(k) * rng.choice([0.0, 1.0, 100.0])
    pair(tally, rng, np.array([mean, mean + gap]), np.array([half @ half.T, other]))


@family("full rank, k ≤ 12", 700, 1, 12)
def narrow(tally: Tally, rng: np.random.Generator, _: int) -> None:
    full_rank(tally, rng, 1, 12)


@family("full rank, k ≤ 24", 250, 1, 24)
def wide(tally: Tally, rng: np.random.Generator, _: int) -> None:
    full_rank(tally, rng, 13, 24)


@family("full rank, k ≤ 60", 60, 2)
def widest(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """k from 25 to 60."""
    k = int(rng.integers(25, 61))
    half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-2.0, 0.0, k))
    other, gap = likeness_points(rng, half, float(rng.choice([0.05, 0.3])), float(10.0 ** rng.uniform(-1, 0.7)))
    pair(tally, rng, np.array([np.zeros(k), gap]), np.array([half @ half.T, other]))


@family("unrelated covariances", 400, 3)
def unrelated(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Covariances that have nothing to do with each other: δ near 1, complements matter."""
    k = int(rng.integers(1, 9))
    covs = np.array([covariance(rng, k, float(rng.choice([1, 4, 8]))) for _ in range(2)])
    pair(tally, rng, rng.standard_normal((2, k)), covs)


@family("graded 1e-12 to 1e12", 500, 4)
def graded(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Entries from 1e-12 to 1e12."""
    k = int(rng.integers(2, 13))
    half = rotation(rng, k) * np.exp(0.3 * rng.standard_normal(k))
    other, gap = likeness_points(rng, half, 0.3, float(10.0 ** rng.uniform(-1, 1)))
    axes = 10.0 ** rng.permutation(np.linspace(-6.0, 6.0, k))
    covs = np.array([half @ half.T, other]) * axes[:, None] * axes[None, :]
    mean = axes * rng.standard_normal(k)
    pair(tally, rng, np.array([mean, mean + axes * gap]), covs)


@family("nearly equal", 700, 5)
def near_equal(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Laws that differ by 1e-1 down to a few units in the last place, means alike or not."""
    k = int(rng.integers(1, 13))
    base = covariance(rng, k, float(rng.choice([0.5, 2.0, 5.0])))
    half = np.linalg.cholesky(base)
    size = 10.0 ** rng.uniform(-16.0, -1.0)
    change = rng.standard_normal((k, k))
    other = base + size * half @ (change + change.T) @ half.T
    gap = half @ rng.standard_normal(k) * size * rng.choice([0.0, 1.0, 100.0])
    mean = rng.standard_normal(k) * rng.choice([0.0, 1.0])
    pair(tally, rng, np.array([mean, mean + gap]), np.array([base, 0.5 * (other + other.T)]))


@family("independent entries", 500, 6)
def diagonal(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Independent entries, by construction."""
    k = int(rng.integers(1, 13))
    v = 10.0 ** rng.uniform(-6, 6, k)
    other = v * np.exp(rng.standard_normal(k) * 10.0 ** rng.uniform(-8, 0.3))
    other = np.where(rng.random(k) < 0.3, v, other)
    gap = np.sqrt(v) * rng.standard_normal(k) * 10.0 ** rng.uniform(-3, 0.7)
    classes = shoal.GaussianClasses.diagonal(np.array([np.zeros(k), gap]), np.array([v, other]))
    brackets(tally, rng, classes)


@family("constants behind noise", 500, 7)
def constants(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Deterministic answers behind one shared noise."""
    k = int(rng.integers(1, 13))
    means = rng.standard_normal((2, k)) * 10.0 ** rng.uniform(-6, 6)
    size = float(np.linalg.norm(means[0] - means[1]) * 10.0 ** rng.uniform(-1, 2))
    noise: Any = size**2 if rng.random() < 0.3 else size**2 * covariance(rng, k, 3.0)
    classes = shoal.GaussianClasses.deterministic(means).with_noise(noise)
    brackets(tally, rng, classes)


@family("bounded losses at their supremum", 400, 21)
def bounded(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """One law inside the other: a bounded loss, at ε about its supremum."""
    k = int(rng.integers(1, 9))
    g = -np.minimum(10.0 ** rng.uniform(-6, 0, k), 0.99)
    w = rng.standard_normal(k) * np.sqrt(-g) * 10.0 ** rng.uniform(-2, 0.5)
    half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-float(rng.choice([0, 3])), 0.0, k))
    covs = np.array([half @ np.diag(1 + g) @ half.T, half @ half.T])
    top = float(-0.5 * np.log1p(g).sum() - 0.5 * (w**2 / g).sum())
    near = [top * (1 + sign * 10.0 ** rng.uniform(-15, -0.5)) for sign in (-1, -1, 1)]
    pair(tally, rng, np.array([np.zeros(k), half @ w]), covs, grid=[0.0, *near])


@family("duplicated eigenvalues", 300, 22)
def duplicated(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Whitened differences with equal eigenvalues, exactly, in turned coordinates."""
    blocks = int(rng.integers(1, 4))
    turn = np.kron(np.eye(blocks), np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2)
    k = 4 * blocks
    values = rng.choice([0.5, 1.0, 1.0, 1.25, 2.0, 1 + 2.0**-20, 1 - 2.0**-30], k)
    sizes = 2.0 ** rng.integers(-8, 9, k).astype(float)
    covs = np.array([(turn * values) @ turn.T, np.eye(k)]) * sizes[:, None] * sizes[None, :]
    gap = sizes * (turn @ np.round(rng.standard_normal(k) * 4)) * 2.0 ** -int(rng.integers(2, 12))
    pair(tally, rng, np.array([np.zeros(k), gap]), covs)


@family("clustered eigenvalues, k > 25", 120, 8, aimed=True)
def clustered(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Whitened differences with clusters of eigenvalues; of many, the one whose eigenvectors are least orthogonal."""
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
    pair(tally, rng, np.array([np.zeros(k), gap]), np.array([chosen, np.eye(k)]))


@family("nearly singular", 250, 9, aimed=True)
def nearly_singular(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Correlations with an eigenvalue of 1e-16 to 1e-8, full rank in exact arithmetic."""
    k = int(rng.integers(2, 9))
    values = np.ones(k)
    values[: int(rng.integers(1, k))] = 10.0 ** rng.uniform(-16.0, -8.0)
    half = rotation(rng, k) * np.sqrt(values)
    other, gap = likeness_points(rng, half, 0.3, 1.0)
    mean = rng.standard_normal(k) * rng.choice([0.0, 1.0, 1e4])
    pair(tally, rng, np.array([mean, mean + gap]), np.array([half @ half.T, other]))


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


@family("singular, one support", 300, 10, aimed=True)
def singular(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Singular laws on one support, with exact parameters, means far from zero or not."""
    onto, a, b = _support(rng)
    scale = 2.0 ** rng.integers(-20, 21, len(onto)).astype(float) if rng.random() < 0.3 else np.ones(len(onto))
    mean = np.round(rng.standard_normal(len(onto)) * float(rng.choice([0.0, 1.0, 2.0**20])))
    gap = onto @ _dyadic(rng, (onto.shape[1],), 3) * rng.choice([0.0, 1.0])
    covs = np.array([a, b]) * scale[:, None] * scale[None, :]
    pair(tally, rng, np.array([mean * scale, (mean + gap) * scale]), covs)


@family("singular, supports apart", 300, 11, aimed=True)
def apart(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """Singular laws on supports that differ a little: δ = 1."""
    onto, a, b = _support(rng)
    k = len(onto)
    mean = np.round(rng.standard_normal(k) * float(rng.choice([0.0, 1.0, 2.0**13, 2.0**30])))
    other = mean + onto @ _dyadic(rng, (onto.shape[1],), 3)
    # A gap of a few units in the last place of the means, in one entry: off the support, nearly always.
    entry = int(rng.integers(k))
    other[entry] += np.spacing(max(1.0, abs(other[entry]))) * float(rng.choice([1, 3, 10, 30, 100, 1e4, 1e8]))
    pair(tally, rng, np.array([mean, other]), np.array([a, b if rng.random() < 0.5 else a]))


# ---------------------------------------------------------------------------------------------------------------
# Mechanisms


def _mechanism(tally: Tally, mechanism: shoal.Mechanism, grid: Sequence[float]) -> None:
    """A design's certificate and curves against the exact laws of what it gives out."""
    tally.pairs += len(mechanism.pairs)

    def certificate() -> None:
        proof = confirmed(mechanism, None, mechanism.scope)
        tally.at_most(f"{mechanism.method} certificate", mechanism.certificate.delta_upper, proof.delta_lower)

    tally.attempt(f"{mechanism.method} certificate", certificate)
    for epsilon in grid:
        what = f"{mechanism.method} curve ε={epsilon!r}"

        def call(epsilon: float = epsilon, what: str = what) -> None:
            curve, proof = mechanism.curve(epsilon), confirmed(mechanism, epsilon, mechanism.scope)
            low = math.log(curve.delta_lower) if curve.delta_lower > 0 else -math.inf
            tally.compare(what, curve.log_delta_upper, low, proof.delta_lower, proof.ideal_upper)

        tally.attempt(what, call)


METHODS = ("none", "white", "paper", "covariance", "additive", "transport", "center")


def _asked(rng: np.random.Generator, seed: int) -> Callable[[], shoal.Mechanism]:
    """A design of the seed's method, with floors, budgets per label and ε per edge."""
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
    if method != "none" and rng.random() < 0.4:
        options["noise_floor"] = rho * 10.0 ** rng.uniform(-6.0, -0.5)
    if rng.random() < 0.3:
        rho = [rho * float(rng.uniform(1.0, 2.0)) for _ in range(n)]
    epsilon: Any = float(rng.choice([0.1, 1.0, 3.0]))
    if rng.random() < 0.2:
        epsilon = rng.uniform(0.1, 3.0, graph.n_edges)
    return lambda: shoal.design(classes, graph, method, epsilon, rho, iterations=8, seed=seed, **options)


@family("designs, every method", 700, 12)
def designed(tally: Tally, rng: np.random.Generator, seed: int) -> None:
    """Every method in turn."""
    _design(tally, rng, _asked(rng, seed))


def exact_answer(mechanism: shoal.Mechanism, i: int, answer: Array, normals: Sequence[int]) -> list[Any]:
    """What a label's answer becomes before it is rounded to the grid, in many digits: the map and a factor of the noise
    from the stored parameters, a covariance that is singular up to rounding with a little of its diagonal on top."""
    k, means = len(answer), mechanism.classes.means[i].tolist()
    shift = np.broadcast_to(mechanism.shift, mechanism.classes.means.shape)[i].tolist()
    grid = [-1074] * k if mechanism.mean_grid is None else mechanism.mean_grid[i].tolist()
    cov = mechanism.noise_cov[min(i, len(mechanism.noise_cov) - 1)]
    share = Fraction(JITTER * k, 2**52) if needs_jitter(cov[None])[0] else Fraction(0)
    exact = [
        [(Fraction(cov[r, c]) + Fraction(cov[c, r])) / 2 * (1 + share * (r == c)) for c in range(k)] for r in range(k)
    ]
    rest = [Fraction(a) - Fraction(b) for a, b in zip(answer.tolist(), means, strict=True)]
    factor = [[mpmath.mpf(0)] * k for _ in range(k)]
    result = []
    for r in range(k):
        for c in range(r + 1):
            left = _number(exact[r][c]) - mpmath.fsum(factor[r][j] * factor[c][j] for j in range(c))
            if r == c:
                factor[r][r] = mpmath.sqrt(left) if exact[r][r] else mpmath.mpf(0)
            elif exact[c][c]:
                factor[r][c] = left / factor[c][c]
        moved, step = Fraction(shift[r]), Fraction(2) ** grid[r]
        if grid[r] > -1074:  # the sum is rounded half to even, as IEEE rounds
            moved = round(Fraction(means[r] + shift[r]) / step) * step - Fraction(means[r])
        total = Fraction(answer[r]) + moved
        if mechanism.gain is not None:
            total += sum(Fraction(g) * x for g, x in zip(mechanism.gain[i][r].tolist(), rest, strict=True))
        noise = mpmath.fsum(factor[r][c] * normals[c] for c in range(r + 1)) / mpmath.mpf(2) ** RESOLUTION.unit_bits
        result.append(_number(total) + noise)
    return result


def _number(value: Fraction) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator


@family("entries given out", 210, 18)
def drawn(tally: Tally, rng: np.random.Generator, seed: int) -> None:
    """Entries given out by a design, from given normals, against the map and a factor of the noise in many digits."""

    def call() -> None:
        mechanism = _asked(rng, seed)()
        n, k = mechanism.classes.means.shape
        normals = [(int(z * 2.0**60) << RESOLUTION.unit_bits) >> 60 for z in rng.standard_normal(8 * k)]
        labels = [int(i) for i in rng.integers(n, size=8)]
        spread = np.sqrt(mechanism.output.covs[0].max())
        answers = mechanism.classes.means[labels] + rng.standard_normal((8, k)) * spread
        found = mechanism._exact.release(answers, labels, normals)
        for row, label in enumerate(labels):
            exact = exact_answer(mechanism, label, answers[row], normals[row * k : (row + 1) * k])
            for i, value in enumerate(exact):
                steps = value / float(mechanism.grid[i])
                tally.checks += 1
                if abs(steps - mpmath.floor(steps) - 0.5) < 1e-15:  # what the factor's last place may decide
                    tally.unresolved += 1
                elif found[row, i] != mpmath.floor(steps + 0.5) * float(mechanism.grid[i]):
                    tally.violations.append(f"{mechanism.method} entry {i}: {found[row, i]!r}")

    with mpmath.workprec(DIGITS):
        tally.attempt("draw", call)


def _design(
    tally: Tally, rng: np.random.Generator, make: Callable[[], shoal.Mechanism], grid: Sequence[float] = ()
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def call() -> None:
            mechanism = make()
            chosen = grid or [0.0, float(rng.uniform(0.0, 5.0))]
            _mechanism(tally, mechanism, chosen)

        try:
            tally.attempt("design", call)
        except shoal.InputError:
            tally.refused += 1


@family("designs that meet", 300, 13, aimed=True)
def meeting(tally: Tally, rng: np.random.Generator, seed: int) -> None:
    """Designs with enough budget to bring all labels to one law: equal on paper, not after rounding."""
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


@family("constants alike but for rounding", 300, 14, aimed=True)
def rough_constants(tally: Tally, rng: np.random.Generator, seed: int) -> None:
    """Constants next to each other in the last bits of large numbers, with a tiny floor: what rounding hides."""
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


@family("designs for truncated laws", 300, 15, aimed=True)
def truncated(tally: Tally, rng: np.random.Generator, seed: int) -> None:
    """Designs for singular class laws whose entries span 1e-1 to 1e8."""
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
        return
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


@family("ε for a δ", 500, 17)
def inverses(tally: Tally, rng: np.random.Generator, _: int) -> None:
    """ε for a δ: δ at that ε is not above the one that was asked for."""
    k = int(rng.integers(1, 7))
    half = rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-1.0, 0.0, k))
    other, gap = likeness_points(rng, half, float(rng.choice([1e-6, 0.1, 0.5])), float(rng.choice([1e-3, 1.0])))
    classes = shoal.GaussianClasses(np.array([np.zeros(k), gap]), np.array([half @ half.T, other]))
    tally.pairs += 1
    for delta in (0.3, 1e-3, 1e-9, 1e-40):
        for scope in ("answer", "table"):

            def call(delta: float = delta, scope: str = scope) -> None:
                epsilon = shoal.epsilon_at(classes, EDGE, delta, scope=scope)
                if epsilon < math.inf:
                    tally.at_most(f"epsilon_at {delta!r}", delta, confirmed(classes, epsilon, scope).delta_lower)

            tally.attempt(f"epsilon_at {delta!r}", call)


def run(family: str, seed: int) -> Tally:
    """One seed of one family."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FAMILIES[family][0](seed)
