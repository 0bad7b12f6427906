"""What can be released: mechanisms and codebooks, with one interface, and the certificate that both carry.

A mechanism adds noise to answers and its output laws are Gaussian; a codebook draws one of finitely many curves. Who
releases, charges, audits or describes takes a ``Releasable`` and uses what both have under the same names (the type
checker sees to it); ``by_kind`` is for the few places where the two need different algorithms. A certificate speaks of
the answers that are really released: rounded, and drawn with finite precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shoal.accounting.curve import PrivacyCurve, exp_up
from shoal.errors import InputError
from shoal.rounding import upper
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.mechanism.codebook import Codebook
    from shoal.mechanism.mechanism import Mechanism

#: A frozen way to release answers about labels.
Releasable: TypeAlias = "Mechanism | Codebook"
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
