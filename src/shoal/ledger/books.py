"""What is in force and what has been spent, as decisions need it, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.errors import BudgetError, InputError
from shoal.ledger import accounts, composition
from shoal.ledger.accounts import Account, round_down
from shoal.ledger.budgets import Budgets, Limit
from shoal.ledger.chain import Entry
from shoal.ledger.composition import Composer, Lookup
from shoal.ledger.questions import Question
from shoal.ledger.registry import Registry, is_random
from shoal.ledger.storage import Transaction
from shoal.mechanisms.mechanism import Mechanism
from shoal.privacy.curve import round_up

NO_BUDGET = "no budget is set that covers this label: call budget(epsilon=..., delta=...) first"


class Books:
    """Budgets and accounts of one ledger. What is kept between calls could be read again; nothing rests on it."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.composer = Composer()
        self._budgets: tuple[str, Budgets] = ("", Budgets())

    def prepared(self, mechanism: Mechanism, labels: Iterable[str] = ()) -> Mechanism:
        """A trusted copy of a mechanism, with all that can be computed before anything is locked."""
        own = self.registry.trusted(mechanism)
        own.prepare()
        for label in labels:
            self.composer.prepare(own, label)
        return own

    def refuse_reuse(self, transaction: Transaction, mechanism: Mechanism, question: Question) -> None:
        """Fresh noise on a random answer that was released before is not an independent release."""
        rows = transaction.rows(
            "SELECT DISTINCT mechanism FROM entries WHERE label = :label AND answer = :answer AND kind = 'release'",
            label=question.label,
            answer=question.answer,
        )
        if rows and (is_random(mechanism) or any(is_random(self.registry.mechanism(transaction, r[0])) for r in rows)):
            raise InputError(
                "answer: this very answer was already released about the label under another query_id. Its own "
                "randomness protects once only, so the two releases are not independent: ask with the earlier "
                "query_id, or stack both into one release with GaussianClasses.joint"
            )

    def limits(self, transaction: Transaction, label: str, analyst: str | None) -> list[Limit]:
        limits = self.in_force(transaction).limits(label, analyst)
        if all(limit.analyst is not None for limit in limits):
            raise InputError(NO_BUDGET)
        return limits

    def within(self, transaction: Transaction, limits: list[Limit], extra: tuple[str, float, int]) -> None:
        """Raise unless every limit holds with the extra release."""
        lookup = self.lookup(transaction)
        for limit in limits:
            after = self.account(transaction, limit, lookup, extra)
            if after.spent <= limit.delta:
                continue
            before = self.account(transaction, limit, lookup)
            raise BudgetError(
                f"{limit.name}: this release would raise δ({limit.epsilon:g}) to {round_up(after.spent):.4g}, above "
                f"its budget of {limit.delta:g}. Spent so far: {round_up(before.spent):.4g}; remaining: "
                f"{round_down(before.remaining):.4g}. Nothing was released and nothing was charged",
                remaining=before.remaining,
                epsilon=limit.epsilon,
                limit=limit.name,
            )

    def account(
        self, transaction: Transaction, limit: Limit, lookup: Lookup, extra: tuple[str, float, int] | None = None
    ) -> Account:
        charged = composition.charges(transaction, limit.counted, limit.analyst)
        if extra is not None:
            charged = charged.plus(*extra)
        return accounts.account(self.composer, charged, limit, lookup)

    def lookup(self, transaction: Transaction, extra: Mechanism | None = None) -> Lookup:
        def mechanism(digest: str) -> Mechanism:
            if extra is not None and digest == extra.digest:
                return extra
            return self.registry.mechanism(transaction, digest)

        return mechanism

    def in_force(self, transaction: Transaction) -> Budgets:
        last = transaction.value("SELECT hash FROM entries WHERE kind = 'budget' ORDER BY seq DESC LIMIT 1")
        known, budgets = self._budgets
        if last is None:
            return Budgets()
        if known != last:  # a hash stands for everything up to its entry
            budgets = Budgets()
            for row in transaction.rows(
                "SELECT seq, kind, payload, previous, hash FROM entries WHERE kind = 'budget' ORDER BY seq"
            ):
                budgets = budgets.after(Entry(*row).content)
            self._budgets = (str(last), budgets)
        return budgets
