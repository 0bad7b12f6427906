"""Checking a whole ledger against itself, from the first entry to the last.

Everything is derived anew from the payloads: the chain, the columns the database looks things up by, the mechanisms and
their digests and bounds, which graphs each label belongs to and that none lost neighbors, and whether every release
was within the budgets in force when it was made. Nothing is taken from what a release remembers: a bound is used here
as computed here.

Budgets: δ never falls as releases are added, so between two changes of the budgets, or of anyone's neighbors, only the
last release of each label needs to be composed, with what had been released about its neighbors until then. What was
declared, or a budget that was lowered, may overdraw an account; that is noted, and no release may follow.

A ledger that is older than accounts of pairs says where they begin. Releases before that were decided by what was
released about their own label alone, without headroom, and are judged by the same; what their pairs have spent since is
noted where it is too much.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from shoal.errors import InputError, LedgerError
from shoal.laws.graph import NeighborGraph
from shoal.ledger import crowds, journal
from shoal.ledger.accounts import account, one_graph, stars
from shoal.ledger.bounds import HEADROOM, POINTS, MechanismBound, bound_at, pair_bound
from shoal.ledger.budgets import Budgets, Limit
from shoal.ledger.chain import START, Entry, Head
from shoal.ledger.composition import NOTHING, Charges, Composer, Side, Span, Star, claim
from shoal.ledger.notes import KINDS as NOTES
from shoal.ledger.registry import graph_digest, restored, stored_bound
from shoal.ledger.renewals import looked_up
from shoal.ledger.schema import ACCOUNTS
from shoal.ledger.storage import Transaction
from shoal.ledger.ties import Tie, changes, ties
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.reader import Releaser


@dataclass(frozen=True)
class Verification:
    """Whether the record holds; ``problem`` says what is wrong first, at the entry ``bad_entry`` where there is one."""

    ok: bool
    entries: int
    head: Head
    bad_entry: int | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        where = "" if self.bad_entry is None else f" at entry {self.bad_entry}"
        verdict = "intact" if self.ok else f"NOT intact{where}: {self.problem}"
        return "\n".join([f"{self.entries} entries, {verdict}", *(f"note: {note}" for note in self.notes)])


class _Broken(Exception):
    """Carries the first problem found."""

    def __init__(self, seq: int | None, problem: str) -> None:
        super().__init__(problem)
        self.seq, self.problem = seq, problem


@dataclass
class _Charge:
    """``shown`` says to whom (None: anyone), and in which batch first."""

    seq: int
    content: dict[str, Any]
    shown: dict[str | None, int]


@dataclass
class _Line:
    """What was charged about a label, in order, and all of it together after each entry."""

    charges: list[_Charge] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    totals: list[Charges] = field(default_factory=list)


@dataclass
class _Replay:
    """The ledger's state, entry by entry."""

    mechanisms: dict[str, Releaser] = field(default_factory=dict)
    bounds: dict[str, MechanismBound] = field(default_factory=dict)
    networks: dict[str, NeighborGraph] = field(default_factory=dict)
    #: The graphs of labels, the graph of each mechanism, and the graphs that may not be used any more.
    graphs: dict[str, frozenset[str]] = field(default_factory=dict)
    graph_of: dict[str, str] = field(default_factory=dict)
    outgrown: set[str] = field(default_factory=set)
    announced: str = ""
    pairs: bool = False
    budgets: Budgets = field(default_factory=Budgets)
    lines: dict[str, _Line] = field(default_factory=dict)
    releases: dict[int, _Charge] = field(default_factory=dict)
    questions: set[tuple[str, str]] = field(default_factory=set)
    receipts: set[tuple[str, str]] = field(default_factory=set)
    #: (label, analyst, whether the label itself was charged) -> entries since the budgets last changed
    pending: dict[tuple[str, str | None, bool], list[int]] = field(default_factory=dict)
    #: Equal charges as one object, and what is known of pairs of them: both only save work.
    one: dict[Charges, Charges] = field(default_factory=lambda: {NOTHING: NOTHING})
    uppers: dict[tuple[Any, ...], float] = field(default_factory=dict)
    #: The digest of the crowds that last.
    crowds: str = crowds.NOBODY
    #: The last batch and its last entry so far; the first entry with a batch.
    batched: tuple[int, int] | None = None
    modes: float = math.inf
    tied: dict[str, tuple[Tie, ...]] = field(default_factory=dict)
    cuts: dict[tuple[Charges, frozenset[str]], Charges] = field(default_factory=dict)

    def ties(self, label: str) -> tuple[Tie, ...]:
        found = self.tied.get(label)
        if found is None:
            held = self.graphs.get(label, frozenset())
            found = self.tied[label] = ties(label, {name: self.networks[name] for name in sorted(held)})
        return found

    def neighbors(self, label: str) -> tuple[str, ...]:
        return tuple(name for tie in self.ties(label) for name in tie.names)

    def around(self, label: str) -> tuple[str, ...]:
        """The neighbors whose budgets a release about the label must stay within."""
        return self.neighbors(label) if self.pairs else ()

    def cut(self, charges: Charges, graphs: frozenset[str]) -> Charges:
        """The part of some charges that was made through mechanisms of some graphs."""
        key = (charges, graphs)
        if key not in self.cuts:
            part = charges.through(lambda digest: self.graph_of[digest] in graphs)
            self.cuts[key] = self.one.setdefault(part, part)
        return self.cuts[key]

    def charged(self, label: str, analyst: str | None, until: int) -> Charges:
        """What counted about a label right after entry ``until``; for an analyst, what that analyst was shown."""
        line = self.lines.get(label)
        number = 0 if line is None else bisect_right(line.seqs, until)
        if line is None or number == 0:
            return NOTHING
        if analyst is None:
            return line.totals[number - 1]
        total = NOTHING
        for charge in line.charges[:number]:
            batches = [charge.shown[who] for who in (None, analyst) if who in charge.shown]
            if batches:
                total = _added(total, charge.content, min(batches))
        return self.one.setdefault(total, total)

    def held(self, limit: Limit, until: int) -> Iterator[Star]:
        """The pairs that a limit is held against, as they were right after entry ``until``."""
        if any(self.charged(label, limit.analyst, until).used for label in limit.counted):
            one_graph(limit, lambda label: self.graphs.get(label, frozenset()))
        return stars(
            limit, lambda label: self.charged(label, limit.analyst, until), self.ties, self.cut, pairs=self.pairs
        )

    def upper(self, side: Side, limit: Limit) -> float:
        chosen = limit.delta if limit.filters(side.span) else None
        key = (side.about.bare, side.opposite.bare, limit.epsilon, chosen)
        if key not in self.uppers:
            self.uppers[key] = pair_bound(side, limit, self.bounds.get)
        return self.uppers[key]


