"""A block of forecasts as the stages of a run see it, asked one query in one unit.

It has the attributes of :class:`shoal.product.sources.class_table.ClassTable`, the other kind of answers.

Errors of released power in kW are exact, by log-normal moments. In log power the mechanism returns q + η; in power the
reference is p = e^q and the release p̃ = e^{q+η} = p e^η. With (q, η) jointly Gaussian, q ~ N(a, v), η ~ N(m, s²) and
Cov(q, η) = c, the moments E e^{αq+βη} = exp(αa + βm + ½(α²v + 2αβc + β²s²)) give

    E p̃ − p      = e^{a+v/2} (e^{m+c+s²/2} − 1)
    E (p̃ − p)²   = e^{2a+2v} (e^{2m+4c+2s²} − 2 e^{m+2c+s²/2} + 1)

For a point forecast v = c = 0 and these are p̂(e^{m+s²/2} − 1) and p̂²(e^{2m+2s²} − 2e^{m+s²/2} + 1) (theory notes,
section 7). c ≠ 0 for mechanisms that move the answer with itself (transport).
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any

import numpy as np
import polars as pl

from shoal.audits.guard import ModelGuard, model_guard
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import Releasable
from shoal.product.card.facts import Accuracy
from shoal.product.card.measures import accuracy_facts
from shoal.product.sources.meters.predictive import AccountingWarning, Forecasts
from shoal.validation import FloatArray, IndexArray

#: Column of names in the owner's tables.
NAMES = "household"


@dataclass(frozen=True, repr=False)
class ForecastAnswers:
    """Forecasts with the query that is asked of them and the unit of its answers: one answer per label."""

    forecasts: Forecasts
    query: str
    answer_unit: str

    labels = property(lambda self: self.forecasts.households)  #: who has a law
    owners = labels  #: the label of each answer
    drawn = property(lambda self: self.query == "trajectory")  #: answers depend on normals that are drawn once
    times = 1  #: answers about one label, at most
    owner_columns = (NAMES,)  #: columns of the released table that stay with the owner

    def take(self, labels: Sequence[str]) -> ForecastAnswers:
        """The answers of some of the labels, in this order."""
        place = {name: i for i, name in enumerate(self.labels)}
        return replace(self, forecasts=self.forecasts.take([place[name] for name in labels]))

    def laws(self) -> GaussianClasses:
        """The class laws of the query; what is wrong with ``as_in_paper`` is said on the card, once."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AccountingWarning)
            return self.forecasts.classes(self.query, unit=self.answer_unit)

    def answers(self, normals: FloatArray | None = None) -> FloatArray:
        """(m, k) the answers that go into the mechanism."""
        return self.forecasts.answer(self.query, normals, unit=self.answer_unit)

    def questions(self, name: str) -> list[str]:
        """Names that the ledger has for each answer in the release of this name."""
        return [name] * len(self.labels)

    def readings(self) -> tuple[str, ...]:
        """Digests of the readings of the day before the origin, and of when that is.

        Whatever else goes into a forecast, from the same day before the same origin it answers the same question.
        """
        when = f"{self.forecasts.origin.astimezone(UTC).isoformat()} {self.forecasts.step}".encode()
        day = self.forecasts.recent
        plain = np.where(np.isnan(day), np.nan, day + 0.0).astype("<f8")
        return tuple(hashlib.sha256(when + row.tobytes()).hexdigest() for row in plain)

    def accuracy(self, mechanism: Releasable) -> Accuracy:
        """Errors of what is released of these labels."""
        if self.answer_unit == "kw":
            return accuracy_facts(mechanism, self.labels, "kW")
        return mechanism.by_kind(
            mechanism=lambda gaussian: power_accuracy(gaussian.part(self.labels)),
            codebook=lambda book: accuracy_facts(book, self.labels, "kW"),
        )

    def guard(self, group: Mechanism, draws: int, seed: int) -> ModelGuard | None:
        """The part of the promise to a group, these labels, that rests on their laws."""
        return model_guard(
            group, self.forecasts, query=self.query, fitted_on_private_data=True, n_draws=draws, seed=seed
        )

    def _power(self, released: FloatArray) -> FloatArray:
        return released if self.answer_unit == "kw" else self.forecasts.to_power(released)

    def off(self, released: FloatArray, truth: FloatArray) -> tuple[int, float]:
        """Entries whose ``truth``, (n, h) in kW, came later, and the sum of the absolute errors there."""
        return off_by(truth, self._power(released))

    def table(self, order: IndexArray, group: IndexArray, row: IndexArray, released: FloatArray) -> pl.DataFrame:
        """household, crowd, row, step, timestamp, kw."""
        n, h = released.shape
        return pl.DataFrame(
            {
                NAMES: pl.Series(self.labels, dtype=pl.String).gather(np.repeat(order, h)),
                "crowd": np.repeat(group, h),
                "row": np.repeat(row, h),
                "step": np.tile(np.arange(1, h + 1), n),
                "timestamp": self.forecasts.timestamps.gather(np.tile(np.arange(h), n)),
                "kw": self._power(released)[order].ravel(),
            }
        )


