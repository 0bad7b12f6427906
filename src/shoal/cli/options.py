"""Options of the commands. Those of a run are made from the settings themselves: name, type, words and default."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

import shoal

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the run: new, empty, or a run to continue.")]
Dir = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="Settings in a TOML file: these and a few more.")
]

Command = TypeVar("Command", bound=Callable[..., Any])


def of_sections(
    *sections: str, also: tuple[str, ...] = (), first: tuple[str, ...] = ()
) -> Callable[[Command], Command]:
    """A command whose ``**chosen`` are the settings of these sections that were given, each as an option.

    Sections are panels of the help; the ``first`` stand above them, beside the command's own options.
    """

    def made(function: Command) -> Command:
        known = {
            name: one
            for name, one in shoal.Config.options().items()
            if name in also or one[0].metadata["section"] in sections
        }
        signature = inspect.signature(function, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [_option(name, field, kind, panel=name not in first) for name, (field, kind) in known.items()]
        more.sort(key=lambda option: option.name not in first)
        every = [*own, *more]

        @functools.wraps(function)
        def taking(**given: Any) -> Any:
            chosen = {}
            for name, (field, kind) in known.items():
                value = given.pop(name)
                if value not in (None, []):
                    chosen[field.name] = _value(name, kind, value)
            return function(**given, **chosen)

        taking.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        taking.__annotations__ = {p.name: p.annotation for p in every}
        return taking  # type: ignore[return-value]

    return made


def _option(name: str, field: Any, kind: Any, *, panel: bool) -> inspect.Parameter:
    """A setting as an option; None where it is not given."""
    shown = f" [default: {_shown(field.default)}]" if field.default not in (None, ()) else ""
    words = field.metadata["text"]
    first = words[0].upper() if words[0].isascii() else words[0]  # ε stays small
    heading = field.metadata["section"].capitalize() if panel else None
    option = typer.Option(f"--{name.replace('_', '-')}", help=f"{first}{words[1:]}.{shown}", rich_help_panel=heading,
                          hidden=name in shoal.Config.rare())  # fmt: skip
    kind = field.metadata["kind"] or kind
    parts = [one for one in typing.get_args(kind) if one is not type(None)]
    plain: Any = kind if not parts else parts[0]
    if typing.get_origin(kind) is tuple:
        plain = list[str] if plain is str else str
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Annotated[plain | None, option]
    )


def _shown(value: Any) -> str:
    return (
        ",".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}" if type(value) is float else str(value)
    )


def _value(name: str, kind: Any, value: Any) -> Any:
    if typing.get_origin(kind) is not tuple:
        return value
    if typing.get_args(kind)[0] is str:
        return tuple(value)
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise shoal.InputError(f"{name} must be two whole numbers with a comma between them, such as 6,5") from None


def numbers(text: str, name: str) -> list[float]:
    """``"0.1:2:20"`` (from, to, how many) or ``"0.5,1,2"`` as numbers."""
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
