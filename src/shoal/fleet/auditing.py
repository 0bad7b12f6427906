"""The audit of a sample of groups: each attacked for itself, through the mechanism that released it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.audits.audit import audit
from shoal.designs.target import part_of
from shoal.engine.folder import Folder
from shoal.errors import InputError
from shoal.fleet.jobs import Part, parts_of, read_list
from shoal.fleet.lists import DESIGN
from shoal.mechanism import Mechanism


@dataclass(frozen=True)
class AuditTask:
    """Which group of which shard to attack, how hard, and at what error."""

    mechanism: str
    component: int
    samples: int
    confidence: float
    seed: int
    keep: bool = False  #: hand back all that was found


def audit_group(task: AuditTask) -> dict[str, Any]:
    """Attack a group's test answers; what was found."""
    mechanism = Mechanism.load(task.mechanism)
    members = np.flatnonzero(mechanism.graph.components == task.component)
    group = part_of(mechanism, [mechanism.classes.labels[i] for i in members])
    found = audit(
        group,
        n_samples=task.samples,
        confidence=task.confidence,
        release=mechanism.release,  # that of the whole shard, which released the answers
        seed=task.seed,
    ).to_dict()
    naming = found["naming"]
    return {
        "found": found if task.keep else None,
        "households": len(members),
        "verdict": found["verdict"],
        "violations": len(found["violations"]),
        "delta_proved": float(np.array(found["delta_lower"])[:, :, 0].max(initial=0.0)),
        "delta_promised": found["promise"][0],
        "detectable_delta": found["detectable_delta"],
        "naming": None
        if naming is None
        else {key: naming[key] for key in ("accuracy", "promise_upper", "guessing", "n_answers")},
    }


def worst(shards: Sequence[Part]) -> Part:
    """The shard with the largest δ."""
    return max(shards, key=lambda shard: (shard.facts["delta"], shard.key))


def sample(shards: Sequence[Part], n_groups: int, seed: int) -> list[tuple[Part, int]]:
    """The group that holds the worst edge of all first, and others drawn at random: (shard, component)."""
    first = worst(shards)
    hard = Mechanism.load(first.path)
    component = int(hard.graph.components[hard.graph.labels.index(first.facts["worst_edge"][0])])
    chosen = {(first.key, component): (first, component)}
    sizes = np.array([shard.facts["groups"] for shard in shards], dtype=np.int64)
    rng = np.random.default_rng(seed)
    ends = np.cumsum(sizes)
    for number in rng.permutation(int(sizes.sum())) if sizes.sum() < 10**6 else rng.choice(int(sizes.sum()), n_groups):
        if len(chosen) >= n_groups:
            break
        at = int(np.searchsorted(ends, number, side="right"))
        component = int(number - (ends[at] - sizes[at]))
        chosen.setdefault((shards[at].key, component), (shards[at], component))
    return list(chosen.values())


def hardest(folder: Folder) -> Mechanism:
    """The mechanism of the shard with the largest δ, of those that are undamaged."""
    ((shard, _),) = sampled(folder, 1, 0)
    return Mechanism.load(shard.path)


def sampled(folder: Folder, groups: int, seed: int) -> list[tuple[Part, int]]:
    """Groups to attack, (shard, component), the hardest to hide in first; damaged shards are passed over."""
    made, _, more = read_list(folder / DESIGN, folder.path)
    forecasts = {part.key: beside for part, beside in zip(made, parts_of(more["forecasts"], folder.path), strict=True)}
    while True:
        first = worst(made)
        broken = first
        try:
            for part in (first, forecasts[first.key]):
                part.check()
            chosen = sample(made, groups, seed)
            for broken, _ in chosen:
                broken.check()
            return chosen
        except InputError:
            made = [part for part in made if part is not broken]
            if not made:
                raise


def together(found: Sequence[dict[str, Any]], confidence: float) -> dict[str, Any]:
    """What the attacks on several groups come to; ``confidence`` holds for all of them at once."""
    named = [one["naming"] for one in found if one["naming"] is not None]
    answers = sum(one["n_answers"] for one in named)
    verdicts = {one["verdict"] for one in found}
    return {
        "verdict": "violated" if "violated" in verdicts else "consistent",
        "violations": sum(one["violations"] for one in found),
        "audited_groups": len(found),
        "audited_households": sum(one["households"] for one in found),
        "confidence": confidence,
        "delta_proved": max(one["delta_proved"] for one in found),
        "delta_promised": max(one["delta_promised"] for one in found),
        "detectable_delta": max(one["detectable_delta"] for one in found),
        "naming": None
        if not answers
        else {
            "n_answers": answers,
            **{
                key: sum(one[key] * one["n_answers"] for one in named) / answers
                for key in ("accuracy", "promise_upper", "guessing")
            },
        },
    }
