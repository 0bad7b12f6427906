"""Certified brackets against 200 figures that another engine enclosed in ball arithmetic, kept in frozen_figures.json.

The engine used determinants alone, without eigenvalues, and shared no code with the library. Ends are whole numbers
times powers of two, rounded outward to 64 bits: they are compared without tolerance.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flint import arb, ctx

import shoal
from shoal.accounting.curve import edge_brackets

FIGURES = json.loads((Path(__file__).parents[1] / "frozen_figures.json").read_text())
GRAPH = shoal.NeighborGraph.complete(["0", "1"])


def end(figure: dict[str, Any], name: str) -> Any:
    digits, exponent = figure[name]
    return arb(digits) * arb(2) ** exponent


def released(figure: dict[str, Any]) -> list[shoal.GaussianClasses]:
    families = [(shoal.GaussianClasses(one["means"], one["covs"]), one["times"]) for one in figure["releases"]]
    return [family for family, times in families for _ in range(times)]


def test_all_of_them_are_there() -> None:
    assert Counter(figure["kind"] for figure in FIGURES) == {"answer": 90, "table": 40, "composed": 40, "renyi": 30}


@pytest.mark.parametrize("kind", ["answer", "table", "composed"])
def test_brackets_hold_them(kind: str) -> None:
    for number, figure in enumerate(FIGURES):
        if figure["kind"] != kind:
            continue
        scope = "table" if kind == "table" else "answer"
        found = edge_brackets(released(figure), GRAPH, figure["epsilon"], figure["notion"], scope=scope)[0]
        _, low, high = (found if kind == "table" else found[int(figure["reverse"])]).tolist()
        with ctx.workprec(256):
            upper = arb(high).exp() if high > -math.inf else arb(0)
            assert not upper < end(figure, "lower"), number
            assert low == -math.inf or not arb(low).exp() > end(figure, "upper"), number


def test_renyi_divergences_are_not_below_them() -> None:
    for number, figure in enumerate(FIGURES):
        if figure["kind"] == "renyi":
            curve = shoal.renyi_curve(released(figure)[0], GRAPH, [figure["order"]])
            claimed = float(curve.divergence_upper[0])
            assert claimed == math.inf or not arb(claimed) < end(figure, "lower"), number


def test_proofs_hold_them() -> None:
    """Enclosures of the prover and the engine's have a number in common; every fourth, of one answer and of tables."""
    chosen = [f for f in FIGURES if f["kind"] in ("answer", "table") and f["notion"] == "dp"][::4]
    for figure in chosen:
        proof = shoal.prove(released(figure)[0], GRAPH, figure["epsilon"], figure["kind"])
        direction = "table" if figure["kind"] == "table" else "backward" if figure["reverse"] else "forward"
        for entry in proof.edges:
            if entry.direction == direction:
                assert not arb(entry.lower) > end(figure, "upper")
                assert not arb(entry.upper) < end(figure, "lower")
        assert not arb(proof.delta_upper) < end(figure, "lower")
