"""The command ``shoal``, installed or as ``python -m shoal``."""

import os
import signal
import sys
from io import TextIOWrapper
from typing import Any


def run() -> None:
    """Load and run the command ``shoal``; before it begins, Ctrl-C ends the process at once, with a sentence."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where it is ignored
    if interruptible:
        signal.signal(signal.SIGINT, _end_at_interrupt)
    if isinstance(sys.stdout, TextIOWrapper):  # where letters are lacking, their numbers are written
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        import shoal.product  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(_without_product(error))
    from shoal.product.cli import output
    from shoal.product.cli.main import app

    try:
        if interruptible:
            output.ON_BEGIN.append(_restore_interrupt)
        app()
    finally:
        if interruptible:
            output.ON_BEGIN.remove(_restore_interrupt)
            _restore_interrupt()


def _without_product(error: ModuleNotFoundError) -> int:
    """Print what to install where only the library is; return the exit code."""
    print(f"shoal: {error}", file=sys.stderr)
    return 2


def _restore_interrupt() -> None:
    """Let Ctrl-C raise an exception from here on, which a command turns into its own sentence."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_at_interrupt(*_: Any) -> None:
    """End the process at Ctrl-C with a sentence; nothing was begun yet."""
    os.write(2, b"shoal: interrupted before anything was begun.\n")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    run()
