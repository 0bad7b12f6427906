"""How values show themselves in a notebook: small HTML tables, and lines on matplotlib axes.

Works on plain text and numbers, so that every room may use it. Nothing here prints data by itself: what a value puts
into its table is the value's decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.plaintext import as_html as escape

#: One color per line, readable on white and by the color-blind (Okabe & Ito).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
#: Rows that a table shows.
SHOWN = 20


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table of text; rows beyond :data:`SHOWN` are counted, not shown."""
    listed = [[str(cell) for cell in row] for row in rows]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in listed[:SHOWN]
    )
    more = f"<p>… and {len(listed) - SHOWN} more</p>" if len(listed) > SHOWN else ""
    top = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f"<table><caption>{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>{more}"


def sections(caption: str, parts: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Headings with their sentences as an HTML table, a row for each heading."""
    return table(caption, (), ((heading, " ".join(sentences)) for heading, sentences in parts))


def axes_or_new(axes: Any = None) -> Any:
    """The axes given, or those of a new figure."""
    if axes is not None:
        return axes
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise InputError("plot needs matplotlib, which is not installed: pip install 'shoal[plot]'") from None
    return plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]


def draw_deltas(axes: Any, x: Any, deltas: Mapping[str, Any], xlabel: str) -> Any:
    """δ of several releases against x, on a logarithmic scale where they span more than two decades."""
    lowest = 1.0
    grid = np.atleast_1d(x)
    for i, (name, values) in enumerate(deltas.items()):
        delta = np.atleast_1d(values)
        marker = "o" if len(grid) < 2 else None
        axes.plot(grid, np.maximum(delta, 1e-300), color=COLORS[i % len(COLORS)], label=name or None, marker=marker)
        lowest = min(lowest, float(delta[delta > 0].min(initial=1.0)))
    if lowest < 1e-2:
        axes.set_yscale("log")
        axes.set_ylim(max(lowest, 1e-12) / 3, 1.5)
    else:
        axes.set_ylim(0, 1.02)
    axes.set_xlabel(xlabel)
    axes.set_ylabel("δ, at most")
    axes.grid(alpha=0.3)
    if any(deltas):
        axes.legend(frameon=False)
    return axes
