"""Forecasts as files: arrays, a table and a JSON header in one zip, with a digest over all of it; no pickle.

A forecast file holds what the forecasts were made from in all but name: guard it like the readings.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.meters.arma.models import ArmaModels
from shoal.meters.checks import Checks
from shoal.meters.forecast import Forecasts
from shoal.meters.season import Season

#: Version of the file format; files of another version are refused.
VERSION = 1

_LAWS = ("log_mean", "error_cov", "mean_cov", "season_part")
_MODELS = ("ar", "ma", "innovation_var", "log_likelihood", "ok", "converged", "status", "n_obs")
_CHECKS = ("skewness", "excess_kurtosis", "gaussian_p", "white_p", "level_p", "spread_p", "spread_ratio")


def save_forecasts(forecasts: Forecasts, path: str | Path) -> None:
    """Write a versioned forecast file."""
    arrays: dict[str, Any] = {name: getattr(forecasts, name) for name in _LAWS}
    arrays |= {f"model_{name}": getattr(forecasts.models, name) for name in _MODELS}
    arrays |= {f"check_{name}": getattr(forecasts.checks, name) for name in _CHECKS}
    arrays["profile"], arrays["repeats"] = forecasts.season.profile, forecasts.season.repeats
    arrays["timestamps"] = forecasts.timestamps.dt.epoch("us").to_numpy()
    table = io.BytesIO()
    forecasts.quality.write_parquet(table)
    header: dict[str, Any] = {
        "format": "shoal forecasts",
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
    }
    header["digest"] = _digest(header, arrays, table.getvalue())
    with zipfile.ZipFile(Path(path), "w", zipfile.ZIP_DEFLATED) as archive:
        _put(archive, "header.json", json.dumps(header, sort_keys=True).encode())
        _put(archive, "quality.parquet", table.getvalue())
        for name, values in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, values, allow_pickle=False)
            _put(archive, f"{name}.npy", buffer.getvalue())


def _put(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """An entry without the time of day: equal forecasts make equal files."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def load_forecasts(path: str | Path) -> Forecasts:
    """Read a file back; one that is damaged, altered or of another version is refused."""
    name = Path(path).name
    try:
        with zipfile.ZipFile(Path(path)) as archive:
            header = json.loads(archive.read("header.json"))
            table = archive.read("quality.parquet")
            arrays = {
                entry.removesuffix(".npy"): np.load(io.BytesIO(archive.read(entry)), allow_pickle=False)
                for entry in archive.namelist()
                if entry.endswith(".npy")
            }
    except FileNotFoundError:
        raise InputError(f"path: there is no file {name}") from None
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, RuntimeError) as error:
        raise InputError(f"path: {name} is not a forecast file, or it is damaged") from error
    if not isinstance(header, dict) or header.get("format") != "shoal forecasts":
        raise InputError(f"path: {name} is not a forecast file")
    if header.get("version") != VERSION:
        raise InputError(f"path: {name} has another format version than this shoal reads ({VERSION}); fit again")
    stated = header.pop("digest", None)
    if stated != _digest(header, arrays, table):
        raise InputError(f"path: {name} does not match its digest: it was altered or damaged")
    try:
        return _assembled(header, arrays, table)
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"path: {name} lacks a part of a forecast file") from error


def _assembled(header: dict[str, Any], arrays: dict[str, Any], table: bytes) -> Forecasts:
    import polars as pl

    stamps = pl.from_epoch(pl.Series("timestamp", arrays["timestamps"]), time_unit="us")
    if header["time_zone"] is not None:
        stamps = stamps.dt.replace_time_zone("UTC").dt.convert_time_zone(header["time_zone"])
    households = tuple(header["households"])
    p, q = header["order"]
    return Forecasts(
        households=households,
        timestamps=stamps,
        **{name: arrays[name] for name in _LAWS},
        season=Season(header["season"], header["floor"], arrays["profile"], arrays["repeats"]),
        models=ArmaModels(order=(p, q), **{name: arrays[f"model_{name}"] for name in _MODELS}),
        checks=Checks(households, header["level"], **{name: arrays[f"check_{name}"] for name in _CHECKS}),
        quality=pl.read_parquet(io.BytesIO(table)),
        left_out=header["left_out"],
        step=timedelta(microseconds=header["step_us"]),
        train_days=header["train_days"],
    )


def _digest(header: dict[str, Any], arrays: dict[str, Any], table: bytes) -> str:
    """SHA-256 over the header, the table and every array with its name, type and shape."""
    total = hashlib.sha256(json.dumps({k: v for k, v in header.items() if k != "digest"}, sort_keys=True).encode())
    total.update(table)
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        total.update(f"{name}:{values.dtype.str}:{values.shape}:".encode())
        total.update(values.tobytes())
    return total.hexdigest()
