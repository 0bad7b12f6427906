"""Names from files as text that does nothing: on a terminal, in a page, in a spreadsheet.

A table that is written as CSV follows one rule, names of columns included, which a reader can turn round: a text that
begins with ``=``, ``+``,
``-``, ``@``, a tab, a carriage return or an apostrophe gets one apostrophe before it. Spreadsheet programs then show it
as text instead of running it as a formula; take one leading apostrophe off to have the text again. Numbers stay as they
are.
"""

from __future__ import annotations

import re
from html import escape

#: Control characters, line separators, marks that turn the direction of writing, halves of surrogate pairs.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
#: Beginnings of texts that a spreadsheet program would run.
FORMULA = r"^['=+\-@\t\r]"


def printable(text: str, keep: str = "") -> str:
    r"""Text with control characters written out, so that a name can neither move a cursor nor hide a part of itself.

    Args:
        text: any text, such as the name of a household from a file.
        keep: control characters to leave, such as the line ends of a text of several lines.

    Returns:
        The same text, with ``\x1b`` for the character of that code.

    >>> printable("home\x1b[2J")
    'home\\x1b[2J'
    """
    if text.isprintable():
        return text
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else _escape(ord(found[0])), text)


def as_html(text: str) -> str:
    """Text as it stands in a page: no markup, no control characters."""
    return escape(printable(text))


def cell(text: str) -> str:
    """A text as a cell of a CSV table."""
    return f"'{text}" if re.match(FORMULA, text) else text


def text_of_cell(content: str) -> str:
    """The text that stands in a cell of a CSV table, which :func:`cell` wrote.

    >>> text_of_cell(cell("=1+1")), text_of_cell("plain")
    ('=1+1', 'plain')
    """
    return content.removeprefix("'")


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
