"""Noisy class tables: sensitivities in exact integers, public bytes from the noisy vector alone, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import shoal
from shoal.readings.class_tables import TablePlan, noisy_table_plan, public_class_table, sum_of_label_vectors

BOUNDS = {"age": (0.0, 100.0), "income": (-1e3, 1e6)}
CELLS = {"age": [30.0, 60.0], "region": [0.5]}


def rows(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    wide = rng.choice([1.0, 1e3, 1e300], n)
    return {
        "age": rng.uniform(-50, 150, n),
        "income": rng.choice([-1.0, 1.0], n) * wide * rng.random(n) * 1e3,
        "region": rng.integers(0, 2, n).astype(float),
    }


def square(vector: np.ndarray) -> int:
    return sum(int(value) ** 2 for value in vector)


def test_neighbors_never_lie_further_apart_than_stated():
    rng = np.random.default_rng(0)
    plan = noisy_table_plan(60, 1.0, bounds=BOUNDS, cells=CELLS)
    for _ in range(300):
        table, other = rows(rng, 40), rows(rng, 40)
        whole = sum_of_label_vectors(table, plan)
        without = sum_of_label_vectors({name: column[1:] for name, column in table.items()}, plan)
        swapped = {name: np.concatenate([other[name][:1], column[1:]]) for name, column in table.items()}
        assert square(whole - without) <= plan.account.zero_out_square
        assert square(whole - sum_of_label_vectors(swapped, plan)) <= plan.account.replace_square


def test_the_replaced_distance_is_reached():
    plan = noisy_table_plan(60, 1.0, bounds={"a": (0.0, 1.0), "b": (0.0, 1.0)})
    gap = sum_of_label_vectors({"a": [0.0], "b": [0.0]}, plan) - sum_of_label_vectors({"a": [1.0], "b": [1.0]}, plan)
    assert square(gap) == plan.account.replace_square


def test_means_and_counts_are_near_the_truth_with_many_rows():
    rng = np.random.default_rng(1)
    table = rows(rng, 20_000) | {"age": rng.uniform(0, 100, 20_000), "income": rng.uniform(0, 9e5, 20_000)}
    plan = noisy_table_plan(20_000, 1.0, bounds=BOUNDS, cells=CELLS)
    counts, means = public_class_table(plan.account.release(sum_of_label_vectors(table, plan)), plan)
    assert counts.shape == (3, 2)
    assert abs(counts.sum() - 20_000) < 300
    assert np.abs(means["age"][1] - 45).max() < 3
    assert plan.delta(1.0) <= 1 / 200_000 < plan.delta(1.0, neighbors="replace")


def test_public_tables_follow_from_the_noisy_vector_and_the_plans_text():
    plan = noisy_table_plan(100, 1.0, bounds=BOUNDS, cells=CELLS)
    noisy = plan.account.release(sum_of_label_vectors(rows(np.random.default_rng(2), 90), plan))
    assert TablePlan.from_json(plan.to_json()) == plan
    (counts, means), (same, others) = (
        public_class_table(noisy, one) for one in (plan, TablePlan.from_json(plan.to_json()))
    )
    assert counts.tobytes() == same.tobytes()
    assert all(means[name].tobytes() == others[name].tobytes() for name in means)


def test_refusals():
    plan = noisy_table_plan(5, 1.0, bounds={"a": (0.0, 1.0)})
    with pytest.raises(shoal.InputError, match="bounds"):
        noisy_table_plan(5, 1.0, bounds={})
    with pytest.raises(shoal.InputError, match="bounds"):
        noisy_table_plan(5, 1.0, bounds={"a": (1.0, 1.0)})
    with pytest.raises(shoal.InputError, match="edges"):
        noisy_table_plan(5, 1.0, bounds={"a": (0.0, 1.0)}, cells={"a": [2.0, 1.0]})
    with pytest.raises(shoal.InputError, match="more labels"):
        sum_of_label_vectors({"a": np.zeros(6)}, plan)
    with pytest.raises(shoal.InputError, match="does not have"):
        sum_of_label_vectors({"b": np.zeros(2)}, plan)
    with pytest.raises(shoal.InputError, match="noise"):
        TablePlan.from_json(plan.to_json().replace(repr(plan.variance), repr(plan.variance / 2)))
