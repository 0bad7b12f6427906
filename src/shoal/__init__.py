"""shoal: differential privacy for class labels.

Public names are imported on first use, so that ``import shoal`` stays light: the compiled kernels load only
when a number is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

#: Public name -> the module that defines it.
_HOME = {
    "read_meters": "shoal.meters.readings",
    "simulate_meters": "shoal.meters.simulate",
    "fit_arma": "shoal.meters.arma.fit",
    "forecast": "shoal.meters.forecast",
    "Forecasts": "shoal.meters.forecast",
    "update_forecasts": "shoal.meters.update",
    "UpdateReport": "shoal.meters.update",
    "backtest": "shoal.meters.backtest",
    "power_error": "shoal.meters.power",
    "cluster_graph": "shoal.meters.neighborhoods",
    "nearest_graph": "shoal.meters.neighborhoods",
    "distance_graph": "shoal.meters.neighborhoods",
    "column_graph": "shoal.meters.neighborhoods",
    "GaussianClasses": "shoal.classes",
    "NeighborGraph": "shoal.graph",
    "ShoalError": "shoal.errors",
    "InputError": "shoal.errors",
    "CertificationError": "shoal.errors",
    "UnreachableError": "shoal.errors",
    "BudgetError": "shoal.errors",
    "LedgerError": "shoal.errors",
    "StorageError": "shoal.errors",
    "WorkerError": "shoal.errors",
    "Ledger": "shoal.ledger.ledger",
    "MechanismBound": "shoal.ledger.bounds",
    "mechanism_bound": "shoal.ledger.bounds",
    "run": "shoal.runs.run",
    "Run": "shoal.runs.run",
    "Config": "shoal.runs.config",
    "Speed": "shoal.runs.config",
    "SimulatedMeters": "shoal.runs.sources",
    "plan": "shoal.runs.plan",
    "Plan": "shoal.runs.plan",
    "PrivacyCurve": "shoal.accounting.curve",
    "privacy_curve": "shoal.accounting.curve",
    "edge_deltas": "shoal.accounting.curve",
    "edge_brackets": "shoal.accounting.curve",
    "epsilon_at": "shoal.accounting.curve",
    "PairPrivacy": "shoal.accounting.pairs",
    "pair_privacy": "shoal.accounting.pairs",
    "RenyiCurve": "shoal.accounting.renyi",
    "renyi_curve": "shoal.accounting.renyi",
    "zcdp": "shoal.accounting.renyi",
    "gdp": "shoal.accounting.renyi",
    "gaussian_sensitivity": "shoal.accounting.renyi",
    "gaussian_sensitivity_approximation": "shoal.accounting.renyi",
    "TradeoffCurve": "shoal.accounting.tradeoff",
    "tradeoff_curve": "shoal.accounting.tradeoff",
    "tpr_at_fpr": "shoal.accounting.tradeoff",
    "IdentificationRisk": "shoal.accounting.risk",
    "identification_risk": "shoal.accounting.risk",
    "Mechanism": "shoal.mechanism",
    "Certificate": "shoal.certificate",
    "NotPrivate": "shoal.noise.experiment",
    "Frontier": "shoal.designs.design",
    "design": "shoal.designs.design",
    "calibrate": "shoal.designs.calibration",
    "frontier": "shoal.designs.design",
    "perfect_rho": "shoal.designs.design",
    "reuse": "shoal.designs.reuse",
    "Reuse": "shoal.designs.reuse",
    "redesigned": "shoal.designs.reuse",
    "audit": "shoal.audits.audit",
    "Audit": "shoal.audits.verdict",
    "ModelGuard": "shoal.audits.guard",
    "model_guard": "shoal.audits.guard",
    "ObservedLoss": "shoal.audits.holdout",
    "observed_loss": "shoal.audits.holdout",
    "ReleaseCard": "shoal.card.card",
    "release_card": "shoal.card.card",
    "compare_cards": "shoal.card.card",
    "SyntheticStudy": "shoal.reproduction.synthetic_study",
    "reproduce_synthetic": "shoal.reproduction.synthetic_study",
    "MetersStudy": "shoal.reproduction.meters_study",
    "reproduce_meters": "shoal.reproduction.meters_study",
    "sensitivity": "shoal.accounting.deterministic",
    "gaussian_delta": "shoal.accounting.deterministic",
    "analytic_sigma": "shoal.accounting.deterministic",
    "write_report": "shoal.card.page",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
