"""shoal: differential privacy for class labels.

Public names are imported on first use, so that ``import shoal`` stays light: the compiled kernels load only
when a number is asked for. Type checkers see them all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from shoal.accounting.curve import PrivacyCurve as PrivacyCurve
    from shoal.accounting.curve import edge_brackets as edge_brackets
    from shoal.accounting.curve import edge_deltas as edge_deltas
    from shoal.accounting.curve import epsilon_at as epsilon_at
    from shoal.accounting.curve import privacy_curve as privacy_curve
    from shoal.accounting.deterministic import analytic_sigma as analytic_sigma
    from shoal.accounting.deterministic import gaussian_delta as gaussian_delta
    from shoal.accounting.deterministic import sensitivity as sensitivity
    from shoal.accounting.pairs import PairPrivacy as PairPrivacy
    from shoal.accounting.pairs import pair_privacy as pair_privacy
    from shoal.accounting.renyi import RenyiCurve as RenyiCurve
    from shoal.accounting.renyi import gaussian_sensitivity as gaussian_sensitivity
    from shoal.accounting.renyi import gaussian_sensitivity_approximation as gaussian_sensitivity_approximation
    from shoal.accounting.renyi import gdp as gdp
    from shoal.accounting.renyi import renyi_curve as renyi_curve
    from shoal.accounting.renyi import zcdp as zcdp
    from shoal.accounting.risk import IdentificationRisk as IdentificationRisk
    from shoal.accounting.risk import identification_risk as identification_risk
    from shoal.accounting.tradeoff import TradeoffCurve as TradeoffCurve
    from shoal.accounting.tradeoff import tpr_at_fpr as tpr_at_fpr
    from shoal.accounting.tradeoff import tradeoff_curve as tradeoff_curve
    from shoal.audits.audit import audit as audit
    from shoal.audits.book_audit import BookAudit as BookAudit
    from shoal.audits.guard import ModelGuard as ModelGuard
    from shoal.audits.guard import model_guard as model_guard
    from shoal.audits.holdout import ObservedLoss as ObservedLoss
    from shoal.audits.holdout import observed_loss as observed_loss
    from shoal.audits.verdict import Audit as Audit
    from shoal.card.card import ReleaseCard as ReleaseCard
    from shoal.card.card import compare_cards as compare_cards
    from shoal.card.card import release_card as release_card
    from shoal.card.page import write_report as write_report
    from shoal.certificate import Certificate as Certificate
    from shoal.classdata.hider import LabelHider as LabelHider
    from shoal.classdata.hider import LawWarning as LawWarning
    from shoal.classes import GaussianClasses as GaussianClasses
    from shoal.clip import AssumptionFree as AssumptionFree
    from shoal.clip import Clip as Clip
    from shoal.clip import assumption_free as assumption_free
    from shoal.codebooks.codebook import Codebook as Codebook
    from shoal.codebooks.codebook import codebook as codebook
    from shoal.codebooks.sequence import AdaptiveFilter as AdaptiveFilter
    from shoal.codebooks.sequence import composed_delta as composed_delta
    from shoal.designs.calibration import calibrate as calibrate
    from shoal.designs.design import Frontier as Frontier
    from shoal.designs.design import design as design
    from shoal.designs.design import frontier as frontier
    from shoal.designs.design import perfect_rho as perfect_rho
    from shoal.designs.equal_epsilon import EpsilonFrontier as EpsilonFrontier
    from shoal.designs.equal_epsilon import epsilon_frontier as epsilon_frontier
    from shoal.designs.reuse import Reuse as Reuse
    from shoal.designs.reuse import redesigned as redesigned
    from shoal.designs.reuse import reuse as reuse
    from shoal.errors import BudgetError as BudgetError
    from shoal.errors import CertificationError as CertificationError
    from shoal.errors import InputError as InputError
    from shoal.errors import LedgerError as LedgerError
    from shoal.errors import ShoalError as ShoalError
    from shoal.errors import StorageError as StorageError
    from shoal.errors import UnreachableError as UnreachableError
    from shoal.errors import WorkerError as WorkerError
    from shoal.graph import NeighborGraph as NeighborGraph
    from shoal.interchange import to_opendp as to_opendp
    from shoal.interchange import to_pld as to_pld
    from shoal.law_checks import LawChecks as LawChecks
    from shoal.ledger.bounds import MechanismBound as MechanismBound
    from shoal.ledger.bounds import mechanism_bound as mechanism_bound
    from shoal.ledger.ledger import Ledger as Ledger
    from shoal.mechanism import Ending as Ending
    from shoal.mechanism import Mechanism as Mechanism
    from shoal.mechanism_reader import load as load
    from shoal.meters.arma.fit import fit_arma as fit_arma
    from shoal.meters.backtest import backtest as backtest
    from shoal.meters.forecast import Forecasts as Forecasts
    from shoal.meters.forecast import forecast as forecast
    from shoal.meters.neighborhoods import LonelyWarning as LonelyWarning
    from shoal.meters.neighborhoods import cluster_graph as cluster_graph
    from shoal.meters.neighborhoods import column_graph as column_graph
    from shoal.meters.neighborhoods import crowd_graph as crowd_graph
    from shoal.meters.neighborhoods import distance_graph as distance_graph
    from shoal.meters.neighborhoods import nearest_graph as nearest_graph
    from shoal.meters.power import power_error as power_error
    from shoal.meters.quality import QualityWarning as QualityWarning
    from shoal.meters.queries import AccountingWarning as AccountingWarning
    from shoal.meters.readings import read_meters as read_meters
    from shoal.meters.simulate import simulate_meters as simulate_meters
    from shoal.meters.update import UpdateReport as UpdateReport
    from shoal.meters.update import update_forecasts as update_forecasts
    from shoal.mixtures import GaussianMixtureClasses as GaussianMixtureClasses
    from shoal.mixtures import MixtureBound as MixtureBound
    from shoal.noise.experiment import NotPrivate as NotPrivate
    from shoal.plaintext import printable as printable
    from shoal.proofs.proof import Proof as Proof
    from shoal.proofs.proof import prove as prove
    from shoal.reproduction.meters_study import MetersStudy as MetersStudy
    from shoal.reproduction.meters_study import reproduce_meters as reproduce_meters
    from shoal.reproduction.synthetic_study import SyntheticStudy as SyntheticStudy
    from shoal.reproduction.synthetic_study import reproduce_synthetic as reproduce_synthetic
    from shoal.runs.config import Config as Config
    from shoal.runs.config import Speed as Speed
    from shoal.runs.plan import Plan as Plan
    from shoal.runs.plan import plan as plan
    from shoal.runs.run import Run as Run
    from shoal.runs.run import run as run
    from shoal.runs.sources import SimulatedMeters as SimulatedMeters
    from shoal.runs.worst_figures import WorstCurve as WorstCurve
    from shoal.service.server import serve as serve
    from shoal.studies.reidentification import Reidentification as Reidentification
    from shoal.studies.reidentification import reidentify as reidentify
    from shoal.studies.rule import RuleStudy as RuleStudy
    from shoal.studies.rule import price_rule as price_rule
    from shoal.supports import RankWarning as RankWarning

#: Public name -> the module that defines it; a test holds it against the imports above.
_HOME = {
    "PrivacyCurve": "shoal.accounting.curve",
    "edge_brackets": "shoal.accounting.curve",
    "edge_deltas": "shoal.accounting.curve",
    "epsilon_at": "shoal.accounting.curve",
    "privacy_curve": "shoal.accounting.curve",
    "analytic_sigma": "shoal.accounting.deterministic",
    "gaussian_delta": "shoal.accounting.deterministic",
    "sensitivity": "shoal.accounting.deterministic",
    "PairPrivacy": "shoal.accounting.pairs",
    "pair_privacy": "shoal.accounting.pairs",
    "RenyiCurve": "shoal.accounting.renyi",
    "gaussian_sensitivity": "shoal.accounting.renyi",
    "gaussian_sensitivity_approximation": "shoal.accounting.renyi",
    "gdp": "shoal.accounting.renyi",
    "renyi_curve": "shoal.accounting.renyi",
    "zcdp": "shoal.accounting.renyi",
    "IdentificationRisk": "shoal.accounting.risk",
    "identification_risk": "shoal.accounting.risk",
    "TradeoffCurve": "shoal.accounting.tradeoff",
    "tpr_at_fpr": "shoal.accounting.tradeoff",
    "tradeoff_curve": "shoal.accounting.tradeoff",
    "audit": "shoal.audits.audit",
    "ModelGuard": "shoal.audits.guard",
    "model_guard": "shoal.audits.guard",
    "ObservedLoss": "shoal.audits.holdout",
    "observed_loss": "shoal.audits.holdout",
    "Audit": "shoal.audits.verdict",
    "ReleaseCard": "shoal.card.card",
    "compare_cards": "shoal.card.card",
    "release_card": "shoal.card.card",
    "write_report": "shoal.card.page",
    "Certificate": "shoal.certificate",
    "LabelHider": "shoal.classdata.hider",
    "LawWarning": "shoal.classdata.hider",
    "GaussianClasses": "shoal.classes",
    "AssumptionFree": "shoal.clip",
    "Clip": "shoal.clip",
    "assumption_free": "shoal.clip",
    "Codebook": "shoal.codebooks.codebook",
    "codebook": "shoal.codebooks.codebook",
    "AdaptiveFilter": "shoal.codebooks.sequence",
    "composed_delta": "shoal.codebooks.sequence",
    "calibrate": "shoal.designs.calibration",
    "Frontier": "shoal.designs.design",
    "EpsilonFrontier": "shoal.designs.equal_epsilon",
    "epsilon_frontier": "shoal.designs.equal_epsilon",
    "BookAudit": "shoal.audits.book_audit",
    "design": "shoal.designs.design",
    "frontier": "shoal.designs.design",
    "perfect_rho": "shoal.designs.design",
    "Reuse": "shoal.designs.reuse",
    "redesigned": "shoal.designs.reuse",
    "reuse": "shoal.designs.reuse",
    "BudgetError": "shoal.errors",
    "CertificationError": "shoal.errors",
    "InputError": "shoal.errors",
    "LedgerError": "shoal.errors",
    "ShoalError": "shoal.errors",
    "StorageError": "shoal.errors",
    "UnreachableError": "shoal.errors",
    "WorkerError": "shoal.errors",
    "NeighborGraph": "shoal.graph",
    "LawChecks": "shoal.law_checks",
    "to_opendp": "shoal.interchange",
    "to_pld": "shoal.interchange",
    "MechanismBound": "shoal.ledger.bounds",
    "mechanism_bound": "shoal.ledger.bounds",
    "Ledger": "shoal.ledger.ledger",
    "Ending": "shoal.mechanism",
    "Mechanism": "shoal.mechanism",
    "load": "shoal.mechanism_reader",
    "fit_arma": "shoal.meters.arma.fit",
    "backtest": "shoal.meters.backtest",
    "Forecasts": "shoal.meters.forecast",
    "forecast": "shoal.meters.forecast",
    "LonelyWarning": "shoal.meters.neighborhoods",
    "cluster_graph": "shoal.meters.neighborhoods",
    "column_graph": "shoal.meters.neighborhoods",
    "crowd_graph": "shoal.meters.neighborhoods",
    "distance_graph": "shoal.meters.neighborhoods",
    "nearest_graph": "shoal.meters.neighborhoods",
    "power_error": "shoal.meters.power",
    "QualityWarning": "shoal.meters.quality",
    "AccountingWarning": "shoal.meters.queries",
    "read_meters": "shoal.meters.readings",
    "simulate_meters": "shoal.meters.simulate",
    "UpdateReport": "shoal.meters.update",
    "update_forecasts": "shoal.meters.update",
    "GaussianMixtureClasses": "shoal.mixtures",
    "MixtureBound": "shoal.mixtures",
    "NotPrivate": "shoal.noise.experiment",
    "Proof": "shoal.proofs.proof",
    "prove": "shoal.proofs.proof",
    "MetersStudy": "shoal.reproduction.meters_study",
    "reproduce_meters": "shoal.reproduction.meters_study",
    "SyntheticStudy": "shoal.reproduction.synthetic_study",
    "reproduce_synthetic": "shoal.reproduction.synthetic_study",
    "Config": "shoal.runs.config",
    "Speed": "shoal.runs.config",
    "printable": "shoal.plaintext",
    "Plan": "shoal.runs.plan",
    "plan": "shoal.runs.plan",
    "Run": "shoal.runs.run",
    "run": "shoal.runs.run",
    "SimulatedMeters": "shoal.runs.sources",
    "WorstCurve": "shoal.runs.worst_figures",
    "serve": "shoal.service.server",
    "Reidentification": "shoal.studies.reidentification",
    "reidentify": "shoal.studies.reidentification",
    "RuleStudy": "shoal.studies.rule",
    "price_rule": "shoal.studies.rule",
    "RankWarning": "shoal.supports",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


if not TYPE_CHECKING:  # a type checker would take any name for an Any

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'shoal' has no attribute {name!r}")
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
