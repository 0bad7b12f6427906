"""Honest releases, and bugs planted into copies of their files, and of the record where the bug would be there too."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import shoal
from shoal.product.runs.folder import Folder
from shoal.product.runs.release_check import _earlier_crowds, read_record
from shoal.product.studies.release_files import PublicTable, RecordedCrowd, ReleaseFiles, ReleaseRecord

#: Columns of the table of people: a yes/no fact, two figures that go together, one more.
COLUMNS = ("age", "salary", "smokes", "bonus")


class Released(NamedTuple):
    """What the attack is given."""

    files: ReleaseFiles
    record: ReleaseRecord


def people(n: int, seed: int = 0, *, later: bool = False) -> pl.DataFrame:
    """A table with a row per person; ``later``: the same people a period on, everybody a little changed."""
    rng = np.random.default_rng(seed)
    age, salary = rng.normal(50, 12, n).round(0), np.exp(rng.normal(8, 0.4, n)).round(2)
    smokes, bonus = rng.integers(0, 2, n).astype(float), np.exp(rng.normal(5, 0.4, n)).round(2)
    if later:
        salary, bonus = (x * (1 + 0.05 * np.random.default_rng(seed + 1).random(n)) for x in (salary, bonus))
    order = rng.permutation(n)
    names = [f"P{i:04d}" for i in range(n)]
    columns = dict(zip(COLUMNS, (age[order], salary[order], smokes[order], bonus[order]), strict=True))
    return pl.DataFrame({"person": names, **columns})


def released(out: Path) -> Released:
    """The files of a run, and what is on record about them."""
    state = Folder(out).state()
    files = ReleaseFiles.of_run(out)
    names = [f"run {state.run} release {n}" for n in (state.release, state.release - 1)]
    before = None if state.previous is None else _earlier_crowds(Folder(out / state.previous))
    return Released(
        files, read_record(f"sqlite:///{out}/ledger.db", names[0], files.public["released.csv"], before, names[1])
    )


def make_table(out: Path, n: int = 200, *, twice: bool = False, seed: int = 0) -> Released:
    """A release of averages of people, or the second one."""
    settings: dict[str, Any] = {"workers": "serial", "cores": 1}
    shoal.run(people(n, seed), out, label="person", crowd=10, period="2024-01", sensitive=("age",), **settings)
    if twice:
        later = people(n, seed, later=True)
        shoal.run(later, out, label="person", period="2024-02", update=True, **settings)
    return released(out)


# ---------------------------------------------------------------------- editing


def lines(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode())))


def written(rows: Sequence[Sequence[str]]) -> bytes:
    return ("\n".join(",".join(row) for row in rows) + "\n").encode()


def sealed(one: Released, table: bytes, owner: bytes | None = None, **more: Any) -> Released:
    """The same release with another table, and checksums, description and record that fit it; precision too."""
    public = dict(one.files.public) | {"released.csv": table} | more.pop("public", {})
    record = replace(one.record, table=hashlib.sha256(table).hexdigest() if one.record.table else "", **more)
    if "datapackage.json" in public:
        described = json.loads(public["datapackage.json"])
        if record.kind == "averages":
            columns = PublicTable(table).columns
            described["precision"] = {
                str(n): dict(zip(columns, map(float, crowd.kept["bases"]), strict=False))
                if len(crowd.kept["bases"]) > 1 else float(crowd.kept["bases"][0])
                for n, crowd in record.crowds.items()
            }  # fmt: skip
        for resource in described["resources"]:
            content = public[resource["path"]]
            resource |= {"bytes": len(content), "hash": f"sha256:{hashlib.sha256(content).hexdigest()}"}
            if "schema" in resource:
                resource["schema"]["fields"] = [{"name": name} for name in lines(content)[0]]
        public["datapackage.json"] = json.dumps(described).encode()
        sums = [f"{hashlib.sha256(c).hexdigest()}  {name}\n" for name, c in public.items() if name != "SHA256SUMS"]
        public["SHA256SUMS"] = "".join(sums).encode()
    return Released(replace(one.files, public=public, owner=owner or one.files.owner), record)


def rows_of(crowd: RecordedCrowd, *, offset: bool = True) -> list[str]:
    """The row of a crowd, as the rules make it."""
    figures = crowd.entered if crowd.setting["kind"] == "forecast" else crowd.stored
    row = []
    for j, total in enumerate(figures.sum(axis=0).tolist()):
        base, window, secret, _ = crowd.windows[min(j, len(crowd.windows) - 1)]
        row.append(repr(float((total + secret * offset) // window * base)))
    return row


def remade(one: Released, crowds: dict[int, RecordedCrowd], *, offset: bool = True, **more: Any) -> Released:
    """A release whose record has these crowds, with the table and the owner's key that follow from them."""
    old, owner = lines(one.files.public["released.csv"]), lines(one.files.owner)
    stamps, rows, key = PublicTable(one.files.public["released.csv"]).stamps, [old[0]], [owner[0]]
    for number, crowd in sorted(crowds.items()):
        row, size = rows_of(crowd, offset=offset), str(crowd.members)
        figures = [[str(s + 1), t, y] for s, (t, y) in enumerate(zip(stamps, row, strict=True))] if stamps else [row]
        rows += [[str(number), size, *rest] for rest in figures]
        key += [[name, str(number), size, *rest] for name in crowd.labels for rest in figures]
    return sealed(one, written(rows), written(key), crowds=crowds, **more)


