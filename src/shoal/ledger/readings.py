"""The account of releases under the readings' promise: one number per label, Σμ², and its cap.

A release that is μ-GDP for every home's whole readings adds μ² to the account of every label it is about. Given the
public transcript each step is μ_t-GDP, with μ_t a function of that transcript, and Σμ_t² ≤ M² surely for an M fixed
before the first: then the whole transcript is M-GDP (Smith & Thakurta 2022; Koskela,
Tobaben & Honkela 2023). So the cap M is fixed with the first release about a label, every later one names the same, and
one that would exceed it is refused. Sums are exact fractions of the stated doubles: nothing is rounded.

The promise about readings does not cover what a label's promise releases from the same readings, nor the other way
round. So the two refuse each other: a release of crowds about the same label needs a later period than its last release
of readings, and the other way round; charged mechanisms, which name no period and are made from the answers of all
their labels, and releases of readings about one of these exclude each other altogether.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal import validation
from shoal.errors import BudgetError, InputError
from shoal.ledger.questions import later, word

if TYPE_CHECKING:
    from shoal.ledger.state import State

#: Kind of the entry of a release under the readings' promise.
KIND = "readings"
NOTHING_RECORDED = "Nothing was recorded"


class ReadingsTotal(NamedTuple):
    """Σμ² spent about a label so far, the cap M that was fixed with the first release, and the last period."""

    spent: Fraction = Fraction(0)
    cap: float = 0.0
    period: str = ""

    def after(self, content: Mapping[str, Any]) -> ReadingsTotal:
        """The account once an entry with this content is recorded."""
        spent = self.spent + Fraction(float(content["mu"])) ** 2
        last = content["period"] if not self.period or later(content["period"], self.period) else self.period
        return ReadingsTotal(spent, self.cap or float(content["cap"]), last)

    @property
    def exceeded(self) -> bool:
        """Whether more is spent than the cap allows."""
        return self.spent > Fraction(self.cap) ** 2


def as_entry(name: str, period: str, labels: Sequence[Any], mu: float, cap: float) -> dict[str, Any]:
    """A release of readings as the ledger records it."""
    if isinstance(labels, (str, bytes)) or not len(labels):
        raise InputError("labels must be a sequence of at least one label")
    names = sorted({word(label=str(label)) for label in labels})
    if len(names) != len(labels):
        raise InputError("labels must hold every label once")
    return {
        "query_id": word(name=name),
        "period": word(period=period),
        "labels": names,
        "mu": validation.positive(mu=mu),
        "cap": validation.positive(cap=cap),
    }


def refusal(state: State, content: Mapping[str, Any]) -> BudgetError | InputError | None:
    """Why a release of readings must not be recorded, where it must not; None where it may."""
    cap = float(content["cap"])
    accounts = state.readings(content["labels"])
    if any(account.cap not in (0.0, cap) for account in accounts.values()):
        return InputError(
            f"cap: a label has another cap on record, fixed with the first release about it. {NOTHING_RECORDED}"
        )
    if any(account.after(content).exceeded for account in accounts.values()):
        return BudgetError(
            f"mu: the release would raise the sum of squares of a label above that of its cap. {NOTHING_RECORDED}",
            limit="readings",
        )
    state.read(content["labels"])
    if any(state.of(label).graphs for label in content["labels"]):
        return InputError(
            "labels: a mechanism on record was made for a label, under the labels' promise, which the promise about "
            f"readings does not cover. {NOTHING_RECORDED}"
        )
    return None
