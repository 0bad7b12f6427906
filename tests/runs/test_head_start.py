"""What is compiled on the very first run are the very kernels that runs call."""

from __future__ import annotations

import numpy as np

import shoal
from shoal.accounting import spectrum
from shoal.accounting.tradeoff import worst_tpr
from shoal.runs import head_start


def test_its_kernels_are_those_of_a_run() -> None:
    head_start.compile_accounting()
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
