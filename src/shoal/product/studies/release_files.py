"""Attack on the files of a release: what they show beyond the promise, from these files and the record alone.

It reads ``public/``, the owner's table of names and the record of the ledger, and shares no code with what made them:
no formation, rule, noise or writer of this package is imported, every rule of theory, section 15, stands here a second
time. So a mistake in grouping, numbering, rounding or writing is seen, even where the record has it too.

Two kinds of results. A **rule** holds or it does not: rows are recomputed from the figures on record, sizes, bases,
dominance, changes and closeness are tested again, names are looked for in every public file. A **chance** is a test
with an exact p-value, or an upper bound of it: numbers and orders against random ones, guesses of all homes at once
against the promise, the size of noise. Chances share one level: at most :data:`ALARM` of honest releases raise an
alarm. A release that is stopped because of what was drawn has other odds than the promise. So before a release only the
numbers and offsets of crowds are tested, at the level :data:`STOP`: they are the same whoever of a crowd is who.

**One table bounds ε** (Steinke, Nasr & Jagielski 2023, theorem 5.2). Members of a crowd are taken in pairs; which of
the pair's two rows is whose is a fair coin, tossed when rows were numbered, and exchanging the two is one step of
(ε, δ) for the table. Of r guesses of m coins, W are right, with Q binomial(r, e^ε/(1 + e^ε)):

    P(W ≥ v) ≤ P(Q ≥ v) + 2 m δ max over i of P(v > Q ≥ v − i)/i

**What is not bounded**: the presence of a home under the readings' promise, where no coin is tossed; the noise of a
release whose figures are not on record; anything that two releases of different owners show together.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import math
import re
import sqlite3
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import scipy
from numpy.typing import NDArray

from shoal.product.studies.findings import Finding, Study

#: Share of honest releases that raise an alarm, at most; and of those that are stopped before they are recorded.
ALARM, STOP = 0.05, 1e-12
#: Of the level: guesses of all homes, two releases, order of rows and size of noise, numbers and offsets of crowds.
SHARES = {"naming": 0.5, "linking": 0.2, "rows": 0.15, "crowds": 0.15}
#: Pairs of an order that is compared by its exact law; above, by an upper bound of it.
EXACT = 6_000
#: The usual day behind the base of new meters is not kept, but for the hours after those released: room for that.
DRIFT = 5
#: Of names in public texts, those that no honest text has: a letter and a digit, or several words.
TELLING = re.compile(r"(?=.*[^\W\d])(?=.*\d).{4,}|.{3,}[\s,;|/].{3,}", re.DOTALL)
HARMLESS = frozenset({"utf-8", "sha256", "sha-256", "sha256sums"})
CANONICAL = re.compile(r"-?(0|[1-9]\d*)(\.(0|\d*[1-9]))?(e-?\d+)?")
CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?")
PUBLIC_FILES = frozenset({
    "released.csv", "total.csv", "plan.json", "noisy.json", "card.json", "card.md", "README.txt", "datapackage.json",
    "SHA256SUMS", "report.html",
})  # fmt: skip

Numbers = NDArray[Any]


# ------------------------------------------------------------------ what is read


@dataclass(frozen=True)
class RecordedCrowd:
    """What the ledger keeps of a crowd; figures are whole numbers of a unit."""

    setting: dict[str, Any]
    period: str
    members: int
    retired: bool
    kept: dict[str, Any]  #: bases, offsets, decimals, and the period of the last row that was shown
    labels: tuple[str, ...]
    stored: Numbers  #: (n, times of day or columns) last figures
    entered: Numbers  #: (n, k) what entered the last row of meters

    @property
    def windows(self) -> list[tuple[Decimal, int, int, int]]:
        """Of each offset: base, n b in units, offset, decimals of the unit."""
        found = []
        for base, offset, places in zip(*(self.kept[name] for name in ("bases", "offsets", "decimals")), strict=True):
            found.append((Decimal(base), self.members * max(int(Decimal(base).scaleb(places)), 1), offset, places))
        return found


def crowds_on_record(
    crowds: Iterable[tuple[int, str, str, int, bool, str]], members: Iterable[tuple[str, int, bytes, bytes]]
) -> dict[int, RecordedCrowd]:
    """Number -> crowd, from rows (crowd, setting, period, members, retired, kept) and (label, crowd, stored, entered).

    >>> crowds_on_record([(7, '{"kind": "table"}', "2024", 1, False, "")], [("a", 7, bytes(8), b"")])[7].stored.tolist()
    [[0]]
    """
    inside: dict[int, list[tuple[str, bytes, bytes]]] = defaultdict(list)
    for label, number, stored, entered in members:
        inside[number].append((label, bytes(stored), bytes(entered)))
    known = {}
    for number, setting, period, size, retired, kept in crowds:
        fixed, those = json.loads(setting), sorted(inside[number])
        width = np.dtype("<i4" if fixed.get("kind") == "forecast" else "<i8")
        parts = [
            np.frombuffer(b"".join(own), dtype=width).astype(np.int64) if len({*map(len, own)}) == 1 else np.zeros(0)
            for own in ([row[1] for row in those], [row[2] for row in those])
        ]
        shapes = [part.reshape(len(those), -1) if those else part.reshape(0, 0) for part in parts]
        names = tuple(row[0] for row in those)
        known[number] = RecordedCrowd(
            fixed, period, size, bool(retired), json.loads(kept) if kept else {}, names, *shapes
        )
    return known


@dataclass(frozen=True)
class RecordedLaws:
    """A mechanism on record: the law of what is released about each label, or the curves of a codebook."""

    method: str
    labels: tuple[str, ...]
    epsilon: float
    means: Numbers = field(default_factory=lambda: np.zeros((0, 0)))
    covs: Numbers = field(default_factory=lambda: np.zeros((0, 0, 0)))
    edges: Numbers = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    constant: bool = False  #: answers are constants: all that varies is the noise
    curves: Numbers | None = None

    @classmethod
    def read(cls, content: bytes) -> RecordedLaws:
        """From the file that is on record."""
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            head = json.loads(archive.read("header.json"))
            arrays = {
                name[:-4]: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        labels = tuple(head["labels"])
        if head["format"] == "shoal codebook":
            return cls("codebook", labels, float(head["epsilon"]), curves=arrays["curves"])
        n, k = arrays["means"].shape
        own = arrays["covs"] if "covs" in arrays else np.array([np.diag(row) for row in arrays["variances"]])
        gain = np.eye(k) + arrays.get("gain", np.zeros((1, k, k)))
        covs = gain @ own @ np.swapaxes(gain, 1, 2) + arrays["noise_cov"]
        means, epsilon = arrays["means"] + arrays["shift"], float(arrays["epsilon"].max(initial=0.0))
        return cls(head["method"], labels, epsilon, means, np.broadcast_to(covs, (n, k, k)), arrays["edges"],
                   not own.any())  # fmt: skip


@dataclass(frozen=True)
class ReleaseRecord:
    """What the owner's ledger has about one release, as plain values."""

    kind: str  #: averages, answers or readings
    crowds: Mapping[int, RecordedCrowd] = field(default_factory=dict)
    before: Mapping[int, RecordedCrowd] | None = None  #: on record before this release; None: not known
    first: bool = False  #: nothing was on record before
    later: bool = False  #: its crowds have released since, and what entered then is not kept
    table: str = ""  #: SHA-256 of the public table, where it is on record
    laws: tuple[RecordedLaws, ...] = ()
    released: Mapping[str, Numbers] = field(default_factory=dict)  #: label -> (rows, k), under a method
    vector: str = ""  #: of readings: first digits of the digest of the noisy vector
    mu: float = 0.0
    exact: Numbers | None = None  #: of readings: the sum before noise, where it is at hand

    @classmethod
    def read(
        cls,
        database: str | Path,
        name: str,
        numbers: Iterable[int],
        before: Mapping[int, RecordedCrowd] | None = None,
        last: str = "",
    ) -> ReleaseRecord:
        """From the ledger, by SQL of its own.

        Args:
            database: file of the ledger, or a URL of PostgreSQL.
            name: name of the release on record.
            numbers: crowds of the public table.
            before: crowds as they were recorded with the release before, where that is known.
            last: name of that release; where something else was recorded in between, ``before`` is not used.
        """
        postgres = "://" in str(database)
        if postgres:
            import psycopg

            connection: Any = psycopg.connect(str(database).replace("+psycopg", ""))
        else:
            connection = sqlite3.connect(f"file:{quote(str(Path(database).resolve()))}?mode=ro", uri=True)
        try:

            def ask(statement: str, values: Sequence[Any] = ()) -> list[Any]:
                found: list[Any] = []
                for at in range(0, max(len(values), 1), 500):
                    part = tuple(values[at : at + 500])
                    marks = ", ".join(["%s" if postgres else "?"] * len(part))
                    found += connection.execute(statement.replace("?", marks), part).fetchall()
                return found

            wanted = sorted({int(number) for number in numbers})
            crowds = crowds_on_record(
                ask("SELECT crowd, setting, period, members, retired, kept FROM crowds WHERE crowd IN (?)", wanted),
                ask("SELECT label, crowd, stored, entered FROM crowd_members WHERE crowd IN (?)", wanted),
            )
            entries = {}
            for kind, text in ask("SELECT kind, payload FROM entries WHERE kind IN (?)", ["crowds", "readings"]):
                content = json.loads(text)
                entries[kind, " ".join(content["query_id"].split(" ")[:4])] = content
            if ("readings", name) in entries:
                entry = entries["readings", name]
                return cls("readings", vector=entry["query_id"].rpartition(" ")[2], mu=float(entry["mu"]))
            released: dict[str, list[Any]] = defaultdict(list)
            used: set[str] = set()
            ours = "SELECT payload FROM entries WHERE kind = 'release' AND (query_id LIKE ? OR query_id = '{}')"
            for (payload,) in ask(ours.format(name), [f"{name} row %"]):
                answer = json.loads(payload)
                released[answer["label"]].append(answer["released"])
                used.add(answer["mechanism"])
            files = ask("SELECT content FROM mechanisms WHERE digest IN (?)", sorted(used)) if used else []
        finally:
            connection.close()
        entry = entries.get(("crowds", name), {})
        first = entry.get("before") == hashlib.sha256().hexdigest()
        if entries.get(("crowds", last), {}).get("crowds") != entry.get("before"):
            before = {} if first else None
        return cls(
            "answers" if released else "averages",
            crowds,
            before,
            first,
            any(crowd.period > entry["facts"]["period"] for crowd in crowds.values()) if entry else False,
            entry.get("table", "") if not released else "",
            tuple(RecordedLaws.read(bytes(content)) for (content,) in files),
            {label: np.array(rows) for label, rows in released.items()},
        )