def changed(crowd: RecordedCrowd, **more: Any) -> RecordedCrowd:
    return replace(crowd, **more)


def largest(one: Released) -> int:
    return max(one.record.crowds, key=lambda n: len(one.record.crowds[n].labels))


def with_crowd(one: Released, number: int, crowd: RecordedCrowd, **more: Any) -> Released:
    return remade(one, dict(one.record.crowds) | {number: crowd}, **more)


# ---------------------------------------------------------------------- bugs of averages


def crowd_of_nine(one: Released) -> Released:
    number = largest(one)
    crowd = one.record.crowds[number]
    return with_crowd(one, number, changed(crowd, members=9, labels=crowd.labels[:9], stored=crowd.stored[:9],
                                           entered=crowd.entered[:9]))  # fmt: skip


def rows_by_name(one: Released) -> Released:
    head, *rows = lines(one.files.public["released.csv"])
    first = {str(n): min(crowd.labels) for n, crowd in one.record.crowds.items()}
    return sealed(one, written([head, *sorted(rows, key=lambda row: first[row[0]])]))


def _renumbered(one: Released, order: list[int]) -> Released:
    numbers = sorted(one.record.crowds)
    return remade(one, {new: one.record.crowds[old] for new, old in zip(numbers, order, strict=True)})


def numbers_by_name(one: Released) -> Released:
    return _renumbered(one, sorted(one.record.crowds, key=lambda n: min(one.record.crowds[n].labels)))


def numbers_by_level(one: Released) -> Released:
    table = PublicTable(one.files.public["released.csv"])
    return _renumbered(one, sorted(one.record.crowds, key=lambda n: float(np.mean(table.values(n)))))


def trace_in_digits(one: Released) -> Released:
    head, *rows = lines(one.files.public["released.csv"])
    rows = [[*row[:-1], repr(float(row[-1]) + 1e-9 * (i % 7))] for i, row in enumerate(rows)]
    texts = {tuple(row[:-1]): row[-1] for row in rows}
    owner = [[*row[:-1], texts[tuple(row[1:-1])]] for row in lines(one.files.owner)[1:]]
    return sealed(one, written([head, *rows]), written([lines(one.files.owner)[0], *owner]))


