"""Standing crowds from release to release: they grow, merge and never split."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import InputError
from shoal.runs.groups import places_given
from shoal.runs.members import Roster


def near(levels: dict[str, float]) -> tuple[list[str], np.ndarray]:
    """Names and habits that are one number."""
    return list(levels), np.array([[value] for value in levels.values()])


LOW = {f"a{i}": 0.0 + 0.01 * i for i in range(4)}
HIGH = {f"b{i}": 9.0 + 0.01 * i for i in range(3)}
START = Roster({**dict.fromkeys(LOW, 0), **dict.fromkeys(HIGH, 1)})


def after(
    roster: Roster, levels: dict[str, float], present: set[str] | None = None, cells: dict[str, int] | None = None
) -> Roster:
    names, points = near(levels)
    here = set(names) if present is None else present
    return roster.renewed(names, points, here, cells or dict.fromkeys(here, 0), 3)


def test_joiners_enter_the_nearest_crowd_with_room() -> None:
    found = after(START, LOW | HIGH | {"n": 0.2, "o": 0.3, "p": 8.0})
    assert found.joined == ("n", "p", "o")
    # Crowds of 3 hold at most 5: of the two that are near the low ones the nearer enters, and the other goes up.
    assert [found.crowds[name] for name in "nop"] == [0, 1, 1]
    assert found.merged == 0
    assert not found.thin


def test_where_no_crowd_has_room_joiners_wait_until_they_are_enough() -> None:
    full = Roster(dict.fromkeys(["a0", "a1", "a2", "a3", "a4"], 0))
    levels = {f"a{i}": 0.1 * i for i in range(5)}
    two = after(full, levels | {"n": 1.0, "o": 2.0})
    assert two.joined == ()
    three = after(two, levels | {"n": 1.0, "o": 2.0, "p": 3.0})
    assert {three.crowds[name] for name in "nop"} == {1}


def test_boundaries_are_not_crossed() -> None:
    cells = {**dict.fromkeys(LOW, 0), **dict.fromkeys(HIGH, 1), "n": 1, "o": 2}
    found = after(START, LOW | HIGH | {"n": 0.0, "o": 0.0}, cells=cells)
    assert found.crowds["n"] == 1
    assert "o" not in found.crowds


def test_a_thin_crowd_takes_joiners_first_and_merges_when_it_stays_thin() -> None:
    silent = set(LOW) | {"b0"}
    once = after(START, LOW | HIGH, silent)
    assert once.crowds == START.crowds
    assert once.thin == {1: 1}
    helped = after(once, LOW | HIGH | {"n": 0.0, "o": 0.1}, silent | {"n", "o"})
    assert [helped.crowds[name] for name in "no"] == [1, 1]  # though the other crowd is nearer
    assert not helped.thin
    full = after(once, LOW | HIGH | {"n": 0.0}, silent | {"n"})
    assert full.crowds["n"] == 0
    assert full.merged == 0  # together six would be present, and crowds of three have five at most
    assert full.thin == {1: 2}
    twice = after(once, LOW | HIGH, silent)
    assert twice.merged == 1
    assert set(twice.crowds.values()) == {0}
    assert set(twice.crowds) == set(START.crowds)  # leavers stay on the list


def test_a_crowd_that_is_back_is_not_merged() -> None:
    once = after(START, LOW | HIGH, set(LOW) | {"b0"})
    back = after(once, LOW | HIGH)
    assert not back.thin
    assert after(back, LOW | HIGH, set(LOW) | {"b0"}).thin == {1: 1}


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_neighbors_stay_neighbors_and_crowds_keep_their_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    roster, size = Roster({}), 3
    population: dict[str, float] = {}
    cells: dict[str, int] = {}
    before: dict[str, int] = {}
    for day in range(6):
        for i in range(int(rng.integers(0, 6))):
            name = f"h{day}{i}"
            population[name] = float(rng.normal())
            cells[name] = int(rng.integers(2))
        gone = [name for name in population if rng.random() < 0.1]
        for name in gone:
            del population[name]
        present = {name for name in population if rng.random() < 0.85}
        names, points = near(population)
        roster = roster.renewed(names, points.reshape(len(names), 1), present, cells, size)
        assert roster.crowds.keys() >= before.keys()
        for one in before:
            for other in before:
                if before[one] == before[other]:
                    assert roster.crowds[one] == roster.crowds[other]
        members = Counter(roster.crowds[name] for name in roster.joined)
        living = Counter(roster.crowds[name] for name in names if name in roster.crowds)
        assert roster.merged or all(living[crowd] <= 2 * size - 1 for crowd in members)
        for crowd in set(roster.crowds.values()):
            assert len({cells[name] for name in roster.crowds if roster.crowds[name] == crowd}) == 1
        there = Counter(roster.crowds[name] for name in names if name in present and name in roster.crowds)
        assert set(roster.thin) == {crowd for crowd in set(roster.crowds.values()) if there[crowd] < size}
        before = dict(roster.crowds)


def profiles(path: str, levels: dict[str, float]) -> str:
    values = np.array([[value] * 2 for value in levels.values()], dtype=np.float32)
    frame = pl.DataFrame({"household": list(levels), "profile": pl.Series(values, dtype=pl.Array(pl.Float32, 2))})
    frame.write_parquet(path)
    return path


def placed(folder: str, values: dict[str, int] | None) -> dict[str, tuple[int, int]]:
    known = {"household": ["a", "b", "c", "d"], "group": [0, 0, 1, 1], "shard": [0, 0, 1, 1]}
    pl.DataFrame(known).write_parquet(f"{folder}/known.parquet")
    paths = (
        profiles(f"{folder}/0.parquet", {"a": 0.0, "b": 0.2, "n": 5.0}),
        profiles(f"{folder}/1.parquet", {"c": 5.0, "o": 0.1, "p": 0.0}),
    )
    numbers = None
    if values is not None:
        numbers = f"{folder}/values.parquet"
        pl.DataFrame({"household": list(values), "cluster": list(values.values())}).write_parquet(numbers)
    told = places_given(paths, f"{folder}/known.parquet", numbers, f"{folder}/out.parquet")
    rows = {name: (group, shard) for name, group, shard in pl.read_parquet(f"{folder}/out.parquet").iter_rows()}
    assert told.households == len(rows) == 7
    assert {name: rows[name] for name in "abcd"} == {"a": (0, 0), "b": (0, 0), "c": (1, 1), "d": (1, 1)}
    return rows


def test_newcomers_go_to_the_shard_of_the_nearest_cell(tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = placed(str(tmp_path_factory.mktemp("free")), None)
    assert [rows[name] for name in "nop"] == [(1, 1), (0, 0), (0, 0)]
    values = {"a": 7, "b": 7, "c": 8, "d": 8, "n": 7, "o": 9, "p": 9}
    rows = placed(str(tmp_path_factory.mktemp("bound")), values)
    # n shares its boundary with the cell that is farther; those of a new one have a cell of their own
    assert [rows[name][0] for name in "nop"] == [0, 2, 2]
    assert rows["o"][1] == rows["p"][1] == 1
    with pytest.raises(InputError, match="table has no row"):
        placed(str(tmp_path_factory.mktemp("lacking")), {"a": 7, "b": 7, "c": 8, "d": 8})
