"""What other libraries expect in their own tests, as cases for our accounting.

Inputs and expected figures of the accounting tests of dp_accounting 0.6.0 and OpenDP 0.16 that have a counterpart here:
Gaussian noise, its calibration and composition, mixtures, randomized response and other finite laws, Rényi divergences,
zCDP. A figure is the exact one up to the tolerance of the test it comes from ("value"), or a bound of it from "above"
or "below"; ``holds`` decides with fifty digits and no tolerance whether a figure is on the safe side.

Left out are what has no counterpart (Laplace noise, subsampling under composition, tree aggregation, thresholds,
laws of unequal support) and what tests an interface rather than a figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from mpmath import mp, mpf

import shoal
from shoal.accounting import deterministic
from shoal.accounting.renyi import gdp, zcdp
from shoal.mechanism.atoms import LossAtoms

mp.dps = 50
GOOGLE, OPENDP = "dp_accounting", "OpenDP"
#: What ``assertAlmostEqual`` allows unless told otherwise: seven places.
PLACES = 5e-8
Figures = Callable[[], Sequence[float]]


@dataclass(frozen=True)
class Case:
    """One figure of a peer's test: ``ours`` by every public route we have to it, each an upper end."""

    peer: str
    topic: str
    inputs: str
    kind: str
    figure: float
    slack: float
    ours: Figures
    holds: Callable[[float], bool]

    def __str__(self) -> str:
        return f"{self.peer}: {self.topic}: {self.inputs}"


# ---------------------------------------------------------------------- exact laws


def gaussian_delta(square: Any, epsilon: Any) -> Any:
    """δ(ε) of Gaussian noise (Balle & Wang 2018) for the squared ratio of sensitivity and noise, any sign of ε."""
    mu, e = mp.sqrt(square), mpf(epsilon)
    return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


def discrete_delta(ours: Sequence[Any], theirs: Sequence[Any], epsilon: Any) -> Any:
    return sum(max(mpf(p) - mp.exp(mpf(epsilon)) * mpf(q), mpf(0)) for p, q in zip(ours, theirs, strict=True))


def mixture_delta(sigma: float, gaps: Sequence[float], odds: Sequence[float], epsilon: float) -> Any:
    """The larger of both directions between N(0, σ²) and a mixture of N(gap, σ²), gaps ≥ 0: events are half-lines."""
    s, e = mpf(sigma), mp.exp(mpf(epsilon))

    def above(t: Any) -> Any:
        return sum(mpf(p) * mp.ncdf((mpf(g) - t) / s) for g, p in zip(gaps, odds, strict=True))

    def ratio(t: Any) -> Any:
        return sum(mpf(p) * mp.exp((mpf(g) * t - mpf(g) ** 2 / 2) / s**2) for g, p in zip(gaps, odds, strict=True))

    def at(level: Any) -> Any:
        """Where the mixture is ``level`` times as dense: the ratio rises with t."""
        low, high = mpf(-60) * s, mpf(60) * s
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (low, middle) if ratio(middle) > level else (middle, high)
        return low

    one, two = at(e), at(1 / e)
    return max(above(one) - e * mp.ncdf(-one / s), mp.ncdf(two / s) - e * (1 - above(two)), mpf(0))


def table_delta(pmf: dict[int, float], beyond: float, step: float, epsilon: float) -> float:
    """δ(ε) of tabulated losses, multiples of a step."""
    return beyond + sum(p * -math.expm1(epsilon - n * step) for n, p in pmf.items() if n * step > epsilon)


# ---------------------------------------------------------------------- ours


@cache
def pair(gap: float, cov: float) -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    classes = shoal.GaussianClasses([[0.0], [gap]], [[cov]], labels=["a", "b"])
    return classes, shoal.NeighborGraph.complete(classes.labels)


@cache
def response(n: int, ratio: float) -> shoal.Codebook:
    """Randomized response: the codebook of n answers equally far apart, the own one ``ratio`` times as likely."""
    return shoal.codebook(np.eye(n), shoal.NeighborGraph.complete(range(n)), math.log(ratio))


