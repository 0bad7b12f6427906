"""The first stage: readings to forecasts, in shards of whole groups, each with someone to hide among.

A shard of forecasts is ``<key>.zip``; beside it ``<key>.quality.parquet``, one row per household;
``<key>.left.parquet``, who is left out and why; ``<key>.crowds.parquet``, who is in which crowd; ``<key>.truth.npy``,
what was metered later, in kW; and in a run that goes on from day to day ``<key>.all.zip`` with those who are silent
today.

Crowds are formed of those who have a forecast, and stay: in a run that goes on, those who are silent count as members
of their crowd, who joins is given one (:mod:`shoal.runs.members`), and a crowd of which fewer than the least number
have something new is left out that day as a whole. Who is silent can be seen; what anybody consumed plays no part in
it. A limit on the largest share of a crowd's load is held at every release: a crowd that is above it that day is left
out, which says so much about its load.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np

from shoal.card.facts import LISTED, FitFacts, most_common
from shoal.errors import InputError
from shoal.laws.graph import NeighborGraph
from shoal.plaintext import as_cells
from shoal.runs.config import Config
from shoal.runs.context import DESIGN, FIT, FORECASTS, SHARDS, Context, Made
from shoal.runs.jobs import Job, Listing, out_path, run_jobs
from shoal.runs.members import Roster
from shoal.runs.neighborhood import READING, Grouped, grouped_readings
from shoal.runs.regroup import Received, Regrouped
from shoal.runs.shards import read_shard, readings_of, write_array, write_frame
from shoal.runs.store import Part, put_whole
from shoal.sources.meters import clock, window
from shoal.sources.meters.answered import TRUTH, off_by
from shoal.sources.meters.forecast import Forecasts, forecast
from shoal.sources.meters.neighborhoods import crowd_graph, habits
from shoal.sources.meters.quality import Readings
from shoal.sources.meters.update import ABSENT, update_forecasts
from shoal.validation import FloatArray
from shoal.workers.executor import Executor
from shoal.workers.ticks import tick

SETTINGS = (
    *READING, "train_days", "horizon", "order", "season", "origin", "crowd", "crowds", "largest_share", "query",
    "scale", "table", "column", "table_household", "cell", "shard_size", "seed",
)  # fmt: skip
#: Those that may differ from day to day.
DAILY = ("origin",)

QUALITY_TABLE, LEFT_OUT = "quality.csv", "left_out.csv"
#: Suffixes of a shard's files.
ALL, QUALITY, LEFT, CROWDS = "all.zip", "quality.parquet", "left.parquet", "crowds.parquet"
LATE = "joined later, and no crowd has room yet: it waits for one, or for as many others as a crowd takes"
FEW = "fewer than a crowd share its boundary: nothing would hide it"
THIN = "too few of its crowd have new readings: they would not hide it"
SHARE = "a member of its crowd has more than the largest share allowed of the crowd's load"


def do(shard: str, origin: str, config: Config, out: str) -> FitFacts:
    """Write the forecasts of a readings shard; ``origin`` is ISO text, and all shards share it."""
    readings = readings_of(shard)
    p, q = config.order
    made = forecast(
        readings,
        order=(p, q),
        train_days=config.train_days,
        horizon=config.horizon,
        season=config.period,
        origin=datetime.fromisoformat(origin),
        progress=tick,
    )
    graph, forecasts = crowded(made, cells_of(shard), config)
    crowds = dict(zip(graph.labels, graph.components.tolist(), strict=True))
    return _written(out, readings, forecasts, graph, Roster(crowds))


def update(yesterday: str, shard: str, origin: str, config: Config, out: str) -> FitFacts:
    """Write the forecasts of a new day, of the households that have a crowd and new readings.

    ``yesterday`` is the shard of forecasts of the day before, ``shard`` that of the readings since. A household that
    joins is given a crowd, or waits for one with that reason. One without new readings is left out today, since there
    is nothing new to release about it; it is kept beside the others, so that it is back when its readings are. So is
    one whose crowd is too thin today.
    """
    everyone = Path(yesterday).with_suffix(f".{ALL}")
    before = Forecasts.load(everyone if everyone.is_file() else yesterday)
    readings = readings_of(shard)
    whole, heard = update_forecasts(before, readings, origin=datetime.fromisoformat(origin))
    names = whole.households
    old = roster_of(yesterday)
    roster = old.renewed(names, habits(whole), heard, cells_of(shard), config.crowd)
    crowds = roster.crowds
    present = Counter(crowds[name] for name in names if name in heard and name in crowds)
    absent = {name: LATE for name in names if name not in crowds}
    absent |= {name: ABSENT for name in names if name not in heard}
    absent |= {name: THIN for name in names if name not in absent and present[crowds[name]] < config.crowd}
    heavy = _above_share([name for name in names if name not in absent], whole, crowds, config.largest_share)
    absent |= {name: SHARE for name in names if name not in absent and crowds[name] in heavy}
    if len(absent) == len(names):
        raise InputError(f"readings: no crowd of this shard has {config.crowd} households with new readings")
    forecasts = whole.take([i for i, name in enumerate(names) if name not in absent], absent)
    if absent:
        put_whole(Path(out).with_suffix(f".{ALL}"), whole.save)
    graph = group_graph(forecasts.households, crowds)
    return replace(
        _written(out, readings, forecasts, graph, roster),
        goes_on=True,
        carried=len(heard.intersection(before.households, names)),
        silent=len(old.crowds.keys() - set(forecasts.households)),
        newcomers=sum(why == LATE for why in absent.values()),
        joined=len(roster.joined),
        merged_groups=roster.merged,
    )


def _above_share(
    names: Sequence[str], forecasts: Forecasts, crowds: Mapping[str, int], largest_share: float | None
) -> set[int]:
    """Crowds of which a member has more than the largest share of the total of these forecasts."""
    if largest_share is None:
        return set()
    load = dict(zip(forecasts.households, forecasts.power.sum(axis=1).tolist(), strict=True))
    of: dict[int, list[float]] = {}
    for name in names:
        of.setdefault(crowds[name], []).append(load[name])
    return {crowd for crowd, loads in of.items() if max(loads) > largest_share * math.fsum(loads)}


def _written(out: str, readings: Readings, forecasts: Forecasts, graph: NeighborGraph, roster: Roster) -> FitFacts:
    """Write a shard's files, the forecasts last; what to tell about them."""
    truth = later(readings, forecasts)
    path = Path(out)
    write_frame(path.with_suffix(f".{QUALITY}"), forecasts.quality)
    write_places(path, roster, forecasts.left_out)
    write_array(path.with_suffix(f".{TRUTH}"), truth)
    put_whole(path, forecasts.save)
    known, off = off_by(truth, forecasts.power)
    return replace(forecasts.facts(graph), first=forecasts.households[0], later_known=known, later_absolute=off)


