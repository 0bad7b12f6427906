"""What may be said about a release, sentence by sentence. A fact is phrased once, here; renderers choose and order.

A statement has a key, its audience ("public": it may be published; "owner": it stays with the data owner), a figure
that can stand alone, a sentence that can too, and more for who asks. Figures are rounded by :mod:`shoal.rounding`, to
the safe side; a ratio is rounded as a ratio.

There are three kinds of release. *means*: rows are averages over a crowd, no noise and no Greek; aggregation with a
least crowd (k-anonymity), and called that. *certified*: a method with ε and δ about which label a row is about.
*readings*: noise, ε and δ about every label's whole readings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shoal.card.facts import (
    CROWD,
    MEANINGLESS,
    Accuracy,
    AuditFacts,
    DesignFacts,
    FitFacts,
    Named,
    lost_shards,
    promised,
)
from shoal.card.words import HOLDERS, factor, promise, question
from shoal.plaintext import printable
from shoal.readings.plan import CrowdsPlan, noisy_crowds_plan
from shoal.rounding import counted, lower, many, nearest, percent, upper

if TYPE_CHECKING:
    from shoal.card.card import ReleaseCard

PUBLIC, OWNER = "public", "owner"
#: Digits of an error that is published.
SHOWN_DIGITS = 2
#: Crowds of means from which on errors pooled over all of them are published.
POOLED = 10
#: Two figures below this need not be told apart.
NOTHING = 1e-12
#: Largest rounding error of a released figure in kW: half a watt.
WATT = 0.0005
KIND = "aggregation with a least crowd (k-anonymity)"
#: What a mean does not hide, wherever an operator reads.
FIGURES = (
    "This hides which member a row is about. It does not hide figures: who knows the other members' figures, because "
    "they are his meters, tenants or customers, computes yours. `--secret readings` protects against that."
)
#: The same in a line.
KNOWS = "Who knows all others' figures computes yours; `--secret readings` protects against that."
#: Key -> the heading over its sentences; the first five are the summary.
HEADINGS = {
    "hidden": "Who hides",
    "cost": "It costs",
    "attack": "An attacker",
    "pass_on": "Pass on",
    "keep": "Keep",
    "naming": "How well it hides",
    "guarantee": "The guarantee",
    "technique": "What is released",
    "next": "The next release",
    "limits": "What is not hidden",
    "rules": "Rules that were kept",
    "course": "The price of earlier releases",
    "use": "What may be computed",
    "model": "What it rests on",
    "audit": "Audit",
    "spent": "What is on record",
    "missing": "Who is not in it",
}
SUMMARY = ("hidden", "cost", "attack", "pass_on", "keep")
#: Named rules of aggregation: name -> least number of members, largest share of one of them (None: not limited), words.
RULES: dict[str, tuple[int, float | None, str]] = {
    "15/15": (15, 0.15, "at least 15, and none with more than 15 % of a figure"),
    "4/80": (4, 0.80, "at least 4, and none with more than 80 % of a figure"),
    "five devices": (5, None, "at least five devices"),
    "100 accounts": (100, None, "at least 100 accounts"),
}


@dataclass(frozen=True)
class Statement:
    """One thing to say: its key, whom it is for, a figure, a sentence, and more."""

    key: str
    audience: str
    figure: str
    sentence: str
    more: tuple[str, ...] = ()
    warning: bool = False  #: to be told wherever the owner reads


def public(key: str, figure: str, sentence: str, *more: str, warning: bool = False) -> Statement:
    """A statement that may be published; an empty line says nothing."""
    return Statement(key, PUBLIC, figure, sentence, more, warning)


def owner(key: str, figure: str, sentence: str, *more: str, warning: bool = False) -> Statement:
    """A statement that stays with the data owner."""
    return Statement(key, OWNER, figure, sentence, more, warning)


def statements(card: ReleaseCard) -> tuple[Statement, ...]:
    """Everything that is to be said about a release, in order of what a reader asks first."""
    kinds = {"means": _of_means, "certified": _of_method, "readings": _of_readings}
    return tuple(
        replace(
            one,
            figure=printable(one.figure),
            sentence=printable(one.sentence),
            more=tuple(printable(line) for line in one.more if line),
        )
        for one in (*kinds[card.kind](card), *_of_everybody(card))
        if one.sentence
    )


def handing(folder: str, ledger: str) -> tuple[Statement, Statement]:
    """What to pass on, and what to keep; ``ledger`` says where the ledger is."""
    return (
        owner("pass_on", "public/", f"{folder}/public: the table, its card, README and checksums. No names in it."),
        owner(
            "keep",
            "the rest",
            f"All else in {folder}, where released.csv says whose row is whose, and the ledger {ledger}: as private as "
            "the data.",
        ),
    )


def sizes(smallest: int, largest: int) -> str:
    """A range of crowd sizes."""
    return f"{smallest}" if smallest == largest else f"{smallest} to {largest}"


def price(card: ReleaseCard) -> float | None:
    """Error against what came later: as released over unprotected; None where it is not known."""
    before, after = card.later_errors
    return after / before if before and after is not None else None


# ------------------------------------------------------------------ means


def _of_means(card: ReleaseCard) -> Iterator[Statement]:
    fit, release, noun = card.fit, card.release, card.fit.noun
    span = sizes(fit.smallest_group, fit.largest_group)
    crowds = f"{counted(fit.labels, noun)} in {counted(fit.groups, 'crowd')} of {span}"
    yield public(
        "hidden",
        f"among at least {fit.crowd}",
        f"Every {noun} hides among at least {fit.crowd}, itself included: {crowds}, one row for each crowd.",
        "A row is its members' mean, so the table cannot tell whose is whose.",
        f"A crowd is a fixed set, formed once, for life, with a few more than {fit.crowd}, so that some may be absent; "
        "`homes` in the table is its size, whoever has news.",
    )
    if release is not None:
        yield from _cost(card, release.accuracy)
        if card.attack is not None:
            yield _own_attack(card)
    yield public(
        "technique",
        "the mean of each crowd",
        f"Rows are averages over at least {fit.crowd} {many(noun)}, without noise: {KIND}, which is not "
        "differential privacy.",
        *_about(fit),
    )
    yield public(
        "next",
        "the same crowds",
        f"The next release about these {many(noun)} uses the same crowds. A row changes only where at least "
        f"{fit.crowd} members have news, so that what two tables differ by is again about whole crowds, not about "
        "one member.",
    )
    yield from _not_hidden(card)
    if card.rules:
        names = "; ".join(f"{name} ({RULES[name][2]})" for name in card.rules)
        yield public("rules", ", ".join(card.rules), f"Every row keeps these rules of aggregation: {names}.")
    if card.course is not None and card.course.prices:
        period, last = card.course.prices[-1]
        yield owner(
            "course",
            f"{upper(last)} times",
            f"The release for {period}, now that its hours are metered: {upper(last)} times the error of unprotected "
            "figures.",
            *(f"{period}: {upper(value)} times" for period, value in card.course.prices[:-1]),
        )
    yield public(
        "use",
        "row × homes = total",
        "A row times its `homes` is the crowd's total; totals of crowds add up; a mean over crowds is weighted by "
        "`homes`.",
        f"No {noun} need look like its row, which is a mean and says nothing about how its own members differ.",
        "Do not take differences between tables to find somebody: who is averaged stays the same from table to "
        "table, and a row changes only where at least the least crowd has news (`news` is true).",
    )
    if release is None:
        return
    repeated, before = counted(release.repeated, "row"), counted(release.recorded_before, "row")
    yield public(
        "spent",
        release.period,
        f"{counted(release.crowds, 'row')} about {release.period}." if release.period else "",
        f"{repeated} repeated from the release before, for lack of news (`news` is false)." if release.repeated else "",
    )
    yield owner(
        "spent",
        "on record",
        f"The crowds of {counted(release.labels, noun)} are in the ledger; nothing was charged.",
        f"{before} released for this period before: they are those of the record." if release.recorded_before else "",
    )


def _not_hidden(card: ReleaseCard) -> Iterator[Statement]:
    fit, noun = card.fit, card.fit.noun
    least = fit.smallest_group
    near = f", to {upper(WATT * least, 1)} kW in the smallest crowd" if fit.step_minutes is not None else ""
    yield public(
        "limits",
        f"figures, from who knows {least - 1} of {least}",
        FIGURES,
        f"Who knows {least - 1} figures of a crowd of {least} computes the last one{near}.",
    )
    yield public(
        "limits",
        f"the crowd: one of {fit.groups}",
        f"Which of the {counted(fit.groups, 'crowd')} a {noun} is in is not hidden from who knows its figures.",
    )
    yield public("limits", "absence", f"A {noun} without a crowd has no row; that can be seen by who knows of it.")
    yield public(
        "limits",
        "what others release",
        f"What another owner releases about the same {many(noun)} is not counted here: two averages over different "
        "crowds can give a member away.",
    )


# ------------------------------------------------------------------ a method with ε and δ


def _of_method(card: ReleaseCard) -> Iterator[Statement]:
    fit, design, noun = card.fit, card.design, card.fit.noun
    span = sizes(fit.smallest_group, fit.largest_group)
    least = f"Every {noun} hides among at least {fit.smallest_group}, itself included: " if fit.crowd else ""
    crowds = f"{counted(fit.labels, noun)} in {counted(fit.groups, 'crowd')} of {span}"
    bound = "" if design is None else _naming_bound(design, noun)
    yield public(
        "hidden",
        f"among {span}" if design is None else f"named in at most {percent(design.naming.success_upper)}",
        f"{least}{crowds if least else crowds[:1].upper() + crowds[1:]}. {bound}".strip(),
        f"Which {noun} of its crowd a row is about is hidden; the crowd is not.",
    )
    if design is None:
        return
    yield from _cost(card, design.accuracy)
    if card.audit is not None and card.audit.named is not None:
        yield _audit_attack(card.audit, noun)
    if card.attack is not None:
        yield _own_attack(card)
    yield from _guarantee(card, design)
    words = question(design.query)
    yield public(
        "technique",
        design.method,
        f"Released: {words.released}. The attacker may know {words.attacker_may_know}.",
        *_about(fit),
        words.not_counted or "",
    )
    yield public(
        "limits",
        "the crowd, absence, what others release",
        f"The crowd of a {noun} is not hidden, nor that a {noun} has no row. Everything else released about the same "
        "labels adds up and must be counted; the ledger does that, pair by pair, for one owner.",
        f"Two {many(noun)} are protected from each other if they are neighbors in the graph; those without a path "
        "between them not at all.",
        f"{counted(design.alone, noun)} without a neighbor: no promise there." if design.alone else "",
    )
    yield from _model(card, design)
    yield from _audit(card, design)
    yield from _ledger(card)


def _naming_bound(design: DesignFacts, noun: str) -> str:
    risk = design.naming
    sampled = "" if risk.exact else f" (an estimate, upper end at {100 * risk.confidence:.6g} % confidence)"
    return (
        f"Naming the {noun} of a row within its crowd, for {HOLDERS[design.scope]}: right at most "
        f"{percent(risk.success_upper)} of the time{sampled}; a guess gets {percent(risk.guessing, 'nearest')}."
    )


def _guarantee(card: ReleaseCard, design: DesignFacts) -> Iterator[Statement]:
    noun = card.fit.noun
    if not design.meaningful:
        why = (
            f"δ is above {MEANINGLESS:g}"
            if question(design.query).sound
            else "its accounting does not match what is released"
        )
        yield public(
            "guarantee",
            "no meaningful guarantee",
            f"No meaningful guarantee: δ ≤ {upper(design.delta)} at ε = {design.epsilon:g}; {why}. Do not rely on this "
            "release to hide anyone.",
            *any_law(design),
            warning=True,
        )
        return
    aim = "" if design.target is None else f"Asked for was δ ≤ {design.target:g}, at the least error that was found."
    alike = f"At this guarantee the {many(noun)} of a crowd get the same answer up to a trace of noise."
    yield public(
        "guarantee",
        "rests on a law that the rows reject" if card.doubtful else design.statement,
        f"{promise(design.epsilon, upper(design.delta), design.scope)} Neighbors are the {many(noun)} of one crowd.",
        f"{design.statement}, {design.method}.",
        f"This δ is {design.theorem}.",
        *any_law(design),
        *other_scope(design),
        aim,
        alike if design.all_alike else "",
    )
    a, b = design.worst_edge
    yield owner("guarantee", "", f"Hardest to hide: {a} from {b}.")


def other_scope(design: DesignFacts) -> tuple[str, ...]:
    """The figure for who holds the other thing, where it differs from the one that is promised."""
    if design.other_delta is None or upper(design.other_delta) == upper(design.delta):
        return ()
    if max(design.delta, design.other_delta) < NOTHING:
        return ()
    other = "answer" if design.scope == "table" else "table"
    held = f"For {HOLDERS[other]} δ ≤ {upper(design.other_delta)} at the same ε."
    return (held if other == "answer" else f"{held} This release was designed for single answers: do not pass on all.",)


def any_law(design: DesignFacts) -> tuple[str, ...]:
    """What holds of clipped answers without their laws, beside the figure that rests on them."""
    if design.assumption_free is None:
        return ()
    bound = f"Whatever the law of the rows inside their ellipsoids: δ ≤ {upper(min(design.assumption_free, 1.0))}"
    if upper(design.assumption_free) == "1":
        return (f"{bound}, so that nothing is promised without the Gaussian law.",)
    return (f"{bound} at ε = {design.epsilon:g}; the promised δ rests on the Gaussian law.",)


def _model(card: ReleaseCard, design: DesignFacts) -> Iterator[Statement]:
    """What the guarantee rests on; model checks only where it rests on a model."""
    fit, checks = card.fit, card.fit.checks
    if design.not_gaussian:
        yield public(
            "model",
            f"rejected for {design.not_gaussian} of {design.labels}",
            f"THE LAW IS DOUBTFUL: the rows of {design.not_gaussian} of {counted(design.labels, fit.noun)} do not look "
            "Gaussian. The promise rests on Gaussian laws; who knows what the rows look like instead may tell more "
            "than it says.",
            warning=True,
        )
    if fit.fitted_on_private_data:
        yield public(
            "model",
            "parameters stay secret",
            "The laws were fitted on the data of the labels themselves. The guarantee covers the released answers, not "
            "the mechanism's own parameters, which must be kept as secret as the data.",
        )
    if checks is not None and card.rests_on_model:
        yield public(
            "model",
            f"{checks.all_three} of {checks.of}",
            f"Model checks passed of {checks.of}: Gaussian innovations {checks.gaussian}, white {checks.white}, "
            f"stationary {checks.stationary}, all three {checks.all_three}.",
        )
    if card.guard is not None:
        yield public("model", "", " ".join(card.guard.statements))


def _audit_attack(audit: AuditFacts, noun: str) -> Statement:
    named = audit.named
    assert named is not None
    return owner(
        "attack",
        f"{percent(named.accuracy)} named",
        f"The best attacker {HOLDERS[audit.scope]} named the {noun} in {percent(named.accuracy)} of {named.n_answers} "
        f"test answers ({long_run(named)}); a guess gets {percent(named.guessing, 'nearest')}, promised is at most "
        f"{percent(named.promise_upper)} on average.",
    )


def long_run(named: Named) -> str:
    """How far chance may have moved a share: one above the promise need not break it."""
    return f"in the long run between {percent(named.accuracy_lower, 'lower')} and {percent(named.accuracy_upper)}"


def _audit(card: ReleaseCard, design: DesignFacts) -> Iterator[Statement]:
    audit = card.audit
    if audit is None:
        yield public("audit", "none", "No audit was made.")
        return
    limit = audit.detectable_delta
    unseen = f"This many answers would have shown a δ of {upper(limit)}; less may pass unseen."
    equal = f"Equal noise with the same mean squared error would leave δ = {upper(audit.equal_noise_delta)}."
    violated = f"VIOLATED ({counted(audit.violations, 'finding')}). Do not use this release"
    yield public(
        "audit",
        audit.verdict,
        f"Audit of {attacked_crowds(audit, card.fit.noun)} by {HOLDERS[audit.scope]}, {audit.n_samples} answers per "
        f"label ({audit.source}): {'consistent with the promise' if audit.verdict == 'consistent' else violated} at "
        f"confidence {audit.confidence:g}; δ of at least {lower(audit.delta_proved)} shown, at most "
        f"{upper(promised(design, audit))} promised.",
        unseen if limit < 1 else "",
        equal if audit.equal_noise_delta is not None else "",
        warning=audit.verdict == "violated",
    )


def attacked_crowds(audit: AuditFacts, noun: str) -> str:
    """Which part of a release was attacked."""
    if audit.of_groups <= audit.groups:
        return f"all {counted(audit.labels, noun)}" if audit.labels != 1 else "one " + noun
    rule = f", {audit.rule}" if audit.rule else ""
    return f"{audit.groups} of {audit.of_groups} crowds ({counted(audit.labels, noun)}{rule})"


def _ledger(card: ReleaseCard) -> Iterator[Statement]:
    release, noun = card.release, card.fit.noun
    if release is None:
        yield public(
            "spent",
            "one release",
            "The figures are for one release. No ledger was given: what was released before is not counted.",
        )
        return
    worst = release.worst
    spent = "" if worst is None else (
        f"Most used budget: δ({worst.epsilon:g}) ≤ {upper(worst.spent)} of {worst.budget:g}, {worst.choice}."
    )  # fmt: skip
    yield public(
        "spent",
        counted(release.releases, "release"),
        f"Ledger: {counted(release.releases, 'release')} about {counted(release.ledger_labels, noun)}.",
        spent,
    )
    if release.budget_set:
        yield owner("spent", "", "The ledger had no budget; this one was set. `shoal ledger budget` changes it.")
    if release.ledger_intact is False:
        words = "The ledger is NOT intact: `shoal ledger verify` says where."
        yield owner("spent", "NOT intact", words, warning=True)


# ------------------------------------------------------------------ the readings' promise


def _of_readings(card: ReleaseCard) -> Iterator[Statement]:
    """A function of the public settings alone: the homes that sent readings, errors and names are not known here."""
    settings = card.readings
    assert settings is not None
    plan, series, noun = settings.plan, settings.series, settings.noun
    zero_out, replaced = series.deltas(plan.account)
    whole = "this table" if series.releases == 1 else f"the whole series of at most {series.releases} such tables"
    chance = f"a chance of 1 in {math.floor(1 / zero_out):,}" if zero_out < 0.5 else upper(zero_out)
    words = (
        f"Whatever somebody concludes from {whole} is at most {factor(series.epsilon)} times as likely as it would be "
        f"had any one {noun} sent no readings at all, plus {chance} (ε = {series.epsilon:g}, δ = {upper(zero_out)})."
    )
    cap = (
        f"The figures are those of the series' cap, M = {upper(series.cap)}, which was fixed before its first release; "
        f"this one has μ = {upper(plan.mu)}."
    )
    yield public("hidden", f"every one of {plan.customers}", f"{protects(noun)} {words}")
    yield public(
        "guarantee",
        f"(ε, δ) = ({series.epsilon:g}, {upper(zero_out)})",
        words,
        f"Had a {noun}'s readings been any others instead: the same with δ = {upper(replaced)}.",
        f"It holds for a {noun} behind one meter; one behind several that were not joined counts several times.",
        cap if series.releases > 1 else "",
    )
    sigma = plan.account.sigma
    if isinstance(plan, CrowdsPlan):
        yield public(
            "cost",
            percent(plan.expected_w1),
            f"Expected before anything was read: curves off by about {percent(plan.expected_w1)} of the mean load, the "
            f"total by about {percent(plan.expected_total)}.",
            f"Who knows all other {many(noun)}' readings can tell the mean load of the last one to about "
            f"±{sigma * plan.load_clip / plan.load_weight:.2g} kW, beside a typical {plan.typical_kw:g} kW.",
        )
        way = "one private mean times public curves" if plan.method == "mean" else "a noisy histogram of curves"
        content = f"Weighted curves, counts and the total: {way}, noise in every sum"
        source = "Public curves are derived from London homes (UK Power Networks, Low Carbon London, CC BY 4.0)."
        covers = "curves, counts and total"
    else:
        count, column = sigma / plan.count_weight, sigma / plan.value_weight
        words = f"A count is off by about {count:.2g}, a column's sum by {column:.2g} times half its range."
        yield public("cost", f"counts ± {count:.2g}", words)
        content, source = "A noisy count and mean per cell, within declared bounds", ""
        covers = "counts and means"
    declared = f"{counted(plan.customers, 'customer')} on the register, declared before anything was read"
    yield public("technique", "curves and counts, with noise", f"{content}; {declared}.", source, settings.forecasts)
    yield public(
        "limits",
        "the table only",
        f"The promise covers the table of {covers} only. A row for one {noun}, given to anybody but the {noun} itself, "
        "is outside of it.",
        f"What holds for all {many(noun)} together may be learned: that is its use.",
    )


def protects(noun: str) -> str:
    """What the readings' promise protects, in a sentence."""
    return f"This table protects every {noun}'s readings, against whoever knows all others."


