"""A run does once what need be done once: it opens its ledger, decodes each fact, and loads members and rows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_run import CONFIG, Days, go

import shoal
from shoal.records import Record

FACTS = ("FitFacts", "CrowdFacts", "ReleaseFacts", "CardFacts", "ReportFacts")


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often something was done since."""
    count: Counter[str] = Counter()
    opened, read, decode = shoal.Ledger.open, pl.read_parquet, Record.__dict__["from_json"].__func__

    def open_ledger(*given: Any, **named: Any) -> shoal.Ledger:
        ledger = opened(*given, **named)
        reading, writing = ledger.storage.reading, ledger.storage.writing
        monkeypatch.setattr(ledger.storage, "reading", lambda: count.update(["transactions"]) or reading())
        monkeypatch.setattr(ledger.storage, "writing", lambda **how: count.update(["transactions"]) or writing(**how))
        count["ledgers"] += 1
        return ledger

    def read_parquet(source: Any, *given: Any, **named: Any) -> pl.DataFrame:
        count[Path(str(source)).name] += 1
        return read(source, *given, **named)

    def from_json(kind: type[Record], content: Any) -> Any:
        count[kind.__name__] += 1
        return decode(kind, content)

    monkeypatch.setattr(shoal.Ledger, "open", open_ledger)
    monkeypatch.setattr(pl, "read_parquet", read_parquet)
    monkeypatch.setattr(Record, "from_json", classmethod(from_json))
    return count


def test_a_release_and_the_next_one(days: Days, tmp_path: Path, counts: Counter[str]) -> None:
    out = tmp_path / "run"
    go(out, days[0], CONFIG, "report", ledger="folder")
    assert counts["ledgers"] == 1
    assert counts["transactions"] <= 9  # opened, it had three before
    assert {name: counts[name] for name in FACTS} == {**dict.fromkeys(FACTS, 1), "FitFacts": 1 + len(shards(out))}
    assert counts["crowds.parquet"] == counts["rows.parquet"] == 0  # made here, and handed on
    counts.clear()
    go(out, days[1], update=True, until="report")
    assert counts["ledgers"] == 1
    assert counts["crowds.parquet"] <= 2  # of the release before: its labels, and its price
    counts.clear()
    go(out, until="report")
    assert counts["ledgers"] == 1
    assert counts["CrowdFacts"] == 1


def shards(out: Path) -> list[Any]:
    parts: list[Any] = json.loads((out / "fit.json").read_text())["parts"]
    return parts
