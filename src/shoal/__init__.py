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
    "load_meters": "shoal.meters.readings",
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
    "EngineError": "shoal.errors",
    "Ledger": "shoal.ledger.ledger",
    "MechanismBound": "shoal.ledger.bounds",
    "mechanism_bound": "shoal.ledger.bounds",
    "Run": "shoal.engine.run",
    "PrivacyCurve": "shoal.privacy.curve",
    "privacy_curve": "shoal.privacy.curve",
    "edge_deltas": "shoal.privacy.curve",
    "edge_brackets": "shoal.privacy.curve",
    "epsilon_at": "shoal.privacy.curve",
    "PairPrivacy": "shoal.privacy.pairs",
    "pair_privacy": "shoal.privacy.pairs",
    "RenyiCurve": "shoal.privacy.renyi",
    "renyi_curve": "shoal.privacy.renyi",
    "zcdp": "shoal.privacy.renyi",
    "gdp": "shoal.privacy.renyi",
    "gaussian_sensitivity": "shoal.privacy.renyi",
    "gaussian_sensitivity_approximation": "shoal.privacy.renyi",
    "TradeoffCurve": "shoal.privacy.tradeoff",
    "tradeoff_curve": "shoal.privacy.tradeoff",
    "tpr_at_fpr": "shoal.privacy.tradeoff",
    "IdentificationRisk": "shoal.privacy.risk",
    "identification_risk": "shoal.privacy.risk",
    "Mechanism": "shoal.mechanisms.mechanism",
    "Certificate": "shoal.mechanisms.certificate",
    "NotPrivate": "shoal.noise.experiment",
    "Frontier": "shoal.mechanisms.design",
    "design": "shoal.mechanisms.design",
    "calibrate": "shoal.mechanisms.design",
    "frontier": "shoal.mechanisms.design",
    "perfect_rho": "shoal.mechanisms.design",
    "reuse": "shoal.mechanisms.reuse",
    "Reuse": "shoal.mechanisms.reuse",
    "redesigned": "shoal.mechanisms.reuse",
    "audit": "shoal.release.audit",
    "Audit": "shoal.release.report",
    "ModelGuard": "shoal.release.guard",
    "model_guard": "shoal.release.guard",
    "ObservedLoss": "shoal.release.holdout",
    "observed_loss": "shoal.release.holdout",
    "ReleaseCard": "shoal.release.card",
    "release_card": "shoal.release.card",
    "compare_cards": "shoal.release.card",
    "SyntheticStudy": "shoal.studies.synthetic_study",
    "reproduce_synthetic": "shoal.studies.synthetic_study",
    "MetersStudy": "shoal.studies.meters_study",
    "reproduce_meters": "shoal.studies.meters_study",
    "sensitivity": "shoal.privacy.deterministic",
    "gaussian_delta": "shoal.privacy.deterministic",
    "analytic_sigma": "shoal.privacy.deterministic",
    "write_report": "shoal.report.page",
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
