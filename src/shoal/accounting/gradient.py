"""ln δ of directed edges and its gradient with respect to both laws, compiled: for optimizers, never for a claim.

With the contour fixed, weights ω_n proportional to the integrand and averages ⟨f⟩ = Re Σ ω_n f(t_n) (docs/theory.md,
section 4). In the basis E = L'⁻ᵀ U of the spectrum (Eᵀ Σ' E = I, Eᵀ Σ E = Γ, w = Eᵀ(μ' − μ)) the formulas become

    ∂/∂Σ  =  E ½[ diag(⟨t(1+t)/u⟩ g/γ) + ⟨t²(1+t)/uuᵀ⟩ ∘ wwᵀ ] Eᵀ
    ∂/∂Σ' = −E ½[ diag(⟨t(1+t)/u⟩ g)   + ⟨t(1+t)²/uuᵀ⟩ ∘ wwᵀ ] Eᵀ
    ∂/∂μ' = −∂/∂μ = E ( ⟨t(1+t)/u⟩ ∘ w )

They hold for repeated eigenvalues too, where differentiating through the eigendecomposition does not. The first pass,
:func:`log_deltas_with_trace`, keeps the spectra and contours; the second, :func:`add_log_delta_gradients`, walks the
same nodes again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.accounting.contour import contour_point, log_strip_integral, scaled_integrand
from shoal.accounting.cumulants import (
    HOCKEY,
    LEFT,
    RIGHT,
    TAIL,
    LossLaw,
    chernoff_exponent,
    cumulant_derivatives,
    loss_supremum,
    saddle_point,
)
from shoal.accounting.edges import exact_lambda_law
from shoal.accounting.spectrum import reverse_spectrum
from shoal.accounting.tails import CHERNOFF, DP, PDP_TWO_SIDED, are_laws_equal, log_saddle_estimate, log_sum_exp
from shoal.accounting.whitening import solve_transposed_in_place, spectrum_without_errors
from shoal.numerics.compilation import kernel
from shoal.validation import FloatArray, IndexArray

#: ln δ that stands for zero in the optimizer: far below anything that matters, yet finite.
NOTHING = -1e6
#: Agreement of two quadrature steps that is enough to follow a gradient.
ROUGH = 1e-7
#: Nodes whose share of the integral is below this are passed over in averages.
FAINT = 1e-13
#: Largest ln of a complement that is not taken for certainty.
NEAR_ONE = -1e-16


class Contour(NamedTuple):
    """Where one tail was integrated, as plain numbers in an array's last axis; strip 0 means no gradient.

    ``log_tail`` is ln of the tail and ``log_strip`` that of the strip's own integral, which is the complement on the
    other strip. Chernoff's bound has no contour: ``c`` is its t.
    """

    log_tail: float
    strip: float
    c: float
    curvature: float
    bend: float
    stride: float
    stop: float
    log_strip: float


SLOTS = len(Contour._fields)


class Trace(NamedTuple):
    """The values that the first pass leaves for the second, per edge: forward spectrum, U, and contours.

    ``contours`` is (edges, directions, tails, ``SLOTS``), each a :class:`Contour`. The second tail is used by two-sided
    PDP only, the second direction not in a table.
    """

    lam: FloatArray
    g: FloatArray
    w: FloatArray
    frames: FloatArray
    contours: FloatArray


def allocate_trace(n_edges: int, n_dims: int) -> Trace:
    """Return an empty trace for a number of edges, for :func:`log_deltas_with_trace` to fill."""
    lam, g, w = np.empty((3, n_edges, n_dims))
    return Trace(lam, g, w, np.empty((n_edges, n_dims, n_dims)), np.zeros((n_edges, 2, 2, SLOTS)))


@kernel
def _forward_and_reverse(lam: FloatArray, g: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return λ, g and w of an edge (first row) and of its reverse (second row), each (2, k)."""
    n = len(lam)
    lams, gs, ws, zero = np.empty((2, n)), np.empty((2, n)), np.empty((2, n)), np.zeros(n)
    for r in range(2):
        lams[r] = lam
        gs[r] = g
        ws[r] = w
    reverse_spectrum(lams[1], gs[1], ws[1], zero, zero)
    return lams, gs, ws


