"""Heating: whether a home has a heat pump or electric heating. Run: python docs/examples/heating.py

Swiss residential meters (Weigert, Hopf, Weinig and Staake 2020), which are not part of the repository: seven weeks of
quarter-hours. A row is a home: its log mean power, that of the night against the day, and that of the coldest week
against the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from study import Study, picture, study

HERE = Path(__file__).parent
DATA = HERE.parents[1].parent / "shared" / "data" / "swiss_residential_15min"
KINDS = ("heat pump", "electric heating")


def load(folder: Path = DATA) -> tuple[Any, Any]:
    """Rows of homes whose heating is known, and that heating."""
    homes = pl.read_csv(folder / "households.csv").filter(pl.col("heating_type").is_in(KINDS) & pl.col("clean"))
    night = (pl.col("timestamp").dt.hour() < 6).alias("night")
    cold = (pl.col("timestamp").dt.week() == 50).alias("cold")
    readings = pl.scan_parquet(folder / "swiss15_clean.parquet").with_columns(pl.col("household").cast(pl.String))
    kept = readings.filter(pl.col("household").is_in(homes["household"].to_list())).with_columns(night, cold).collect()
    power = pl.col("kw")
    means = kept.group_by("household").agg(
        power.mean().alias("all"),
        *(power.filter(pl.col(name)).mean().alias(name) for name in ("night", "cold")),
        *(power.filter(~pl.col(name)).mean().alias(f"not {name}") for name in ("night", "cold")),
    )
    table = homes.join(means, on="household").sort("household")
    logs = {name: np.log(table[name].to_numpy() + 0.01) for name in means.columns[1:]}
    rows = [logs["all"], logs["night"] - logs["not night"], logs["cold"] - logs["not cold"]]
    return np.column_stack(rows), table["heating_type"].to_numpy()


def example(repeats: int = 10) -> Study:
    """The study of both kinds of heating, over several ways to share out the homes."""
    return study(*load(), repeats=repeats)


if __name__ == "__main__":
    if not DATA.is_dir():
        raise SystemExit(
            f"heating.py needs the Swiss residential meters, which are not part of the repository: put households.csv "
            f"and swiss15_clean.parquet into {DATA}"
        )
    found = example()
    print(found)
    picture(found, HERE / "heating.png", "Heat pump or electric heating, (1, 1e-5)", show_rows=False)
