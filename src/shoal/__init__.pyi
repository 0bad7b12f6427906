"""The public names, each with the module that defines it; ``__init__.py`` reads this list.

They stand below ``TYPE_CHECKING`` so that a type checker works through the modules themselves first.
"""

from typing import TYPE_CHECKING

from shoal import testing as testing

if TYPE_CHECKING:  # the library: pip install shoal
    from shoal.accounting.curve import edge_deltas as edge_deltas
    from shoal.accounting.curve import epsilon_at as epsilon_at
    from shoal.accounting.curve import privacy_curve as privacy_curve
    from shoal.accounting.deterministic import analytic_sigma as analytic_sigma
    from shoal.accounting.deterministic import sensitivity as sensitivity
    from shoal.accounting.renyi import renyi_curve as renyi_curve
    from shoal.accounting.risk import identification_risk as identification_risk
    from shoal.arma.fit import fit_arma as fit_arma
    from shoal.audits.audit import audit as audit
    from shoal.audits.guard import model_guard as model_guard
    from shoal.crowds.publish import RowsState as RowsState
    from shoal.crowds.publish import publish_rows as publish_rows
    from shoal.designs.calibration import calibrate as calibrate
    from shoal.designs.comparison import compare as compare
    from shoal.designs.design import design as design
    from shoal.designs.design import frontier as frontier
    from shoal.designs.design import perfect_rho as perfect_rho
    from shoal.errors import BudgetError as BudgetError
    from shoal.errors import CertificationError as CertificationError
    from shoal.errors import InputError as InputError
    from shoal.errors import LedgerError as LedgerError
    from shoal.errors import ShoalError as ShoalError
    from shoal.errors import StorageError as StorageError
    from shoal.errors import UnreachableError as UnreachableError
    from shoal.errors import WorkerError as WorkerError
    from shoal.laws.classes import GaussianClasses as GaussianClasses
    from shoal.laws.graph import NeighborGraph as NeighborGraph
    from shoal.mechanism.codebook import Codebook as Codebook
    from shoal.mechanism.codebook import codebook as codebook
    from shoal.mechanism.composition import composed_delta as composed_delta
    from shoal.mechanism.mechanism import Mechanism as Mechanism
    from shoal.mechanism.releasable import load as load
    from shoal.proofs.proof import Proof as Proof
    from shoal.proofs.proof import prove as prove
    from shoal.readings.crowds import noisy_crowds as noisy_crowds
    from shoal.readings.plan import noisy_crowds_plan as noisy_crowds_plan
    from shoal.readings.population_error import population_error as population_error

if TYPE_CHECKING:  # the product: pip install 'shoal[run]'
    from shoal.product.card.card import ReleaseCard as ReleaseCard
    from shoal.product.ledger.ledger import Ledger as Ledger
    from shoal.product.runs.config import Config as Config
    from shoal.product.runs.crowd_choice import check as check
    from shoal.product.runs.crowd_choice import choose as choose
    from shoal.product.runs.folder import SimulatedMeters as SimulatedMeters
    from shoal.product.runs.release_check import attack_run as attack_run
    from shoal.product.runs.run import Run as Run
    from shoal.product.runs.run import run as run
    from shoal.product.sources.hider import LabelHider as LabelHider
    from shoal.product.sources.hider import LawWarning as LawWarning
    from shoal.product.sources.meters.crowd_points import crowd_graph as crowd_graph
    from shoal.product.sources.meters.forecast import forecast as forecast
    from shoal.product.sources.meters.forecast import update_forecasts as update_forecasts
    from shoal.product.sources.meters.meter_files import read_meters as read_meters
    from shoal.product.sources.meters.predictive_laws import Forecasts as Forecasts
    from shoal.product.sources.meters.simulate import simulate_meters as simulate_meters
    from shoal.product.studies.meter_attack import attack_meters as attack_meters
    from shoal.product.studies.table_attack import attack_table as attack_table
    from shoal.product.studies.table_attack import find_published as find_published

__version__: str
__all__: list[str]
