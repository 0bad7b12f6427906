"""Docstrings of public functions say what they return, and their examples print what they say."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import shoal

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FUNCTIONS = sorted(name for name in shoal._HOME if inspect.isfunction(getattr(shoal, name)))
#: The methods that users call first, by class.
METHODS = {
    "GaussianClasses": ("diagonal", "deterministic", "fit", "checks", "joint", "take", "with_noise"),
    "NeighborGraph": ("complete", "from_edges", "within_groups", "nearest"),
    "Mechanism": ("release", "curve", "released_curve", "save", "load"),
    "Codebook": ("curves", "probabilities", "draw", "release", "curve"),
    "Ledger": ("open", "budget", "release", "spent", "verify"),
    "Run": ("open",),
    "Forecasts": ("classes", "to_power"),
}
DOCUMENTED = [*FUNCTIONS, *(f"{owner}.{method}" for owner, methods in METHODS.items() for method in methods)]
#: Whole runs and studies: too slow to execute here, other tests do.
NOT_EXECUTED = {"Run.open", "run", "check", "choose", "attack_run"}


def _resolved(name: str) -> Any:
    found: Any = shoal
    for part in name.split("."):
        found = getattr(found, part)
    return found


#: Every module with an example, public names or not.
SOURCE = Path(shoal.__file__).parent
MODULES = sorted(
    ".".join(("shoal", *path.relative_to(SOURCE).with_suffix("").parts))
    for path in SOURCE.rglob("*.py")
    if "    >>> " in path.read_text(encoding="utf-8") and path.name != "__init__.py"
)


@pytest.mark.parametrize("home", MODULES)
def test_examples_print_what_they_say(home: str) -> None:
    module = import_module(home)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report: list[str] = []
    for test in doctest.DocTestFinder().find(module):
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstring_says_what_is_returned_and_shows_it(name: str) -> None:
    function = _resolved(name)
    text = inspect.getdoc(function) or ""
    assert "Returns:" in text or inspect.signature(function).return_annotation == "None"
    examples = doctest.DocTestParser().get_examples(text)
    assert examples
    executed = [one for one in examples if not one.options.get(doctest.SKIP)]
    assert bool(executed) == (name not in NOT_EXECUTED)
    assert name in NOT_EXECUTED or any(one.want for one in executed)


def test_every_example_is_found_where_it_stands() -> None:
    """A wrapped function could hide its docstring from the finder, and its example would never run."""
    found = {
        test.name.removeprefix(f"{home}.")
        for home in MODULES
        for test in doctest.DocTestFinder().find(import_module(home))
        if test.examples
    }
    defined = {_resolved(name).__qualname__ for name in DOCUMENTED}  # a method may be that of a base class
    assert defined <= found
