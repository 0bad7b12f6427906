"""The public names, and what importing them costs."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import shoal


def test_all_equals_what_is_bound():
    for name in shoal.__all__:
        getattr(shoal, name)
    bound = {n for n, v in vars(shoal).items() if not n.startswith("_") and getattr(v, "__module__", "") != "typing"}
    modules = {n for n in bound if type(getattr(shoal, n)).__name__ == "module"}
    assert bound - modules - {"annotations", "import_module", "TYPE_CHECKING"} == set(shoal.__all__)


def test_dir_shows_public_names_only():
    assert set(dir(shoal)) == {*shoal.__all__, "__version__"}
    assert len(shoal.__all__) <= 61


EXTRAS = (
    "matplotlib", "ray", "psycopg", "fastapi", "starlette", "uvicorn", "httpx", "jwt", "pandas", "opendp",
)  # fmt: skip
WITHOUT_EXTRAS = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {extras!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from shoal import *
import pydoc, shoal
print(all(name in globals() for name in shoal.__all__), "privacy_curve" in pydoc.render_doc(shoal))
"""
NEED_EXTRAS = """
import os, pathlib, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
for call in (
    lambda: shoal.Ledger.open("postgresql://owner@db/ledger"),
    lambda: shoal.run(shoal.SimulatedMeters(12), folder / "run", workers="ray"),
):
    try:
        call()
    except shoal.InputError as error:
        print(error)
"""


def test_all_names_and_help_come_without_extras():
    code = WITHOUT_EXTRAS.format(extras=EXTRAS)
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["True", "True"]


def test_a_missing_extra_is_named_with_its_pip_line_where_it_is_needed():
    """What `shoal serve` says is tested with the service."""
    code = WITHOUT_EXTRAS.format(extras=EXTRAS) + NEED_EXTRAS
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    for line, extra in zip(done.stdout.splitlines()[1:], ("postgres", "ray"), strict=True):
        assert f"pip install 'shoal[{extra}]'" in line
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(shoal._HOME))
def test_every_name_lives_where_it_says(name):
    value = getattr(import_module(shoal._HOME[name]), name)
    assert getattr(shoal, name) is value
    assert value.__module__ == shoal._HOME[name]
    assert value.__doc__


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no_such_name"):
        shoal.no_such_name  # noqa: B018


def test_import_loads_no_heavy_package():
    code = "import sys, shoal; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numba", "scipy", "polars", "pandas", "matplotlib", "sklearn", "opendp"):
        assert f"'{heavy}'" not in loaded


def test_bad_input_is_a_value_error_and_a_full_disk_is_not():
    for name in ("InputError", "CertificationError", "UnreachableError", "BudgetError", "LedgerError"):
        assert issubclass(getattr(shoal, name), shoal.ShoalError)
        assert issubclass(getattr(shoal, name), ValueError)
    for name in ("StorageError", "WorkerError"):
        assert issubclass(getattr(shoal, name), shoal.ShoalError)
        assert not issubclass(getattr(shoal, name), ValueError)


def test_type_checkers_see_every_public_name(tmp_path):
    """A user's script under mypy --strict: no public name is Any, and wrong arguments are found."""
    script = tmp_path / "user.py"
    lines = ["import shoal", *(f"reveal_type(shoal.{name})" for name in sorted(shoal._HOME))]
    lines += ["graph = shoal.NeighborGraph.complete(['a', 'b'])", "shoal.NeighborGraph.complte(['a'])"]
    lines += ["shoal.calibrate(shoal.GaussianClasses.deterministic([[0.0], [1.0]]), graph, tolerence=0.1)"]
    script.write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(script)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1]).stdout
    revealed = [line for line in found.splitlines() if "Revealed type" in line]
    assert len(revealed) == len(shoal._HOME), found[-2000:]
    assert [line for line in revealed if '"Any"' in line or '"Unknown"' in line] == []
    wrong = [line for line in found.splitlines() if ": error: " in line and script.name in line]
    assert len(wrong) == 2, wrong
    assert "complte" in wrong[0]
    assert "tolerence" in wrong[1]
