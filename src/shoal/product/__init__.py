"""The product on the library: files, runs, ledger, cards, studies, service and command. It needs the extra ``run``."""

from importlib.util import find_spec

#: What the extra ``run`` installs, by the names of its modules.
PACKAGES = ("polars", "sqlalchemy", "filelock", "typer", "rich", "jinja2", "sklearn")


def _is_missing(package: str) -> bool:
    """Return whether a package is not installed."""
    try:
        return find_spec(package) is None
    except (ImportError, ValueError):
        return True


if _missing := [package for package in PACKAGES if _is_missing(package)]:
    raise ModuleNotFoundError(
        "files, runs, the ledger, cards and the command need packages that are not installed here "
        f"({', '.join(_missing)}): pip install 'shoal[run]'",
        name=_missing[0],
    )
