"""Evidence beside the promise: attacks, model checks, the ledger, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.card.card import ReleaseCard
from shoal.card.digits import counted, down, lower, nearest, percent, plain, share, up, upper
from shoal.card.exhibits import Exhibits
from shoal.card.facts import AuditFacts, DesignFacts, Found, promised
from shoal.card.privacy import floor_of
from shoal.card.promise import HOLDERS
from shoal.card.section import Plot, Section, Table, axis, bars, lines, series
from shoal.card.summary import attacked_groups

#: Accounts drawn, labels listed, findings told.
ACCOUNTS, LISTED, TOLD = 20, 200, 10


def attack(card: ReleaseCard, shown: Exhibits | None) -> Section:
    """What attackers did with released answers beside what is promised; findings name labels, so only when shown."""
    heading, noun = "What an attacker achieves", card.fit.noun
    audit, limit = card.audit, card.design.naming
    table = Table(
        ("false alarms", "recognized, at most"),
        tuple((percent(false, "nearest"), percent(true)) for false, true in card.design.tradeoff),
    )
    title = f"How often any test can tell a {noun} from a neighbor"
    guess, most = percent(limit.guessing, "nearest"), percent(limit.success_upper)
    rows = [{"name": "guessing", "value": limit.guessing, "text": guess, "color": 7}]
    top = {"name": "promised at most", "value": up(limit.success_upper, most=1.0), "text": most}
    says = [
        f"Naming the {noun} behind a row, among its group and all equally likely: guessing is right in {guess} of the "
        f"cases, no attacker {HOLDERS[card.design.scope]} in more than {most}"
        + ("." if limit.exact else f" (estimated, {share(limit.confidence)} confidence).")
    ]
    named = None if audit is None else audit.named
    # From the printed figures: the end of an axis is public too.
    reach = min(1.0, 1.4 * max(float(upper(limit.success_upper)), 0.0 if named is None else named.accuracy_upper))
    if named is not None:
        rows.append(
            {
                "name": "attack achieved",
                "color": 2,
                "value": named.accuracy,
                "low": down(named.accuracy_lower),
                "high": up(named.accuracy_upper, most=1.0),
                "text": f"{percent(named.accuracy, 'nearest')} ({percent(named.accuracy_lower, 'lower')} to "
                f"{percent(named.accuracy_upper)})",
            }
        )
    plots = [bars("Answers named right", ("attacker", "share named"), [*rows, top], most=reach)]
    if audit is None:
        return Section(
            "attack", heading, tuple(says), tuple(plots), table=table, table_title=title,
            missing="No attack was run. shoal.audit(mechanism) attacks released answers; hand its result to "
            "shoal.release_card as audit=.",
        )  # fmt: skip
    says.append(
        f"The audit attacked {attacked_groups(audit, noun)}, {audit.n_samples} released answers each ({audit.source}), "
        f"as somebody {HOLDERS[audit.scope]}: {audit.verdict}. It proved δ ≥ {lower(audit.delta_proved)}, where "
        f"δ ≤ {upper(promised(card.design, audit))} is promised, at {share(audit.confidence)} confidence. "
        f"{_would_have_seen(audit)}"
    )
    notes: list[str] = []
    if shown is not None:
        plots += _by_epsilon(card.design, audit)
        notes = [_finding(one) for one in audit.findings[:TOLD]]
    elif audit.violations or audit.mismatches:
        notes = [f"{counted(audit.violations, 'finding')} that lessen privacy, {audit.mismatches} that do not."]
    return Section(
        "attack", heading, tuple(says), tuple(plots), notes=tuple(notes), table=table, table_title=title
    )  # fmt: skip


def _would_have_seen(audit: AuditFacts) -> str:
    if audit.detectable_delta >= 1.0:
        return "The promise is too weak for an attack to break."
    delta, shortage = upper(audit.detectable_delta), percent(audit.detectable_shortage)
    return f"It would have noticed a true δ of {delta}, or {shortage} too little variance; less may pass unseen."


def _by_epsilon(design: DesignFacts, audit: AuditFacts) -> list[Plot]:
    """Worst proved δ and what the card promises, where all edges share their ε."""
    if len(audit.curve) < 2:
        return []
    proved = [(e, down(d), lower(d)) for e, d, _ in sorted(audit.curve)]
    drawn = [
        series("promised, at most", [(e, up(d), upper(d)) for e, d in design.curve], color=0, thick=True, step=True),
        series("proved by attack, at least", proved, color=2, dots=True),
    ]
    y = axis("δ", "log", floor=floor_of(design.delta), most=1.0)
    return [lines("Proved and promised", axis("ε"), y, drawn)]


def _finding(one: Found) -> str:
    whom = " against ".join(one.labels) or "all labels"
    kind = "Lessens privacy" if one.lessens_privacy else "Differs, harmless"
    return f"{kind}: {one.meaning} ({whom})."


def model(card: ReleaseCard, shown: Exhibits | None) -> Section:
    """Do the class laws hold: checks of the models, and what their estimation error does to δ."""
    checks, guard = card.fit.checks, card.guard
    says: list[str] = []
    plots: list[Plot] = []
    if checks is not None:
        passed = {
            "innovations look Gaussian": checks.gaussian,
            "innovations look independent": checks.white,
            "level and spread stay the same": checks.stationary,
            "all of it": checks.all_three,
        }
        rows = [
            {"name": name, "value": count / checks.of if checks.of else 0.0, "text": f"{count} of {checks.of}"}
            for name, count in passed.items()
        ]
        plots.append(bars("Models that pass", ("check", "models"), rows, most=1.0))
        says.append(
            "Formal tests of every model at the 1 % level, on the training window; with many observations they reject "
            "small deviations too."
        )
    if card.fit.left_out:
        says.append(f"{counted(card.fit.left_out, card.fit.noun)} left out: not part of this release.")
    missing = ""
    if guard is None:
        missing = "What wrong laws would do to δ was not examined: shoal.model_guard does it; hand it over as guard=."
    else:
        says.append(
            f"Over the models that the training data leave plausible, {share(guard.confidence)} keep "
            f"δ ≤ {upper(guard.delta_at_confidence)}; promised is {upper(guard.promise)}. Against an attacker "
            f"who knows the answer given the label, the noise alone gives δ ≤ {upper(guard.noise_alone)}."
        )
    table = None
    if shown is not None and shown.verdicts:
        listed = sorted(shown.verdicts, key=lambda row: row[1] == "holds")[:LISTED]
        table = Table((card.fit.noun, "verdict"), tuple(listed))
    return Section(
        "model", "Does the model hold?", tuple(says), tuple(plots), notes=() if guard is None else guard.statements,
        table=table, table_title="Verdicts", missing=missing,
    )  # fmt: skip


def ledger(card: ReleaseCard, shown: Exhibits | None) -> Section:
    """What has been spent of the budgets, and whether the record is intact."""
    heading, release, noun = "What has been spent", card.release, card.fit.noun
    if release is None and (shown is None or (not shown.accounts and shown.verification is None)):
        return Section(
            "ledger",
            heading,
            missing="No ledger kept count of these releases. Every further answer about the same label costs privacy: "
            "release through shoal.Ledger, and hand over spent=ledger.spent().",
        )
    says: list[str] = []
    plots: list[Plot] = []
    if release is not None:
        says.append(
            f"{counted(release.releases, 'release')} about {counted(release.ledger_labels, noun)} "
            f"{'is' if release.releases == 1 else 'are'} on record."
        )
        if release.worst is not None:
            worst = release.worst
            says.append(
                f"The most used account has spent δ({worst.epsilon:g}) ≤ {upper(worst.spent)} of {worst.budget:g}, "
                f"{worst.choice}."
            )
        if release.ledger_intact is False:
            says.append("The record is NOT intact.")
    if shown is not None:
        plots += _accounts(shown)
        if shown.verification is not None:
            entries, problem = shown.verification.entries, shown.verification.problem
            says.append(
                f"The record was checked from its first entry to its last: {entries} entries, intact."
                if shown.verification.ok
                else f"The record is NOT intact: {problem}."
            )
    return Section("ledger", heading, tuple(says), tuple(plots))


def _accounts(shown: Exhibits) -> list[Plot]:
    """The fullest accounts; one bar for all where all are alike."""

    def used(spent: float, budget: float) -> float:
        return min(spent / budget, 1.0) if budget else float(spent > 0)

    accounts = sorted(shown.accounts, key=lambda a: used(a.spent, a.budget), reverse=True)
    number = max(shown.n_accounts, len(accounts))
    rows = [
        {
            "name": account.name,
            "value": used(account.spent, account.budget),
            "text": f"{upper(account.spent)} of {account.budget:g} at ε = {account.epsilon:g}",
        }
        for account in accounts[:ACCOUNTS]
    ]
    if not rows:
        return []
    more = f", the {len(rows)} fullest of {number}" if number > len(rows) else ""
    if number == len(accounts) > ACCOUNTS and len({(a.spent, a.budget, a.epsilon) for a in accounts}) == 1:
        rows, more = [{**rows[0], "name": f"each of the {number} accounts"}], ""
    return [bars("Budget used" + more, ("account", "δ spent, at most"), rows, most=1.0)]


def timing(timings: Mapping[str, float]) -> Section | None:
    """Seconds per stage."""
    if not timings:
        return None
    most = max(timings.values()) or 1.0
    rows = [{"name": name, "value": plain(s), "text": f"{nearest(s)} s"} for name, s in timings.items()]
    plot = bars("Seconds per stage", ("stage", "seconds"), rows, most=most)
    return Section("timing", "Where the time went", (f"{nearest(sum(timings.values()))} s in all.",), (plot,))
