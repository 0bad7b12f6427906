"""The second stage: forecasts to a mechanism, by an error to spend or by a guarantee to reach."""

from __future__ import annotations

import warnings
from typing import Any

from shoal.accounting.curve import round_up
from shoal.classes import GaussianClasses
from shoal.designs.calibration import calibrate
from shoal.designs.design import design as design_mechanism
from shoal.designs.design import perfect_rho
from shoal.engine.config import Config
from shoal.engine.cost import cost_facts
from shoal.engine.fitting import FORECASTS, GRAPH, Progress, load_graph
from shoal.engine.folder import Folder
from shoal.meters.forecast import Forecasts
from shoal.meters.queries import AccountingWarning
from shoal.report.homes import all_alike

MECHANISM = "mechanism.shoal"
#: Above this δ the guarantee means little: an event of this probability may reveal the household.
MEANINGLESS = 1e-2


def laws(forecasts: Forecasts, query: str) -> GaussianClasses:
    """The class laws of a query; what is wrong with ``as_in_paper`` is said in the facts, once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccountingWarning)
        return forecasts.classes(query)


def design(folder: Folder, config: Config, progress: Progress | None = None) -> tuple[list[str], dict[str, Any]]:
    """Write the mechanism."""
    forecasts = Forecasts.load(folder / FORECASTS)
    graph = load_graph(folder / GRAPH)
    classes = laws(forecasts, config.query)
    if config.target is not None:
        mechanism = calibrate(
            classes,
            graph,
            config.method,
            config.epsilon,
            config.target,
            seed=config.seed,
            tolerance=0.02,
            time_limit=config.design_seconds,
            progress=progress,
        )
    else:
        report = None if progress is None else lambda done, total, _: progress(done, total)
        mechanism = design_mechanism(
            classes,
            graph,
            config.method,
            config.epsilon,
            config.rho,
            seed=config.seed,
            time_limit=config.design_seconds,
            interruptible=True,
            progress=report,
        )
    folder.write(MECHANISM, mechanism.save)
    certificate = mechanism.certificate
    cost = cost_facts(mechanism, forecasts)
    equal = mechanism
    if cost["rho_mean"] > 0:
        equal = design_mechanism(classes, graph, "white", config.epsilon, cost["rho_mean"])
    return [MECHANISM], {
        "method": mechanism.method,
        "query": config.query,
        "epsilon": config.epsilon,
        "target": config.target,
        "delta": round_up(certificate.delta_upper),
        "notion": certificate.released_notion,
        "worst_edge": list(certificate.worst_edge),
        "meaningful": certificate.delta_upper <= MEANINGLESS and config.query != "as_in_paper",
        "all_alike": all_alike(mechanism.output),
        "perfect_rho": perfect_rho(classes, graph),
        "equal_noise_delta": round_up(equal.certificate.delta_upper),
        "notes": list(mechanism.notes),
        **cost,
    }
