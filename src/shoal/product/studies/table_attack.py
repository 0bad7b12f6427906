"""Three questions about a class table, before protection and as averages; and who is found in a published table.

Singling out: how often is a label the only one with the figures that somebody knows? Linkability: somebody knows a
label's figures in every second column and looks for its row by them. Inference: what do rows tell about each column of
their members, by that column and by all others (:mod:`inference`)?

For ``shoal attack PUBLISHED --known READINGS`` the attacker holds curves in kW, a row for each crowd or for each home,
and the readings of homes. Of each home it expects a curve at the table's times: what it forecasts from the week before
or, where the readings reach that far, what the home really used. It takes the nearest row in √kW and names one of the
homes in it. Whose row is whose must be known to judge that: the owner's record beside the public table of a run, or the
names in the table itself. Without either only the attacker's own certainty is told.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal import validation
from shoal.crowds.diversity import CLOSENESS
from shoal.crowds.publish import RowsState, next_public_rows
from shoal.crowds.tables import ColumnRoles
from shoal.errors import InputError
from shoal.product.sources.class_table import LABEL, SOURCE_ROW, table_rows
from shoal.product.sources.frames import lazy_table, read_frame
from shoal.product.sources.meters.forecast import forecast
from shoal.product.sources.meters.quality import Readings, as_readings
from shoal.product.studies import inference
from shoal.product.studies.findings import Finding, Study, isolation_chances, share_finding
from shoal.product.studies.inference import ReleasedRows
from shoal.rounding import count_of
from shoal.validation import FloatArray

#: Columns that somebody knows who wants to single out a label.
KNOWN = 3
#: Protected columns that are reported by name, at most.
NAMED = 3
#: What the rows of a published table may be known by, and the names of the homes in it.
ROW, NAMES = ("crowd", "row"), ("household", "label", "id")
#: Days of readings before a published table that its attacker forecasts from.
KNOWN_DAYS = 7
PUBLISHED = "published table"
OWN, OTHERS = "a column of a member, by its row's figure", "a column of a member, by its row's other figures"
ASSUMED = (
    "The attacker knows some columns of a label exactly, and which row it belongs to where it infers others.",
    "It learns from other rows of the same table who has a property. A column's property is to be above its median.",
)
NOT_LOOKED_AT = (
    "Someone who knows the other members' figures of a row, and changes between releases: see the card of a run.",
    "Knowledge from other tables, and columns that are not numbers.",
)
ASSUMED_OF_CURVES = (
    "The attacker takes the row that is nearest to what it expects, and names one of the members of it.",
    "Members are taken as independent of each other.",
)
NOT_LOOKED_AT_OF_CURVES = (
    "Attackers who learn from other tables, and who know the other members' figures of a row.",
    "Properties of members that are in neither table.",
)


def attack_table(
    table: Any,
    label: str,
    *,
    columns: Sequence[str] = (),
    crowd: int = 10,
    sensitive: Sequence[str] = (),
    seed: int = 0,
) -> Study:
    """Three questions about a table with one row per label.

    Args:
        table: a frame, or a CSV, Parquet or Arrow file.
        label: the column of labels.
        columns: the columns that are released; by default all of numbers.
        crowd: labels of a crowd, at least.
        sensitive: columns that crowds must not be alike in.
        seed: of what attackers learn from, and of rehearsed crowds and offsets.

    Returns:
        The findings; ``print`` shows them as tables, ``save`` writes two sheets to file with them.

    >>> import numpy as np, polars as pl
    >>> draw = np.random.default_rng(0)
    >>> frame = pl.DataFrame(draw.normal(size=(60, 2)), ["a", "b"]).with_row_index("who")
    >>> attack_table(frame, "who", crowd=4).exceeded
    ()
    """
    crowd = validation.count(at_least=2, crowd=crowd)
    labels, names, values, gone = read_label_table(table, label, columns)
    if len(labels) < 2 * crowd:
        raise InputError(f"table: {len(labels)} labels can be used, which is too few for crowds of {crowd}")
    lacking = [name for name in sensitive if name not in names]
    if lacking:
        raise InputError(f"sensitive: {lacking[0]!r} is not among the released columns")
    at = [names.index(name) for name in sensitive]
    released = rehearse_table_averages(labels, values, crowd, at, seed)
    findings = table_findings(ReleasedRows("raw rows", (values,), np.arange(len(labels))), values, names, at, seed)
    findings += table_findings(released, values, names, at, seed)
    about = f"{len(labels):,} labels with {len(names)} columns of numbers; {len(released.values[0])} crowds."
    left = {"with an empty cell": gone} if gone else {}
    return Study(about, len(labels), tuple(findings), ASSUMED, NOT_LOOKED_AT, left)


def table_findings(
    rows: ReleasedRows, values: FloatArray, names: Sequence[str], sensitive: Sequence[int] = (), seed: int = 0
) -> list[Finding]:
    """Findings on the three questions about rows (one origin), given all labels' figures in their columns."""
    (released,), n = rows.values, len(values)
    size = np.bincount(rows.member, minlength=len(released))[rows.member]
    single = len(released) == n
    findings = []
    if single:
        what = f"the one label with {KNOWN} figures that are known"
        alone = isolation_chances(values, KNOWN, 0.0, seed)
        findings.append(share_finding("singling out", rows.release, what, alone, 1 / n))
    scale = values.std(axis=0)
    known, table = (values / scale)[:, ::2], (released / scale)[:, ::2]
    found = own_row_chances(((known[:, None] - table) ** 2).sum(axis=2), rows.member)
    what = "the row of a label of which every second column is known"
    findings.append(share_finding("linkability", rows.release, what, found, 1 / len(released)))
    if not single:
        guess = float((1 / size).mean())
        what = "the label behind a row, every second column being known"
        findings.append(share_finding("singling out", rows.release, what, found / size, guess, guess))
        findings += inference.infer_columns(
            rows, inference.is_above_median(values), names, OWN, features="own", seed=seed
        )
    findings += inference.infer_columns(rows, inference.is_above_median(values), names, OTHERS, seed=seed)
    for j in columns_reported_by_name(values, sensitive):
        part = released if not single else np.delete(released, j, axis=1)
        one = ReleasedRows(rows.release, (part,), rows.member)
        findings += inference.infer_property(
            one, inference.is_above_median(values[:, j])[None], f"{names[j]}, by all the row's figures", seed=seed
        )
    return findings


