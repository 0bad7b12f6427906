"""What is published: a small wheel with all that a run reads, the same bytes whenever it is built."""

from __future__ import annotations

import os
import shutil
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

buildapi = pytest.importorskip("flit_core.buildapi", reason="no build without flit_core: pip install 'shoal[test]'")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _build(checkout: Path, age: int, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bytes]:
    """Wheel and source archive from a copy of the package whose files are ``age`` seconds old."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (checkout / name).write_bytes((ROOT / name).read_bytes())
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for file in checkout.rglob("*"):
        os.utime(file, (1_700_000_000 - age,) * 2)
    monkeypatch.chdir(checkout)
    (checkout / "dist").mkdir()
    wheel, source = buildapi.build_wheel("dist"), buildapi.build_sdist("dist")
    return (checkout / "dist" / wheel).read_bytes(), (checkout / "dist" / source).read_bytes()


def test_builds_have_the_same_bytes_and_a_wheel_within_a_megabyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    checkouts = [tmp_path / "first", tmp_path / "second"]
    for checkout in checkouts:
        checkout.mkdir()
    first, second = (_build(checkout, age, monkeypatch) for age, checkout in enumerate(checkouts))
    assert first == second
    assert len(first[0]) <= 1_000_000
    (wheel,) = (checkouts[0] / "dist").glob("*.whl")
    packed = {name.removeprefix("shoal/") for name in zipfile.ZipFile(wheel).namelist() if name.startswith("shoal/")}
    package = ROOT / "src" / "shoal"
    files = {
        p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts
    }
    assert packed == files


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == PROJECT["version"]
    python, *packages = recipe["requirements"]["run"]
    assert python == f"python {PROJECT['requires-python']}"
    taken = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["run"]
    needs = {Requirement(need).name: need.partition(";")[0] for need in taken}  # the stricter is last
    needs["tzdata"] = f"python-{needs['tzdata']}"
    assert [package.replace(" ", "") for package in packages] == list(needs.values())


def test_the_lock_file_has_what_the_package_and_its_tests_need() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    locked = [Requirement(line.rstrip(" \\")) for line in lines if "==" in line and line[0] not in "# "]
    versions = {canonicalize_name(one.name): [] for one in locked}  # by system or Python there may be several
    for one in locked:
        versions[canonicalize_name(one.name)] += [spec.version for spec in one.specifier]
    extras = PROJECT["optional-dependencies"]
    needs = [Requirement(need) for need in PROJECT["dependencies"] + extras["test"]]
    for need in needs:
        if need.name == "shoal":
            needs += [Requirement(inner) for extra in need.extras for inner in extras[extra]]
    lacking = [
        str(need)
        for need in needs
        if need.name != "shoal"
        and not (
            (known := versions.get(canonicalize_name(need.name)))
            and all(need.specifier.contains(version, prereleases=True) for version in known)
        )
    ]
    assert lacking == []


def test_the_citation_names_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"]
