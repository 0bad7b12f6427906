"""The exact discrete Gaussian: each step's own code, run along all decisions of the steps below it.

Three layers, each with exact probabilities: chances of m/2^d and 1/k from random words; exp(−m/2^d) from such chances;
a round from those. Nothing is drawn, so there is nothing that a small bias could hide in.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
from scipy import stats

from shoal.noise import source as discrete
from shoal.noise.source import RESOLUTION, DiscreteGaussianSampler, discrete_gaussians

BITS = RESOLUTION.scale_bits


class Unlikely(Exception):
    """A path is less probable than what is looked at."""


class Path:
    """Answers to the chances that code asks for: those given, then yes; the other way at each of these is noted."""

    def __init__(self, answers: tuple[bool, ...], weight: Fraction) -> None:
        self.answers, self.weight, self.position = answers, weight, 0
        self.others: list[Path] = []

    def chance(self, p: Fraction) -> bool:
        self.position += 1
        if self.position > len(self.answers):
            if p < 1:
                self.others.append(Path((*self.answers, False), self.weight * (1 - p)))
            self.weight *= p
            self.answers = (*self.answers, True)
            if self.weight < LEAST:
                raise Unlikely
        return self.answers[self.position - 1]


LEAST = Fraction(1, 10**24)


def outcomes(run: Callable[[Callable[[Fraction], bool]], bool]) -> tuple[dict[bool, Fraction], Fraction]:
    """The law of what ``run`` returns, over all answers to its chances, and the probability that was left out."""
    law, left_out, paths = {True: Fraction(0), False: Fraction(0)}, Fraction(0), [Path((), Fraction(1))]
    while paths:
        path = paths.pop()
        try:
            law[run(path.chance)] += path.weight
        except Unlikely:
            left_out += path.weight
        paths += path.others
    return law, left_out


class Chances(DiscreteGaussianSampler):
    """Chances of m/2^d and 1/k are asked for instead of drawn."""

    def __init__(self, chance: Callable[[Fraction], bool]) -> None:
        self._chance = chance

    def _bernoulli_dyadic(self, m: int, d: int) -> bool:
        return self._chance(Fraction(m, 1 << d))

    def _bernoulli_reciprocal(self, k: int) -> bool:
        return self._chance(Fraction(1, k))


class Scripted(DiscreteGaussianSampler):
    """A round whose uniform numbers and answers about exp(−x) are given; remembers the x that were asked for."""

    def __init__(self, bits: int, uniform: list[int], answers: list[bool]) -> None:
        self.bits = bits
        self._uniforms, self._answers = uniform, answers
        self.accepted: list[Fraction] = []
        self.rejected: list[Fraction] = []

    def _uniform_integer(self, bits: int) -> int:
        assert bits == (self.bits if len(self._uniforms) == 2 else 1)
        return self._uniforms.pop(0)

    def _bernoulli_exp(self, m: int, d: int) -> bool:
        answer = self._answers.pop(0)
        (self.accepted if answer else self.rejected).append(Fraction(m, 1 << d))
        return answer


@pytest.mark.parametrize("d", range(8))
def test_a_chance_of_m_over_a_power_of_two(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sequence of three-bit words, so that up to three of them are compared."""
    monkeypatch.setattr(discrete, "WORD", 3)
    for m in range(2**d + 1):
        answers = [
            DiscreteGaussianSampler(0, iter(words))._bernoulli_dyadic(m, d)
            for words in itertools.product(range(8), repeat=3)
        ]
        assert Fraction(sum(answers), len(answers)) == Fraction(m, 2**d)