def columns_reported_by_name(values: FloatArray, sensitive: Sequence[int]) -> list[int]:
    """Positions of the protected columns that are reported by name."""
    return [int(j) for j in np.flatnonzero(ColumnRoles.of(values, sensitive).protected)[:NAMED]]


def read_label_table(table: Any, label: str, columns: Sequence[str]) -> tuple[list[str], list[str], FloatArray, int]:
    """Read labels, columns and figures (n, k) of a table with one row per label, and count rows with empty cells."""
    frame = lazy_table(table, "table")
    if frame is None:
        rows, entries, _ = table_rows([Path(table)], label, columns)
    else:
        kinds = frame.collect_schema()
        if label not in kinds:
            raise InputError(f"label: the table has no column {label!r}")
        entries = tuple(columns) or tuple(name for name, kind in kinds.items() if kind.is_numeric() and name != label)
        rows = frame.select(pl.col(label).cast(pl.String).alias(LABEL), *entries).collect()
    rows = rows.select(LABEL, *(pl.col(name).cast(pl.Float64) for name in entries if name != SOURCE_ROW))
    whole = rows.drop_nulls()
    if whole[LABEL].n_unique() < len(whole):
        raise InputError("label: some label has several rows; this study takes tables with one row per label")
    values = whole.select(entries).to_numpy().astype(np.float64)
    varied = np.ptp(values, axis=0) > 0 if len(values) else np.zeros(len(entries), dtype=np.bool_)
    names = [name for name, different in zip(entries, varied, strict=True) if different]
    if len(names) < 2:
        raise InputError("columns: two columns of different numbers are needed at least")
    return whole[LABEL].to_list(), names, values[:, varied], len(rows) - len(whole)


def rehearse_table_averages(
    labels: Sequence[str], values: FloatArray, crowd: int, sensitive: Sequence[int], seed: int
) -> ReleasedRows:
    """Rows of averages as a first release would have them, with seeded draws."""
    draw = np.random.default_rng(seed)
    first = RowsState(crowd, CLOSENESS, None, ColumnRoles(*np.zeros((3, 0), dtype=np.bool_)), 0, {})
    rows, state = next_public_rows(
        (labels, values), first, crowd, sensitive=sensitive, draw=lambda n: int(draw.integers(n))
    )
    place = {name: row for row, kept in enumerate(state.crowds.values()) for name in kept.labels}
    return ReleasedRows(
        "averages", (fill_withheld(rows.values),), np.array([place[name] for name in labels], dtype=np.int64)
    )


def fill_withheld(rows: FloatArray) -> FloatArray:
    """Replace withheld figures of rows by the mean of all rows."""
    return np.asarray(np.where(np.isfinite(rows), rows, np.nanmean(rows, axis=0)))


def own_row_chances(gaps: FloatArray, own: NDArray[np.int64]) -> FloatArray:
    """(n,) chance of each label to have its own row taken, where the nearest is; equally near rows are drawn by lot.

    ``gaps`` (n, rows) are the distances, ``own`` (n,) says which row is whose.
    """
    nearest = gaps <= gaps.min(axis=1, keepdims=True) + 1e-12
    return np.asarray(nearest[np.arange(len(own)), own] / nearest.sum(axis=1))


