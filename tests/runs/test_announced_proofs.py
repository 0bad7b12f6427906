"""A run says how long proofs can take before it begins them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shoal.product.runs.config import Config
from shoal.product.runs.crowd_blocks import BlockFacts
from shoal.product.runs.design_stage import announce_proofs


@pytest.mark.parametrize(
    ("query", "horizon", "said"),
    [("trajectory", 96, "proofs: up to 6 min"), ("trajectory", 12, ""), ("point", 96, "")],
)
def test_minutes_are_announced_seconds_are_not(query, horizon, said):
    config = Config(query=query, horizon=horizon, method="transport", epsilon=1.0, delta=1e-5)
    block = SimpleNamespace(facts_as=lambda kind: BlockFacts(labels=100, crowds=8))
    words = announce_proofs(config, [block])
    assert said in words
    assert bool(words) == bool(said)
