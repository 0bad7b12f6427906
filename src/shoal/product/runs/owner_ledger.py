"""The ledger that a run is charged to, whether it is still the same, and what it has on record about some labels.

There is one ledger per data owner: where ``SHOAL_LEDGER`` says, else in the user's data directory; ``--ledger`` names
another. Runs of simulated households keep one in their own folder, as does a folder that has one from before, and
``--ledger folder``. With ``SHOAL_LEDGER=folder`` every folder is by itself. A run keeps the identity of its ledger and
its head after each release: one that is missing, exchanged or rolled back has forgotten what was spent.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import InputError, LedgerError
from shoal.rounding import count_of

if TYPE_CHECKING:  # a worker, which opens no ledger, does not load SQLAlchemy
    from shoal.product.ledger.ledger import Ledger

FILE, VARIABLE, IN_FOLDER = "ledger.db", "SHOAL_LEDGER", "folder"


@dataclass(frozen=True)
class Seal:
    """The ledger that a run was charged to: its identity, its head after the last release, and where it was."""

    identity: str
    head: str
    where: str


@dataclass(frozen=True)
class Place:
    """Where a ledger is: ``url`` to open it, which may hold a password, and ``where`` to tell, which does not."""

    url: str
    where: str
    stored: str  #: what a run writes down, to find it again

    def __repr__(self) -> str:
        return f"Place({self.where!r})"

    @property
    def is_in_folder(self) -> bool:
        """Whether the ledger is in the run's folder."""
        return self.stored == IN_FOLDER

    @property
    def file(self) -> Path | None:
        """The path of the database file; None for a database server."""
        prefix = "sqlite:///"
        return Path(self.url.removeprefix(prefix)) if self.url.startswith(prefix) else None


def user_ledger_path() -> Path:
    """Return the path of the ledger in the user's data directory."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "shoal" / FILE


def ledger_place_of_run(folder: Path, named: str | None, seal: Seal | None, *, simulated: bool) -> Place:
    """Return where a run's ledger is: as ``named``, in ``folder``, where it was charged, or the data owner's."""
    own, before = folder / FILE, None if seal is None else seal.where
    if named is None and (own.is_file() or before == IN_FOLDER or (simulated and before is None)):
        named = IN_FOLDER
    seen = before if before is not None and ("://" in before or Path(before).is_file()) else None
    given = named or seen or os.environ.get(VARIABLE) or before
    if given == IN_FOLDER:
        return Place(f"sqlite:///{own.resolve()}", f"{folder.resolve().name}/{FILE}", IN_FOLDER)
    return ledger_place_of(given)


def ledger_place_of(given: str | None = None) -> Place:
    """Return the place of a ledger from its URL, or the path of its file; by default the data owner's."""
    if given is None:
        given = os.environ.get(VARIABLE) or str(user_ledger_path())
    if given == IN_FOLDER:
        raise InputError(f"{VARIABLE} is {IN_FOLDER!r}: every run has a ledger in its own folder. Name the folder")
    if "://" not in given:
        path = Path(given).expanduser().resolve()
        return Place(f"sqlite:///{path}", str(path), str(path))
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(given)
    except (ArgumentError, ValueError):
        raise InputError(
            "ledger must be a path, or look like sqlite:///ledger.db or postgresql://user@host:5432/database, with a "
            "port from 1 to 65535",
            argument="ledger",
        ) from None
    bare = parsed.difference_update_query(["password"])._replace(password=None)
    shown = bare.render_as_string(hide_password=False)
    return Place(given, shown, shown)


def other_ledger_warning(where: Place, identity: str | None, labels: Sequence[str], kind: str) -> str:
    """Return a sentence about the data owner's ledger, where that is another one and has labels on record; else ""."""
    from shoal.product.ledger.ledger import Ledger

    for given in dict.fromkeys((os.environ.get(VARIABLE), str(user_ledger_path()))):
        other = ledger_place_of(given)
        if other.url == where.url or (other.file is not None and not other.file.is_file()):
            continue
        try:
            with Ledger.open(other.url, create=False) as ledger:
                known = 0 if ledger.identity == identity else ledger.on_record(labels, kind)
        except LedgerError as error:
            if error.reason == "absent":
                continue
            return f"{other.where}, another ledger, cannot be read: whether it has these on record is not known"
        if known:
            return (
                f"{known} of these {'homes' if kind == 'forecast' else 'labels'} are on record in another ledger, "
                f"{other.where}. Crowds are permanent: a second division of the same members reveals their figures. "
                "Share nothing, and release with that ledger, unless these are others of the same names"
            )
    return ""


