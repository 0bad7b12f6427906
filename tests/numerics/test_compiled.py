"""A stale kernel would give wrong figures: other sources, other cache; and there is one wherever one can be kept."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.numerics.compilation import CONSTANTS, MARK, PACKAGE, cache_folder, kernel, sources_digest

CALLER = """
from fake.callee import slope
from fake.numerics.compilation import kernel

@kernel
def line(x):
    return slope() * x
"""
CALLEE = """
from fake.numerics.compilation import kernel

@kernel
def slope():
    return {}
"""
CALL = (
    "from fake.caller import line; from fake.numerics import compilation; print(line(2.0),"
    " sum(line.stats.cache_hits.values()), compilation.FOLDER)"
)


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A package of two kernels in two files, compiled as ours are."""
    package = tmp_path / "fake"
    package.mkdir()
    (package / "numerics").mkdir()
    shutil.copy(PACKAGE / "numerics" / "compilation.py", package / "numerics")
    (package / "__init__.py").touch()
    (package / "numerics" / "__init__.py").touch()
    (package / "caller.py").write_text(CALLER)
    (package / "callee.py").write_text(CALLEE.format(3.0))
    return package


def call(package: Path, cache: str) -> tuple[float, int, str]:
    """line(2), how often it came from the cache, and the cache's folder, in a new process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "PYTHON"))}
    environment |= {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": cache}
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, env=environment, check=True)
    value, hits, folder = done.stdout.split()
    return float(value), int(hits), folder


def test_kernels_of_a_package_that_cannot_be_written_to_are_kept_by_the_user(fake: Path, tmp_path: Path) -> None:
    (fake / "__pycache__").write_text("a file where the folder would be: nobody can write here, not even root")
    value, hits, folder = call(fake, str(tmp_path / "cache"))
    assert (value, hits) == (6.0, 0)
    assert Path(folder).is_relative_to(tmp_path / "cache" / "shoal")
    assert call(fake, str(tmp_path / "cache")) == (6.0, 1, folder)
    (fake / "callee.py").write_text(CALLEE.format(5.0))
    value, hits, other = call(fake, str(tmp_path / "cache"))
    assert (value, hits) == (10.0, 0)
    assert other != folder
    assert not Path(folder).exists()
    assert call(fake, str(tmp_path / "cache"))[:2] == (10.0, 1)


def test_kernels_work_where_nothing_can_be_kept(fake: Path) -> None:
    (fake / "__pycache__").write_text("")
    assert call(fake, "/dev/null/nowhere") == (6.0, 0, "None")


def test_kernels_lie_beside_sources_that_can_be_written_to(fake: Path, tmp_path: Path) -> None:
    first = call(fake, str(tmp_path / "cache"))
    assert Path(first[2]).parent == fake / "__pycache__"
    assert call(fake, str(tmp_path / "cache"))[:2] == (6.0, 1)
    assert not (tmp_path / "cache").exists()
    (fake / "callee.py").write_text(CALLEE.format(5.0))
    assert call(fake, str(tmp_path / "cache"))[:2] == (10.0, 0)
    assert [p.name for p in (fake / "__pycache__").glob("kernels-*")] == [f"kernels-{sources_digest(fake)}"]


def test_constants_in_a_call_do_not_multiply_kernels() -> None:
    @kernel
    def power(x: float, n: int) -> float:
        return x**n

    @kernel
    def sums(x: float) -> float:
        return power(x, 1) + power(x, 2) + power(x, n=3)

    assert sums(2.0) == 14.0
    assert len(power.overloads) == 1  # type: ignore[attr-defined]


def test_every_constant_of_a_kernel_lies_in_a_file_that_counts() -> None:
    """Numba freezes a global's value into the machine code, wherever the module took it from."""
    counted = {PACKAGE / name for name in CONSTANTS}
    kernels = [path for path in PACKAGE.rglob("*.py") if MARK in path.read_bytes()]
    counted.update(kernels)
    assert len(kernels) > 15
    for path in kernels:
        tree = ast.parse(path.read_text())
        origin = {
            (alias.asname or alias.name): node.module
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shoal")
            for alias in node.names
        }
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and any(
                isinstance(mark, ast.Name) and mark.id in ("kernel", "inline_kernel", "summing_kernel")
                for mark in function.decorator_list
            ):
                body = [name for line in function.body for name in ast.walk(line) if isinstance(name, ast.Name)]
                for name in {name.id for name in body} & set(origin):
                    place = PACKAGE.parent / (str(origin[name]).replace(".", "/") + ".py")
                    module = place.with_suffix("") / f"{name}.py"
                    place = module if module.exists() else place
                    assert place in counted, f"{path.name}: {name} comes from {origin[name]}, which is not in CONSTANTS"


def test_files_without_kernels_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("z = 1\n")
    (tmp_path / "a.py").write_text("from x.compilation import kernel\n")
    before = cache_folder(tmp_path)
    (tmp_path / "c.py").write_text("z = 22\n")
    assert cache_folder(tmp_path) == before
    (tmp_path / "a.py").write_text("from x.compilation import kernel as k\n")
    assert cache_folder(tmp_path) != before
