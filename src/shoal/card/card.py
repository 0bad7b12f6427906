"""The release card: everything a reader needs to judge a release, computed from the mechanism that made it.

Every figure is an upper end, rounded up, of what :meth:`Mechanism.release` gives out. The card holds no answer, no mean
and no covariance; it does name the labels of the worst edge.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

import shoal
from shoal import validation
from shoal.accounting.curve import round_up
from shoal.accounting.renyi import renyi_curve
from shoal.accounting.risk import identification_risk
from shoal.accounting.tradeoff import worst_tpr
from shoal.errors import InputError
from shoal.mechanism import Mechanism
from shoal.meters.power import power_error
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.meters.forecast import Forecasts

VERSION = 1
#: Above this δ a guarantee means little: an event of this probability may reveal the label.
MEANINGLESS = 1e-2
EPSILONS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
ORDERS = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
FALSE_ALARMS = (0.001, 0.01, 0.05, 0.1)
#: Coverage of the interval of a released entry around the true one.
COVERAGE = 0.9

#: Query -> (what is released, what the attacker may know).
QUERIES = {
    "point": (
        "the point forecast, through the mechanism",
        "everything else: every history and every model; nothing is assumed about how consumption is distributed",
    ),
    "trajectory": (
        "one draw from the predictive law, through the mechanism",
        "every history and every model, but not the draw, which the releaser made",
    ),
    "marginal": (
        "the point forecast, through the mechanism",
        "every model and season, but nothing of the recent readings; the ARMA model must be true",
    ),
    "as_in_paper": (
        "the point forecast, accounted for as if it were a draw",
        "no attacker for whom the figures hold: they account for randomness that is not in the release",
    ),
}
#: Query -> what its figures leave out.
NOT_COUNTED = {
    "trajectory": "The draw from the predictive law is made in double precision. What its rounding adds to δ is not in "
    "the figures; only the mechanism's own noise is drawn and rounded exactly.",
}
GENERAL = (
    "an answer with the stated law given its label, through the mechanism",
    "the laws of every label, but nothing more about this answer; the laws must be true",
)


@dataclass(frozen=True, eq=False)
class ReleaseCard:
    """The content of a card; :func:`release_card` makes one. ``digest`` is that of the content."""

    content: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the content in canonical JSON."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True, allow_nan=False).encode()).hexdigest()

    @property
    def meaningful(self) -> bool:
        """Whether δ is small enough for the guarantee to mean something."""
        return bool(self.content["guarantee"]["meaningful"])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings, with the digest."""
        return {**json.loads(json.dumps(self.content)), "digest": self.digest}

    def to_json(self) -> str:
        """For machines."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_markdown(self) -> str:
        """For people."""
        from shoal.card.card_text import markdown

        return markdown(self.to_dict())

    def to_yaml(self, **deployment: str) -> str:
        """The fields of the DP Deployments Registry; ``deployment`` fills in what only the publisher knows.

        Known names: name, data_curators, intended_use, data_product_region, data_product_sector, description,
        publication_date, registry_authors.
        """
        from shoal.card.card_text import registry_yaml

        return registry_yaml(self.to_dict(), deployment)

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        g = self.content["guarantee"]
        return f"ReleaseCard({g['statement']}, digest {self.digest[:12]})"


def release_card(
    mechanism: Mechanism,
    *,
    query: str | None = None,
    unit: str = "label",
    released_unit: str = "kW",
    forecasts: Forecasts | None = None,
    ledger: Any = None,
    audit: Any = None,
    guard: Any = None,
    fitted_on_private_data: bool | None = None,
    seed: int = 0,
) -> ReleaseCard:
    """Describe what a mechanism releases and how private that is.

    Args:
        mechanism: what releases the answers.
        query: the query model for forecasts, as in :meth:`Forecasts.classes`; None for answers of another kind.
        unit: what a label stands for: "household", "patient".
        released_unit: unit of the released figures, once ``forecasts`` turns them back into power.
        forecasts: where the class laws came from: adds accuracy in the released unit, and model checks.
        ledger: a :class:`shoal.Ledger` that has charged the releases: adds what has been spent.
        audit: result of :func:`shoal.audit`.
        guard: result of :func:`shoal.model_guard`.
        fitted_on_private_data: whether the class laws were estimated from the data they protect; forecasts always are.
        seed: seed of the estimate of the identification risk, where there is no closed form.
    """
    if query is not None:
        validation.choice(tuple(QUERIES), query=query)
    content: dict[str, Any] = {
        "format": "shoal release card",
        "version": VERSION,
        "software": {"name": "shoal", "version": shoal.__version__},
        "mechanism": {"method": mechanism.method, "digest": mechanism.digest, "notes": list(mechanism.notes)},
        "guarantee": _guarantee(mechanism, unit, query),
        "graph": _graph(mechanism),
        "query": _query(mechanism, query),
        "curve": _curve(mechanism),
        "renyi": _renyi(mechanism),
        "tradeoff": _tradeoff(mechanism),
        "identification": _identification(mechanism, seed),
        "accuracy": _accuracy(mechanism, forecasts, released_unit),
        "model": _model(forecasts, guard, True if forecasts is not None else fitted_on_private_data),
        "composition": _composition(ledger),
        "audit": _audit(audit),
    }
    return ReleaseCard(_plain(content))


def compare_cards(cards: Sequence[ReleaseCard]) -> list[dict[str, Any]]:
    """Cards side by side, best guarantee first; refused unless notion, ε, unit, graph and query are the same."""
    if len(cards) < 2:
        raise InputError("cards must hold at least two cards")
    first = cards[0].content
    same: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "notion": lambda c: c["guarantee"]["notion"],
        "epsilon": lambda c: c["guarantee"]["epsilon"],
        "privacy unit": lambda c: c["guarantee"]["privacy_unit"],
        "graph": lambda c: c["graph"]["digest"],
        "query": lambda c: c["query"],
        "unit of accuracy": lambda c: c["accuracy"]["unit"],
    }
    for name, pick in same.items():
        if any(pick(card.content) != pick(first) for card in cards[1:]):
            raise InputError(f"cards differ in {name}: their figures do not say which is better")
    rows = [
        {
            "method": card.content["mechanism"]["method"],
            "delta": card.content["guarantee"]["delta"],
            "meaningful": card.meaningful,
            "rho": card.content["accuracy"]["rho_largest"],
            "rmse": card.content["accuracy"]["rmse"],
            "identification": card.content["identification"]["success_upper"],
            "digest": card.digest,
        }
        for card in cards
    ]
    return sorted(rows, key=lambda row: row["delta"])


def _guarantee(mechanism: Mechanism, unit: str, query: str | None) -> dict[str, Any]:
    """The claim at the design's ε; where edges have an ε of their own, at the largest of them."""
    certificate = mechanism.certificate
    delta = round_up(certificate.delta_upper)
    epsilons = sorted({float(e) for e in mechanism.epsilon})
    epsilon = epsilons[-1] if epsilons else 0.0
    meaningful = delta <= MEANINGLESS and query != "as_in_paper"
    statement = f"(ε, δ) = ({epsilon:g}, {delta:.4g})"
    if query == "as_in_paper":
        statement = "no meaningful guarantee: accounted for randomness that is not in the release"
    elif not meaningful:
        statement = f"no meaningful guarantee: δ = {delta:.4g} is above {MEANINGLESS:g}"
    return {
        "privacy_unit": unit,
        "statement": statement,
        "meaningful": meaningful,
        "notion": certificate.released_notion,
        "designed_for": certificate.notion,
        "epsilon": epsilon,
        "epsilons": epsilons if len(epsilons) > 1 else None,
        "delta": delta,
        "log10_delta": _up(certificate.log_delta_upper / math.log(10.0)),
        "finite_precision": round_up(certificate.finite_precision),
        "worst_edge": list(certificate.worst_edge),
        "best_possible_delta": certificate.lower_bound,
    }


