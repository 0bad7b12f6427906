"""Crowds that last: who hides together, from the first release about its members on (docs/theory.md, section 12).

Who is averaged changes by whole crowds alone. So the ledger keeps tables of members (:class:`Member`) and crowds
(:class:`Crowd`) beside the chain and decides every change of them. A crowd is a fixed set. A retired crowd releases
nothing more, and its rest, the members that carry its number as their ``block``, moves as one into a new crowd with at
least m new labels. Nothing is released of a crowd with a member that has neighbors on record outside of it.

The digest of a crowd covers its row and its members, and that of the tables the digests of all crowds. It is in the
entry of the release that changed them; every release and :meth:`Ledger.verify` hold the tables against it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from shoal.errors import InputError, LedgerError
from shoal.product.ledger import chain
from shoal.product.ledger.budgets import is_later, is_window_after, window_start
from shoal.product.ledger.chain import Entry, canonical_json
from shoal.product.ledger.storage import (
    CROWD_MEMBERS,
    CROWD_NUMBERS,
    CROWDS,
    READINGS,
    Transaction,
    check_text,
    keep_spellings,
    recorded_spellings,
    refuse_other_spellings,
    split_into_chunks,
)

if TYPE_CHECKING:
    import polars as pl
    from sqlalchemy import Table

    from shoal.laws.graph import NeighborGraph
    from shoal.product.ledger.state import State

#: The digest of tables without a crowd.
NOBODY = hashlib.sha256().hexdigest()
NOTHING_CHANGED = "Nothing was recorded"
STALE = f"crowds: another release was recorded after they were read; read them again with crowds(). {NOTHING_CHANGED}"
ALTERED = "ledger: the tables of crowds are not those that were recorded; run verify() and restore a backup"
OTHER_CONTENT = (
    f"name: a release of other crowds, rows or facts is on record under it; give the new release a name of its own. "
    f"{NOTHING_CHANGED}"
)

#: Columns that rows are compared in, at least, and values of a column that is passed over as few-valued, at most.
COLUMNS, FEW = 3, 10
KNOWN = (
    "labels: {} rows of new labels are on record under other labels, with the same figures. Crowds are formed once: "
    "a second division of the same people gives them away. Write the labels as they were, or release others. Nothing "
    "was recorded"
)
#: The types of columns that are not texts.
TYPES: dict[str, type] = {
    "crowd": int,
    "members": int,
    "block": int,
    "stored": bytes,
    "row": bytes,
    "retired": bool,
    "entered": bytes,
}


class Member(NamedTuple):
    """A label in its crowd, with the last figures that entered rows (``stored``: by time of day, or columns) and those
    of the last row (``entered``), integers both; the period of its last own figures, and since when it is ``held``;
    ``block`` is the retired crowd that it came from.
    """

    label: str
    crowd: int
    stored: bytes
    last: str
    block: int | None = None
    entered: bytes = b""
    held: str = ""


class Crowd(NamedTuple):
    """What is fixed about a crowd, with bases and secret offsets (``kept``), and the period and ``row`` of its last
    release: float64 values, NaN where one was withheld.
    """

    crowd: int
    setting: str
    period: str
    row: bytes
    members: int
    retired: bool = False
    kept: str = ""

    @property
    def lasting_secrets(self) -> dict[str, Any]:
        """Bases, secret offsets and decimals that hold for the crowd's life; None each if rows are not averages."""
        kept = _parse_json(self.kept) if self.kept else {}
        if not isinstance(kept, dict):
            raise InputError("crowds: kept must be a JSON object, or empty")
        return {name: kept.get(name) for name in ("bases", "offsets", "decimals")}

    @property
    def least_size(self) -> int:
        """The least number of members, m, that the crowd's setting promises."""
        setting = _parse_json(self.setting)
        if not isinstance(setting, dict):
            raise InputError("crowds: every setting must be a JSON object")
        least = setting.get("m")
        if type(least) is not int or least < 2:
            raise InputError("crowds: every setting must state m, a number of at least 2")
        return least


Row = TypeVar("Row", bound=Member | Crowd)


