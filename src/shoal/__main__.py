"""``python -m shoal``: the command ``shoal``."""

from shoal.cli.main import run

if __name__ == "__main__":
    run()
