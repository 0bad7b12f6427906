"""The run: every file, once; what changes, what is refused, and what it costs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from calls import CHARGED, SMALL, call

import shoal

FILES = {
    "state.json", "shards", "forecasts", "ledger.db", "fit.json", "quality.csv", "left_out.csv", "crowds.parquet",
    "rows.parquet", "numbers.json", "released.csv", "released.parquet", "public", "card.json", "card.md",
    "report.html",
}  # fmt: skip
OF_A_METHOD = {"blocks", "mechanism", "design.json", "audit.json"}


def mechanism(folder: Path) -> Path:
    (path,) = (folder / "mechanism").glob("*.shoal")
    return path


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
        and path.name != ".lock"
        and "ledger.db" not in path.name
        and path.relative_to(folder).parts[0] not in ("mechanism", "blocks", "forecasts", "shards")
    }


def until(stage: str, folder: Path, *more: object) -> dict[str, object]:
    done = call("run", "--out", folder, "--until", stage, *more, "--json")
    assert done.code == 0, done.err
    return done.json


PACKAGE = {
    "released.csv", "datapackage.json", "card.json", "card.md", "report.html", "README.txt", "SHA256SUMS",
}  # fmt: skip


def test_a_run_leaves_every_file_and_nothing_else(finished, finished_charged):
    for folder, files in ((finished, FILES), (finished_charged, FILES | OF_A_METHOD)):
        assert {path.name for path in folder.iterdir()} - {".lock", "ledger.db-wal", "ledger.db-shm"} == files
        assert {path.name for path in (folder / "public").iterdir()} == PACKAGE


def test_only_the_owner_reads_a_run(finished):
    open_to_others = {str(path) for path in [finished, *finished.rglob("*")] if path.stat().st_mode & 0o077}
    assert open_to_others == set()


def test_rows_are_averages_and_the_owner_has_the_key(finished):
    public, key = pl.read_csv(finished / "public" / "released.csv"), pl.read_csv(finished / "released.csv")
    assert public.columns == ["crowd", "members", "step", "timestamp", "kw"]
    assert key.columns == ["household", *public.columns]
    assert len(key) == 12 * 4
    assert public["members"].min() >= 5
    both = key.join(public, on=["crowd", "step"], suffix="_public")
    assert both["kw"].to_list() == both["kw_public"].to_list()
    assert (public["kw"].round(3) == public["kw"]).all()


def test_a_methods_table_is_what_the_ledger_recorded(finished_charged):
    table = pl.read_parquet(finished_charged / "released.parquet")
    assert table.columns == ["household", "crowd", "row", "step", "timestamp", "kw"]
    with shoal.Ledger.open(finished_charged / "ledger.db", create=False) as ledger:
        recorded = {e.content["label"]: e.content["released"] for e in ledger.entries() if e.kind == "release"}
        crowds = ledger.crowds(sorted(recorded)).crowds
    base = max(float(base) for kept in crowds["kept"].to_list() for base in json.loads(kept)["bases"])
    for name, part in table.group_by("household", maintain_order=True):
        # Rows whose noise would show too much are rounded and shifted: each lies within a base of what was drawn.
        assert (np.abs(part["kw"].to_numpy() - recorded[name[0]]) < base).all()
    made = shoal.Mechanism.load(mechanism(finished_charged))
    card = json.loads((finished_charged / "card.json").read_text())
    assert 1e-5 >= card["guarantee"]["delta"] >= made.certificate.delta_upper
    assert card["audit"]["verdict"] == "consistent"


def test_a_second_run_releases_nothing_and_says_what_is_there(january, meters):
    before = contents(january)
    again = call("run", meters, "--out", january, *SMALL, "--origin", "2024-01-17T18:00")
    assert again.code == 0
    assert "nothing was released again" in again.out
    assert "Protected" in again.out
    assert contents(january) == before


@pytest.mark.parametrize("which", ["january", "charged"])
def test_a_lost_table_comes_back_from_the_ledger_free_of_charge(which, request, charges):
    folder = request.getfixturevalue(which)
    before, counted = (folder / "released.csv").read_bytes(), charges(folder)
    (folder / "released.csv").unlink()
    assert until("report", folder)["did"] == ["release"]
    assert (folder / "released.csv").read_bytes() == before
    assert charges(folder) == counted


def test_settings_after_the_release_redo_only_what_follows(charged, charges):
    assert until("report", charged, "--set", "title=A street")["did"] == ["report"]
    assert charges(charged) == 12


def test_another_setting_after_a_release_is_refused(january, charged, charges):
    for folder, option in ((january, ["--crowd", "5"]), (charged, ["--epsilon", "0.5"]), (january, ["--horizon", "3"])):
        before = contents(folder)
        refused = call("run", "--out", folder, *option)
        assert refused.code == 2
        assert "--update" in refused.err
        assert contents(folder) == before
    assert charges(charged) == 12


def test_stages_one_by_one_end_where_the_run_ends(unreleased, charges):
    assert until("design", unreleased, "--epsilon", "2")["did"] == ["design"]
    assert until("audit", unreleased)["did"] == ["audit"]
    assert until("release", unreleased)["did"] == ["release"]
    assert until("report", unreleased)["did"] == ["card", "report"]
    assert call("run", "--out", unreleased, "--json").json["did"] == []
    assert charges(unreleased) == 12
    assert call("run", "--out", unreleased, "--until", "tomorrow").code == 2


def test_a_damaged_design_under_a_release_is_not_silently_replaced(charged, charges):
    mechanism(charged).write_bytes(b"damaged")
    (charged / "released.csv").unlink()
    refused = call("run", "--out", charged)
    assert refused.code == 2
    assert "is damaged" in refused.err
    assert charges(charged) == 12


def test_an_error_budget_without_a_guarantee_says_so(unreleased):
    done = call("run", "--out", unreleased, "--until", "design", "--rho", "0.001", "--method", "white")
    assert done.code == 0
    assert "No meaningful guarantee" in done.out


def test_boundaries_are_not_crossed(tmp_path, meters):
    rows = "\n".join(f"H{i:04d},{'north' if i < 7 else 'south' if i < 11 else 'alone'}" for i in range(12))
    (tmp_path / "homes.csv").write_text(f"household,feeder\n{rows}\n")
    how = ["--crowd", 4, "--boundaries", f"{tmp_path / 'homes.csv'}:feeder", "--horizon", 4, "--set", "order=2,1"]
    done = call("run", meters, "--out", tmp_path / "by-feeder", "--until", "fit", *how, "--json")
    assert done.code == 0, done.err
    fit = done.json["stages"]["crowds"]["fit"]
    assert (fit["groups"], fit["smallest_group"], fit["largest_group"]) == (2, 4, 7)
    left = dict(pl.read_csv(tmp_path / "by-feeder" / "left_out.csv").iter_rows())
    assert list(left) == ["H0011"]
    assert "nothing would hide it" in left["H0011"]


def test_rehearse_and_update(tmp_path, meters):
    done = call("run", meters, "--out", tmp_path / "x", *SMALL, "--origin", "2024-01-16T18:00", "--rehearse")
    assert done.code == 0
    assert "not_released.csv" in done.out.replace("\n", "").replace(" ", "")
    assert not (tmp_path / "x" / "ledger.db").exists()
    assert call("run", "--out", tmp_path / "x").code == 0
    later = call("run", meters, "--out", tmp_path / "x", "--update", "--origin", "2024-01-17T18:00", "--json")
    assert later.code == 0, later.err
    assert later.json["release"] == 2
    refused = call("run", meters, "--out", tmp_path / "x", "--update", "--origin", "2024-01-17T06:00")
    assert refused.code == 2
    assert "needs a later period than the last" in " ".join(refused.err.split())


def test_stages_tell_how_far_they_are(charged):
    (charged / "audit.json").unlink()
    reports = []
    run = shoal.Run(charged, progress=lambda *report: reports.append(report))
    run.do("audit")
    counted = [(done, total) for stage, _, done, total in reports if stage == "audit" and total > 1]
    assert counted[-1][0] == counted[-1][1]
    assert [done for done, _ in counted] == sorted(done for done, _ in counted)
    assert any(done % 1 for done, _ in counted), "a task of this process tells how far it is"


def test_the_run_of_the_library_is_that_of_the_command(january, meters, tmp_path):
    settings = {"crowd": 4, "horizon": 4, "order": (2, 1), "origin": "2024-01-17T18:00"}
    run = shoal.run(meters, tmp_path / "x", **settings)
    other = shoal.Run.open(january)
    assert run.config == other.config
    assert run.card.statement == other.card.statement
    assert set(run.released["household"]) == set(other.released["household"])
    rows = [np.sort(one.released["kw"].to_numpy()) for one in (run, other)]
    assert np.abs(rows[0] - rows[1]).max() <= 0.5  # a base: each run draws secret offsets of its own
    assert run.report.is_file()
    assert shoal.run(None, tmp_path / "x").did == []
    with pytest.raises(shoal.InputError, match="epsilonn is not a setting"):
        shoal.run(None, tmp_path / "x", epsilonn=2.0)
    with pytest.raises(shoal.InputError, match="workers must be"):
        shoal.run(None, tmp_path / "x", workers="many")


def test_one_line_per_stage_where_there_is_no_terminal(january):
    (january / "card.md").unlink()
    done = call("run", "--out", january)
    lines = [line.partition(":")[0] for line in done.err.splitlines()]
    assert lines == ["fit", "crowds", "release", "card", "report"]


def test_a_method_is_asked_for(meters, tmp_path):
    refused = call("run", meters, "--out", tmp_path / "x", *SMALL, "--epsilon", "1")
    assert refused.code == 2
    assert "codebook, white, paper" in refused.err
    assert call("prove", tmp_path / "x").code == 2
    assert "--method" in CHARGED
