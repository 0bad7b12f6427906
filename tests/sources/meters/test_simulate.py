"""Simulated households: reproducible, independent of their number, and alike to real ones in stated respects."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shoal import InputError, simulate_meters
from shoal.product.sources.meters.meter_files import meter_readings

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
LAGS = {"15 min": 1, "1 day": 96, "1 week": 672}

#: Swiss residential sample, 486 households, winter 2018 (Weigert et al. 2020): pooled quantiles in kW and
#: median autocorrelation.
PUBLISHED_QUANTILES = (0.08, 0.28, 0.92, 2.72, 6.76, 13.3)
PUBLISHED_AUTOCORRELATION = {"15 min": 0.62, "1 day": 0.43, "1 week": 0.32}

#: Simulated quantiles lie within a factor of 1.35 of the real ones, median autocorrelations within 0.1.
FACTOR, GAP = 1.35, 0.1


def autocorrelation(kw: np.ndarray, lag: int) -> np.ndarray:
    x = kw - kw.mean(axis=1, keepdims=True)
    return (x[:, lag:] * x[:, :-lag]).mean(axis=1) / (x**2).mean(axis=1)


@pytest.fixture(scope="module")
def simulated() -> np.ndarray:
    return simulate_meters(250, 49, seed=0)["kw"].to_numpy().reshape(250, -1)


def compare(simulated: np.ndarray, quantiles: tuple[float, ...], correlations: dict[str, float]) -> None:
    ratio = np.quantile(simulated, SHARES) / np.array(quantiles)
    assert ((ratio > 1 / FACTOR) & (ratio < FACTOR)).all(), dict(zip(SHARES, ratio.round(2), strict=True))
    for name, lag in LAGS.items():
        assert np.median(autocorrelation(simulated, lag)) == pytest.approx(correlations[name], abs=GAP), name


def test_like_the_published_figures(simulated: np.ndarray) -> None:
    compare(simulated, PUBLISHED_QUANTILES, PUBLISHED_AUTOCORRELATION)


def test_like_the_real_data(simulated: np.ndarray, real_data: Path) -> None:
    frame = pl.read_parquet(real_data / "swiss15_clean.parquet").sort("household", "timestamp")
    kw = frame["kw"].to_numpy().astype(float).reshape(frame["household"].n_unique(), -1)
    real = {name: float(np.median(autocorrelation(kw, lag))) for name, lag in LAGS.items()}
    compare(simulated, tuple(np.quantile(kw, SHARES)), real)
    # Households differ about as much as real ones do, and spread as much in log power.
    for measure in (np.mean, np.median):
        ours, theirs = np.log(measure(simulated, axis=1)), np.log(measure(kw, axis=1))
        assert ours.std() == pytest.approx(theirs.std(), rel=0.35)
    spread = [np.median(np.log(np.maximum(x, 0.02)).std(axis=1)) for x in (simulated, kw)]
    assert spread[0] == pytest.approx(spread[1], rel=0.15)


def test_night_peak_weekend_and_zeros(simulated: np.ndarray) -> None:
    days = simulated.reshape(250, 7, 7, 24, 4)
    hourly = days.mean(axis=(0, 1, 2, 4))
    assert hourly[1:4].mean() > 1.5 * hourly[13:16].mean()
    assert hourly[18:20].mean() > 1.3 * hourly[14:16].mean()
    # People are at home on weekend mornings.
    morning = days[:, :, :, 9:12].mean(axis=(0, 1, 3, 4))
    assert morning[5:].mean() > morning[:5].mean()
    assert 0 < (simulated == 0).mean() < 0.03
    assert simulated.min() >= 0


def test_readings_are_whole_register_steps(simulated: np.ndarray) -> None:
    coarse = 0
    for row in simulated:
        counts = row / 4 / 0.001
        assert np.abs(counts - counts.round()).max() < 1e-6
        coarse += bool((np.abs(row / 4 / 0.01 - (row / 4 / 0.01).round()) < 1e-6).all())
    assert coarse / len(simulated) == pytest.approx(0.76, abs=0.1)  # of meters count hundredths


def test_a_household_depends_on_seed_and_number_alone() -> None:
    few, many = simulate_meters(2, 3, seed=7), simulate_meters(5, 3, seed=7)
    assert many.filter(pl.col("household").is_in(["H0000", "H0001"])).equals(few)
    assert simulate_meters(2, 3, seed=7).equals(few)
    assert not simulate_meters(2, 3, seed=8)["kw"].equals(few["kw"])
    assert few["household"].unique().sort().to_list() == ["H0000", "H0001"]


@pytest.mark.parametrize("step", [5, 15, 30, 60])
def test_steps(step: int) -> None:
    frame = simulate_meters(2, 2, step_minutes=step, start="2024-03-30")
    assert len(frame) == 2 * 2 * 1440 // step
    table = meter_readings(frame).quality
    assert table["verdict"].to_list() == ["ok", "ok"]
    assert frame.schema == {"household": pl.String, "timestamp": pl.Datetime("us"), "kw": pl.Float64}


def test_refusals() -> None:
    for kwargs, message in [
        ({"n_households": 0}, "n_households"),
        ({"days": 1.5}, "days"),
        ({"step_minutes": 7}, "step_minutes"),
        ({"seed": -1}, "seed"),
        ({"start": "soon"}, "start"),
    ]:
        with pytest.raises(InputError, match=message):
            simulate_meters(**({"n_households": 1, "days": 1} | kwargs))


def test_a_charge_that_outlasts_the_simulated_days() -> None:
    """A rare household of a large population: its storage heating charges for longer than is left."""
    from shoal.product.sources.meters import simulate

    class Longest:
        """Draws of a generator that are as large as they get in a million households."""

        def __init__(self) -> None:
            self._rng = np.random.default_rng(0)

        def choice(self, values: object) -> float:
            return 27.0

        def uniform(self, low: float, high: float) -> float:
            return high

        def random(self, n: int) -> object:
            return self._rng.random(n)

        def standard_normal(self, n: int | None = None) -> object:
            return 5.0 if n is None else np.full(n, 5.0)

    calendar = simulate._draw_calendar(datetime(2024, 1, 1), 3, 0)
    load = simulate._night_storage_load(Longest(), calendar, power=1.0, hours=7.5, weather=1.0)  # type: ignore[arg-type]
    assert load.shape == calendar.hour.shape
    assert np.isfinite(load).all()
