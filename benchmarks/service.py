"""The release service under load, kills and nonsense: ``python -m benchmarks service``.

Kills: 64 clients of 16 analysts ask without a pause while the process is killed and started again; afterwards every
answer that was shown is held against the ledger. Pace: 50 releases a second for a while, first answers and repeated
ones. Nonsense: 10,000 malformed requests with a word in them that must come back nowhere. Time: 20,000 interleaved
requests over HTTP for two labels of one crowd.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from scipy.stats import mannwhitneyu

import shoal
from benchmarks import _postgres
from benchmarks._service import Service, released

CLIENTS, ANALYSTS, KILLS = 64, 16, 8
RATE, SECONDS = 50, 20
NONSENSE, TIMED = 10_000, 20_000
CANARY = "canary-2b7e15"


def keys_for(service: Service, analysts: int, question: str, epsilon: float = 4.0) -> list[dict[str, str]]:
    owner = {"Authorization": f"Bearer {service.key}"}
    found = []
    for number in range(analysts):
        body = {"analyst": f"analyst {number}", "question": question, "epsilon": epsilon, "delta": 1e-5, "new": True}
        key = httpx.post(f"{service.address}/v1/grants", json=body, headers=owner).json()["key"]
        found.append({"Authorization": f"Bearer {key}"})
    return found


def question_of(service: Service) -> dict[str, object]:
    owner = {"Authorization": f"Bearer {service.key}"}
    return dict(httpx.get(f"{service.address}/v1/questions", headers=owner).json()[0])


def kills(folder: Path, url: str, name: str) -> str:
    service = Service(folder, url)
    question = question_of(service)
    people = keys_for(service, ANALYSTS, str(question["question"]))
    shown: dict[tuple[str, str], set[bytes]] = {}
    lock, stopped = threading.Lock(), threading.Event()

    def ask(who: dict[str, str], seed: int) -> None:
        draw = random.Random(seed)
        with httpx.Client(timeout=20) as client:
            while not stopped.is_set():
                try:
                    (mine,) = client.get(f"{service.address}/v1/questions", headers=who).json()
                    for handle in draw.sample(mine["handles"], 4):
                        asked = {"question": mine["question"], "handle": handle}
                        answer = client.post(
                            f"{service.address}/v1/releases", json=asked, headers={**who, "Idempotency-Key": handle}
                        )
                        if answer.status_code == 200:
                            with lock:
                                shown.setdefault((who["Authorization"], handle), set()).add(answer.content)
                except (httpx.HTTPError, ValueError):
                    time.sleep(0.02)

    threads = [threading.Thread(target=ask, args=(people[i % ANALYSTS], i)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    draw = random.Random(0)
    for _ in range(KILLS):
        time.sleep(draw.uniform(0.05, 1.5))
        service.kill()
        service = Service(folder, url, service.port)
    time.sleep(3)
    stopped.set()
    for thread in threads:
        thread.join()
    service.stop()
    with shoal.Ledger.open(url) as ledger:
        entries, intact = ledger.entries(), bool(ledger.verify())
    receipts = [one.content["analyst"] for one in entries if one.kind == "receipt"]
    released = [(one.content["label"], one.content["query_id"]) for one in entries if one.kind == "release"]
    differing = sum(len(bodies) > 1 for bodies in shown.values())
    twice = len(released) - len(set(released)) + len(receipts) - len(set(receipts))
    return (
        f"| {name} | {CLIENTS} | {KILLS} | {len(shown)} | {len(receipts)} of {ANALYSTS} | {differing} | {twice} | "
        f"{'yes' if intact else 'NO'} |"
    )


def pace(folder: Path, url: str, name: str) -> str:
    """Releases at a steady rate: an analyst's first one of a question charges it, the others repeat it."""
    service = Service(folder, url)
    question = question_of(service)
    people = keys_for(service, RATE * SECONDS // 20, str(question["question"]))
    taken: list[float] = []
    first: list[float] = []
    lock = threading.Lock()
    client = httpx.Client(timeout=20, limits=httpx.Limits(max_connections=64))
    handles = [client.get(f"{service.address}/v1/questions", headers=who).json()[0]["handles"] for who in people]
    begun = time.perf_counter()

    def one(number: int) -> None:
        who = number // 20
        asked = {"question": question["question"], "handle": handles[who][number % len(handles[who])]}
        start = time.perf_counter()
        answer = client.post(
            f"{service.address}/v1/releases", json=asked, headers={**people[who], "Idempotency-Key": str(number)}
        )
        with lock:
            (taken if number % 20 else first).append(time.perf_counter() - start)
        assert answer.status_code == 200, answer.text

    threads = []
    for number in range(RATE * SECONDS):
        time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
        threads.append(threading.Thread(target=one, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    rate = len(threads) / (time.perf_counter() - begun)
    service.stop()
    every = sorted(taken + first)

    def at(values: list[float], share: float) -> str:
        return f"{1000 * sorted(values)[int(share * (len(values) - 1))]:.0f}"

    return f"| {name} | {rate:.0f} | {at(every, 0.5)} | {at(every, 0.95)} | {at(first, 0.95)} | {at(taken, 0.95)} |"


def nonsense(folder: Path, url: str) -> str:
    service = Service(folder, url)
    question = question_of(service)
    (analyst,) = keys_for(service, 1, str(question["question"]))
    owner = {"Authorization": f"Bearer {service.key}"}
    draw = random.Random(0)
    junk = [CANARY, None, -1, True, [CANARY], {CANARY: 1}, "\x00" + CANARY, "é" * 300 + CANARY, 2**80, "0"]
    fields = ["question", "handle", "analyst", "epsilon", "delta", "expires", "reason", "window", CANARY]
    routes = ["releases", "quotes", "grants", "requests", "people", f"grants/{CANARY}", f"receipts/{CANARY}/proof"]
    counts: dict[int, int] = {}
    leaks = 0
    with httpx.Client(timeout=20) as client:
        number = 0
        while sum(counts.values()) < NONSENSE:
            number += 1
            body = {draw.choice(fields): draw.choice(junk) for _ in range(draw.randint(0, 4))}
            raw = json.dumps(body).encode()
            if draw.random() < 0.3:
                raw = raw[: draw.randint(0, len(raw))] + draw.choice([b"", b"\xff\xfe", b"{" * 60, CANARY.encode()])
            headers = {**draw.choice([analyst, owner, {}]), "Idempotency-Key": draw.choice([CANARY, str(number)])}
            headers["Content-Type"] = draw.choice(["application/json", "text/plain"])
            path = f"/v1/{draw.choice(routes)}{draw.choice(['', f'?size={CANARY}'])}"
            method = draw.choice(["POST", "POST", "POST", "GET", "DELETE", "PUT"])
            if method == "GET" and path.startswith(("/v1/people", "/v1/grants", "/v1/requests")):
                continue  # a list repeats names that were really admitted
            answer = client.request(method, service.address + path, content=raw, headers=headers)
            counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
            leaks += CANARY.encode() in answer.content and answer.status_code != 201
    service.stop()
    time.sleep(0.5)
    leaks += any(CANARY in line for line in service.log)
    by_status = ", ".join(f"{status}: {count}" for status, count in sorted(counts.items()))
    return f"{sum(counts.values())} malformed requests ({by_status}); the word came back {leaks} times."


def timing(folder: Path, url: str) -> str:
    service = Service(folder, url)
    question = question_of(service)
    (who,) = keys_for(service, 1, str(question["question"]))
    taken: dict[str, list[float]] = {"one": [], "other": []}
    with httpx.Client(timeout=20) as client:
        (mine,) = client.get(f"{service.address}/v1/questions", headers=who).json()
        chosen = {"one": mine["handles"][0], "other": mine["handles"][-1]}
        order = [kind for kind in chosen for _ in range(TIMED // 2)]
        random.Random(0).shuffle(order)
        for kind in order:
            asked = {"question": mine["question"], "handle": chosen[kind]}
            headers = {**who, "Idempotency-Key": kind}
            begun = time.perf_counter()
            client.post(f"{service.address}/v1/releases", json=asked, headers=headers)
            taken[kind].append(time.perf_counter() - begun)
    service.stop()
    p = mannwhitneyu(taken["one"], taken["other"]).pvalue
    planted = [value + 50e-6 for value in taken["other"]]
    p_planted = mannwhitneyu(taken["one"], planted).pvalue
    medians = [1e3 * statistics.median(values) for values in taken.values()]
    return (
        f"{TIMED} interleaved requests over HTTP: medians {medians[0]:.3f} and {medians[1]:.3f} ms, p = {p:.2g} "
        f"(two-sided rank test); with 50 µs added to one of the two, p = {p_planted:.2g}."
    )


def main() -> None:
    wanted = sys.argv[1:] or ["kills", "pace", "nonsense", "timing"]
    print("## Service\n")
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        found = _postgres.binaries()

        def folder(name: str, url: str) -> Path:
            """A run that has released on a ledger."""
            return released(root / name / "runs" / "january", url).parent

        def both(part: str, measure: Callable[[Path, str, str], str]) -> None:
            url = f"sqlite:///{root / part}.db"
            print(measure(folder(f"{part} sqlite", url), url, "SQLite"), flush=True)
            if found is not None:
                with _postgres.server(found) as address:
                    url = str(_postgres.database(address, part))
                    print(measure(folder(f"{part} postgresql", url), url, "PostgreSQL"), flush=True)

        if "kills" in wanted:
            print("| ledger | clients | kills | answers shown | receipts | differing | charged twice | intact |")
            print("| --- | --- | --- | --- | --- | --- | --- | --- |")
            both("kills", kills)
        if "pace" in wanted:
            print("\n| ledger | releases/s | median, ms | p95, ms | p95 of first ones | p95 of repeated ones |")
            print("| --- | --- | --- | --- | --- | --- |")
            both("pace", pace)
        if "nonsense" in wanted:
            url = f"sqlite:///{root / 'nonsense'}.db"
            print("\n" + nonsense(folder("nonsense", url), url))
        if "timing" in wanted:
            url = f"sqlite:///{root / 'timing'}.db"
            print("\n" + timing(folder("timing", url), url))


if __name__ == "__main__":
    main()
