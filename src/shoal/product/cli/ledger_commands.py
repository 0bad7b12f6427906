"""Commands of `shoal ledger`: show, verify and budget."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Annotated, Any

import typer

import shoal
from shoal.product.cli.options import option
from shoal.product.cli.output import Outcome, command
from shoal.rounding import count_of, upper

Target = Annotated[
    str | None,
    typer.Argument(metavar="[URL|DIR]", help="sqlite:///…, postgresql://…, a run's folder; default: the data owner's."),
]
Label = Annotated[str | None, option("Only this label.")]
#: Accounts and releases that are shown.
SHOWN = 20


@command()
def show(target: Target = None, label: Label = None) -> Outcome:
    """Show what was released, and the part of every budget that has been spent.

    Examples:
        shoal ledger show
        shoal ledger show january
        shoal ledger show postgresql://owner@db/ledger --label H0003
    """
    with _open_ledger(target) as ledger:
        content, lines = _account_lines(ledger, label)
        released = list_releases(ledger) if label is None else []
        head = str(ledger.head)
    shown = [f"  … and {len(released) - SHOWN} before"] if len(released) > SHOWN else []
    shown += [
        f"  {row['time'][:16].replace('T', ' ')}  {row['kind']:8}  {row['name']}"
        + (f" (folder {row['folder']})" if row["folder"] else "")
        + f", {count_of(row['labels'], 'label')}"
        for row in released[-SHOWN:]
    ]
    lines[:0] = [f"{count_of(len(released), 'release')} on record:", *shown] if released else []
    words = "seal (write it down elsewhere; `shoal ledger verify --head` then detects a rewrite)"
    return Outcome({**content, "released": released, "head": head}, "\n".join([*lines, f"{words}: {head}"]))


@command()
def verify(
    target: Target = None,
    head: Annotated[str | None, option("A seal written down earlier, as `show` prints it.")] = None,
) -> Outcome:
    """Check the whole record: chain, digests and budgets, from the first entry to the last. Exit code 2 if broken.

    Examples:
        shoal ledger verify january
        shoal ledger verify sqlite:///ledger.db --head SEAL
    """
    with _open_ledger(target) as ledger:
        report = ledger.verify(head)
    content = {name: getattr(report, name) for name in ("ok", "entries", "bad_entry", "problem")}
    content |= {"head": str(report.head), "notes": list(report.notes)}
    return Outcome(content, str(report), code=0 if report.ok else 2)


@command()
def budget(
    target: Target = None,
    epsilon: Annotated[float | None, option("With --delta: set a budget at this ε.")] = None,
    delta: Annotated[float | None, option("With --epsilon: and this δ.")] = None,
    label: Label = None,
    mode: Annotated[
        str | None, option("fixed: a series fixed in advance. adaptive: releases may be chosen by earlier answers.")
    ] = None,
) -> Outcome:
    """Show the rest of the budget; with --epsilon and --delta, set it first, for every label.

    Each account says which mode holds. Exact composition counts for a series that was fixed in advance; an adaptive
    budget holds for any choice made in the light of earlier answers. Decide without looking at answers.

    Examples:
        shoal ledger budget january
        shoal ledger budget january --epsilon 1 --delta 1e-4
        shoal ledger budget january --epsilon 1 --delta 1e-4 --mode adaptive
    """
    setting = epsilon is not None
    if setting != (delta is not None):
        raise shoal.InputError("epsilon and delta belong together: a budget is a δ at an ε")
    if mode is not None and not setting:
        raise shoal.InputError("mode: give --epsilon and --delta too; a mode is set with its budget")
    if label is not None and setting:
        raise shoal.InputError("label: a budget holds for every label; set it without --label")
    with _open_ledger(target, create=setting) as ledger:
        if epsilon is not None and delta is not None:
            ledger.budget(epsilon, delta, mode=mode)
        content, lines = _account_lines(ledger, label)
    return Outcome({"set": setting, **content}, "\n".join([*(["budget set"] if setting else []), *lines]))


def _open_ledger(target: str | None, *, create: bool = False) -> shoal.Ledger:
    """Open the ledger at a URL, of a run's folder, or the data owner's."""
    from shoal.product.runs.owner_ledger import open_ledger

    return open_ledger(target, create=create)


def list_releases(ledger: shoal.Ledger) -> list[dict[str, Any]]:
    """Time, kind, name, folder and number of labels of each release, in order."""
    rows: dict[str, dict[str, Any]] = {}
    about: dict[str, set[str]] = defaultdict(set)
    for entry in ledger.entries():
        if entry.kind in ("crowds", "readings", "release"):
            content = entry.content
            name = re.sub(r" row \d+$", "", content["query_id"])  # the rows of a label in a table are named so
            row = rows.setdefault(name, {"time": content["time"], "kind": "", "name": name, "folder": "", "labels": 0})
            facts, one = content.get("facts", {}), "answers" if entry.kind == "release" else entry.kind
            about[name].update([content["label"]] if entry.kind == "release" else content.get("labels", ()))
            row["kind"], row["folder"] = row["kind"] or one, row["folder"] or str(facts.get("folder", ""))
            row["labels"] = max(len(about[name]), int(facts.get("members", 0)))
    return list(rows.values())


def _account_lines(ledger: shoal.Ledger, label: str | None) -> tuple[dict[str, Any], list[str]]:
    """The accounts that have used the largest shares of their budgets, as JSON content and as lines."""
    lines = []
    spent = ledger.spent(label) if label is not None or ledger.has_budget else ()
    accounts = sorted(spent, key=lambda account: (-account.share, account.name))
    releases = sum(account.releases for account in accounts)
    content: dict[str, Any] = {"releases": releases, "labels": len(accounts), "largest_share": None}
    if label is None:
        content["largest_share"] = accounts[0].share if accounts else 0.0
        readings = [] if releases else [one.content for one in ledger.entries() if one.kind == "readings"]
        if readings:
            about, cost = count_of(len(readings[-1]["labels"]), "label"), upper(readings[-1]["mu"])
            limit = upper(readings[-1]["cap"])
            lines.append(f"{count_of(len(readings), 'release')} of the readings of {about}: μ = {cost} of {limit}")
        lines.append(
            f"{count_of(releases, 'charged answer')} about {count_of(len(accounts), 'label')}"
            + "; most spent first" * bool(accounts)
        )
    lines += [f"  {account}" for account in accounts[:SHOWN]]
    if len(accounts) > SHOWN:
        lines.append(f"  … and {len(accounts) - SHOWN} more (--label shows one)")
    names = ("name", "epsilon", "budget", "spent", "remaining", "releases", "mode")
    return {**content, "accounts": [{name: getattr(one, name) for name in names} for one in accounts[:SHOWN]]}, lines
