"""The proof file and the program of one file that checks it."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_proofs import EDGE, crowd, mechanism, pair

import campaign
import shoal
from shoal import archive
from shoal.mechanism.releasable import laws_file_parts
from shoal.proofs import checker
from shoal.proofs import proof as proofs
from shoal.proofs.proof import Proof

PAIRS = np.array([[0, 1]])


@pytest.fixture(scope="module")
def proved() -> tuple[shoal.Mechanism, Proof]:
    """A mechanism of five labels with every kind of array in its file, and its proof."""
    rng, n, k = np.random.default_rng(2), 5, 3
    covs = np.array([campaign.covariance(rng, k, 0.5) for _ in range(n)])
    means = rng.standard_normal((n, k))
    means[1], covs[1] = means[0], covs[0]
    classes = shoal.GaussianClasses(means, 0.5 * (covs + np.swapaxes(covs, 1, 2)))
    classes = classes.with_errors(np.full((n, k, k), 1e-16), np.full((n, k), 1e-16))
    shift, gain = 0.1 * rng.standard_normal((n, k)), 0.1 * rng.standard_normal((n, k, k))
    grid = np.full((n, k), -1074, dtype=np.int64)
    grid[2] = -40
    noise = np.broadcast_to(np.eye(k) + 0.25, (n, k, k)).copy()
    made = mechanism(classes, noise, shift, gain, mean_grid=grid)
    return made, shoal.prove(made)


def checked(proof: Proof | dict[str, Any], content: bytes) -> str:
    return checker.check(proof if isinstance(proof, dict) else json.loads(proof.to_json()), content)


def test_a_proof_survives_its_file(proved: tuple[shoal.Mechanism, Proof], tmp_path: Path) -> None:
    made, proof = proved
    proof.save(tmp_path / "proof.json")
    written = (tmp_path / "proof.json").read_bytes()
    assert (written.decode(), hashlib.sha256(written).hexdigest()) == (proof.to_json(), proof.file_digest)
    stated = json.loads(written)
    assert (stated["digest"], float.fromhex(stated["delta_upper"])) == (made.digest, proof.delta_upper)
    assert "confirmed" in checked(stated, made.to_bytes())


def test_the_checker_stands_alone(proved: tuple[shoal.Mechanism, Proof], tmp_path: Path) -> None:
    source = Path(checker.__file__)
    names = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert names <= {"flint", "numpy", "__future__", *sys.stdlib_module_names}
    made, proof = proved
    shutil.copy(source, tmp_path / "checker.py")
    made.save(tmp_path / "made.shoal")
    proof.save(tmp_path / "proof.json")
    command = [sys.executable, "-I", "checker.py", "proof.json", "made.shoal"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert repr(proof.delta_upper) in done.stdout
    bare = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}  # a console without Greek letters
    done = subprocess.run([part for part in command if part != "-I"], capture_output=True, cwd=tmp_path, env=bare)
    assert (done.returncode, repr(proof.delta_upper).encode() in done.stdout) == (0, True), done.stderr
    (tmp_path / "made.shoal").write_bytes(b"PK")
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("refused")


def test_duplicated_eigenvalues_singular_and_equal_laws_are_checked() -> None:
    twice = shoal.GaussianClasses(
        np.array([np.zeros(4), [0.3, 0.0, 0.0, 0.1]]), [np.eye(4), np.diag([2.0, 2.0, 1.0, 1.0])]
    )
    tilted = np.array([[3.0, 1.0, 0.5, 0.25], [1.0, 2.0, 0.5, 0.5], [0.5, 0.5, 4.0, 1.0], [0.25, 0.5, 1.0, 5.0]])
    scaled = shoal.GaussianClasses(np.array([np.zeros(4), [0.3, 0.1, 0.0, 0.1]]), [tilted, 1.5 * tilted])
    line = shoal.GaussianClasses([[0.0, 0.0], [0.5, 0.5]], [np.ones((2, 2)), 2 * np.ones((2, 2))])
    same = shoal.GaussianClasses(np.zeros((2, 2)), np.eye(2))
    bounded = shoal.GaussianClasses([[0.0], [0.0]], [[[0.5]], [[1.0]]])
    for classes in (twice, scaled, line, same, bounded):
        assert "confirmed" in checked(shoal.prove(classes, EDGE, 0.5), archive.pack(*laws_file_parts(classes, PAIRS)))


def test_a_flipped_bit_in_any_array_is_refused(proved: tuple[shoal.Mechanism, Proof]) -> None:
    made, proof = proved
    header, arrays, _ = checker.read(made.to_bytes())
    assert {"means", "covs", "cov_error", "mean_error", "gain", "mean_grid", "shift", "noise_cov"} <= set(arrays)
    assert "confirmed" in checked(proof, made.to_bytes())
    rng = np.random.default_rng(0)
    for name, values in arrays.items():
        raw = bytearray(np.ascontiguousarray(values).tobytes())
        if not raw:
            continue
        for place in rng.integers(0, 8 * len(raw), 6):
            flipped = bytearray(raw)
            flipped[place // 8] ^= 1 << (place % 8)
            other = {**arrays, name: np.frombuffer(bytes(flipped), values.dtype).reshape(values.shape)}
            damaged = archive.pack(header, other)  # sealed anew: only the proof can tell
            with pytest.raises(checker.Refused, match="another file"):
                checked(proof, damaged)
    content = bytearray(made.to_bytes())
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        entry = parts.getinfo("noise_cov.npy")
    content[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 1
    with pytest.raises(checker.Refused):
        checked(proof, bytes(content))


@pytest.mark.parametrize("name", ["means", "covs", "gain", "shift", "noise_cov", "mean_grid", "cov_error", "edges"])
def test_a_proof_carried_over_to_other_parameters_is_refused(name: str, proved: tuple[shoal.Mechanism, Proof]) -> None:
    """Even with the digest replaced: everything is computed again."""
    made, proof = proved
    header, arrays, _ = checker.read(made.to_bytes())
    worst = max(proof.edges, key=lambda e: e.upper)
    i = proof.pairs[worst.edge][0]
    values = arrays[name].copy()
    if name == "edges":
        values = values[:-1]
    elif name == "mean_grid":
        values[i] = 3
    elif name == "cov_error":
        values[i] += 1e-6
    elif name == "covs":
        values[i] *= 1.25
    else:
        values[i].flat[0] += 0.5
    other = {**arrays, name: values}
    content = archive.pack(header, other)
    carried = {**json.loads(proof.to_json()), "digest": archive.digest(header, other)}
    with pytest.raises(checker.Refused):
        checked(carried, content)


def test_altered_claims_are_refused(proved: tuple[shoal.Mechanism, Proof]) -> None:
    made, proof = proved
    content, stated = made.to_bytes(), json.loads(proof.to_json())

    def altered(**changes: Any) -> dict[str, Any]:
        return {**json.loads(proof.to_json()), **changes}

    smaller = (proof.delta_upper * (1 - 1e-9)).hex()
    worst = max(range(len(stated["edges"])), key=lambda e: float.fromhex(stated["edges"][e]["upper"]))
    lowered = [dict(one) for one in stated["edges"]]
    lowered[worst]["upper"] = (float.fromhex(lowered[worst]["upper"]) * (1 - 1e-9)).hex()
    raised = [dict(one) for one in stated["edges"]]
    raised[worst]["lower"] = raised[worst]["upper"]
    for wrong in (
        altered(delta_upper=smaller, ideal_upper=smaller),
        altered(ideal_upper=smaller, delta_upper=smaller, edges=lowered),
        altered(edges=raised),
        altered(edges=stated["edges"][1:]),
        altered(finite_precision=(0.0).hex()),
        altered(epsilon=(1.1).hex()) if proof.delta_lower > 0 else altered(scope="row"),
        altered(scope="table"),
        altered(equal=[worst, *stated["equal"]], edges=[]),
        altered(n_edges=proof.n_edges - 1),
        altered(digest="0" * 64),
        altered(version=2),
    ):
        with pytest.raises(checker.Refused):
            checked(wrong, content)


def test_one_covariance_is_checked_in_closed_form() -> None:
    classes = shoal.GaussianClasses([[0.0, 0.0], [1.0, -0.5]], [[1.0, 0.25], [0.25, 2.0]])
    content = archive.pack(*laws_file_parts(classes, PAIRS))
    for scope in ("answer", "table"):
        proof = shoal.prove(classes, EDGE, 0.5, scope)
        assert {one.by for one in proof.edges} == {"gaussian"}
        assert checked(proof, content).startswith("confirmed")
        lowered = json.loads(proof.to_json())
        for one in lowered["edges"]:
            one |= {end: (float.fromhex(one[end]) * (1 - 1e-9)).hex() for end in ("lower", "upper")}
        lowered["ideal_upper"] = lowered["delta_upper"] = lowered["edges"][0]["upper"]
        lowered["delta_lower"] = (0.0).hex()
        with pytest.raises(checker.Refused, match="not confirmed"):
            checked(lowered, content)
    other = pair(1, 2)
    stated = json.loads(shoal.prove(other, EDGE, 0.5).to_json())
    for one in stated["edges"]:
        one["by"] = "gaussian"
        del one["path"]
    with pytest.raises(checker.Refused, match="stated to be equal"):
        checked(stated, archive.pack(*laws_file_parts(other, PAIRS)))


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_several_answers_about_each_label_count_together(scope: str) -> None:
    """A mechanism for so many answers is proved for all of them, and checked for as many."""
    several = replace(crowd(5, "white", n=3), times=3, scope=scope)
    proof = shoal.prove(several)
    together = shoal.privacy_curve([several.output] * 3, several.graph, 1.0, scope=scope)
    assert proof.delta_lower <= together.delta_upper
    assert together.delta_lower <= proof.ideal_upper
    assert proof.finite_precision <= several.certificate.finite_precision
    assert checked(proof, several.to_bytes()).startswith("confirmed")
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0], [1.5]])
    many = shoal.design(
        classes, shoal.NeighborGraph.complete(classes.labels), "white", 1.0, 900.0, scope=scope, times=40
    )
    proof = shoal.prove(many)
    assert proof.delta_lower <= many.ideal_curve.delta_upper
    assert many.ideal_curve.delta_lower <= proof.ideal_upper
    assert proofs.prove_mechanism(many)[0].certificate.proved
    assert checked(proof, many.to_bytes()).startswith("confirmed")
    too_many = replace(crowd(5, "white", n=3), times=40, scope=scope)
    assert "answers about each label" in proofs.prove_mechanism(too_many)[0].certificate.unproved
    with pytest.raises(checker.Refused):
        checked(shoal.prove(replace(many, times=39)), many.to_bytes())
