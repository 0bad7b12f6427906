"""Output and end of a command: results on standard output, progress and messages on standard error.

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
import os
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

import typer

import shoal
from shoal.files import FULL, is_disk_full
from shoal.numerics import warmup
from shoal.plaintext import escape_controls
from shoal.product.cli import options
from shoal.records import to_plain

#: The option of every command.
Json = Annotated[bool, options.option("One JSON object on standard output, nothing else.", "Output", "--json")]
#: With this variable of the environment set, an error shows its traceback.
DEBUG = "SHOAL_DEBUG"
#: Called where a command begins, after all was loaded and its options were read.
ON_BEGIN: list[Callable[[], None]] = []

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Outcome:
    """Result of a command: for machines, and to people as text, as (heading, sentences), or both."""

    content: dict[str, Any]
    text: str = ""
    parts: list[tuple[str, list[str]]] = field(default_factory=list)
    brief: bool = False  #: headings stand to the left of their sentences
    code: int = 0


def command(*sections: str, also: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Decorator of a command: it prints the outcome, and turns errors into sentences and exit codes.

    Settings of a run that are in ``sections``, or named in ``also``, are options of the command, which gets those that
    were given as keywords.
    """
    known = options.settings_of_sections(sections, also)

    def decorate(function: Command) -> Command:
        """The command as Typer takes it, with the options for settings and ``--json``."""
        signature = inspect.signature(function, eval_str=True)

        @functools.wraps(function)
        def guard(*, as_json: bool, **given: Any) -> None:
            """Run the command and print what comes of it."""
            warnings.showwarning = lambda message, *_, **__: print_message(f"shoal: note: {message}")
            try:
                for begin in ON_BEGIN:
                    begin()
                chosen = options.settings_given(known, given)
                with warmup.announce_compilation_to(lambda words: print_message(f"compile: {words}")):
                    outcome = function(**given, **chosen)
                code = outcome.code
                _write_and_flush(_render_outcome(outcome, as_json))
            except BaseException as error:
                expected = isinstance(error, (shoal.ShoalError, OSError, MemoryError, KeyboardInterrupt))
                if os.environ.get(DEBUG) or not (expected or (isinstance(error, Exception) and is_disk_full(error))):
                    raise
                code, text = exit_code(error), error_message(error)
                if as_json:
                    _write_and_flush(_json_text({"error": text, "kind": type(error).__name__, "exit_code": code}))
                print_message(f"shoal: {text}")
            if code:
                raise typer.Exit(code)

        words, mark, examples = inspect.cleandoc(function.__doc__ or "").partition("Examples:")
        guard.__doc__ = "\n\n".join([words + mark, *filter(None, map(str.strip, examples.splitlines()))])
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        flag = inspect.Parameter("as_json", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation=Json)
        every = [*own, *options.settings_as_parameters(known), flag]
        guard.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        guard.__annotations__ = {one.name: one.annotation for one in every}
        return guard  # type: ignore[return-value]

    return decorate


def exit_code(error: BaseException) -> int:
    """The exit code that an error stands for."""
    codes = {KeyboardInterrupt: 130, shoal.BudgetError: 3, shoal.UnreachableError: 4}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), 2)


