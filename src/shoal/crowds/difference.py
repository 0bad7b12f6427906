"""Difference: a figure that the others' changes do not hide counts as not yet there.

A change of one member beside still ones is that member's change times 1/n. So each member enters with its figure or
with the last one that entered. A crowd's amounts of change a_i are looked at; **held** are, largest first, as many
members as it takes until those that enter keep dominance (:mod:`dominance`), or no change of an entry is more than
n b/2, which rounding hides. Nothing public says who is held, or whether anybody is.

Tables: a_i = |figure now − last entered|, column by column; a member is held in that column. Loads: for each entry the
reference is the figure that entered for the same instant, where one was published, else the last one for the same time
of day; A_i = Σ |change| over the entries with a published instant, B_i over the others, and a member is held as a
whole. Equal amounts are held together, so that nothing depends on names or the order of members.
Theory: docs/theory.md, section 15, rule 4.
"""

from __future__ import annotations

import numpy as np

from shoal.crowds.dominance import keeps_dominance
from shoal.crowds.precision import Units
from shoal.validation import BoolArray


def held_members(amounts: Units, largest: Units, window: int) -> BoolArray:
    """(n,) which members are held: the fewest, largest amounts first, whose absence lets the others hide each other.

    Args:
        amounts: (n,) how much each member changes.
        largest: (n,) the largest change of one entry of each member.
        window: n b, in the same units.

    Example: one member moves by 90 while the others move by 1; n b is 20.

    >>> held_members(np.array([90, 1, 1, 1, 1, 1]), np.array([90, 1, 1, 1, 1, 1]), 20).tolist()
    [True, False, False, False, False, False]
    >>> held_members(np.array([9, 1, 1, 1, 1, 1]), np.array([9, 1, 1, 1, 1, 1]), 20).any()
    np.False_
    """
    entering, held = amounts.copy(), np.zeros(len(amounts), dtype=np.bool_)
    while 2 * int(np.where(held, 0, largest).max()) > window and not keeps_dominance(entering):
        held |= entering == entering.max()
        entering[held] = 0
    return held


def hold_in_columns(figures: Units, last: Units, windows: Units) -> BoolArray:
    """(n, k) who is held in which column of a table.

    Args:
        figures: (n, k) figures now; where there is none, the last one.
        last: (n, k) figures that entered the last row.
        windows: (k,) n b of each column.

    >>> now = np.array([[90, 5], [1, 5], [1, 5], [1, 5], [1, 5], [1, 5]])
    >>> hold_in_columns(now, np.zeros_like(now), np.array([20, 20]))[0].tolist()
    [True, False]
    """
    amounts = np.abs(figures - last)
    held = [held_members(column, column, int(window)) for column, window in zip(amounts.T, windows, strict=True)]
    return np.array(held).reshape(amounts.shape[1], len(amounts)).T


def hold_loads(figures: Units, reference: Units, published: BoolArray, window: int) -> BoolArray:
    """(n,) which members of a crowd of meters are held, each with all of its entries.

    Args:
        figures: (n, k) loads now; where there is none, the reference.
        reference: (n, k) what entered for the same instants or, where none was published, the same times of day.
        published: (k,) which instants the last row had.
        window: n b.

    >>> still = np.zeros((6, 2), dtype=np.int64)
    >>> hold_loads(still + np.array([[90], [1], [1], [1], [1], [1]]), still, np.array([True, False]), 20)[:2].tolist()
    [True, False]
    """
    held = np.zeros(len(figures), dtype=np.bool_)
    changes = np.abs(figures - reference)
    parts = [changes[:, part] for part in (published, ~published) if part.any()]
    while True:
        entering = [np.where(held[:, None], 0, part) for part in parts]
        more = np.logical_or.reduce([held_members(p.sum(axis=1), p.max(axis=1), window) for p in entering], axis=0)
        if not (more & ~held).any():
            return held
        held |= more
