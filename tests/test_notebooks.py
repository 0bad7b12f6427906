"""The notebooks of docs/notebooks run from top to bottom, and are stored with what they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def _cells(notebook: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    names: dict[str, Any] = {"__name__": notebook.stem}
    for cell in _cells(notebook):
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_stored_with_what_it_shows(notebook: Path) -> None:
    """Pictures, tables and the mechanism are there for a reader who runs nothing; all of it is about simulated data."""
    outputs = [output for cell in _cells(notebook) for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    text = json.dumps([output for output in outputs if "image/png" not in output.get("data", {})])
    assert "Traceback" not in text
    assert "/tmp" not in text
    assert all(cell["execution_count"] is None for cell in _cells(notebook))


def test_the_notebook_about_mechanisms_shows_one() -> None:
    (notebook,) = (path for path in NOTEBOOKS if path.stem == "mechanism")
    text = json.dumps([cell["outputs"] for cell in _cells(notebook)])
    for shown in (
        "gain",
        "covariance of the noise",
        "Mechanism(transport",
        "white",
        "Monte Carlo",
        "refused by the budget",
    ):
        assert shown in text