def law(book: shoal.Codebook, label: str) -> list[Any]:
    """The stored odds, exactly."""
    group, row = book.place(label)
    counts = [int(count) for count in group.counts[row]]
    return [mpf(count) / sum(counts) for count in counts]


def above(exact: Callable[[], Any]) -> Callable[[float], bool]:
    return lambda figure: bool(mpf(figure) >= exact())


def gaussian(topic: str, sigma: float, gap: float, epsilon: float, kind: str, figure: float, slack: float) -> Case:
    """One δ of Gaussian noise, by the closed form's name and by the general curve; negative ε through the mirror."""
    cov = sigma * sigma
    classes, graph = pair(gap, cov)
    square = mpf(gap) ** 2 / mpf(cov)

    def ours() -> list[float]:
        e = abs(epsilon)
        found = [float(shoal.privacy_curve(classes, graph, e).delta_upper)]
        if mpf(sigma) ** 2 == mpf(cov):
            found.append(deterministic.gaussian_delta(gap, sigma, e))
        # δ(−ε) = 1 − e^{−ε} (1 − δ(ε)) of the reverse pair, here the same one.
        return found if epsilon >= 0 else [math.nextafter(1 - math.exp(-e) * (1 - d) * (1 - 1e-15), 2.0) for d in found]

    inputs = f"σ={sigma:g}, Δ={gap:g}, ε={epsilon:g}"
    return Case(GOOGLE, topic, inputs, kind, figure, slack, ours, above(lambda: gaussian_delta(square, epsilon)))


# ---------------------------------------------------------------------- dp_accounting

