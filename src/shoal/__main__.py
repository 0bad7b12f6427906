"""The command ``shoal``, installed or as ``python -m shoal``."""

import os
import signal
from typing import Any


def run() -> None:
    """Load the command and run it. Ctrl-C while modules load ends the process at once, with a sentence."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where it is ignored
    if interruptible:
        signal.signal(signal.SIGINT, _end)
    from shoal.cli.main import app

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()


def _end(*_: Any) -> None:
    """Leave without what is left half loaded having a say; nothing was begun yet."""
    os.write(2, b"shoal: interrupted before anything was begun.\n")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    run()
