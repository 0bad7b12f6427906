"""What the tests of meter files share. Real readings stay outside the repository; without them a test skips."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

REAL = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "swiss_residential_15min"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the Swiss residential readings."""
    if not (REAL / "swiss15_clean.parquet").exists():
        pytest.skip(f"real readings are not at ../shared/data/{REAL.name}")
    return REAL


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write lines to a file in a temporary folder."""

    def writer(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + ("\n" if lines else ""), encoding="utf-8")
        return path

    return writer
