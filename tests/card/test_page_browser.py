"""The pages in a real browser: they load, the search finds everybody, they fit a phone and a sheet of paper."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from card_cases import NASTY

import shoal
from shoal.product.studies.findings import QUESTIONS, Finding, Study

By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver").Keys

DESKTOP, PHONE, NARROW = (1280, 900), (390, 844), (320, 640)
PAGES = ("report.html", "public/report.html", "board.html", "annex.html", "attack.html")
#: The same of a release under a method, without the sheets of a study.
DRAWN = tuple(f"drawn/{name}" for name in PAGES[:-1])


@pytest.fixture(scope="module")
def folder(means: shoal.Run, certified: shoal.Run) -> dict[bool, Path]:
    """Where the pages of a default release are, with the findings of a study, and those of one under a method."""
    every = [
        Finding(question, release, f"a fact that is looked for, number {number}, in some detail", measure,
                0.71, (0.61, 0.8), 0.5, 486, 0.12, None if number else 0.75)
        for question in QUESTIONS
        for number in range(8 if question == "inference" else 1)
        for release in ("raw readings", "unprotected forecasts", "averages")
        for measure in ("share right", "area under the curve")[: 2 if number else 1]
    ]  # fmt: skip
    lines = ("One sentence about what was assumed, or was not looked at.",) * 3
    Study("486 homes, readings every quarter of an hour.", 486, tuple(every), lines, lines).save(means.path)
    means.explain(attack=means.path / "attack.json")
    certified.explain()
    return {False: means.path, True: certified.path}


@pytest.fixture
def opened(browser: Any, folder: dict[bool, Path]) -> Iterator[Callable[..., Any]]:
    """Open a page at a size and a color scheme."""

    def open_page(name: str = "report.html", size: tuple[int, int] = DESKTOP, *, dark: bool = False) -> Any:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        browser.get_log("browser")
        browser.get((folder[name in DRAWN] / name.removeprefix("drawn/")).as_uri())
        return browser

    yield open_page
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("name", PAGES)
def test_loads_without_a_word_on_the_console_and_without_the_network(opened: Callable[..., Any], name: str) -> None:
    page = opened(name)
    assert page.get_log("browser") == []
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert page.title == ("Singling out, linkability, inference" if name == "attack.html" else "A street")
    assert page.find_elements(By.TAG_NAME, "img") == []


def test_the_search_finds_every_household(opened: Callable[..., Any], means: shoal.Run) -> None:
    page = opened()
    crowd = dict(means.released.select("household", "crowd").unique().iter_rows())
    find, seen = page.find_element(By.ID, "find"), page.find_element(By.ID, "seen")
    names = sorted(crowd)
    for name in [*names[:6], NASTY]:
        find.clear()
        find.send_keys(name)
        assert seen.text.startswith(f"{name}: crowd {crowd[name]}, off by "), name
        shown = [p for p in page.find_elements(By.CSS_SELECTOR, ".panel") if p.is_displayed()]
        assert [int(p.get_attribute("data-crowd")) for p in shown] == [crowd[name]]
        marked = page.find_elements(By.CSS_SELECTOR, "path.member.marked")
        assert [path.get_attribute("data-name") for path in marked] == [name]
    found = page.execute_script(
        """const find = document.getElementById("find"), seen = document.getElementById("seen"), out = [];
        for (const name of arguments[0]) {
          find.value = name; find.dispatchEvent(new Event("input")); out.push(seen.textContent);
        }
        return out;""",
        names,
    )
    assert all(text.startswith(f"{name}: crowd {crowd[name]}") for name, text in zip(names, found, strict=True))
    find.clear()
    find.send_keys("nobody at all")
    assert "No member" in seen.text
    page.find_element(By.ID, "clear").click()
    assert seen.text == ""


def test_the_keyboard_reaches_everything(opened: Callable[..., Any]) -> None:
    page = opened()
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert page.switch_to.active_element.get_attribute("class") == "skip"
    seen = set()
    for _ in range(12):
        page.switch_to.active_element.send_keys(Keys.TAB)
        seen.add(page.switch_to.active_element.get_attribute("id") or page.switch_to.active_element.tag_name)
    assert {"theme", "find", "clear", "summary"} <= seen


def test_dark_and_light(opened: Callable[..., Any]) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    light = opened().execute_script(background)
    page = opened(dark=True)
    dark = page.execute_script(background)
    assert light != dark
    page.find_element(By.ID, "theme").click()
    assert page.execute_script(background) == light
    page.find_element(By.ID, "theme").click()
    assert page.execute_script(background) == dark


@pytest.mark.parametrize("size", [DESKTOP, PHONE, NARROW])
@pytest.mark.parametrize("name", PAGES + DRAWN)
def test_nothing_reaches_beyond_the_screen(opened: Callable[..., Any], name: str, size: tuple[int, int]) -> None:
    page = opened(name, size)
    page.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert page.execute_script("return document.documentElement.scrollWidth") <= size[0]


@pytest.mark.parametrize("size", [PHONE, NARROW])
def test_no_table_of_the_owner_is_cut_off_on_a_phone(opened: Callable[..., Any], size: tuple[int, int]) -> None:
    """The table of those whose rows are least accurate lost its last column."""
    page = opened("report.html", size)
    wide = page.execute_script(
        """return [...document.querySelectorAll(".scroll")].filter(
             (part) => part.scrollWidth > part.clientWidth).map((part) => part.getAttribute("aria-label"));"""
    )
    assert wide == []


def test_small_charts_have_a_time_axis(opened: Callable[..., Any], means: shoal.Run) -> None:
    page = opened("report.html")
    stamps = means.released["timestamp"].unique().sort()
    for panel in page.find_elements(By.CSS_SELECTOR, ".panel")[:3]:
        _, first, last = (span.text for span in panel.find_elements(By.CSS_SELECTOR, ".axis span"))
        assert (first, last) == (f"{stamps[0]:%H:%M}", f"{stamps[-1]:%H:%M}")
        marks = panel.find_element(By.CSS_SELECTOR, "path.marks").get_attribute("d")
        assert marks.count("M") == 1 + len(stamps)  # the line, and a mark for each step


def test_the_board_page_and_the_annex_have_what_attacks_found(folder: dict[bool, Path]) -> None:
    board, annex = ((folder[False] / name).read_text(encoding="utf-8") for name in ("board.html", "annex.html"))
    assert "What did attacks find?" in board
    assert board.count("a guess 50 %") + board.count("a guess 0.5") == 9
    for chapter in ("singling-out", "linkability", "inference"):
        inside = annex.partition(f'<section id="{chapter}">')[2].partition("</section>")[0]
        assert "to 80.1 %" in inside or "to 80 %" in inside


@pytest.mark.parametrize(("name", "sheets"), [("board.html", 1), ("attack.html", 2)])
def test_pages_print_on_their_sheets(opened: Callable[..., Any], name: str, sheets: int) -> None:
    page = opened(name)
    printed = page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    content = base64.b64decode(printed["data"])
    assert content.count(b"/Type /Page\n") + content.count(b"/Type /Page/") <= sheets


def test_screenshots(opened: Callable[..., Any], pictures: Path) -> None:
    for name, size in (("report-desktop.png", DESKTOP), ("report-phone.png", PHONE)):
        page = opened("report.html", size)
        clip = {"x": 0, "y": 0, "width": size[0], "height": 2600, "scale": 1}
        shot = page.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        (pictures / name).write_bytes(base64.b64decode(shot["data"]))
        assert (pictures / name).stat().st_size > 20_000


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", PAGES + DRAWN)
def test_axe_reports_nothing(opened: Callable[..., Any], name: str, dark: bool) -> None:
    axe_core = pytest.importorskip("axe_core_python.selenium")
    page = opened(name, PHONE, dark=dark)
    page.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    page = opened(name, dark=dark)
    found = axe_core.Axe().run(page)
    page.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found["violations"]] == []
