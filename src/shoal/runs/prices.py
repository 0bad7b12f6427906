"""What hiding costs on the data of a run: error of a crowd's curve against the size of crowds and of the population."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.laws.crowds import crowds, means
from shoal.validation import FloatArray

#: Crowds and shares of the population that are tried.
SIZES = (2, 3, 5, 7, 10, 15, 20, 30, 50)
SHARES = (0.125, 0.25, 0.5, 1.0)
#: Share of later readings from which on errors are taken against them.
KNOWN = 0.5

Line = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Prices:
    """Error of releasing the crowd's mean to everybody in it, each as (number, error).

    With ``metered`` it is by how much the mean absolute error against what came later exceeds that of the unprotected
    forecasts, as a share of it; else the root mean square of what is released minus the forecast, as a share of the
    mean forecast.
    """

    metered: bool
    crowd: int
    by_crowd: Line
    by_population: Line


def prices(forecasts: FloatArray, later: FloatArray, crowd: int, seed: int = 0) -> Prices:
    """From (n, k) forecasts and what came later, NaN where that is not known; crowds are formed by the forecasts."""
    known = np.isfinite(later)
    metered = bool(known.mean() >= KNOWN)

    def error(rows: np.ndarray[tuple[int], np.dtype[np.intp]], size: int) -> float:
        answers, truth, there = forecasts[rows], later[rows], known[rows]
        member = crowds(answers, size)
        released = means(answers, member)[member]
        if metered:
            return float(np.abs(released - truth)[there].mean() / np.abs(answers - truth)[there].mean()) - 1.0
        return float(np.sqrt(((released - answers) ** 2).mean()) / answers.mean())

    everybody = np.arange(len(forecasts))
    order = np.random.default_rng(seed).permutation(len(forecasts))
    populations = sorted({round(share * len(forecasts)) for share in SHARES})
    return Prices(
        metered,
        crowd,
        tuple((float(m), error(everybody, m)) for m in sorted({*SIZES, crowd}) if 2 * m <= len(forecasts)),
        tuple((float(n), error(order[:n], crowd)) for n in populations if n >= 2 * crowd),
    )
