"""Killed after or while it answers, with an older ledger put back: the service does not start on it."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from pathlib import Path

import httpx
import pytest
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
        owner = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=service.address, timeout=20) as client:
            (question,) = client.get("/v1/questions", headers=owner).json()
            body = {"analyst": f"analyst {number}", "question": question["question"], "epsilon": 4.0, "delta": 1e-5}
            granted = client.post("/v1/grants", json={**body, "new": True}, headers=owner).json()
            who = {"Authorization": f"Bearer {granted['key']}", "Idempotency-Key": "k"}
            (mine,) = client.get("/v1/questions", headers=who).json()
            copied(ledger, folder / "old.db")
            asked = {"question": mine["question"], "handle": mine["handles"][0]}
            shown: list[int] = []

            def ask(client: httpx.Client = client, asked: dict[str, str] = asked, who: dict[str, str] = who) -> None:
                with contextlib.suppress(httpx.HTTPError):
                    shown.append(client.post("/v1/releases", json=asked, headers=who).status_code)  # noqa: B023

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
