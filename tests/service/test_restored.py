"""Killed after or while it answers, with an older ledger put back: the service does not start on it."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from pathlib import Path

import httpx
import pytest
from callers import KeyHolder
from live import NotServed, Service, copied

import shoal


def restored_after_a_kill(runs: Path, folder: Path, rounds: int) -> int:
    """Kill, restore, start, so many times; in how many an answer had been shown that the old copy does not know.

    A start is tried from the folder that was served and from one that never was.
    """
    ledger, draw, shown_rounds = folder / "ledger.db", random.Random(7), 0
    url = f"sqlite:///{ledger}"
    key = ""
    for number in range(rounds):
        service = Service(runs, url)
        key = key or service.key
        with httpx.Client(base_url=service.address, timeout=20) as client:
            analyst = KeyHolder(client, key).grants(f"analyst {number}")
            handle, shown = analyst.handles()[0], list[int]()
            copied(ledger, folder / "old.db")

            def ask(analyst: KeyHolder = analyst, handle: str = handle, shown: list[int] = shown) -> None:
                with contextlib.suppress(httpx.HTTPError, AssertionError):
                    shown.append(analyst.asks(handle).status_code)

            thread = threading.Thread(target=ask)
            thread.start()
            if number % 2:
                time.sleep(draw.uniform(0.0, 0.15))  # while it answers
            else:
                thread.join()
            service.kill()
            thread.join()
        copied(ledger, folder / "newest.db")
        copied(folder / "old.db", ledger)
        if shown == [200]:
            shown_rounds += 1
            for served in (runs, runs / "january"):
                with pytest.raises(NotServed, match="old copy") as refused:
                    Service(served, url)
                assert refused.value.args[0] == 2
                assert "Traceback" not in refused.value.args[1]
        copied(folder / "newest.db", ledger)
    service = Service(runs, url)
    assert service.stop() == 0
    with shoal.Ledger.open(url) as opened:
        assert opened.verify()
    return shown_rounds


def test_a_restored_ledger_is_refused(runs: Path, tmp_path: Path) -> None:
    assert restored_after_a_kill(runs, tmp_path, 2) >= 1


@pytest.mark.slow
def test_a_restored_ledger_is_refused_fifty_times(runs: Path, tmp_path: Path) -> None:
    assert restored_after_a_kill(runs, tmp_path, 50) >= 25