#: σ, Δ, ε, δ of the Gaussian mechanism without sampling; "replace" cases with twice their Δ.
GAUSSIAN_DELTAS = (
    *((s, d, e, f) for s, d, e, f in [(1, 1, 1, 0.12693674), (2, 2, 1, 0.12693674), (1, 3, 1, 0.78760074)]),
    *((s, d, e, f) for s, d, e, f in [(2, 6, 1, 0.78760074), (1, 1, 2, 0.02092364), (5, 5, 2, 0.02092364)]),
    *(
        (1, 1, e, f)
        for e, f in [(-2, 0.86749642), (-1, 0.67881797), (0, 0.38292492), (1, 0.12693674), (2, 0.020923636)]
    ),
    *(
        (1, 2, e, f)
        for e, f in [(-2, 0.90958223), (-1, 0.81968818), (0, 0.68268949), (1, 0.50986166), (2, 0.331897999)]
    ),
)
#: Δ, ε, δ, σ with three places.
GAUSSIAN_CALIBRATIONS = (
    (1, 1, 0.12693674, 1), (2, 1, 0.12693674, 2), (4, 1, 0.12693674, 4), (3, 1, 0.78760074, 1), (6, 1, 0.78760074, 2),
    (12, 1, 0.78760074, 4), (1, 2, 0.02092364, 1), (5, 2, 0.02092364, 5), (10, 2, 0.02092364, 10),
    (1, 16, 1.016e-05, 0.344), (2, 16, 1.016e-05, 0.688), (4, 16, 1.016e-05, 1.376),
)  # fmt: skip
#: The least noise for several queries: Δ of one, how many, σ.
GAUSSIAN_QUERIES = ((1, 1, 1 / 3), (6, 25, 10))
EPSILONS = SIGMAS = (1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e5)
DELTAS = (1e-10, 1e-5, 0.1, 0.5, 0.9)
#: σ, Δ: losses rounded up with the rest at infinity, losses rounded down, and connected dots with theirs at infinity.
ONE_UP = {2: 0.12447741, 1: 0.38292492, 0: 0.24173034, -1: 0.0668072}
TWO_UP = {
    4: 0.12447741, 3: 0.19146246, 2: 0.19146246, 1: 0.14988228, 0: 0.09184805, -1: 0.04405707, -2: 0.01654047,
    -3: 0.00620967,
}  # fmt: skip
ONE_DOWN = {1: 0.30853754, 0: 0.38292492, -1: 0.24173034, -2: 0.03809064}
TWO_DOWN = {3: 0.30853754, 2: 0.19146246, 1: 0.19146246, 0: 0.14988228, -1: 0.09184805}
ONE_DOTS = {2: 0.167710257, 1: 0.343270190, 0: 0.319116756, -1: 0.126282046, -2: 0.022697115}
TWO_DOTS = {4: 0.156393834, 3: 0.176732821, 2: 0.195352391, 1: 0.169838899, 0: 0.116146963}
LOSS_TABLES = (
    *((s, d, 1.0, ONE_UP, ONE_DOWN, ONE_DOTS, 0.020923636) for s, d in [(1, 1), (5, 5)]),
    *((s, d, 1.0, TWO_UP, TWO_DOWN, TWO_DOTS, 0.084953319) for s, d in [(1, 2), (3, 6)]),
    (1, 1, 0.5, {3: 0.12447741, 2: 0.19146246, 1: 0.19146246, 0: 0.14988228, -1: 0.09184805, -2: 0.0668072}, None,
     {3: 0.178515818, 2: 0.175063076, 1: 0.195400642, 0: 0.171573378, -1: 0.118516480}, 0.056696236),
    (1, 1, 0.3, {5: 0.05790353, 4: 0.10261461, 3: 0.1155939, 2: 0.11908755, 1: 0.11220275, 0: 0.09668214,
                 -1: 0.07618934, -2: 0.0549094, -3: 0.0361912, -4: 0.04456546}, None,
     {5: 0.143933223, 4: 0.093801719, 3: 0.110114456, 2: 0.118295665, 1: 0.116301523, 0: 0.104639278}, 0.056696236),
)  # fmt: skip
#: σ, gaps, odds, the larger δ(1) of adding and removing.
MIXTURES = (
    (1.0, (1.0,), (1.0,), 0.12693674), (1.0, (3.0,), (1.0,), 0.78760074),
    (1.0, (0.0, 1.0), (0.2, 0.8), 0.0816951786585355),
    (1.0, (0.0, 3.0), (0.3, 0.7), 0.5356298793262404), (1.0, (0.0, 1.0, 2.0), (0.2, 0.6, 0.2), 0.15768284088654105),
    (1.0, (1.0, 2.0), (0.2, 0.8), 0.433276675545065), (2.0, (0.0, 2.0), (0.2, 0.8), 0.0816951786585355),
    (2.0, (0.0, 6.0), (0.6, 0.4), 0.2888308005139968),
)  # fmt: skip
#: Randomized response: share answered at random, how many answers, and divergences at six orders, replacing one.
RESPONSE_ORDERS = (1.5, 2.5, 5.0, 50.0, 100.0, math.inf)
RESPONSE_DIVERGENCES = (
    (0.3, 10, (2.6946320226546314, 2.983865364028855, 3.11316970070507, 3.1854244842182466, 3.1886682560677593,
               3.1918471524802814)),
    (0.05, 20, (5.850317703374384, 5.910360162307462, 5.930633082131939, 5.94180620835157, 5.942307807732949,
                5.942799375126701)),
    (0.01, 3, (5.684126770932727, 5.692634596034571, 5.695421239467805, 5.696956976543137, 5.697025920968522,
               5.697093486505405)),
    (0.1, 10, (None, None, None, None, None, 4.51085950651685)),
)  # fmt: skip
#: The same: step, losses rounded up, losses rounded down.
RESPONSE_LOSSES = (
    (0.5, 2, 1.0, {2: 0.75, -1: 0.25}, {1: 0.75, -2: 0.25}),
    (0.2, 4, 1.0, {3: 0.85, -2: 0.05, 0: 0.1}, {2: 0.85, -3: 0.05, 0: 0.1}),
    (0.2, 4, 0.7, {5: 0.85, -4: 0.05, 0: 0.1}, None),
    (0.2, 4, 2.0, {2: 0.85, -1: 0.05, 0: 0.1}, None),
)
#: Discrete Laplace noise: parameter, Δ, ε, δ.
DISCRETE_LAPLACE = (
    (1.0, 1, 1.0, 0.0), (0.333333, 3, 1.0, 0.0), (0.5, 4, 2.0, 0.0), (0.5, 4, 0.5, 0.54202002),
    (0.5, 4, 1.0, 0.39346934),
    (0.5, 4, -0.5, 0.7222211), (0.5, 4, -2.0, 0.86466472), (0.5, 4, -1.0, 0.77686984), (0.5, 4, 0.0, 0.63212056),
)  # fmt: skip
#: Finite laws with probabilities in tenths, and δ at ln of something.
TENTHS = (
    ((6, 4), (5, 5), 1.0, 0.1),
    ((5, 5), (6, 4), 1.0, 0.1),
    ((5, 5), (6, 4), 1.1, 0.06),
    ((6, 4), (5, 5), 0.9, 0.15),
)
#: Pure ε, δ beside it, queries, δ in all: the least multiple of ε in steps of two that holds (Kairouz, Oh & Viswanath).
COMPOSED_RESPONSES = (
    (1.0, 0.0, 30, 0.0, 30),
    (1.0, 0.001, 30, 0.06, 22),
    (1.0, 0.001, 30, 0.1, 20),
    (0.25, 0.0, 50, 0.01, 20),
)