@dataclass(frozen=True)
class LastingCrowds:
    """Crowds on record as two frames, and the digest of the whole tables at the time they were read.

    ``members`` has the columns label, crowd, stored, last, block, entered, held; ``crowds`` has crowd, setting, period,
    row, members, retired, kept. ``row`` holds float64 values as bytes, ``stored`` and ``entered`` integers.
    """

    members: pl.DataFrame
    crowds: pl.DataFrame
    digest: str
    settings: tuple[str, ...] = ()  #: of all crowds on record


def read_crowds(transaction: Transaction, labels: Sequence[Any] | None = None) -> LastingCrowds:
    """The crowds on record that hold some labels, each with all its members; all crowds if ``labels`` is None."""
    import polars as pl

    numbers = None
    if labels is not None:
        names = [str(label) for label in labels]
        names += recorded_spellings(transaction, names).values()
        numbers = {m.crowd for m in recorded_members(transaction, names).values()}

    def frame(kind: type[Member | Crowd]) -> pl.DataFrame:
        rows = sorted(_read_rows(transaction, kind, numbers))
        return pl.DataFrame(rows, schema={name: TYPES.get(name, str) for name in kind._fields}, orient="row")

    settings = sorted(str(row[0]) for row in transaction.rows(select(CROWDS.c.setting).distinct()))
    return LastingCrowds(frame(Member), frame(Crowd), digest_of_tables(transaction), tuple(settings))


def draw_crowd_numbers(transaction: Transaction, n: int) -> list[int]:
    """``n`` unused numbers from the cryptographic source, recorded as drawn; longer ones once a tenth is in use."""
    used = {int(row[0]) for row in transaction.rows(select(CROWD_NUMBERS.c.crowd))}
    low = 10**5
    while len(used) + n > 9 * low // 10:
        low *= 10
    drawn: list[int] = []
    while len(drawn) < n:
        number = low + secrets.randbelow(9 * low)
        if number not in used:
            used.add(number)
            drawn.append(number)
    transaction.insert(CROWD_NUMBERS, *({"crowd": number} for number in drawn))
    return drawn


@dataclass(frozen=True)
class CrowdsRelease:
    """A release of lasting crowds as it is asked for: what changes, and what the public table is."""

    name: str
    members: Mapping[str, Member]
    crowds: Mapping[int, Crowd]
    table_digest: str
    facts: Mapping[str, Any]

    @classmethod
    def from_frames(
        cls, name: str, members: pl.DataFrame, crowds: pl.DataFrame, table_digest: str, facts: Mapping[str, Any]
    ) -> CrowdsRelease:
        """A release from the arguments of :meth:`Ledger.record_crowds`; InputError if one of them is malformed."""
        if not isinstance(table_digest, str) or len(table_digest) != 64:
            raise InputError("table_digest must be the SHA-256 of the public table's bytes, 64 hexadecimal digits")
        try:
            plain = dict(facts)
            size = len(canonical_json(plain))
        except (TypeError, ValueError):
            raise InputError("facts must be a mapping that JSON can hold: texts and finite numbers") from None
        if size > 10_000:
            raise InputError("facts must be small: at most 10,000 characters of JSON")
        by_label: dict[str, Member] = {member.label: member for member in _rows_of_frame(members, "members", Member)}
        by_number: dict[int, Crowd] = {crowd.crowd: crowd for crowd in _rows_of_frame(crowds, "crowds", Crowd)}
        if len(by_label) < members.height or len(by_number) < crowds.height:
            raise InputError("members and crowds must hold a label, and a crowd, once")
        for label in by_label:
            check_text(label=label)
        for crowd in by_number.values():
            check_text(period=crowd.period)
            _ = crowd.least_size, crowd.lasting_secrets
        for crowd in by_number.values():
            if len(crowd.row) % 8 or np.isinf(np.frombuffer(crowd.row, dtype=np.float64)).any():
                raise InputError("row must be the bytes of float64 values, finite or NaN where one is withheld")
        if any(len(values) % 4 for m in by_label.values() for values in (m.stored, m.entered)):
            raise InputError("stored and entered must be the bytes of integers")
        return cls(check_text(name=name), by_label, by_number, table_digest, plain)

    @property
    def content_digest(self) -> str:
        """SHA-256 of members, crowds, table digest and facts: equal for equal releases."""
        rest = (self.table_digest, canonical_json(dict(self.facts)))
        return _digest_of_rows(*sorted(self.members.values()), *sorted(self.crowds.values()), rest)