def later(readings: Readings, forecasts: Forecasts) -> FloatArray:
    """(n, h) readings of the horizon in kW; NaN where none is known, as of a household without new readings."""
    at = window.place_origin(readings, forecasts.origin)
    part = window.cut(readings, at, forecasts.horizon)
    place = {name: i for i, name in enumerate(part.households)}
    unknown = np.full(forecasts.horizon, np.nan)
    return np.array([part.kw[place[name]] if name in place else unknown for name in forecasts.households])


def cells_of(readings: str | Path) -> dict[str, int]:
    """Household -> cell, as a regrouped shard has them."""
    frame, _ = read_shard(readings)
    if "group" not in frame.columns:
        raise InputError(f"shard: {Path(readings).name} has no cells; it is not a regrouped readings shard")
    return dict(zip(frame["household"].to_list(), frame["group"].to_list(), strict=True))


def write_places(shard: Path, roster: Roster, gone: Mapping[str, str]) -> None:
    """Write beside a shard who is left out of it, with the reasons, and who is in which crowd."""
    import polars as pl

    reasons = pl.DataFrame(list(gone.items()), schema={"household": pl.String, "reason": pl.String}, orient="row")
    write_frame(shard.with_suffix(f".{LEFT}"), reasons)
    members = [(name, crowd, roster.thin.get(crowd, 0)) for name, crowd in roster.crowds.items()]
    schema = {"household": pl.String, "crowd": pl.Int64, "thin": pl.Int64}
    write_frame(shard.with_suffix(f".{CROWDS}"), pl.DataFrame(members, schema=schema, orient="row"))


