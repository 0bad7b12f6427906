"""Whose row is which: the posterior of an attacker who holds a whole table.

A table has one row per label of a group, in an order that tells nothing: every assignment of labels to rows is equally
likely beforehand. With ℓ[r, A] = ln p_A(row r) the posterior of an assignment σ is proportional to exp Σ_r ℓ[r, σ(r)],
so that

    Pr(row r is A's | table) = e^{ℓ[r, A]} per(W without row r and column A) / per(W),   W = e^ℓ,

a ratio of permanents. The potentials u, v of the likeliest assignment, ℓ[r, A] ≤ u_r + v_A, change no posterior and put
every weight e^{ℓ − u − v} within [0, 1] and the permanent within [1, n!]: nothing overflows.
"""

from __future__ import annotations

import numpy as np

from shoal.numerics.compilation import kernel
from shoal.validation import FloatArray, IndexArray

#: Rows up to which marginals are exact: time and memory double with every further row.
EXACT_ROWS = 12
#: Times that rows and columns are scaled to sum to one where marginals are approximated.
SCALINGS = 30


def likeliest_assignments(log_likelihood: FloatArray) -> IndexArray:
    """Return, for log-likelihoods (tables, n rows, n labels), the label of each row in the likeliest assignment.

    The result has shape (tables, n).
    """
    from scipy.optimize import linear_sum_assignment

    columns = [linear_sum_assignment(table, maximize=True)[1] for table in log_likelihood]
    return np.array(columns, dtype=np.intp).reshape(log_likelihood.shape[:2])


def match_probabilities(log_likelihood: FloatArray, matched: IndexArray) -> FloatArray:
    """Return posterior probabilities (tables, n, n) that a row is a label's, given the likeliest assignments.

    ``matched`` (tables, n) are those of :func:`likeliest_assignments`. Exact up to :data:`EXACT_ROWS` rows, in O(n 2ⁿ)
    by summing over the sets of labels that the first rows can have. Beyond, the weights are scaled until rows and
    columns sum to one (Sinkhorn 1964): an approximation, for an attacker to act on and for no bound to rest on.
    """
    weights = np.exp(np.minimum(_subtract_potentials(log_likelihood, matched), 0.0))
    if weights.shape[1] <= EXACT_ROWS:
        out = np.empty_like(weights)
        exact_match_probabilities(weights, out)
        return out
    for _ in range(SCALINGS):
        weights /= weights.sum(axis=1, keepdims=True)
        weights /= weights.sum(axis=2, keepdims=True)
    return weights


def _subtract_potentials(log_likelihood: FloatArray, matched: IndexArray) -> FloatArray:
    """Return ℓ − u − v with potentials for which it is 0 along the likeliest assignment and nowhere above.

    In units of the matched entry, gap[r, A] is what row r gains by taking A. Its best chains of exchanges that end at a
    label, longest paths in a graph without gainful cycles, are the potentials (Bellman & Ford).
    """
    own = np.take_along_axis(log_likelihood, matched[:, :, None], axis=2)
    gap = log_likelihood - own
    tables, n, _ = gap.shape
    reached = np.zeros((tables, n))  # by label
    for _ in range(n):
        of_row = np.take_along_axis(reached, matched, axis=1)
        further = np.maximum((gap + of_row[:, :, None]).max(axis=1), reached)
        if (further == reached).all():
            break
        reached = further
    return np.asarray(gap + np.take_along_axis(reached, matched, axis=1)[:, :, None] - reached[:, None, :])


@kernel
def exact_match_probabilities(weights: FloatArray, out: FloatArray) -> None:
    """Set out[t, r, A] to Pr(row r is A's), for non-negative weights (tables, n, n) with a positive permanent.

    before[S] sums over the ways in which the first |S| rows have the labels S, after[S] over those in which the other
    rows have the other labels; both add positive terms only. Labels outside the set count 0 times, whatever is read for
    them: a branch that no processor can predict would cost three times as much.
    """
    n = weights.shape[1]
    sets = 1 << n
    size = np.zeros(sets, dtype=np.int64)
    for s in range(1, sets):
        size[s] = size[s >> 1] + (s & 1)
    before, after = np.zeros(sets), np.zeros(sets)
    for t in range(len(weights)):
        table = weights[t]
        before[0] = 1.0
        for s in range(1, sets):
            row, total = size[s] - 1, 0.0
            for a in range(n):
                total += ((s >> a) & 1) * table[row, a] * before[s ^ (1 << a)]
            before[s] = total
        out[t] = 0.0
        after[sets - 1] = 1.0
        for s in range(sets - 2, -1, -1):
            row, total = size[s], 0.0
            for a in range(n):
                term = (~(s >> a) & 1) * table[row, a] * after[s ^ (1 << a)]
                total += term
                out[t, row, a] += before[s] * term
            after[s] = total
        out[t] /= before[sets - 1]
