"""What is said about a release under the readings' promise: :mod:`shoal.card.statements` makes statements of it.

All of it is a function of the public settings, so that it may leave with the table: the number of homes that sent
readings, whom was left out, errors against what came later and names are the owner's, and are not known here.
"""

from __future__ import annotations

import math
from typing import Any

from shoal.card.digits import counted, many, percent, upper
from shoal.card.promise import factor
from shoal.readings.plan import CrowdsPlan, noisy_crowds_plan
from shoal.readings.publication import PublicSettings

KIND = "noise under the readings' promise (differential privacy)"


def readings_sentences(settings: PublicSettings) -> dict[str, list[str]]:
    """Everything that may be published about such a release, by key: hidden, guarantee, cost, technique, limits."""
    plan, series, noun = settings.plan, settings.series, settings.noun
    zero_out, replaced = series.deltas(plan.account)
    whole = "this table" if series.releases == 1 else f"the whole series of at most {series.releases} such tables"
    words = (
        f"Whatever somebody concludes from {whole} is at most {factor(series.epsilon)} times as likely as it would be "
        f"had any one {noun} sent no readings at all, plus {_chance(zero_out)} (ε = {series.epsilon:g}, δ = "
        f"{upper(zero_out)})."
    )
    guarantee = [
        words,
        f"Had a {noun}'s readings been any others instead: the same with δ = {upper(replaced)}.",
        f"It holds for a {noun} behind one meter; one behind several that were not joined counts several times.",
    ]
    if series.releases > 1:
        guarantee.append(
            f"The figures are those of the series' cap, M = {upper(series.cap)}, which was fixed before its first "
            f"release; this one has μ = {upper(plan.mu)}."
        )
    declared = f"{counted(plan.customers, 'customer')} on the register, declared before anything was read"
    if isinstance(plan, CrowdsPlan):
        load = plan.account.sigma * plan.load_clip / plan.load_weight
        cost = [
            f"Expected before anything was read: curves off by about {percent(plan.expected_w1)} of the mean load, the "
            f"total by about {percent(plan.expected_total)}.",
            f"Who knows all other {many(noun)}' readings can tell the mean load of the last one to about ±{load:.2g} "
            f"kW, beside a typical {plan.typical_kw:g} kW.",
        ]
        way = "one private mean times public curves" if plan.method == "mean" else "a noisy histogram of curves"
        technique = [
            f"Weighted curves, counts and the total: {way}, noise in every sum; {declared}.",
            "Public curves are derived from London homes (UK Power Networks, Low Carbon London, CC BY 4.0).",
        ]
        covers = "The promise covers the table of curves, counts and total"
    else:
        count = plan.account.sigma / plan.count_weight
        cost = [
            f"A count is off by about {count:.2g}, a column's sum by {_column_error(plan):.2g} times half its range."
        ]
        technique = [f"A noisy count and mean per cell, within declared bounds; {declared}."]
        covers = "The promise covers the table of counts and means"
    limits = [
        f"{covers} only. A row for one {noun}, given to anybody but the {noun} itself, is outside of it.",
        f"What holds for all {many(noun)} together may be learned: that is its use.",
    ]
    if settings.forecasts:
        technique.append(settings.forecasts)
    return {
        "hidden": [f"{protects(noun)} {words}"],
        "guarantee": guarantee,
        "cost": cost,
        "technique": technique,
        "limits": limits,
    }


def protects(noun: str) -> str:
    """What is protected, in a sentence."""
    return f"This table protects every {noun}'s readings, against whoever knows all others."


def would_protect(customers: int, noun: str = "home") -> str:
    """For the summary of a label's release: what the other secret would protect, and what it would cost."""
    plan = noisy_crowds_plan(customers=max(customers, 2), epsilon=1.0)
    return (
        f"`--secret readings` would protect every {noun}'s readings, against whoever knows all others; with "
        f"{counted(plan.customers, 'customer')} and an epsilon of 1 its curves would be off by about "
        f"{percent(plan.expected_w1)} of the mean load, its total by {percent(plan.expected_total)}."
    )


def _chance(delta: float) -> str:
    """δ as a chance, rounded to the safe side."""
    return f"a chance of 1 in {math.floor(1 / delta):,}" if delta < 0.5 else f"{upper(delta)}"


def _column_error(plan: Any) -> float:
    return float(plan.account.sigma / plan.value_weight)


def readings_content(settings: PublicSettings) -> dict[str, Any]:
    """The figures for machines."""
    plan, series = settings.plan, settings.series
    zero_out, replaced = series.deltas(plan.account)
    return {
        "technique": KIND,
        "period": settings.period,
        "customers": plan.customers,
        "epsilon": series.epsilon,
        "delta": zero_out,
        "delta_replaced": replaced,
        "releases": series.releases,
        "cap": series.cap,
        "mu": plan.mu,
        "expected_w1": getattr(plan, "expected_w1", None),
        "expected_total": getattr(plan, "expected_total", None),
    }
