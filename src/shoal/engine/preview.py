"""What a new release would cost, worked out in a folder of its own before anything is put aside or charged."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.accounting.curve import round_up
from shoal.engine.folder import Done, Folder, State
from shoal.errors import InputError, ShoalError

if TYPE_CHECKING:
    from shoal.engine.run import Run

NEXT = "next"


def refusal(run: Run) -> str:
    """Why the run does not go on, and what going on would cost."""
    where = run.folder.path.name
    return (
        f"out: {where} holds a release made with other settings, readings or another shoal. Nothing was changed. "
        f"{_cost(run)} `shoal run --out {where} --again` with these settings does it; a new folder starts afresh"
    )


def adopt(run: Run) -> None:
    """Take over forecasts and design that were made for a preview of exactly these settings."""
    folder = Folder(run.folder / NEXT)
    if not folder.is_run:
        return
    try:
        made = folder.state()
    except InputError:
        return
    for stage in ("fit", "design"):
        done = made.stages.get(stage)
        if done is not None and done.key == run.key(stage) and folder.intact(done) and not run.is_done(stage):
            _copied(folder, run.folder, done)
            run._remember(replace(run.state, stages={**run.state.stages, stage: done}))
    shutil.rmtree(folder.path)


def _copied(source: Folder, target: Folder, done: Done) -> None:
    for name in done.files:
        target.put(name, (source / name).read_bytes())


def _cost(run: Run) -> str:
    """The cost of a new release about the household that is hardest to hide, in a sentence."""
    from shoal.engine.releasing import open_ledger, refuse_empty_claims
    from shoal.engine.run import Run

    folder = run.folder
    if not run.is_done("design") and run.pipeline.name == "sharded":
        return "What a new release costs is known once every shard is designed anew."
    if not run.is_done("design"):
        folder = Folder(run.folder / NEXT)
        if not folder.is_run:
            folder.path.mkdir(exist_ok=True)
        fresh = State(source=run.state.source, config=run.config.to_dict(), run=run.state.run)
        if folder.is_run:
            fresh = replace(fresh, stages=folder.state().stages)
        if run.is_done("fit"):
            done = run.state.stages["fit"]
            _copied(run.folder, folder, done)
            fresh = replace(fresh, stages={"fit": done, **{k: v for k, v in fresh.stages.items() if k != "fit"}})
        folder.remember(fresh)
        other = Run(folder, fresh, run.progress, run.pipeline)
        other.fit()
        other.design()
    mechanism = run.pipeline.hardest(folder)
    try:
        refuse_empty_claims(mechanism, run.config)
        with open_ledger(run.folder, run.config) as ledger:
            label = mechanism.certificate.worst_edge[0]
            cost = ledger.cost(mechanism, label)
    except ShoalError as error:
        return f"A new release would be refused: {error}."
    worst = max(zip(cost.before, cost.after, strict=True), key=lambda pair: pair[1].spent)
    verdict = "within" if cost.allowed else "so it would be refused (`shoal ledger budget` raises one): above"
    return (
        f"A new release would raise δ({worst[1].epsilon:g}) of the household hardest to hide from "
        f"{round_up(worst[0].spent):.4g} to {round_up(worst[1].spent):.4g}, {verdict} its budget of "
        f"{worst[1].budget:g}."
    )
