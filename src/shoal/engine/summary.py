"""What a run did, in words for someone who has never heard of ε, with the figures on the safe side."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, Any

from shoal.card.digits import counted
from shoal.card.promise import promise
from shoal.engine.folder import STAGES

if TYPE_CHECKING:
    from shoal.engine.run import Run

QUERIES = {
    "point": "the point forecast; whatever else an attacker knows, nothing is assumed about how power is used",
    "trajectory": "one possible future drawn from the forecast's law; the attacker may know everything but the draw",
    "marginal": "the point forecast; holds against someone who knows no recent readings, if the model is true",
    "as_in_paper": "the point forecast, accounted for as in the paper: NO guarantee, for comparison only",
}


def summary(run: Run) -> list[tuple[str, list[str]]]:
    """Headings with their sentences, of the stages that are done."""
    parts = [
        ("What is protected", _protected(run.facts("fit"), run.facts("design"))),
        ("How well", _well(run.facts("design"))),
        ("At what cost", _cost(run.facts("design"), run.facts("report"))),
        ("What an attacker achieved", _attacked(run.facts("audit"))),
        ("What was spent", _spent(run.facts("release"))),
        ("Time", _time(run)),
        ("Files", _files(run)),
    ]
    return [(heading, lines) for heading, lines in parts if lines]


def to_dict(run: Run) -> dict[str, Any]:
    """The same for machines."""
    return {
        "folder": str(run.folder.path),
        "did": list(run.did),
        "release": run.state.release,
        "config": run.config.to_dict(),
        "stages": {
            name: {
                "done": run.is_done(name),
                "seconds": done.seconds,
                "finished": done.finished,
                "files": sorted(done.files),
                **done.facts,
            }
            for name, done in ((name, run.state.stages[name]) for name in STAGES if name in run.state.stages)
        },
    }


def _protected(fit: dict[str, Any], design: dict[str, Any]) -> list[str]:
    if not fit:
        return []
    sizes = fit["groups"]
    span = f"{sizes[0]} to {sizes[-1]}" if sizes[0] != sizes[-1] else f"{sizes[0]}"
    hours = fit["horizon"] * fit["step_minutes"] / 60
    lines = [
        f"Which household a released forecast is about: {fit['households']} households in "
        f"{fit.get('n_groups', len(sizes))} groups of "
        f"{span}; inside a group they must not be told apart. Group membership itself is not hidden.",
        f"Forecasts: {fit['horizon']} steps ({hours:g} h) from {fit['origin']}, trained on {fit['train_days']} days, "
        f"season by {fit['season']}"
        + (" (chosen: with less than four weeks a season by week fits badly)." if _by_day(fit) else "."),
    ]
    if design:
        lines.append(f"Released: {QUERIES[design['query']]}.")
    gone = fit.get("left_out_count", len(fit["left_out"]))
    if gone:
        where = "left_out.csv" if "left_out_count" in fit else "quality.csv"
        lines.append(f"{counted(gone, 'household')} left out; {where} says why.")
    return [*lines, *_lost(fit), *_lost(design)]


def _lost(stage: dict[str, Any]) -> list[str]:
    """Shards that a stage could not do."""
    return [
        f"SHARD LEFT OUT, nothing of it is released: {one['stage']} {one['key'][:12]}: {one['message']}"
        for one in stage.get("failed", ())
    ]


def _by_day(fit: dict[str, Any]) -> bool:
    return bool(fit["season_chosen"] and fit["season"] == "day")


def _well(design: dict[str, Any]) -> list[str]:
    if not design:
        return []
    delta, epsilon = design["delta"], design["epsilon"]
    if not design["meaningful"]:
        why = (
            "its accounting does not match what is released" if design["query"] == "as_in_paper" else "δ is above 0.01"
        )
        return [
            f"NO meaningful guarantee: δ ≤ {_up(delta)} at ε = {epsilon:g}; {why}. "
            "Allow more error (--rho), or ask for a guarantee (--delta 1e-5)."
        ]
    a, b = design["worst_edge"]
    lines = [
        f"(ε, δ) = ({epsilon:g}, {_up(delta)}), {design['method']}. {promise(epsilon, _up(delta))} Neighbors are the "
        "households of one group.",
        f"Hardest to hide: {a} from {b}.",
    ]
    if design["target"] is not None:
        lines.append(
            f"Asked for was δ ≤ {design['target']:g}, group by group, at the least error that the search found."
        )
    if design["all_alike"]:
        lines.append(
            "At this guarantee the households of a group get the same figures up to a trace of noise: what is released "
            "is the group's forecast."
        )
    return lines


def _cost(design: dict[str, Any], report: dict[str, Any]) -> list[str]:
    if not design:
        return []
    lines = [
        f"Released power is off the true forecast by {_up(design['added_rmse_kw'])} kW (root mean square; "
        f"household hardest hit {_up(design['added_rmse_kw_largest'])} kW; forecasts average "
        f"{design['forecast_kw']:.3g} kW), with a bias of {design['bias_kw']:+.2g} kW.",
    ]
    if report.get("mae_released_kw") is not None:
        lines.append(
            f"Against what was later metered: {_up(report['mae_released_kw'])} kW mean absolute error as released, "
            f"{report['mae_forecast_kw']:.3g} kW without protection."
        )
    if design["equal_noise_delta"] is not None:
        lines.append(
            f"Equal noise with the same mean squared error (ρ = {_up(design['rho_mean'])}) would leave "
            f"δ = {_up(design['equal_noise_delta'])}."
        )
    return lines


def _attacked(audit: dict[str, Any]) -> list[str]:
    if not audit:
        return []
    lines = []
    naming = audit["naming"]
    if naming is not None:
        lines.append(
            f"The best attacker named the household in {_percent_up(naming['accuracy'])} of {naming['n_answers']} test "
            f"releases{_long_run(naming)}; guessing inside the group gives {naming['guessing']:.1%}, promised is at "
            f"most {_percent_up(naming['promise_upper'])} on average."
        )
    if audit["verdict"] == "consistent":
        limit = audit["detectable_delta"]
        lines.append(
            "Audit: consistent with the promise. "
            + (f"This many answers would have shown a δ of {_up(limit)}; less may pass unseen." if limit < 1 else "")
        )
    else:
        lines.append(
            f"Audit: VIOLATED ({counted(audit['violations'], 'finding')}, audit.json). Do not use this release."
        )
    return lines


def _long_run(naming: dict[str, Any]) -> str:
    """So few answers leave room for chance: a share above the promise need not break it."""
    if "accuracy_lower" not in naming:
        return ""
    low = math.floor(naming["accuracy_lower"] * 1000) / 10
    return f" (in the long run between {low:.1f}% and {_percent_up(naming['accuracy_upper'])})"


def _percent_up(share: float) -> str:
    """A share in percent, rounded up to one decimal."""
    return f"{min(math.ceil(share * 1000) / 10, 100.0):.1f}%"


def _up(value: float, digits: int = 3) -> str:
    """A number of at least 0 rounded up to some significant digits."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(value)):.{digits}g}"


