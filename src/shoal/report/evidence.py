"""Evidence beside the promise: attacks, model checks, the ledger, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.card.digits import counted, lower, nearest, percent, plain, share, stated, upper
from shoal.report.privacy import floor_of
from shoal.report.section import Plot, Section, Table, axis, bars, lines, series

#: Accounts drawn, households listed.
ACCOUNTS, LISTED = 20, 200


def attack(card: Mapping[str, Any], audit: Mapping[str, Any] | None) -> Section:
    """What attackers did with released answers beside what is promised; ``audit`` adds the figures per ε."""
    heading, unit = "What an attacker achieves", card["guarantee"]["privacy_unit"]
    found, limit = card.get("audit"), card["identification"]
    rates = card["tradeoff"]
    table = Table(
        ("false alarms", "recognized, at most"),
        tuple(
            (percent(f, "nearest"), percent(t))
            for f, t in zip(rates["false_positive_rate"], rates["true_positive_rate_at_most"], strict=True)
        ),
    )
    title = f"How often any test can tell a {unit} from a neighbor"
    rows = [{"name": "guessing", "value": limit["guessing"], "text": percent(limit["guessing"], "nearest"), "color": 7}]
    top = {"name": "promised at most", "value": limit["success_upper"], "text": percent(limit["success_upper"])}
    guess, most = percent(limit["guessing"], "nearest"), percent(limit["success_upper"])
    says = [
        f"Naming the {unit} behind an answer, among its group and all equally likely: guessing is right in {guess} of "
        f"the cases, no attacker in more than {most}"
        + ("." if limit["exact"] else f" (estimated, {share(limit['confidence'])} confidence).")
    ]
    reach = min(1.0, 1.4 * max(limit["success_upper"], ((found or {}).get("naming") or {}).get("accuracy_upper", 0.0)))
    if found is None:
        plots = [bars("Answers named right", ("attacker", "share named"), [*rows, top], most=reach)]
        return Section(
            "attack", heading, tuple(says), tuple(plots), table=table, table_title=title,
            missing="No attack was run. shoal.audit(mechanism) attacks released answers; hand its result over as "
            "audit= and to shoal.release_card.",
        )  # fmt: skip
    naming = found["naming"]
    if naming is not None:
        rows.append(
            {
                "name": "attack achieved",
                "color": 2,
                "value": naming["accuracy"],
                "low": naming["accuracy_lower"],
                "high": naming["accuracy_upper"],
                "text": f"{percent(naming['accuracy'], 'nearest')} ({percent(naming['accuracy_lower'], 'lower')} to "
                f"{percent(naming['accuracy_upper'])})",
            }
        )
    plots = [bars("Answers named right", ("attacker", "share named"), [*rows, top], most=reach)]
    promised, proved = found["delta_promised"], found["delta_proved"]
    says.append(
        f"The audit attacked {found['n_samples']} released answers per {unit} ({found['source']}): {found['verdict']}. "
        f"It proved δ ≥ {lower(proved)}, where δ ≤ {upper(promised)} is promised, at {share(found['confidence'])} "
        f"confidence. {_would_have_seen(found)}"
    )
    notes: list[str] = []
    if audit is not None:
        plots += _by_epsilon(audit, promised)
        notes = [_finding(one) for one in [*audit["violations"], *audit["mismatches"]][:10]]
    elif found["violations"] or found["mismatches"]:
        notes = [f"{counted(found['violations'], 'finding')} that lessen privacy, {found['mismatches']} that do not."]
    return Section(
        "attack", heading, tuple(says), tuple(plots), notes=tuple(notes), table=table, table_title=title
    )  # fmt: skip


def _would_have_seen(found: Mapping[str, Any]) -> str:
    if found["detectable_delta"] >= 1.0:
        return "The promise is too weak for an attack to break."
    delta, shortage = upper(found["detectable_delta"]), percent(found["detectable_shortage"])
    return f"It would have noticed a true δ of {delta}, or {shortage} too little variance; less may pass unseen."


def _by_epsilon(audit: Mapping[str, Any], promised: float) -> list[Plot]:
    """Worst proved δ and the promise at each ε, where all edges share their ε."""
    epsilon = np.array(audit["epsilon"])
    if not len(epsilon) or (epsilon != epsilon[0]).any():
        return []
    order = np.argsort(epsilon[0])
    claimed = np.array(audit["promise"])
    proved = np.array(audit["delta_lower"]).max(axis=(0, 1))
    x = epsilon[0]
    above = [(float(x[j]), plain(claimed[j]), upper(claimed[j])) for j in order]
    below = [(float(x[j]), plain(proved[j]), lower(proved[j])) for j in order]
    drawn = [
        series("promised, at most", above, color=0, thick=True),
        series("proved by attack, at least", below, color=2, dots=True),
    ]
    y = axis("δ", "log", floor=floor_of(promised), most=1.0)
    return [lines("Proved and promised", axis("ε"), y, drawn)]


def _finding(one: Mapping[str, Any]) -> str:
    whom = " against ".join(one["labels"]) or "all labels"
    kind = "Lessens privacy" if one["lessens_privacy"] else "Differs, harmless"
    return f"{kind}: {one['meaning']} ({whom})."


def model(card: Mapping[str, Any], checks: Any) -> Section:
    """Do the class laws hold: checks of the models, and what their estimation error does to δ."""
    heading, found = "Does the model hold?", card["model"]
    says, plots, notes = [], [], []
    if found["checks"] is not None:
        counts, total = found["checks"], found["checks"]["of"]
        words = {
            "gaussian": "innovations look Gaussian",
            "white": "innovations look independent",
            "stationary": "level and spread stay the same",
            "passed": "all of it",
        }
        rows = [
            {"name": words[key], "value": counts[key] / total if total else 0.0, "text": f"{counts[key]} of {total}"}
            for key in words
            if key in counts
        ]
        plots.append(bars("Models that pass", ("check", "models"), rows, most=1.0))
        says.append(
            "Formal tests of every model at the 1 % level, on the training window; with many readings they reject "
            "small deviations too."
        )
        if found["left_out"]:
            says.append(f"{found['left_out']} could not be modeled and are not part of this release.")
    guard = found["guard"]
    if guard is not None:
        says.append(
            f"Over the models that the training data leave plausible, {share(guard['confidence'])} keep "
            f"δ ≤ {upper(guard['delta_at_confidence'])}; promised is {upper(guard['promise'])}. Against an attacker "
            f"who knows the answer given the label, the noise alone gives δ ≤ {upper(guard['noise_alone'])}."
        )
        notes = list(guard["statements"])
    missing = ""
    if guard is None:
        missing = "What wrong laws would do to δ was not examined: shoal.model_guard does it; hand it over as guard=."
    table = None
    if checks is not None:
        rows2 = list(zip(checks.households, checks.verdict, strict=True))
        rows2.sort(key=lambda row: row[1] == "holds")
        table = Table(("household", "verdict"), tuple(rows2[:LISTED]))
    return Section(
        "model", heading, tuple(says), tuple(plots), notes=tuple(notes), table=table, table_title="Verdicts",
        missing=missing,
    )  # fmt: skip


def ledger(card: Mapping[str, Any], spent: Any, verification: Any) -> Section:
    """What has been spent of the budgets, and whether the record is intact."""
    heading, found = "What has been spent", card.get("composition")
    unit = card["guarantee"]["privacy_unit"]
    if spent is None and found is None:
        return Section(
            "ledger",
            heading,
            missing="No ledger kept count of these releases. Every further answer about the same label costs privacy: "
            "release through shoal.Ledger, and hand over spent=ledger.spent().",
        )
    says, plots = [], []
    if found is not None:
        says.append(
            f"{counted(found['releases'], 'release')} about {counted(found['labels'], unit)} "
            f"{'is' if found['releases'] == 1 else 'are'} on record."
        )
        if found["largest"] is not None:
            top = found["largest"]
            says.append(
                f"The most used account has spent δ({top['epsilon']:g}) ≤ {stated(top['spent'])} of {top['budget']:g}."
            )
    if spent is not None:
        accounts = sorted(spent, key=lambda a: a.spent / a.budget if a.budget else float(a.spent > 0), reverse=True)
        rows = [
            {
                "name": account.name,
                "value": min(account.spent / account.budget, 1.0) if account.budget else float(account.spent > 0),
                "text": f"{upper(account.spent)} of {account.budget:g} at ε = {account.epsilon:g}",
            }
            for account in accounts[:ACCOUNTS]
        ]
        if rows:
            more = f", the {ACCOUNTS} fullest of {len(accounts)}" if len(accounts) > ACCOUNTS else ""
            if len(accounts) > ACCOUNTS and len({(a.spent, a.budget, a.epsilon) for a in accounts}) == 1:
                rows, more = [{**rows[0], "name": f"each of the {len(accounts)} accounts"}], ""
            columns = ("account", "δ spent, at most")
            plots.append(bars("Budget used" + more, columns, rows, most=1.0))
    if verification is not None:
        says.append(
            f"The record was checked from its first entry to its last: {verification.entries} entries, intact."
            if verification.ok
            else f"The record is NOT intact: {verification.problem}."
        )
    return Section("ledger", heading, tuple(says), tuple(plots))


def timing(timings: Mapping[str, float] | None) -> Section | None:
    """Seconds per stage."""
    if not timings:
        return None
    most = max(timings.values()) or 1.0
    rows = [{"name": name, "value": plain(s), "text": f"{nearest(s)} s"} for name, s in timings.items()]
    plot = bars("Seconds per stage", ("stage", "seconds"), rows, most=most)
    return Section("timing", "Where the time went", (f"{nearest(sum(timings.values()))} s in all.",), (plot,))
