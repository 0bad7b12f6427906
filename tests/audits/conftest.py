"""Mechanisms in these tests release seeded noise, so that an audit gives the same result every time.

An audit of fresh releases raises a false alarm now and then, as its confidence says; a test that wants them all the
same asks for ``fresh_releases``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shoal
from shoal.audits import attacks


@pytest.fixture
def fresh_releases() -> None:
    """Audit what the mechanism itself releases."""


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "fresh_releases" not in request.fixturenames:
        release = shoal.Mechanism.release
        sources: dict[int, attacks.Release] = {}

        def seeded(self: shoal.Mechanism, q: Any, label: Any) -> Any:
            if np.ndim(label) > 0:
                return release(self, q, label)
            return sources.setdefault(id(self), attacks.seeded_release(self, 1))(q, label)

        monkeypatch.setattr(shoal.Mechanism, "release", seeded)
