"""Kills at every durable step of a run: what is given again records and charges once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import durable_steps
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("case", durable_steps.CASES)
def test_kills_at_every_durable_step(tmp_path: Path, case: str) -> None:
    ended = subprocess.run(
        [sys.executable, durable_steps.__file__, str(tmp_path), case],
        env={**os.environ, "SHOAL_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert int(ended.stdout) > 40
