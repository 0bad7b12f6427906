"""Receipts checked from outside, by the one-file verifier and the trees behind it."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from callers import KeyHolder
from hypothesis import given, settings
from hypothesis import strategies as st
from live import copied

import shoal
from shoal.errors import LedgerError
from shoal.product.service import receipt_verifier as verifier
from shoal.product.service import record
from shoal.product.service.questions import QuestionService
from shoal.product.service.record import Tree


def plain_root(leaves: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1, word by word."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = max(2**i for i in range(20) if 2**i < len(leaves))
    return hashlib.sha256(b"\x01" + plain_root(leaves[:k]) + plain_root(leaves[k:])).digest()


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=4), min_size=1, max_size=40))
def test_trees(leaves: list[bytes]) -> None:
    tree = Tree(leaves)
    n = len(leaves)
    assert tree.root() == plain_root(leaves)
    for size in {1, n // 2 or 1, n}:
        assert tree.root(size) == plain_root(leaves[:size])
    for index in range(n):
        path = tree.inclusion(index, n)
        assert verifier.root_of_path(leaves[index], index, n, path) == tree.root()
        assert verifier.root_of_path(leaves[index] + b"x", index, n, path) != tree.root()


def outcome(folder: Path, *documents: object) -> int:
    """The verifier's exit code for documents as files."""
    names = [str(folder / f"{i}.json") for i in range(len(documents))]
    for name, content in zip(names, documents, strict=True):
        Path(name).write_text(json.dumps(content))
    return verifier.main(names)


