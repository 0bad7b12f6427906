"""Build the site: ``python docs/book.py [FOLDER]`` writes FOLDER/site (out/site), which opens without a server.

Zensical has no hooks, so what it cannot do happens around it. Before: pages from outside of docs/ join the others in
FOLDER/pages, links follow them, lists get their blank line. After: formulas get raised and lowered signs, and pictures
open in full. A broken link, a missing anchor or a page left out of the order in mkdocs.yml is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

import yaml

ROOT = Path(__file__).parents[1]
#: File of the repository -> its page.
OUTSIDE = {
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
#: The last line of a paragraph that a list follows at once.
LIST = re.compile(r"^(?![-#|>\s]|\d+\. )(.+)\n(?=- |1\. )", re.MULTILINE)
BRACED = r"\{(?:[^{}]|\{[^{}]*\})+\}"
#: x_i, Σ_X', e^{ε−L}, 2^−52; n_edges and mae_kw are no formulas.
LOWERED = re.compile(
    rf"(?:(?<![A-Za-z]{{3}})|(?<=max|min|sup))(?<=[^\s_])_({BRACED}|(?:max|min|∞|[^\W_]{{1,2}})(?!\w)'?)"
)
RAISED = re.compile(rf"(?<=[^\s^])\^({BRACED}|[−-]?(?:[^\W_]+|∞))")
#: Tags and code, which stay as they are; a block without a language holds formulas.
KEPT = re.compile(r"(<code>.*?</code>|<div class=\"language-.*?</div>|<[^>]+>)", re.DOTALL)
BLOCK = re.compile(r"(?<=<div class=\"highlight\"><pre>)(.*?)(?=</pre>)", re.DOTALL)


def _pages() -> dict[str, Path]:
    """Address of every page of the site -> its file in the repository."""
    pages = {page.relative_to(ROOT / "docs").as_posix(): page for page in (ROOT / "docs").rglob("*.md")}
    return pages | {page: ROOT / source for source, page in OUTSIDE.items()}


def _listed(nav: object) -> list[str]:
    """All addresses in an order of pages, however deep."""
    if isinstance(nav, dict):
        return [page for part in nav.values() for page in _listed(part)]
    return [page for part in nav for page in _listed(part)] if isinstance(nav, list) else [str(nav)]


def markdown_of(source: Path, here: str) -> str:
    """The text of a page with links that lead to the pages that the linked files have become; what has no page is only
    named. Lists get the blank line before them that Python-Markdown needs and others do not."""

    def relinked(link: re.Match[str]) -> str:
        mark, text, target, anchor = link.groups()
        path = normpath(str(PurePosixPath(source.relative_to(ROOT).as_posix()).parent / target))
        uri = OUTSIDE.get(path, path.removeprefix("docs/"))
        if path not in OUTSIDE and not path.startswith("docs/") and (ROOT / path).exists():
            return text
        return f"{mark}[{text}]({relpath(uri, PurePosixPath(here).parent)}{anchor or ''})"

    pieces = FENCED.split(LINK.sub(relinked, source.read_text(encoding="utf-8")))
    return "".join(piece if i % 2 else LIST.sub("\\1\n\n", piece) for i, piece in enumerate(pieces))


def _formulas(text: str) -> str:
    text = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)
    text = LOWERED.sub(lambda m: f"<sub>{_formulas(_bare(m[1]))}</sub>", text)
    return RAISED.sub(lambda m: f"<sup>{_formulas(_bare(m[1]))}</sup>", text)


def _bare(script: str) -> str:
    return script[1:-1] if script.startswith("{") else script


def typeset(html: str) -> str:
    """An article with raised and lowered letters in its formulas, and pictures that open in full."""
    html = BLOCK.sub(lambda m: m[0].replace("<code>", '<code class="formula">'), html)
    html = re.sub(r"<img [^>]*src=\"([^\"]+)\"[^>]*>", r'<a href="\1">\g<0></a>', html)
    return "".join(piece if i % 2 else _formulas(piece) for i, piece in enumerate(KEPT.split(html)))


def build(folder: Path) -> Path:
    """Write pages, order and site below ``folder``, and return the site's folder."""
    pages, site = folder / "pages", folder / "site"
    for old in (pages, site):
        shutil.rmtree(old, ignore_errors=True)
    order = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = _listed(yaml.safe_load(order[order.index("\nnav:") :])["nav"])
    if set(listed) != set(_pages()):
        raise SystemExit(f"mkdocs.yml has other pages than docs/: {', '.join(sorted(set(listed) ^ set(_pages())))}")
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for here, source in _pages().items():
        (pages / here).write_text(markdown_of(source, here), encoding="utf-8")
    (folder / "mkdocs.yml").write_text(order, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(folder / "mkdocs.yml")]
    subprocess.run(command, check=True, env={**os.environ, "NO_COLOR": "1"})
    for page in site.rglob("*.html"):
        before, tag, rest = page.read_text(encoding="utf-8").partition("<article")
        article, end, after = rest.partition("</article>")
        page.write_text(before + tag + typeset(article) + end + after, encoding="utf-8")
    return site


if __name__ == "__main__":
    print(build(Path(sys.argv[1] if len(sys.argv) > 1 else "out").resolve()) / "index.html")