def gaussian_deltas() -> Iterator[Case]:
    for sigma, gap, epsilon, figure in GAUSSIAN_DELTAS:
        yield gaussian("δ(ε) of Gaussian noise", sigma, gap, epsilon, "value", figure, PLACES)


def loss_tables() -> Iterator[Case]:
    """Tables are printed to eight or nine places: what their sums may be off by is the slack."""
    for sigma, gap, step, up, down, dots, beyond in LOSS_TABLES:
        for n in range(3):
            e = n * step
            rest = 1 - math.fsum(up.values())
            tables = [("losses rounded up", "above", table_delta(up, rest, step, e), 1e-7)]
            tables += [("losses rounded down", "below", table_delta(down, 0.0, step, e), 1e-7)] if down else []
            tables += [("connected dots", "value", table_delta(dots, beyond, step, e), 5e-9)]
            for topic, kind, figure, slack in tables:
                yield gaussian(topic, sigma, gap, e, kind, figure, slack)


def gaussian_calibrations() -> Iterator[Case]:
    cases = [(gap, gap, e, d, s, 5e-4, "") for gap, e, d, s in GAUSSIAN_CALIBRATIONS]
    cases += [(gap, gap * math.sqrt(n), 1, 0.78760074, s, PLACES, f", {n} queries") for gap, n, s in GAUSSIAN_QUERIES]
    # The noise at which Rényi divergences prove (1, 1e-6): more than is needed.
    cases += [(1, 1, 1, 1e-6, 4.530877117, math.inf, " from Rényi divergences")]
    for gap, total, epsilon, delta, figure, slack, note in cases:

        def holds(sigma: float, total: float = total, epsilon: float = epsilon, delta: float = delta) -> bool:
            return bool(gaussian_delta(mpf(total) ** 2 / mpf(sigma) ** 2, epsilon) <= mpf(delta))

        def ours(total: float = total, epsilon: float = epsilon, delta: float = delta) -> list[float]:
            return [shoal.analytic_sigma(total, epsilon, delta)]

        kind = "value" if slack < math.inf else "above"
        inputs = f"Δ={gap:g}, ε={epsilon:g}, δ={delta:g}{note}"
        yield Case(GOOGLE, "least Gaussian noise", inputs, kind, figure, min(slack, 1.0), ours, holds)


