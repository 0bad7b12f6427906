"""Households that do not exist: realistic load for demonstrations and tests, with no real person behind it.

Each household is a sum of parts, drawn from its own random stream: standby and refrigeration, lights and
electronics while people are at home and awake, cooking and other appliances, a night boiler, and a heat pump or
storage heaters that follow a weather common to all. The meter reports differences of an energy register with steps
of 0.01 or 0.001 kWh, as real ones do. The mix of heating (:data:`MIX`) resembles a winter sample of Swiss homes
recruited for a study of heat pumps (Weigert et al. 2020): much heating, a night peak, evening cooking. It is not
typical of gas-heated homes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from shoal import validation
from shoal.errors import InputError
from shoal.validation import FloatArray

#: Share of households by main electric heat.
MIX = {"heat pump": 0.62, "storage": 0.15, "boiler": 0.20, "none": 0.03}

#: Meter register steps in kWh and the share of meters with each.
REGISTERS = {0.01: 0.76, 0.001: 0.24}

#: Resolution inside the simulation, minutes, and points of a day.
FINE = 5
PER_DAY = 1440 // FINE


def simulate_meters(
    n_households: int, days: int, step_minutes: int = 15, seed: int = 0, *, start: str = "2024-01-01", first: int = 0
) -> pl.DataFrame:
    """Simulated readings: a polars frame with household, timestamp, kw.

    Household number i depends on ``seed`` and i alone: more households, or fewer, change none of the others.

    Args:
        n_households: how many; named ``"H0000"``, ``"H0001"``, ...
        days: length, from midnight of ``start`` (wall-clock time without zone; a Monday by default).
        step_minutes: metering interval; a multiple of 5 that divides an hour, or a number of hours that divides a
            day.
        seed: any whole number.
        first: number of the first household, to simulate a stretch of many.

    Returns:
        One row per household and interval, sorted; kw is mean power over the interval.

    >>> import shoal
    >>> readings = shoal.simulate_meters(2, 1, step_minutes=60)
    >>> readings.columns, readings.height
    (['household', 'timestamp', 'kw'], 48)
    """
    n = validation.count(n_households=n_households)
    days = validation.count(days=days)
    step = validation.count(step_minutes=step_minutes)
    seed = validation.count(at_least=0, seed=seed)
    numbers = range(validation.count(at_least=0, first=first), first + n)
    if step % FINE or 1440 % step:
        raise InputError(f"step_minutes must be a multiple of {FINE} that divides a day")
    try:
        begin = datetime.fromisoformat(start)
    except (TypeError, ValueError) as error:
        raise InputError("start must be ISO text such as '2024-01-01'") from error
    begin = begin.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    calendar = _draw_calendar(begin, days, seed)
    kw = np.empty((n, days * 1440 // step))
    for row, i in enumerate(numbers):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1, i)))
        kw[row] = _metered_power(rng, _household_load(rng, calendar), step)
    stamps = pl.datetime_range(
        begin, begin + timedelta(days=days), timedelta(minutes=step), closed="left", eager=True, time_unit="us"
    )
    return pl.DataFrame(
        {
            "household": pl.Series([f"H{i:04d}" for i in numbers]).gather(np.repeat(np.arange(n), len(stamps))),
            "timestamp": stamps.gather(np.tile(np.arange(len(stamps)), n)),
            "kw": kw.ravel(),
        }
    )


@dataclass(frozen=True)
class _Calendar:
    """Days and weather, which all households share."""

    days: int
    hour: FloatArray  #: (points,) hour of the day
    weekend: Any  #: (days,) whether Saturday or Sunday
    cold: FloatArray  #: (points,) need for heating, about 1 on average


def _draw_calendar(first: datetime, days: int, seed: int) -> _Calendar:
    """Draw the weather of so many days."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    hour = np.tile(np.arange(PER_DAY) * FINE / 60, days)
    weekend = (first.weekday() + np.arange(days)) % 7 >= 5
    daily = _smooth_path(rng, days + 1, 0.85)
    between = np.interp(np.arange(days * PER_DAY) / PER_DAY, np.arange(days + 1), daily)
    cold = np.maximum(1 + 0.28 * between + 0.18 * np.cos(2 * np.pi * (hour - 5) / 24), 0.15)
    return _Calendar(days, hour, weekend, cold)


def _smooth_path(rng: np.random.Generator, n: int, memory: float) -> FloatArray:
    """(n,) a stationary AR(1) path of unit variance, whose neighbors have the correlation ``memory``."""
    from scipy.signal import lfilter

    shocks = rng.standard_normal(n) * np.sqrt(1 - memory**2)
    shocks[0] = rng.standard_normal()
    return np.asarray(lfilter([1.0], [1.0, -memory], shocks))


