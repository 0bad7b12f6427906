"""Ledgers on both databases, and mechanisms to release with."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks import _postgres
from releasing import crowds, members, names, record_crowds

from shoal import Ledger

_names = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Gives the URL of a new database on a private server."""
    binaries = _postgres.binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: initdb was not found")
    with _postgres.server(binaries) as address:
        yield lambda: str(_postgres.database(address, f"ledger_{os.getpid()}_{next(_names)}"))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without a ledger, on either system."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return str(request.getfixturevalue("postgres")())


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """An open ledger on either system, with a budget, fixed in advance, that the tests' releases fit in."""
    with Ledger.open(url, timeout=20) as opened:
        opened.budget(epsilon=1.0, delta=0.01, mode="fixed")
        yield opened


@pytest.fixture
def two(ledger: Ledger) -> tuple[Ledger, int, int]:
    """A ledger with two crowds of four, released on the first."""
    a, b = ledger.draw_crowd_numbers(2)
    rows = [(label, a) for label in names("a", 4)] + [(label, b) for label in names("b", 4)]
    record_crowds(ledger, "first", members(rows), crowds([(a, 4), (b, 4)], "2025-01-01T18:00"))
    return ledger, a, b
