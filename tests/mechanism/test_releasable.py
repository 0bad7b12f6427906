"""Mechanisms and codebooks are released, priced and described through one interface."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.errors import InputError
from shoal.mechanism.releasable import Releasable, check_releasable

LABELS = ["a", "b", "c", "d", "e"]
ANSWERS = np.array([[0.1, 1.0], [0.2, 3.0], [0.3, 4.0], [7.0, 1.0], [9.0, 0.7]])
GRAPH = shoal.NeighborGraph.within_groups(LABELS, [0, 0, 0, 1, 1])
ROOMS = ("audits", "designs", "proofs", "product/card", "product/sources", "product/service")


def every() -> list[Releasable]:
    laws = shoal.GaussianClasses.deterministic(ANSWERS, LABELS)
    return [
        shoal.design(laws, GRAPH, "white", epsilon=1.0, rho=9.0),
        shoal.codebook(ANSWERS, GRAPH, epsilon=2.0),
    ]


@pytest.mark.parametrize("released", every(), ids=["mechanism", "codebook"])
def test_one_interface(released: Releasable, tmp_path: Path) -> None:
    assert check_releasable(released=released) is released
    assert released.labels == tuple(LABELS)
    assert (released.n_dims, released.has_constant_answers, released.times) == (2, True, 1)
    assert released.release(ANSWERS, LABELS).shape == (5, 2)
    assert released.release(ANSWERS[0], "a").shape == (2,)
    part = released.for_labels(["e", "d"])
    assert part.labels == ("e", "d")
    assert part.graph.n_edges == 1
    assert part.rho.tolist() == released.rho[[4, 3]].tolist()
    errors = released.expected_errors(["e", "a"])
    assert errors.squares.shape == errors.biases.shape == (2, 2)
    assert (errors.squares.mean(axis=1) <= errors.rho * (1 + 1e-9)).all()
    assert errors.rho.tolist() == released.rho[[4, 0]].tolist()
    assert 0.0 <= released.certificate.delta_upper < 1.0
    released.save(tmp_path / "it.shoal")
    again = shoal.load(tmp_path / "it.shoal")
    assert (type(again), again.digest) == (type(released), released.digest)


def test_errors_of_a_codebook_are_those_of_its_odds() -> None:
    book = shoal.codebook(ANSWERS, GRAPH, epsilon=2.0)
    errors = book.expected_errors()
    for i, name in enumerate(LABELS):
        off, odds = book.curves(name) - ANSWERS[i], book.probabilities(name)[:, None]
        assert errors.squares[i] == pytest.approx((odds * off**2).sum(axis=0), rel=1e-12)
        assert errors.biases[i] == pytest.approx((odds * off).sum(axis=0), abs=1e-12)


def test_parts_of_a_codebook_are_whole_crowds() -> None:
    book = shoal.codebook(ANSWERS, GRAPH, epsilon=2.0)
    with pytest.raises(InputError, match="labels must be those of whole crowds"):
        book.for_labels(["a", "b"])
    assert book.for_labels(["c", "a", "b"]).release(["a"]).shape == (1, 2)


def test_nobody_outside_the_room_asks_which_one_it_is() -> None:
    source = Path(shoal.__file__).parent
    files = [path for room in ROOMS for path in (source / room).rglob("*.py")]
    asked = [
        f"{path.relative_to(source)}:{node.lineno}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "isinstance"
        and {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)} & {"Mechanism", "Codebook"}
    ]
    assert asked == []


def test_what_cannot_be_released_is_refused() -> None:
    with pytest.raises(InputError, match="mechanism must be a Mechanism or a Codebook"):
        check_releasable(mechanism="white")
