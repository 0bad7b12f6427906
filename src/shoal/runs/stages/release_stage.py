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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import call
from pathlib import Path

import numpy as np
import polars as pl

from shoal.card.facts import LISTED, MEANINGLESS, DesignFacts, Lost, ReleaseFacts, SpentFacts
from shoal.errors import BudgetError, InputError, LedgerError, UnreachableError
from shoal.ledger.ledger import Ledger
from shoal.mechanism.files import load
from shoal.mechanism.releasable import Releasable
from shoal.noise.source import standard_normals
from shoal.records import Record
from shoal.rounding import upper
from shoal.runs.blocks import Answers, BlockFacts, answers_of, members_of
from shoal.runs.config import Config
from shoal.runs.context import DESIGN, RELEASE, RELEASED, SHARDS, Context, Made
from shoal.runs.folder import Folder
from shoal.runs.shards import Listing, Part, finished, out_path, put_whole, receipted, sweep
from shoal.runs.stages.crowd_stage import CrowdFacts, members_and_rows
from shoal.runs.stages.design_stage import bound_of, hardest, undamaged
from shoal.runs.stages.means_stage import CSV, PARQUET, PUBLIC, csv_bytes, numbers_of, record
from shoal.sources.meters.answered import NAMES
from shoal.validation import FloatArray
from shoal.workers.executor import Executor, Failure

SETTINGS = ("query",)
DOING = "releasing through the ledger"
#: δ of the budget that a ledger without one is given where a design spends a ρ.
DELTA = 1e-5
#: Times the largest answer of its group that a label's expected error may be: above any load there is.
PLAUSIBLE = 10.0


@dataclass(frozen=True)
class Shown(Record):
    """What a released shard holds, and how far it is off what came later."""

    labels: int
    mechanism: str
    later_known: int
    later_absolute: float
    owner_columns: tuple[str, ...] = (NAMES,)  #: those that stay with the owner


def do(mechanism: Part, block: Part, config: Config, normals: str | None = None) -> tuple[FloatArray, FloatArray]:
    """A block's answers, and what its mechanism made of them with secure noise: for the ledger, never for a file.

    ``normals`` is where the draws of a trajectory lie, which are part of the answer.
    """
    for part in (mechanism, block):
        part.check()
    shard = answers_of(block.path, config)
    answers = true_answers(shard, normals)
    return answers, load(mechanism.path).release(answers, list(shard.owners))


def true_answers(shard: Answers, normals: str | None) -> FloatArray:
    """What is asked: the answers before the mechanism. A trajectory is drawn once and kept before it is used."""
    if not shard.drawn:
        return shard.answers()
    path = Path(normals or "")
    if not path.is_file():
        shape = shard.laws().means.shape
        values = np.array([z / 2.0**120 for z in standard_normals(math.prod(shape))])

        def save(rough: Path) -> None:
            with rough.open("wb") as file:
                np.save(file, values.reshape(shape), allow_pickle=False)

        put_whole(path, save)
    return shard.answers(np.load(path, allow_pickle=False))


def released_table(shard: Answers, crowds: Mapping[str, int], released: FloatArray) -> pl.DataFrame:
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
    refuse_empty_claims(load(hardest(undamaged(listing.pairs))[0].path), context.config)
    refuse_useless_figures([part.told(DesignFacts) for part in listing.parts])


def stage(context: Context, plan: CrowdFacts) -> Made:
    """Every block through the ledger under the name of this release: drawn by workers, charged here, then written."""
    config, name = context.config, context.release_name
    listing = context.listing(DESIGN)
    worst = load(hardest(undamaged(listing.pairs))[0].path)
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
        failed=tuple(failed)[:LISTED],
        period=plan.period,
    )
    return Made((RELEASE, CSV, PARQUET, PUBLIC), facts)