def _added(total: Charges, content: dict[str, Any], batch: int) -> Charges:
    """Charges with those of another entry."""
    times = int(content.get("times", 1))
    span = Span(batch, batch, batch if "analyst" in content else 0)
    if "mechanism" in content:
        return total.plus(content["mechanism"], float(content.get("tv", 0.0)), times, span)
    return total.joined(Charges.of([], [claim(content)], span))


def verified(transaction: Transaction, composer: Composer, seal: Head | None) -> Verification:
    """Walk the chain and report."""
    notes: list[str] = []
    count, last = 0, Head(0, START)
    replay = _Replay()
    try:
        before = ""
        for entry, columns in journal.entries(transaction):
            _chained(last, entry, columns)
            count, last = count + 1, entry.head
            if seal is not None and seal.seq == entry.seq and seal != entry.head:
                raise _Broken(entry.seq, "it is not the entry that the given head seals: the chain was rewritten")
            time = str(entry.content.get("time", ""))
            if time < before:
                notes.append(f"the clock went backwards before entry {entry.seq}; nothing depends on it")
            before = time
            try:
                _replayed(transaction, composer, replay, entry)
            except (KeyError, TypeError, ValueError) as error:
                raise _Broken(entry.seq, "its content does not make sense") from error
        _ended(transaction, last, seal)
        _flush(composer, replay)
        _derived(transaction, replay)
    except _Broken as broken:
        return Verification(False, count, last, broken.seq, broken.problem, tuple(notes))
    except LedgerError as error:
        return Verification(False, count, last, None, str(error), tuple(notes))
    notes.extend(_overdrawn(composer, replay, last.seq))
    if transaction.postgres and transaction.value("SHOW fsync") == "off":
        notes.append("the server runs with fsync off: a power failure can lose what was recorded")
    if seal is None:
        notes.append("without a head kept elsewhere, a chain rewritten or cut short as a whole cannot be told")
    return Verification(True, count, last, None, "", tuple(notes))