def round_trips() -> Iterator[Case]:
    """ε → σ → ε and σ → ε → σ on the grids of their test, to a relative 1e-7."""
    for epsilon in EPSILONS:
        for delta in DELTAS:
            sigma = cache(lambda e=epsilon, d=delta: shoal.analytic_sigma(1.0, e, d))

            def back(sigma: Callable[[], float] = sigma, delta: float = delta) -> list[float]:
                return [float(shoal.epsilon_at(*pair(1.0, sigma() ** 2), delta))]

            def holds(found: float, sigma: Callable[[], float] = sigma, delta: float = delta) -> bool:
                return bool(gaussian_delta(1 / mpf(sigma() ** 2), found) <= mpf(delta))

            inputs = f"ε={epsilon:g}, δ={delta:g}"
            yield Case(GOOGLE, "ε → σ → ε", inputs, "value", epsilon, 1e-7 * epsilon, back, holds)
    for sigma in SIGMAS:
        for delta in DELTAS:
            there = cache(lambda s=sigma, d=delta: float(shoal.epsilon_at(*pair(1.0, s * s), d)))

            def again(there: Callable[[], float] = there, delta: float = delta) -> list[float]:
                return [shoal.analytic_sigma(1.0, there(), delta)]

            def fits(found: float, there: Callable[[], float] = there, delta: float = delta) -> bool:
                return bool(gaussian_delta(1 / mpf(found) ** 2, there()) <= mpf(delta))

            # Where ε = 0 holds already, less noise may do as well.
            kind = "above" if gaussian_delta(1 / mpf(sigma) ** 2, 0) <= mpf(delta) else "value"
            inputs = f"σ={sigma:g}, δ={delta:g}"
            yield Case(GOOGLE, "σ → ε → σ", inputs, kind, sigma, 1e-7 * sigma, again, fits)


def gaussian_compositions() -> Iterator[Case]:
    """Several releases as several releases, not as one of their total."""

    def released(covs: Sequence[float]) -> tuple[list[shoal.GaussianClasses], shoal.NeighborGraph]:
        return [pair(1.0, cov)[0] for cov in covs], pair(1.0, covs[0])[1]

    three = [math.sqrt(3) ** 2] * 3

    def composed() -> list[float]:
        routes: tuple[Callable[..., Any], ...] = (shoal.privacy_curve, shoal.composed_delta)
        return [float(route(*released(three), 1.0).delta_upper) for route in routes]

    exact = above(lambda: gaussian_delta(3 / mpf(three[0]), 1))
    yield Case(GOOGLE, "Gaussian releases composed", "3 with σ=√3", "value", 0.126936, 1e-3, composed, exact)
    # One of each but three of the second, as one: the root of the sum of 1/σ².
    draws = np.random.RandomState(0xBAD5EED).uniform(size=4).tolist()
    covs = [s * s for s in [*draws, draws[1], draws[1]]]
    figure = math.sqrt(sum(1 / cov for cov in covs))
    root = above(lambda: mp.sqrt(sum((1 / mpf(cov) for cov in covs), mpf(0))))
    inputs = "six with σ drawn from (0, 1)"
    yield Case(
        GOOGLE, "Gaussian releases as one", inputs, "value", figure, PLACES, lambda: [gdp(*released(covs))], root
    )


def renyi() -> Iterator[Case]:
    """α/2σ² for Gaussian noise, alone, for two, as zCDP, and for a hundred steps."""
    one, two = 2.71828, 6.28319
    cases = [("σ=2.71828", 3.14159, [one], 1), ("σ=2.71828 and 6.28319", 3.14159, [one, two], 1)]
    cases += [
        ("σ=3.14159", 2.71828, [3.14159], 1),
        ("100 with σ=0.1", 2.0, [0.1], 100),
        ("100 with σ=0.1", 63.0, [0.1], 100),
    ]
    for inputs, order, sigmas, times in cases:
        covs = [s * s for s in sigmas]
        exact = mpf(order) / 2 * sum((1 / mpf(cov) for cov in covs), mpf(0)) * times
        figure = order / 2 * sum(1 / s**2 for s in sigmas) * times

        def ours(order: float = order, covs: list[float] = covs, times: int = times) -> list[float]:
            releases = [pair(1.0, cov)[0] for cov in covs] * times
            return [float(shoal.renyi_curve(releases, pair(1.0, covs[0])[1], order).divergence_upper)]

        slack = max(PLACES, 1e-12 * figure)
        held = above(lambda exact=exact: exact)
        yield Case(
            GOOGLE, "Rényi divergence of Gaussian noise", f"{inputs}, α={order:g}", "value", figure, slack, ours, held
        )


