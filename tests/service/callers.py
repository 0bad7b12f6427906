"""People with keys, who call the service over HTTP."""

from __future__ import annotations

from typing import Any

import httpx


class KeyHolder:
    """Someone with a key; calls that must succeed return what was sent, ``status`` only the code."""

    def __init__(self, client: httpx.Client, key: str) -> None:
        self.client, self.key, self.headers = client, key, {"Authorization": f"Bearer {key}"}

    def get(self, path: str) -> Any:
        answer = self.client.get(path, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        answer = self.client.post(path, json=body, headers=self.headers)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def refused(self, path: str, **body: Any) -> tuple[int, str]:
        """The status of a POST that does not succeed, and its detail."""
        answer = self.client.post(path, json=body, headers=self.headers)
        return answer.status_code, answer.json().get("detail", "")

    def delete(self, path: str) -> int:
        return int(self.client.delete(path, headers=self.headers).status_code)

    @property
    def works(self) -> bool:
        """Whether the key is in force."""
        return self.client.get("/v1/keys", headers=self.headers).status_code == 200

    @property
    def key_id(self) -> str:
        (id,) = [key["id"] for key in self.get("/v1/keys") if key["current"]]
        return str(id)

    def admits(self, name: str, role: str = "analyst", **terms: Any) -> KeyHolder:
        return KeyHolder(self.client, self.post("/v1/people", name=name, role=role, **terms)["key"])

    def makes_key(self, **terms: Any) -> KeyHolder:
        return KeyHolder(self.client, self.post("/v1/keys", **terms)["key"])

    def grants(self, analyst: str = "ada", epsilon: float = 4.0, delta: float = 1e-5, **terms: Any) -> KeyHolder:
        """Grant the one question to an analyst, who is admitted with it where nobody knows them."""
        new = analyst not in {person["name"] for person in self.get("/v1/people")}
        body = {"analyst": analyst, "question": self.question()["question"], "epsilon": epsilon, "delta": delta}
        return KeyHolder(self.client, self.post("/v1/grants", **body, new=new, **terms)["key"])

    def question(self) -> dict[str, Any]:
        """The one question there is."""
        (question,) = self.get("/v1/questions")
        return dict(question)

    def handles(self) -> list[str]:
        return list(self.question()["handles"])

    def quote(self) -> Any:
        return self.post("/v1/quotes", question=self.question()["question"])

    def asks(self, handle: str | None = None, name: str = "", **body: Any) -> Any:
        """Ask for a row, or for the table, under an idempotency key that is by default the handle's own."""
        sent = {"question": self.question()["question"], **({} if handle is None else {"handle": handle}), **body}
        headers = {**self.headers, "Idempotency-Key": name or f"ask {handle}"}
        return self.client.post("/v1/releases", json=sent, headers=headers)