def _graph(mechanism: Mechanism) -> dict[str, Any]:
    graph = mechanism.graph
    sizes = np.bincount(graph.components) if graph.n_labels else np.zeros(1, dtype=int)
    listed = json.dumps([list(graph.labels), graph.edges.tolist()]).encode()
    return {
        "labels": graph.n_labels,
        "edges": graph.n_edges,
        "groups": len(sizes),
        "smallest_group": int(sizes.min()),
        "largest_group": int(sizes.max()),
        "alone": int((sizes == 1).sum()),
        "digest": hashlib.sha256(listed).hexdigest(),
    }


def _query(mechanism: Mechanism, query: str | None) -> dict[str, Any]:
    released, attacker = GENERAL if query is None else QUERIES[query]
    return {
        "name": query,
        "entries": mechanism.classes.n_dims,
        "released": released,
        "attacker_may_know": attacker,
        "not_counted": None if query is None else NOT_COUNTED.get(query),
    }


def _curve(mechanism: Mechanism) -> dict[str, Any]:
    grid = np.unique(np.concatenate([EPSILONS, mechanism.epsilon]))
    # What holds at an ε holds at every larger one; the cost of finite precision alone would grow with ε.
    deltas = np.minimum.accumulate(mechanism.released_curve(grid).delta_upper)
    return {"notion": "dp", "epsilon": grid.tolist(), "delta": [round_up(float(d)) for d in deltas]}


