"""The fourth stage: attacks on groups, each through the mechanism that released it.

A run with at most :data:`CROWDS` crowds has all of them attacked; a larger one the group that holds the worst edge of
all, and others drawn at random. The work does not grow with the run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from shoal.audits.audit import audit
from shoal.audits.book_audit import audit_book
from shoal.card.facts import AuditFacts, DesignFacts
from shoal.card.measures import audit_facts, book_audit_facts
from shoal.designs.design import design
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.files import load
from shoal.mechanism.mechanism import Mechanism
from shoal.runs.blocks import answers_of
from shoal.runs.config import Config
from shoal.runs.context import DESIGN, Context, Made
from shoal.runs.shards import Part
from shoal.runs.stages.design_stage import hardest, undamaged
from shoal.workers.executor import tick

SETTINGS = ("query", "audit_samples", "seed")
DOING = "attacking released answers"
AUDIT = "audit.json"
#: Crowds attacked at most, and the probability that nothing the audit says is false.
CROWDS, CONFIDENCE = 3, 0.999
#: Releases of one answer in the attack on repeated ones: two show whether noise is used again.
REPEATS = 2
#: Plausible models that the guard draws for each group.
DRAWS = 20
#: Groups up to which a random sample is drawn without repetition.
PERMUTED = 10**6


def do(mechanism: str, block: str, component: int, config: Config, confidence: float) -> AuditFacts:
    """Attack a crowd's test answers, ask how much rests on the model, and what equal noise would have left."""
    whole = load(mechanism)
    members = [whole.graph.labels[i] for i in np.flatnonzero(whole.graph.components == component)]
    return whole.by_kind(
        mechanism=lambda m: _attacked(m, members, block, config, confidence),
        codebook=lambda b: _drawn(b, members, config, confidence),
    )


def _drawn(book: Codebook, members: list[str], config: Config, confidence: float) -> AuditFacts:
    part = book.part(members)
    attacked = audit_book(part, n_samples=config.audit_samples, confidence=confidence, seed=config.seed)
    return book_audit_facts(attacked, part)


def _attacked(mechanism: Mechanism, members: list[str], block: str, config: Config, confidence: float) -> AuditFacts:
    crowd = mechanism.part(members)
    attacked = audit(
        crowd,
        n_samples=config.audit_samples,
        confidence=confidence,
        repeats=REPEATS,
        release=mechanism.release,  # that of the whole block, which releases the answers
        seed=config.seed,
        progress=tick,
    )
    everyone = answers_of(block, config)
    guard = None
    if set(members) <= set(everyone.labels):  # a member may have no answer today
        guard = everyone.take(members).guard(crowd, DRAWS, config.seed)
    rho = float(crowd.rho.mean())
    equal = None
    if rho > 0:
        noisy = design(
            crowd.classes, crowd.graph, "white", float(crowd.epsilon.max()), rho, scope=crowd.scope, times=crowd.times
        )
        equal = noisy.certificate.delta_upper
    return audit_facts(attacked, guard=guard, equal_noise_delta=equal)


def stage(context: Context) -> Made:
    """Attack the groups that the rule names."""
    config = context.config
    listing = context.listing(DESIGN)
    total = sum(part.told(DesignFacts).groups for part in listing.parts)
    chosen = sampled(undamaged(listing.pairs), CROWDS, config.seed)
    confidence = 1.0 - (1.0 - CONFIDENCE) / len(chosen)
    works = [
        partial(do, mechanism.path, block.path, component, config, confidence)
        for (mechanism, block), component in chosen
    ]
    context.tell(DOING, 0, len(works))
    with context.workers(len(listing.parts)) as executor:
        parts = executor.every(works, lambda done: context.tell(DOING, done, len(works)))
    rule = (
        "every group"
        if len(parts) == total
        else f"the group hardest to hide in and {len(parts) - 1} others drawn at random (seed {config.seed})"
    )
    facts = replace(AuditFacts.merged(parts), confidence=CONFIDENCE, of_groups=total, rule=rule)
    content = {"together": facts.to_json(), "groups": [part.to_json() for part in parts]}
    context.folder.put(AUDIT, json.dumps(content, indent=1, ensure_ascii=False))
    return Made((AUDIT,), facts)


def sampled(pairs: Sequence[tuple[Part, Part]], crowds: int, seed: int) -> list[tuple[tuple[Part, Part], int]]:
    """Crowds to attack, ((mechanism, block), component): the hardest to hide in first, the others at random."""
    first = hardest(pairs)
    hard = load(first[0].path)
    component = int(hard.graph.components[hard.graph.labels.index(first[0].told(DesignFacts).worst_edge[0])])
    chosen = {(first[0].key, component): (first, component)}
    sizes = np.array([mechanism.told(DesignFacts).groups for mechanism, _ in pairs], dtype=np.int64)
    total, ends = int(sizes.sum()), np.cumsum(sizes)
    rng = np.random.default_rng(seed)
    for number in rng.permutation(total) if total < PERMUTED else rng.choice(total, 2 * crowds):
        if len(chosen) >= crowds:
            break
        at = int(np.searchsorted(ends, number, side="right"))
        component = int(number - (ends[at] - sizes[at]))
        chosen.setdefault((pairs[at][0].key, component), (pairs[at], component))
    return list(chosen.values())
