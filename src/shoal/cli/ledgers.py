"""ledger show, verify and budget: what has been spent, whether the record is intact, what is left."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.card.digits import counted
from shoal.cli.screen import Debug, Json, Outcome, command

if TYPE_CHECKING:
    from shoal.ledger.accounts import Account
    from shoal.ledger.ledger import Ledger

Target = Annotated[str, typer.Argument(metavar="URL|DIR", help="sqlite:///…, postgresql://…, or the folder of a run.")]
Label = Annotated[str | None, typer.Option(help="Only this household.")]
#: Accounts that are printed; JSON has all of them.
SHOWN = 20


@command
def show(target: Target, label: Label = None, as_json: Json = False, debug: Debug = False) -> Outcome:
    """What has been spent of every budget.

    Examples:

        shoal ledger show january

        shoal ledger show postgresql://owner@db/ledger --label H0003
    """
    with _open(target) as ledger:
        spent = ledger.spent(label)
        content = {
            "releases": spent.releases,
            "head": str(ledger.head),
            "accounts": [_plain(account) for account in spent],
        }
        order = sorted(spent, key=lambda a: a.spent / a.budget if a.budget else 1.0, reverse=True)
        households = counted(len(spent.by_label), "household")
        lines = [f"{counted(spent.releases, 'release')} about {households}; most spent first"]
        lines += _shown(order)
        lines.append(
            f"seal (write it down elsewhere, then `shoal ledger verify --head` can tell a rewrite): {ledger.head}"
        )
    return Outcome(content, "\n".join(lines))


@command
def verify(
    target: Target,
    head: Annotated[str | None, typer.Option(help="A seal written down earlier, as `show` prints it.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """Check the whole record: chain, digests and budgets, from the first entry to the last. Exit code 2 if broken.

    Examples:

        shoal ledger verify january

        shoal ledger verify sqlite:///ledger.db --head 12:3f6c…
    """
    with _open(target) as ledger:
        found = ledger.verify(head)
    content = {
        "ok": found.ok,
        "entries": found.entries,
        "head": str(found.head),
        "bad_entry": found.bad_entry,
        "problem": found.problem,
        "notes": list(found.notes),
    }
    return Outcome(content, str(found), code=0 if found.ok else 2)


@command
def budget(
    target: Target,
    epsilon: Annotated[float | None, typer.Option(help="With --delta: set a budget at this ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="With --epsilon: and this δ.")] = None,
    label: Label = None,
    as_json: Json = False,
    debug: Debug = False,
) -> Outcome:
    """What is left of every budget; with --epsilon and --delta, set one first (for all households, or for --label).

    Examples:

        shoal ledger budget january

        shoal ledger budget january --epsilon 1 --delta 1e-4
    """
    from shoal.errors import InputError

    if (epsilon is None) != (delta is None):
        raise InputError("epsilon and delta belong together: a budget is a δ at an ε")
    setting = epsilon is not None and delta is not None
    with _open(target, create=setting) as ledger:
        if epsilon is not None and delta is not None:
            ledger.budget(epsilon, delta, label=label)
        spent = ledger.spent(label)
    order = sorted(spent, key=lambda account: account.remaining)
    first = "budget set; " if setting else ""
    lines = [f"{first}least left first" if len(spent) else f"{first}nothing has been released yet", *_shown(order)]
    return Outcome({"set": setting, "accounts": [_plain(account) for account in spent]}, "\n".join(lines))


def _open(target: str, *, create: bool = False) -> Ledger:
    from shoal.engine.config import Config
    from shoal.engine.folder import Folder
    from shoal.engine.releasing import ledger_url
    from shoal.errors import InputError
    from shoal.ledger.ledger import Ledger

    if "://" in target:
        if not create and target.startswith("sqlite:///") and not Path(target.removeprefix("sqlite:///")).is_file():
            raise InputError(f"url: there is no file {Path(target).name}; check the path")
        return Ledger.open(target, create=create)
    path = Path(target)
    if path.is_file():
        return Ledger.open(path, create=False)
    folder = Folder(path)
    config = Config.from_dict(folder.state().config, "state.json")
    if config.ledger is None and not create and not (folder / "ledger.db").is_file():
        raise InputError(f"dir: {path.name} has no ledger yet; `shoal release {path.name}` makes one with the release")
    return Ledger.open(ledger_url(folder, config), create=create)


def _plain(account: Account) -> dict[str, Any]:
    return {
        "name": account.name,
        "epsilon": account.epsilon,
        "budget": account.budget,
        "spent": account.spent,
        "remaining": account.remaining,
        "releases": account.releases,
    }


def _shown(accounts: Iterable[Account]) -> list[str]:
    lines = [f"  {account}" for account in accounts]
    return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"  … and {len(lines) - SHOWN} more (--json has all)"]