@dataclass(frozen=True)
class ReleaseFiles:
    """The files that leave or left, and the owner's table of names; the same two tables of an earlier release."""

    public: Mapping[str, bytes]
    owner: bytes
    earlier: tuple[bytes, bytes] | None = None

    @classmethod
    def of(cls, folder: str | Path) -> ReleaseFiles:
        """Of the folder of a run."""
        path = Path(folder)
        every = {str(one.relative_to(path / "public")): one.read_bytes() for one in (path / "public").rglob("*")
                 if one.is_file()}  # fmt: skip
        past = max(path.glob("earlier/*/public/released.csv"), key=lambda one: int(one.parts[-3]), default=None)
        before = None if past is None else (past.read_bytes(), (past.parents[1] / "released.csv").read_bytes())
        return cls(every, (path / "released.csv").read_bytes(), before)


class PublicTable:
    """A public table by (crowd, row): instants, sizes and texts of figures; ``faults`` of its form."""

    def __init__(self, content: bytes) -> None:
        text = content.decode()
        lines = list(csv.reader(io.StringIO(text)))
        self.header, rows = lines[0], lines[1:]
        self.faults: list[str] = []
        of_meters = self.header[2:5] == ["step", "timestamp", "kw"]  # a class table may have columns of these names
        first = 4 if of_meters else sum(name in ("crowd", "row", "members") for name in self.header[:2])
        self.places, width = self.header[:first], len(self.header)
        self.columns = [name.removeprefix("'") for name in self.header[first:]]
        place = {name: self.header.index(name) for name in self.places}
        ragged = sum(len(row) != width for row in rows)
        if ragged or not text.endswith("\n") or "\r" in text or re.search(r"[ \t](,|\n)|(,|\n)[ \t]", text):
            self.faults.append("the public table has blanks, other line ends or rows of another length")
        self.rows: dict[tuple[int, int], list[list[str]]] = defaultdict(list)
        self.sizes: dict[int, str] = {}
        self.stamps: list[str] = []
        order: list[tuple[int, int, int]] = []
        unlike = 0
        at_crowd, at_row, at_step = (place.get(name) for name in ("crowd", "row", "step"))
        for row in rows if not ragged else ():
            number = len(self.rows) if at_crowd is None else int(row[at_crowd])  # without crowds each row is a cell
            key = number, 0 if at_row is None else int(row[at_row])
            step = 0 if at_step is None else int(row[at_step])
            order.append((*key, step))
            self.rows[key].append(row[first:])
            if "members" in place:
                unlike += self.sizes.setdefault(key[0], row[place["members"]]) != row[place["members"]]
            if "timestamp" in place:
                if len(self.stamps) < step:
                    self.stamps.append(row[place["timestamp"]])
                unlike += self.stamps[step - 1] != row[place["timestamp"]]
        if unlike:
            self.faults.append(f"sizes or times that differ from row to row of a crowd ({unlike} rows)")
        if at_crowd is not None and any(a >= b for a, b in pairwise(order)):
            self.faults.append("rows that are not sorted by their numbers: their order is a second figure")
        steps = len(self.stamps) or 1
        if any(len(one) != steps for one in self.rows.values()):
            self.faults.append("crowds with fewer steps than others, or with more")
        numbers: dict[int, list[int]] = defaultdict(list)  # of a crowd its rows
        for crowd, one in self.rows:
            numbers[crowd].append(one)
        if at_row is not None and any(sorted(own) != list(range(1, len(own) + 1)) for own in numbers.values()):
            self.faults.append("rows of a crowd that are not numbered 1, 2, 3, …")
        odd = sum(
            bool(text) and CANONICAL.fullmatch(text) is None
            for one in self.rows.values()
            for row in one
            for text in row
        )
        if odd:
            self.faults.append(f"figures written in more than one way, or no numbers ({odd} figures)")
        instants = [datetime.fromisoformat(stamp) for stamp in self.stamps]
        if len({b - a for a, b in pairwise(instants)}) > 1:
            self.faults.append("times that are not evenly spaced")
        self.inside, self.numbers = numbers, sorted(numbers)

    def figures(self, crowd: int, row: int = 0) -> list[str]:
        """The texts of a row: by step, or column by column."""
        own = self.rows.get((crowd, row), [])
        return [one[0] for one in own] if self.stamps else own[0] if own else []

    def values(self, crowd: int, row: int = 0) -> list[float]:
        """The figures of a row; NaN where one is withheld."""
        return [float(text) if text else math.nan for text in self.figures(crowd, row)]


