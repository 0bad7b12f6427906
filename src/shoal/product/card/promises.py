"""Promises in words: the three steps of the ladder, (ε, δ) in a sentence, and what each query model releases.

Every text about a release takes its sentences from here. Figures are handed in as text that was rounded to its safe
side. (ε, δ) has two forms, for someone who holds the whole table and for someone who holds one row (docs/promise.md).
Hockey-stick δ says P(S) ≤ e^ε P'(S) + δ for every event S. It does not bound Pr(L > ε), the probability that the
likelihood ratio exceeds e^ε: that is probabilistic DP, and can be many times δ.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal

from shoal.rounding import upper


@dataclass(frozen=True)
class Step:
    """One promise in words, and what texts and pictures say differently about a release that makes it."""

    name: str
    title: str  #: of pages and data packages where none was given
    apart: str  #: who is indistinguishable
    promise: str
    insider: str  #: what someone has who knows all others
    command: str
    sentence: str  #: the promise of a release, with places for nouns, figures, among and unless
    figure: str  #: the promise in a few words, where it has no figures of its own
    column: str  #: the meaning of a column of figures
    rows: tuple[str, str]  #: what a row of the table is about, without steps and with them; empty for a label
    drawn: str = "released row"  #: one curve of a picture
    secret: str = "label"  #: what is protected: which of a crowd a row is about, or all that a home sent
    headline: tuple[str, ...] = ("promise",)  #: keys of the statements that begin its card
    warning: str = ""  #: added to its summary
    is_shared: bool = False  #: all members of a crowd have one row
    is_noisy: bool = False  #: its table is made from declared settings and noise, and is no list of labels


#: What averages do not hide, in a line.
KNOWS = (
    "Someone who knows the other members' figures can estimate a constant figure of the last one from the rows of one "
    "column, with an error of about a third of a typical figure in the first release, on average; "
    "`--secret readings` protects figures."
)
AVERAGES = Step(
    "averages",
    "A release of averages",
    "members of a crowd: one shared row",
    "label privacy with ε = 0, δ = 0 between members, nothing between crowds; k-anonymity with rules for size, "
    "precision, dominance, difference and diversity; (0, d/(n·b)), added over columns, if one figure of a member is "
    "larger by d in the whole series, where n members share a row rounded to b; no differential privacy about figures",
    "estimates a constant figure from one column with an error of about a third of a typical first figure; sees "
    "about how much a member changed",
    "shoal run FILE",
    "Averages: the {nouns} of a crowd share one row and are indistinguishable. Label privacy with ε = 0, δ = 0 between "
    "members of a crowd, nothing between crowds; no differential privacy about figures.",
    "ε = 0, δ = 0 inside a crowd",
    column="mean over the members of the crowd",
    rows=("crowd", "crowd"),
    drawn="row of a crowd",
    warning=KNOWS,
    is_shared=True,
)
ANSWERS = Step(
    "answers",
    "A release of answers",
    "neighbors, by default the members of a crowd",
    "label privacy (ε, δ) between neighbors",
    "estimates figures; the card states the error, without what the noise's size tells",
    "shoal run FILE --method NAME --epsilon E --delta D",
    "Answers: label privacy with {figures} between neighbors{among}{unless}.",
    "(ε, δ)",
    column="figure of a row, through the mechanism",
    rows=("", ""),
    headline=("promise", "hidden"),
)
READINGS = Step(
    "readings",
    "A release with noise",
    "a home with all it sent, and the same home with nothing",
    "(ε, δ)-differential privacy",
    "learns no more than (ε, δ) allows",
    "shoal run FILE --secret readings",
    "Readings: differential privacy with {figures} for everything that any one of the {nouns} sent, against someone "
    "who knows everything about all others.",
    "(ε, δ)",
    column="mean within declared bounds, with noise",
    rows=("cell", "curve"),
    secret="readings",
    is_noisy=True,
)
#: The answer to who wants a proof about averages.
NOTHING_TO_PROVE = (
    "nothing to prove: all members of a crowd share one row (ε = 0, δ = 0); nothing is certified about figures"
)
#: Kind of a release -> its step.
LADDER = {"averages": AVERAGES, "answers": ANSWERS, "readings": READINGS}


def ladder_markdown() -> str:
    """The three promises as a Markdown list for the help of the command."""
    steps = (f"- {step.name} (`{step.command}`): {step.apart}. Promise: {step.promise}." for step in LADDER.values())
    return "\n".join(["Three promises, from which you choose:\n", *steps])


# ------------------------------------------------------------------ (ε, δ), and what is released

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


def delta_sentence(epsilon: float, delta: str, scope: str = "answer") -> str:
    """The sentence P ≤ e^ε P' + δ in words; ``delta`` is text that was rounded up."""
    said = SENTENCES[scope].format(factor="" if epsilon == 0 else f"{exp_epsilon(epsilon)} times ", delta=delta)
    return f"For {HOLDERS[scope]}: {said}"


def exp_epsilon(epsilon: float) -> str:
    """e^ε as text, rounded up."""
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


def query_words(query: str | None) -> QueryWords:
    """The words about a query model; ``None`` stands for an answer of another kind."""
    return GENERAL if query is None else QUESTIONS[query]
