"""What a notebook shows of a result: figures on the safe side, names escaped, no readings."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shoal
from shoal.plaintext import SHOWN, html_table

NASTY = "<b>ada</b>"


@pytest.fixture(scope="module")
def mechanism() -> shoal.Mechanism:
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0], [2.5]], labels=[NASTY, "ben", "cleo"])
    return shoal.design(classes, shoal.NeighborGraph.complete(classes.labels), method="white", epsilon=1.0, rho=2.0)


def test_tables_escape_and_count_what_they_leave_out() -> None:
    html = html_table("a < b", ("x",), [[NASTY]] + [[i] for i in range(SHOWN + 4)])
    assert NASTY not in html
    assert "&lt;b&gt;ada&lt;/b&gt;" in html
    assert "… and 5 more" in html
    assert html.count("<tr>") == SHOWN + 1


def test_curve(mechanism: shoal.Mechanism) -> None:
    curve = mechanism.curve([0.5, 1.0, 2.0])
    html = curve._repr_html_()
    shown = [float(x) for x in re.findall(r"<td[^>]*>([\d.e-]+)</td>", html)]
    assert shown[0::2] == [0.5, 1.0, 2.0]
    assert (np.array(shown[1::2]) >= curve.delta_upper).all()
    assert NASTY not in html
    assert "δ, at most" in mechanism.curve(1.0)._repr_html_()


def test_mechanism(mechanism: shoal.Mechanism) -> None:
    html = mechanism._repr_html_()
    assert "Mechanism (white)" in html
    assert NASTY not in html
    assert f"{mechanism.certificate}".split(" (")[0] in html


def test_frontier(mechanism: shoal.Mechanism) -> None:
    frontier = shoal.frontier(mechanism.classes, mechanism.graph, method=["white", "none"], rho=[0.5, 2.0])
    html = frontier._repr_html_()
    shown = [float(x) for x in re.findall(r"<td[^>]*>([\d.e-]+)</td>", html)]
    assert shown[1] >= frontier.delta_upper["white"][0]
    assert shown[4] >= frontier.delta_upper["white"][1]


def test_forecasts_show_sizes() -> None:
    readings = shoal.simulate_meters(3, 5, seed=2)
    forecasts = shoal.forecast(readings, order=(1, 0), train_days=4, season="day", horizon=4)
    assert forecasts.last_day_kw is not None
    assert forecasts.last_day_kw.shape == (3, 96)
    last = readings.filter(readings["household"] == "H0001")["kw"].to_numpy()[-96:]
    assert forecasts.last_day_kw[1] == pytest.approx(last)


def test_audit_is_shown_as_its_text(mechanism: shoal.Mechanism) -> None:
    found = shoal.audit(mechanism, n_samples=100)
    html = found._repr_html_()
    assert html.startswith("<pre>audit: ")
    assert NASTY not in html


def test_pandas_frames_give_what_polars_frames_give() -> None:
    pandas = pytest.importorskip("pandas")
    readings = shoal.simulate_meters(3, 5, seed=2)
    options = {"order": (1, 0), "train_days": 4, "season": "day", "horizon": 4}
    frame = pandas.DataFrame(readings.to_dict(as_series=False))
    same, other = shoal.forecast(readings, **options), shoal.forecast(frame, **options)
    assert (same.log_mean == other.log_mean).all()
    mixed = pandas.DataFrame({"household": ["a", "secret"], "timestamp": [1, "secret"], "kw": [1.0, 2.0]})
    with pytest.raises(shoal.InputError, match="a column mixes") as refused:
        shoal.forecast(mixed)
    assert "secret" not in str(refused.value)
