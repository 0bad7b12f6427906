"""Bad input: a clear error that names the argument and holds no data."""

import ast
import math
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.accounting.deterministic import gaussian_delta
from shoal.product.cli.output import as_command_options

SECRET = 8675309.125
EYE = np.eye(2)
MEANS = np.array([[SECRET, 0.0], [1.0, SECRET]])
NAMES = ["alice", "bob"]
CLASSES = shoal.GaussianClasses(MEANS, np.stack([EYE, 2 * EYE]), NAMES)
GRAPH = shoal.NeighborGraph.complete(NAMES)
EMPTY = shoal.NeighborGraph.from_edges(NAMES, [])
SECRETS = ("8675309", "alice", "bob", "carol")


def with_entry(value, array=MEANS):
    spoiled = np.array(array, dtype=float)
    spoiled.flat[0] = value
    return spoiled


def covs(*matrix):
    return np.stack([EYE, SECRET * np.array(matrix)])


# argument named in the message -> what is wrong with it -> the call
BAD = {
    # classes
    ("means", "NaN"): lambda: shoal.GaussianClasses(with_entry(np.nan), EYE),
    ("means", "infinite"): lambda: shoal.GaussianClasses(with_entry(np.inf), EYE),
    ("means", "one row as a vector"): lambda: shoal.GaussianClasses(MEANS[0], EYE),
    ("means", "no rows"): lambda: shoal.GaussianClasses(np.empty((0, 2)), EYE),
    ("means", "ragged"): lambda: shoal.GaussianClasses([[SECRET], [1.0, 2.0]], EYE),
    ("means", "words"): lambda: shoal.GaussianClasses([["alice", "bob"]], EYE),
    ("covs", "NaN"): lambda: shoal.GaussianClasses(MEANS, with_entry(np.nan, EYE)),
    ("covs", "infinite"): lambda: shoal.GaussianClasses(MEANS, with_entry(np.inf, EYE)),
    ("covs", "wrong size"): lambda: shoal.GaussianClasses(MEANS, np.eye(3)),
    ("covs", "wrong count"): lambda: shoal.GaussianClasses(MEANS, np.stack([EYE] * 3)),
    ("covs", "a number"): lambda: shoal.GaussianClasses(MEANS, 1.0),
    ("covs", "asymmetric"): lambda: shoal.GaussianClasses(MEANS, covs([1, 0.3], [0.2, 1])),
    ("covs", "indefinite"): lambda: shoal.GaussianClasses(MEANS, covs([1, 2], [2, 1])),
    ("covs", "slightly indefinite"): lambda: shoal.GaussianClasses(MEANS, covs([1, 1 + 1e-9], [1 + 1e-9, 1])),
    ("covs", "negative variance"): lambda: shoal.GaussianClasses(MEANS, covs([-1, 0], [0, 1])),
    ("covs", "covariance without variance"): lambda: shoal.GaussianClasses(MEANS, covs([0, 0.1], [0.1, 1])),
    ("variances", "negative"): lambda: shoal.GaussianClasses.diagonal(MEANS, [1.0, -SECRET]),
    ("variances", "wrong length"): lambda: shoal.GaussianClasses.diagonal(MEANS, [1.0]),
    ("variances", "NaN"): lambda: shoal.GaussianClasses.diagonal(MEANS, [1.0, np.nan]),
    ("labels", "duplicate"): lambda: shoal.GaussianClasses(MEANS, EYE, ["alice", "alice"]),
    ("labels", "too few"): lambda: shoal.GaussianClasses(MEANS, EYE, ["alice"]),
    ("labels", "one string"): lambda: shoal.GaussianClasses(MEANS, EYE, "ab"),
    ("parts", "none"): lambda: shoal.GaussianClasses.joint([]),
    ("parts", "other labels"): lambda: shoal.GaussianClasses.joint([CLASSES, shoal.GaussianClasses(MEANS, EYE)]),
    ("cross", "itself"): lambda: shoal.GaussianClasses.joint([CLASSES, CLASSES], {(1, 1): EYE}),
    ("cross", "shape"): lambda: shoal.GaussianClasses.joint([CLASSES, CLASSES], {(0, 1): np.eye(3)}),
    ("covs", "too much cross-covariance"): lambda: shoal.GaussianClasses.joint([CLASSES, CLASSES], {(0, 1): 9 * EYE}),
    ("noise_cov", "negative number"): lambda: CLASSES.with_noise(-0.5),
    ("noise_cov", "negative variance"): lambda: CLASSES.with_noise([0.5, -0.5]),
    ("noise_cov", "indefinite"): lambda: CLASSES.with_noise([[0.1, 0.2], [0.2, 0.1]]),
    ("noise_cov", "asymmetric"): lambda: CLASSES.with_noise([[0.1, 0.2], [0.0, 0.1]]),
    ("noise_cov", "wrong size"): lambda: CLASSES.with_noise(np.eye(3)),
    # graph
    ("edges", "self-loop"): lambda: shoal.NeighborGraph(NAMES, [[0, 0]]),
    ("edges", "a self-loop by name"): lambda: shoal.NeighborGraph.from_edges(NAMES, [("bob", "bob")]),
    ("edges", "out of range"): lambda: shoal.NeighborGraph(NAMES, [[0, 2]]),
    ("edges", "negative"): lambda: shoal.NeighborGraph(NAMES, [[-1, 0]]),
    ("edges", "fractions"): lambda: shoal.NeighborGraph(NAMES, [[0.0, 1.0]]),
    ("edges", "three columns"): lambda: shoal.NeighborGraph(NAMES, [[0, 1, 0]]),
    ("pairs", "unknown label"): lambda: shoal.NeighborGraph.from_edges(NAMES, [("alice", "carol")]),
    ("pairs", "three names"): lambda: shoal.NeighborGraph.from_edges(NAMES, [("alice", "bob", "bob")]),
    ("labels", "duplicate in a graph"): lambda: shoal.NeighborGraph.complete(["alice", "alice"]),
    ("groups", "too few"): lambda: shoal.NeighborGraph.within_groups(NAMES, ["g"]),
    ("n_neighbors", "too many"): lambda: shoal.NeighborGraph.nearest(CLASSES, 2),
    ("n_neighbors", "none"): lambda: shoal.NeighborGraph.nearest(CLASSES, 0),
    ("n_neighbors", "a fraction"): lambda: shoal.NeighborGraph.nearest(CLASSES, 1.5),
    ("label", "unknown"): lambda: GRAPH.neighbors("carol"),
    # accounting
    ("epsilon", "negative"): lambda: shoal.privacy_curve(CLASSES, GRAPH, -0.1),
    ("epsilon", "one negative"): lambda: shoal.privacy_curve(CLASSES, GRAPH, [1.0, -0.1]),
    ("epsilon", "NaN"): lambda: shoal.privacy_curve(CLASSES, GRAPH, math.nan),
    ("epsilon", "infinite"): lambda: shoal.edge_deltas(CLASSES, GRAPH, math.inf),
    ("epsilon", "none"): lambda: shoal.privacy_curve(CLASSES, GRAPH, []),
    ("epsilon", "two dimensions"): lambda: shoal.privacy_curve(CLASSES, GRAPH, [[1.0]]),
    ("epsilon", "negative edge"): lambda: shoal.edge_deltas(CLASSES, GRAPH, -1.0),
    ("delta", "one"): lambda: shoal.epsilon_at(CLASSES, GRAPH, 1.0),
    ("delta", "negative"): lambda: shoal.epsilon_at(CLASSES, GRAPH, -1e-9),
    ("delta", "above one"): lambda: shoal.epsilon_at(CLASSES, GRAPH, 1.5),
    ("delta", "NaN"): lambda: shoal.epsilon_at(CLASSES, GRAPH, math.nan),
    ("delta", "a word"): lambda: shoal.epsilon_at(CLASSES, GRAPH, "small"),
    ("notion", "unknown"): lambda: shoal.privacy_curve(CLASSES, GRAPH, 1.0, notion="carol"),
    ("classes", "not a family"): lambda: shoal.privacy_curve(MEANS, GRAPH, 1.0),
    ("classes", "none"): lambda: shoal.privacy_curve([], GRAPH, 1.0),
    ("classes", "other labels"): lambda: shoal.privacy_curve([CLASSES, shoal.GaussianClasses(MEANS, EYE)], GRAPH, 1.0),
    ("graph", "not a graph"): lambda: shoal.privacy_curve(CLASSES, [(0, 1)], 1.0),
    ("graph", "other labels"): lambda: shoal.privacy_curve(CLASSES, shoal.NeighborGraph.complete(["12", "34"]), 1.0),
    ("graph", "no edges"): lambda: shoal.privacy_curve(CLASSES, EMPTY, 1.0),
    ("graph", "no edges for epsilon"): lambda: shoal.epsilon_at(CLASSES, EMPTY, 0.1),
    ("graph", "no edges for an order"): lambda: shoal.renyi_curve(CLASSES, EMPTY, 2.0),
    ("graph", "no edges for means"): lambda: shoal.sensitivity(MEANS, EMPTY),
    ("prior", "sum"): lambda: shoal.privacy_curve(CLASSES, GRAPH, 1.0, prior=[0.5, 0.6]),
    ("prior", "negative"): lambda: shoal.privacy_curve(CLASSES, GRAPH, 1.0, prior=[1.5, -0.5]),
    ("prior", "zero"): lambda: shoal.privacy_curve(CLASSES, GRAPH, 1.0, prior=[1.0, 0.0]),
    ("prior", "unknown label"): lambda: shoal.privacy_curve(CLASSES, GRAPH, 1.0, prior={"alice": 0.5, "carol": 0.5}),
    ("prior", "too few"): lambda: shoal.identification_risk(CLASSES, prior=[1.0]),
    ("prior", "NaN"): lambda: shoal.identification_risk(CLASSES, prior=[math.nan, 1.0]),
    ("prior", "two-sided"): lambda: shoal.privacy_curve(CLASSES, GRAPH, 1.0, "pdp-two-sided", prior=[0.5, 0.5]),
    ("order", "zero"): lambda: shoal.renyi_curve(CLASSES, GRAPH, 0.0),
    ("order", "NaN"): lambda: shoal.renyi_curve(CLASSES, GRAPH, [2.0, math.nan]),
    ("n_samples", "few"): lambda: shoal.identification_risk(CLASSES, n_samples=10),
    ("confidence", "one"): lambda: shoal.identification_risk(CLASSES, confidence=1.0),
    ("classes", "two releases"): lambda: shoal.identification_risk([CLASSES, CLASSES]),
    # deterministic queries
    ("means", "other count"): lambda: shoal.sensitivity(MEANS[:1], GRAPH),
    ("p", "below one"): lambda: shoal.sensitivity(MEANS, GRAPH, p=0.5),
    ("sigma", "zero"): lambda: gaussian_delta(1.0, 0.0, 1.0),
    ("sensitivity", "negative"): lambda: gaussian_delta(-1.0, 1.0, 1.0),
    ("sensitivity", "zero"): lambda: shoal.analytic_sigma(0.0, 1.0, 0.1),
    ("sensitivity", "a flag"): lambda: shoal.analytic_sigma(True, 1.0, 0.1),
    ("delta", "one for sigma"): lambda: shoal.analytic_sigma(1.0, 1.0, 1.0),
    ("delta", "zero for sigma"): lambda: shoal.analytic_sigma(1.0, 1.0, 0.0),
    ("epsilon", "negative for sigma"): lambda: shoal.analytic_sigma(1.0, -1.0, 0.1),
}


