"""The page in a real browser: it loads, draws, answers to pointer and keyboard, and fits a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_cases import NASTY, hostile
from report_page import write_report

By = pytest.importorskip("selenium.webdriver.common.by").By
ActionChains = pytest.importorskip("selenium.webdriver").ActionChains
Keys = pytest.importorskip("selenium.webdriver").Keys
Select = pytest.importorskip("selenium.webdriver.support.ui").Select

DESKTOP, PHONE = (1280, 900), (390, 844)


@pytest.fixture
def opened(browser: Any, written: Path) -> Iterator[Callable[..., Any]]:
    """Open the page at a size and a color scheme."""

    def open_page(size: tuple[int, int] = DESKTOP, *, dark: bool = False, path: Path = written) -> Any:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        browser.get_log("browser")
        browser.get(path.as_uri())
        return browser

    yield open_page
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def _screenshot(page: Any, path: Path, height: int) -> None:
    import base64

    width = page.execute_script("return document.documentElement.clientWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = page.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    path.write_bytes(base64.b64decode(shot["data"]))
    assert path.stat().st_size > 20_000


def _settled(page: Any) -> None:
    """Wait until what was asked for has been drawn, and the page has heard of its scrolling."""
    page.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")


def _inside(page: Any, selector: str) -> Any:
    """Bring an element to the middle of the window, so that a pointer needs no scrolling to reach it."""
    found = page.find_element(By.CSS_SELECTOR, selector)
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found)
    _settled(page)
    return found


def _hover(page: Any, node: Any, x: float = 0.0) -> None:
    """Move the pointer to a share x of the way from the middle of an element to its right edge."""
    box = node.rect
    ActionChains(page).move_to_element_with_offset(node, int(x * box["width"] / 2), 3).perform()


def test_loads_without_a_word_on_the_console_and_without_the_network(opened: Callable[..., Any]) -> None:
    page = opened()
    assert page.get_log("browser") == []
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert page.title == "A simulated neighborhood"


@pytest.mark.parametrize("key", ["curves", "frontier", "answers", "accuracy", "attack"])
def test_lines_are_drawn_with_points(opened: Callable[..., Any], key: str) -> None:
    """δ(ε) is level from point to point, budgets that were tried are points alone, all else is joined."""
    page = opened()
    paths = page.find_elements(By.CSS_SELECTOR, f"#{key} .plot > svg path.curve")
    assert bool(paths) is (key != "frontier")
    for path in paths:
        commands = path.get_attribute("d")
        assert commands.count("H" if key in ("curves", "attack") else "L") >= 3
        assert ("L" in commands) is (key not in ("curves", "attack"))
        assert "NaN" not in commands
        assert path.rect["width"] > 20
    points = page.find_elements(By.CSS_SELECTOR, f"#{key} .plot > svg path.dot")
    assert len(points) >= 4
    assert all("NaN" not in point.get_attribute("d") for point in points)
    keys = page.find_elements(By.CSS_SELECTOR, f"#{key} .legend svg.key")
    looks = {tuple(part.get_attribute("d") for part in one.find_elements(By.TAG_NAME, "path")) for one in keys}
    assert len(looks) == len(keys) >= 2  # told apart without color


def test_every_figure_holds_a_plot_and_a_table(opened: Callable[..., Any]) -> None:
    page = opened()
    figures = page.find_elements(By.CSS_SELECTOR, "figure")
    assert len(figures) >= 9
    for figure in figures:
        assert figure.find_elements(By.CSS_SELECTOR, ".plot svg, .plot .bars")
        assert figure.find_elements(By.CSS_SELECTOR, ".numbers table tbody tr")
        assert figure.find_element(By.CSS_SELECTOR, "[role=img]").get_attribute("aria-label")


def test_hover_shows_the_value_that_the_card_states(opened: Callable[..., Any], release: dict[str, Any]) -> None:
    page = opened()
    tip = page.find_element(By.ID, "tip")
    assert not tip.is_displayed()
    curve = release["card"].to_dict()["curve"]
    _hover(page, _inside(page, "#curves svg"), 0.95)
    assert tip.is_displayed()
    assert f"ε: {curve['epsilon'][-1]:g}" in tip.text
    assert f"{curve['delta'][-1]:.4g}" in tip.text
    _hover(page, page.find_element(By.CSS_SELECTOR, "#curves figcaption"))
    assert not tip.is_displayed()


def test_arrow_keys_read_the_points(opened: Callable[..., Any], release: dict[str, Any]) -> None:
    page = opened()
    tip = page.find_element(By.ID, "tip")
    svg = _inside(page, "#curves svg")
    svg.send_keys(Keys.ARROW_RIGHT)
    assert "ε: 0" in tip.text
    svg.send_keys(Keys.ARROW_RIGHT)
    assert f"ε: {release['card'].to_dict()['curve']['epsilon'][1]:g}" in tip.text
    svg.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_legend_hides_and_shows_a_line(opened: Callable[..., Any]) -> None:
    page = opened()

    def drawn() -> set[str]:
        return {
            p.get_attribute("data-series")
            for p in page.find_elements(By.CSS_SELECTOR, "#curves .plot > svg path.curve")
        }

    before = drawn()
    assert "equal noise" in before
    button = next(b for b in page.find_elements(By.CSS_SELECTOR, "#curves .legend button") if b.text == "equal noise")
    _inside(page, "#curves .legend")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert drawn() == before - {"equal noise"}
    button.click()
    assert drawn() == before


def test_heat_map_names_both_homes_of_a_cell(opened: Callable[..., Any], release: dict[str, Any]) -> None:
    page = opened()
    cell = _inside(page, "#edges svg rect.cell")
    ActionChains(page).move_to_element(cell).perform()
    tip = page.find_element(By.ID, "tip")
    first, second = tip.text.splitlines()[0].split(" rather than ")
    assert release["graph"].has_edge(first, second)
    cells = len(page.find_elements(By.CSS_SELECTOR, "#edges svg rect.cell"))
    Select(page.find_element(By.CSS_SELECTOR, "#edges select")).select_by_index(3)
    assert len(page.find_elements(By.CSS_SELECTOR, "#edges svg rect.cell")) != cells


def test_another_home_can_be_chosen(opened: Callable[..., Any], release: dict[str, Any]) -> None:
    page = opened()
    select = Select(page.find_element(By.CSS_SELECTOR, "#answers select"))
    assert len(select.options) == 30

    def line() -> str:
        return str(page.find_element(By.CSS_SELECTOR, '#answers svg path[data-series="released"]').get_attribute("d"))

    before = line()
    select.select_by_visible_text("H0007")
    assert line() != before
    i = release["mechanism"].classes.labels.index("H0007")
    row = page.find_elements(By.CSS_SELECTOR, "#answers .numbers tbody tr")[-1]
    shown = [cell.get_attribute("textContent") for cell in row.find_elements(By.TAG_NAME, "td")]
    power = release["forecasts"].to_power(release["released"][i])[-1]
    assert float(shown[-1]) == pytest.approx(power, rel=5e-3)


def test_a_hostile_name_stays_text(opened: Callable[..., Any], tmp_path: Path) -> None:
    page = opened(path=write_report(tmp_path / "hostile.html", **hostile()))
    assert NASTY in [option.text for option in Select(page.find_element(By.CSS_SELECTOR, "#answers select")).options]
    assert page.find_elements(By.TAG_NAME, "img") == []
    assert page.title == NASTY
    assert page.get_log("browser") == []


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


@pytest.mark.parametrize("size", [DESKTOP, PHONE, (320, 640)])
@pytest.mark.parametrize("wide_names", [False, True])
def test_nothing_reaches_beyond_the_screen(
    opened: Callable[..., Any], written: Path, tmp_path: Path, size: tuple[int, int], wide_names: bool
) -> None:
    path = write_report(tmp_path / "hostile.html", **hostile()) if wide_names else written
    page = opened(size, path=path)
    page.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert page.execute_script("return document.documentElement.scrollWidth") <= size[0]


def test_plots_follow_the_width(opened: Callable[..., Any]) -> None:
    page = opened()
    wide = page.find_element(By.CSS_SELECTOR, "#curves svg").rect["width"]
    metrics = {"width": PHONE[0], "height": PHONE[1], "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    _settled(page)
    svg = page.find_element(By.CSS_SELECTOR, "#curves svg")
    assert svg.rect["width"] < wide
    assert float(svg.get_dom_attribute("viewBox").split()[2]) == pytest.approx(svg.rect["width"], abs=1)


def test_screenshots(opened: Callable[..., Any], pictures: Path) -> None:
    _screenshot(opened(), pictures / "report-desktop.png", 2600)
    _screenshot(opened(PHONE), pictures / "report-phone.png", 2600)


def test_a_report_of_little_loads_too(opened: Callable[..., Any], required: dict[str, Any], tmp_path: Path) -> None:
    page = opened(path=write_report(tmp_path / "little.html", **required))
    assert page.get_log("browser") == []
    assert "shoal.audit" in page.find_element(By.ID, "attack").text
    assert "shoal.Ledger" in page.find_element(By.ID, "ledger").text
