"""The stages fit and design over shards: forecasts of whole groups, and a mechanism per shard."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.engine.config import Config
from shoal.engine.designing import MEANINGLESS
from shoal.engine.folder import Folder
from shoal.engine.sources import describe
from shoal.errors import InputError
from shoal.fleet import designing, fitting
from shoal.fleet.jobs import (
    Job,
    Part,
    Tell,
    list_text,
    listed,
    out_path,
    parts_of,
    read_list,
    run_jobs,
)
from shoal.fleet.lists import (
    DESIGN,
    FIT,
    LEFT_OUT,
    SHARDS,
    Made,
    Yesterday,
    beside,
    executor_of,
    total,
    weighted,
    yesterday,
)
from shoal.fleet.neighborhood import grouped_readings
from shoal.fleet.store import Store
from shoal.meters import clock, window

if TYPE_CHECKING:
    import polars as pl

#: What an update of a shard counts.
UPDATED = ("carried", "refitted", "drifted", "silent")


def fit(
    folder: Folder,
    source: dict[str, Any],
    config: Config,
    previous: str | None,
    tell: Tell,
    *,
    groups_fixed: bool = False,
) -> Made:
    """Forecasts of every household, in shards of whole groups; ``previous`` is where the day before lies.

    With ``groups_fixed``, answers about the groups on record have left: other groups are refused.
    """
    root = folder.path / SHARDS
    before = None if previous is None else yesterday(folder, previous)
    Store(str(root)).sweep()  # what killed workers left; the folder is ours, and nobody works in it yet
    with executor_of(config) as executor:
        grouped = grouped_readings(executor, root, source, config, tell, None if before is None else before.assignment)
        origin = _origin(grouped.ends, grouped.step_us, grouped.time_zone, config.origin)
        shards = grouped.shards
        if groups_fixed:
            _refuse_other_groups(folder, shards)
        if before is not None:
            shards = [shard for shard in shards if shard.facts["number"] in before.forecasts]
        jobs = [fit_job(root, shard, config, origin, before) for shard in shards]
        fitted, lost = run_jobs(executor, "fitting forecasts", jobs, tell)
    failed = [*grouped.failed, *lost]
    readings = beside(fitted, jobs, shards)
    step = grouped.step_us / 60e6
    folder.put(
        FIT,
        list_text(
            fitted,
            failed,
            folder.path,
            readings=listed(readings, folder.path),
            assignment=listed([grouped.assignment], folder.path),
            origin=origin,
            step_us=grouped.step_us,
        ),
    )
    left_out = dict(grouped.unusable)
    for part in fitted:
        left_out.update(part.facts["left_out"])
    folder.write(LEFT_OUT, lambda path: _left_out_table(left_out).write_csv(path))
    groups = grouped.assignment.facts
    return [FIT, LEFT_OUT], {
        "source": describe(source),
        "households": total(fitted, "households"),
        "left_out_count": len(left_out),
        "left_out": {},
        "repaired": total(fitted, "repaired"),
        "origin": origin,
        "horizon": config.horizon,
        "step_minutes": step,
        "train_days": config.train_days,
        "season": config.period,
        "season_chosen": config.season == "auto",
        "groups": [groups["smallest"], groups["largest"]],
        "n_groups": groups["groups"] if previous else total(fitted, "groups"),
        "edges": groups["edges"] if previous else total(fitted, "edges"),
        **({name: total(fitted, name) for name in UPDATED} if previous else {}),
        **({"newcomers": grouped.newcomers} if previous else {}),
        "shards": len(fitted),
        "failed": [asdict(one) for one in failed],
        "smaller_model": total(fitted, "smaller_model"),
        "truth_known": total(fitted, "truth_known") > 0,
        "mae_forecast_kw": weighted(fitted, "mae_forecast_kw", "truth_known"),
    }


def _left_out_table(reasons: dict[str, str]) -> pl.DataFrame:
    import polars as pl

    rows = sorted(reasons.items())
    return pl.DataFrame(rows, schema={"household": pl.String, "reason": pl.String}, orient="row")


def design(folder: Folder, config: Config, previous: str | None, tell: Tell) -> Made:
    """A mechanism per shard; yesterday's, where it still holds."""
    fitted, _, more = read_list(folder / FIT, folder.path)
    readings = parts_of(more["readings"], folder.path)
    before = None if previous is None else yesterday(folder, previous)
    method = method_of(config)
    pairs = list(zip(fitted, readings, strict=True))
    if before is not None:  # the ledger knows only the groups of shards that were designed then
        pairs = [(shard, source) for shard, source in pairs if source.facts["number"] in before.mechanisms]
    jobs = [design_job(folder.path / SHARDS, shard, source, config, method, before) for shard, source in pairs]
    used = [shard for shard, _ in pairs]
    with executor_of(config) as executor:
        made, failed = run_jobs(executor, "designing mechanisms", jobs, tell)
    forecasts = listed(beside(made, jobs, used), folder.path)
    folder.put(DESIGN, list_text(made, failed, folder.path, forecasts=forecasts))
    worst = max(made, key=lambda shard: (shard.facts["delta"], shard.key))
    entries, households = total(made, "entries"), total(made, "households")
    delta = float(worst.facts["delta"])
    return [DESIGN], {
        "method": method,
        "query": config.query,
        "epsilon": config.epsilon,
        "target": config.target,
        "delta": delta,
        "notion": worst.facts["notion"],
        "worst_edge": worst.facts["worst_edge"],
        "meaningful": delta <= MEANINGLESS and config.query != "as_in_paper",
        "all_alike": all(shard.facts["all_alike"] for shard in made),
        "equal_noise_delta": None,
        "failed": [asdict(one) for one in failed],
        "households": households,
        "edges": total(made, "edges"),
        "decisions": dict(sum((Counter(part.facts.get("decisions", {})) for part in made), Counter())),
        "notes": sorted({note for shard in made for note in shard.facts["notes"]}),
        "rho_mean": total(made, "rho_sum") / households,
        "rho_largest": max(shard.facts["rho_largest"] for shard in made),
        "forecast_kw": total(made, "forecast_kw") / entries,
        "added_rmse_kw": float(np.sqrt(total(made, "squared_kw") / entries)),
        "added_rmse_kw_largest": float(np.sqrt(max(shard.facts["squared_kw_largest"] for shard in made))),
        "bias_kw": total(made, "bias_kw") / entries,
    }


