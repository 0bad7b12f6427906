"""Codebooks: optimal, exactly private, and priced honestly."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import iv
from scipy.optimize import linprog

import shoal
from shoal.mechanism import integer_probabilities as odds
from shoal.mechanism.column_generation import _ColumnGeneration
from shoal.mechanism.integer_probabilities import WHOLE


def crowd(n: int, seed: int, k: int = 3) -> Any:
    return np.random.default_rng(seed).standard_normal((n, k)) * np.linspace(2.0, 0.3, k)


def made(n: int, seed: int, epsilon: float, **options: Any) -> shoal.Codebook:
    return shoal.codebook(crowd(n, seed), shoal.NeighborGraph.complete(range(n)), epsilon, **options)


def exact_errors(book: shoal.Codebook) -> list[Fraction]:
    """Every label's mean squared error per entry, from the stored numbers, without rounding."""
    found: dict[int, Fraction] = {}
    for group in book.crowds:
        for row, member in enumerate(group.members):
            answer = [Fraction(x) for x in book.answers[member].tolist()]
            total = Fraction(0)
            for count, curve in zip(group.counts[row].tolist(), group.curves.tolist(), strict=True):
                squares = sum((a - Fraction(c)) ** 2 for a, c in zip(answer, curve, strict=True))
                total += Fraction(count, WHOLE) * squares
            found[int(member)] = total / len(answer)
    return [found[i] for i in range(len(found))]


def keeps_ratio(counts: Any, epsilon: float) -> bool:
    """Whether every ratio is at most e^ε for certain, by interval arithmetic: shares no code with the library."""
    iv.prec = 400
    bound = iv.exp(iv.mpf(epsilon)).a
    rows = counts.tolist()
    worst = max(Fraction(max(column), min(column)) for column in zip(*rows, strict=True))
    return bool(iv.mpf(worst.numerator) <= bound * iv.mpf(worst.denominator))


def best_of_all_subsets(answers: Any, epsilon: float) -> float:
    """The linear program over all subsets, columns 1 and e^ε, straight from its statement."""
    n, k = answers.shape
    weights = np.full(n, 1 / n)
    columns, costs = [], []
    for subset in range(2**n - 1):
        w = np.array([math.exp(epsilon) if subset >> i & 1 else 1.0 for i in range(n)])
        center = (weights * w) @ answers / (weights @ w)
        columns.append(w)
        costs.append((weights * w) @ ((answers - center) ** 2).sum(axis=1) / k)
    return float(linprog(costs, A_eq=np.array(columns).T, b_eq=np.ones(n), method="highs").fun)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(epsilon=st.floats(1e-3, 12.0), half=st.floats(1e-3, 1e3), middle=st.floats(-1e3, 1e3))
def test_two_labels_have_a_closed_form(epsilon: float, half: float, middle: float) -> None:
    book = shoal.codebook([[middle - half], [middle + half]], shoal.NeighborGraph.complete(list("ab")), epsilon)
    exact = half**2 / math.cosh(epsilon / 2) ** 2
    assert book.mean_rho == pytest.approx(exact, rel=1e-9)
    assert book.lower_bound == pytest.approx(exact, rel=1e-9)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(n=st.integers(2, 9), seed=st.integers(0, 10**6), epsilon=st.floats(1e-6, 20.0))
def test_probabilities_are_exact_and_figures_round_outward(n: int, seed: int, epsilon: float) -> None:
    book = made(n, seed, epsilon)
    (group,) = book.crowds
    assert all(sum(row) == WHOLE for row in group.counts.tolist())
    assert keeps_ratio(group.counts, epsilon)
    errors = exact_errors(book)
    assert all(Fraction(rho) >= error for rho, error in zip(book.rho.tolist(), errors, strict=True))
    assert book.rho == pytest.approx([float(error) for error in errors], rel=1e-12)
    assert Fraction(book.mean_rho) >= sum(errors) / n
    # The codebook is private itself, so a proved bound lies below it: no tolerance.
    assert Fraction(book.lower_bound) <= sum(errors) / n


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 4.0])
def test_nothing_is_lost_against_all_subsets(epsilon: float) -> None:
    for seed in range(3):
        book = made(7, seed, epsilon)
        best = best_of_all_subsets(crowd(7, seed), epsilon)
        assert book.mean_rho == pytest.approx(best, rel=1e-8)
        assert book.lower_bound == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("n", [3, 6, 11, 15, 18])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_groups_reach_the_proved_bound(n: int, epsilon: float) -> None:
    book = made(n, n, epsilon)
    assert book.lower_bound <= book.mean_rho <= 1.001 * book.lower_bound


