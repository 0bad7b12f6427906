"""Nothing rests on what only Unix has: its modules, its time zones, its encoding."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.files import is_disk_full
from shoal.product import workers

BLOCKED = ("fcntl", "resource", "pwd", "grp", "termios")
CODE = f"""
import sys
for name in {BLOCKED!r}:
    sys.modules[name] = None
import shoal
settings = dict(order=(1, 1), train_days=7, horizon=3, crowd=4)
run = shoal.Run(sys.argv[1], shoal.SimulatedMeters(12, 8, 60), workers="serial", **settings)
run.do_all_stages("release")
assert len(run.released)
import shoal.product.service.application
with run.hold_folder():
    try:
        with shoal.Run(sys.argv[1]).hold_folder():
            raise SystemExit("held twice")
    except shoal.InputError:
        pass
with shoal.Run(sys.argv[1]).hold_folder():
    print("done")
"""


def test_a_run_without_what_only_unix_has(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("done")


COMMAND = f"""
import sys, warnings
for name in {BLOCKED!r}:
    sys.modules[name] = None
warnings.filterwarnings("error", category=EncodingWarning, module="shoal")
from shoal.__main__ import run
run()
"""
DEMO = ("demo", "--households", "12", "--crowd", "4", "--train-days", "7", "--set", "order=1,1", "--workers", "serial")


def command(encoding: str, *arguments: object) -> tuple[int, bytes, bytes]:
    """``shoal`` where neither those modules nor UTF-8 nor the system's time zones are there."""
    bare = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"}
    if encoding == "ascii":
        bare |= {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    if importlib.util.find_spec("tzdata") is not None:  # which a system without zones gets
        bare["PYTHONTZPATH"] = ""
    line = [sys.executable, "-X", "warn_default_encoding", "-c", COMMAND, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, env=os.environ | bare)
    return done.returncode, done.stdout, done.stderr


def test_the_demo_on_a_bare_console(tmp_path: Path) -> None:
    """What the console has no letters for is written with their numbers; JSON stays JSON, in letters that all have."""
    code, _, said = command("ascii", *DEMO, "--verbose", "--out", tmp_path / "demo")
    assert code == 0, said
    code, text, said = command("cp1252", *DEMO, "--out", tmp_path / "démo", "--json")
    assert code == 0, said
    assert "démo" in str(json.loads(text.decode("ascii")))
    code, text, said = command("cp1252", "run", "--help")
    assert (code, b"--epsilon" in text) == (0, True), said


def test_a_full_disk_as_polars_tells_it_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("underlying IO error: There is not enough space on the disk. (os error 112)")
    assert not is_disk_full(error)  # elsewhere this number is that of a host that is down
    monkeypatch.setattr(sys, "platform", "win32")
    assert is_disk_full(error)


def test_windows_gets_no_more_workers_than_it_can_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert [workers.Processes(number).workers for number in (2, 61, 96)] == [2, 61, 61]


def test_text_files_name_their_encoding() -> None:
    source = Path(__file__).parents[2] / "src"
    texts = {path: path.read_text(encoding="utf-8") for path in source.rglob("*.py")}
    calls = [
        (path.name, call) for path, text in texts.items() for call in re.findall(r"\b(?:read|write)_text\(.*", text)
    ]
    assert len(calls) > 5
    assert [place for place in calls if "encoding=" not in place[1]] == []


def test_no_module_imports_them() -> None:
    source = Path(__file__).parents[2] / "src"
    wrong = [
        (path.name, line)
        for path in source.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if any(line.strip().startswith((f"import {name}", f"from {name} ")) for name in BLOCKED)
        and "resources" not in line
    ]
    assert wrong == []
