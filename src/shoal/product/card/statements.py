"""Statements about a release, each phrased once in ``templates/statements.txt``; renderers choose and order them.

A statement has a key, its audience ("public": it may be published; "owner": it stays with the data owner), a figure
and a sentence that can stand alone, and more for who asks. Figures are rounded by :mod:`shoal.rounding`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from shoal import __version__
from shoal.plaintext import escape_controls
from shoal.product.card.facts import CROWD, MEANINGLESS, DesignFacts, FitFacts, promised_delta
from shoal.product.card.promises import HOLDERS, delta_sentence, exp_epsilon, query_words
from shoal.readings.plan import noisy_crowds_plan
from shoal.rounding import count_of, exactly, lower, many, nearest, percent, upper

if TYPE_CHECKING:
    from shoal.product.card.card import ReleaseCard

PUBLIC, OWNER = "public", "owner"
#: Digits of an error that is published.
SHOWN_DIGITS = 2
#: Crowds of means from which on errors pooled over all of them are published.
POOLED = 10
#: Two figures below this are the same.
NOTHING = 1e-12
#: Names in a sentence, at most.
MOST_NAMED = 6
KIND = "aggregation with a minimum crowd size (k-anonymity)"
#: What a mean does not hide, wherever an operator reads.
FIGURES = (
    "Someone who knows the other members' figures, as their supplier or landlord may, can estimate a constant figure "
    "of the last member from the rows of one column, with an error of about a third of a typical figure in the "
    "first release, on average. Members are alike, so the row itself is a guess of each. "
    "The readings' promise adds noise and protects figures."
)
#: Key -> the heading over its sentences; the first five are the summary.
HEADINGS = {
    "promise": "Promise",
    "hidden": "Protected",
    "cost": "Accuracy",
    "attack": "Attack",
    "pass_on": "Share",
    "keep": "Keep private",
    "guarantee": "Guarantee",
    "technique": "What is released",
    "next": "Next release",
    "limits": "Not protected",
    "rules": "Rules",
    "use": "Use of the table",
    "model": "Assumptions",
    "audit": "Audit",
    "spent": "On record",
    "missing": "Without a row",
}
#: The heading over what the owner must look at.
WARNINGS = "Warnings"
SUMMARY = ("promise", "hidden", "cost", "attack", "pass_on", "keep")
#: Named rules of aggregation: name -> least number of members, largest share of one of them (None: not limited), words.
#: Shares are of a crowd's load over the horizon: of a single step one home can have most.
RULES: dict[str, tuple[int, float | None, str]] = {
    "15/15 of the load over the horizon": (15, 0.15, "at least 15, and none with more than 15 % of it"),
    "4/80 of the load over the horizon": (4, 0.80, "at least 4, and none with more than 80 % of it"),
    "five devices": (5, None, "at least five members"),
    "100 accounts": (100, None, "at least 100 members"),
}
#: Where a statement begins in what the template of them prints: a character that no value can bring along.
BEGINS = "\x1e"


@dataclass(frozen=True)
class Statement:
    """One thing to say: its key, whom it is for, a figure, a sentence, and more."""

    key: str
    audience: str
    figure: str
    sentence: str
    more: tuple[str, ...] = ()
    warning: bool = False  #: to be shown wherever the owner reads


@cache
def template_environment(form: str) -> Environment:
    """Templates of a form: "html", where text is escaped, "md", where it cannot begin markup, "text", or "lines".

    No value of "lines" holds a line end; lines of a template that hold only its tags are empty there.
    """

    def finalize(value: Any) -> Any:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        text = escape_controls(value, keep="" if form == "lines" else "\n")
        return text.replace("<", "&lt;") if form == "md" else text

    def code(text: str) -> Markup:
        """A sentence with what stands between backticks as code."""
        parts = escape_controls(text).split("`")
        return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts))

    templates = Environment(
        loader=PackageLoader("shoal.product.card", "templates"),
        autoescape=form == "html",
        undefined=StrictUndefined,
        trim_blocks=form != "lines",
        finalize=finalize,
        keep_trailing_newline=True,
    )
    templates.filters |= {"code": code, "upper_end": upper, "nearest": nearest, "counted": count_of}
    templates.filters["cell"] = lambda value: str(value).replace("|", "\\|")
    templates.globals |= {"headings": HEADINGS, "version": __version__, "rules": RULES, "holders": HOLDERS}
    templates.globals |= {"counted": count_of, "many": many, "percent": percent, "factor": exp_epsilon}
    templates.globals |= {"upper": upper, "lower": lower, "exactly": exactly, "nearest": nearest}
    templates.globals |= {"promise": delta_sentence, "promised": promised_delta}
    templates.globals |= {"other_scope": other_scope_sentence, "technique": KIND, "figures": FIGURES}
    templates.globals |= {"promised_figure": promised_figure, "promised_sentence": promised_sentence}
    templates.globals |= {"pooled": POOLED, "least_known": CROWD, "shown_digits": SHOWN_DIGITS}
    templates.globals |= {"meaningless": MEANINGLESS, "most_named": MOST_NAMED}
    return templates


def card_statements(card: ReleaseCard) -> tuple[Statement, ...]:
    """All statements about a release, in the order of what readers ask first."""
    # For the owner alone: how readings were taken; of averages, which rows had an empty cell.
    kept = ("Readings:", "Not in it:") if card.kind == "averages" else ("Readings:",)
    printed = template_environment("lines").get_template("statements.txt").render(
        **{name: Markup(BEGINS + name) for name in (PUBLIC, OWNER)},
        card=card,
        kind=card.kind,
        fit=card.fit,
        noun=card.fit.noun,
        nouns=many(card.fit.noun),
        about=[line for line in card.fit.about if not line.startswith(kept)],
        design=card.design,
        insider_unit=_insider_unit(card),
        words=None if card.design is None else query_words(card.design.query),
        release=card.release,
        audit=card.audit,
    )  # fmt: skip
    result = []
    for block in printed.split(BEGINS)[1:]:
        head, *lines = (line.strip() for line in block.splitlines() if line.strip())
        name, _, figure = head.partition(":")
        audience, key = name.split()
        if lines:
            more = tuple(lines[1:])
            result.append(Statement(key.rstrip("!"), audience, figure.strip(), lines[0], more, key.endswith("!")))
    return tuple(result)


def _insider_unit(card: ReleaseCard) -> str:
    """Unit of the error with which someone who knows the others estimates a figure."""
    if card.design is not None and card.design.query == "point":
        return "kW"
    of_table = card.fit.step_minutes is None
    return "units of the columns, each the power of two next to its spread," if of_table else "in units of the answers"


def share_and_keep_statements(folder: str, ledger: str) -> tuple[Statement, Statement]:
    """The owner's statements on which files to share and which to keep private."""
    public = f"{folder}/public: the table, its card, README and checksums. No names in it."
    keep = f"Everything else in {folder}, and the ledger {ledger}. They are as private as the data: protect them too."
    return Statement("pass_on", OWNER, "public/", public), Statement("keep", OWNER, "the rest", keep)


