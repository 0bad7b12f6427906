"""Eigenpairs of symmetric matrices: orthogonal however close the eigenvalues lie, and measured from above."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, arb_mat, ctx

from families import clustered
from shoal.numerics.eigenpairs import EPS, eigenpair_errors, eigenpairs, eigh


def exact_flaws(matrix, values, rows):
    """‖H U − U Λ‖_F and ‖Uᵀ U − I‖_F of the stored doubles, in 300 bits."""
    with ctx.workprec(300):
        u = arb_mat(rows.T.tolist())
        residual = arb_mat(matrix.tolist()) * u - u * arb_mat(np.diag(values).tolist())
        skew = u.transpose() * u - arb_mat(np.eye(len(values)).tolist())
        return tuple(sum((x * x for x in m.entries()), arb(0)).sqrt().lower() for m in (residual, skew))


def cases():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 20, 40):
        x = rng.standard_normal((n, n))
        yield f"random {n}", x + x.T
    for seed in (871, 5528):
        yield f"clustered {seed}", clustered(seed)
    yield "graded", np.outer(g := np.logspace(-12, 3, 9), g) * (x[:9, :9] + x[:9, :9].T)
    yield "zero", np.zeros((4, 4))
    yield "diagonal", np.diag([3.0, 3.0, -1e-300, 0.0])
    yield "ones", np.ones((30, 30))
    yield "huge", 1e300 * (x[:5, :5] + x[:5, :5].T)
    yield "tiny", 1e-200 * (x[:5, :5] + x[:5, :5].T)
    yield "blocks", np.kron(np.eye(10), [[0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize(("name", "matrix"), list(cases()), ids=[name for name, _ in cases()])
def test_flaws_are_small_and_not_understated(name, matrix):
    values, rows = eigenpairs(matrix)
    n, size = len(values), np.abs(np.linalg.eigvalsh(matrix)).max()
    assert np.abs(np.sort(values) - np.linalg.eigvalsh(matrix)).max() <= 4 * n * EPS * size
    residual, skew = eigenpair_errors(matrix, values, rows)
    exact_residual, exact_skew = exact_flaws(matrix, values, rows)
    assert arb(residual) >= exact_residual
    assert arb(skew) >= exact_skew
    assert skew <= n * (n + 20) * EPS
    assert residual <= n * (n + 20) * EPS * size


def test_flaws_see_vectors_that_are_not_orthogonal():
    matrix = clustered(871)
    values, rows = eigenpairs(matrix)
    rows[3] += 1e-8 * rows[4]
    residual, skew = eigenpair_errors(matrix, values, rows)
    exact_residual, exact_skew = exact_flaws(matrix, values, rows)
    assert arb(residual) >= exact_residual
    assert 1e-8 < float(exact_skew) <= skew < 2e-8


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_holds_no_numbers_has_no_bound(bad):
    matrix = np.eye(3)
    matrix[0, 1] = matrix[1, 0] = bad
    assert not all(math.isfinite(x) for x in eigenpair_errors(matrix, *eigenpairs(matrix)))


def test_eigh_answers_where_lapack_does_not(monkeypatch):
    stack = np.array([clustered(871), clustered(871)[::-1, ::-1]])
    expected = np.linalg.eigvalsh(stack)

    def refuse(_):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(np.linalg, "eigh", refuse)
    for matrices, wanted in ((stack, expected), (stack[0], expected[0])):
        values, vectors = eigh(matrices)
        assert np.abs(values - wanted).max() < 1e-15
        assert np.abs((vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2) - matrices).max() < 1e-14
