"""The pages in Chromium: from the first key to an answer, by keyboard, on a phone, light and dark, axe clean."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from live import threaded

from shoal.product.service.application import make_application
from shoal.product.service.questions import QuestionService

By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver").Keys
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
WebDriverException = pytest.importorskip("selenium.common.exceptions").WebDriverException
staleness_of = pytest.importorskip("selenium.webdriver.support.expected_conditions").staleness_of
AXE = pytest.importorskip("axe_core_python.base", reason="axe-core-python is not installed").AXE_FILE_PATH
ROOT = Path(__file__).parents[2]
#: What the documentation shows.
SHOWN = {("people", "desktop"), ("owner", "desktop"), ("answer", "desktop"), ("answer", "phone")}


def test_from_key_to_answer(browser: Any, desk: QuestionService, tmp_path: Path) -> None:
    pictures = ROOT / "docs" / "pictures" if os.environ.get("SHOAL_SCREENSHOTS") == "1" else tmp_path
    axe, chrome = Path(AXE).read_text(), browser

    def followed(element: Any, *keys: str) -> None:
        """Send the keys, or click, and wait until another page is there in full."""
        before = chrome.find_element(By.TAG_NAME, "html")
        element.send_keys(*keys) if keys else element.click()
        # While one page gives way to the next, Chromium may answer with any error at all.
        patient = WebDriverWait(chrome, 60, ignored_exceptions=[WebDriverException])
        patient.until(staleness_of(before))
        patient.until(lambda one: one.execute_script("return document.readyState") == "complete")

    def sign_in(key: str) -> None:
        chrome.delete_all_cookies()
        chrome.get(f"{address}/")
        followed(chrome.find_element(By.ID, "key"), key, Keys.ENTER)

    def sized(width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def looked(name: str) -> None:
        """No findings, no horizontal scrolling, at both widths, light and dark; a picture of each."""
        for width, kind, scheme in ((1100, "desktop", "light"), (390, "phone", "light"), (390, "phone", "dark")):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            sized(width, 900)
            chrome.execute_script(axe)
            found = chrome.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
            assert [one["id"] for one in found["violations"]] == [], (name, kind, scheme)
            assert chrome.execute_script("return document.documentElement.scrollWidth") <= width, (name, kind)
            cut = "return [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
            assert chrome.execute_script(cut) == 0, (name, kind)
            height = min(chrome.execute_script("return document.documentElement.scrollHeight"), 2000)
            sized(width, height)
            where = pictures if (name, kind) in SHOWN and scheme == "light" else tmp_path
            shade = "" if scheme == "light" else "-dark"
            chrome.save_screenshot(str(where / f"service-{name}-{kind}{shade}.png"))
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def text() -> str:
        return str(chrome.find_element(By.TAG_NAME, "main").text)

    def page(name: str) -> None:
        followed(chrome.find_element(By.LINK_TEXT, name))

    first = desk.register.first_key()
    assert first is not None
    with threaded(make_application(desk)) as address:
        chrome.get(f"{address}/")
        looked("sign-in")
        sign_in("shoal_o_wrong")
        assert "not a key" in chrome.find_element(By.CSS_SELECTOR, ".notice").text
        sign_in(first.text)
        assert "Admit an analyst first" in text()
        page("People and keys")
        followed(chrome.find_element(By.ID, "name"), "ada", Keys.ENTER)
        shown = chrome.find_element(By.CSS_SELECTOR, ".secret")
        key = shown.text
        assert desk.register.key_holder(key) is not None  # on one line or two, and whole
        assert shown.size["height"] < 100
        looked("people")
        sign_in(key)
        assert "What the data owner can grant you" in text()
        looked("analyst")
        sign_in(first.text)
        epsilon = chrome.find_element(By.ID, "epsilon")
        epsilon.clear()
        epsilon.send_keys("1")
        followed(chrome.find_element(By.ID, "expires"), Keys.ENTER)
        sign_in(key)
        followed(chrome.find_element(By.CSS_SELECTOR, "article h3 a"))
        assert "It would be refused: the budget of your grant" in text()
        followed(chrome.find_element(By.CSS_SELECTOR, "button.main"))
        assert "Refused" in chrome.find_element(By.TAG_NAME, "h1").text
        assert "the budget of your grant" in chrome.find_element(By.CSS_SELECTOR, ".notice").text
        sign_in(first.text)
        assert "Too small: refused 1 time" in chrome.find_element(By.CSS_SELECTOR, ".refused").text
        epsilon = chrome.find_element(By.ID, "epsilon")
        epsilon.clear()
        epsilon.send_keys("4")
        followed(chrome.find_element(By.ID, "expires"), Keys.ENTER)
        looked("owner")
        sign_in(key)
        followed(chrome.find_element(By.CSS_SELECTOR, "article h3 a"))
        assert "costs" in text()
        followed(chrome.find_element(By.CSS_SELECTOR, "button.main"))
        assert "Answer for" in chrome.find_element(By.ID, "answer").text
        assert "The table to pass on" in text()
        looked("answer")
        page("Your keys")
        looked("keys")
        chrome.get(f"{address}/no-such-page")
        assert "There is no such thing here" in chrome.find_element(By.TAG_NAME, "h1").text
        looked("error")
        sign_in(first.text)
        page("Ledger")
        followed(chrome.find_element(By.PARTIAL_LINK_TEXT, "Verify"))
        assert "intact" in chrome.find_element(By.CSS_SELECTOR, ".notice").text
        looked("ledger")
    codes = ("401", "403", "404")
    severe = [line["message"] for line in chrome.get_log("browser") if line["level"] == "SEVERE"]
    assert [message for message in severe if not any(code in message for code in codes)] == []
