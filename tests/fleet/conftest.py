"""Small runs in shards, made once; tests work on copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import small_fleet


@pytest.fixture(scope="session")
def days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return small_fleet.write_days(tmp_path_factory.mktemp("days"))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory, days: tuple[Path, Path, Path]) -> tuple[Path, Path]:
    """A folder with forecasts and designs, and one that has released too."""
    folder = tmp_path_factory.mktemp("fleets")
    small_fleet.go(folder / "designed", days[0], small_fleet.CONFIG, "design")
    shutil.copytree(folder / "designed", folder / "finished")
    small_fleet.go(folder / "finished")
    return folder / "designed", folder / "finished"


@pytest.fixture
def designed(made_once: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of a fleet that has released nothing."""
    return Path(shutil.copytree(made_once[0], tmp_path / "fleet"))


@pytest.fixture
def finished(made_once: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of a fleet that has released."""
    return Path(shutil.copytree(made_once[1], tmp_path / "fleet"))
