"""The commands of docs/service.md, as they stand there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live import Service

import shoal

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()


def test_the_commands_of_the_page_on_own_meters(tmp_path: Path) -> None:
    """Word for word, from a file to answers: nobody sets a budget by hand."""
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    (first,) = (block.strip() for block in blocks if "shoal run" in block)
    (started,) = (block.strip() for block in blocks if "shoal serve" in block)
    (calls,) = (block for block in blocks if "curl" in block)
    commands = re.findall(r"^curl .*?(?=^curl|\Z)", calls, re.S | re.M)
    assert len(commands) == 4
    shoal.simulate_meters(24, 10, step_minutes=60, seed=3).write_csv(tmp_path / "meters.csv")
    quick = "--train-days 8 --horizon 3 --set order=1,1"
    where = {**os.environ, "SHOAL_LEDGER": str(tmp_path / "ledger.db")}
    command = first.replace("shoal", f"{sys.executable} -m shoal", 1)
    done = subprocess.run(f"{command} {quick}", shell=True, cwd=tmp_path, env=where, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert started.startswith("shoal serve runs --port 8000")
    service = Service(tmp_path / "runs", str(tmp_path / "ledger.db"))

    def called(command: str, **known: str) -> Any:
        text = command.replace("http://127.0.0.1:8000", service.address)
        for name, value in known.items():
            text = text.replace(f"${name.upper()}", value)
        done = subprocess.run(
            ["bash", "-c", text.replace("curl", "curl -s")], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    def asking(command: str, **body: str) -> Any:
        for name, value in body.items():
            command = command.replace(f'"{name}": "…"', f'"{name}": "{value}"')
        return called(command, owner=service.key, analyst=analyst)

    analyst = ""
    (question,) = called(commands[0], owner=service.key)
    analyst = asking(commands[1], question=question["question"])["key"]
    (mine,) = called(commands[0].replace("$OWNER", "$ANALYST"), analyst=analyst)
    answer = asking(commands[2], question=mine["question"], handle=mine["handles"][0])
    assert len(answer["answer"]) == len(answer["times"]) == mine["entries"]
    table = asking(commands[3], question=mine["question"])["table"]
    public = (tmp_path / "runs" / "january" / "public" / "released.csv").read_text().splitlines()
    assert [",".join(table["columns"]), *map(",".join, table["rows"])] == public
    assert service.stop() == 0
