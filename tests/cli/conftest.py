"""One small finished run, made once through the command; tests work on copies of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from calls import SMALL, call


@pytest.fixture(scope="session")
def meters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import shoal

    path = tmp_path_factory.mktemp("meters") / "meters.csv"
    shoal.simulate_meters(12, 17, seed=1).write_csv(path)
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, meters: Path) -> Path:
    out = tmp_path_factory.mktemp("runs") / "january"
    done = call("run", meters, "--out", out, *SMALL, "--origin", "2024-01-17T18:00", "--json")
    assert done.code == 0, done.err
    assert done.json["did"] == ["fit", "design", "audit", "release", "card", "report"]
    return out


@pytest.fixture
def january(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(finished, tmp_path / "january"))


@pytest.fixture
def unreleased(january: Path) -> Path:
    """A copy that has forecasts and a design, and has released nothing."""
    keep = {"state.json", "forecasts", "mechanism", "shards", "fit.json", "design.json", "quality.csv", "left_out.csv"}
    for path in january.iterdir():
        if path.name not in keep:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    state = json.loads((january / "state.json").read_text())
    state["stages"] = {name: state["stages"][name] for name in ("fit", "design")}
    state["ledger"] = None
    (january / "state.json").write_text(json.dumps(state))
    return january


@pytest.fixture(scope="session")
def charges() -> Callable[[Path], int]:
    """Number of releases in a folder's ledger."""
    import shoal

    def count(folder: Path) -> int:
        with shoal.Ledger.open(folder / "ledger.db", create=False) as ledger:
            assert ledger.verify().ok
            return sum(entry.kind == "release" for entry in ledger.entries())

    return count
