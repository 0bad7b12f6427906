"""Every command of README, tutorial, how-to and service page is run, on files like those they name."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import shoal
from shoal.product.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/howto.md", "docs/service.md")
#: Quick settings for what a page leaves at its default.
SMALL = ["--horizon", "4", "--set", "order=2,1"]


def commands(page: str) -> list[list[str]]:
    """The commands in blocks of shell and in the text of a page, in order; DIR, METERS and TABLE are not commands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL))
    lines = [line.strip() for line in blocks.splitlines() if line.strip().startswith("shoal ")]
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines += [" ".join(found.split()) for found in re.findall(r"`(shoal [^`]+)`", prose)]
    found = [shlex.split(line, comments=True)[1:] for line in lines]
    return [words for words in found if not any(re.fullmatch(r"[A-Z]{3,}|…|\.\.\.|.*…", word) for word in words)]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every file that the pages name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))
    homes = shoal.simulate_meters(24, 18, seed=1)
    for name in ("meters", "january", "monday"):
        homes.filter(pl.col("timestamp") < datetime(2024, 1, 17)).write_csv(f"{name}.csv")
    homes.write_csv("tuesday.csv")
    values = {f"h{hour}": [float(hour + i) for i in range(24)] for hour in range(4)}
    pl.DataFrame({"home": [f"K{i}" for i in range(24)], **values}).write_csv("hours.csv")
    nine = pl.DataFrame({"speaker": [f"s{i}" for i in range(9)], "pitch": [float(i) for i in range(9)]})
    nine.write_csv("voices.csv")
    pl.DataFrame({"person": [f"P{i}" for i in range(12)], "age": [20.0 + i for i in range(12)]}).write_csv("people.csv")
    nixtla = pl.DataFrame({"unique_id": [f"H{i}" for i in range(24)], "AutoARIMA": [float(i) for i in range(24)]})
    hours = pl.DataFrame({"ds": [datetime(2024, 1, 1, hour) for hour in range(4)]})
    nixtla.join(hours, how="cross").write_csv("forecasts.csv")
    return tmp_path


def _last(words: list[str]) -> bool:
    """The ledger is looked at after the runs that it is about."""
    return words[0] == "ledger"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_runs(page: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr("shoal.product.service.application.serve", lambda folder, **_: served.append(folder))
    monkeypatch.setitem(shoal.__dict__, "serve", lambda folder, **_: served.append(folder))
    known = sorted((words for words in commands(page) if len(words) > 1 or words == ["demo"]), key=_last)
    assert known
    for words in known:
        small = SMALL if words[0] in ("run", "check", "demo") and not {"--label", *SMALL} & set(words) else []
        small = [*small, "--households", "24"] if words == ["demo"] else small
        done = CliRunner().invoke(app, [*words, *small])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, (words, done.stderr[-1500:])


def test_make_knows_every_target_that_a_page_names() -> None:
    """They set up an environment, so they are read here and not run; what they call is tested by itself."""
    if shutil.which("make") is None:
        pytest.skip("no make")
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    targets = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)\b", text, flags=re.MULTILINE))
    assert {"demo", "test"} <= targets
    for target in sorted(targets):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, (target, done.stderr)
        if target == "demo":
            assert "shoal demo --out out/demo" in done.stdout


@pytest.mark.parametrize("name", ["voices", "physiology", "heating"])
def test_an_example_without_its_data_or_packages_says_what_it_needs(name: str, tmp_path: Path) -> None:
    """From a clean clone, with nothing beside it: one sentence, not a traceback."""
    copy = tmp_path / "clone" / "docs" / "examples"
    copy.mkdir(parents=True)
    for file in (ROOT / "docs" / "examples").glob("*.py"):
        (copy / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    code = (
        "import runpy, sys\n"
        "for name in ('aeon', 'pyts'):\n"
        "    sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(copy)!r})\n"
        f"runpy.run_path({str(copy / name)!r} + '.py', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"{name}.py needs" in done.stderr
