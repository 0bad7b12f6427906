"""What is in force and what has been spent, as decisions need it, inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.accounting.curve import round_up
from shoal.errors import BudgetError, InputError
from shoal.ledger import accounts
from shoal.ledger.accounts import Account, round_down
from shoal.ledger.bounds import bounded
from shoal.ledger.budgets import Budgets, Limit
from shoal.ledger.chain import Entry
from shoal.ledger.composition import Charges, Composer, Lookup
from shoal.ledger.recent import Recent
from shoal.ledger.registry import Registry, is_random, one_graph
from shoal.ledger.storage import Transaction
from shoal.ledger.tallies import Tallies
from shoal.mechanism import Mechanism

NO_BUDGET = "no budget is set that covers this label: call budget(epsilon=..., delta=...) first"


def limits_on(budgets: Budgets, label: str, analyst: str | None) -> list[Limit]:
    """Everything a release must stay within; there must be something."""
    limits = budgets.limits(label, analyst)
    if all(limit.analyst is not None for limit in limits):
        raise InputError(NO_BUDGET)
    return limits


class Books:
    """Budgets and accounts of one ledger. What is kept between calls could be read again; nothing rests on it."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.composer = Composer()
        self._uppers: Recent[float] = Recent(16 * 2**20)
        self._budgets: tuple[str, Budgets] = ("", Budgets())

    def prepared(self, mechanism: Mechanism, labels: Iterable[str] = ()) -> Mechanism:
        """A trusted copy of a mechanism, with all that can be computed before anything is locked."""
        own = self.registry.trusted(mechanism)
        own.prepare()
        for label in labels:
            self.composer.prepare(own, label)
        return own

    def refuse_reuse(self, transaction: Transaction, mechanism: Mechanism, earlier: Iterable[str]) -> None:
        """Fresh noise on a random answer is not an independent release; ``earlier`` mechanisms released it before."""
        digests = list(earlier)
        if digests and (
            is_random(mechanism) or any(is_random(self.registry.mechanism(transaction, d)) for d in digests)
        ):
            raise InputError(
                "answer: this very answer was already released about the label under another query_id. Its own "
                "randomness protects once only, so the two releases are not independent: ask with the earlier "
                "query_id, or stack both into one release with GaussianClasses.joint"
            )

    def within(
        self, transaction: Transaction, limits: list[Limit], tallies: Tallies, extra: tuple[str, float, int]
    ) -> None:
        """Raise unless every limit holds with the extra release.

        What the bounds of mechanisms settle is allowed on their word; a refusal rests on the exact composition.
        """
        lookup = self.lookup(transaction)
        for limit in limits:
            before = tallies.charges(limit)
            after = before.plus(*extra)
            if self.upper(transaction, after, limit) <= limit.delta:
                continue
            spent = accounts.account(self.composer, after, limit, lookup).spent
            if spent <= limit.delta:
                continue
            so_far = accounts.account(self.composer, before, limit, lookup)
            raise BudgetError(
                f"{limit.name}: this release would raise δ({limit.epsilon:g}) to {round_up(spent):.4g}, above "
                f"its budget of {limit.delta:g}. Spent so far: {round_up(so_far.spent):.4g}; remaining: "
                f"{round_down(so_far.remaining):.4g}. Nothing was released and nothing was charged",
                remaining=so_far.remaining,
                epsilon=limit.epsilon,
                limit=limit.name,
            )

    def upper(self, transaction: Transaction, charged: Charges, limit: Limit) -> float:
        """What the bounds of mechanisms say about an account; 1 where they say nothing.

        Bounds hold at every edge of a mechanism's graph, so they hold for all members of a group in that graph.
        """
        if len(limit.at) > 1 and not one_graph(transaction, limit.at):
            return 1.0
        key = (charged.used, charged.tv, limit.epsilon, charged if charged.claims else None)
        found = self._uppers.get(key)  # still a bound if more points have become known since
        if found is None:
            found = bounded(charged, limit.epsilon, lambda digest: self.registry.bound(transaction, digest))
            if found < 1.0:
                self._uppers.put(key, found, 1000)
        return found

    def account(
        self, transaction: Transaction, limit: Limit, lookup: Lookup, extra: tuple[str, float, int] | None = None
    ) -> Account:
        charged = Tallies(transaction).charges(limit)
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
