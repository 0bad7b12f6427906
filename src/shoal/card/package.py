"""``public/`` as a data package: what the table's columns mean, under which licence, and what is promised about it.

``datapackage.json`` follows Frictionless Data Package 1.0. Nothing in it depends on who is who: it is made from the
card and from the public table.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal import __version__
from shoal.card.card import ReleaseCard
from shoal.card.render import readme
from shoal.plaintext import printable

#: Names of the columns of a table of crowds -> type and meaning; other columns are figures.
FIELDS: dict[str, tuple[str, str]] = {
    "crowd": ("integer", "number of the crowd: drawn once at random, the same in every later table"),
    "homes": ("integer", "members of the crowd; fixed for its life, whoever has news"),
    "news": ("boolean", "whether the row is new; false: repeated from the release before"),
    "row": ("integer", "number of the row inside its crowd, drawn at random"),
    "step": ("integer", "step of the horizon, from 1 on"),
    "timestamp": ("datetime", "beginning of the step"),
    "kw": ("number", "mean power over the members of the crowd"),
}
#: The same of a release under the readings' promise.
NOISY_FIELDS = {
    "crowd": ("integer", "a curve, numbered by its level; it stands for nobody in particular"),
    "homes": ("number", "how many homes are like it, with noise: fractions occur"),
    "count": ("number", "labels in the cell, with noise: fractions occur"),
    "step": ("integer", "step of the horizon, from 1 on"),
    "timestamp": ("datetime", "when the step begins"),
    "kw": ("number", "mean power in the step, with noise"),
}
#: What may lie beside the table.
BESIDE = {
    "reader.json": "how far homes lie from their row: quantiles, all crowds pooled",
    "total.csv": "the power of all homes together, by step",
    "plan.json": "everything that was declared, or follows from it",
    "noisy.json": "the noisy vector, from which the tables are made",
}
#: Where no licence was named.
UNSTATED = {"name": "notspecified", "title": "not stated: ask whoever gave you this table"}


@dataclass(frozen=True)
class PublicTable:
    """What the package says about ``released.csv``: its columns, their units, and the zone of its times."""

    content: bytes
    columns: Sequence[str]
    rows: int
    time_zone: str | None = None

    @property
    def zone(self) -> str:
        """The zone of its times, in words."""
        if "timestamp" not in self.columns:
            return "none in it"
        return self.time_zone or "as in the readings, without a zone"

    @property
    def words(self) -> str:
        """The table in a line."""
        each = "crowd and step" if "step" in self.columns else "crowd"
        return f"{self.rows} rows, one per {each}: {', '.join(self.columns)}"


def package_files(
    card: ReleaseCard,
    table: PublicTable,
    *,
    title: str | None,
    licence: str | None,
    page: str,
    also: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Name -> content of everything in ``public/`` beside the table itself and what lies there ``also``."""
    name = printable(title or ("A release of averages" if card.readings is None else "A release with noise"))
    about = f" about {card.period}" if card.period else ""
    citation = f"{name}{about}. Made with shoal {__version__}; release card {card.digest[:16]}."
    stated = {"name": licence, "title": licence} if licence else UNSTATED
    texts = {
        "card.json": card.to_json(),
        "card.md": card.to_markdown(),
        "report.html": page,
        "README.txt": readme(
            card,
            title=name,
            table=table.words,
            beside={path: words for path, words in BESIDE.items() if path in (also or {})},
            zone=table.zone,
            licence=stated["title"],
            citation=citation,
        ),
        "datapackage.json": json.dumps(
            descriptor(card, table, name, stated, citation, also or {}), indent=2, ensure_ascii=False, allow_nan=False
        )
        + "\n",
    }
    files = {name: text.encode() for name, text in texts.items()}
    sums = {"released.csv": table.content, **files, **(also or {})}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(sums.items())]
    return {**files, "SHA256SUMS": "".join(lines).encode()}


def descriptor(
    card: ReleaseCard,
    table: PublicTable,
    title: str,
    licence: Mapping[str, str],
    citation: str,
    also: Mapping[str, bytes],
) -> dict[str, Any]:
    """The content of ``datapackage.json``; its resources are the table and what lies there ``also``."""
    resources = {"released.csv": table.content, **also}
    return {
        "profile": "tabular-data-package" if all(name.endswith(".csv") for name in resources) else "data-package",
        "name": "released",
        "title": title,
        "description": " ".join(one.sentence for one in card.public if one.key in ("technique", "hidden")),
        "licenses": [dict(licence)],
        "citation": citation,
        "time_zone": table.zone,
        "guarantee": {
            "kind": card.kind,
            "statement": card.statement,
            "not_hidden": [one.sentence for one in card.public if one.key == "limits"],
            "rules": list(card.rules),
            "card": "card.json",
        },
        "resources": [_resource(name, content, card) for name, content in resources.items()],
    }


def _resource(path: str, content: bytes, card: ReleaseCard) -> dict[str, Any]:
    """A file of the package: a table with its columns, or JSON with what it is for."""
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
            "fields": [_field(column, card) for column in columns],
            "primaryKey": [key for key in ("crowd", "row", "step") if key in columns],
            "missingValues": [""],
        },
    }


def _field(name: str, card: ReleaseCard) -> dict[str, Any]:
    kind, meaning = FIELDS.get(name, ("number", "mean over the members of the crowd"))
    if card.kind == "readings":
        kind, meaning = NOISY_FIELDS.get(name, (kind, "mean within declared bounds, with noise"))
    described: dict[str, Any] = {"name": name, "type": kind, "description": meaning}
    if name == "timestamp":
        described["format"] = "%Y-%m-%dT%H:%M:%S" + ("%z" if card.fit.time_zone is not None else "")
    if name == "kw":
        described["unit"] = "kW"
    if name == "homes" and card.kind != "readings":
        described["constraints"] = {"minimum": card.fit.crowd or 2}
    if name == "step" and card.fit.step_minutes is not None:
        described["unit"] = f"{card.fit.step_minutes:g} minutes"
    return described
