"""What mechanisms and codebooks have in common: files, certificates, and one interface for code that takes either.

Callers take a ``Releasable`` and use what both have under the same names; ``by_kind`` is for the few places where they
need different algorithms. A file is arrays and a JSON header in one zip, sealed by a digest; no pickle. Figures are
computed from the parameters, and impossible parameters are refused: a file that was altered and sealed anew never
carries a better certificate than it deserves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np

from shoal import archive
from shoal.accounting.curve import PrivacyCurve, exp_rounded_up
from shoal.errors import InputError
from shoal.files import write_private
from shoal.laws.classes import GaussianClasses
from shoal.rounding import lower, upper
from shoal.validation import FloatArray, IndexArray

if TYPE_CHECKING:
    from shoal.mechanism.codebook import Codebook
    from shoal.mechanism.mechanism import Mechanism

T = TypeVar("T")
#: Header and arrays of a file.
Parts = tuple[dict[str, Any], dict[str, Any]]
#: A frozen way to release answers about labels.
Releasable: TypeAlias = "Mechanism | Codebook"
#: Edges up to which printing computes a certificate.
SHOWN_EDGES = 20_000
#: Why a certificate is not proved, before anybody tried.
UNTRIED = "no proof was asked for"


@dataclass(frozen=True)
class ReleaseErrors:
    """Expected errors of what is released about m labels, in the unit of the answers.

    ``rho`` (m,) mean squared error per entry, rounded up; ``squares`` and ``biases`` (m, k) of each entry;
    ``noise_alone`` where answers are not moved otherwise.
    """

    rho: FloatArray
    squares: FloatArray
    biases: FloatArray
    noise_alone: bool


def check_releasable(**named: Any) -> Releasable:
    """The one named argument, refused unless it is a mechanism or a codebook."""
    ((name, value),) = named.items()
    if not hasattr(type(value), "by_kind"):
        raise InputError(f"{name} must be a Mechanism or a Codebook, as design, calibrate and codebook return it")
    released: Releasable = value
    return released


@dataclass(frozen=True)
class Certificate:
    """The worst edge of a mechanism at the ε it was designed for; ``delta_upper`` is the end to rely on.

    ``delta`` and ``log_delta`` are those of the ideal law, by the notion the mechanism was designed for.
    ``delta_upper`` and ``log_delta_upper`` are upper ends for what is released: they include ``finite_precision``, and
    hold as ``released_notion``. Released answers are rounded to a grid, which "pdp" and the like do not survive; but
    their δ bounds the hockey-stick δ, which does, so the claim becomes "dp".

    ``scope`` says what somebody must hold for it: one ``"answer"``, or the ``"table"`` of everybody's.

    What it rests on: ``noise_share`` is the share of the error ρ that is fresh noise, of the label where it is least,
    and ``delta_noise_alone`` the δ that this noise guarantees if answers are constants, known to the attacker, at their
    means. What lies between the two δ's rests on the answers' own laws being right; ``laws_checked`` says whether these
    laws passed :meth:`shoal.GaussianClasses.checks`, None where they were stated and not estimated.

    ``proved`` says that ``delta_upper`` is a theorem about the stored parameters, by ball arithmetic, and ``proof`` is
    then the digest of its file; otherwise ``unproved`` says why it is not. The bracket it comes from is in part an
    estimate.
    """

    notion: str
    delta: float
    delta_upper: float
    log_delta: float
    log_delta_upper: float
    worst_edge: tuple[str, str]
    finite_precision: float
    released_notion: str = "dp"
    scope: str = "answer"
    proved: bool = False
    unproved: str = UNTRIED
    proof: str = ""
    released: Releasable | None = field(default=None, repr=False, compare=False)

    @property
    def noise_share(self) -> float:
        """Least share of ρ, over labels with neighbors, that is fresh noise; rounded down."""
        return 0.0 if self.released is None else self.released.noise_share

    @cached_property
    def delta_noise_alone(self) -> float:
        """δ at the design's ε if answers are constants at their means, finite precision included; rounded up."""
        return 1.0 if self.released is None else self.released.delta_noise_alone(self.scope)

    @property
    def laws_checked(self) -> bool | None:
        """Whether estimated laws passed their checks; None where they were stated."""
        fitted = None if self.released is None else self.released.classes.fitted
        return None if fitted is None else fitted.checks.holds

    @property
    def basis(self) -> str:
        """Sentence about how much of the guarantee is fresh noise and how much rests on the laws of the answers."""
        if self.released is None:
            return "unknown"
        share, delta = lower(self.noise_share, 2), upper(self.delta_noise_alone)
        law = {None: "", True: "; the laws passed their checks", False: "; the laws failed their checks"}
        if self.released.has_constant_answers:
            return f"fresh noise: at least {share} of ρ; answers are constants, and nothing rests on their laws"
        alone = f"fresh noise: at least {share} of ρ, by itself δ ≤ {delta}"
        return f"{alone}; the rest is on the laws{law[self.laws_checked]}"

    @classmethod
    def of(cls, ideal: PrivacyCurve, finite_precision: float, released: Releasable | None = None) -> Certificate:
        """The certificate of ``released`` from its ideal curve at one ε and what finite precision adds to δ."""
        log_upper, upper = add_precision_loss(float(ideal.log_delta_upper), float(ideal.delta_upper), finite_precision)
        return cls(
            notion=ideal.notion,
            delta=float(ideal.delta),
            delta_upper=upper,
            log_delta=float(ideal.log_delta),
            log_delta_upper=log_upper,
            worst_edge=ideal.worst_edge,
            finite_precision=finite_precision,
            scope=ideal.scope,
            released=released,
        )

    def __str__(self) -> str:
        a, b = self.worst_edge
        kind = self.released_notion
        if self.notion != kind:
            kind = f"{kind}, once rounded; designed for {self.notion}"
        holds = "whole table" if self.scope == "table" else "one answer"
        proved = "; proved" if self.proved and self.laws_checked is not False else ""
        proved += "; rests on laws that their rows reject" if self.laws_checked is False else ""
        return f"δ ≤ {upper(self.delta_upper)} ({kind}; {holds}{proved}), worst for {a} against {b}"


