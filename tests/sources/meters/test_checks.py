"""Model checks: the same statistics as SciPy and statsmodels, the right size under a true model, power otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from arma_cases import given_models
from scipy import signal, stats

from shoal.errors import InputError
from shoal.sources.meters.arma import predict
from shoal.sources.meters.arma.predict import Checks, check_models

AR, MA = np.array([0.7, -0.2]), np.array([0.4])


def series(n: int, length: int, seed: int, shocks: np.ndarray | None = None) -> np.ndarray:
    e = np.random.default_rng(seed).standard_normal((n, length + 300)) if shocks is None else shocks
    x = signal.lfilter(np.r_[1, MA], np.r_[1, -AR], e, axis=1)
    return np.asarray(x[:, -length:])


def innovations(x: np.ndarray, ar: np.ndarray = AR, ma: np.ndarray = MA) -> np.ndarray:
    models = given_models(np.tile(ar, (len(x), 1)), np.tile(ma, (len(x), 1)), 1.0)
    return predict(models, x, 1).innovations


def checked(x: np.ndarray, ar: np.ndarray = AR, ma: np.ndarray = MA, **options: float) -> Checks:
    return check_models(innovations(x, ar, ma), len(ar) + len(ma), **options)


def test_innovations_are_the_shocks() -> None:
    e = np.random.default_rng(0).standard_normal((3, 800))
    x = series(3, 500, 0, e)
    np.testing.assert_allclose(innovations(x)[:, 60:], e[:, -440:], atol=1e-12)


def test_gaps_leave_only_sound_innovations() -> None:
    e = np.random.default_rng(1).standard_normal((1, 800))
    x = series(1, 500, 0, e)
    x[0, 200:205] = np.nan
    z = innovations(x)
    assert np.isnan(z[0, 200:205]).all()
    # The moving-average part forgets the gap at the rate 0.4 per step.
    np.testing.assert_allclose(z[0, 240:], e[0, -260:], atol=1e-12)
    assert np.isfinite(checked(x).white_p).all()


def test_statistics_equal_scipy_and_statsmodels() -> None:
    diagnostic = pytest.importorskip("statsmodels.stats.diagnostic")
    x = series(4, 900, 2)
    checks = checked(x, lags=20)
    for i, e in enumerate(innovations(x)):
        seen = e[np.isfinite(e)]
        assert checks.gaussian_p[i] == pytest.approx(stats.jarque_bera(seen).pvalue, rel=1e-9)
        box = diagnostic.acorr_ljungbox(seen - seen.mean(), lags=[20], model_df=3)
        assert checks.white_p[i] == pytest.approx(float(box["lb_pvalue"].iloc[0]), rel=1e-9)
        first, second = e[:450], e[450:]
        first = first[np.isfinite(first)]
        assert checks.level_p[i] == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue, rel=1e-9)
        assert checks.spread_p[i] == pytest.approx(stats.levene(first, second, center="median").pvalue, rel=1e-9)


def test_true_models_hold() -> None:
    n = 400
    # The coefficients are the true ones and none was fitted: the test of whiteness has as many degrees as lags.
    checks = check_models(innovations(series(n, 700, 3)), 0, level=0.05)
    # Binomial(400, 0.05) has standard deviation 4.4: 20 expected, 40 is 4.5 of them away.
    for holds in checks.holds.values():
        assert 3 <= (~holds).sum() <= 40
    assert checks.verdict.count("holds") > 0.75 * n


def test_false_models_do_not() -> None:
    rng = np.random.default_rng(4)
    n, length = 20, 1400
    heavy = checked(series(n, length, 0, rng.standard_t(4, (n, length + 300))))
    assert not heavy.holds["gaussian"].any()
    growing = rng.standard_normal((n, length + 300)) * np.linspace(0.6, 1.6, length + 300)
    assert not checked(series(n, length, 0, growing)).holds["stationary"].any()
    wrong = checked(series(n, length, 5), np.zeros(2), np.zeros(1))
    assert not wrong.holds["white"].any()
    assert all("not white" in verdict for verdict in wrong.verdict)


def test_refusals() -> None:
    with pytest.raises(InputError, match="at least 96 readings"):
        checked(np.zeros((1, 50)))
    with pytest.raises(InputError, match="level"):
        checked(np.zeros((1, 500)), level=0)
