"""Rows of crowds of meters, release after release, by the rules of size, precision, dominance and difference.

A crowd keeps its base, its secret offset, what last entered of each member for each time of day, and what entered the
last row. A member without a figure today, or held, enters with the reference: what entered for the same instant, else
the last one for the same time of day, at first that of the usual day. Figures are whole numbers of nanowatts: coarser
units would tell parts of a unit over a long series (:mod:`rules`).

A base is permanent. Where the mean load of a crowd outgrows what its base hides, its row is withheld.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np

from shoal.crowds.rules import (
    Draw,
    KeptFigures,
    NextRow,
    Units,
    add_units,
    base_for_usual,
    held_load_members,
    keeps_dominance,
    offset_count,
)
from shoal.validation import BoolArray, IndexArray

#: Decimals of kW that are kept: units are nanowatts.
NANOWATTS = 12
#: The largest load, in kW.
LARGEST = 2e6
#: The mean |load| that a crowd's base is of, over that of all labels, at least: homes that are away get no finer row.
LEAST_LEVEL = Fraction(1, 10)
#: The mean |load| of a row over n b of its crowd, at most; n b is 0.8 to 2 usual loads when the crowd is formed.
OUTGROWN = 5
#: The finest base of a row, in kW.
FINEST = Decimal("0.001")


def new_load_crowd(day: Units, of_all: Fraction, draw: Draw) -> KeptFigures:
    """A new crowd with usual days ``day`` (n, steps) in nanowatts and its permanent base and secret offset.

    ``of_all`` is the mean |load| of the usual days of all labels.

    >>> new_load_crowd(np.full((10, 24), 400 * 10**9), Fraction(400 * 10**9), lambda n: n // 2).bases
    (Decimal('0.05'),)
    """
    usual = max(Fraction(int(add_units(np.abs(day).ravel())), max(day.size, 1)), of_all * LEAST_LEVEL) / 10**NANOWATTS
    base = max(base_for_usual(usual, len(day)), FINEST) if usual else FINEST
    return KeptFigures((base,), (draw(offset_count(base, len(day), NANOWATTS)),), (NANOWATTS,), day)


def next_load_row(
    crowd: KeptFigures,
    figures: Units,
    present: BoolArray,
    instants: tuple[int, ...],
    phases: IndexArray,
    largest_share: float | None = None,
) -> NextRow:
    """The row of a crowd for the next release, from loads (n, k) in nanowatts of the members who are ``present`` (n,).

    ``phases`` (k,) are the times of day of the ``instants`` (k,), as columns of ``crowd.last``; no member has more than
    ``largest_share`` of the load. Example: one of twelve homes draws 9 kW more while the others stay; it is held.

    >>> watt = 10**9
    >>> day = np.full((12, 1), 500 * watt)
    >>> crowd = new_load_crowd(day, Fraction(500 * watt), lambda n: 0)
    >>> first = next_load_row(crowd, day, np.full(12, True), (0,), np.array([0]))
    >>> jumped = day + 9000 * watt * np.eye(12, 1, dtype=int)
    >>> jump = next_load_row(first.crowd, jumped, np.full(12, True), (1,), np.array([0]))
    >>> int(jump.held.sum()), bool((jump.row == first.row).all())
    (1, True)
    """
    reference, published = crowd.last[:, phases], np.zeros(len(instants), dtype=np.bool_)
    (window,) = crowd.offset_counts
    if crowd.entered is not None:
        place = {instant: i for i, instant in enumerate(crowd.instants)}
        at = np.array([place.get(instant, -1) for instant in instants])
        published = at >= 0
        reference[:, published] = crowd.entered[:, at[published]]
    entering = np.where(present[:, None], figures, reference)
    held = np.zeros(len(entering), dtype=np.bool_)
    if crowd.entered is not None:
        held = held_load_members(entering, reference, published, window)
        entering[held] = reference[held]
    amounts = add_units(np.abs(entering), 1)
    outgrown = np.array([int(amounts.sum()) > OUTGROWN * window * entering.size] * len(instants))
    if outgrown.any() or not keeps_dominance(amounts, largest_share):
        return NextRow(np.full(len(instants), np.nan), entering, held, crowd, outgrown)
    day = crowd.last.copy()
    day[:, phases] = entering
    after = replace(crowd, last=day, instants=instants, entered=entering)
    return NextRow(crowd.round_row(entering), entering, held, after, outgrown)
