"""The release: rows of crowds recorded, or a method's rows drawn and charged, in the ledger; then the tables.

**Means of crowds**, the default: no noise, no ε, nothing charged. Such a release is aggregation with a least crowd
(k-anonymity). Rows come from the crowd stage; here the numbers of new crowds are drawn and everything is recorded in
one transaction. The public table has crowd, members, news, then step, timestamp and kw, or a table's columns.

**A method**, a row per label or sample: workers draw noise from the cryptographic source and hand the noisy answers
back in memory; the driver charges the ledger, one transaction per block, under a name that belongs to this release of
this folder. Killed before the commit, the draw is gone and nothing was shown; killed after it, asking again charges
nothing and gives the recorded answers. The rows of a crowd are numbered in an order drawn once.

``public/released.csv`` is the table to pass on: no names, and no byte of it depends on who is who. ``released.csv`` is
the owner's: the same rows with the label of each, the key between the two.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Mapping
from functools import partial
from operator import call
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.columns import public_columns
from shoal.errors import BudgetError, InputError, LedgerError, UnreachableError
from shoal.mechanism.releasable import ReleaseErrors, load
from shoal.noise.source import standard_normals
from shoal.product.card.facts import LISTED, MEANINGLESS, DesignFacts, Lost, ReleaseFacts, SpentFacts
from shoal.product.card.measures import errors
from shoal.product.ledger.bounds import MechanismBound, mechanism_bound
from shoal.product.ledger.ledger import Ledger
from shoal.product.runs import reader
from shoal.product.runs.blocks import Answers, answers_of, members_of
from shoal.product.runs.config import Config
from shoal.product.runs.folder import DESIGN, SHARDS, Context, StageOutcome
from shoal.product.runs.shards import Part, out_path, put_whole
from shoal.product.runs.stages.crowd_stage import Book, CrowdFacts, horizon_stamps, members_and_rows, with_rows
from shoal.product.runs.stages.design_stage import hardest, undamaged
from shoal.product.sources.frames import as_cells
from shoal.product.sources.meters.answers import off_by
from shoal.product.workers.executor import Failure
from shoal.rounding import exactly, upper
from shoal.validation import FloatArray

SETTINGS = ("query",)
RECORDING, DRAWING = "recording crowds", "releasing through the ledger"
CSV, PARQUET, PUBLIC = "released.csv", "released.parquet", "public/released.csv"
#: Where what is drawn, numbers of new crowds and the order of rows, is written before it is used: an interrupted
#: release goes on with it.
NUMBERS = "numbers.json"
#: Where a rehearsal writes.
REHEARSAL = "rehearsal/not_released.csv"
#: δ of the budget that a ledger without one is given where a design spends a ρ.
DELTA = 1e-5
#: Times the largest answer of its group that a label's expected error may be: above any load there is.
PLAUSIBLE = 10.0
STALE = (
    "ledger: somebody else released about the same labels while this release was made. Nothing was recorded; run "
    "again, and it goes on from what is on record now"
)


# ------------------------------------------------------------------ means of crowds


def means(context: Context, plan: CrowdFacts) -> StageOutcome:
    """Draw the numbers of new crowds, record every row, write."""
    members, rows = members_and_rows(context)
    with context.ledger() as ledger:
        numbers, _ = drawn_of(context, ledger, rows)
        public, owner = _tables(context, plan, members, rows, numbers)
        record(context, ledger, plan, numbers, hashlib.sha256(csv_bytes(public)).hexdigest(), charged=False)
        measured = _measured(context, members, rows, public, owner)
        facts = facts_of(
            context, ledger, plan.period, repeated=plan.repeated, recorded_before=plan.recorded, **measured
        )
    of_meters = context.config.label is None
    entries = [str(step) for step in range(1, context.config.horizon + 1)] if of_meters else plan.columns
    law = reader.ReaderLaw.of(members, rows, entries, relative=of_meters)
    (context.folder / reader.FILE).unlink(missing_ok=True)
    if law is not None:
        context.folder.put(reader.FILE, law.text())
    return StageOutcome((*_written(context, public, owner), *([reader.FILE] if law is not None else [])), facts)


def rehearse(context: Context, plan: CrowdFacts) -> ReleaseFacts:
    """Write what would be released to a file that says that it was not; nothing is recorded, drawn or charged."""
    members, rows = members_and_rows(context)
    public, owner = _tables(context, plan, members, rows, drawn_of(context, None, rows)[0])
    context.folder.put(REHEARSAL, csv_bytes(owner.select(pl.lit("not released").alias("status"), pl.all())))
    return ReleaseFacts(name="", ledger="", head="", **_measured(context, members, rows, public, owner))


def _measured(
    context: Context, members: pl.DataFrame, rows: pl.DataFrame, public: pl.DataFrame, owner: pl.DataFrame
) -> dict[str, Any]:
    """Facts of a release of means: who is in it, and how far rows are from members' own values and from what came."""
    both = with_rows(members, rows)
    sizes = {"labels": owner[owner.columns[0]].n_unique(), "crowds": public["crowd"].n_unique()}
    if not len(both):
        return sizes
    value, row = both["value"].to_numpy(), np.array(both["row"].to_list())
    of_meters = context.config.label is None
    scale = 1.0 if of_meters else 1.0 / np.maximum(value.std(axis=0), 1e-300)
    off = row - value
    squares, off = off**2 * np.square(scale), off * scale
    ends = off.min(axis=0), off.max(axis=0)
    accuracy = errors(
        ReleaseErrors(squares.mean(axis=1), squares, off, ends, 1.0, np.zeros(off.shape[1]), noise_alone=False),
        value * scale,
        np.unique(both["crowd"].to_numpy(), return_inverse=True)[1].astype(np.int64),
        unit="kW" if of_meters else "standard deviations of the columns",
    )
    known, absolute = off_by(both["truth"].to_numpy(), row)
    return sizes | {"accuracy": accuracy, "later_known": known, "later_absolute": absolute}