def error_message(error: BaseException) -> str:
    """An error in a sentence or two that say what to do next."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted. What is finished is kept: the same `shoal run` continues from there."
    if isinstance(error, MemoryError):
        return "the memory is not enough; use fewer labels at a time, or a shorter horizon"
    if not isinstance(error, OSError):
        if isinstance(error, Exception) and is_disk_full(error):
            return FULL
        return as_command_options(str(error), getattr(error, "argument", ""))
    path = Path(str(error.filename or ""))
    if path.name.startswith("."):  # a lock, or a file that is being written: what the user knows is its folder
        path = path.parent
    name = f" {path}" if error.filename else ""
    denied = f"no permission to use{name or ' a file'}; change its permissions, or name another"
    room = "Nothing that was finished is lost: free some space and run the same command again"
    reasons = {
        errno.ENOSPC: f"the disk is full. {room}",
        errno.EDQUOT: f"your quota on the disk is used up. {room}",
        errno.ENOENT: f"there is no{name or ' such file'}; check the path",
        errno.EADDRINUSE: "the port is in use; stop what uses it, or choose another with --port",
    } | dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), denied)
    reason = error.strerror or "an operation on files failed"
    other = f"{reason}{f':{name}' if name else ''}; put it right and run the command again"
    return reasons.get(error.errno or 0, other)


def refuse_unusable_folder(out: Path) -> None:
    """Raise InputError unless a folder can be made, or written to, under the name that was given as --out."""
    if not out.parts:
        raise shoal.InputError("out: name a folder")
    missing = [path for path in (out, *out.parents) if not path.exists()]
    around = missing[-1].parent if missing else out
    if around.exists() and not around.is_dir():
        inside = ", in which there can be no folder; name another folder" if missing else "; name a folder"
        raise shoal.InputError(f"out: {around} is a file{inside}")
    probe = around / f".shoal-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        reasons = {errno.EROFS: "the disk is read-only", errno.ENOSPC: "the disk is full"}
        why = reasons.get(error.errno or 0, "you have no permission to write there")
        raise shoal.InputError(
            f"out: no folder can be made in {around.resolve()}: {why}; name another folder"
        ) from None


def as_command_options(text: str, argument: str = "") -> str:
    """Rewrite a message about arguments as one about options: ``train_days=5`` becomes ``--train-days 5``.

    ``argument`` is the one that the message begins with, as its error says.

    >>> as_command_options("train_days must be at least 1; pass interval=, or max_kw=50; say secret='readings'")
    '--train-days must be at least 1; pass --interval, or --set max_kw=50; say --secret readings'
    >>> as_command_options("crowd: crowd=9 works; add update=True, without ledger=. Leave it out (columns='-NAME')")
    'crowd: --crowd 9 works; add --update, without --ledger. Leave it out (--columns=-NAME)'
    >>> as_command_options("accept='doubtful-law' releases these all the same")
    '--accept-doubtful-law releases these all the same'
    """
    also = ("at_most", "within", "update", "rehearse")  # arguments that are no settings
    names = {name: f"--{name.replace('_', '-')}" for name in (*shoal.Config.options(), *also)}
    rare = {setting.name for setting in fields(shoal.Config)} - names.keys()

    def as_option(argument: re.Match[str]) -> str:
        """The option for a match of NAME=VALUE."""
        name, value = argument.groups()
        value = value if " " in value else value.strip("'").replace("True", "")
        if (name, value) == ("accept", "doubtful-law"):
            return "--accept-doubtful-law"
        between = "=" if value.startswith("-") else " " if value else ""
        return f"--set {name}={value}" if name in rare else f"{names[name]}{between}{value}"

    value = r"('[^']*'|[^\s;,()']*?(?=[.:]?(?:[\s;,()']|$)))"
    text = re.sub(rf"(?<![-\w=.])({'|'.join([*names, *rare])})={value}", as_option, text)
    named = "|".join(name for name in names if "_" in name)
    text = re.sub(rf"(?<![-\w])({named})(?![-\w.])(?: \(--[a-z-]+\))?", lambda match: names[match[1]], text)
    return names[argument] + text.removeprefix(argument) if argument in names and text.startswith(argument) else text


def _render_outcome(outcome: Outcome, as_json: bool) -> str:
    """What a command prints on standard output: JSON, or text and headings with sentences."""
    if as_json:
        return _json_text(outcome.content)
    text = escape_controls(outcome.text, keep="\n") + "\n" if outcome.text else ""
    if not outcome.parts:
        return text
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=False)
    pairs = Table.grid(padding=(0, 2, 0, 0))
    pairs.add_column(style="bold", no_wrap=True)
    pairs.add_column(overflow="fold")
    with console.capture() as shown:
        for heading, lines in outcome.parts:
            title, sentences = (
                Text(escape_controls(heading), style="bold"),
                [Text(escape_controls(line)) for line in lines],
            )
            if outcome.brief:
                pairs.add_row(title, Text("\n").join(sentences))
            else:
                console.print(title, *(Padding(sentence, (0, 0, 0, 2)) for sentence in sentences), sep="\n")
        if outcome.brief:
            console.print(pairs)
    return text + shown.get()


def _json_text(content: dict[str, Any]) -> str:
    """JSON for any terminal: letters and control characters that it may not show are written as escapes."""
    known = "utf" in (sys.stdout.encoding or "utf-8").lower()  # elsewhere JSON has its own way to write letters
    text = json.dumps(to_plain(content), indent=1, ensure_ascii=not known, allow_nan=False)
    # JSON leaves control characters above 127 as they are; written out in its own way, they mean the same.
    return "".join(c if c == "\n" or escape_controls(c) == c else f"\\u{ord(c):04x}" for c in text) + "\n"


def _write_and_flush(text: str, stream: TextIO | None = None) -> None:
    """Write to a stream, standard output by default, and flush; a reader that has gone (``| head -1``) is no error."""
    to = sys.stdout if stream is None else stream
    try:
        to.write(text)
        to.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and (sys.platform, error.errno) != ("win32", errno.EINVAL):
            raise
        # So that nothing later, the interpreter's own flush at the end included, meets the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), to.fileno())


def print_message(text: str) -> None:
    """Print a line on standard error."""
    _write_and_flush(f"{escape_controls(text)}\n", sys.stderr)


class StageProgress:
    """Progress of a run on standard error: bars with the time left on a terminal, one line per stage elsewhere."""

    def __init__(self) -> None:
        """Nothing is shown yet."""
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._shown: set[str] = set()

    def __enter__(self) -> StageProgress:
        """Start the bars, if standard error is a terminal."""
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            columns = (
                progress.SpinnerColumn(finished_text="✓"),
                progress.TextColumn("{task.fields[stage]:<8}"),
                progress.BarColumn(bar_width=24),
                progress.TimeElapsedColumn(),
                progress.TextColumn("left"),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.description}"),
            )
            self._bars = progress.Progress(*columns, console=Console(stderr=True))
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the bars."""
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, stage: str, text: str, done: float, total: int) -> None:
        """Show that a stage does what ``text`` says and has ``done`` of ``total``."""
        step = stage if self._bars is None else f"{stage} {text}"
        new = step not in self._shown
        self._shown.add(step)
        if self._bars is None:
            if new:
                print_message(f"{stage}: {text}")
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(text, total=None, stage=stage)
        elif new and total > 1:
            # Another step of the stage: its own pace, not that of the step before.
            self._bars.reset(self._tasks[stage], total=total, description=text)
        self._bars.update(self._tasks[stage], description=text, total=total or None, completed=done)
