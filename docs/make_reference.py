"""Write docs/reference.md from the docstrings of the public names: python docs/make_reference.py."""

from __future__ import annotations

import inspect
from pathlib import Path

import shoal

PAGE = Path(__file__).with_name("reference.md")
HEAD = """# Reference

Every public name with the first words of its docstring; `help(shoal.name)` has the rest: arguments, formulas, sources.
Made by `python docs/make_reference.py`; a test checks that it is up to date. Commands: [cli.md](cli.md).
"""


def page() -> str:
    """The whole page: one table per room of ARCHITECTURE.md."""
    rooms: dict[str, list[str]] = {}
    for name, home in shoal._HOME.items():
        rooms.setdefault(home.split(".")[1], []).append(name)
    parts = [HEAD]
    for room, names in sorted(rooms.items()):
        rows = [f"| `{name}` | {first_words(getattr(shoal, name))} |" for name in sorted(names)]
        parts.append("\n".join([f"## {room}\n", "| name | what it is |", "| --- | --- |", *rows]) + "\n")
    return "\n".join(parts)


def first_words(thing: object) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
