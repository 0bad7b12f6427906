"""Nothing that is false, or not shown, is confirmed: forged proofs one by one, and mutants by the thousand."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forgeries import Case, faults, honest, trial

import shoal
from shoal import archive
from shoal.mechanism.releasable import laws_file_parts
from shoal.proofs import checker

ZERO, SMALL, ONE = (0.0).hex(), (1e-300).hex(), (1.0).hex()
CASES = {case.name: case for case in honest()}


def checked(case: Case, **changes: Any) -> str:
    proof = {**json.loads(case.proof), **changes}
    return checker.check(checker.parse(json.dumps(proof).encode()), case.content)


@pytest.mark.parametrize("name", CASES)
def test_honest_proofs_are_confirmed_and_the_judge_agrees(name: str) -> None:
    case = CASES[name]
    assert faults(case, checked(case)) == []


def test_mutants_that_are_false_are_refused() -> None:
    outcome = trial(1, 300)
    assert outcome.wrong == []
    assert outcome.refused > 200


@pytest.mark.slow
def test_twenty_thousand_mutants_that_are_false_are_refused() -> None:
    outcome = trial(2, 20_000)
    assert outcome.wrong == []
    assert outcome.refused > 15_000


def test_a_number_that_is_none_passes_no_comparison() -> None:
    case = CASES["far apart"]
    excluded = [[row, way, "1.0"] for row in range(3) for way in ("forward", "backward")]
    for nothing in ("nan", "inf", "-inf", math.nan, math.inf):
        for loss in ("nan", (1e-20).hex()):
            with pytest.raises(checker.Refused):
                checked(
                    case, edges=[], excluded=excluded, ideal_upper=nothing, finite_precision=loss, delta_upper=SMALL,
                    delta_lower=ZERO,
                )  # fmt: skip
    for epsilon in ("inf", "nan", [(1.0).hex(), "nan", "nan"], (-1.0).hex()):
        with pytest.raises(checker.Refused):
            checked(case, epsilon=epsilon)


def test_supports_that_differ_have_a_delta_of_one() -> None:
    case = CASES["no noise"]
    apart = {"direction": "forward", "by": "apart"}
    for lower, upper in ((ZERO, SMALL), (ZERO, ONE), (SMALL, SMALL)):
        edges = [{**apart, "edge": row, "lower": lower, "upper": upper} for row in range(3)]
        with pytest.raises(checker.Refused, match="not stated to be 1"):
            checked(case, edges=edges, delta_lower=ZERO, ideal_upper=upper, delta_upper=ONE)


def test_a_pair_is_of_two_labels_and_listed_once() -> None:
    case = CASES["listed pairs"]
    loss = json.loads(case.proof)["finite_precision"]
    equal = {"edges": [], "excluded": [], "ideal_upper": ZERO, "delta_lower": ZERO, "delta_upper": loss}
    with pytest.raises(checker.Refused, match="with itself"):
        checked(case, pairs=[[0, 0], [1, 1]], equal=[0, 1], worst_edge=["a", "a"], **equal)
    for pairs in ([[0, 2], [2, 0]], [[0, 2], [0, 2]]):
        with pytest.raises(checker.Refused, match="twice"):
            checked(case, pairs=pairs)
    for pairs in ([[0, -1], [1, 2]], [[0, 3], [1, 2]], [[0, 1, 2], [1, 2]], [[0, True], [1, 2]], [], None):
        with pytest.raises(checker.Refused):
            checked(case, pairs=pairs)
    with pytest.raises(checker.Refused, match="lists pairs"):
        checked(case, own_graph=True)


def test_the_theorem_says_what_it_is_about() -> None:
    sentence = checked(CASES["listed pairs"])
    assert "2 pair(s) of different labels listed in the proof (not a whole graph), at ε = 2.0 scope answer" in sentence
    sentence = checked(CASES["several answers"])
    assert "all 3 pair(s) of different labels of the file's own graph" in sentence
    assert "scope table (a table with all 3 answers about every label)" in sentence
    assert "each pair's own ε, from 0.5 to 1.5" in checked(CASES["ε per pair"])


def test_the_command_says_in_one_sentence_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES["white noise"]
    good, parameters, damaged = tmp_path / "proof.json", tmp_path / "m.shoal", tmp_path / "damaged.shoal"
    good.write_text(case.proof)
    parameters.write_bytes(case.content)
    damaged.write_bytes(case.content[: len(case.content) // 2])
    wrong = {
        "empty.json": "", "text.json": "shoal", "deep.json": "[" * 200_000, "list.json": "[]", "bytes.json": "\udcff",
        "digits.json": '{"version": ' + "1" * 1_000_000 + "}", "twice.json": '{"a": 1, "a": 2}', "none.json": "NaN",
    }  # fmt: skip
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(1 << 30)  # takes no room on the disk
    commands = [(str(tmp_path / name), str(parameters)) for name in (*wrong, "huge.json", "absent.json", ".")]
    for command in (*commands, (str(good), str(damaged)), (str(good), str(good)), (str(good), str(tmp_path))):
        assert checker.main(list(command)) == 2
        told = capsys.readouterr()
        assert (told.out, told.err.count("\n")) == ("", 1), told.err
        assert told.err.startswith("refused: ")
    done = subprocess.run(
        [sys.executable, "-m", "shoal.proofs.checker", good, parameters], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("confirmed: for all 3 pair(s)")


def sealed(header: dict[str, Any], arrays: dict[str, Any], proof: dict[str, Any]) -> Case:
    """A file of parameters with a digest of its own, and the proof about it."""
    plain = {name: value for name, value in header.items() if name != "digest"}
    proof["digest"] = archive.digest(plain, arrays)
    return Case("sealed anew", json.dumps(proof), archive.pack(plain, arrays))


def test_laws_have_one_order_of_labels() -> None:
    """A list of labels that only a mechanism has would lead the pairs of the graph to other laws."""
    gaussian = shoal.GaussianClasses([[0.0], [0.1], [9.0]], [[1.0]], ["a", "b", "c"])
    graph = shoal.NeighborGraph.from_edges(gaussian.labels, [("a", "b")])
    header, arrays = laws_file_parts(gaussian, graph.edges)
    proof = json.loads(shoal.prove(gaussian, graph, 1.0).to_json())
    assert "confirmed" in checked(sealed(header, arrays, dict(proof)))
    apart = {**arrays, "edges": np.array([[0, 2]])}
    with pytest.raises(checker.Refused, match="order"):
        checked(sealed({**header, "graph_labels": ["a", "c", "b"]}, apart, proof))


@pytest.mark.parametrize("form", ["shoal laws", "shoal mechanism"])
def test_a_matrix_that_no_law_has_is_no_covariance(form: str) -> None:
    """Also where noise makes the sum a covariance, and where the laws are of labels that no pair is about."""
    classes = shoal.GaussianClasses([[0.0, 0.0], [0.5, 0.0], [9.0, 9.0]], [np.eye(2)] * 3, ["a", "b", "c"])
    graph = shoal.NeighborGraph.from_edges(classes.labels, [("a", "b")])
    if form == "shoal laws":
        header, arrays = laws_file_parts(classes, graph.edges)
        proof = shoal.prove(classes, graph, 1.0)
    else:
        mechanism = shoal.design(classes, graph, "white", 1.0, 16.0)
        header, arrays = mechanism.file_parts()
        proof = shoal.prove(mechanism)
    covs = np.broadcast_to(np.eye(2), (3, 2, 2)).copy()
    arrays = {name: values for name, values in arrays.items() if name != "variances"} | {"covs": covs}
    assert "confirmed" in checked(sealed(header, arrays, json.loads(proof.to_json())))
    covs[2] = [[1.0, 1.5], [1.5, 1.0]]
    with pytest.raises(checker.Refused, match="no law has"):
        checked(sealed(header, arrays, json.loads(proof.to_json())))