# ------------------------------------------------------------------ a table that was published


def find_published(published: Any, known: Any, *, label: str | None = None, seed: int = 0) -> Study:
    """Look for homes in a published table of curves, or for labels in a published table of figures.

    Args:
        published: a CSV or Parquet file with timestamp, kw and a column crowd (and row) or household; or the folder of
            a run, whose public table is attacked. With ``label``, a table with a column crowd, or the label, and
            columns of numbers.
        known: the homes that are looked for: readings as a frame, or what :func:`shoal.read_meters` gives. With
            ``label``, a table of what is known of each label; where it has a column crowd, that is its row.
        label: the column of labels in ``known``.
        seed: of what attackers learn from.

    Returns:
        The findings of the better of two attackers; without names or a record in the table only its own certainty.

    >>> from datetime import timedelta
    >>> import shoal
    >>> readings = shoal.simulate_meters(6, 9, step_minutes=60)
    >>> last = readings.filter(readings["timestamp"] >= readings["timestamp"].max() - timedelta(hours=3))
    >>> shoal.find_published(last, readings).findings_of("linkability")[0].figure
    1.0
    """
    table, owners = _read_published(published)
    key = [name for name in ROW if name in table.columns] or [name for name in NAMES if name in table.columns][:1]
    if label is not None:
        return _find_labels(table, [label] if label in table.columns else key, known, label, owners, seed)
    own = as_readings(known)
    if not key or not {"timestamp", "kw"} <= set(table.columns):
        raise InputError(
            "published: expected the columns timestamp and kw, and crowd or household, which says what the curve is "
            "about (a table that protects readings has no rows of homes). Name the label (label=) of other tables"
        )
    sizes = pl.col("members").cast(pl.Float64).fill_null(0.0) if "members" in table.columns else pl.lit(1.0)
    power = pl.col("kw").cast(pl.Float64, strict=False)
    table = table.select(pl.col("timestamp").cast(pl.String), row=_row_ids(key), kw=power, size=sizes)
    if (table["size"] % 1 != 0).any() or (table["size"] < 1).any():
        raise InputError(
            "published: its members are noisy weights, of a release that protects readings: no row is a home's, so no "
            "home can be named"
        )
    wide = table.pivot("timestamp", index=["row", "size"], values="kw", aggregate_function="first").drop_nulls()
    times = sorted(wide.columns[2:])
    if _time_steps(times) != {own.step}:
        raise InputError(
            f"published: its instants are not at a distance of {own.step}, as those of the known readings are; bring "
            "both to one step, in ISO 8601"
        )
    if owners is None and key[0] in NAMES:
        owners = {name: name for name in wide["row"]}
    studies = [
        _find_homes(words, curves, wide, times, owners)
        for words, curves in _expected_curves(own, times[0], len(times)).items()
        if len(wide) > 1 and any(owners is None or owners.get(name) in wide["row"] for name in curves)
    ]
    if not studies:
        raise InputError(
            f"known: no home of these readings has {KNOWN_DAYS} days before {times[0]}, or readings at the table's "
            "times, and a row in the table"
        )
    return max(studies, key=lambda one: max([0.0, *(finding.figure for finding in one.findings)]))


def _find_homes(
    words: str, curves: dict[str, FloatArray], wide: pl.DataFrame, times: list[str], owners: dict[str, str] | None
) -> Study:
    """The study of an attacker who expects a curve of each home and takes the nearest of the published rows."""
    place = {row: i for i, row in enumerate(wide["row"])}
    names = [name for name in curves if owners is None or owners.get(name) in place]
    expected, rows = np.stack([curves[name] for name in names]), wide.select(times).to_numpy().astype(np.float64)
    expected, rows = np.sqrt(np.maximum(expected, 0)), np.sqrt(np.maximum(rows, 0))
    gaps = np.stack([((rows - one) ** 2).sum(axis=1) for one in expected])
    about = f"{count_of(len(rows), 'row')} were published; looked for: {count_of(len(names), 'home')}; "
    about += f"the attacker knows {words}."
    left = {"without a row, or with too few readings": len(curves) - len(names)}
    if owners is None:
        return _study_of_certainty(about, gaps, left)
    own = np.array([place[owners[name]] for name in names])
    hit, size = own_row_chances(gaps, own), wide["size"].to_numpy()[own]
    guess, known = float((1 / size).mean()), f"{words} being known"
    findings = (
        share_finding("singling out", PUBLISHED, f"the home behind a row, {known}", hit / size, guess),
        share_finding("linkability", PUBLISHED, f"the row of a home, {known}", hit, 1 / len(rows)),
    )
    return Study(about, len(names), findings, ASSUMED_OF_CURVES, NOT_LOOKED_AT_OF_CURVES, _without_zeros(left))


