"""What is released and what an attacker may know, for each way in which an answer can come about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QueryWords:
    """Words about one query model; ``sound`` is whether its accounting matches what is released."""

    released: str
    attacker_may_know: str
    sound: bool = True
    not_counted: str | None = None  #: what its figures leave out


#: Query model -> its words.
QUESTIONS = {
    "point": QueryWords(
        "the point forecast, through the mechanism",
        "everything else: every history and every model; nothing is assumed about how answers are distributed",
    ),
    "trajectory": QueryWords(
        "one draw from the predictive law, through the mechanism",
        "every history and every model, but not the draw, which the releaser made",
        not_counted="The draw from the predictive law is made in double precision. What its rounding adds to δ is not "
        "in the figures; only the mechanism's own noise is drawn and rounded exactly.",
    ),
    "marginal": QueryWords(
        "the point forecast, through the mechanism",
        "every model and season, but nothing of the recent history; the forecasting model must be true",
    ),
    "constant": QueryWords(
        "the label's own row, through the mechanism",
        "everything else: the row of every label; nothing is assumed about how rows are distributed",
    ),
    "sample": QueryWords(
        "every row of each label, each through the mechanism",
        "the laws of every label, which rows are about the same one and how many there are, but nothing more about a "
        "row; the laws must be true, and the rows of a label independent of each other",
    ),
    "as_in_paper": QueryWords(
        "the point forecast, accounted for as if it were a draw",
        "no attacker for whom the figures hold: they account for randomness that is not in the release",
        sound=False,
    ),
}
GENERAL = QueryWords(
    "an answer with the stated law given its label, through the mechanism",
    "the laws of every label, but nothing more about this answer; the laws must be true",
)


def question(query: str | None) -> QueryWords:
    """The words for a query model; None is an answer of another kind."""
    return GENERAL if query is None else QUESTIONS[query]
