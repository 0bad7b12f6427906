"""Results show themselves in a notebook and on a terminal, in at most a screen and without data."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal

#: A screen: lines of a terminal, and rows of a table with its heading and its last line.
LINES, WIDTH, ROWS = 24, 80, 24


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One of every kind of result, of 60 labels whose names and answers must not be seen but for pairs."""
    draw = np.random.default_rng(0)
    names = [f"Home-{i:03d}" for i in range(60)]
    classes = shoal.GaussianClasses.deterministic(7000 + draw.normal(size=(60, 3)), names)
    graph = shoal.crowd_graph(classes.means, 5, labels=names)
    mechanism = shoal.design(classes, graph, "white", 1.0, 16.0)
    laws = shoal.GaussianClasses([[0.0], [1.0]], [[[1.0]]] * 2)
    pair = shoal.NeighborGraph.complete(laws.labels)
    table = pl.DataFrame({"who": names, **{f"x{j}": classes.means[:, j] for j in range(3)}})
    plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0, typical_kw=1.5)
    return {
        "mechanism": mechanism,
        "codebook": shoal.codebook(classes.means, graph, epsilon=3.0, labels=names),
        "audit": shoal.audit(mechanism, n_samples=100),
        "proof": shoal.prove(laws, pair, 1.0),
        "curve": shoal.privacy_curve(laws, pair, np.linspace(0, 4, 30)),
        "renyi": shoal.renyi_curve(laws, pair, np.linspace(1.5, 40, 30)),
        "frontier": shoal.frontier(laws, pair, "white", 1.0, rho=np.linspace(1, 30, 30)),
        "plan": plan,
        "noisy crowds": shoal.noisy_crowds(np.full((480, 12), 0.4), plan),
        "check": shoal.check(table, label="who", crowd=5),
        "choice": shoal.choose(table, label="who", at_most="1-in-6"),
        "run": shoal.run(table, tmp_path_factory.mktemp("shown") / "run", label="who", crowd=5),
    }


def test_on_a_terminal(shown: dict[str, Any]) -> None:
    for name, result in [*shown.items(), ("rehearsal", shown["check"].rehearsal)]:
        text = repr(result)
        assert sum(1 + len(line) // WIDTH for line in text.splitlines()) <= LINES, name
        assert "array(" not in text, name
        assert "7000" not in text, name
        assert name in ("audit", "mechanism") or "Home-" not in text, name


def test_in_a_notebook(shown: dict[str, Any]) -> None:
    for name in ("mechanism", "audit", "curve", "frontier", "run"):
        result = shown[name]
        html = result._repr_html_()
        assert html.startswith(("<table>", "<pre>")), name
        assert html.count("<tr>") + html.count("\n") <= ROWS, name
        assert "7000" not in html, name
        assert name in ("audit", "mechanism") or "Home-" not in html, name
