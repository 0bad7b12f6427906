"""Options of the commands. Those of a run are made from the settings themselves: name, type, words and default."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path
from typing import Annotated, Any

import typer

import shoal


def option(words: str, panel: str | None = None, *names: str, metavar: str | None = None) -> Any:
    """An option of a command with its help and panel; without ``names`` it is called as its variable."""
    return typer.Option(*names, help=words, rich_help_panel=panel, metavar=metavar)


Out = Annotated[Path, option("Folder of the run: new, empty, or a run to continue.", None, "--out", "-o")]
Dir = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")]
SET = "Any setting of shoal.Config, also one without an option, such as max_kw=50; repeat for more."
Settings = Annotated[list[str] | None, option(SET, "Input", "--set", metavar="NAME=VALUE")]
Until = Annotated[str, option("Stop after fit, design, audit, release or report.", "Output", metavar="STAGE")]
Verbose = Annotated[bool, option("Everything there is to say, not the summary.", "Output", "--verbose")]
#: Settings that people need first: they stand above the panels of the help.
FIRST = ("crowd", "label")


def settings_of_sections(sections: tuple[str, ...], also: tuple[str, ...]) -> dict[str, Any]:
    """Name -> type of the settings in these sections, and of those named in ``also``."""
    every = shoal.Config.options().items()
    return {name: kind for name, (one, kind) in every if name in also or one.metadata["section"] in sections}


def settings_as_parameters(known: dict[str, Any]) -> list[inspect.Parameter]:
    """Settings as options of a command, with ``--set`` for settings that have no option."""
    every = sorted((_setting_as_parameter(name) for name in known), key=lambda option: option.name not in FIRST)
    return [*every, inspect.Parameter("settings", every[0].kind, default=None, annotation=Settings)] if every else []


def settings_given(known: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Name -> value of the settings among what a command was given, which are taken out of it."""
    chosen = dict(shoal.Config.parse_setting(text) for text in given.pop("settings", None) or ())
    for name, kind in known.items():
        value = given.pop(name)
        if isinstance(value, str) and typing.get_origin(kind) is tuple:
            value = shoal.Config.parse_setting(f"{name}={value}")[1]
        if value not in (None, []):
            chosen[name] = tuple(value) if isinstance(value, list) else value
    return chosen


def _setting_as_parameter(name: str) -> inspect.Parameter:
    """The option of a command for a setting, with its help; its value is None where it is not given."""
    field, kind = shoal.Config.options()[name]
    default = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
    shown = "" if default in (None, "") else f" [default: {default}]"
    words = field.metadata["text"]
    first = words[0].upper() if words[0].isascii() else words[0]  # ε stays small
    panel = None if name in FIRST else field.metadata["section"].capitalize()
    one = option(f"{first}{words[1:]}.{shown}", panel, f"--{name.replace('_', '-')}")
    inner = [one for one in typing.get_args(kind) if one is not type(None)]
    plain: Any = field.metadata["kind"] or (inner[0] if inner else kind)
    if typing.get_origin(kind) is tuple:
        plain = list[str] if plain is str else str
    kind = Annotated[plain | None, one]
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=kind)


def parse_numbers(text: str, name: str) -> list[float]:
    """Convert ``"0.1:2:20"`` (from, to, how many) or ``"0.5,1,2"`` to numbers; ``name`` is the argument."""
    wrong = shoal.InputError(f"{name} must be numbers with commas, such as 0.5,1,2, or from:to:count, such as 0.1:2:20")
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        first, last, count = text.split(":")
        low, high, many = float(first), float(last), int(count)
    except ValueError:
        raise wrong from None
    if many < 2 or not low < high:
        raise wrong
    return [low + (high - low) * i / (many - 1) for i in range(many)]
