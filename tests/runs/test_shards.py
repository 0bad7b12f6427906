"""Shards are there whole or not at all; a damaged one is named; a full disk loses nothing."""

from __future__ import annotations

import errno
import os
import pickle
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from shoal.errors import InputError, StorageError
from shoal.files import file_digest
from shoal.records import Record
from shoal.runs.shards import Part, disk_space, finished, put_whole, receipted, shard_key, sweep

KEY = shard_key("fit", {"horizon": 48}, ["a" * 64])
SECRET = "8675309"


@dataclass(frozen=True)
class Rows(Record):
    households: int
    rows: int


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    (tmp_path / "shards" / "fit").mkdir(parents=True)
    return tmp_path / "shards" / "fit" / f"{KEY}.txt"


def write(path: Path, text: str) -> None:
    put_whole(path, lambda rough: rough.write_text(text))


def make(path: Path, text: str = SECRET) -> Part:
    write(path, text)
    return receipted(path, Rows(3, 7))


def test_a_key_depends_on_all_that_matters() -> None:
    keys = {
        shard_key("fit", {"horizon": 48}, ["x", "y"]),
        shard_key("design", {"horizon": 48}, ["x", "y"]),
        shard_key("fit", {"horizon": 49}, ["x", "y"]),
        shard_key("fit", {"horizon": 48}, ["y", "x"]),
        shard_key("fit", {"horizon": 48}, ["xy"]),
    }
    assert len(keys) == 5
    assert all(len(key) == 32 for key in keys)
    assert shard_key("fit", {"a": 1, "b": 2}, []) == shard_key("fit", {"b": 2, "a": 1}, [])


def test_a_key_depends_on_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.__version__", "99.0.0")
    assert shard_key("fit", {"horizon": 48}, ["a" * 64]) != KEY


def test_what_is_finished_is_found_again(shard: Path) -> None:
    assert finished(shard) is None
    part = make(shard)
    assert finished(shard) == part
    part.check()
    assert (part.key, part.told(Rows)) == (KEY, Rows(3, 7))
    assert part.files == {"txt": file_digest(shard)}
    assert pickle.loads(pickle.dumps(part)) == part
    assert sorted(p.name for p in shard.parent.iterdir()) == [f"{KEY}.json", f"{KEY}.txt"]


def test_a_file_without_a_receipt_is_not_finished(shard: Path) -> None:
    write(shard, "x")
    assert finished(shard) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"key": 1, "files": {}, "households": 1}', "\xff"])
def test_a_damaged_receipt_means_not_finished(shard: Path, content: str) -> None:
    part = make(shard)
    part.beside("json").write_text(content, encoding="latin-1")
    assert finished(shard) is None


def test_a_receipt_is_that_of_its_own_shard(shard: Path) -> None:
    other = shard.with_name(f"{shard_key('fit', {}, [])}.txt")
    make(shard)
    write(other, SECRET)
    other.with_suffix(".json").write_bytes(shard.with_suffix(".json").read_bytes())
    assert finished(other) is None


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "folder"])
def test_a_damaged_shard_is_named_without_its_data(shard: Path, damage: str) -> None:
    part = make(shard)
    content = shard.read_bytes()
    shard.unlink()
    if damage == "cut":
        shard.write_bytes(content[:-1])
    elif damage == "flip":
        shard.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "folder":
        shard.mkdir()
    with pytest.raises(InputError, match=f"^shards: the fit shard {KEY} .*run again") as raised:
        part.check()
    assert SECRET[1:] not in str(raised.value)
    assert (finished(shard) is None) == (damage in ("gone", "folder"))


def test_an_interrupted_write_leaves_the_old_file(shard: Path) -> None:
    make(shard, "old")

    def interrupted(path: Path) -> None:
        path.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        put_whole(shard, interrupted)
    assert shard.read_text() == "old"
    assert sweep(shard.parents[1]) == 0


def test_what_killed_workers_leave_is_swept_away(shard: Path) -> None:
    make(shard)
    shard.with_name(f".{KEY}.txt.0123.part").write_text("half")
    assert sweep(shard.parents[1]) == 1
    assert finished(shard) is not None


def test_two_writers_of_one_shard_do_not_disturb_each_other(shard: Path) -> None:
    def slow(path: Path) -> None:
        with path.open("w") as file:
            file.write("sa")
            file.flush()
            write(shard, "same")
            file.write("me")

    put_whole(shard, slow)
    assert shard.read_text() == "same"


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_what_is_finished(shard: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int) -> None:
    done = make(shard)
    other = shard.with_name(f"{shard_key('fit', {}, [])}.txt")

    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StorageError, match=r"the disk is full.*free some space and run"):
            make(other)
    assert finished(shard) == done
    assert finished(other) is None
    assert sweep(shard.parents[1]) == 0
    assert make(other) == finished(other)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_noticed_however_it_is_written_to() -> None:
    frame = pl.DataFrame({"kw": [0.5] * 100_000})
    for write in (
        lambda: frame.write_parquet("/dev/full"),
        lambda: frame.lazy().sink_parquet("/dev/full"),
        lambda: frame.write_csv("/dev/full"),
        lambda: Path("/dev/full").write_text("x"),
    ):
        with pytest.raises(StorageError, match="the disk is full"), disk_space():
            write()


def test_other_errors_are_not_taken_for_a_full_disk() -> None:
    with pytest.raises(FileNotFoundError), disk_space():
        Path("/nowhere/at/all").read_text()
    with pytest.raises(pl.exceptions.ColumnNotFoundError), disk_space():
        pl.DataFrame({"a": [1]}).select("b")


@pytest.mark.parametrize(
    ("stage", "key", "suffix"), [("f it", KEY, "txt"), ("fit", "x" + KEY, "txt"), ("fit", KEY, "../txt")]
)
def test_names_cannot_leave_the_folder(tmp_path: Path, stage: str, key: str, suffix: str) -> None:
    path = tmp_path / stage / f"{key}.txt"
    with pytest.raises(InputError, match=r"^shards: a stage, key or suffix"):
        Part(str(path), {suffix: "0" * 64}, {}).check()
    assert finished(path) is None
