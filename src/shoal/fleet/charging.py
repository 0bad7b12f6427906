"""The stage release over shards: workers draw, the driver charges, and then writes.

A shard is charged as a whole, in one transaction. What is on record is written from the record; what is not is drawn.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from shoal.accounting.curve import round_up
from shoal.engine.config import Config
from shoal.engine.folder import Folder
from shoal.engine.releasing import ensure_budget, open_ledger, refuse_empty_claims
from shoal.errors import BudgetError, InputError, LedgerError
from shoal.fleet import designing, releasing
from shoal.fleet.auditing import hardest
from shoal.fleet.jobs import (
    Part,
    Tell,
    done,
    list_text,
    out_path,
    parts_of,
    read_list,
    receipted,
)
from shoal.fleet.lists import DESIGN, RELEASE, RELEASED, SHARDS, Made, executor_of, total
from shoal.fleet.manifest import Failed
from shoal.fleet.store import Store, put_whole
from shoal.ledger.ledger import Ledger
from shoal.meters.forecast import Forecasts
from shoal.workers.executor import Failure


def release(folder: Folder, config: Config, name: str, tell: Tell) -> Made:
    """Every shard through the ledger under ``name``: drawn by workers, charged here, and then written."""
    made, _, more = read_list(folder / DESIGN, folder.path)
    forecasts = parts_of(more["forecasts"], folder.path)
    worst = hardest(folder)
    refuse_empty_claims(worst, config)
    finished: dict[int, Part] = {}
    failed: list[Failed] = []
    Store(str(folder.path)).sweep()
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


def released_gone(folder: Folder) -> bool:
    """Whether a released shard is no longer there; the ledger still has its answers."""
    shards, _, _ = read_list(folder / RELEASE, folder.path)
    return any(done(shard.path) is None for shard in shards)


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
