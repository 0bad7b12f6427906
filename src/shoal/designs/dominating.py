"""The matrix S of least trace with S ⪰ Σ for every Σ given: what additive noise must fill up to.

A log barrier, t Σ ln|S − Σ|, and Newton's method: with W = (S − Σ)⁻¹ the gradient is I − t Σ W and the Hessian
H[D] = t Σ W D W, solved by conjugate gradients. Z = t R^{−1/2} W R^{−1/2} with R = t Σ W is feasible in the dual,
max Σ ⟨Z, Σ⟩ subject to Σ Z = I, Z ⪰ 0, so that the bracket holds at every step.
"""

from __future__ import annotations

import numpy as np

from shoal.designs.problem import UNHURRIED, Settings
from shoal.errors import CertificationError
from shoal.validation import FloatArray

#: Entries up to which the gap is closed as far as asked, and the relative gap for more: enough for a start and a price.
FEW, COARSE = 24, 1e-6
#: Relative residual and steps of conjugate gradients.
RESIDUAL, STEPS = 1e-2, 400


def least_dominating(
    covs: FloatArray, settings: Settings = UNHURRIED, *, tolerance: float = 1e-9
) -> tuple[FloatArray, float]:
    """The dominating matrix S (k, k) of least trace for ``covs`` (n, k, k), and a lower bound on the least trace.

    They are as close as ``tolerance`` for few entries, as :data:`COARSE` for more.
    """
    n, k = covs.shape[:2]
    if n == 1:
        return covs[0].copy(), float(np.trace(covs[0]))
    scale = float(np.abs(covs).max())
    if scale == 0:
        return np.zeros((k, k)), 0.0
    work = covs / scale
    if k > FEW:
        tolerance = max(tolerance, COARSE)
    s = np.eye(k) * (float(np.linalg.eigvalsh(work).max()) + 1.0)
    t, lower = 1.0, 0.0
    with settings.ending_at_interrupt():
        while not settings.is_late:
            for _ in range(60):
                inverse = np.asarray(np.linalg.inv(s - work), dtype=np.float64)
                gradient = np.eye(k) - t * inverse.sum(axis=0)
                step = _newton_step(inverse, gradient, t, settings)
                decrement = -float((gradient * step).sum()) / t
                length = 1.0 / (1.0 + np.sqrt(max(decrement, 0.0))) if decrement > 0.1 else 1.0
                trial = s + length * step
                while np.linalg.eigvalsh(trial - work).min() <= 0:
                    length *= 0.5
                    trial = s + length * step
                s = trial
                if decrement < (1e-10 if k <= FEW else 1e-2) or settings.is_late:
                    break
            lower = max(lower, _dual_bound(s, work))
            if float(np.trace(s)) - lower < tolerance * float(np.trace(s)) or t < 1e-16:
                break
            t *= 0.1
    if np.linalg.eigvalsh(s - work).min() <= 0:
        raise CertificationError("covs: no dominating covariance was found; rescale the answer's entries")
    return np.asarray(scale * s), scale * lower


def _dual_bound(s: FloatArray, work: FloatArray) -> float:
    """A lower bound on the least trace: the dual value at the weights that S gives."""
    inverse = np.linalg.inv(s - work)
    inverse = 0.5 * (inverse + np.swapaxes(inverse, 1, 2))
    values, vectors = np.linalg.eigh(inverse.sum(axis=0))
    root = (vectors / np.sqrt(values)) @ vectors.T
    return float(((root @ inverse @ root) * work).sum()) * (1 - 1e-12)


def _newton_step(inverse: FloatArray, gradient: FloatArray, t: float, settings: Settings) -> FloatArray:
    """The Newton step D with t Σ W D W = −gradient, by conjugate gradients."""
    # Scaled by the common part: D = A E A with A = (mean of W)^{−1/2}.
    values, vectors = np.linalg.eigh(inverse.mean(axis=0))
    root = (vectors / np.sqrt(values)) @ vectors.T
    scaled = root @ inverse @ root
    target = -(root @ gradient @ root) / t
    residual, step = target.copy(), np.zeros_like(target)
    direction, size = residual.copy(), float((residual**2).sum())
    first = size
    for _ in range(STEPS):
        if size <= RESIDUAL**2 * first or settings.is_late:
            break
        image = (scaled @ direction @ scaled).sum(axis=0)
        length = size / float((direction * image).sum())
        step += length * direction
        residual -= length * image
        new = float((residual**2).sum())
        direction = residual + (new / size) * direction
        size = new
    result = root @ step @ root
    return np.asarray(0.5 * (result + result.T))
