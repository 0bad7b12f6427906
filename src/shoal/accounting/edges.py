"""δ of many edges at many ε: compiled loops over blocks of edges, in both directions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.accounting.cumulants import TINY_SQUARE, LossLaw
from shoal.accounting.spectrum import reverse_spectrum
from shoal.accounting.tails import log_delta_bracket
from shoal.numerics.compilation import kernel
from shoal.validation import BoolArray, FloatArray

#: A bracket wider than this, in ln δ, calls for the precise spectrum.
LOOSE = 3e-10


class EdgeBatch(NamedTuple):
    """Spectra of a block of edges over several releases: (releases, edges, directions) each.

    ``disjoint`` marks edges with an infinite loss; ``times`` (releases, edges) counts how often each release enters the
    loss of each edge, 0 where it does not.
    """

    lam: FloatArray
    g: FloatArray
    w: FloatArray
    lam_error: FloatArray
    w_error: FloatArray
    disjoint: BoolArray
    times: FloatArray


@kernel
def loss_law(batch: EdgeBatch, e: int, direction: int) -> LossLaw:
    """Return the law of the privacy loss of edge e of a batch, reversed for direction 1."""
    shape = batch.lam.shape[0], batch.lam.shape[2]
    lam, g, a = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    lam_error, shift_error, times = np.zeros(shape), np.zeros(shape), np.zeros(shape[0])
    total = 0.0
    for r in range(shape[0]):
        times[r] = batch.times[r, e]
        if times[r] == 0.0:  # not there: nor may its spectrum bound where K(t) is finite
            continue
        for i in range(shape[1]):
            lam[r, i], g[r, i], a[r, i] = batch.lam[r, e, i], batch.g[r, e, i], batch.w[r, e, i]
            lam_error[r, i], shift_error[r, i] = batch.lam_error[r, e, i], batch.w_error[r, e, i]
        if direction == 1:
            reverse_spectrum(lam[r], g[r], a[r], lam_error[r], shift_error[r])
        part = 0.0
        for i in range(shape[1]):
            if a[r, i] != 0.0:
                a[r, i] = max(a[r, i] * a[r, i], TINY_SQUARE)
            part += lam[r, i]
        total += times[r] * part
    return LossLaw(lam, g, a, times, lam_error, shift_error, total)


@kernel
def bracket_edges(
    notion: int, epsilons: FloatArray, offsets: FloatArray, batch: EdgeBatch, floors: FloatArray, out: FloatArray
) -> None:
    """Set out[e, direction, j] to (value, lower, upper) of ln δ at epsilons[j] + offsets[e, direction].

    There are as many directions as columns of ``offsets``: two, or one where both directions have the same law. What an
    elementary bound shows to lie below ``floors``, one per ε, is bounded only: (bound, −inf, bound); floors rise to the
    largest lower end of a bracket that is not loose. Without floors, an empty array, every edge gets its bracket.
    """
    for e in range(len(batch.disjoint)):
        for direction in range(offsets.shape[1]):
            law = loss_law(batch, e, direction)
            for j in range(len(epsilons)):
                value, low, high = 0.0, 0.0, 0.0
                if not batch.disjoint[e]:
                    floor = floors[j] if len(floors) > 0 else -math.inf
                    value, low, high = log_delta_bracket(notion, epsilons[j] + offsets[e, direction], law, floor)
                if len(floors) > 0 and high - low < LOOSE:
                    floors[j] = max(floors[j], low)
                out[e, direction, j, 0], out[e, direction, j, 1], out[e, direction, j, 2] = value, low, high


@kernel
def exact_lambda_law(lam: FloatArray, g: FloatArray, a: FloatArray, shift_error: FloatArray) -> LossLaw:
    """Return the loss law of a spectrum whose λ are exact, such as 0 for covariances equal by construction."""
    return LossLaw(lam, g, a, np.ones(len(lam)), np.zeros_like(lam), shift_error, lam.sum())
