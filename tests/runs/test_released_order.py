"""Order and numbers of released rows come from the cryptographic source, not from whose rows they are."""

from __future__ import annotations

import secrets
from collections import Counter
from types import SimpleNamespace

import numpy as np
import polars as pl

from shoal.runs.stages.release_stage import released_table
from shoal.sources.meters.answered import ForecastAnswers

CROWDS = {"a": 7, "b": 7, "c": 7, "x": 9, "y": 9}


def table(households: list[str]) -> pl.DataFrame:
    stamps = pl.Series([0, 1])
    forecasts = SimpleNamespace(households=tuple(households), timestamps=stamps)
    shard = ForecastAnswers(forecasts, "point", "kw")  # type: ignore[arg-type]
    return released_table(shard, CROWDS, np.zeros((len(households), 2)), secrets.token_bytes(32))


def test_every_order_of_a_crowd_is_as_likely() -> None:
    names = ["a", "b", "c", "x", "y"]
    seen: Counter[tuple[str, ...]] = Counter()
    for _ in range(600):
        rows = table(names).filter(pl.col("step") == 1)
        first = rows.filter(pl.col("household").is_in(["a", "b", "c"]))
        assert first["row"].to_list() == [1, 2, 3]
        assert first["crowd"].n_unique() == 1
        seen[tuple(first["household"])] += 1
    assert len(seen) == 6
    # 600 draws of six orders: 100 each, give or take 5.5 standard deviations.
    assert max(abs(count - 100) for count in seen.values()) < 5.5 * (600 * 5 / 36) ** 0.5


def test_who_is_left_out_does_not_move_the_numbers_of_others() -> None:
    names = ["a", "b", "c", "x", "y"]
    for absent in "abc":
        here = [name for name in names if name != absent]
        rows = table(here).filter(pl.col("step") == 1).sort("crowd", "row")
        assert rows["row"].to_list() == [1, 2, 1, 2]  # the same whoever of the crowd is absent
