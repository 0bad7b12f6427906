"""The third stage: every household's answer through the ledger, once.

The ledger is asked under a name that belongs to this release of this folder. Whatever interrupts the stage, asking
again returns the recorded answers and charges nothing; a draw that is part of an answer is on disk before the ledger
sees it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shoal.accounting.curve import round_up
from shoal.engine.config import Config
from shoal.engine.designing import MECHANISM
from shoal.engine.fitting import FORECASTS
from shoal.engine.folder import Folder
from shoal.errors import InputError, UnreachableError
from shoal.files import digest_of
from shoal.ledger.ledger import Ledger
from shoal.mechanism import Mechanism
from shoal.meters.forecast import Forecasts
from shoal.noise.source import standard_normals
from shoal.validation import FloatArray

LEDGER, CSV, PARQUET, DRAWS = "ledger.db", "released.csv", "released.parquet", "draws.npy"


def ledger_url(folder: Folder, config: Config) -> str:
    """The ledger of a run: its own unless another is named."""
    return config.ledger if config.ledger is not None else f"sqlite:///{(folder / LEDGER).resolve()}"


def open_ledger(folder: Folder, config: Config, *, create: bool = False) -> Ledger:
    if not create and config.ledger is None and not (folder / LEDGER).is_file():
        raise InputError(f"dir: {folder.path.name} has no ledger yet; `shoal release` makes one with the release")
    return Ledger.open(ledger_url(folder, config), create=create)


def release(folder: Folder, config: Config, name: str) -> tuple[list[str], dict[str, Any]]:
    """Release under ``name``; write the table in kW."""
    mechanism = Mechanism.load(folder / MECHANISM)
    forecasts = Forecasts.load(folder / FORECASTS)
    refuse_empty_claims(mechanism, config)
    answers = _answers(folder, config, forecasts, name)
    labels = list(mechanism.classes.labels)
    with open_ledger(folder, config, create=True) as ledger:
        budget_set = ensure_budget(ledger, mechanism, config)
        released = ledger.release_many(mechanism, answers, labels, query_ids=[name] * len(labels))
        spent = ledger.spent()
        worst = spent.largest
        facts: dict[str, Any] = {
            "name": name,
            "households": len(labels),
            "budget_set": budget_set,
            "head": str(ledger.head),
            "ledger": LEDGER if config.ledger is None else "elsewhere",
        }
        if worst is not None:
            facts |= {
                "spent": round_up(worst.spent),
                "budget_delta": worst.budget,
                "budget_epsilon": worst.epsilon,
                "releases_each": max(account.releases for account in spent),
            }
    table = _table(forecasts, released)
    folder.write(CSV, table.write_csv)
    folder.write(PARQUET, table.write_parquet)
    return [CSV, PARQUET], facts


def released_values(folder: Folder, forecasts: Forecasts) -> FloatArray:
    """(n, h) released answers in ln kW, from the released table."""
    import polars as pl

    table = pl.read_parquet(folder / PARQUET)
    shape = len(forecasts.households), forecasts.horizon
    if table["household"].unique(maintain_order=True).to_list() != list(forecasts.households):
        raise InputError(f"dir: {PARQUET} does not fit the forecasts; run `shoal release` again")
    return np.asarray(np.log(table["released_kw"].to_numpy().reshape(shape)))


def refuse_empty_claims(mechanism: Mechanism, config: Config) -> None:
    """Nothing is released under a figure that promises nothing."""
    if config.query == "as_in_paper":
        raise InputError(
            "query: 'as_in_paper' accounts for randomness that is not in the release, so nothing is released under it; "
            "use 'point', 'trajectory' or 'marginal'"
        )
    if mechanism.certificate.delta_upper >= 1.0:
        raise UnreachableError(
            "rho: this design promises nothing (δ = 1), so nothing is released; spend a larger rho, or ask for a delta"
        )


def ensure_budget(ledger: Ledger, mechanism: Mechanism, config: Config) -> bool:
    """Give a ledger without a budget the one of the configuration: by default what one such release may cost."""
    try:
        ledger.spent(mechanism.classes.labels[0])
    except InputError:  # none is in force
        epsilon, delta = default_budget(mechanism, config)
        ledger.budget(epsilon, delta)
        return True
    return False


def default_budget(mechanism: Mechanism, config: Config) -> tuple[float, float]:
    """(ε, δ) named in the configuration, the target of the design, or a little above what it was certified for."""
    if config.budget_epsilon is not None and config.budget_delta is not None:
        return config.budget_epsilon, config.budget_delta
    if config.target is not None:
        return config.epsilon, config.target
    return config.epsilon, min(round_up(mechanism.certificate.delta_upper * 1.001), 1.0 - 2.0**-40)


def _answers(folder: Folder, config: Config, forecasts: Forecasts, name: str) -> FloatArray:
    if config.query != "trajectory":
        return forecasts.answer(config.query)
    wanted = digest_of([name, folder.digest(FORECASTS)])
    path = folder / f"{wanted[:16]}-{DRAWS}"
    if not path.is_file():
        normals = np.array([z / 2.0**120 for z in standard_normals(forecasts.log_mean.size)])
        folder.write(path.name, lambda rough: _save(rough, normals.reshape(forecasts.log_mean.shape)))
    return forecasts.answer("trajectory", np.load(path, allow_pickle=False))


def _save(path: Path, values: FloatArray) -> None:
    with path.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def _table(forecasts: Forecasts, released: FloatArray) -> Any:
    import polars as pl

    n, h = released.shape
    stamps = forecasts.timestamps.to_list()
    return pl.DataFrame(
        {
            "household": np.repeat(np.array(forecasts.households, dtype=object), h).tolist(),
            "step": np.tile(np.arange(1, h + 1), n),
            "timestamp": pl.Series(stamps * n, dtype=forecasts.timestamps.dtype),
            "released_kw": forecasts.to_power(released).ravel(),
        }
    )
