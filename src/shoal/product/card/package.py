"""``public/`` as a Frictionless Data Package 1.0: columns of its tables, its licence, and what is promised about it.

It is made from the card and the public table, so nothing in it depends on who is who.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any

from shoal import __version__
from shoal.columns import BY_NAME
from shoal.plaintext import escape_controls
from shoal.product.card.card import ReleaseCard
from shoal.product.card.render import public_page, public_readme

TABLE = "released.csv"
#: What may lie beside the table.
BESIDE = {
    "total.csv": "the power of all homes together, by step",
    "plan.json": "everything that was declared, or follows from it",
    "noisy.json": "the noisy vector, from which the tables are made",
}
#: Where no licence was named.
UNSTATED = {"name": "notspecified", "title": "not stated: ask the publisher of this table"}


def build_package(
    card: ReleaseCard,
    files: Mapping[str, bytes],
    *,
    title: str | None = None,
    licence: str | None = None,
    made: str = "",
    precision: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """Name -> content of everything in ``public/`` beside what the release wrote there: the table and other ``files``.

    ``precision``: the number of each crowd -> the base that its figures are multiples of, or one for each column.

    Of readings with noise it is a function of these and of the public settings on the card.
    """
    columns, *rows = csv.reader(io.StringIO(files[TABLE].decode()))
    name = escape_controls(title or card.step.title)
    about = f" about {card.period}" if card.period else ""
    terms = {"name": licence, "title": licence} if licence else UNSTATED
    zone = card.fit.time_zone or "as in the readings, without a zone"
    described = {
        "profile": "tabular-data-package" if all(path.endswith(".csv") for path in files) else "data-package",
        "name": "released",
        "title": name,
        "description": " ".join(one.sentence for one in card.public if one.key in ("promise", "technique", "hidden")),
        "licenses": [terms],
        "citation": f"{name}{about}. Made with shoal {__version__}; release card {card.digest[:16]}.",
        "time_zone": zone if "timestamp" in columns else "none in it",
        "guarantee": {
            "kind": card.kind,
            "statement": card.statement,
            "not_hidden": [one.sentence for one in card.public if one.key == "limits"],
            "rules": list(card.rules),
            "card": "card.json",
        },
        **({"precision": dict(precision)} if precision else {}),
        "resources": [
            _describe_file(path, files[path], card) for path in sorted(files, key=lambda path: path != TABLE)
        ],
    }
    label = card.fit.noun if card.fit.most_rows == 1 else f"row of a {card.fit.noun}"
    each = (card.step.rows["step" in columns] or label) + " and step" * ("step" in columns)
    texts = {
        "card.json": card.to_json(),
        "card.md": card.to_markdown(),
        "report.html": public_page(
            card, title=title, made=made if card.readings is None else card.readings.day, public=files
        ),
        "README.txt": public_readme(
            card,
            table=f"{len(rows)} rows, one per {each}: {', '.join(columns)}",
            others={path: words for path, words in BESIDE.items() if path in files},
            package=described,
        ),
        "datapackage.json": json.dumps(described, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    made_here = {path: text.encode() for path, text in texts.items()}
    lines = [f"{hashlib.sha256(c).hexdigest()}  {path}\n" for path, c in sorted({**made_here, **files}.items())]
    return {**made_here, "SHA256SUMS": "".join(lines).encode()}


def _describe_file(path: str, content: bytes, card: ReleaseCard) -> dict[str, Any]:
    """The entry of ``datapackage.json`` about one file: columns of a table, or the purpose of a JSON file."""
    name, _, kind = path.partition(".")
    resource: dict[str, Any] = {
        "name": name,
        "path": path,
        "format": kind,
        "encoding": "utf-8",
        "bytes": len(content),
        "hash": f"sha256:{hashlib.sha256(content).hexdigest()}",
    }
    if path in BESIDE:
        resource["description"] = BESIDE[path]
    if kind != "csv":
        return resource | {"profile": "data-resource", "type": "json", "mediatype": "application/json"}
    columns = next(csv.reader(io.StringIO(content.decode())))
    return resource | {
        "profile": "tabular-data-resource",
        "mediatype": "text/csv",
        "schema": {
            "fields": [_describe_column(column, card) for column in columns],
            "primaryKey": [key for key in ("crowd", "row", "step") if key in columns],
            "missingValues": [""],
        },
    }


def _describe_column(name: str, card: ReleaseCard) -> dict[str, Any]:
    """The entry of ``datapackage.json`` about one column: type, meaning, unit and constraints."""
    noisy, column = card.step.is_noisy, BY_NAME.get(name)
    kind, meaning = ("number", card.step.column) if column is None else column.description(noisy=noisy)
    if name == "kw" and not (noisy or card.step.is_shared):
        meaning = "power in the step, through the mechanism"
    described: dict[str, Any] = {"name": name, "type": kind, "description": meaning}
    if name == "timestamp":
        described["format"] = "%Y-%m-%dT%H:%M:%S" + ("%z" if card.fit.time_zone is not None else "")
    if column is not None and column.unit:
        described["unit"] = column.unit
    if name == "members" and not noisy:
        described["constraints"] = {"minimum": card.fit.crowd or 2}
    if name == "step" and card.fit.step_minutes is not None:
        described["unit"] = f"{card.fit.step_minutes:g} minutes"
    return described