def test_groups_beyond_all_subsets_are_searched_and_bounded() -> None:
    book = made(26, 0, 2.0)
    center = made(26, 0, 1e-9).mean_rho
    assert 0.5 * book.mean_rho < book.lower_bound <= book.mean_rho < 0.9 * center
    assert keeps_ratio(book.crowds[0].counts, 2.0)


def test_lloyd_steps_find_nearly_what_all_subsets_do() -> None:
    answers = crowd(13, 4)
    distances = ((answers[:, None] - answers[None]) ** 2).sum(axis=2)
    weights, low = np.full(13, 1 / 13), math.exp(-2.0)
    found = _ColumnGeneration(distances, weights, low, None).generate_columns()
    columns = np.where(found.sets, 1.0, low)
    curves = found.shares @ answers
    squares = ((answers[None] - curves[:, None]) ** 2).sum(axis=2)
    value = float(found.often @ (columns * squares) @ weights)
    assert value <= 1.01 * _ColumnGeneration(distances, weights, low, 3).generate_columns().lower_bound


def test_several_groups_are_solved_each_for_itself() -> None:
    answers = np.vstack([crowd(4, 0), crowd(5, 1), crowd(1, 2)])
    names = [f"home {i}" for i in range(10)]
    graph = shoal.NeighborGraph.within_groups(names, [0] * 4 + [1] * 5 + [2])
    book = shoal.codebook(answers, graph, 2.0)
    assert len(book.crowds) == 3
    assert book.rho[9] == 0.0
    assert book.release("home 9").tolist() == answers[9].tolist()
    alone = shoal.codebook(answers[:4], shoal.NeighborGraph.complete(names[:4]), 2.0)
    assert book.rho[:4].tolist() == alone.rho.tolist()
    assert book.lower_bound <= book.mean_rho <= 1.0001 * book.lower_bound
    turned = shoal.codebook(answers[::-1], graph, 2.0, labels=names[::-1])
    assert turned.digest == book.digest


@pytest.mark.parametrize(
    "answers",
    [
        np.zeros((4, 2)),
        crowd(4, 0) + 1e9,
        crowd(4, 0) * 1e-170,
        crowd(4, 0) * 1e140,
        np.array([[0.0], [0.0], [1.0], [1.0]]),
    ],
)
def test_odd_scales_stay_safe(answers: Any) -> None:
    book = shoal.codebook(answers, shoal.NeighborGraph.complete(range(4)), 1.5)
    errors = exact_errors(book)
    assert all(Fraction(rho) >= error for rho, error in zip(book.rho.tolist(), errors, strict=True))
    assert Fraction(book.lower_bound) <= sum(errors) / 4
    assert keeps_ratio(book.crowds[0].counts, 1.5)


def test_a_tiny_epsilon_gives_the_center() -> None:
    book = made(5, 0, 1e-15)
    assert book.probabilities("0").tolist() == [1.0]
    assert book.curves("0")[0] == pytest.approx(crowd(5, 0).mean(axis=0))


def test_labels_with_equal_answers() -> None:
    answers = np.repeat(crowd(3, 0), 3, axis=0)
    book = shoal.codebook(answers, shoal.NeighborGraph.complete(range(9)), 2.0)
    assert book.lower_bound <= book.mean_rho <= 1.0001 * book.lower_bound


def test_a_table_pays_for_both_rows() -> None:
    book = made(6, 0, 2.0, scope="table")
    assert book.answer_epsilon == 1.0
    assert keeps_ratio(book.crowds[0].counts, 1.0)
    assert book.certificate.scope == "table"
    assert book.certificate.delta_upper == 0.0
    assert book.curve(1.9).delta_upper > 0.0
    assert book.rho.tolist() == made(6, 0, 1.0).rho.tolist()


# ------------------------------------------------------------------ e^ε in integers


@settings(derandomize=True, max_examples=60, deadline=None)
@given(epsilon=st.floats(0.0, 700.0))
def test_the_integer_exponential_never_exceeds_the_exact_one(epsilon: float) -> None:
    iv.prec = 1400
    found = odds.exp_floor(epsilon)
    assert iv.mpf(found) <= iv.exp(iv.mpf(epsilon)).a * iv.mpf(2) ** 128
    assert iv.mpf(found + 3) >= iv.exp(iv.mpf(epsilon)).b * iv.mpf(2) ** 128