def would_protect(customers: int, noun: str = "home") -> str:
    """For the summary of a label's release: what the other secret would protect, and what it would cost."""
    plan = noisy_crowds_plan(customers=max(customers, 2), epsilon=1.0)
    return (
        f"`--secret readings` would protect every {noun}'s readings, against whoever knows all others; with "
        f"{counted(plan.customers, 'customer')} and a privacy budget (epsilon) of 1 its curves would be "
        f"off by about "
        f"{percent(plan.expected_w1)} of the mean load, its total by {percent(plan.expected_total)}."
    )


# ------------------------------------------------------------------ every kind


def _cost(card: ReleaseCard, accuracy: Accuracy | None) -> Iterator[Statement]:
    """Errors for the owner; for the public with fewer digits, pooled, or not at all."""
    noun = card.fit.noun
    if card.tells_errors:
        by_entry = f"Errors by {card.fit.entry} are told only where every {noun} is one of {CROWD} or more."
        by_step = card.design is None or card.design.by_step
        yield public(*_errors(card, accuracy, SHOWN_DIGITS, worst=card.tells_worst), "" if by_step else by_entry)
    else:
        least = f"{POOLED} crowds" if card.kind == "means" else f"{CROWD} {many(noun)}"
        words = f"Errors are told of {least} or more: of fewer they would tell of the answers themselves."
        yield public("cost", "not told", words)
    mean = None if accuracy is None or card.kind != "means" or accuracy.unit != "kW" else accuracy.answer_mean
    average = "" if mean is None else f"Figures average {nearest(mean)} kW."
    yield owner(*_errors(card, accuracy, 4, worst=True), average)


