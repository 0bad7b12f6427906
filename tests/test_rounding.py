"""A printed figure, read back, is never on the wrong side of its number: no tolerance, every double."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shoal
from shoal.accounting.curve import PrivacyCurve
from shoal.mechanism.releasable import Certificate
from shoal.rounding import count_of, down, exactly, lower, many, nearest, percent, up, upper

#: Every pattern of bits is as likely as any other, so that half of the exponents are extreme.
anything = st.integers(0, 2**63 - 1).map(lambda bits: struct.unpack("<d", bits.to_bytes(8, "little"))[0])
finite = st.one_of(anything.filter(math.isfinite), st.floats(0.0, 1.0), st.floats(0.0, 2.3e-308))


@settings(max_examples=600)
@given(finite, st.integers(1, 8))
@example(0.0, 4)
@example(1.0, 4)
@example(5e-324, 4)
@example(3 * 5e-324, 4)
@example(2.2250738585072014e-308, 4)
@example(0.12345, 4)
@example(0.123450000000000001, 4)
@example(0.99995, 4)
@example(0.9999999999999999, 4)
@example(1.0000000000000002, 4)
@example(9.9995e-5, 4)
@example(0.00012345, 4)
@example(1.7976931348623157e308, 4)
def test_what_is_printed_holds(value: float, digits: int) -> None:
    above, below = upper(value, digits), lower(value, digits)
    assert Decimal(below) <= Decimal(value) <= Decimal(above)
    assert float(below) <= value <= float(above)
    assert float(lower(-value, digits)) <= -value <= float(upper(-value, digits))
    assert (above == "0") == (value == 0)
    assert down(value, digits) <= value <= up(value, digits)


@settings(max_examples=300)
@given(st.integers(1000, 9999), st.integers(-320, 300), st.sampled_from([-1, 0, 1]))
def test_halfway_and_one_ulp_beside(four: int, exponent: int, step: int) -> None:
    """Between two printed figures, at one of them, and one double to either side."""
    for tail in ("", "5", "49999999999999999", "50000000000000001"):
        value = float(f"{four}{'.' if tail else ''}{tail}e{exponent}")
        value = math.nextafter(value, math.inf * step) if step else value
        if value > 0 and math.isfinite(value):
            assert Decimal(lower(value)) <= Decimal(value) <= Decimal(upper(value))


@settings(max_examples=200)
@given(st.floats(0.0, 1.0))
def test_percent(value: float) -> None:
    low, high = (Decimal(percent(value, side).removesuffix(" %")) for side in ("lower", "upper"))
    assert low <= 100 * Decimal(value) <= high


def test_what_has_no_digits() -> None:
    assert [upper(value) for value in (None, math.inf, math.nan)] == ["—"] * 3
    assert up(None) is up(math.inf) is down(math.nan) is None
    assert nearest(0.25, 1) == "0.2"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (0.25, "0.25"), (1e-6, "1e-06"), (1.23456e-6, "1.235e-06"), (123456.7, "123500"),
     (0.00012341, "0.0001235"), (-0.12345, "-0.1234")],
)  # fmt: skip
def test_upper_reads_well_and_is_what_is_stored(value: float, text: str) -> None:
    assert upper(value) == text
    assert up(value) == float(text)
    assert up(0.99999, most=1.0) == 1.0


def test_counts_with_their_noun() -> None:
    assert [many(unit) for unit in ("household", "city", "day", "class")] == ["households", "cities", "days", "classes"]
    assert [count_of(n, "city") for n in (1, 2)] == ["1 city", "2 cities"]


@settings(max_examples=100)
@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_figures_of_the_library_are_printed_so(delta: float, other: float) -> None:
    curve = PrivacyCurve("dp", 1.0, delta, -1.0, 0.0, delta, -1.0, ("a", "b"))
    assert Decimal(repr(curve).split("≤ ")[1].rstrip(")")) >= Decimal(delta)
    certificate = Certificate("dp", delta, delta, -1.0, -1.0, ("a", "b"), 0.0, 0.0)
    assert Decimal(str(certificate).split("≤ ")[1].split(" ")[0]) >= Decimal(delta)


def test_nobody_else_rounds_for_print() -> None:
    """The decimal module's directed roundings occur in one module; ledger and runs have their own until they change."""
    source = Path(shoal.__file__).parent
    rounding = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "ROUND_CEILING" in (text := path.read_text(encoding="utf-8")) or "log10(value)" in text
    ]
    assert set(rounding) <= {"rounding.py", "ledger/accounts.py"}


