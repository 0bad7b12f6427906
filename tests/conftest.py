"""Which tests are slow, and their order: long modules first, so that several workers end at about the same time."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The same examples everywhere, and no clock: how busy a machine is says nothing about the code.
settings.register_profile("shoal", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shoal")

#: Ray puts its workers behind everything else on a machine, here behind the other half of the tests.
os.environ.setdefault("RAY_worker_niceness", "0")

TESTS = Path(__file__).parent
#: Processor seconds that modules and their longer tests took, child processes included, so that a busy machine changes
#: nothing; ``pytest --keep-durations`` brings what it runs up to date.
DURATIONS = TESTS / "durations.json"
#: A test that took more processor seconds than this is slow: CI runs it, ``make test`` does not.
LONG = 1.0
#: Fixtures that need more than Python, and words in the names of modules that start clusters or kill processes.
ELSEWHERE = ("browser", "postgres")
OUTSIDE = ("ray", "cluster", "kills", "everywhere")
#: Modules whose slow tests are campaigns: thousands of mutants, kills, trials or proofs, minutes to an hour each.
CAMPAIGNS = (
    "accounting/test_clusters.py", "accounting/test_reference.py", "proofs/test_proofs.py",
    "proofs/test_proof_forgeries.py", "readings/", "evidence/", "runs/test_durable_kills.py",
    "runs/test_differencing.py", "service/test_restored.py",
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _ledgers_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test touches the ledger of whoever runs it; each run has one in its folder, so that runs do not meet."""
    os.environ["SHOAL_LEDGER"] = "folder"
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _ledgers_of_one_test(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledgers that a test names are noted in a data directory of its own: it does not meet the homes of others."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / f"data-{name}"))


#: Modules that look at secret offsets themselves; everywhere else rows are the same from run to run of the tests.
EVEN: list[Any] = []  #: the test of them, while it is not asked
DRAWN = ("test_row_findings", "test_release_files")


@pytest.fixture(scope="session", autouse=True)
def _offsets_in_the_middle() -> Iterator[None]:
    """Secret offsets of rows in the middle of their window: a test that passes once passes always.

    The attack on the files of a release would find that they are not drawn, and is not asked.
    """
    from shoal.product.runs import crowd_rows, row_rules
    from shoal.product.studies import p_values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crowd_rows, "draw_offset", lambda n: n // 2)
        patch.setattr(row_rules, "secrets", SimpleNamespace(randbelow=lambda n: n // 2))
        EVEN.append(p_values.uniformity_p_value)
        patch.setattr(p_values, "uniformity_p_value", lambda below, above: 1.0)
        yield


@pytest.fixture(scope="module", autouse=True)
def _offsets_that_are_drawn(request: pytest.FixtureRequest, _offsets_in_the_middle: None) -> Iterator[None]:
    from shoal.product.runs import crowd_rows, row_rules
    from shoal.product.studies import p_values

    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.rpartition(".")[2] in DRAWN:
            patch.setattr(crowd_rows, "draw_offset", secrets.randbelow)
            patch.setattr(row_rules, "secrets", secrets)
            patch.setattr(p_values, "uniformity_p_value", EVEN[0])
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-durations", action="store_true", help="write how long every module took to durations.json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a browser, a database server, a cluster or kills as slow; begin with the longest modules."""
    for item in items:
        words = item.path.stem.split("_")
        elsewhere = any(name in getattr(item, "fixturenames", ()) or f"[{name}" in item.name for name in ELSEWHERE)
        if elsewhere or any(word in words for word in OUTSIDE):
            item.add_marker(pytest.mark.slow)
        place = item.path.relative_to(TESTS).as_posix()
        if item.get_closest_marker("slow") is not None and place.startswith(CAMPAIGNS):
            item.add_marker(pytest.mark.campaign)
        if TOOK["tests"].get(item.nodeid.removeprefix("tests/"), 0.0) > LONG:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: -TOOK["modules"].get(item.path.relative_to(TESTS).as_posix(), 0.0))


#: As the file has it; a test that is not in it is quick until it was measured.
TOOK: dict[str, dict[str, float]] = (
    json.loads(DURATIONS.read_text()) if DURATIONS.is_file() else {"modules": {}, "tests": {}}
)
_seconds: dict[str, dict[str, float]] = {"modules": {}, "tests": {}}


def _processor_seconds() -> float:
    """Of this process and of children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[BEGUN] = _processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    begun = _processor_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append(("call", _processor_seconds() - begun))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    item.user_properties.append(("all", _processor_seconds() - item.stash[BEGUN]))
    return (yield)


BEGUN = pytest.StashKey[float]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        took = dict(report.user_properties)
        name = report.nodeid.removeprefix("tests/")
        module = name.split("::")[0]
        _seconds["modules"][module] = _seconds["modules"].get(module, 0.0) + took.get("all", 0.0)
        _seconds["tests"][name] = took.get("call", 0.0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--keep-durations") and not hasattr(session.config, "workerinput"):
        content = {}
        for kind, each in _seconds.items():
            known = {name: round(took, 1) for name, took in {**TOOK[kind], **each}.items()}
            longest = sorted(known.items(), key=lambda pair: (-pair[1], pair[0]))
            content[kind] = {name: took for name, took in longest if kind == "modules" or took > LONG}
        DURATIONS.write_text(json.dumps(content, indent=1) + "\n")


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