def test_the_ratio_leaves_room_for_its_square() -> None:
    for epsilon in (1e-12, 0.1, 1.0, 3.7, 20.0):
        r = odds.largest_ratio(epsilon)
        assert r * r << odds.EXP_BITS <= odds.exp_floor(2 * epsilon) << 2 * odds.RATIO_BITS


# ------------------------------------------------------------------ drawing


def test_a_draw_takes_each_position_for_exactly_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = made(6, 0, 2.0).crowds[0].counts[2]
    start = 0
    for position, count in enumerate(counts.tolist()):
        for place in (start, start + count - 1):
            monkeypatch.setattr(odds.secrets, "randbits", lambda bits, place=place: place)
            assert odds.draw_position(counts) == position
        start += count
    assert start == WHOLE


def test_released_answers_are_curves_of_the_group() -> None:
    book = made(5, 2, 2.0)
    curves = {tuple(row) for row in book.curves("0").tolist()}
    assert {tuple(row) for row in book.release([str(i % 5) for i in range(60)]).tolist()} <= curves
    with pytest.raises(shoal.InputError, match="label is not one"):
        book.release("nobody")


def test_curves_do_not_depend_on_who_is_who() -> None:
    """Members of a crowd exchange their answers: the same curves, bit by bit, and the odds go with the answers."""
    rng = np.random.default_rng(0)
    answers, graph = rng.gamma(2, 1.5, (12, 3)).round(2), shoal.NeighborGraph.complete([str(i) for i in range(12)])
    book = shoal.codebook(answers, graph, epsilon=2.0)
    for _ in range(4):
        order = rng.permutation(12)
        other = shoal.codebook(answers[order], graph, epsilon=2.0)
        assert other.curves("0").tobytes() == book.curves("0").tobytes()
        assert all((other.probabilities(str(i)) == book.probabilities(str(j))).all() for i, j in enumerate(order))
        assert other.mean_rho == book.mean_rho


# ------------------------------------------------------------------ files


def test_a_file_whose_odds_exceed_its_epsilon_is_refused_even_when_sealed_anew(tmp_path: Any) -> None:
    from shoal import archive

    book = made(5, 0, 2.0)
    header, arrays = book.file_parts()
    shoal.Codebook.from_bytes(archive.pack(header, arrays))
    with pytest.raises(shoal.InputError, match="no codebook has"):
        shoal.Codebook.from_bytes(archive.pack({**header, "epsilon": 1.999}, arrays))
    with pytest.raises(shoal.InputError, match="no codebook has"):
        shoal.Codebook.from_bytes(archive.pack({**header, "scope": "table"}, arrays))
    counts = arrays["counts"].copy()
    counts[0] += 1
    with pytest.raises(shoal.InputError, match="no codebook has"):
        shoal.Codebook.from_bytes(archive.pack(header, {**arrays, "counts": counts}))
    fewer = {name: values for name, values in arrays.items() if name != "curves"}
    with pytest.raises(shoal.InputError, match="lacks a part"):
        shoal.Codebook.from_bytes(archive.pack(header, fewer))
    sealed = archive.pack(header, arrays)
    with pytest.raises(shoal.InputError):
        shoal.Codebook.from_bytes(sealed[:-40])


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"epsilon": 21.0}, "epsilon must be at most 20"),
        ({"answers": [[0.0], [1.0]]}, "answers must hold one row per label"),
        ({"answers": [[0.0], [1.0], [math.nan]]}, "answers must be finite"),
        ({"scope": "row"}, "scope must be one of"),
        ({"labels": ["a", "b", "x"]}, "labels and graph must have the same labels"),
        ({"graph": "complete"}, "graph must be a NeighborGraph"),
        (
            {"graph": shoal.NeighborGraph.from_edges(list("abc"), [("a", "b"), ("b", "c")])},
            "graph must join all labels",
        ),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    given = {
        "answers": [[0.0], [1.0], [2.0]],
        "graph": shoal.NeighborGraph.complete(list("abc")),
        "epsilon": 1.0,
        **change,
    }
    with pytest.raises(shoal.InputError, match=message):
        shoal.codebook(given.pop("answers"), given.pop("graph"), **given)
