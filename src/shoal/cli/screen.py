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
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Annotated, Any, TypeVar

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Outcome:
    """What a command has to say: to machines, and to people as text or as (heading, sentences)."""

    content: dict[str, Any]
    text: str = ""
    parts: list[tuple[str, list[str]]] = field(default_factory=list)
    code: int = 0


def command(function: Command) -> Command:
    """Show the outcome, turn errors into sentences and exit codes. Every command takes ``as_json`` and ``debug``."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> None:
        from shoal.errors import ShoalError

        warnings.showwarning = _warning
        as_json, debug = bool(kwargs["as_json"]), bool(kwargs["debug"])
        try:
            outcome = function(*args, **kwargs)
            _show(outcome, as_json)
            code = outcome.code
        except (ShoalError, OSError, MemoryError, KeyboardInterrupt) as error:
            if debug:
                raise
            code = exit_code(error)
            text = explained(error)
            if as_json:
                _print_json({"error": text, "kind": type(error).__name__, "exit_code": code})
            print(f"shoal: {text}", file=sys.stderr)
        if code:
            raise typer.Exit(code)

    return guarded  # type: ignore[return-value]


def exit_code(error: BaseException) -> int:
    """The exit code that an error stands for."""
    from shoal.errors import BudgetError, UnreachableError

    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, BudgetError):
        return 3
    return 4 if isinstance(error, UnreachableError) else 2


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
        return f"{error.strerror or 'the system refused'}:{name or ' a file'}; put it right and run the command again"
    return str(error)


def _show(outcome: Outcome, as_json: bool) -> None:
    if as_json:
        _print_json(outcome.content)
    elif outcome.parts:
        from rich.console import Console
        from rich.padding import Padding
        from rich.text import Text

        console = Console(highlight=False, soft_wrap=False)
        for heading, lines in outcome.parts:
            console.print(Text(heading, style="bold"))
            for line in lines:
                console.print(Padding(Text(line), (0, 0, 0, 2)))
    elif outcome.text:
        print(outcome.text)


def _print_json(content: dict[str, Any]) -> None:
    from shoal.engine.plain import as_json

    sys.stdout.write(as_json(content))


def _warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"shoal: note: {message}", file=sys.stderr)


class Stages:
    """Progress of a run: bars on a terminal, lines elsewhere, always on standard error."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}

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

    def __call__(self, stage: str, text: str, done: int, total: int) -> None:
        """Take a report of the engine."""
        if self._bars is None:
            if total == 0 or text == "already done":
                print(f"{stage}: {text}", file=sys.stderr, flush=True)
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(text, total=None, stage=stage)
        self._bars.update(self._tasks[stage], description=text, total=total or None, completed=done)
