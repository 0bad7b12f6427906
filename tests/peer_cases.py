"""What other libraries expect in their own tests, as cases for our accounting.

Inputs and expected figures of the accounting tests of dp_accounting 0.6.0 and OpenDP 0.16 that have a counterpart here:
Gaussian noise, its calibration and composition, randomized response and other finite laws, Rényi divergences,
zCDP. A figure is the exact one up to the tolerance of the test it comes from ("value"), or a bound of it from "above"
or "below"; ``holds`` decides with fifty digits and no tolerance whether a figure is on the safe side.

Figures are in ``peer_figures.json``. Left out are what has no counterpart (Laplace noise, mixtures, subsampling under
composition, tree aggregation, thresholds, laws of unequal support) and what tests an interface rather than a figure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from mpmath import mp, mpf

import shoal
from shoal.accounting import deterministic
from shoal.mechanism.composition import codebook_divergence
from shoal.mechanism.discrete_loss import DiscreteLoss

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


def kullback_leibler(releases: Any, graph: shoal.NeighborGraph) -> float:
    """Kullback and Leibler's, rounded up: of equal covariances the ϱ of zCDP and half the square of the μ of GDP."""
    return float(shoal.renyi_curve(releases, graph, 1.0).divergence_upper)


def gaussian_delta(square: Any, epsilon: Any) -> Any:
    """δ(ε) of Gaussian noise (Balle & Wang 2018) for the squared ratio of sensitivity and noise, any sign of ε."""
    mu, e = mp.sqrt(square), mpf(epsilon)
    return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


def discrete_delta(ours: Sequence[Any], theirs: Sequence[Any], epsilon: Any) -> Any:
    return sum(max(mpf(p) - mp.exp(mpf(epsilon)) * mpf(q), mpf(0)) for p, q in zip(ours, theirs, strict=True))


def table_delta(pmf: dict[str, float], beyond: float, step: float, epsilon: float) -> float:
    """δ(ε) of tabulated losses, multiples of a step."""
    losses = [(int(n) * step, p) for n, p in pmf.items()]
    return beyond + sum(p * -math.expm1(epsilon - loss) for loss, p in losses if loss > epsilon)


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
    group, row = book.crowd_and_row(label)
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

FIGURES = json.loads((Path(__file__).parent / "peer_figures.json").read_text())
EPSILONS = SIGMAS = (1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e5)
DELTAS = (1e-10, 1e-5, 0.1, 0.5, 0.9)
RESPONSE_ORDERS = (1.5, 2.5, 5.0, 50.0, 100.0, math.inf)


def gaussian_deltas() -> Iterator[Case]:
    """The Gaussian mechanism without sampling; "replace" cases with twice their Δ."""
    for sigma, gap, epsilon, figure in FIGURES["gaussian_deltas"]:
        yield gaussian("δ(ε) of Gaussian noise", sigma, gap, epsilon, "value", figure, PLACES)


def loss_tables() -> Iterator[Case]:
    """Losses rounded up with the rest at infinity, rounded down, and connected dots with theirs at infinity.

    Tables are printed to eight or nine places: what their sums may be off by is the slack.
    """
    for sigma, gap, step, up, down, dots, beyond in FIGURES["loss_tables"]:
        for n in range(3):
            e = n * step
            rest = 1 - math.fsum(up.values())
            tables = [("losses rounded up", "above", table_delta(up, rest, step, e), 1e-7)]
            tables += [("losses rounded down", "below", table_delta(down, 0.0, step, e), 1e-7)] if down else []
            tables += [("connected dots", "value", table_delta(dots, beyond, step, e), 5e-9)]
            for topic, kind, figure, slack in tables:
                yield gaussian(topic, sigma, gap, e, kind, figure, slack)


def gaussian_calibrations() -> Iterator[Case]:
    """The least noise for one query, with three places, and for several: Δ of one, how many, σ."""
    queries = FIGURES["gaussian_queries"]
    cases = [(gap, gap, e, d, s, 5e-4, "") for gap, e, d, s in FIGURES["gaussian_calibrations"]]
    cases += [(gap, gap * math.sqrt(n), 1, 0.78760074, s, PLACES, f", {n} queries") for gap, n, s in queries]
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
        GOOGLE,
        "Gaussian releases as one",
        inputs,
        "value",
        figure,
        PLACES,
        lambda: [math.nextafter(math.sqrt(2 * kullback_leibler(*released(covs))), math.inf)],
        root,
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


def ratio_of(share: float, n: int) -> float:
    return (1 - share + share / n) / (share / n)


