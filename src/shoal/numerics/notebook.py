"""Notebook display of values: small HTML tables.

Works on plain text and numbers, so that every room may use it. Nothing here prints data by itself: what a value puts
into its table is the value's decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from shoal.plaintext import as_html as escape

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
