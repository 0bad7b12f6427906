"""One home's cells decide about that home alone: two worlds, and all other homes' bits (theory, section 14)."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_worlds import LAYOUTS, OTHERS, World, readings_of

#: Pairs of the quick test, worlds without the odd home that they share, and pairs of the campaign.
PAIRS, SHAPES, MANY = 300, 30, 10_000


def compare(seeds: range, shapes: int, folder: Path) -> None:
    """Pairs of worlds; in one of ten by the files and shards of a run, in one of fifty up to the forecasts."""
    many, without = len(seeds) > PAIRS, {}
    for seed in seeds:
        kind = "memory" if not many or seed % 10 else "shards" if seed % 50 else "curves"
        shape, days = 10_000 + seed % shapes, 2 if kind == "curves" else 1
        world = World(seed, shape, days)
        if (shape, kind) not in without:
            without[shape, kind] = readings_of(world.files(odd=False), World(shape, shape, days), folder, kind)
            # A home with too many gaps for a model has no forecast, in either world.
            assert len(without[shape, kind]) >= (1 if kind == "curves" else len(OTHERS))
        assert readings_of(world.files(odd=True), world, folder, kind) == without[shape, kind], (seed, world.layout)
    assert {World(seed, shape).layout for shape, _ in without} == set(LAYOUTS)


def test_one_home_decides_about_no_other(tmp_path: Path) -> None:
    """300 pairs: any layout, encoding and zone, and a home that sends whatever a cell can hold."""
    compare(range(PAIRS), SHAPES, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_one_home_decides_about_no_other_in_ten_thousand_pairs(tmp_path: Path, part: int) -> None:
    """The same in earnest."""
    compare(range(part * MANY // 20, (part + 1) * MANY // 20), 95 + part, tmp_path)
