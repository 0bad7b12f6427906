"""The ladder: the three promises that a release can make, in the words that every text about a release uses.

Summary, card, pages, public README, service and ``shoal --help`` take their sentence from here; figures are given to
:func:`sentence` as text that was rounded to its safe side. Which step a release stands on is its card's ``kind``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One promise: its name, and in words who is indistinguishable, what is promised, and what gives it."""

    name: str
    title: str  #: of pages and data packages where none was given
    apart: str  #: who is indistinguishable
    promise: str
    insider: str  #: what someone has who knows all others
    command: str

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        """The step as a row of a table with :data:`COLUMNS`."""
        return self.name, self.apart, self.promise, self.insider, f"`{self.command}`"


COLUMNS = ("step", "who is indistinguishable", "promise", "someone who knows all others", "command")
AVERAGES = Step(
    "averages",
    "A release of averages",
    "members of a crowd: one shared row",
    "label privacy with ε = 0, δ = 0 between members, nothing between crowds; k-anonymity with rules for size, "
    "precision, dominance, difference and diversity; (0, d/(n·b)), added over columns, if one figure of a member is "
    "larger by d in the whole series, where n members share a row rounded to b; no differential privacy about figures",
    "estimates a constant figure from one column with an error of about a third of a typical one; sees about how much "
    "a member changed",
    "shoal run FILE",
)
ANSWERS = Step(
    "answers",
    "A release of answers",
    "neighbors, by default the members of a crowd",
    "label privacy (ε, δ) between neighbors",
    "estimates a figure with the error that the card prints, or a larger one",
    "shoal run FILE --method NAME --epsilon E --delta D",
)
READINGS = Step(
    "readings",
    "A release with noise",
    "a home with all it sent, and the same home with nothing",
    "(ε, δ)-differential privacy",
    "learns no more than (ε, δ) allows",
    "shoal run FILE --secret readings",
)
#: The answer to who wants a proof about averages.
NOTHING_TO_PROVE = (
    "nothing to prove: all members of a crowd share one row (ε = 0, δ = 0); nothing is certified about figures"
)
#: Kind of a release -> its step.
LADDER = {"averages": AVERAGES, "answers": ANSWERS, "readings": READINGS}


def sentence(kind: str, nouns: str, figures: str = "", among: str = "", unless: str = "") -> str:
    """The promise of a release of this kind about ``nouns``, such as "households".

    ``figures`` are those of (ε, δ), ``among`` says who the neighbors are, and ``unless`` why the promise may not hold.

    >>> sentence("answers", "households", "(ε, δ) = (3, 0)", "the households of one crowd")
    'Answers: label privacy with (ε, δ) = (3, 0) between neighbors, the households of one crowd.'
    """
    if kind == "averages":
        return (
            f"Averages: the {nouns} of a crowd share one row and are indistinguishable. Label privacy with ε = 0, "
            "δ = 0 between members of a crowd, nothing between crowds; no differential privacy about figures."
        )
    if kind == "readings":
        return (
            f"Readings: differential privacy with {figures} for everything that any one of the {nouns} sent, against "
            "someone who knows everything about all others."
        )
    if "=" not in figures or figures.startswith("no "):
        return f"Answers: {figures or 'label privacy (ε, δ) between neighbors, with the figures of the design'}."
    neighbors = f"neighbors, {among}" if among else "neighbors"
    return f"Answers: label privacy with {figures} between {neighbors}{unless and f', {unless}'}."


def markdown() -> str:
    """The ladder as lines of Markdown for the help of the command."""
    steps = (f"- {step.name} (`{step.command}`): {step.apart}. Promise: {step.promise}." for step in LADDER.values())
    return "\n".join(["Three promises, from which you choose:\n", *steps])
