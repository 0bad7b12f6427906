"""What a command shows and how it ends: results on standard output, progress and messages on standard error.

| exit code | means |
| --- | --- |
| 0 | done |
| 2 | bad input, or something about files and folders to put right |
| 3 | refused by the budget |
| 4 | the guarantee asked for cannot be met |
| 130 | interrupted |
"""

from __future__ import annotations

import errno
import functools
import inspect
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Annotated, Any, TextIO, TypeVar

import typer

import shoal
from shoal.plaintext import printable

#: The option of every command.
Json = Annotated[
    bool,
    typer.Option("--json", help="One JSON object on standard output, nothing else.", rich_help_panel="Output"),
]
#: With this variable of the environment set, an error shows its traceback.
DEBUG = "SHOAL_DEBUG"

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Outcome:
    """What a command has to say: to machines, and to people as text or as (heading, sentences)."""

    content: dict[str, Any]
    text: str = ""
    parts: list[tuple[str, list[str]]] = field(default_factory=list)
    brief: bool = False  #: headings stand beside their sentences
    code: int = 0


def command(function: Command) -> Command:
    """Show the outcome, turn errors into sentences and exit codes; with the option that every command takes."""
    signature = inspect.signature(function, eval_str=True)

    @functools.wraps(function)
    def guarded(*, as_json: bool, **given: Any) -> None:
        warnings.showwarning = _warning
        try:
            outcome = function(**given)
            code = outcome.code
            _print(_shown(outcome, as_json))
        except (shoal.ShoalError, OSError, MemoryError, KeyboardInterrupt) as error:
            if os.environ.get(DEBUG):
                raise
            code = exit_code(error)
            text = explained(error)
            if as_json:
                _print(_json({"error": text, "kind": type(error).__name__, "exit_code": code}))
            said(f"shoal: {text}")
        if code:
            raise typer.Exit(code)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    every = [*signature.parameters.values(), inspect.Parameter("as_json", kind, default=False, annotation=Json)]
    guarded.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    guarded.__annotations__ = {one.name: one.annotation for one in every}
    return guarded  # type: ignore[return-value]


def exit_code(error: BaseException) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, shoal.BudgetError):
        return 3
    return 4 if isinstance(error, shoal.UnreachableError) else 2


def explained(error: BaseException) -> str:
    """An error in a sentence or two that say what to do next."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted. What is finished is kept: the same `shoal run` continues from there."
    if isinstance(error, MemoryError):
        return "the memory is not enough; use fewer households, a shorter horizon or more groups"
    if isinstance(error, OSError):
        name = f" {error.filename}" if error.filename else ""
        if error.errno == errno.ENOSPC:
            return "the disk is full. Nothing that was finished is lost: make room and run the same command again."
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return f"no permission to use{name}; choose another folder with --out, or change its permissions"
        if error.errno == errno.ENOENT:
            return f"there is no{name or ' such file'}; check the path"
        if error.errno == errno.EADDRINUSE:
            return "the port is in use; stop what uses it, or choose another with --port"
        if error.errno == errno.EDQUOT:
            return "your quota on the disk is used up. Nothing that was finished is lost: make room and run again."
        reason = error.strerror or "an operation on files failed"
        return f"{reason}{f':{name}' if name else ''}; put it right and run the command again"
    return by_options(str(error))


def by_options(text: str) -> str:
    """A message with settings named as the command's options: ``train_days`` is ``--train-days``.

    >>> by_options("train_days must be at least 1; pass interval=, or timestamp_format=")
    '--train-days must be at least 1; pass --interval, or --set timestamp_format='
    """
    text = re.sub(r"\b(pass|or) ([a-z_]+)=('?)", _as_option, text)
    names = {name: f"--{name.replace('_', '-')}" for name in (*shoal.Config.options(), "at_most")}
    named = "|".join(name for name in names if "_" in name)
    text = re.sub(rf"(?<![-\w])({named})(?![-\w.])(?: \(--[a-z-]+\))?", lambda match: names[match[1]], text)
    return re.sub("^within: ", "--within: ", text)


def _as_option(found: re.Match[str]) -> str:
    """An argument of a function as the option of its name."""
    word, name, quote = found.groups()
    if name not in shoal.Config.options():
        return f"{word} --set {name}={quote}"
    return f"{word} --{name.replace('_', '-')}{' ' + quote if quote else ''}"


def _shown(outcome: Outcome, as_json: bool) -> str:
    if as_json:
        return _json(outcome.content)
    if not outcome.parts:
        return printable(outcome.text, keep="\n") + "\n" if outcome.text else ""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=False)
    with console.capture() as shown:
        if outcome.brief:
            console.print(_beside(outcome.parts))
        for heading, lines in [] if outcome.brief else outcome.parts:
            console.print(Text(printable(heading), style="bold"))
            for line in lines:
                console.print(Padding(Text(printable(line)), (0, 0, 0, 2)))
    return shown.get()


def _beside(parts: list[tuple[str, list[str]]]) -> Any:
    """Headings with their sentences beside them."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for heading, lines in parts:
        grid.add_row(Text(printable(heading)), Text("\n".join(printable(line) for line in lines)))
    return grid


def _json(content: dict[str, Any]) -> str:
    text = json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False)
    # JSON leaves control characters above 127 as they are; written out in its own way, they mean the same.
    return "".join(c if c == "\n" or printable(c) == c else f"\\u{ord(c):04x}" for c in text) + "\n"


def _print(text: str, stream: TextIO | None = None) -> None:
    """Write and flush. Where the reader has gone, as with ``| head -1``, what was done stands; the rest is unsaid."""
    to = sys.stdout if stream is None else stream
    try:
        to.write(text)
        to.flush()
    except BrokenPipeError:
        # So that nothing later, the interpreter's own flush at the end included, meets the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), to.fileno())


def said(text: str) -> None:
    """A line on standard error."""
    _print(f"{printable(text)}\n", sys.stderr)


def _finite(value: Any) -> Any:
    """What JSON knows: infinity and NaN become null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None


def counted(number: int, noun: str) -> str:
    """So many of them."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _warning(message: Warning | str, *_: Any, **__: Any) -> None:
    said(f"shoal: note: {message}")


class Stages:
    """Progress of a run on standard error: bars with the time left on a terminal, one line per stage elsewhere."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._told: set[str] = set()

    def __enter__(self) -> Stages:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._bars = Progress(
                SpinnerColumn(finished_text="✓"),
                TextColumn("{task.fields[stage]:<8}"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=Console(stderr=True),
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, stage: str, text: str, done: float, total: int) -> None:
        """Take a report of the run."""
        if self._bars is None:
            if stage not in self._told:
                self._told.add(stage)
                said(f"{stage}: {text}")
            return
        key = f"{stage} {text}"
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(text, total=None, stage=stage)
        elif key not in self._told and total > 1:
            # Another step of the stage: its own pace, not that of the step before.
            self._bars.reset(self._tasks[stage], total=total, description=text)
        self._told.add(key)
        self._bars.update(self._tasks[stage], description=text, total=total or None, completed=done)
