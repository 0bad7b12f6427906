"""What exactly is asked, what of it is random, and what the attacker is assumed to know.

A privacy figure is only as good as the law it is computed from. For a forecast from a household's own history x°
three laws are sound, each for what it states (theory notes, section 7), and the one in the paper is not:

| query | released, through the mechanism | law of the answer given the household |
| --- | --- | --- |
| ``point`` | the point forecast E[x^f | x°] | a constant |
| ``trajectory`` | one draw from the predictive law | N(E[x^f | x°], Σ^f − Σ^{fo}(Σ^o)⁻¹Σ^{of}) |
| ``marginal`` | the point forecast | N(μ^f, Σ^{fo}(Σ^o)⁻¹Σ^{of}), the history being random too |
| ``as_in_paper`` | the point forecast | accounted as ``trajectory``: does not match the release |

Everything is in log power, season included; exp is a bijection and changes no privacy loss.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from shoal.sources.meters.forecast import Forecasts

#: Negative eigenvalues of a correlation matrix below this share of the largest are taken for rounding.
ROUNDING = 1e-7


class AccountingWarning(UserWarning):
    """The law that is accounted for is not the law of what is released."""


def point(law: Forecasts) -> GaussianClasses:
    """The point forecast, released through the mechanism.

    Released: q = E[x^f | x°] + season, then the mechanism. Random: nothing but the mechanism's own noise; given the
    household, q is a constant, Σ_X = 0. Attacker: may know everything else, every household's whole history and
    model included; no assumption about how consumption is distributed is needed. The safe default.
    """
    return GaussianClasses.deterministic(law.log_mean, law.households)


def trajectory(law: Forecasts) -> GaussianClasses:
    """One draw from the predictive law, released through the mechanism.

    Released: q ~ N(E[x^f | x°] + season, error_cov), drawn by the releaser, then the mechanism. Random: that draw and
    the mechanism's noise; both are the releaser's own, so the law is true by construction, whether or not the ARMA
    model fits. Attacker: may know every history and model, but not the draw. The released figures are a possible
    future, not the best guess: their error against the truth includes the spread of the draw.
    """
    return GaussianClasses(law.log_mean, semidefinite(law.error_cov), law.households)


def marginal(law: Forecasts) -> GaussianClasses:
    """The point forecast, released through the mechanism, to someone who does not know the history.

    Released: q = E[x^f | x°] + season, then the mechanism. Random: the history x° ~ N(0, Σ^o) around the season, so
    q ~ N(season, Σ^{fo}(Σ^o)⁻¹Σ^{of}), and the mechanism's noise. Attacker: knows every household's model and
    season, but **nothing of its recent readings**; a neighbor who watched the lights has already broken the
    assumption. It also needs the ARMA model to be true: look at the model checks before relying on it.
    """
    return GaussianClasses(law.season_part, semidefinite(law.mean_cov), law.households)


def as_in_paper(law: Forecasts) -> GaussianClasses:
    """The paper's accounting: the law of ``trajectory`` for the release of ``point``.

    Released: E[x^f | x°] + season plus the mechanism's noise. Accounted as random: the prediction error, which is
    not in the release. Attacker: none for whom the figure holds; someone who knows x° sees only the mechanism's
    noise. For reproducing the paper's figures; warns with :class:`AccountingWarning` each time.
    """
    warnings.warn(
        "query='as_in_paper' accounts for the prediction error as if it were released; what is released is the point "
        "forecast, which leaks more. Use 'point', 'trajectory' or 'marginal' for a guarantee.",
        AccountingWarning,
        stacklevel=3,
    )
    return trajectory(law)


def semidefinite(covs: FloatArray) -> FloatArray:
    """Covariances without the negative eigenvalues that rounding leaves; anything larger is left to be refused.

    The conditional mean of an ARMA(p, q) process moves in max(p, q) dimensions, so over a longer horizon its
    covariance is singular and rounding falls on either side of zero. Eigenvalues are those of the correlation
    matrix.
    """
    covs = 0.5 * (covs + np.swapaxes(covs, 1, 2))
    std = np.sqrt(np.maximum(np.diagonal(covs, axis1=1, axis2=2), 0))
    scale = np.where(std > 0, std, 1.0)
    outer = scale[:, :, None] * scale[:, None, :]
    values, vectors = eigh(covs / outer)
    rounding = (values[:, 0] < 0) & (values[:, 0] > -ROUNDING * values[:, -1])
    root = vectors[rounding] * np.sqrt(np.maximum(values[rounding], 0))[:, None, :]
    covs[rounding] = root @ np.swapaxes(root, 1, 2) * outer[rounding]
    return np.asarray(covs, dtype=np.float64)


QUERIES: dict[str, Callable[[Forecasts], GaussianClasses]] = {
    "point": point,
    "trajectory": trajectory,
    "marginal": marginal,
    "as_in_paper": as_in_paper,
}


def classes(law: Forecasts, query: str = "point") -> GaussianClasses:
    """The class laws of a query model."""
    return QUERIES[validation.choice(tuple(QUERIES), query=query)](law)


def answer(law: Forecasts, query: str = "point", normals: FloatArray | None = None) -> FloatArray:
    """(n, h) the answers q that go into the mechanism; ``trajectory`` turns standard ``normals`` (n, h) into draws.

    The draw is part of the secret: for a real release its normals come from the same cryptographic source as the
    mechanism's noise, and a repeated question gets the stored draw again.
    """
    query = validation.choice(tuple(QUERIES), query=query)
    if query != "trajectory":
        return law.log_mean
    z = None if normals is None else validation.array(ndim=2, normals=normals)
    if z is None or z.shape != law.log_mean.shape:
        raise InputError(
            f"normals must hold standard normal draws of shape {law.log_mean.shape} for query='trajectory'"
        )
    values, vectors = eigh(law.error_cov)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    return np.asarray(law.log_mean + np.einsum("nij,nj->ni", root, z), dtype=np.float64)
