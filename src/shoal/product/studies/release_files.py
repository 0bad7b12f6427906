"""Attack on the files of a release: what they show beyond the promise, from these files and the record alone.

It reads ``public/``, the owner's table of names and the record of the ledger, and shares no code with what made them:
no formation, rule, noise or writer of this package is imported, every rule of theory, section 15, stands here a second
time. So a mistake in grouping, numbering, rounding or writing is seen, even where the record has it too.

Two kinds of results. A **rule** holds or it does not: rows are recomputed from the figures on record, sizes, bases,
dominance, changes and closeness are tested again, names are looked for in every public file. A **chance** is a test
with an exact p-value, or an upper bound of it (:mod:`p_values`): numbers and orders against random
ones, guesses of all homes at once against the promise, the size of noise. Chances share one level: at most
:data:`ALARM` of honest releases raise an alarm. A release that is stopped because of what was drawn has other odds than
the promise. So before a release only the numbers and offsets of crowds are tested, at the level :data:`STOP`: they are
the same whoever of a crowd is who.

**One table bounds ε.** Members of a crowd are taken in pairs; which of the pair's two rows is whose is a fair coin,
tossed when rows were numbered, and exchanging the two is one step of (ε, δ) for the table.

**What is not bounded**: the presence of a home under the readings' promise, where no coin is tossed; the noise of a
release whose figures are not on record; anything that two releases of different owners show together.
"""

from __future__ import annotations

import calendar
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import scipy
from numpy.typing import NDArray

from shoal.product.studies import p_values
from shoal.product.studies.findings import Finding, Study

#: Share of honest releases that raise an alarm, at most; and of those that are stopped before they are recorded.
ALARM, STOP = 0.05, 1e-12
#: Of the level: guesses of all homes, two releases, order of rows and size of noise, numbers and offsets of crowds.
SHARES = {"naming": 0.5, "linking": 0.2, "rows": 0.15, "crowds": 0.15}
#: Of names in public texts, those that no honest text has: a letter and a digit, or several words.
TELLING = re.compile(r"(?=.*[^\W\d])(?=.*\d).{4,}|.{3,}[\s,;|/].{3,}", re.DOTALL)
#: Parts of a page that no reader sees, and words that are numbers or parts of instants.
UNSEEN, NUMBER = re.compile(r'<meta [^>]*>| d="[^"]*"'), re.compile(r"\d+([TZe]\d*)?")
CANONICAL = re.compile(r"-?(0|[1-9]\d*)(\.(0|\d*[1-9]))?(e[+-]\d+)?")
CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?")
MALFORMED = (ArithmeticError, LookupError, TypeError, ValueError)
OTHER_FORM = "files or a record of another form than a release has ({})"
PUBLIC_FILES = frozenset({
    "released.csv", "total.csv", "plan.json", "noisy.json", "card.json", "card.md", "README.txt", "datapackage.json",
    "SHA256SUMS", "report.html",
})  # fmt: skip

Numbers = NDArray[Any]
#: Label -> (crowd, row) of each of its public rows.
RowsOfLabels = dict[str, list[tuple[int, int]]]


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
        """Base, n b in units, secret offset and decimals of the unit, for each column that is rounded."""
        parts = zip(*(self.kept[name] for name in ("bases", "offsets", "decimals")), strict=True)
        return [
            (Decimal(base), self.members * max(int(Decimal(base).scaleb(places)), 1), offset, places)
            for base, offset, places in parts
        ]

    @property
    def least(self) -> int:
        """The least number of members that was promised."""
        return int(self.setting["m"])


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
        fixed, rows = json.loads(setting), sorted(inside[number])
        labels, *figures = zip(*rows, strict=True) if rows else ((), (), ())
        known[number] = RecordedCrowd(
            fixed, period, size, bool(retired), json.loads(kept) if kept else {}, labels,
            *map(stack_figures, figures),
        )  # fmt: skip
    return known


