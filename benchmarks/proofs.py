"""Milliseconds per directed edge of a proof, and of its check; seconds for mechanism files given as arguments."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import shoal
from shoal import archive
from shoal.mechanism.releasable import laws_file_parts
from shoal.proofs import checker


def pair(k: int, seed: int) -> shoal.GaussianClasses:
    """Two laws of k entries, alike, with deviations over two decades."""
    rng = np.random.default_rng([seed, k])
    turn = np.linalg.qr(rng.standard_normal((k, k)))[0]
    half = turn * np.sqrt(10.0 ** rng.uniform(-4.0, 0.0, k))
    other = half @ (np.linalg.qr(rng.standard_normal((k, k)))[0] * np.exp(0.5 / k**0.5 * rng.standard_normal(k)))
    gap = half @ rng.standard_normal(k) / k**0.5
    return shoal.GaussianClasses(np.array([np.zeros(k), gap]), np.array([half @ half.T, other @ other.T]))


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return call(), time.process_time() - start


def main(files: list[str]) -> None:
    print("| entries | answer: ms per directed edge | table: ms per pair | checking an answer | relative width |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for k in (4, 12, 24, 48):
        spent, widths = np.zeros((3, 4)), []
        for seed in range(4):
            classes = pair(k, seed)
            graph = shoal.NeighborGraph.complete(classes.labels)
            proof, spent[0, seed] = timed(lambda c=classes, g=graph: shoal.prove(c, g, 1.0))
            spent[0, seed] /= 2
            _, spent[1, seed] = timed(lambda c=classes, g=graph: shoal.prove(c, g, 1.0, "table"))
            content = archive.pack(*laws_file_parts(classes, np.array([[0, 1]])))
            _, spent[2, seed] = timed(lambda p=proof, c=content: checker.check(json.loads(p.to_json()), c))
            spent[2, seed] /= max(len(proof.edges), 1)
            widths.append((proof.delta_upper - proof.delta_lower) / proof.delta_upper)
        answer, table, check = 1e3 * np.median(spent, axis=1)
        print(f"| {k} | {answer:.0f} | {table:.0f} | {check:.0f} | {max(widths):.1e} |", flush=True)
    for file in files:
        mechanism = shoal.Mechanism.load(file)
        proof, seconds = timed(lambda m=mechanism: shoal.prove(m))
        print(
            f"{seconds:.1f} s: {len(proof.edges)} proved, {len(proof.excluded)} excluded, {len(proof.equal)} equal; "
            f"{proof}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
