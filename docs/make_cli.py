"""Write docs/cli.md from the commands themselves: python docs/make_cli.py."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from typer.main import get_command

from shoal.product.cli.main import app
from shoal.product.runs.config import Config, Speed

HEAD = """# Command line

Made from the commands by `python docs/make_cli.py`; a test checks that it is up to date.

Every command takes `--json` (one JSON object on standard output, messages on standard error). With `SHOAL_DEBUG=1` in
the environment an error shows its traceback. Exit codes: 0 done, 2 bad input, 3 refused by the budget, 4 the guarantee
asked for cannot be met, 130 interrupted. `shoal --install-completion` sets up completion for your shell.

A run lives in a folder. Its stages (fit, crowds, release, card, report; with a method also design and audit) are done
once each and recorded in `state.json`; whatever interrupts a run, the same command continues it. What was released is
never released again because a setting changed: what is new about the same labels takes a later period, with `--update`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    everything = dict(commands())
    run = _rows(everything["shoal run"])
    for name, command in everything.items():
        rows = _rows(command)
        same = {named for named, text in rows.items() if name != "shoal run" and run.get(named) == text}
        parts.append(f"## {name}\n\n{_text(command)}\n\n{_table(rows, same)}")
    parts.append(_settings())
    return "\n".join(parts)


def _settings() -> str:
    """Settings that have no option of their own."""
    rows = [
        f"| `{one.name}` | {one.metadata['text'].replace('|', chr(92) + '|')} |"
        for kind in (Config, Speed)
        for one in fields(kind)
        if one.metadata["rare"]
    ]
    head = """## Settings without an option

Given with `--set NAME=VALUE`, or as keywords of `shoal.run`.

| setting | what it does |
|---|---|
"""
    return head + "\n".join(rows) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, in the order of the help."""
    yield from _under("shoal", get_command(app))


def _under(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inside = getattr(command, "commands", None)
    if inside is None:
        yield name, command
        return
    for part, below in inside.items():
        yield from _under(f"{name} {part}", below)


def _text(command: Any) -> str:
    """Docstring, its examples as a block."""
    text = inspect.cleandoc(command.help or "")
    words, _, examples = text.partition("Examples:")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    return "\n".join([words.strip(), "", "```sh", *lines, "```"])


def _rows(command: Any) -> dict[str, str]:
    """Arguments and options of a command with what they do."""
    rows = {}
    for one in command.params:
        if one.name in ("as_json", "help"):
            continue
        named = (
            one.opts if one.param_type_name == "option" else [(one.metavar or one.name.upper()).replace("|", " or ")]
        )
        rows[", ".join(f"`{name}`" for name in named)] = _help(one)
    return rows


def _table(rows: dict[str, str], same: set[str]) -> str:
    """The rows as a table; those that say what they say for ``shoal run`` are only named."""
    lines = [f"| {named} | {text} |" for named, text in rows.items() if named not in same]
    table = ["| argument or option | what it does |", "|---|---|", *lines] if lines else []
    named = [name for name in rows if name in same]
    also = ["As for [shoal run](#shoal-run): " + ", ".join(named) + "."] if named else []
    return "\n\n".join("\n".join(part) for part in (table, also) if part) + "\n"


def _help(one: Any) -> str:
    text = str(one.help or "").replace("|", "\\|")
    default = one.default
    if default is not None and not isinstance(default, (bool, list, tuple)) and not callable(default) and one.opts:
        shown = str(default)
        if "[default" not in text and not one.required and shown and "UNSET" not in shown.upper():
            text += f" [default: {shown}]"
    return text


if __name__ == "__main__":
    Path(__file__).with_name("cli.md").write_text(page(), encoding="utf-8")
