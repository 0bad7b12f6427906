"""The page as text: self-contained, escaped, small, and refused where it cannot be written."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from page_cases import NASTY, hostile
from report_page import write_report

import shoal


class Reader(HTMLParser):
    """Collects tags, ids and the text of script elements."""

    VOID = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def text(written: Path) -> str:
    return written.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def test_the_page_is_well_formed_and_small(read: Reader, text: str) -> None:
    assert read.open == []
    assert len(text.encode()) < 400_000


def test_the_page_needs_nothing_from_elsewhere(read: Reader, text: str) -> None:
    for tag, attributes in read.tags:
        assert "src" not in attributes
        assert tag not in ("img", "link", "iframe", "object")
        assert attributes.get("href") is None or attributes["href"].startswith("#")
    links = set(re.findall(r"https?://[^\"'\s]+", text))
    assert links <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    targets = {a["href"][1:] for tag, a in read.tags if tag == "a" and a.get("href")}
    assert targets <= {a["id"] for _, a in read.tags if a.get("id")}


def test_the_policy_allows_exactly_this_script(read: Reader) -> None:
    policy = next(a["content"] for tag, a in read.tags if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(read.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_hostile_text_is_escaped(tmp_path: Path) -> None:
    text = write_report(tmp_path / "hostile.html", **hostile()).read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in reader.tags)
    assert text.count("<script") == 2
    data = json.loads(reader.scripts[0])
    assert NASTY in [plot["name"] for plot in data["answers"]]


def test_the_banner_says_whom_the_page_is_for(text: str, release: dict[str, Any], tmp_path: Path) -> None:
    assert "Internal: contains the true answers" in text
    public = write_report(tmp_path / "public.html", **release, public=True).read_text(encoding="utf-8")
    assert "Internal" not in public
    assert "Public: holds only what the release card says" in public
    assert not any(name in public for name in release["graph"].labels)


def test_the_guarantee_on_the_page_is_the_card_s(text: str, release: dict[str, Any]) -> None:
    guarantee = release["card"].to_dict()["guarantee"]
    assert f"δ ≤ {guarantee['delta']:.4g} at ε = {guarantee['epsilon']:g}" in text
    assert guarantee["statement"] in text
    assert release["card"].digest in text


def test_no_meaningful_guarantee_is_printed(release: dict[str, Any], required: dict[str, Any], tmp_path: Path) -> None:
    weak = release["alternatives"]["white"]
    changed = required | {"mechanism": weak, "card": shoal.release_card(weak)}
    text = write_report(tmp_path / "weak.html", **changed).read_text(encoding="utf-8")
    assert '<p class="verdict bad">No meaningful guarantee</p>' in text


def test_the_same_release_gives_the_same_page(written: Path, release: dict[str, Any], tmp_path: Path) -> None:
    assert write_report(tmp_path / "again.html", **release).read_bytes() == written.read_bytes()


def test_a_path_that_cannot_be_written_is_refused(required: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(shoal.InputError, match=r"path: cannot write report\.html"):
        write_report(tmp_path / "missing" / "report.html", **required)