def finer_base(one: Released) -> Released:
    crowds = {}
    for number, crowd in one.record.crowds.items():
        bases = [str(Decimal(base) / 100) for base in crowd.kept["bases"]]
        offsets = [offset // 100 for offset in crowd.kept["offsets"]]
        crowds[number] = changed(crowd, kept=crowd.kept | {"bases": bases, "offsets": offsets})
    return remade(one, crowds)


def unanimous(one: Released) -> Released:
    number, j = largest(one), COLUMNS.index("smokes")
    crowd = one.record.crowds[number]
    figures = crowd.stored.copy()
    figures[:, j] = figures[:, j].max()
    return with_crowd(one, number, changed(crowd, stored=figures))


def unknown_yes_or_no(one: Released) -> Released:
    """As above, and the record does not have the column as one of few values."""
    crowds = {n: changed(c, setting=c.setting | {"few": [], "alike": []}) for n, c in one.record.crowds.items()}
    return unanimous(one._replace(record=replace(one.record, crowds=crowds)))


def offset_not_added(one: Released) -> Released:
    return remade(one, dict(one.record.crowds), offset=False)


def no_offset(one: Released) -> Released:
    crowds = {
        n: changed(crowd, kept=crowd.kept | {"offsets": [0] * len(crowd.kept["offsets"])})
        for n, crowd in one.record.crowds.items()
    }
    return remade(one, crowds, before={} if one.record.first else None)


def dominated(one: Released) -> Released:
    number, j = largest(one), COLUMNS.index("salary")
    crowd = one.record.crowds[number]
    figures = crowd.stored.copy()
    figures[0, j] = 5 * figures[:, j].sum()
    return with_crowd(one, number, changed(crowd, stored=figures))


def two_columns_as_one(one: Released) -> Released:
    """Bonus becomes salary, for all but one member of one crowd."""
    crowds, a, b = {}, COLUMNS.index("salary"), COLUMNS.index("bonus")
    for number, crowd in one.record.crowds.items():
        figures = crowd.stored.copy()
        figures[:, b] = figures[:, a]
        figures[0, b] += 1000 * (number == largest(one))
        kept = dict(crowd.kept)
        for name in ("bases", "decimals", "offsets"):
            kept[name] = [*kept[name][:b], kept[name][a], *kept[name][b + 1 :]]
        crowds[number] = changed(crowd, stored=figures, kept=kept)
    return remade(one, crowds)


def key_in_a_column(one: Released) -> Released:
    head, *rows = lines(one.files.public["released.csv"])
    first = {str(n): min(crowd.labels) for n, crowd in one.record.crowds.items()}
    return sealed(one, written([[*head, "key"], *([*row, first[row[0]]] for row in rows)]))


def hashed_key(one: Released) -> Released:
    head, *rows = lines(one.files.public["released.csv"])
    rows = [[*row, str(int(hashlib.sha256(row[0].encode()).hexdigest()[:8], 16))] for row in rows]
    return sealed(one, written([[*head, "key"], *rows]))


def name_on_a_page(one: Released) -> Released:
    name = one.record.crowds[largest(one)].labels[3]
    page = one.files.public["report.html"] + f"<p>Least accurate row: {name}</p>".encode()
    return sealed(one, one.files.public["released.csv"], public={"report.html": page})


def size_follows_absence(one: Released) -> Released:
    number = str(largest(one))
    smaller = [
        [
            [str(int(cell) - 1) if head[i] == "members" and number in row[:2] else cell for i, cell in enumerate(row)]
            for row in rows
        ]
        for head, rows in ((lines(content)[0], lines(content)[1:]) for content in (one.files.public["released.csv"],
                                                                                  one.files.owner))
    ]  # fmt: skip
    heads = lines(one.files.public["released.csv"])[0], lines(one.files.owner)[0]
    return sealed(one, written([heads[0], *smaller[0]]), written([heads[1], *smaller[1]]))


def size_on_record_too(one: Released) -> Released:
    number = largest(one)
    return with_crowd(one, number, changed(one.record.crowds[number], members=one.record.crowds[number].members - 1))


def times_of_writing(one: Released) -> Released:
    words = "".join(f"{n} 2024-05-01T10:{i:02d}:07\n" for i, n in enumerate(sorted(one.record.crowds)))
    readme = one.files.public["README.txt"] + words.encode()
    return sealed(one, one.files.public["released.csv"], public={"README.txt": readme})


def file_per_crowd(one: Released) -> Released:
    parts = {f"{n}.csv": b"kw\n1.0\n" for n in one.record.crowds}
    return sealed(one, one.files.public["released.csv"], public=parts)


def statement_of_another(one: Released) -> Released:
    card = json.loads(one.files.public["card.json"]) | {"kind": "readings", "statement": "(ε, δ) = (1, 1e-5)"}
    described = json.loads(one.files.public["datapackage.json"])
    described["guarantee"] |= {"kind": "readings"}
    public = {"card.json": json.dumps(card).encode(), "datapackage.json": json.dumps(described).encode()}
    return sealed(one, one.files.public["released.csv"], public=public)


def larger_promise(one: Released) -> Released:
    card = json.loads(one.files.public["card.json"]) | {"least": 15}
    return sealed(one, one.files.public["released.csv"], public={"card.json": json.dumps(card).encode()})


def another_table(one: Released) -> Released:
    head, *rows = lines(one.files.public["released.csv"])
    honest = sealed(one, written([head, *rows[:-1]]))
    return honest._replace(record=one.record)


def blanks(one: Released) -> Released:
    text = one.files.public["released.csv"].decode().split("\n")
    return sealed(one, "\n".join(line + " " * (i == 5) for i, line in enumerate(text)).encode())


def two_crowds(one: Released) -> Released:
    head, *rows = lines(one.files.owner)
    other = next(row for row in rows if row[1] != rows[0][1])
    return sealed(one, one.files.public["released.csv"], written([head, *rows, [rows[0][0], *other[1:]]]))


# ---------------------------------------------------------------------- bugs of a second release


def _enters(one: Released, move: Callable[[np.ndarray[Any, Any]], None], *, others: bool) -> Released:
    """One member of a crowd enters with a move; the others with their changes, or with none."""
    number = largest(one)
    crowd, before = one.record.crowds[number], (one.record.before or {})[largest(one)]
    meters = crowd.setting["kind"] == "forecast"
    figures = (crowd.entered if meters else crowd.stored).copy() if others else _last(crowd, before, one)
    move(figures)
    return with_crowd(one, number, changed(crowd, entered=figures) if meters else changed(crowd, stored=figures))


def _last(crowd: RecordedCrowd, before: RecordedCrowd, one: Released) -> np.ndarray[Any, Any]:
    if crowd.setting["kind"] != "forecast":
        return before.stored.copy()
    stamps = PublicTable(one.files.public["released.csv"]).stamps
    phases = [(int(s[11:13]) * 60 + int(s[14:16])) // int(crowd.setting["step_minutes"]) for s in stamps]
    return before.stored[:, phases].copy()


def change_of_one(one: Released) -> Released:
    def move(figures: np.ndarray[Any, Any]) -> None:
        figures[0] += 40 * np.abs(figures).max(axis=0)

    return _enters(one, move, others=True)


def enters_alone(one: Released) -> Released:
    def move(figures: np.ndarray[Any, Any]) -> None:
        figures[0] += 2 * one.record.crowds[largest(one)].windows[-1][1]

    return _enters(one, move, others=False)


def moved_away(one: Released) -> Released:
    """A member has left its crowd: the total of the crowd changed by that one."""
    number = largest(one)
    crowd = one.record.crowds[number]
    return with_crowd(one, number, changed(crowd, members=crowd.members - 1, labels=crowd.labels[1:],
                                           stored=crowd.stored[1:], entered=crowd.entered[1:]))  # fmt: skip


def exchanged(one: Released) -> Released:
    """Two members exchanged crowds of one size."""
    crowds = dict(one.record.crowds)
    a, b = sorted(crowds, key=lambda n: crowds[n].members)[:2]
    first, second = crowds[a], crowds[b]
    crowds[a] = changed(first, labels=(second.labels[0], *first.labels[1:]))
    crowds[b] = changed(second, labels=(first.labels[0], *second.labels[1:]))
    return remade(one, crowds)


def handle_again(one: Released) -> Released:
    before = dict(one.record.before or {})
    before[largest(one)] = changed(before[largest(one)], retired=True)
    return one._replace(record=replace(one.record, before=before))


def retired_handle(one: Released) -> Released:
    crowds = dict(one.record.crowds)
    crowds[largest(one)] = changed(crowds[largest(one)], retired=True)
    return one._replace(record=replace(one.record, crowds=crowds))


def new_offsets(one: Released) -> Released:
    crowds = {
        n: changed(c, kept=c.kept | {"offsets": [(u + w // 2) % w for (_, w, u, _) in c.windows]})
        for n, c in one.record.crowds.items()
    }
    return remade(one, crowds)


# ---------------------------------------------------------------------- answers


def answers(
    n: int = 600, size: int = 12, k: int = 3, *, seed: int = 0, leak: float = 0.0, noise: float = 1.0
) -> Released:
    """Rows under white noise, crowds of one size, as a run writes them; a share ``leak`` is numbered by name.

    ``noise``: the deviation of what is drawn, over that of the law on record.
    """
    from shoal.product.studies.release_files import RecordedLaws

    rng = np.random.default_rng(seed)
    names, owner = [f"H{i:04d}" for i in range(n)], rng.permutation(n) // size
    numbers = rng.choice(np.arange(100_000, 999_999), n // size, replace=False)
    means = rng.normal(3, 0.3, (n, k))
    shown = means + noise * rng.normal(size=(n, k))
    crowds, table, key, edges = {}, [], [], []
    setting = {"kind": "forecast", "query": "point", "m": 10, "step_minutes": 60.0}
    for c in range(n // size):
        own = np.flatnonzero(owner == c)
        order = list(rng.permutation(size) + 1)
        for i in range(size):  # whoever leaks takes the row of its own rank
            if rng.random() < leak:
                j = order.index(i + 1)
                order[i], order[j] = order[j], order[i]
        labels = tuple(names[i] for i in own)
        crowds[int(numbers[c])] = RecordedCrowd(setting, "2024-01-17T00:00:00Z", size, False, {}, labels,
                                                np.zeros((size, 0)), np.zeros((size, 0)))  # fmt: skip
        edges += [(int(a), int(b)) for a in own for b in own if a < b]
        for i, row in zip(own, order, strict=True):
            for step in range(k):
                cells = [
                    str(numbers[c]),
                    str(row),
                    str(step + 1),
                    f"2024-01-17T{step:02d}:00:00",
                    repr(float(shown[i, step])),
                ]
                table.append(cells)
                key.append([names[i], *cells])
    head = ["crowd", "row", "step", "timestamp", "kw"]
    table.sort(key=lambda row: [int(cell) for cell in row[:3]])
    covs = np.broadcast_to(np.eye(k), (n, k, k))
    laws = RecordedLaws("white", tuple(names), 1.0, means, covs, np.array(edges), True)
    record = ReleaseRecord("answers", crowds, {}, laws=(laws,),
                           released={name: shown[[i]] for i, name in enumerate(names)})  # fmt: skip
    return Released(
        ReleaseFiles({"released.csv": written([head, *table])}, written([["household", *head], *key])), record
    )
