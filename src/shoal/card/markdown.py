"""A card as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shoal import __version__
from shoal.card.assumptions import question
from shoal.card.card import SHOWN_DIGITS, ReleaseCard
from shoal.card.digits import counted, lower, many, nearest, percent, upper
from shoal.card.facts import CROWD, Accuracy, DesignFacts, lost_shards, promised
from shoal.card.measures import OWN
from shoal.card.promise import HOLDERS, promise
from shoal.card.summary import any_law, attacked_groups, crowd_sentence, other_scope, price, short_unit, sizes
from shoal.plaintext import printable


def markdown(card: ReleaseCard) -> str:
    """The card as a page."""
    return printable("\n\n".join(part for part in _sections(card) if part) + "\n", keep="\n")


def _sections(card: ReleaseCard) -> Iterator[str]:
    design, noun = card.design, card.fit.noun
    asked = question(design.query)
    yield f"# Release card: {design.method} mechanism"
    yield f"**{design.statement[0].upper()}{design.statement[1:]}**"
    if design.meaningful:
        yield (
            f"{promise(design.epsilon, upper(design.delta), design.scope)} Neighbors are the {many(noun)} of one group."
        )
        yield " ".join(other_scope(design))
    else:
        yield "Do not rely on this release to hide anyone."
    yield " ".join(any_law(design))
    if card.fit.crowd:
        yield crowd_sentence(card.fit)
    yield " ".join(card.fit.about)
    rows = [
        ("What is hidden", f"which {noun} of its group a row is about"),
        ("From whom", HOLDERS[design.scope]),
        ("Notion", _notion(design)),
        (
            "Neighbors",
            f"{counted(design.labels, noun)} in {counted(design.groups, 'group')} of "
            f"{sizes(design.smallest_group, design.largest_group)}, {design.edges} pairs"
            + (f"; {design.alone} without a neighbor, not hidden" if design.alone else ""),
        ),
        ("Released", f"{asked.released} ({design.entries} entries)"),
        ("The attacker may know", asked.attacker_may_know),
        ("This δ is", design.theorem),
        (
            "Finite precision" + ("" if design.assumption_free is None else " and clipping"),
            f"adds {upper(design.finite_precision, 3)} to δ; included above and below",
        ),
        ("No mechanism of this kind reaches below", f"δ = {lower(design.best_possible, 3)} at this accuracy"),
    ]
    if design.target is not None:
        rows.append(("Asked for", f"δ ≤ {design.target:g}"))
    yield _table(("", ""), rows)
    yield asked.not_counted or ""
    if len(design.epsilons) > 1:
        yield f"Pairs have an ε of their own, {len(design.epsilons)} different ones; the largest is stated."
    yield from _privacy(design, noun)
    yield from _accuracy(card, noun)
    yield from _assurance(card)
    yield from _absent(card)
    yield "## Record"
    yield _table(
        ("", ""),
        [
            ("Software", f"shoal {__version__}"),
            ("Card", _code(card.digest)),
            *(("Note", note) for note in design.notes),
        ],
    )


def _privacy(design: DesignFacts, noun: str) -> Iterator[str]:
    yield "## How private"
    yield _table(("ε", "δ at most"), ((f"{epsilon:g}", upper(delta)) for epsilon, delta in design.curve))
    yield _table(
        ("An attacker who is wrong about a neighbor in", "is right about the true one in at most"),
        ((percent(false, "nearest"), percent(true)) for false, true in design.tradeoff),
    )
    risk = design.naming
    yield (
        f"Naming the {noun} of a row within its group, for {HOLDERS[design.scope]}: right at most "
        f"{percent(risk.success_upper)} of the time (guessing: {percent(risk.guessing, 'nearest')}"
        + (")." if risk.exact else f"; an estimate, upper end at {100 * risk.confidence:.6g}% confidence).")
    )
    yield _table(
        ("Rényi order", "divergence at most"),
        ((f"{order:g}", "unbounded" if value is None else upper(value)) for order, value in design.renyi),
    )


def _accuracy(card: ReleaseCard, noun: str) -> Iterator[str]:
    found = card.design.accuracy
    yield "## How accurate"
    if not card.tells_errors:
        yield f"Errors are told of {CROWD} {many(noun)} or more: of fewer they would tell of the answers themselves."
        return
    unit = " in the answer's own unit" if found.unit == OWN else f" {found.unit}"
    squared = ", in squared log units" if found.ratio else ""
    worst = (
        f", at worst {upper(found.rmse_largest, SHOWN_DIGITS)}{short_unit(found.unit)} for one {noun}; ρ spent at most "
        f"{upper(found.rho_largest, SHOWN_DIGITS)} per entry{squared}"
    )
    yield f"Root mean squared error {upper(found.rmse, SHOWN_DIGITS)}{unit}{worst if card.tells_worst else ''}."
    if found.answer_mean is not None and found.answer_mean > 0:
        off = (
            ""
            if found.total_error is None
            else f" A group's total at a step is off by {percent(found.total_error)} at most."
        )
        yield (
            f"The mean answer is {nearest(found.answer_mean, SHOWN_DIGITS)}{short_unit(found.unit)}: the error is "
            f"{percent(found.rmse / found.answer_mean)} of it.{off}"
        )
    before, after = card.later_errors
    if before is not None and after is not None:
        yield (
            f"Against what came later, where that is known: mean absolute error {upper(after, SHOWN_DIGITS)} "
            f"{found.unit} as released, {nearest(before, SHOWN_DIGITS)} {found.unit} without protection"
            f"{price(before, after, SHOWN_DIGITS)}."
        )
    if card.design.by_step:
        off = f"released {'/' if found.ratio else '−'} true, {found.coverage:.0%} of the time within"
        yield _table((card.fit.entry, "rmse", "bias", *([off] if found.noise_alone else [])), _steps(found))
    else:
        yield f"Errors by {card.fit.entry} are told only where every {noun} is one of {CROWD} or more."


def _steps(found: Accuracy) -> Iterator[tuple[str, ...]]:
    rows = zip(found.rmse_by_entry, found.bias_by_entry, found.interval, strict=True)
    for step, (rmse, bias, (low, high)) in enumerate(rows, start=1):
        interval = (f"{lower(low, SHOWN_DIGITS)} … {upper(high, SHOWN_DIGITS)}",) if found.noise_alone else ()
        yield str(step), upper(rmse, SHOWN_DIGITS), nearest(bias, SHOWN_DIGITS), *interval


def _assurance(card: ReleaseCard) -> Iterator[str]:
    audit, release, checks = card.audit, card.release, card.fit.checks
    yield "## What it rests on"
    if card.fit.fitted_on_private_data:
        yield (
            "The laws were fitted on the data of the labels themselves. The guarantee covers the released answers; it "
            "does not cover the mechanism's own parameters, which must be kept as secret as the data."
        )
    if checks is not None:
        yield (
            f"Model checks passed of {checks.of}: Gaussian innovations {checks.gaussian}, white {checks.white}, "
            f"stationary {checks.stationary}, all three {checks.all_three}."
        )
    if card.guard is not None:
        yield "\n".join(f"- {line}" for line in card.guard.statements)
    if audit is None:
        yield "No audit was made."
    else:
        yield (
            f"Audit of {attacked_groups(audit, card.fit.noun)} by {HOLDERS[audit.scope]}: **{audit.verdict}** at "
            f"confidence {audit.confidence:g}, {audit.n_samples} answers per label ({audit.source}); δ of at least "
            f"{lower(audit.delta_proved)} proved, at most {upper(promised(card.design, audit))} promised."
        )
    if release is None:
        yield "The figures are for one release. No ledger was given: what was released before is not counted."
        return
    yield f"Ledger: {counted(release.releases, 'release')} about {counted(release.ledger_labels, card.fit.noun)}."
    if release.worst is not None:
        worst = release.worst
        yield f"Most used budget: δ({worst.epsilon:g}) ≤ {upper(worst.spent)} of {worst.budget:g}, {worst.choice}."


def _absent(card: ReleaseCard) -> Iterator[str]:
    fit = card.fit
    lost = lost_shards(fit, card.design, card.release)
    if not (fit.left_out or fit.newcomers or lost):
        return
    yield "## Who is not in it"
    yield f"A {fit.noun} without an answer has no row; that can be seen, and the guarantee is about the rows there are."
    if fit.left_out:
        yield _table(
            ("why left out", f"{counted(fit.left_out, fit.noun)} in all"),
            ((_text(reason), number) for reason, number in fit.reasons),
        )
    if fit.newcomers:
        yield f"{counted(fit.newcomers, fit.noun)} new, without a group yet: nothing was released about them."
    if lost:
        yield "Shards that could not be done:\n\n" + "\n".join(f"- {one.stage} {_code(one.key[:12])}" for one in lost)


def _notion(design: DesignFacts) -> str:
    if design.designed_for == design.notion:
        return "(ε, δ)-differential privacy of the label, hockey-stick δ"
    return f"(ε, δ)-differential privacy of the label; designed for {design.designed_for}, which rounding does not keep"


def _table(head: tuple[str, ...], rows: Iterable[Iterable[object]]) -> str:
    lines = [_row(head), _row(("---",) * len(head))]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(_text(cell).replace("|", "\\|") for cell in cells) + " |"


def _text(value: object) -> str:
    return printable(str(value).replace("\n", " "))


def _code(text: object) -> str:
    """Text that may be anything (a label) as inline code."""
    return "`" + _text(text).replace("`", "ʼ") + "`"
