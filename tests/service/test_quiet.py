"""Nothing tells: not an error, not a log line, not the time an answer takes."""

from __future__ import annotations

import io
import json
import random
import time

import pytest
from callers import KeyHolder
from fastapi.testclient import TestClient
from scipy.stats import mannwhitneyu

from shoal.product.service.application import BODY, RequestLog, make_application
from shoal.product.service.questions import QuestionService

CANARY = "canary-7f3a91"


@pytest.fixture
def watched(desk: QuestionService) -> tuple[TestClient, io.StringIO]:
    log = io.StringIO()
    app = make_application(desk, RequestLog(log))
    return TestClient(app, follow_redirects=False, raise_server_exceptions=False), log


def test_malformed_requests_are_refused_and_never_repeated(
    watched: tuple[TestClient, io.StringIO], owner: KeyHolder
) -> None:
    client, log = watched
    ada = owner.grants()
    question = ada.question()
    draw = random.Random(0)
    strings = [CANARY, "\x00" + CANARY, "ü" * 300 + CANARY]
    junk: list[object] = [*strings, None, 1e999, -1, True, [CANARY], {CANARY: 1}, 2**80]
    fields = ["question", "handle", "analyst", "epsilon", "delta", "expires", "role", "new", "replaces", CANARY]
    routes = ["/v1/releases", "/v1/quotes", "/v1/grants", "/v1/keys/x", "/v1/people"]
    seen: list[bytes] = []
    for number in range(600):
        body = {draw.choice(fields): draw.choice(junk) for _ in range(draw.randint(0, 4))}
        if draw.random() < 0.3:
            body["question"] = question["question"]
        raw = json.dumps(body).encode()
        if draw.random() < 0.3:
            raw = raw[: draw.randint(0, len(raw))] + draw.choice([b"", b"\xff\xfe", b"{" * 50, CANARY.encode()])
        headers = dict(draw.choice([ada.headers, owner.headers, {}]))
        headers["Content-Type"] = draw.choice(["application/json", "text/plain", "x"])
        headers["Idempotency-Key"] = draw.choice([CANARY, str(number), "x" * 500])
        path = draw.choice(routes) + draw.choice(["", f"?size={CANARY}", f"/{CANARY}"])
        method = draw.choice(["POST", "POST", "GET", "DELETE", "PUT"])
        answer = client.request(method, path, content=raw, headers=headers)
        assert 400 <= answer.status_code < 500 or answer.status_code in (200, 201), (path, body, answer.status_code)
        if answer.status_code != 201 and answer.request.method != "GET":
            seen.append(answer.content)
    assert CANARY.encode() not in b"".join(seen)
    assert CANARY not in log.getvalue()
    labels = [question["question"], *question["handles"]]
    assert not any(text in log.getvalue() for text in labels)


def test_bodies_are_bounded(watched: tuple[TestClient, io.StringIO], owner: KeyHolder) -> None:
    client, _ = watched
    long = b'{"name": "' + b"x" * BODY + b'"}'
    assert client.post("/v1/people", content=long, headers=owner.headers).status_code == 413
    chunks = (long[i : i + 1000] for i in range(0, len(long), 1000))  # without a stated length
    assert client.post("/v1/people", content=chunks, headers=owner.headers).status_code == 413


def test_time_does_not_tell_the_label(owner: KeyHolder, desk: QuestionService) -> None:
    """Interleaved requests for two labels take equally long; 50 µs more for one of them would be noticed."""
    handles = owner.grants().handles()
    person, (question,) = desk.register.find_person("ada"), desk.catalog.questions
    assert person is not None
    labels = desk._handles_of(person, desk.catalog.questions[question])  # what the analyst does not know
    ordered = sorted(handles, key=labels.__getitem__)
    kinds = {"one": ordered[: len(ordered) // 2], "other": ordered[len(ordered) // 2 :]}
    kinds["planted"] = kinds["one"]
    for handle in handles:
        desk.release(person, question, handle, handle)
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    draw = random.Random(1)
    order = [kind for kind in kinds for _ in range(2_500)]
    draw.shuffle(order)
    for kind in order:
        handle = draw.choice(kinds[kind])
        begun = time.perf_counter()
        desk.release(person, question, handle, handle)
        if kind == "planted":
            until = time.perf_counter() + 50e-6
            while time.perf_counter() < until:
                pass
        taken[kind].append(time.perf_counter() - begun)
    assert mannwhitneyu(taken["one"], taken["other"]).pvalue > 1e-6
    assert mannwhitneyu(taken["one"], taken["planted"]).pvalue < 1e-5  # 1e-12 and less on an idle machine
