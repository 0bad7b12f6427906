"""What the documents say is executed: README code prints what it says, and links lead somewhere."""

from __future__ import annotations

import ast
import graphlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shoal
from shoal.designs.methods import METHODS
from shoal.product.card.promises import LADDER
from shoal.product.cli.main import app

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(r"\d+\.\d+")


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_readme_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (code,), (stated,) = _blocks(text, "python"), _blocks(text, "text")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    printed = done.stdout
    # Words must agree exactly; figures of a search may differ in the last digits between machines.
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", stated)
    found, wanted = NUMBER.findall(printed), NUMBER.findall(stated)
    assert [float(x) for x in found] == pytest.approx([float(x) for x in wanted], rel=0.02)


def test_readme_example_is_short() -> None:
    (code,) = _blocks((ROOT / "README.md").read_text(), "python")
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= 10


def test_the_readme_begins_with_what_it_is_and_has_the_ladder_of_the_product() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before = " ".join(text.split("\n# ")[0].split())
    assert before.startswith("**shoal** is differential privacy for class labels")
    assert "the paper of Ramakrishna, Scaglione, Wu, Ravi and Peisert" in before
    columns = ("step", "who is indistinguishable", "promise", "someone who knows all others", "command")
    steps = [(one.name, one.apart, one.promise, one.insider, f"`{one.command}`") for one in LADDER.values()]
    rows = [columns, *steps]
    assert [row for row in rows if f"| {' | '.join(row)} |" not in text] == []


def test_figures_of_the_readme_are_those_of_the_pages_it_links() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    evidence = (ROOT / "docs" / "evidence.md").read_text()
    shares = re.findall(r"[\d.]+% \(\d[\d.]*% to [\d.]+%\)", " ".join(readme.split()).replace(" %", "%"))
    assert len(shares) >= 3
    assert [share for share in shares if share not in evidence] == []
    opening = json.loads((ROOT / "evidence" / "results" / "opening.json").read_text(encoding="utf-8"))
    assert f"mean adds {opening['averages']:.2f} kW" in readme


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md"])


def _prose(page: Path) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """The anchors that a heading's words become, wherever the page is shown."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", found.lower()).replace(" ", "-")
        for found in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", _prose(page)):
        there = page.parent / target if target else page
        if "://" not in target and not (there.exists() and (not anchor or anchor in _anchors(there))):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_docstrings_cite_sections_that_exist() -> None:
    theory = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^###? ([\d.]*\d)", theory, flags=re.MULTILINE))
    cited = {
        section
        for path in (ROOT / "src").rglob("*.py")
        for section in re.findall(r"docs/theory\.md, section ([\d.]*\d)", " ".join(path.read_text("utf-8").split()))
    }
    assert cited
    assert cited <= sections


def test_the_glossary_is_short() -> None:
    """At most 25 words, none twice, each explained in one sentence."""
    rows = re.findall(r"^\| \*\*(.+?)\*\*.*? \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert 15 <= len(rows) <= 25
    assert len({word for word, _ in rows}) == len(rows)
    assert [word for word, text in rows if not text.endswith(".") or ". " in text] == []


def test_every_picture_is_on_a_page_once() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    shown = re.findall(r"!\[[^\]]+\]\((?:docs/)?pictures/([^)]+)\)", text)
    assert sorted(shown) == sorted(p.name for p in (ROOT / "docs" / "pictures").iterdir())


#: The library's rooms, then the product's: a room imports from those before it.
LIBRARY = [
    *("errors", "validation", "rounding", "files", "plaintext", "archive", "records", "columns", "numerics", "crowds"),
    *("laws", "accounting", "noise", "mechanism", "proofs", "designs", "audits", "testing", "arma", "readings"),
]
PRODUCT = ["workers", "ledger", "card", "sources", "studies", "runs", "service", "cli"]
ROOMS = LIBRARY + [f"product.{room}" for room in PRODUCT]


def _room(module: str) -> str:
    """The room of a module, with its floor where that is the product's."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["product"] else 1])