def _spent(release: dict[str, Any]) -> list[str]:
    if not release or "spent" not in release:
        return _lost(release)
    lines = [
        f"δ({release['budget_epsilon']:g}) ≤ {_up(release['spent'])} of a budget of "
        f"{release['budget_delta']:g} for the household with most spent; "
        f"{counted(release['releases_each'], 'release')} each."
    ]
    if release["budget_set"]:
        lines.append("The ledger had no budget; this one was set. `shoal ledger budget` changes it.")
    return [*lines, *_lost(release)]


def _time(run: Run) -> list[str]:
    seconds = {name: run.state.stages[name].seconds for name in STAGES if name in run.state.stages}
    if not seconds:
        return []
    parts = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    return [f"{parts}; {sum(seconds.values()):.0f} s in all."]


def _files(run: Run) -> list[str]:
    folder = run.folder.path
    known = {
        "report.html": "the report, for the data owner: it shows true forecasts",
        "released.csv": "the released figures (also .parquet); its household column is your key: drop it to pass on",
        "card.md": "the release card, to publish with the figures (also .json, .yaml)",
        "left_out.csv": "households without a forecast, and why",
        "ledger.db": "what was spent; keep it, and keep it private",
    }
    return [f"{folder / name}: {text}" for name, text in known.items() if (folder / name).is_file()]
