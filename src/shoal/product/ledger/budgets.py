"""Budgets of labels, the account of the readings' promise, and the order of periods.

A budget δ(ε) ≤ δ is held against pairs of neighbors (:mod:`shoal.product.ledger.composition`); a later one replaces it.
Its mode is "adaptive", a filter that holds for every way of choosing (:mod:`shoal.mechanism.composition`; the first
batch counts as fixed), or "fixed", exact composition of a series that was fixed in advance (docs/theory.md, section
15).

The readings' promise has an account of its own (docs/theory.md, section 16): Σμ² and its cap M², in exact fractions,
for everybody on the register. It does not cover what a label's promise releases from the same readings. So a release of
crowds about the same label needs a later period than its last release of readings, and the other way round; charged
mechanisms, which name no period, and releases of readings about one of their labels exclude each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from shoal import validation
from shoal.errors import InputError
from shoal.mechanism.composition import FilterRule
from shoal.plaintext import name_key
from shoal.product.ledger.storage import check_text

#: The mode that holds where none is named comes first.
MODES = ("adaptive", "fixed")


@dataclass(frozen=True)
class Budget:
    """δ at most ``delta`` at ``epsilon``, for the way of choosing that ``mode`` names."""

    epsilon: float
    delta: float
    mode: str = MODES[0]

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Budget:
        """The budget that a ledger entry with this content sets."""
        mode = validation.choice(MODES, mode=content["mode"])
        return cls(float(content["epsilon"]), float(content["delta"]), mode)

    @cached_property
    def rule(self) -> FilterRule:
        """The filter that decides about releases chosen in the light of earlier answers."""
        return FilterRule(self.epsilon, self.delta)

    def uses_filter(self, batches: frozenset[int]) -> bool:
        """Whether the filter decides: an adaptive budget, and charges of more than one transaction."""
        return self.mode == "adaptive" and len(batches) > 1


def budget_entry(epsilon: float, delta: float, before: Budget | None, mode: str | None = None) -> dict[str, Any]:
    """A budget as the ledger records it; a mode that is not named is that of the budget ``before``."""
    if mode is None:
        mode = MODES[0] if before is None else before.mode
    return {
        "epsilon": validation.non_negative(epsilon=epsilon),
        "delta": validation.probability(delta=delta, below_one=True),
        "mode": validation.choice(MODES, mode=mode),
    }


class ReadingsTotal(NamedTuple):
    """Σμ² spent about a label so far, the cap M that was fixed with the first release, and the last period."""

    spent: Fraction = Fraction(0)
    cap: float = 0.0
    period: str = ""

    def add_release(self, content: Mapping[str, Any]) -> ReadingsTotal:
        """The account after a release of readings with this entry content."""
        spent = self.spent + Fraction(float(content["mu"])) ** 2
        last = content["period"] if not self.period or is_later(content["period"], self.period) else self.period
        return ReadingsTotal(spent, self.cap or float(content["cap"]), last)


#: The account of everybody on the register, whoever sent readings: charged for every release, so that no refusal by a
#: cap depends on who is in a file. A label of that name would be charged twice, which is on the safe side.
REGISTER = "everybody on the register"


def readings_entry(
    name: str, period: str, labels: Sequence[Any], mu: float, cap: float, since: str | None = None
) -> dict[str, Any]:
    """A release of readings as the ledger records it."""
    if isinstance(labels, (str, bytes)) or not len(labels):
        raise InputError("labels must be a sequence of at least one label")
    names = sorted({check_text(label=str(label)) for label in labels})
    if len(names) != len(labels) or len({name_key(name) for name in names}) < len(names):
        raise InputError("labels must hold every label once, in one spelling")
    return {
        "query_id": check_text(name=name),
        "period": check_text(period=period),
        "labels": names,
        "mu": validation.positive(mu=mu),
        "cap": validation.positive(cap=cap),
        **({} if since is None else {"since": check_text(since=since)}),
    }


def is_later(period: str, than: str) -> bool:
    """Whether a period surely comes after another.

    Two days, or times that both have an offset or both have none, are compared as such, and a day with a time by the
    days; two texts that are no times are compared as texts. Of different kinds neither is later than the other.
    """
    time, other = _parse_period(period), _parse_period(than)
    if time is None and other is None:
        return period.strip().casefold() > than.strip().casefold()
    if time is None or other is None:
        return False
    if not (isinstance(time, datetime) and isinstance(other, datetime)):
        days = [moment.date() if isinstance(moment, datetime) else moment for moment in (time, other)]
        return days[0] > days[1]
    return (time.tzinfo is None) == (other.tzinfo is None) and time > other


def is_window_after(start: str | None, period: str, last: str) -> bool:
    """Whether what is made from readings of ``start`` to ``period`` uses none from before ``last``.

    Without a start it is about one period, which must come later.

    >>> is_window_after("2024-01-09", "2024-01-24", "2024-01-09")
    True
    >>> is_window_after("2024-01-08", "2024-01-23", "2024-01-09")
    False
    """
    if start is None or not is_later(period, last):
        return is_later(period, last)
    return start == last or is_later(start, last)


def window_start(period: str, days: float | None) -> str | None:
    """The instant ``days`` before a period that is a time; None for a period that is no time, or without days."""
    moment = _parse_period(period)
    if days is None or moment is None:
        return None
    start = moment - timedelta(days=days)
    return start.isoformat().replace("+00:00", "Z")


def _parse_period(period: str) -> date | None:
    """A period as a date or a datetime; None for any other text."""
    for kind in (date, datetime):
        try:
            return kind.fromisoformat(period)
        except ValueError:
            continue
    return None