def randomized_response() -> Iterator[Case]:
    """Share answered at random, how many answers: losses rounded up and down, and divergences, replacing one."""
    for share, n, step, up, down in FIGURES["response_losses"]:
        for at in (0, 1, 2):
            tables = [("above", up), ("below", down)] if down else [("above", up)]
            for kind, pmf in tables:
                figure = table_delta(pmf, 0.0, step, at * step)
                yield response_delta(share, n, at * step, kind, figure, 1e-12)
    # (4/(3 + e), 4) has e^ε = e.
    yield response_delta(4 / (3 + math.e), 4, 1.0, "value", 0.0, PLACES)
    for share, n, figures in FIGURES["response_divergences"]:
        for order, figure in zip(RESPONSE_ORDERS, figures, strict=True):
            if figure is None:
                continue
            ratio = ratio_of(share, n)

            def ours(n: int = n, ratio: float = ratio, order: float = order) -> list[float]:
                book = response(n, ratio)
                if order == math.inf:
                    return [book.epsilon]
                return codebook_divergence([(book.privacy_loss("0", "1"), 1)], np.array([order])).tolist()

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
    for parameter, gap, epsilon, figure in FIGURES["discrete_laplace"]:
        a = mpf(parameter)
        inner = [(1 - mp.exp(-a)) / (1 + mp.exp(-a)) * mp.exp(-a * x) for x in range(1, gap)]
        masses = [1 / (1 + mp.exp(-a)), *inner, mp.exp(-a * gap) / (1 + mp.exp(-a))]
        counts = [int(mp.nint(m * whole)) for m in masses]
        inputs = f"discrete Laplace, a={parameter:g}, Δ={gap}, ε={epsilon:g}"
        yield finite_law(inputs, counts, counts[::-1], epsilon, figure)
    for ours, theirs, ratio, figure in FIGURES["tenths"]:
        yield finite_law(f"tenths {ours} and {theirs}, ε=ln {ratio:g}", ours, theirs, math.log(ratio), figure)


def finite_law(inputs: str, ours: Sequence[int], theirs: Sequence[int], epsilon: float, figure: float) -> Case:
    atoms = DiscreteLoss.of(np.array(ours, dtype=np.int64), np.array(theirs, dtype=np.int64), 10.0)

    def exact() -> Any:
        return discrete_delta([mpf(c) / sum(ours) for c in ours], [mpf(c) / sum(theirs) for c in theirs], epsilon)

    return Case(
        GOOGLE, "δ(ε) of finite laws", inputs, "value", figure, PLACES, lambda: [atoms.delta(epsilon)], above(exact)
    )


def composed_responses() -> Iterator[Case]:
    """The least total ε, a multiple of ε in steps of two, at which δ in all holds; some releases are lost with δ."""
    for epsilon, beside, queries, delta, figure in FIGURES["composed_responses"]:
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


def opendp_cases() -> Iterator[Case]:
    """zCDP of Gaussian noise, δ and ε that it proves (two releases each with half of δ), and randomized response."""

    def case(
        topic: str, inputs: str, figure: float, slack: float, ours: Figures, holds: Any, kind: str = "value"
    ) -> Case:
        return Case(OPENDP, topic, inputs, kind, figure, slack, ours, holds)

    for sigma, gap, rho in FIGURES["zcdp"]:
        exact = above(lambda s=sigma, g=gap: mpf(g) ** 2 / (2 * mpf(s) ** 2))
        ours = partial(lambda *released: [kullback_leibler(*released)], *pair(gap, sigma * sigma))
        yield case("zCDP of Gaussian noise", f"σ={sigma:g}, Δ={gap:g}", rho, 1e-12, ours, exact)
    for rho, epsilon, figure in FIGURES["zcdp_deltas"]:
        gap = math.sqrt(2 * rho)

        def deltas(gap: float = gap, epsilon: float = epsilon) -> list[float]:
            closed = deterministic.gaussian_delta(gap, 1.0, epsilon)
            return [closed, float(shoal.privacy_curve(*pair(gap, 1.0), epsilon).delta_upper)]

        exact = above(lambda g=gap, e=epsilon: gaussian_delta(mpf(g) ** 2, e))
        yield case("δ from zCDP", f"ρ={rho:g}, ε={epsilon:g}", figure, 0.0, deltas, exact, "above")
    for sigma, times, delta, figure in FIGURES["zcdp_epsilons"]:

        def epsilons(sigma: float = sigma, times: int = times, delta: float = delta) -> list[float]:
            classes, graph = pair(1.0, sigma * sigma)
            return [float(shoal.epsilon_at([classes] * times, graph, delta))]

        def holds(figure: float, sigma: float = sigma, times: int = times, delta: float = delta) -> bool:
            return bool(gaussian_delta(times / mpf(sigma) ** 2, figure) <= mpf(delta))

        yield case("ε from zCDP", f"{times} with σ={sigma:g}, δ={delta:g}", figure, 0.0, epsilons, holds, "above")
    twice, graph = pair(2.0, 1.0)

    def divergence() -> list[float]:
        return [float(shoal.renyi_curve([twice] * 2, graph, 3.0).divergence_upper)]

    yield case("Rényi divergence composed", "2 with σ=1, Δ=2, α=3", 12.0, 1e-12, divergence, above(lambda: mpf(12)))
    for n, own, ratio in FIGURES["responses"]:
        book = response(n, ratio)

        def bounded(figure: float, book: shoal.Codebook = book) -> bool:
            one, two = law(book, "0"), law(book, "1")
            return max(p / q for p, q in zip(one, two, strict=True)) <= mp.exp(mpf(figure))

        inputs = f"{n} answers, own one {own:g}"
        yield case("ε of randomized response", inputs, math.log(ratio), 1e-15, lambda b=book: [b.epsilon], bounded)


@cache
def cases() -> tuple[Case, ...]:
    made = (gaussian_deltas, loss_tables, gaussian_calibrations, round_trips, gaussian_compositions, renyi)
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
