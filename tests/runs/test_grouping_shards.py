"""Groups are bounded, compact, deterministic and complete; shards of whole groups hold what the first shards held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.runs import clusters, groups
from shoal.runs.clusters import assign_by_center, assign_by_value, fit_centers, write_values
from shoal.runs.exchange import Sent, gather, scatter
from shoal.runs.groups import Grouping, form_groups, pack
from shoal.runs.jobs import out_path
from shoal.runs.partition import make_simulated_shard
from shoal.runs.profiles import make_profiles, mean_days, read_profiles
from shoal.runs.regroup import Received, receive, regrouped, send
from shoal.runs.shards import read_shard, readings_of, shard_of, write_frame, write_shard
from shoal.runs.sources import SimulatedMeters
from shoal.runs.store import Part, receipted
from shoal.sources.meters.quality import repair
from shoal.sources.meters.season import fit_season, phases
from shoal.sources.meters.simulate import simulate_meters
from shoal.workers.serial import Serial

SHARDS, EACH = 4, 30


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """120 simulated households, two days each, in four shards."""
    folder = tmp_path_factory.mktemp("shards")
    paths = [folder / f"{i}.parquet" for i in range(SHARDS)]
    for i, path in enumerate(paths):
        make_simulated_shard(SimulatedMeters(SHARDS * EACH, 2, 60), i * EACH, (i + 1) * EACH, str(path))
    return paths


@pytest.fixture(scope="module")
def profiles(shards: list[Path]) -> list[Path]:
    paths = [shard.with_name(f"profile-{shard.name}") for shard in shards]
    for shard, path in zip(shards, paths, strict=True):
        assert make_profiles(str(shard), str(path)).households == EACH
    return paths


def sort_by_center(profiles: list[Path], folder: Path, k: int, seed: int = 0) -> tuple[list[Path], Counter[int]]:
    centers = folder / "centers.npy"
    fit_centers(profiles, [EACH] * SHARDS, k, centers, seed=seed)
    paths, counts = [folder / f"{i}.arrow" for i in range(SHARDS)], Counter[int]()
    for profile, path in zip(profiles, paths, strict=True):
        counts.update(dict(assign_by_center(profile, centers, path).counts))
    return paths, counts


def form(profiles: list[Path], folder: Path, k: int = 3, **options: int) -> tuple[pl.DataFrame, Grouping]:
    paths, counts = sort_by_center(profiles, folder, k)
    found = form_groups(paths, counts, folder / "assignment.parquet", **options)
    return pl.read_parquet(folder / "assignment.parquet"), found


def all_points(profiles: list[Path]) -> tuple[list[str], np.ndarray]:
    read = [read_profiles(path) for path in profiles]
    return [name for names, _ in read for name in names], np.concatenate([points for _, points in read])


# ---------------------------------------------------------------------- profiles


def test_profiles_are_seasons() -> None:
    frame = simulate_meters(3, 3, 15, seed=5)
    holes = frame.filter(pl.Series(np.random.default_rng(0).random(len(frame)) > 0.6))
    readings = repair(holes, interval=15)
    shard = shard_of(readings)
    for row in range(3):
        long = readings.frame.filter(pl.col("household") == shard["household"][row])
        kw = long["kw"].fill_null(float("nan")).to_numpy()[None, :]
        phase = phases(long["timestamp"], "day", readings.step)
        season = fit_season(kw, phase, period="day", step=readings.step)
        logs = np.log(np.maximum(kw[np.isfinite(kw)], 0.02))
        expected = np.where(season.repeats[0] > 0, season.profile[0], logs.mean())
        np.testing.assert_allclose(mean_days(shard, readings.step)[row], expected, rtol=1e-6)


def test_short_intervals_are_averaged_and_clocks_are_local() -> None:
    start = datetime(2024, 7, 1)
    times = [start + timedelta(minutes=5 * i) for i in range(288)]
    kw = np.where(np.arange(288) < 36, 2.0, 1.0)  # two kW from midnight to three
    frame = pl.DataFrame({"household": "a", "timestamp": times, "kw": kw})
    profile = mean_days(shard_of(repair(frame)), timedelta(minutes=5))
    assert profile.shape == (1, 96)
    np.testing.assert_allclose(profile[0], np.repeat(np.log([2.0, 1.0]), [12, 84]), atol=1e-6)
    zoned = frame.with_columns(pl.col("timestamp").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Zurich"))
    shifted = mean_days(shard_of(repair(zoned)), timedelta(minutes=5))
    np.testing.assert_allclose(np.roll(profile[0], 8), shifted[0], atol=1e-6)


# ---------------------------------------------------------------------- groups


@pytest.mark.parametrize(("cap", "floor", "size"), [(5, 2, 20), (10, 5, 25), (50, 2, 60), (1000, 2, 7), (7, 4, 1000)])
def test_sizes_and_shards(profiles: list[Path], tmp_path: Path, cap: int, floor: int, size: int) -> None:
    frame, found = form(profiles, tmp_path, cap=cap, floor=floor, shard_size=size)
    assert frame["household"].to_list() == sorted(all_points(profiles)[0])
    sizes = np.bincount(frame["group"].to_numpy())
    assert floor <= sizes.min() <= sizes.max() <= cap
    assert (found.smallest, found.largest, found.groups) == (sizes.min(), sizes.max(), len(sizes))
    assert found.edges == sum(n * (n - 1) // 2 for n in sizes)
    shard_of_group = frame.group_by("group").agg(pl.col("shard").unique()).sort("group")["shard"]
    assert shard_of_group.list.len().max() == 1  # whole groups only
    assert shard_of_group.explode().is_sorted()
    assert set(frame["shard"]) == set(range(found.shards))
    per_shard = np.bincount(frame["shard"].to_numpy())
    assert per_shard.max() <= max(1.5 * size, sizes.max()) + sizes.max()


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=80), st.integers(1, 500))
def test_packing(sizes: list[int], shard_size: int) -> None:
    shard = pack(np.array(sizes), shard_size)
    assert shard[0] == 0
    assert set(np.diff(shard)) <= {0, 1}
    filled = np.bincount(shard, weights=sizes)
    ideal = sum(sizes) / max(round(sum(sizes) / shard_size), 1)
    assert filled.max() <= ideal + max(sizes)


def test_groups_are_of_like_households(profiles: list[Path], tmp_path: Path) -> None:
    frame, _ = form(profiles, tmp_path, cap=10)
    names, points = all_points(profiles)
    points = points[np.argsort(names)]
    group = frame["group"].to_numpy()

    def inside(member: np.ndarray) -> float:
        return float(sum(((points[member == g] - points[member == g].mean(axis=0)) ** 2).sum() for g in set(member)))

    chance = np.random.default_rng(0).permutation(group)
    assert inside(group) < 0.6 * inside(chance)


def test_equal_seeds_and_any_threads_give_equal_groups(
    profiles: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "SAMPLE", 40)  # so that the batches count
    results = []
    for threads in (1, 2):
        folder = tmp_path / str(threads)
        folder.mkdir()
        with threadpool_limits(limits=threads):
            form(profiles, folder, k=4, cap=8)
        results.append((folder / "centers.npy").read_bytes() + (folder / "assignment.parquet").read_bytes())
    assert results[0] == results[1]
    monkeypatch.setattr(groups, "BLOCK", 1)  # one cluster at a time changes nothing
    form(profiles, tmp_path, k=4, cap=8)
    assert (tmp_path / "centers.npy").read_bytes() + (tmp_path / "assignment.parquet").read_bytes() == results[0]
    other = tmp_path / "other"
    other.mkdir()
    sort_by_center(profiles, other, 4, seed=9)
    assert (other / "centers.npy").read_bytes() != (tmp_path / "centers.npy").read_bytes()


def test_households_go_to_the_nearest_center(profiles: list[Path], tmp_path: Path) -> None:
    paths, counts = sort_by_center(profiles, tmp_path, 5)
    names, points = all_points(profiles)
    centers = np.load(tmp_path / "centers.npy")
    nearest = ((points[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
    rows, _ = gather(paths, range(5))
    assert dict(rows.select("household", "cluster").iter_rows()) == dict(zip(names, nearest.tolist(), strict=True))
    assert counts == Counter(nearest.tolist())


def test_mini_batches_come_close_to_plain_k_means(
    profiles: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, points = all_points(profiles)

    def inertia() -> float:
        fit_centers(profiles, [EACH] * SHARDS, 4, tmp_path / "c.npy", passes=3)
        centers = np.load(tmp_path / "c.npy")
        return float(((points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).sum())

    plain = inertia()
    monkeypatch.setattr(clusters, "SAMPLE", 20)
    assert inertia() < 1.25 * plain


def test_small_clusters_join_the_nearest(tmp_path: Path) -> None:
    points = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2], [8.0], [50.0]], dtype=np.float32)
    rows = pl.DataFrame(
        {
            "household": list("abcdefgh"),
            "profile": pl.Series(points, dtype=pl.Array(pl.Float32, 1)),
            "cluster": pl.Series([0, 0, 0, 7, 7, 7, 3, 9]),
        }
    )
    counts = dict(scatter(tmp_path / "s.arrow", rows, "cluster").counts)
    assert counts == {0: 3, 3: 1, 7: 3, 9: 1}
    found = form_groups([tmp_path / "s.arrow"], counts, tmp_path / "a.parquet", cap=5)
    frame = pl.read_parquet(tmp_path / "a.parquet")
    assert (found.groups, found.joined) == (2, 2)
    assert frame["group"].to_list() == [0, 0, 0, 1, 1, 1, 1, 1]
    alone = dict(scatter(tmp_path / "s.arrow", rows.with_columns(cluster=pl.int_range(8)), "cluster").counts)
    found = form_groups([tmp_path / "s.arrow"], alone, tmp_path / "a.parquet", cap=4)
    assert (found.smallest, found.largest, found.groups) == (4, 4, 2)
    with pytest.raises(InputError, match="crowd: 1 can be used, and a crowd has at least 2"):
        form_groups([tmp_path / "s.arrow"], {0: 1}, tmp_path / "a.parquet")
    with pytest.raises(InputError, match="counts: 9 households were counted and 8 found"):
        form_groups([tmp_path / "s.arrow"], alone | {1: 2}, tmp_path / "a.parquet", cap=4)
    with pytest.raises(InputError, match="cap must be at least 3"):
        form_groups([tmp_path / "s.arrow"], alone, tmp_path / "a.parquet", cap=2)
    twice = pl.concat([rows, rows])
    both = dict(scatter(tmp_path / "s.arrow", twice, "cluster").counts)
    with pytest.raises(InputError, match="in two shards"):
        form_groups([tmp_path / "s.arrow"], both, tmp_path / "a.parquet")


def test_groups_by_a_column(profiles: list[Path], tmp_path: Path) -> None:
    names, _ = all_points(profiles)
    feeder = [None if i % 10 == 0 else f"F{i % 3}" for i in range(len(names))]
    table = pl.DataFrame({"household": names, "feeder": feeder})
    assert write_values(table, "feeder", tmp_path / "values.parquet").clusters == 4
    paths, counts = [tmp_path / f"{i}.arrow" for i in range(SHARDS)], Counter[int]()
    for profile, path in zip(profiles, paths, strict=True):
        counts.update(dict(assign_by_value(profile, tmp_path / "values.parquet", path).counts))
    form_groups(paths, counts, tmp_path / "a.parquet", cap=10)
    frame = pl.read_parquet(tmp_path / "a.parquet").join(table, on="household")
    assert frame.group_by("group").agg(pl.col("feeder").n_unique())["feeder"].max() == 1
    assert frame.group_by("group").len()["len"].max() == 9  # 36 households each, in four groups
    table.write_csv(tmp_path / "homes.csv")
    assert write_values(tmp_path / "homes.csv", "feeder", tmp_path / "again.parquet").clusters == 4
    for name, told in (("MPAN", None), ("who", "who")):
        other = table.rename({"household": name})
        assert write_values(other, "feeder", tmp_path / "other.parquet", household=told).clusters == 4
    with pytest.raises(InputError, match=r"lacks the column.*--table-household"):
        write_values(table.rename({"household": "who"}), "feeder", tmp_path / "other.parquet")
    write_values(table.head(50), "feeder", tmp_path / "values.parquet")
    with pytest.raises(InputError, match="no row for 10 of those"):
        assign_by_value(profiles[1], tmp_path / "values.parquet", paths[1])
    for bad, column, message in [
        (table, "postcode", r"lacks the column\(s\) \['postcode'\]"),
        (pl.concat([table, table]), "feeder", "occurs twice"),
        (tmp_path / "gone.csv", "feeder", r"gone\.csv cannot be read"),
    ]:
        with pytest.raises(InputError, match=message):
            write_values(bad, column, tmp_path / "values.parquet")


# ---------------------------------------------------------------------- whole groups


def test_regrouped_shards_hold_everything_once(shards: list[Path], profiles: list[Path], tmp_path: Path) -> None:
    frame, found = form(profiles, tmp_path, cap=8, shard_size=25)
    sent = [tmp_path / f"sent-{i}.arrow" for i in range(SHARDS)]
    totals = Counter[int]()
    for shard, path in zip(shards, sent, strict=True):
        totals.update(dict(send(shard, tmp_path / "assignment.parquet", False, path).counts))
    assert totals == Counter(frame["shard"].to_list())
    made = [tmp_path / f"made-{i}.parquet" for i in range(found.shards)]
    facts = [receive(sent, i, path) for i, path in enumerate(made)]
    assert sum(f.households for f in facts) == SHARDS * EACH
    assert sum(f.groups for f in facts) == found.groups
    assert [f.number for f in facts] == list(range(len(facts)))
    before, after = [readings_of(p) for p in shards], [readings_of(p) for p in made]
    for part in ("frame", "quality"):
        old = pl.concat([getattr(r, part) for r in before])
        new = pl.concat([getattr(r, part) for r in after])
        assert new.schema == old.schema
        assert new.sort(new.columns[:2]).equals(old.sort(old.columns[:2]))
    rows = pl.concat([read_shard(path)[0] for path in made])
    assert rows.select("household", "group").sort("household").equals(frame.select("household", "group"))
    for path in made:
        assert read_shard(path)[0]["household"].is_sorted()
    content = made[0].read_bytes()
    receive(sent, 0, made[0])
    assert made[0].read_bytes() == content


def test_regrouping_refuses(shards: list[Path], tmp_path: Path) -> None:
    assignment, sent = tmp_path / "a.parquet", tmp_path / "sent.arrow"
    names = read_shard(shards[0])[0]["household"]
    known = pl.DataFrame({"household": names, "group": 0, "shard": 0}, schema_overrides={"group": pl.Int64})
    write_frame(assignment, known.filter(pl.col("household") != "H0007"))
    with pytest.raises(InputError, match=r"1 household\(s\) have no group; form the groups again$"):
        send(shards[0], assignment, False, sent)
    write_frame(assignment, known)
    send(shards[0], assignment, False, sent)
    with pytest.raises(InputError, match="nothing was sent to shard 5"):
        receive([sent], 5, tmp_path / "o.parquet")
    hourly = repair(simulate_meters(EACH, 2, 30), interval=30)
    write_shard(tmp_path / "half.parquet", shard_of(hourly), hourly.quality, hourly.step)
    send(tmp_path / "half.parquet", assignment, False, tmp_path / "half.arrow")
    with pytest.raises(InputError, match=r"half\.arrow and sent\.arrow differ"):
        receive([sent, tmp_path / "half.arrow"], 0, tmp_path / "o.parquet")
    (tmp_path / "broken.arrow").write_bytes(sent.read_bytes()[:300])
    with pytest.raises(InputError, match=r"broken\.arrow cannot be read"):
        receive([tmp_path / "broken.arrow"], 0, tmp_path / "o.parquet")
    with pytest.raises(InputError, match=r"gone\.parquet cannot be read"):
        send(shards[0], tmp_path / "gone.parquet", False, sent)
    assert not (tmp_path / "o.parquet").exists()


def test_what_is_made_without_some_senders_does_not_pass_for_the_whole(tmp_path: Path) -> None:
    def finished(stage: str, name: str, frame: pl.DataFrame, facts: Record) -> Part:
        path = out_path(tmp_path, stage, "parquet", {"name": name})
        write_frame(path, frame)
        return receipted(path, facts)

    everyone = pl.DataFrame({"household": ["a", "b"], "group": [0, 0], "shard": [0, 0]})
    assignment = finished("groups", "all", everyone, Grouping(2, 1, 1, 2, 2, 1, 0))
    parts = [finished("means", name, pl.DataFrame({"household": [name]}), Sent(())) for name in "ab"]
    able = {"a"}

    def send_one(name: str, out: str) -> Sent:
        if name not in able:
            raise InputError("not today")
        return scatter(out, everyone.filter(pl.col("household") == name), "shard")

    def receive_all(sent: Sequence[str], number: int, out: str) -> Received:
        rows, _ = gather(sent, [number])
        write_frame(out, rows)
        return Received(len(rows), 1, number)

    def regroup() -> tuple[list[str], int]:
        sending = [(part, partial(send_one, name)) for part, name in zip(parts, "ab", strict=True)]
        with Serial() as executor:
            made, lost = regrouped(executor, tmp_path, "rows", sending, receive_all, assignment, lambda *_: None)
        return pl.read_parquet(made[0].path)["household"].to_list(), len(lost)

    assert regroup() == (["a"], 1)
    able.add("b")
    assert regroup() == (["a", "b"], 0)


def test_shards_without_usable_households_pass_through(shards: list[Path], tmp_path: Path) -> None:
    rows, step = read_shard(shards[0])
    empty = tmp_path / "empty.parquet"
    write_shard(empty, rows.head(0), readings_of(shards[0]).quality.head(0), step)
    assert make_profiles(str(empty), str(tmp_path / "p.parquet")).households == 0
    np.save(tmp_path / "c.npy", np.zeros((2, 24)))
    assert assign_by_center(tmp_path / "p.parquet", tmp_path / "c.npy", tmp_path / "s").counts == ()
    assert len(gather([tmp_path / "s"], [0])[0]) == 0
    write_frame(tmp_path / "a.parquet", pl.DataFrame({"household": ["x"], "group": [0], "shard": [0]}))
    assert send(empty, tmp_path / "a.parquet", False, tmp_path / "e.arrow").counts == ()


def test_bad_profiles(profiles: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="n_clusters must not exceed"):
        fit_centers(profiles, [EACH] * SHARDS, 121, tmp_path / "c.npy")
    with pytest.raises(InputError, match=r"profile-0\.parquet holds 30 households, not 29"):
        fit_centers(profiles, [29, *[EACH] * 3], 3, tmp_path / "c.npy")
    np.save(tmp_path / "c.npy", np.zeros((2, 96)))
    with pytest.raises(InputError, match="another metering interval"):
        assign_by_center(profiles[0], tmp_path / "c.npy", tmp_path / "s")
    write_frame(tmp_path / "p.parquet", pl.DataFrame({"household": ["a"], "profile": [1.0]}))
    with pytest.raises(InputError, match=r"p\.parquet must have the columns"):
        read_profiles(tmp_path / "p.parquet")
    (tmp_path / "p.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"p\.parquet cannot be read"):
        read_profiles(tmp_path / "p.parquet")
