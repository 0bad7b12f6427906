"""Killed in the middle, a run continues: nothing lost, nothing charged twice. Real processes, real SIGKILL."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from calls import call

import shoal

#: Run the command in a process that kills itself as a stage begins, or right after the ledger has committed.
KILLED = """
import os, signal, sys
where, folder = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

from shoal.product.runs.kinds import answers
from shoal.product.runs import design_stage
if where == "committed":
    answers.released_table = die
elif where == "release":
    answers.release_answers = die
else:
    design_stage.audit_crowds = die
from shoal.product.cli.main import app
app(["run", "--out", folder])
"""


def killed(where: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, where, str(folder)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("release", ["release", "card", "report"]),
        ("committed", ["release", "card", "report"]),
        ("audit", ["audit", "release", "card", "report"]),
    ],
)
def test_killed_and_continued(where, left, unreleased, charges):
    killed(where, unreleased)
    if where == "committed":
        assert charges(unreleased) == 12
        assert not (unreleased / "released.csv").exists()
    done = call("run", "--out", unreleased, "--json")
    assert done.code == 0, done.err
    assert done.json["did"] == left
    assert charges(unreleased) == 12
    table = pl.read_parquet(unreleased / "released.parquet")
    with shoal.Ledger.open(unreleased / "ledger.db", create=False) as ledger:
        recorded = {e.content["label"]: e.content["released"] for e in ledger.entries() if e.kind == "release"}
        kept = ledger.crowds(sorted(recorded)).crowds["kept"].to_list()
    base = max(float(base) for one in kept for base in json.loads(one)["bases"])  # rows are rounded and shifted
    for (name,), rows in table.group_by("household"):
        assert (np.abs(rows.sort("step")["kw"].to_numpy() - recorded[name]) < base).all()


def test_a_release_that_may_have_happened_counts_as_one(unreleased, charges):
    killed("committed", unreleased)
    refused = call("run", "--out", unreleased, "--epsilon", "0.7")
    assert refused.code == 2
    assert "has released" in refused.err
    assert charges(unreleased) == 12


def test_half_a_file_is_no_file(unreleased):
    (path,) = (unreleased / "mechanism").glob("*.shoal")
    half = path.with_name(f".{path.name}.0.part")
    half.write_bytes(b"half")
    path.unlink()
    (unreleased / "design.json").unlink()
    done = call("run", "--out", unreleased, "--json")
    assert done.json["did"] == ["design", "audit", "release", "card", "report"]
    assert not half.exists()


def test_killed_at_its_very_beginning(tmp_path, meters):
    out = tmp_path / "x"
    out.mkdir()
    (out / ".lock").touch()
    (out / ".state.json.part").touch()
    done = call("run", meters, "--out", out, "--until", "fit", "--set", "order=1,0", "--horizon", "2", "--json")
    assert done.code == 0, done.err
    assert json.loads((out / "state.json").read_text())["stages"].keys() == {"fit", "crowds"}
