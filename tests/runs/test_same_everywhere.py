"""The same sixty homes as one shard or six, on serial, processes and Ray: same groups, certificates, charges, card."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_run import CHARGED, CONFIG, assert_released_as_charged, charged, digests, go, mechanisms, shards

import shoal

SIXTY = replace(CHARGED, crowd=8, shard_size=60)
WAYS = {
    "one shard": (60, "serial"),
    "six shards": (10, "serial"),
    "processes": (10, "processes"),
    "ray": (10, "ray"),
}


@pytest.fixture(scope="module")
def meters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sixty") / "meters.parquet"
    shoal.simulate_meters(60, 16, seed=5).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, meters: Path) -> Iterator[dict[str, shoal.Run]]:
    """A run in every way; one Ray for all stages and tests."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=128 * 2**20)
    folder = tmp_path_factory.mktemp("ways")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [path for path in sys.path if path])
        yield {
            name: go(folder / name, meters, replace(SIXTY, shard_size=size), workers=workers)
            for name, (size, workers) in WAYS.items()
        }
    ray.shutdown()


def certificates(run: shoal.Run) -> dict[frozenset[str], float]:
    """Crowd -> its ideal δ at the design's ε, from the mechanism that releases it."""
    return {
        frozenset(members): mechanism.for_labels(members).certificate.delta_upper
        for mechanism in mechanisms(run.path)
        for members in mechanism.graph.groups
    }


def test_shards_are_as_many_as_asked_for(runs: dict[str, shoal.Run]) -> None:
    counts = {name: len(shards(run.path, "fit")) for name, run in runs.items()}
    assert counts == {"one shard": 1, "six shards": 6, "processes": 6, "ray": 6}
    assert len(shards(runs["six shards"].path, "design")) > 1


@pytest.mark.parametrize("name", list(WAYS)[1:])
def test_means_are_the_same_to_the_last_bit(
    runs: dict[str, shoal.Run], meters: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default run: the rows of its crowds, whatever the number of shards and whoever works on them."""
    monkeypatch.setattr("shoal.product.runs.crowd_rows.draw_offset", lambda n: n // 3)
    rows = []
    for way in ("one shard", name):
        size, workers = WAYS[way]
        config = replace(CONFIG, crowd=8, shard_size=size)
        out = tmp_path / way.replace(" ", "")
        go(out, meters, config, workers=workers)
        table = pl.read_parquet(out / "rows.parquet").sort("crowd")
        rows.append([(homes, values) for homes, values in table.select("members", "values").iter_rows()])
        owner = pl.read_parquet(out / "released.parquet")
        rows[-1] += sorted(owner.select("household", "step", "kw").iter_rows())
    assert rows[0] == rows[1]


@pytest.mark.parametrize("name", list(WAYS)[1:])
def test_same_crowds_and_certificates(runs: dict[str, shoal.Run], name: str) -> None:
    one, other = runs["one shard"], runs[name]
    ours, theirs = certificates(one), certificates(other)
    assert ours.keys() == theirs.keys()
    assert min(map(len, ours)) >= 10
    assert max(ours.values()) <= 1e-5
    for crowd, delta in ours.items():
        assert theirs[crowd] == pytest.approx(delta, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("name", list(WAYS)[1:])
def test_same_charges(runs: dict[str, shoal.Run], name: str) -> None:
    def spent(run: shoal.Run) -> dict[str, tuple[float, float, int]]:
        with run.work.ledger as ledger:
            return {a.name: (a.epsilon, a.budget, a.releases) for a in ledger.spent()}

    ours, theirs = runs["one shard"], runs[name]
    assert spent(ours) == spent(theirs)
    first, second = ({label: row for (label, _), row in charged(run.path).items()} for run in (ours, theirs))
    assert set(first) == set(second)
    assert all(first[label] != second[label] for label in first)  # noise is drawn anew
    assert assert_released_as_charged(ours.path) == assert_released_as_charged(theirs.path)


@pytest.mark.parametrize("name", ["processes", "ray"])
def test_workers_make_the_same_bytes(runs: dict[str, shoal.Run], name: str) -> None:
    assert digests(runs[name].path) == digests(runs["six shards"].path)


def test_same_card(runs: dict[str, shoal.Run]) -> None:
    """But for digests of mechanisms and what finite precision costs, whose grid is a shard's own."""
    ours, theirs = (runs[name].card.to_dict() for name in ("one shard", "six shards"))
    for card in (ours, theirs):
        for part, own in (
            ("mechanism", "digest"), ("composition", "head"), ("guarantee", "proof"),
        ):  # fmt: skip
            card[part].pop(own, None)
        del card["digest"]
        audit = card.pop("audit")  # of other draws
        assert (audit["verdict"], audit["groups"]) == ("consistent", 3)
    alike(ours, theirs, "card")


def alike(ours: Any, theirs: Any, where: str) -> None:
    if isinstance(ours, dict):
        assert set(ours) == set(theirs), where
        for key in ours:
            alike(ours[key], theirs[key], f"{where}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            alike(a, b, f"{where}[{number}]")
    elif isinstance(ours, float):
        assert theirs == pytest.approx(ours, rel=1e-3, abs=1e-12), where
    elif "worst_edge" not in where and "statement" not in where:  # ties between pairs, and δ of about 1e-28
        assert ours == theirs, where
