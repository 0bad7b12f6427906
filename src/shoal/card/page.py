"""Contents → one HTML file that needs nothing else: style, script and data are inside.

Text is escaped where it enters the page; the data travel as JSON in which ``<``, ``>`` and ``&`` are escapes, and the
script puts text into the page as text, never as markup. A content security policy names the one script by its digest
and forbids every connection, so that nothing a label may contain can run or call home.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.card.card import ReleaseCard
from shoal.card.contents import Contents, gather
from shoal.card.section import Section, Table
from shoal.errors import InputError
from shoal.files import write_private
from shoal.plaintext import as_html as escape
from shoal.plaintext import printable

if TYPE_CHECKING:
    from shoal.card.exhibits import Exhibits

INTERNAL = "Internal: contains the true answers. For the data owner; do not pass this page on."
PUBLIC = "Public: holds only what the release card says. No answers, no names."


def write_page(
    path: str | Path, card: ReleaseCard, shown: Exhibits | None = None, *, title: str | None = None, made: str = ""
) -> Path:
    """Write the page of a card and return its path: the data owner's with what is shown, else the public one."""
    target = Path(path)
    try:
        write_private(target, page(gather(card, shown, title, made)).encode())
    except OSError as error:
        raise InputError(f"path: cannot write {target.name}: {error.strerror}") from error
    return target


def page(contents: Contents) -> str:
    """The whole page as a string."""
    script, style = _asset("report.js"), _asset("report.css")
    parts = {
        "title": escape(contents.title),
        "policy": escape(_policy(script, style)),
        "style": style,
        "script": script,
        "banner": escape(PUBLIC if contents.public else INTERNAL),
        "banner_class": "public" if contents.public else "internal",
        "about": "" if not contents.about else f'<p class="about">{escape(" ".join(contents.about))}</p>',
        "verdict": escape(contents.statement if contents.meaningful else "No meaningful guarantee"),
        "verdict_class": "good" if contents.meaningful else "bad",
        "contents": "\n".join(f'<a href="#{s.key}">{escape(s.heading)}</a>' for s in contents.sections),
        "summary": "\n".join(
            f'<div class="tile {escape(tile.tone)}"><h2>{escape(tile.question)}</h2>'
            f'<p class="answer">{escape(tile.answer)}</p><p>{escape(tile.more)}</p></div>'
            for tile in contents.summary
        ),
        "sections": "\n".join(_section(section) for section in contents.sections),
        "digests": "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in contents.digests),
        "data": _json({section.key: section.plots for section in contents.sections if section.plots}),
    }
    # One pass: what a label contains is never read as a name to fill in.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def _section(section: Section) -> str:
    key, heading = escape(section.key), escape(section.heading)
    out = [f'<section id="{key}" aria-labelledby="{key}-heading"><h2 id="{key}-heading">{heading}</h2>']
    out += [f"<p>{escape(sentence)}</p>" for sentence in section.says]
    if section.missing:
        out.append(f'<p class="missing">{escape(section.missing)}</p>')
    if section.pick:
        options = "".join(f'<option value="{i}">{escape(p["name"])}</option>' for i, p in enumerate(section.plots))
        out.append(f'<label class="pick">{escape(section.pick)} <select data-pick="{key}">{options}</select></label>')
    shown = section.plots[:1] if section.pick else section.plots
    for number, plot in enumerate(shown):
        name = heading if section.pick else escape(plot["name"])
        out.append(
            f'<figure data-plot="{key}" data-number="{number}"><figcaption>{name}</figcaption><div class="plot"></div>'
            '<details class="numbers"><summary>The numbers</summary><div class="scroll"></div></details></figure>'
        )
    if section.notes:
        out.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in section.notes) + "</ul>")
    if section.table is not None:
        opened = " open" if len(section.table.rows) <= 6 else ""
        out.append(
            f"<details{opened}><summary>{escape(section.table_title)}</summary>{_table(section.table)}</details>"
        )
    return "\n".join([*out, "</section>"])


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    """Without control characters in texts."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _policy(script: str, style: str) -> str:
    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    allowed = f"script-src {digest(script)}; style-src {digest(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _asset(name: str) -> str:
    return files("shoal.card").joinpath(name).read_text(encoding="utf-8").strip()