def mixtures() -> Iterator[Case]:
    """Ours is a bound for mixtures, exact for one component; theirs are exact."""
    for sigma, gaps, odds, figure in MIXTURES:
        parts = shoal.GaussianClasses([[0.0], *([g] for g in gaps)], [[sigma**2]])
        owner = np.array([0] + [1] * len(gaps), dtype=np.intp)
        family = shoal.GaussianMixtureClasses(("a", "b"), np.array([1.0, *odds]), parts, owner)

        def ours(family: shoal.GaussianMixtureClasses = family) -> list[float]:
            return [family.delta(shoal.NeighborGraph.complete(family.labels), 1.0).delta_upper]

        exact = above(lambda s=sigma, g=gaps, p=odds: mixture_delta(s, g, p, 1.0))
        kind = "value" if len(gaps) == 1 else "below"
        inputs = f"σ={sigma:g}, Δ={gaps}, odds={odds}, ε=1"
        yield Case(GOOGLE, "δ(ε) of mixtures", inputs, kind, figure, PLACES, ours, exact)


def ratio_of(share: float, n: int) -> float:
    return (1 - share + share / n) / (share / n)


def randomized_response() -> Iterator[Case]:
    for share, n, step, up, down in RESPONSE_LOSSES:
        for at in (0, 1, 2):
            tables = [("above", up), ("below", down)] if down else [("above", up)]
            for kind, pmf in tables:
                figure = table_delta(pmf, 0.0, step, at * step)
                yield response_delta(share, n, at * step, kind, figure, 1e-12)
    # (4/(3 + e), 4) has e^ε = e.
    yield response_delta(4 / (3 + math.e), 4, 1.0, "value", 0.0, PLACES)
    for share, n, figures in RESPONSE_DIVERGENCES:
        for order, figure in zip(RESPONSE_ORDERS, figures, strict=True):
            if figure is None:
                continue
            ratio = ratio_of(share, n)

            def ours(n: int = n, ratio: float = ratio, order: float = order) -> list[float]:
                book = response(n, ratio)
                return [book.divergence(order) if order < math.inf else book.epsilon]

            def exact(n: int = n, ratio: float = ratio, order: float = order) -> Any:
                one, two = (law(response(n, ratio), label) for label in "01")
                if order == math.inf:
                    return max(mp.log(p / q) for p, q in zip(one, two, strict=True))
                a = mpf(order)
                return mp.log(sum(p**a * q ** (1 - a) for p, q in zip(one, two, strict=True))) / (a - 1)

            inputs = f"share={share:g}, {n} answers, α={order:g}"
            topic = "Rényi divergence of randomized response"
            yield Case(GOOGLE, topic, inputs, "value", figure, 1e-4 * figure, ours, above(exact))


def response_delta(share: float, n: int, epsilon: float, kind: str, figure: float, slack: float) -> Case:
    ratio = ratio_of(share, n)

    def ours() -> list[float]:
        book = response(n, ratio)
        graph = book.graph
        return [float(book.curve(epsilon).delta_upper), float(shoal.composed_delta([book], graph, epsilon).delta_upper)]

    def exact() -> Any:
        book = response(n, ratio)
        return discrete_delta(law(book, "0"), law(book, "1"), epsilon)

    inputs = f"share={share:.6g}, {n} answers, ε={epsilon:g}"
    return Case(GOOGLE, "δ(ε) of randomized response", inputs, kind, figure, slack, ours, above(exact))