def _errors(card: ReleaseCard, accuracy: Accuracy | None, digits: int, *, worst: bool) -> tuple[str, ...]:
    """Key, figure and sentences of what a release costs, with so many digits."""
    noun, ratio, (before, after) = card.fit.noun, price(card), card.later_errors
    figure, sentences = "", []
    if ratio is not None and before is not None:
        figure = f"{upper(ratio, max(digits, 3))} times"
        sentences.append(
            f"Against what came later, a row is off by {upper(after, digits)} kW: {figure} the error of unprotected "
            f"figures, {nearest(before, digits)} kW."
        )
    if accuracy is not None:
        unit = f" {accuracy.unit}" if len(accuracy.unit) <= 6 else f" ({accuracy.unit})"
        own = f"{upper(accuracy.rmse, digits)}{unit}"
        figure = figure or own
        mean = accuracy.answer_mean if card.kind == "means" and accuracy.unit == "kW" else None
        if not sentences and mean is not None and mean > 0 and digits > SHOWN_DIGITS:  # the public has fewer digits
            own += f", {percent(accuracy.rmse / mean)} of the mean load"
        sentences.append(f"Beside a {noun}'s own figures a row is off by {own} (root mean square).")
        if worst:
            sentences.append(f"At worst, for one {noun}: {upper(accuracy.rmse_largest, digits)}{unit}.")
        if accuracy.total_error is not None and card.kind == "certified":
            sentences.append(f"The total of a crowd at a step is off by at most {percent(accuracy.total_error)} (rms).")
    return "cost", figure, *(sentences or [""])