def add_precision_loss(log_upper: float, upper: float, loss: float) -> tuple[float, float]:
    """(ln(δ + loss), δ + loss), both rounded up and δ + loss at most 1; unchanged without a loss."""
    if loss == 0.0:
        return log_upper, upper
    total = min(math.nextafter(upper + loss, math.inf), 1.0)
    log_total = float(np.logaddexp(log_upper, math.log(loss)))
    log_total = min(log_total + 8 * np.finfo(np.float64).eps * max(abs(log_total), 1.0), 0.0)
    return log_total, max(total, float(exp_rounded_up(np.array(log_total))))


def describe_guarantee(released: Any) -> list[tuple[str, object]]:
    """Lines (name, text) that a mechanism prints: certificate, basis, insider error.

    Of a graph with more than :data:`SHOWN_EDGES` edges only once its certificate is computed.
    """
    known = "certificate" in vars(released) or released.graph.n_edges <= SHOWN_EDGES
    certificate = released.certificate if known else None
    return [
        ("certificate", certificate or "not computed yet: mechanism.certificate"),
        ("it rests on", certificate.basis if certificate else "not computed yet: mechanism.certificate.basis"),
        ("someone who knows the others errs by, at least", lower(float(released.insider_error.min()))),
    ]


class Storable(ABC):
    """A thing that can be written to a file of its own and read back with the same digest."""

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int]  #: files of another version are refused

    @abstractmethod
    def file_parts(self) -> Parts:
        """Header and arrays of the file: every parameter and the graph."""

    @classmethod
    @abstractmethod
    def from_file_parts(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Self:
        """Rebuild from header and arrays; a KeyError where one is missing, a ValueError where one is impossible."""

    def by_kind(self, *, mechanism: Callable[[Mechanism], T], codebook: Callable[[Codebook], T]) -> T:
        """The result of the function for this kind, called with the object; type checkers know its class there."""
        choice: Callable[[Any], T] = codebook if self.FORMAT == "shoal codebook" else mechanism
        return choice(self)

    def __str__(self) -> str:
        return "\n  ".join([repr(self), *(f"{name}: {value}" for name, value in describe_guarantee(self))])

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every parameter and the graph: for the owner's records, not for publication."""
        return archive.digest(*self.file_parts())

    def save(self, path: str | Path) -> None:
        """Write a versioned file: arrays and a JSON header in one zip, with a digest over all of it; no pickle.

        >>> import shoal, tempfile
        >>> book = shoal.codebook([[0.0], [1.0]], shoal.NeighborGraph.complete(["a", "b"]), epsilon=2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     book.save(f"{folder}/two.shoal")
        ...     shoal.load(f"{folder}/two.shoal")
        Codebook(2 labels, 1 entries, ε = 2)
        """
        write_private(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file that :meth:`save` writes."""
        return archive.pack(*self.file_parts())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file back; one that is damaged, altered or of another version is refused.

        Returns:
            What was saved, with the same digest.

        >>> import shoal, tempfile
        >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
        >>> graph = shoal.NeighborGraph.complete(classes.labels)
        >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     mechanism.save(f"{folder}/white.shoal")
        ...     shoal.Mechanism.load(f"{folder}/white.shoal").digest == mechanism.digest
        True
        """
        return cls.from_bytes(archive.read_file_of(path, cls.FORMAT), f"path: {Path(path).name}")

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "content") -> Self:
        """The object from the content of a file; ``name`` is what messages call it."""
        header, arrays = archive.unpack(content, cls.FORMAT, cls.VERSION, name)
        kind = cls.FORMAT.removeprefix("shoal ")
        try:
            return cls.from_file_parts(header, arrays)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise InputError(f"{name} lacks a part of a {kind}") from error
        except ValueError as error:
            raise InputError(f"{name} holds parameters that no {kind} has") from error


def load(path: str | Path) -> Mechanism | Codebook:
    """Read what :meth:`Mechanism.save` or :meth:`Codebook.save` wrote.

    A file that is damaged, altered or of another version is refused.

    Returns:
        The mechanism or the codebook, with the digest of the one that was saved.

    >>> import shoal, tempfile
    >>> book = shoal.codebook([[0.0], [1.0]], shoal.NeighborGraph.complete(["a", "b"]), epsilon=2.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book.save(f"{folder}/two.shoal")
    ...     shoal.load(f"{folder}/two.shoal").digest == book.digest
    True
    """
    return from_bytes(archive.read_file_of(path, "shoal mechanism"), f"path: {Path(path).name}")


def from_bytes(content: bytes, name: str = "content") -> Mechanism | Codebook:
    """The mechanism or the codebook from the content of its file; ``name`` is what messages call it."""
    from shoal.mechanism.codebook import Codebook
    from shoal.mechanism.mechanism import Mechanism

    kind = Codebook if archive.format_of(content) == Codebook.FORMAT else Mechanism
    return kind.from_bytes(content, name)


def laws_file_parts(classes: GaussianClasses, pairs: IndexArray) -> Parts:
    """Header and arrays of a file of laws and edges, for a proof that is not about a mechanism."""
    arrays = {"means": classes.means, "edges": np.asarray(pairs, dtype=np.int64), **law_arrays(classes)}
    return {"format": "shoal laws", "version": 1, "labels": list(classes.labels)}, arrays


def law_arrays(classes: GaussianClasses) -> dict[str, FloatArray]:
    """Arrays of a file that hold class laws, with bounds on their errors where there are any."""
    stored = {"variances": classes.stored_variances} if classes.is_diagonal else {"covs": classes.stored_covs}
    errors = {} if classes.errors is None else dict(zip(("cov_error", "mean_error"), classes.errors, strict=True))
    return {"means": classes.means, **stored, **errors}


def laws_from_arrays(labels: list[str], arrays: dict[str, Any]) -> GaussianClasses:
    """Class laws from the arrays that :func:`law_arrays` made."""
    build, stored = (
        (GaussianClasses.diagonal, arrays["variances"]) if "variances" in arrays else (GaussianClasses, arrays["covs"])
    )
    classes = build(arrays["means"], stored[0] if len(stored) == 1 else stored, labels)
    return classes.with_errors(arrays["cov_error"], arrays["mean_error"]) if "cov_error" in arrays else classes
