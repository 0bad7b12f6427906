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
from typing import Any

from markupsafe import Markup

from shoal.product.card import pictures
from shoal.product.card.card import ReleaseCard
from shoal.product.card.pictures import CrowdCurves
from shoal.product.card.statements import (
    HEADINGS,
    KNOWS,
    OWNER,
    SHOWN_DIGITS,
    SUMMARY,
    Statement,
    environment,
    would_protect,
)
from shoal.rounding import exactly, lower, nearest, percent, upper

TITLE = "A release of averages"
INTERNAL = "Internal: contains the members' own figures. For the data owner; do not pass this page on."
NAMELESS = "For the data owner and whom he answers to: no names, no single figures."
PASSED_ON = "Public: holds only what the release card says. No members' figures, no names."
#: Statements of the owner that name nobody and may stand on the pages of board and regulator.
NAMELESS_KEYS = ("cost", "attack", "course", "missing")
Part = tuple[str, list[str]]
#: A table of a page: name, columns, rows.
Figures = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


# ------------------------------------------------------------------ texts


def summary(card: ReleaseCard, handed: Sequence[Statement] = (), *, verbose: bool = False) -> list[Part]:
    """Headings with their sentences for the owner: five lines, or all that there is to say."""
    every = [*card.statements, *handed]
    chosen = [(key, _choose(every, key)) for key in (HEADINGS if verbose else SUMMARY)]
    if verbose:
        return [
            (HEADINGS[key], [line for one in group for line in (one.sentence, *one.more)])
            for key, group in chosen
            if group
        ]
    parts = [(HEADINGS[key], [group[0].sentence]) for key, group in chosen if group]
    if card.kind == "means":
        dict(parts)[HEADINGS["attack" if card.attack else "hidden"]].append(KNOWS)
        dict(parts).get(HEADINGS["cost"], []).extend(one.sentence for one in every if one.key == "course")
    absent = [one.figure for one in every if one.key == "missing" and one.figure and not one.warning]
    if absent and card.kind != "readings":
        why = "; ".join(f"{reason} ({number})" for reason, number in card.fit.reasons)
        parts[0][1].append(f"Without a row: {absent[0]}{why and f': {why}'}. left_out.csv has their names.")
    warnings = [one.sentence for one in every if one.warning]
    return [*parts, ("Mind", warnings)] if warnings else parts


def _choose(every: Iterable[Statement], *keys: str) -> list[Statement]:
    """The statements of some keys; where the owner has a cost or an attack of his own, that instead of the public one.

    Of what is public, all of them.
    """
    chosen = []
    for key in keys:
        group = [one for one in every if one.key == key]
        own = [one for one in group if one.audience == OWNER]
        chosen += own if key in ("cost", "attack") and own else group
    return chosen


def markdown(card: ReleaseCard) -> str:
    """The card as a page of Markdown."""
    headline = card.statement if card.meaningful else "No meaningful guarantee"
    if card.kind == "certified" and card.meaningful:
        headline = _choose(card.public, "hidden")[0].sentence
    headline = headline[:1].upper() + headline[1:]
    template = environment("md").get_template("card.md")
    return template.render(card=card, headline=headline, groups=_by_heading(card.public), tables=tables(card))


def readme(card: ReleaseCard, **given: Any) -> str:
    """README.txt of the public folder, half a page."""
    sentences = dict.fromkeys(("technique", "hidden", "use", "limits", "rules"), "")
    sentences |= {one.key: one.sentence for one in reversed(card.public)}
    return environment("text").get_template("README.txt").render(statements=sentences, **given)


def _by_heading(every: Sequence[Statement]) -> list[tuple[str, list[Statement]]]:
    groups = [(key, [one for one in every if one.key == key]) for key in HEADINGS]
    return [(key, group) for key, group in groups if group]


def tables(card: ReleaseCard) -> list[Figures]:
    """Figures of a method's release, as (name, columns, rows)."""
    design = card.design
    if design is None:
        return []
    shown: list[Figures] = [
        ("Privacy at every ε", ("ε", "δ at most"), [(exactly(e), upper(d)) for e, d in design.curve]),
        (
            "Tests between neighbors",
            ("An attacker who is wrong about a neighbor in", "is right about the true one in at most"),
            [(percent(false, "nearest"), percent(true)) for false, true in design.tradeoff],
        ),
        (
            "Of the guarantee",
            ("figure", "value"),
            [
                ("notion", _notion(card)),
                ("finite precision", f"adds {upper(design.finite_precision, 3)} to δ; included"),
                *((("different ε of pairs", f"{len(design.epsilons)}; the largest is stated"),)
                  if len(design.epsilons) > 1 else ()),
                *(("note", note) for note in design.notes),
            ],
        ),
    ]  # fmt: skip
    if card.tells_errors and design.by_step:
        errors = design.accuracy
        off = f"released {'/' if errors.ratio else '−'} true, {errors.coverage:.0%} of the time within"
        rows: list[tuple[str, ...]] = []
        for step, (rmse, bias, ends) in enumerate(
            zip(errors.rmse_by_entry, errors.bias_by_entry, errors.interval, strict=True), start=1
        ):
            within = (f"{lower(ends[0], SHOWN_DIGITS)} … {upper(ends[1], SHOWN_DIGITS)}",) if errors.noise_alone else ()
            rows.append((str(step), upper(rmse, SHOWN_DIGITS), nearest(bias, SHOWN_DIGITS), *within))
        shown.append(
            (
                "Errors by " + card.fit.entry,
                (card.fit.entry, "rmse", "bias", *([off] if errors.noise_alone else [])),
                rows,
            )
        )
    return shown


