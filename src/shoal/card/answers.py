"""What was asked and what was released, label by label, and how far apart the two are at each entry."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from shoal.card.card import SHOWN_DIGITS, ReleaseCard
from shoal.card.digits import DIGITS, counted, many, nearest, plain, up, upper
from shoal.card.exhibits import Exhibits
from shoal.card.facts import CROWD
from shoal.card.measures import OWN
from shoal.card.section import Point, Section, axis, lines, series
from shoal.card.summary import short_unit
from shoal.card.tiles import ratios
from shoal.mechanism.mechanism import Mechanism
from shoal.validation import FloatArray

#: Labels to choose from.
SHOWN = 40


def answers(card: ReleaseCard, shown: Exhibits) -> Section:
    """True and released answers of several labels."""
    noun = card.fit.noun
    says = list(shown.says)
    if card.meaningful and card.design.all_alike:
        says.append(
            f"The {many(noun)} of a group get the same answer up to a trace of noise: what is released is the group's."
        )
    if shown.scope:
        says.append(f"Shown are {many(noun)} of {shown.scope}.")
    missing = "" if shown.traces else "No answers were handed over."
    return Section("answers", shown.heading, tuple(says), shown.traces, pick=noun.capitalize(), missing=missing)


def plain_exhibits(mechanism: Mechanism, released: FloatArray, noun: str) -> Exhibits:
    """Answers in their own unit, each beside the mean of its label's law."""
    entries = np.arange(1, released.shape[1] + 1)
    traces = tuple(
        lines(
            mechanism.classes.labels[i],
            axis("entry of the answer"),
            axis("answer, in its own unit"),
            [
                series("expected answer", points(entries, mechanism.classes.means[i]), color=1),
                series("released", points(entries, released[i]), color=0, thick=True),
            ],
        )
        for i in chosen(mechanism)
    )
    says = (
        f"What was released about {len(traces)} of {counted(len(released), noun)}, beside the mean of each one's law.",
        "Hand over forecasts= to see answers in the unit in which they are used.",
    )
    return Exhibits(mechanism=mechanism, says=says, traces=traces)


def chosen(mechanism: Mechanism) -> list[int]:
    """Labels to show: the worst edge's two first, then labels spread evenly over the list."""
    labels = mechanism.classes.labels
    place = {name: i for i, name in enumerate(labels)}
    worst = [place[name] for name in mechanism.certificate.worst_edge if name in place]
    evenly = np.unique(np.linspace(0, len(labels) - 1, min(SHOWN, len(labels))).round().astype(int))
    return list(dict.fromkeys([*worst, *evenly.tolist()]))[:SHOWN]


def accuracy(card: ReleaseCard, shown: Exhibits | None) -> Section:
    """Expected error of the release per entry, with its bias, and the errors against what came."""
    found = card.design.accuracy
    unit = short_unit(found.unit)
    steps, entry = np.arange(1, len(found.squares) + 1), card.fit.entry
    digits = SHOWN_DIGITS if shown is None else DIGITS  # a page for everybody says what the card says
    biases = [math.nan if not math.isfinite(bias) else float(nearest(bias, digits)) for bias in found.bias_by_entry]
    drawn = [
        series(
            "error that privacy adds",
            [(float(x), up(y, digits), upper(y, digits)) for x, y in zip(steps, found.rmse_by_entry, strict=True)],
            color=0,
            thick=True,
        ),
        series("its bias", points(steps, np.array(biases)), color=3, dash=True),
    ]
    where = "own unit" if found.unit == OWN else f"in {found.unit}"
    heading, public, noun = "What it costs in accuracy", shown is None, card.fit.noun
    if public and not card.tells_errors:
        return Section("accuracy", heading, missing=f"Errors are told of {CROWD} {many(noun)} or more.")
    over = f"Over all {many(entry)}: {upper(found.rmse, digits)}{unit}"
    if not public or card.tells_worst:
        over += (
            f"; for the worst {noun} {upper(found.rmse_largest, digits)}{unit}. Budget spent: ρ = "
            f"{upper(found.rho_largest, digits)} per entry at most" + (", in squared log units" if found.ratio else "")
        )
    if found.answer_mean is not None:
        over += f". Answers average {nearest(found.answer_mean, min(digits, 3))}{unit}"
    says = [
        f"Error that the mechanism adds at each {entry}, over all {many(noun)} ({where}): root mean square, "
        "expected, and the part of it that always points the same way (bias).",
        f"{over}.",
    ]
    if found.ratio and (not public or (card.design.by_step and found.noise_alone)):
        low, high = ratios(found)
        says.append(
            f"For every label and step, at least {found.coverage:.0%} of released values lie between {low} "
            f"and {high} times the true one."
        )
    before, after = card.later_errors
    if before is not None and after is not None:
        says.append(
            f"Against what came later, over all of it: mean absolute error {upper(after, digits)}{unit} as released, "
            f"{nearest(before, min(digits, 3))}{unit} without protection."
        )
    if shown is not None and shown.later:
        drawn += [series(name, points(steps, error), color=1 + i) for i, (name, error) in enumerate(shown.later)]
        says.append(
            "Measured on this one release: root mean square errors against what came later"
            + (f", of {shown.scope}." if shown.scope else ".")
        )
    plots: tuple[dict[str, Any], ...] = (lines(f"Error by {entry}", axis(entry), axis(unit.strip()), drawn),)
    if public and not card.design.by_step:
        says[0], plots = f"Errors by {entry} are told only where every {noun} is one of {CROWD} or more.", ()
    return Section("accuracy", heading, tuple(says), plots)


def points(x: Iterable[Any], y: Iterable[Any]) -> list[Point]:
    """Points of a line without a safe side; a gap where there is no number."""
    return [(round(float(a), 6), plain(b), nearest(plain(b))) for a, b in zip(x, y, strict=True)]