def _chained(last: Head, entry: Entry, columns: dict[str, Any]) -> None:
    expected = last.seq + 1
    if entry.seq != expected:
        raise _Broken(expected, f"it is missing: entry {entry.seq} follows entry {last.seq}")
    if entry.previous != last.hash:
        raise _Broken(entry.seq, "it does not follow the entry before it: one of the two was replaced or moved")
    if not entry.intact:
        raise _Broken(entry.seq, "it was altered: its content does not give its hash")
    try:
        same = entry.columns() == columns
    except ValueError:
        same = False
    if not same:
        raise _Broken(entry.seq, "what the database looks up differs from what was recorded")


def _replayed(transaction: Transaction, composer: Composer, replay: _Replay, entry: Entry) -> None:
    content = entry.content
    if (entry.kind == "created") != (entry.seq == 1):
        raise _Broken(entry.seq, "a ledger begins with the entry 'created', once")
    if entry.kind == "created":
        key = bytes.fromhex(transaction.value("SELECT value FROM meta WHERE name = 'answer_key'") or "")
        identity = transaction.value("SELECT value FROM meta WHERE name = 'ledger'")
        if identity != content["ledger"] or hashlib.sha256(key).hexdigest() != content["key"]:
            raise _Broken(entry.seq, "the database's identity or key is not the one recorded")
        replay.pairs = content.get("accounts") == ACCOUNTS
    elif entry.kind == "accounts":
        if replay.pairs or content["accounts"] != ACCOUNTS:
            raise _Broken(entry.seq, "it changes what accounts are kept for, which is done once")
        _flush(composer, replay)
        replay.pairs = True
    elif entry.kind == "budget":
        _flush(composer, replay)
        _planned(replay, entry)
        replay.budgets = replay.budgets.after(content, entry.seq)
    elif entry.kind == "graph":
        replay.announced = content["graph"]
    elif entry.kind == "mechanism":
        _admitted(transaction, composer, replay, entry)
    elif entry.kind in ("release", "declared"):
        _charged(replay, entry)
    elif entry.kind == "shown":
        charge = replay.releases.get(content["release"])
        if charge is None or charge.content["label"] != content["label"]:
            raise _Broken(entry.seq, "it shows an answer that was not released")
        charge.shown.setdefault(content.get("analyst"), _batch(replay, entry))
        key_ = (content["label"], content.get("analyst"), False)
        replay.pending.setdefault(key_, []).append(entry.seq)
    elif entry.kind in NOTES:
        if entry.kind == "receipt":
            given = (content["analyst"], content["query_id"])
            if given in replay.receipts:
                raise _Broken(entry.seq, "its question had been given to the analyst before")
            replay.receipts.add(given)
    elif entry.kind == crowds.KIND:
        if content["before"] != replay.crowds:
            raise _Broken(entry.seq, "the crowds before it are not those that the release before it left")
        replay.crowds = content["crowds"]
    elif entry.kind == "renewed":
        _renewed(replay, entry)
    else:
        raise _Broken(entry.seq, "its kind is unknown")


def _admitted(transaction: Transaction, composer: Composer, replay: _Replay, entry: Entry) -> None:
    content = entry.content
    digest = content["mechanism"]
    stored = transaction.value("SELECT content FROM mechanisms WHERE digest = :digest", digest=digest)
    if stored is None:
        raise _Broken(entry.seq, "the mechanism it records is missing")
    if hashlib.sha256(bytes(stored)).hexdigest() != content["content"]:
        raise _Broken(entry.seq, "the mechanism it records was altered")
    mechanism = restored(bytes(stored), digest)
    graph = graph_digest(mechanism.graph)
    if graph != content["graph"]:
        raise _Broken(entry.seq, "the mechanism's graph is not the one recorded with it")
    if graph not in replay.networks:
        if replay.announced != graph:
            raise _Broken(entry.seq, "the mechanism's graph was not recorded before it")
        _grown(composer, replay, entry.seq, graph, mechanism.graph)
    replay.mechanisms[digest], replay.graph_of[digest] = mechanism, graph
    stated = stored_bound(transaction, digest)
    if stated is not None:
        replay.bounds[digest] = _rebounded(entry.seq, mechanism, stated)


def _grown(composer: Composer, replay: _Replay, seq: int, digest: str, graph: NeighborGraph) -> None:
    """A new graph: neighbors on record that it holds must be neighbors in it."""
    related = {name for label in graph.labels for name in replay.graphs.get(label, ())}
    if related:
        _flush(composer, replay)
    for name in related:
        change = changes(graph, replay.networks[name])
        if change.lost.size:
            raise _Broken(seq, "the mechanism's graph lacks neighbors that were recorded before")
        if change.gained:
            replay.outgrown.add(name)
    replay.networks[digest] = graph
    for label in graph.labels:
        replay.graphs[label] = replay.graphs.get(label, frozenset()) | {digest}
        replay.tied.pop(label, None)


