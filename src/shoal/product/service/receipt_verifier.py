"""Check a receipt of a shoal service from outside: neither shoal nor its database is needed, only this file.

    python receipt_verifier.py ANSWER.json PROOF.json CHECKPOINT.json

ANSWER is what `POST /v1/releases` gave, PROOF what `GET /v1/receipts/{id}/proof` gave (or one file with the fields of
both), CHECKPOINT what `GET /v1/ledger/head` gave at that time, or one written down before, whose size the proof was
asked for with `?size=`. It ends with 0 where everything holds and with 1, and a sentence, where not:

1. the answer (or table), its handle, times and entries are those committed to: they lead to the root in the receipt's
   ledger entry;
2. question, unit, error, statement and time of release are those of that entry;
3. the entry is on record: its hash is that of its content, and leads to the root of the checkpoint;
4. there is no further field, and none stands twice.

Trees are those of RFC 9162 with SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

ENTRY = "shoal ledger 1"
#: What is told of a handle besides its values: part of the leaf that the receipt commits to.
LEAF = ("question", "handle", "times", "entries")
#: Field of an answer -> the field of the ledger's entry that has it.
COMMON = {"question": "question", "unit": "unit", "error": "error", "statement": "statement", "released": "time"}
HASH = re.compile("[0-9a-f]{64}")


class NotVerified(Exception):
    """Says what does not hold."""


def canonical_json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def leaf_hash(data: bytes) -> bytes:
    """Hash of a leaf (RFC 9162)."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of a node from those of its two children (RFC 9162)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of_path(data: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """The root that an inclusion proof leads to (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        raise NotVerified("the index lies outside of the tree")
    place, last, root = index, size - 1, leaf_hash(data)
    for step in path:
        if last == 0:
            raise NotVerified("the inclusion proof is too long")
        if place % 2 or place == last:
            root = node_hash(step, root)
            while place % 2 == 0 and place:
                place, last = place // 2, last // 2
        else:
            root = node_hash(root, step)
        place, last = place // 2, last // 2
    if last:
        raise NotVerified("the inclusion proof is too short")
    return root


def check_receipt(proof: dict[str, Any], checkpoint: dict[str, Any]) -> None:
    """Raise unless every field of an answer with its proof is the one on record under a checkpoint.

    Fields that the record says nothing about are refused: nothing is confirmed by standing beside a receipt.
    """
    try:
        _check_fields(proof, checkpoint)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise NotVerified("a part is missing, or is not what a shoal service writes") from None


def _check_fields(proof: dict[str, Any], checkpoint: dict[str, Any]) -> None:
    """Raise NotVerified for the first field that the receipt, the entry or the checkpoint does not confirm."""
    shown = "answer" if proof["receipt"]["handle"] is not None else "table"
    _refuse_other_fields("the file", proof, {*COMMON, *LEAF, shown, "receipt", "checkpoint", "inclusion", "entry"})
    receipt, inclusion, entry = proof["receipt"], proof["inclusion"], proof["receipt"]["entry"]
    inside, payload = receipt["inside"], parse_json(entry["payload"])
    _refuse_other_fields("the receipt", receipt, {"id", "question", "handle", "inside", "entry"})
    _refuse_other_fields("the entry", entry, {"seq", "kind", "payload", "previous", "hash"})
    for tree in (inside, inclusion):
        _refuse_other_fields("an inclusion proof", tree, {"index", "size", "path"})
    _refuse_other_fields("the checkpoint", checkpoint, {"ledger", "size", "root"})

    leaf = {name: proof[name] for name in (*LEAF, shown)}
    if _root_of_proof(canonical_json(leaf), inside) != payload["answers"] or inside["size"] != payload["leaves"]:
        raise NotVerified(f"the {shown}, its handle, times or entries are not those that the receipt commits to")
    stated = {name: proof[name] for name in COMMON}
    if canonical_json(stated) != canonical_json({name: payload[COMMON[name]] for name in COMMON}):
        raise NotVerified("the question, unit, error, statement or time is not the one on record")
    if (receipt["id"], receipt["question"], receipt["handle"]) != (
        payload["receipt"],
        payload["question"],
        proof["handle"],
    ):
        raise NotVerified("the receipt is that of another answer")
    parts = (ENTRY, str(entry["seq"]), entry["kind"], entry["previous"], entry["payload"])
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    if digest != entry["hash"] or entry["kind"] != "receipt":
        raise NotVerified("the entry was altered: its content does not give its hash")
    if canonical_json(proof["entry"]) != canonical_json(entry):
        raise NotVerified("the proof is about another entry")
    if canonical_json(proof["checkpoint"]) != canonical_json(checkpoint) or inclusion["size"] != checkpoint["size"]:
        raise NotVerified("the proof is for another checkpoint, or for one of another size")
    if inclusion["index"] != entry["seq"] - 1 or _root_of_proof(bytes.fromhex(digest), inclusion) != checkpoint["root"]:
        raise NotVerified("the entry is not on record under this checkpoint")


def _refuse_other_fields(part: str, content: dict[str, Any], known: set[str]) -> None:
    """Raise NotVerified unless a part has exactly the known fields."""
    if set(content) != known:
        words = "has fields that the record says nothing about" if set(content) - known else "lacks fields"
        raise NotVerified(f"{part} {words}")


def _root_of_proof(data: bytes, tree: dict[str, Any]) -> str:
    """The root that a leaf leads to by an inclusion proof, whose numbers and hashes have one spelling each."""
    index, size, path = tree["index"], tree["size"], tree["path"]
    if type(index) is not int or type(size) is not int or not all(HASH.fullmatch(step) for step in path):
        raise NotVerified("an inclusion proof is not written as a shoal service writes it")
    return root_of_path(data, index, size, [bytes.fromhex(step) for step in path]).hex()


def parse_json(text: str) -> dict[str, Any]:
    """JSON in which no field stands twice: readers would differ in which one they take."""

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise NotVerified("a field stands twice")
        return dict(pairs)

    content: dict[str, Any] = json.loads(text, object_pairs_hook=fields)
    return content


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3):
        print(__doc__)
        return 2
    try:
        *parts, checkpoint = [parse_json(Path(name).read_text(encoding="utf-8")) for name in arguments]
        proof: dict[str, Any] = {}
        for part in parts:
            if proof.keys() & part.keys():
                raise NotVerified("both files have the same field")
            proof |= part
        check_receipt(proof, checkpoint)
    except NotVerified as problem:
        print(f"NOT verified: {problem}")
        return 1
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        print("NOT verified: a file cannot be read, or is not JSON")
        return 1
    shown = "answer" if proof["handle"] is not None else "table"
    place = f"entry {proof['receipt']['entry']['seq']} of {checkpoint['size']}"
    print(f"verified: the {shown} with its question, unit, error, times and statement is on record as {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
