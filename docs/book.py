"""What mkdocs.yml cannot say: pages from outside of docs/, their links, and formulas with raised and lowered signs."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

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


def on_files(files: Files, config: Any) -> Files:
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Links that lead to the pages that the linked files have become; what has no page is only named.

    Lists get the blank line before them that Python-Markdown needs and others do not.
    """
    here = page.file.src_uri
    source = next((s for s, uri in OUTSIDE.items() if uri == here), f"docs/{here}")

    def relinked(found: re.Match[str]) -> str:
        mark, text, target, anchor = found.groups()
        path = normpath(str(PurePosixPath(source).parent / target))
        uri = OUTSIDE.get(path, path.removeprefix("docs/"))
        if path not in OUTSIDE and not path.startswith("docs/") and (ROOT / path).exists():
            return text
        return f"{mark}[{text}]({relpath(uri, PurePosixPath(here).parent)}{anchor or ''})"

    pieces = FENCED.split(LINK.sub(relinked, markdown))
    return "".join(piece if i % 2 else LIST.sub("\\1\n\n", piece) for i, piece in enumerate(pieces))


def _formulas(text: str) -> str:
    text = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)
    text = LOWERED.sub(lambda m: f"<sub>{_formulas(_bare(m[1]))}</sub>", text)
    return RAISED.sub(lambda m: f"<sup>{_formulas(_bare(m[1]))}</sup>", text)


def _bare(script: str) -> str:
    return script[1:-1] if script.startswith("{") else script


def on_page_content(html: str, **_: Any) -> str:
    """Formulas with raised and lowered letters; pictures that open in full."""
    html = BLOCK.sub(lambda m: m[0].replace("<code>", '<code class="formula">'), html)
    html = re.sub(r"<img [^>]*src=\"([^\"]+)\"[^>]*>", r'<a href="\1">\g<0></a>', html)
    return "".join(piece if i % 2 else _formulas(piece) for i, piece in enumerate(KEPT.split(html)))