def open_ledger(target: str | Path | None = None, *, create: bool = False) -> Ledger:
    """Open a ledger by its URL or file, of the run in a folder, or the data owner's; close it after use.

    That of a run must be the one that its releases were charged to.
    """
    if target is None or "://" in str(target) or Path(target).is_file():
        return open_sealed_ledger(ledger_place_of(None if target is None else str(target)), None, create=create)
    from shoal.product.runs.folder import Folder  # not the whole run: a ledger is looked at in a moment

    state = Folder(target).state()
    named = None if state.ledger is not None else state.config.ledger
    where = ledger_place_of_run(Path(target), named, state.ledger, simulated=state.source.simulated is not None)
    return open_sealed_ledger(where, state.ledger, create=create and state.release_key is None)


def open_sealed_ledger(where: Place, seal: Seal | None, *, create: bool) -> Ledger:
    """Open the ledger at a place; with a seal it must be the sealed ledger and still contain the sealed head.

    A missing one is made where ``create`` allows it and there is no seal. Raises LedgerError otherwise.
    """
    from shoal.product.ledger.chain import Head
    from shoal.product.ledger.ledger import Ledger

    before = "" if seal is None else seal.where
    before = f"{FILE} in its folder" if before == IN_FOLDER else before
    try:
        if where.file is not None and not where.file.is_file():
            if seal is not None or not create:
                raise LedgerError(
                    f"ledger: there is no {where.where}. `shoal run` makes the ledger with the release; where there "
                    "was one, check its name",
                    reason="absent",
                )
            where.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        ledger = Ledger.open(where.url, create=create and seal is None)
    except LedgerError as error:
        if seal is None or error.reason != "absent":
            raise
        fault = f"there is no {where.where}; the releases of this folder are on record in {before}"
        if where.stored == seal.where:
            fault = f"{where.where} is missing, in which the releases of this folder are on record"
        raise LedgerError(f"ledger: {fault}. {_RESTORE}", reason="absent") from None
    if seal is None:
        return ledger
    head, entries, fault = Head.parse(seal.head), ledger.head.seq, ""
    if ledger.identity != seal.identity:
        fault = (
            f"is another ledger ({ledger.identity[:8]}) than the one in which the releases of this folder are on "
            f"record ({seal.identity[:8]}, {before})"
        )
    elif entries < head.seq:
        fault = f"was rolled back: it has {entries} entries, and {head.seq} when this folder released last"
    elif not ledger.contains(head):
        fault = f"was rewritten: its entry {head.seq} is not the one after which this folder's last release ended"
    if fault:
        ledger.close()
        raise LedgerError(f"ledger: {where.where} {fault}. {_RESTORE}")
    return ledger


_RESTORE = (
    "Nothing was released and nothing was changed. Crowds and what was spent are only in that ledger: restore its "
    "newest copy there (for SQLite together with ledger.db-wal), or say where it is now with ledger="
)


EARLIER = (
    "period: something was released about these labels for {}, and this is about {}. Every release about a label needs "
    "a later period than the last: a later origin= for forecasts, a later period= for a table. Nothing was released"
)
#: What the first release decides for the life of all crowds of a table: units, few-valued columns, columns half alike.
DECIDED = ("decimals", "few", "alike")