def test_from_outside(owner: KeyHolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ada = owner.grants()
    earlier = ada.get("/v1/ledger/head")
    body = ada.asks(ada.handles()[3]).json()
    proof, head = ada.get(f"/v1/receipts/{body['receipt']['id']}/proof"), ada.get("/v1/ledger/head")
    assert proof["checkpoint"] == head
    assert outcome(tmp_path, body, proof, head) == 0
    assert outcome(tmp_path, body | proof, head) == 0
    assert outcome(tmp_path, body, proof | {"unit": body["unit"]}, head) == 1  # the same field in both files
    assert outcome(tmp_path, body, proof, {**head, "root": earlier["root"]}) == 1
    assert outcome(tmp_path, body, head) == outcome(tmp_path, body, [], head) == 1
    # Once written down, a checkpoint is proved from later on as well; one that does not have the entry is not.
    owner.grants("ben")
    again = ada.get(f"/v1/receipts/{body['receipt']['id']}/proof?size={head['size']}")
    assert outcome(tmp_path, body, again, head) == 0
    assert outcome(tmp_path, body, proof, ada.get("/v1/ledger/head")) == 1
    shown = capsys.readouterr().out
    assert "verified: the answer with its question, unit, error, times and statement is on record" in shown
    assert outcome(tmp_path, body, proof, head) == 0
    text = (tmp_path / "0.json").read_text()
    (tmp_path / "0.json").write_text(text.replace('"unit":', '"unit": "MW", "unit":', 1))
    assert verifier.main([str(tmp_path / f"{i}.json") for i in range(3)]) == 1  # readers would differ in the unit


def changed_once(content: Any) -> Iterator[tuple[str, Any]]:
    """Everything that differs from a JSON document in one place, by the place."""
    if isinstance(content, dict):
        yield ".more", content | {"more": 1}
        for name, value in content.items():
            yield f".{name} missing", {key: one for key, one in content.items() if key != name}
            yield from ((f".{name}{where}", content | {name: other}) for where, other in changed_once(value))
    elif isinstance(content, list):
        yield ".longer", [*content, content[-1] if content else 0]
        yield ".shorter", content[:-1]
        for place, value in enumerate(content):
            for where, other in changed_once(value):
                yield f"[{place}]{where}", [*content[:place], other, *content[place + 1 :]]
    else:
        others: list[Any] = [None, 0, 1, "", True, False]
        if isinstance(content, str):
            others += [content + " ", content.upper(), content[1:], content.replace("1", "2")]
        elif content is not None:
            others += [content + 1, content - 1, -content, float(content), str(content), math.nextafter(content, 9e99)]
        yield from ((f" = {other!r}", other) for other in others if json.dumps(other) != json.dumps(content))


@pytest.mark.parametrize("of", ["row", "last row", "table"])
def test_every_change_in_one_field_is_refused(owner: KeyHolder, of: str) -> None:
    """Statement, unit, times, question and handle too, wherever in the document they stand, of a row and of a table."""
    ada = owner.grants()
    body = ada.asks({"row": ada.handles()[0], "last row": ada.handles()[-1], "table": None}[of]).json()
    whole = body | ada.get(f"/v1/receipts/{body['receipt']['id']}/proof")
    head = ada.get("/v1/ledger/head")
    verifier.check_receipt(whole, head)
    confirmed, tried = [], 0
    for where, other in changed_once(whole):
        tried += 1
        try:
            verifier.check_receipt(other, head)
        except verifier.NotVerified:
            continue
        confirmed.append(where)
    assert not confirmed
    assert tried > 500
    for where, other in changed_once(head):
        if where != ".more":
            with pytest.raises(verifier.NotVerified):
                verifier.check_receipt(whole, other)


def test_an_old_copy_and_a_rewritten_ledger_are_refused(
    owner: KeyHolder, desk: QuestionService, runs: Path, tmp_path: Path
) -> None:
    desk.record.compare_checkpoints()
    old = tmp_path / "old.db"
    copied(tmp_path / "ledger.db", old)
    owner.grants()
    with shoal.Ledger.open(f"sqlite:///{old}") as restored, pytest.raises(LedgerError, match="old copy"):
        QuestionService(restored, runs).record.compare_checkpoints()
    with shoal.Ledger.open(f"sqlite:///{old}") as rewritten:
        for _ in range(3):
            rewritten.budget(2.0, 1e-3)
        with pytest.raises(LedgerError, match="rewritten"):
            QuestionService(rewritten, runs).record.compare_checkpoints()
    with shoal.Ledger.open(f"sqlite:///{tmp_path}/other.db") as other, pytest.raises(LedgerError, match="of another"):
        QuestionService(other, runs).record.compare_checkpoints()


def test_an_old_copy_is_refused_from_whichever_folder_it_is_served(
    owner: KeyHolder, ledger: shoal.Ledger, runs: Path, tmp_path: Path
) -> None:
    """Shown from one folder and killed: another folder, which has no checkpoints, does not start on the old copy."""
    file, old, link = tmp_path / "ledger.db", tmp_path / "old.db", tmp_path / "link.db"
    copied(file, old)
    owner.grants()
    ledger.close()
    copied(old, file)
    link.symlink_to(file)
    for folder in (runs, runs / "january", tmp_path / "elsewhere"):
        for place in (file, link):
            with shoal.Ledger.open(place) as restored, pytest.raises(LedgerError, match="old copy"):
                QuestionService(restored, folder).record.compare_checkpoints()
    moved = tmp_path / "moved.db"  # and the served folder knows it wherever the copy is put
    copied(old, moved)
    for folder in (runs, runs / "january"):
        with shoal.Ledger.open(moved) as restored, pytest.raises(LedgerError, match="old copy"):
            QuestionService(restored, folder).record.compare_checkpoints()
    (runs / "checkpoints.jsonl").rename(runs / "january" / "checkpoints.jsonl")  # served alone at first
    with shoal.Ledger.open(moved) as restored, pytest.raises(LedgerError, match="old copy"):
        QuestionService(restored, runs).record.compare_checkpoints()


def test_checkpoints_of_a_ledger_on_a_server_are_in_the_data_directory(
    desk: QuestionService, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(record, "database_file", lambda _: None)
    beside, within = record.LedgerRecord(desk.ledger, runs).files
    assert within == runs / "checkpoints.jsonl"
    assert beside.name == f"{desk.ledger.identity}-checkpoints.jsonl"
    assert (sys.platform != "linux") or beside.is_relative_to(tmp_path / "data")


def test_checkpoints_survive_a_line_cut_short_and_refuse_a_damaged_one(desk: QuestionService, runs: Path) -> None:
    file = runs / "checkpoints.jsonl"
    desk.record.compare_checkpoints()
    assert file.stat().st_mode & 0o777 == 0o600
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"ledger": "')  # killed while writing: nothing that it covers was shown
    QuestionService(desk.ledger, runs).record.compare_checkpoints()
    assert file.read_bytes().count(b"\n") == 2
    assert file.read_bytes().startswith(whole)
    for around in (runs.parent, runs / "january"):  # files of this name that are somebody else's
        (around / "checkpoints.jsonl").write_text("nonsense\n")
    QuestionService(desk.ledger, runs).record.compare_checkpoints()
    file.write_bytes(whole + b"nonsense\n")
    with pytest.raises(LedgerError, match="damaged"):
        QuestionService(desk.ledger, runs).record.compare_checkpoints()


def test_nothing_is_shown_before_its_checkpoint_is_on_disk(owner: KeyHolder, ledger: shoal.Ledger, runs: Path) -> None:
    ada = owner.grants()
    handle, file = ada.handles()[0], runs / "checkpoints.jsonl"
    content = file.read_bytes()
    file.unlink()
    file.mkdir()  # cannot be written
    answer = ada.asks(handle)
    assert (answer.status_code, "answer" in answer.json()) == (503, False)
    file.rmdir()
    file.write_bytes(content)
    charged = ledger.head.seq
    assert ada.asks(handle).status_code == 200
    assert json.loads(file.read_text().splitlines()[-1])["size"] == charged == ledger.head.seq
