"""A card as a record of the DP Deployments Registry: YAML in its fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from shoal import __version__
from shoal.card.assumptions import question
from shoal.card.card import ReleaseCard
from shoal.card.digits import many, up, upper
from shoal.card.promise import promise
from shoal.card.statements import SHOWN_DIGITS, other_scope
from shoal.errors import InputError
from shoal.plaintext import printable

#: What only the publisher can fill in -> what stands there until then.
PUBLISHER = {
    "name": "TODO: name of the data product",
    "data_curators": "TODO: who publishes it",
    "intended_use": "TODO: what it is for",
    "data_product_region": "TODO: where the labels live",
    "data_product_sector": "TODO: for instance Energy",
    "description": "TODO: what a reader gets",
    "publication_date": "TODO: YYYY-MM-DD",
    "registry_authors": "TODO: who wrote this record",
}


def registry_yaml(card: ReleaseCard, deployment: Mapping[str, str]) -> str:
    """The card in the registry's fields; strings are JSON strings, which are YAML too."""
    unknown = set(deployment) - set(PUBLISHER)
    if unknown:
        raise InputError(f"deployment fields must be among {', '.join(PUBLISHER)}")
    own = {**PUBLISHER, **deployment}
    design, audit, release = card.design, card.audit, card.release
    if design is None:
        raise InputError("card: nothing is certified here for a registry of guarantees; to_json has all of it")
    asked, unit, accuracy = question(design.query), card.fit.noun, design.accuracy
    counting = "composed exactly, for a series fixed in advance"
    if release is not None and release.worst is not None and release.worst.mode == "adaptive":
        counting = "by a filter that holds for adaptive choices"
    clipped = "" if design.assumption_free is None else " and clipping"
    record = {
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "product": {
                "name": own["name"],
                "data_curators": [own["data_curators"]],
                "intended_use": own["intended_use"],
                "data_product_type": (
                    f"A table with a row for each {unit}, names dropped: {asked.released}"
                    if design.scope == "table"
                    else f"Single answers about one {unit} each: {asked.released}"
                ),
                "data_product_region": own["data_product_region"],
                "description": own["description"],
                "publication_date": own["publication_date"],
                "data_product_sector": own["data_product_sector"],
            },
            "dp_flavor": {
                "name": "Approximate DP",
                "data_domain": f"The {unit} that an answer of {design.entries} numbers is about, one of "
                f"{design.labels}",
                "unprotected_quantities": f"The crowd that the {unit} belongs to, the list of {many(unit)}, and that "
                f"an answer was given: a {unit} without one has no row",
            },
            "privacy_loss": {
                "privacy_unit": f"{unit[:1].upper()}{unit[1:]} label",
                "privacy_unit_description": (
                    f"Adjacent: the table with the rows of two neighboring {many(unit)} exchanged; "
                    if design.scope == "table"
                    else f"Adjacent: the same question asked about a neighboring {unit}; "
                )
                + f"{design.edges} neighboring pairs in {design.groups} crowds.",
                "privacy_parameters": {"epsilon": design.epsilon, "delta": up(design.delta)},
                "privacy_parameters_description": f"{design.statement}. "
                + (f"{promise(design.epsilon, upper(design.delta), design.scope)} " if design.meaningful else "")
                + "".join(f"{line} " for line in other_scope(design))
                + f"This delta is {design.theorem}. "
                + "Whole curve, delta by epsilon: "
                + ", ".join(f"{epsilon:g}: {upper(delta)}" for epsilon, delta in design.curve),
            },
            "model": {
                "model_name": "Central",
                "actors": f"A data owner who knows the answers; readers who may know: {asked.attacker_may_know}",
                "release_type": "One release" if release is None else f"{release.releases} releases so far",
                "access_type": "Non-interactive" if release is None else "Interactive",
            },
            "accounting": {
                "post_processing": "Rounding to a grid common to all labels",
                "composition": "Not counted beyond one release"
                if release is None
                else f"Per pair of labels over all releases, {counting}",
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": "Class laws fitted on the labels' own data; not charged"
                if card.fit.fitted_on_private_data
                else "None stated",
                "mechanisms": f"{design.method} of shoal {__version__}: affine map and Gaussian noise per label, "
                f"cryptographic source, exact arithmetic, finite precision{clipped} "
                f"{upper(design.finite_precision)} of delta included; card {card.digest[:16]}",
                "justification": (
                    f"Root mean squared error {upper(accuracy.rmse, SHOWN_DIGITS)} ({accuracy.unit}). "
                    if card.tells_errors
                    else ""
                )
                + ("No audit." if audit is None else f"Audit: {audit.verdict} at confidence {audit.confidence:g}."),
            },
            "resources": {"registry_authors": [own["registry_authors"]]},
        },
    }
    return "\n".join(_yaml(record)) + "\n"


def _yaml(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield f"{indent}{key}:"
            yield from _yaml(item, indent + "  ")
        elif isinstance(item, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_string(one)}" for one in item)
        else:
            yield f"{indent}{key}: {_string(item)}"


def _string(value: Any) -> str:
    return json.dumps(printable(value) if isinstance(value, str) else value, ensure_ascii=False)
