"""From two Gaussian laws to the spectrum of their edge, compiled.

With Σ' = L' L'ᵀ, the eigendecomposition of

    H = L'⁻¹ (Σ − Σ') L'⁻ᵀ = U diag(γ − 1) Uᵀ

gives γ − 1 (``g``; ``lam`` is λ = ln γ) with an error relative to H itself, so nearly equal covariances lose nothing,
and w = Uᵀ L'⁻¹ (μ' − μ) has w² = γ ν₀² (docs/theory.md, section 2: T = L' U Γ^{1/2}). The reverse edge is λ → −λ,
w → w / √γ.

Double precision is enough while Σ' is well conditioned. :func:`refine_spectrum` is for the rest: W = L'⁻ᵀ U from
double precision is a congruence that makes both matrices nearly diagonal; carried out in double-double arithmetic it
yields a pair that is exact to working precision *and* well conditioned, and the small problem that is left is solved in
double precision with high relative accuracy (one-sided Jacobi; Demmel & Veselić 1992).
"""

from __future__ import annotations

import math

import numpy as np

from shoal.numerics.compilation import inline_kernel, kernel
from shoal.numerics.eigenpairs import eigenpair_errors, eigenpairs
from shoal.validation import FloatArray

EPS = float(np.finfo(np.float64).eps)
#: Unit roundoff of a double-double operation, with room to spare.
DOUBLE_DOUBLE = 2.0**-102


@kernel
def solve_lower_in_place(lower: FloatArray, b: FloatArray) -> None:
    """Solve L X = B for a lower triangular L; X overwrites ``b``."""
    n, m = b.shape
    for i in range(n):
        for p in range(i):
            factor = lower[i, p]
            for j in range(m):
                b[i, j] -= factor * b[p, j]
        inv = 1.0 / lower[i, i]
        for j in range(m):
            b[i, j] *= inv


@kernel
def whitened_difference(lower: FloatArray, cov: FloatArray, cov_base: FloatArray) -> FloatArray:
    """Return H = L⁻¹ (Σ − Σ') L⁻ᵀ, symmetric, for the factor L of Σ' = ``cov_base``."""
    n = lower.shape[0]
    y, h = np.empty((n, n)), np.empty((n, n))
    for i in range(n):
        for j in range(n):
            y[i, j] = cov[i, j] - cov_base[i, j]
    solve_lower_in_place(lower, y)
    for i in range(n):
        for j in range(n):
            h[i, j] = y[j, i]
    solve_lower_in_place(lower, h)
    for i in range(n):
        for j in range(i):
            mean = 0.5 * (h[i, j] + h[j, i])
            h[i, j] = mean
            h[j, i] = mean
    return h


@kernel
def spectrum_without_errors(
    lower: FloatArray,
    cov: FloatArray,
    cov_base: FloatArray,
    mean: FloatArray,
    mean_base: FloatArray,
    lam: FloatArray,
    g: FloatArray,
    w: FloatArray,
) -> tuple[FloatArray, FloatArray, float]:
    """Write the spectrum of the edge N(mean, cov) → N(mean_base, cov_base) to lam, g, w; return (H, rows of Uᵀ, ‖y‖).

    ``lower`` factors cov_base, and y = L⁻¹(mean_base − mean). λ is 0 where γ was lost. No error is bounded here.
    """
    n = lower.shape[0]
    h = whitened_difference(lower, cov, cov_base)
    values, rows = eigenpairs(h)
    y = np.empty((n, 1))
    for i in range(n):
        y[i, 0] = mean_base[i] - mean[i]
    solve_lower_in_place(lower, y)
    length = 0.0
    for i in range(n):
        length += y[i, 0] * y[i, 0]
        total = 0.0
        for j in range(n):
            total += rows[i, j] * y[j, 0]
        w[i] = total
        g[i] = values[i]
        lam[i] = math.log1p(values[i]) if values[i] > -1.0 else 0.0
    return h, rows, math.sqrt(length)


