"""All kernels of ARMA models, used once (:mod:`shoal.numerics.warmup`)."""

from __future__ import annotations

import numpy as np

from shoal.arma.fit import fit_arma

LAST = "likelihood.profile*.nbi"


def call() -> None:
    """Fit two short series."""
    fit_arma(np.random.default_rng(0).standard_normal((2, 96)), (2, 1))
