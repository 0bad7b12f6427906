"""The attack on the files of a release (:mod:`shoal.product.studies.release_files`): before they leave, and after.

Stages hand over what is about to leave, and what is on record or about to be, as plain values. What is found ends the
run; :func:`attack_run` asks the same about a folder that has released.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from shoal.errors import InputError, UnreachableError
from shoal.product.runs.config import Config
from shoal.product.runs.crowd_rows import NUMBERS, CrowdTables
from shoal.product.runs.folder import CSV, PUBLIC, Folder
from shoal.product.runs.owner_ledger import Book, ledger_place_of_run
from shoal.product.runs.stage_work import Work
from shoal.product.studies.release_files import (
    STOP,
    FilesAttack,
    RecordedCrowd,
    ReleaseFiles,
    ReleaseRecord,
    attack_files,
    crowd_numbers,
    crowds_on_record,
)

#: Of what is found, at most so many are named.
SHOWN = 5


def refuse_leaks(public: Mapping[str, bytes], owner: bytes, record: ReleaseRecord, *, package: bool = False) -> None:
    """Raise UnreachableError where the files that are about to leave show more than they may.

    Chances that a promise rests on, such as the size of the noise, are left to :func:`attack_run`: a release that is
    stopped because of them would have other odds.
    """
    found = attack_files(ReleaseFiles(public, owner), record, level=STOP, groups=["crowds"], package=package).alarms
    if found:
        after = "The table is on record; nothing more was written" if package else "Nothing was written"
        raise UnreachableError(
            f"release: the files that are about to leave show more than they may: {'; '.join(found[:SHOWN])}. {after}. "
            "This is a mistake of shoal's, or something changed its files: please report it"
        )


def check_averages(work: Work, book: Book, numbers: Mapping[int, int], public: bytes, owner: bytes) -> None:
    """Attack the rows of crowds before they are recorded; ``book``: what is on record about their members."""
    plan, members, rows = work.facts.plan, work.tables.members, work.tables.rows
    settings = {number: entry["setting"] for number, entry in book.crowds.items()}
    now = _crowds(members, rows, numbers, settings, plan.setting, plan.period)
    before = crowds_on_record(
        ((n, *(one[part] for part in ("setting", "period", "members", "retired", "kept")))
         for n, one in book.crowds.items()),
        ((label, one["crowd"], one["stored"], one["entered"]) for label, one in book.members.items()),
    )  # fmt: skip
    record = ReleaseRecord("averages", now, before, first=not book.settings)
    refuse_leaks({Path(PUBLIC).name: public}, owner, record)


def check_answers(work: Work, public: bytes, owner: bytes) -> None:
    """Attack rows under a method before they are written; every row is charged by then."""
    refuse_leaks({Path(PUBLIC).name: public}, owner, read_record(work.place.url, work.release_name, public))


def check_readings(public: Mapping[str, bytes]) -> None:
    """Attack the files of a noisy vector before it is recorded."""
    refuse_leaks(public, b"", ReleaseRecord("readings"))


def check_package(work: Work, files: Mapping[str, bytes]) -> None:
    """Attack everything that goes into ``public/``, before the last of it is written."""
    record = read_record(work.place.url, work.release_name, files[Path(PUBLIC).name])
    record = replace(record, stated=stated_texts(work.settings))
    refuse_leaks(files, (work.folder / CSV).read_bytes(), record, package=True)


def attack_run(folder: str | Path) -> FilesAttack:
    """Attack the files that left: can a member be singled out, or linked, from ``public/`` of a run?

    Args:
        folder: of a run that has released.

    Returns:
        Findings with intervals; ``alarms``, where a promise is broken; what could not be looked at.

    >>> attack_run("january").alarms  # doctest: +SKIP
    ()
    """
    home = Folder(folder)
    state, path = home.state(), Path(folder)
    if state.ledger is None or "release" not in state.stages:
        raise InputError(f"dir: {path.name} has released nothing that could be attacked; run it first")
    where = ledger_place_of_run(path, None, state.ledger, simulated=state.source.simulated is not None)
    files, names = (
        ReleaseFiles.of_run(path),
        [f"run {state.run} release {n}" for n in (state.release, state.release - 1)],
    )
    before = None if state.previous is None else _earlier_crowds(Folder(path / state.previous))
    record = read_record(where.url, names[0], files.public[Path(PUBLIC).name], before, names[1])
    record = replace(record, stated=stated_texts(state.config))
    return attack_files(files, record)


def read_record(
    url: str, name: str, public: bytes, before: Mapping[int, RecordedCrowd] | None = None, last: str = ""
) -> ReleaseRecord:
    """Return what the ledger has about a release, read by SQL of the attack's own."""
    return ReleaseRecord.read(url.removeprefix("sqlite:///"), name, crowd_numbers(public), before, last)


def stated_texts(settings: Config) -> str:
    """Return all texts among the settings: the owner chose them, and public files may have them."""
    values = [value if isinstance(value, tuple) else (value,) for value in vars(settings).values()]
    return "\n".join(str(text) for value in values for text in value)


def _earlier_crowds(release: Folder) -> dict[int, RecordedCrowd] | None:
    """Return the crowds of an earlier release of a folder, as they were recorded with it."""
    plan, file = release.state().facts.crowds, release / NUMBERS
    if plan is None or not file.is_file():
        return None
    tables = CrowdTables.load(release)
    fresh = sorted((n for n in tables.rows["crowd"].to_list() if n < 0), reverse=True)
    numbers = dict(zip(fresh, json.loads(file.read_bytes())["numbers"], strict=True))
    return _crowds(tables.members, tables.rows, numbers, {}, plan.setting, plan.period)


def _crowds(
    members: pl.DataFrame,
    rows: pl.DataFrame,
    numbers: Mapping[int, int],
    settings: Mapping[int, str],
    setting: str,
    period: str,
) -> dict[int, RecordedCrowd]:
    """Return crowds as a release records them, from its two tables."""
    crowd = pl.col("crowd").replace(dict(numbers))
    lines = rows.select(crowd, "members", "retired", "kept").iter_rows()
    inside = members.filter(~pl.col("waits")).select("label", crowd, "stored", "entered")
    return crowds_on_record(
        ((n, settings.get(n, setting), period, size, retired, kept) for n, size, retired, kept in lines),
        inside.iter_rows(),
    )
