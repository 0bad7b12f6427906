"""What has been charged to many labels, read a block at a time inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from shoal.ledger.budgets import Limit
from shoal.ledger.composition import Charges, claim
from shoal.ledger.storage import CHUNK, Transaction


@dataclass
class _Tally:
    used: list[tuple[str, float, int]] = field(default_factory=list)
    claims: list[tuple[float, float, int]] = field(default_factory=list)


class Tallies:
    """Charges by label and, where asked for, by analyst: those on record, and those about to be recorded.

    Reads go to the database once per label; what the transaction will still write is told with :meth:`add`.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._recorded: dict[str | None, dict[str, _Tally]] = {}
        self._coming: dict[str, list[tuple[str, float, str | None]]] = {}

    def read(self, labels: Iterable[str], analyst: str | None = None) -> None:
        """Fetch what is on record about labels; for an analyst, what that analyst was shown."""
        known = self._recorded.setdefault(analyst, {})
        wanted = [label for label in dict.fromkeys(labels) if label not in known]
        for start in range(0, len(wanted), CHUNK):
            part = wanted[start : start + CHUNK]
            known.update((label, _Tally()) for label in part)
            self._fetch(known, part, analyst)

    def charges(self, limit: Limit) -> Charges:
        """What counts against a limit."""
        self.read(limit.counted, limit.analyst)
        recorded = self._recorded[limit.analyst]
        used: list[tuple[str, float, int]] = []
        claims: list[tuple[float, float, int]] = []
        for label in limit.counted:
            used += recorded[label].used
            claims += recorded[label].claims
            for digest, tv, shown_to in self._coming.get(label, ()):
                if limit.analyst is None or shown_to in (None, limit.analyst):
                    used.append((digest, tv, 1))
        return Charges.of(used, claims)

    def add(self, label: str, digest: str, tv: float, analyst: str | None) -> None:
        """Count a release that will be recorded before the transaction ends."""
        self._coming.setdefault(label, []).append((digest, tv, analyst))

    def clear(self) -> None:
        """Forget everything: what was coming has been written."""
        self._recorded.clear()
        self._coming.clear()

    def _fetch(self, into: dict[str, _Tally], labels: list[str], analyst: str | None) -> None:
        parameters = {"labels": json.dumps(labels)}
        these = self._transaction.listed("labels")
        where = f"label IN ({these}) AND kind IN ('release', 'declared')"
        if analyst is not None:
            parameters["analyst"] = analyst
            where += (
                " AND (analyst = :analyst OR analyst IS NULL OR seq IN (SELECT release FROM entries WHERE "
                f"kind = 'shown' AND label IN ({these}) AND (analyst = :analyst OR analyst IS NULL)))"
            )
        for label, digest, tv, times in self._transaction.rows(
            f"SELECT label, mechanism, COALESCE(tv, 0), SUM(COALESCE(times, 1)) FROM entries WHERE {where} "
            "AND mechanism IS NOT NULL GROUP BY label, mechanism, COALESCE(tv, 0)",
            **parameters,
        ):
            into[str(label)].used.append((str(digest), float(tv), int(times)))
        for label, payload in self._transaction.rows(
            f"SELECT label, payload FROM entries WHERE {where} AND mechanism IS NULL", **parameters
        ):
            into[str(label)].claims.append(claim(payload))


def charges(transaction: Transaction, limit: Limit) -> Charges:
    """What is on record against one limit."""
    return Tallies(transaction).charges(limit)