def _rebounded(seq: int, mechanism: Releaser, stated: MechanismBound) -> MechanismBound:
    """The stored bound of a mechanism computed anew; a stored one must not be below it."""
    found = bound_at(mechanism, stated.epsilons, stated.orders, stated.table_epsilons)
    for kind in POINTS:
        anew = dict(found.points(kind))
        for point, value in stated.points(kind):
            if anew.get(point, math.inf) > value:
                raise _Broken(seq, "the stored bound of its mechanism is below what the mechanism costs")
    return found


def _charged(replay: _Replay, entry: Entry) -> None:
    content = entry.content
    label = content["label"]
    batch = _batch(replay, entry)
    charge = _Charge(entry.seq, content, {content.get("analyst"): batch})
    if "mechanism" in content:
        mechanism = replay.mechanisms.get(content["mechanism"])
        if mechanism is None or label not in mechanism.classes.labels:
            raise _Broken(entry.seq, "it uses a mechanism that was not recorded before it, or not for this label")
        if replay.graph_of[content["mechanism"]] in replay.outgrown:
            raise _Broken(entry.seq, "it uses a mechanism that lacks neighbors recorded since")
        if entry.kind == "release" and len(content["released"]) != mechanism.classes.n_dims:
            raise _Broken(entry.seq, "its answer has another length than the mechanism's")
    if entry.kind == "release":
        question = (label, content["query_id"])
        if question in replay.questions:
            raise _Broken(entry.seq, "its question had been answered before")
        apart = [name for name in replay.neighbors(label) if name not in replay.mechanisms[content["mechanism"]].graph]
        if any((name, content["query_id"]) in replay.questions for name in apart):
            raise _Broken(entry.seq, "a neighbor was answered under the same name through another mechanism")
        replay.questions.add(question)
        replay.releases[entry.seq] = charge
        replay.pending.setdefault((label, content.get("analyst"), True), []).append(entry.seq)
    line = replay.lines.setdefault(label, _Line())
    total = _added(line.totals[-1] if line.totals else NOTHING, content, batch)
    line.charges.append(charge)
    line.seqs.append(entry.seq)
    line.totals.append(replay.one.setdefault(total, total))


def _batch(replay: _Replay, entry: Entry) -> int:
    """When an entry was chosen. Older ones do not say: each is then taken for a choice of its own."""
    stated = entry.content.get("batch")
    if stated is None:
        if replay.batched:
            raise _Broken(entry.seq, "it does not say what it was chosen with")
        return entry.seq
    number = int(stated)
    batch, last = replay.batched or (0, 0)
    if number > entry.seq or (number != batch and number <= last):
        raise _Broken(entry.seq, "it says that it was chosen with an entry that was shown before")
    replay.modes = replay.modes if replay.modes < math.inf else entry.seq
    replay.batched = (number, entry.seq)
    return number


def _planned(replay: _Replay, entry: Entry) -> None:
    """A budget for a series fixed in advance must not come after choices."""
    content = entry.content
    if content.get("mode") != "fixed":
        return
    analyst = content["names"][0] if content["scope"] == "analyst" else None
    labels = content.get("members") or content.get("names", ())
    for label, line in replay.lines.items():
        if content["scope"] in ("label", "group") and label not in labels:
            continue
        found = [charge for charge in line.charges if analyst is None or analyst in charge.shown]
        spans = [Span(b, b, b if "analyst" in charge.content else 0) for charge in found for b in charge.shown.values()]
        if spans and replay.budgets.was_chosen(content, label, reduce(Span.joined, spans)):
            raise _Broken(entry.seq, "it calls a series fixed in advance whose releases may have been chosen")


def _renewed(replay: _Replay, entry: Entry) -> None:
    """A renewal is free: it must be the curve of a draw that was charged, in a codebook that goes on."""
    content = entry.content
    first, book = replay.releases.get(content["release"]), replay.mechanisms.get(content["mechanism"])
    before = None if first is None else replay.mechanisms.get(first.content["mechanism"])
    label, question = content["label"], (content["label"], content["query_id"])
    if first is None or first.content["label"] != label or not first.shown.keys() & {None, content.get("analyst")}:
        raise _Broken(entry.seq, "it renews an answer that was not released, or not to this analyst")
    if question in replay.questions:
        raise _Broken(entry.seq, "its question had been answered before")
    replay.questions.add(question)
    if not isinstance(book, Codebook) or not isinstance(before, Codebook):
        raise _Broken(entry.seq, "it renews an answer of a mechanism that has no draws to keep")
    answer = looked_up(book, before, label, first.content["released"])
    if answer is None or answer.tolist() != content["released"]:
        raise _Broken(entry.seq, "its answer is not the curve of the draw that was charged")


