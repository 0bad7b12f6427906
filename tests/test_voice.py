"""Pages are short and in plain English: words, sentences and idioms are counted."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
PLACES = ("*.md", ".github/**/*.md", "benchmarks/*.md", "docs/**/*.md", "paper/*.md", "src/**/*.md")
EVERY = {path: path.read_text(encoding="utf-8") for place in PLACES for path in sorted(ROOT.glob(place))}
#: Pages of formulas, and a list of changes, are exempt from the counts of idioms and sentences.
PROSE = [text for path, text in EVERY.items() if path.name not in ("theory.md", "notation.md", "CHANGELOG.md")]
IDIOMS = re.compile(
    r"\b(whoever|whose|somebody|nobody|told|tells?|dear|dearer|dearest|beside|alone|apart|likewise)\b", re.IGNORECASE
)


def running_text(page: str) -> str:
    """A page without code, comments, pictures and the targets of links."""
    page = re.sub(r"```.*?```|<!--.*?-->|!\[[^\]]*\]\([^)]*\)", "\n\n", page, flags=re.DOTALL)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)


def sentence_lengths(page: str) -> list[int]:
    """Words of every sentence outside headings and tables; a list's item begins a sentence."""
    lengths = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|\n(?=[#|])", running_text(page)):
        if not block.strip().startswith(("#", "|")):
            text = " ".join(re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", block).split())
            for sentence in re.split(r"(?<=[.!?:])\s+(?=[\"“'(`*A-ZΑ-Ω0-9])", text):
                lengths.append(len(re.findall(r"\w[\w'’.\-]*", sentence)))
    return [length for length in lengths if length > 2]


def test_the_counts_count() -> None:
    page = (
        "# Told\n\nNobody is *told* whose row it is. [Two words](whoever.md) and more: Here it is.\n\n- An item too\n"
    )
    assert IDIOMS.findall(running_text(page)) == ["Told", "Nobody", "told", "whose"]
    assert sentence_lengths(page) == [7, 4, 3, 3]


def test_all_pages_together_are_short() -> None:
    assert len(EVERY) >= 30
    assert len(EVERY[ROOT / "README.md"].split()) <= 900
    assert sum(len(text.split()) for text in EVERY.values()) <= 55_000


def test_idioms_are_rare_and_sentences_short() -> None:
    texts = [running_text(text) for text in PROSE]
    idioms = [word for text in texts for word in IDIOMS.findall(text)]
    assert 1000 * len(idioms) <= sum(len(text.split()) for text in texts), idioms
    assert median(length for text in PROSE for length in sentence_lengths(text)) <= 16