@kernel
def spectrum_in_doubles(
    lower: FloatArray,
    cov: FloatArray,
    cov_base: FloatArray,
    mean: FloatArray,
    mean_base: FloatArray,
    condition: float,
    lam: FloatArray,
    g: FloatArray,
    w: FloatArray,
    lam_error: FloatArray,
    w_error: FloatArray,
) -> FloatArray:
    """Write the spectrum of an edge in double precision to ``lam``, ``g``, ``w``, and bounds on its errors; return Uᵀ.

    ``condition``, κ, is the condition number of the correlations of cov_base, itself known to n κ units of roundoff:
    the errors of its factorization and of the solves, relative to ‖H‖ and ‖y‖, are within a few times its product with
    the unit roundoff (Higham 2002, chapters 8 and 10; scaling rows and columns changes neither). What the eigensolver
    adds is measured. The same absolute error stands at every γ: it then covers eigenvectors that turned, since |xᵀΔx| ≤
    ‖Δ‖ Σ xᵢ².
    """
    n = len(g)
    h, rows, length = spectrum_without_errors(lower, cov, cov_base, mean, mean_base, lam, g, w)
    residual, skew = eigenpair_errors(h, g, rows)
    size, total = 0.0, 0.0
    for i in range(n):
        size = max(size, abs(g[i]))
        total += abs(g[i])
    if math.isnan(total):
        size = math.nan
    unknown = n * EPS * condition
    relative = EPS * (2.0 * n + 2.0 * condition / (1.0 - unknown)) if unknown < 0.5 else math.inf
    # Equal covariances, and equal means, are so exactly.
    gamma_error = 0.0 if size == 0.0 else (relative + skew) * size + residual
    shift_error = 0.0 if length == 0.0 else (relative + skew) * length
    store_uniform_errors(gamma_error, shift_error, lam, g, lam_error, w_error)
    return rows


@kernel
def store_uniform_errors(
    gamma_error: float, shift_error: float, lam: FloatArray, g: FloatArray, lam_error: FloatArray, w_error: FloatArray
) -> None:
    """Write errors of λ and w from one of γ and of w; λ is 0 ± infinity where γ is not known to one digit."""
    for i in range(len(g)):
        gamma = 1.0 + g[i]
        w_error[i] = shift_error if shift_error < math.inf else math.inf
        if gamma > 8.0 * gamma_error:
            lam_error[i] = gamma_error / (gamma - gamma_error) * (1.0 + 4.0 * EPS)
        else:
            lam[i] = 0.0
            lam_error[i] = math.inf


# ---------------------------------------------------------------- double-double arithmetic (Dekker 1971, Knuth)


@inline_kernel
def two_sum(x: float, y: float) -> tuple[float, float]:
    """Return x + y rounded, and the rounding error, exactly (Knuth)."""
    s = x + y
    b = s - x
    return s, (x - (s - b)) + (y - b)


@inline_kernel
def two_product(x: float, y: float) -> tuple[float, float]:
    """Return x · y rounded, and the rounding error, exactly (Dekker 1971)."""
    p = x * y
    c = 134217729.0 * x
    xh = c - (c - x)
    xl = x - xh
    c = 134217729.0 * y
    yh = c - (c - y)
    yl = y - yh
    return p, ((xh * yh - p) + xh * yl + xl * yh) + xl * yl


@inline_kernel
def add_product(hi: float, lo: float, x: float, y_hi: float, y_lo: float) -> tuple[float, float]:
    """Return (hi, lo) + x · (y_hi, y_lo) as a double-double number."""
    p, e = two_product(x, y_hi)
    e += x * y_lo
    s, f = two_sum(hi, p)
    f += lo + e
    return two_sum(s, f)


