"""How private the release is: δ(ε) of every design, δ against ρ, and δ across the edges of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.accounting import tails
from shoal.accounting.curve import BLOCK, brackets, exp_up
from shoal.accounting.releases import Releases
from shoal.card.card import ReleaseCard
from shoal.card.digits import many, plain, shorten, up, upper
from shoal.card.exhibits import Exhibits
from shoal.card.promise import HOLDERS
from shoal.card.section import Point, Section, axis, bars, heat, lines, series
from shoal.card.summary import any_law
from shoal.errors import CertificationError
from shoal.mechanism.mechanism import Ending, Mechanism
from shoal.numerics.threads import map_blocks
from shoal.validation import FloatArray

#: Method -> words for it.
METHODS = {
    "none": "no noise",
    "white": "equal noise",
    "paper": "the paper's noise",
    "covariance": "shaped noise",
    "additive": "shaped noise and shifts",
    "transport": "transport",
    "center": "towards the center",
    "mean": "the group's mean",
}
#: Method -> number of its color; 0 is the release's own.
COLORS = {"none": 6, "white": 1, "paper": 2, "covariance": 3, "additive": 4, "transport": 5, "center": 7, "mean": 7}
#: Least δ that a logarithmic axis shows, unless the guarantee itself lies below.
FLOOR = 1e-12
#: Labels of a group up to which all its pairs are drawn; bars of a larger group; edges up to which all are computed.
PAIRED, BARS, MOST_EDGES = 18, 60, 50_000
#: Groups to choose from.
GROUPS = 40


def curves(card: ReleaseCard, shown: Exhibits | None) -> Section:
    """δ(ε) of the release, from its card, and of the other designs on the same grid of ε."""
    design = card.design
    method, grid = design.method, [epsilon for epsilon, _ in design.curve]
    own = [(epsilon, up(delta), upper(delta)) for epsilon, delta in design.curve]
    alternatives = {} if shown is None else shown.alternatives
    drawn = [series(f"{METHODS.get(method, method)} (this release)", own, color=0, thick=True, step=True)]
    for number, (name, mechanism) in enumerate(alternatives.items(), start=1):
        points = _curve(mechanism, grid)
        drawn.append(series(METHODS.get(name, name), points, color=COLORS.get(name, number % 8), step=True))
    plot = lines(
        "Privacy curve",
        axis("ε"),
        axis(
            "δ, at most",
            "log",
            floor=floor_of(design.delta),
            most=1.0,
            **({"least": FLOOR} if any(delta == 0 for _, delta in design.curve) else {}),
        ),
        drawn,
        marks=[[design.epsilon, f"designed for ε = {design.epsilon:g}"]],
    )
    says = [
        f"Each point is a promise for {HOLDERS[design.scope]}: at that ε, the worst pair of neighbors has at most that "
        "δ, and up to the next one at most as much. Lower is more private. Upper ends, with rounding and finite "
        "precision counted; an open triangle is a δ below the axis.",
        *any_law(design),
    ]
    if not alternatives and shown is not None and design.method in METHODS:
        says.append(
            "To see other methods beside this one, hand over alternatives={'white': shoal.design(..., method='white'), "
            "...}, designed at the same ρ."
        )
    elif alternatives:
        says.append("All designs spend the same error budget ρ, but for “no noise”, which spends none.")
        says += _of_scope(shown, "The other designs are")
        cut = [METHODS.get(name, name) for name, mechanism in alternatives.items() if _out_of_time(mechanism)]
        if cut:
            says.append(
                f"The time limit ended the search of {' and of '.join(cut)}: given longer, that line may come lower."
            )
    return Section("curves", "Privacy at every ε", tuple(says), (plot,))


def floor_of(delta: float) -> float:
    """Where a logarithmic axis that must show δ ends."""
    return FLOOR if delta <= 0 else max(min(FLOOR, 10.0 ** np.floor(np.log10(delta) - 1)), 1e-32)


def _curve(mechanism: Mechanism, grid: list[float]) -> list[Point]:
    try:
        found = mechanism.released_curve(np.array(grid)).delta_upper
    except CertificationError:
        found = np.ones(len(grid))  # what cannot be certified is not claimed
    return [(e, plain(d), upper(d)) for e, d in zip(grid, found, strict=True)]


def frontier_section(card: ReleaseCard, shown: Exhibits) -> Section:
    """δ against the error budget, per method, and the point that was chosen."""
    heading, frontier = "Privacy against accuracy", shown.frontier
    if frontier is None:
        return Section(
            "frontier",
            heading,
            missing="No frontier was computed. shoal.frontier(classes, graph, method=['white', 'transport'], "
            "epsilon=..., rho=[...]) designs at several error budgets; hand it over as frontier=.",
        )
    rho = [float(r) for r in frontier.rho]
    drawn = [
        series(
            METHODS.get(name, name),
            [(r, plain(d), upper(float(d))) for r, d in zip(rho, found, strict=True)],
            color=COLORS.get(name, number % 8),
            dots=True,
        )
        for number, (name, found) in enumerate(frontier.delta_upper.items(), start=1)
    ]
    chosen, delta = card.design.accuracy.rho_largest, card.design.delta
    drawn.append(series("this release", [(chosen, up(delta), upper(delta))], color=0, dots=True, large=True))
    spread = max(*rho, chosen) / min(r for r in [*rho, chosen] if r > 0)
    least = min([delta, *(float(d) for found in frontier.delta_upper.values() for d in found if d > 0)], default=1.0)
    plot = lines(
        "Frontier",
        axis("ρ, mean squared error per entry", "log" if spread > 20 else "linear"),
        axis("δ, at most", "log", floor=floor_of(max(least, 1e-30)), most=1.0),
        drawn,
    )
    says = [
        "What each method makes of an error budget ρ, at the budgets that were tried. A point further down hides "
        "better at the same error; the large one is this release, an open triangle a δ below the axis.",
        *_of_scope(shown, "The points are"),
    ]
    for name, designs in frontier.mechanisms.items():
        cut = sum(_out_of_time(mechanism) for mechanism in designs)
        if cut:
            says.append(
                f"This is a quick look: the time limit ended the search of {cut} of the {len(designs)} points of "
                f"“{METHODS.get(name, name)}”. Given the time that this release's own design had, they may come lower."
            )
    return Section("frontier", heading, tuple(says), (plot,))


def _out_of_time(mechanism: Mechanism) -> bool:
    return mechanism.ending is Ending.OUT_OF_TIME


def _of_scope(shown: Exhibits | None, what: str) -> list[str]:
    """That something is of a part of the release only."""
    return [f"{what} of {shown.scope}."] if shown is not None and shown.scope else []


def edges(shown: Exhibits, unit: str) -> Section:
    """Who is hardest to hide from whom: pairs of small groups, the worst pair of each label in large ones."""
    heading, mechanism = "Who is hardest to hide from whom", shown.mechanism
    if mechanism is None:
        return Section("edges", heading, missing="Pairs are computed from a mechanism; none was handed over.")
    graph = mechanism.graph
    if graph.n_edges > MOST_EDGES:
        return Section(
            "edges",
            heading,
            missing=f"The graph has {graph.n_edges} edges, more than the {MOST_EDGES} that are computed for this page. "
            "shoal.edge_deltas gives them all.",
        )
    pairs, delta = edge_deltas_upper(mechanism)
    place = {name: i for i, name in enumerate(graph.labels)}
    labels = mechanism.classes.labels
    group_of = np.asarray(graph.components)[[place[name] for name in labels]]
    sizes = np.bincount(group_of)
    worst = np.zeros(len(labels))
    np.maximum.at(worst, pairs[:, 0], delta.max(axis=1))
    np.maximum.at(worst, pairs[:, 1], delta.max(axis=1))
    order = np.argsort([-worst[group_of == g].max() for g in range(len(sizes))], kind="stable")
    plots = []
    for g in [g for g in order if sizes[g] > 1][:GROUPS]:
        members = np.flatnonzero(group_of == g)
        first, last = (shorten(labels[m]) for m in members[[0, -1]])
        title = f"{sizes[g]} {many(unit)}: {first} … {last}"
        if sizes[g] <= PAIRED:
            row_of = {int(m): i for i, m in enumerate(members)}
            cells = []
            for e in np.flatnonzero(group_of[pairs[:, 0]] == g):
                a, b = row_of[int(pairs[e, 0])], row_of[int(pairs[e, 1])]
                there, back = (float(value) for value in delta[e])
                cells += [(a, b, there, upper(there)), (b, a, back, upper(back))]
            columns = ("if it is", "rather than", "δ, at most")
            plots.append(heat(title, columns, [labels[m] for m in members], cells))
        else:
            ranked = members[np.argsort(-worst[members], kind="stable")][:BARS]
            rows = [{"name": labels[m], "value": float(worst[m]), "text": upper(worst[m])} for m in ranked]
            more = "" if len(ranked) == sizes[g] else f" (the {BARS} most exposed)"
            if worst[members].min() == worst[members].max():
                rows, more = [{**rows[0], "name": f"each of the {sizes[g]}"}], ""
            columns2 = (unit, "δ against its worst neighbor, at most")
            plots.append(bars(title + more, columns2, rows, scale="log", floor=floor_of(float(worst[ranked].min()))))
    alone = int((sizes == 1).sum())
    says = [
        (
            "δ of each pair of neighbors at the design's ε: by how much the probability of a conclusion from the whole "
            "table can exceed e^ε times what it is with the rows of the two exchanged."
            if mechanism.scope == "table"
            else "δ of each pair of neighbors at the design's ε, in both directions: by how much the probability of a "
            f"conclusion from one answer can exceed e^ε times what it is for the {unit} in the column, if the {unit} "
            "in the row is the true one."
        )
        + " The strongest color is the promise.",
        *_of_scope(shown, "Shown are the pairs"),
    ]
    if len(plots) < int((sizes > 1).sum()):
        says.append(f"The {GROUPS} most exposed of {int((sizes > 1).sum())} groups can be chosen.")
    if alone:
        says.append(
            f"{alone} {unit if alone == 1 else many(unit)} without a neighbor: nothing is promised to "
            + ("it." if alone == 1 else "them.")
        )
    return Section("edges", heading, tuple(says), tuple(plots), pick="Group" if len(plots) > 1 else "")


def edge_deltas_upper(mechanism: Mechanism) -> tuple[np.ndarray[Any, Any], FloatArray]:
    """Pairs of label positions and (n_edges, 2) upper ends of δ at each edge's own ε, finite precision included.

    In a table both directions have the same.
    """
    releases = Releases.of(mechanism.output, mechanism.scope, mechanism.times)
    pairs = releases.pairs(mechanism.graph)
    offsets = np.repeat(mechanism.epsilon[:, None], releases.directions, axis=1)

    def work(part: slice) -> FloatArray:
        return brackets(releases, pairs[part], tails.DP, np.zeros(1), offsets[part])[:, :, 0, 2]

    log_upper = np.concatenate([np.empty((0, releases.directions)), *map_blocks(work, len(pairs), BLOCK)])
    log_upper = np.broadcast_to(log_upper, (len(pairs), 2))
    unknown = np.isnan(log_upper)
    ideal = np.where(unknown, 1.0, exp_up(np.where(unknown, 0.0, log_upper)))
    loss = mechanism.certificate.finite_precision
    return pairs, np.minimum(np.nextafter(ideal + loss, np.inf) if loss else ideal, 1.0)