def _own_attack(card: ReleaseCard) -> Statement:
    attack, noun = card.attack, card.fit.noun
    assert attack is not None
    named, guess = percent(attack.after), percent(attack.guessing)
    if card.kind == "means":
        before = "" if attack.before is None else (
            f"finds its row in {percent(attack.before, 'lower')} of cases without protection, and here "
        )  # fmt: skip
        sentence = (
            f"Who knows {attack.knows} {before}names the {noun} in {named}; the most that anybody can reach with this "
            f"table is a guess inside the right crowd, {guess}."
        )
    else:
        sentence = (
            f"Who knows {attack.knows} names the {noun} of a held-out one in {named} of cases; a guess gets {guess}."
        )
    tried = f"Tried on the rows of this release, for {counted(attack.labels, noun)}."
    return owner("attack", f"{named} named", sentence, tried)


def _about(fit: FitFacts) -> tuple[str, ...]:
    """What the answers are; how readings were taken stays with the owner."""
    return tuple(line for line in fit.about if not line.startswith("Readings:"))


def _of_everybody(card: ReleaseCard) -> Iterator[Statement]:
    fit = card.fit
    for line in fit.about:
        if line.startswith("Readings:"):
            yield owner("technique", "", line)
    certified = card.kind == "certified"
    if fit.left_out:
        reasons = "; ".join(f"{reason} ({number})" for reason, number in fit.reasons)
        absent = counted(fit.left_out, fit.noun)
        words = f"{absent} without a row, which can be seen{': ' if reasons else ''}{reasons}."
        yield (public if certified else owner)("missing", absent, words)
    if fit.newcomers and certified:
        yield public(
            "missing",
            "",
            f"{counted(fit.newcomers, fit.noun)} new, without a crowd yet: nothing was released about them.",
        )
    for lost in lost_shards(fit, card.design, card.release):
        yield owner(
            "missing",
            "shard left out",
            f"SHARD LEFT OUT, nothing of it is released: {lost.stage} {lost.key[:12]}: {lost.message}",
            warning=True,
        )
