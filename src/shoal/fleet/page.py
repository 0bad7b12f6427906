"""The report of a fleet: the page of the group that is hardest to hide in, with the fleet's figures in its title.

Every other group is at least as well protected at the design's ε. The page is for the data owner, as that of a run in
one piece is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.audits.guard import model_guard
from shoal.card.card import release_card
from shoal.designs.target import part_of
from shoal.engine.config import Config
from shoal.engine.evidence import REPORT, Attacked, Recorded, later_errors, page
from shoal.engine.fitting import later
from shoal.engine.folder import Folder
from shoal.fleet.jobs import Part, read_list
from shoal.fleet.shards import readings_of
from shoal.mechanism import Mechanism
from shoal.meters.forecast import Forecasts
from shoal.validation import FloatArray

OTHERS = "in another group, which is not on this page"


def report(
    folder: Folder, config: Config, hardest: tuple[Part, Part, Part, Part], attacked: dict[str, Any], text: str
) -> tuple[list[str], dict[str, Any]]:
    """Write the page from the shards (readings, forecasts, mechanism, released) of the hardest group."""
    readings, fitted, designed, given = hardest
    for part in hardest:
        part.check()
    whole = Mechanism.load(designed.path)
    everyone = Forecasts.load(fitted.path)
    there = set(everyone.households)  # in a run that goes on, a member may have no forecast today
    members = [name for name in group_of(whole, designed.facts["worst_edge"][0]) if name in there]
    mechanism = part_of(whole, members)
    place = {name: i for i, name in enumerate(everyone.households)}
    gone = {name: OTHERS for name in everyone.households if name not in set(members)}
    forecasts = everyone.take([place[name] for name in members], gone)
    truth = later(readings_of(readings.path), forecasts)
    released = _released(given, forecasts)
    guard = model_guard(
        mechanism, forecasts, query=config.query, fitted_on_private_data=True, n_draws=20, seed=config.seed
    ).to_dict()
    card = release_card(
        mechanism,
        query=config.query,
        unit="household",
        forecasts=forecasts,
        audit=Attacked(attacked),
        guard=Recorded(guard),
        seed=config.seed,
    )
    put = page(
        mechanism,
        forecasts,
        truth,
        released,
        config,
        card=card,
        audit=attacked,
        guard=Recorded(guard),
        title=f"{config.title or 'The group hardest to hide in'} ({text})",
    )
    folder.write(REPORT, put)
    return [REPORT], {"hardest_group": len(members), **later_errors(forecasts, truth, released)}


def group_of(mechanism: Mechanism, label: str) -> list[str]:
    """The group that a label belongs to."""
    labels = mechanism.graph.labels
    at = mechanism.graph.components[labels.index(label)]
    return [labels[i] for i in np.flatnonzero(mechanism.graph.components == at)]


def hardest_parts(folder: Folder, lists: tuple[str, str, str]) -> tuple[Part, Part, Part, Part]:
    """(readings, forecasts, mechanism, released) of the shard with the largest δ that was released."""
    from shoal.fleet.jobs import parts_of

    fitted, _, more = read_list(folder / lists[0], folder.path)
    designed, _, beside = read_list(folder / lists[1], folder.path)
    given, _, _ = read_list(folder / lists[2], folder.path)
    readings = dict(zip((p.key for p in fitted), parts_of(more["readings"], folder.path), strict=True))
    forecasts = dict(zip((p.key for p in designed), parts_of(beside["forecasts"], folder.path), strict=True))
    out = {part.facts["mechanism"]: part for part in given}
    worst = max((p for p in designed if p.key in out), key=lambda p: (p.facts["delta"], p.key))
    forecast = forecasts[worst.key]
    return readings[forecast.key], forecast, worst, out[worst.key]


def _released(given: Part, forecasts: Forecasts) -> FloatArray:
    import polars as pl

    table = pl.read_parquet(given.path).filter(pl.col("household").is_in(list(forecasts.households)))
    order = pl.DataFrame({"household": list(forecasts.households)})
    values = order.join(table.sort("step"), on="household", how="left", maintain_order="left_right")["released_kw"]
    return np.asarray(np.log(values.to_numpy().reshape(len(forecasts.households), forecasts.horizon)))
