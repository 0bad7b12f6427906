"""What was asked and what was released, label by label, and how far apart the two are at each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.classes import GaussianClasses
from shoal.mechanism import Mechanism
from shoal.report.figures import many, nearest, plain, stated
from shoal.report.section import Point, Section, axis, lines, series
from shoal.report.words import ratios
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.meters.forecast import Forecasts

#: Labels to choose from.
SHOWN = 40
#: Largest standard deviation of a released entry, in log power, that counts as a trace of noise.
ALIKE = 1e-2
#: Coverage of the band around a forecast.
LEVEL = 0.9


def homes(
    mechanism: Mechanism,
    card: Mapping[str, Any],
    released: FloatArray,
    forecasts: Forecasts | None,
    truth: FloatArray | None,
) -> Section:
    """Past day, later readings, forecast and released forecast of several homes; without forecasts, answers."""
    unit = card["guarantee"]["privacy_unit"]
    chosen = _chosen(mechanism)
    if forecasts is None:
        plots = [
            lines(
                mechanism.classes.labels[i],
                axis("entry of the answer"),
                axis("answer, in its own unit"),
                [
                    series("expected answer", _points(np.arange(1, released.shape[1] + 1), mechanism.classes.means[i]),
                           color=1),
                    series("released", _points(np.arange(1, released.shape[1] + 1), released[i]), color=0, thick=True),
                ],
            )
            for i in chosen
        ]  # fmt: skip
        says = [
            f"What was released about {len(plots)} of {len(released)} {many(unit)}, beside the mean of each one's law.",
            "Hand over forecasts= to see power in kW.",
        ]
        return Section("homes", "Released answers", tuple(says), tuple(plots), pick=unit.capitalize())
    plots = [_home(i, mechanism.classes.labels[i], released, forecasts, truth) for i in chosen]
    says = [
        f"The next {forecasts.horizon} steps of {len(plots)} of {len(released)} {many(unit)}, "
        f"from {forecasts.origin:%Y-%m-%d %H:%M} on. What is given out is the released line; the others stay here. "
        "The hours after now are drawn wider than those before; the shaded band holds what comes with "
        f"{LEVEL:.0%} probability, says the model."
    ]
    if card["guarantee"]["meaningful"] and all_alike(mechanism.output):
        says.append(
            f"The {many(unit)} of a group get the same figures up to a trace of noise: what is released is the group's "
            "forecast."
        )
    if truth is None:
        says.append("What came later is not known yet: hand over truth=, in kW, to see it.")
    if getattr(forecasts, "recent", None) is None:
        says.append("These forecasts came without the readings of the past day.")
    return Section("homes", "Forecasts, true and released", tuple(says), tuple(plots), pick=unit.capitalize())


def all_alike(output: GaussianClasses) -> bool:
    """Whether noise is small beside the common answer: with a guarantee, a release is then a group's, not a label's."""
    return bool(np.sqrt(np.maximum(output.stored_variances, 0.0)).max() < ALIKE)


def _chosen(mechanism: Mechanism) -> list[int]:
    """The worst edge's two labels first, then labels spread evenly over the list."""
    labels = mechanism.classes.labels
    place = {name: i for i, name in enumerate(labels)}
    worst = [place[name] for name in mechanism.certificate.worst_edge if name in place]
    evenly = np.unique(np.linspace(0, len(labels) - 1, min(SHOWN, len(labels))).round().astype(int))
    return list(dict.fromkeys([*worst, *evenly.tolist()]))[:SHOWN]


def _home(i: int, name: str, released: FloatArray, forecasts: Forecasts, truth: FloatArray | None) -> dict[str, Any]:
    hours = forecasts.step.total_seconds() / 3600
    ahead = hours * np.arange(forecasts.horizon)
    low, high = forecasts.interval(LEVEL)
    drawn = []
    recent = getattr(forecasts, "recent", None)
    if recent is not None:
        before = hours * np.arange(-recent.shape[1], 0)
        drawn.append(series("past day", _points(before, recent[i]), color=7))
    band = [[float(x), plain(a), plain(b)] for x, a, b in zip(ahead, low[i], high[i], strict=True)]
    drawn.append(series("forecast", _points(ahead, forecasts.power[i]), color=1, band=band))
    if truth is not None:
        drawn.append(series("what came", _points(ahead, truth[i]), color=2, dash=True))
    drawn.append(series("released", _points(ahead, forecasts.to_power(released[i])), color=0, thick=True))
    x = axis("hours from the forecast's origin", "split", share=0.45)
    return lines(name, x, axis("kW", least=0.0), drawn, marks=[[0.0, "now"]])


def accuracy(
    card: Mapping[str, Any], released: FloatArray | None, forecasts: Forecasts | None, truth: FloatArray | None
) -> Section:
    """Expected error of the release per step, with its bias, and the errors against what came."""
    found = card["accuracy"]
    unit, power = found["unit"], "ratio_interval" in found
    steps = np.arange(1, len(found["rmse_by_step"]) + 1)
    drawn = [
        series("error that privacy adds", _stated(steps, found["rmse_by_step"]), color=0, thick=True),
        series("its bias", _points(steps, found["bias_by_step"]), color=3, dash=True),
    ]
    says = [
        f"Error that the mechanism adds at each step, over all labels ({'in ' + unit if power else 'own unit'}): "
        "root mean square, expected, and the part of it that always points the same way (bias).",
        f"Over all steps: {stated(found['rmse'])} {_short(unit)}; for the worst label "
        f"{stated(found['rmse_worst_label'])} {_short(unit)}. Budget spent: "
        f"ρ = {stated(found['rho_largest'])} per entry at most" + (", in squared log power." if unit == "kW" else "."),
    ]
    if power:
        low, high = ratios(found)
        says.append(
            f"For every label and step, at least {found['coverage']:.0%} of released values lie between {low} "
            f"and {high} times the true one."
        )
    if truth is not None and forecasts is not None and released is not None:
        drawn.append(series("forecast against what came", _rms(steps, forecasts.power - truth), color=1))
        off = forecasts.to_power(released) - truth
        drawn.append(series("released against what came", _rms(steps, off), color=2))
        says.append(
            "Measured on this one release: the error of the forecast, and of what was released, against later readings."
        )
    plot = lines("Error by step", axis("step ahead" if power else "entry"), axis(_short(unit)), drawn)
    return Section("accuracy", "What it costs in accuracy", tuple(says), (plot,))


def _short(unit: str) -> str:
    return unit if len(unit) <= 6 else ""


def _points(x: Any, y: Any) -> list[Point]:
    return [(round(float(a), 6), plain(b), nearest(plain(b))) for a, b in zip(x, y, strict=True)]


def _stated(x: Any, y: Any) -> list[Point]:
    return [(float(a), plain(b), stated(b)) for a, b in zip(x, y, strict=True)]


def _rms(steps: Any, error: FloatArray) -> list[Point]:
    """Root mean square over the labels whose later reading is known."""
    seen = np.isfinite(error)
    square = np.where(seen, error, 0.0) ** 2
    known = seen.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _points(steps, np.sqrt(square.sum(axis=0) / known))
