"""The problem that a designer solves: laws, edges, ε and budgets.

**How far each label is moved** (:class:`Moves`) is the common form of every mechanism:

    q̃ = q + b + B Σ^{−1/2}(q − μ) + C z,  z ~ N(0, I):   Σ̃ = (Σ^{1/2} + B)(Σ^{1/2} + B)ᵀ + C Cᵀ + f I,
    k·MSE = ‖b‖² + ‖B‖²_F + ‖C‖²_F + k f

(docs/theory.md, section 6; f is the noise floor). Where Σ is singular, Σ^{−1/2}(q − μ) is completed by fresh noise.

**How hard to search** (:class:`Settings`), and what ends a search: its deadline or an interrupt, with the best so far.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from shoal import validation
from shoal.accounting.curve import NOTIONS
from shoal.accounting.releases import Releases
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Ending, Mechanism
from shoal.numerics.matrices import square_root
from shoal.validation import FloatArray, IndexArray


@dataclass(frozen=True)
class DesignProblem:
    """A design problem. ``budgets`` is the largest total squared error k·ρ of each label.

    ``epsilons`` holds ε per edge and direction; a table has one direction.
    """

    classes: GaussianClasses
    graph: NeighborGraph
    pairs: IndexArray
    epsilons: FloatArray
    notion: str
    budgets: FloatArray
    noise_floor: float
    scope: str = "answer"
    times: int = 1  #: independent answers about each label that δ is of

    @classmethod
    def of(
        cls,
        classes: GaussianClasses,
        graph: NeighborGraph,
        epsilon: Any,
        rho: Any,
        notion: str = "dp",
        noise_floor: float = 0.0,
        scope: str = "answer",
        times: int = 1,
    ) -> DesignProblem:
        """The problem that arguments of :func:`shoal.design` state, checked."""
        if not isinstance(classes, GaussianClasses):
            raise InputError("classes must be a GaussianClasses")
        validation.choice(list(NOTIONS), notion=notion)
        releases = Releases.collect(classes, scope)
        pairs = releases.edge_positions(graph)
        if len(pairs) == 0:
            raise InputError("graph has no edges: there is nothing to hide")
        k = classes.n_dims
        budgets = k * _one_value_each(classes.n_classes, "label", rho=validation.by_label(classes.labels, rho=rho))
        if (budgets <= 0).any():
            raise InputError("rho must be above 0")
        each = _one_value_each(graph.n_edges, "edge", epsilon=epsilon)
        if (each < 0).any():
            raise InputError("epsilon must not be negative")
        floor = validation.non_negative(noise_floor=noise_floor)
        if (k * floor > budgets).any():
            raise InputError("noise_floor must not exceed rho: noise in every direction would overspend the budget")
        return cls(
            classes=classes,
            graph=graph,
            pairs=pairs,
            epsilons=np.repeat(each[:, None], releases.n_directions, axis=1),
            notion=notion,
            budgets=budgets,
            noise_floor=floor,
            scope=scope,
            times=validation.count(times=times),
        )

    def mechanism(self, method: str, **parameters: Any) -> Mechanism:
        """A ``Mechanism`` for the problem's laws, graph and guarantee, from a method's name and the other fields."""
        return Mechanism(
            method=method,
            classes=self.classes,
            graph=self.graph,
            epsilon=self.epsilons[:, 0].copy(),
            notion=self.notion,
            scope=self.scope,
            times=self.times,
            **parameters,
        )

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.classes.n_classes

    @property
    def n_dims(self) -> int:
        """Number of entries of an answer."""
        return self.classes.n_dims

    @property
    def floor_cov(self) -> FloatArray:
        """(k, k) covariance of the noise floor."""
        return self.noise_floor * np.eye(self.n_dims)

    @cached_property
    def roots(self) -> FloatArray:
        """(n or 1, k, k) symmetric square roots of the covariances."""
        return square_root(self.classes.stored_covs)

    @cached_property
    def known_log_deltas(self) -> WeakKeyDictionary[Moves, float]:
        """Cache of the largest ln δ over all edges, by moves."""
        return WeakKeyDictionary()

    @cached_property
    def components(self) -> list[IndexArray]:
        """Positions of the labels of each connected component."""
        member_of = self.graph.components_of(self.classes.labels)
        order = np.argsort(member_of, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(member_of[order])) + 1)

    def part(self, members: IndexArray) -> DesignProblem:
        """The problem of the labels at these positions, a whole connected component."""
        if len(members) == self.n_labels:
            return self
        place = np.full(self.n_labels, -1, dtype=np.intp)
        place[members] = np.arange(len(members))
        inside = place[self.pairs[:, 0]] >= 0
        classes = laws_of_part(self.classes, members)
        pairs = place[self.pairs[inside]]
        return replace(
            self,
            classes=classes,
            graph=NeighborGraph(classes.labels, pairs),
            pairs=pairs,
            epsilons=self.epsilons[inside],
            budgets=self.budgets[members],
        )


#: Laws of some labels, by the laws of all: what was found for a part is found once.
_parts: WeakKeyDictionary[GaussianClasses, dict[bytes, GaussianClasses]] = WeakKeyDictionary()


def laws_of_part(classes: GaussianClasses, members: IndexArray) -> GaussianClasses:
    """The laws of the labels at these positions, the same object every time; of all labels the laws themselves."""
    if len(members) == classes.n_classes:
        return classes
    known = _parts.setdefault(classes, {})
    key = members.tobytes()
    if key not in known:
        known[key] = classes.take(members)
    return known[key]


def _one_value_each(count: int, of: str, **named: Any) -> FloatArray:
    """(count,) the one named argument, given as one number for all or as one for each ``of`` the problem."""
    ((name, value),) = named.items()
    values = validation.array(ndim=(0, 1), **{name: value})
    if values.ndim == 1 and len(values) != count:
        raise InputError(f"{name} must be one number or one per {of}: expected {count}, got {len(values)}")
    return np.array(np.broadcast_to(values, (count,)))


@dataclass(frozen=True, eq=False)
class Moves:
    """b (n, k), B (n, k, k) and C (n, k, k) of every label; B is None for additive mechanisms.

    ``history`` is what an iteration that keeps one leaves behind.
    """

    shift: FloatArray
    map: FloatArray | None
    noise: FloatArray
    history: FloatArray | None = None

    @classmethod
    def zeros(cls, problem: DesignProblem, *, mapped: bool = False) -> Moves:
        """Moves that leave every answer as it is, with a map of zeros on request."""
        n, k = problem.n_labels, problem.n_dims
        return cls(np.zeros((n, k)), np.zeros((n, k, k)) if mapped else None, np.zeros((n, k, k)))

    @property
    def spent(self) -> FloatArray:
        """‖b‖² + ‖B‖² + ‖C‖² per label."""
        total = (self.shift**2).sum(axis=1) + (self.noise**2).sum(axis=(1, 2))
        return np.asarray(total if self.map is None else total + (self.map**2).sum(axis=(1, 2)))

    def laws(self, problem: DesignProblem) -> tuple[FloatArray, FloatArray]:
        """Means (n, k) and covariances (n or 1, k, k) of released answers."""
        noise = self.noise @ np.swapaxes(self.noise, 1, 2) + problem.floor_cov
        if self.map is None:
            covs = problem.classes.stored_covs + noise
        else:
            moved = problem.roots + self.map
            covs = moved @ np.swapaxes(moved, 1, 2) + noise
        return problem.classes.means + self.shift, covs

    def within_budget(self, problem: DesignProblem) -> Moves:
        """The moves, scaled down for every label whose budget they exceed."""
        size, limit = np.sqrt(self.spent), budget_radii(problem)
        over = size > limit
        factor = np.where(over, limit / np.where(over, size, 1.0), 1.0)
        mapped = None if self.map is None else self.map * factor[:, None, None]
        return Moves(self.shift * factor[:, None], mapped, self.noise * factor[:, None, None])

    def take(self, members: IndexArray) -> Moves:
        """The moves of the labels at these positions."""
        return Moves(self.shift[members], None if self.map is None else self.map[members], self.noise[members])

    def write_part(self, members: IndexArray, moves: Moves) -> None:
        """Write the moves of the labels at these positions into the arrays of all."""
        self.shift[members] = moves.shift
        self.noise[members] = moves.noise
        if moves.map is not None and self.map is not None:
            self.map[members] = moves.map

    def with_map(self) -> Moves:
        """The same move with a B, so that a transport search can start from it."""
        return self if self.map is not None else Moves(self.shift, np.zeros_like(self.noise), self.noise)


def budget_radii(problem: DesignProblem) -> FloatArray:
    """(n,) root of the squared error that each label may spend beyond the noise floor."""
    return np.sqrt(np.maximum(problem.budgets - problem.n_dims * problem.noise_floor, 0.0))


#: Called with (rounds, rounds at most, best ln δ so far); rounds of one search take about equally long.
Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Settings:
    """How hard to search. Speed settings: none of them can change what a certificate means.

    ``deadline`` is a time of the monotonic clock after which every search returns its best so far; an interrupt does
    the same to this search and to all that would follow it, unless ``interruptible``: then it goes through.
    ``iterations`` bounds the steps of every stage; without it a stage has as many as its size deserves.
    """

    iterations: int | None = None
    deadline: float = math.inf
    report: Report | None = None
    seed: int = 0
    interrupted: threading.Event = field(default_factory=threading.Event)
    interruptible: bool = False

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed or an interrupt came."""
        return self.interrupted.is_set() or monotonic() > self.deadline

    @property
    def ending(self) -> Ending:
        """The end of the searches with these settings: complete, out of time or interrupted."""
        if self.interrupted.is_set():
            return Ending.INTERRUPTED
        return Ending.OUT_OF_TIME if self.is_late else Ending.COMPLETE

    def part(self, share: float) -> Settings:
        """These settings with a share of the time that is left."""
        now = monotonic()
        return replace(self, deadline=now + share * max(self.deadline - now, 0.0))

    def steps(self, usual: int) -> int:
        """Steps of a stage that has ``usual`` steps by default."""
        return usual if self.iterations is None else self.iterations

    @contextlib.contextmanager
    def heed_interrupts(self) -> Iterator[None]:
        """Ctrl-C ends the searches inside at their next step, and nothing they found is lost; a second one at once."""
        usual, main = signal.default_int_handler, threading.current_thread() is threading.main_thread()
        if self.interruptible or not main or signal.getsignal(signal.SIGINT) is not usual:
            yield
            return

        def end(*_: object) -> None:
            signal.signal(signal.SIGINT, usual)
            self.interrupted.set()

        signal.signal(signal.SIGINT, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, usual)

    @contextlib.contextmanager
    def ending_at_interrupt(self) -> Iterator[None]:
        """Inside, an interrupt ends the work and sets the event, or goes through where settings say so."""
        try:
            yield
        except KeyboardInterrupt:
            if self.interruptible:
                raise
            self.interrupted.set()


#: No deadline, and interrupts go through.
UNHURRIED = Settings(interruptible=True)
