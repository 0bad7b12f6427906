"""The last stage: the page for the data owner. What it says of everyone comes from the card.

Pairs, other designs and single forecasts are shown of the groups that are hardest to hide in: those of the shard with
the worst edge, that edge's own first, up to :data:`LABELS` households. The work does not grow with the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.card.card import ReleaseCard
from shoal.card.digits import nearest
from shoal.card.facts import AuditFacts, DesignFacts, FitFacts, Record, ReleaseFacts
from shoal.card.page import write_page
from shoal.card.section import axis, lines, series
from shoal.designs.design import Frontier, design, frontier, perfect_rho
from shoal.designs.methods import METHODS
from shoal.errors import InputError, ShoalError
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.clip import moved_delta
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.reader import Releaser, load
from shoal.runs.config import Config
from shoal.runs.context import DESIGN, RELEASE, Context, Made
from shoal.runs.fitted import Fitted, fitted
from shoal.runs.prices import prices
from shoal.runs.stages.design_stage import hardest
from shoal.runs.stages.release_stage import Shown
from shoal.runs.store import Part
from shoal.validation import FloatArray

SETTINGS = ("title", "query", "scale", "epsilon", "seed", "public")
DOING = "writing the report"
REPORT, PUBLIC = "report.html", "public/report.html"
#: Households whose pairs and forecasts a page shows, at least one group; accounts that it lists; entries of a ledger up
#: to which it is verified for the page.
LABELS, ACCOUNTS, ENTRIES = 60, 20, 50_000
#: Budgets of the frontier, as shares of the price of perfection, and steps of the search for each.
SHARES, STEPS = (0.1, 0.25, 0.5, 0.8, 1.0 + 1e-7), 3
#: ε of one answer, and crowds, that errors at equal ε are shown for.
EPSILONS, CROWDS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0), 4


@dataclass(frozen=True)
class ReportFacts(Record):
    """How many households the page shows one by one, and whether the ledger is intact (None: too long to look)."""

    shown: int
    ledger_intact: bool | None


def stage(
    context: Context,
    facts: tuple[FitFacts, DesignFacts, ReleaseFacts, AuditFacts],
    timings: Mapping[str, float],
    made: str = "",
) -> Made:
    """Write the page, with other designs beside the one that was used; and, if wanted, the one to pass on."""
    config = context.config
    through, made_for, given = _hardest(context)
    mechanism, answers, released, groups = _shown(through, made_for, given, config)
    context.tell(DOING, 1, 4)
    compared: dict[str, Mechanism] = {}
    line = None
    cost: dict[str, Any] = {}
    # What cannot be designed or priced here is not shown: the release stands without it.
    with suppress(ShoalError):
        cost = _price(made_for, config)
    if isinstance(mechanism, Mechanism):
        for method in ("none", "white", "paper"):
            if method != mechanism.method and mechanism.rho.mean() > 0:
                with suppress(ShoalError):
                    other = design(
                        mechanism.classes,
                        mechanism.graph,
                        method,
                        config.epsilon,
                        float(mechanism.rho.mean()),
                        scope=mechanism.scope,
                        times=mechanism.times,
                    )
                    compared[method] = replace(other, outside=mechanism.outside)
        context.tell(DOING, 2, 4)
        # Constants move to their group's curve or stay apart: errors at equal ε say more than δ at equal errors.
        if not (cost and facts[1].all_alike):
            with suppress(ShoalError):
                line = _frontier(context, mechanism, answers)
    context.tell(DOING, 3, 4)
    verification = None
    with context.ledger() as ledger:
        overview = ledger.overview(exact=ACCOUNTS)
        if overview.entries <= ENTRIES:
            verification = ledger.verify()
    total = facts[1].groups
    shown = replace(
        answers.exhibits(_laws_alone(mechanism, answers), released),
        alternatives=compared,
        frontier=line,
        accounts=overview.worst,
        n_accounts=overview.labels,
        verification=verification,
        timings=dict(timings),
        **cost,
        mechanism=mechanism if isinstance(mechanism, Mechanism) else None,
        scope="" if groups == total else f"the {groups} of {total} groups that are hardest to hide in",
    )
    card = ReleaseCard.of(*facts)
    context.folder.write(REPORT, lambda path: write_page(path, card, shown, title=config.title, made=made))
    if config.public:
        context.folder.write(PUBLIC, lambda path: write_page(path, card, title=config.title, made=made))
    intact = None if verification is None else bool(verification.ok)
    written = (REPORT, PUBLIC) if config.public else (REPORT,)
    return Made(written, ReportFacts(len(answers.labels), intact))


def _price(forecasts: Part, config: Config) -> dict[str, Any]:
    """Error of crowds' curves on this shard's households, by size of crowd and of population."""
    known = fitted(forecasts.path, config.query, config.answers).priced()
    if known is None:
        return {}
    power, truth = known
    found = prices(power, truth, config.crowd, config.seed)
    what = "more error than without protection, %" if found.metered else "error, % of the mean forecast"
    plots = []
    for name, line, x in (
        ("By size of the crowd", found.by_crowd, "members of a crowd, at least"),
        (f"By population, crowds of {found.crowd}", found.by_population, "households"),
    ):
        if len(line) > 1:
            points = [(a, 100 * b, nearest(100 * b)) for a, b in line]
            plots.append(
                lines(name, axis(x, "log"), axis(what), [series("the crowd's curve", points, color=0, dots=True)])
            )
    said = "against what was metered later" if found.metered else "against the forecast it stands for"
    return {
        "price": tuple(plots),
        "price_says": (
            f"Everybody gets the curve of a crowd: its error {said}, for crowds formed by these forecasts from the "
            f"{len(power)} households of one shard. Small crowds and large populations cost least; this "
            f"release has crowds of at least {config.crowd}.",
        ),
    }


def _laws_alone(mechanism: Releaser, answers: Fitted) -> Mechanism:
    """A mechanism of the labels on the page that names them: of a codebook, the answers as they are."""
    if isinstance(mechanism, Mechanism):
        return mechanism
    group_of = dict(zip(mechanism.graph.labels, mechanism.graph.components.tolist(), strict=True))
    names = answers.labels
    graph = NeighborGraph.within_groups(names, [group_of[name] for name in names])
    return design(answers.laws(), graph, "none", mechanism.epsilon, 1.0)


def _hardest(context: Context) -> tuple[Part, ...]:
    """Mechanism, forecasts and released answers of the undamaged shard with the largest δ that was released."""
    given = {part.told(Shown).mechanism: part for part in context.listing(RELEASE).parts}
    shards = [(part, made_of, given[part.key]) for part, made_of in context.listing(DESIGN).pairs if part.key in given]
    if not shards:
        raise InputError("dir: nothing was released that a page could show; run `shoal release` first")
    return hardest(shards)


def _shown(mechanism: Part, forecasts: Part, given: Part, config: Config) -> tuple[Releaser, Fitted, FloatArray, int]:
    """Mechanism, answers and what was released, of the groups on the page; how many these are."""
    whole, everyone = load(mechanism.path), fitted(forecasts.path, config.query, config.answers)
    place = set(everyone.labels)
    labels, component = whole.graph.labels, whole.graph.components
    first = 0 if whole.certificate is None else int(component[labels.index(whole.certificate.worst_edge[0])])
    members: list[str] = []
    groups = 0
    for one in [first, *(c for c in range(int(component.max()) + 1) if c != first)]:
        # In a run that goes on, a member may have no forecast today.
        group = [labels[i] for i in np.flatnonzero(component == one) if labels[i] in place]
        if members and len(members) + len(group) > LABELS:
            break
        if len(group) > 1 or not members:
            members, groups = members + group, groups + 1
    answers = everyone.take(members)
    released = answers.released(given.path)
    return whole if isinstance(whole, Codebook) else whole.part(members), answers, released, groups


def _frontier(context: Context, mechanism: Mechanism, answers: Fitted) -> Frontier:
    """δ against ρ of equal noise and of the method in use, by a short search where that searches."""
    config = context.config
    classes = answers.laws()
    price = perfect_rho(classes, mechanism.graph, METHODS[mechanism.method].price or "transport")
    budgets = [price * share for share in SHARES]
    found = frontier(
        classes,
        mechanism.graph,
        tuple(dict.fromkeys(("white", mechanism.method))),
        config.epsilon,
        budgets,
        seed=config.seed,
        scope=mechanism.scope,
        times=mechanism.times,
        iterations=STEPS,
    )
    moved = moved_delta(mechanism.outside, config.epsilon, mechanism.times, mechanism.scope)
    uppers = {name: np.minimum(deltas + moved, 1.0) for name, deltas in found.delta_upper.items()}
    return replace(found, delta_upper=uppers)
