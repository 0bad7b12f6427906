"""The release of a method, a row per label: workers draw, the driver charges, and only what is charged is written.

A worker draws a shard's noise from the cryptographic source and hands the noisy answers back in memory. The driver
charges the ledger, one transaction per shard, and writes the released shard after the commit. Killed before the commit,
the draw is gone and nothing was shown; killed after it, the recorded answers are written when the run goes on. The
ledger is asked under a name that belongs to this release of this folder, so that asking again charges nothing.

Two tables come of it. ``public/released.csv`` is the one to pass on: no names, a crowd's rows numbered in an order
drawn for this release, so that neither the place of a row nor its number depends on whose it is. ``released.csv`` is
the owner's: the same rows with the household of each, the key between the two. The crowds are recorded after the last
charge.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import call
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shoal.card.digits import upper
from shoal.card.facts import LISTED, MEANINGLESS, DesignFacts, Lost, Record, ReleaseFacts, SpentFacts
from shoal.errors import BudgetError, InputError, LedgerError, UnreachableError
from shoal.ledger.ledger import Ledger
from shoal.mechanism.reader import load
from shoal.mechanism.releasable import Releasable
from shoal.noise.source import standard_normals
from shoal.runs.blocks import BlockFacts, crowds_of
from shoal.runs.config import Config
from shoal.runs.context import DESIGN, RELEASE, RELEASED, SHARDS, Context, Made
from shoal.runs.fitted import Fitted, fitted
from shoal.runs.folder import Folder
from shoal.runs.jobs import Listing, out_path
from shoal.runs.shards import write_array
from shoal.runs.stages.crowd_stage import CrowdFacts
from shoal.runs.stages.design_stage import bound_of, hardest
from shoal.runs.stages.means_stage import CSV, PARQUET, PUBLIC, csv_bytes
from shoal.runs.stages.record import members_and_rows, numbers_of, record
from shoal.runs.store import Part, finished, put_whole, receipted, sweep
from shoal.sources.meters.answered import NAMES
from shoal.validation import FloatArray
from shoal.workers.executor import Executor, Failure

if TYPE_CHECKING:
    import polars as pl

SETTINGS = ("query",)
DOING = "releasing through the ledger"
#: δ of the budget that a ledger without one is given where a design spends a ρ.
DELTA = 1e-5
#: Times the largest answer of its group that a label's expected error may be: above any load there is.
PLAUSIBLE = 10.0


@dataclass(frozen=True)
class Drawn:
    """Noisy answers that are not charged yet: to be handed to the ledger, never to a file."""

    labels: tuple[str, ...]
    answers: FloatArray
    drawn: FloatArray
    readings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Drawn({len(self.labels)} labels)"


@dataclass(frozen=True)
class Shown(Record):
    """What a released shard holds, and how far it is off what came later."""

    labels: int
    mechanism: str
    later_known: int
    later_absolute: float
    owner_columns: tuple[str, ...] = (NAMES,)  #: those that stay with the owner


def do(mechanism: Part, forecasts: Part, config: Config, normals: str | None = None) -> Drawn:
    """A shard's answers through its mechanism, with secure noise.

    ``normals`` is where the draws of a trajectory lie, which are part of the answer.
    """
    for part in (mechanism, forecasts):
        part.check()
    through = load(mechanism.path)
    shard = fitted(forecasts.path, config.query, config.answers)
    answers, labels = true_answers(shard, normals), list(shard.owners)
    drawn = through.release(answers, labels)
    return Drawn(shard.owners, answers, drawn, shard.readings())


def true_answers(shard: Fitted, normals: str | None) -> FloatArray:
    """What is asked: the answers before the mechanism. A trajectory is drawn once and kept before it is used."""
    if not shard.drawn:
        return shard.answers()
    path = Path(normals or "")
    if not path.is_file():
        shape = shard.laws().means.shape
        values = np.array([z / 2.0**120 for z in standard_normals(math.prod(shape))])
        write_array(path, values.reshape(shape))
    return shard.answers(np.load(path, allow_pickle=False))


def released_table(shard: Fitted, crowds: Mapping[str, int], released: FloatArray) -> pl.DataFrame:
    """(m, k) released answers as they are written, sorted by crowd and row.

    The rows of a crowd are numbered in an order from the cryptographic source.
    """
    n = len(released)
    groups = np.array([crowds[name] for name in shard.owners], dtype=np.int64)
    drawn = list(range(n))
    secrets.SystemRandom().shuffle(drawn)
    order = np.array(drawn)[np.argsort(groups[drawn], kind="stable")]
    groups = groups[order]
    first = np.concatenate([[0], np.flatnonzero(np.diff(groups)) + 1])
    rows = np.arange(n) - np.repeat(first, np.diff(np.append(first, n))) + 1
    return shard.table(order, groups, rows, released)


# ------------------------------------------------------------------ the stage


def refuse(context: Context) -> None:
    """Before anything is begun: no release that hides nobody, or that nobody can use."""
    listing = context.listing(DESIGN)
    refuse_empty_claims(load(hardest(listing.pairs)[0].path), context.config)
    refuse_useless_figures([part.told(DesignFacts) for part in listing.parts])


def stage(context: Context, plan: CrowdFacts) -> Made:
    """Every block through the ledger under the name of this release: drawn by workers, charged here, then written."""
    config, name = context.config, context.release_name
    listing = context.listing(DESIGN)
    worst = load(hardest(listing.pairs)[0].path)
    sweep(context.path)
    with context.ledger() as ledger, context.workers(len(listing.parts)) as executor:
        _, rows = members_and_rows(context)
        numbers = numbers_of(context, ledger, rows)
        budget_set = ledger.ensure_budget(worst.graph.labels, *default_budget(config))
        given, failed = _through(context, ledger, executor, listing, numbers)
        if given:
            record(context, ledger, plan, numbers, hashlib.sha256().hexdigest(), charged=True)
        overview, head, identity = ledger.overview(), str(ledger.head), ledger.identity
    if not given:
        raise InputError(f"release: none of the {len(failed)} shard(s) could be released. {failed[0].message}")
    context.put(RELEASE, Listing(tuple(given), (), tuple(failed)))
    _tables(context.folder, given)
    told = [part.told(Shown) for part in given]
    facts = ReleaseFacts(
        name=name,
        labels=sum(one.labels for one in told),
        ledger=identity,
        head=head,
        budget_set=budget_set,
        releases=overview.releases,
        ledger_labels=overview.labels,
        worst=SpentFacts.like(overview.worst[0]) if overview.worst else None,
        later_known=sum(one.later_known for one in told),
        later_absolute=math.fsum(one.later_absolute for one in told),
        shards=len(given),
        failed=tuple(failed)[:LISTED],
        period=plan.period,
    )
    return Made((RELEASE, CSV, PARQUET, PUBLIC), facts)


def _through(
    context: Context, ledger: Ledger, executor: Executor, listing: Listing, numbers: Mapping[int, int]
) -> tuple[list[Part], list[Lost]]:
    """Shards that were released, now or before, and those that could not be."""
    name, home, asked = context.release_name, context.path, context.config
    given: dict[int, Part] = {}
    failed: list[Lost] = []
    outs = [out_path(home, RELEASED, "parquet", {"name": name}, [part]) for part in listing.parts]
    waiting = []
    for number, (mechanism, forecast) in enumerate(listing.pairs):
        try:
            found = _released_before(ledger, name, mechanism, forecast, outs[number], asked, numbers)
        except InputError as error:
            failed.append(Lost(RELEASED, mechanism.key, str(error)))
            continue
        if found is not None:
            given[number] = found
        else:
            waiting.append(number)
    context.tell(DOING, len(given), len(outs))
    _refuse_together(context, ledger, [listing.pairs[number] for number in waiting])
    tasks = []
    for number in waiting:
        mechanism, forecast = listing.pairs[number]
        normals = None
        if asked.query == "trajectory":
            normals = out_path(home / SHARDS, "draws", "npy", {"name": name}, [mechanism])
        tasks.append(partial(do, mechanism, forecast, asked, normals))
    for position, result in executor.run(call, tasks):
        number = waiting[position]
        mechanism, forecast = listing.pairs[number]
        if isinstance(result, Failure):
            failed.append(Lost(RELEASED, mechanism.key, result.message))
            continue
        try:
            given[number] = _charged(context, ledger, mechanism, forecast, result, outs[number], numbers)
        except BudgetError as error:
            so_far = sum(part.households for part in given.values())
            others = f". {so_far} household(s) of other shards had been released and charged before"
            raise BudgetError(
                f"{error}{others if len(outs) > 1 else ''}",
                remaining=error.remaining, epsilon=error.epsilon, limit=error.limit,
            ) from None  # fmt: skip
        context.tell(DOING, len(given) + len(failed), len(outs))
    return [given[number] for number in sorted(given)], failed


def _refuse_together(context: Context, ledger: Ledger, pairs: Sequence[tuple[Part, Part]]) -> None:
    """Refuse before the first shard is charged what would be refused at a later one."""
    if len(pairs) == 1:
        return  # a shard is charged or refused as a whole
    whole = []
    for mechanism, forecast in pairs:
        try:
            mechanism.check()
            forecast.check()
        except InputError:
            continue  # a damaged shard fails by itself, where it is read
        whole.append(mechanism.path)
        shard = fitted(forecast.path, context.config.query, context.config.answers)
        ledger.refuse_seen(shard.owners, shard.readings(), context.series)
    ledger.refuse_apart(map(load, whole))


def _released_before(
    ledger: Ledger,
    name: str,
    mechanism: Part,
    forecast: Part,
    out: str,
    asked: Config,
    numbers: Mapping[int, int],
) -> Part | None:
    """A shard that was charged before the run was interrupted; where it is not written yet, it is from the record."""
    written = finished(out)
    if ledger.recorded([forecast.told(BlockFacts).first], name)[0] is None:  # a shard is charged as a whole
        if written is not None:
            raise LedgerError(
                "ledger: answers of this release are written that this ledger does not have on record. It is not the "
                "one they were charged to: restore that one, or name it with --ledger. Nothing more was released"
            )
        return None
    if written is not None:
        return written
    forecast.check()
    shard = fitted(forecast.path, asked.query, asked.answers)
    answers = ledger.recorded(list(shard.owners), shard.questions(name))
    known = [answer for answer in answers if answer is not None]
    if len(known) != len(answers):
        return None  # the ledger decides: it gives recorded answers again and refuses another question
    return _written(mechanism, forecast, shard, np.array(known), out, numbers)


def _charged(
    context: Context,
    ledger: Ledger,
    mechanism: Part,
    block: Part,
    drawn: Drawn,
    out: str,
    numbers: Mapping[int, int],
) -> Part:
    shard = fitted(block.path, context.config.query, context.config.answers)
    shown = ledger.charge(
        Path(mechanism.path).read_bytes(),
        drawn.answers,
        drawn.drawn,
        list(drawn.labels),
        query_ids=shard.questions(context.release_name),
        bounds=bound_of(mechanism),
        readings=list(drawn.readings),
        series=context.series,
    )
    return _written(mechanism, block, shard, np.asarray(shown), out, numbers)


def _written(
    mechanism: Part, block: Part, shard: Fitted, released: FloatArray, out: str, numbers: Mapping[int, int]
) -> Part:
    """The released block, after its charge."""
    crowds = {name: numbers.get(crowd, crowd) for name, crowd in crowds_of(block.path).items()}
    table = released_table(shard, crowds, released)
    put_whole(out, lambda rough: table.write_parquet(rough))
    return receipted(out, Shown(len(shard.labels), mechanism.key, *shard.off(released), shard.owner_columns))


def _tables(folder: Folder, parts: Sequence[Part]) -> None:
    """Everyone's figures in one table: with names for the owner, without them to pass on."""
    import polars as pl

    every = pl.concat([pl.read_parquet(part.path) for part in parts]).sort("crowd", maintain_order=True)
    public = every.drop(parts[0].told(Shown).owner_columns)
    folder.put(CSV, csv_bytes(every))
    folder.write(PARQUET, lambda path: every.write_parquet(path))
    folder.put(PUBLIC, csv_bytes(public))


