"""What can be released: the one interface of mechanisms and codebooks, and the certificate that both carry.

A mechanism adds noise to answers and its output laws are Gaussian; a codebook draws one of finitely many curves. Who
releases, charges, audits or describes asks for what is here; :meth:`Releasable.by_kind` is for the few places where the
two need different algorithms. A certificate speaks of the answers that are really released: rounded, and drawn with
finite precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from shoal.accounting.curve import PrivacyCurve, exp_up, falling
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.rounding import upper
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.mechanism.codebook import Codebook
    from shoal.mechanism.mechanism import Mechanism

T = TypeVar("T")
#: Probability with which an error of noise lies in the interval that is stated for it.
COVERAGE = 0.9
#: Why a certificate is not proved, before anybody tried.
UNTRIED = "no proof was asked for"


@dataclass(frozen=True)
class ReleaseErrors:
    """Expected errors of what is released about m labels, in the unit of the answers.

    ``rho`` (m,) mean squared error per entry, rounded up; ``squares`` and ``biases`` (m, k) of each entry; ``interval``
    two (k,) ends that hold the error of any of these labels with probability ``coverage``; ``grid`` (k,) the step
    between values that can be released, 0 where there is none; ``noise_alone`` where answers are not moved otherwise.
    """

    rho: FloatArray
    squares: FloatArray
    biases: FloatArray
    interval: tuple[FloatArray, FloatArray]
    coverage: float
    grid: FloatArray
    noise_alone: bool


class Releasable(Protocol):
    """A frozen way to release answers about labels: :class:`~shoal.Mechanism` or :class:`~shoal.Codebook`."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Whom it can answer about."""

    @property
    def graph(self) -> NeighborGraph:
        """Which labels must stay indistinguishable."""

    @property
    def classes(self) -> GaussianClasses:
        """Laws of the true answers; constants have no variance."""

    @property
    def n_dims(self) -> int:
        """Entries of an answer."""

    @property
    def scope(self) -> str:
        """What its figures are about: ``"answer"`` or ``"table"``."""

    @property
    def times(self) -> int:
        """Independent answers about each label that its figures are for."""

    @property
    def epsilon(self) -> Any:
        """ε it was made for: of each edge, or of all."""

    @property
    def answer_epsilon(self) -> float | None:
        """The largest privacy loss of one answer; None where losses have no bound."""

    @property
    def constant(self) -> bool:
        """Whether every label has one constant true answer."""

    @property
    def rho(self) -> FloatArray:
        """(n,) mean squared error per entry of each label, rounded up."""

    @property
    def certificate(self) -> Certificate:
        """What is certified."""

    @property
    def output(self) -> GaussianClasses | None:
        """Laws of the released answer where these are Gaussian; None of a codebook, which has finitely many."""

    @property
    def finite_precision_tv(self) -> float:
        """Total variation that finite precision adds for the worst label with a neighbor."""

    @property
    def digest(self) -> str:
        """SHA-256 over every parameter and the graph: for the owner's records, not for publication."""

    def release(self, answers: Any, labels: Any, /) -> FloatArray:
        """What to give out for true answers (m, k) about m labels; a codebook does not look at the answers."""

    def errors(self, labels: Sequence[str] | None = None) -> ReleaseErrors:
        """Expected errors of what is released about these labels; all by default."""

    def part(self, labels: Sequence[str]) -> Releasable:
        """The same for some of the labels, with the edges between them."""

    def curve(self, epsilon: Any, *, scope: str | None = None) -> Any:
        """δ(ε) before rounding of what is released."""

    def released_curve(self, epsilon: Any, *, scope: str | None = None) -> Any:
        """δ(ε) of what is released, finite precision included."""

    def position(self, label: Any) -> int:
        """The place of a label among ``labels``."""

    def can_release(self, values: FloatArray) -> bool:
        """Whether every row of (m, k) values can be something that was released."""

    def refuse_excluded(self, answers: FloatArray, positions: Sequence[int], name: str) -> None:
        """Raise where an answer cannot come from the law of the label at its position."""

    def prepare(self) -> None:
        """Compute now what the first release would."""

    def by_kind(self, *, mechanism: Callable[[Mechanism], T], codebook: Callable[[Codebook], T]) -> T:
        """The result of the function for what this is; both get it as what it is."""

    def save(self, path: str | Path) -> None:
        """Write a versioned file that :func:`shoal.load` reads."""

    def to_bytes(self) -> bytes:
        """The content of that file."""


