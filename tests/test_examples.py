"""The examples of docs/examples, on less data: no attacker beats what is promised beyond its confidence."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module
    for name in ("study", "voices", "physiology", "heating", "forecaster"):
        sys.modules.pop(name, None)


def test_voices(example):
    pytest.importorskip("aeon", reason="the extra 'examples' is not installed")
    a, e, before, after = example("voices").example(entries=3, speakers=4)
    for found in (a, e):
        assert max(found.before.values()) > found.promise
        assert found.kept
    assert after > before - 0.05, "the vowel stays"


def test_physiology(example, tmp_path):
    pytest.importorskip("pyts", reason="the extra 'examples' is not installed")
    module = example("physiology")
    found = module.example(entries=3, animals=10, crowd=5)
    assert max(found.before.values()) > found.promise
    assert found.kept
    assert found.hider.mechanism_.certificate.delta_upper <= 1e-5
    module.picture(found, tmp_path / "picture.png", "ten pigs")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_heating(example):
    module = example("heating")
    if not module.DATA.exists():
        pytest.skip(f"real readings are not at ../shared/data/{module.DATA.name}")
    found = module.example(repeats=1)
    assert found.kept
    assert not found.hider.checks_.holds, "where the laws fail, the checks say so"


def test_forecaster(example):
    """Forecasts that shoal had no part in: the rows are means of at least ten, whatever made them."""
    found = example("forecaster").example(homes=36, days=5)
    assert "are indistinguishable" in found.statement
    assert 0.8 < found.price < 2.0
