"""The manifest says what is there; a damaged or newer one is refused."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InputError, StorageError
from shoal.fleet.manifest import NAME, Manifest, Source, read_manifest, write_manifest
from shoal.fleet.store import Shard

A = Shard("a" * 32, {"parquet": "1" * 64, "quality.parquet": "2" * 64}, 10, 0.25, {"rows": 3, "worst": 1e-6})
B = Shard("b" * 32, {"parquet": "3" * 64}, 5)
MANIFEST = Manifest((Source("meters.csv", "4" * 64, 1234),), {"shoal": "0.1.0"}, 1_800_000_000)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest = MANIFEST.with_stage("readings", [B, A]).with_stage("fit", [A], {"b" * 32: "shard is damaged"})
    write_manifest(tmp_path, manifest)
    found = read_manifest(tmp_path)
    assert found == manifest
    assert list(found.stages) == ["readings", "fit"]
    assert found.stages["readings"] == (A, B)  # in the order of keys, whatever order they were made in
    assert (found.households("readings"), found.households("fit"), found.households("design")) == (15, 10, 0)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_stage_done_again_replaces_its_failures() -> None:
    first = MANIFEST.with_stage("fit", [A], {"b" * 32: "damaged"}).with_stage("design", [], {"a" * 32: "refused"})
    again = first.with_stage("fit", [A, B])
    assert again.stages["fit"] == (A, B)
    assert [failure.stage for failure in again.failures] == ["design"]


def _edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return spoil


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_text(""),
    "cut": lambda path: path.write_text(path.read_text()[:-20]),
    "not text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "a list": lambda path: path.write_text("[]"),
    "another file": lambda path: path.write_text('{"format": "something"}'),
    "households": _edit(lambda content: content["stages"]["fit"][0].update(households=11)),
    "digest": _edit(lambda content: content["stages"]["fit"][0]["files"].update(parquet="5" * 64)),
    "input": _edit(lambda content: content["inputs"].clear()),
    "lacks a part": _edit(lambda content: content.pop("failures")),
    "no stages": _edit(lambda content: content.update(stages=3)),
    "version": _edit(lambda content: content.update(version="1")),
    "more": _edit(lambda content: content.update(extra=1)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_manifest_is_refused(tmp_path: Path, damage: str) -> None:
    DAMAGE[damage](write_manifest(tmp_path, MANIFEST.with_stage("fit", [A])))
    with pytest.raises(InputError, match=rf"^dir: the {NAME} in .* is damaged; delete it and run again"):
        read_manifest(tmp_path)


def test_a_newer_manifest_is_refused(tmp_path: Path) -> None:
    _edit(lambda content: content.update(version=2))(write_manifest(tmp_path, MANIFEST))
    with pytest.raises(InputError, match="made by a newer shoal"):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"has no {NAME}"):
        read_manifest(tmp_path)


def test_a_full_disk_keeps_the_last_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path, MANIFEST)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StorageError, match="the disk is full"):
            write_manifest(tmp_path, MANIFEST.with_stage("fit", [A]))
    assert read_manifest(tmp_path) == MANIFEST
