"""ARMA models that the tests of meters start from."""

from __future__ import annotations

import numpy as np

from shoal.meters.arma import ArmaModels


def from_partials(partials: np.ndarray) -> np.ndarray:
    """The coefficients c of 1 − Σ c_j B^j with these partial autocorrelations."""
    c = np.zeros(0)
    for r in partials:
        c = np.append(c - r * c[::-1], r)
    return c


def stable_model(order: tuple[int, int], seed: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """(ar, ma), stationary and invertible: the partial autocorrelations are tanh of normals of this spread."""
    partials = np.tanh(np.random.default_rng(seed).normal(size=sum(order)) * spread)
    return from_partials(partials[: order[0]]), -from_partials(partials[order[0] :])


def stable_models(order: tuple[int, int], seeds: range, var: float | np.ndarray, spread: float = 0.5) -> ArmaModels:
    rows = [stable_model(order, seed, spread) for seed in seeds]
    return ArmaModels.from_coefficients(np.array([r[0] for r in rows]), np.array([r[1] for r in rows]), var)