def releasable(**named: Any) -> Releasable:
    """The one named argument, refused unless it is a mechanism or a codebook."""
    ((name, value),) = named.items()
    if not hasattr(type(value), "by_kind"):
        raise InputError(f"{name} must be a Mechanism or a Codebook, as design, calibrate and codebook return it")
    released: Releasable = value
    return released


# ------------------------------------------------------------------ certificates


@dataclass(frozen=True)
class Certificate:
    """The worst edge of a mechanism at the ε it was designed for; ``delta_upper`` is the end to rely on.

    ``delta`` and ``log_delta`` are those of the ideal law, by the notion the mechanism was designed for.
    ``delta_upper`` and ``log_delta_upper`` are upper ends for what is released: they include ``finite_precision``, and
    hold as ``released_notion``. Released answers are rounded to a grid, which "pdp" and the like do not survive; but
    their δ bounds the hockey-stick δ, which does, so the claim becomes "dp".

    ``scope`` says what somebody must hold for it: one ``"answer"``, or the ``"table"`` of everybody's.

    ``proved`` says that ``delta_upper`` is a theorem about the stored parameters, by ball arithmetic, and ``proof`` is
    then the digest of its file; otherwise ``unproved`` says why it is not. The bracket it comes from is in part an
    estimate.

    ``lower_bound`` is a δ that no mechanism with Gaussian output and this error budget goes below: a numerical minimum,
    to judge a design by, not a part of the guarantee.
    """

    notion: str
    delta: float
    delta_upper: float
    log_delta: float
    log_delta_upper: float
    worst_edge: tuple[str, str]
    lower_bound: float
    finite_precision: float
    released_notion: str = "dp"
    scope: str = "answer"
    proved: bool = False
    unproved: str = UNTRIED
    proof: str = ""

    @classmethod
    def of(cls, ideal: PrivacyCurve, finite_precision: float, lower_bound: float) -> Certificate:
        """From the ideal law's worst edge (at one ε) and what finite precision adds to δ."""
        log_upper, upper = with_loss(float(ideal.log_delta_upper), float(ideal.delta_upper), finite_precision)
        return cls(
            notion=ideal.notion,
            delta=float(ideal.delta),
            delta_upper=upper,
            log_delta=float(ideal.log_delta),
            log_delta_upper=log_upper,
            worst_edge=ideal.worst_edge,
            lower_bound=lower_bound,
            finite_precision=finite_precision,
            scope=ideal.scope,
        )

    def __str__(self) -> str:
        a, b = self.worst_edge
        kind = self.released_notion
        if self.notion != kind:
            kind = f"{kind}, once rounded; designed for {self.notion}"
        holds = "whole table" if self.scope == "table" else "one answer"
        proved = "; proved" if self.proved else ""
        return f"δ ≤ {upper(self.delta_upper)} ({kind}; {holds}{proved}), worst for {a} against {b}"


def with_loss(log_upper: float, upper: float, loss: float) -> tuple[float, float]:
    """(ln(δ + loss), δ + loss), both rounded up and δ + loss at most 1; unchanged without a loss."""
    if loss == 0.0:
        return log_upper, upper
    total = min(math.nextafter(upper + loss, math.inf), 1.0)
    log_total = float(np.logaddexp(log_upper, math.log(loss)))
    log_total = min(log_total + 8 * np.finfo(np.float64).eps * max(abs(log_total), 1.0), 0.0)
    return log_total, max(total, float(exp_up(np.array(log_total))))


def released(ideal: PrivacyCurve, losses: FloatArray) -> PrivacyCurve:
    """The ideal curve with the finite-precision loss at each ε in its upper ends; nothing is known from below.

    The loss rises with ε, and δ does not: what holds at a smaller ε of the curve holds here.
    """
    scalar = np.ndim(ideal.epsilon) == 0
    logs, uppers = np.atleast_1d(ideal.log_delta_upper), np.atleast_1d(ideal.delta_upper)
    ends = [with_loss(float(a), float(b), float(c)) for a, b, c in zip(logs, uppers, losses, strict=True)]
    grid = np.atleast_1d(ideal.epsilon)
    log_upper: Any = falling(grid, [end[0] for end in ends])
    upper: Any = falling(grid, [end[1] for end in ends])
    lower: Any = np.zeros(len(ends))
    if scalar:
        log_upper, upper, lower = float(log_upper[0]), float(upper[0]), 0.0
    return replace(ideal, delta_lower=lower, delta_upper=upper, log_delta_upper=log_upper)
