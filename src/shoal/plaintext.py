"""Names from files: compared as people read them, and as text that does nothing on a terminal, in a page, in a table.

Two spellings name the same household where :func:`name_key` gives the same text for both. It is the only comparison of
names in files, ledger and the readings' account. In a CSV file a text that a spreadsheet program would run as a formula
has an apostrophe before it (:func:`cell`).
"""

from __future__ import annotations

import re
import unicodedata
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

#: Control characters, line separators, marks that turn the direction of writing, halves of surrogate pairs.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
#: Rows that a table in a notebook shows.
SHOWN = 20
#: Beginnings of texts that a spreadsheet program would run.
FORMULA = r"^['=+\-@\t\r]"
#: Characters without a glyph that are no format characters by their category: joiners, fillers, variation selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def name_key(name: str) -> str:
    r"""Return the text by which names are compared: case folded, NFKC, no format characters, single spaces.

    >>> name_key("Zoe\u0301  01") == name_key("ZOÉ\u00a001\u200b"), name_key("H0001") == name_key("H0002")
    (True, False)
    """
    if not (name.isascii() and name.isprintable()):
        name = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", name).casefold()).casefold()
        name = _INVISIBLE.sub("", unicodedata.normalize("NFKC", name)).replace("ı", "i")
        name = "".join(c for c in name if c.isspace() or unicodedata.category(c) not in ("Cf", "Cc"))
    return " ".join(name.lower().split())


def spellings(names: Iterable[str]) -> dict[str, list[str]]:
    """Return key -> the spellings of it among some names, sorted, where there are several.

    >>> spellings(["Zoé 1", "Zoé 2", "ZOÉ 1"])
    {'zoé 1': ['ZOÉ 1', 'Zoé 1']}
    """
    together: dict[str, set[str]] = {}
    for name in names:
        together.setdefault(name_key(name), set()).add(name)
    return {key: sorted(found) for key, found in together.items() if len(found) > 1}


def escape_controls(text: str, keep: str = "") -> str:
    r"""Return text with control characters written out: a name can neither move a cursor nor hide a part of itself.

    Those of ``keep`` are left, such as the line ends of a text of several lines.
    >>> escape_controls("home\x1b[2J")
    'home\\x1b[2J'
    """
    if text.isprintable():
        return text
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else _escape_code(ord(found[0])), text)


def as_html(text: str) -> str:
    """Return text for an HTML page, with markup escaped and control characters written out."""
    return escape(escape_controls(text))


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table of text; rows beyond :data:`SHOWN` are counted, not shown."""
    listed = [[str(cell) for cell in row] for row in rows]
    head = "".join(f"<th>{as_html(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{as_html(cell)}</td>" for cell in row) + "</tr>"
        for row in listed[:SHOWN]
    )
    more = f"<p>… and {len(listed) - SHOWN} more</p>" if len(listed) > SHOWN else ""
    top = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f"<table><caption>{as_html(caption)}</caption>{top}<tbody>{body}</tbody></table>{more}"


def html_sections(caption: str, parts: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return an HTML table with a row for each heading and its sentences."""
    return html_table(caption, (), ((heading, " ".join(sentences)) for heading, sentences in parts))


def cell(text: str) -> str:
    """Return a text as a cell of a CSV table: with an apostrophe before what a spreadsheet program would run."""
    return f"'{text}" if re.match(FORMULA, text) else text


def text_of_csv_cell(content: str) -> str:
    """Return the text that stands in a cell of a CSV table, which :func:`cell` wrote.

    >>> text_of_csv_cell(cell("=1+1")), text_of_csv_cell("plain")
    ('=1+1', 'plain')
    """
    return content.removeprefix("'")


def _escape_code(code: int) -> str:
    """Return a character's code as an escape sequence, such as ``x1b`` after a backslash."""
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