def _flush(composer: Composer, replay: _Replay) -> None:
    """Compare the releases since the budgets last changed with the budgets that were in force."""
    found: list[tuple[int, str]] = []
    for (label, analyst, charged), entries in replay.pending.items():
        if charged and not replay.budgets.cover(label):
            found.append((entries[0], "it was released without a budget"))
        if charged:
            limits = replay.budgets.limits(label, analyst, replay.around(label))
        else:
            limits = list(replay.budgets.of_analysts(label, analyst))
        for limit in limits:
            if any(limit.closed(side.span) for star in replay.held(limit, entries[-1]) for side in star.sides):
                late = [seq for seq in entries if seq >= replay.modes]
                if late:
                    found.append((late[0], f"an analyst is named in the fixed series of {limit.name}"))
            if _exceeds(composer, replay, limit, entries[-1]):
                first = next(seq for seq in entries if _exceeds(composer, replay, limit, seq))
                found.append((first, f"it exceeds the budget of {limit.name}"))
    if found:
        raise _Broken(*min(found))
    replay.pending.clear()


def _exceeds(composer: Composer, replay: _Replay, limit: Limit, until: int) -> bool:
    """Whether a limit was exceeded right after entry ``until``."""
    if until < replay.modes:  # made when sequences were composed as if all were fixed in advance
        limit = replace(limit, mode="fixed")
    held = []
    for star in replay.held(limit, until):
        sides = tuple(side for side in star.sides if replay.upper(side, limit) > limit.delta)
        if sides:
            held.append(replace(star, sides=sides))
    if not held:
        return False
    spent = account(composer, held, limit, replay.mechanisms.__getitem__).spent
    return spent > (limit.delta if replay.pairs else limit.delta * (1 + HEADROOM))


def _overdrawn(composer: Composer, replay: _Replay, until: int) -> Iterator[str]:
    limits = {}
    for label in sorted({*replay.lines, *replay.budgets.labels}):
        for limit in replay.budgets.limits(label, None, ()):
            limits[limit.name] = limit
    for limit in limits.values():
        try:
            over = _exceeds(composer, replay, limit, until)
        except InputError:
            continue
        if over:
            yield (
                f"{limit.name} is overdrawn, by what was declared, by a lowered budget or by releases made before "
                "accounts were kept for pairs; nothing more is released"
            )


def _ended(transaction: Transaction, last: Head, seal: Head | None) -> None:
    stated = journal.head(transaction)
    if stated.seq > last.seq:
        raise _Broken(last.seq + 1, f"it is missing: the head names {stated.seq} entries, there are {last.seq}")
    if stated != last:
        raise _Broken(last.seq, "it is not the entry that the head names as the last")
    if seal is not None and seal.seq > last.seq:
        raise _Broken(last.seq + 1, f"it is missing: the given head seals {seal.seq} entries, there are {last.seq}")


def _derived(transaction: Transaction, replay: _Replay) -> None:
    """Tables that are not in the chain must say what the chain says."""
    if crowds.altered(transaction, replay.crowds):
        raise _Broken(None, "the tables of lasting crowds are not those whose digest is recorded")
    stored = {str(row[0]) for row in transaction.rows("SELECT digest FROM mechanisms")}
    if stored != set(replay.mechanisms):
        raise _Broken(None, "the table of mechanisms holds one that was never recorded")
    if {str(row[0]) for row in transaction.rows("SELECT DISTINCT mechanism FROM bounds")} != set(replay.bounds):
        raise _Broken(None, "the table of bounds holds one of a mechanism that was never recorded")
    named = {str(row[0]): str(row[1]) for row in transaction.rows("SELECT mechanism, graph FROM graphs")}
    if named != replay.graph_of:
        raise _Broken(None, "the table of graphs differs from what was recorded")
    members: dict[str, set[str]] = {}
    for label, graph in transaction.rows("SELECT label, graph FROM members"):
        members.setdefault(str(label), set()).add(str(graph))
    if members != replay.graphs:
        raise _Broken(None, "the table of labels differs from what was recorded")
    if {str(row[0]) for row in transaction.rows("SELECT graph FROM outgrown")} != replay.outgrown:
        raise _Broken(None, "the table of graphs that were outgrown differs from what was recorded")