def roster_of(forecasts: str | Path) -> Roster:
    """Who is in which crowd, as it lies beside a shard of forecasts: everyone, the silent ones too."""
    import polars as pl

    path = Path(forecasts).with_suffix(f".{CROWDS}")
    try:
        rows = list(pl.read_parquet(path).select("household", "crowd", "thin").iter_rows())
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"shard: {path.name} is missing or damaged; remove the shard, and fit again") from None
    return Roster({name: crowd for name, crowd, _ in rows}, {crowd: thin for _, crowd, thin in rows if thin})


def crowds_of(forecasts: str | Path) -> dict[str, int]:
    """Household -> crowd, everyone's."""
    return roster_of(forecasts).crowds


def group_graph(households: Sequence[str], groups: Mapping[str, int]) -> NeighborGraph:
    """Complete inside each group."""
    return NeighborGraph.within_groups(households, [groups[name] for name in households])


def crowded(forecasts: Forecasts, cells: Mapping[str, int], config: Config) -> tuple[NeighborGraph, Forecasts]:
    """Crowds inside each cell; who is in a cell with fewer than a crowd is left out with the reason."""
    inside = Counter(cells[name] for name in forecasts.households)
    few = {name: FEW for name in forecasts.households if inside[cells[name]] < config.crowd}
    if len(few) == len(forecasts.households):
        raise InputError(
            f"crowd: nowhere are there {config.crowd} households with a forecast within one boundary; choose a smaller "
            "--crowd, wider boundaries, or more households"
        )
    if few:
        forecasts = forecasts.take([i for i, name in enumerate(forecasts.households) if name not in few], few)
    by = "profile" if config.standing else forecasts.power if config.answers == "kw" else forecasts.log_mean
    boundaries = [cells[name] for name in forecasts.households]
    graph = crowd_graph(forecasts, config.crowd, by, config.largest_share, boundaries=boundaries)
    return graph, forecasts


# ------------------------------------------------------------------ the stage


@dataclass(frozen=True)
class Yesterday:
    """What the day before left: groups, and by number of their shard the forecasts and the mechanisms."""

    assignment: Part
    forecasts: dict[int, Part]
    mechanisms: dict[int, Part]


def yesterday(context: Context) -> Yesterday | None:
    """The lists that were put aside, in a run that goes on from day to day."""
    if context.previous is None:
        return None
    fitted, designed = context.listing(FIT, context.previous), context.listing(DESIGN, context.previous)
    if fitted.assignment is None:
        raise InputError("dir: the groups of the day before are not on record; use a new folder")
    forecasts = {readings.told(Received).number: part for part, readings in fitted.pairs}
    made = {forecast.key: part for part, forecast in designed.pairs}
    mechanisms = {number: made[part.key] for number, part in forecasts.items() if part.key in made}
    return Yesterday(fitted.assignment, forecasts, mechanisms)


def stage(context: Context) -> Made:
    """Forecasts of every household, in shards of whole groups."""
    config, before = context.config, yesterday(context)
    with context.workers() as executor:
        held = None if before is None else before.assignment
        grouped = grouped_readings(executor, context.home / SHARDS, context.source, config, context.tell, held)
        origin = _origin(grouped, config.origin)

        def job(shard: Part) -> Job:
            return fit_job(context.home, shard, config, origin, before)

        made, facts = shards_made(context, executor, "fitting forecasts", grouped, before, job)
    reasons = _tables(context, made, grouped.unusable)
    hours, minutes = config.horizon * grouped.step_us / 3.6e9, grouped.step_us / 60e6
    columns = f"; {grouped.taken}" if grouped.taken else ""
    chosen = " (chosen: with less than four weeks a season by week fits badly)"
    facts = replace(
        facts,
        left_out=sum(reasons.values()),
        reasons=tuple(most_common(reasons)[:LISTED]),
        about=(
            f"Forecasts: {config.horizon} steps ({hours:g} h) from {origin}, trained on {config.train_days} days, "
            f"season by {config.period}{chosen if config.season == 'auto' and config.period == 'day' else ''}.",
            f"Readings: {grouped.unit} every {minutes:g} minutes: {grouped.unit_reason}{columns}.",
        ),
        unit=grouped.unit,
        unit_reason=grouped.unit_reason,
        origin=origin,
        step_minutes=minutes,
    )
    return Made((FIT, QUALITY_TABLE, LEFT_OUT), facts)


