"""Only where a method asks for it: a block's laws to a mechanism, every crowd for itself, by a search that looks at no
clock.

A shard is ``<key>.shoal``; beside it ``<key>.bound.json``, what the ledger decides by, and ``<key>.proof.json``, its
certificate as a theorem.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from scipy import stats

from shoal.accounting.filters import ORDERS
from shoal.card.facts import LISTED, DesignFacts
from shoal.card.measures import design_facts
from shoal.designs.calibration import calibrate
from shoal.designs.design import design
from shoal.designs.methods import METHODS
from shoal.designs.problem import DesignProblem
from shoal.designs.stored import joined
from shoal.errors import InputError, UnreachableError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.ledger.bounds import POINTS, MechanismBound, bound_at, stated
from shoal.mechanism.clip import Clip, assumption_free, moved_delta, outside_share
from shoal.mechanism.codebook import codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import Releasable
from shoal.proofs.proof import proved
from shoal.runs.blocks import Answers, BlockFacts, answers_of, laws_of, make_blocks
from shoal.runs.config import SEARCH, Config
from shoal.runs.context import DESIGN, MECHANISM, Context, Made
from shoal.runs.shards import Job, Part, out_path, put_whole, run_jobs
from shoal.workers.executor import tick

SETTINGS = ("query", "method", "epsilon", "delta", "rho", "seed", "shard_size")
DOING = "designing mechanisms"
BOUND, PROOF = "bound.json", "proof.json"
#: The method by which all labels of a crowd meet.
MEETING = "mean"
#: Whom a run's guarantee is about: who holds the whole table.
SCOPE = "table"
#: Relative accuracy of the error of a group that is to meet a δ.
TOLERANCE = 0.02


def do(block: str, config: Config, out: str) -> DesignFacts:
    """Write the mechanism of a block of whole crowds; what it promises and costs."""
    answers = answers_of(block, config)
    classes, graph = laws_of(block, answers)
    target = config.delta
    if config.way == "codebook":
        book = codebook(classes.means, graph, config.stated_epsilon, labels=classes.labels, scope=SCOPE)
        points = [0.0, book.answer_epsilon, 2 * book.answer_epsilon]
        _saved(out, book, stated(bound_at(book, points, ORDERS, points)))
        return design_facts(book, query=answers.query, target=target, accuracy=answers.accuracy(book))
    outside = 0.0
    if answers.clip is not None:
        outside = outside_share(answers.clip, classes.n_dims)
        config = _less_moved(config, answers, outside)
    mechanism = replace(_designed(config, classes, graph, answers), outside=outside)
    _saved(out, mechanism, ledger_bound(mechanism))  # by the bracket, which the ledger computes again
    mechanism, proof = proved(mechanism)
    put_whole(Path(out).with_suffix(f".{PROOF}"), proof.save)
    facts = design_facts(mechanism, query=answers.query, target=target, accuracy=answers.accuracy(mechanism))
    if answers.clip is None:
        return facts
    free = assumption_free(mechanism, Clip.of(mechanism.classes, answers.clip)).delta_upper
    return replace(facts, assumption_free=free)


def _less_moved(config: Config, shard: Answers, outside: float) -> Config:
    """With the δ that clipping leaves to the design, at least half of what is asked for."""
    target = config.delta
    if target is None:
        return config
    moved = moved_delta(outside, config.stated_epsilon, shard.times, SCOPE)
    if moved <= target / 2:
        return replace(config, delta=target - moved * (1 + 1e-6))
    share = target / 2 / max(moved_delta(1e-12, config.stated_epsilon, shard.times, SCOPE) * 1e12, 1.0)
    radius = math.ceil(10 * math.sqrt(float(stats.chi2.isf(share, shard.laws().n_dims)))) / 10
    raise UnreachableError(
        "clip: at this radius so many rows of a Gaussian law are moved that this alone may add more to δ than half of "
        f"the {target:g} that is asked for; choose a radius of {radius:g} or more, or ask for a larger δ"
    )


def _designed(config: Config, classes: GaussianClasses, graph: NeighborGraph, shard: Answers) -> Mechanism:
    """A design for so many answers about each label; the groups' own curves, which meet every ε, where those err less.

    Left to us, labels go straight towards the law in which they meet, as far as the guarantee takes: a search for other
    maps gains a few percent of the largest error where labels have one to four answers, nothing with more, and takes a
    hundred times as long. A search counts errors in the unit of the design. In kW, where exp widens noise, or as a
    mean, where the search looks at the worst label, a weaker guarantee could cost more than a stronger one.
    """
    delta = config.delta
    if delta is None:
        return _spent(config, classes, graph, shard.times)

    def meets(method: str) -> Mechanism:
        return calibrate(
            classes,
            graph,
            method,
            config.stated_epsilon,
            delta,
            seed=config.seed,
            scope=SCOPE,
            times=shard.times,
            tolerance=TOLERANCE,
            iterations=SEARCH,
            progress=tick,
            prove=False,
        )

    mechanism = meets(config.way)
    if METHODS[mechanism.method].price is None or mechanism.method in (MEETING, "center"):
        return mechanism
    try:
        return cheaper(mechanism, meets(MEETING), shard)
    except UnreachableError:
        return mechanism


def cheaper(mechanism: Mechanism, meeting: Mechanism, shard: Answers) -> Mechanism:
    """The one of two that errs less, in the mean, in the unit in which answers are used."""
    return mechanism if shard.accuracy(mechanism).rmse <= shard.accuracy(meeting).rmse else meeting


def _saved(out: str, mechanism: Releasable, bound: MechanismBound) -> None:
    content = json.dumps({"digest": bound.digest, **{kind: list(getattr(bound, kind).items()) for kind in POINTS}})
    put_whole(Path(out).with_suffix(f".{BOUND}"), lambda rough: rough.write_text(content))
    put_whole(out, mechanism.save)


def _spent(config: Config, classes: GaussianClasses, graph: NeighborGraph, times: int) -> Mechanism:
    """The design that spends ρ, every group for itself: none depends on who else is in the shard."""
    problem = DesignProblem.of(classes, graph, config.stated_epsilon, config.rho, scope=SCOPE, times=times)
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
            scope=SCOPE,
            times=times,
            iterations=SEARCH,
            interruptible=True,
        )
        found.append((members, made))
        tick(number + 1, len(groups))
    return joined(config.way, problem, found)


def ledger_bound(mechanism: Mechanism) -> MechanismBound:
    """What the ledger decides by: Rényi divergences, the certificate of a table at the design's ε, and bounds of δ(0).

    The total variation δ(0) is at most √(KL/2) (Pinsker), KL is at most the divergence of any order above 1, and twice
    that for a table: no pass over the edges beyond those that the certificate and the divergences take.
    """
    found = bound_at(mechanism, [], ORDERS, [])
    least = min(found.renyi.values(), default=math.inf)
    one, table = ({0.0: min(math.sqrt(x) * (1 + 1e-12), 1.0)} for x in (least / 2, least))
    if mechanism.notion == "dp":
        epsilon = float(mechanism.epsilon.max(initial=0.0))
        once = mechanism if mechanism.times == 1 else replace(mechanism, times=1)  # the ledger counts every answer
        table[epsilon] = min(once.certified("table").delta_upper, table.get(epsilon, 1.0))
    return stated(found.with_points_of(MechanismBound(mechanism.digest, one, {}, table)))


def bound_of(part: Part) -> MechanismBound:
    """The ledger's bound of a shard's mechanism, as it was written beside it."""
    try:
        content = json.loads(part.beside(BOUND).read_text())
        return MechanismBound(content["digest"], **{kind: dict(content[kind]) for kind in POINTS})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(f"shards: the bound beside the mechanism {part.key} is damaged; remove both") from None


# ------------------------------------------------------------------ the stage


def stage(context: Context) -> Made:
    """A mechanism per block of whole crowds."""
    blocks = make_blocks(context)
    jobs = [design_job(context.path, block, context.config) for block in blocks]
    with context.workers(len(jobs)) as executor:
        mechanisms = run_jobs(executor, DOING, jobs, context.tell)
    context.put(DESIGN, mechanisms)
    facts = DesignFacts.merged([part.told(DesignFacts) for part in mechanisms.parts])
    strange = sum(block.told(BlockFacts).not_gaussian for block in blocks)
    facts = replace(facts, failed=mechanisms.failed[:LISTED], not_gaussian=strange)
    if facts.doubtful and context.config.clip is None and "doubtful-law" not in context.config.accept:
        raise UnreachableError(
            f"label: the rows of {strange} of {facts.labels} labels do not follow the Gaussian law that the guarantee "
            "rests on, so it would hold for a model and not for these rows; nothing is released. A table with one row "
            "per label needs no law; --accept-doubtful-law releases these all the same"
        )
    return Made((DESIGN,), facts)


def design_job(home: Path, block: Part, config: Config) -> Job:
    """One block's mechanism."""
    settings = {**config.part("query", "epsilon", "seed", "rho", "delta"), "method": config.way}
    return Job(partial(do, block.path, config), out_path(home, MECHANISM, "shoal", settings, [block]), (block,))


def undamaged(pairs: Sequence[tuple[Part, Part]]) -> list[tuple[Part, Part]]:
    """The mechanisms with their blocks whose files are as they were written; refused where there are none."""
    whole: list[tuple[Part, Part]] = []
    fault: InputError | None = None
    for pair in pairs:
        try:
            for part in pair:
                part.check()
            whole.append(pair)
        except InputError as error:
            fault = error
    if not whole and fault is not None:
        raise fault
    return whole


def hardest(pairs: Sequence[tuple[Part, Part]]) -> tuple[Part, Part]:
    """The mechanism with the largest δ, and its block."""
    return max(pairs, key=lambda pair: (pair[0].told(DesignFacts).delta, pair[0].key))