def _notion(card: ReleaseCard) -> str:
    design = card.design
    assert design is not None
    if design.designed_for == design.notion:
        return "(ε, δ)-differential privacy of the label, hockey-stick δ"
    return f"(ε, δ)-differential privacy of the label; designed for {design.designed_for}, which rounding does not keep"


# ------------------------------------------------------------------ pages


def report(
    card: ReleaseCard,
    crowds: Sequence[CrowdCurves] = (),
    *,
    unit: str = "kW",
    axis: str = "",
    title: str | None = None,
    made: str = "",
    timings: Mapping[str, float] | None = None,
    handed: Sequence[Statement] = (),
) -> str:
    """The owner's page: pictures of the crowds and their prices, and all that there is to say."""
    curve = tables(card)[:1]
    return _page(
        "report.html",
        card,
        [*card.statements, *handed],
        title=title,
        banner=INTERNAL,
        internal=True,
        about=[f"Data: {card.fit.source}."] if card.fit.source else [],
        made=made,
        crowds=pictures.panels(crowds, unit, card.fit.noun, axis),
        dearest=pictures.dearest(crowds, unit),
        price=pictures.price_by_label(crowds, unit, card.fit.noun),
        course=pictures.course(card),
        tables=[(name, *rest) for name, *rest in curve if len({delta for _, delta in rest[1]}) > 1],
        took=", ".join(f"{name} {seconds:.1f} s" for name, seconds in (timings or {}).items()),
    )


def public_page(card: ReleaseCard, *, title: str | None = None, made: str = "") -> str:
    """The page to pass on: what the card says and nothing else."""
    return _page(
        "report.html", card, card.public, title=title, banner=PASSED_ON, made=made, crowds=None, tables=tables(card)
    )


def board(card: ReleaseCard, *, title: str | None = None, made: str = "") -> str:
    """One sheet for a board: what was released, who hides, what it costs, what is left."""
    known = card.accuracy if card.accuracy is not None and card.accuracy.labels else None
    load = None if known is None or known.answers is None else known.answers / known.labels
    instead = would_protect(card.fit, load, options=False) if card.kind == "means" else ""
    when = str(card.fit.origin or card.period).replace("T", ", ")[:17]  # to the minute, as people write it
    about = [f"About the time from {when} on."] if card.period else []
    given: dict[str, Any] = {"title": title, "made": made, "body_class": "board", "instead": instead, "about": about}
    return _page("board.html", card, _nameless(card), **given)


def annex(card: ReleaseCard, *, purpose: str = "", title: str | None = None, made: str = "") -> str:
    """The annex for a regulator, by the usual chapters."""
    return _page("annex.html", card, _nameless(card), title=title, made=made, purpose=purpose, tables=tables(card))


def _nameless(card: ReleaseCard) -> list[Statement]:
    """What is public, and pooled figures of the owner's; not more of these, which may be about one label."""
    own = [replace(one, more=()) for one in card.statements if one.audience == OWNER and one.key in NAMELESS_KEYS]
    return [*card.public, *own]


def _page(template: str, card: ReleaseCard, every: Sequence[Statement], *, title: str | None, **given: Any) -> str:
    """A page made from statements: ``of`` gives a template those of some keys."""
    script, style = (
        files("shoal.product.card").joinpath(name).read_text(encoding="utf-8").strip()
        for name in ("report.js", "report.css")
    )
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    allowed = "script-src 'sha256-{}'; style-src 'sha256-{}'".format(*digests)
    page = {"body_class": "", "banner": NAMELESS, "internal": False, "about": [], "took": "", **given}
    return environment("html").get_template(template).render(
        card=card,
        noun=card.fit.noun,
        of=partial(_choose, every),
        groups=_by_heading(every),
        picture=pictures.before_and_after(card),
        title=TITLE if title is None else str(title),
        policy=f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'",
        script=Markup(script),
        style=Markup(style),
        **page,
    )  # fmt: skip
