"""What can be released: the one interface of mechanisms and codebooks.

A mechanism adds noise to answers and its output laws are Gaussian; a codebook draws one of finitely many curves, of one
curve per crowd where nothing is drawn at all. Whoever releases, charges, audits or describes asks for what is here;
:meth:`Releasable.by_kind` is for the few places where the two need different algorithms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.certificate import Certificate
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.mechanism.atoms import LossAtoms
    from shoal.mechanism.codebook import Codebook
    from shoal.mechanism.mechanism import Mechanism

T = TypeVar("T")
#: Probability with which an error of noise lies in the interval that is stated for it.
COVERAGE = 0.9


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
        """ε it was made for: of each edge, of all, or None where nothing is certified."""

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
    def certificate(self) -> Certificate | None:
        """What is certified; None where nothing is: one curve per crowd."""

    @property
    def output(self) -> GaussianClasses | None:
        """Laws of the released answer where these are Gaussian; None where :meth:`losses` says it all."""

    @property
    def finite_precision_tv(self) -> float:
        """Total variation that finite precision adds for the worst label with a neighbor."""

    @property
    def digest(self) -> str:
        """SHA-256 over every parameter and the graph: for the owner's records, not for publication."""

    def release(self, answers: Any, labels: Any, /) -> FloatArray:
        """What to give out for true answers (m, k) about m labels; a codebook does not look at the answers."""

    def losses(self, one: Any, other: Any, scope: str = "answer") -> LossAtoms | None:
        """The privacy loss of ``one`` against ``other`` where it has finitely many values; else None."""

    def errors(self, labels: Sequence[str] | None = None) -> ReleaseErrors:
        """Expected errors of what is released about these labels; all by default."""

    def facts(self) -> dict[str, Any]:
        """A few plain figures, as JSON: for the owner."""

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


def described(released: Releasable, method: str) -> dict[str, Any]:
    """The facts that mechanisms and codebooks share."""
    sizes = np.bincount(released.graph.components) if released.graph.n_labels else np.zeros(1, dtype=int)
    certificate = released.certificate if released.graph.n_edges else None
    rho = released.rho
    return {
        "method": method,
        "labels": len(released.labels),
        "entries": released.n_dims,
        "edges": released.graph.n_edges,
        "groups": len(sizes),
        "smallest_group": int(sizes.min()),
        "largest_group": int(sizes.max()),
        "scope": released.scope,
        "times": released.times,
        "constant": released.constant,
        "delta": None if certificate is None else certificate.delta_upper,
        "rho": float(rho.mean()),
        "rho_largest": float(rho.max()),
    }
