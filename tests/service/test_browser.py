"""The pages in Chromium: from the first key to an approved answer, by keyboard, on a phone, without findings of axe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from live import threaded

from shoal.service.application import application
from shoal.service.desk import Desk
from shoal.service.pages import pages

By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver").Keys
WebDriverWait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
WebDriverException = pytest.importorskip("selenium.common.exceptions").WebDriverException
staleness_of = pytest.importorskip("selenium.webdriver.support.expected_conditions").staleness_of
AXE = pytest.importorskip("axe_core_python.base", reason="axe-core-python is not installed").AXE_FILE_PATH
ROOT = Path(__file__).parents[2]
#: What the documentation shows.
SHOWN = {("owner", "desktop"), ("answer", "desktop"), ("answer", "phone")}


def test_from_key_to_answer(browser: Any, desk: Desk, tmp_path: Path) -> None:
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
        """No findings, no horizontal scrolling, at both widths; a picture of each."""
        for width, kind in ((1100, "desktop"), (390, "phone")):
            sized(width, 900)
            chrome.execute_script(axe)
            found = chrome.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
            assert [one["id"] for one in found["violations"]] == [], (name, kind)
            assert chrome.execute_script("return document.documentElement.scrollWidth") <= width, (name, kind)
            height = min(chrome.execute_script("return document.documentElement.scrollHeight"), 2000)
            sized(width, height)
            where = pictures if (name, kind) in SHOWN else tmp_path
            chrome.save_screenshot(str(where / f"service-{name}-{kind}.png"))

    first = desk.register.founded()
    assert first is not None
    with threaded(application(desk, pages=pages)) as address:
        chrome.get(f"{address}/")
        looked("sign-in")
        sign_in("shoal_o_wrong")
        assert "not a key" in chrome.find_element(By.CSS_SELECTOR, ".notice").text
        sign_in(first.text)
        followed(chrome.find_element(By.ID, "name"), "ada", Keys.ENTER)
        key = chrome.find_element(By.CSS_SELECTOR, ".key").text
        looked("owner")
        sign_in(key)
        followed(chrome.find_element(By.NAME, "reason"), "peak load of the feeder", Keys.ENTER)
        assert "pending" in chrome.find_element(By.TAG_NAME, "main").text
        looked("analyst")
        sign_in(first.text)
        epsilon = chrome.find_element(By.NAME, "epsilon")
        assert "peak load of the feeder" in chrome.find_element(By.TAG_NAME, "main").text
        epsilon.clear()
        epsilon.send_keys("4")
        followed(chrome.find_element(By.CSS_SELECTOR, "button[value=approve]"))
        sign_in(key)
        followed(chrome.find_element(By.CSS_SELECTOR, "article h3 a"))
        assert "costs" in chrome.find_element(By.TAG_NAME, "main").text
        followed(chrome.find_element(By.CSS_SELECTOR, "button.main"))
        assert "Answer for" in chrome.find_element(By.ID, "answer").text
        looked("answer")
        sign_in(desk.register.person("olga", "auditor").text)
        followed(chrome.find_element(By.PARTIAL_LINK_TEXT, "Verify"))
        assert "intact" in chrome.find_element(By.CSS_SELECTOR, ".notice").text
        looked("ledger")
    errors = [line for line in chrome.get_log("browser") if line["level"] == "SEVERE" and "401" not in line["message"]]
    assert errors == []
