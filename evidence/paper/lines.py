"""δ(ε) lines of a study: which release, at which budget in which convention, by which notion, over all edges.

The paper's definition of accuracy divides by k, its experiments do not: a budget b on its axis is ρ = b/k per entry if
the axis is a total, and ρ = b if it is per entry. Every line says which of the two it means.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.accounting.curve import NOTIONS as CODES
from shoal.accounting.curve import exp_rounded_up, log_delta_brackets, split_brackets
from shoal.accounting.releases import Releases
from shoal.errors import InputError
from shoal.laws.graph import NeighborGraph
from shoal.plaintext import cell
from shoal.rounding import up
from shoal.validation import FloatArray

#: What the paper plots, what it defines, and the certificate.
NOTIONS = ("pdp", "pdp-two-sided", "dp")
NOTION_NAMES = {"pdp": "one-sided PDP", "pdp-two-sided": "two-sided PDP", "dp": "hockey-stick DP"}
CONVENTIONS = ("total", "per entry")

#: What a line is known by, as in its fields.
NAMED = ("query", "method", "convention", "budget", "rho", "notion")

#: Called with (stage, done, total).
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Line:
    """Upper ends of δ over a grid of ε. ``worst`` is over all edges; ``median`` is a typical edge, no guarantee."""

    query: str
    method: str
    convention: str  #: "total" or "per entry"; "any" where nothing is spent
    budget: float  #: as on the paper's axis
    rho: float  #: mean squared error per entry that may be spent
    notion: str
    worst: FloatArray
    median: FloatArray


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines of a study over one grid of ε."""

    epsilon: FloatArray
    lines: tuple[Line, ...]

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def pick(self, **wanted: Any) -> list[Line]:
        """Lines whose fields equal those given; a line without noise belongs to every budget and convention."""
        return [line for line in self.lines if all(_matches(line, name, value) for name, value in wanted.items())]

    def one(self, **wanted: Any) -> Line:
        """The only line that matches."""
        found = self.pick(**wanted)
        if len(found) != 1:
            raise InputError(f"{len(found)} lines match {sorted(wanted)}; name one")
        return found[0]

    def at(self, epsilon: float, *, edges: str = "worst", **wanted: Any) -> float:
        """δ of the only line that matches at one ε of the grid."""
        (place,) = np.flatnonzero(np.isclose(self.epsilon, epsilon))
        return float(getattr(self.one(**wanted), edges)[place])

    def records(self) -> Iterator[dict[str, Any]]:
        """One row per line and ε."""
        for line in self.lines:
            for epsilon, worst, median in zip(self.epsilon, line.worst, line.median, strict=True):
                found = {"epsilon": epsilon, "delta_worst_edge": worst, "delta_median_edge": median}
                named = {"rho_per_entry" if name == "rho" else name: getattr(line, name) for name in NAMED}
                yield named | {name: float(value) for name, value in found.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON."""
        return {
            "epsilon": self.epsilon.tolist(),
            "lines": [
                {name: getattr(line, name) for name in NAMED}
                | {"worst": line.worst.tolist(), "median": line.median.tolist()}
                for line in self.lines
            ],
        }

    def write_csv(self, path: Path) -> None:
        """A long table, one row per line and ε."""
        write_rows(path, self.records())


def _matches(line: Line, name: str, value: Any) -> bool:
    if line.convention == "any" and name in ("convention", "budget"):
        return True
    found = getattr(line, name)
    return bool(np.isclose(found, value)) if name in ("budget", "rho") else bool(found == value)


def per_entry(budget: float, convention: str, n_dims: int) -> float:
    """ρ per entry of a budget on the paper's axis."""
    return budget / n_dims if convention == "total" else budget


def measure(
    released: Any,
    graph: NeighborGraph,
    epsilon: FloatArray,
    *,
    query: str,
    method: str,
    convention: str,
    budget: float,
    rho: float,
    notions: Iterable[str] = NOTIONS,
) -> list[Line]:
    """One line per notion of what is released (a mechanism or a family of laws)."""
    lines = []
    for notion in notions:
        delta = edge_curves(released, graph, epsilon, notion)
        worst, median = delta.max(axis=0), np.quantile(delta, 0.5, axis=0, method="higher")
        lines.append(Line(query, method, convention, budget, rho, notion, worst, np.asarray(median)))
    return lines


def edge_curves(released: Any, graph: NeighborGraph, epsilon: FloatArray, notion: str) -> FloatArray:
    """(n_edges, n_epsilon) upper end of δ of every edge in its worse direction."""
    releases = Releases.collect(released)
    pairs = releases.edge_positions(graph)
    if len(pairs) == 0:
        raise InputError("graph has no edges: there is no worst edge to report")
    found = log_delta_brackets(releases, pairs, CODES[notion], epsilon, np.zeros((len(pairs), 2)))
    upper = split_brackets(found.reshape(-1, 3))[2].reshape(found.shape[:3])
    return np.asarray(exp_rounded_up(upper).max(axis=1))


def shown(delta: float, digits: int = 3) -> str:
    """δ for a reader, rounded up; what cannot be told from 1 in these digits reads as 1."""
    if delta <= 0:
        return "0"
    return f"{up(delta, digits, 1.0):.{digits}g}"


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Records as CSV."""
    listed = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(listed[0]))
        writer.writeheader()
        writer.writerows({k: cell(v) if isinstance(v, str) else v for k, v in row.items()} for row in listed)


def as_text(header: list[str], rows: list[list[str]]) -> str:
    """A table for the terminal: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([cells[0].ljust(widths[0]), *rest]).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *map(line, rows)])
