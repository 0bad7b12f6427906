"""Statements → texts and pages: each renderer chooses and orders, and none phrases anything about the release anew.

Pages are one HTML file each that needs nothing else: style and script are inside. Text is escaped where it enters a
page, so that a label is never markup; a content security policy names the one script and the one style by their digest
and forbids every connection, so that nothing a label may contain can run or call home.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shoal.product.card import pictures
from shoal.product.card.card import ReleaseCard
from shoal.product.card.pictures import CrowdCurves
from shoal.product.card.statements import (
    HEADINGS,
    OWNER,
    SHOWN_DIGITS,
    SUMMARY,
    WARNINGS,
    Statement,
    readings_offer,
    template_environment,
)
from shoal.rounding import exactly, nearest, upper

if TYPE_CHECKING:
    from shoal.product.studies.findings import Study

INTERNAL = "Internal: contains the members' own figures. For the data owner only: do not share this page."
NAMELESS = "For the data owner, the board and regulators: no names, no single figures."
PASSED_ON = "Public: has the released table and its card. No figures of single members, no names."
#: Statements of the owner that name nobody and may stand on the pages of board and regulator.
NAMELESS_KEYS = ("cost", "attack", "missing")
#: The privacy notion of the guarantee of a method's release, in words.
NOTION = "(ε, δ)-differential privacy of the label, hockey-stick δ"
Part = tuple[str, list[str]]
#: A table of a page: name, columns, rows.
Figures = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


# ------------------------------------------------------------------ texts


def summary(card: ReleaseCard, handed: Sequence[Statement] = (), *, verbose: bool = False) -> list[Part]:
    """Headings with their sentences for the owner: six lines, or all that there is to say."""
    every = [*card.statements, *handed]
    chosen = [(key, _choose_statements(every, key)) for key in (HEADINGS if verbose else SUMMARY)]
    if verbose:
        return [
            (HEADINGS[key], [line for one in group for line in (one.sentence, *one.more)])
            for key, group in chosen
            if group
        ]
    parts = [(HEADINGS[key], [group[0].sentence]) for key, group in chosen if group]
    if card.step.warning:
        dict(parts)[HEADINGS["attack" if card.attack else "hidden"]].append(card.step.warning)
    absent = [one.figure for one in every if one.key == "missing" and one.figure and not one.warning]
    if absent and not card.step.is_noisy:
        why = "; ".join(f"{reason} ({number})" for reason, number in card.fit.reasons)
        without = f"Without a row: {absent[0]}{why and f': {why}'}. left_out.csv has their names."
        dict(parts)[HEADINGS["hidden"]].append(without)
    warnings = [one.sentence for one in every if one.warning]
    return [*parts, (WARNINGS, warnings)] if warnings else parts


def _choose_statements(every: Iterable[Statement], *keys: str) -> list[Statement]:
    """Statements with the given keys; of "cost" and "attack" only the owner's, if there are any.

    Of what is public, all of them.
    """
    chosen = []
    for key in keys:
        group = [one for one in every if one.key == key]
        own = [one for one in group if one.audience == OWNER]
        chosen += own if key in ("cost", "attack") and own else group
    return chosen


def card_markdown(card: ReleaseCard) -> str:
    """The card's public statements and tables as a page of Markdown."""
    said = " ".join(_choose_statements(card.public, key)[0].sentence for key in card.step.headline)
    headline = said if card.meaningful else "No meaningful guarantee"
    template = template_environment("md").get_template("card.md")
    return template.render(
        card=card, headline=headline, groups=_group_by_heading(card.public), tables=figure_tables(card)
    )


def public_readme(card: ReleaseCard, **given: Any) -> str:
    """The text of README.txt in the public folder, half a page."""
    sentences = dict.fromkeys(("promise", "technique", "hidden", "use", "limits", "rules"), "")
    sentences |= {one.key: one.sentence for one in reversed(card.public)}
    return template_environment("text").get_template("README.txt").render(statements=sentences, **given)


def _group_by_heading(every: Sequence[Statement]) -> list[tuple[str, list[Statement]]]:
    """(key, its statements) in the order of the headings, without empty ones."""
    groups = [(key, [one for one in every if one.key == key]) for key in HEADINGS]
    return [(key, group) for key, group in groups if group]


def figure_tables(card: ReleaseCard) -> list[Figures]:
    """Tables of figures of a release by a method: δ at every ε, the guarantee, and errors where they are published."""
    design = card.design
    if design is None:
        return []
    details = [("notion", NOTION), ("finite precision", f"adds {upper(design.finite_precision, 3)} to δ; included")]
    tables: list[Figures] = [
        ("Privacy at every ε", ("ε", "δ at most"), [(exactly(e), upper(d)) for e, d in design.curve]),
        ("Of the guarantee", ("figure", "value"), [*details, *(("note", note) for note in design.notes)]),
    ]
    if card.may_publish_errors and design.may_publish_by_entry:
        errors = design.accuracy
        each = enumerate(zip(errors.rmse_by_entry, errors.bias_by_entry, strict=True), start=1)
        unit = f", {errors.unit}" if len(errors.unit) <= 6 else ""
        columns = (card.fit.entry, f"error{unit} (rms)", f"bias{unit}")
        rows = [(str(step), upper(rmse, SHOWN_DIGITS), nearest(bias, SHOWN_DIGITS)) for step, (rmse, bias) in each]
        tables.append(("Errors by " + card.fit.entry, columns, list(rows)))
    return tables