def released_gone(folder: Path) -> bool:
    """Whether a released shard is no longer there; the ledger still has its answers."""
    return any(finished(part.path) is None for part in Listing.read(folder / RELEASE, folder).parts)


# ------------------------------------------------------------------ the ledger


def refuse_empty_claims(mechanism: Releasable, config: Config) -> None:
    """Nothing is released under a figure that promises nothing."""
    if config.query == "as_in_paper":
        raise InputError(
            "query: 'as_in_paper' accounts for randomness that is not in the release, so nothing is released under it; "
            "use 'point', 'trajectory' or 'marginal'"
        )
    if mechanism.certificate is None:
        return
    reached = 1.0 if mechanism.certificate is None else mechanism.certificate.delta_upper
    if reached >= 1.0 or (reached > MEANINGLESS and "no-guarantee" not in config.accept):
        raise UnreachableError(
            f"{'rho' if config.delta is None else 'delta'}: this design promises δ ≤ {upper(reached)} at ε = "
            f"{config.stated_epsilon:g}, which hides nobody, so nothing is released. Ask for a guarantee (--delta "
            "1e-5); `shoal frontier` shows what an error buys"
            + (". --set accept=no-guarantee releases it all the same" if reached < 1.0 else "")
        )


def refuse_useless_figures(designs: Sequence[DesignFacts]) -> None:
    """Nothing is released, and nothing charged, that no reader could use."""
    if not all(one.accuracy.beside_largest <= PLAUSIBLE for one in designs):
        raise UnreachableError(
            f"method: released figures would be off by more than {PLAUSIBLE:g} times the largest forecast of a group, "
            "so nothing is released and nothing was charged. Leave out --method, which then releases the mean "
            "of each crowd; or ask for a weaker guarantee, a larger ε or δ"
        )


def default_budget(config: Config) -> tuple[float, float]:
    """(ε, δ) that the design was to reach: never what a release happens to cost."""
    return config.stated_epsilon, DELTA if config.delta is None else config.delta
