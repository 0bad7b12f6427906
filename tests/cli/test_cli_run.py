"""The run: every file, once; what changes, what is refused, and what it costs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from calls import SMALL, call

import shoal

FILES = {
    "state.json", "shards", "forecasts", "mechanism", "released", "ledger.db", "fit.json", "design.json",
    "release.json", "quality.csv", "left_out.csv", "released.csv", "released.parquet", "public", "audit.json",
    "card.json", "card.md", "card.yaml", "report.html",
}  # fmt: skip


def mechanism(folder: Path) -> Path:
    (found,) = (folder / "mechanism").glob("*.shoal")
    return found


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
        and path.name != ".lock"
        and "ledger.db" not in path.name
        and path.relative_to(folder).parts[0] not in ("mechanism", "forecasts", "shards")
    }


def test_a_run_leaves_every_file_and_nothing_else(finished):
    assert {path.name for path in finished.iterdir()} - {".lock", "ledger.db-wal", "ledger.db-shm"} == FILES


def test_only_the_owner_reads_a_run(finished):
    open_to_others = {str(path) for path in [finished, *finished.rglob("*")] if path.stat().st_mode & 0o077}
    assert open_to_others == set()


def test_the_released_table_is_what_the_ledger_recorded(finished):
    table = pl.read_parquet(finished / "released.parquet")
    assert table.columns == ["household", "group", "row", "step", "timestamp", "released_kw"]
    assert pl.read_csv(finished / "released.csv")["released_kw"].to_list() == table["released_kw"].to_list()
    assert len(table) == 12 * 4
    with shoal.Ledger.open(finished / "ledger.db", create=False) as ledger:
        recorded = {e.content["label"]: e.content["released"] for e in ledger.entries() if e.kind == "release"}
    for name, part in table.group_by("household", maintain_order=True):
        assert np.array_equal(part["released_kw"].to_numpy(), recorded[name[0]])


def test_what_is_passed_on_names_nobody(finished):
    assert [path.name for path in (finished / "public").iterdir()] == ["released.csv"]
    public, key = pl.read_csv(finished / "public" / "released.csv"), pl.read_csv(finished / "released.csv")
    assert public.columns == ["group", "row", "step", "timestamp", "released_kw"]
    assert public.equals(key.drop("household"))  # the owner's table is the key
    rows = key.filter(pl.col("step") == 1)
    graph = shoal.Mechanism.load(mechanism(finished)).graph
    components = dict(zip(graph.labels, graph.components.tolist(), strict=True))
    for _, group in rows.group_by("group"):
        assert group["row"].to_list() == list(range(1, len(group) + 1))
        assert len({components[name] for name in group["household"]}) == 1


def test_the_guarantee_is_met_and_recorded(finished):
    made = shoal.Mechanism.load(mechanism(finished))
    assert made.certificate.delta_upper <= 1e-5
    state = json.loads((finished / "state.json").read_text())
    assert state["stages"]["design"]["facts"]["delta"] >= made.certificate.delta_upper
    card = json.loads((finished / "card.json").read_text())
    assert card["guarantee"]["delta"] >= made.certificate.delta_upper
    assert card["audit"]["verdict"] == "consistent"


def test_the_owners_files_are_for_the_owner_alone(finished):
    for path in finished.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_second_run_releases_nothing_and_says_what_is_there(january, meters, charges):
    before = contents(january)
    again = call("run", meters, "--out", january, *SMALL, "--origin", "2024-01-17T18:00")
    assert again.code == 0
    assert "nothing was released again" in again.out
    assert "Who hides" in again.out
    assert contents(january) == before
    assert charges(january) == 12


def test_a_lost_table_comes_back_from_the_ledger_free_of_charge(january, charges):
    before = (january / "released.csv").read_bytes()
    (january / "released.csv").unlink()
    done = call("run", "--out", january, "--json")
    assert done.code == 0
    assert done.json["did"] == ["release"]
    assert (january / "released.csv").read_bytes() == before
    assert charges(january) == 12


def test_settings_after_the_release_redo_only_what_follows(january, charges):
    done = call("audit", january, "--samples", "120", "--json")
    assert done.code == 0
    assert done.json["did"] == ["audit"]
    assert done.json["stages"]["audit"]["n_samples"] == 120
    assert done.json["stages"]["card"]["done"] is False
    assert call("report", january, "--json").json["did"] == ["card", "report"]
    assert charges(january) == 12


def test_another_guarantee_after_a_release_is_refused_with_its_cost(january, charges):
    before = contents(january)
    refused = call("run", "--out", january, "--epsilon", "0.5")
    assert refused.code == 2
    assert "--again" in refused.err
    assert "would raise δ(1)" in refused.err
    assert contents(january) == before
    assert charges(january) == 12

    done = call("run", "--out", january, "--epsilon", "0.5", "--again", "--json")
    assert done.code == 0, done.err
    assert done.json["release"] == 2
    assert done.json["did"] == ["design", "audit", "release", "card", "report"]
    assert done.json["stages"]["design"]["epsilon"] == 0.5
    assert charges(january) == 24
    assert (january / "earlier" / "1" / "released.csv").is_file()
    assert not (january / "next").exists()
    assert call("run", "--out", january, "--json").json["did"] == []
    assert charges(january) == 24


def test_again_without_a_change_is_a_new_charge(january, charges):
    before = (january / "released.csv").read_bytes()
    done = call("release", january, "--again", "--json")
    assert done.code == 0
    assert done.json["did"] == ["release"]
    assert charges(january) == 24
    assert (january / "released.csv").read_bytes() != before


def test_stages_one_by_one_end_where_the_run_ends(unreleased, charges):
    assert call("report", unreleased).code == 2
    assert call("design", unreleased, "--epsilon", "2", "--json").json["did"] == ["design"]
    assert call("release", unreleased, "--json").json["did"] == ["release"]
    assert call("audit", unreleased, "--json").json["did"] == ["audit"]
    assert call("report", unreleased, "--json").json["did"] == ["card", "report"]
    assert call("run", "--out", unreleased, "--json").json["did"] == []
    assert charges(unreleased) == 12


def test_a_damaged_design_under_a_release_is_not_silently_replaced(january, charges):
    mechanism(january).write_bytes(b"damaged")
    (january / "released.csv").unlink()
    refused = call("run", "--out", january)
    assert refused.code == 2
    assert "is damaged" in refused.err
    assert charges(january) == 12


def test_an_error_budget_without_a_guarantee_says_so(unreleased):
    done = call("design", unreleased, "--rho", "0.001", "--method", "white")
    assert done.code == 0
    assert "NO meaningful guarantee" in done.out


def test_a_trajectory_is_drawn_once(unreleased, charges):
    done = call("run", "--out", unreleased, "--query", "trajectory", "--json")
    assert done.code == 0, done.err
    before = (unreleased / "released.csv").read_bytes()
    (unreleased / "released.csv").unlink()
    assert call("run", "--out", unreleased, "--json").json["did"] == ["release"]
    assert (unreleased / "released.csv").read_bytes() == before
    assert charges(unreleased) == 12


def test_a_household_table_groups_by_its_column(unreleased, tmp_path, meters):
    rows = "\n".join(f"H{i:04d},{'north' if i < 7 else 'south' if i < 11 else 'alone'}" for i in range(12))
    (tmp_path / "homes.csv").write_text(f"household,feeder\n{rows}\n")
    config = tmp_path / "run.toml"
    config.write_text(
        "[neighbors]\ncrowd = 4\n"
        f'table = "{tmp_path / "homes.csv"}"\ncolumn = "feeder"\n[forecast]\nhorizon = 4\norder = [2, 1]\n'
    )
    done = call("fit", meters, "--out", tmp_path / "by-feeder", "--config", config, "--json")
    assert done.code == 0, done.err
    fit = done.json["stages"]["fit"]
    assert (fit["groups"], fit["smallest_group"], fit["largest_group"]) == (2, 4, 7)
    left = dict(pl.read_csv(tmp_path / "by-feeder" / "left_out.csv").iter_rows())
    assert list(left) == ["H0011"]
    assert "nothing would hide it" in left["H0011"]


def test_stages_tell_how_far_they_are(january):
    (january / "audit.json").unlink()
    told = []
    run = shoal.Run(january, progress=lambda *report: told.append(report))
    run.do("audit")
    counted = [(done, total) for stage, _, done, total in told if stage == "audit" and total > 1]
    assert counted[-1][0] == counted[-1][1]
    assert [done for done, _ in counted] == sorted(done for done, _ in counted)
    assert any(done % 1 for done, _ in counted), "a task of this process tells how far it is"


def test_the_run_of_the_library_is_that_of_the_command(january, meters, tmp_path):
    settings = {
        "crowd": 4,
        "crowds": "standing",
        "horizon": 4,
        "order": (2, 1),
        "audit_samples": 100,
        "origin": "2024-01-17T18:00",
    }
    run = shoal.run(meters, tmp_path / "x", **settings)
    other = shoal.Run.open(january)
    assert run.config == other.config
    assert run.card.to_dict()["guarantee"] == other.card.to_dict()["guarantee"]
    assert set(run.released["household"]) == set(other.released["household"])
    assert run.report.is_file()
    assert shoal.run(None, tmp_path / "x").did == []
    with pytest.raises(shoal.InputError, match="epsilonn is not a setting"):
        shoal.run(None, tmp_path / "x", epsilonn=2.0)
    with pytest.raises(shoal.InputError, match="workers must be"):
        shoal.run(None, tmp_path / "x", workers="many")


def test_one_line_per_stage_where_there_is_no_terminal(january):
    (january / "audit.json").unlink()
    done = call("run", "--out", january)
    assert [line.partition(":")[0] for line in done.err.splitlines()] == [
        "fit", "design", "audit", "release", "card", "report",
    ]  # fmt: skip
