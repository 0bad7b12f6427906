"""Ball arithmetic (python-flint): stored doubles as exact numbers, ends of balls as doubles on the safe side."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from shoal.validation import FloatArray

#: A number known up to a radius, an exact rational, a matrix of either. python-flint's own types say little more.
Ball = Any
Rational = Any
Matrix = Any


def bits(precision: int) -> AbstractContextManager[Any]:
    """Work with this many binary places inside a ``with`` block."""
    return ctx.workprec(precision)


def rational(value: float) -> Rational:
    """A double as the rational number it is."""
    return fmpq(*float(value).as_integer_ratio())


def rationals(values: FloatArray) -> Matrix:
    """An exact matrix from doubles, (n, m)."""
    return fmpq_mat(values.shape[0], values.shape[1], [rational(v) for v in values.ravel().tolist()])


def exact(values: FloatArray) -> Matrix:
    """A matrix of balls without radius from doubles, (n, m)."""
    return arb_mat(values.shape[0], values.shape[1], values.ravel().tolist())


def known_up_to(center: Matrix, radius: FloatArray | None) -> Matrix:
    """Balls around an exact matrix at the working precision; ``radius`` holds doubles, entry by entry."""
    balls = arb_mat(center)
    if radius is None or not radius.any():
        return balls
    return balls + arb_mat(radius.shape[0], radius.shape[1], [arb(0, r) for r in radius.ravel().tolist()])


def doubles(matrix: Matrix) -> FloatArray:
    """Midpoints as doubles; nothing rests on them."""
    values = [float(entry.mid()) for entry in matrix.entries()]
    return np.array(values).reshape(matrix.nrows(), matrix.ncols())


def most(matrix: Matrix) -> FloatArray:
    """Upper ends of the absolute values of all entries, as doubles rounded up."""
    values = [up(entry.abs_upper()) for entry in matrix.entries()]
    return np.array(values).reshape(matrix.nrows(), matrix.ncols())


def up(ball: Ball) -> float:
    """A double at or above the upper end of a ball, close to it; inf where there is none."""
    end = ball.upper()
    if not end.is_finite():
        return math.inf
    value = float(end)
    while math.isfinite(value) and arb(value) < end:
        value = math.nextafter(value, math.inf)
    return value


def down(ball: Ball) -> float:
    """A double at or below the lower end of a ball, close to it."""
    return -up(-ball)
