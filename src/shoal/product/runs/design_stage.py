"""The stages of a method: a mechanism for every block of whole crowds, and attacks on what it releases.

A shard of the design is ``<key>.shoal``; beside it ``<key>.proof.json``, its certificate as a theorem. A run with at
most :data:`CROWDS` crowds has all of them attacked, each through the mechanism that releases it; a larger one the
crowd that holds the worst edge of all, and others drawn at random.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shoal.audits.audit import audit
from shoal.audits.codebook_audit import audit_codebook
from shoal.audits.guard import model_guard
from shoal.designs.calibration import calibrate
from shoal.designs.design import design
from shoal.designs.methods import METHODS
from shoal.designs.parameters import merge_mechanisms
from shoal.designs.problem import DesignProblem
from shoal.errors import UnreachableError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.codebook import codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import load
from shoal.product.card.facts import AuditFacts, DesignFacts
from shoal.product.card.measures import audit_facts, codebook_audit_facts, design_facts
from shoal.product.runs.config import SEARCH, Config
from shoal.product.runs.crowd_blocks import Answers, BlockFacts, block_answers, block_laws, make_blocks
from shoal.product.runs.folder import DESIGN, MECHANISM
from shoal.product.runs.shards import Job, Part, run_jobs, shard_path, write_shard_file
from shoal.product.runs.stage_work import StageOutcome, Work
from shoal.product.workers import report_task_progress, return_freed_memory
from shoal.proofs.proof import EFFORT, prove_mechanism

SETTINGS = ("query", "method", "epsilon", "delta", "rho", "shard_size")
DOING, ATTACKING = "designing mechanisms", "attacking released answers"
PROOF, AUDIT = "proof.json", "audit.json"
#: Seconds of an integral of a proof per squared entry, in a table.
INTEGRAL = 7e-5
#: Test answers per label in the audit, and the seed by which crowds are chosen.
SAMPLES, SEED = 200, 0
#: The method by which all labels of a crowd meet.
MEETING = "mean"
#: Whom a run's guarantee is about: who holds the whole table.
SCOPE = "table"
#: Relative accuracy of the error of a group that is to meet a δ.
TOLERANCE = 0.02
#: Crowds attacked at most, and the probability that nothing the audit says is false.
CROWDS, CONFIDENCE = 3, 0.999
#: Plausible models that the guard draws for each group.
DRAWS = 20


def design_blocks(work: Work) -> StageOutcome:
    """Make a mechanism for every block of whole crowds."""
    config, blocks, method = work.settings, make_blocks(work), work.settings.design_method
    settings = {**config.part("query", "epsilon", "rho", "delta"), "method": method}
    jobs = [
        Job(
            partial(design_block, block.path, config, method),
            shard_path(work.path, MECHANISM, "shoal", settings, [block]),
            (block,),
        )
        for block in blocks
    ]
    with work.open_workers(len(jobs)) as executor:
        mechanisms = run_jobs(executor, DOING + announce_proofs(config, blocks), jobs, work.report)
    work.write_listing(DESIGN, mechanisms)
    facts = DesignFacts.merge([part.facts_as(DesignFacts) for part in mechanisms.parts])
    strange = sum(block.facts_as(BlockFacts).not_gaussian for block in blocks)
    facts = replace(facts, not_gaussian=strange)
    if facts.doubtful and "doubtful-law" not in config.accept:
        raise UnreachableError(
            f"label: the rows of {strange} of {facts.labels} labels do not follow the Gaussian law that the guarantee "
            "rests on, so it would hold for a model and not for these rows; nothing is released. A table with one row "
            "per label needs no law; accept='doubtful-law' releases these all the same"
        )
    return StageOutcome((DESIGN,), facts)


def announce_proofs(config: Config, blocks: Sequence[Part]) -> str:
    """Return words on how long the proofs of all crowds can take, where that is minutes; else an empty text."""
    if config.query == "point" or config.label is not None:
        return ""
    facts = [block.facts_as(BlockFacts) for block in blocks]
    integrals = sum(one.crowds * min(EFFORT, (one.labels / one.crowds) ** 2 / 2) for one in facts)
    minutes = INTEGRAL * config.horizon**2 * integrals / 60
    return f", then proofs: up to {math.ceil(minutes)} min of processor time" if minutes > 0.5 else ""


def design_block(block: str, config: Config, method: str, out: str) -> DesignFacts:
    """Write the mechanism of a block of whole crowds; return what it promises and costs."""
    answers = block_answers(block, config)
    classes, graph = block_laws(block, answers)
    target = config.delta
    if method == "codebook":
        book = codebook(classes.means, graph, config.stated_epsilon, labels=classes.labels, scope=SCOPE)
        write_shard_file(out, book.save)
        return design_facts(book, query=answers.query, target=target, accuracy=answers.accuracy(book))
    mechanism = _design_for_delta(config, method, classes, graph, answers)
    write_shard_file(out, mechanism.save)  # by the bracket, which the ledger computes again
    return_freed_memory()
    mechanism, proof = prove_mechanism(mechanism)
    write_shard_file(Path(out).with_suffix(f".{PROOF}"), proof.save)
    return_freed_memory()
    return design_facts(mechanism, query=answers.query, target=target, accuracy=answers.accuracy(mechanism))


def _design_for_delta(
    config: Config, method: str, classes: GaussianClasses, graph: NeighborGraph, shard: Answers
) -> Mechanism:
    """Return a design for the answers about each label; the crowd's own law, which meets every ε, where that errs less.

    Left to us, labels go straight towards the law in which they meet, as far as the guarantee takes: a search for other
    maps gains a few percent of the largest error where labels have one to four answers, nothing with more, and takes a
    hundred times as long. A search counts errors in the unit of the design. In kW, where exp widens noise, or as a
    mean, where the search looks at the worst label, a weaker guarantee could cost more than a stronger one.
    """
    delta = config.delta
    if delta is None:
        return _design_at_rho(config, method, classes, graph, shard.times)

    how: dict[str, Any] = {"scope": SCOPE, "times": shard.times, "tolerance": TOLERANCE, "iterations": SEARCH}
    meets = partial(
        calibrate,
        classes,
        graph,
        epsilon=config.stated_epsilon,
        delta=delta,
        progress=report_task_progress,
        prove=False,
    )

    mechanism = meets(method, **how)
    if METHODS[mechanism.method].center is None or METHODS[mechanism.method].meets_only:
        return mechanism
    try:
        both = mechanism, meets(MEETING, **how)
    except UnreachableError:
        return mechanism
    return min(both, key=lambda one: shard.accuracy(one).rmse)  # in the unit in which answers are used


def _design_at_rho(
    config: Config, method: str, classes: GaussianClasses, graph: NeighborGraph, times: int
) -> Mechanism:
    """Return the design that spends ρ, every group for itself: none depends on who else is in the shard."""
    problem = DesignProblem.of(classes, graph, config.stated_epsilon, config.rho, scope=SCOPE, times=times)
    groups = [members for members in problem.components if len(members) > 1]
    how: dict[str, Any] = {"scope": SCOPE, "times": times, "iterations": SEARCH, "interruptible": True}
    designs = []
    for number, members in enumerate(groups):
        part = problem.part(members)
        epsilon = part.epsilons[:, 0].copy()
        designs.append((members, design(part.classes, part.graph, method, epsilon, config.rho, **how)))
        report_task_progress(number + 1, len(groups))
    return merge_mechanisms(method, problem, designs)


def intact_pairs(work: Work) -> list[tuple[Part, Part]]:
    """Return the mechanisms with their blocks; refuse a run in which a file of them is not as it was written."""
    pairs = work.read_listing(DESIGN).pairs
    for part in itertools.chain(*pairs):
        part.check_digests()
    return pairs


def hardest_block(pairs: Sequence[tuple[Part, Part]]) -> tuple[Part, Part]:
    """Return the mechanism with the largest δ, and its block."""
    return max(pairs, key=lambda pair: (pair[0].facts_as(DesignFacts).delta, pair[0].key))


def audit_crowds(work: Work) -> StageOutcome:
    """Attack a sample of crowds, and write what the attacks found."""
    config = work.settings
    pairs = intact_pairs(work)
    total = sum(mechanism.facts_as(DesignFacts).groups for mechanism, _ in pairs)
    chosen = sample_crowds(pairs, SEED)
    confidence = 1.0 - (1.0 - CONFIDENCE) / len(chosen)
    works = [
        partial(attack_crowd, mechanism.path, block.path, component, config, confidence)
        for (mechanism, block), component in chosen
    ]
    work.report(ATTACKING, 0, len(works))
    with work.open_workers(len(pairs)) as executor:
        parts = executor.call_all(works, lambda done: work.report(ATTACKING, done, len(works)))
    rule = (
        "every group"
        if len(parts) == total
        else f"the group hardest to hide in and {len(parts) - 1} others drawn at random (seed {SEED})"
    )
    facts = replace(AuditFacts.merge(parts), confidence=CONFIDENCE, of_groups=total, rule=rule)
    content = {"together": facts.to_json(), "groups": [part.to_json() for part in parts]}
    work.folder.write_content(AUDIT, json.dumps(content, indent=1, ensure_ascii=False))
    return StageOutcome((AUDIT,), facts)


def sample_crowds(pairs: Sequence[tuple[Part, Part]], seed: int) -> list[tuple[tuple[Part, Part], int]]:
    """Return crowds to attack, ((mechanism, block), component): the hardest to hide in first, others at random."""
    pair = hardest_block(pairs)
    graph, (label, _) = load(pair[0].path).graph, pair[0].facts_as(DesignFacts).worst_edge
    first = pair, int(graph.components[graph.labels.index(label)])
    every = [(pair, number) for pair in pairs for number in range(pair[0].facts_as(DesignFacts).groups)]
    order = np.random.default_rng(seed).permutation(len(every)).tolist()
    return [first, *(every[i] for i in order if every[i] != first)][:CROWDS]


def attack_crowd(mechanism: str, block: str, component: int, config: Config, confidence: float) -> AuditFacts:
    """Attack a crowd's test answers; return its success, how much rests on the model, and what equal noise leaves."""
    whole = load(mechanism)
    members = [whole.graph.labels[i] for i in np.flatnonzero(whole.graph.components == component)]
    return whole.by_kind(
        mechanism=lambda m: _attack_mechanism(m, members, block, config, confidence),
        codebook=lambda book: codebook_audit_facts(
            audit_codebook(crowd := book.for_labels(members), n_samples=SAMPLES, confidence=confidence), crowd
        ),
    )


def _attack_mechanism(
    mechanism: Mechanism, members: list[str], block: str, config: Config, confidence: float
) -> AuditFacts:
    """Return what an attack on a crowd's mechanism achieves, and how much of its promise rests on the laws."""
    crowd = mechanism.for_labels(members)
    attacked = audit(
        crowd,
        n_samples=SAMPLES,
        confidence=confidence,
        release=mechanism.release,  # that of the whole block, which releases the answers
        progress=report_task_progress,
    )
    everyone = block_answers(block, config)
    guard = None
    if set(members) <= set(everyone.labels):  # a member may have no answer today
        guard = model_guard(crowd, everyone, query=everyone.query, n_draws=DRAWS, seed=SEED)
    return audit_facts(attacked, guard=guard)