@kernel
def _store_contour(slots: FloatArray, contour: Contour) -> None:
    """Write a contour to the last axis of the trace's ``contours``."""
    for i in range(len(slots)):
        slots[i] = contour[i]


@kernel
def _load_contour(slots: FloatArray) -> Contour:
    """Return the contour that was stored in these slots."""
    return Contour(slots[0], slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7])


@kernel
def _store_constant_tail(slots: FloatArray, log_tail: float) -> float:
    """Store, without a contour, a tail that does not move with the laws, or not in a known way; return it."""
    _store_contour(slots, Contour(log_tail, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    return log_tail


@kernel
def _log_tail_with_contour(kind: int, side: int, x: float, law: LossLaw, slots: FloatArray) -> float:
    """Return ln of a one-sided quantity of the loss; its contour goes to ``slots``."""
    if are_laws_equal(law) or side * x >= loss_supremum(side, law):
        return _store_constant_tail(slots, -math.inf)
    if kind == TAIL and -side * x >= loss_supremum(-side, law):
        return _store_constant_tail(slots, 0.0)
    c, second = saddle_point(kind, side, x, law)
    other, second_other = saddle_point(kind, -side, x, law)
    strip = side
    if log_saddle_estimate(kind, x, other, second_other, law) < log_saddle_estimate(kind, x, c, second, law):
        strip, c, second = -side, other, second_other
    value, half, bend, stride, stop = log_strip_integral(kind, strip, x, c, second, law, -math.inf, ROUGH)
    if half == math.inf:
        return _store_constant_tail(slots, min(value, 0.0) if strip == side else 0.0)
    log_tail = min(value, 0.0) if strip == side else math.log1p(-math.exp(min(value, NEAR_ONE)))
    _store_contour(slots, Contour(log_tail, float(strip), c, second, float(bend), float(stride), float(stop), value))
    return log_tail


@kernel
def _add_contour_averages(
    kind: int, side: int, x: float, law: LossLaw, row: int, share: float, contour: Contour, d: FloatArray,
    p: FloatArray, q: FloatArray,
) -> None:  # fmt: skip
    """Add share times d = ⟨t(1+t)/u⟩, p = ⟨t²(1+t)/uuᵀ⟩, q = ⟨t(1+t)/uuᵀ⟩ of one tail (lower triangles).

    The average is over the whole law's integrand, u that of one of its rows.
    """
    strip = int(contour.strip)
    if strip == 0 or share == 0.0:
        return
    n = law.g.shape[1]
    c, bend, stride, stop = contour.c, int(contour.bend), int(contour.stride), int(contour.stop)
    scale = 1.0 / math.sqrt(contour.curvature)
    k0, _, _ = cumulant_derivatives(c, law)
    at_c = k0 - x * c
    # Half the step's normalization is common to all nodes; what is integrated is ln S or ln(1 − S).
    total = 0.0
    weights = np.empty((stop // stride + 1, 2))
    for number in range(len(weights)):
        re, im = scaled_integrand(number * stride, bend, kind, x, c, at_c, scale, law)
        if number == 0:
            re, im = 0.5 * re, 0.5 * im
        weights[number, 0] = re
        weights[number, 1] = im
        total += im
    factor = share / total
    if strip != side:
        factor *= -math.exp(contour.log_strip - contour.log_tail)
    inv_re, inv_im = np.empty(n), np.empty(n)
    for number in range(len(weights)):
        re, im = factor * weights[number, 0], factor * weights[number, 1]
        if abs(re) + abs(im) < FAINT * abs(share):
            continue
        t_re, t_im, _, _ = contour_point(number * stride, bend, c, scale)
        s_re, s_im = t_re + t_re * t_re - t_im * t_im, t_im + 2.0 * t_re * t_im
        z_re, z_im = re * s_re - im * s_im, re * s_im + im * s_re
        for i in range(n):
            u_re, u_im = 1.0 - t_re * law.g[row, i], -t_im * law.g[row, i]
            norm = 1.0 / (u_re * u_re + u_im * u_im)
            inv_re[i] = u_re * norm
            inv_im[i] = -u_im * norm
        for i in range(n):
            y_re, y_im = z_re * inv_re[i] - z_im * inv_im[i], z_re * inv_im[i] + z_im * inv_re[i]
            d[i] += y_im
            ty_re, ty_im = y_re * t_re - y_im * t_im, y_re * t_im + y_im * t_re
            for j in range(i + 1):
                q[i, j] += y_re * inv_im[j] + y_im * inv_re[j]
                p[i, j] += ty_re * inv_im[j] + ty_im * inv_re[j]


@kernel
def _log_delta_with_contours(notion: int, epsilon: float, law: LossLaw, contours: FloatArray) -> float:
    """Return ln δ of one directed edge; the contours of its tails go to ``contours``."""
    if notion == CHERNOFF:
        if are_laws_equal(law):
            return _store_constant_tail(contours[0], -math.inf if epsilon > 0.0 else 0.0)
        value, t = chernoff_exponent(epsilon, law)
        strip = float(RIGHT) if 0.0 < t < math.inf else 0.0
        _store_contour(contours[0], Contour(value, strip, t, 0.0, 0.0, 0.0, 0.0, value))
        return value
    kind = HOCKEY if notion == DP else TAIL
    right = _log_tail_with_contour(kind, RIGHT, epsilon, law, contours[0])
    if notion != PDP_TWO_SIDED:
        return right
    return min(log_sum_exp(right, _log_tail_with_contour(TAIL, LEFT, -epsilon, law, contours[1])), 0.0)


@kernel
def _average_over_contours(
    notion: int, epsilon: float, law: LossLaw, row: int, value: float, contours: FloatArray, d: FloatArray,
    p: FloatArray, q: FloatArray,
) -> None:  # fmt: skip
    """Set d, p, q to the averages of :func:`_add_contour_averages` over all tails of one directed edge's δ.

    ``row`` is the direction's row of ``law``, ``value`` its ln δ, ``contours`` those that the evaluation kept.
    """
    n = len(d)
    d[:] = 0.0
    p[:] = 0.0
    q[:] = 0.0
    if notion == CHERNOFF:
        bound = _load_contour(contours[0])
        t = bound.c
        if bound.strip != 0.0:
            for i in range(n):
                d[i] = t * (1.0 + t) / (1.0 - t * law.g[row, i])
                for j in range(i + 1):
                    q[i, j] = d[i] / (1.0 - t * law.g[row, j])
                    p[i, j] = t * q[i, j]
    elif notion == PDP_TWO_SIDED:
        right, left = _load_contour(contours[0]), _load_contour(contours[1])
        _add_contour_averages(TAIL, RIGHT, epsilon, law, row, math.exp(right.log_tail - value), right, d, p, q)
        _add_contour_averages(TAIL, LEFT, -epsilon, law, row, math.exp(left.log_tail - value), left, d, p, q)
    else:
        _add_contour_averages(
            HOCKEY if notion == DP else TAIL, RIGHT, epsilon, law, row, 1.0, _load_contour(contours[0]), d, p, q
        )
    for i in range(n):
        for j in range(i):
            p[j, i] = p[i, j]
            q[j, i] = q[i, j]


@kernel
def log_deltas_with_trace(
    notion: int, epsilons: FloatArray, factors: FloatArray, covs: FloatArray, means: FloatArray, pairs: IndexArray,
    trace: Trace, out: FloatArray,
) -> None:  # fmt: skip
    """Set out[e, direction] to ln δ of each edge in double precision, without a bracket; fill the trace.

    ``out`` and ``epsilons`` have two columns, or one for a table, in which both directions add up to one loss.
    """
    table = out.shape[1] == 1
    for e in range(len(pairs)):
        i, j = pairs[e, 0], pairs[e, 1]
        lam, g, w = trace.lam[e], trace.g[e], trace.w[e]
        _, rows, _ = spectrum_without_errors(factors[j], covs[i], covs[j], means[i], means[j], lam, g, w)
        trace.frames[e] = rows.T
        lams, gs, ws = _forward_and_reverse(lam, g, w)
        for direction in range(out.shape[1]):
            own = slice(0, 2) if table else slice(direction, direction + 1)
            law = exact_lambda_law(lams[own], gs[own], ws[own] ** 2, np.zeros_like(ws[own]))
            value = _log_delta_with_contours(notion, epsilons[e, direction], law, trace.contours[e, direction])
            out[e, direction] = NOTHING if value < NOTHING else value  # what is not a number stays so


@kernel
def add_log_delta_gradients(
    notion: int, epsilons: FloatArray, values: FloatArray, shares: FloatArray, factors: FloatArray, pairs: IndexArray,
    trace: Trace, cov_grad: FloatArray, mean_grad: FloatArray,
) -> None:  # fmt: skip
    """Add Σ shares[e, direction] · ∂ ln δ to cov_grad (labels, k, k) and mean_grad (labels, k).

    A table has one share per edge, and both directions move its one loss.
    """
    n, table = trace.lam.shape[1], shares.shape[1] == 1
    d, p, q = np.empty(n), np.empty((n, n)), np.empty((n, n))
    own, base, shift = np.empty((n, n)), np.empty((n, n)), np.empty(n)
    for e in range(len(pairs)):
        if shares[e, 0] == 0.0 and shares[e, shares.shape[1] - 1] == 0.0:
            continue
        i, j = pairs[e, 0], pairs[e, 1]
        own[:] = 0.0
        base[:] = 0.0
        shift[:] = 0.0
        lams, gs, ws = _forward_and_reverse(trace.lam[e], trace.g[e], trace.w[e])
        back = np.ones(n)
        for direction in range(2):
            # In direction 1 the edge starts at label j, and its basis is E Γ^{−1/2}.
            if direction == 1:
                for r in range(n):
                    back[r] = math.exp(-0.5 * lams[0, r])
            column = 0 if table else direction
            share = shares[e, column]
            if share == 0.0:
                continue
            sides, row = (slice(0, 2), direction) if table else (slice(direction, direction + 1), 0)
            law = exact_lambda_law(lams[sides], gs[sides], ws[sides] ** 2, np.zeros_like(ws[sides]))
            _average_over_contours(
                notion, epsilons[e, column], law, row, values[e, column], trace.contours[e, column], d, p, q
            )  # fmt: skip
            lam, g, w = lams[direction], gs[direction], ws[direction]
            first, second = (own, base) if direction == 0 else (base, own)
            for r in range(n):
                for s in range(n):
                    ww = 0.5 * share * w[r] * w[s] * back[r] * back[s]
                    first[r, s] += ww * p[r, s]
                    second[r, s] -= ww * (p[r, s] + q[r, s])
                turn = 0.5 * share * d[r] * g[r] * back[r] * back[r]
                first[r, r] += turn * math.exp(-lam[r])
                second[r, r] -= turn
                shift[r] += share * d[r] * w[r] * back[r]
        frame = trace.frames[e].copy()
        solve_transposed_in_place(factors[j], frame)
        cov_grad[i] += frame @ own @ frame.T
        cov_grad[j] += frame @ base @ frame.T
        moved = frame @ shift
        mean_grad[j] += moved
        mean_grad[i] -= moved
