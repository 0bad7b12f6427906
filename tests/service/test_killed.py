"""The process killed while many ask: every answer shown is on record, none is charged twice, none is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import httpx
from live import Service

import shoal


def test_killed_while_many_ask(runs: Path, url: str) -> None:
    service = Service(runs, url)
    owner = {"Authorization": f"Bearer {service.key}"}
    (question,) = httpx.get(f"{service.address}/v1/questions", headers=owner).json()
    keys = []
    for number in range(4):
        body = {
            "analyst": f"analyst {number}",
            "question": question["question"],
            "epsilon": 4.0,
            "delta": 1e-5,
            "new": True,
        }
        keys.append(httpx.post(f"{service.address}/v1/grants", json=body, headers=owner).json()["key"])
    shown: dict[tuple[str, str], set[bytes]] = {}
    stopped = threading.Event()

    def ask(key: str) -> None:
        who = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=service.address, headers=who, timeout=10, verify=False) as client:
            while not stopped.is_set():
                with contextlib.suppress(httpx.HTTPError):
                    (mine,) = client.get("/v1/questions").json()
                    for handle in mine["handles"][:4]:
                        asked = {"question": mine["question"], "handle": handle}
                        answer = client.post("/v1/releases", json=asked, headers={"Idempotency-Key": handle})
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
    assert len([one for one in entries if one.kind == "receipt"]) == 4
