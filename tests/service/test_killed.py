"""The process killed while many ask: every answer shown is on record, none is charged twice, none is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import httpx
from callers import KeyHolder
from live import Service

import shoal


def test_killed_while_many_ask(runs: Path, url: str) -> None:
    service = Service(runs, url)
    owner = KeyHolder(httpx.Client(base_url=service.address, timeout=20), service.key)
    keys = [owner.grants(f"analyst {number}").key for number in range(4)]
    shown: dict[tuple[str, str], set[bytes]] = {}
    stopped = threading.Event()

    def ask(key: str) -> None:
        with httpx.Client(base_url=service.address, timeout=10) as client:
            analyst = KeyHolder(client, key)
            while not stopped.is_set():
                with contextlib.suppress(httpx.HTTPError, AssertionError):
                    for handle in analyst.handles()[:4]:
                        answer = analyst.asks(handle)
                        if answer.status_code == 200:
                            shown.setdefault((key, handle), set()).add(answer.content)
                time.sleep(0.05)

    threads = [threading.Thread(target=ask, args=(key,)) for key in keys for _ in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    service.kill()
    service = Service(runs, url, service.port)
    end = time.monotonic() + 120
    while len(shown) < 16 and time.monotonic() < end:
        time.sleep(0.05)
    stopped.set()
    for thread in threads:
        thread.join()
    assert service.stop() == 0
    assert len(shown) == 16
    assert all(len(bodies) == 1 for bodies in shown.values())
    with shoal.Ledger.open(url) as ledger:
        entries = ledger.entries()
        assert ledger.verify()
    assert len([entry for entry in entries if entry.kind == "receipt"]) == 4
