"""One small finished run, made once through the command; tests work on copies of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from calls import CHARGED, SMALL, call


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
    assert done.json["did"] == ["fit", "crowds", "release", "card", "report"]
    return out


@pytest.fixture(scope="session")
def finished_charged(tmp_path_factory: pytest.TempPathFactory, meters: Path) -> Path:
    out = tmp_path_factory.mktemp("charged") / "january"
    done = call("run", meters, "--out", out, *CHARGED, "--origin", "2024-01-17T18:00", "--json")
    assert done.code == 0, done.err
    assert done.json["did"] == ["fit", "crowds", "design", "audit", "release", "card", "report"]
    return out


@pytest.fixture
def charged(finished_charged: Path, tmp_path: Path) -> Path:
    """A copy of a finished run under an ε."""
    return Path(shutil.copytree(finished_charged, tmp_path / "charged"))


@pytest.fixture
def january(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(finished, tmp_path / "january"))


@pytest.fixture
def unreleased(charged: Path) -> Path:
    """A copy that has forecasts, crowds and a design, and has released nothing."""
    keep = {
        "state.json", "forecasts", "blocks", "mechanism", "shards", "fit.json", "design.json", "quality.csv",
        "left_out.csv", "crowds.parquet", "rows.parquet",
    }  # fmt: skip
    for path in charged.iterdir():
        if path.name not in keep:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    state = json.loads((charged / "state.json").read_text())
    state["stages"] = {name: state["stages"][name] for name in ("fit", "crowds", "design")}
    state["ledger"] = None
    (charged / "state.json").write_text(json.dumps(state))
    return charged


@pytest.fixture(scope="session")
def charges() -> Callable[[Path], int]:
    """Number of releases in a folder's ledger."""
    import shoal

    def count(folder: Path) -> int:
        with shoal.Ledger.open(folder / "ledger.db", create=False) as ledger:
            assert ledger.verify().ok
            return sum(entry.kind == "release" for entry in ledger.entries())

    return count
