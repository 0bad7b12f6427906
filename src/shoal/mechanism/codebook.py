"""Codebooks: one of finitely many curves is released, with probabilities that differ by at most e^ε between labels.

Label i of a crowd gets curve c_y, a convex combination of the members' answers, with probability N_iy / 2^62, and
N_iy ≤ e^ε N_jy for all i, j, y: δ = 0 without any assumption about the data, and what is drawn is exactly what is
promised (docs/theory.md, section 11). The file of a codebook holds the answers and must be guarded like the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.curve import PrivacyCurve
from shoal.accounting.releases import SCOPES
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism import integer_probabilities as odds
from shoal.mechanism.column_generation import best_columns, mean_column
from shoal.mechanism.discrete_loss import DiscreteLoss, log_rounded_up
from shoal.mechanism.integer_probabilities import (
    WHOLE,
    Counts,
    integer_probabilities,
    probabilities,
    refine_frequencies,
)
from shoal.mechanism.releasable import Certificate, Parts, ReleaseErrors, Storable
from shoal.numerics.matrices import EPS
from shoal.rounding import exactly
from shoal.validation import FloatArray, IndexArray

#: Beyond this ε nothing is hidden, and linear programs over columns of 1 and e^−ε are too ill-scaled for doubles.
LARGEST_EPSILON = 20.0


@dataclass(frozen=True, eq=False)
class CrowdCodebook:
    """The codebook of one crowd: ``members`` (n,) positions of its labels, ``counts`` (n, m) probabilities times 2^62,
    ``curves`` (m, k), and the proved lower bound of its mean squared error, per entry.
    """

    members: IndexArray
    counts: Counts
    curves: FloatArray
    lower_bound: float

    def __post_init__(self) -> None:
        for array in (self.members, self.counts, self.curves):
            array.flags.writeable = False

    def expected_errors(self, answers: FloatArray) -> FloatArray:
        """(n,) mean squared error per entry of each member for these true answers of all labels, rounded up."""
        m, k = self.curves.shape
        squares = np.stack([((answers[self.members] - curve) ** 2).sum(axis=1) for curve in self.curves], axis=1)
        total = (probabilities(self.counts) * squares).sum(axis=1) / k
        alike = (answers[self.members] == self.curves[0]).all(axis=1) & (m == 1)
        # Squares of tiny differences vanish.
        return np.asarray(total * (1 + (k + m + 8) * EPS) + np.where(alike, 0.0, 1e-300))


@dataclass(frozen=True, eq=False)
class Codebook(Storable):
    """A frozen codebook for every label of a graph. Made by :func:`shoal.codebook`."""

    graph: NeighborGraph
    answers: FloatArray
    epsilon: float
    scope: str
    crowds: tuple[CrowdCodebook, ...]

    FORMAT = "shoal codebook"
    VERSION = 3
    has_constant_answers = True  #: true answers are constants
    times = 1  #: answers about each label that its figures are for
    output = None  #: what is released has finitely many values, see :meth:`privacy_loss`
    finite_precision_tv = 0.0  #: what is drawn is exactly what is promised

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that it can answer about, in the order of the graph."""
        return self.graph.labels

    @property
    def n_dims(self) -> int:
        """Number of entries of an answer."""
        return int(self.answers.shape[1])

    @property
    def answer_epsilon(self) -> float:
        """The ε of one answer: half of ``epsilon`` where that is about a table."""
        return self.epsilon if self.scope == "answer" else self.epsilon / 2.0

    @cached_property
    def rho(self) -> FloatArray:
        """(n,) mean squared error per entry of each label, of the stored curves and probabilities, rounded up."""
        errors = np.zeros(len(self.labels))
        for crowd in self.crowds:
            errors[crowd.members] = crowd.expected_errors(self.answers)
        errors.flags.writeable = False
        return errors

    @property
    def mean_rho(self) -> float:
        """The mean of ``rho`` over all labels, rounded up."""
        return float(math.fsum(self.rho) / len(self.rho) * (1 + 4 * EPS))

    @property
    def lower_bound(self) -> float:
        """A ``mean_rho`` that no mechanism whose answers are each ``answer_epsilon``-private goes below; rounded down.

        Crowds of more than 20 labels count with what is proved for parts of them, which is less than their best.
        """
        parts = [len(crowd.members) * crowd.lower_bound for crowd in self.crowds]
        return float(math.fsum(parts) / len(self.labels) * (1 - 8 * EPS))

    def curves(self, label: Any) -> FloatArray:
        """The curves that may be released for ``label``: those of its crowd.

        Returns:
            (m, k), the same for every label of a crowd.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.complete(["a", "b"])
        >>> shoal.codebook([[0.0], [1.0]], graph, epsilon=2.0).curves("a").round(3).tolist()
        [[0.119], [0.881]]
        """
        return self.crowd_and_row(label)[0].curves

    def probabilities(self, label: Any) -> FloatArray:
        """Probability of each of :meth:`curves` for ``label``.

        Returns:
            (m,), exact multiples of 2^−62 rounded to doubles.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.complete(["a", "b"])
        >>> shoal.codebook([[0.0], [1.0]], graph, epsilon=2.0).probabilities("a").round(3).tolist()
        [0.881, 0.119]
        """
        crowd, row = self.crowd_and_row(label)
        return probabilities(crowd.counts[row])

    def draw(self, label: Any) -> int:
        """Draw the position of one of :meth:`curves` from a cryptographic source; every draw is a release.

        Returns:
            The position y, with the probabilities of :meth:`probabilities`.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.complete(["a", "b"])
        >>> book = shoal.codebook([[0.0], [1.0]], graph, epsilon=2.0)
        >>> book.draw("a") in (0, 1)
        True
        """
        crowd, row = self.crowd_and_row(label)
        return odds.draw_position(crowd.counts[row])

    def release(self, answers: Any, labels: Any = None, /) -> FloatArray:
        """One of the curves, drawn exactly with the stored probabilities from a cryptographic source; no seed.

        ``release(label)``, or ``release(answers, labels)`` as a mechanism has it: the answers are not looked at. A
        sequence of labels gets one answer each. The same label asked twice is two releases: keep the answer.

        Returns:
            (k,), or (m, k) for m labels.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.complete(["a", "b"])
        >>> book = shoal.codebook([[0.0], [1.0]], graph, epsilon=2.0)
        >>> bool(book.release("a") in book.curves("a"))
        True
        >>> book.release(["a", "b"]).shape
        (2, 1)
        """
        wanted = answers if labels is None else labels
        several = isinstance(wanted, (list, tuple, np.ndarray)) and np.ndim(wanted) > 0
        places = [
            self.crowd_and_row(label) for label in (wanted if several else [wanted])
        ]  # refuses before anything is drawn
        curves = [crowd.curves[odds.draw_position(crowd.counts[row])] for crowd, row in places]
        return np.array(curves).reshape(len(places), self.n_dims) if several else curves[0].copy()

    @cached_property
    def classes(self) -> GaussianClasses:
        """The true answers as class laws: constants."""
        return GaussianClasses.deterministic(self.answers, self.labels)

    def prepare_release(self) -> None:
        """Do nothing: a codebook has nothing to compute before its first release."""

    def position(self, label: Any) -> int:
        """Position of a label among ``labels``; refuse a label that is not one of them."""
        crowd, row = self.crowd_and_row(label)
        return int(crowd.members[row])

    def refuse_impossible_answers(self, answers: FloatArray, positions: Sequence[int], name: str) -> None:
        """Raise InputError if a row of ``answers`` (m, k) is not the constant of the label at its position."""
        count = int((answers != self.answers[list(positions)]).any(axis=1).sum())
        if count:
            raise InputError(
                f"{name}: {count} of {len(answers)} answer(s) are not those the codebook was made for; make one of the "
                "new answers"
            )

    def can_release(self, values: FloatArray) -> bool:
        """Whether every row of ``values`` (m, k) is one of the curves of some crowd."""
        return values.shape[1:] == self.answers.shape[1:] and {row.tobytes() for row in values} <= self._curve_bytes

    @cached_property
    def _curve_bytes(self) -> set[bytes]:
        """Bytes of every curve of every crowd."""
        return {curve.tobytes() for crowd in self.crowds for curve in crowd.curves}

    def crowd_and_row(self, label: Any) -> tuple[CrowdCodebook, int]:
        """The codebook of a label's crowd, and the label's row among the members there."""
        if str(label) not in self._crowd_rows:
            raise InputError("label is not one of this codebook's labels")
        number, row = self._crowd_rows[str(label)]
        return self.crowds[number], row

    @cached_property
    def _crowd_rows(self) -> dict[str, tuple[int, int]]:
        """Number of the crowd, and row in it, of every label."""
        return {
            self.labels[member]: (number, row)
            for number, crowd in enumerate(self.crowds)
            for row, member in enumerate(crowd.members)
        }

    def for_labels(self, labels: Sequence[str]) -> Codebook:
        """The codebook of some whole crowds, given by all of their labels, in this order."""
        rows = np.array([self.position(name) for name in labels], dtype=np.intp)
        place = np.full(len(self.labels), -1, dtype=np.intp)
        place[rows] = np.arange(len(rows))
        numbers = [self._crowd_rows[name][0] for name in labels]
        crowds = tuple(replace(self.crowds[c], members=place[self.crowds[c].members]) for c in sorted(set(numbers)))
        if sorted(np.concatenate([crowd.members for crowd in crowds]).tolist()) != list(range(len(rows))):
            raise InputError("labels must be those of whole crowds: a curve is about all members of its crowd")
        graph = NeighborGraph.within_groups(labels, numbers)
        return replace(self, graph=graph, answers=self.answers[rows], crowds=crowds)

    def expected_errors(self, labels: Sequence[str] | None = None) -> ReleaseErrors:
        """Expected errors of what may be drawn for these labels, all by default."""
        chosen = list(self.labels if labels is None else labels)
        rows = [self.position(name) for name in chosen]
        away = [self.curves(name) - self.answers[row] for name, row in zip(chosen, rows, strict=True)]
        often = [self.probabilities(name) for name in chosen]
        return ReleaseErrors(
            rho=self.rho[rows],
            squares=np.stack([p @ off**2 for p, off in zip(often, away, strict=True)]) * (1 + 64 * EPS),
            biases=np.stack([p @ off for p, off in zip(often, away, strict=True)]),
            noise_alone=False,
        )

    def privacy_loss(self, one: Any, other: Any, scope: str = "answer") -> DiscreteLoss:
        """The law of the privacy loss of two labels of one crowd: answers of ``one`` against those of ``other``.

        For the scope ``"table"`` both labels' rows are there, and the loss of the second is added.
        """
        validation.choice(SCOPES, scope=scope)
        (crowd, i), (second, j) = self.crowd_and_row(one), self.crowd_and_row(other)
        if crowd is not second:
            raise InputError("one and other must be labels of one crowd: nothing is promised across crowds")
        ahead = DiscreteLoss.of(crowd.counts[i], crowd.counts[j], self.answer_epsilon)
        if scope == "answer":
            return ahead
        return ahead + DiscreteLoss.of(crowd.counts[j], crowd.counts[i], self.answer_epsilon)

    def curve(self, epsilon: Any, scope: str | None = None) -> PrivacyCurve:
        """δ(ε) over all pairs of all crowds, from the stored integers: exact up to the last rounding.

        δ is 0 from ``answer_epsilon`` on for one answer and from twice that on for a table, where the pair of laws is
        (P_i × P_j, P_j × P_i).

        Returns:
            The curve, with the worst pair at each ε; ``scope`` is the codebook's own by default.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.complete(["a", "b"])
        >>> book = shoal.codebook([[0.0], [1.0]], graph, epsilon=2.0)
        >>> print(f"{book.curve(1.0).delta_upper:.4f}", book.curve(2.0).delta_upper)
        0.5568 0.0
        >>> print(f"{book.curve(2.0, scope='table').delta_upper:.4f}")
        0.6708
        """
        scope = validation.choice(SCOPES, scope=self.scope if scope is None else scope)
        grid, scalar = validation.grid(epsilon=epsilon)
        pairs = [crowd for crowd in self.crowds if len(crowd.members) > 1]
        if not pairs:
            raise InputError("graph has no edges: there is no worst edge to report")
        worst = [
            max((_worst_pair(crowd, e, scope) for crowd in pairs), key=lambda pair: pair[0]) for e in grid.tolist()
        ]
        values = np.array([delta for delta, _, _ in worst])
        upper = np.where(values > 0.0, np.minimum(np.nextafter(values, np.inf), 1.0), 0.0)
        logs = log_rounded_up(upper)
        curve = PrivacyCurve(
            notion="dp",
            epsilon=grid,
            delta=values,
            log_delta=logs,
            delta_lower=np.maximum(values * (1 - 1e-12) - 2.0**-100, 0.0),
            delta_upper=upper,
            log_delta_upper=logs,
            worst_edge=[(self.labels[i], self.labels[j]) for _, i, j in worst],
            scope=scope,
        )
        return curve.at_first_epsilon() if scalar else curve

    released_curve = curve  #: what is drawn is exactly what is promised

    @cached_property
    def certificate(self) -> Certificate:
        """The certificate δ = 0 at ``epsilon``, for the codebook's own scope."""
        return self.certificate_for(self.scope)

    def certificate_for(self, scope: str) -> Certificate:
        """The certificate at ``epsilon`` for one scope or the other; a codebook has no cost of finite precision."""
        return Certificate.of(self.curve(self.epsilon, scope), 0.0, self)

    @cached_property
    def noise_share(self) -> float:
        """Least share, over all labels, of the error ρ that is the randomness of the draw; rounded down."""
        errors = self.expected_errors()
        drawn, total = (errors.squares - errors.biases**2).sum(axis=1), errors.squares.sum(axis=1)
        share = np.where(total > 0, drawn / np.where(total > 0, total, 1.0), 0.0)
        return max(float(share.min()) * (1 - 128 * EPS), 0.0)

    def delta_noise_alone(self, scope: str | None = None) -> float:
        """δ of the draw by itself: all of the guarantee, since answers are constants."""
        return self.certificate_for(self.scope if scope is None else scope).delta_upper

    @cached_property
    def insider_error(self) -> FloatArray:
        """(n,) zeros: curves are released exactly, and who knows all other answers solves them for the last one."""
        return np.zeros(len(self.labels))

    def file_parts(self) -> Parts:
        """Header and arrays of the file; counts, curves and bounds of all crowds lie one after another."""
        crowds = self.crowds
        arrays = {
            "edges": self.graph.edges,
            "answers": self.answers,
            "members": np.concatenate([c.members for c in crowds]).astype(np.int64),
            "sizes": np.array([c.counts.shape for c in crowds], dtype=np.int64),
            "counts": np.concatenate([c.counts.ravel() for c in crowds]),
            "curves": np.concatenate([c.curves for c in crowds]),
            "bounds": np.array([c.lower_bound for c in crowds]),
        }
        named = {"labels": list(self.labels), "epsilon": self.epsilon, "scope": self.scope}
        return {"format": self.FORMAT, "version": self.VERSION, **named}, arrays

    @classmethod
    def from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Codebook:
        """The codebook of a file; raise ValueError if its probabilities exceed its ε or parameters are impossible."""
        crowds, label, cell, row = [], 0, 0, 0
        for (n, m), bound in zip(arrays["sizes"].tolist(), arrays["bounds"].tolist(), strict=True):
            members = arrays["members"][label : label + n].astype(np.intp)
            counts = arrays["counts"][cell : cell + n * m].reshape(n, m)
            crowds.append(CrowdCodebook(members, counts, arrays["curves"][row : row + m], bound))
            label, cell, row = label + n, cell + n * m, row + m
        graph = NeighborGraph(header["labels"], arrays["edges"])
        book = cls(graph, arrays["answers"], header["epsilon"], header["scope"], tuple(crowds))
        if not book._has_valid_parameters():
            raise ValueError("impossible parameters")
        return book

    def _has_valid_parameters(self) -> bool:
        """Whether shapes and signs are those of a codebook, and its probabilities keep its ε."""
        if self.scope not in SCOPES or not (isinstance(self.epsilon, float) and 0.0 < self.epsilon < np.inf):
            return False
        members = np.concatenate([crowd.members for crowd in self.crowds])
        joined, answers = self.graph.components, self.answers
        return (
            answers.dtype == np.float64
            and answers.ndim == 2
            and len(answers) == self.graph.n_labels
            and bool(np.isfinite(answers).all())
            and sorted(members.tolist()) == list(range(self.graph.n_labels))
            and len(self.crowds) == int(joined.max(initial=-1)) + 1
            and all(
                len(np.unique(joined[crowd.members])) == 1
                and crowd.curves.dtype == np.float64
                and crowd.curves.shape == (crowd.counts.shape[1], answers.shape[1])
                and bool(np.isfinite(crowd.curves).all())
                and odds.keeps_ratio(crowd.counts, self.answer_epsilon)
                and 0.0 <= crowd.lower_bound < np.inf
                for crowd in self.crowds
            )
        )

    def __repr__(self) -> str:
        n, k = self.answers.shape
        return f"Codebook({n} labels, {k} entries, ε = {exactly(self.epsilon)})"


