"""Somebody else's forecaster behind crowds, a small neural network: python docs/examples/forecaster.py."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import shoal

HORIZON, LAGS = 6, 24


@dataclass(frozen=True)
class Found:
    """Errors in kW against what came, and what the run says of itself."""

    unprotected: float
    released: float
    yesterday: float  #: of the same hours a day before, as a forecast
    statement: str

    @property
    def price(self) -> float:
        return self.released / self.unprotected


def forecasts(kw: np.ndarray) -> np.ndarray:
    """(homes, 6) the network's forecasts of the last six hours of (homes, hours), learned from the hours before."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    past = kw[:, :-HORIZON]
    level = past.mean(axis=1, keepdims=True)
    scaled = past / level
    starts = range(LAGS, past.shape[1] - HORIZON + 1, 3)
    x = np.concatenate([scaled[:, at - LAGS : at] for at in starts])
    y = np.concatenate([scaled[:, at : at + HORIZON] for at in starts])
    net = MLPRegressor(hidden_layer_sizes=(32,), max_iter=60, random_state=0)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # sixty passes are enough here
        net.fit(x, y)
    return np.maximum(net.predict(scaled[:, -LAGS:]) * level, 0.0)


def example(homes: int = 60, days: int = 10, crowd: int = 10) -> Found:
    """Simulated homes, forecasts that shoal had no part in, and a run over the table of forecasts."""
    readings = shoal.simulate_meters(homes, days, step_minutes=60, seed=3).sort("household", "timestamp")
    names = readings["household"].unique(maintain_order=True)
    kw = readings["kw"].to_numpy().reshape(homes, -1)
    ahead, truth = forecasts(kw), kw[:, -HORIZON:]
    columns = [f"+{hour} h" for hour in range(1, HORIZON + 1)]
    table = pl.DataFrame({"home": names, **{name: ahead[:, i] for i, name in enumerate(columns)}})
    with tempfile.TemporaryDirectory() as folder:
        run = shoal.run(table, out=Path(folder) / "mine", label="home", crowd=crowd, workers="serial")
        rows = run.released.sort("label").select(columns).to_numpy()
    off = [float(np.abs(one - truth).mean()) for one in (ahead, rows, kw[:, -HORIZON - 24 : -24])]
    return Found(*off, run.card.statement)


if __name__ == "__main__":
    found = example()
    print(f"network {found.unprotected:.3f} kW, released {found.released:.3f} kW, yesterday {found.yesterday:.3f} kW")
    print(f"price {found.price:.3f}. {found.statement}")
