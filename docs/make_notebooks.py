"""Run the notebooks and store what their cells show: ``python docs/make_notebooks.py [mechanism table meters]``.

What a cell prints, the value of its last line and the pictures that it drew are kept in the file, so that a reader who
runs nothing sees them. Tests run the same cells.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent / "notebooks"
#: Small enough for a repository, large enough to read.
DPI = 72


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells that run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(cell: dict[str, Any], names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell and return its outputs as notebooks store them."""
    tree, printed, value = ast.parse("".join(cell["source"])), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, cell["id"], "exec"), names)
        if last is not None and not "".join(cell["source"]).rstrip().endswith(";"):
            value = eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)
        elif last is not None:
            exec(compile(ast.Module([last], []), cell["id"], "exec"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, dpi=DPI, bbox_inches="tight", metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    plt.close("all")
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(*stems: str) -> None:
    """Run the named notebooks, or all, and write them."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if stems and path.stem not in stems:
            continue
        notebook, names = json.loads(path.read_text(encoding="utf-8")), {"__name__": path.stem}
        with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            os.environ["XDG_DATA_HOME"] = scratch
            for cell in code_cells(notebook):
                cell["outputs"] = run_cell(cell, names)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