def crowds_entry(transaction: Transaction, name: str) -> Entry | None:
    """The ledger entry of the release of crowds under a name; None if there is none."""
    return next(iter(chain.entries_of_kind(transaction, "crowds", query_id=name)), None)


def record_release(state: State, release: CrowdsRelease, book_digest: str) -> Entry:
    """Check a release of crowds against all rules, change the tables, and append its ledger entry."""
    transaction, content = state.transaction, release.content_digest
    entry = crowds_entry(transaction, release.name)
    if entry is not None:
        if entry.content["content"] != content:
            raise InputError(OTHER_CONTENT)
        return entry
    refuse_other_spellings(transaction, release.members)
    before = digest_of_tables(transaction)
    if book_digest != before:
        raise LedgerError(STALE, reason="stale")
    on_record = recorded_members(transaction, list(release.members))
    around = {m.crowd for m in (*on_record.values(), *release.members.values())} | release.crowds.keys()
    last = chain.last_entry_of_kind(transaction, "crowds")
    if before != (NOBODY if last is None else last.content["crowds"]):
        raise LedgerError(ALTERED, reason="damaged")
    old, everyone = read_intact_crowds(transaction, around)
    everyone |= {m.label: m for m in _read_rows(transaction, Member, _retired_origins(release), "block")}
    after = everyone | dict(release.members)
    crowds = old | dict(release.crowds)
    fresh = {label: member.stored for label, member in release.members.items() if label not in on_record}
    for setting, least in {(crowd.setting, crowd.least_size) for n, crowd in release.crowds.items() if n not in old}:
        refuse_second_division(transaction, setting, fresh, least)
    rules = _crowd_faults(transaction, release, old), _member_faults(release, everyone, after, old)
    for rule in itertools.chain(*rules):
        raise InputError(f"{rule}. {NOTHING_CHANGED}")
    inside = _group_by_crowd(after.values())
    same = {n for n, crowd in release.crowds.items() if n in old and crowd[2:4] == old[n][2:4]}  # period and row
    place = {m.label: crowds[n].period for n in release.crowds.keys() - same for m in inside.get(n, [])}
    state.read_labels(place)
    outside = {
        name
        for label in place
        for name in state.neighbors(label)
        if name not in after or after[name].crowd != after[label].crowd
    }
    elsewhere = recorded_members(transaction, sorted(outside)) | after
    retired = {n for n, crowd in crowds.items() if crowd.retired}
    beyond = {m.crowd for m in elsewhere.values()} - around
    retired |= {crowd.crowd for crowd in _read_rows(transaction, Crowd, beyond) if crowd.retired}
    if any(name not in elsewhere or elsewhere[name].crowd not in retired for name in outside):
        raise InputError(
            "members: a label of a crowd has a neighbor on record, through a mechanism, that is not in the crowd; two "
            f"that were neighbors stay neighbors. {NOTHING_CHANGED}"
        )
    days = {n: (_parse_json(crowds[n].setting) or {}).get("train_days") for n in release.crowds.keys() - same}
    begins = {m.label: window_start(crowds[n].period, days[n]) for n in days for m in inside.get(n, [])}
    last_readings = {label: state.label_state(label).readings.period for label in place}
    if any(last and not is_window_after(begins[label], place[label], last) for label, last in last_readings.items()):
        raise InputError(
            "crowds: readings of a member from the same days, or later ones, were released under the readings' "
            "promise, which does not cover this release. Choose an origin with training days that begin where those "
            "end. "
            f"{NOTHING_CHANGED}"
        )
    transaction.upsert(CROWD_MEMBERS, [m._asdict() for m in release.members.values()])
    keep_spellings(transaction, release.members)
    rows = [crowds[n]._asdict() | {"digest": crowd_digest(crowds[n], inside.get(n, []))} for n in sorted(around)]
    transaction.upsert(CROWDS, rows)
    changed = {
        "query_id": release.name,
        "content": content,
        "table": release.table_digest,
        "facts": dict(release.facts),
        "before": before,
        "crowds": digest_of_tables(transaction),
    }
    return state.append("crowds", changed)


