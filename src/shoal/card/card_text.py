"""A card as text: Markdown for people, and YAML in the fields of the DP Deployments Registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.card.digits import many
from shoal.card.promise import promise
from shoal.errors import InputError

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


def markdown(card: Mapping[str, Any]) -> str:
    """The card as a page."""
    return "\n\n".join(part for part in _sections(card) if part) + "\n"


def _sections(card: Mapping[str, Any]) -> Iterator[str]:
    claim, graph, query = card["guarantee"], card["graph"], card["query"]
    yield f"# Release card: {card['mechanism']['method']} mechanism"
    yield f"**{claim['statement'][0].upper()}{claim['statement'][1:]}**"
    unit = claim["privacy_unit"]
    if claim["meaningful"]:
        yield (
            f"{promise(claim['epsilon'], _short(claim['delta']))} The hardest pair to keep apart is "
            f"{_code(claim['worst_edge'][0])} against {_code(claim['worst_edge'][1])}."
        )
    else:
        yield "Do not rely on this release to hide anyone."
    rows = [
        ("What is hidden", f"which {unit} of its group the answer is about"),
        ("Notion", _notion(claim)),
        (
            "Neighbors",
            f"{graph['labels']} labels in {graph['groups']} group(s) of {graph['smallest_group']} to "
            f"{graph['largest_group']}, {graph['edges']} pairs"
            + (f"; {graph['alone']} label(s) have no neighbor and are not hidden" if graph["alone"] else ""),
        ),
        ("Released", f"{query['released']} ({query['entries']} entries)"),
        ("The attacker may know", query["attacker_may_know"]),
        ("Finite precision", f"adds {claim['finite_precision']:.3g} to δ; included above and below"),
        ("No mechanism of this kind reaches below", f"δ = {claim['best_possible_delta']:.3g} at this accuracy"),
    ]
    yield _table(("", ""), rows)
    yield query.get("not_counted") or ""
    if claim["epsilons"]:
        yield f"Pairs have an ε of their own, {len(claim['epsilons'])} different ones; the largest is stated."
    yield "## How private"
    curve = card["curve"]
    yield _table(("ε", "δ at most"), zip(map(_short, curve["epsilon"]), map(_short, curve["delta"]), strict=True))
    trade = card["tradeoff"]
    yield _table(
        ("An attacker who is wrong about a neighbor in", "is right about the true one in at most"),
        [
            (f"{f:.2%}", f"{min(t, 1.0):.3%}")
            for f, t in zip(trade["false_positive_rate"], trade["true_positive_rate_at_most"], strict=True)
        ],
    )
    risk = card["identification"]
    yield (
        f"Naming the {unit} within its group from one answer: right at most {risk['success_upper']:.2%} of the time "
        f"(guessing: {risk['guessing']:.2%}"
        + (")." if risk["exact"] else f"; an estimate, upper end at {risk['confidence']:.0%} confidence).")
    )
    renyi = card["renyi"]
    yield _table(
        ("Rényi order", "divergence at most"),
        [(_short(a), _short(d)) for a, d in zip(renyi["order"], renyi["divergence"], strict=True)],
    )
    yield from _accuracy(card["accuracy"])
    yield from _assurance(card)
    yield "## Record"
    yield _table(
        ("", ""),
        [
            ("Software", f"{card['software']['name']} {card['software']['version']}"),
            ("Mechanism", _code(card["mechanism"]["digest"])),
            ("Card", _code(card["digest"])),
            *(("Note", note) for note in card["mechanism"]["notes"]),
        ],
    )


def _accuracy(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## How accurate"
    yield (
        f"Root mean squared error {_short(found['rmse'])} in {found['unit']} unit, at worst "
        f"{_short(found['rmse_worst_label'])} for one label; ρ spent at most {_short(found['rho_largest'])} per entry."
        if found["unit"] == "the answer's own"
        else f"Root mean squared error {_short(found['rmse'])} {found['unit']}, at worst "
        f"{_short(found['rmse_worst_label'])} {found['unit']} for one label; ρ spent at most "
        f"{_short(found['rho_largest'])} per entry, in squared log units."
    )
    ratio = "ratio_interval" in found
    intervals = found["ratio_interval"] if ratio else found["interval"]
    head = f"released {'/' if ratio else '−'} true, {found['coverage']:.0%} of the time within"
    yield _table(
        ("step", "rmse", "bias", head),
        [
            (step + 1, _short(rmse), _short(bias), f"{low:.3g} … {high:.3g}")
            for step, (rmse, bias, (low, high)) in enumerate(
                zip(found["rmse_by_step"], found["bias_by_step"], intervals, strict=True)
            )
        ],
    )


def _assurance(card: Mapping[str, Any]) -> Iterator[str]:
    model, audit, spent = card["model"], card["audit"], card["composition"]
    yield "## What it rests on"
    if model["fitted_on_private_data"]:
        yield (
            "The laws were fitted on the data of the labels themselves. The guarantee covers the released answers; it "
            "does not cover the mechanism's own parameters, which must be kept as secret as the data."
        )
    if model["checks"]:
        c = model["checks"]
        yield (
            f"Model checks passed of {c['of']}: Gaussian innovations {c['gaussian']}, white {c['white']}, stationary "
            f"{c['stationary']}, all three {c['all_three']}."
        )
    if model["left_out"]:
        yield f"{model['left_out']} label(s) were left out for want of usable data."
    if model["guard"]:
        yield "\n".join(f"- {line}" for line in model["guard"]["statements"])
    if audit is None:
        yield "No audit was made."
    else:
        yield (
            f"Audit: **{audit['verdict']}** at confidence {audit['confidence']:g}, {audit['n_samples']} answers per "
            f"label ({audit['source']}); δ of at least {_short(audit['delta_proved'])} proved, at most "
            f"{_short(audit['delta_promised'])} promised."
        )
    if spent is None:
        yield "The figures are for one release. No ledger was given: what was released before is not counted."
    else:
        worst = spent["largest"]
        count = f"{spent['releases']} release(s) about {spent['labels']} label(s)"
        yield f"Ledger: {count}, head {_code(spent['head'])}."
        if worst is not None:
            used, given = _short(worst["spent"]), _short(worst["budget"])
            yield f"Most used budget: δ({worst['epsilon']:g}) ≤ {used} of {given}."


def _notion(claim: Mapping[str, Any]) -> str:
    if claim["designed_for"] == claim["notion"]:
        return "(ε, δ)-differential privacy of the label, hockey-stick δ"
    return (
        f"(ε, δ)-differential privacy of the label; designed for {claim['designed_for']}, which rounding does not keep"
    )


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = [_row(head), _row(("---",) * len(head))]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def _row(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _code(text: Any) -> str:
    """Text that may be anything (a label) as inline code."""
    return "`" + str(text).replace("`", "ʼ").replace("\n", " ") + "`"


def _short(value: float | None) -> str:
    return "unbounded" if value is None else f"{value:.4g}"


def registry_yaml(card: Mapping[str, Any], deployment: Mapping[str, str]) -> str:
    """The card in the registry's fields; strings are JSON strings, which are YAML too."""
    unknown = set(deployment) - set(PUBLISHER)
    if unknown:
        raise InputError(f"deployment fields must be among {', '.join(PUBLISHER)}")
    own = {**PUBLISHER, **deployment}
    claim, graph, query = card["guarantee"], card["graph"], card["query"]
    audit, spent, accuracy = card["audit"], card["composition"], card["accuracy"]
    unit = claim["privacy_unit"]
    record = {
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "product": {
                "name": own["name"],
                "data_curators": [own["data_curators"]],
                "intended_use": own["intended_use"],
                "data_product_type": f"Answers about one {unit} each: {query['released']}",
                "data_product_region": own["data_product_region"],
                "description": own["description"],
                "publication_date": own["publication_date"],
                "data_product_sector": own["data_product_sector"],
            },
            "dp_flavor": {
                "name": "Approximate DP",
                "data_domain": f"The {unit} that an answer of {query['entries']} numbers is about, one of "
                f"{graph['labels']}",
                "unprotected_quantities": f"The group that the {unit} belongs to, the list of {many(unit)}, and that "
                f"an answer was given: a {unit} without one has no row",
            },
            "privacy_loss": {
                "privacy_unit": f"{unit[0].upper()}{unit[1:]} label",
                "privacy_unit_description": f"Adjacent: the same question asked about a neighboring {unit}; "
                f"{graph['edges']} neighboring pairs in {graph['groups']} groups (graph {graph['digest'][:16]}).",
                "privacy_parameters": {"epsilon": claim["epsilon"], "delta": claim["delta"]},
                "privacy_parameters_description": f"{claim['statement']}. "
                + (f"{promise(claim['epsilon'], _short(claim['delta']))} " if claim["meaningful"] else "")
                + "Whole curve, delta by epsilon: "
                + ", ".join(
                    f"{e:g}: {d:.3g}" for e, d in zip(card["curve"]["epsilon"], card["curve"]["delta"], strict=True)
                ),
            },
            "model": {
                "model_name": "Central",
                "actors": f"A data owner who knows the answers; readers who may know: {query['attacker_may_know']}",
                "release_type": "One release" if spent is None else f"{spent['releases']} releases so far",
                "access_type": "Non-interactive" if spent is None else "Interactive",
            },
            "accounting": {
                "post_processing": "Rounding to a grid common to all labels",
                "composition": "Not counted beyond one release"
                if spent is None
                else f"Exact per pair of labels over all releases; ledger head {spent['head']}",
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": "Class laws fitted on the labels' own data; not charged"
                if card["model"]["fitted_on_private_data"]
                else "None stated",
                "mechanisms": f"{card['mechanism']['method']} of {card['software']['name']} "
                f"{card['software']['version']}: affine map and Gaussian noise per label, cryptographic source, exact "
                f"arithmetic, finite precision {claim['finite_precision']:.3g} of delta included; mechanism "
                f"{card['mechanism']['digest'][:16]}, card {card['digest'][:16]}",
                "justification": f"Root mean squared error {_short(accuracy['rmse'])} ({accuracy['unit']}). "
                + (
                    "No audit."
                    if audit is None
                    else f"Audit: {audit['verdict']} at confidence {audit['confidence']:g}."
                ),
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
            yield from (f"{indent}  - {json.dumps(one, ensure_ascii=False)}" for one in item)
        else:
            yield f"{indent}{key}: {json.dumps(item, ensure_ascii=False)}"
