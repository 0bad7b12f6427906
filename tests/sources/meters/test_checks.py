"""Model checks: the same statistics as SciPy and statsmodels, the right size under a true model, power otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal, stats

from shoal.errors import InputError
from shoal.sources.meters.checks import check_models, innovations

AR, MA = np.array([0.7, -0.2]), np.array([0.4])


def series(n: int, length: int, seed: int, shocks: np.ndarray | None = None) -> np.ndarray:
    e = np.random.default_rng(seed).standard_normal((n, length + 300)) if shocks is None else shocks
    x = signal.lfilter(np.r_[1, MA], np.r_[1, -AR], e, axis=1)
    return np.asarray(x[:, -length:])


def rows(n: int) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    return np.tile(AR, (n, 1)), np.tile(MA, (n, 1)), tuple(f"h{i}" for i in range(n))


def test_innovations_are_the_shocks() -> None:
    e = np.random.default_rng(0).standard_normal((3, 800))
    x = series(3, 500, 0, e)
    found = innovations(x, *rows(3)[:2])
    assert np.isnan(found[:, :8]).all()
    np.testing.assert_allclose(found[:, 60:], e[:, -440:], atol=1e-12)


def test_gaps_leave_only_sound_innovations() -> None:
    e = np.random.default_rng(1).standard_normal((1, 800))
    x = series(1, 500, 0, e)
    x[0, 200:205] = np.nan
    found = innovations(x, *rows(1)[:2])
    assert np.isnan(found[0, 200:207]).all()
    # The moving-average part forgets the gap at the rate 0.4 per step.
    np.testing.assert_allclose(found[0, 240:], e[0, -260:], atol=1e-12)
    checks = check_models(x, *rows(1))
    assert np.isfinite(checks.white_p).all()


def test_statistics_equal_scipy_and_statsmodels() -> None:
    diagnostic = pytest.importorskip("statsmodels.stats.diagnostic")
    x = series(4, 900, 2)
    checks = check_models(x, *rows(4), lags=20)
    for i, e in enumerate(innovations(x, *rows(4)[:2])):
        seen = e[np.isfinite(e)]
        assert checks.gaussian_p[i] == pytest.approx(stats.jarque_bera(seen).pvalue, rel=1e-9)
        box = diagnostic.acorr_ljungbox(seen - seen.mean(), lags=[20], model_df=3)
        assert checks.white_p[i] == pytest.approx(float(box["lb_pvalue"].iloc[0]), rel=1e-9)
        first, second = e[:450], e[450:]
        first = first[np.isfinite(first)]
        assert checks.level_p[i] == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue, rel=1e-9)
        assert checks.spread_p[i] == pytest.approx(stats.levene(first, second, center="median").pvalue, rel=1e-9)
        assert checks.spread_ratio[i] == pytest.approx(second.std(ddof=1) / first.std(ddof=1), rel=1e-9)


def test_true_models_hold() -> None:
    n = 400
    checks = check_models(series(n, 700, 3), *rows(n), level=0.05)
    # Binomial(400, 0.05) has standard deviation 4.4: 20 expected, 40 is 4.5 of them away.
    for holds in (checks.gaussian, checks.white, checks.stationary):
        assert 3 <= (~holds).sum() <= 40
    assert checks.verdict.count("holds") > 0.75 * n


def test_false_models_do_not() -> None:
    rng = np.random.default_rng(4)
    n, length = 20, 1400
    heavy = check_models(series(n, length, 0, rng.standard_t(4, (n, length + 300))), *rows(n))
    assert not heavy.gaussian.any()
    assert (heavy.excess_kurtosis > 0.3).all()
    growing = rng.standard_normal((n, length + 300)) * np.linspace(0.6, 1.6, length + 300)
    assert not check_models(series(n, length, 0, growing), *rows(n)).stationary.any()
    wrong = check_models(series(n, length, 5), np.zeros((n, 2)), np.zeros((n, 1)), rows(n)[2])
    assert not wrong.white.any()
    assert all("not white" in verdict for verdict in wrong.verdict)
    assert wrong.table().columns[:2] == ["household", "verdict"]


def test_refusals() -> None:
    with pytest.raises(InputError, match="at least 96 readings"):
        check_models(np.zeros((1, 50)), *rows(1))
    with pytest.raises(InputError, match="level"):
        check_models(np.zeros((1, 500)), *rows(1), level=0)
