"""Check a receipt of a shoal service from outside: neither shoal nor its database is needed, only this file.

    python receipt_verifier.py RECEIPT.json CHECKPOINT.json

RECEIPT is what `GET /v1/receipts/{id}/proof` gave, with the answer inside; CHECKPOINT what `GET /v1/ledger/head` gave
at that time, or one written down before, whose size the proof was asked for with `?size=`. It ends with 0 where
everything holds and with 1, and a sentence, where not:

1. the answer is the one committed to: its commitment leads to the root in the receipt's ledger entry;
2. the entry is on record: its hash is that of its content, and leads to the root of the checkpoint.

Trees are those of RFC 9162 with SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

ENTRY = "shoal ledger 1"


class NotVerified(Exception):
    """Says what does not hold."""


def canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def leaf(data: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of_path(data: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """The root that an inclusion proof leads to (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        raise NotVerified("the index lies outside of the tree")
    place, last, root = index, size - 1, leaf(data)
    for step in path:
        if last == 0:
            raise NotVerified("the inclusion proof is too long")
        if place % 2 or place == last:
            root = node(step, root)
            while place % 2 == 0 and place:
                place, last = place // 2, last // 2
        else:
            root = node(root, step)
        place, last = place // 2, last // 2
    if last:
        raise NotVerified("the inclusion proof is too short")
    return root


def check_receipt(proof: dict[str, Any], checkpoint: dict[str, Any]) -> None:
    """That the answer in a proof is on record under a checkpoint."""
    receipt, entry = proof["receipt"], proof["receipt"]["entry"]
    payload = json.loads(entry["payload"])
    answer = {"question": receipt["question"], "handle": receipt["handle"], "answer": proof["answer"]}
    inside = receipt["inside"]
    root = root_of_path(canonical(answer), inside["index"], inside["size"], _path(inside["path"]))
    if root.hex() != payload["answers"]:
        raise NotVerified("the answer is not the one that the receipt commits to")
    if payload["question"] != receipt["question"] or payload["receipt"] != receipt["id"]:
        raise NotVerified("the entry is that of another receipt")
    parts = (ENTRY, str(entry["seq"]), entry["kind"], entry["previous"], entry["payload"])
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    if digest != entry["hash"] or entry["kind"] != "receipt":
        raise NotVerified("the entry was altered: its content does not give its hash")
    inclusion = proof["inclusion"]
    if inclusion["size"] != checkpoint["size"]:
        raise NotVerified("the proof is for a checkpoint of another size")
    root = root_of_path(bytes.fromhex(digest), entry["seq"] - 1, inclusion["size"], _path(inclusion["path"]))
    if root.hex() != checkpoint["root"]:
        raise NotVerified("the entry is not on record under this checkpoint")


def _path(steps: list[str]) -> list[bytes]:
    return [bytes.fromhex(step) for step in steps]


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__)
        return 2
    try:
        proof, checkpoint = [json.loads(Path(name).read_text(encoding="utf-8")) for name in arguments]
        check_receipt(proof, checkpoint)
    except NotVerified as problem:
        print(f"NOT verified: {problem}")
        return 1
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        print("NOT verified: a file cannot be read, or lacks a part")
        return 1
    print(f"verified: the answer is on record as entry {proof['receipt']['entry']['seq']} of {checkpoint['size']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