def off_by(truth: FloatArray, power: FloatArray) -> tuple[int, float]:
    """Entries whose truth is known, and the sum of the absolute errors there."""
    known = np.isfinite(truth) & np.isfinite(power)
    return int(known.sum()), float(np.abs(power - truth)[known].sum())


# ------------------------------------------------------------------ errors in kW


def power_accuracy(mechanism: Mechanism) -> Accuracy:
    """Errors in kW of released power against the true answer, of a mechanism whose answers are in log power.

    The change η = shift + gain (q − μ) + noise has mean shift, variance diag(G Σ Gᵀ + N) and covariance diag(Σ Gᵀ) with
    the answer; :func:`power_error` has the rest.
    """
    means = mechanism.classes.means
    n, k = means.shape
    covs = np.broadcast_to(mechanism.classes.stored_covs, (n, k, k))
    together = 0.0 if mechanism.gain is None else np.diagonal(mechanism.gain @ covs, axis1=1, axis2=2)
    variance = np.diagonal(covs, axis1=1, axis2=2)
    bias, mse = power_error(means, mechanism.bias, mechanism.error_variance, log_var=variance, log_noise_cov=together)
    return accuracy_facts(mechanism, unit="kW", powers=(mse, bias, np.exp(means)))


def power_error(
    log_mean: FloatArray, noise_mean: Any, noise_var: Any, *, log_var: Any = 0.0, log_noise_cov: Any = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Bias E p̃ − p in kW and mean squared error E (p̃ − p)² in kW² of released power, each (n, h).

    Args:
        log_mean: (n, h) mean of the answer q in ln kW; the answer itself where it is a constant.
        noise_mean: mean of η in log units; (n, h) or what broadcasts to it, as the arguments below.
        noise_var: variance of η.
        log_var: variance of q given the household; 0 for a point forecast.
        log_noise_cov: covariance of q and η; 0 for noise that does not depend on the answer.

    >>> bias, mse = power_error(np.array([[0.0]]), noise_mean=0.0, noise_var=0.04)
    >>> print(f"{bias[0, 0]:.4f}", f"{mse[0, 0] ** 0.5:.4f}")
    0.0202 0.2071
    """
    a, m, s2, v, c = np.broadcast_arrays(log_mean, noise_mean, noise_var, log_var, log_noise_cov)
    with np.errstate(over="ignore"):
        bias = np.exp(a + v / 2) * np.expm1(m + c + s2 / 2)
        # e^{2g+s²} − 2e^g + 1 = e^{2g}(e^{s²} − 1) + (e^g − 1)² with g = m + 2c + s²/2: no cancellation.
        g = m + 2 * c + s2 / 2
        mse = np.exp(2 * a + 2 * v) * (np.exp(2 * g) * np.expm1(s2) + np.expm1(g) ** 2)
    return np.asarray(bias), np.asarray(mse)
