"""The rules of a row: what the offset hides, exactly; who dominates; who is held; how far a crowd is from all."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.crowds.diversity import deal_to_blocks, deal_to_crowds, keeps_closeness
from shoal.crowds.loads import NANOWATTS, new_load_crowd, next_load_row
from shoal.crowds.membership import form_crowds
from shoal.crowds.publish import RowsState, next_public_rows
from shoal.crowds.rules import (
    KeptFigures,
    add_units,
    base_for_usual,
    coalition_size,
    figures_of_multiples,
    held_load_members,
    held_members,
    keeps_dominance,
    largest_base_below,
    offset_count,
    round_sums,
    smallest_base_above,
    to_units,
    unit_decimals,
    usual_figure,
)
from shoal.crowds.tables import (
    ColumnRoles,
    TableRules,
    column_bases,
    common_gaps,
    dominance_columns,
    wall_groups,
)

WATT = 10**9  # units
Amounts = st.lists(st.integers(0, 1000), min_size=2, max_size=20)


@given(st.integers(2, 60), st.integers(0, 60), st.lists(st.integers(-500, 500), min_size=1, max_size=6))
def test_a_constant_difference_changes_the_law_of_the_series_by_its_share_of_the_window(
    window: int, d: int, others: list[int]
) -> None:
    def law(constant: int) -> Counter[tuple[int, ...]]:
        sums = np.array(others) + constant
        return Counter(tuple(round_sums(sums, window, offset).tolist()) for offset in range(window))

    one, two = law(7), law(7 + d)
    total_variation = Fraction(sum(abs(one[row] - two[row]) for row in one | two), 2 * window)
    assert total_variation <= Fraction(d, window)


def total_variation(one: list[int], two: list[int], window: int) -> Fraction:
    """Between the laws of the rows of two lists of sums, over all offsets: rows change at multiples."""

    def law(sums: list[int]) -> Counter[tuple[int, ...]]:
        cuts = sorted({0, *((-total) % window for total in sums)})
        rows: Counter[tuple[int, ...]] = Counter()
        for start, end in pairwise([*cuts, window]):
            rows[tuple(round_sums(np.array(sums, dtype=object), window, start).tolist())] += end - start
        return rows

    first, second = law(one), law(two)
    return Fraction(sum(abs(first[row] - second[row]) for row in first | second), 2 * window)


@pytest.mark.parametrize("d", [0.0005, 0.0105, 1e-6 / 3])
@pytest.mark.parametrize("tables", [2, 3])
def test_a_part_of_a_watt_moves_the_law_of_all_loads_by_its_share_of_the_window(tables: int, d: float) -> None:
    rng, n, k = np.random.default_rng(0), 12, 24
    level = rng.uniform(0.02, 0.18, (n, 1))
    day, forecasts = np.repeat(level, k, axis=1), level * rng.uniform(0.6, 1.4, (tables, n, k))

    def release(constant: float) -> tuple[list[int], KeptFigures]:
        sums: list[int] = []
        crowd = new_load_crowd(to_units(day, NANOWATTS), Fraction(6 * 10**10), lambda n: n // 3)
        for t, kw in enumerate(forecasts):
            loads = to_units(kw + constant * np.eye(n, 1), NANOWATTS)
            row = next_load_row(crowd, loads, np.full(n, True), tuple(range(t * k, t * k + k)), np.arange(k))
            assert np.isfinite(row.row).all()
            assert not row.held.any()
            sums, crowd = sums + add_units(row.entered).tolist(), row.crowd
        return sums, crowd

    (one, crowd), (two, _) = release(0.0), release(d)
    unit, entries = Fraction(1, 10**NANOWATTS), tables * k
    assert total_variation(one, two, crowd.offset_counts[0]) <= (Fraction(d) + entries * unit) / (
        n * Fraction(crowd.bases[0])
    )
    assert entries * unit / (n * Fraction(crowd.bases[0])) < 1e-6


def test_a_part_of_a_unit_of_a_table_moves_the_law_of_its_series_by_its_share_of_the_window() -> None:
    rng, n, d = np.random.default_rng(1), 12, 1e-4 / 3
    values = rng.normal(50, 10, (40, n, 1))
    base = base_for_usual(usual_figure(values.ravel()), n)
    decimals = unit_decimals([base])
    one, two = (
        [int(add_units(to_units(figures + constant * np.eye(n, 1), [decimals]))[0]) for figures in values]
        for constant in (0.0, d)
    )
    unit = Fraction(Decimal(1).scaleb(-decimals))
    allowed = (Fraction(d) + len(values) * unit) / (n * Fraction(base))
    assert total_variation(one, two, offset_count(base, n, decimals)) <= allowed
    assert allowed < 1.01 * d / (n * float(base))


@given(st.floats(-1e6, 1e6), st.integers(0, 12))
def test_figures_become_the_nearest_units_exactly(value: float, places: int) -> None:
    exact = Fraction(value) * 10**places
    assert abs(int(to_units(np.array([value]), places)[0]) - exact) <= Fraction(1, 2) + Fraction(1, 10**9)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=40))
def test_sums_are_exact_beyond_64_bits(values: list[int]) -> None:
    assert int(add_units(np.array(values))) == sum(values)


@given(st.integers(1, 200), st.integers(-10_000, 10_000))
def test_rows_are_right_on_average(window: int, total: int) -> None:
    rows = [int(round_sums(np.array([total]), window, offset)[0]) for offset in range(window)]
    assert sum(rows) == total


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9))
def test_bases_are_the_nearest_below_and_above(limit: Fraction) -> None:
    below, above = largest_base_below(limit), smallest_base_above(limit)
    assert Fraction(below) <= limit <= Fraction(above)
    assert limit < Fraction(below) * Fraction(5, 2)
    for base in (below, above):
        assert int(base.scaleb(-base.adjusted())) in (1, 2, 5)
    assert figures_of_multiples(np.array([7]), Decimal("0.05")).tolist() == [0.35]


@given(Amounts)
def test_dominance_is_the_rule_as_it_is_written(amounts: list[int]) -> None:
    ordered = sorted(amounts, reverse=True)
    c = coalition_size(len(amounts))
    assert bool(keeps_dominance(np.array(amounts))) == (ordered[0] <= 2 * sum(ordered[1 + c :]))


@given(Amounts, st.integers(1, 3000), st.randoms(use_true_random=False))
def test_who_is_held_does_not_depend_on_the_order_and_the_rest_keep_dominance(
    amounts: list[int], window: int, random: object
) -> None:
    a = np.array(amounts)
    held = held_members(a, a, window)
    order = np.random.default_rng(len(amounts)).permutation(len(a))
    assert (held_members(a[order], a[order], window) == held[order]).all()
    entering = np.where(held, 0, a)
    assert keeps_dominance(entering) or 2 * entering.max() <= window
    if held.any():  # the last that were held had to be
        before = np.where(held & (a > a[held].min()), 0, a)
        assert not keeps_dominance(before)
        assert 2 * before.max() > window


def test_a_member_is_held_as_a_whole_whichever_half_of_its_change_is_seen() -> None:
    still = np.zeros((12, 4), dtype=np.int64)
    for at in range(4):
        moved = still.copy()
        moved[5, at] = 5000
        held = held_load_members(moved, still, np.array([True, True, False, False]), 1000)
        assert held.tolist() == [i == 5 for i in range(12)]


def test_a_home_that_was_silent_and_comes_back_alone_is_held() -> None:
    rng = np.random.default_rng(0)
    day = rng.integers(200, 600, (12, 24)) * WATT
    instants, phases = tuple(range(24)), np.arange(24)
    first = next_load_row(
        new_load_crowd(day, Fraction(400 * WATT), lambda n: n // 3), day, np.full(12, True), instants, phases
    )
    figures = day + rng.integers(-3, 4, day.shape) * WATT  # everybody moves by a watt or three
    figures[4] = day[4] // 10 + 9000 * WATT
    silent = np.arange(12) != 4
    second = next_load_row(first.crowd, figures, silent, instants, phases)
    third = next_load_row(second.crowd, figures, np.full(12, True), instants, phases)
    assert third.held.tolist() == [i == 4 for i in range(12)]
    assert np.isfinite([second.row, third.row]).all()
    assert np.abs(third.row - second.row).max() <= float(first.crowd.bases[0]) + 1e-12


def test_a_home_that_makes_most_of_a_row_has_it_withheld() -> None:
    day = np.full((12, 24), 100 * WATT)
    crowd = new_load_crowd(day, Fraction(100 * WATT), lambda n: 0)
    figures = day.copy()
    figures[0] = 5000 * WATT
    row = next_load_row(crowd, figures, np.full(12, True), tuple(range(24)), np.arange(24))
    assert np.isnan(row.row).all()
    assert row.crowd is crowd


@pytest.mark.parametrize(("grown", "withheld"), [(3, False), (4, False), (6, True), (60, True)])
def test_a_row_of_loads_that_outgrow_their_base_is_withheld(grown: int, withheld: bool) -> None:
    """The base is 0.02 kW, n b 0.24 kW: above a mean load of 1.2 kW it would hide less than 6 % of a usual figure."""
    day = np.full((12, 24), 250 * WATT)
    crowd = new_load_crowd(day, Fraction(250 * WATT), lambda n: n // 3)
    assert crowd.bases == (Decimal("0.02"),)
    row = next_load_row(crowd, day * grown, np.full(12, True), tuple(range(24)), np.arange(24))
    assert (np.isnan(row.row) == withheld).all()
    assert (row.outgrown == withheld).all()
    if withheld:
        assert row.crowd is crowd


@given(st.integers(30, 90), st.integers(0, 10**6), st.floats(0.3, 0.7))
def test_crowds_are_formed_close_to_all_and_by_values_alone(n: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    values = np.column_stack([rng.normal(10, 2, n).round(2), rng.random(n) < share]).astype(float)
    every = np.arange(n)

    def crowds(order: np.ndarray) -> np.ndarray:
        rules = TableRules(values[order], 5)
        return form_crowds(rules.likeness(every), 5, beside=rules.values, limits=rules.limits(every))

    crowd = crowds(np.arange(n))
    assert keeps_closeness(values[:, 1:].astype(np.int64), crowd).all()
    order = rng.permutation(n)
    again = crowds(order)
    one, two = (
        sorted(sorted(own[member == c].tolist()) for c in range(int(member.max()) + 1))
        for own, member in ((values, crowd), (values[order], again))
    )
    assert one == two


def test_a_table_of_ten_labels_is_no_table_of_categories() -> None:
    rng = np.random.default_rng(0)
    assert not ColumnRoles.of(rng.normal(size=(10, 5))).few.any()
    assert ColumnRoles.of(rng.integers(0, 2, (10, 5)).astype(float)).few.all()


def test_two_columns_that_agree_for_all_but_one_are_ruled_by_their_difference() -> None:
    salary = np.random.default_rng(1).lognormal(8, 0.3, 24).round()
    both = np.column_stack([salary, salary])
    both[3, 1] += 500
    assert (0, 1) in dominance_columns(both, np.zeros(2, dtype=bool))


def test_ten_thousand_labels_are_dealt_in_blocks() -> None:
    rng = np.random.default_rng(2)
    points, rare = rng.normal(size=(10_000, 3)), (rng.random(10_000) < 0.02).astype(float)
    crowd = deal_to_crowds(points, rare[:, None] / rare.std(), 833)
    sizes = np.bincount(crowd)
    assert set(sizes.tolist()) == {12, 13}
    assert np.bincount(crowd, rare).max() <= 1
    blocks = deal_to_blocks(points, rare[:, None] / rare.std(), 3)
    assert np.abs(np.bincount(blocks) / 10_000 - 1 / 3).max() < 0.01
    assert np.ptp(np.bincount(blocks, rare)) <= 15


def test_amounts_near_the_end_of_whole_numbers_keep_the_rule() -> None:
    largest = np.array([2**61, *[2] * 11])
    assert not keeps_dominance(largest).any()
    assert keeps_dominance(np.full(12, 2**58)).all()


def test_numbers_of_new_crowds_are_drawn_and_not_the_order_of_figures() -> None:
    figures = {f"p{i:02d}": [float(i)] for i in range(24)}
    new = RowsState(10, 0.6, None, ColumnRoles(*np.zeros((3, 0), dtype=np.bool_)), 0, {})
    first = [next_public_rows(figures, new, 10, draw=draw)[0].values for draw in (lambda n: 0, lambda n: n - 1)]
    assert first[0][0, 0] < first[0][-1, 0]
    assert first[1][0, 0] > first[1][-1, 0]


def test_columns_in_different_units_are_compared_in_one() -> None:
    """Two columns that agree for all but one member, one on record in tenths and the other in hundredths."""
    figures = np.tile(np.arange(100.0, 124.0)[:, None], (1, 2))
    figures[0, 1] += 50
    crowd, none = np.repeat([0, 1], 12), ColumnRoles(*np.zeros((3, 2), dtype=np.bool_))
    for decimals in ((1, 2), (1, 1)):
        rules = TableRules(figures, 10, roles=none, decimals=decimals)
        assert rules.rules_hold(rules.units, crowd).tolist() == [[True, False], [True, True]]


def test_contributed_labels_with_other_values_do_not_end_the_diversity_of_a_column() -> None:
    rng = np.random.default_rng(0)
    smokes = np.concatenate([rng.integers(0, 2, 120), 0.5 + 0.01 * np.arange(-4, 5)])
    values = np.column_stack([rng.gamma(2, 2, 129), smokes])
    columns = ColumnRoles.of(values)
    assert columns.protected.tolist() == [False, True]
    assert column_bases(values, columns, 12)[1] == Decimal("0.2")


def test_a_column_of_few_values_inside_of_a_boundary_is_protected() -> None:
    """And its base hides the gap there, though most labels, elsewhere, have other values."""
    rng, n = np.random.default_rng(0), 300
    streets = ["A"] * 36 + ["B"] * 36 + ["C"] * 228
    x = np.where(np.arange(n) < 72, rng.integers(0, 2, n) * 9.0, rng.normal(0, 1, n))
    values, groups = np.column_stack([rng.gamma(2, 2, n), x]), wall_groups(streets, 6)
    columns, gaps = ColumnRoles.of(values, (), groups), common_gaps(values, groups)
    assert columns.protected.tolist() == [False, True]
    assert 12 * column_bases(values, columns, 12, gaps)[1] >= 18
    assert not ColumnRoles.of(values).protected.any()
