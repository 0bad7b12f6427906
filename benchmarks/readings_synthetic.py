"""Private synthetic data beside noisy crowds: python -m benchmarks.readings_synthetic CURVES.npy HOMES OUT.npz.

Private-PGM (package ``mbi`` 2.0, McKenna et al. 2019), in an environment of its own: needs mbi, NumPy and SciPy only.
Each home becomes four attributes on public grids: its load in 14 geometric cells and its first three cosine
coefficients over the load in 6 cells each. Seven marginals (four of one attribute, load with each of the three others)
get Gaussian noise for ε = 1, δ = 1/(10 homes) in all; mirror descent fits a graphical model; its whole joint law, at
cell middles, is the release. Writes curves and weights per draw; ``shoal.readings.population_error.w1`` measures them.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

LEVELS = np.geomspace(1.5 / 40, 1.5 * 12, 15)
COEFFICIENTS = np.array([-0.75, -0.3, 0.0, 0.3, 0.75])
MIDDLES = np.array([-1.0, -0.5, -0.15, 0.15, 0.5, 1.0])


def draw(homes: np.ndarray, sigma: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    import mbi
    from mbi import Domain, LinearMeasurement

    k = homes.shape[1]
    at = (np.arange(k) + 0.5) / k
    basis = np.sqrt(2) * np.cos(np.pi * np.arange(1, 4)[:, None] * at)
    load = homes.mean(axis=1)
    swings = (homes / load[:, None]) @ basis.T / k
    cells = [np.clip(np.searchsorted(LEVELS, load) - 1, 0, 13), *(np.searchsorted(COEFFICIENTS, c) for c in swings.T)]
    domain = Domain(("l", "a", "b", "c"), (14, 6, 6, 6))
    cliques = [("l",), ("a",), ("b",), ("c",), ("l", "a"), ("l", "b"), ("l", "c")]
    std = sigma * math.sqrt(len(cliques))
    column = dict(zip("labc", cells, strict=True))
    measured = []
    for clique in cliques:
        shape = tuple(domain[name] for name in clique)
        flat = np.ravel_multi_index([column[name] for name in clique], shape)
        counts = np.bincount(flat, minlength=math.prod(shape)) + std * rng.standard_normal(math.prod(shape))
        measured.append(LinearMeasurement(counts, clique, std))
    model = mbi.estimation.MirrorDescent().estimate(domain, measured)
    joint = np.asarray(model.project(("l", "a", "b", "c")).datavector()).reshape(14, 6, 6, 6)
    levels = np.sqrt(LEVELS[1:] * LEVELS[:-1])
    grid = np.stack(np.meshgrid(levels, MIDDLES, MIDDLES, MIDDLES, indexing="ij"), axis=-1).reshape(-1, 4)
    curves = grid[:, :1] * np.maximum(1 + grid[:, 1:] @ basis, 0.02)
    return curves, np.maximum(joint.ravel(), 0.0)


def main(path: str, count: str, target: str) -> None:
    homes = np.load(path).reshape(-1, 12)[: int(count)]
    delta = 1 / (10 * len(homes))
    mu = brentq(lambda m: norm.cdf(m / 2 - 1 / m) - math.e * norm.cdf(-m / 2 - 1 / m) - delta, 1e-3, 10)
    rng = np.random.default_rng(0)
    draws = [draw(homes, 1 / mu, rng) for _ in range(3)]
    np.savez(target, homes=homes, curves=draws[0][0], weights=np.array([weights for _, weights in draws]))


if __name__ == "__main__":
    main(*sys.argv[1:4])