def fit_job(root: Path, shard: Part, config: Config, origin: str, before: Yesterday | None) -> Job:
    if before is not None:
        old = before.forecasts[shard.facts["number"]]
        out = out_path(root, "fit", "zip", {**config.part("refit_days", "drift_level"), "origin": origin}, [old, shard])
        update = fitting.UpdateTask(old.path, shard.path, out, origin, config.refit_days, config.drift_level)
        return Job(fitting.update_shard, update, out, (old, shard))
    settings = {**config.part("order", "train_days", "horizon"), "season": config.period, "origin": origin}
    out = out_path(root, "fit", "zip", settings, [shard])
    p, q = config.order
    task = fitting.FitTask(shard.path, out, (p, q), config.train_days, config.horizon, config.period, origin)
    return Job(fitting.fit_shard, task, out, (shard,))


def design_job(root: Path, shard: Part, readings: Part, config: Config, method: str, before: Yesterday | None) -> Job:
    old = None if before is None else before.mechanisms[readings.facts["number"]]
    inputs = [shard] if old is None else [old, shard]
    names = ("query", "epsilon", "seed", "search", "rho", "rho_tolerance")
    settings = {**config.part(*names), "method": method, "delta": config.target}
    out = out_path(root, "design", "shoal", settings, inputs)
    task = designing.DesignTask(
        readings=readings.path,
        forecasts=shard.path,
        out=out,
        query=config.query,
        method=method,
        epsilon=config.epsilon,
        delta=config.target,
        rho=config.rho,
        iterations=config.search or designing.ITERATIONS,
        seed=config.seed,
        previous=None if old is None else old.path,
        rho_tolerance=config.rho_tolerance,
    )
    return Job(designing.design_shard, task, out, (readings, *inputs))


def method_of(config: Config) -> str:
    """Without a search, the straight way to the group's common law stands for the stronger methods that contain it."""
    return "center" if config.method == "transport" and config.search == 0 else config.method


def _origin(ends: dict[int, int], step_us: int, time_zone: str | None, asked: str | None) -> str:
    """The origin of all shards: the one asked for, or the latest that at least half of the households reach."""
    if asked is not None:
        return clock.instant(asked, time_zone, name="origin").isoformat()
    half = (sum(ends.values()) - 1) // 2
    seen = 0
    for end in sorted(ends):
        seen += ends[end]
        if seen > half:
            return window.in_zone(end + step_us, time_zone).isoformat()
    raise InputError("readings: no household is left; the quality tables of the shards say why")


def _refuse_other_groups(folder: Folder, shards: list[Part]) -> None:
    """Once answers have left, groups stay as they were: a household's neighbors are fixed by the ledger."""
    if not (folder / FIT).is_file():
        return  # the ledger itself refuses other neighbors
    _, _, more = read_list(folder / FIT, folder.path)
    missing = {part.key for part in parts_of(more["readings"], folder.path)} - {part.key for part in shards}
    if missing:
        raise InputError(
            f"dir: readings that were missing or damaged when {folder.path.name} released would change its groups, and "
            "a ledger fixes every household's neighbors at first use. Nothing was released. Households that were left "
            "out can be released from a folder of their own; --update goes on with those that are in"
        )
