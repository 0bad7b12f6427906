"""A release in words for someone who has never heard of ε, with the figures on the safe side."""

from __future__ import annotations

from shoal.card.assumptions import question
from shoal.card.digits import DIGITS, counted, many, nearest, percent, upper
from shoal.card.facts import MEANINGLESS, AuditFacts, DesignFacts, FitFacts, Named, ReleaseFacts, lost_shards
from shoal.card.promise import HOLDERS, promise
from shoal.plaintext import printable

Part = tuple[str, list[str]]


def summary(
    fit: FitFacts | None = None,
    design: DesignFacts | None = None,
    release: ReleaseFacts | None = None,
    audit: AuditFacts | None = None,
) -> list[Part]:
    """Headings with their sentences, of the stages that are done."""
    noun = "label" if fit is None else fit.noun
    parts = [
        ("What is protected", _protected(fit, design)),
        ("How well", _well(design, noun)),
        ("At what cost", _cost(fit, design, release, audit, noun)),
        ("What an attacker achieved", _attacked(audit, noun)),
        ("What was spent", _spent(release, noun)),
        ("What is missing", _missing(fit, design, release)),
    ]
    return [(heading, [printable(line) for line in lines]) for heading, lines in parts if lines]


#: Two figures below this need not be told apart.
NOTHING = 1e-12


def other_scope(design: DesignFacts) -> list[str]:
    """The figure for who holds the other thing, where it differs from the one that is promised."""
    if design.other_delta is None or upper(design.other_delta) == upper(design.delta):
        return []
    if max(design.delta, design.other_delta) < NOTHING:
        return []
    other = "answer" if design.scope == "table" else "table"
    held = f"For {HOLDERS[other]} δ ≤ {upper(design.other_delta)} at the same ε."
    return [held if other == "answer" else f"{held} This release was designed for single answers: do not pass on all."]


def any_law(design: DesignFacts) -> list[str]:
    """What holds of clipped answers without their laws, beside the figure that rests on them."""
    if design.assumption_free is None:
        return []
    said = f"Whatever the law of the rows inside their ellipsoids: δ ≤ {upper(min(design.assumption_free, 1.0))}"
    if upper(design.assumption_free) == "1":
        return [f"{said}, so that nothing is promised without the Gaussian law."]
    return [f"{said} at ε = {design.epsilon:g}; the promised δ rests on the Gaussian law."]


def sizes(smallest: int, largest: int) -> str:
    """A range of group sizes."""
    return f"{smallest}" if smallest == largest else f"{smallest} to {largest}"


def crowd_sentence(fit: FitFacts) -> str:
    """What the size of the smallest group means; groups are complete."""
    return f"Every {fit.noun} hides among at least {fit.smallest_group}, itself included."


def _protected(fit: FitFacts | None, design: DesignFacts | None) -> list[str]:
    if fit is None:
        return []
    span = sizes(fit.smallest_group, fit.largest_group)
    lines = [
        *([crowd_sentence(fit)] if fit.crowd else []),
        f"Which {fit.noun} a released answer is about: {counted(fit.labels, fit.noun)} in "
        f"{counted(fit.groups, 'group')} of {span}; inside a group they must not be told apart. Group membership "
        "itself is not hidden.",
        *fit.about,
    ]
    if fit.crowd:
        lines.append(
            "Groups were formed from what is known of their members, to be kept."
            if fit.standing
            else "Groups were formed by these answers and hold for this one release."
        )
    if design is not None:
        asked = question(design.query)
        lines.append(f"Released: {asked.released}. The attacker may know {asked.attacker_may_know}.")
    if fit.goes_on:
        lines.append(
            f"Since the last release: {fit.carried} have new readings, {fit.joined} joined a group, {fit.silent} "
            "without anything new or someone to hide among."
        )
    if fit.merged_groups:
        lines.append(f"{counted(fit.merged_groups, 'group')} became part of another for good: too few were left of it.")
    return lines


def _well(design: DesignFacts | None, noun: str) -> list[str]:
    if design is None:
        return []
    if not design.meaningful:
        sound = question(design.query).sound
        why = f"δ is above {MEANINGLESS:g}" if sound else "its accounting does not match what is released"
        return [
            f"NO meaningful guarantee: δ ≤ {upper(design.delta)} at ε = {design.epsilon:g}; {why}. "
            "Allow more error, or ask for a guarantee (δ = 1e-5, say).",
            *any_law(design),
        ]
    a, b = design.worst_edge
    lines = [
        f"{design.statement}, {design.method}. {promise(design.epsilon, upper(design.delta), design.scope)} Neighbors "
        f"are the {many(noun)} of one group.",
        f"This δ is {design.theorem}.",
        f"Hardest to hide: {a} from {b}.",
    ]
    lines += [*any_law(design), *other_scope(design)]
    if design.target is not None:
        lines.append(f"Asked for was δ ≤ {design.target:g}, group by group, at the least error that the search found.")
    if design.all_alike:
        lines.append(
            f"At this guarantee the {many(noun)} of a group get the same answer up to a trace of noise: what is "
            "released is the group's."
        )
    if design.alone:
        lines.append(f"{counted(design.alone, noun)} without a neighbor: no promise there.")
    return lines


