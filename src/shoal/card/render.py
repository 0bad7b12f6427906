"""Statements → texts and pages: each renderer chooses and orders, and none phrases anything about the release anew.

Pages are one HTML file each that needs nothing else: style and script are inside. Text is escaped where it enters a
page, so that a label is never markup; a content security policy names the one script and the one style by their digest
and forbids every connection, so that nothing a label may contain can run or call home.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from shoal import __version__
from shoal.card import pictures
from shoal.card.card import ReleaseCard
from shoal.card.digits import counted, many, nearest, percent, upper
from shoal.card.pictures import CrowdCurves
from shoal.card.statements import HEADINGS, KNOWS, OWNER, SHOWN_DIGITS, SUMMARY, Statement
from shoal.plaintext import printable

TITLE = "A release of averages"
INTERNAL = "Internal: contains the members' own figures. For the data owner; do not pass this page on."
NAMELESS = "For the data owner and whom he answers to: no names, no single figures."
PASSED_ON = "Public: holds only what the release card says. No members' figures, no names."
#: Statements at the head of a page.
FIRST = ("hidden", "cost", "attack", "limits")
#: Statements of the owner that name nobody and may stand on the pages of board and regulator.
NAMELESS_KEYS = ("cost", "attack", "course")
Part = tuple[str, list[str]]
#: A table of a page: name, columns, rows.
Figures = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


@dataclass(frozen=True)
class PagePart:
    """A section of the owner's page that has a picture or a table."""

    key: str
    heading: str
    says: tuple[str, ...] = ()
    picture: pictures.Bars | None = None
    columns: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


@cache
def _environment(autoescape: bool) -> Environment:
    def finalize(value: Any) -> Any:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        text = printable(value, keep="\n")
        return text if autoescape else text.replace("<", "&lt;")

    environment = Environment(
        loader=PackageLoader("shoal.card", "templates"),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=finalize,
        keep_trailing_newline=True,
    )
    environment.filters["code"] = _code
    environment.filters["cell"] = lambda value: str(value).replace("|", "\\|")
    environment.globals["headings"] = HEADINGS
    return environment


def _code(text: str) -> Markup:
    """A sentence with what stands between backticks as code."""
    parts = printable(text).split("`")
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts))


# ------------------------------------------------------------------ texts


def summary(card: ReleaseCard, handed: Sequence[Statement] = (), *, verbose: bool = False) -> list[Part]:
    """Headings with their sentences for the owner: five lines, or all that there is to say."""
    every = [*card.statements, *handed]
    chosen = [(key, _for_owner(every, key)) for key in (HEADINGS if verbose else SUMMARY)]
    if verbose:
        return [
            (HEADINGS[key], [line for one in group for line in (one.sentence, *one.more)])
            for key, group in chosen
            if group
        ]
    parts = [(HEADINGS[key], [group[0].sentence]) for key, group in chosen if group]
    if card.kind == "means":
        parts = [
            (h, [*lines, KNOWS]) if h == HEADINGS["attack" if card.attack else "hidden"] else (h, lines)
            for h, lines in parts
        ]
    warnings = [
        one.sentence
        for one in every
        if one.sentence.startswith(("SHARD LEFT OUT", "No meaningful", "The ledger is NOT"))
    ]
    warnings += [one.sentence for one in every if one.key == "audit" and one.figure == "violated"]
    warnings += [one.sentence for one in every if one.key == "model" and one.figure.startswith("rejected")]
    return [*parts, ("Mind", warnings)] if warnings else parts


def _for_owner(every: Iterable[Statement], key: str) -> list[Statement]:
    """The statements of a key; where the owner has a sentence of his own on it, that instead of the public one."""
    group = [one for one in every if one.key == key]
    own = [one for one in group if one.audience == OWNER]
    return own if key in ("cost", "attack") and own else group


def markdown(card: ReleaseCard) -> str:
    """The card as a page of Markdown."""
    headline = card.statement if card.meaningful else "No meaningful guarantee"
    if card.kind == "certified" and card.meaningful:
        headline = next(one.sentence for one in card.public if one.key == "hidden")
    return (
        _environment(False)
        .get_template("card.md")
        .render(
            card=card,
            version=__version__,
            headline=headline[:1].upper() + headline[1:],
            groups=_grouped(card.public),
            tables=tables(card),
        )
    )


def readme(card: ReleaseCard, **given: Any) -> str:
    """README.txt of the public folder, half a page."""
    said = {one.key: one.sentence for one in reversed(card.public)}
    return _environment(False).get_template("README.txt").render(
        card=card,
        statements={"technique": "", "hidden": "", "use": "", **said},
        limits=said.get("limits", ""),
        rules=said.get("rules", ""),
        **given,
    ).replace("&lt;", "<")  # fmt: skip