def _renyi(mechanism: Mechanism) -> dict[str, Any]:
    found = renyi_curve(mechanism.output, mechanism.graph, np.array(ORDERS))
    return {
        "order": list(ORDERS),
        "divergence": [_finite(round_up(float(d))) for d in found.divergence_upper],
        "of": "the answer before rounding; rounding cannot raise it, finite precision is not in it",
    }


def _tradeoff(mechanism: Mechanism) -> dict[str, Any]:
    """Largest true positive rate of any test between neighbors, at some false positive rates."""
    loss = mechanism.finite_precision_tv
    # Both rates of a test on what is really released are within the loss of those on the ideal answer.
    rates = np.array([min(math.nextafter(rate + loss, 1.0), 1.0) for rate in FALSE_ALARMS])
    worst = worst_tpr(mechanism.output, mechanism.graph, rates).tolist()
    return {
        "false_positive_rate": list(FALSE_ALARMS),
        "true_positive_rate_at_most": [min(round_up(tpr + loss), 1.0) for tpr in worst],
    }


def _identification(mechanism: Mechanism, seed: int) -> dict[str, Any]:
    found = identification_risk(mechanism.output, mechanism.graph, seed=seed)
    return {
        "success_upper": min(round_up(found.success_upper + mechanism.finite_precision_tv), 1.0),
        "guessing": found.prior_success,
        "exact": found.exact,
        "confidence": found.confidence,
        "meaning": "share of answers whose label the best attacker names within its group, all labels equally likely",
    }


