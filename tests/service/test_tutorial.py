"""The commands of docs/service.md, as they stand there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from live import Service

import shoal

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()


def test_the_calls_of_the_page(runs: Path, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    (block,) = (text for text in re.findall(r"```sh\n(.*?)```", PAGE, re.S) if "curl" in text)
    commands = re.findall(r"^curl .*?(?=^curl|\Z)", block, re.S | re.M)
    assert len(commands) == 3
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with shoal.Ledger.open(url) as ledger:
        ledger.budget(20.0, 1e-3)
    service = Service(runs, url)

    def called(command: str, **known: str) -> object:
        text = command.replace("http://127.0.0.1:8000", service.address)
        for name, value in known.items():
            text = text.replace(f"${name.upper()}", value)
        done = subprocess.run(
            ["bash", "-c", text.replace("curl", "curl -s")], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    (question,) = called(commands[0], owner=service.key)
    grant = commands[1].replace('"question": "…"', f'"question": "{question["question"]}"').replace("1.0", "4.0")
    analyst = called(grant, owner=service.key)["key"]
    (mine,) = called(commands[0].replace("$OWNER", "$ANALYST"), analyst=analyst)
    ask = commands[2].replace('"question": "…"', f'"question": "{mine["question"]}"')
    answer = called(ask.replace('"handle": "…"', f'"handle": "{mine["handles"][0]}"'), analyst=analyst)
    assert len(answer["answer"]) == mine["entries"]
    assert service.stop() == 0