def _grouped(every: Sequence[Statement]) -> list[tuple[str, list[Statement]]]:
    groups = [(key, [one for one in every if one.key == key]) for key in HEADINGS]
    return [(key, group) for key, group in groups if group]


def tables(card: ReleaseCard) -> list[Figures]:
    """Figures of a method's release, as (name, columns, rows)."""
    design = card.design
    if design is None:
        return []
    made: list[Figures] = [
        ("Privacy at every ε", ("ε", "δ at most"), [(f"{e:g}", upper(d)) for e, d in design.curve]),
        (
            "Tests between neighbors",
            ("An attacker who is wrong about a neighbor in", "is right about the true one in at most"),
            [(percent(false, "nearest"), percent(true)) for false, true in design.tradeoff],
        ),
        (
            "Rényi divergence",
            ("order", "divergence at most"),
            [(f"{order:g}", "unbounded" if value is None else upper(value)) for order, value in design.renyi],
        ),
        (
            "Of the guarantee",
            ("figure", "value"),
            [
                ("notion", _notion(card)),
                ("finite precision" + ("" if design.assumption_free is None else " and clipping"),
                 f"adds {upper(design.finite_precision, 3)} to δ; included"),
                ("no mechanism of this kind reaches below", f"δ = {nearest(design.best_possible)} at this accuracy"),
                *((("different ε of pairs", f"{len(design.epsilons)}; the largest is stated"),)
                  if len(design.epsilons) > 1 else ()),
                *(("note", note) for note in design.notes),
            ],
        ),
    ]  # fmt: skip
    if card.tells_errors and design.by_step:
        found = design.accuracy
        off = f"released {'/' if found.ratio else '−'} true, {found.coverage:.0%} of the time within"
        rows: list[tuple[str, ...]] = []
        for step, (rmse, bias, ends) in enumerate(
            zip(found.rmse_by_entry, found.bias_by_entry, found.interval, strict=True), start=1
        ):
            within = (f"{nearest(ends[0], 2)} … {upper(ends[1], SHOWN_DIGITS)}",) if found.noise_alone else ()
            rows.append((str(step), upper(rmse, SHOWN_DIGITS), nearest(bias, SHOWN_DIGITS), *within))
        made.append(
            (
                "Errors by " + card.fit.entry,
                (card.fit.entry, "rmse", "bias", *([off] if found.noise_alone else [])),
                rows,
            )
        )
    return made


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
    noun, every = card.fit.noun, [*card.statements, *handed]
    parts = []
    if crowds:
        picture = pictures.price_by_label(crowds, unit, noun)
        table = pictures.dearest(crowds, unit)
        says = [line for one in _for_owner(every, "cost") for line in (one.sentence, *one.more)]
        if table:
            says.append(f"Most is paid by {table[0][0]}: its row is off by {table[0][2]}.")
        columns = (noun, "crowd", "row off by", "own mean")
        parts.append(PagePart("price", f"Price by {noun}", tuple(says), picture, columns, tuple(table)))
    attack = [line for one in _for_owner(every, "attack") for line in (one.sentence, *one.more)]
    if attack:
        parts.append(PagePart("before", "Before and after", tuple(attack), pictures.before_and_after(card)))
    course = [one.sentence for one in every if one.key == "course"]
    if course:
        parts.append(PagePart("course", HEADINGS["course"], tuple(course), pictures.course(card)))
    if card.design is not None:
        name, columns_, rows = tables(card)[0]
        if len({row[1] for row in rows}) > 1:
            parts.append(PagePart("curve", name, (), None, columns_, tuple(rows)))
    drawn = {"cost", "attack", "course"}
    groups = sorted(
        ((k, group) for k, group in _grouped(every) if k not in drawn), key=lambda item: item[0] != "limits"
    )
    took = [f"{name} {seconds:.1f} s" for name, seconds in (timings or {}).items()]
    return _page(
        "report.html",
        card,
        title=title,
        banner=INTERNAL,
        internal=True,
        about=_about(card, made, owner=True),
        first=_first(every, owner=True),
        noun=noun,
        crowds=pictures.panels(crowds, unit, noun, axis),
        pictures=parts,
        groups=groups,
        took=", ".join(took),
    )


def public_page(card: ReleaseCard, *, title: str | None = None, made: str = "") -> str:
    """The page to pass on: what the card says and nothing else."""
    return _page(
        "report.html",
        card,
        title=title,
        banner=PASSED_ON,
        internal=False,
        about=_about(card, made, owner=False),
        first=_first(card.public, owner=False),
        noun=card.fit.noun,
        crowds=None,
        pictures=[
            PagePart(f"table-{i}", name, (), None, columns, tuple(rows))
            for i, (name, columns, rows) in enumerate(tables(card))
        ],
        groups=_grouped(card.public),
        took="",
    )


