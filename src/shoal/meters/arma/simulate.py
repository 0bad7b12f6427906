"""Draws from ARMA models, stationary from the first sample."""

from __future__ import annotations

import numpy as np

from shoal import validation
from shoal.compiled import kernel
from shoal.errors import InputError
from shoal.meters.arma.models import ArmaModels
from shoal.meters.arma.state import padded, state_factor
from shoal.validation import FloatArray


def simulate_arma(models: ArmaModels, n_samples: int, *, seed: int = 0) -> FloatArray:
    """One series of ``n_samples`` per model, (n, n_samples), from the exact stationary law.

    The state is drawn as C z with V = C C' (``state.py``), so there is no warm-up to throw away.
    """
    length = validation.count(n_samples=n_samples)
    if not models.ok.all():
        raise InputError("models must all be ok to simulate from them")
    generator = np.random.default_rng(validation.count(at_least=0, seed=seed))
    noise = generator.standard_normal((len(models), models.n_states + length))
    out = np.empty((len(models), length))
    _simulate_rows(models.ar.copy(), models.ma.copy(), np.sqrt(models.innovation_var), noise, out)
    return out


@kernel
def _simulate_rows(ar: FloatArray, ma: FloatArray, std: FloatArray, noise: FloatArray, out: FloatArray) -> None:
    r = noise.shape[1] - out.shape[1]
    levinson, factor = np.empty((r, r)), np.empty((r, r))
    for row in range(len(ar)):
        phi, theta = padded(ar[row], r), padded(ma[row], r)
        state_factor(phi, theta, levinson, factor)
        state = np.dot(factor, noise[row, :r])
        for t in range(out.shape[1]):
            e = noise[row, r + t]
            first = state[0]
            out[row, t] = std[row] * (first + e)
            for i in range(r):
                state[i] = phi[i] * first + (state[i + 1] if i + 1 < r else 0.0) + (phi[i] + theta[i]) * e
