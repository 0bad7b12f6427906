"""Files of arrays: what they may unpack to is known before anything is unpacked; and only their owner reads them."""

from __future__ import annotations

import io
import json
import stat
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal import archive
from shoal.errors import InputError
from shoal.files import write_private

FORM, VERSION = "shoal mechanism", 1


def bomb(megabytes: int) -> bytes:
    """A file of zeros, packed about two hundred to one."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr("header.json", json.dumps({"format": FORM, "version": VERSION, "digest": "0" * 64}))
        with packed.open("means.npy", "w", force_zip64=True) as entry:
            np.lib.format.write_array_header_1_0(
                entry, {"descr": "<f8", "fortran_order": False, "shape": (megabytes << 17,)}
            )
            for _ in range(megabytes):
                entry.write(bytes(1 << 20))
    return content.getvalue()


def test_a_file_that_unpacks_to_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    content = bomb(300)
    assert len(content) < 2 << 20
    path = tmp_path / "mechanism.shoal"
    path.write_bytes(content)
    for read in (shoal.load, shoal.Mechanism.load, shoal.Forecasts.load):
        tracemalloc.start()
        with pytest.raises(InputError, match=r"mechanism\.shoal is not a .* file, or it is damaged"):
            read(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 30 << 20


def test_an_array_that_says_it_is_longer_than_it_is() -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("header.json", json.dumps({"format": FORM, "version": VERSION}))
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)})
        packed.writestr("means.npy", buffer.getvalue())
    with pytest.raises(InputError, match="damaged"):
        archive.unpack(content.getvalue(), FORM, VERSION, "a")


def test_whatever_is_written_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that would shrink beyond what may be read are not packed."""
    monkeypatch.setattr(archive, "LEAST_ROOM", 1000)
    arrays = {"zeros": np.zeros((200, 200)), "turned": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    for level in (100, 10_000):
        monkeypatch.setattr(archive, "MOST_RATIO", level)
        content = archive.pack({"format": FORM, "version": VERSION}, arrays)
        assert (len(content) > 320_000) == (level == 100)
        _, back = archive.unpack(content, FORM, VERSION, "a")
        assert all(np.array_equal(back[name], arrays[name]) for name in arrays)


def test_files_saved_from_python_are_private(tmp_path: Path) -> None:
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
    (tmp_path / "m").write_bytes(b"")  # readable by all before
    mechanism.save(tmp_path / "m")
    shoal.codebook(np.array([[0.0], [1.0]]), graph, epsilon=1.0).save(tmp_path / "b")
    write_private(tmp_path / "r", b"{}")
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