def _crowd_faults(transaction: Transaction, release: CrowdsRelease, old: Mapping[int, Crowd]) -> Iterator[str]:
    """Messages on the rules that a release's rows of crowds break."""
    new = [number for number in release.crowds if number not in old]
    if not {int(row[0]) for row in _select_rows(transaction, CROWD_NUMBERS, ["crowd"], new)}.issuperset(new):
        yield "crowds: the number of a new crowd was not drawn; take numbers from draw_crowd_numbers"
    if any(release.crowds[number].retired for number in new):
        yield "crowds: a new crowd is retired already"
    for number in release.crowds.keys() & old.keys():
        crowd, known = release.crowds[number], old[number]
        if _parse_json(crowd.setting) != _parse_json(known.setting) or crowd.members != known.members:
            same = f"another setting, or number of homes, than the one on record (m = {known.least_size})"
            yield f"crowds: a crowd has {same}, which holds for its life"
        if crowd.lasting_secrets != known.lasting_secrets:
            yield "crowds: a crowd has other bases or offsets than those on record, which hold for its life"
        if known.retired or crowd.retired:
            if (crowd.period, crowd.row, crowd.retired) != (known.period, known.row, True):
                yield "crowds: a retired crowd releases nothing more"
        elif not is_later(crowd.period, known.period):
            yield f"crowds: the period of a crowd is not later than {known.period}, that of its last release"


def _member_faults(
    release: CrowdsRelease, before: Mapping[str, Member], after: Mapping[str, Member], old: Mapping[int, Crowd]
) -> Iterator[str]:
    """Messages on the rules that members break: a crowd is a fixed set, and a retired one moves as a whole."""
    retired = {number for number, crowd in {**old, **release.crowds}.items() if crowd.retired}
    for member in release.members.values():
        known = before.get(member.label)
        if known is not None and member.crowd == known.crowd:
            if member.block not in (known.block, member.crowd if member.crowd in retired else known.block):
                yield "members: a block is the number of the label's crowd, once that is retired"
        elif member.crowd in old:
            yield "members: a label joins a crowd on record, which is a fixed set"
        elif member.crowd not in release.crowds:
            yield "members: the crowd of a label is neither on record nor among crowds"
        elif known is None and member.block is not None:
            yield "members: a new label has no block"
        elif known is not None and (known.crowd not in retired or member.block != known.crowd):
            yield "members: a label leaves a crowd that is not retired, or does not carry its number as its block"
    places: dict[int | None, set[int]] = {}
    for member in after.values():
        places.setdefault(member.block, set()).add(member.crowd)
    if any(len(places[block]) > 1 for block in _retired_origins(release)):
        yield "members: the rest of a retired crowd moves as a whole, into one crowd"
    inside = _group_by_crowd(after.values())
    for number, crowd in release.crowds.items():
        if number in old:
            continue
        members = inside.get(number, [])
        rests = [old[block] for block in {m.block for m in members if m.block is not None}]
        least = max((rest.least_size for rest in rests), default=0)
        if crowd.members != len(members):
            yield "crowds: homes must be the number of members of a crowd"
        if not all(is_later(crowd.period, rest.period) for rest in rests):
            yield "crowds: the period of a new crowd is not later than that of the last release about its members"
        if crowd.least_size < least:
            yield f"crowds: a new crowd promises less than the one that its members come from (m = {least})"
        if sum(m.block is None for m in members) < crowd.least_size:
            rest = "not counting any rest of a retired crowd"
            yield f"crowds: a crowd has fewer members than its setting's m = {crowd.least_size}, {rest}"


def _retired_origins(release: CrowdsRelease) -> set[int]:
    """Numbers of the retired crowds that members of a release came from."""
    return {member.block for member in release.members.values() if member.block is not None}


