"""The process: where the owner's key goes, one service for one ledger, ports, extras, trusted headers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from callers import KeyHolder
from fastapi.testclient import TestClient
from live import NotServed, Service, free_port
from test_roles import token_of

from shoal.errors import InputError
from shoal.product.service.access import TrustedProxy
from shoal.product.service.application import make_application
from shoal.product.service.questions import QuestionService


def test_the_owners_key_is_in_a_private_file_and_in_no_log(runs: Path, url: str) -> None:
    service = Service(runs, url)
    file = runs / "owner-key.txt"
    assert file.stat().st_mode & 0o777 == 0o600
    assert service.key.startswith("shoal_o_")
    owner = {"Authorization": f"Bearer {service.key}"}
    assert httpx.get(f"{service.address}/v1/people", headers=owner).status_code == 200
    with pytest.raises(NotServed, match="one process serves one ledger") as second:
        Service(runs, url)
    assert second.value.args[0] == 2
    with pytest.raises(NotServed, match="is in use on") as taken:
        Service(runs, url + "2", service.port)
    assert taken.value.args[0] == 2
    assert service.stop() == 0
    assert "shoal_o_" not in "".join(service.log)
    file.write_text("left lying about")
    file.chmod(0o644)
    again = Service(runs, url, None, "--new-owner-key")
    assert file.stat().st_mode & 0o777 == 0o600
    assert again.key != service.key
    for key, status in ((service.key, 401), (again.key, 200)):
        answer = httpx.get(f"{again.address}/v1/people", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == status
    assert again.stop() == 0


def test_at_a_terminal_the_key_is_shown_there(runs: Path, url: str) -> None:
    pty = pytest.importorskip("pty", reason="this system has no such terminals")
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "shoal", "serve", str(runs), "--port", str(free_port()), "--ledger", url]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    text, end = "", time.monotonic() + 60
    while '"started"' not in text and time.monotonic() < end:
        text += os.read(master, 4096).decode()
    process.terminate()  # at once, before it listens to anybody
    try:
        assert process.wait(30) == 0
    finally:
        process.kill()
        os.close(master)
    assert re.search(r"shoal_o_\S{40}", text)
    assert not (runs / "owner-key.txt").exists()


def test_a_missing_extra_is_named_with_its_line(runs: Path) -> None:
    code = (
        "import sys\nfor name in ('fastapi', 'uvicorn'): sys.modules[name] = None\n"
        f"from shoal.__main__ import run\nsys.argv = ['shoal', 'serve', {str(runs)!r}]\nsys.exit(run())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'shoal[serve]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_proxies_are_named_whole_or_not_at_all() -> None:
    assert TrustedProxy.from_options(None, None) is None
    for header, address in (("X-User", None), (None, "127.0.0.1"), ("X-User", "proxy"), ("X User:", "127.0.0.1")):
        with pytest.raises(InputError):
            TrustedProxy.from_options(header, address)


def test_only_the_trusted_proxy_says_who_somebody_is(desk: QuestionService, owner: KeyHolder) -> None:
    ada = owner.post("/v1/people", name="ada", role="analyst")["id"]
    proxy = TrustedProxy.from_options("X-Forwarded-User", "10.0.0.7")
    named = ("X-Forwarded-User", "ada")
    apps = {trusted: make_application(desk, proxy=trusted) for trusted in (proxy, None)}

    def visited(peer: str, *headers: tuple[str, str], trusted: TrustedProxy | None = proxy, path: str = "/") -> int:
        return (
            TestClient(apps[trusted], follow_redirects=False, client=(peer, 5))
            .get(path, headers=list(headers))
            .status_code
        )

    assert visited("10.0.0.7", named) == 200
    for peer in ("10.0.0.8", "10.0.0.70", "110.0.0.7", "::ffff:10.0.0.8", "localhost", "", "10.0.0.7%eth0"):
        assert visited(peer, named, ("X-Forwarded-For", "10.0.0.7")) == 303, peer
    assert visited("10.0.0.7", named, trusted=None) == 303
    for name in ("owner", "ADA", "ada,owner", "", "nobody", "x" * 3000):  # the owner: admitted by nobody
        assert visited("10.0.0.7", ("X-Forwarded-User", name)) in (303, 422), name
    assert visited("10.0.0.7", ("X-User", "ada")) == 303
    for second in ("ada", "owner"):
        assert visited("10.0.0.7", named, ("x-forwarded-user", second)) == 303  # one too many
    assert visited("10.0.0.7", named, path="/people") == 404  # an analyst, whoever vouches
    assert visited("10.0.0.7", ("X-Forwarded-User", "owner"), path="/people") == 303
    assert visited("10.0.0.7", named, path="/v1/questions") == 401  # calls need a key
    # A form needs its token here too; keys made by who came through the proxy end with them.
    olga = owner.post("/v1/people", name="olga", role="owner")["id"]
    through = TestClient(apps[proxy], client=("10.0.0.7", 5), follow_redirects=False)
    through.headers["X-Forwarded-User"] = "olga"
    form = {"name": "bob", "role": "analyst", "csrf": ""}
    assert through.post("/people", data=form).status_code == 404
    page = through.post("/people", data={**form, "csrf": token_of(through)}).text
    key = re.search(r"shoal_a_[\w-]+", page)
    assert key is not None
    bob = KeyHolder(owner.client, key[0])
    assert bob.works
    assert [owner.delete(f"/v1/people/{id}") for id in (olga, ada)] == [204, 204]
    assert not bob.works
    assert visited("10.0.0.7", named) == 303


def test_a_run_released_on_another_ledger_is_not_offered(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(NotServed, match="january: it was released on another ledger") as refused:
        Service(runs, f"sqlite:///{tmp_path / 'other.db'}")
    assert refused.value.args[0] == 2
