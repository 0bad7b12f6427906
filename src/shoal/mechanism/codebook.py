"""A codebook: one of finitely many curves is released, with probabilities that differ by at most e^ε between labels.

For constants q_1 … q_n of a complete group: curve c_y with probability N_iy / 2^62 under label i, N_iy ≤ e^ε N_jy for
all i, j, y. δ = 0, nothing is assumed about the data, and what is drawn is exactly what is promised. No ε-private
mechanism of any kind has a mean squared error below ``lower_bound`` (docs/theory.md, section 11).

A codebook of one curve per crowd, the exactly rounded mean of its members (:meth:`Codebook.of_means`), draws nothing:
all rows of a crowd are the same numbers. That is aggregation with a least crowd; it has no ε, no δ and no certificate.

The curves are convex combinations of the members' answers. What a codebook hides is whose answer it is; the file holds
the answers and must be guarded like the data they came from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import archive, validation
from shoal.accounting.curve import PrivacyCurve
from shoal.accounting.releases import SCOPES
from shoal.errors import InputError
from shoal.files import write_private
from shoal.laws.classes import GaussianClasses
from shoal.laws.crowds import means
from shoal.laws.graph import NeighborGraph
from shoal.mechanism import codebook_file
from shoal.mechanism.atoms import LossAtoms
from shoal.mechanism.certificate import Certificate
from shoal.mechanism.odds import (
    BITS,
    EXP_BITS,
    WHOLE,
    Counts,
    counts_of,
    drawn,
    exp_floor,
    probabilities,
    refined,
)
from shoal.mechanism.program import best_columns, center_alone
from shoal.mechanism.releasable import ReleaseErrors, T, described
from shoal.numerics.matrices import EPS
from shoal.numerics.notebook import table
from shoal.rounding import upper
from shoal.validation import FloatArray, IndexArray

if TYPE_CHECKING:
    from shoal.mechanism.mechanism import Mechanism

OBJECTIVES = ("mean", "worst")
#: Beyond this ε nothing is hidden, and linear programs over columns of 1 and e^−ε are too ill-scaled for doubles.
LARGEST_EPSILON = 20.0


@dataclass(frozen=True, eq=False)
class Group:
    """The codebook of one group: ``members`` (n,) positions of its labels, ``counts`` (n, m) probabilities times 2^62,
    ``curves`` (m, k), and the proved lower bound of its objective, per entry.
    """

    members: IndexArray
    counts: Counts
    curves: FloatArray
    lower_bound: float

    def errors(self, answers: FloatArray) -> FloatArray:
        """(n,) mean squared error per entry of each member, rounded up."""
        m, k = self.curves.shape
        squares = np.stack([((answers[self.members] - curve) ** 2).sum(axis=1) for curve in self.curves], axis=1)
        total = (probabilities(self.counts) * squares).sum(axis=1) / k
        alike = (answers[self.members] == self.curves[0]).all(axis=1) & (m == 1)
        # Squares of tiny differences vanish.
        return np.asarray(total * (1 + (k + m + 8) * EPS) + np.where(alike, 0.0, 1e-300))


@dataclass(frozen=True, eq=False)
class Codebook:
    """A frozen codebook for every label of a graph. Made by :func:`shoal.codebook`, or by :meth:`of_means`.

    ``epsilon`` is None where nothing is certified: one curve per crowd.
    """

    graph: NeighborGraph
    answers: FloatArray
    epsilon: float | None
    scope: str
    objective: str
    weights: FloatArray
    groups: tuple[Group, ...]

    @classmethod
    def of_means(cls, answers: Any, graph: NeighborGraph, *, labels: Sequence[Any] | None = None) -> Codebook:
        """One curve per crowd, the exactly rounded mean of its members' answers; nothing is drawn, nothing certified.

        The curves are functions of the multiset of a crowd's answers: exchanging members changes no bit of them.

        Args:
            answers: (n, k) true answers, one row per label.
            graph: the crowds: complete inside each, as :func:`shoal.crowd_graph` makes it.
            labels: the label of each row; the graph's own order by default.

        Returns:
            A codebook with ``epsilon`` and ``certificate`` None.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.within_groups(["a", "b", "c", "d"], [0, 0, 1, 1])
        >>> book = shoal.Codebook.of_means([[0.0], [1.0], [5.0], [7.0]], graph)
        >>> book.release(["a", "b", "d"]).tolist(), book.certificate
        ([[0.5], [0.5], [6.0]], None)
        """
        if not isinstance(graph, NeighborGraph):
            raise InputError("graph must be a NeighborGraph")
        rows = _checked_answers(answers, graph.n_labels)
        if labels is not None:
            rows = rows[_order(validation.labels(len(rows), labels), graph)]
        crowds = _complete_groups(graph)
        number = np.empty(len(rows), dtype=np.int64)
        number[np.concatenate(crowds)] = np.repeat(np.arange(len(crowds)), [len(members) for members in crowds])
        curves, weights = means(rows, number), np.ones(len(rows))
        for array in (rows, curves, weights):
            array.flags.writeable = False
        alike = {n: _one_curve(n) for n in {len(members) for members in crowds}}
        groups = tuple(Group(members, alike[len(members)], curves[c : c + 1], 0.0) for c, members in enumerate(crowds))
        return cls(graph, rows, None, "table", "mean", weights, groups)

    # ------------------------------------------------------------------ what it is about

    @property
    def labels(self) -> tuple[str, ...]:
        """Whom it can answer about, in the order of the graph."""
        return self.graph.labels

    @property
    def n_dims(self) -> int:
        """Entries of an answer."""
        return int(self.answers.shape[1])

    @property
    def constant(self) -> bool:
        """True: a codebook is made for constants."""
        return True

    @property
    def times(self) -> int:
        """One answer about each label."""
        return 1

    @property
    def output(self) -> None:
        """None: what is released has finitely many values, see :meth:`losses`."""
        return None

    @property
    def answer_epsilon(self) -> float:
        """The ε of one answer: half of ``epsilon`` where that is about a table, 0 where all get the same curve."""
        if self.epsilon is None:
            return 0.0
        return self.epsilon if self.scope == "answer" else self.epsilon / 2.0

    def facts(self) -> dict[str, Any]:
        """Plain figures of the codebook, as JSON: for the owner."""
        method = "codebook" if self.epsilon is not None else "crowd means"
        most = max((len(group.curves) for group in self.groups), default=0)
        return described(self, method) | {"epsilon": self.epsilon, "most_curves": most}

    def by_kind(self, *, mechanism: Callable[[Mechanism], T], codebook: Callable[[Codebook], T]) -> T:
        """The result of ``codebook`` for this."""
        return codebook(self)

    # ------------------------------------------------------------------ what it does

    @cached_property
    def rho(self) -> FloatArray:
        """(n,) mean squared error per entry of each label, of the stored curves and probabilities, rounded up."""
        errors = np.zeros(len(self.labels))
        for group in self.groups:
            errors[group.members] = group.errors(self.answers)
        errors.flags.writeable = False
        return errors

    @property
    def mean_rho(self) -> float:
        """The mean of ``rho`` with the labels' weights, rounded up."""
        return float(math.fsum(self.weights * self.rho) / math.fsum(self.weights) * (1 + 4 * EPS))

    @property
    def lower_bound(self) -> float:
        """What no mechanism whose answers are each ``answer_epsilon``-private can go below, proved, rounded down.

        Of ``mean_rho`` for the objective "mean", of the largest ``rho`` for "worst". Groups of more than 20 labels
        count with what is proved for parts of them, which is less than their best.
        """
        if self.objective == "worst":
            return max((group.lower_bound for group in self.groups), default=0.0)
        parts = [math.fsum(self.weights[group.members]) * group.lower_bound for group in self.groups]
        return float(math.fsum(parts) / math.fsum(self.weights) * (1 - 8 * EPS))

    def curves(self, label: Any) -> FloatArray:
        """What may be released for ``label``: the curves of its group.

        Returns:
            (m, k), the same for every label of a group.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.complete(["a", "b"])
        >>> shoal.codebook([[0.0], [1.0]], graph, epsilon=2.0).curves("a").round(3).tolist()
        [[0.119], [0.881]]
        """
        return self.place(label)[0].curves

    def probabilities(self, label: Any) -> FloatArray:
        """How often each of :meth:`curves` is released for ``label``.

        Returns:
            (m,), exact multiples of 2^−62 rounded to doubles.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.complete(["a", "b"])
        >>> shoal.codebook([[0.0], [1.0]], graph, epsilon=2.0).probabilities("a").round(3).tolist()
        [0.881, 0.119]
        """
        group, row = self.place(label)
        return probabilities(group.counts[row])

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
        group, row = self.place(label)
        return drawn(group.counts[row])

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
        if not (isinstance(wanted, (list, tuple, np.ndarray)) and np.ndim(wanted) > 0):
            return np.array(self.curves(wanted)[self.draw(wanted)])
        places = [self._placed(label) for label in wanted]  # refuses before anything is drawn
        released = self._first_curves[[number for number, _ in places]]
        for i, (number, row) in enumerate(places):
            group = self.groups[number]
            if len(group.curves) > 1:
                released[i] = group.curves[drawn(group.counts[row])]
        return released

    @cached_property
    def classes(self) -> GaussianClasses:
        """The true answers as class laws: constants."""
        return GaussianClasses.deterministic(self.answers, self.labels)

    def prepare(self) -> None:
        """A codebook has nothing to compute before its first release."""

    def position(self, label: Any) -> int:
        """The place of a label among ``labels``."""
        group, row = self.place(label)
        return int(group.members[row])

    def refuse_excluded(self, answers: FloatArray, positions: Sequence[int], name: str) -> None:
        """Raise where an answer, (m, k) in all, is not the constant of the label at its position."""
        count = int((answers != self.answers[list(positions)]).any(axis=1).sum())
        if count:
            raise InputError(
                f"{name}: {count} of {len(answers)} answer(s) are not those the codebook was made for; make one of the "
                "new answers"
            )

    def can_release(self, values: FloatArray) -> bool:
        """Whether every row of ``values``, (m, k), is one of the curves."""
        return values.shape[1:] == self.answers.shape[1:] and all(row.tobytes() in self._curves for row in values)

    @cached_property
    def _curves(self) -> set[bytes]:
        return {curve.tobytes() for group in self.groups for curve in group.curves}

    @cached_property
    def _first_curves(self) -> FloatArray:
        """(groups, k) the first curve of each group: its only one, where nothing is drawn."""
        return np.array([group.curves[0] for group in self.groups]).reshape(len(self.groups), self.n_dims)

    def place(self, label: Any) -> tuple[Group, int]:
        """The group of a label and its row there."""
        number, row = self._placed(label)
        return self.groups[number], row

    def _placed(self, label: Any) -> tuple[int, int]:
        """The number of a label's group and its row there."""
        place = self._places.get(str(label))
        if place is None:
            raise InputError("label is not one of this codebook's labels")
        return place

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        return {
            self.labels[member]: (number, row)
            for number, group in enumerate(self.groups)
            for row, member in enumerate(group.members)
        }

    def part(self, labels: Sequence[str]) -> Codebook:
        """The codebook of some of its groups, given by all of their labels, in this order."""
        rows = np.array([self.position(name) for name in labels], dtype=np.intp)
        place = np.full(len(self.labels), -1, dtype=np.intp)
        place[rows] = np.arange(len(rows))
        numbers = sorted({self._placed(name)[0] for name in labels})
        groups = tuple(replace(self.groups[c], members=place[self.groups[c].members]) for c in numbers)
        if sum(len(group.members) for group in groups) != len(rows) or any(min(g.members) < 0 for g in groups):
            raise InputError("labels must be those of whole groups: a curve is about all members of its group")
        number = np.empty(len(rows), dtype=np.int64)
        for c, group in enumerate(groups):
            number[group.members] = c
        return replace(
            self,
            graph=NeighborGraph.within_groups(labels, number.tolist()),
            answers=self.answers[rows],
            weights=self.weights[rows],
            groups=groups,
        )

    def errors(self, labels: Sequence[str] | None = None) -> ReleaseErrors:
        """Expected errors of what may be drawn for these labels, all by default; the interval holds every draw."""
        names = self.labels if labels is None else labels
        places = [self._placed(name) for name in names]
        rows = np.array([self.groups[number].members[row] for number, row in places], dtype=np.intp)
        here = self.answers[rows]
        off = self._first_curves[[number for number, _ in places]] - here
        squares, biases, low, high = off**2, off.copy(), off.copy(), off.copy()
        for i, (number, row) in enumerate(places):
            group = self.groups[number]
            if len(group.curves) > 1:
                away, odds = group.curves - here[i], probabilities(group.counts[row])[:, None]
                squares[i], biases[i] = (odds * away**2).sum(axis=0), (odds * away).sum(axis=0)
                low[i], high[i] = away.min(axis=0), away.max(axis=0)
        return ReleaseErrors(
            rho=self.rho[rows],
            squares=squares * (1 + 64 * EPS),
            biases=biases,
            interval=(low.min(axis=0), high.max(axis=0)),
            coverage=1.0,
            grid=np.zeros(self.n_dims),
            noise_alone=False,
        )

    # ------------------------------------------------------------------ how private it is

    def losses(self, one: Any, other: Any, scope: str = "answer") -> LossAtoms:
        """The privacy loss of two labels of one group: answers of ``one`` against those of ``other``.

        For a table both labels' rows are there, and the loss of the second is added.
        """
        validation.choice(list(SCOPES), scope=scope)
        (group, i), (second, j) = self.place(one), self.place(other)
        if group is not second:
            raise InputError("one and other must be labels of one group: nothing is promised across groups")
        ahead = LossAtoms.of(group.counts[i], group.counts[j], self.answer_epsilon)
        if scope == "answer":
            return ahead
        return ahead + LossAtoms.of(group.counts[j], group.counts[i], self.answer_epsilon)

    def curve(self, epsilon: Any, scope: str | None = None) -> PrivacyCurve:
        """δ(ε) over all pairs of all groups, from the stored integers: exact up to the last rounding.

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
        scope = validation.choice(list(SCOPES), scope=self.scope if scope is None else scope)
        grid, scalar = validation.grid(epsilon=epsilon)
        pairs = [group for group in self.groups if len(group.members) > 1]
        if not pairs:
            raise InputError("graph has no edges: there is no worst edge to report")
        worst = [max((_worst(group, e, scope) for group in pairs), key=lambda one: one[0]) for e in grid.tolist()]
        values = np.array([one[0] for one in worst])
        upper = np.where(values > 0.0, np.minimum(np.nextafter(values, np.inf), 1.0), 0.0)
        logs = np.full(len(grid), -np.inf)
        np.log(upper, out=logs, where=upper > 0.0)
        curve = PrivacyCurve(
            notion="dp",
            epsilon=grid,
            delta=values,
            log_delta=logs,
            delta_lower=np.maximum(values * (1 - 1e-12) - 2.0**-100, 0.0),
            delta_upper=upper,
            log_delta_upper=np.where(upper > 0.0, np.minimum(logs * (1 - 4 * EPS) + 4 * EPS, 0.0), -np.inf),
            worst_edge=[(self.labels[one[1]], self.labels[one[2]]) for one in worst],
            scope=scope,
        )
        return curve.scalar() if scalar else curve

    def divergence(self, order: float) -> float:
        """The Rényi divergence of an order above 1, of the worst pair, rounded up: K(order − 1) / (order − 1)."""
        t = validation.positive(order=order - 1.0)
        moments = [
            LossAtoms.of(ours, theirs, self.answer_epsilon).log_moment(t)
            for group in self.groups
            if len(group.curves) > 1
            for i, ours in enumerate(group.counts)
            for j, theirs in enumerate(group.counts)
            if i != j
        ]
        return max(max(moments, default=0.0), 0.0) / t * (1 + 4 * EPS)

    @property
    def finite_precision_tv(self) -> float:
        """Nothing: what is drawn is exactly what is promised."""
        return 0.0

    def released_curve(self, epsilon: Any, *, scope: str | None = None) -> PrivacyCurve:
        """The same as :meth:`curve`: what is drawn is exactly what is promised."""
        return self.curve(epsilon, scope)

    @cached_property
    def certificate(self) -> Certificate | None:
        """δ = 0 at ``epsilon``, for the scope that it was made for; None for crowd means, which certify nothing."""
        return None if self.epsilon is None else self.certified(self.scope)

    def certified(self, scope: str) -> Certificate:
        """The certificate at ``epsilon`` for one scope or the other; a codebook has no cost of finite precision."""
        if self.epsilon is None:
            raise InputError("nothing is certified here: rows are means over crowds, without ε and δ")
        return Certificate.of(self.curve(self.epsilon, scope), 0.0, 0.0)

    # ------------------------------------------------------------------ files

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every parameter and the graph: the codebook's name wherever it is recorded."""
        return archive.digest(*codebook_file.parts(self))

    def save(self, path: str | Path) -> None:
        """Write a versioned file: arrays and a JSON header in one zip, with a digest over all of it; no pickle.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.complete(["a", "b"])
        >>> book = shoal.codebook([[0.0], [1.0]], graph, epsilon=2.0)
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     book.save(f"{folder}/two.shoal")
        ...     shoal.load(f"{folder}/two.shoal")
        Codebook(2 labels, 1 entries, ε = 2)
        """
        write_private(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file that :meth:`save` writes."""
        return archive.packed(*codebook_file.parts(self))

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "content") -> Codebook:
        """A codebook from the content of its file; one whose odds exceed its ε is refused. ``name`` is for messages."""
        fields = codebook_file.fields(content, name)
        groups = tuple(Group(**one) for one in fields.pop("groups"))
        return cls(**fields, groups=groups)

    @classmethod
    def load(cls, path: str | Path) -> Codebook:
        """Read a file back; one that is damaged, altered or of another version is refused."""
        return cls.from_bytes(archive.content_of(path, codebook_file.FORMAT), f"path: {Path(path).name}")

    def __repr__(self) -> str:
        n, k = self.answers.shape
        kind = "means of crowds" if self.epsilon is None else f"ε = {self.epsilon:g}"
        return f"Codebook({n} labels, {k} entries, {kind})"

    def _repr_html_(self) -> str:
        sizes = [len(group.curves) for group in self.groups]
        rows = [
            ("labels, entries", f"{self.answers.shape[0]}, {self.answers.shape[1]}"),
            (f"ε ({self.scope}), with δ = 0", "none: means of crowds" if self.epsilon is None else f"{self.epsilon:g}"),
            ("groups, curves in the largest", f"{len(sizes)}, {max(sizes, default=0)}"),
            ("mean ρ, at most", f"{upper(self.mean_rho)}"),
            (f"least possible, {self.objective}", f"{self.lower_bound:.4g}"),
        ]
        return table("Codebook", (), rows)


def codebook(
    answers: Any,
    graph: NeighborGraph,
    epsilon: float = 2.0,
    *,
    labels: Sequence[Any] | None = None,
    weights: Sequence[float] | None = None,
    objective: str = "mean",
    scope: str = "answer",
    least_gain: float = 0.0,
) -> Codebook:
    """The ε-private way to answer with constants that has the least mean squared error, group by group.

    A column of any ε-private kernel is a positive combination of columns with entries 1 and e^−ε, so the optimum is a
    linear program over sets of labels; it is solved by column generation (docs/theory.md, section 11).

    Args:
        answers: (n, k) true answers, one row per label.
        graph: which labels must stay indistinguishable: complete inside every group, as
            :meth:`NeighborGraph.within_groups` makes it.
        epsilon: the guarantee, with δ = 0; above 0 and at most 20.
        labels: the label of each row; the graph's own order by default.
        weights: how much each label's error counts in the mean, above 0; equal by default.
        objective: ``"mean"`` for the least mean error, ``"worst"`` for the least largest one.
        scope: what ε is about: ``"answer"``, or ``"table"``, where both rows of a pair leave and each gets ε/2.
        least_gain: a group whose objective falls by less than this share below that of its own curve, the center, gets
            that one curve: exactly the same for all of its labels, at every ε.

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
    rows = _checked_answers(answers, graph.n_labels)
    epsilon = validation.positive(epsilon=epsilon)
    if epsilon > LARGEST_EPSILON:
        raise InputError(f"epsilon must be at most {LARGEST_EPSILON:g}: beyond, nothing is hidden; release the answers")
    validation.choice(OBJECTIVES, objective=objective)
    validation.choice(list(SCOPES), scope=scope)
    least_gain = validation.probability(least_gain=least_gain)
    counted = _checked_weights(weights, len(rows), objective)
    if labels is not None:
        order = _order(validation.labels(len(rows), labels), graph)
        rows, counted = rows[order], counted[order]
    groups = _complete_groups(graph)
    each = epsilon if scope == "answer" else epsilon / 2.0
    books = tuple(_group(members, rows, counted, each, objective, least_gain) for members in groups)
    rows.flags.writeable = counted.flags.writeable = False
    return Codebook(graph, rows, epsilon, scope, objective, counted, books)


def _group(
    members: IndexArray, answers: FloatArray, weights: FloatArray, epsilon: float, objective: str, least_gain: float
) -> Group:
    """The codebook of one group."""
    here, k = answers[members], answers.shape[1]
    mean = objective == "mean"
    share = weights[members] / math.fsum(weights[members])
    # Below e^−ε, so that the bound covers every ε-private mechanism.
    low = math.exp(-epsilon) * (1 - 4 * EPS)
    columns = center_alone(share) if len(members) == 1 else best_columns(here, share if mean else None, low)
    bound = columns.lower_bound / k * (1 - 4 * EPS)
    counts = None if len(columns.sets) == 1 else counts_of(refined(columns, low), epsilon)

    def with_curves(counts: Counts, curves: FloatArray) -> Group:
        group = Group(members, counts, curves, bound)
        for array in (group.members, group.counts, group.curves):
            array.flags.writeable = False
        return group

    center = with_curves(_one_curve(len(members)), share[None, :] @ here)
    if counts is None:
        return center
    book = with_curves(counts, columns.shares @ here)
    before, after = (group.errors(answers) for group in (center, book))
    gain = float(share @ (before - after)) / float(share @ before) if mean else 1.0 - after.max() / before.max()
    return book if gain >= least_gain else center


def _one_curve(n: int) -> Counts:
    """(n, 1) counts of a crowd of n members who all get its only curve."""
    counts = np.full((n, 1), WHOLE, dtype=np.int64)
    counts.flags.writeable = False
    return counts


def _worst(group: Group, epsilon: float, scope: str) -> tuple[float, int, int]:
    """(δ, i, j) of the pair with the largest δ, δ rounded to the nearest double after exact sums."""
    if len(group.curves) == 1:
        return 0.0, int(group.members[0]), int(group.members[1])
    factor = exp_floor(epsilon)
    counts = group.counts.astype(object)
    best, where = -1, (0, 1)
    n = len(counts)
    for i in range(n):
        for j in range(n):
            if i == j or (scope == "table" and j < i):
                continue
            ours, theirs = counts[i], counts[j]
            if scope == "table":
                ours, theirs = np.outer(counts[i], counts[j]).ravel(), np.outer(counts[j], counts[i]).ravel()
            above = (ours << EXP_BITS) - factor * theirs
            total = int(above[above > 0].sum())
            if total > best:
                best, where = total, (i, j)
    whole = 1 << (EXP_BITS + BITS * (1 if scope == "answer" else 2))
    return best / whole, int(group.members[where[0]]), int(group.members[where[1]])


def _complete_groups(graph: NeighborGraph) -> list[IndexArray]:
    """The members of every connected group, refused where two of them are not neighbors."""
    order = np.argsort(graph.components, kind="stable").astype(np.intp)
    starts = np.flatnonzero(np.diff(graph.components[order], prepend=-1))
    groups = np.split(order, starts[1:])
    sizes = np.array([len(group) for group in groups])
    if graph.n_edges != int((sizes * (sizes - 1) // 2).sum()):
        raise InputError(
            "graph must join all labels of a group with each other: a codebook is one for a whole group. Take the "
            "graph's groups as they are with NeighborGraph.within_groups(graph.labels, graph.components), which asks "
            "for more privacy, never for less"
        )
    return groups


def _checked_answers(answers: Any, n: int) -> FloatArray:
    rows = validation.array(ndim=2, answers=answers)
    if len(rows) != n or rows.shape[1] == 0:
        raise InputError(f"answers must hold one row per label and at least one entry: expected {n} rows")
    if float(np.abs(rows).max(initial=0.0)) > 1e150:
        raise InputError("answers must be at most 1e150: squares of larger ones exceed the range of doubles")
    return rows


def _checked_weights(weights: Sequence[float] | None, n: int, objective: str) -> FloatArray:
    if weights is None:
        return np.ones(n)
    if objective == "worst":
        raise InputError("weights are for objective='mean': the largest error has none")
    counted = validation.array(ndim=1, weights=weights)
    if counted.shape != (n,) or not (counted > 0).all():
        raise InputError(f"weights must hold {n} numbers above 0, one per label")
    return counted


def _order(labels: tuple[str, ...], graph: NeighborGraph) -> IndexArray:
    """The row of each of the graph's labels."""
    place = {name: i for i, name in enumerate(labels)}
    if set(place) != set(graph.labels):
        raise InputError("labels and graph must have the same labels")
    return np.array([place[name] for name in graph.labels], dtype=np.intp)