def digest_of_tables(transaction: Transaction) -> str:
    """SHA-256 over the numbers and digests of all crowds on record."""
    total = hashlib.sha256()
    for number, of_crowd in transaction.rows(select(CROWDS.c.crowd, CROWDS.c.digest).order_by(CROWDS.c.crowd)):
        total.update(f"{number}:{of_crowd}\n".encode())
    return total.hexdigest()


def crowd_digest(crowd: Crowd, members: Iterable[Member]) -> str:
    """SHA-256 over a crowd's row and its members."""
    return _digest_of_rows(crowd, *sorted(members))


def read_intact_crowds(
    transaction: Transaction, numbers: set[int] | None
) -> tuple[dict[int, Crowd], dict[str, Member]]:
    """Crowds by number and members by label; LedgerError unless they give the crowds' stored digests."""
    rows = [tuple(row) for row in _select_rows(transaction, CROWDS, [*Crowd._fields, "digest"], numbers)]
    crowds = {row[0]: Crowd(*row[:-1]) for row in rows}
    members = {member.label: member for member in _read_rows(transaction, Member, numbers)}
    inside = _group_by_crowd(members.values())
    digests = {number: crowd_digest(crowd, inside.get(number, [])) for number, crowd in crowds.items()}
    if not inside.keys() <= crowds.keys() or digests != {row[0]: row[-1] for row in rows}:
        raise LedgerError(ALTERED, reason="damaged")
    return crowds, members


def last_periods(transaction: Transaction, labels: Sequence[str]) -> set[str]:
    """Periods of the last releases of the crowds that hold some labels."""
    numbers = {member.crowd for member in recorded_members(transaction, labels).values()}
    return {crowd.period for crowd in _read_rows(transaction, Crowd, numbers)}


def recorded_members(transaction: Transaction, labels: Sequence[str]) -> dict[str, Member]:
    """Label -> its row in the table of members, for the labels that are in a crowd."""
    return {m.label: m for m in _read_rows(transaction, Member, labels, "label")}


def count_on_record(transaction: Transaction, labels: Sequence[str], kind: str) -> int:
    """Number of labels that are in a crowd of this kind, or have released readings."""
    known = recorded_spellings(transaction, labels)
    labels = [known.get(label, label) for label in labels]
    crowd_of = dict(map(tuple, _select_rows(transaction, CROWD_MEMBERS, ["label", "crowd"], labels, "label")))
    settings = _select_rows(transaction, CROWDS, ["crowd", "setting"], set(crowd_of.values()))
    same = {number for number, setting in settings if (_parse_json(setting) or {}).get("kind") == kind}
    read = {row[0] for row in _select_rows(transaction, READINGS, ["label"], labels, "label")}
    return len(read | {label for label, number in crowd_of.items() if number in same})


def refuse_second_division(transaction: Transaction, setting: str, new: Mapping[str, bytes], least: int) -> None:
    """Refuse new labels of which ``least`` or more have the figures of recorded ones, in three columns or more."""
    described, labels = _parse_json(setting) or {}, list(new)
    kind = np.dtype("<i8")
    if "kind" not in described or len({len(values) for values in new.values()}) != 1:
        return
    rows = np.array([np.frombuffer(new[label], dtype=kind) for label in labels])
    known = np.zeros(len(labels), dtype=np.bool_)
    for other in {str(row[0]) for row in transaction.rows(select(CROWDS.c.setting).distinct())}:
        here, there = _common_columns(described, _parse_json(other) or {}, rows)
        if len(here) < COLUMNS:
            continue
        wanted: dict[bytes, list[int]] = {}
        for i, row in enumerate(rows[:, here]):
            wanted.setdefault(row.tobytes(), []).append(i)
        numbers = [row[0] for row in transaction.rows(select(CROWDS.c.crowd).where(CROWDS.c.setting == other))]
        for part in split_into_chunks(numbers):
            members = select(CROWD_MEMBERS.c.label, CROWD_MEMBERS.c.stored).where(CROWD_MEMBERS.c.crowd.in_(part))
            stored = [bytes(values) for label, values in transaction.rows(members) if str(label) not in new]
            stored = [values for values in stored if len(values) > kind.itemsize * max(there)]
            if not stored:
                continue
            for values in stored:
                known[wanted.get(np.frombuffer(values, dtype=kind)[there].tobytes(), [])] = True
    if known.sum() >= least:
        raise InputError(KNOWN.format(int(known.sum())))