def _accuracy(mechanism: Mechanism, forecasts: Forecasts | None, unit: str) -> dict[str, Any]:
    n, k = mechanism.classes.means.shape
    mean, var = np.broadcast_to(mechanism.bias, (n, k)), _error_variance(mechanism)
    half = float(ndtri(0.5 + COVERAGE / 2))
    low, high = mean - half * np.sqrt(var), mean + half * np.sqrt(var)
    rho = mechanism.rho
    found: dict[str, Any] = {
        "unit": "the answer's own",
        "rho_largest": round_up(float(rho.max())),
        "rho_mean": round_up(float(rho.mean())),
        "grid": [float(step) for step in mechanism.grid],
        "coverage": COVERAGE,
    }
    if forecasts is None:
        rmse, bias = np.sqrt(mean**2 + var), mean
        found["interval"] = [[float(a), float(b)] for a, b in zip(low.min(axis=0), high.max(axis=0), strict=True)]
    else:
        if tuple(forecasts.households) != mechanism.classes.labels:
            raise InputError("forecasts must be of the mechanism's labels, in the same order")
        covariance = np.zeros((n, k))
        if mechanism.gain is not None:
            covariance = np.einsum("nij,nji->ni", mechanism.gain, np.broadcast_to(mechanism.classes.covs, (n, k, k)))
        spread = np.diagonal(np.broadcast_to(mechanism.classes.covs, (n, k, k)), axis1=1, axis2=2)
        power = power_error(mechanism.classes.means, mean, var, log_var=spread, log_noise_cov=covariance)
        rmse, bias = power.rmse, power.bias
        found["unit"] = unit
        found["ratio_interval"] = [
            [float(a), float(b)] for a, b in zip(np.exp(low).min(axis=0), np.exp(high).max(axis=0), strict=True)
        ]
    found["rmse"] = _finite(round_up(float(np.sqrt((rmse**2).mean()))))
    found["rmse_by_step"] = [_finite(round_up(float(v))) for v in np.sqrt((rmse**2).mean(axis=0))]
    found["bias_by_step"] = [_finite(float(v)) for v in bias.mean(axis=0)]
    found["rmse_worst_label"] = _finite(round_up(float(np.sqrt((rmse**2).mean(axis=1)).max())))
    return found


def _error_variance(mechanism: Mechanism) -> FloatArray:
    """(n, k) variance of released minus true answer, each entry."""
    n, k = mechanism.classes.means.shape
    var = np.broadcast_to(np.diagonal(mechanism.noise_cov, axis1=1, axis2=2), (n, k))
    if mechanism.gain is not None:
        var = var + np.einsum(
            "nij,njl,nil->ni", mechanism.gain, np.broadcast_to(mechanism.classes.covs, (n, k, k)), mechanism.gain
        )
    return np.maximum(var, 0.0)


def _model(forecasts: Forecasts | None, guard: Any, fitted: bool | None) -> dict[str, Any]:
    found: dict[str, Any] = {"fitted_on_private_data": fitted, "checks": None, "guard": None, "left_out": None}
    if forecasts is not None:
        checks = forecasts.checks
        all_three = checks.gaussian & checks.white & checks.stationary
        found["checks"] = {
            "gaussian": int(checks.gaussian.sum()),
            "white": int(checks.white.sum()),
            "stationary": int(checks.stationary.sum()),
            "all_three": int(all_three.sum()),
            "of": len(forecasts.households),
        }
        found["left_out"] = len(forecasts.left_out)
    if guard is not None:
        found["guard"] = guard.to_dict()
    return found


def _composition(ledger: Any) -> dict[str, Any] | None:
    if ledger is None:
        return None
    spent, head = ledger.spent(), ledger.head
    worst = spent.largest
    return {
        "releases": spent.releases,
        "labels": len(spent.by_label),
        "largest": None
        if worst is None
        else {"epsilon": worst.epsilon, "spent": round_up(worst.spent), "budget": worst.budget},
        "head": str(head),
    }


def _audit(audit: Any) -> dict[str, Any] | None:
    if audit is None:
        return None
    full = audit.to_dict()
    kept = ("verdict", "confidence", "n_samples", "source", "detectable_delta", "detectable_shortage", "naming")
    return {
        **{name: full[name] for name in kept},
        "delta_proved": float(audit.delta_lower.max(initial=0.0)),
        "delta_promised": float(audit.promise[0]),
        "violations": len(full["violations"]),
        "mismatches": len(full["mismatches"]),
    }


def _up(value: float) -> float | None:
    """A logarithm rounded up to four decimals; None for that of zero."""
    return math.ceil(value * 1e4) / 1e4 if math.isfinite(value) else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    """Only what JSON knows; numbers that it does not (infinity) become None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return _finite(value) if isinstance(value, float) else value
