"""Which software runs here, and whether a worker runs the same: results must not depend on where they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


def version_probe() -> Callable[[], dict[str, str]]:
    """A function that tells the versions of the machine it runs on.

    It is made inside another one, so that it travels as code: a worker without shoal can run it and say so.
    """

    def versions() -> dict[str, str]:
        import importlib.metadata
        import sys

        found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
        for name in ("shoal", "numpy", "numba", "polars"):
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = "missing"
        return found

    return versions


def versions() -> dict[str, str]:
    """The versions of shoal, Python and the libraries that results depend on."""
    return version_probe()()


def differences(here: Mapping[str, str], there: Iterable[Mapping[str, str]]) -> list[str]:
    """What other machines have in another version, in words; empty if nothing."""
    answers = list(there)
    found = []
    for name, version in here.items():
        others = sorted({answer.get(name, "missing") for answer in answers} - {version})
        if others:
            found.append(f"{name} {version} here, {' and '.join(others)} on workers")
    return found
