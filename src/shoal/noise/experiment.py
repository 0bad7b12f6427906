"""Noise for experiments: seeded, repeatable, and marked as not private."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray


class NotPrivate(np.ndarray[Any, np.dtype[np.float64]]):
    """An array of answers with seeded noise: for experiments and tests, never to be released.

    It computes like any array and so does what is made from it; ``repr`` says what it is, and ``np.asarray`` takes
    the mark away for those who know what they do.
    """


def seeded_noise(shape: tuple[int, ...], cov: FloatArray, seed: int) -> FloatArray:
    """Gaussian noise in double precision from a seeded generator."""
    values, vectors = eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) @ root.T)
