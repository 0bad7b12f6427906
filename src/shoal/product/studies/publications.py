"""Could somebody find a home in a table that was published? The command is ``shoal attack PUBLISHED --known READINGS``.

The attacker holds the table (curves in kW, a row for each crowd or for each home) and the readings of homes. Of each
home it expects a curve at the table's times: what it forecasts from the week before or, where the readings reach that
far, what the home really used. It takes the nearest row in √kW and names one of the homes in it, which is right with
probability 1/homes where the row is the home's own.

Whose row is whose must be known to judge that: the owner's record beside the public table of a run, or the names in the
table itself. Without either only the attacker's own certainty is told: how often one row is twice as near as the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.audits.confidence import mean_lower, mean_upper
from shoal.errors import InputError
from shoal.product.sources.meters.forecast import forecast
from shoal.product.sources.meters.quality import Readings, as_readings
from shoal.product.studies.attackers import ERROR
from shoal.product.studies.reidentification import share
from shoal.records import plain
from shoal.rounding import count_of
from shoal.validation import FloatArray

#: What the rows of a table may be known by, and the names of the homes in it.
ROW, NAMES = ("crowd", "row"), ("household", "label", "id")
KNOWN_DAYS = 7


@dataclass(frozen=True)
class PublishedAttack:
    """Result of an attack on a published table; shares are means over the homes that are looked for."""

    knowledge: str
    rows: int
    homes: int  #: looked for
    certain: float  #: share of homes of which one row is twice as near as the next
    found: float | None  #: share whose nearest row is their own; None where whose row is whose is not on record
    named: float | None  #: with a guess among the homes of the row
    named_interval: tuple[float, float] | None  #: at 95 %, homes taken as independent draws
    guess: float | None  #: share named by somebody who is told the row
    left_out: int = 0  #: homes of the readings that have no row, or nothing from which to expect a curve

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        content: dict[str, Any] = plain(self)
        return content

    def __str__(self) -> str:
        lines = [
            f"{count_of(self.rows, 'row')} were published; looked for: {count_of(self.homes, 'home')}; "
            f"the attacker knows {self.knowledge}."
        ]
        if self.named is None or self.named_interval is None or self.guess is None or self.found is None:
            lines.append(
                f"Of {self.certain:.1%} one row is twice as near as the next. Whether it is theirs is "
                "unknown: the table has no names of these homes, and there is no record of a run."
            )
        else:
            lines.append(
                f"The row of {self.found:.1%} is found, and {share(self.named, self.named_interval)} of the homes are "
                f"named (95 % interval); someone who is given the row names {self.guess:.1%}."
            )
        if self.left_out:
            lines.append(f"Left out: {count_of(self.left_out, 'home')} without a row, or with too few readings.")
        return "\n".join(lines)


def find_published(published: Any, readings: Any, *, train_days: int = KNOWN_DAYS) -> PublishedAttack:
    """Look for homes in a published table of curves.

    Args:
        published: a CSV or Parquet file with timestamp, kw and a column crowd (and row) or household; or the folder of
            a run, whose public table is attacked.
        readings: of the homes that are looked for: a frame, or what :func:`shoal.read_meters` gives.
        train_days: days before the table's first instant that the attacker forecasts from.

    Returns:
        The findings of the better of two attackers; ``print`` tells them in sentences.

    >>> from datetime import timedelta
    >>> import shoal
    >>> readings = shoal.simulate_meters(6, 9, step_minutes=60)
    >>> last = readings.filter(readings["timestamp"] >= readings["timestamp"].max() - timedelta(hours=3))
    >>> shoal.find_published(last, readings).found
    1.0
    """
    table, owners = _read(published)
    own = as_readings(readings)
    key = [name for name in ROW if name in table.columns] or [name for name in NAMES if name in table.columns][:1]
    if not key or not {"timestamp", "kw"} <= set(table.columns):
        raise InputError(
            "published: expected the columns timestamp and kw, and crowd or household, which says what the curve is "
            "about (a table "
            "that protects readings has no rows of homes)"
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
    return max(attacks, key=lambda attack: attack.certain if attack.named is None else attack.named)


def _read(published: Any) -> tuple[pl.DataFrame, dict[str, tuple[str, ...]] | None]:
    """The table, and whose row is which where a run's record lies beside it."""
    if isinstance(published, pl.DataFrame):
        return published, None
    path = Path(published)
    path = path / "public" / "released.csv" if (path / "public").is_dir() else path
    if not path.is_file():
        raise InputError(f"published: there is no file {path.name}; name a CSV or Parquet file, or the folder of a run")
    try:
        table = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema_length=None)
    except (pl.exceptions.PolarsError, UnicodeDecodeError):  # whose text may quote rows
        raise InputError(f"published: {path.name} cannot be read as a CSV or Parquet file") from None
    record, owners = path.parent.parent / "released.csv", None
    if path.parent.name == "public" and record.is_file():
        rows = pl.read_csv(record, infer_schema=False)
        owners = {row["household"]: tuple(row[name] for name in ROW if name in table.columns)
                  for row in rows.iter_rows(named=True)} if "household" in rows.columns else None  # fmt: skip
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
    owners: dict[str, tuple[str, ...]] | None,
) -> PublishedAttack | None:
    names = [name for name in curves if owners is None or owners.get(name) in place]
    if not names or len(rows) < 2:
        return None
    roots, table = (np.sqrt(np.maximum(part, 0.0)) for part in (np.stack([curves[name] for name in names]), rows))
    gaps = np.stack([((table - root) ** 2).sum(axis=1) for root in roots])
    first, second = np.sort(gaps, axis=1)[:, :2].T
    certain, left = float((4 * first <= second).mean()), len(curves) - len(names)
    if owners is None:
        return PublishedAttack(words, len(rows), len(names), certain, None, None, None, None, left)
    own = np.array([place[owners[name]] for name in names])
    nearest = gaps == first[:, None]
    hit = nearest[np.arange(len(own)), own] / nearest.sum(axis=1)
    named, guess = hit / homes[own], float((1 / homes[own]).mean())
    interval = mean_lower(named, ERROR), mean_upper(named, ERROR)
    return PublishedAttack(
        words, len(rows), len(names), certain, float(hit.mean()), float(named.mean()), interval, guess, left
    )