def shards_made(
    context: Context,
    executor: Executor,
    text: str,
    grouped: Regrouped,
    before: Yesterday | None,
    job: Callable[[Part], Job],
) -> tuple[list[Part], FitFacts]:
    """Do a job for each shard of whole groups, and list what is made; what there is to tell of all of them."""
    config, shards = context.config, grouped.shards
    if context.groups_fixed:
        refuse_other_groups(context, shards)
    if before is not None:
        shards = [shard for shard in shards if shard.told(Received).number in before.forecasts]
    jobs = [job(shard) for shard in shards]
    made, lost = run_jobs(executor, text, jobs, context.tell)
    failed = (*grouped.failed, *lost)
    context.put(FIT, Listing.of(jobs, shards, made, failed, grouped.assignment))
    facts = FitFacts.merged([part.told(FitFacts) for part in made])
    return made, replace(
        facts, source=str(context.source), failed=failed[:LISTED], crowd=config.crowd, standing=config.standing
    )


def _tables(context: Context, made: Sequence[Part], unusable: Sequence[Path]) -> Counter[str]:
    """Write the tables of all shards; reasons for leaving households out, counted.

    Both tables and the card have the same reason for a household. That readings cannot be used comes before that there
    are none to use.
    """
    import polars as pl

    gone = [pl.scan_parquet(path).filter(pl.col("verdict") == "left out") for path in unusable]
    left = [pl.scan_parquet(part.beside(LEFT)) for part in made]
    both = pl.concat([*left, *(table.select("household", "reason") for table in gone)], how="vertical_relaxed")
    later = (pl.col("reason") == ABSENT).fill_null(False)
    named = both.sort(later, maintain_order=True).unique("household", keep="first").sort("household")
    named = named.collect(engine="streaming").lazy()
    quality = [pl.scan_parquet(part.beside(QUALITY)) for part in made]
    every = pl.concat([*quality, *gone], how="diagonal_relaxed").unique("household", keep="first", maintain_order=True)
    out = pl.col("why").is_not_null()
    told = every.join(named.rename({"reason": "why"}), on="household", how="full", coalesce=True).with_columns(
        verdict=pl.when(out).then(pl.lit("left out")).otherwise(pl.col("verdict")),
        reason=pl.when(out).then(pl.col("why")).otherwise(pl.col("reason")),
    )
    context.folder.write(QUALITY_TABLE, lambda path: as_cells(told.drop("why").sort("household")).sink_csv(path))
    context.folder.write(LEFT_OUT, lambda path: as_cells(named).sink_csv(path))
    return Counter(named.select("reason").collect()["reason"].to_list())


def fit_job(home: Path, shard: Part, config: Config, origin: str, before: Yesterday | None) -> Job:
    """One shard's forecasts: anew, or from those of the day before."""
    if before is not None:
        old = before.forecasts[shard.told(Received).number]
        work = partial(update, old.path, shard.path, origin, config)
        return Job(work, out_path(home, FORECASTS, "zip", {"origin": origin}, [old, shard]), (old, shard))
    settings = {
        **config.part("order", "train_days", "horizon", "crowd", "largest_share"),
        "season": config.period, "origin": origin, "standing": config.standing, "unit": config.answers,
    }  # fmt: skip
    work = partial(do, shard.path, origin, config)
    return Job(work, out_path(home, FORECASTS, "zip", settings, [shard]), (shard,))


def _origin(grouped: Grouped, asked: str | None) -> str:
    """The origin of all shards: the one asked for, or the latest that at least half of the households reach."""
    if asked is not None:
        return clock.instant(asked, grouped.time_zone, name="origin").isoformat()
    half = (sum(grouped.ends.values()) - 1) // 2
    seen = 0
    for end in sorted(grouped.ends):
        seen += grouped.ends[end]
        if seen > half:
            return window.in_zone(end + grouped.step_us, grouped.time_zone).isoformat()
    raise InputError(f"readings: no household is left; {QUALITY_TABLE} says why")


def refuse_other_groups(context: Context, shards: Sequence[Part]) -> None:
    """Once answers have left, groups stay as they were: a household's neighbors are fixed by the ledger."""
    if not (context.folder / FIT).is_file():
        return  # the ledger itself refuses other neighbors
    missing = {part.key for part in context.listing(FIT).inputs} - {part.key for part in shards}
    if missing:
        raise InputError(
            f"dir: readings that were missing or damaged when {context.folder.path.name} released would change its "
            "groups, and a ledger fixes every household's neighbors at first use. Nothing more was released. Those "
            "that were left out can be released from a folder of their own; --update goes on with those that are in"
        )
