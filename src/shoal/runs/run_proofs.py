"""Proofs of a run: one per shard, from its mechanism file, into the run's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.errors import InputError
from shoal.mechanism import Mechanism
from shoal.mechanism_reader import load
from shoal.proofs.proof import Proof, prove

#: Where proofs lie in the folder of a run.
FOLDER = "proof"


def proved(mechanisms: Sequence[str], folder: Path, epsilon: float | None, scope: str | None) -> dict[str, Proof]:
    """Prove each mechanism file and write ``proof/NAME.json``; the proofs by the names of the files."""
    found: dict[str, Proof] = {}
    for path in mechanisms:
        mechanism = load(path)
        if isinstance(mechanism, Mechanism) and mechanism.graph.n_edges:
            name = Path(path).stem
            found[name] = prove(mechanism, None, epsilon, scope)
            (folder / FOLDER).mkdir(exist_ok=True, mode=0o700)
            found[name].save(folder / FOLDER / f"{name}.json")
    if not found:
        raise InputError("dir: this run has no Gaussian mechanism with neighbors, and nothing to prove")
    return found
