"""What the largest size of a group costs: the same households in groups of different caps.

A larger group has more to hide among, and reaches further: its members are less alike, so the same error ρ leaves a
larger δ on its worst edge, or the same δ takes more ρ. Edges, and with them the work, grow with the cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import validation
from shoal.crowds.partition import cut_into_cells
from shoal.designs.calibration import calibrate
from shoal.designs.design import design
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.rounding import up

if TYPE_CHECKING:
    import polars as pl


def cap_table(
    classes: GaussianClasses,
    profiles: Any,
    caps: Sequence[int],
    *,
    rho: float,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    method: str = "center",
    clusters: Sequence[int] | None = None,
    sample: int | None = None,
    seed: int = 0,
    tolerance: float = 0.02,
    **options: Any,
) -> pl.DataFrame:
    """One row per cap: groups, edges, the δ that ρ leaves, and the ρ that (ε, δ) takes.

    Every group is designed for itself, twice: with the error ρ for each household, and calibrated to (ε, δ).
    ``delta_worst`` is the δ of the group that is worst off, ``delta_median`` that of the middle one (the worse of two),
    both rounded up; ``met`` is the share of households in groups where ρ leaves no more than ``delta``; ``rho_mean`` is
    the mean over households and ``rho_worst`` the largest. ``rho`` counts per entry, as everywhere. Where only a
    ``sample`` of groups is designed, these five speak about the sample.

    Args:
        classes: laws of the answers.
        profiles: (n, d) what groups are cut by, in the order of the labels.
        caps: largest sizes to compare.
        clusters: (n,) cluster of each label; groups are cut inside. By default all are one cluster.
        sample: how many groups to design per cap, drawn from ``seed``; by default all.
        tolerance: how closely the least ρ is searched, relatively.
        options: passed on to :func:`shoal.design`, such as ``iterations``.
    """
    import polars as pl

    points = validation.array(ndim=2, profiles=profiles)
    member_of = np.zeros(len(points), dtype=np.int64) if clusters is None else np.asarray(clusters)
    if not len(points) == len(member_of) == classes.n_classes:
        raise InputError(f"profiles and clusters must hold one entry per label: expected {classes.n_classes}")
    rows = []
    for cap in caps:
        most = validation.count(at_least=2, caps=cap)
        groups = [
            inside[cell == c]
            for cluster in np.unique(member_of)
            for inside in [np.flatnonzero(member_of == cluster)]
            for cell in [cut_into_cells(points[inside], most)]
            for c in range(int(cell.max()) + 1)
        ]
        sizes = np.array([len(g) for g in groups])
        left, needed = [], []
        chosen = np.arange(len(groups))
        if sample is not None and validation.count(sample=sample) < len(groups):
            chosen = np.sort(np.random.default_rng(seed).choice(len(groups), sample, replace=False))
        for group in (groups[i] for i in chosen):
            part = classes.take(group)
            graph = NeighborGraph.complete(part.labels)
            made = design(part, graph, method, epsilon, rho, seed=seed, **options)
            left.append(made.certificate.delta_upper)
            met = calibrate(part, graph, method, epsilon, delta, seed=seed, tolerance=tolerance, **options)
            needed.append(float(met.rho.max()))
        rows.append(
            {
                "cap": most,
                "groups": len(groups),
                "smallest": int(sizes.min()),
                "largest": int(sizes.max()),
                "designed": len(chosen),
                "edges": int((sizes * (sizes - 1) // 2).sum()),
                "delta_median": up(float(np.quantile(left, 0.5, method="higher"))),
                "delta_worst": up(max(left)),
                "met": float(np.average(np.array(left) <= delta, weights=sizes[chosen])),
                "rho_mean": float(np.average(needed, weights=sizes[chosen])),
                "rho_worst": max(needed),
            }
        )
    return pl.DataFrame(rows)
