"""The book: what the ledger has on record about some labels and the crowds that they are in for life."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.product.ledger.ledger import Ledger
from shoal.rounding import count_of

EARLIER = (
    "period: something was released about these labels for {}, and this is about {}. Every release about a label needs "
    "a later period than the last: a later origin= for forecasts, a later period= for a table. Nothing was released"
)


@dataclass(frozen=True)
class Book:
    """The record of some labels and of all that share a crowd with them."""

    members: dict[str, dict[str, Any]] = field(default_factory=dict)  #: label -> crowd, stored, last, block
    crowds: dict[int, dict[str, Any]] = field(default_factory=dict)  #: number -> setting, period, row, members, retired
    ledger_digest: str = ""

    @classmethod
    def read(cls, ledger: Ledger | None, labels: Sequence[str]) -> Book:
        """From the ledger of a run; empty where there is none yet."""
        if ledger is None:
            return cls()
        book = ledger.crowds(list(labels))
        members = {entry.pop("label"): entry for entry in book.members.to_dicts()}
        return cls(members, {entry.pop("crowd"): entry for entry in book.crowds.to_dicts()}, book.digest)

    @property
    def digest(self) -> str:
        """The digest of these entries alone, whatever else the ledger holds."""
        state = hashlib.sha256()
        for entries in (self.members, self.crowds):
            for key, entry in entries.items():  # in the order of the ledger, by label and by number
                state.update(repr((key, *entry.values())).encode())
        return state.hexdigest()

    @property
    def lasting(self) -> list[dict[str, Any]]:
        """The crowds that are not retired."""
        return [entry for entry in self.crowds.values() if not entry["retired"]]

    @property
    def size(self) -> int | None:
        """Members promised of the lasting crowds, the least of them; None where there are none."""
        return min((int(json.loads(entry["setting"])["m"]) for entry in self.lasting), default=None)

    def allow(self, setting: dict[str, Any], origin: str, steps: int | None) -> None:
        """Refuse, before anything is fitted, a setting or a period that the crowds on record do not allow.

        ``steps``: figures of a row of averages, which on record may be fewer; None for rows of another kind.
        """
        self.lasting_setting(setting)
        period = as_period(origin)
        later = [entry["period"] for entry in self.lasting if entry["period"] > period]
        if later:
            raise InputError(EARLIER.format(max(later), period))
        released = [entry["row"] for entry in self.lasting if entry["period"] == period]
        most = max((len(row_values(row)) for row in released), default=0)
        if steps is not None and 0 < most < steps:
            raise InputError(
                f"horizon: forecasts from {origin} are on record with {count_of(most, 'step')}, and a period is "
                f"released once; horizon={most} gives them again, a later origin= may have more. Nothing was "
                "released"
            )

    def lasting_setting(self, setting: dict[str, Any]) -> dict[str, Any]:
        """The setting of the crowds on record, which must be this one; what was decided for good stays decided."""
        for entry in self.lasting:
            recorded = json.loads(entry["setting"])
            names = [name for name in {**recorded, **setting} if name != "decimals"]
            other = next((name for name in names if recorded.get(name) != setting.get(name)), None)
            if other is not None:
                raise InputError(_differs(other, recorded.get(other), setting.get(other)))
            setting = {**setting, **{name: recorded[name] for name in ("decimals",) if name in recorded}}
        return setting


def as_period(text: str) -> str:
    """An ISO year, month, day or instant as an instant of UTC; periods are ordered as texts.

    >>> as_period("2024-03"), as_period("2018-12-05T18:00:00+01:00")
    ('2024-03-01T00:00:00Z', '2018-12-05T17:00:00Z')
    """
    try:
        moment = datetime.fromisoformat(f"{text}-01-01"[:10] if len(text) in (4, 7) else text)
    except ValueError:
        raise InputError(
            "period must be a year, a month, a day or an instant: 2024, 2024-03, 2024-03-31", argument="period"
        ) from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def row_values(row: bytes) -> list[float]:
    """The figures of a row on record, which come after the mark of its news."""
    values: list[float] = np.frombuffer(row, dtype="<f8")[1:].tolist()
    return values


def _differs(name: str, recorded: Any, given: Any) -> str:
    setting = {"m": "crowd", "release": "method"}.get(name, name)

    def words(value: Any) -> str:
        if value is None or (name == "release" and value == "mean"):
            return f"no {setting}"
        return f"{setting} {','.join(map(str, value)) if isinstance(value, list) else value}"

    return (
        f"{setting}: these labels are in crowds that were formed with {words(recorded)}, and now it is "
        f"{words(given)}. It is fixed for a crowd's life: a second kind of figure about the same crowd would give its "
        "members away. Go on with the one on record. Nothing was released"
    )
