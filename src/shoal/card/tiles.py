"""The release in plain words: four answers at the top of the page, assumptions and limits at its end."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.card.assumptions import question
from shoal.card.book_measures import METHOD as BOOK
from shoal.card.card import SHOWN_DIGITS, ReleaseCard
from shoal.card.digits import DIGITS, counted, lower, many, nearest, percent, upper
from shoal.card.facts import CROWD, Accuracy
from shoal.card.promise import promise
from shoal.card.section import Section
from shoal.card.summary import attacked_groups, long_run, other_scope, short_unit, sizes


@dataclass(frozen=True)
class Tile:
    """A question of the newcomer, its answer in a few words, and a sentence more; ``tone`` is good, bad or plain."""

    question: str
    answer: str
    more: str
    tone: str = "plain"


def tiles(card: ReleaseCard, *, public: bool) -> tuple[Tile, ...]:
    """What is released, what is protected, how well, at what cost, and what an attacker achieved."""
    return (_released(card), _protected(card), _how_well(card, public), _cost(card, public), _attacker(card))


def _released(card: ReleaseCard) -> Tile:
    design, noun = card.design, card.fit.noun
    group = "crowd" if card.fit.crowd else "group"
    asked = question(design.query).released
    heading = "What is released?"
    if design.all_alike:
        more = f"All {many(noun)} of a {group} get the same answer, up to a trace of noise: no row is one {noun}'s own."
        return Tile(heading, f"The {group}'s curve", more)
    if design.method == BOOK:
        more = (
            f"For each {noun} one of a few curves of its {group} is drawn, the nearer ones more often: none is its own."
        )
        return Tile(heading, f"One of a few curves of the {group}", more)
    return Tile(
        heading, f"Each {noun}'s answer, changed", f"That is {asked}: moved towards its {group}, or with noise."
    )


def _protected(card: ReleaseCard) -> Tile:
    design, noun = card.design, card.fit.noun
    span = sizes(design.smallest_group, design.largest_group)
    where = "in one group" if design.groups == 1 else f"in {design.groups} groups of {span}"
    least = f"at least {card.fit.smallest_group}" if card.fit.crowd else "its neighbors"
    more = f"Each hides among {least}, {where}: {design.edges} pairs that must look alike."
    if design.alone:
        more += f" {design.alone} without a neighbor: no promise there."
    return Tile("What is protected?", f"Which of {counted(design.labels, noun)} a row is about", more)


def _how_well(card: ReleaseCard, public: bool) -> Tile:
    design = card.design
    if not design.meaningful:
        reason = design.statement.removeprefix("no meaningful guarantee: ")
        return Tile("How well?", "No meaningful guarantee", "The card says: " + reason + ".", "bad")
    more = " ".join([promise(design.epsilon, upper(design.delta), design.scope), *other_scope(design)])
    more += f" This δ is {design.theorem}."
    if not public:
        more += f" Worst for {design.worst_edge[0]} against {design.worst_edge[1]}."
    return Tile("How well?", f"δ ≤ {upper(design.delta)} at ε = {design.epsilon:g}", more, "good")


def _cost(card: ReleaseCard, public: bool) -> Tile:
    found, noun = card.design.accuracy, card.fit.noun
    unit, digits = short_unit(found.unit), SHOWN_DIGITS if public else DIGITS
    heading = "At what cost?"
    if public and not card.tells_errors:
        return Tile(heading, "Not told", f"Of fewer than {CROWD} {many(noun)} an error would tell of the answers.")
    error = f"{upper(found.rmse, digits)}{unit}"
    mean = "" if found.answer_mean is None else f", where answers average {nearest(found.answer_mean, 2)}{unit}"
    more = "Root mean square of released minus true, expected"
    if not public or card.tells_worst:
        more += f"; {upper(found.rmse_largest, digits)}{unit} for the worst {noun}"
    more += "."
    if found.ratio and (not public or (card.design.by_step and found.noise_alone)):
        low, high = ratios(found)
        more += f" At least {found.coverage:.0%} of released values are {low} to {high} times the true one."
    before, after = card.later_errors
    if before and after is not None:
        more = (
            f"{upper(after, digits)}{unit} mean absolute error as released, {nearest(before, min(digits, 3))}{unit} "
            f"without. {error} against the unprotected answers. {more}"
        )
        share = percent(max(after / before - 1, 0.0))
        return Tile(heading, f"{share} more error against what came later{mean}", more)
    return Tile(heading, f"{error} of error{mean}", more)


def _attacker(card: ReleaseCard) -> Tile:
    audit, limit, noun = card.audit, card.design.naming, card.fit.noun
    guess, most = percent(limit.guessing, "nearest"), percent(limit.success_upper)
    heading = "What did an attacker achieve?"
    if audit is None:
        return Tile(
            heading,
            "Not tried",
            f"The best attacker names the {noun} in at most {most} of the cases; guessing is right in {guess}.",
        )
    consistent = audit.verdict == "consistent"
    tone = "good" if consistent and card.meaningful else "plain" if consistent else "bad"
    more = (
        f"Guessing is right in {guess}; promised is at most {most}. Verdict of the audit of "
        f"{attacked_groups(audit, noun)}: {audit.verdict}."
    )
    if audit.named is None:
        return Tile(heading, "No more than promised" if consistent else "More than promised", more, tone)
    more = f"On {audit.named.n_answers} answers; {long_run(audit.named)}. {more}"
    return Tile(heading, f"Named {percent(audit.named.accuracy, 'nearest')} right", more, tone)


def ratios(accuracy: Accuracy) -> tuple[str, str]:
    """Ends of the interval, over all labels and steps, that released over true values fall into."""
    return lower(min(a for a, _ in accuracy.interval), 3), upper(max(b for _, b in accuracy.interval), 3)


def limits(card: ReleaseCard, *, public: bool) -> Section:
    """Assumptions and limits, the query's own first."""
    design, fit, noun = card.design, card.fit, card.fit.noun
    asked = question(design.query)
    notes = [
        f"Released: {asked.released}, {design.entries} numbers at a time.",
        f"The attacker may know {asked.attacker_may_know}.",
        f"Two {many(noun)} are protected from each other if they are neighbors in the graph; those further apart are "
        "protected less, those without a path between them not at all.",
        (
            "The promise is for this table, held as a whole."
            if design.scope == "table"
            else f"The promise is for one answer about one {noun}, held by somebody who gets no other."
        )
        + " Everything else released about the same labels adds up, and must be counted: the ledger does that, pair by "
        "pair. A repeated question gets the stored answer.",
        "Noise must be drawn by the mechanism's own release, from a cryptographic source, and be used once.",
        "Observers may still learn what holds for the whole group, and what they knew before.",
        f"That an answer was given is not hidden: a {noun} without one has no row, and hides among nobody.",
    ]
    if asked.not_counted:
        notes.insert(2, asked.not_counted)
    if fit.fitted_on_private_data:
        notes.append(
            "The laws were fitted on the data they protect. Covered is whose answer it is, given the mechanism; the "
            "mechanism's parameters themselves are not covered and must be kept like the data."
        )
    elif fit.fitted_on_private_data is None:
        notes.append("It was not stated whether the laws were fitted on private data.")
    if design.designed_for != design.notion:
        notes.append(
            f"Designed for {design.designed_for}; rounding keeps only {design.notion}, which is what is promised."
        )
    if not design.meaningful:
        notes.insert(0, "No meaningful guarantee: do not tell anyone that this release protects them.")
    if public:
        notes.append(
            "This page holds what the release card says and nothing else: no answer, no reading, no name and nothing "
            "computed for single pairs. Answers are not repeated here because, beside their labels, they would tell "
            "whose they are."
        )
    notes += [note[:1].upper() + note[1:].rstrip(".") + "." for note in design.notes]
    return Section("limits", "Assumptions and limits", notes=tuple(notes))