def test_a_curve_does_not_rise(tmp_path: Path) -> None:
    """What finite precision adds rises with ε; what holds at a smaller ε holds at a larger one."""
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "center", epsilon=1.0, rho=1.0)
    grid = [6.0, 0.0, 3.0, 12.0, 1.0]
    curve = mechanism.released_curve(grid)
    order = np.argsort(grid)
    assert (np.diff(curve.delta_upper[order]) <= 0).all()
    assert (np.diff(curve.log_delta_upper[order]) <= 0).all()
    assert curve.delta_upper[1] == mechanism.released_curve(0.0).delta_upper
    assert mechanism.released_curve(12.0).delta_upper > curve.delta_upper[3], "alone it is not as good"


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_a_figure_that_is_not_zero_does_not_read_as_zero(scope: str) -> None:
    """δ of 1e-412: the least positive double above it, and its logarithm."""
    graph = shoal.NeighborGraph.complete(["a", "b"])
    book = shoal.codebook([[0.0], [1.0]], graph, epsilon=0.5)
    noisy = shoal.GaussianClasses([[0.0], [1.0]], [[400.0]], labels=["a", "b"])
    far, largest = (3.0, 0.5) if scope == "answer" else (4.5, 1.0)
    curve = shoal.composed_delta([book, noisy], graph, [1.0, far], scope=scope)
    alone = shoal.privacy_curve(noisy, graph, far, scope=scope)
    assert alone.log_delta < -900
    assert curve.delta_upper[1] == 5e-324
    assert -math.inf < alone.log_delta < curve.log_delta_upper[1] < -745
    assert curve.log_delta_upper[0] >= math.log(curve.delta[0])
    # δ(ε) is at most δ_G(ε − the codebook's largest loss), and at least the share of that loss of it.
    most = shoal.privacy_curve(noisy, graph, far - largest, scope=scope).log_delta
    assert most + math.log(0.2) <= curve.log_delta_upper[1] <= most + 1e-6


@settings(max_examples=200)
@given(st.floats(0.0, allow_infinity=False))
@example(1.0000049)
@example(0.1)
@example(1.0)
def test_what_was_given_is_printed_in_full(value: float) -> None:
    """An ε to six digits beside a δ would be another promise."""
    assert float(exactly(value)) == value
    curve = PrivacyCurve("dp", value, 0.5, -1.0, 0.0, 0.5, -1.0, ("a", "b"))
    assert float(repr(curve).split("δ(")[1].split(")")[0]) == value
    assert f">{exactly(value)}</td>" in curve._repr_html_()


def test_no_privacy_figure_is_printed_to_the_nearest() -> None:
    """ε, δ, budgets and confidence go through the one module that rounds."""
    figure = re.compile(
        r"(epsilon|delta|\.budget|confidence|promise)\w*(\[[^]]*\])?(:>?\d*\.?\d*[gef]\}|\)? *%? *\| *format)"
    )
    spelled = re.compile(r"%[.\d]*g.{0,4}(\||%) *(format\()?[\w.* ]*(epsilon|delta|budget|confidence)")
    source = Path(shoal.__file__).parent
    for path in (p for kind in ("*.py", "*.txt", "*.html") for p in source.rglob(kind)):
        for line in path.read_text(encoding="utf-8").splitlines():
            if ">>>" not in line:
                assert not figure.search(line), (path.name, line)
                assert not spelled.search(line), (path.name, line)