@pytest.mark.parametrize("k", range(1, 9))
def test_one_in_k(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the sequences of words that end with an answer, each length by itself, one in k is true."""
    monkeypatch.setattr(discrete, "WORD", 3)
    for length in (1, 2, 3):
        answers = []
        for words in itertools.product(range(8), repeat=length):
            left = iter(words)
            try:
                answer = DiscreteGaussianSampler(0, left)._bernoulli_reciprocal(k)
            except StopIteration:
                continue
            if not list(left):
                answers.append(answer)
        assert sum(answers) * k == len(answers)
        assert answers or 8 % k == 0


@pytest.mark.parametrize(
    ("m", "d"), [(0, 0), (1, 0), (0, 5), (1, 5), (31, 5), (32, 5), (33, 5), (77, 5), (3, 0), (5, 1)]
)
def test_exponentials(m: int, d: int) -> None:
    _check_exponential(m, d)


def test_exponentials_at_the_scale_of_releases() -> None:
    draw = random.Random(3)
    for d in (BITS, 2 * BITS + 1):
        for m in (1, (1 << d) - 1, 1 << d, *(draw.randrange(1 << d) for _ in range(20))):
            _check_exponential(m, d)


def _check_exponential(m: int, d: int) -> None:
    law, left_out = outcomes(lambda chance: Chances(chance)._bernoulli_exp(m, d))
    assert law[True] + law[False] + left_out == 1
    assert left_out < LEAST * 100
    with flint.ctx.workprec(300):
        p, slack, x = (_ball(value) for value in (law[True], left_out, Fraction(m, 1 << d)))
        assert abs((-x).exp() - p) <= slack + _ball(Fraction(1, 1 << 250))


def _ball(value: Fraction) -> Any:
    return flint.arb(flint.fmpq(value.numerator, value.denominator))


def proposals(b: int) -> Iterator[tuple[int, int, int]]:
    """(fine part, coarse part, sign): all of them near zero, or many at the scale of releases."""
    if b < 5:
        yield from itertools.product(range(2**b), range(7), (0, 1))
    else:
        draw = random.Random(b)
        for coarse, sign in itertools.product(range(9), (0, 1)):
            yield from ((fine, coarse, sign) for fine in (0, 1, 2**b - 1, *(draw.randrange(2**b) for _ in range(30))))


@pytest.mark.parametrize("b", [0, 1, 2, 3, BITS])
def test_a_round_proposes_every_number_once_with_the_normal_law(b: int) -> None:
    """The exponents on the one path to n add up to n²/2σ² + ½, exactly, whatever n is."""
    reached = []
    for fine, coarse, sign in proposals(b):
        size = fine + coarse * 2**b
        script = Scripted(b, [fine, sign], [True] * (1 + coarse) + [False, True])
        value = script._propose()
        if size == 0 and sign:
            assert value is None
            continue
        assert value == (-size if sign else size)
        reached.append(value)
        assert sum(script.accepted) == Fraction(size**2, 2 ** (2 * b + 1)) + Fraction(1, 2)
        assert script.rejected == [1]  # the end of the geometric part, the same for every number
        assert not script._answers
        assert Scripted(b, [fine, sign], [False])._propose() is None
        assert Scripted(b, [fine, sign], [True] * (1 + coarse) + [False, False])._propose() is None
    assert len(set(reached)) == len(reached)


@pytest.mark.parametrize("b", [0, 1, 3])
def test_draws_on_a_lattice_that_can_be_seen(b: int) -> None:
    """All layers together, against the exact probabilities; an error in 10⁶ runs."""
    reach, count = 3 * 2**b, 20_000
    support = np.arange(-20 * reach, 20 * reach + 1)
    law = np.exp(-(support**2) / (2 * 4.0**b))
    expected = np.bincount(np.clip(support, -reach, reach) + reach, weights=law / law.sum())
    draws = np.clip(discrete_gaussians(count, b), -reach, reach) + reach
    assert stats.chisquare(np.bincount(draws, minlength=2 * reach + 1), expected * count).pvalue > 1e-6


def test_a_process_that_is_forked_shares_no_words() -> None:
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system does not fork")
    discrete_gaussians(3, BITS)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        draws = pool.starmap(discrete_gaussians, [(50, BITS)] * 4, chunksize=1)
    everything = [value for part in [*draws, discrete_gaussians(50, BITS)] for value in part]
    assert len(set(everything)) == len(everything)