def match_owner_table(content: bytes, table: PublicTable) -> tuple[dict[str, list[tuple[int, int]]], int]:
    """Match the owner's table to the public one: label -> (crowd, row) of each row, and how many rows do not match."""
    key: dict[str, list[tuple[int, int]]] = {}
    lines = csv.reader(io.StringIO(content.decode()))
    header = next(lines)
    at, first = {name: header.index(name) for name in table.header if name in header}, len(table.places)
    lost = 0
    who = next((header.index(name) for name in ("label", "household") if name in header), None)
    if "crowd" not in at or len(at) < len(table.header) or who is None:
        return key, 1
    figures = [at[name] for name in table.header[first:]]
    for line in lines:
        place = int(line[at["crowd"]]), int(line[at["row"]]) if "row" in at else 0
        step = int(line[at["step"]]) - 1 if "step" in at else 0
        own = table.rows.get(place, [])
        lost += step >= len(own) or own[step] != [line[j] for j in figures]
        known = key.setdefault(line[who].removeprefix("'"), [])
        if not known or known[-1] != place:
            known.append(place)
    return key, lost


# ------------------------------------------------------------------ exact odds


def tail(hits: float, tests: int, p: float) -> float:
    """P(X ≥ hits) of a binomial law; a sum of unequal odds with this mean has less beyond it (Hoeffding 1956).

    >>> round(tail(2, 2, 0.5), 12), tail(0, 5, 0.1)
    (0.25, 1.0)
    """
    return 1.0 if hits <= 0 else float(scipy.special.betainc(hits, tests - hits + 1, p))


def interval(hits: float, tests: int) -> tuple[float, float]:
    """Clopper & Pearson's interval, at 95 %."""
    low = float(scipy.special.betaincinv(hits, tests - hits + 1, 0.025)) if hits > 0 else 0.0
    return low, float(scipy.special.betaincinv(hits + 1, tests - hits, 0.975)) if hits < tests else 1.0


def least_seen(tests: int, p: float, level: float) -> float:
    """The excess over ``p`` that a binomial test at this level finds in 95 of 100 runs.

    >>> round(least_seen(620, 1 / 12, 0.025), 3)
    0.046
    """
    low, high = 0, tests + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle, tests, p) <= level else (middle, high)
    return 1.0 - p if high > tests else max(float(scipy.special.betaincinv(high, tests - high + 1, 0.95)) - p, 0.0)


def one_run_odds(right: int, guesses: int, coins: int, epsilon: float, delta: float) -> float:
    """Upper bound of the probability that so many guesses are right under (ε, δ), as the head of this module has it.

    >>> one_run_odds(10, 10, 10, 0.0, 0.0) == 0.5**10
    True
    """
    q = float(scipy.special.expit(epsilon))
    at = np.arange(right - 1, -1, -1)
    mass = scipy.special.binom(guesses, at) * q**at * (1 - q) ** (guesses - at) if guesses <= 1000 else np.array([
        tail(v, guesses, q) - tail(v + 1, guesses, q) for v in at.tolist()])  # fmt: skip
    worst = float((np.cumsum(mass) / np.arange(1, right + 1)).max(initial=0.0))
    return min(tail(right, guesses, q) + 2 * coins * delta * worst, 1.0)


def fixed_points(hits: int, sizes: Sequence[int]) -> float:
    """P(H ≥ hits) where H counts what random orders of so many things each leave in place; exact.

    >>> round(fixed_points(3, [3]), 12), round(fixed_points(1, [2, 2]), 12)
    (0.166666666667, 0.75)
    """
    law = np.ones(1)
    for n in sizes:
        kept = min(n, 40)
        own = np.array([
            float(sum(Fraction((-1) ** j, math.factorial(j)) for j in range(min(n - k, 40) + 1)) / math.factorial(k))
            for k in range(kept + 1)
        ])  # fmt: skip
        law = np.convolve(law, own)
        law = law[: np.flatnonzero(law > 1e-300)[-1] + 1]
    return float(min(law[hits:].sum(), 1.0)) if hits > 0 else 1.0


def disorder(orders: Sequence[Sequence[float]]) -> float:
    """How likely orders that are drawn are as sorted as these, forward or backward: a bound, exact for few.

    Counts pairs that are out of order. In a random order of n things their number is a sum of independent ones,
    uniform on 0 … j − 1 for j up to n (Mahonian numbers).

    >>> disorder([[1, 2, 3, 4, 5]]) == 2 / 120, disorder([[2, 1, 3]])
    (True, 1.0)
    """
    sizes, seen, most = [len(order) for order in orders], 0, 0
    for order in orders:
        values = np.asarray(order, dtype=np.float64)
        seen += sum(int((values[i + 1 :] < values[i]).sum()) for i in range(len(values)))
        most += len(values) * (len(values) - 1) // 2
    least = min(seen, most - seen)
    if most <= EXACT:
        law = np.ones(1)
        for n in sizes:
            for j in range(2, n + 1):
                law = np.convolve(law, np.full(j, 1.0 / j))
        return min(2 * float(law[: least + 1].sum()), 1.0)
    widths = np.array([j for n in sizes for j in range(2, n + 1)], dtype=np.float64)
    best = 0.0
    for t in np.geomspace(1e-6, 50, 200).tolist():
        best = min(best, float((np.log(-np.expm1(-t * widths)) - np.log(widths) - math.log(-math.expm1(-t))).sum())
                   + t * least)  # fmt: skip
    return min(2 * math.exp(best), 1.0)