def promised_figure(card: ReleaseCard) -> str:
    """The figures of the promise in a few words, such as "(ε, δ) = (1, 1e-5)"."""
    if card.readings is not None:
        series = card.readings.series
        return f"(ε, δ) = ({exactly(series.epsilon)}, {upper(series.deltas(card.readings.plan.account)[0])})"
    if card.design is None:
        return card.step.figure
    return "rests on a law that the rows reject" if card.doubtful else card.design.statement


def promised_sentence(card: ReleaseCard) -> str:
    """The promise of a release as one sentence."""
    nouns, design = many(card.fit.noun), card.design
    among = f", the {nouns} of one crowd" if card.fit.crowd else ""
    unless = f", if the rows follow a Gaussian law, which those of many {nouns} reject" if card.doubtful else ""
    figures = design.statement if design is not None else promised_figure(card) if card.readings is not None else ""
    if card.kind == "answers" and ("=" not in figures or figures.startswith("no ")):
        return f"Answers: {figures or 'label privacy (ε, δ) between neighbors, with the figures of the design'}."
    return card.step.sentence.format(nouns=nouns, figures=figures, among=among, unless=unless)


def other_scope_sentence(design: DesignFacts) -> str:
    """Sentence on δ for holders of one row or of the whole table, whichever is not promised; may be empty."""
    if design.other_delta is None or upper(design.other_delta) == upper(design.delta):
        return ""
    if max(design.delta, design.other_delta) < NOTHING:
        return ""
    other = "answer" if design.scope == "table" else "table"
    held = f"For {HOLDERS[other]}, δ ≤ {upper(design.other_delta)} at the same ε."
    return (
        held
        if other == "answer"
        else f"{held} This release was designed for single answers: do not share the whole table."
    )


def readings_offer(fit: FitFacts, mean_kw: float | None = None, *, options: bool = True) -> str:
    """Sentence on what the readings' promise would protect and, for meters, at which error."""
    name, bounds = ("`--secret readings`", " (--bounds)") if options else ("The readings' promise", "")
    if fit.entry == "column":
        return (
            f"{name} would protect every {fit.noun}'s figures, against someone who knows all others. The bounds of the "
            f"columns{bounds}, which you declare, set its noise."
        )
    protects = f"{name} would protect every {fit.noun}'s readings, against someone who knows all others."
    if mean_kw is None or not 0 < mean_kw < inf:
        return protects
    load = float(f"{mean_kw:.2g}")
    customers = max(fit.labels, 2)
    plan = noisy_crowds_plan(customers, 1.0, typical_kw=load)
    curves, total = percent(plan.expected_w1), percent(plan.expected_total)
    return (
        f"{protects} With {count_of(customers, 'customer')} of {load:g} kW, the mean load here, and a privacy budget "
        f"(epsilon) of 1, its curves as a population would miss by about {curves} of the mean load, its total by "
        f"about {total}."
    )
