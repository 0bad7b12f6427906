"""The notebooks of docs/notebooks run from top to bottom, and are stored without output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

#: The cell whose output is stored.
SHOWN = "mechanism-9"
NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def _cells(notebook: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": notebook.stem}
    for cell in _cells(notebook):
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_stored_without_output(notebook: Path) -> None:
    """But for the one cell that shows a mechanism: what it shows is drawn from nobody's data and has no randomness."""
    cells = [cell for cell in _cells(notebook) if cell["id"] != SHOWN]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


def test_the_notebook_about_mechanisms_shows_one() -> None:
    (notebook,) = (path for path in NOTEBOOKS if path.stem == "mechanism")
    (cell,) = (cell for cell in _cells(notebook) if cell["id"] == SHOWN)
    printed, shown = cell["outputs"]
    text = "".join(printed["text"])
    assert all(part in text for part in ("gain\n[[", "shift\n[", "covariance of the noise\n[["))
    assert "Mechanism" in "".join(shown["data"]["text/html"])
    names: dict[str, Any] = {}
    for before in _cells(notebook):
        exec(compile("".join(before["source"]), before["id"], "exec"), names)
        if before is cell or before["id"] == SHOWN:
            break
    stored = [float(x) for x in re.findall(r"-?\d+\.\d*", text.partition("gain\n")[2].partition("shift")[0])]
    assert stored == pytest.approx(names["moved"].gain[0].ravel().tolist(), abs=0.02)
