"""The paper's synthetic study: four classes in the plane, means on a line, Wishart covariances."""

from __future__ import annotations

import numpy as np

from shoal import validation
from shoal.laws.classes import GaussianClasses

#: The eight accuracy budgets of the paper's experiments, as total squared error (divide by k for ρ per entry).
TOTAL_BUDGETS = np.linspace(0.45, 2.1, 8)


def four_classes(seed: int | None = None) -> GaussianClasses:
    """Means (0,0), (1,1), (2,2), (3,3); covariances from a Wishart law (identity, two degrees of freedom).

    Without a seed, one fixed draw: the one that figures and tables of this project use.
    """
    means = np.arange(4.0)[:, None] * np.ones(2)
    if seed is None:
        entries = [
            (0.2296171, -0.14667322, 2.37427514),
            (1.10898802, 0.09209459, 0.53794851),
            (0.13472086, 0.1227714, 0.38640902),
            (0.77580365, -0.16873963, 0.38615644),
        ]
        covs = np.array([[[a, b], [b, c]] for a, b, c in entries])
    else:
        rng = np.random.default_rng(validation.count(seed=seed, at_least=0))
        roots = rng.standard_normal((4, 2, 2))
        covs = roots @ np.swapaxes(roots, 1, 2)
    return GaussianClasses(means, covs, ["A", "B", "C", "D"])
