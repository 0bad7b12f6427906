"""The last stages over shards: attacks on a sample of groups, the fleet's card and manifest, the report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from shoal.engine.config import Config
from shoal.engine.folder import Folder
from shoal.engine.plain import as_json
from shoal.errors import InputError
from shoal.fleet import auditing, page
from shoal.fleet.card import fleet_card, markdown
from shoal.fleet.jobs import (
    Tell,
    read_list,
)
from shoal.fleet.lists import AUDIT, DESIGN, FIT, MANIFEST, RELEASE, Made, executor_of
from shoal.fleet.manifest import Manifest, Source, write_manifest
from shoal.workers.executor import Failure
from shoal.workers.versions import versions


def audit(folder: Folder, config: Config, tell: Tell) -> Made:
    """Attack a sample of groups, the hardest to hide among them."""
    chosen = auditing.sampled(folder, config.audit_groups, config.seed)
    confidence = 1.0 - (1.0 - config.confidence) / len(chosen)
    tasks = [
        auditing.AuditTask(shard.path, component, config.audit_samples, confidence, config.seed, number == 0)
        for number, (shard, component) in enumerate(chosen)
    ]
    results: dict[int, dict[str, Any]] = {}
    with executor_of(config) as executor:
        for number, result in executor.run(auditing.audit_group, tasks):
            if isinstance(result, Failure):
                raise InputError(result.message)
            if number:
                del result["found"]
            results[number] = result
            tell("attacking released answers", len(results), len(tasks))
    found = [results[number] for number in range(len(tasks))]
    content = auditing.together(found, config.confidence)
    hardest_found = found[0].pop("found")
    folder.put(AUDIT, as_json({**content, "groups": found, "hardest": hardest_found}))
    return [AUDIT], content


def card(folder: Folder, config: Config, facts: dict[str, dict[str, Any]], source: dict[str, Any]) -> Made:
    """The fleet's figures for machines and people, and the manifest of all shards."""
    content = fleet_card(facts, config)
    folder.put("card.json", as_json(content))
    folder.put("card.md", markdown(content))
    write_manifest(folder.path, _manifest(folder, source))
    return ["card.json", "card.md", MANIFEST], {"statement": content["guarantee"]["statement"]}


def report(folder: Folder, config: Config, facts: dict[str, dict[str, Any]]) -> Made:
    """The page of the group that is hardest to hide in."""
    attacked = json.loads((folder / AUDIT).read_text())["hardest"]
    text = f"the hardest of {facts['fit']['n_groups']} groups, {facts['release']['households']} households in all"
    return page.report(folder, config, page.hardest_parts(folder, (FIT, DESIGN, RELEASE)), attacked, text)


def _manifest(folder: Folder, source: dict[str, Any]) -> Manifest:
    """Everything that went in and came out."""
    found = Manifest(tuple(Source(**one) for one in source.get("files", ())), versions())
    for stage, name in (("fit", FIT), ("design", DESIGN), ("released", RELEASE)):
        parts, failed, more = read_list(folder / name, folder.path)
        messages = {one.key: one.message for one in failed}
        found = found.with_stage(stage, [part.shard for part in parts], messages)
        found = replace(found, step_us=more.get("step_us", found.step_us))
    return found
