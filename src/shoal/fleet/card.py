"""The card of a fleet's release: figures over all shards, each an upper end of what was certified there."""

from __future__ import annotations

from typing import Any

import shoal
from shoal.accounting.curve import round_up
from shoal.card.card import QUERIES
from shoal.card.digits import upper
from shoal.card.promise import promise
from shoal.engine.config import Config


def fleet_card(facts: dict[str, dict[str, Any]], config: Config) -> dict[str, Any]:
    """What was released, how private it is, what it cost, how it was checked. Facts are those of the stages."""
    fit, design, release, audit = (facts[stage] for stage in ("fit", "design", "release", "audit"))
    released, attacker = QUERIES[config.query]
    delta = float(design["delta"])
    statement = f"({config.epsilon:g}, {delta:.4g})-differential privacy between any two households of a group"
    return {
        "format": "shoal fleet card",
        "version": 1,
        "shoal": shoal.__version__,
        "released": {
            "what": released,
            "households": release["households"],
            "horizon": fit["horizon"],
            "step_minutes": fit["step_minutes"],
            "origin": fit["origin"],
            "source": fit["source"],
        },
        "guarantee": {
            "statement": statement if design["meaningful"] else f"NO meaningful guarantee (δ up to {delta:.4g})",
            "epsilon": config.epsilon,
            "delta": delta,
            "notion": design["notion"],
            "unit": "household within its group; which group it belongs to is not hidden",
            "attacker": attacker,
            "directed_edges_certified": 2 * design["edges"],
            "worst_edge": design["worst_edge"],
            "meaningful": design["meaningful"],
            "how": "the largest certificate of all shards; each covers all edges, rounding and finite precision",
        },
        "groups": {"groups": fit["n_groups"], "smallest": fit["groups"][0], "largest": fit["groups"][-1]},
        "mechanism": {"method": design["method"], "notes": design["notes"]},
        "accuracy": {
            name: round_up(design[name])
            for name in ("rho_mean", "rho_largest", "added_rmse_kw", "added_rmse_kw_largest")
        }
        | {"bias_kw": design["bias_kw"], "forecast_kw": design["forecast_kw"]},
        "audit": {key: value for key, value in audit.items() if key != "groups"},
        "ledger": {
            key: release[key]
            for key in ("head", "spent", "budget_epsilon", "budget_delta", "releases_each")
            if key in release
        },
        "left_out": {
            "households": fit["left_out_count"],
            "newcomers": fit.get("newcomers", 0),
            "shards": [*fit["failed"], *design["failed"], *release["failed"]],
        },
    }


def markdown(content: dict[str, Any]) -> str:
    """The card for people."""
    g, a, r, c = content["guarantee"], content["accuracy"], content["released"], content["groups"]
    audit, ledger, left = content["audit"], content["ledger"], content["left_out"]
    hours = r["horizon"] * r["step_minutes"] / 60
    lines = [
        "# Release card",
        "",
        f"**{g['statement']}.**" + (f" {promise(g['epsilon'], upper(g['delta']))}" if g["meaningful"] else ""),
        "",
        f"- Released: {r['what']}; {r['households']} households, {r['horizon']} steps ({hours:g} h) "
        f"from {r['origin']}.",
        f"- Hidden: {g['unit']}. {c['groups']} groups of {c['smallest']} to {c['largest']}.",
        f"- The attacker may know {g['attacker']}.",
        f"- Certified: {g['directed_edges_certified']} directed edges; {g['how']}.",
        f"- Cost: off the true forecast by {a['added_rmse_kw']:.4g} kW (root mean square; hardest hit "
        f"{a['added_rmse_kw_largest']:.4g} kW; forecasts average {a['forecast_kw']:.3g} kW); "
        f"method {content['mechanism']['method']}.",
        f"- Audit: {audit['verdict']}, {audit['audited_groups']} groups ({audit['audited_households']} households) "
        f"attacked, confidence {audit['confidence']:g} over all of them.",
    ]
    if "spent" in ledger:
        lines.append(
            f"- Ledger: at most {ledger['spent']:.4g} of {ledger['budget_delta']:g} spent at "
            f"ε = {ledger['budget_epsilon']:g}; head {ledger['head']}."
        )
    late = left["newcomers"]
    newcomers = f" {late} newcomer(s) since the groups were fixed: no group would hide them." if late else ""
    lines.append(f"- Left out: {left['households']} household(s), {len(left['shards'])} shard(s).{newcomers}")
    lines += [f"  - {one['stage']} {one['key'][:12]}: {one['message']}" for one in left["shards"]]
    return "\n".join(lines) + "\n"
