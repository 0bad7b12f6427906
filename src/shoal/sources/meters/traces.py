"""What forecasts tell about themselves on a card, in kW."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from shoal.card.facts import LISTED, Accuracy, FitFacts, ModelChecks
from shoal.card.measures import accuracy_facts, hiding
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Mechanism
from shoal.rounding import counted
from shoal.sources.meters.power import power_error

if TYPE_CHECKING:
    from shoal.sources.meters.forecast import Forecasts

NOUN = "household"


def facts_of(forecasts: Forecasts, graph: NeighborGraph | None) -> FitFacts:
    """Who has a forecast and whose model holds; who hides among whom, where that is known."""
    checks = forecasts.checks
    nobody = {"labels": len(forecasts.households), "groups": 0, "smallest_group": 0, "largest_group": 0, "edges": 0}
    minutes = forecasts.step.total_seconds() / 60
    return FitFacts(
        source="",
        **(nobody if graph is None else hiding(graph)),
        left_out=len(forecasts.left_out),
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
        return accuracy_facts(mechanism, unit="kW")
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
    return accuracy_facts(mechanism, unit="kW", powers=(error.mse, error.bias, np.exp(mechanism.classes.means)))
