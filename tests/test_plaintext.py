"""Names from files do nothing: on a terminal, in a page, in a spreadsheet."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.numerics.notebook import table
from shoal.plaintext import as_html, cell, printable
from shoal.product.card.facts import FitFacts
from shoal.product.card.render import summary
from shoal.product.sources.frames import as_cells

EVIL = 'a\x1b]0;owned\x07\x9b31m\u202eb\r\n"<script>'


@settings(derandomize=True, max_examples=200)
@given(st.text(alphabet=st.characters(), max_size=12))
def test_printable_text_has_no_controls_and_other_text_stays(text: str) -> None:
    shown = printable(text)
    assert all(ord(c) >= 32 and not 127 <= ord(c) < 160 for c in shown)
    assert printable(shown) == shown
    if text.isprintable():
        assert shown == text


@settings(derandomize=True, max_examples=200)
@given(st.lists(st.one_of(st.text(alphabet="'=+-@\t\ra1 ", max_size=4), st.none()), max_size=6))
def test_cells_are_no_formulas_and_can_be_turned_back(texts: list[str | None]) -> None:
    frame = pl.DataFrame({"name": texts, "n": [-1.5] * len(texts)}, schema={"name": pl.String, "n": pl.Float64})
    shown = as_cells(frame)
    assert as_cells(frame.lazy()).collect().equals(shown)
    assert shown["n"].to_list() == frame["n"].to_list()
    for before, after in zip(texts, shown["name"].to_list(), strict=True):
        assert after == (None if before is None else cell(before))
        if after is not None:
            assert not after.startswith(tuple("=+-@\t\r"))
            assert after.removeprefix("'") == before


def test_summaries_tables_and_pages_show_no_controls() -> None:
    fit = FitFacts(EVIL, 4, 2, 2, 2, 2, about=(f"Readings: {EVIL}.",), reasons=((EVIL, 1),), left_out=1)
    for text in (str(summary(shoal.ReleaseCard(fit), verbose=True)), table(EVIL, (EVIL,), [(EVIL,)]), as_html(EVIL)):
        assert not any(c in text for c in "\x1b\x07\x9b\u202e\r")
    assert "<script>" not in table(EVIL, (EVIL,), [(EVIL,)])
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=[EVIL, "b"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
    card = shoal.release_card(mechanism)
    assert not any(c in card.to_markdown() for c in "\x1b\x07\x9b\u202e\r")