def _household_load(rng: np.random.Generator, cal: _Calendar) -> FloatArray:
    """(points,) power of a household in kW, every :data:`FINE` minutes."""
    size, heat = draw_size_and_heating(rng)
    home, awake = _draw_occupancy(rng, cal)
    load = (
        _standby_load(rng, cal, size)
        + _lights_and_electronics(rng, cal, size, home * awake)
        + _appliance_load(rng, cal, size, home)
    )
    if heat == "heat pump":
        load += _heat_pump_load(rng, cal, size)
    if heat == "storage":
        load += _night_storage_load(
            rng, cal, power=rng.lognormal(1.75, 0.40) * size, hours=rng.uniform(4, 7.5), weather=1.0
        )
    if heat in ("boiler", "storage") or (heat == "heat pump" and rng.random() < 0.45):
        load += _night_storage_load(rng, cal, power=rng.uniform(2.0, 4.5), hours=rng.uniform(1.2, 3.5), weather=0.1)
    return load


def draw_size_and_heating(rng: np.random.Generator) -> tuple[float, str]:
    """Draw the size of a household and its main electric heat."""
    return float(rng.lognormal(0.3, 0.5)), str(rng.choice(list(MIX), p=list(MIX.values())))


def _draw_occupancy(rng: np.random.Generator, cal: _Calendar) -> tuple[FloatArray, FloatArray]:
    """(points,) whether someone is at home, and whether someone is awake, 0 or 1."""
    stays = rng.random() < 0.45  # somebody is at home on workdays as well
    jitter = rng.standard_normal((5, cal.days))
    wake = rng.normal(6.6, 0.5) + 0.3 * jitter[0] + np.where(cal.weekend, rng.uniform(0.5, 2.0), 0)
    sleep = rng.normal(22.8, 0.6) + 0.5 * jitter[1]
    leave = wake + rng.uniform(0.7, 1.6) + 0.2 * jitter[2]
    back = rng.normal(17.4, 1.0) + 0.7 * jitter[3]
    out = np.where(cal.weekend, rng.random(cal.days) < 0.35, (rng.random(cal.days) < 0.9) & (not stays))
    out_from = np.where(cal.weekend, 13 + jitter[4], leave)
    hour = cal.hour.reshape(cal.days, PER_DAY)
    awake = (hour >= wake[:, None]) & (hour < sleep[:, None])
    away = out[:, None] & (hour >= out_from[:, None]) & (hour < back[:, None])
    trip = rng.random(cal.days) < 0.012  # whole days away, a few in a row
    trip = np.convolve(trip, np.ones(3), "full")[: cal.days] > 0
    home = ~away & ~trip[:, None]
    return home.ravel().astype(np.float64), awake.ravel().astype(np.float64)


def _standby_load(rng: np.random.Generator, cal: _Calendar, size: float) -> FloatArray:
    """(points,) kW of standby and of a compressor that switches on and off."""
    standby = rng.lognormal(np.log(0.075), 0.75) * size
    drift = np.repeat(np.exp(0.08 * _smooth_path(rng, cal.days, 0.9)), PER_DAY)
    period, duty = rng.uniform(45, 110) / FINE, rng.uniform(0.3, 0.5)
    steps = 1 / (period * np.exp(0.1 * rng.standard_normal(len(cal.hour))))
    fridge = ((rng.random() + np.cumsum(steps)) % 1 < duty) * rng.uniform(0.06, 0.16)
    return np.asarray(standby * drift + fridge)


def _lights_and_electronics(rng: np.random.Generator, cal: _Calendar, size: float, present: FloatArray) -> FloatArray:
    """(points,) kW of lights and electronics: more in the dark, with slow swings."""
    dark = np.where((cal.hour > 16.5) | (cal.hour < 8), 1.0, 0.45)
    level = rng.lognormal(np.log(0.22), 0.5) * size
    return np.asarray(level * dark * present * np.exp(0.45 * _smooth_path(rng, len(cal.hour), 0.97)))


