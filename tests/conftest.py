"""The order of test modules: long ones first, so that several workers (``pytest -n 2``) end at about the same time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The same examples everywhere, and no clock: how busy a machine is says nothing about the code.
settings.register_profile("shoal", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shoal")

#: Ray puts its workers behind everything else on a machine, here behind the other half of the tests.
os.environ.setdefault("RAY_worker_niceness", "0")

#: What takes longest, or waits for other processes.
FIRST = (
    "runs/test_same_everywhere.py",
    "accounting/test_oracle.py",
    "workers/test_executors_ray.py",
    "workers/test_executors.py",
    "workers/test_executors_unreachable.py",
    "numerics/test_compiled.py",
    "test_documents.py",
    "workers/test_cluster_nodes.py",
    "evidence/test_meters_study.py",
    "designs/test_reuse.py",
)
TESTS = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def _ledgers_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test touches the ledger of whoever runs it; each run has one in its folder, so that runs do not meet."""
    os.environ["SHOAL_LEDGER"] = "folder"
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {TESTS / name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(FIRST)))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium; without one these tests skip."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield chrome
    chrome.quit()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker gets whole modules; all of those about the card, whose release is made once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByRelease(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "card" if nodeid.startswith("tests/card/") else str(super()._split_scope(nodeid))

    return ByRelease(config, log) if config.getoption("dist") == "loadscope" else None
