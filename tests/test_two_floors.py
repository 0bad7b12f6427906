"""Two floors: the library needs five packages, and the product says what to install where its own are missing."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shoal
from shoal.product import PACKAGES
from test_documents import LIBRARY

SOURCE = Path(shoal.__file__).parent
#: Besides Python's own modules.
ALLOWED = {"shoal", "numpy", "scipy", "numba", "flint", "threadpoolctl"}

BLOCKED = f"""
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {(*PACKAGES, "pandas", "click", "pydantic", "joblib")!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
WORK = """
import numpy as np
import shoal
classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
graph = shoal.NeighborGraph.complete(classes.labels)
mechanism = shoal.calibrate(classes, graph, "transport", epsilon=1.0, delta=0.01, iterations=3, prove=False)
assert mechanism.certificate.delta_upper <= 0.01
proof = shoal.prove(mechanism)
assert 0 < proof.delta_lower <= proof.delta_upper <= 0.01
released = mechanism.release(np.array([0.3]), "a")
assert released.shape == (1,)
print(shoal.audit(mechanism, n_samples=2000).verdict == "consistent")
print(sorted(name for name in sys.modules if name.startswith("shoal.product.")))
"""


def python(code: str, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_library_names_five_packages() -> None:
    """Those of lazy imports too."""
    for room in LIBRARY:
        files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").is_file() else sorted((SOURCE / room).rglob("*.py"))
        assert files
        for file in files:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    assert node.level == 0, file
                    names = [node.module or ""]
                for name in names:
                    top = name.split(".")[0]
                    assert top in ALLOWED or top in sys.stdlib_module_names, (file, name)
                    assert not name.startswith("shoal.product"), (file, name)


def test_design_prove_release_and_audit_without_the_product() -> None:
    done = python(BLOCKED + WORK)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["True", "[]"]


@pytest.mark.slow
def test_the_rooms_of_the_library_copied_out_are_enough(tmp_path: Path) -> None:
    """They compile their kernels anew."""
    copy = tmp_path / "shoal"
    copy.mkdir()
    for name in ("__init__.py", "__init__.pyi", *(f"{room}.py" for room in LIBRARY)):
        if (SOURCE / name).is_file():
            shutil.copy(SOURCE / name, copy / name)
    for room in LIBRARY:
        if (SOURCE / room).is_dir():
            shutil.copytree(SOURCE / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    done = python(f"{BLOCKED}import shoal\nassert shoal.__file__.startswith({str(tmp_path)!r})\n{WORK}", path=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["True", "[]"]


def test_names_of_the_product_say_what_to_install() -> None:
    code = """
from shoal import *
import shoal
assert "design" in globals() and "design" in dir(shoal) and "run" not in shoal.__all__ and "Ledger" not in dir(shoal)
for name in ("run", "Ledger", "read_meters"):
    try:
        getattr(shoal, name)
    except ImportError as error:
        print(error)
"""
    done = python(BLOCKED + code)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.endswith("pip install 'shoal[run]'") for line in lines)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["run", "meters.csv", "--out", "january"]])
def test_the_command_says_what_to_install(arguments: list[str]) -> None:
    code = f"{BLOCKED}import sys\nfrom shoal.__main__ import run\nsys.argv = ['shoal', *{arguments}]\nrun()"
    done = python(code)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("shoal: ")
    assert done.stderr.count("\n") == 1
    assert "pip install 'shoal[run]'" in done.stderr


def test_what_is_compiled_is_announced_once() -> None:
    """Numba reports what it compiles; cached kernels and others' functions are not announced."""
    code = """
import numba
from shoal.accounting.tails import log_sum_exp
from shoal.numerics import warmup

def fresh(x):
    return x + 1

def another(x):
    return x + 2

told = []
with warmup.announce_compilation_to(told.append):
    log_sum_exp(0.0, 0.0)
    numba.njit(fresh)(1.0)
    known = len(told)
    for function in (fresh, another):
        function.__module__ = "shoal.fresh"
        numba.njit(function)(1.0)
print(known, told == [warmup.WORDS])
"""
    for _ in range(2):
        done = python(code)
        assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["0", "True"]
