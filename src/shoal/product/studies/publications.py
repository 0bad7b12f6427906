"""Could somebody find a home in a table that was published? The command is ``shoal attack PUBLISHED --known READINGS``.

The attacker holds the table (curves in kW, a row for each crowd or for each home) and the readings of homes. Of each
home it expects a curve at the table's times: what it forecasts from the week before or, where the readings reach that
far, what the home really used. It takes the nearest row in √kW and names one of the homes in it, which is right with
probability 1/homes where the row is the home's own.

Whose row is whose must be known to judge that: the owner's record beside the public table of a run, or the names in the
table itself. Without either only the attacker's own certainty is told: how often one row is twice as near as the next.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.errors import InputError
from shoal.product.sources.meters.forecast import forecast
from shoal.product.sources.meters.quality import Readings, as_readings
from shoal.product.studies import tables
from shoal.product.studies.findings import Study, share_right
from shoal.product.studies.inference import Rows
from shoal.product.studies.tables import fill_rows, read_table, table_findings
from shoal.rounding import count_of
from shoal.validation import FloatArray

#: What the rows of a table may be known by, and the names of the homes in it.
ROW, NAMES = ("crowd", "row"), ("household", "label", "id")
KNOWN_DAYS = 7
#: Name -> what its row is known by.
Owners = dict[str, tuple[str, ...]]
RELEASE = "published table"
ASSUMED = (
    "The attacker takes the row that is nearest to what it expects, and names one of the members of it.",
    "Members are taken as independent of each other.",
)
NOT_LOOKED_AT = (
    "Attackers who learn from other tables, and who know the other members' figures of a row.",
    "Properties of members that are in neither table.",
)


def find_published(
    published: Any, known: Any, *, label: str | None = None, train_days: int = KNOWN_DAYS, seed: int = 0
) -> Study:
    """Look for homes in a published table of curves, or for labels in a published table of figures.

    Args:
        published: a CSV or Parquet file with timestamp, kw and a column crowd (and row) or household; or the folder of
            a run, whose public table is attacked. With ``label``, a table with a column crowd, or the label, and
            columns of numbers.
        known: the homes that are looked for: readings as a frame, or what :func:`shoal.read_meters` gives. With
            ``label``, a table of what is known of each label; where it has a column crowd, that is its row.
        label: the column of labels in ``known``.
        train_days: days before the table's first instant that the attacker forecasts from.
        seed: of what attackers learn from.

    Returns:
        The findings of the better of two attackers; without names or a record in the table only its own certainty.

    >>> from datetime import timedelta
    >>> import shoal
    >>> readings = shoal.simulate_meters(6, 9, step_minutes=60)
    >>> last = readings.filter(readings["timestamp"] >= readings["timestamp"].max() - timedelta(hours=3))
    >>> shoal.find_published(last, readings).of("linkability")[0].figure
    1.0
    """
    table, owners = _read(published)
    key = [name for name in ROW if name in table.columns] or [name for name in NAMES if name in table.columns][:1]
    if label is not None:
        return _find_labels(table, [label] if label in table.columns else key, known, label, owners, seed)
    own = as_readings(known)
    if not key or not {"timestamp", "kw"} <= set(table.columns):
        raise InputError(
            "published: expected the columns timestamp and kw, and crowd or household, which says what the curve is "
            "about (a table that protects readings has no rows of homes). Name the label (label=) of other tables"
        )
    text, kw = pl.col("timestamp").cast(pl.String), pl.col("kw").cast(pl.Float64, strict=False)
    table = table.with_columns(text, kw)
    wide = table.pivot("timestamp", index=key, values="kw", aggregate_function="first").drop_nulls()
    times = sorted(wide.columns[len(key) :])
    if _steps(times) != {own.step}:
        raise InputError(
            f"published: its instants are not at a distance of {own.step}, as those of the known readings are; "
            "bring both to one "
            "step, in ISO 8601"
        )
    rows = wide.select(times).to_numpy().astype(np.float64)
    homes = np.ones(len(wide))
    if "members" in table.columns:
        sizes = table.group_by(key).agg(pl.col("members").cast(pl.Float64).first())
        if (sizes["members"] % 1 != 0).any() or (sizes["members"] < 1).any():
            raise InputError(
                "published: its members are noisy weights, of a release that protects readings: no row is a home's, "
                "so no home can be named"
            )
        homes = wide.select(key).join(sizes, on=key, how="left", maintain_order="left")["members"].to_numpy()
    place = {tuple(map(str, row)): i for i, row in enumerate(wide.select(key).iter_rows())}
    if owners is None and key[0] in NAMES:
        owners = {name: (name,) for (name,) in place}
    tried = [
        _attack(words, curves, rows, homes, place, owners)
        for words, curves in _expected_curves(own, times[0], len(times), train_days).items()
    ]
    attacks = [attack for attack in tried if attack is not None]
    if not attacks:
        raise InputError(
            f"known: no home of these readings has {train_days} days before {times[0]}, or readings at the table's "
            "times, and a row in the table"
        )
    return max(attacks, key=lambda one: max([0.0, *(finding.figure for finding in one.findings)]))


def _find_labels(
    table: pl.DataFrame, key: list[str], known: Any, label: str, owners: Owners | None, seed: int
) -> Study:
    """The three questions about a published table of figures."""
    if not key:
        raise InputError(f"published: a column crowd, or {label!r}, is needed, which says what a row is about")
    record, _ = _read(known, "known")
    labels, names, values, gone = read_table(record.drop(key if key[0] != label else [], strict=False), label, ())
    place = {tuple(map(str, row)): number for number, row in enumerate(table.select(key).iter_rows())}
    if set(key) <= set(record.columns):
        owners = {
            str(name): tuple(map(str, row))
            for name, row in zip(record[label], record.select(key).iter_rows(), strict=True)
        }
    shared = [name for name in names if name in table.columns and name not in (*key, "members")]
    if len(shared) < 2:
        raise InputError("known: two columns of numbers that the published table has, too, are needed at least")
    whole = table.select(pl.col(shared).cast(pl.Float64, strict=False)).to_numpy().astype(np.float64)
    here = np.array([owners is None or owners.get(name) in place for name in labels])
    left = {"with an empty cell": gone, "without a row": int((~here).sum())}
    figures = values[here][:, [names.index(name) for name in shared]]
    about = f"A published table of {len(table):,} rows; looked for: {len(figures):,} labels, by {len(shared)} columns."
    if owners is None:
        scaled = (figures[:, None] - fill_rows(whole)) / figures.std(axis=0)
        return _certainty(about, (scaled**2).sum(axis=2), left)
    member = np.array([place[owners[name]] for name, there in zip(labels, here, strict=True) if there])
    rows = Rows("published table", (fill_rows(whole),), member)
    findings = tuple(table_findings(rows, figures, shared, (), seed))
    return Study(
        about, len(figures), findings, tables.ASSUMED, tables.NOT_LOOKED_AT, {k: v for k, v in left.items() if v}
    )


def _certainty(about: str, away: FloatArray, left: dict[str, int]) -> Study:
    """What can be said where whose row is whose is not on record: how certain the attacker is itself."""
    first, second = np.sort(away, axis=1)[:, :2].T
    certain = float((4 * first <= second).mean())
    about += (
        f" Of {certain:.1%} one row is twice as near as the next. Whether it is theirs is unknown: the table has no "
        "names of these members, and there is no record of a run."
    )
    return Study(about, len(away), (), ASSUMED, NOT_LOOKED_AT, {k: v for k, v in left.items() if v})


def _read(published: Any, name: str = "published") -> tuple[pl.DataFrame, Owners | None]:
    """The table, and whose row is which where a run's record lies beside it."""
    if isinstance(published, pl.DataFrame):
        return published, None
    path = Path(published)
    path = path / "public" / "released.csv" if (path / "public").is_dir() else path
    if not path.is_file():
        raise InputError(f"{name}: there is no file {path.name}; name a CSV or Parquet file, or the folder of a run")
    try:
        table = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema_length=None)
    except (pl.exceptions.PolarsError, UnicodeDecodeError):  # whose text may quote rows
        raise InputError(f"{name}: {path.name} cannot be read as a CSV or Parquet file") from None
    record, owners = path.parent.parent / "released.csv", None
    if path.parent.name == "public" and record.is_file():
        rows = pl.read_csv(record, infer_schema=False)
        who = next((name for name in NAMES if name in rows.columns), None)
        at = [name for name in ROW if name in table.columns]
        owners = {str(name): tuple(map(str, row)) for name, *row in rows.select(who, *at).iter_rows()} if who else None
    return table, owners


