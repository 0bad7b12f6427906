"""The order of test modules: long ones first, so that several workers (``pytest -n 2``) end at about the same time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Ray puts its workers behind everything else on a machine, here behind the other half of the tests.
os.environ.setdefault("RAY_worker_niceness", "0")

#: The first worker begins with whole runs, which compile what most tests need; the second with what needs no kernels.
FIRST = (
    "runs/test_same_everywhere.py",
    "accounting/test_oracle.py",
    "workers/test_executors_ray.py",
    "workers/test_executors.py",
    "workers/test_executors_unreachable.py",
    "test_compiled.py",
    "test_documents.py",
    "workers/test_cluster_nodes.py",
    "reproduction/test_meters_study.py",
    "designs/test_reuse.py",
)
TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {TESTS / name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(FIRST)))
