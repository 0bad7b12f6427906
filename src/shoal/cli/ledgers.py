"""ledger show, log, verify and budget: what has been spent and when, whether the record is intact, what is left."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable
from typing import Annotated, Any

import typer

import shoal
from shoal.cli.screen import Outcome, command, counted
from shoal.plaintext import cell
from shoal.rounding import upper

Target = Annotated[
    str | None,
    typer.Argument(metavar="[URL|DIR]", help="sqlite:///…, postgresql://…, a run's folder; default: the data owner's."),
]
Label = Annotated[str | None, typer.Option(help="Only this household.")]
#: What is told of an account.
NAMES = ("name", "epsilon", "budget", "spent", "remaining", "releases", "mode")
#: Accounts that are shown.
SHOWN = 20


@command
def show(target: Target = None, label: Label = None) -> Outcome:
    """What has been spent of every budget.

    Examples:

        shoal ledger show

        shoal ledger show january

        shoal ledger show postgresql://owner@db/ledger --label H0003
    """
    with _opened(target) as ledger:
        content, lines = _accounts(ledger, label)
        head = str(ledger.head)
    words = "seal (write it down elsewhere, then `shoal ledger verify --head` can tell a rewrite)"
    return Outcome({**content, "head": head}, "\n".join([*lines, f"{words}: {head}"]))


@command
def verify(
    target: Target = None,
    head: Annotated[str | None, typer.Option(help="A seal written down earlier, as `show` prints it.")] = None,
) -> Outcome:
    """Check the whole record: chain, digests and budgets, from the first entry to the last. Exit code 2 if broken.

    Examples:

        shoal ledger verify january

        shoal ledger verify sqlite:///ledger.db --head 12:3f6c…
    """
    with _opened(target) as ledger:
        found = ledger.verify(head)
    content = {name: getattr(found, name) for name in ("ok", "entries", "bad_entry", "problem")}
    content |= {"head": str(found.head), "notes": list(found.notes)}
    return Outcome(content, str(found), code=0 if found.ok else 2)


@command
def budget(
    target: Target = None,
    epsilon: Annotated[float | None, typer.Option(help="With --delta: set a budget at this ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="With --epsilon: and this δ.")] = None,
    label: Label = None,
    mode: Annotated[
        str | None,
        typer.Option(help="fixed: a series fixed in advance. adaptive: releases may be chosen by earlier answers."),
    ] = None,
) -> Outcome:
    """What is left of every budget; with --epsilon and --delta, set one first (for all households, or for --label).

    Each account says which mode holds. Exact composition counts for a series that was fixed in advance; an adaptive
    budget holds for any choice made in the light of earlier answers. Decide without looking at answers.

    Examples:

        shoal ledger budget january

        shoal ledger budget january --epsilon 1 --delta 1e-4

        shoal ledger budget january --epsilon 1 --delta 1e-4 --mode adaptive
    """
    if (epsilon is None) != (delta is None):
        raise shoal.InputError("epsilon and delta belong together: a budget is a δ at an ε")
    if mode is not None and epsilon is None:
        raise shoal.InputError("mode: give --epsilon and --delta too; a mode is set with its budget")
    setting = epsilon is not None and delta is not None
    with _opened(target, create=setting) as ledger:
        if epsilon is not None and delta is not None:
            ledger.budget(epsilon, delta, label=label, mode=mode)
        content, lines = _accounts(ledger, label)
    return Outcome({"set": setting, **content}, "\n".join([*(["budget set"] if setting else []), *lines]))


@command
def log(
    target: Target = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="A table with commas, for a spreadsheet.")] = False,
) -> Outcome:
    """What happened, row by row: when, under which name and folder, about how many labels, and what it cost.

    Examples:

        shoal ledger log

        shoal ledger log january --csv
    """
    with _opened(target) as ledger:
        rows = [dataclasses.asdict(row) for row in ledger.log()]
    names = ("time", "kind", "name", "folder", "table", "labels", "cost")
    if as_csv:
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: cell(str(row[name])) for name in names} for row in rows)
        return Outcome({"rows": rows}, text.getvalue().rstrip("\n"))
    lines = [
        f"{row['time'][:16].replace('T', ' ')}  {row['kind']:8}  {row['name']}"
        + (f" ({row['folder']})" if row["folder"] else "")
        + (f", {counted(row['labels'], 'label')}" if row["labels"] else "")
        + f": {row['cost']}"
        for row in rows
    ]
    return Outcome({"rows": rows}, "\n".join(lines) or "nothing is on record yet")


def _opened(target: str | None, *, create: bool = False) -> shoal.Ledger:
    from shoal.runs.owner_ledger import open_ledger

    return open_ledger(target, create=create)


def _accounts(ledger: shoal.Ledger, label: str | None) -> tuple[dict[str, Any], list[str]]:
    """The fullest accounts, composed exactly; all others are judged by bounds, however many there are."""
    if label is not None:
        spent = ledger.spent(label)
        found: list[Any] = list(spent)
        content: dict[str, Any] = {"releases": spent.releases, "labels": 1, "largest_share": None}
        return {**content, "accounts": [_plain(one) for one in found]}, _shown(found, 0)
    whole = ledger.overview(exact=SHOWN)
    content = {"releases": whole.releases, "labels": whole.labels, "largest_share": whole.largest_share}
    lines = [
        f"{counted(whole.releases, 'release')} about {counted(whole.labels, 'household')}; most spent first; at most "
        f"{upper(whole.largest_share)} of any budget is spent"
    ]
    if whole.without_budget:
        lines.append(f"{counted(whole.without_budget, 'household')} without a budget")
    lines += _shown(whole.worst, whole.labels - whole.without_budget - len(whole.worst))
    return {**content, "accounts": [_plain(one) for one in whole.worst]}, lines


def _plain(account: Any) -> dict[str, Any]:
    return {name: getattr(account, name) for name in NAMES}


def _shown(accounts: Iterable[Any], more: int) -> list[str]:
    lines = [f"  {account}" for account in accounts]
    return [*lines, f"  … and {more} more (--label shows one)"] if more > 0 else lines
