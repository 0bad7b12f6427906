"""The release in plain words: four answers at the top, assumptions and limits at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal.card.digits import lower, many, percent, stated, upper
from shoal.card.promise import promise
from shoal.report.section import Section


@dataclass(frozen=True)
class Tile:
    """A question of the newcomer, its answer in a few words, and a sentence more; ``tone`` is good, bad or plain."""

    question: str
    answer: str
    more: str
    tone: str = "plain"


def summary(card: Mapping[str, Any], *, public: bool) -> tuple[Tile, ...]:
    """What is protected, how well, at what cost, and what an attacker achieved."""
    return (_protected(card), _how_well(card, public), _cost(card), _attacker(card))


def _protected(card: Mapping[str, Any]) -> Tile:
    graph, unit = card["graph"], card["guarantee"]["privacy_unit"]
    groups, small, large = graph["groups"], graph["smallest_group"], graph["largest_group"]
    size = f"{small}" if small == large else f"{small} to {large}"
    where = "in one group" if groups == 1 else f"in {groups} groups of {size}"
    more = f"Each hides among its neighbors, {where}: {graph['edges']} pairs that must look alike."
    if graph["alone"]:
        more += f" {graph['alone']} without a neighbor: no promise there."
    return Tile("What is protected?", f"Which of {graph['labels']} {many(unit)} an answer is about", more)


def _how_well(card: Mapping[str, Any], public: bool) -> Tile:
    g = card["guarantee"]
    if not g["meaningful"]:
        reason = str(g["statement"]).removeprefix("no meaningful guarantee: ")
        return Tile("How well?", "No meaningful guarantee", "The card says: " + reason + ".", "bad")
    more = promise(g["epsilon"], stated(g["delta"]))
    if not public:
        more += f" Worst for {g['worst_edge'][0]} against {g['worst_edge'][1]}."
    return Tile("How well?", f"δ ≤ {stated(g['delta'])} at ε = {g['epsilon']:g}", more, "good")


def _cost(card: Mapping[str, Any]) -> Tile:
    found = card["accuracy"]
    unit = found["unit"] if found["unit"] == "kW" or len(found["unit"]) <= 6 else ""
    answer = f"{stated(found['rmse'])} {unit}".strip() + " of error"
    more = (
        f"Root mean square of released minus true, expected; {stated(found['rmse_worst_label'])} {unit}".rstrip()
        + f" for the worst {card['guarantee']['privacy_unit']}."
    )
    if "ratio_interval" in found:
        low, high = ratios(found)
        more += f" At least {found['coverage']:.0%} of released values are {low} to {high} times the true one."
    return Tile("At what cost?", answer, more)


def _attacker(card: Mapping[str, Any]) -> Tile:
    found, limit, unit = card.get("audit"), card["identification"], card["guarantee"]["privacy_unit"]
    guess, most = percent(limit["guessing"], "nearest"), percent(limit["success_upper"])
    if found is None:
        return Tile(
            "What did an attacker achieve?",
            "Not tried",
            f"The best attacker names the {unit} in at most {most} of the cases; guessing is right in {guess}.",
        )
    consistent = found["verdict"] == "consistent"
    tone = "good" if consistent and card["guarantee"]["meaningful"] else "plain" if consistent else "bad"
    naming = found["naming"]
    if naming is None:
        answer = "No more than promised" if consistent else "More than promised"
    else:
        answer = f"Named {percent(naming['accuracy'], 'nearest')} right"
    more = f"Guessing is right in {guess}; promised is at most {most}. Verdict of the audit: {found['verdict']}."
    if naming is not None:
        low, high = percent(naming["accuracy_lower"], "lower"), percent(naming["accuracy_upper"])
        more = f"On {naming['n_answers']} answers; in the long run between {low} and {high}. {more}"
    return Tile("What did an attacker achieve?", answer, more, tone)


def ratios(accuracy: Mapping[str, Any]) -> tuple[str, str]:
    """Ends of the interval, over all labels and steps, that released over true values fall into."""
    found = accuracy["ratio_interval"]
    return lower(min(a for a, _ in found), 3), upper(max(b for _, b in found), 3)


def limits(card: Mapping[str, Any], *, public: bool) -> Section:
    """Assumptions and limits, the query's own first."""
    g, query, unit = card["guarantee"], card["query"], card["guarantee"]["privacy_unit"]
    notes = [
        f"Released: {query['released']}, {query['entries']} numbers at a time.",
        f"The attacker may know {query['attacker_may_know']}.",
        f"Two {many(unit)} are protected from each other if they are neighbors in the graph; those further apart are "
        "protected less, those without a path between them not at all.",
        f"The promise is for one answer about one {unit}. Everything else released about it adds up, and must be "
        "counted: the ledger does that. A repeated question gets the stored answer.",
        "Noise must be drawn by the mechanism's own release, from a cryptographic source, and be used once.",
        "Observers may still learn what holds for the whole group, and what they knew before.",
        f"That an answer was given is not hidden: a {unit} without one has no row, and hides among nobody.",
    ]
    if query.get("not_counted"):
        notes.insert(2, str(query["not_counted"]))
    if card["model"]["fitted_on_private_data"]:
        notes.append(
            "The laws were fitted on the data they protect. Covered is whose answer it is, given the mechanism; the "
            "mechanism's parameters themselves are not covered and must be kept like the data."
        )
    elif card["model"]["fitted_on_private_data"] is None:
        notes.append("It was not stated whether the laws were fitted on private data.")
    if g["designed_for"] != g["notion"]:
        notes.append(f"Designed for {g['designed_for']}; rounding keeps only {g['notion']}, which is what is promised.")
    if not g["meaningful"]:
        notes.insert(0, "No meaningful guarantee: do not tell anyone that this release protects them.")
    if public:
        notes.append(
            "This page holds what the release card says and nothing else: no answer, no reading, no name and nothing "
            "computed for single pairs. Answers are not repeated here because, beside their labels, they would tell "
            "whose they are."
        )
    notes += [_sentence(str(note)) for note in card["mechanism"]["notes"]]
    return Section("limits", "Assumptions and limits", notes=tuple(notes))


def _sentence(note: str) -> str:
    return note[:1].upper() + note[1:].rstrip(".") + "."
