"""What a section of the page consists of, as plain values: sentences, plots, notes and a table.

A plot is a dictionary that ``report.js`` draws; its numbers come with the text to print for them, so that no rounding
happens in the browser. Kinds: ``lines`` (:func:`lines`), ``bars`` (:func:`bars`) and ``heat`` (:func:`heat`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Plot = dict[str, Any]
#: x, y (None: a gap), and y as text.
Point = tuple[float, float | None, str]


@dataclass(frozen=True)
class Table:
    """Text in columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """One part of the page; ``missing`` says why there is nothing to show and how to get it.

    With ``pick``, the words beside a selector, one of the plots is shown at a time; else all are.
    """

    key: str
    heading: str
    says: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    pick: str = ""
    notes: tuple[str, ...] = ()
    table: Table | None = None
    table_title: str = ""
    missing: str = ""


def axis(label: str, kind: str = "linear", **more: Any) -> dict[str, Any]:
    """``kind`` is ``"linear"``, ``"log"`` or ``"split"`` (what lies below zero gets ``share`` of the width).

    ``floor`` is the least value a logarithmic axis shows, ``least`` and ``most`` are values it must reach.
    """
    return {"label": label, "kind": kind, **more}


def series(name: str, points: Iterable[Point], *, color: int, **style: Any) -> dict[str, Any]:
    """One line: ``dash``, ``dots`` (no line), ``thick``, ``step`` or ``band`` (pairs of lower and upper ends).

    With ``step`` the value of a point holds until the next one: what a bound that only falls says between its points.
    """
    return {"name": name, "points": [list(point) for point in points], "color": color, **style}


def lines(name: str, x: dict[str, Any], y: dict[str, Any], drawn: Sequence[dict[str, Any]], **more: Any) -> Plot:
    """Lines and dots over two axes; ``marks`` are vertical lines (x, words)."""
    return {"kind": "lines", "name": name, "x": x, "y": y, "series": list(drawn), **more}


def bars(name: str, columns: tuple[str, str], rows: Iterable[dict[str, Any]], **more: Any) -> Plot:
    """Horizontal bars: rows of ``name``, ``value`` and ``text``; ``scale`` as an axis' kind, ``most`` its end."""
    return {"kind": "bars", "name": name, "columns": list(columns), "rows": list(rows), **more}


def heat(
    name: str, columns: tuple[str, str, str], names: Sequence[str], cells: Iterable[tuple[int, int, float, str]]
) -> Plot:
    """A square of cells (row, column, value, text), colored by the logarithm of the value."""
    return {
        "kind": "heat",
        "name": name,
        "columns": list(columns),
        "names": list(names),
        "cells": [list(cell) for cell in cells],
    }