def _through(
    context: Context, ledger: Ledger, executor: Executor, listing: Listing, numbers: Mapping[int, int]
) -> tuple[list[Part], list[Lost]]:
    """Blocks that were released, now or before, and those that could not be.

    A block that was charged and not written is drawn again: the ledger gives the recorded answers for it.
    """
    name, config = context.release_name, context.config
    given: dict[int, Part] = {}
    failed: list[Lost] = []
    outs = [out_path(context.path, RELEASED, "parquet", {"name": name}, [part]) for part in listing.parts]
    for number, (_, block) in enumerate(listing.pairs):
        written = finished(outs[number])
        if written is None:
            continue
        if ledger.recorded([block.told(BlockFacts).first], name)[0] is None:  # a block is charged as a whole
            raise LedgerError(
                "ledger: answers of this release are written that this ledger does not have on record. It is not the "
                "one they were charged to: restore that one, or name it with --ledger. Nothing more was released"
            )
        given[number] = written
    waiting = [number for number in range(len(outs)) if number not in given]
    context.tell(DOING, len(given), len(outs))
    _refuse_together(context, ledger, [listing.pairs[number] for number in waiting])

    def task(mechanism: Part, block: Part) -> Callable[[], tuple[FloatArray, FloatArray]]:
        normals = None
        if config.query == "trajectory":
            normals = out_path(context.path / SHARDS, "draws", "npy", {"name": name}, [mechanism])
        return partial(do, mechanism, block, config, normals)

    for position, result in executor.run(call, [task(*listing.pairs[number]) for number in waiting]):
        number = waiting[position]
        mechanism, block = listing.pairs[number]
        if isinstance(result, Failure):
            failed.append(Lost(RELEASED, mechanism.key, result.message))
            continue
        shard = answers_of(block.path, config)
        try:
            shown = ledger.charge(
                Path(mechanism.path).read_bytes(),
                *result,
                list(shard.owners),
                query_ids=shard.questions(name),
                bounds=bound_of(mechanism),
                readings=list(shard.readings()),
                series=context.series,
            )
        except BudgetError as error:
            so_far = sum(part.told(Shown).labels for part in given.values())
            others = f". {so_far} household(s) of other shards had been released and charged before"
            raise BudgetError(
                f"{error}{others if len(outs) > 1 else ''}",
                remaining=error.remaining, epsilon=error.epsilon, limit=error.limit,
            ) from None  # fmt: skip
        given[number] = _written(mechanism, block, shard, np.asarray(shown), outs[number], numbers)
        context.tell(DOING, len(given) + len(failed), len(outs))
    return [given[number] for number in sorted(given)], failed


def _refuse_together(context: Context, ledger: Ledger, pairs: Sequence[tuple[Part, Part]]) -> None:
    """Refuse before the first block is charged what would be refused at a later one."""
    if len(pairs) < 2:
        return  # a block is charged or refused as a whole
    whole = undamaged(pairs)  # a damaged block fails by itself, where it is read
    for _, block in whole:
        shard = answers_of(block.path, context.config)
        ledger.refuse_seen(shard.owners, shard.readings(), context.series)
    ledger.refuse_apart(load(mechanism.path) for mechanism, _ in whole)


def _written(
    mechanism: Part, block: Part, shard: Answers, released: FloatArray, out: str, numbers: Mapping[int, int]
) -> Part:
    """The released block, after its charge."""
    members = members_of(block.path)
    crowds = {name: numbers.get(crowd, crowd) for name, crowd in members.select("label", "crowd").iter_rows()}
    table = released_table(shard, crowds, released)
    put_whole(out, lambda rough: table.write_parquet(rough))
    labels = pl.DataFrame({"label": shard.labels}, schema={"label": pl.String})
    truth = labels.join(members, on="label", how="left", maintain_order="left")["truth"].to_numpy()
    return receipted(out, Shown(len(shard.labels), mechanism.key, *shard.off(released, truth), shard.owner_columns))


def _tables(folder: Folder, parts: Sequence[Part]) -> None:
    """Everyone's figures in one table: with names for the owner, without them to pass on."""
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
    reached = mechanism.certificate.delta_upper
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