def _find_labels(
    table: pl.DataFrame, key: list[str], known: Any, label: str, owners: dict[str, str] | None, seed: int
) -> Study:
    """The study of labels that are looked for in a published table of figures."""
    if not key:
        raise InputError(f"published: a column crowd, or {label!r}, is needed, which says what a row is about")
    record = read_frame(known, "known")
    labels, names, values, gone = read_label_table(record.drop(key if key[0] != label else [], strict=False), label, ())
    if set(key) <= set(record.columns):
        owners = dict(record.select(pl.col(label).cast(pl.String), row=_row_ids(key)).iter_rows())
    shared = [name for name in names if name in table.columns and name not in (*key, "members")]
    if len(shared) < 2:
        raise InputError("known: two columns of numbers that the published table has, too, are needed at least")
    released = fill_withheld(table.select(pl.col(shared).cast(pl.Float64, strict=False)).to_numpy().astype(np.float64))
    place = {row: i for i, row in enumerate(table.select(_row_ids(key)).to_series())}
    here = np.array([owners is None or owners.get(name) in place for name in labels])
    left = {"with an empty cell": gone, "without a row": int((~here).sum())}
    figures = values[here][:, [names.index(name) for name in shared]]
    about = f"A published table of {len(table):,} rows; looked for: {len(figures):,} labels, by {len(shared)} columns."
    if owners is None:
        return _study_of_certainty(
            about, (((figures[:, None] - released) / figures.std(axis=0)) ** 2).sum(axis=2), left
        )
    rows = ReleasedRows(
        PUBLISHED, (released,), np.array([place[owners[name]] for name in np.array(labels)[here].tolist()])
    )
    findings = tuple(table_findings(rows, figures, shared, (), seed))
    return Study(about, len(figures), findings, ASSUMED, NOT_LOOKED_AT, _without_zeros(left))


def _study_of_certainty(about: str, gaps: FloatArray, left: dict[str, int]) -> Study:
    """A study without findings, where whose row is whose is not on record: how certain the attacker is itself."""
    first, second = np.sort(gaps, axis=1)[:, :2].T
    about += (
        f" Of {float((4 * first <= second).mean()):.1%} one row is twice as near as the next. Whether it is theirs is "
        "unknown: the table has no names of these members, and there is no record of a run."
    )
    return Study(about, len(gaps), (), ASSUMED_OF_CURVES, NOT_LOOKED_AT_OF_CURVES, _without_zeros(left))


def _without_zeros(left: dict[str, int]) -> dict[str, int]:
    """The reasons for which somebody was left out."""
    return {reason: count for reason, count in left.items() if count}


def _read_published(published: Any) -> tuple[pl.DataFrame, dict[str, str] | None]:
    """Read the published table, and name -> row where a run's record lies beside it."""
    if not isinstance(published, (str, os.PathLike)):
        return read_frame(published, "published"), None
    path = Path(published)
    path = path / "public" / "released.csv" if (path / "public").is_dir() else path
    table, record = read_frame(path, "published"), path.parent.parent / "released.csv"
    who = None
    if path.parent.name == "public" and record.is_file():
        rows = read_frame(record, "published")
        who = next((name for name in NAMES if name in rows.columns), None)
    if who is None:
        return table, None
    at = [name for name in ROW if name in table.columns]
    return table, dict(rows.select(pl.col(who).cast(pl.String), row=_row_ids(at)).iter_rows())


def _row_ids(key: Sequence[str]) -> pl.Expr:
    """Expression for what a row is known by, as one text."""
    return pl.concat_str([pl.col(name).cast(pl.String) for name in key], separator=" ")


def _time_steps(times: list[str]) -> set[timedelta]:
    """Distances between successive instants; none where they are not ISO 8601."""
    try:
        return {after - before for before, after in pairwise(map(datetime.fromisoformat, times))}
    except (ValueError, TypeError):
        return set()


def _expected_curves(own: Readings, origin: str, steps: int) -> dict[str, dict[str, FloatArray]]:
    """What the attacker knows -> home -> the curve in kW that it expects."""
    try:
        later = own.window(own.find_origin(origin), steps)
    except InputError as error:
        raise InputError(f"known: no home of these readings can be looked for at {origin}: {error}") from None
    used = {name: kw for name, kw in zip(later.households, later.kw, strict=True) if np.isfinite(kw).all()}
    expected = {"what they used at these times": used}
    try:
        fc = forecast(own, train_days=KNOWN_DAYS, horizon=steps, season="day", origin=origin)
    except InputError:  # too few readings before the table: what was used then may still be known
        return expected
    return {f"{KNOWN_DAYS} days of readings before": dict(zip(fc.households, fc.power, strict=True)), **expected}
