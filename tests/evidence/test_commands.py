"""``python -m evidence``: what its commands hand over, show and refuse."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import shoal
from evidence.__main__ import app
from evidence.paper import figures, meters_study, synthetic_study

ROOT = Path(__file__).parents[2]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@dataclass(frozen=True)
class Study:
    """What a study is to the command: numbers, and a text."""

    seed: int

    def to_dict(self) -> dict[str, float]:
        return {"seed": self.seed, "delta": float("inf")}

    def __str__(self) -> str:
        return "a table"


def test_reproduce_hands_over_and_shows_the_study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def synthetic(out: Path, *, seed: int, quick: bool, progress: Any) -> Study:
        seen["synthetic"] = (out, seed, quick)
        progress("curves", 1, 2)
        return Study(seed)

    def homes(readings: Any, out: Path, *, origin: Any, source: Any, quick: bool, seed: int, **others: Any) -> Study:
        seen["meters"] = (None if readings is None else readings.columns, out, origin, source, quick)
        return Study(seed)

    monkeypatch.setattr(synthetic_study, "reproduce_synthetic", synthetic)
    monkeypatch.setattr(meters_study, "reproduce_meters", homes)
    done = call("reproduce", "synthetic", "--out", tmp_path / "s", "--quick", "--seed", "3", "--json")
    assert json.loads(done.stdout) == {"out": str(tmp_path / "s"), "seed": 3, "delta": None}
    assert "curves: 1 of 2" in done.stderr
    assert seen["synthetic"] == (tmp_path / "s", 3, True)
    assert "a table" in call("reproduce", "meters", "--out", tmp_path / "m").stdout
    assert seen["meters"] == (None, tmp_path / "m", None, None, False)
    file = tmp_path / "meters.parquet"
    shoal.simulate_meters(3, 2, step_minutes=60).write_parquet(file)
    done = call("reproduce", "meters", file, "--origin", "2024-01-02T18:00", "--out", tmp_path / "m")
    assert done.exit_code == 0, done.stderr
    assert seen["meters"] == (["household", "timestamp", "kw"], tmp_path / "m", "2024-01-02T18:00", None, False)


def test_no_figures_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str, package: str | None = None) -> object:
        return None if name == "matplotlib" else importlib.util.find_spec(name, package)

    monkeypatch.setattr(figures, "find_spec", lacking)
    for study in ("synthetic", "meters"):
        done = call("reproduce", study, "--out", tmp_path / study)
        assert done.exit_code == 2
        assert "pip install 'shoal[plot]'" in done.stderr
        assert " of " not in done.stderr.partition("shoal:")[0]  # no progress: nothing was worked on


def test_sizes_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "meters.parquet"
    shoal.simulate_meters(3, 2, step_minutes=60).write_parquet(file)
    done = call("rule", file, "--members", "five", "--out", tmp_path / "rule")
    assert done.exit_code == 2
    assert "members must be whole numbers" in done.stderr


def test_it_runs_from_a_checkout_and_is_not_in_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "evidence", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("reproduce", "rule", "page"):
        assert name in done.stdout
    for name in ("reproduce_synthetic", "reproduce_meters", "SyntheticStudy", "MetersStudy", "price_rule", "RuleStudy",
                 "backtest"):  # fmt: skip
        assert not hasattr(shoal, name)
    assert not (ROOT / "src" / "shoal" / "reproduction").exists()