def _cost(
    fit: FitFacts | None,
    design: DesignFacts | None,
    release: ReleaseFacts | None,
    audit: AuditFacts | None,
    noun: str,
) -> list[str]:
    if design is None:
        return []
    found = design.accuracy
    unit = short_unit(found.unit)
    mean = "" if found.answer_mean is None else f"; answers average {nearest(found.answer_mean)}{unit}"
    if found.answer_mean is not None and found.answer_mean > 0:
        mean += f", so that is {percent(found.rmse / found.answer_mean)}"
    lines = [
        f"Released answers are off the true ones by {upper(found.rmse)}{unit} (root mean square; {noun} hardest hit "
        f"{upper(found.rmse_largest)}{unit}{mean}), with a bias of {found.bias:+.2g}{unit}."
    ]
    if found.total_error is not None:
        lines.append(
            f"The total of a group at a step is off by at most {percent(found.total_error)} (root mean square)."
        )
    before = None if fit is None else fit.later_error
    after = None if release is None else release.later_error
    if before is not None and after is not None:
        lines.append(
            f"Against what came later: {upper(after)}{unit} mean absolute error as released, {nearest(before)}{unit} "
            f"without protection{price(before, after)}."
        )
    if audit is not None and audit.equal_noise_delta is not None:
        lines.append(
            f"Equal noise with the same mean squared error (ρ = {upper(found.rho_mean)}) would leave "
            f"δ = {upper(audit.equal_noise_delta)}."
        )
    return lines


def price(before: float, after: float, digits: int = DIGITS) -> str:
    """How many times the error of unprotected answers the released ones have."""
    return f": {upper(after / before, digits)} times" if before > 0 else ""


def short_unit(unit: str) -> str:
    """A unit to print after a number, with its space; nothing where it takes words."""
    return f" {unit}" if len(unit) <= 6 else ""


def _attacked(audit: AuditFacts | None, noun: str) -> list[str]:
    if audit is None:
        return []
    lines = []
    if audit.named is not None:
        lines.append(
            f"The best attacker {HOLDERS[audit.scope]} named the {noun} in {percent(audit.named.accuracy)} of "
            f"{audit.named.n_answers} test answers ({long_run(audit.named)}); guessing inside the group gives "
            f"{percent(audit.named.guessing, 'nearest')}, promised is at most {percent(audit.named.promise_upper)} on "
            "average."
        )
    if audit.verdict == "consistent":
        limit = audit.detectable_delta
        lines.append(
            f"Audit of {attacked_groups(audit, noun)}: consistent with the promise."
            + (f" This many answers would have shown a δ of {upper(limit)}; less may pass unseen." if limit < 1 else "")
        )
    else:
        lines.append(
            f"Audit of {attacked_groups(audit, noun)}: VIOLATED ({counted(audit.violations, 'finding')}). Do not use "
            "this release."
        )
    return lines


def long_run(named: Named) -> str:
    """So few answers leave room for chance: a share above the promise need not break it."""
    return f"in the long run between {percent(named.accuracy_lower, 'lower')} and {percent(named.accuracy_upper)}"


def attacked_groups(audit: AuditFacts, noun: str) -> str:
    """Which part of a release was attacked."""
    if audit.of_groups <= audit.groups:
        return f"all {counted(audit.labels, noun)}" if audit.labels != 1 else "one " + noun
    rule = f", {audit.rule}" if audit.rule else ""
    return f"{audit.groups} of {audit.of_groups} groups ({counted(audit.labels, noun)}{rule})"


def _spent(release: ReleaseFacts | None, noun: str) -> list[str]:
    if release is None or release.worst is None:
        return []
    worst = release.worst
    lines = [
        f"δ({worst.epsilon:g}) ≤ {upper(worst.spent)} of a budget of {worst.budget:g} for the {noun} with most spent; "
        f"{counted(worst.releases, 'release')} about it. The budget holds {worst.choice}."
    ]
    if release.budget_set:
        lines.append("The ledger had no budget; this one was set. `shoal ledger budget` changes it.")
    if release.ledger_intact is False:
        lines.append("The ledger is NOT intact: `shoal ledger verify` says where.")
    return lines


def _missing(fit: FitFacts | None, design: DesignFacts | None, release: ReleaseFacts | None) -> list[str]:
    lines = []
    if fit is not None and fit.left_out:
        reasons = "; ".join(f"{reason} ({number})" for reason, number in fit.reasons)
        lines.append(
            f"{counted(fit.left_out, fit.noun)} left out" + (f": {reasons}." if reasons else ".")
            + " Their absence can be seen."
        )  # fmt: skip
    if fit is not None and fit.newcomers:
        lines.append(f"{counted(fit.newcomers, fit.noun)} new, without a group yet: nothing was released about them.")
    lines += [
        f"SHARD LEFT OUT, nothing of it is released: {lost.stage} {lost.key[:12]}: {lost.message}"
        for lost in lost_shards(fit, design, release)
    ]
    return lines
