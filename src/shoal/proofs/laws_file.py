"""The file of a family of laws and its edges, for proofs about laws that are not those of a mechanism."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.laws.classes import GaussianClasses
from shoal.mechanism.mechanism_file import law_arrays
from shoal.validation import IndexArray

FORMAT = "shoal laws"
VERSION = 1


def parts(classes: GaussianClasses, pairs: IndexArray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of the file: every parameter and the edges, as positions of labels."""
    arrays = {"means": classes.means, "edges": np.asarray(pairs, dtype=np.int64), **law_arrays(classes)}
    return {"format": FORMAT, "version": VERSION, "labels": list(classes.labels)}, arrays
