"""What a new release would cost, worked out before anything is put aside or charged.

Shards are named by what goes into them, so that what is made for a preview is found again by the release itself. Only
the lists of a preview lie in a folder of their own, ``next``, which is removed.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.accounting.curve import round_up
from shoal.errors import InputError, ShoalError
from shoal.mechanism.reader import Releaser, load
from shoal.runs.context import DESIGN, FIT
from shoal.runs.folder import Folder
from shoal.runs.stages import design_stage, first_stage, release_stage

if TYPE_CHECKING:
    from shoal.runs.run import Run

NEXT = "next"
#: Households up to which forecasts are made anew for a preview.
FEW = 5000


def refusal(run: Run) -> str:
    """Why the run does not go on, and what going on would cost."""
    where = run.path.name
    return (
        f"out: {where} holds a release made with {run.what_differs()}. Nothing was changed. "
        f"{_cost(run)} `shoal run --out {where} --again` with these settings does it"
    )


def _cost(run: Run) -> str:
    """The cost of a new release about the household that is hardest to hide, in a sentence."""
    if not run.is_done("fit") and run.fit is not None and run.fit.labels > FEW:
        return "What a new release costs is known once every shard is fitted anew."
    try:
        mechanism = _hardest(run)
        release_stage.refuse_empty_claims(mechanism, run.config)
        with run.ledger() as ledger:
            worst_pair = (
                mechanism.curve(0.0).worst_edge if mechanism.certificate is None else mechanism.certificate.worst_edge
            )
            cost = ledger.cost(mechanism, worst_pair)
    except ShoalError as error:
        return f"A new release would be refused: {error}."
    worst = max(zip(cost.before, cost.after, strict=True), key=lambda pair: pair[1].spent)
    verdict = "within" if cost.allowed else "so it would be refused (`shoal ledger budget` raises one): above"
    return (
        f"A new release would raise δ({worst[1].epsilon:g}) of the household hardest to hide from "
        f"{round_up(worst[0].spent):.4g} to {round_up(worst[1].spent):.4g}, {verdict} its budget of "
        f"{worst[1].budget:g}."
    )


def _hardest(run: Run) -> Releaser:
    """The mechanism, as now configured, of the shard that is hardest to hide in."""
    if run.is_done("design"):
        return load(design_stage.hardest(run.context("design").listing(DESIGN).pairs)[0].path)
    folder = Folder(run.folder / NEXT)
    folder.path.mkdir(exist_ok=True, mode=0o700)
    try:
        context = replace(run.context("design"), folder=folder, preview=True)
        if run.is_done("fit"):
            folder.put(FIT, (run.folder / FIT).read_bytes())
        else:
            if run.state.previous is not None:
                raise InputError("the forecasts of a day that goes on from another are made anew only with the release")
            first_stage.stage(replace(context, groups_fixed=False))
        design_stage.stage(context)
        return load(design_stage.hardest(context.listing(DESIGN).pairs)[0].path)
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
