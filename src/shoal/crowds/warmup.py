"""All kernels that form crowds, used once (:mod:`shoal.numerics.warmup`)."""

from __future__ import annotations

import numpy as np

from shoal.crowds.formation import crowds

LAST = "formation._sweep*.nbi"


def call() -> None:
    """Form crowds of two among six."""
    crowds(np.arange(12.0).reshape(6, 2) ** 2, 2)
