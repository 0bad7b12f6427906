"""The site that ``make docs`` builds: every page whole, nothing from other hosts, search without a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

pytest.importorskip("material", reason="no site without mkdocs-material: pip install 'shoal[docs]'")

ROOT = Path(__file__).parents[1]
OUTSIDE = {"index": "README.md", "benchmarks": "benchmarks/README.md", "changelog": "CHANGELOG.md"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as strictly as by ``make docs``: a broken link, a missing anchor or a page left out is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


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
    browser.get((site / "index.html").as_uri())
    wait.until(lambda page: page.execute_script("return document.readyState") == "complete")
    box = browser.find_element(by, ".md-search__input")
    browser.execute_script("arguments[0].focus()", box)
    box.send_keys("saddle point")
    found = wait.until(lambda page: page.find_elements(by, ".md-search-result__link"))
    assert any("theory.html" in link.get_attribute("href") for link in found)