def finite_laws() -> Iterator[Case]:
    """Laws of finitely many losses as a codebook holds them: integers over a common whole."""
    whole = 2**60
    for parameter, gap, epsilon, figure in DISCRETE_LAPLACE:
        a = mpf(parameter)
        inner = [(1 - mp.exp(-a)) / (1 + mp.exp(-a)) * mp.exp(-a * x) for x in range(1, gap)]
        masses = [1 / (1 + mp.exp(-a)), *inner, mp.exp(-a * gap) / (1 + mp.exp(-a))]
        counts = [int(mp.nint(m * whole)) for m in masses]
        inputs = f"discrete Laplace, a={parameter:g}, Δ={gap}, ε={epsilon:g}"
        yield finite_law(inputs, counts, counts[::-1], epsilon, figure)
    for ours, theirs, ratio, figure in TENTHS:
        yield finite_law(f"tenths {ours} and {theirs}, ε=ln {ratio:g}", ours, theirs, math.log(ratio), figure)


def finite_law(inputs: str, ours: Sequence[int], theirs: Sequence[int], epsilon: float, figure: float) -> Case:
    atoms = LossAtoms.of(np.array(ours, dtype=np.int64), np.array(theirs, dtype=np.int64), 10.0)

    def exact() -> Any:
        return discrete_delta([mpf(c) / sum(ours) for c in ours], [mpf(c) / sum(theirs) for c in theirs], epsilon)

    return Case(
        GOOGLE, "δ(ε) of finite laws", inputs, "value", figure, PLACES, lambda: [atoms.delta(epsilon)], above(exact)
    )


def composed_responses() -> Iterator[Case]:
    """The least total ε, a multiple of ε in steps of two, at which δ in all holds; some releases are lost with δ."""
    for epsilon, beside, queries, delta, figure in COMPOSED_RESPONSES:
        book = shoal.codebook([[0.0], [1.0]], shoal.NeighborGraph.complete(["a", "b"]), epsilon)

        def ours(book: shoal.Codebook = book, d: float = beside, n: int = queries, delta: float = delta) -> list[float]:
            multiples = np.arange(n, 0, -2)
            found = shoal.composed_delta([book] * n, book.graph, multiples * book.epsilon).delta_upper
            return [float(multiples[1 - (1 - d) ** n * (1 - found) <= delta].min())]

        def holds(
            multiple: float, book: shoal.Codebook = book, d: float = beside, n: int = queries, delta: float = delta
        ) -> bool:
            p, q = law(book, "a")
            parts = (
                mp.binomial(n, i) * (p ** (n - i) * q**i - mp.exp(multiple * mpf(book.epsilon)) * q ** (n - i) * p**i)
                for i in range(n + 1)
            )
            lost = 1 - (1 - mpf(d)) ** n * (1 - sum(max(part, mpf(0)) for part in parts))
            return bool(lost <= mpf(delta))

        inputs = f"{queries} of ε={epsilon:g}, δ={beside:g}, in all δ={delta:g}"
        yield Case(GOOGLE, "pure releases composed", inputs, "value", figure, 0.0, ours, holds)
    # Discrete Laplace noise on counts is randomized response of two: 3 with ε = 1 and 2 with ε = 0.5.
    books = [response(2, math.exp(e)) for e in (1.0, 1.0, 1.0, 0.5, 0.5)]

    def sums() -> list[float]:
        return [float(shoal.composed_delta(books, books[0].graph, 4.0).delta_upper)]

    yield Case(
        GOOGLE, "pure releases composed", "3 of ε=1, 2 of ε=0.5, ε=4", "value", 0.0, 1e-6, sums, above(lambda: mpf(0))
    )


# ---------------------------------------------------------------------- OpenDP

#: σ, Δ, ρ.
ZCDP = ((1.0, 1.0, 0.5), (1.0, 2.0, 2.0), (1.0, 3.0, 4.5), (10.0, 1.0, 0.005), (2.0, 1.0, 0.125))
#: ρ, ε, δ that zCDP proves.
ZCDP_DELTAS = (
    (0.03125, 0.0, 0.1508457845622862),
    (0.05, 0.25, 8.17727531036956e-2),
    (5e-30, 1e-13, 2.619676329730346e-234),
    (0.5, 0.0, 0.5588356393474351),
)
#: σ, releases, δ, ε that zCDP proves; two releases each with half of δ.
ZCDP_EPSILONS = (
    (4.0, 1, 1e-3, 0.6880024554878085),
    (10.0, 1, 1e-6, 0.42994146883694934),
    (1.0, 2, 2e-7, 11.341717670937543),
    (10.5, 1, 1e-6, 0.6),
)
#: Answers, probability of the own one, e^ε.
RESPONSES = ((2, 0.75, 3.0), (4, 0.75, 9.0))


