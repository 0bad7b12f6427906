"""Draws from ARMA models, stationary from the first sample."""

from __future__ import annotations

import numpy as np

from shoal import validation
from shoal.compiled import kernel
from shoal.errors import InputError
from shoal.meters.arma.models import ArmaModels
from shoal.meters.arma.state import state_factor
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
    r, p, q = noise.shape[1] - out.shape[1], ar.shape[1], ma.shape[1]
    factor, state, phi, gain = np.empty((r, r)), np.empty(r), np.zeros(r), np.zeros(r)
    for row in range(len(ar)):
        state_factor(ar[row], ma[row], factor)
        for i in range(r):
            phi[i] = ar[row, i] if i < p else 0.0
            gain[i] = phi[i] + (ma[row, i] if i < q else 0.0)
            state[i] = 0.0
            for j in range(r):
                state[i] += factor[i, j] * noise[row, j]
        for t in range(out.shape[1]):
            e = noise[row, r + t]
            first = state[0]
            out[row, t] = std[row] * (first + e)
            for i in range(r):
                state[i] = phi[i] * first + (state[i + 1] if i + 1 < r else 0.0) + gain[i] * e