def codebook(
    answers: Any,
    graph: NeighborGraph,
    epsilon: float = 2.0,
    *,
    labels: Sequence[Any] | None = None,
    scope: str = "answer",
) -> Codebook:
    """The ε-private way to answer with constants that has the least mean squared error, crowd by crowd.

    A column of any ε-private kernel is a positive combination of columns with entries 1 and e^−ε, so the optimum is a
    linear program over sets of labels; it is solved by column generation (docs/theory.md, section 11).

    Args:
        answers: (n, k) true answers, one row per label.
        graph: which labels must stay indistinguishable: complete inside every crowd, as
            :meth:`NeighborGraph.within_groups` makes it.
        epsilon: the guarantee, with δ = 0; above 0 and at most 20.
        labels: the label of each row; the graph's own order by default.
        scope: what ε is about: ``"answer"``, or ``"table"``, where both rows of a pair leave and each gets ε/2.

    Returns:
        The codebook, with errors of what is stored and the proved bound beside them.

    >>> import shoal
    >>> graph = shoal.NeighborGraph.complete(["a", "b"])
    >>> book = shoal.codebook([[-1.0], [1.0]], graph, epsilon=2.0)
    >>> print(f"{book.mean_rho:.6f} {book.lower_bound:.6f}")  # 1 − tanh²(ε/2)
    0.419974 0.419974
    """
    if not isinstance(graph, NeighborGraph):
        raise InputError("graph must be a NeighborGraph")
    rows, n = validation.array(ndim=2, answers=answers), graph.n_labels
    if len(rows) != n or rows.shape[1] == 0:
        raise InputError(f"answers must hold one row per label and at least one entry: expected {n} rows")
    if float(np.abs(rows).max(initial=0.0)) > 1e150:
        raise InputError("answers must be at most 1e150: squares of larger ones exceed the range of doubles")
    epsilon = validation.positive(epsilon=epsilon)
    if epsilon > LARGEST_EPSILON:
        raise InputError(f"epsilon must be at most {LARGEST_EPSILON:g}: beyond, nothing is hidden; release the answers")
    validation.choice(SCOPES, scope=scope)
    if labels is not None:
        place = {name: i for i, name in enumerate(validation.labels(n, labels))}
        if set(place) != set(graph.labels):
            raise InputError("labels and graph must have the same labels")
        rows = rows[[place[name] for name in graph.labels]]
    order = np.argsort(graph.components, kind="stable").astype(np.intp)
    groups = np.split(order, np.flatnonzero(np.diff(graph.components[order], prepend=-1))[1:])
    if graph.n_edges != sum(len(members) * (len(members) - 1) // 2 for members in groups):
        raise InputError(
            "graph must join all labels of a crowd with each other: a codebook is one for a whole crowd. Take the "
            "graph's crowds as they are with NeighborGraph.within_groups(graph.labels, graph.components), which asks "
            "for more privacy, never for less"
        )
    each = epsilon if scope == "answer" else epsilon / 2.0
    crowds = tuple(_crowd_codebook(members, rows, each) for members in groups)
    rows.flags.writeable = False
    return Codebook(graph, rows, epsilon, scope, crowds)


def _crowd_codebook(members: IndexArray, answers: FloatArray, epsilon: float) -> CrowdCodebook:
    """The codebook of the crowd with these positions, of least mean squared error, or that of its mean alone."""
    members = members[np.lexsort(answers[members].T[::-1])]  # by value: no bit of a curve depends on who is who
    here, (n, k) = answers[members], (len(members), answers.shape[1])
    # Below e^−ε, so that the bound covers every ε-private mechanism.
    low = math.exp(-epsilon) * (1 - 4 * EPS)
    columns = mean_column(n) if n == 1 else best_columns(here, low)
    bound = columns.lower_bound / k * (1 - 4 * EPS)
    mean = CrowdCodebook(members, np.full((n, 1), WHOLE, dtype=np.int64), mean_column(n).shares @ here, bound)
    counts = None if len(columns.sets) == 1 else integer_probabilities(refine_frequencies(columns, low), epsilon)
    if counts is None:
        return mean
    book = CrowdCodebook(members, counts, columns.shares @ here, bound)
    return min(book, mean, key=lambda crowd: float(crowd.expected_errors(answers).mean()))


def _worst_pair(crowd: CrowdCodebook, epsilon: float, scope: str) -> tuple[float, int, int]:
    """(δ, i, j): the largest δ(ε) of two members, summed in integers and rounded once, and their positions."""
    if len(crowd.curves) == 1:
        return 0.0, int(crowd.members[0]), int(crowd.members[1])
    factor = odds.exp_floor(epsilon)
    counts = crowd.counts.astype(object)
    best, where = -1, (0, 1)
    n = len(counts)
    for i in range(n):
        for j in range(n):
            if i == j or (scope == "table" and j < i):
                continue
            ours, theirs = counts[i], counts[j]
            if scope == "table":
                ours, theirs = np.outer(counts[i], counts[j]).ravel(), np.outer(counts[j], counts[i]).ravel()
            above = (ours << odds.EXP_BITS) - factor * theirs
            total = int(above[above > 0].sum())
            if total > best:
                best, where = total, (i, j)
    whole = 1 << (odds.EXP_BITS + odds.BITS * (1 if scope == "answer" else 2))
    return best / whole, int(crowd.members[where[0]]), int(crowd.members[where[1]])
