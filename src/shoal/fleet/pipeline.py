"""The stages of a run over shards, for :class:`shoal.engine.run.Run`: any number of households in bounded memory.

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

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.engine.config import Config
from shoal.engine.designing import MEANINGLESS
from shoal.engine.folder import Folder
from shoal.engine.plain import as_json
from shoal.engine.releasing import ensure_budget, open_ledger, refuse_empty_claims
from shoal.engine.sources import describe
from shoal.errors import BudgetError, InputError, LedgerError
from shoal.executors.executor import Executor, Failure, open_executor
from shoal.executors.versions import versions
from shoal.fleet import auditing, designing, fitting, page, releasing
from shoal.fleet.card import fleet_card, markdown
from shoal.fleet.jobs import (
    Job,
    Part,
    Tell,
    done,
    list_text,
    listed,
    out_path,
    parts_of,
    read_list,
    receipted,
    run_jobs,
)
from shoal.fleet.manifest import Failed, Manifest, Source, write_manifest
from shoal.fleet.neighborhood import grouped_readings
from shoal.fleet.store import put_whole
from shoal.ledger.ledger import Ledger
from shoal.mechanisms.mechanism import Mechanism
from shoal.meters import clock, window
from shoal.meters.forecast import Forecasts
from shoal.privacy.curve import round_up

SHARDS, RELEASED = "shards", "released"
FIT, DESIGN, RELEASE, AUDIT, MANIFEST = "fit.json", "design.json", "release.json", "audit.json", "manifest.json"

Made = tuple[list[str], dict[str, Any]]

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
    with executor_of(config) as executor:
        grouped = grouped_readings(executor, root, source, config, tell, None if before is None else before.assignment)
        origin = _origin(grouped.ends, grouped.step_us, grouped.time_zone, config.origin)
        shards = grouped.shards
        if groups_fixed:
            _refuse_other_groups(folder, shards)
        if before is not None:
            shards = [shard for shard in shards if shard.facts["number"] in before.forecasts]
        jobs = [_fit_job(root, shard, config, origin, before) for shard in shards]
        fitted, lost = run_jobs(executor, "fitting forecasts", jobs, tell)
    failed = [*grouped.failed, *lost]
    readings = _beside(fitted, jobs, shards)
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
    groups = grouped.assignment.facts
    return [FIT], {
        "source": describe(source),
        "households": total(fitted, "households"),
        "left_out_count": total(fitted, "left_out"),
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
        "mae_forecast_kw": _weighted(fitted, "mae_forecast_kw", "truth_known"),
    }


def design(folder: Folder, config: Config, previous: str | None, tell: Tell) -> Made:
    """A mechanism per shard; yesterday's, where it still holds."""
    fitted, _, more = read_list(folder / FIT, folder.path)
    readings = parts_of(more["readings"], folder.path)
    before = None if previous is None else yesterday(folder, previous)
    method = method_of(config)
    pairs = list(zip(fitted, readings, strict=True))
    if before is not None:  # the ledger knows only the groups of shards that were designed then
        pairs = [(shard, source) for shard, source in pairs if source.facts["number"] in before.mechanisms]
    jobs = [_design_job(folder.path / SHARDS, shard, source, config, method, before) for shard, source in pairs]
    used = [shard for shard, _ in pairs]
    with executor_of(config) as executor:
        made, failed = run_jobs(executor, "designing mechanisms", jobs, tell)
    forecasts = listed(_beside(made, jobs, used), folder.path)
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


