"""Mechanism files: bit for bit back, and nothing that was touched is accepted."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from design_cases import family

import shoal
from shoal import GaussianClasses, InputError, Mechanism, NeighborGraph, archive


def mechanisms() -> dict[str, Mechanism]:
    classes, graph = family(1, 3, 2)
    constants = GaussianClasses.deterministic(classes.means, ["a", "b", "ü"])
    shared = GaussianClasses(classes.means, np.eye(2))
    return {
        "none": shoal.design(classes, graph, "none", 1.0, 0.3),
        "paper": shoal.design(classes, graph, "paper", 1.0, 0.3),
        "center": shoal.design(classes, graph, "center", [0.5, 1.0, 2.0], 0.3, "pdp"),
        "constants": shoal.design(constants, NeighborGraph.complete(constants.labels), "white", 1.0, [0.1, 0.2, 0.3]),
        "shared": shoal.design(shared, NeighborGraph.complete(shared.labels), "white", 1.0, 0.3),
    }


@pytest.mark.parametrize("name", ["none", "paper", "center", "constants", "shared"])
def test_round_trip_bit_for_bit(name: str, tmp_path: Path) -> None:
    before = mechanisms()[name]
    before.save(tmp_path / "m.shoal")
    after = Mechanism.load(tmp_path / "m.shoal")
    for field in ("shift", "gain", "noise_cov", "budget", "epsilon", "rho"):
        one, two = getattr(before, field), getattr(after, field)
        assert (one is None and two is None) or one.tobytes() == two.tobytes()
    for field in ("method", "notion", "notes"):
        assert getattr(before, field) == getattr(after, field)
    assert before.classes.labels == after.classes.labels
    assert before.classes.means.tobytes() == after.classes.means.tobytes()
    assert before.classes.covs.tobytes() == after.classes.covs.tobytes()
    assert before.graph.labels == after.graph.labels
    np.testing.assert_array_equal(before.graph.edges, after.graph.edges)
    assert before.certificate == after.certificate
    answers = np.ones((5, 2))
    label = before.classes.labels[1]
    np.testing.assert_array_equal(before.sample(answers, label, seed=3), after.sample(answers, label, seed=3))


def rewritten(path: Path, change: Any) -> Path:
    """The file with its parts passed through ``change(name, bytes)``; None drops a part."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            new = change(name, content)
            if new is not None:
                archive.writestr(name, new)
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "m.shoal"
    mechanisms()["center"].save(path)
    return path


def test_every_flipped_bit_is_seen(saved: Path) -> None:
    """A damaged file is refused, or the damage lies in what nobody reads and the mechanism is the same."""
    content = saved.read_bytes()
    before = Mechanism.load(saved)
    refused = 0
    for position in np.random.default_rng(0).permutation(len(content))[:250]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(position) % 8
        saved.write_bytes(bytes(damaged))
        try:
            after = Mechanism.load(saved)
        except InputError:
            refused += 1
        else:
            assert after.noise_cov.tobytes() == before.noise_cov.tobytes()
            assert after.shift.tobytes() == before.shift.tobytes()
            assert after.classes.means.tobytes() == before.classes.means.tobytes()
            assert after.certificate == before.certificate
    assert refused > 150


def test_truncated_file(saved: Path) -> None:
    content = saved.read_bytes()
    for length in (0, 1, 100, len(content) // 2, len(content) - 1):
        saved.write_bytes(content[:length])
        with pytest.raises(InputError, match="damaged"):
            Mechanism.load(saved)


@pytest.mark.parametrize("part", ["means", "edges", "epsilon", "shift", "noise_cov", "budget", "covs", "gain"])
def test_altered_or_missing_array(saved: Path, part: str) -> None:
    def change(name: str, content: bytes) -> bytes:
        if name != f"{part}.npy":
            return content
        values = np.load(io.BytesIO(content))
        buffer = io.BytesIO()
        np.save(buffer, values + 1 if values.size else np.ones(1))
        return buffer.getvalue()

    content = saved.read_bytes()
    with pytest.raises(InputError, match="digest"):
        Mechanism.load(rewritten(saved, change))
    saved.write_bytes(content)
    with pytest.raises(InputError, match="digest"):
        Mechanism.load(rewritten(saved, lambda name, c: None if name == f"{part}.npy" else c))


def header_with(**changes: Any) -> Any:
    def change(name: str, content: bytes) -> bytes:
        return json.dumps({**json.loads(content), **changes}).encode() if name == "header.json" else content

    return change


@pytest.mark.parametrize(
    "changes",
    [{"method": "white"}, {"notion": "pdp-two-sided"}, {"labels": ["0", "1", "3"]}, {"times": 2},
     {"notes": ["all is well"]}, {"digest": "0" * 64}, {"digest": None}],
)  # fmt: skip
def test_altered_header(saved: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="digest"):
        Mechanism.load(rewritten(saved, header_with(**changes)))


def test_newer_version_and_other_formats(saved: Path) -> None:
    content = saved.read_bytes()
    with pytest.raises(InputError, match="version"):
        Mechanism.load(rewritten(saved, header_with(version=2)))
    saved.write_bytes(content)
    with pytest.raises(InputError, match="not a mechanism file"):
        Mechanism.load(rewritten(saved, header_with(format="something else")))
    saved.write_bytes(content)
    with pytest.raises(InputError, match="not a mechanism file"):
        Mechanism.load(rewritten(saved, lambda name, c: b"[1, 2]" if name == "header.json" else c))
    with pytest.raises(InputError, match="no file"):
        Mechanism.load(saved.with_name("absent.shoal"))


def test_no_pickle_is_ever_read(saved: Path) -> None:
    def change(name: str, content: bytes) -> bytes:
        if name != "means.npy":
            return content
        buffer = io.BytesIO()
        np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        return buffer.getvalue()

    with pytest.raises(InputError, match="damaged"):
        Mechanism.load(rewritten(saved, change))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("epsilon", np.nan),
        ("epsilon", -1.0),
        ("shift", np.inf),
        ("noise_cov", np.nan),
        ("gain", np.nan),
    ],
)
def test_impossible_parameters_under_a_fresh_seal(saved: Path, part: str, value: float) -> None:
    """Someone who recomputes the digest gets no further than the parameters allow."""
    header, arrays = archive.unpack(saved.read_bytes(), "shoal mechanism", 1, "file")
    arrays[part] = np.full_like(arrays[part], value)
    with pytest.raises(InputError, match="no mechanism has"):
        Mechanism.from_bytes(archive.pack(header, arrays))


def test_other_shapes_under_a_fresh_seal(saved: Path) -> None:
    header, arrays = archive.unpack(saved.read_bytes(), "shoal mechanism", 1, "file")
    arrays["epsilon"] = arrays["epsilon"][:1]
    with pytest.raises(InputError, match="no mechanism has"):
        Mechanism.from_bytes(archive.pack(header, arrays))
    header["notion"] = "none"
    with pytest.raises(InputError, match="no mechanism has"):
        Mechanism.from_bytes(archive.pack(header, arrays))