def unevenness(below: Sequence[float], above: Sequence[float]) -> float:
    """How likely offsets, uniform on [0, 1), lie as unevenly as these: Kolmogorov & Smirnov, exact, both sides.

    ``below`` and ``above`` are the ends of the cell of each offset; the ends are taken that make it look more even.

    >>> unevenness([0.0] * 9, [0.001] * 9) < 1e-20
    True
    """
    n = len(below)
    if not n:
        return 1.0
    rank = np.arange(n)
    more = float(((rank + 1) / n - np.sort(above)).max())
    less = float((np.sort(below) - rank / n).max())
    odds = [float(scipy.special.smirnov(n, min(max(d, 0.0), 1.0))) for d in (more, less)]
    return min(2 * min(odds), 1.0)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of two normal laws that lie μ deviations apart (Balle & Wang 2018)."""
    if mu <= 0:
        return 0.0
    near, far = scipy.special.ndtr([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu]).tolist()
    return float(near - math.exp(epsilon) * far)


# ------------------------------------------------------------------ the rules, a second time


def dominates(amounts: Numbers) -> Numbers:
    """(k,) where one of n members has more than twice what is left without the next c: rule 3, with c at most 3.

    >>> dominates(np.array([[13, 12], *[[1, 1]] * 9])).tolist()
    [True, False]
    """
    n = len(amounts)
    falling = -np.sort(-amounts, axis=0)
    return np.asarray(falling[0] > 2 * falling[1 + min(3, (n - 1) // 3) :].sum(axis=0))


def finest_base(limit: float) -> float:
    """The largest of {1, 2, 5}·10^z that is at most a limit.

    >>> finest_base(0.37), finest_base(9999)
    (0.2, 5000.0)
    """
    z = math.floor(math.log10(limit))
    return max(float(f"{step}e{e}") for e in (z - 1, z, z + 1) for step in (1, 2, 5) if float(f"{step}e{e}") <= limit)


@dataclass(frozen=True)
class FilesAttack(Study):
    """Three questions about files that left, with what is wrong in them, and how likely each chance is."""

    alarms: tuple[str, ...] = ()
    chances: Mapping[str, float] = field(default_factory=dict)  #: p-value of each test of chance
    level: float = ALARM  #: share of honest releases with an alarm, at most

    def __str__(self) -> str:
        none = [f"No alarm. At most {self.level:g} of honest releases raise one by chance."]
        return "\n\n".join(
            [super().__str__(), *(f"ALARM: {words}." for words in self.alarms or ()), *none[bool(self.alarms) :]]
        )


def attack_files(
    files: ReleaseFiles,
    record: ReleaseRecord,
    *,
    level: float = ALARM,
    groups: Iterable[str] = tuple(SHARES),
    package: bool = True,
    outside: Mapping[str, str] | None = None,
) -> FilesAttack:
    """Attack the files of one release with the owner's key in hand; every member is a test.

    Args:
        files: what left, or is about to.
        record: of the ledger.
        level: share of honest releases that raise an alarm, at most.
        groups: of tests of chance, those that may raise one.
        package: whether the files beside the tables are there too.
        outside: label -> what an outside file says about it, such as a street or another owner's crowd.
    """
    return _Look(files, record).result(level, set(groups), package=package, outside=outside)


class _Look:
    """One attack in the making."""

    def __init__(self, files: ReleaseFiles, record: ReleaseRecord) -> None:
        self.files, self.record = files, record
        self.table = PublicTable(files.public["released.csv"])
        self.alarms, self.findings, self.unseen = list(self.table.faults), list[Finding](), list[str]()
        self.key: dict[str, list[tuple[int, int]]] = {}
        self.chances: list[tuple[str, str, float]] = []
        self.crowds: dict[int, list[str]] = defaultdict(list)
        self.meters = bool(self.table.stamps)

    def fault(self, many: int, words: str, of: str = "rows") -> None:
        """Note a rule that is broken; no figure is printed."""
        if many:
            self.alarms.append(f"{words} ({many} {of})")

    def chance(self, group: str, words: str, p: float) -> None:
        """Note a test of chance."""
        self.chances.append((group, words, p))

    def result(
        self, level: float, groups: set[str], *, package: bool, outside: Mapping[str, str] | None
    ) -> FilesAttack:
        """Every part of the attack that this kind of release has."""
        kind, later = self.record.kind, self.record.later
        if later:
            self.unseen.append("sizes and figures: these crowds have released since, and what entered is not kept")
        parts: list[tuple[bool, Callable[[], None]]] = [
            (kind != "readings", self.members),
            (kind != "readings" and not later, self.sizes),
            (kind != "readings" and not self.table.faults, self.numbering),
            (kind == "averages" and not later, self.averages),
            (kind == "averages" and not later, self.own_rows),
            (kind == "averages" and not later, self.insider),
            (kind == "answers" and not later, self.answers),
            (kind == "readings", self.readings),
            (self.files.earlier is not None and kind != "readings", self.series),
            (outside is not None and kind != "readings", lambda: self.beside(outside or {})),
            (package, self.package),
        ]
        for asked, look in parts:
            if asked and (not self.alarms or look in (self.sizes, self.numbering, self.package)):
                try:
                    look()
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    self.alarms.append(f"files or a record of another form than a release has ({type(error).__name__})")
        counted = Counter(group for group, _, _ in self.chances if group in groups)
        whole = sum(SHARES[group] for group in counted) or 1.0
        for group, words, p in self.chances:
            if group in groups and p <= level * SHARES[group] / whole / counted[group]:
                self.alarms.append(f"{words} (by chance at most {p:.1g})")
        return FilesAttack(
            f"The files of a release ({kind}), attacked with the owner's key: every member is a test.",
            len(self.key),
            tuple(self.findings),
            ("The attacker knows what each line says, and nothing else that is secret.",),
            tuple(f"{words[0].upper()}{words[1:]}." for words in self.unseen),
            alarms=tuple(self.alarms),
            chances={words: p for _, words, p in self.chances},
            level=level,
        )

    def members(self) -> None:
        """Whose rows the public ones are."""
        self.key, lost = match_owner_table(self.files.owner, self.table)
        self.fault(lost, "rows of the owner's table that are not those of the public one")
        for label, places in self.key.items():
            self.crowds[places[0][0]].append(label)

    def find(self, question: str, what: str, hits: float, tests: int, guess: float, bound: float | None) -> None:
        """A finding by a count of right guesses."""
        power = least_seen(tests, guess if bound is None else bound, ALARM * SHARES["naming"])
        power += 0.0 if bound is None else bound - guess
        self.findings.append(Finding(question, self.record.kind, what, "share right", hits / tests,
                                     interval(hits, tests), guess, tests, power, bound))  # fmt: skip

    # -------------------------------------------------------------- crowds

    def sizes(self) -> None:
        """Rule 1: crowds as large as promised, the same members on record, in the table and in the owner's key."""
        crowds = self.record.crowds
        many = sum(len({crowd for crowd, _ in places}) > 1 for places in self.key.values())
        self.fault(many, "members with rows of more than one crowd", "members")
        self.fault(
            sum(number not in crowds for number in self.table.numbers), "crowds that are not on record", "crowds"
        )
        known = {number: crowd for number, crowd in crowds.items() if number in self.table.numbers}
        self.fault(sum(crowd.retired for crowd in known.values()), "handles of retired crowds in use again", "crowds")
        columns = {("kw",) if self.meters else tuple(crowd.setting.get("columns", ())) for crowd in known.values()}
        self.fault(bool(known) and columns != {tuple(self.table.columns)}, "columns that no release has", "table")
        few = other = sized = least = 0
        for number, crowd in known.items():
            shown, own = self.crowds.get(number, []), set(crowd.labels)
            least = max(least, int(crowd.setting["m"]))
            few += min(len(own), crowd.members) < int(crowd.setting["m"])
            few += self.record.kind == "averages" and len(shown) < int(crowd.setting["m"])
            other += bool(set(shown) - own) or (self.record.kind == "averages" and set(shown) != own)
            sized += crowd.members != len(own)
            sized += number in self.table.sizes and self.table.sizes[number] != str(len(own))
        self.fault(few, f"fewer members than the {least} of the promise", "crowds")
        self.fault(other, "other members in the owner's table than on record", "crowds")
        self.fault(sized, "a size that is not that of the set: it follows who is there", "crowds")
        if self.record.before is None:
            self.unseen.append("whether crowds are those of the release before: what was on record then is not at hand")
            return
        before = self.record.before
        moved = sum(n in before and set(before[n].labels) != set(crowd.labels) for n, crowd in known.items())
        self.fault(moved, "members that are not those of the release before: the difference shows who moved", "crowds")
        again = sum(n in before and before[n].retired for n in known)
        self.fault(again, "handles of retired crowds in use again", "crowds")
        fixed = sum(n in before and any(before[n].kept.get(name) != crowd.kept.get(name) for name in
                                        ("bases", "offsets", "decimals")) for n, crowd in known.items())  # fmt: skip
        self.fault(fixed, "bases or offsets that are not those of the release before", "crowds")

    def numbering(self) -> None:
        """Numbers of crowds, and of rows inside them, against the order of names and of levels."""
        numbers = [number for number in self.table.numbers if self.crowds.get(number)]
        new = [n for n in numbers if self.record.before is None or n not in self.record.before]
        first = {number: min(self.crowds[number]) for number in new}
        levels = {}
        for number in new:
            values = [value for row in self.table.inside[number] for value in self.table.values(number, row)]
            levels[number] = (float(np.nanmean(values)) if not np.isnan(values).all() else 0.0, first[number])
        if len(new) > 1:
            by_name, by_level = sorted(new, key=lambda n: first[n]), sorted(new, key=lambda n: levels[n])
            self.chance("crowds", "numbers of crowds in the order of names", disorder([by_name]))
            self.chance("crowds", "numbers of crowds in the order of levels", disorder([by_level]))
        if self.record.kind != "answers" or any(len(places) > 1 for places in self.key.values()):
            return
        orders = [[self.key[label][0][1] for label in sorted(own)] for own in self.crowds.values()]
        hits = sum(row == i for order in orders for i, row in enumerate(order, 1))
        sizes = [len(order) for order in orders]
        self.chance("naming", "rows numbered by name", fixed_points(hits, sizes))
        self.chance("rows", "rows in the order of names", disorder(orders))
        self.find("singling out", "names the row of every member by the order of names in its crowd", hits, sum(sizes),
                  len(sizes) / sum(sizes), None)  # fmt: skip

    # -------------------------------------------------------------- averages

    def averages(self) -> None:
        """Rules 2 to 5: every row made again from what entered, and every rule tested on it."""
        crowds = {number: self.record.crowds[number] for number in self.table.numbers}
        wrong = outside = ruled = coarse = 0
        for number, crowd in crowds.items():
            shown, fixed = self.table.figures(number), crowd.kept
            outside += any(not 0 <= offset < window for _, window, offset, _ in crowd.windows)
            figures = crowd.entered if self.meters else crowd.stored
            current = fixed["from"] == crowd.period
            if not current:
                wrong += any(shown)
                continue
            wrong += figures.shape[1] != len(shown) or self.differs(crowd, figures, shown)
            if self.meters:
                ruled += bool(dominates(np.abs(figures).sum(axis=1, keepdims=True))[0])
                share = crowd.setting.get("largest_share")
                amounts = np.abs(figures).sum(axis=1)
                ruled += share is not None and amounts.max() > share * amounts.sum()
        self.fault(wrong, "rows that are not the mean on record, shifted by its offset and rounded to its base")
        self.fault(outside, "offsets outside of their window", "crowds")
        if self.meters:
            every = np.concatenate([crowd.stored for crowd in crowds.values()])
            for number, crowd in crowds.items():
                usual = max(float(np.abs(crowd.stored).mean()), float(np.abs(every).mean()) / 10) / 1000
                new = self.record.before is not None and number not in self.record.before
                coarse += new and usual > 0 and float(crowd.kept["bases"][0]) < max(
                    finest_base(2 * usual / crowd.members / DRIFT), 0.001) * (1 - 1e-9)  # fmt: skip
        else:
            ruled += self.columns(crowds)
            coarse += self.finer(crowds) if self.record.first else 0
        self.fault(ruled, "one member makes most of it, or it is not close to all in a protected column (dominance or "
                   "diversity)")  # fmt: skip
        self.fault(coarse, "a base finer than the rule of precision allows", "crowds")
        if self.record.before is None:
            self.unseen.append("bases and changes of members: what was on record before is not at hand")
        else:
            alone = sum(self.moves_alone(crowds[n], before) for n, before in self.record.before.items() if n in crowds)
            self.fault(alone, "a change of one member that the others do not hide: it had to be held", "crowds")

    def differs(self, crowd: RecordedCrowd, figures: Numbers, shown: Sequence[str]) -> bool:
        """Whether a figure that is shown is not ⌊(sum + offset) / n b⌋ bases; of meters none is withheld by itself."""
        windows = crowd.windows
        for j, (total, text) in enumerate(zip(figures.sum(axis=0).tolist(), shown, strict=True)):
            base, window, offset, _ = windows[0 if self.meters else j]
            if not text and not self.meters:
                continue
            if not text or float(text) != float((total + offset) // window * base):
                return True
        return False

    def columns(self, crowds: Mapping[int, RecordedCrowd]) -> int:
        """Figures of a class table that one member dominates, or that are far from all in a protected column."""
        fixed, everyone = self.setting(crowds)
        n, k = everyone.shape
        few, protected = self.few(fixed, everyone), set[int]()
        for j in self.whole(everyone):  # with room for labels that have no crowd, which are not on record
            protected |= {j} if 4 * max(Counter(everyone[:, j].tolist()).values()) >= 3 * n else set()
        names = [fixed["columns"].index(name) for name in fixed.get("sensitive", ()) if name in fixed["columns"]]
        protected |= few | set(fixed.get("alike", ())) | set(names)
        hidden = {j for number in crowds for j, text in enumerate(self.table.figures(number)) if not text}
        if hidden & protected:  # what entered there is not kept, and the mean of all rests on it
            self.unseen.append("closeness in columns in which a figure is withheld")
        protected -= hidden
        places = next(iter(crowds.values())).kept["decimals"]
        scale = np.array([10 ** (max(places) - one) for one in places], dtype=object)
        alike = everyone * scale
        pairs = [(i, j) for i in range(k) for j in range(i + 1, k) if not {i, j} <= few and not {i, j} & hidden
                 and 2 * int((alike[:, i] == alike[:, j]).sum()) > n]  # fmt: skip
        plain = [j for j in range(k) if j not in few | hidden and (everyone[:, j] >= 0).all()]
        square = Fraction(str(0.6 if fixed.get("closeness") is None else fixed["closeness"])) ** 2
        sums, rooms, broken = {}, {}, 0
        for j in sorted(protected):
            whole = everyone[:, j].tolist()
            sums[j] = sum(whole)
            rooms[j] = square * (n * sum(v * v for v in whole) - sums[j] ** 2)
        for number, crowd in crowds.items():
            shown, own = [bool(text) for text in self.table.figures(number)], crowd.stored
            large = dominates(np.abs(own))
            broken += sum(shown[j] and bool(large[j]) for j in plain)
            gaps = np.abs(own[:, [i for i, _ in pairs]] * scale[[i for i, _ in pairs]]
                          - own[:, [j for _, j in pairs]] * scale[[j for _, j in pairs]])  # fmt: skip
            broken += sum(shown[j] and bool(bad) for (_, j), bad in zip(pairs, dominates(gaps), strict=True))
            for j, room in rooms.items():
                away = sum(own[:, j].tolist()) * n - sums[j] * len(own)
                broken += shown[j] and away**2 > room * len(own) ** 2
        return broken

    def setting(self, crowds: Mapping[int, RecordedCrowd]) -> tuple[dict[str, Any], Numbers]:
        """The setting of a table's crowds, and the figures (N, k) of all members."""
        every = list(crowds.values())
        return every[0].setting, np.concatenate([crowd.stored for crowd in every])

    def few(self, fixed: Mapping[str, Any], everyone: Numbers) -> set[int]:
        """Few-valued columns: those on record, and at the first release those that surely are."""
        own = {j for j in self.whole(everyone) if len(np.unique(everyone[:, j])) <= min(3, len(everyone) // 2)}
        return set(fixed.get("few", ())) | own

    def whole(self, everyone: Numbers) -> list[int]:
        """At the first release: columns of whole numbers, in units so fine that no other number looks like one."""
        places = next(iter(self.record.crowds.values())).kept["decimals"]
        return [j for j, d in enumerate(places) if self.record.first and d >= 2 and not (everyone[:, j] % 10**d).any()]

    def finer(self, crowds: Mapping[int, RecordedCrowd]) -> int:
        """Crowds of a first table with a base below that of rule 2, from the figures of all members in units."""
        fixed, everyone = self.setting(crowds)
        few, limits, broken = self.few(fixed, everyone), [], 0
        for j in range(everyone.shape[1]):
            column = np.sort(everyone[:, j])
            low, middle, high = np.quantile(column, [0.25, 0.5, 0.75]).tolist()
            usual = (high - low) / 1.35 if high > low else float(np.abs(column - middle).mean())
            gaps = np.diff(np.unique(column))
            limits.append((usual, float(gaps.max(initial=0))))
        for crowd in crowds.values():
            for j, (base, window, _, places) in enumerate(crowd.windows):
                usual, gap = limits[j]
                if j in few or not usual:
                    broken += window < 2 * gap
                else:  # 2 %: figures on record are rounded to units
                    broken += float(base) < finest_base(2 * usual / 1.02 / crowd.members) * 10.0**-places * (1 - 1e-9)
        return broken

    def moves_alone(self, crowd: RecordedCrowd, before: RecordedCrowd) -> bool:
        """Whether a member enters with a change that the others do not hide: rule 4, on entries shown and not."""
        if not before.kept.get("from") or crowd.kept["from"] != crowd.period or before.period == crowd.period:
            return False
        if not self.meters:
            parts = [np.abs(crowd.stored - before.stored)[:, [j]] for j in range(crowd.stored.shape[1])]
            windows = [window for _, window, _, _ in crowd.windows]
            if crowd.labels != before.labels:
                return True
        else:
            step = timedelta(minutes=float(crowd.setting["step_minutes"]))
            start = {datetime.fromisoformat(before.kept["from"]) + i * step: i for i in range(before.entered.shape[1])}
            at = [start.get(datetime.fromisoformat(crowd.period) + i * step) for i in range(crowd.entered.shape[1])]
            day = [datetime.fromisoformat(stamp) for stamp in self.table.stamps]
            place = [int((one.hour * 3600 + one.minute * 60 + one.second) // step.total_seconds()) for one in day]
            if crowd.labels != before.labels:
                return True
            known = np.stack([before.stored[:, p] if i is None else before.entered[:, i]
                              for i, p in zip(at, place, strict=True)], axis=1)  # fmt: skip
            moved, shown = np.abs(crowd.entered - known), np.array([i is not None for i in at])
            parts = [moved[:, part] for part in (shown, ~shown) if part.any()]
            windows = [crowd.windows[0][1]] * len(parts)
        return any(2 * int(part.max(initial=0)) > window and bool(dominates(part.sum(axis=1, keepdims=True))[0])
                   for part, window in zip(parts, windows, strict=True))  # fmt: skip

    def own_rows(self) -> None:
        """Every member looks for its row with its own figures, and is named at random among those of the row."""
        crowds = {n: self.record.crowds[n] for n in self.table.numbers if any(self.table.figures(n))}
        parts = [(crowd.entered if self.meters else crowd.stored) for crowd in crowds.values()]
        if not crowds or len({part.shape[1] for part in parts}) > 1:
            return
        scale = np.array([10.0**-places for *_, places in next(iter(crowds.values())).windows])
        figures = np.concatenate(parts) * scale
        rows = np.array([self.table.values(number) for number in crowds])
        spread = figures.std(axis=0)
        figures, rows = (np.nan_to_num((one - figures.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
                         for one in (figures, rows))  # fmt: skip
        near = np.concatenate([
            ((rows**2).sum(axis=1) - 2 * figures[i : i + 4096] @ rows.T).argmin(axis=1)
            for i in range(0, len(figures), 4096)
        ])  # fmt: skip
        sizes = np.array([len(crowd.labels) for crowd in crowds.values()])
        own = np.repeat(np.arange(len(sizes)), sizes)
        seed = int.from_bytes(hashlib.sha256(self.files.public["released.csv"]).digest()[:8])
        hits = int(((near == own) & (np.random.default_rng(seed).random(len(own)) * sizes[near] < 1)).sum())
        least, tests = min(int(crowd.setting["m"]) for crowd in crowds.values()), len(own)
        self.chance("naming", "members named from their own row", tail(hits, tests, 1 / least))
        self.find("singling out", "knows each member's own figures, takes the nearest row and names one of its members",
                  hits, tests, float((1 / sizes[own]).mean()), 1 / least)  # fmt: skip
        self.find("linkability", "joins an outside file with each member's own figures: which row is it in",
                  int((near == own).sum()), tests, float((sizes[own] / tests).mean()), None)  # fmt: skip

    def insider(self) -> None:
        """Someone who knows all others tells two constant figures apart that lie n b/2 from each other: rule 2."""
        new = [c for n, c in self.record.crowds.items() if c.kept and n in self.table.numbers]
        cells = [(offset / window, (offset + 1) / window) for crowd in new for _, window, offset, _ in crowd.windows]
        if not cells:
            return
        self.chance("crowds", "secret offsets that are not uniform", unevenness(*zip(*cells, strict=True)))
        sure = sum(2 * after <= 1 for _, after in cells)
        low, high = interval(sure, len(cells))
        power = least_seen(len(cells), 0.5, ALARM * SHARES["naming"]) / 2 + 0.25
        self.findings.append(Finding(
            "singling out", self.record.kind, "knows all other members' figures and tells two constant figures of the "
            "last one apart that lie n b/2 from each other", "share right", 0.5 + sure / len(cells) / 2,
            (0.5 + low / 2, 0.5 + high / 2), 0.5, len(cells), power, 0.75))  # fmt: skip

    # -------------------------------------------------------------- answers

    def answers(self) -> None:
        """Rows against what is on record, the size of the noise, and guesses of all coins at once."""
        epsilon, delta = self.promise()
        crowds = self.record.crowds.values()
        if self.meters and any(crowd.setting.get("query", "point") != "point" for crowd in crowds):
            self.unseen.append("rows in kW against logarithms on record: the seasons between them are not at hand")
            unit = None
        else:
            unit = self.same_answers()
        square, free, lost, right, guesses = 0.0, 0, 0, 0, 0
        for laws in self.record.laws:
            if laws.curves is not None:
                lost += sum(not (laws.curves == row).all(axis=1).any() for label in laws.labels
                            for row in self.record.released.get(label, ()))  # fmt: skip
                continue
            values, vectors = np.linalg.eigh(laws.covs)
            whitened = np.where(values > 1e-9 * values.max(axis=1, keepdims=True), values, np.inf)
            for i, label in enumerate(laws.labels):
                off = self.record.released.get(label, np.zeros((0, laws.means.shape[1]))) - laws.means[i]
                square += float(((off @ vectors[i]) ** 2 / whitened[i]).sum())
                free += len(off) * int(np.isfinite(whitened[i]).sum())
            if unit is not None and delta is not None:
                own, of = self.coins(laws, whitened, vectors, unit)
                right, guesses = right + own, guesses + of
            if laws.constant and delta is not None:
                self.fault(self.beyond(laws, epsilon, delta), "pairs whose δ is above the one that is stated", "pairs")
        self.fault(lost, "answers that are none of the codebook's curves", "answers")
        if free:
            odds = float(scipy.special.chdtr(free, square)), float(scipy.special.chdtrc(free, square))
            self.chance("rows", "noise of another size than stated", min(2 * min(odds), 1.0))
        if guesses:
            p = one_run_odds(right, guesses, guesses, epsilon, float(delta or 0.0))
            self.chance("naming", "rows of pairs told apart more often than (ε, δ) allows", p)
            self.find("singling out", "knows all laws and tells which of two rows of a crowd is whose", right, guesses,
                      0.5, float(scipy.special.expit(epsilon)))  # fmt: skip

    def promise(self) -> tuple[float, float | None]:
        """(ε, δ) of the public statement; ε of the mechanisms on record where there is none yet."""
        try:
            promise = json.loads(self.files.public["card.json"])["guarantee"]
            return float(promise["epsilon"]), float(promise["delta"])
        except (KeyError, TypeError, ValueError):
            return max((laws.epsilon for laws in self.record.laws), default=0.0), None

    def same_answers(self) -> Numbers | None:
        """Hold public rows against the answers on record: the same, or rounded by base and offset of the crowd.

        Of a class table answers are on record in units of a power of two, column by column; these powers, or None.
        """
        every, shown, kept = list[list[float]](), list[list[float]](), list[RecordedCrowd]()
        for label, places in self.key.items():
            answers = sorted(self.record.released.get(label, np.zeros((0, 0))).tolist())
            rows = sorted(self.table.values(*place) for place in places)
            if [len(row) for row in answers] != [len(row) for row in rows]:
                self.alarms.append("members with other rows than answers on record")
                return None
            every, shown = every + answers, shown + rows
            kept += [self.record.crowds[crowd] for crowd, _ in places]
        answer, row, powers, wrong = np.array(every), np.array(shown), [], 0
        for j in range(answer.shape[1]):
            fixed = [
                (crowd.windows or [(Decimal(1), 1, 0, 0)])[0 if self.meters else j] for crowd in kept if crowd.kept
            ]
            bases = [base for base, *_ in fixed]
            most = np.abs(answer[:, j]).max(), np.abs(row[:, j]).max()
            near = 0 if self.meters or not min(most) else round(math.log2(most[0]) - math.log2(most[1]))
            for power in (near, near - 1, near + 1):
                own = np.ldexp(answer[:, j], -power)
                if np.array_equal(own, row[:, j]) or not most[1]:
                    break
                if not fixed:
                    continue
                multiples = np.floor(own / [float(base) for base in bases] + [u / window for _, window, u, _ in fixed])
                if row[:, j].tolist() == [float(int(m) * base) for m, base in zip(multiples, bases, strict=True)]:
                    break
            else:
                wrong, power = wrong + 1, 0
            powers.append(power)
        self.fault(wrong, "figures that are not the answers on record", "columns")
        return None if wrong else np.array(powers)

    def coins(self, laws: RecordedLaws, values: Numbers, vectors: Numbers, unit: Numbers) -> tuple[int, int]:
        """Pairs told apart by the likelihood of their two public rows, and of how many; a tie is a coin of its own."""
        at = {label: i for i, label in enumerate(laws.labels) if len(self.key.get(label, ())) == 1}
        sure = np.where(np.isfinite(values), np.log(np.where(np.isfinite(values), values, 1.0)), 0.0).sum(axis=1)
        rng, right, guesses = np.random.default_rng(0), 0, 0

        def likelihood(i: int, row: Numbers) -> float:
            return float(-(((row - laws.means[i]) @ vectors[i]) ** 2 / values[i]).sum() - sure[i])

        for own in self.crowds.values():
            names = [label for label in sorted(own) if label in at]
            for a, b in zip(names[::2], names[1::2], strict=False):
                mine, other = (np.ldexp(self.table.values(*self.key[label][0]), unit) for label in (a, b))
                gain = likelihood(at[a], mine) + likelihood(at[b], other)
                gain -= likelihood(at[a], other) + likelihood(at[b], mine)
                right, guesses = right + (gain > 0 or (gain == 0 and rng.random() < 0.5)), guesses + 1
        return right, guesses

    def beyond(self, laws: RecordedLaws, epsilon: float, delta: float) -> int:
        """Pairs of constants with one noise whose table δ, from Φ alone, is above what is stated."""
        i, j = laws.edges.T
        same = (laws.covs[i] == laws.covs[j]).all(axis=(1, 2))
        gap = (laws.means[i] - laws.means[j])[same]
        values, vectors = np.linalg.eigh(laws.covs[i[same]])
        mus = np.sqrt(2 * ((np.einsum("ek,ekd->ed", gap, vectors) ** 2) / np.maximum(values, 1e-300)).sum(axis=1))
        return sum(gaussian_delta(mu, epsilon) > delta * (1 + 1e-6) + 1e-300 for mu in mus.tolist())

    # -------------------------------------------------------------- readings

    def readings(self) -> None:
        """The vector on record, its noise, the stated (ε, δ), and a total that is that of the rows."""
        public = self.files.public
        plan, text = json.loads(public["plan.json"]), public["noisy.json"].decode()
        inner, vector = plan["plan"], np.array(json.loads(text))
        if self.record.vector:
            digest = hashlib.sha256(json.dumps(vector.tolist(), sort_keys=True).encode()).hexdigest()
            self.fault(
                not digest.startswith(self.record.vector), "a noisy vector that is not the one on record", "file"
            )
        names = ("level_weight", "shape_weight", "load_weight", "swing_weight", "count_weight")
        square = sum(int(inner.get(name, 0)) ** 2 for name in names)
        square += len(inner.get("bounds", ())) * int(inner.get("value_weight", 0)) ** 2
        mu, epsilon, stated = math.sqrt(square / inner["variance"]), inner["epsilon"], inner["delta_bound"]
        series = plan["series"]
        self.fault(self.record.mu > 0 and mu > self.record.mu * (1 + 1e-9), "a μ above the one on record", "file")
        if series["releases"] == 1:
            self.fault(gaussian_delta(mu, epsilon) > stated * (1 + 1e-9), "a δ above the one that is stated", "file")
        self.fault(gaussian_delta(series["cap"], series["epsilon"]) > series["delta"] * (1 + 1e-6),
                   "a δ of the series above the one that is stated", "file")  # fmt: skip
        if self.record.exact is None:
            self.unseen.append("the size of the noise: the exact sum is not on record")
        else:
            seen = float(((vector - self.record.exact) ** 2).sum() / inner["variance"])
            odds = float(scipy.special.chdtr(len(vector), seen)), float(scipy.special.chdtrc(len(vector), seen))
            self.chance("rows", "noise of another size than stated", min(2 * min(odds), 1.0))
        self.unseen.append("the presence of a home: no coin was tossed for it, so one table bounds nothing about it")
        if "total.csv" in public:
            total = [float(row["kw"]) for row in csv.DictReader(io.StringIO(public["total.csv"].decode()))]
            sums, room = np.zeros(len(total)), np.abs(total) * 1e-3 + 1e-6
            for crowd, _ in self.table.rows:
                kw, homes = np.abs(self.table.values(crowd)), float(self.table.sizes[crowd])
                sums += homes * np.array(self.table.values(crowd))
                room += 0.05 * kw + 0.005 * (homes + 0.05) * kw + 1e-9
            self.fault(int((np.abs(sums - total) > room).sum()), "totals that are not those of the rows", "steps")

    # -------------------------------------------------------------- beside the table

    def package(self) -> None:
        """Names in any file, times of writing, files that do not belong there, and statements that do not fit."""
        public, record, table = self.files.public, self.record, self.table
        self.fault(len(set(public) - PUBLIC_FILES), "files that no release has", "files")
        labels = {label for crowd in record.crowds.values() for label in crowd.labels} | set(self.key)
        text = "\n".join(content.decode(errors="replace") for content in public.values())
        words = {*re.findall(r"[^\s,;:\"'<>=()\[\]{}|/*`]+", text)}
        words |= {word.strip(".") for word in words}
        telling = [name for name in labels if TELLING.fullmatch(name) and name.lower() not in HARMLESS]
        seen = sum(name in words or html.escape(name) in words or (" " in name and name in text) for name in telling)
        self.fault(seen, "names of members in public files", "names")
        period = {
            *table.stamps,
            *CLOCK.findall("\n".join(table.header)),
            *(one.period for one in record.crowds.values()),
        }
        if record.kind == "readings":
            period |= set(re.findall(r'"(?:origin|period)": "([^"]+)"', public["plan.json"].decode()))
        allowed = {one[:16].replace(" ", "T") for one in period}
        clocks = {one[:16].replace(" ", "T") for one in CLOCK.findall(text)} - allowed
        self.fault(len(clocks), "times that are not those of the rows, such as of writing", "times")
        try:
            described = json.loads(public["datapackage.json"])
            stated = described["guarantee"]["kind"], json.loads(public["card.json"])["kind"]
            sums = dict(line.split("  ")[::-1] for line in public["SHA256SUMS"].decode().splitlines())
        except (KeyError, TypeError, ValueError):
            self.alarms.append("the data package is not whole: a description, a card or checksums are missing")
            return
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in public.items()}
        differs = sum(sums.get(name) != digest for name, digest in digests.items() if name != "SHA256SUMS")
        for one in described["resources"]:
            name = one["path"]
            differs += one["hash"] != f"sha256:{digests.get(name)}" or one["bytes"] != len(public.get(name, b""))
            columns = [column["name"] for column in one.get("schema", {}).get("fields", ())]
            head = next(csv.reader(io.StringIO(public[name].decode()))) if columns and name in public else []
            differs += columns != head
        self.fault(differs, "descriptions or checksums that are not those of the files", "files")
        if record.table:
            self.fault(digests["released.csv"] != record.table, "a public table that is not the one on record", "file")
        self.fault(sum(kind != record.kind for kind in stated), "a statement about another kind of release", "files")
        self.statement(described, json.loads(public["card.json"]))

    def statement(self, described: Mapping[str, Any], card: Mapping[str, Any]) -> None:
        """Figures of the statement against the record: sizes, precision, method, ε and δ."""
        record, wrong = self.record, 0
        known = {n: crowd for n, crowd in record.crowds.items() if n in self.table.numbers}
        if record.kind == "averages":
            bases = {str(n): ([float(Decimal(one)) for one in crowd.kept["bases"]]) for n, crowd in known.items()}
            shown = {number: list(own.values()) if isinstance(own, dict) else [own]
                     for number, own in described.get("precision", {}).items()}  # fmt: skip
            wrong += bases != shown
            wrong += any(card["least"] > int(crowd.setting["m"]) for crowd in known.values())
            wrong += card["smallest"] > min(len(crowd.labels) for crowd in known.values())
        if record.kind == "answers":
            promise, numbers = card["guarantee"], described["guarantee"]["statement"]
            methods = {laws.method for laws in record.laws}  # a design may answer some crowds with their mean
            wrong += card["mechanism"]["method"] not in methods and not methods <= {"mean", "center"}
            wrong += any(promise["epsilon"] != laws.epsilon for laws in record.laws)
            found = re.search(r"\(ε, δ\) = \(([^,]+), ([^)]+)\)", numbers)
            wrong += found is not None and (float(found[1]), float(found[2])) != (promise["epsilon"], promise["delta"])
        if record.kind == "readings":
            series = json.loads(self.files.public["plan.json"])["series"]
            wrong += abs(card["epsilon"] - series["epsilon"]) > 1e-12 or card["delta"] > series["delta"] * (1 + 1e-9)
            wrong += card["delta"] < gaussian_delta(series["cap"], series["epsilon"]) * (1 - 1e-6)
        self.fault(wrong, "a statement that the record does not bear out", "figures")

    # -------------------------------------------------------------- linkability

    def series(self) -> None:
        """Which row of this table belongs to a member of the last one: within a crowd it must be a guess."""
        public, owner = self.files.earlier or (b"", b"")
        before = PublicTable(public)
        key, _ = match_owner_table(owner, before)
        both = sorted(label for label in self.key if label in key)
        if not both or before.header != self.table.header:
            return
        places = {label: (key[label][0], self.key[label][0]) for label in both}
        sized = {n: size for n, size in before.sizes.items() if n in self.table.sizes}
        self.fault(sum(self.table.sizes[n] != size for n, size in sized.items()),
                   "sizes that changed from one release to the next: totals differ by who moved", "crowds")  # fmt: skip
        if self.record.kind == "averages":
            shared = Counter((old[0], new[0]) for old, new in places.values())
            sizes = np.array([shared[old[0], new[0]] for old, new in places.values()])
            seed = int.from_bytes(hashlib.sha256(self.files.public["released.csv"]).digest()[:8])
            hits = int((np.random.default_rng(seed + 1).random(len(both)) * sizes < 1).sum())
            least = min(int(self.record.crowds[number].setting["m"]) for number in self.table.numbers)
            now = Counter(new[0] for _, new in places.values())
            self.chance("linking", "members named by their rows of two releases", tail(hits, len(both), 1 / least))
            self.find("linkability", "follows a row from the last release to this one and names one who is in both",
                      hits, len(both), float(np.mean([1 / now[new[0]] for _, new in places.values()])),
                      1 / least)  # fmt: skip
            return
        if any(len(self.key[label]) > 1 or len(key[label]) > 1 for label in both):
            return
        inside: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for old, new in places.values():
            if old[0] == new[0]:
                inside[new[0]].append((old[1], new[1]))
        orders = [[new for _, new in sorted(rows)] for rows in inside.values()]
        ranks = [np.argsort(np.argsort(order)).tolist() for order in orders]
        hits, tests = sum(rank == i for own in ranks for i, rank in enumerate(own)), sum(map(len, ranks))
        if tests:
            self.chance("linking", "rows numbered as in the last release", fixed_points(hits, [len(o) for o in ranks]))
            self.chance("linking", "rows in the order of the last release", disorder(ranks))
            self.find("linkability", "takes the row of a crowd at the same place as in the last release", hits, tests,
                      len(ranks) / tests, None)  # fmt: skip

    def beside(self, outside: Mapping[str, str]) -> None:
        """A member named by someone who knows its crowd, and of everybody what an outside file says."""
        known = [label for label in self.key if label in outside]
        if not known:
            return
        alike, together = (Counter(outside[label] for label in known),
                           Counter((self.key[label][0][0], outside[label]) for label in known))  # fmt: skip
        sizes = np.array([together[self.key[label][0][0], outside[label]] for label in known])
        hits = int((np.random.default_rng(2).random(len(known)) * sizes < 1).sum())
        guess = float(np.mean([1 / alike[outside[label]] for label in known]))
        self.find("linkability", "knows a member's crowd, and what an outside file says about everybody, and names it",
                  hits, len(known), guess, None)  # fmt: skip