def _tables(
    context: Context, plan: CrowdFacts, members: pl.DataFrame, rows: pl.DataFrame, numbers: Mapping[int, int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row per crowd (and step), sorted by the public number; and the owner's, with the label of each row."""
    number, config = pl.col("crowd").replace(numbers), context.config
    table = rows.filter(~pl.col("retired")).select(number, "members", "news", "values").sort("crowd")
    entry = pl.col("values").list
    if config.label is not None:
        values = [entry.get(j, null_on_oob=True).alias(name) for j, name in enumerate(plan.columns)]
        public, order = table.select(*public_columns("figures"), *values), ["label"]
    else:
        stamps = horizon_stamps(plan.fit, config.horizon)
        steps = pl.DataFrame({"step": np.arange(1, config.horizon + 1), "timestamp": stamps})
        kw = entry.get(pl.col("step") - 1, null_on_oob=True).alias("kw")
        long = table.join(steps, how="cross").sort("crowd", "step")
        public, order = long.with_columns(kw).select(public_columns("meters")), ["household", "step"]
    key = members.filter(~pl.col("waits")).select(pl.col("label").alias(order[0]), number)
    return public, key.join(public, on="crowd", how="inner").select(order[0], *public.columns).sort(order)


# ------------------------------------------------------------------ a method


def refuse(context: Context) -> None:
    """Before anything is begun: no release that hides nobody, or that nobody can use."""
    config, listing = context.config, context.listing(DESIGN)
    if config.query == "as_in_paper":
        raise InputError(
            "query: 'as_in_paper' accounts for randomness that is not in the release, so nothing is released under it; "
            "use 'point', 'trajectory' or 'marginal'"
        )
    reached = load(hardest(undamaged(listing.pairs))[0].path).certificate.delta_upper
    if reached >= 1.0 or (reached > MEANINGLESS and "no-guarantee" not in config.accept):
        raise UnreachableError(
            f"{'rho' if config.delta is None else 'delta'}: this design promises δ ≤ {upper(reached)} at ε = "
            f"{exactly(config.stated_epsilon)}, which hides nobody, so nothing is released. Ask for a guarantee "
            "(delta=1e-5); `shoal frontier` shows what an error buys"
            + (". accept='no-guarantee' releases it all the same" if reached < 1.0 else "")
        )
    if not all(part.facts_as(DesignFacts).accuracy.beside_largest <= PLAUSIBLE for part in listing.parts):
        raise UnreachableError(
            f"method: released figures would be off by more than {PLAUSIBLE:g} times the largest forecast of a group, "
            "so nothing is released and nothing was charged. Leave out method=, which then releases the mean "
            "of each crowd; or ask for a weaker guarantee, a larger ε or δ"
        )


def method(context: Context, plan: CrowdFacts) -> StageOutcome:
    """Every block through the ledger under the name of this release: drawn by workers, charged here, then written.

    A block that is on record is drawn again, and the ledger gives the recorded answers for it.
    """
    config, name, pairs = context.config, context.release_name, context.listing(DESIGN).pairs
    whole = undamaged(pairs)
    tables: list[pl.DataFrame] = []
    failed: list[Lost] = []
    labels, later = 0, []
    private: tuple[str, ...] = ()
    with context.ledger() as ledger, context.workers(len(pairs)) as executor:
        numbers, key = drawn_of(context, ledger, members_and_rows(context)[1])
        # The budget is what the design was to reach: never what a release happens to cost.
        budget = config.stated_epsilon, DELTA if config.delta is None else config.delta
        budget_set = not ledger.has_budget
        if len(pairs) > 1:  # refuse before the first block is charged what would be refused at a later one
            for _, block in whole:  # a damaged one fails by itself, where it is read
                shard = answers_of(block.path, config)
                ledger.refuse_seen(shard.owners, shard.readings(), context.series)
            ledger.refuse_unusable(load(mechanism.path) for mechanism, _ in whole)
        works = [partial(do, *pair, config, context.path / SHARDS, name) for pair in pairs]
        context.tell(DRAWING, 0, len(works))
        for number, result in executor.run(call, works):
            mechanism, block = pairs[number]
            if isinstance(result, Failure):
                failed.append(Lost("released", mechanism.key, result.message))
                continue
            answers, drawn, bound = result
            shard, members = answers_of(block.path, config), members_of(block.path)
            try:
                released = ledger.charge(
                    Path(mechanism.path).read_bytes(),
                    answers,
                    drawn,
                    list(shard.owners),
                    query_ids=shard.questions(name),
                    bounds=bound,
                    readings=list(shard.readings()),
                    series=context.series,
                    budget=budget,
                )
            except BudgetError as error:
                others = f". {labels} label(s) of other shards had been charged before" if len(pairs) > 1 else ""
                raise BudgetError(
                    f"{error}{others}", remaining=error.remaining, epsilon=error.epsilon, limit=error.limit
                ) from None
            crowds = {label: numbers.get(crowd, crowd) for label, crowd in members.select("label", "crowd").iter_rows()}
            tables.append(released_table(shard, crowds, np.asarray(released), key))
            named = pl.DataFrame({"label": shard.labels}, schema={"label": pl.String})
            truth = named.join(members, on="label", how="left", maintain_order="left")["truth"].to_numpy()
            later.append(shard.off(released, truth))
            labels, private = labels + len(shard.labels), shard.owner_columns
            context.tell(DRAWING, len(tables) + len(failed), len(works))
        if not tables:
            raise InputError(f"release: none of the {len(failed)} shard(s) could be released. {failed[0].message}")
        record(context, ledger, plan, numbers, hashlib.sha256().hexdigest(), charged=True)
        facts = facts_of(
            context,
            ledger,
            plan.period,
            charged=True,
            labels=labels,
            budget_set=budget_set,
            later_known=sum(known for known, _ in later),
            later_absolute=math.fsum(off for _, off in later),
            failed=tuple(failed)[:LISTED],
        )
    every = pl.concat(tables).sort("crowd", maintain_order=True)
    return StageOutcome(_written(context, every.drop(private), every), facts)


def do(
    mechanism: Part, block: Part, config: Config, root: Path, name: str
) -> tuple[FloatArray, FloatArray, MechanismBound]:
    """A block's answers, what its mechanism made of them with secure noise, and what that costs at most.

    It is for the ledger, never for a file. The draws of a trajectory are part of the answer: they are made once and
    kept under ``root``, for the release of this name, before they are used.
    """
    for part in (mechanism, block):
        part.check()
    shard, drawing = answers_of(block.path, config), load(mechanism.path)
    drawn: FloatArray | None = None
    if shard.drawn:
        shape = shard.laws().means.shape
        normals = out_path(root, "draws", "f8", {"name": name}, [mechanism])
        if not Path(normals).is_file():
            values = np.array([z / 2.0**120 for z in standard_normals(math.prod(shape))])
            put_whole(normals, lambda rough: rough.write_bytes(values.tobytes()))
        drawn = np.fromfile(normals).reshape(shape)
    answers = shard.answers(drawn)
    epsilon = drawing.by_kind(
        mechanism=lambda gaussian: float(gaussian.epsilon.max(initial=0.0)),
        codebook=lambda book: 2 * book.answer_epsilon,
    )
    return answers, drawing.release(answers, list(shard.owners)), mechanism_bound(drawing, epsilon)


def released_table(shard: Answers, crowds: Mapping[str, int], released: FloatArray, key: bytes) -> pl.DataFrame:
    """(m, k) released answers as they are written, sorted by crowd and row.

    The rows of a crowd are in the order of their digests under a key from the cryptographic source: nobody without it
    can tell whose row comes first, and a table that is lost is written again as it was.
    """
    n = len(released)
    groups = np.array([crowds[name] for name in shard.owners], dtype=np.int64)
    questions = zip(shard.owners, shard.questions(""), strict=True)
    lots = [hashlib.blake2b(f"{question}\0{name}".encode(), key=key).digest() for name, question in questions]
    order = np.array(sorted(range(n), key=lambda i: (groups[i], lots[i])))
    groups = groups[order]
    first = np.concatenate([[0], np.flatnonzero(np.diff(groups)) + 1])
    rows = np.arange(n) - np.repeat(first, np.diff(np.append(first, n))) + 1
    return shard.table(order, groups, rows, released)


# ------------------------------------------------------------------ what every release of crowds records and writes


def drawn_of(context: Context, ledger: Ledger | None, rows: pl.DataFrame) -> tuple[dict[int, int], bytes]:
    """New crowd -> its public number, and the key of the order of rows: as the folder has them, or drawn now.

    Without a ledger, in a rehearsal, numbers are 1, 2, 3 and mean nothing.
    """
    fresh = sorted((number for number in rows["crowd"].to_list() if number < 0), reverse=True)
    if ledger is None:
        return {number: i + 1 for i, number in enumerate(fresh)}, b""
    path = context.folder / NUMBERS
    known: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    if known.get("release") != context.release_name or len(known.get("numbers", ())) != len(fresh):
        drawn = ledger.draw_crowd_numbers(len(fresh)) if fresh else []
        known = {"release": context.release_name, "numbers": drawn, "order": secrets.token_hex(32)}
        context.folder.put(NUMBERS, json.dumps(known))
    return dict(zip(fresh, known["numbers"], strict=True)), bytes.fromhex(known["order"])


def record(
    context: Context, ledger: Ledger, plan: CrowdFacts, numbers: Mapping[int, int], table_digest: str, *, charged: bool
) -> None:
    """Record the crowds of this release, once; nothing happens where all of it was on record before."""
    if ledger.recorded_crowds(context.release_name) is not None:
        return
    members, rows = members_and_rows(context)
    lines = rows.filter(~pl.col("recorded"))
    if not len(lines):
        return
    book = Book.read(ledger, members["label"].to_list())
    if book.digest != plan.book:
        raise LedgerError(STALE)

    crowds = []
    for number, homes, news, values, _, retired in lines.iter_rows():
        known = book.crowds.get(number, {"setting": plan.setting})
        row = np.array([float(news), *([] if charged else values)], dtype="<f8").tobytes()
        entry = {"crowd": numbers.get(number, number), "setting": known["setting"], "period": plan.period, "row": row}
        entry |= {"members": homes, "retired": retired}
        crowds.append(entry | ({"period": known["period"], "row": known["row"]} if retired else {}))
    kinds = {"crowd": pl.Int64, "setting": pl.String, "period": pl.String, "row": pl.Binary, "members": pl.Int64}
    try:
        ledger.record_crowds(
            context.release_name,
            book_digest=book.ledger_digest,
            members=members.filter("changed").select(
                "label", pl.col("crowd").replace(numbers), "stored", "last", "block"
            ),
            crowds=pl.DataFrame(crowds, schema={**kinds, "retired": pl.Boolean}),
            table_digest=table_digest,
            facts={
                "members": int(lines["members"].sum()),
                "crowds": len(lines),
                "period": plan.period,
                "folder": context.path.resolve().name,
            },
        )
    except LedgerError as error:
        if error.reason == "stale":
            raise LedgerError(STALE) from None
        raise


def facts_of(context: Context, ledger: Ledger, period: str, *, charged: bool = False, **more: Any) -> ReleaseFacts:
    """What was released, with where it is on record and, where it is charged, what was spent of the worst account."""
    overview = ledger.overview()
    return ReleaseFacts(
        name=context.release_name,
        ledger=ledger.identity,
        head=str(ledger.head),
        releases=overview.releases,
        ledger_labels=overview.labels,
        worst=SpentFacts.like(overview.worst[0]) if charged and overview.worst else None,
        period=period,
        **more,
    )


def csv_bytes(table: pl.DataFrame) -> bytes:
    """A table as CSV; instants in ISO 8601, with their offset from UTC where they have a zone."""
    zone = next((getattr(kind, "time_zone", None) for kind in table.schema.values() if kind.is_temporal()), None)
    form = "%Y-%m-%dT%H:%M:%S%:z" if zone else "%Y-%m-%dT%H:%M:%S"
    return as_cells(table).write_csv(datetime_format=form).encode()


def _written(context: Context, public: pl.DataFrame, owner: pl.DataFrame) -> tuple[str, ...]:
    """Write the table to pass on and the owner's; their names."""
    context.folder.put(PUBLIC, csv_bytes(public))
    context.folder.put(CSV, csv_bytes(owner))
    context.folder.write(PARQUET, lambda path: owner.write_parquet(path))
    return CSV, PARQUET, PUBLIC
