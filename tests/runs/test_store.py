"""Shards are there whole or not at all; a damaged one is named; a full disk loses nothing."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import polars as pl
import pytest

from shoal.errors import InputError, StorageError
from shoal.files import file_digest
from shoal.runs.store import Shard, Store, disk_space, shard_key

KEY = shard_key("fit", {"horizon": 48}, ["a" * 64])
SECRET = "8675309"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "shards"))


def make(store: Store, text: str = SECRET, key: str = KEY) -> Shard:
    digest = store.write("fit", key, "txt", lambda path: path.write_text(text))
    return store.finish("fit", Shard(key, {"txt": digest}, households=3, seconds=1.5, facts={"rows": 7}))


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


def test_what_is_finished_is_found_again(store: Store) -> None:
    assert store.finished("fit", KEY) is None
    shard = make(store)
    assert store.finished("fit", KEY) == shard
    path = store.checked("fit", KEY, "txt", shard.files["txt"])
    assert path.read_text() == SECRET
    assert shard.files["txt"] == file_digest(path)
    assert pickle.loads(pickle.dumps(store)) == store
    assert sorted(p.name for p in path.parent.iterdir()) == [f"{KEY}.json", f"{KEY}.txt"]


def test_a_file_without_a_receipt_is_not_finished(store: Store) -> None:
    store.write("fit", KEY, "txt", lambda path: path.write_text("x"))
    assert store.finished("fit", KEY) is None


def test_a_receipt_needs_its_files(store: Store) -> None:
    with pytest.raises(InputError, match=f"^shards: the fit shard {KEY} is missing"):
        store.finish("fit", Shard(KEY, {"txt": "0" * 64}, 1))


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"key": 1, "files": {}, "households": 1}', "\xff"])
def test_a_damaged_receipt_means_not_finished(store: Store, content: str) -> None:
    make(store)
    store.file("fit", KEY, "json").write_text(content, encoding="latin-1")
    assert store.finished("fit", KEY) is None


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "folder"])
def test_a_damaged_shard_is_named_without_its_data(store: Store, damage: str) -> None:
    shard = make(store)
    path = store.file("fit", KEY, "txt")
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "flip":
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif damage == "folder":
        path.mkdir()
    with pytest.raises(InputError, match=f"^shards: the fit shard {KEY} .*run again") as raised:
        store.checked("fit", KEY, "txt", shard.files["txt"])
    assert SECRET[1:] not in str(raised.value)
    assert (store.finished("fit", KEY) is None) == (damage in ("gone", "folder"))


def test_a_discarded_shard_is_made_anew(store: Store) -> None:
    make(store)
    other = shard_key("fit", {}, [])
    make(store, key=other)
    store.discard("fit", KEY)
    assert store.finished("fit", KEY) is None
    assert not store.file("fit", KEY, "txt").exists()
    assert store.finished("fit", other) is not None


def test_an_interrupted_write_leaves_the_old_file(store: Store) -> None:
    make(store, "old")

    def interrupted(path: Path) -> None:
        path.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write("fit", KEY, "txt", interrupted)
    assert store.file("fit", KEY, "txt").read_text() == "old"
    assert store.sweep() == 0


def test_what_killed_workers_leave_is_swept_away(store: Store) -> None:
    make(store)
    (Path(store.path) / "fit" / f".{KEY}.txt.0123.part").write_text("half")
    assert store.sweep() == 1
    assert store.finished("fit", KEY) is not None


def test_two_writers_of_one_shard_do_not_disturb_each_other(store: Store) -> None:
    def slow(path: Path) -> None:
        with path.open("w") as file:
            file.write("sa")
            file.flush()
            store.write("fit", KEY, "txt", lambda other: other.write_text("same"))
            file.write("me")

    assert store.write("fit", KEY, "txt", slow) == file_digest(store.file("fit", KEY, "txt"))
    assert store.file("fit", KEY, "txt").read_text() == "same"


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_keeps_what_is_finished(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    done = make(store)
    other = shard_key("fit", {}, [])

    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StorageError, match=r"the disk is full.*free some space and run"):
            make(store, key=other)
    assert store.finished("fit", KEY) == done
    assert store.finished("fit", other) is None
    assert store.sweep() == 0
    assert make(store, key=other) == store.finished("fit", other)


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


def test_other_errors_are_not_taken_for_a_full_disk(store: Store) -> None:
    with pytest.raises(FileNotFoundError), disk_space():
        Path("/nowhere/at/all").read_text()
    with pytest.raises(pl.exceptions.ColumnNotFoundError), disk_space():
        pl.DataFrame({"a": [1]}).select("b")


@pytest.mark.parametrize(
    ("stage", "key", "suffix"),
    [("../fit", KEY, "txt"), ("fit", "../" + KEY, "txt"), ("fit", KEY, "../txt"), ("fit", KEY.upper() + "G", "txt")],
)
def test_names_cannot_leave_the_folder(store: Store, stage: str, key: str, suffix: str) -> None:
    with pytest.raises(InputError, match=r"^shards: "):
        store.file(stage, key, suffix)


def test_a_receipt_is_not_overwritten_by_a_file(store: Store) -> None:
    with pytest.raises(InputError, match="receipts"):
        store.write("fit", KEY, "json", lambda path: path.write_text("{}"))
