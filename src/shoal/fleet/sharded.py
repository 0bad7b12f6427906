"""The stages of a run over shards, as :class:`shoal.engine.run.Run` calls them: bounded memory.

| stage | does, shard by shard | writes |
| --- | --- | --- |
| fit | readings to shards of whole groups; forecasts | fit.json |
| design | a mechanism per shard, each group for itself | design.json |
| release | workers draw, the driver charges, then writes | released/*.parquet, release.json |
| audit | attacks on a sample of groups and on the hardest | audit.json |
| card | the fleet's figures, from the shards' certificates | card.json, card.md, manifest.json |

The lists name every shard with its digest; the shards themselves lie under ``shards/``, named by what they were made
from. Nothing here depends on the engine or on the number of workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.engine.config import Config
from shoal.engine.folder import Folder
from shoal.engine.whole import Whole
from shoal.fleet import auditing, charging, evidence, modeling
from shoal.mechanism import Mechanism

if TYPE_CHECKING:
    from shoal.engine.run import Made, Pipeline, Run


class Sharded:
    """Stages whose files are lists of shards. Which engine runs them does not enter any key: it changes no result."""

    name = "sharded"
    settings = {  # noqa: RUF012 - shared by all, never changed
        **Whole.settings,
        "fit": (
            *(s for s in Whole.settings["fit"] if s != "cluster_by"),
            "shard_size",
            "group_cap",
            "refit_days",
            "drift_level",
        ),
        "design": ("query", "method", "epsilon", "delta", "rho", "search", "seed", "rho_tolerance"),
        "audit": ("query", "audit_samples", "confidence", "seed", "audit_groups"),
    }

    def fit(self, run: Run) -> Made:
        state = run.state
        return modeling.fit(
            run.folder, state.source, run.config, state.previous, run.told("fit"), groups_fixed=run.released
        )

    def design(self, run: Run) -> Made:
        return modeling.design(run.folder, run.config, run.state.previous, run.told("design"))

    def release(self, run: Run) -> Made:
        return charging.release(run.folder, run.config, run.release_name, run.told("release"))

    def audit(self, run: Run) -> Made:
        return evidence.audit(run.folder, run.config, run.told("audit"))

    def card(self, run: Run) -> Made:
        facts = {stage: run.facts(stage) for stage in ("fit", "design", "release", "audit")}
        return evidence.card(run.folder, run.config, facts, run.state.source)

    def report(self, run: Run) -> Made:
        return evidence.report(run.folder, run.config, {stage: run.facts(stage) for stage in ("fit", "release")})

    def hardest(self, folder: Folder) -> Mechanism:
        return auditing.hardest(folder)

    def lacking(self, run: Run) -> bool:
        """Shards that failed, or that were released and are gone."""
        failed = any(run.facts(stage).get("failed") for stage in ("fit", "design", "release"))
        return failed or ("release" in run.state.stages and charging.released_gone(run.folder))


def pipeline_of(config: Config) -> Pipeline:
    """In one piece, or over shards where an engine is named."""
    return Whole() if config.engine is None else Sharded()