def release(folder: Folder, config: Config, name: str, tell: Tell) -> Made:
    """Every shard through the ledger under ``name``: drawn by workers, charged here, and then written."""
    made, _, more = read_list(folder / DESIGN, folder.path)
    forecasts = parts_of(more["forecasts"], folder.path)
    worst = hardest(folder)
    refuse_empty_claims(worst, config)
    finished: dict[int, Part] = {}
    failed: list[Failed] = []
    with open_ledger(folder, config, create=True) as ledger, executor_of(config) as executor:
        budget_set = ensure_budget(ledger, worst, config)
        waiting = []
        for number, (mechanism, forecast) in enumerate(zip(made, forecasts, strict=True)):
            out = out_path(folder.path, RELEASED, "parquet", {"name": name}, [mechanism])
            try:
                found = _released_before(ledger, name, mechanism, forecast, out)
            except InputError as error:
                failed.append(Failed("released", mechanism.key, str(error)))
                continue
            if found is not None:
                finished[number] = found
            else:
                waiting.append(number)
        tell("releasing through the ledger", len(finished), len(made))
        tasks = [
            releasing.DrawTask(made[i], forecasts[i], config.query, _normals(folder, name, made[i], config))
            for i in waiting
        ]
        for position, result in executor.run(releasing.draw_shard, tasks):
            number = waiting[position]
            mechanism = made[number]
            if isinstance(result, Failure):
                failed.append(Failed("released", mechanism.key, result.message))
                continue
            out = out_path(folder.path, RELEASED, "parquet", {"name": name}, [mechanism])
            try:
                finished[number] = _charged(ledger, name, mechanism, forecasts[number], result, out)
            except BudgetError as error:
                done_so_far = sum(shard.households for shard in finished.values())
                raise BudgetError(
                    f"{error}. {done_so_far} household(s) of other shards had been released and charged before",
                    remaining=error.remaining, epsilon=error.epsilon, limit=error.limit,
                ) from None  # fmt: skip
            tell("releasing through the ledger", len(finished) + len(failed), len(made))
        overview = ledger.overview()
        head = str(ledger.head)
    if not finished:
        raise InputError(f"release: none of the {len(failed)} shard(s) could be released. {failed[0].message}")
    shards = [finished[number] for number in sorted(finished)]
    folder.put(RELEASE, list_text(shards, failed, folder.path, name=name, head=head))
    return [RELEASE], {
        "name": name,
        "households": total(shards, "households"),
        "shards": len(shards),
        "failed": [asdict(one) for one in failed],
        "budget_set": budget_set,
        "head": head,
        "ledger": "ledger.db" if config.ledger is None else "elsewhere",
        **_spent(overview),
    }


def audit(folder: Folder, config: Config, tell: Tell) -> Made:
    """Attack a sample of groups, the hardest to hide among them."""
    chosen = _sampled(folder, config.audit_groups, config.seed)
    confidence = 1.0 - (1.0 - config.confidence) / len(chosen)
    tasks = [
        auditing.AuditTask(shard.path, component, config.audit_samples, confidence, config.seed, number == 0)
        for number, (shard, component) in enumerate(chosen)
    ]
    results: dict[int, dict[str, Any]] = {}
    with executor_of(config) as executor:
        for number, result in executor.run(auditing.audit_group, tasks):
            if isinstance(result, Failure):
                raise InputError(result.message)
            if number:
                del result["found"]
            results[number] = result
            tell("attacking released answers", len(results), len(tasks))
    found = [results[number] for number in range(len(tasks))]
    content = auditing.together(found, config.confidence)
    hardest_found = found[0].pop("found")
    folder.put(AUDIT, as_json({**content, "groups": found, "hardest": hardest_found}))
    return [AUDIT], content


def card(folder: Folder, config: Config, facts: dict[str, dict[str, Any]], source: dict[str, Any]) -> Made:
    """The fleet's figures for machines and people, and the manifest of all shards."""
    content = fleet_card(facts, config)
    folder.put("card.json", as_json(content))
    folder.put("card.md", markdown(content))
    write_manifest(folder.path, _manifest(folder, source))
    return ["card.json", "card.md", MANIFEST], {"statement": content["guarantee"]["statement"]}


def report(folder: Folder, config: Config, facts: dict[str, dict[str, Any]]) -> Made:
    """The page of the group that is hardest to hide in."""
    attacked = json.loads((folder / AUDIT).read_text())["hardest"]
    text = f"the hardest of {facts['fit']['n_groups']} groups, {facts['release']['households']} households in all"
    return page.report(folder, config, page.hardest_parts(folder, (FIT, DESIGN, RELEASE)), attacked, text)


def _manifest(folder: Folder, source: dict[str, Any]) -> Manifest:
    """Everything that went in and came out."""
    found = Manifest(tuple(Source(**one) for one in source.get("files", ())), versions())
    for stage, name in (("fit", FIT), ("design", DESIGN), ("released", RELEASE)):
        parts, failed, more = read_list(folder / name, folder.path)
        messages = {one.key: one.message for one in failed}
        found = found.with_stage(stage, [part.shard for part in parts], messages)
        found = replace(found, step_us=more.get("step_us", found.step_us))
    return found


# ------------------------------------------------------------------ parts


@dataclass(frozen=True)
class Yesterday:
    """What the day before left: groups, and by number of their shard the forecasts and the mechanisms."""

    assignment: Part
    forecasts: dict[int, Part]
    mechanisms: dict[int, Part]


def yesterday(folder: Folder, previous: str) -> Yesterday:
    """The lists that were put aside in ``previous``."""
    fitted, _, more = read_list(folder / previous / FIT, folder.path)
    numbers = [part.facts["number"] for part in parts_of(more["readings"], folder.path)]
    forecasts = dict(zip(numbers, fitted, strict=True))
    designed, _, beside = read_list(folder / previous / DESIGN, folder.path)
    by_key = dict(zip((part.key for part in parts_of(beside["forecasts"], folder.path)), designed, strict=True))
    mechanisms = {number: by_key[part.key] for number, part in forecasts.items() if part.key in by_key}
    return Yesterday(parts_of(more["assignment"], folder.path)[0], forecasts, mechanisms)


