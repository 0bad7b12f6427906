"""Stored results: one JSON file per study in ``results/``; figures over all homes, no home's own."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import shoal

FOLDER = Path(__file__).parent / "results"


def stored(name: str) -> dict[str, Any]:
    """What a study found when it was last run."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


def store(name: str, content: dict[str, Any]) -> Path:
    """Keep what a study found, with the day and the version; one row of a list per line."""
    path = FOLDER / f"{name}.json"
    whole = {"made": date.today().isoformat(), "version": shoal.__version__, **content}
    path.write_text(_text(whole) + "\n", encoding="utf-8")
    return path


def _text(value: Any, depth: int = 0) -> str:
    """JSON with a line per entry of the outer dictionaries and of lists of dictionaries."""
    outer = " " * (depth + 1)
    if isinstance(value, dict) and depth < 2:
        lines = [f"{outer}{json.dumps(name)}: {_text(part, depth + 1)}" for name, part in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        return (
            "[\n" + ",\n".join(outer + json.dumps(row, ensure_ascii=False) for row in value) + "\n" + " " * depth + "]"
        )
    return json.dumps(value, ensure_ascii=False)
