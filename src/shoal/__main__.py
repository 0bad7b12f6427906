"""The command ``shoal``, installed or as ``python -m shoal``."""

import signal


def run() -> None:
    """Load the command and run it. Ctrl-C while modules load ends the process at once, without a traceback."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where it is ignored
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from shoal.cli.main import app

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()


if __name__ == "__main__":
    run()
