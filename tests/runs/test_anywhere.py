"""Nothing rests on modules that only Unix has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BLOCKED = ("fcntl", "resource", "pwd", "grp", "termios")
CODE = f"""
import sys
for name in {BLOCKED!r}:
    sys.modules[name] = None
import shoal
settings = dict(order=(1, 1), train_days=7, horizon=3, crowd=4)
run = shoal.Run(sys.argv[1], shoal.SimulatedMeters(12, 8, 60), workers="serial", **settings)
run.everything("release")
assert len(run.released)
import shoal.service.server
with run.held():
    try:
        with shoal.Run(sys.argv[1]).held():
            raise SystemExit("held twice")
    except shoal.InputError:
        pass
with shoal.Run(sys.argv[1]).held():
    print("done")
"""


def test_a_run_without_what_only_unix_has(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("done")


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