def _common_columns(
    one: dict[str, Any], other: dict[str, Any], rows: NDArray[np.integer]
) -> tuple[list[int], list[int]]:
    """Places of columns that two settings share, in new and in recorded rows, few-valued columns left out."""
    if any(one.get(name) != other.get(name) for name in ("kind", "step_minutes")):
        return [], []
    names, others = (part.get("columns") or list(range(rows.shape[1])) for part in (one, other))
    many = [name for at, name in enumerate(names[: rows.shape[1]]) if len(np.unique(rows[:, at])) > FEW]
    common = [name for name in many if name in others]
    return [names.index(name) for name in common], [others.index(name) for name in common]


def refuse_split_crowds(transaction: Transaction, graph: NeighborGraph, labels: Sequence[str]) -> None:
    """Refuse a graph that does not join a label with a crowd on record to every other member of that crowd."""
    crowd_of = {label: m.crowd for label, m in recorded_members(transaction, labels).items()}
    _, members = read_intact_crowds(transaction, set(crowd_of.values()))
    inside = {crowd: {m.label for m in within} for crowd, within in _group_by_crowd(members.values()).items()}
    if any(not inside[crowd] <= {label, *graph.neighbors(label)} for label, crowd in crowd_of.items()):
        raise InputError(
            "mechanism: its graph does not join a label to all other members of its crowd on record, so that nothing "
            "hides it among them; use the crowds of the ledger as the graph. Nothing was released and nothing was "
            "charged"
        )


def _group_by_crowd(members: Iterable[Member]) -> dict[int, list[Member]]:
    """Crowd number -> its members."""
    inside: dict[int, list[Member]] = {}
    for member in members:
        inside.setdefault(member.crowd, []).append(member)
    return inside


def _read_rows(
    transaction: Transaction, kind: type[Row], values: Iterable[Any] | None, column: str = "crowd"
) -> list[Row]:
    """Members or crowds whose column has one of the given values; all if ``values`` is None."""
    table = CROWD_MEMBERS if kind is Member else CROWDS
    return [kind(*row) for row in _select_rows(transaction, table, kind._fields, values, column)]


def _select_rows(
    transaction: Transaction, table: Table, fields: Iterable[str], values: Iterable[Any] | None, column: str = "crowd"
) -> Iterator[Any]:
    """Fields of the table rows whose column has one of the given values; of all rows if ``values`` is None."""
    query = select(*(table.c[name] for name in fields))
    if values is None:
        yield from transaction.rows(query)
    for part in split_into_chunks(values or ()):
        yield from transaction.rows(query.where(table.c[column].in_(part)))


def _rows_of_frame(frame: Any, name: str, kind: type[Member | Crowd]) -> Iterator[Any]:
    """Rows of a frame as members or crowds; InputError for missing columns or values of another type."""
    import polars as pl

    if not isinstance(frame, pl.DataFrame) or set(frame.columns) != set(kind._fields):
        raise InputError(f"{name} must be a polars DataFrame with the columns {', '.join(kind._fields)}")
    for row in frame.select(kind._fields).iter_rows():
        for field, value in zip(kind._fields, row, strict=True):
            if not isinstance(value, TYPES.get(field, str)) and not (field == "block" and value is None):
                raise InputError(f"{name}: the column {field} must hold {TYPES.get(field, str).__name__} values")
        yield kind(*row)


@lru_cache(maxsize=1024)
def _parse_json(setting: str) -> Any:
    """The parsed content of a JSON text; None if it is not JSON."""
    try:
        return json.loads(setting)
    except ValueError:
        return None


def _digest_of_rows(*rows: Sequence[Any]) -> str:
    """SHA-256 over rows of values, each with its length, so that different rows never give the same bytes."""
    total = hashlib.sha256()
    for value in itertools.chain(*rows):
        content = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        total.update(f"{len(content)}:".encode() + content)
    return total.hexdigest()
