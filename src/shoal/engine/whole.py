"""The stages of a run in one piece: everything in memory at once, for a neighborhood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.engine.folder import STAGES, Folder
from shoal.mechanism import Mechanism

if TYPE_CHECKING:
    from shoal.engine.run import Made, Run

_READING = (
    "unit", "interval", "time_zone", "max_kw", "household_column", "timestamp_column", "value_column", "only",
    "train_days", "horizon", "order", "season", "origin", "clusters", "cluster_by", "table", "column", "seed",
)  # fmt: skip


class Whole:
    """Stages whose files are the forecasts, the mechanism and the answers of all households."""

    name = "whole"
    settings = {  # noqa: RUF012 - shared by all, never changed
        "fit": _READING,
        "design": ("query", "method", "epsilon", "delta", "rho", "design_seconds", "seed"),
        "release": ("query", "ledger"),
        "audit": ("query", "audit_samples", "confidence", "seed"),
        "card": ("query", "seed"),
        "report": ("title", "query", "epsilon", "seed"),
    }

    def fit(self, run: Run) -> Made:
        from shoal.engine.fitting import fit

        return fit(run.folder, run.state.source, run.config, run.counted("fit", "fitting forecasts"))

    def design(self, run: Run) -> Made:
        from shoal.engine.designing import design

        return design(run.folder, run.config, run.counted("design", "searching"))

    def release(self, run: Run) -> Made:
        from shoal.engine.releasing import release

        return release(run.folder, run.config, run.release_name)

    def audit(self, run: Run) -> Made:
        from shoal.engine.evidence import audit

        return audit(run.folder, run.config, run.counted("audit", "attacking released answers"))

    def card(self, run: Run) -> Made:
        from shoal.engine.evidence import card

        return card(run.folder, run.config)

    def report(self, run: Run) -> Made:
        from shoal.engine.evidence import report

        timings = {name: run.state.stages[name].seconds for name in STAGES if name in run.state.stages}
        return report(run.folder, run.config, timings)

    def hardest(self, folder: Folder) -> Mechanism:
        from shoal.engine.designing import MECHANISM

        return Mechanism.load(folder / MECHANISM)

    def lacking(self, run: Run) -> bool:
        return False
