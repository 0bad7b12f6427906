"""The audit before a release: what it finds, how surely, and that it passes what keeps its promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import shoal
from shoal.readings.account import DRAWS, MembershipAudit, NoisePlan, ReadingsAccount, audit_membership
from shoal.readings.class_tables import noisy_table_plan, sum_of_label_vectors
from shoal.readings.crowds import home_vectors

MEAN = shoal.noisy_crowds_plan(customers=486, epsilon=1.0, typical_kw=1.5)
CELLS = shoal.noisy_crowds_plan(customers=10_000, epsilon=1.0, typical_kw=1.5)
TABLE = noisy_table_plan(486, 1.0, bounds={"income": (0, 100)})
SPIKE = 100 * np.eye(12)[:1] + 0.1
VECTORS: dict[str, tuple[NoisePlan, np.ndarray]] = {
    "one mean": (MEAN, home_vectors(SPIKE, MEAN)[0]),
    "cells": (CELLS, home_vectors(SPIKE, CELLS)[0]),
    "a flat home": (MEAN, home_vectors(np.full((1, 12), 0.5), MEAN)[0]),
    "a class table": (TABLE, sum_of_label_vectors({"income": [100.0]}, TABLE)),
    "one entry": (TABLE, sum_of_label_vectors({"income": [50.0]}, TABLE)),
    "nothing": (MEAN, np.zeros(MEAN.entries)),
}


def audited(name: str, drawn: float, monkeypatch: pytest.MonkeyPatch) -> MembershipAudit:
    """The audit of a sampler whose noise has ``drawn`` times the deviation that the account states."""
    plan, vector = VECTORS[name]
    right = ReadingsAccount.release
    monkeypatch.setattr(
        ReadingsAccount,
        "release",
        lambda account, sums: right(replace(account, variance=drawn**2 * account.variance), sums),
    )
    return audit_membership(plan.account, vector, np.round(37.0 * vector), plan.epsilon)


@pytest.mark.parametrize("name", VECTORS)
def test_a_fifth_too_little_noise_is_caught_and_the_right_noise_is_not(name, monkeypatch):
    right = audited(name, 1.0, monkeypatch)
    assert right.holds
    assert right.power >= 0.9999
    assert right.draws >= DRAWS
    monkeypatch.undo()
    assert not audited(name, 0.8, monkeypatch).holds


def test_the_membership_test_by_itself_is_coarse_and_finds_what_is_gross(monkeypatch):
    fifth = audited("one mean", 0.8, monkeypatch)
    assert fifth.advantage_lower <= fifth.advantage_promised, "found by the size of the noise, not by this test"
    monkeypatch.undo()
    gross = audited("one mean", 0.1, monkeypatch)
    assert gross.advantage_lower > gross.advantage_promised


def test_a_vector_that_is_longer_than_stated_is_caught_exactly():
    plan, vector = VECTORS["one mean"]
    room = plan.account.zero_out_square - int((vector**2).sum())
    assert room >= 0
    longer = vector.copy()
    longer[plan.part_slices["load"].start] += room // int(2 * vector[plan.part_slices["load"].start]) + 1
    audit = audit_membership(plan.account, longer, np.zeros(plan.entries), plan.epsilon)
    assert not audit.within
    assert not audit.holds