def _appliance_load(rng: np.random.Generator, cal: _Calendar, size: float, home: FloatArray) -> FloatArray:
    """(points,) kW of cooking at set hours, washing and drying now and then, short kettles: rectangles of power."""
    load = np.zeros(len(cal.hour))
    lunch, dinner = rng.normal(11.7, 0.3), rng.normal(18.4, 0.5)
    # (hour, spread of the hour, chance per day, minutes, kW)
    kinds = (
        (7.0, 0.5, 0.7, 12, 1.2),
        (lunch, 0.35, rng.uniform(0.3, 0.9), 30, 2.2),
        (dinner, 0.45, rng.uniform(0.6, 0.95), 40, 2.4),
        (20.0, 1.5, 0.4, 75, 0.9),
        (10.0, 2.0, rng.uniform(0.1, 0.5), 60, 1.8),
        (13.5, 2.5, rng.uniform(0.05, 0.3), 75, 1.9),
        (15.0, 4.0, 0.9, 10, 2.0),
        (19.5, 1.5, 0.6, 10, 1.6),
    )
    for hour, spread, chance, minutes, power in kinds:
        happens = rng.random(cal.days) < chance * np.where(cal.weekend, 1.15, 1.0)
        begin = hour + spread * rng.standard_normal(cal.days)
        length = np.maximum(np.round(minutes / FINE * rng.lognormal(0, 0.35, cal.days)), 1).astype(int)
        height = power * rng.lognormal(0, 0.3, cal.days) * size**0.5
        at = np.arange(cal.days) * PER_DAY + np.round(np.clip(begin, 0, 23.9) * PER_DAY / 24).astype(int)
        for day in np.flatnonzero(happens):
            if home[at[day]]:
                load[at[day] : at[day] + length[day]] += height[day]
    return load


def _heat_pump_load(rng: np.random.Generator, cal: _Calendar, size: float) -> FloatArray:
    """(points,) kW of a heat pump: on longer the colder it is, in some homes with a setback or blocked hours."""
    power = rng.lognormal(np.log(3.0), 0.45) * size**0.7
    share = rng.uniform(0.15, 0.60)
    night, noon = rng.uniform(0.2, 2.6), rng.uniform(0.2, 1.4)
    hour = cal.hour
    wanted = share * cal.cold * np.where((hour < 6) | (hour >= 22), night, 1.0)
    wanted *= np.where((hour >= 10) & (hour < 17), noon, 1.0)
    if rng.random() < 0.5:  # hours the grid operator blocks
        block = rng.choice([11.0, 12.0, 17.0, 17.5])
        wanted = np.where((hour >= block) & (hour < block + 1), 0.0, wanted)
    duty = np.clip(wanted, 0, 0.97)
    if rng.random() < 0.25:  # inverter: modulates instead of switching
        return np.asarray(power * duty * np.exp(0.25 * _smooth_path(rng, len(hour), 0.93)))
    period = rng.lognormal(np.log(56), 0.42) / FINE
    steps = np.exp(0.35 * np.repeat(rng.standard_normal(len(hour) // 12 + 1), 12)[: len(hour)]) / period
    phase = (rng.random() + np.cumsum(steps)) % 1
    return np.asarray(power * (phase < duty) * (1 + 0.05 * rng.standard_normal(len(hour))).clip(0.5))


def _night_storage_load(
    rng: np.random.Generator, cal: _Calendar, *, power: float, hours: float, weather: float
) -> FloatArray:
    """(points,) kW of a storage load that is released at a set time every night until it is full."""
    begin = rng.choice([21.5, 22.0, 22.5, 23.0, 24.0, 25.0, 26.0, 27.0])
    cold = cal.cold.reshape(cal.days, PER_DAY).mean(axis=1)
    need = 0.35 * _smooth_path(rng, cal.days, 0.85)
    length = hours * (1 + weather * (cold - 1)) * np.exp(need)
    late = begin + rng.uniform(0.05, 0.7) * _smooth_path(rng, cal.days, 0.9)
    holds = rng.uniform(0.45, 1.0)  # thermostats interrupt the charge in some homes
    load = np.zeros((cal.days + 2) * PER_DAY)
    for day in range(-1, cal.days):
        at = (day + 1) * PER_DAY + int(late[max(day, 0)] * PER_DAY / 24)
        full = max(int(length[max(day, 0)] * PER_DAY / 24), 1)
        on = np.repeat(rng.random(full // 3 + 1) < holds, 3)[:full]
        part = load[at : at + full]  # a very long charge may outlast the simulated days
        part += power * on[: len(part)]
    return load[PER_DAY : PER_DAY * (cal.days + 1)]


def _metered_power(rng: np.random.Generator, fine: FloatArray, step: int) -> FloatArray:
    """Mean kW per interval from the differences of an energy register that counts whole steps."""
    register = rng.choice(list(REGISTERS), p=list(REGISTERS.values()))
    energy = np.concatenate([[rng.random() * register], fine * (FINE / 60)]).cumsum()[:: step // FINE]
    counts = np.diff(np.floor(energy / register))
    return np.asarray(counts * register * (60 / step))