def board(card: ReleaseCard, *, title: str | None = None, made: str = "") -> str:
    """One sheet for a board: what was released, who hides, what it costs, what is left."""
    every = _nameless(card)
    asked = {
        "Who hides among whom?": ("hidden",),
        "What did it cost?": ("cost",),
        "What can somebody still find out?": ("attack", "limits"),
        "Which rules were kept?": ("rules",),
        "What may be done with the table?": ("use",),
    }
    questions = [
        (question, [one for key in keys for one in _for_owner(every, key)]) for question, keys in asked.items()
    ]
    return _page(
        "board.html",
        card,
        title=title,
        body_class="board",
        banner=NAMELESS,
        internal=False,
        about=_about(card, made, owner=False),
        lead=next(one.sentence for one in every if one.key == "technique"),
        questions=[(question, group) for question, group in questions if group],
        picture=pictures.before_and_after(card),
    )


def annex(card: ReleaseCard, *, purpose: str = "", title: str | None = None, made: str = "") -> str:
    """The annex for a regulator, by the usual chapters."""
    every = _nameless(card)
    fit, noun = card.fit, card.fit.noun
    limits = [one for one in every if one.key == "limits"]

    def said(*keys: str) -> list[Statement]:
        return [one for key in keys for one in _for_owner(every, key)]

    def chapter(heading: str, *lines: str, of: Sequence[Statement] = (), figures: Sequence[Any] = ()) -> dict[str, Any]:
        key = heading.lower().replace(" ", "-")
        return {"key": key, "heading": heading, "lines": lines, "statements": of, "tables": figures}

    data = [
        f"{counted(fit.labels, noun)} in {counted(fit.groups, 'crowd')}; personal data of the {many(noun)}, held by "
        "the data owner.",
        *(line for line in fit.about),
    ]
    singling = "A row belongs to a whole crowd; no row and no other part of what leaves is about one of its members."
    if card.kind != "means":
        singling = f"Which {noun} a row is about is hidden by the mechanism, within the bound below."
    chapters = [
        chapter("Data", *data, of=said("missing")),
        chapter(
            "Purpose", purpose or "To be stated by the data owner: `shoal explain DIR --purpose TEXT` writes it here."
        ),
        chapter("Technique", of=said("technique", "rules", "guarantee")),
        chapter("Singling out", singling, of=said("hidden")),
        chapter("Linkability", of=[*said("attack"), *limits[1:2], *limits[3:]]),
        chapter("Inference", of=[*limits[:1], *said("use")]),
        chapter("Residual risk", of=[*limits[2:3], *said("model", "course")]),
        chapter(
            "Evidence",
            f"Release card {card.digest}, made by shoal {__version__}; public/SHA256SUMS has checksums of what left.",
            of=said("cost", "audit", "spent"),
            figures=tables(card),
        ),
    ]
    return _page(
        "annex.html",
        card,
        title=title,
        banner=NAMELESS,
        internal=False,
        about=_about(card, made, owner=False),
        chapters=chapters,
    )


def _nameless(card: ReleaseCard) -> list[Statement]:
    """What is public, and pooled figures of the owner's; not more of these, which may be about one label."""
    own = [replace(one, more=()) for one in card.statements if one.audience == OWNER and one.key in NAMELESS_KEYS]
    return [*card.public, *own]


def _first(every: Sequence[Statement], *, owner: bool) -> list[Statement]:
    groups = [(_for_owner(every, key) if owner else [one for one in every if one.key == key]) for key in FIRST]
    return [group[0] for group in groups if group]


def _about(card: ReleaseCard, made: str, *, owner: bool) -> list[str]:
    source = [f"Data: {card.fit.source}."] if owner and card.fit.source else []
    return [*source, *([f"Released {made}."] if made else [])]


def _page(template: str, card: ReleaseCard, *, title: str | None, **given: Any) -> str:
    script, style = _asset("report.js"), _asset("report.css")
    return _environment(True).get_template(template).render(
        card=card,
        title=TITLE if title is None else str(title),
        version=__version__,
        policy=_policy(script, style),
        script=Markup(script),
        style=Markup(style),
        **{"body_class": "", **given},
    )  # fmt: skip


def _policy(script: str, style: str) -> str:
    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    allowed = f"script-src {digest(script)}; style-src {digest(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


@cache
def _asset(name: str) -> str:
    return files("shoal.card").joinpath(name).read_text(encoding="utf-8").strip()