# ------------------------------------------------------------------ pages


def owner_report(
    card: ReleaseCard,
    crowds: Sequence[CrowdCurves] = (),
    *,
    unit: str = "kW",
    axis: str = "",
    title: str | None = None,
    made: str = "",
    timings: Mapping[str, float] | None = None,
    handed: Sequence[Statement] = (),
    public: Mapping[str, bytes] | None = None,
) -> str:
    """The owner's HTML page: pictures of crowds, or of the ``public`` files of readings, and all statements."""
    curve = figure_tables(card)[:1]
    entries = crowds[0].released.shape[1] if crowds else 1
    below = pictures.time_axis(entries, card.fit.origin, card.fit.step_minutes, axis)
    return _card_page(
        "report.html",
        card,
        [*card.statements, *handed],
        title=title,
        banner=INTERNAL,
        internal=True,
        about=[f"Data: {card.fit.source}."] if card.fit.source else [],
        made=made,
        crowds=pictures.crowd_panels(crowds, unit, card.fit.noun, below),
        table=pictures.table_pictures(card, public or {}) if card.step.is_noisy else ([], []),
        least_accurate=pictures.least_accurate(crowds, unit),
        price=pictures.error_histogram(crowds, unit, card.fit.noun),
        tables=[(name, *rest) for name, *rest in curve if len({delta for _, delta in rest[1]}) > 1],
        took=", ".join(f"{name} {seconds:.1f} s" for name, seconds in (timings or {}).items()),
    )


def public_page(
    card: ReleaseCard, *, title: str | None = None, made: str = "", public: Mapping[str, bytes] | None = None
) -> str:
    """The HTML page to publish: pictures of the public files, and the card's public statements."""
    given: dict[str, Any] = {"title": title, "banner": PASSED_ON, "made": made, "crowds": None}
    given["tables"] = figure_tables(card)
    return _card_page("report.html", card, card.public, table=pictures.table_pictures(card, public or {}), **given)


def board_page(card: ReleaseCard, *, title: str | None = None, made: str = "", study: Study | None = None) -> str:
    """One HTML page for a board: what was released, who is protected, how accurate it is, what attacks find."""
    known = card.accuracy if card.accuracy is not None and card.accuracy.labels else None
    load = None if known is None or known.answers is None else known.answers / known.labels
    instead = readings_offer(card.fit, load, options=False) if card.step.is_shared else ""
    when = str(card.fit.origin or card.period).replace("T", ", ")[:17]  # to the minute, as people write it
    about = [f"About the time from {when} on."] if card.period else []
    given: dict[str, Any] = {"title": title, "made": made, "body_class": "board", "instead": instead, "about": about}
    given["study"] = study
    return _card_page("board.html", card, _nameless_statements(card), **given)


def regulator_annex(
    card: ReleaseCard, *, purpose: str = "", title: str | None = None, made: str = "", study: Study | None = None
) -> str:
    """The annex for a regulator, by the usual chapters, with the findings of a study."""
    given: dict[str, Any] = {"purpose": purpose, "tables": figure_tables(card), "study": study}
    return _card_page("annex.html", card, _nameless_statements(card), title=title, made=made, **given)


def questions_page(study: Study, made: str) -> str:
    """Two sheets to file with an impact assessment: three questions about a file, with figures and pictures."""
    title = "Singling out, linkability, inference"
    return _self_contained_page(
        "questions.html", study=study, about=[study.description, f"Made {made}."], title=title, body_class="board"
    )


def _nameless_statements(card: ReleaseCard) -> list[Statement]:
    """Public statements, and the owner's first sentences on matters that name nobody."""
    own = [replace(one, more=()) for one in card.statements if one.audience == OWNER and one.key in NAMELESS_KEYS]
    return [*card.public, *own]


def _card_page(template: str, card: ReleaseCard, every: Sequence[Statement], *, title: str | None, **given: Any) -> str:
    """An HTML page made from statements; its template gets those of some keys by calling ``of``."""
    return _self_contained_page(
        template,
        card=card,
        noun=card.fit.noun,
        of=partial(_choose_statements, every),
        groups=_group_by_heading(every),
        picture=pictures.naming_bars(card),
        title=card.step.title if title is None else str(title),
        **given,
    )


def _self_contained_page(template: str, **given: Any) -> str:
    """An HTML page with style and script inside, which its security policy names by their digests."""
    script, style = (
        files("shoal.product.card").joinpath(name).read_text(encoding="utf-8").strip()
        for name in ("report.js", "report.css")
    )
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    allowed = "script-src 'sha256-{}'; style-src 'sha256-{}'".format(*digests)
    page = {"body_class": "", "banner": NAMELESS, "internal": False, "about": [], "made": "", "took": "", **given}
    return template_environment("html").get_template(template).render(
        policy=f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'",
        script=Markup(script),
        style=Markup(style),
        **page,
    )  # fmt: skip
