"""The ledger as a journal for people: what was released when, about how many labels, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.ledger import crowds, journal, readings
from shoal.ledger.state import State
from shoal.rounding import upper

NOTHING = "nothing was charged"


@dataclass(frozen=True)
class LogRow:
    """One act on the ledger.

    ``kind`` is ``"budget"``, ``"answers"`` (charged releases), ``"crowds"`` or ``"readings"``; ``name`` is that of the
    release and ``folder`` where it was made, as far as the record says; ``table`` is the digest of the public table,
    ``labels`` how many labels it was about and ``cost`` what was spent, in words.
    """

    time: str
    kind: str
    name: str
    folder: str
    table: str
    labels: int
    cost: str


def logged(state: State) -> list[LogRow]:
    """All rows, in order; answers of one name that were charged in one transaction are one row."""
    rows: list[LogRow] = []
    together: dict[tuple[Any, ...], tuple[str, set[str], set[str]]] = {}

    def flush() -> Iterator[LogRow]:
        for (_, name, analyst), (time, labels, mechanisms) in together.items():
            costs = [_cost(state, digest, epsilon) for digest in sorted(mechanisms)]
            whom = f"to {analyst}; " if analyst else ""
            yield LogRow(time, "answers", name, "", "", len(labels), whom + "; ".join(sorted({*costs})))
        together.clear()

    epsilon: float | None = None
    for entry, _ in journal.entries(state.transaction):
        if entry.kind not in ("budget", "release", crowds.KIND, readings.KIND):
            continue
        content = entry.content
        time = str(content["time"])
        if entry.kind == "release":
            key = (content["batch"], content["query_id"], content.get("analyst"))
            if together and next(iter(together))[0] != content["batch"]:
                rows += flush()
            _, labels, mechanisms = together.setdefault(key, (time, set(), set()))
            labels.add(content["label"])
            mechanisms.add(content["mechanism"])
            continue
        rows += flush()
        if entry.kind == "budget":
            whose = ", ".join(content.get("names", ())) or "every label"
            epsilon = float(content["epsilon"]) if content["scope"] == "all" else epsilon
            allowed = f"δ({content['epsilon']:g}) ≤ {content['delta']:g} allowed"
            rows.append(LogRow(time, "budget", whose, "", "", len(content.get("names", ())), allowed))
        elif entry.kind == crowds.KIND:
            rows.append(_crowds(time, content))
        else:
            cost = f"μ = {content['mu']:g} of {content['cap']:g}"
            rows.append(LogRow(time, "readings", content["query_id"], "", "", len(content["labels"]), cost))
    return [*rows, *flush()]


def _crowds(time: str, content: Mapping[str, Any]) -> LogRow:
    facts = content["facts"]
    homes = facts.get("homes", 0)
    number = homes if isinstance(homes, int) else 0
    return LogRow(time, "crowds", content["query_id"], str(facts.get("folder", "")), content["table"], number, NOTHING)


def _cost(state: State, digest: str, epsilon: float | None) -> str:
    """What a table through one mechanism costs, by its bound on record; "charged" where there is none."""
    bound = state.bound(digest) if epsilon is not None else None
    if bound is None or epsilon is None:
        return "charged"
    return f"δ({epsilon:g}) ≤ {upper(bound.table_at(epsilon), 3)} charged"
