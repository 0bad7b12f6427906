"""A second process compiles on the very first run, is gone with it, and compiles the very kernels that runs call."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.accounting import spectrum
from shoal.accounting.tradeoff import worst_tpr
from shoal.numerics import compiled
from shoal.runs import head_start

WAITING = "import time; time.sleep(60)"


def children() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if (
                int(state[1]) == os.getpid()
                and state[0] != "Z"
                and WAITING.encode() in (entry / "cmdline").read_bytes()
            ):
                found.append(entry.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("why", ["first run", "kernels are there", "one core", "nowhere to keep them"])
def test_a_second_process_where_it_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr(head_start, "CODE", WAITING)
    monkeypatch.setattr(compiled, "FOLDER", None if why == "nowhere to keep them" else tmp_path)
    monkeypatch.setenv("SHOAL_THREADS", "1" if why == "one core" else "2")
    if why == "kernels are there":
        (tmp_path / "accounting").mkdir()
        (tmp_path / "accounting" / "spectrum._fast_block-1.nbi").touch()
    with head_start.head_start():
        assert len(children()) == (1 if why == "first run" else 0)
    assert not children()


def test_it_ends_with_a_run_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_start, "CODE", WAITING)
    monkeypatch.setattr(compiled, "FOLDER", tmp_path)
    monkeypatch.setenv("SHOAL_THREADS", "2")
    with pytest.raises(shoal.InputError), head_start.head_start():
        raise shoal.InputError("meters: none")
    assert not children()


def test_its_kernels_are_those_of_a_run() -> None:
    head_start.compile_spectra()
    kernels = (spectrum._fast_block, spectrum._precise_block)
    before = [list(kernel.signatures) for kernel in kernels]  # type: ignore[attr-defined]
    assert all(before)
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((4, 3, 3))
    classes = shoal.GaussianClasses(rng.standard_normal((4, 3)), roots @ roots.transpose(0, 2, 1))
    graph = shoal.NeighborGraph.complete(classes.labels)
    for scope in ("answer", "table"):
        made = shoal.design(classes, graph, "center", 1.0, 0.5, scope=scope)
        assert made.certificate.delta_upper < 1
    worst_tpr(classes, graph, np.array([0.1]))
    shoal.design(classes, graph, "additive", 1.0, 0.5, iterations=1)
    assert [list(kernel.signatures) for kernel in kernels] == before  # type: ignore[attr-defined]