def stack_figures(members: Sequence[bytes]) -> Numbers:
    """(n, k) whole numbers from the stored bytes of n members; (n, 0) where members have different numbers of them."""
    content = b"".join(members) if len({*map(len, members)}) == 1 else b""
    return (
        np.frombuffer(content, "<i8").astype(np.int64).reshape(len(members), len(content) // 8 // max(len(members), 1))
    )


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
    def from_bytes(cls, content: bytes) -> RecordedLaws:
        """The laws of a mechanism file."""
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

    @cached_property
    def spectra(self) -> tuple[Numbers, Numbers]:
        """Eigenvalues (n, k) and eigenvectors (n, k, k) of the covariances; infinity where a law does not vary."""
        values, vectors = np.linalg.eigh(self.covs)
        return np.where(values > 1e-9 * values.max(axis=1, keepdims=True), values, np.inf), vectors

    def log_likelihood(self, i: int, row: Numbers) -> float:
        """ln of the density of a row under the law of label number i, but for a constant of all laws."""
        values, vectors = self.spectra[0][i], self.spectra[1][i]
        varies = np.isfinite(values)
        return float(-(((row - self.means[i]) @ vectors) ** 2 / values).sum() - np.log(values[varies]).sum())

    def has_pair_above(self, epsilon: float, delta: float) -> bool:
        """Whether a pair of constants with one noise has a table δ, from Φ alone, above the one that is stated."""
        i, j = self.edges.T
        same = (self.covs[i] == self.covs[j]).all(axis=(1, 2))
        gap = (self.means[i] - self.means[j])[same]
        values, vectors = np.linalg.eigh(self.covs[i[same]])
        mus = np.sqrt(2 * ((np.einsum("ek,ekd->ed", gap, vectors) ** 2) / np.maximum(values, 1e-300)).sum(axis=1))
        return any(p_values.gaussian_delta(mu, epsilon) > delta * (1 + 1e-6) + 1e-300 for mu in mus.tolist())


@contextmanager
def open_ledger_for_reading(database: str | Path) -> Iterator[Callable[..., list[Any]]]:
    """Open a ledger, a file or a URL of PostgreSQL; give ``ask(SQL with one (?), values)``, which returns the rows."""
    postgres = "://" in str(database)
    if postgres:
        import psycopg

        connection: Any = psycopg.connect(str(database).replace("+psycopg", ""))
    else:
        connection = sqlite3.connect(f"file:{quote(str(Path(database).resolve()))}?mode=ro", uri=True)

    def ask(statement: str, values: Sequence[Any]) -> list[Any]:
        """All rows of a query whose ``(?)`` stands for these values, 500 at a time."""
        found: list[Any] = []
        for at in range(0, len(values), 500):
            part = tuple(values[at : at + 500])
            marks = ", ".join(["%s" if postgres else "?"] * len(part))
            found += connection.execute(statement.replace("?", marks), part).fetchall()
        return found

    try:
        yield ask
    finally:
        connection.close()


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
    stated: str = ""  #: texts that the owner chose: title, licence, names of columns

    @classmethod
    def read(
        cls,
        database: str | Path,
        name: str,
        numbers: Iterable[int],
        before: Mapping[int, RecordedCrowd] | None = None,
        last: str = "",
    ) -> ReleaseRecord:
        """Read the record of a release from the ledger, by SQL of its own.

        Args:
            database: file of the ledger, or a URL of PostgreSQL.
            name: name of the release on record.
            numbers: crowds of the public table.
            before: crowds as they were recorded with the release before, where that is known.
            last: name of that release; where something else was recorded in between, ``before`` is not used.
        """
        with open_ledger_for_reading(database) as ask:
            wanted = sorted({int(number) for number in numbers})
            crowds = crowds_on_record(
                ask("SELECT crowd, setting, period, members, retired, kept FROM crowds WHERE crowd IN (?)", wanted),
                ask("SELECT label, crowd, stored, entered FROM crowd_members WHERE crowd IN (?)", wanted),
            )
            entries = {}
            for kind, text in ask("SELECT kind, payload FROM entries WHERE kind IN (?)", ["crowds", "readings"]):
                content = json.loads(text)
                entries[kind, " ".join(content["query_id"].split(" ")[:4])] = content
            ours = "SELECT payload FROM entries WHERE kind = 'release' AND (query_id LIKE ? OR query_id = '{}')"
            answers = [json.loads(payload) for (payload,) in ask(ours.format(name), [f"{name} row %"])]
            used = sorted({answer["mechanism"] for answer in answers})
            files = ask("SELECT content FROM mechanisms WHERE digest IN (?)", used)
        if ("readings", name) in entries:
            entry = entries["readings", name]
            return cls("readings", vector=entry["query_id"].rpartition(" ")[2], mu=float(entry["mu"]))
        entry = entries.get(("crowds", name), {})
        first = entry.get("before") == hashlib.sha256().hexdigest()
        if entries.get(("crowds", last), {}).get("crowds") != entry.get("before"):
            before = {} if first else None
        later = bool(entry) and any(crowd.period > entry["facts"]["period"] for crowd in crowds.values())
        if not answers:
            return cls("averages", crowds, before, first, later, entry.get("table", ""))
        released: dict[str, list[Any]] = defaultdict(list)
        for answer in answers:
            released[answer["label"]].append(answer["released"])
        laws = tuple(RecordedLaws.from_bytes(bytes(content)) for (content,) in files)
        rows = {label: np.array(own) for label, own in released.items()}
        return cls("answers", crowds, before, first, later, laws=laws, released=rows)


@dataclass(frozen=True)
class ReleaseFiles:
    """The files that leave or left, and the owner's table of names; the same two tables of an earlier release."""

    public: Mapping[str, bytes]
    owner: bytes
    earlier: tuple[bytes, bytes] | None = None

    @classmethod
    def of_run(cls, folder: str | Path) -> ReleaseFiles:
        """Read the files in the folder of a run."""
        path = Path(folder)
        every = {str(one.relative_to(path / "public")): one.read_bytes() for one in (path / "public").rglob("*")
                 if one.is_file()}  # fmt: skip
        past = max(path.glob("earlier/*/public/released.csv"), key=lambda one: int(one.parts[-3]), default=None)
        before = None if past is None else (past.read_bytes(), (past.parents[1] / "released.csv").read_bytes())
        return cls(every, (path / "released.csv").read_bytes(), before)


class PublicTable:
    """A public table by (crowd, row): instants, sizes and texts of figures; ``faults`` of its form.

    A table that is not ``of_meters`` may have columns called step, timestamp and kw all the same.
    """

    def __init__(self, content: bytes, *, of_meters: bool = True) -> None:
        """Read a table from CSV and note what is wrong with its form."""
        text = content.decode()
        self.header, *lines = csv.reader(io.StringIO(text))
        of_crowds, steps = self.header[:1] == ["crowd"], self.header[2:5] == ["step", "timestamp", "kw"]
        first = 4 if of_meters and steps else sum(name in ("crowd", "row", "members") for name in self.header[:2])
        first *= of_crowds
        self.places = self.header[:first]
        self.columns = [name.removeprefix("'") for name in self.header[first:]]
        self.rows: dict[tuple[int, int], list[list[str]]] = defaultdict(list)
        self.sizes: dict[int, str] = {}
        times: dict[int, str] = {}
        order, unlike = [], 0
        ragged = any(len(line) != len(self.header) for line in lines)
        for number, line in enumerate([] if ragged else lines):  # without crowds each row is a cell
            place = dict(zip(self.places, line, strict=False))
            crowd, row, step = int(place.get("crowd", number)), int(place.get("row", 0)), int(place.get("step", 0))
            order.append((crowd, row, step))
            self.rows[crowd, row].append(line[first:])
            for name, known, at in (("members", self.sizes, crowd), ("timestamp", times, step)):
                unlike += name in place and known.setdefault(at, place[name]) != place[name]
        self.stamps = [times[step] for step in sorted(times)]
        self.inside: dict[int, list[int]] = defaultdict(list)
        for crowd, row in self.rows:
            self.inside[crowd].append(row)
        self.numbers = sorted(self.inside)
        cells = [cell for own in self.rows.values() for line in own for cell in line if cell]
        odd = sum(CANONICAL.fullmatch(cell) is None for cell in cells)
        numbered = [sorted(own) == list(range(1, len(own) + 1)) for own in self.inside.values()]
        plain = "".join(",".join(line) + "\n" for line in lines)  # names of columns may have blanks and commas
        blanks = not text.endswith(f"\n{plain}") or any(cell != cell.strip() for line in lines for cell in line)
        instants = [datetime.fromisoformat(stamp) for stamp in self.stamps]
        rules: dict[str, Any] = {
            "the public table has blanks, other line ends or rows of another length": ragged or blanks,
            f"sizes or times that differ from row to row of a crowd ({unlike} cells)": unlike,
            "rows that are not sorted by their numbers: their order is a second figure":
                "crowd" in self.places and any(a >= b for a, b in pairwise(order)),
            "crowds with fewer steps than others, or with more":
                any(len(own) != max(len(self.stamps), 1) for own in self.rows.values()),
            "rows of a crowd that are not numbered 1, 2, 3, …": "row" in self.places and not all(numbered),
            f"figures written in more than one way, or no numbers ({odd} figures)": odd,
            "times that are not evenly spaced": len({b - a for a, b in pairwise(instants)}) > 1,
        }  # fmt: skip
        self.faults = [words for words, broken in rules.items() if broken]

    def figures(self, crowd: int, row: int = 0) -> list[str]:
        """Texts of the figures of a row: by step, or column by column."""
        own = self.rows.get((crowd, row), [])
        return [one[0] for one in own] if self.stamps else own[0] if own else []

    def values(self, crowd: int, row: int = 0) -> list[float]:
        """Figures of a row as numbers; NaN where one is withheld."""
        return [float(text) if text else math.nan for text in self.figures(crowd, row)]


def crowd_numbers(content: bytes) -> list[int]:
    """Numbers of the crowds of a public table, without a look at the rest of it."""
    header, *lines = csv.reader(io.StringIO(content.decode()))
    return sorted({int(line[0]) for line in lines if header[:1] == ["crowd"] and line and line[0].isdecimal()})


def match_owner_table(content: bytes, table: PublicTable) -> tuple[RowsOfLabels, int]:
    """Public rows of each label by the owner's table, and how many of its lines are not in the public one."""
    key: RowsOfLabels = {}
    header, *lines = csv.reader(io.StringIO(content.decode()))
    who = next((header.index(name) for name in ("label", "household") if name in header), None)
    if "crowd" not in table.places or not {*table.header} <= {*header} or who is None:
        return key, 1
    places = {name: header.index(name) for name in table.places if name in ("crowd", "row", "step")}
    figures, lost = [header.index(name) for name in table.header[len(table.places) :]], 0
    for line in lines:
        at = {name: int(line[j]) for name, j in places.items()}
        place, step = (at["crowd"], at.get("row", 0)), at.get("step", 1) - 1
        own = table.rows.get(place, [])
        lost += step >= len(own) or own[step] != [line[j] for j in figures]
        known = key.setdefault(line[who].removeprefix("'"), [])
        if not known or known[-1] != place:
            known.append(place)
    return key, lost


# ------------------------------------------------------------------ the rules, a second time


def dominates(amounts: Numbers) -> Numbers:
    """(k,) where one of n members has more than twice what is left without the next c: rule 3, with c at most 3.

    >>> dominates(np.array([[13, 12], *[[1, 1]] * 9])).tolist()
    [True, False]
    """
    n = len(amounts)
    falling = np.sort(amounts.astype(object), axis=0)[::-1]
    return np.asarray(falling[0] > 2 * falling[1 + min(3, (n - 1) // 3) :].sum(axis=0), dtype=np.bool_)


def finest_base(limit: float) -> float:
    """The largest of {1, 2, 5}·10^z that is at most a limit.

    >>> finest_base(0.37), finest_base(9999)
    (0.2, 5000.0)
    """
    z = math.floor(math.log10(limit))
    return max(float(f"{step}e{e}") for e in (z - 1, z, z + 1) for step in (1, 2, 5) if float(f"{step}e{e}") <= limit)


def written_multiple(times: int, base: Decimal) -> float:
    """A multiple of a base as a table has it: one division or product of doubles.

    >>> written_multiple(3, Decimal("0.1")), written_multiple(2, Decimal("1E+16"))
    (0.3, 2e+16)
    """
    digit, exponent = int(base.scaleb(-base.adjusted())), base.adjusted()
    return times * digit / 10.0**-exponent if exponent < 0 else times * digit * 10.0**exponent


@cache
def own_words() -> frozenset[str]:
    """Words of shoal's own text, in lower case; those with a digit only where cards and pages are made."""
    root, words = Path(__file__).parents[2], set[str]()
    for path in root.rglob("*.*"):
        if path.suffix in (".py", ".txt", ".html", ".md", ".css", ".js"):
            every, made = re.findall(r"\w+", path.read_text(encoding="utf-8").lower()), "card" in path.parts
            words.update(word for word in every if made or path.parent == root or word.isalpha() or "_" in word)
    return frozenset(words) | {month.lower() for month in calendar.month_abbr}


def power_of_units(
    answer: Numbers, row: Numbers, windows: Sequence[tuple[Decimal, int, int, int]], *, fixed: bool
) -> int | None:
    """The power of two in whose units a column of answers is on record, if a public column is it, plain or rounded.

    ``windows`` has base and offset of each entry where it was rounded; the power is near 0 where units are ``fixed``.
    """
    most, shown = np.abs(answer).max(), np.abs(row).max()
    near = 0 if fixed or not min(most, shown) else round(math.log2(most) - math.log2(shown))
    for power in (near, near - 1, near + 1):
        own = np.ldexp(answer, -power)
        if np.array_equal(own, row) or not shown:
            return power
        if windows:
            counts = np.floor(own / [float(base) for base, *_ in windows] + [u / window for _, window, u, _ in windows])
            if row.tolist() == [written_multiple(int(n), base) for n, (base, *_) in zip(counts, windows, strict=True)]:
                return power
    return None


@dataclass(frozen=True)
class FilesAttack(Study):
    """Three questions about files that left, with what is wrong in them, and how likely each chance is."""

    alarms: tuple[str, ...] = ()
    chances: Mapping[str, float] = field(default_factory=dict)  #: p-value of each test of chance
    level: float = ALARM  #: share of honest releases with an alarm, at most

    def __str__(self) -> str:
        """The study as text, with its alarms."""
        none = f"No alarm. At most {self.level:g} of honest releases raise one by chance."
        return "\n\n".join([super().__str__(), *([f"ALARM: {words}." for words in self.alarms] or [none])])


def attack_files(
    files: ReleaseFiles,
    record: ReleaseRecord,
    *,
    level: float = ALARM,
    groups: Iterable[str] = tuple(SHARES),
    package: bool = True,
) -> FilesAttack:
    """Attack the files of one release with the owner's key in hand; every member is a test.

    Args:
        files: what left, or is about to.
        record: of the ledger.
        level: share of honest releases that raise an alarm, at most.
        groups: of tests of chance, those that may raise one.
        package: whether the files beside the tables are there too.
    """
    look = FileChecks(files, record)
    of_rows, fresh = record.kind != "readings", not record.later
    if record.later:
        look.unseen.append("sizes and figures: these crowds have released since, and what entered is not kept")
    parts: list[tuple[bool, Callable[[], None]]] = [
        (of_rows, look.match_members),
        (of_rows and fresh, look.check_crowds),
        (of_rows and not look.table.faults, look.test_numbering),
        (record.kind == "averages" and fresh, look.check_averages),
        (record.kind == "averages" and fresh, look.guess_by_own_figures),
        (record.kind == "averages" and fresh, look.test_offsets),
        (record.kind == "answers" and fresh, look.check_answers),
        (record.kind == "readings", look.check_readings),
        (of_rows and files.earlier is not None, look.test_linkage_to_last_release),
        (package, look.check_package),
    ]
    for asked, check in parts:
        if asked and (not look.alarms or check in (look.check_crowds, look.test_numbering, look.check_package)):
            try:
                check()
            except MALFORMED as error:
                look.alarms.append(OTHER_FORM.format(type(error).__name__))
    wanted = set(groups)
    counted = Counter(group for group, _, _ in look.chances if group in wanted)
    whole = sum(SHARES[group] for group in counted) or 1.0
    for group, words, p in look.chances:
        if group in counted and p <= level * SHARES[group] / whole / counted[group]:
            look.alarms.append(f"{words} (by chance at most {p:.1g})")
    return FilesAttack(
        f"The files of a release ({record.kind}), attacked with the owner's key: every member is a test.",
        len(look.key),
        tuple(look.findings),
        ("The attacker knows what each line says, and nothing else that is secret.",),
        tuple(f"{words[0].upper()}{words[1:]}." for words in look.unseen),
        alarms=tuple(look.alarms),
        chances={words: p for _, words, p in look.chances},
        level=level,
    )


class FileChecks:
    """The checks of one attack, and what they have found so far."""

    def __init__(self, files: ReleaseFiles, record: ReleaseRecord) -> None:
        """Read the public table; nothing is checked yet but its form."""
        self.files, self.record = files, record
        self.of_table = any(crowd.setting["kind"] == "table" for crowd in record.crowds.values())
        try:
            self.table = PublicTable(files.public["released.csv"], of_meters=not self.of_table)
        except MALFORMED as error:  # whose text would quote a figure
            self.table = PublicTable(b"crowd\n")
            self.table.faults = [OTHER_FORM.format(type(error).__name__)]
        self.alarms, self.findings, self.unseen = list(self.table.faults), list[Finding](), list[str]()
        self.key: RowsOfLabels = {}
        self.chances: list[tuple[str, str, float]] = []  #: group, words, p-value
        self.crowds: dict[int, list[str]] = defaultdict(list)  #: labels by the owner's table
        self.meters = bool(self.table.stamps)
        self.known = {n: crowd for n, crowd in record.crowds.items() if n in self.table.inside}

    def note_broken(self, rules: Mapping[str, object]) -> None:
        """Raise an alarm for every rule, by what is wrong, that is broken; no figure is printed."""
        self.alarms += [words for words, broken in rules.items() if broken]

    def note_chance(self, group: str, words: str, p: float) -> None:
        """Note the p-value of a test of chance."""
        self.chances.append((group, words, p))

    def note_finding(
        self, question: str, what: str, hits: float, tests: int, guess: float, bound: float | None
    ) -> None:
        """Note a finding by a count of right guesses."""
        power = p_values.detectable_excess(tests, guess if bound is None else bound, ALARM * SHARES["naming"])
        power += 0.0 if bound is None else bound - guess
        self.findings.append(Finding(question, self.record.kind, what, "share right", hits / tests,
                                     p_values.binomial_interval(hits, tests), guess, tests, power, bound))  # fmt: skip

    def draw_hits(self, sizes: Numbers, stream: int) -> int:
        """How many of these guesses, one among so many each, are right, drawn by the digest of the public table."""
        seed = int.from_bytes(hashlib.sha256(self.files.public["released.csv"]).digest()[:8])
        return int((np.random.default_rng([seed, stream]).random(len(sizes)) * sizes < 1).sum())

    def match_members(self) -> None:
        """Find out whose rows the public ones are."""
        self.key, lost = match_owner_table(self.files.owner, self.table)
        self.note_broken({"rows of the owner's table that are not those of the public one": lost})
        for label, places in self.key.items():
            self.crowds[places[0][0]].append(label)

    # -------------------------------------------------------------- crowds

    def check_crowds(self) -> None:
        """Rule 1: crowds as large as promised, the same members on record, in the table and in the owner's key."""
        table, known, before = self.table, self.known, self.record.before
        averages = self.record.kind == "averages"
        every = [(number, crowd, {*crowd.labels}, {*self.crowds.get(number, ())}) for number, crowd in known.items()]
        last = [(crowd, before[n]) for n, crowd in known.items() if n in before] if before else []
        columns = {("kw",) if self.meters else tuple(crowd.setting.get("columns", ())) for crowd in known.values()}
        least = max((crowd.least for crowd in known.values()), default=0)
        kept = ("bases", "offsets", "decimals")
        if before is None:
            self.unseen.append("whether crowds are those of the release before: what was on record then is not at hand")
        self.note_broken({
            "members with rows of more than one crowd":
                any(len({crowd for crowd, _ in places}) > 1 for places in self.key.values()),
            "crowds that are not on record": len(known) < len(table.numbers),
            "handles of retired crowds in use again":
                any(crowd.retired for crowd in known.values()) or any(old.retired for _, old in last),
            "columns that no release has": known and columns != {(*table.columns,)},
            f"fewer members than the {least} of the promise":
                any(min(len(own), crowd.members, len(shown) if averages else len(own)) < crowd.least
                    for _, crowd, own, shown in every),
            "other members in the owner's table than on record":
                any(shown - own or (averages and shown != own) for _, _, own, shown in every),
            "a size that is not that of the set: it follows who is there":
                any({str(crowd.members), table.sizes.get(n, str(len(own)))} != {str(len(own))}
                    for n, crowd, own, _ in every),
            "members that are not those of the release before: the difference shows who moved":
                any({*old.labels} != {*crowd.labels} for crowd, old in last),
            "bases or offsets that are not those of the release before":
                any(crowd.kept.get(name) != old.kept.get(name) for crowd, old in last for name in kept),
        })  # fmt: skip

    def test_numbering(self) -> None:
        """Test numbers of crowds, and of rows inside them, against the order of names and of levels."""
        before = self.record.before or {}
        new = [n for n in self.table.numbers if self.crowds.get(n) and n not in before]
        first = {number: min(self.crowds[number]) for number in new}
        levels = {}
        for number in new:
            values = np.array([self.table.values(number, row) for row in self.table.inside[number]])
            levels[number] = float(np.nanmean(values)) if not np.isnan(values).all() else 0.0
        if len(new) > 1:
            by_level = sorted(new, key=lambda n: (levels[n], first[n]))
            names, level = (
                p_values.sortedness_p_value([one]) for one in (sorted(new, key=first.__getitem__), by_level)
            )
            self.note_chance("crowds", "numbers of crowds in the order of names", names)
            self.note_chance("crowds", "numbers of crowds in the order of levels", level)
        if self.record.kind != "answers" or any(len(places) > 1 for places in self.key.values()):
            return
        orders = [[self.key[label][0][1] for label in sorted(own)] for own in self.crowds.values()]
        hits = sum(row == i for order in orders for i, row in enumerate(order, 1))
        sizes = [len(order) for order in orders]
        self.note_chance("naming", "rows numbered by name", p_values.fixed_points_p_value(hits, sizes))
        self.note_chance("rows", "rows in the order of names", p_values.sortedness_p_value(orders))
        self.note_finding("singling out", "names the row of every member by the order of names in its crowd", hits,
                          sum(sizes), len(sizes) / sum(sizes), None)  # fmt: skip

    # -------------------------------------------------------------- averages

    def figures_behind(self, crowd: RecordedCrowd) -> Numbers:
        """(n, k) what entered the row of a crowd."""
        return crowd.entered if self.meters else crowd.stored

    def check_averages(self) -> None:
        """Rules 2 to 5: compute every row again from what entered, and test every rule on it."""
        crowds, before = self.known, self.record.before
        if before is None:
            self.unseen.append("bases and changes of members: what was on record before is not at hand")
        current = [crowd for crowd in crowds.values() if crowd.kept["from"] == crowd.period]
        self.note_broken({
            "rows that are not the mean on record, shifted by its offset and rounded to its base":
                any(self.is_other_row(n, crowd) for n, crowd in crowds.items()),
            "offsets outside of their window":
                any(not 0 <= offset < window for one in crowds.values() for _, window, offset, _ in one.windows),
            "one member makes most of it, or it is not close to all in a protected column (dominance or diversity)":
                any(map(self.is_dominated, current)) if self.meters else self.has_revealing_figures(),
            "a base finer than the rule of precision allows":
                self.has_fine_bases_of_meters() if self.meters else self.record.first and self.has_fine_bases(),
            "a change of one member that the others do not hide: it had to be held":
                any(self.moves_alone(crowds[n], old) for n, old in (before or {}).items() if n in crowds),
        })  # fmt: skip

    def is_other_row(self, number: int, crowd: RecordedCrowd) -> bool:
        """Whether a row shows another figure than ⌊(sum + offset) / n b⌋ bases; meters withhold no single figure."""
        shown, totals = self.table.figures(number), self.figures_behind(crowd).astype(object).sum(axis=0).tolist()
        if crowd.kept["from"] != crowd.period:  # held: nothing may be shown
            return any(shown)
        windows = crowd.windows * (len(totals) if self.meters else 1)
        return len(totals) != len(shown) or any(
            float(text) != written_multiple((total + offset) // window, base) if text else self.meters
            for text, total, (base, window, offset, _) in zip(shown, totals, windows, strict=True)
        )

    def is_dominated(self, crowd: RecordedCrowd) -> bool:
        """Whether one home makes most of a row of meters, or more than the share that was set."""
        amounts, share = np.abs(crowd.entered.astype(object)).sum(axis=1), crowd.setting.get("largest_share")
        return bool(dominates(amounts[:, None])[0]) or (share is not None and amounts.max() > share * amounts.sum())

    def has_fine_bases_of_meters(self) -> bool:
        """Whether a new crowd has a base below that of rule 2, from what is kept of the usual day of all members.

        What was released of a day has taken its place: the other hours alone count, as if nothing was used in these.
        """
        kept = {n: np.delete(np.abs(crowd.stored), self.phases(crowd), axis=1) for n, crowd in self.known.items()}
        usual = {
            n: float(kept[n].astype(float).sum()) / crowd.stored.size / 10.0 ** crowd.kept["decimals"][0]
            for n, crowd in self.known.items()
        }
        sizes = [crowd.stored.size for crowd in self.known.values()]
        level = float(np.average([*usual.values()], weights=sizes)) / 10
        before = self.known if self.record.before is None else self.record.before
        for number, crowd in ((number, crowd) for number, crowd in self.known.items() if number not in before):
            limit = 2 * max(usual[number], level) / crowd.members
            if limit and float(crowd.kept["bases"][0]) < max(finest_base(limit), 0.001) * (1 - 1e-9):
                return True
        return False

    def phases(self, crowd: RecordedCrowd) -> list[int]:
        """The time of day of each instant of the table, in steps of this crowd."""
        step = timedelta(minutes=float(crowd.setting["step_minutes"]))
        day = [datetime.fromisoformat(stamp) for stamp in self.table.stamps]
        return [int((one - one.replace(hour=0, minute=0, second=0)) / step) for one in day]

    @cached_property
    def everyone(self) -> Numbers:
        """(N, k) figures of all members of a class table, in units."""
        return np.concatenate([crowd.stored for crowd in self.known.values()])

    @cached_property
    def whole_columns(self) -> list[int]:
        """Columns of whole numbers, at the first release and in units so fine that no other number looks like one.

        None with boundaries: roles of columns rest on all labels, and some may have no crowd and be on no record.
        """
        crowd = next(iter(self.known.values()))
        places = crowd.kept["decimals"] if self.record.first and not crowd.setting["boundaries"] else ()
        return [j for j, d in enumerate(places) if d >= 2 and not any(v % 10**d for v in self.everyone[:, j].tolist())]

    @cached_property
    def few_valued(self) -> set[int]:
        """Columns of few values: those on record, and at the first release those that surely are."""
        fixed, most = next(iter(self.known.values())).setting, min(3, len(self.everyone) // 2)
        return {*fixed.get("few", ())} | {j for j in self.whole_columns if len(np.unique(self.everyone[:, j])) <= most}

    def has_revealing_figures(self) -> bool:
        """Whether one member dominates a figure of a class table, or it is far from all in a protected column."""
        crowds, everyone, few = self.known, self.everyone, self.few_valued
        setting, (n, k) = next(iter(crowds.values())).setting, everyone.shape
        named = {setting["columns"].index(name) for name in setting.get("sensitive", ()) if name in setting["columns"]}
        # Nearly all alike, with room for labels that have no crowd, which are not on record.
        alike = {j for j in self.whole_columns if 4 * max(Counter(everyone[:, j].tolist()).values()) >= 3 * n}
        protected = few | alike | named | {*setting.get("alike", ())}
        hidden = {j for number in crowds for j, text in enumerate(self.table.figures(number)) if not text}
        if hidden & protected:  # what entered there is not kept, and the mean of all rests on it
            self.unseen.append("closeness in columns in which a figure is withheld")
        places = next(iter(crowds.values())).kept["decimals"]
        scale = np.array([10 ** (max(places) - one) for one in places], dtype=object)
        same = everyone * scale
        pairs = [(i, j) for i in range(k) for j in range(i + 1, k) if not {i, j} <= few and not {i, j} & hidden
                 and 2 * int((same[:, i] == same[:, j]).sum()) > n]  # fmt: skip
        first, second = [i for i, _ in pairs], [j for _, j in pairs]
        plain = [j for j in range(k) if j not in few | hidden and (everyone[:, j] >= 0).all()]
        square = Fraction(str(0.6 if setting.get("closeness") is None else setting["closeness"])) ** 2
        rooms = {}
        for j in sorted(protected - hidden):
            values = everyone[:, j].tolist()
            rooms[j] = sum(values), square * (n * sum(v * v for v in values) - sum(values) ** 2)
        for number, crowd in crowds.items():
            shown, own = [bool(text) for text in self.table.figures(number)], crowd.stored
            large, scaled = dominates(np.abs(own)), own * scale
            gaps = dominates(np.abs(scaled[:, first] - scaled[:, second]))
            away = {j: sum(own[:, j].tolist()) * n - total * len(own) for j, (total, _) in rooms.items()}
            broken = {j for j in plain if large[j]} | {j for j, gap in zip(second, gaps, strict=True) if gap}
            broken |= {j for j, (_, room) in rooms.items() if away[j] ** 2 > room * len(own) ** 2}
            if any(shown[j] for j in broken):
                return True
        return False

    def has_fine_bases(self) -> bool:
        """Whether a figure of a first table has a base below that of rule 2, from the figures of all members."""
        for j, column in enumerate(np.sort(self.everyone, axis=0).T):
            low, middle, high = np.quantile(column, [0.25, 0.5, 0.75]).tolist()
            usual = (high - low) / 1.35 if high > low else float(np.abs(column - middle).mean())
            gap = float(np.diff(column).max(initial=0))
            for crowd in self.known.values():
                base, window, _, places = crowd.windows[j]
                if j in self.few_valued or not usual:
                    fine = window < 2 * gap
                else:  # 2 %: figures on record are rounded to units
                    least = finest_base(2 * usual / 1.02 / crowd.members) * 10.0**-places
                    fine = float(base) < least * (1 - 1e-9)
                if fine:
                    return True
        return False

    def moves_alone(self, crowd: RecordedCrowd, before: RecordedCrowd) -> bool:
        """Whether a member enters with a change that the others do not hide: rule 4, on entries shown and not."""
        if not before.kept.get("from") or crowd.kept["from"] != crowd.period or before.period == crowd.period:
            return False
        if crowd.labels != before.labels:
            return True
        if self.meters:
            step = timedelta(minutes=float(crowd.setting["step_minutes"]))
            start = {datetime.fromisoformat(before.kept["from"]) + i * step: i for i in range(before.entered.shape[1])}
            at = [start.get(datetime.fromisoformat(crowd.period) + i * step) for i in range(crowd.entered.shape[1])]
            last = np.stack([before.stored[:, p] if i is None else before.entered[:, i]
                             for i, p in zip(at, self.phases(crowd), strict=True)], axis=1)  # fmt: skip
            shown = np.array([i is not None for i in at])
            parts = [(part, crowd.windows[0][1]) for part in (shown, ~shown) if part.any()]
        else:
            last, columns = before.stored, np.arange(crowd.stored.shape[1])
            parts = [(columns == j, window) for j, (_, window, _, _) in enumerate(crowd.windows)]
        moved = np.abs(self.figures_behind(crowd) - last)
        return any(
            2 * int(moved[:, part].max(initial=0)) > window
            and bool(dominates(moved[:, part].astype(object).sum(axis=1, keepdims=True))[0])
            for part, window in parts
        )

    def guess_by_own_figures(self) -> None:
        """Look for every member's row with its own figures, and name one of the row's members at random."""
        crowds = {n: crowd for n, crowd in self.known.items() if any(self.table.figures(n))}
        parts = [self.figures_behind(crowd) for crowd in crowds.values()]
        if not crowds or len({part.shape[1] for part in parts}) > 1:
            return
        scale = np.array([10.0**-places for *_, places in next(iter(crowds.values())).windows])
        figures = np.concatenate(parts) * scale
        center, spread = figures.mean(axis=0), figures.std(axis=0)
        figures, rows = (np.nan_to_num((one - center) / np.where(spread > 0, spread, 1.0))
                         for one in (figures, np.array([self.table.values(number) for number in crowds])))  # fmt: skip
        blocks = np.array_split(figures, len(figures) // 4096 + 1)
        near = np.concatenate([((rows**2).sum(axis=1) - 2 * block @ rows.T).argmin(axis=1) for block in blocks])
        sizes = np.array([len(crowd.labels) for crowd in crowds.values()])
        own = np.repeat(np.arange(len(sizes)), sizes)
        hits, tests, least = self.draw_hits(sizes[own[near == own]], 0), len(own), min(c.least for c in crowds.values())
        self.note_chance("naming", "members named from their own row", p_values.binomial_tail(hits, tests, 1 / least))
        self.note_finding("singling out", "knows each member's own figures, takes the nearest row and names one of its "
                          "members", hits, tests, float((1 / sizes[own]).mean()), 1 / least)  # fmt: skip
        self.note_finding("linkability", "joins an outside file with each member's own figures: which row is it in",
                          int((near == own).sum()), tests, float((sizes[own] / tests).mean()), None)  # fmt: skip

    def test_offsets(self) -> None:
        """Test whether secret offsets are uniform, and infer by them which of two figures a member has (theory, 15)."""
        windows = [window for crowd in self.known.values() if crowd.kept for window in crowd.windows]
        cells = [(offset / window, (offset + 1) / window) for _, window, offset, _ in windows]
        if not cells:
            return
        p = p_values.uniformity_p_value(*zip(*cells, strict=True))
        self.note_chance("crowds", "secret offsets that are not uniform", p)
        sure, tests = sum(2 * after <= 1 for _, after in cells), len(cells)
        low, high = p_values.binomial_interval(sure, tests)
        power = p_values.detectable_excess(tests, 0.5, ALARM * SHARES["naming"]) / 2 + 0.25
        self.findings.append(Finding(
            "singling out", self.record.kind, "knows all other members' figures and tells two constant figures of the "
            "last one apart that lie n b/2 from each other", "share right", 0.5 + sure / tests / 2,
            (0.5 + low / 2, 0.5 + high / 2), 0.5, tests, power, 0.75))  # fmt: skip

    # -------------------------------------------------------------- answers

    def check_answers(self) -> None:
        """Check rows against the answers on record, test the size of the noise, and guess all coins at once."""
        (epsilon, delta), released = self.stated_promise(), self.record.released
        if self.meters and any(crowd.setting.get("query", "point") != "point" for crowd in self.known.values()):
            self.unseen.append("rows in kW against logarithms on record: the seasons between them are not at hand")
            units = None
        else:
            units = self.units_of_answers()
        squares, entries, right, guesses = 0.0, 0, 0, 0
        for laws in self.record.laws:
            if laws.curves is not None:
                rows = [row for label in laws.labels for row in released.get(label, ())]
                lost = any(not (laws.curves == row).all(axis=1).any() for row in rows)
                self.note_broken({"answers that are none of the codebook's curves": lost})
                continue
            values, vectors = laws.spectra
            for i, label in enumerate(laws.labels):
                off = released.get(label, np.zeros((0, laws.means.shape[1]))) - laws.means[i]
                squares += float(((off @ vectors[i]) ** 2 / values[i]).sum())
                entries += len(off) * int(np.isfinite(values[i]).sum())
            if units is not None and delta is not None:
                own, of = self.guess_coins(laws, units)
                right, guesses = right + own, guesses + of
            above = laws.constant and delta is not None and laws.has_pair_above(epsilon, delta)
            self.note_broken({"pairs whose δ is above the one that is stated": above})
        if entries:
            self.note_chance("rows", "noise of another size than stated", p_values.noise_p_value(squares, entries))
        if guesses:
            p = p_values.one_run_p_value(right, guesses, guesses, epsilon, float(delta or 0.0))
            self.note_chance("naming", "rows of pairs told apart more often than (ε, δ) allows", p)
            self.note_finding("singling out", "knows all laws and tells which of two rows of a crowd is whose", right,
                              guesses, 0.5, float(scipy.special.expit(epsilon)))  # fmt: skip

    def stated_promise(self) -> tuple[float, float | None]:
        """(ε, δ) of the public statement; ε of the mechanisms on record where there is none yet."""
        try:
            promise = json.loads(self.files.public["card.json"])["guarantee"]
            return float(promise["epsilon"]), float(promise["delta"])
        except (KeyError, TypeError, ValueError):
            return max((laws.epsilon for laws in self.record.laws), default=0.0), None

    def units_of_answers(self) -> Numbers | None:
        """Powers of two in which columns of answers are on record; None, with an alarm, if rows are not answers.

        Rows are the answers, or answers rounded by base and offset of the crowd.
        """
        answers, rows, crowds = list[list[float]](), list[list[float]](), list[RecordedCrowd]()
        for label, places in self.key.items():
            own = sorted(self.record.released.get(label, np.zeros((0, 0))).tolist())
            shown = sorted(self.table.values(*place) for place in places)
            if [len(row) for row in own] != [len(row) for row in shown]:
                self.alarms.append("members with other rows than answers on record")
                return None
            answers, rows = answers + own, rows + shown
            crowds += [self.record.crowds[crowd] for crowd, _ in places]
        powers: list[int | None] = []
        for j, (answer, row) in enumerate(zip(np.array(answers).T, np.array(rows).T, strict=True)):
            windows = [crowd.windows[0 if self.meters else j] for crowd in crowds if crowd.kept]
            powers.append(power_of_units(answer, row, windows, fixed=self.meters))
        self.note_broken({"figures that are not the answers on record": None in powers})
        return None if None in powers else np.array(powers)

    def guess_coins(self, laws: RecordedLaws, units: Numbers) -> tuple[int, int]:
        """How many pairs are told apart by the likelihood of their two public rows, and of how many."""
        at = {label: i for i, label in enumerate(laws.labels) if len(self.key.get(label, ())) == 1}
        rng, right, guesses = np.random.default_rng(0), 0, 0
        for own in self.crowds.values():
            names = [label for label in sorted(own) if label in at]
            for a, b in zip(names[::2], names[1::2], strict=False):
                mine, other = (np.ldexp(self.table.values(*self.key[label][0]), units) for label in (a, b))
                gain = laws.log_likelihood(at[a], mine) + laws.log_likelihood(at[b], other)
                gain -= laws.log_likelihood(at[a], other) + laws.log_likelihood(at[b], mine)
                right, guesses = right + (gain > 0 or (gain == 0 and rng.random() < 0.5)), guesses + 1
        return right, guesses

    # -------------------------------------------------------------- readings

    def check_readings(self) -> None:
        """Check the noisy vector, its noise and stated (ε, δ) against the record, and the total against the rows."""
        public, record, table = self.files.public, self.record, self.table
        plan, vector = json.loads(public["plan.json"]), np.array(json.loads(public["noisy.json"]))
        inner, series = plan["plan"], plan["series"]
        digest = hashlib.sha256(json.dumps(vector.tolist(), sort_keys=True).encode()).hexdigest()
        names = ("level_weight", "shape_weight", "load_weight", "swing_weight", "count_weight")
        square = sum(int(inner.get(name, 0)) ** 2 for name in names)
        square += len(inner.get("bounds", ())) * int(inner.get("value_weight", 0)) ** 2
        mu = math.sqrt(square / inner["variance"])
        stated = p_values.gaussian_delta(mu, inner["epsilon"]) <= inner["delta_bound"] * (1 + 1e-9)
        whole = p_values.gaussian_delta(series["cap"], series["epsilon"]) <= series["delta"] * (1 + 1e-6)
        self.note_broken({
            "a noisy vector that is not the one on record": not digest.startswith(record.vector),
            "a μ above the one on record": record.mu > 0 and mu > record.mu * (1 + 1e-9),
            "a δ above the one that is stated": series["releases"] == 1 and not stated,
            "a δ of the series above the one that is stated": not whole,
        })  # fmt: skip
        self.unseen.append("the size of the noise: the exact sum is not on record")
        self.unseen.append("the presence of a home: no coin was tossed for it, so one table bounds nothing about it")
        if "total.csv" in public:
            total = [float(row["kw"]) for row in csv.DictReader(io.StringIO(public["total.csv"].decode()))]
            kw = np.array([table.values(crowd) for crowd in table.numbers])
            homes = np.array([[float(table.sizes[crowd])] for crowd in table.numbers])
            room = 0.05 * np.abs(kw) + 0.005 * (homes + 0.05) * np.abs(kw) + 1e-9  # figures are rounded
            away = np.abs((homes * kw).sum(axis=0) - total) - room.sum(axis=0) - np.abs(total) * 1e-3 - 1e-6
            self.note_broken({"totals that are not those of the rows": (away > 0).any()})

    # -------------------------------------------------------------- beside the table

    def check_package(self) -> None:
        """Check all files for names, times of writing, files that do not belong, and statements that do not fit."""
        public, record, table = self.files.public, self.record, self.table
        labels = {label for crowd in record.crowds.values() for label in crowd.labels} | {*self.key}
        text = UNSEEN.sub(" ", "\n".join(content.decode(errors="replace") for content in public.values()))
        words = {*re.findall(r"[^\s,;:\"'<>=()\[\]{}|/*`]+", text)}
        words |= {word.strip(".") for word in words}
        telling = [name for name in labels if TELLING.fullmatch(name)]
        shown = [name for name in telling
                 if name in words or html.escape(name) in words or (" " in name and name in text)]  # fmt: skip
        times = [*table.stamps, *table.header, record.stated, *(one.period for one in record.crowds.values())]
        if record.kind == "readings":
            times += re.findall(r'"(?:origin|period)": "([^"]+)"', public["plan.json"].decode())
        clocks = [{one[:16].replace(" ", "T") for one in CLOCK.findall(part)} for part in (text, "\n".join(times))]
        self.note_broken({
            "files that no release has": {*public} - PUBLIC_FILES,
            "names of members in public files": not all(map(self.is_explained, shown)),
            "times that are not those of the rows, such as of writing": clocks[0] - clocks[1],
        })  # fmt: skip
        try:
            described, card = (json.loads(public[name]) for name in ("datapackage.json", "card.json"))
            stated = described["guarantee"]["kind"], card["kind"]
            sums = dict(line.split("  ")[::-1] for line in public["SHA256SUMS"].decode().splitlines())
        except (KeyError, TypeError, ValueError):
            self.alarms.append("the data package is not whole: a description, a card or checksums are missing")
            return
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in public.items()}
        differs = [sums.get(name) != digest for name, digest in digests.items() if name != "SHA256SUMS"]
        for one in described["resources"]:
            name, content = one["path"], public.get(one["path"], b"")
            columns = [column["name"] for column in one.get("schema", {}).get("fields", ())]
            header = next(csv.reader(io.StringIO(content.decode())), []) if columns else []
            size = one["hash"] != f"sha256:{digests.get(name)}" or one["bytes"] != len(content)
            differs += [size, columns != header]
        self.note_broken({
            "descriptions or checksums that are not those of the files": any(differs),
            "a public table that is not the one on record": record.table and digests["released.csv"] != record.table,
            "a statement about another kind of release": {*stated} != {record.kind},
        })  # fmt: skip
        self.check_statement(described, card)

    @cached_property
    def stated_words(self) -> set[str]:
        """Words that the owner chose, in lower case, and plurals: title, licence, columns, time zone of the file."""
        columns = [name for crowd in self.known.values() for name in crowd.setting.get("columns", ())]
        described = json.loads(self.files.public["datapackage.json"])
        chosen = "\n".join([self.record.stated, str(described.get("time_zone")), *columns])
        words = {*re.findall(r"\w+", chosen.lower())}
        return words | {f"{word}{end}" for word in words for end in ("s", "es")} | {f"{word[:-1]}ies" for word in words}

    def is_explained(self, name: str) -> bool:
        """Whether every word of a name is in public text anyway: a number, a word of shoal's own, or of the owner's.

        So no member stops a run by its name: it would have to be found out from a text that is not written yet.
        """
        words = re.findall(r"\w+", name)
        return all(NUMBER.fullmatch(word) or {word.lower()} <= self.stated_words | own_words() for word in words)

    def check_statement(self, described: Mapping[str, Any], card: Mapping[str, Any]) -> None:
        """Check the figures of the statement against the record: sizes, precision, method, ε and δ."""
        record, known = self.record, self.known
        wrong: list[bool] = []
        if record.kind == "averages":
            bases = {str(n): [float(Decimal(one)) for one in crowd.kept["bases"]] for n, crowd in known.items()}
            shown = {number: list(own.values()) if isinstance(own, dict) else [own]
                     for number, own in described.get("precision", {}).items()}  # fmt: skip
            sizes = [len(crowd.labels) for crowd in known.values()]
            wrong = [bases != shown, any(card["least"] > crowd.least for crowd in known.values()),
                     card["smallest"] > min(sizes)]  # fmt: skip
        if record.kind == "answers":
            promise, numbers = card["guarantee"], described["guarantee"]["statement"]
            methods = {laws.method for laws in record.laws}  # a design may answer some crowds with their mean
            pair = re.search(r"\(ε, δ\) = \(([^,]+), ([^)]+)\)", numbers)
            stated = [promise["epsilon"], promise.get("delta")]
            wrong = [card["mechanism"]["method"] not in methods and not methods <= {"mean", "center"},
                     any(promise["epsilon"] != laws.epsilon for laws in record.laws),
                     pair is not None and [float(part) for part in pair.groups()] != stated]  # fmt: skip
        if record.kind == "readings":
            series = json.loads(self.files.public["plan.json"])["series"]
            least = p_values.gaussian_delta(series["cap"], series["epsilon"]) * (1 - 1e-6)
            wrong = [abs(card["epsilon"] - series["epsilon"]) > 1e-12, card["delta"] > series["delta"] * (1 + 1e-9),
                     card["delta"] < least]  # fmt: skip
        self.note_broken({"a statement that the record does not bear out": any(wrong)})

    # -------------------------------------------------------------- linkability

    def test_linkage_to_last_release(self) -> None:
        """Link rows of this release to those of the last one: within a crowd it must be a guess."""
        public, owner = self.files.earlier or (b"", b"")
        before = PublicTable(public, of_meters=not self.of_table)
        key, _ = match_owner_table(owner, before)
        both = sorted(label for label in self.key if label in key)
        if not both or before.header != self.table.header:
            return
        changed = any(self.table.sizes.get(n, size) != size for n, size in before.sizes.items())
        self.note_broken({"sizes that changed from one release to the next: totals differ by who moved": changed})
        moves = [(*key[label][0], *self.key[label][0]) for label in both]  # crowd and row then, crowd and row now
        if self.record.kind == "averages":
            shared, now = Counter((old, new) for old, _, new, _ in moves), Counter(new for _, _, new, _ in moves)
            hits = self.draw_hits(np.array([shared[old, new] for old, _, new, _ in moves]), 1)
            least = min(crowd.least for crowd in self.known.values())
            p, guess = p_values.binomial_tail(hits, len(both), 1 / least), [1 / now[new] for _, _, new, _ in moves]
            self.note_chance("linking", "members named by their rows of two releases", p)
            self.note_finding("linkability", "follows a row from the last release to this one and names one who is in "
                              "both", hits, len(both), float(np.mean(guess)), 1 / least)  # fmt: skip
            return
        if any(len(self.key[label]) > 1 or len(key[label]) > 1 for label in both):
            return
        inside: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for old, row, new, place in moves:
            if old == new:
                inside[new].append((row, place))
        ranks = [np.argsort(np.argsort([new for _, new in sorted(rows)])).tolist() for rows in inside.values()]
        hits, sizes = sum(rank == i for own in ranks for i, rank in enumerate(own)), [len(own) for own in ranks]
        if ranks:
            p = p_values.fixed_points_p_value(hits, sizes)
            self.note_chance("linking", "rows numbered as in the last release", p)
            self.note_chance("linking", "rows in the order of the last release", p_values.sortedness_p_value(ranks))
            self.note_finding("linkability", "takes the row of a crowd at the same place as in the last release", hits,
                              sum(sizes), len(sizes) / sum(sizes), None)  # fmt: skip