@kernel
def congruence(w: FloatArray, s_hi: FloatArray, s_lo: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return Wᵀ S W in double-double arithmetic, as high and low parts, for S = s_hi + s_lo."""
    n, m = w.shape
    y_hi, y_lo = np.empty((n, m)), np.empty((n, m))
    for i in range(n):
        for j in range(m):
            hi, lo = 0.0, 0.0
            for p in range(n):
                hi, lo = add_product(hi, lo, w[p, j], s_hi[i, p], s_lo[i, p])
            y_hi[i, j] = hi
            y_lo[i, j] = lo
    m_hi, m_lo = np.empty((m, m)), np.empty((m, m))
    for i in range(m):
        for j in range(i + 1):
            hi, lo = 0.0, 0.0
            for p in range(n):
                hi, lo = add_product(hi, lo, w[p, i], y_hi[p, j], y_lo[p, j])
            m_hi[i, j] = hi
            m_hi[j, i] = hi
            m_lo[i, j] = lo
            m_lo[j, i] = lo
    return m_hi, m_lo


@kernel
def largest_absolute_row_sum(frame: FloatArray, cov: FloatArray, diff: FloatArray) -> float:
    """Return the largest row sum of |W|ᵀ (|S| + |D|) |W|, which bounds what the sums of the congruences cancel from."""
    n = frame.shape[0]
    width = np.zeros(n)
    for q in range(n):
        for j in range(n):
            width[q] += abs(frame[q, j])
    worst = 0.0
    for i in range(n):
        total = 0.0
        for p in range(n):
            part = 0.0
            for q in range(n):
                part += (abs(cov[p, q]) + abs(diff[p, q])) * width[q]
            total += abs(frame[p, i]) * part
        worst = max(worst, total)
    return worst


@kernel
def largest_off_diagonal_row_sum(matrix: FloatArray) -> float:
    """Return the largest row sum off the diagonal of a matrix scaled to unit diagonal; inf if it cannot be scaled."""
    n = matrix.shape[0]
    worst = 0.0
    for i in range(n):
        if not matrix[i, i] > 0.0:
            return math.inf
        total = 0.0
        for j in range(n):
            if j != i:
                total += abs(matrix[i, j]) / math.sqrt(matrix[i, i]) / math.sqrt(matrix[j, j])
        worst = max(worst, total)
    return worst


@kernel
def orthogonalize_rows(b: FloatArray, rotation: FloatArray) -> bool:
    """Rotate the rows of ``b`` until they are orthogonal (one-sided Jacobi); whether that succeeded.

    The same rotations act on the rows of ``rotation``.
    """
    n, m = b.shape
    for _ in range(60):
        worst = 0.0
        for p in range(n - 1):
            for q in range(p + 1, n):
                alpha, beta, dot = 0.0, 0.0, 0.0
                for j in range(m):
                    alpha += b[p, j] * b[p, j]
                    beta += b[q, j] * b[q, j]
                    dot += b[p, j] * b[q, j]
                relative = abs(dot) / math.sqrt(alpha * beta)
                worst = max(worst, relative)
                if relative > EPS:
                    zeta = (beta - alpha) / (2.0 * dot)
                    t = math.copysign(1.0, zeta) / (abs(zeta) + math.sqrt(1.0 + zeta * zeta))
                    cos = 1.0 / math.sqrt(1.0 + t * t)
                    sin = cos * t
                    for j in range(m):
                        x, y = b[p, j], b[q, j]
                        b[p, j] = cos * x - sin * y
                        b[q, j] = sin * x + cos * y
                    for j in range(rotation.shape[1]):
                        x, y = rotation[p, j], rotation[q, j]
                        rotation[p, j] = cos * x - sin * y
                        rotation[q, j] = sin * x + cos * y
        if worst < 4.0 * EPS:
            return True
    return False


@kernel
def solve_transposed_in_place(lower: FloatArray, b: FloatArray) -> None:
    """Solve Lᵀ X = B for a lower triangular L; X overwrites ``b``."""
    n, m = b.shape
    for i in range(n - 1, -1, -1):
        for p in range(i + 1, n):
            factor = lower[p, i]
            for j in range(m):
                b[i, j] -= factor * b[p, j]
        inv = 1.0 / lower[i, i]
        for j in range(m):
            b[i, j] *= inv


@kernel
def scaled_cholesky(matrix: FloatArray) -> tuple[FloatArray, bool]:
    """Return the lower Cholesky factor, computed at unit diagonal, and whether every pivot is positive."""
    n = matrix.shape[0]
    out = np.zeros((n, n))
    scale = np.empty(n)
    for i in range(n):
        if not matrix[i, i] > 0.0:
            return out, False
        scale[i] = math.sqrt(matrix[i, i])
    for j in range(n):
        for i in range(j, n):
            total = matrix[i, j] / scale[i] / scale[j] if i != j else 1.0
            for p in range(j):
                total -= out[i, p] * out[j, p]
            if i == j:
                if not total > 0.0:
                    return out, False
                out[j, j] = math.sqrt(total)
            else:
                out[i, j] = total / out[j, j]
    for i in range(n):
        for j in range(i + 1):
            out[i, j] *= scale[i]
    return out, True


#: Row sums off the unit diagonal up to which a matrix counts as straightened: its condition number is below 1.3, so
#: that factors and solves have errors of a few units of roundoff in every entry.
STRAIGHT = 0.1
#: How often the frame may be straightened; each time squares what was off, up to rounding.
ATTEMPTS = 5


@kernel
def refine_spectrum(
    lower: FloatArray,
    rows: FloatArray,
    cov: FloatArray,
    cov_base: FloatArray,
    mean: FloatArray,
    mean_base: FloatArray,
    lam: FloatArray,
    g: FloatArray,
    w: FloatArray,
    lam_error: FloatArray,
    w_error: FloatArray,
) -> bool:
    """Write the spectrum of an ill-conditioned pair to nearly full working precision; False where that fails.

    ``rows`` is Uᵀ of :func:`spectrum_in_doubles`; the rest is as there. With the covariances nearly equal H itself is
    decomposed and its errors are absolute. Otherwise they are relative to each γ: a factor I + F of the root moves λ by
    2‖F‖ at most, turns directions whose γ differ by as much, and mixes those that do not within λ's own error.
    """
    n = lower.shape[0]
    frame = rows.T.copy()
    solve_transposed_in_place(lower, frame)
    zero = np.zeros((n, n))
    d_hi, d_lo = np.empty((n, n)), np.empty((n, n))
    for i in range(n):
        for j in range(n):
            d_hi[i, j], d_lo[i, j] = two_sum(cov[i, j], -cov_base[i, j])
    for _ in range(ATTEMPTS):
        base_hi, base_lo = congruence(frame, cov_base, zero)
        diff_hi, diff_lo = congruence(frame, d_hi, d_lo)
        first = np.empty((n, n))
        for i in range(n):
            for j in range(n):
                s, e = two_sum(base_hi[i, j], diff_hi[i, j])
                first[i, j] = s + (e + base_lo[i, j] + diff_lo[i, j])
        small, ok = scaled_cholesky(base_hi)
        if not ok:
            return False
        h = diff_hi.copy()
        solve_lower_in_place(small, h)
        h = h.T.copy()
        solve_lower_in_place(small, h)
        size = 0.0  # at least ‖H‖
        for i in range(n):
            total = 0.0
            for j in range(n):
                total += abs(0.5 * (h[i, j] + h[j, i]))
            size = max(size, total)
        near = size < 0.5
        straight = largest_off_diagonal_row_sum(base_hi) < STRAIGHT
        root = np.empty((0, 0))
        if near:
            h = 0.5 * (h + h.T)
            values, rotation = eigenpairs(h)
            residual, skew = eigenpair_errors(h, values, rotation)
        else:
            straight = straight and largest_off_diagonal_row_sum(first) < STRAIGHT
            root, ok = scaled_cholesky(first)
            if not ok:
                return False
            solve_lower_in_place(small, root)
            rotation = np.eye(n)
            if not orthogonalize_rows(root, rotation):
                return False
            values = np.empty(n)
            for i in range(n):
                gamma = 0.0
                for j in range(n):
                    gamma += root[i, j] * root[i, j]
                values[i] = gamma
            residual, skew = eigenpair_errors(np.eye(n), np.ones(n), rotation)
        if straight:
            y = np.empty((n, 1))
            length = 0.0
            for i in range(n):
                hi, lo = 0.0, 0.0
                for p in range(n):
                    gap_hi, gap_lo = two_sum(mean_base[p], -mean[p])
                    hi, lo = add_product(hi, lo, frame[p, i], gap_hi, gap_lo)
                y[i, 0] = hi
            solve_lower_in_place(small, y)
            for i in range(n):
                length += y[i, 0] * y[i, 0]
            relative = 8.0 * n * EPS
            lost = 4.0 * n * DOUBLE_DOUBLE * largest_absolute_row_sum(frame, cov_base, d_hi)
            shift_error = (relative + lost + skew) * math.sqrt(length)
            for i in range(n):
                total = 0.0
                for j in range(n):
                    total += rotation[i, j] * y[j, 0]
                w[i] = total
                g[i] = values[i] if near else values[i] - 1.0
                lam[i] = math.log1p(values[i]) if near else math.log(values[i])
            if near:
                # Equal covariances have γ = 1 exactly.
                gamma_error = (relative + skew) * size + residual + 2.0 * lost if np.any(d_hi) else 0.0
                store_uniform_errors(gamma_error, shift_error, lam, g, lam_error, w_error)
            else:
                for i in range(n):
                    w_error[i] = shift_error
                    known = values[i] > 16.0 * lost  # γ itself: 1 + g has lost the digits of a small one
                    lam_error[i] = relative + skew + 2.0 * lost / (values[i] - 2.0 * lost) if known else math.inf
            return True
        # The frame was too poor: straighten it with what was just learned and try again.
        turned = rotation.T.copy()
        solve_transposed_in_place(small, turned)
        frame = frame @ turned
    return False