def _steps(times: list[str]) -> set[timedelta]:
    """The distances between instants; none where they are not ISO 8601."""
    try:
        instants = [datetime.fromisoformat(text) for text in times]
        return {after - before for before, after in pairwise(instants)}
    except (ValueError, TypeError):
        return set()


def _expected_curves(own: Readings, origin: str, steps: int, days: int) -> dict[str, dict[str, FloatArray]]:
    """Knowledge -> home -> the curve that is expected of it."""
    try:
        later = own.cut(own.place(origin), steps)
    except InputError as error:
        raise InputError(f"known: no home of these readings can be looked for at {origin}: {error}") from None
    used = {name: kw for name, kw in zip(later.households, later.kw, strict=True) if np.isfinite(kw).all()}
    expected = {"what they used at these times": used}
    try:
        fc = forecast(own, train_days=days, horizon=steps, season="day", origin=origin)
    except InputError:  # too few readings before the table: what was used then may still be known
        return expected
    return {f"{days} days of readings before": dict(zip(fc.households, fc.power, strict=True)), **expected}


def _attack(
    words: str,
    curves: dict[str, FloatArray],
    rows: FloatArray,
    homes: FloatArray,
    place: dict[tuple[str, ...], int],
    owners: Owners | None,
) -> Study | None:
    names = [name for name in curves if owners is None or owners.get(name) in place]
    if not names or len(rows) < 2:
        return None
    roots, table = (np.sqrt(np.maximum(part, 0.0)) for part in (np.stack([curves[name] for name in names]), rows))
    gaps = np.stack([((table - root) ** 2).sum(axis=1) for root in roots])
    about = (
        f"{count_of(len(rows), 'row')} were published; looked for: {count_of(len(names), 'home')}; "
        f"the attacker knows {words}."
    )
    left = {"without a row, or with too few readings": len(curves) - len(names)}
    if owners is None:
        return _certainty(about, gaps, left)
    own = np.array([place[owners[name]] for name in names])
    nearest = gaps == gaps.min(axis=1, keepdims=True)
    hit, size = nearest[np.arange(len(own)), own] / nearest.sum(axis=1), homes[own]
    findings = (
        share_right("singling out", RELEASE, f"the home behind a row, {words} being known", hit / size,
                    float((1 / size).mean())),
        share_right("linkability", RELEASE, f"the row of a home, {words} being known", hit, 1 / len(rows)),
    )  # fmt: skip
    return Study(about, len(names), findings, ASSUMED, NOT_LOOKED_AT, {k: v for k, v in left.items() if v})
