"""What forecasts tell about themselves on a card and on the data owner's page, in kW."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.card.answers import chosen, points
from shoal.card.digits import counted, plain
from shoal.card.exhibits import Exhibits
from shoal.card.facts import LISTED, Accuracy, FitFacts, ModelChecks
from shoal.card.measures import accuracy_of, hiding
from shoal.card.section import Plot, axis, lines, series
from shoal.errors import InputError
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Mechanism
from shoal.sources.meters.power import power_error
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.sources.meters.forecast import Forecasts

NOUN = "household"
#: Coverage of the band around a forecast.
LEVEL = 0.9


def facts_of(forecasts: Forecasts, graph: NeighborGraph | None) -> FitFacts:
    """Who has a forecast and whose model holds; who hides among whom, where that is known."""
    checks = forecasts.checks
    nobody = {"labels": len(forecasts.households), "groups": 0, "smallest_group": 0, "largest_group": 0, "edges": 0}
    minutes = forecasts.step.total_seconds() / 60
    return FitFacts(
        source="",
        **(nobody if graph is None else hiding(graph)),
        left_out=len(forecasts.left_out),
        repaired=int((forecasts.quality["verdict"] == "repaired").sum()),
        smaller_model=int(forecasts.models.fallback.sum()),
        reasons=tuple(Counter(forecasts.left_out.values()).most_common(LISTED)),
        noun=NOUN,
        about=(
            f"Forecasts: {counted(forecasts.horizon, 'step')} ({forecasts.horizon * minutes / 60:g} h) from "
            f"{forecasts.origin:%Y-%m-%d %H:%M}.",
        ),
        origin=forecasts.origin.isoformat(),
        step_minutes=minutes,
        checks=ModelChecks(
            gaussian=int(checks.gaussian.sum()),
            white=int(checks.white.sum()),
            stationary=int(checks.stationary.sum()),
            all_three=int((checks.gaussian & checks.white & checks.stationary).sum()),
            of=len(forecasts.households),
        ),
        fitted_on_private_data=True,
    )


def power_accuracy(mechanism: Mechanism, unit: str = "log") -> Accuracy:
    """Errors of the released power against the true answer, in kW, for a mechanism whose answers are in ``unit``.

    In log power the change η = shift + gain (q − μ) + noise has mean shift, variance diag(G Σ Gᵀ + N) and covariance
    diag(Σ Gᵀ) with the answer; :func:`~shoal.sources.meters.power.power_error` has the rest.
    """
    if unit == "kw":
        squares = mechanism.bias**2 + mechanism.error_variance
        bias = np.broadcast_to(mechanism.bias, squares.shape)
        return accuracy_of(mechanism, squares, bias, unit="kW", answers=mechanism.classes.means)
    n, k = mechanism.classes.means.shape
    covs = np.broadcast_to(mechanism.classes.stored_covs, (n, k, k))
    together = np.zeros((n, k))
    if mechanism.gain is not None:
        together = np.diagonal(mechanism.gain @ covs, axis1=1, axis2=2)
    error = power_error(
        mechanism.classes.means,
        mechanism.bias,
        mechanism.error_variance,
        log_var=np.diagonal(covs, axis1=1, axis2=2),
        log_noise_cov=together,
    )
    answers = np.exp(mechanism.classes.means)
    return accuracy_of(mechanism, error.mse, error.bias, unit="kW", answers=answers, ratio=True)


def exhibits_of(forecasts: Forecasts, mechanism: Mechanism, released: FloatArray, truth: FloatArray | None) -> Exhibits:
    """Past day, later readings, forecast and released power, (n, h) kW, of several homes; errors measured on them."""
    if tuple(forecasts.households) != mechanism.classes.labels:
        raise InputError("forecasts must be of the mechanism's labels, in the same order")
    rows = chosen(mechanism)
    says = [
        f"The next {forecasts.horizon} steps of {len(rows)} of {counted(len(released), NOUN)}, from "
        f"{forecasts.origin:%Y-%m-%d %H:%M} on. What is given out is the released line; the others stay here. "
        "The hours after now are drawn wider than those before; the shaded band holds what comes with "
        f"{LEVEL:.0%} probability, says the model."
    ]
    if truth is None:
        says.append("What came later is not known yet: hand over truth=, in kW, to see it.")
    if forecasts.recent is None:
        says.append("These forecasts came without the readings of the past day.")
    later: list[tuple[str, tuple[float | None, ...]]] = []
    if truth is not None:
        later = [
            ("forecast against what came", _rms(forecasts.power - truth)),
            ("released against what came", _rms(released - truth)),
        ]
    return Exhibits(
        mechanism=mechanism,
        heading="Forecasts, true and released",
        says=tuple(says),
        traces=tuple(_home(i, mechanism.classes.labels[i], released, forecasts, truth) for i in rows),
        later=tuple(later),
        verdicts=tuple(zip(forecasts.checks.households, forecasts.checks.verdict, strict=True)),
    )


def _home(i: int, name: str, released: FloatArray, forecasts: Forecasts, truth: FloatArray | None) -> Plot:
    hours = forecasts.step.total_seconds() / 3600
    ahead = hours * np.arange(forecasts.horizon)
    low, high = forecasts.interval(LEVEL)
    drawn: list[dict[str, Any]] = []
    if forecasts.recent is not None:
        before = hours * np.arange(-forecasts.recent.shape[1], 0)
        drawn.append(series("past day", points(before, forecasts.recent[i]), color=7))
    band = [[float(x), plain(a), plain(b)] for x, a, b in zip(ahead, low[i], high[i], strict=True)]
    drawn.append(series("forecast", points(ahead, forecasts.power[i]), color=1, band=band))
    if truth is not None:
        drawn.append(series("what came", points(ahead, truth[i]), color=2, dash=True))
    drawn.append(series("released", points(ahead, released[i]), color=0, thick=True))
    x = axis("hours from the forecast's origin", "split", share=0.45)
    return lines(name, x, axis("kW", least=0.0), drawn, marks=[[0.0, "now"]])


def _rms(error: FloatArray) -> tuple[float | None, ...]:
    """Root mean square over the households whose later reading is known."""
    seen = np.isfinite(error)
    known = seen.sum(axis=0)
    total = (np.where(seen, error, 0.0) ** 2).sum(axis=0)
    return tuple(float(np.sqrt(t / n)) if n else None for t, n in zip(total, known, strict=True))
