"""The file of a family of laws and its edges, for proofs about laws that are not those of a mechanism."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal import archive
from shoal.classes import GaussianClasses
from shoal.mechanism_file import law_arrays
from shoal.validation import IndexArray

FORMAT = "shoal laws"
VERSION = 1


def digest(classes: GaussianClasses, pairs: IndexArray) -> str:
    """SHA-256 over every parameter and the edges, as positions of labels."""
    return archive.digest(*_parts(classes, pairs))


def content(classes: GaussianClasses, pairs: IndexArray) -> bytes:
    """The file, for the checker."""
    return archive.packed(*_parts(classes, pairs))


def _parts(classes: GaussianClasses, pairs: IndexArray) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays = {"means": classes.means, "edges": np.asarray(pairs, dtype=np.int64), **law_arrays(classes)}
    return {"format": FORMAT, "version": VERSION, "labels": list(classes.labels)}, arrays