@dataclass(frozen=True)
class Book:
    """The record of some labels and of all that share a crowd with them."""

    members: dict[str, dict[str, Any]] = field(default_factory=dict)  #: label -> crowd, stored, last, block
    crowds: dict[int, dict[str, Any]] = field(default_factory=dict)  #: number -> setting, period, row, members, retired
    ledger_digest: str = ""
    settings: tuple[str, ...] = ()  #: of all crowds on record, of these labels or others

    @classmethod
    def read(cls, ledger: Ledger | None, labels: Sequence[str]) -> Book:
        """Read from the ledger of a run what is on record about labels; empty where there is no ledger yet."""
        if ledger is None:
            return cls()
        book = ledger.crowds(list(labels))
        members = {entry.pop("label"): entry for entry in book.members.to_dicts()}
        crowds = {entry.pop("crowd"): entry for entry in book.crowds.to_dicts()}
        return cls(members, crowds, book.digest, book.settings)

    @property
    def digest(self) -> str:
        """SHA-256 of these entries alone, whatever else the ledger holds."""
        state = hashlib.sha256()
        for entries in (self.members, self.crowds):
            for key, entry in entries.items():  # in the order of the ledger, by label and by number
                state.update(repr((key, *entry.values())).encode())
        return state.hexdigest()

    @property
    def lasting_crowds(self) -> list[dict[str, Any]]:
        """The crowds that are not retired."""
        return [entry for entry in self.crowds.values() if not entry["retired"]]

    @property
    def least_size(self) -> int | None:
        """The least number of members promised by the crowds that are not retired; None where there are none."""
        return min((int(json.loads(entry["setting"])["m"]) for entry in self.lasting_crowds), default=None)

    def is_first(self, setting: Mapping[str, Any]) -> bool:
        """Return whether the ledger has no crowd yet of such figures: of meters, or of a table with such a column.

        Labels without a crowd are newcomers otherwise, whatever file or folder they come in.
        """
        columns = set(setting.get("columns", ()))
        others = [json.loads(text) for text in self.settings]
        same = [other for other in others if other.get("kind") == setting["kind"]]
        return not any(not columns or columns & set(other.get("columns", ())) for other in same)

    def refuse_conflicts(self, setting: dict[str, Any], origin: str, steps: int) -> None:
        """Raise InputError, before anything is fitted, for a setting or a period that crowds on record do not allow.

        ``steps``: figures of a row of averages, which on record may be fewer; rows under a method are not on record.
        """
        self.lasting_setting(setting)
        period = as_period(origin)
        self.refuse_earlier(period)
        released = [entry["row"] for entry in self.lasting_crowds if entry["period"] == period]
        most = max((len(row_values(row)) for row in released), default=0)
        if 0 < most < steps:
            raise InputError(
                f"horizon: forecasts from {origin} are on record with {count_of(most, 'step')}, and a period is "
                f"released once; horizon={most} gives them again, a later origin= may have more. Nothing was "
                "released"
            )

    def refuse_earlier(self, period: str) -> None:
        """Raise InputError where something later was released about these labels."""
        last = max((entry["period"] for entry in self.lasting_crowds), default="")
        if last > period:
            raise InputError(EARLIER.format(last, period))

    def lasting_setting(self, setting: dict[str, Any]) -> dict[str, Any]:
        """Return the setting of the crowds on record, with what was decided for good; refuse another one."""
        for entry in self.lasting_crowds:
            recorded = json.loads(entry["setting"])
            names = [name for name in {**recorded, **setting} if name not in DECIDED]
            other = next((name for name in names if recorded.get(name) != setting.get(name)), None)
            if other is not None:
                _refuse_other_setting(other, recorded.get(other), setting.get(other))
            setting = {**setting, **{name: recorded[name] for name in DECIDED if name in recorded}}
        return setting


def as_period(text: str) -> str:
    """Return an ISO year, month, day or instant as an instant of UTC; periods are ordered as texts.

    >>> as_period("2024-03"), as_period("2018-12-05T18:00:00+01:00")
    ('2024-03-01T00:00:00Z', '2018-12-05T17:00:00Z')
    """
    try:
        moment = datetime.fromisoformat(f"{text}-01-01"[:10] if len(text) in (4, 7) else text)
    except ValueError:
        raise InputError(
            "period must be a year, a month, a day or an instant: 2024, 2024-03, 2024-03-31", argument="period"
        ) from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def row_values(row: bytes) -> list[float]:
    """Return the figures of a row on record; NaN where one was withheld."""
    values: list[float] = np.frombuffer(row, dtype="<f8").tolist()
    return values


def _refuse_other_setting(name: str, recorded: Any, given: Any) -> None:
    """Raise InputError: the setting of this name is another than that of the crowds on record."""
    setting = {"m": "crowd", "release": "method"}.get(name, name)
    before, now = (
        f"no {setting}"
        if value is None or (name == "release" and value == "mean")
        else f"{setting} {','.join(map(str, value)) if isinstance(value, list) else value}"
        for value in (recorded, given)
    )
    raise InputError(
        f"{setting}: these labels are in crowds that were formed with {before}, and now it is {now}. It is fixed for a "
        "crowd's life: a second kind of figure about the same crowd would give its members away. Go on with the one on "
        "record. Nothing was released"
    )
