"""Forecasts as files: sealed archives of arrays (:mod:`shoal.archive`), the quality table among them as Parquet.

A forecast file holds the readings of the training window, from which the next day's forecasts are made
(``update_forecasts``): guard it like the readings. In memory that window is 8 bytes per household and step,
11.5 kB for 15 days of quarter-hours; a season by week takes 10.8 kB, laws of 12 steps and the rest about 3 kB. Files
are deflated.
"""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal import archive
from shoal.errors import InputError
from shoal.files import write_private
from shoal.sources.meters.arma.models import COLUMNS, ArmaModels
from shoal.sources.meters.checks import MEASURES, Checks
from shoal.sources.meters.clock import on_clock
from shoal.sources.meters.forecast import LAWS, Forecasts
from shoal.sources.meters.season import Season
from shoal.sources.meters.window import TrainingWindow

FORMAT = "shoal forecasts"
#: Version of the file format; files of another version are refused.
VERSION = 4


def save_forecasts(forecasts: Forecasts, path: str | Path) -> None:
    """Write a versioned forecast file."""
    arrays: dict[str, Any] = {name: getattr(forecasts, name) for name in LAWS}
    arrays |= {f"model_{name}": getattr(forecasts.models, name) for name in COLUMNS}
    arrays |= {f"check_{name}": getattr(forecasts.checks, name) for name in MEASURES}
    arrays |= {name: getattr(forecasts.season, name) for name in ("profile", "repeats", "scale")}
    arrays["timestamps"] = forecasts.timestamps.dt.epoch("us").to_numpy()
    if forecasts.recent is not None:
        arrays["recent"] = forecasts.recent
    if forecasts.history is not None:
        arrays["history"] = forecasts.history.kw
        arrays["history_timestamps"] = forecasts.history.timestamps.dt.epoch("us").to_numpy()
    table = io.BytesIO()
    forecasts.quality.write_parquet(table)
    arrays["quality"] = np.frombuffer(table.getvalue(), dtype=np.uint8)
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "households": list(forecasts.households),
        "time_zone": getattr(forecasts.timestamps.dtype, "time_zone", None),
        "season": forecasts.season.period,
        "floor": forecasts.season.floor,
        "order": list(forecasts.models.order),
        "level": forecasts.checks.level,
        "left_out": dict(forecasts.left_out),
        "step_us": forecasts.step // timedelta(microseconds=1),
        "train_days": forecasts.train_days,
        "history": None if forecasts.history is None else list(forecasts.history.households),
    }
    write_private(path, archive.packed(header, arrays))


def load_forecasts(path: str | Path) -> Forecasts:
    """Read a file back; one that is damaged, altered or of another version is refused."""
    name = f"path: {Path(path).name}"
    content = archive.content_of(path, FORMAT)
    header, arrays = archive.unpacked(content, FORMAT, VERSION, name, "fit again")
    try:
        return _assembled(header, arrays)
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"{name} lacks a part of a forecast file") from error


def _assembled(header: dict[str, Any], arrays: dict[str, Any]) -> Forecasts:
    stamps, *before = (
        on_clock(pl.Series("timestamp", arrays[name]), header["time_zone"])
        for name in ("timestamps", "history_timestamps")
        if name in arrays
    )
    history = (
        None if header["history"] is None else TrainingWindow(tuple(header["history"]), before[0], arrays["history"])
    )
    households = tuple(header["households"])
    p, q = header["order"]
    return Forecasts(
        households=households,
        timestamps=stamps,
        **{name: arrays[name] for name in LAWS},
        season=Season(header["season"], header["floor"], arrays["profile"], arrays["repeats"], arrays["scale"]),
        models=ArmaModels(order=(p, q), **{name: arrays[f"model_{name}"] for name in COLUMNS}),
        checks=Checks(households, header["level"], **{name: arrays[f"check_{name}"] for name in MEASURES}),
        quality=pl.read_parquet(io.BytesIO(arrays["quality"].tobytes())),
        left_out=header["left_out"],
        step=timedelta(microseconds=header["step_us"]),
        train_days=header["train_days"],
        recent=arrays.get("recent"),
        history=history,
    )
