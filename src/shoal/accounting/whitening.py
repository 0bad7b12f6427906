"""From two Gaussian laws to the spectrum of their edge, compiled.

With Σ' = L' L'ᵀ, the eigendecomposition of

    H = L'⁻¹ (Σ − Σ') L'⁻ᵀ = U diag(γ − 1) Uᵀ

gives γ − 1 with an error relative to H itself, so nearly equal covariances lose nothing, and w = Uᵀ L'⁻¹ (μ' − μ) has
w² = γ ν₀² (docs/theory.md, section 2: T = L' U Γ^{1/2}). The reverse edge is λ → −λ, w → w / √γ.

Double precision is enough while Σ' is well conditioned. :func:`refine` is for the rest: the fast answer W = L'⁻ᵀ U is a
congruence that makes both matrices nearly diagonal; carried out in double-double arithmetic it yields a pair that is
exact to working precision *and* well conditioned, and the small problem that is left is solved in double precision with
high relative accuracy (one-sided Jacobi; Demmel & Veselić 1992).
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import inlined, kernel
from shoal.validation import FloatArray

EPS = float(np.finfo(np.float64).eps)
#: Unit roundoff of a double-double operation, with room to spare.
DOUBLE_DOUBLE = 2.0**-102


@kernel
def forward_solve(lower: FloatArray, b: FloatArray) -> None:
    """Solve L X = B in place for a lower triangular L."""
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
    """H = L⁻¹ (Σ − Σ') L⁻ᵀ, symmetric."""
    n = lower.shape[0]
    y = cov - cov_base
    forward_solve(lower, y)
    h = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            h[i, j] = y[j, i]
    forward_solve(lower, h)
    for i in range(n):
        for j in range(i):
            mean = 0.5 * (h[i, j] + h[j, i])
            h[i, j] = mean
            h[j, i] = mean
    return h


@kernel
def fast(
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
    """Spectrum of the edge from N(mean, cov) to N(mean_base, cov_base) in double precision; returns U.

    ``lower`` factors cov_base and ``condition`` is the condition number of its correlation matrix: the errors of the
    factorization and the solves are within a few times its product with the unit roundoff (Higham 2002, chapter 10).
    """
    n = lower.shape[0]
    values, vectors = np.linalg.eigh(whitened_difference(lower, cov, cov_base))
    y = np.empty((n, 1))
    y[:, 0] = mean_base - mean
    forward_solve(lower, y)
    size, length = 0.0, 0.0
    for i in range(n):
        size = max(size, abs(values[i]))
        length += y[i, 0] * y[i, 0]
    relative = EPS * (2.0 * n + condition)
    for i in range(n):
        gamma = 1.0 + values[i]
        g[i] = values[i]
        total = 0.0
        for j in range(n):
            total += vectors[j, i] * y[j, 0]
        w[i] = total
        w_error[i] = relative * math.sqrt(length)
        if gamma > 8.0 * relative * size:
            lam[i] = math.log1p(values[i])
            lam_error[i] = relative * size / (gamma - relative * size)
        else:
            lam[i] = 0.0
            lam_error[i] = math.inf
    return vectors


# ---------------------------------------------------------------- double-double arithmetic (Dekker 1971, Knuth)


@inlined
def two_sum(x: float, y: float) -> tuple[float, float]:
    s = x + y
    b = s - x
    return s, (x - (s - b)) + (y - b)


@inlined
def two_product(x: float, y: float) -> tuple[float, float]:
    p = x * y
    c = 134217729.0 * x
    xh = c - (c - x)
    xl = x - xh
    c = 134217729.0 * y
    yh = c - (c - y)
    yl = y - yh
    return p, ((xh * yh - p) + xh * yl + xl * yh) + xl * yl


@inlined
def add_product(hi: float, lo: float, x: float, y_hi: float, y_lo: float) -> tuple[float, float]:
    """(hi, lo) + x · (y_hi, y_lo)."""
    p, e = two_product(x, y_hi)
    e += x * y_lo
    s, f = two_sum(hi, p)
    f += lo + e
    return two_sum(s, f)


@kernel
def congruence(w: FloatArray, s_hi: FloatArray, s_lo: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Wᵀ S W in double-double."""
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
def largest_term(frame: FloatArray, cov: FloatArray, diff: FloatArray) -> float:
    """Largest diagonal entry of |W|ᵀ (|S| + |D|) |W|: what the sums of the congruences cancel from."""
    n = frame.shape[0]
    worst = 0.0
    for i in range(n):
        total = 0.0
        for p in range(n):
            for q in range(n):
                total += abs(frame[p, i] * frame[q, i]) * (abs(cov[p, q]) + abs(diff[p, q]))
        worst = max(worst, total)
    return worst


@kernel
def orthogonalize_rows(b: FloatArray, rotation: FloatArray) -> bool:
    """One-sided Jacobi: rotate rows until they are orthogonal; the same rotations act on the rows of ``rotation``."""
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
def back_solve_transposed(lower: FloatArray, b: FloatArray) -> None:
    """Solve Lᵀ X = B in place."""
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
def cholesky(matrix: FloatArray) -> tuple[FloatArray, bool]:
    """Lower factor of a matrix scaled to unit diagonal first; the flag is False where a pivot fails."""
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


@kernel
def refine(
    lower: FloatArray,
    vectors: FloatArray,
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
    """Spectrum to nearly full working precision for an ill-conditioned pair; False where that fails.

    ``vectors`` is U of :func:`fast`; the rest is as there.
    """
    n = lower.shape[0]
    frame = vectors.copy()
    back_solve_transposed(lower, frame)
    zero = np.zeros((n, n))
    d_hi, d_lo = np.empty((n, n)), np.empty((n, n))
    for i in range(n):
        for j in range(n):
            d_hi[i, j], d_lo[i, j] = two_sum(cov[i, j], -cov_base[i, j])
    for _ in range(5):
        base_hi, base_lo = congruence(frame, cov_base, zero)
        diff_hi, diff_lo = congruence(frame, d_hi, d_lo)
        first = np.empty((n, n))
        for i in range(n):
            for j in range(n):
                s, e = two_sum(base_hi[i, j], diff_hi[i, j])
                first[i, j] = s + (e + base_lo[i, j] + diff_lo[i, j])
        small, ok = cholesky(base_hi)
        if not ok:
            return False
        h = diff_hi.copy()
        forward_solve(small, h)
        h = h.T.copy()
        forward_solve(small, h)
        size, off = 0.0, 0.0
        for i in range(n):
            for j in range(n):
                size = max(size, abs(h[i, j]))
                if i != j:
                    off = max(off, abs(base_hi[i, j]) / math.sqrt(base_hi[i, i] * base_hi[j, j]))
        near = size * n < 0.5
        if near:
            values, rotation = np.linalg.eigh(0.5 * (h + h.T))
            rotation = rotation.T.copy()
        else:
            root, ok = cholesky(first)
            if not ok:
                return False
            forward_solve(small, root)
            rotation = np.eye(n)
            if not orthogonalize_rows(root, rotation):
                return False
        if off < 1e-2:
            y = np.empty((n, 1))
            length = 0.0
            for i in range(n):
                hi, lo = 0.0, 0.0
                for p in range(n):
                    gap_hi, gap_lo = two_sum(mean_base[p], -mean[p])
                    hi, lo = add_product(hi, lo, frame[p, i], gap_hi, gap_lo)
                y[i, 0] = hi
            forward_solve(small, y)
            for i in range(n):
                length += y[i, 0] * y[i, 0]
            lost = 4.0 * n * DOUBLE_DOUBLE * largest_term(frame, cov_base, d_hi)
            equal = not np.any(d_hi)  # then γ = 1 exactly
            for i in range(n):
                total = 0.0
                for j in range(n):
                    total += rotation[i, j] * y[j, 0]
                w[i] = total
                w_error[i] = (8.0 * n * EPS + lost) * math.sqrt(length)
                if near:
                    g[i] = values[i]
                    lam[i] = math.log1p(values[i])
                    lam_error[i] = 0.0 if equal else 8.0 * n * EPS * size + 2.0 * lost
                else:
                    gamma = 0.0
                    for j in range(n):
                        gamma += root[i, j] * root[i, j]
                    lam[i] = math.log(gamma)
                    g[i] = gamma - 1.0
                    lam_error[i] = 8.0 * n * EPS + lost / (gamma - lost) if gamma > 8.0 * lost else math.inf
            return True
        # The frame was too poor: straighten it with what was just learned and try again.
        turned = rotation.T.copy()
        back_solve_transposed(small, turned)
        frame = frame @ turned
    return False