def opendp_cases() -> Iterator[Case]:
    for sigma, gap, rho in ZCDP:
        classes, graph = pair(gap, sigma * sigma)
        exact = above(lambda s=sigma, g=gap: mpf(g) ** 2 / (2 * mpf(s) ** 2))
        inputs = f"σ={sigma:g}, Δ={gap:g}"
        yield Case(
            OPENDP,
            "zCDP of Gaussian noise",
            inputs,
            "value",
            rho,
            1e-12,
            lambda c=classes, g=graph: [zcdp(c, g)],
            exact,
        )
    for rho, epsilon, figure in ZCDP_DELTAS:
        gap = math.sqrt(2 * rho)

        def deltas(gap: float = gap, epsilon: float = epsilon) -> list[float]:
            return [
                deterministic.gaussian_delta(gap, 1.0, epsilon),
                float(shoal.privacy_curve(*pair(gap, 1.0), epsilon).delta_upper),
            ]

        exact = above(lambda g=gap, e=epsilon: gaussian_delta(mpf(g) ** 2, e))
        yield Case(OPENDP, "δ from zCDP", f"ρ={rho:g}, ε={epsilon:g}", "above", figure, 0.0, deltas, exact)
    for sigma, times, delta, figure in ZCDP_EPSILONS:

        def epsilons(sigma: float = sigma, times: int = times, delta: float = delta) -> list[float]:
            classes, graph = pair(1.0, sigma * sigma)
            return [float(shoal.epsilon_at([classes] * times, graph, delta))]

        def holds(found: float, sigma: float = sigma, times: int = times, delta: float = delta) -> bool:
            return bool(gaussian_delta(times / mpf(sigma) ** 2, found) <= mpf(delta))

        yield Case(
            OPENDP, "ε from zCDP", f"{times} with σ={sigma:g}, δ={delta:g}", "above", figure, 0.0, epsilons, holds
        )
    twice, graph = pair(2.0, 1.0)
    yield Case(
        OPENDP,
        "Rényi divergence composed",
        "2 with σ=1, Δ=2, α=3",
        "value",
        12.0,
        1e-12,
        lambda: [float(shoal.renyi_curve([twice] * 2, graph, 3.0).divergence_upper)],
        above(lambda: mpf(12)),
    )
    for n, own, ratio in RESPONSES:
        book = response(n, ratio)

        def pure(book: shoal.Codebook = book) -> list[float]:
            return [book.epsilon]

        def bounded(found: float, book: shoal.Codebook = book) -> bool:
            one, two = law(book, "0"), law(book, "1")
            return max(p / q for p, q in zip(one, two, strict=True)) <= mp.exp(mpf(found))

        yield Case(
            OPENDP,
            "ε of randomized response",
            f"{n} answers, own one {own:g}",
            "value",
            math.log(ratio),
            1e-15,
            pure,
            bounded,
        )


@cache
def cases() -> tuple[Case, ...]:
    made = (gaussian_deltas, loss_tables, gaussian_calibrations, round_trips, gaussian_compositions, renyi, mixtures)
    made += (randomized_response, finite_laws, composed_responses, opendp_cases)
    return tuple(case for make in made for case in make())


@cache
def found(case: Case) -> tuple[float, ...]:
    return tuple(case.ours())


def agrees(case: Case, ours: float) -> bool:
    """Within the tolerance of the peer's own test; a bound of theirs must be on its side of ours."""
    if case.kind == "value":
        return abs(ours - case.figure) <= case.slack
    return ours <= case.figure + case.slack if case.kind == "above" else ours >= case.figure - case.slack
