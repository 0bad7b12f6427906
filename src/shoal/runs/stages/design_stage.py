"""The second stage: one shard's forecasts to a mechanism, every group for itself, by a search that looks at no clock.

A shard is ``<key>.shoal``; beside it ``<key>.bound.json``, what the ledger decides by, and ``<key>.proof.json``, its
certificate as a theorem.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats

from shoal.accounting.filters import ORDERS
from shoal.card.book_measures import book_facts
from shoal.card.facts import LISTED, DesignFacts
from shoal.card.measures import design_facts
from shoal.designs.calibration import calibrate
from shoal.designs.design import design
from shoal.designs.methods import METHODS
from shoal.designs.parts import joined
from shoal.designs.problem import Problem
from shoal.errors import InputError, UnreachableError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.ledger.bounds import MechanismBound, bound_at, stated
from shoal.mechanism.clip import Clip, assumption_free, moved_delta, outside_share
from shoal.mechanism.codebook import Codebook, codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.reader import Releaser, load
from shoal.proofs.proof import proved
from shoal.runs.config import Config
from shoal.runs.context import DESIGN, FIT, MECHANISM, Context, Made
from shoal.runs.fitted import Fitted, fitted
from shoal.runs.jobs import Job, Listing, out_path, run_jobs
from shoal.runs.regroup import Received
from shoal.runs.stages.fit_stage import Yesterday, crowds_of, group_graph, yesterday
from shoal.runs.store import Part, put_whole
from shoal.workers.ticks import tick

SETTINGS = (
    "query",
    "scale",
    "objective",
    "method",
    "scope",
    "epsilon",
    "delta",
    "rho",
    "search",
    "seed",
    "rho_tolerance",
)
DOING = "designing mechanisms"
BOUND, PROOF = "bound.json", "proof.json"
#: Share of the mean squared error of groups' own curves by which a codebook must be better: 2 % of the error.
GAIN = 1 - 0.98**2
KEPT_DRAWS = "draws are kept: a label draws once and pays once, and later releases show that draw's curve of the day"
#: Objective -> the method by which all labels of a group meet.
MEETING = {"mean": "mean", "worst": "center"}
#: Relative accuracy of the error of a group that is to meet a δ.
TOLERANCE = 0.02


def do(forecasts: str, config: Config, previous: str | None, out: str) -> DesignFacts:
    """Write the mechanism of a shard, ``previous`` being that of the day before; what it promises and costs."""
    shard = fitted(forecasts, config.query, config.answers)
    classes, crowds = shard.laws(), crowds_of(forecasts)
    old, target = None if previous is None else load(previous), config.target
    if config.way == "codebook" and not shard.constant:
        raise InputError("method: a codebook is for constants, one row per label; choose another method")
    book = _book(config, shard, crowds, old) if shard.constant and config.way in ("auto", "codebook") else None
    if book is not None:
        points = [0.0, book.answer_epsilon, 2 * book.answer_epsilon]
        _saved(out, book, stated(bound_at(book, points, ORDERS, points)))
        facts = book_facts(book, shard.accuracy(book), query=shard.query, target=target)
        return replace(facts, notes=(*facts.notes, KEPT_DRAWS)) if config.standing else facts
    outside = 0.0
    if shard.clip is not None:
        outside = outside_share(shard.clip, classes.n_dims)
        config = _less_moved(config, shard, outside)
    if config.way == "auto":
        config = replace(config, method=MEETING[config.objective])
    if old is not None:
        classes = kept_roster(old.classes, classes, crowds)
    mechanism = _designed(config, classes, group_graph(classes.labels, crowds), shard)
    mechanism = replace(mechanism, outside=outside)
    _saved(out, mechanism, ledger_bound(mechanism))  # by the bracket, which the ledger computes again
    mechanism, proof = proved(mechanism)
    put_whole(Path(out).with_suffix(f".{PROOF}"), proof.save)
    facts = design_facts(
        mechanism,
        query=shard.query,
        target=target,
        accuracy=shard.accuracy(mechanism),
    )
    if shard.clip is None:
        return facts
    return replace(
        facts, assumption_free=assumption_free(mechanism, Clip.of(mechanism.classes, shard.clip)).delta_upper
    )


def _less_moved(config: Config, shard: Fitted, outside: float) -> Config:
    """With the δ that clipping leaves to the design, at least half of what is asked for."""
    target = config.target
    if target is None:
        return config
    moved = moved_delta(outside, config.epsilon, shard.times, config.scope)
    if moved <= target / 2:
        return replace(config, delta=target - moved * (1 + 1e-6))
    share = target / 2 / max(moved_delta(1e-12, config.epsilon, shard.times, config.scope) * 1e12, 1.0)
    radius = math.ceil(10 * math.sqrt(float(stats.chi2.isf(share, shard.laws().n_dims)))) / 10
    raise UnreachableError(
        "clip: at this radius so many rows of a Gaussian law are moved that this alone may add more to δ than half of "
        f"the {target:g} that is asked for; choose a radius of {radius:g} or more, or ask for a larger δ"
    )


def _designed(config: Config, classes: GaussianClasses, graph: NeighborGraph, shard: Fitted) -> Mechanism:
    """A design for so many answers about each label; the groups' own curves, which meet every ε, where those err less.

    Left to us, labels go straight towards the law in which they meet, as far as the guarantee takes: a search for other
    maps gains a few percent of the largest error where labels have one to four answers, nothing with more, and takes a
    hundred times as long. A search counts errors in the unit of the design. In kW, where exp widens noise, or as a
    mean, where the search looks at the worst label, a weaker guarantee could cost more than a stronger one.
    """
    delta, meeting = config.target, MEETING[config.objective]
    if delta is None:
        return _spent(config, classes, graph, shard.times)

    def meets(method: str) -> Mechanism:
        return calibrate(
            classes,
            graph,
            method,
            config.epsilon,
            delta,
            seed=config.seed,
            scope=config.scope,
            times=shard.times,
            tolerance=TOLERANCE,
            iterations=config.search,
            progress=tick,
            prove=False,
        )

    found = meets(config.way)
    if METHODS[found.method].price is None or found.method in MEETING.values():
        return found
    try:
        return cheaper(found, meets(meeting), shard, config.objective)
    except UnreachableError:
        return found


def cheaper(found: Mechanism, meeting: Mechanism, shard: Fitted, objective: str) -> Mechanism:
    """The one of two that errs less in the unit in which answers are used, in the mean or at the worst."""

    def error(mechanism: Mechanism) -> float:
        measured = shard.accuracy(mechanism)
        return measured.rmse if objective == "mean" else measured.rmse_largest

    return found if error(found) <= error(meeting) else meeting


def _saved(out: str, mechanism: Releaser, bound: MechanismBound) -> None:
    content = json.dumps(asdict(bound))
    put_whole(Path(out).with_suffix(f".{BOUND}"), lambda rough: rough.write_text(content))
    put_whole(out, mechanism.save)


def _book(config: Config, shard: Fitted, crowds: Mapping[str, int], old: Releaser | None) -> Codebook | None:
    """The codebook of a shard; None where it was left to us and ε is too small to gain by it, all groups together.

    The groups' own curves keep their totals; draws keep them on average only. Draws of standing crowds are kept: odds
    are chosen by what lasts, and go on from day to day; curves are those of the day.
    """
    auto = config.way == "auto"
    if auto and isinstance(old, Mechanism):
        return None
    classes = shard.laws()
    usually = GaussianClasses.deterministic(shard.lasting(), classes.labels) if config.standing else None
    if old is not None:
        classes = kept_roster(old.classes, classes, crowds)
        usually = None if usually is None else kept_roster(old.classes, usually, crowds)
    graph = group_graph(classes.labels, crowds)
    asked = (config.epsilon, config.scope, config.objective)
    if isinstance(old, Codebook) and (old.epsilon, old.scope, old.objective) == asked:
        return old.followed(graph, classes.means, None if usually is None else usually.means)
    book = codebook(
        classes.means if usually is None else usually.means,
        graph,
        config.epsilon,
        labels=classes.labels,
        objective=config.objective,
        scope=config.scope,
        least_gain=GAIN if auto else 0.0,
    )
    if usually is not None:
        book = book.renewed(classes.means)
    alone = math.fsum(
        float(((book.answers[group.members] - book.answers[group.members].mean(axis=0)) ** 2).sum())
        for group in book.groups
    )
    return None if auto and book.rho.sum() * classes.n_dims > (1 - GAIN) * alone else book


def _spent(config: Config, classes: GaussianClasses, graph: NeighborGraph, times: int) -> Mechanism:
    """The design that spends ρ, every group for itself: none depends on who else is in the shard."""
    problem = Problem.of(classes, graph, config.epsilon, config.rho, scope=config.scope, times=times)
    groups = [members for members in problem.components if len(members) > 1]
    found = []
    for number, members in enumerate(groups):
        part = problem.part(members)
        made = design(
            part.original,
            part.graph,
            config.way,
            part.epsilons[:, 0].copy(),
            config.rho,
            seed=config.seed,
            scope=config.scope,
            times=times,
            iterations=config.search,
            interruptible=True,
        )
        found.append((members, made))
        tick(number + 1, len(groups))
    return joined(config.way, problem, found)


def kept_roster(before: GaussianClasses, now: GaussianClasses, crowds: Mapping[str, int]) -> GaussianClasses:
    """Laws of all earlier labels, in their order, and of those who joined: today's, and yesterday's without one today.

    Among constants, who has none today takes the mean of its crowd's, which it then does not move.
    """
    known = set(before.labels)
    labels = (*before.labels, *(name for name in now.labels if name not in known))
    place = {name: i for i, name in enumerate(now.labels)}
    at = np.array([place.get(name, -1) for name in labels])
    old = np.minimum(np.arange(len(labels)), len(before.labels) - 1)  # whatever it says of those who joined
    there = at >= 0
    means = np.where(there[:, None], now.means[at], before.means[old])
    if not now.stored_variances.any() and not there.all():
        crowd = np.array([crowds[name] for name in labels])
        for one in set(crowd[~there].tolist()):
            group = crowd == one
            if (group & there).any():
                means[group & ~there] = means[group & there].mean(axis=0)
    if before.is_diagonal and now.is_diagonal:
        was, new = (np.broadcast_to(c.stored_variances, c.means.shape) for c in (before, now))
        return GaussianClasses.diagonal(means, np.where(there[:, None], new[at], was[old]), labels)
    was, new = (np.broadcast_to(c.stored_covs, (*c.means.shape, c.n_dims)) for c in (before, now))
    return GaussianClasses(means, np.where(there[:, None, None], new[at], was[old]), labels)


def ledger_bound(mechanism: Mechanism) -> MechanismBound:
    """What the ledger decides by: Rényi divergences, the certificate of a table at the design's ε, and bounds of δ(0).

    The total variation δ(0) is at most √(KL/2) (Pinsker), KL is at most the divergence of any order above 1, and twice
    that for a table: no pass over the edges beyond those that the certificate and the divergences take.
    """
    found = bound_at(mechanism, [], ORDERS, [])
    least = min(found.divergence_upper, default=math.inf)
    one, table = ({0.0: min(math.sqrt(x) * (1 + 1e-12), 1.0)} for x in (least / 2, least))
    if mechanism.notion == "dp":
        epsilon = float(mechanism.epsilon.max(initial=0.0))
        once = mechanism if mechanism.times == 1 else replace(mechanism, times=1)  # the ledger counts every answer
        table[epsilon] = min(once.certified("table").delta_upper, table.get(epsilon, 1.0))
    return stated(found.with_points_of(MechanismBound.of_points(mechanism.digest, one, {}, table)))


def bound_of(part: Part) -> MechanismBound:
    """The ledger's bound of a shard's mechanism, as it was written beside it."""
    try:
        content = json.loads(part.beside(BOUND).read_text())
        numbers = {name: tuple(values) for name, values in content.items() if name != "digest"}
        return MechanismBound(digest=content["digest"], **numbers)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"shards: the bound beside the mechanism {part.key} is damaged; remove both") from None


# ------------------------------------------------------------------ the stage


def stage(context: Context) -> Made:
    """A mechanism per shard; yesterday's, where it still holds."""
    pairs = context.listing(FIT).pairs
    before = yesterday(context)
    if before is not None:  # the ledger knows only the groups of shards that were designed then
        pairs = [(shard, source) for shard, source in pairs if source.told(Received).number in before.mechanisms]
    if context.preview:
        pairs = _hardest(context, pairs)
    jobs = [design_job(context.home, shard, source, context.config, before) for shard, source in pairs]
    with context.workers(len(jobs)) as executor:
        made, failed = run_jobs(executor, DOING, jobs, context.tell)
    context.put(DESIGN, Listing.of(jobs, [shard for shard, _ in pairs], made, failed))
    facts = DesignFacts.merged([part.told(DesignFacts) for part in made])
    return Made((DESIGN,), replace(facts, failed=tuple(failed)[:LISTED]))


