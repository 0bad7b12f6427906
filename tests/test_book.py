"""The site that ``make docs`` builds: every page whole, nothing from other hosts, search without a server."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from markdown_it import MarkdownIt

pytest.importorskip("zensical", reason="no site without Zensical: pip install 'shoal[docs]'")

ROOT = Path(__file__).parents[1]
OUTSIDE = {"index": "README.md", "benchmarks": "benchmarks/README.md", "changelog": "CHANGELOG.md"}


def _book() -> ModuleType:
    spec = importlib.util.spec_from_file_location("book", ROOT / "docs" / "book.py")
    assert spec is not None
    assert spec.loader is not None
    book = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(book)
    return book


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as strictly as by ``make docs``: a broken link, a missing anchor or a page left out is an error."""
    return Path(_book().build(tmp_path_factory.mktemp("book")))


@pytest.mark.parametrize("fault", ["[a](gone.md)", "[a](#nowhere)", "a page that is not in the order"])
def test_a_faulty_page_is_an_error(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = _book()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(f"# Page\n\n{fault}\n")
    order = "[other.md]" if "order" in fault else "[page.md]"
    (tmp_path / "mkdocs.yml").write_text(f"site_name: shoal\ndocs_dir: pages\nsite_dir: site\nnav: {order}\n")
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "OUTSIDE", {})
    with pytest.raises((SystemExit, book.subprocess.CalledProcessError)):
        book.build(tmp_path / "out")


def _article(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return text[text.index("<article") : text.index("</article")]


def test_every_page_has_all_its_lists_tables_and_pictures(site: Path) -> None:
    """As many of each as another reader of Markdown finds: a list that lacks its blank line would be a paragraph."""
    markdown = MarkdownIt("commonmark").enable("table")
    sources = {page.relative_to(site).with_suffix("").as_posix(): page for page in site.rglob("*.html")}
    del sources["404"]
    assert len(sources) >= 20
    for name, page in sources.items():
        source = ROOT / OUTSIDE.get(name, f"docs/{name}.md")
        if not source.exists():
            source = ROOT / f"{name.upper()}.md"
        wanted = markdown.render(source.read_text(encoding="utf-8"))
        for tag in ("li", "ol", "td", "pre", "h2", "img"):
            assert len(re.findall(f"<{tag}[ >]", _article(page))) == len(re.findall(f"<{tag}[ >]", wanted)), (name, tag)


def test_nothing_comes_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert pages
    loaded = [
        m for page in pages for m in re.findall(r"<(?:link|script|img)[^>]*(?:src|href)=\"([^\"]+)", page.read_text())
    ]
    assert [address for address in loaded if "//" in address] == []


def test_formulas_are_raised_and_lowered_and_names_are_not(site: Path) -> None:
    theory = _article(site / "theory.html")
    for formula in ("P<sub>X'</sub>(S)", "e<sup>ε/h</sup>", "Σ<sub>X</sub>", "T<sup>-1</sup>(μ' − μ)"):
        assert formula in theory
    assert "n_edges" in _article(site / "reference.html")


def test_search_needs_no_server(site: Path, browser: Any) -> None:
    by = pytest.importorskip("selenium.webdriver.common.by").By.CSS_SELECTOR
    wait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait(browser, 60)
    browser.set_window_size(1300, 900)
    browser.get((site / "index.html").as_uri())
    wait.until(lambda page: page.execute_script("return document.readyState") == "complete")
    browser.find_element(by, ".md-search__button").click()
    dialog = (
        "[...document.querySelectorAll('*')].map(e => e.shadowRoot).find(r => r?.querySelector('dialog[open] input'))"
    )
    box = wait.until(lambda page: page.execute_script(f"return {dialog}?.querySelector('input')"))
    box.send_keys("saddle point")
    results = f"return [...{dialog}.querySelectorAll('ol a')].map(a => a.href)"
    wait.until(lambda page: any("theory.html?h=saddle" in link for link in page.execute_script(results)))
