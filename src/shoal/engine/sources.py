"""Where a run's readings come from: files, or households that do not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.engine.config import Config
from shoal.errors import InputError
from shoal.files import digest_of, file_digest
from shoal.meters.quality import Readings


def files(path: str | Path) -> dict[str, Any]:
    """Meter files, by path and digest."""
    from shoal.meters.readings import meter_files

    listed = [
        {"name": file.name, "digest": file_digest(file), "size": file.stat().st_size} for file in meter_files(path)
    ]
    return {
        "kind": "files",
        "path": str(Path(path).resolve()) if Path(path).exists() else str(path),
        "files": listed,
        "digest": digest_of([[one["name"], one["digest"]] for one in listed]),
    }


def simulated(households: int, days: int, step_minutes: int, seed: int) -> dict[str, Any]:
    """A simulated neighborhood."""
    values = {"households": households, "days": days, "step_minutes": step_minutes, "seed": seed}
    return {"kind": "simulated", **values, "digest": digest_of(values)}


def load(source: dict[str, Any], config: Config) -> Readings:
    """The readings, with their quality table."""
    import polars as pl

    from shoal.meters.quality import repair
    from shoal.meters.readings import meter_readings
    from shoal.meters.simulate import simulate_meters

    if source["kind"] == "simulated":
        sizes = source["households"], source["days"], source["step_minutes"]
        readings = repair(simulate_meters(*sizes, seed=source["seed"]))
    else:
        try:
            readings = meter_readings(
                source["path"],
                unit=config.unit,
                interval=config.interval,
                time_zone=config.time_zone,
                columns=config.columns or None,
                max_kw=config.max_kw,
            )
        except InputError as error:
            raise _for_a_run(error) from None
    if not config.only:
        return readings
    known = set(readings.quality["household"].to_list())
    strange = [name for name in config.only if name not in known]
    if strange:
        raise InputError(
            f"household: there is no household {strange[0]!r} among the {len(known)} in the readings; "
            "check --household, or `only` in the settings"
        )
    chosen = pl.col("household").is_in(list(config.only))
    return Readings(readings.frame.filter(chosen), readings.quality.filter(chosen), readings.step)


def _for_a_run(error: InputError) -> InputError:
    """The error of a reader of files, in words of a run: its columns are named by settings."""
    what, _, _ = str(error).partition(" Name them: ")
    if not what.startswith("columns:"):
        return error
    return InputError(
        f"{what.rstrip('.')}. Name them: --household-column, --timestamp-column and --value-column, or the same "
        "settings in a file that `shoal init` writes"
    )


def describe(source: dict[str, Any]) -> str:
    """The source in a few words."""
    if source["kind"] == "simulated":
        return f"{source['households']} simulated households, {source['days']} days (nobody real is behind them)"
    return str(Path(source["path"]).name)