def _hardest(context: Context, pairs: list[tuple[Part, Part]]) -> list[tuple[Part, Part]]:
    """The shard that was hardest to hide in so far, of several."""
    if not (context.home / DESIGN).is_file():
        return pairs
    known = Listing.read(context.home / DESIGN, context.home).pairs
    _, worst = max(known, key=_hardness)
    return [(shard, source) for shard, source in pairs if shard.key == worst.key] or pairs


def design_job(home: Path, shard: Part, readings: Part, config: Config, before: Yesterday | None) -> Job:
    """One shard's mechanism."""
    old = None if before is None else before.mechanisms[readings.told(Received).number]
    inputs = [shard] if old is None else [old, shard]
    names = ("query", "scale", "scope", "epsilon", "seed", "search", "rho", "rho_tolerance", "objective")
    settings = {**config.part(*names), "method": config.way, "delta": config.target, "standing": config.standing}
    work = partial(do, shard.path, config, None if old is None else old.path)
    return Job(work, out_path(home, MECHANISM, "shoal", settings, inputs), tuple(inputs))


def hardest(shards: Iterable[tuple[Part, ...]]) -> tuple[Part, ...]:
    """Of the shards that are undamaged, each a mechanism with other parts, the one with the largest δ."""
    left = sorted(shards, key=_hardness)
    while True:
        parts = left.pop()
        try:
            for part in parts:
                part.check()
            return parts
        except InputError:
            if not left:
                raise


def _hardness(parts: tuple[Part, ...]) -> tuple[float, str]:
    return parts[0].told(DesignFacts).delta, parts[0].key
