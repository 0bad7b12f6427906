"""Laws and a claim about them as people write them down: a JSON file, and EPSILON:DELTA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import shoal

NEEDED = (
    'a mechanism file, or JSON with "means" (a row per label) and "covs" (one matrix, or one per label) or "variances" '
    'of what is released, and if need be "labels" and "edges" (pairs of labels; all of them by default)'
)


def read_claim(text: str) -> tuple[float, float]:
    """ε and δ from EPSILON:DELTA.

    >>> read_claim("1:1e-5")
    (1.0, 1e-05)
    """
    parts = text.split(":")
    try:
        epsilon, delta = map(float, parts)
    except ValueError:
        raise shoal.InputError("claim must be EPSILON:DELTA, such as 1:1e-5") from None
    return epsilon, delta


def read_laws(path: Path) -> tuple[shoal.GaussianClasses | shoal.Mechanism, shoal.NeighborGraph | None]:
    """The laws that a claim is about, with their neighbors; None for a mechanism's own."""
    from shoal import archive  # loads NumPy

    content = path.read_bytes()
    if archive.form_of(content) is not None:
        return shoal.Mechanism.from_bytes(content, f"path: {path.name}"), None
    try:
        given: Any = json.loads(content)
    except ValueError:
        raise shoal.InputError(f"{path.name} must be {NEEDED}") from None
    known = {"means", "covs", "variances", "labels", "edges"}
    spread = given.keys() & {"covs", "variances"} if isinstance(given, dict) else set()
    if len(spread) != 1 or "means" not in given or given.keys() - known:
        raise shoal.InputError(f"{path.name} must be {NEEDED}")
    labels = given.get("labels")
    if "variances" in given:
        classes = shoal.GaussianClasses.diagonal(given["means"], given["variances"], labels)
    else:
        classes = shoal.GaussianClasses(given["means"], given["covs"], labels)
    if "edges" in given:
        return classes, shoal.NeighborGraph.from_edges(classes.labels, given["edges"])
    return classes, shoal.NeighborGraph.complete(classes.labels)