def _fit_job(root: Path, shard: Part, config: Config, origin: str, before: Yesterday | None) -> Job:
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


def _design_job(root: Path, shard: Part, readings: Part, config: Config, method: str, before: Yesterday | None) -> Job:
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


def executor_of(config: Config) -> Executor:
    return open_executor(config.engine or "auto", config.workers)


def method_of(config: Config) -> str:
    """Without a search, the straight way to the group's common law stands for the stronger methods that contain it."""
    return "center" if config.method == "transport" and config.search == 0 else config.method


def hardest(folder: Folder) -> Mechanism:
    """The mechanism of the shard with the largest δ, of those that are undamaged."""
    ((shard, _),) = _sampled(folder, 1, 0)
    return Mechanism.load(shard.path)


def released_gone(folder: Folder) -> bool:
    """Whether a released shard is no longer there; the ledger still has its answers."""
    shards, _, _ = read_list(folder / RELEASE, folder.path)
    return any(done(shard.path) is None for shard in shards)


def _sampled(folder: Folder, groups: int, seed: int) -> list[tuple[Part, int]]:
    """Groups to attack, (shard, component), the hardest to hide in first; damaged shards are passed over."""
    made, _, more = read_list(folder / DESIGN, folder.path)
    forecasts = {part.key: beside for part, beside in zip(made, parts_of(more["forecasts"], folder.path), strict=True)}
    while True:
        first = auditing.worst(made)
        broken = first
        try:
            for part in (first, forecasts[first.key]):
                part.check()
            chosen = auditing.sample(made, groups, seed)
            for broken, _ in chosen:
                broken.check()
            return chosen
        except InputError:
            made = [part for part in made if part is not broken]
            if not made:
                raise


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


def total(shards: Iterable[Part], name: str) -> Any:
    return sum(shard.facts[name] for shard in shards)


def _beside(made: list[Part], jobs: list[Job], inputs: list[Part]) -> list[Part]:
    """The input of each shard that was made."""
    place = {job.out: part for job, part in zip(jobs, inputs, strict=True)}
    return [place[part.path] for part in made]


def _weighted(shards: list[Part], value: str, weight: str) -> float | None:
    known = [s.facts for s in shards if s.facts[value] is not None and s.facts[weight]]
    if not known:
        return None
    return float(sum(f[value] * f[weight] for f in known) / sum(f[weight] for f in known))


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


def _normals(folder: Folder, name: str, mechanism: Part, config: Config) -> str | None:
    if config.query != "trajectory":
        return None
    return out_path(folder.path / SHARDS, "draws", "npy", {"name": name}, [mechanism])


def _released_before(ledger: Ledger, name: str, mechanism: Part, forecast: Part, out: str) -> Part | None:
    """A shard that was charged before the run was interrupted; where it is not written yet, it is from the record."""
    written = done(out)
    if ledger.recorded([mechanism.facts["first"]], name)[0] is None:  # a shard is charged as a whole
        if written is not None:
            raise LedgerError(
                "ledger: answers of this release are written that this ledger does not have on record. It is not the "
                "one they were charged to: restore that one, or name it with --ledger. Nothing was released"
            )
        return None
    if written is not None:
        return written
    forecast.check()
    forecasts = Forecasts.load(forecast.path)
    answers = ledger.recorded(list(forecasts.households), name)
    known = [answer for answer in answers if answer is not None]
    if len(known) != len(answers):
        return None  # the ledger decides: it gives recorded answers again and refuses another question
    return _written(mechanism, forecasts, np.array(known), out)


def _charged(ledger: Ledger, name: str, mechanism: Part, forecast: Part, drawn: releasing.Drawn, out: str) -> Part:
    shown = ledger.charge(
        Path(mechanism.path).read_bytes(),
        drawn.answers,
        drawn.drawn,
        drawn.labels,
        query_ids=name,
        bounds=designing.bound_from(mechanism.facts["bound"]),
    )
    return _written(mechanism, Forecasts.load(forecast.path), shown, out)


def _written(mechanism: Part, forecasts: Forecasts, released: Any, out: str) -> Part:
    """The released shard, after its charge."""
    table = releasing.released_table(forecasts, released)
    put_whole(out, lambda rough: table.write_parquet(rough))
    return receipted(out, {"households": len(forecasts.households), "mechanism": mechanism.key})


def _spent(overview: Any) -> dict[str, Any]:
    if not overview.worst:
        return {}
    worst = overview.worst[0]
    return {
        "spent": round_up(worst.spent),
        "budget_delta": worst.budget,
        "budget_epsilon": worst.epsilon,
        "releases_each": worst.releases,
    }
