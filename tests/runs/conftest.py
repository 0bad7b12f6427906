"""Small runs of two shards, made once; tests work on copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import small_run


@pytest.fixture(scope="session")
def days(tmp_path_factory: pytest.TempPathFactory) -> small_run.Days:
    return small_run.write_days(tmp_path_factory.mktemp("days"))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory, days: small_run.Days) -> tuple[Path, Path]:
    """A folder with forecasts and designs, and one that has released too."""
    folder = tmp_path_factory.mktemp("runs")
    small_run.go(folder / "designed", days[0], small_run.CHARGED, "design")
    shutil.copytree(folder / "designed", folder / "finished")
    small_run.go(folder / "finished")
    return folder / "designed", folder / "finished"


@pytest.fixture
def designed(made_once: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of a run that has released nothing."""
    return Path(shutil.copytree(made_once[0], tmp_path / "run"))


@pytest.fixture
def finished(made_once: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of a run that has released."""
    return Path(shutil.copytree(made_once[1], tmp_path / "run"))
