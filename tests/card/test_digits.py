"""Numbers are printed on their safe side."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.rounding import counted, down, lower, many, nearest, percent, up, upper

numbers = st.floats(min_value=5e-324, max_value=1e300, allow_nan=False)


@settings(derandomize=True, max_examples=300)
@given(numbers, st.integers(1, 6))
def test_printed_bounds_are_bounds(value: float, digits: int) -> None:
    assert Decimal(lower(value, digits)) <= Decimal(value) <= Decimal(upper(value, digits))
    # and no looser than one unit in the last digit
    unit = Decimal(10) ** (Decimal(value).adjusted() - digits + 1)
    assert Decimal(upper(value, digits)) - Decimal(lower(value, digits)) <= unit


@settings(derandomize=True, max_examples=200)
@given(st.floats(min_value=1e-12, max_value=1.0))
def test_shares_in_percent_are_bounds(value: float) -> None:
    low, high = (Decimal(percent(value, side).removesuffix(" %")) for side in ("lower", "upper"))
    assert low <= 100 * Decimal(value) <= high


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (0.25, "0.25"), (1e-6, "1e-06"), (1.23456e-6, "1.235e-06"), (123456.7, "123500"),
     (0.00012341, "0.0001235"), (None, "—"), (float("inf"), "—"), (float("nan"), "—"), (-0.12345, "-0.1234")],
)  # fmt: skip
def test_upper_reads_well(value: float | None, text: str) -> None:
    assert upper(value) == text


@settings(derandomize=True, max_examples=300)
@given(numbers, st.integers(1, 6))
def test_what_is_stored_is_what_is_printed_and_still_a_bound(value: float, digits: int) -> None:
    assert down(value, digits) <= value <= up(value, digits)
    assert float(upper(value, digits)) == up(value, digits)
    assert float(lower(value, digits)) == down(value, digits)


def test_what_has_no_number_is_none() -> None:
    assert up(None) is up(float("inf")) is down(float("nan")) is None
    assert up(0.99999, most=1.0) == 1.0
    assert up(0.0) == down(0.0) == 0.0


def test_small_words() -> None:
    assert nearest(2.345678) == "2.35"
    assert [many(unit) for unit in ("household", "city", "day", "class")] == ["households", "cities", "days", "classes"]
    assert [counted(n, "city") for n in (1, 2)] == ["1 city", "2 cities"]
