"""Words that are the same wherever they are printed: the promise, and what is released and known, query by query.

The promise has two forms, for who holds the whole table and for who holds one row of it: what was released decides.
docs/promise.md states and defends it. Hockey-stick δ says P(S) ≤ e^ε P'(S) + δ for every event S. It does not bound
Pr(L > ε), the probability that the likelihood ratio exceeds e^ε: that is probabilistic DP, and can be many times δ.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal

from shoal.rounding import upper

SENTENCES = {
    "answer": "any conclusion drawn from a released answer (any event, test or decision) is at most {factor}as "
    "probable as it would be had the answer been about a neighbor, plus {delta}.",
    "table": "any conclusion drawn from the released table (any event, test or decision) is at most {factor}as "
    "probable as it would be had any two neighbors exchanged their rows, plus {delta}.",
}
#: Scope -> who it is about.
HOLDERS = {"answer": "someone who holds one row", "table": "someone who holds the whole table"}
#: Digits of e^ε as printed, rounded up.
DIGITS = 3


def promise(epsilon: float, delta: str, scope: str = "answer") -> str:
    """P ≤ e^ε P' + δ in words; ``delta`` is text that somebody rounded up already."""
    said = SENTENCES[scope].format(factor="" if epsilon == 0 else f"{factor(epsilon)} times ", delta=delta)
    return f"For {HOLDERS[scope]}: {said}"


def factor(epsilon: float) -> str:
    """e^ε, rounded up."""
    wide = Context(prec=DIGITS + 20)
    power = wide.exp(Decimal(epsilon))
    if epsilon != 0:  # correctly rounded, so the next number is not below e^ε
        power = wide.next_plus(power)
    return upper(power, DIGITS)


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