@pytest.mark.parametrize(("name", "why"), BAD, ids=[" ".join(key) for key in BAD])
def test_bad_input_is_named_without_data(name, why):
    with pytest.raises(shoal.ShoalError) as caught:
        BAD[name, why]()
    text = str(caught.value)
    assert name in text.replace(",", " ").replace(":", " ").replace("[", " ").split(), text
    assert not any(secret in text for secret in SECRETS), text
    assert isinstance(caught.value, ValueError)


def test_an_edgeless_graph_still_lists_its_edges():
    assert shoal.edge_deltas(CLASSES, EMPTY, 1.0).shape == (0, 2)


def test_errors_of_the_library_name_arguments_and_the_command_names_options():
    """In Python nobody types --crowd; the command turns crowd= into its option."""
    rooms = [
        Path(shoal.__file__).parent / room
        for room in ("product/runs", "product/sources", "product/workers", "readings", "product/studies")
    ]
    literals = [
        part.value
        for room in rooms
        for path in room.rglob("*.py")
        for raised in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(raised, ast.Raise)
        for part in ast.walk(raised)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    options = "|".join(name.replace("_", "-") for name in (*shoal.Config.options(), "at_most", "within", "update"))
    assert [text for text in literals if re.search(rf"--({options})\b", text)] == []
    rows = pl.DataFrame({"it": [f"n{i}" for i in range(60)], "a": np.arange(60.0)})
    refusal = shoal.check(rows, label="it", crowd=70).refusal
    assert "60 labels can be used, and a crowd of 70 needs 70; crowd=60 would work" in refusal
    assert "; --crowd 60 would work" in as_command_options(refusal)