def _imports(path: Path) -> list[tuple[str, bool]]:
    """Modules that a file imports, but for type checkers, and whether at once rather than in a function."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, at_once: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((name.name, at_once) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            found.extend((f"{node.module}.{name.name}", at_once) for name in node.names)
            found.append((node.module, at_once))
        if isinstance(node, ast.If) and ast.dump(node.test) == ast.dump(ast.Name("TYPE_CHECKING", ast.Load())):
            return
        inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, at_once and not inside)

    visit(ast.parse(path.read_text()), True)
    return found


def _graph() -> dict[str, list[tuple[str, bool]]]:
    source = ROOT / "src" / "shoal"
    files = {".".join(("shoal", *p.relative_to(source).with_suffix("").parts)): p for p in source.rglob("*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    return {name: [(t, once) for t, once in _imports(path) if t in files] for name, path in files.items()}


def test_modules_import_downward_only() -> None:
    """A module imports from the rooms before its own, or from its own; types may be named upward."""
    wrong = []
    for name, targets in _graph().items():
        room = _room(name)
        for target, _ in targets:
            other = _room(target)
            if room in ROOMS and other in ROOMS and ROOMS.index(other) > ROOMS.index(room):
                wrong.append(f"{name} imports {target}")
    assert wrong == []
    rooms = {_room(name) for name in _graph()} - {"", "__main__", "product"}
    assert rooms == set(ROOMS), "every room has its place"


def test_no_two_modules_import_each_other() -> None:
    """Inside rooms too: the imports that happen at once have no cycle."""
    after = {name: {t for t, once in targets if once and t != name} for name, targets in _graph().items()}
    # A package is there before its modules; what its __init__ imports is what counts.
    list(graphlib.TopologicalSorter(after).static_order())


def test_comments_of_the_accounting_page_are_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(_blocks((ROOT / "docs" / "accounting.md").read_text(encoding="utf-8"), "python"))
    exec(code, {"__name__": "accounting"})
    printed = capsys.readouterr().out
    stated = "\n".join(re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)) + "\n"
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", stated)
    figures = ([float(x) for x in NUMBER.findall(text)] for text in (printed, stated))
    assert next(figures) == pytest.approx(next(figures), rel=1e-3)


def test_every_accounting_function_has_an_example() -> None:
    page = (ROOT / "docs" / "accounting.md").read_text(encoding="utf-8")
    names = [name for name, home in shoal._HOME.items() if home.startswith("shoal.accounting")]
    assert len(names) >= 7
    assert [name for name in names if f"shoal.{name}(" not in "".join(_blocks(page, "python"))] == []


def test_every_design_method_is_on_its_page() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert [name for name in METHODS if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("page", ["howto", "methods", "promise"])
def test_code_on_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec("\n".join(_blocks((ROOT / "docs" / f"{page}.md").read_text(), "python")), {"__name__": page})


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "owner.db"))  # one for all folders, as a reader has it
    (code,) = _blocks(text, "python")
    exec(code, {"__name__": "tutorial"})
    for line in "".join(_blocks(text, "sh")).splitlines():
        program, *arguments = line.split()
        assert program == "shoal"
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, (line, done.stderr[-1500:])
    assert (tmp_path / "first" / "report.html").stat().st_size > 10_000


def test_the_reference_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page()
    assert all(f"| `{name}` |  |" not in module.page() for name in module.shoal._HOME), "a name without a docstring"


def test_no_class_name_twice() -> None:
    """A class name means one thing in the package; the checker of proofs stands alone and is not counted."""
    source = ROOT / "src" / "shoal"
    homes: dict[str, list[str]] = {}
    for path in sorted(source.rglob("*.py")):
        if path.name == "checker.py":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(source)))
    assert {name for name, places in homes.items() if len(places) > 1} == set()
