"""A stale kernel would give wrong figures: the cache goes when any source changes."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.compiled import EDGE, PACKAGE, drop_stale_kernels


def test_cached_kernels_go_when_any_source_changes(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    (inner / "__pycache__").mkdir(parents=True)
    (tmp_path / "a.py").write_text("x = 1\n")
    (inner / "b.py").write_text("y = 2\n")
    assert drop_stale_kernels(tmp_path)
    index = inner / "__pycache__" / "b.f-1.py311.nbi"
    index.write_text("compiled")
    assert not drop_stale_kernels(tmp_path)
    assert index.exists()
    (tmp_path / "a.py").write_text("x = 3\n")
    os.utime(tmp_path / "a.py", ns=(1, 1))
    assert drop_stale_kernels(tmp_path)
    assert not index.exists()
    assert not drop_stale_kernels(tmp_path)


def test_the_edge_holds_no_kernel_and_does_not_count(tmp_path: Path) -> None:
    for room in EDGE:
        for path in (PACKAGE / room).rglob("*.py"):
            assert "shoal.compiled" not in path.read_text()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "c.py").write_text("z = 1\n")
    assert drop_stale_kernels(tmp_path)
    (tmp_path / "cli" / "c.py").write_text("z = 22\n")
    assert not drop_stale_kernels(tmp_path)
