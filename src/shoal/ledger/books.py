"""What is in force and what has been spent, as decisions need it, inside a transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shoal.accounting.curve import round_up
from shoal.errors import BudgetError, InputError
from shoal.ledger import accounts, journal
from shoal.ledger.accounts import Account, round_down
from shoal.ledger.bounds import fits, pair_bound
from shoal.ledger.budgets import Budget, Budgets, Limit
from shoal.ledger.composition import Composer, Lookup, Side, Span, Star
from shoal.ledger.recent import Recent
from shoal.ledger.registry import Registry, is_random
from shoal.ledger.storage import Transaction
from shoal.ledger.tallies import Coming, Extra, Memory, Tallies, every, nothing_more, only
from shoal.mechanism.reader import Releaser

NO_BUDGET = "no budget is set that covers this label: call budget(epsilon=..., delta=...) first"
APART = (
    "labels: two labels that this ledger has recorded as neighbors would be answered under one query_id through "
    "different mechanisms, so that nothing hides them among each other. Keep neighbors in one mechanism"
)
CLOSED = (
    "what was released so far was to nobody in particular, a series fixed in advance; a named analyst may choose in "
    "its light. Set the budget anew with mode='adaptive', which holds for any choice (decide it without looking at "
    "answers), or with mode='fixed' if the analyst's releases were planned before"
)


def limits_on(budgets: Budgets, tallies: Tallies, label: str, analyst: str | None) -> list[Limit]:
    """Everything a release must stay within; there must be something."""
    if not budgets.cover(label):
        raise InputError(NO_BUDGET)
    return budgets.limits(label, analyst, tallies.neighbors(label))


def closed(limit: Limit, held: Iterable[Star]) -> bool:
    """Whether a limit lets nothing more through about some of these pairs, since nobody said how they are chosen."""
    return any(limit.closed(side.span) for star in held for side in star.sides)


class Books:
    """Budgets and accounts of one ledger. What is kept between calls could be read again; nothing rests on it."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.composer = Composer()
        self._memory = Memory()
        self._uppers: Recent[float] = Recent(16 * 2**20)
        self._budgets: tuple[str, Budgets] = ("", Budgets())

    def prepared(self, mechanism: Releaser, labels: Iterable[str] = ()) -> Releaser:
        """A trusted copy of a mechanism, with all that can be computed before anything is locked."""
        own = self.registry.trusted(mechanism)
        own.prepare()
        for label in labels:
            self.composer.prepare(own, label)
        return own

    def refuse_reuse(self, transaction: Transaction, mechanism: Releaser, earlier: Iterable[str]) -> None:
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

    def tallies(self, transaction: Transaction, coming: Releaser | None = None) -> Tallies:
        """What is on record, by label; ``coming`` is a mechanism that will be used, on record or not yet."""
        return Tallies(transaction, self.registry, self._memory, coming)

    def refuse_apart(self, tallies: Tallies, mechanism: Releaser, asked: Iterable[tuple[str, str]]) -> None:
        """Refuse (label, query_id) whose neighbor has its answer under that name through a mechanism without the label.

        Such answers are rows of one table, and no mechanism hides the two among each other.
        """
        gone = [
            (name, query_id)
            for label, query_id in asked
            for name in tallies.neighbors(label)
            if name not in mechanism.graph
        ]
        if any(True for _ in journal.matching(tallies.transaction, "label", ("label", "query_id"), gone)):
            raise InputError(APART)

    def within(self, limits: list[Limit], tallies: Tallies, label: str, extra: Coming) -> None:
        """Raise unless every limit holds with the extra release about ``label``.

        What the bounds of mechanisms settle is allowed on their word; a refusal rests on the exact composition.
        """
        lookup = self.lookup(tallies.transaction)
        for limit in limits:
            coming = list(tallies.stars(limit, only(label, extra)))
            if closed(limit, coming):
                raise BudgetError(
                    f"{limit.name}: {CLOSED}. Nothing was released and nothing was charged",
                    remaining=self.account(tallies, limit, lookup).remaining,
                    epsilon=limit.epsilon,
                    limit=limit.name,
                )
            held = list(self.undecided(tallies, limit, coming))
            if not held:
                continue
            spent = accounts.account(self.composer, held, limit, lookup).spent
            if fits(spent, limit.delta):
                continue
            so_far = self.account(tallies, limit, lookup)
            chosen = ""
            if any(limit.adaptive(side.span) for star in held for side in star.sides):
                chosen = " (adaptive: it holds whatever was chosen in the light of earlier answers)"
            raise BudgetError(
                f"{limit.name}: this release would raise δ({limit.epsilon:g}) to {round_up(spent):.4g}, above "
                f"its budget of {limit.delta:g}{chosen}. Spent so far: {round_up(so_far.spent):.4g}; remaining: "
                f"{round_down(so_far.remaining):.4g}. Nothing was released and nothing was charged",
                remaining=so_far.remaining,
                epsilon=limit.epsilon,
                limit=limit.name,
            )

    def settled(self, limits: list[Limit], tallies: Tallies, coming: Mapping[str, Coming]) -> bool:
        """Whether bounds alone show that every limit holds with all that is coming about labels."""
        for limit in limits:
            near = {*limit.counted, *(name for label in limit.at for name in tallies.neighbors(label))}
            held = list(tallies.stars(limit, every({name: coming[name] for name in near & coming.keys()})))
            if closed(limit, held) or any(True for _ in self.undecided(tallies, limit, held)):
                return False
        return True

    def undecided(self, tallies: Tallies, limit: Limit, held: Iterable[Star]) -> Iterator[Star]:
        """The pairs that bounds do not show to be within a limit."""
        for star in held:
            sides = tuple(side for side in star.sides if not fits(self.upper(tallies, side, limit), limit.delta))
            if sides:
                yield replace(star, sides=sides)

    def upper(self, tallies: Tallies, side: Side, limit: Limit) -> float:
        """What the bounds of mechanisms say about a pair; 1 where they say nothing.

        They hold at every edge of a mechanism's graph, and what counts for a pair was made at an edge.
        """
        chosen = limit.delta if limit.filters(side.span) else None
        key = (side.about.bare, side.opposite.bare, limit.epsilon, chosen)
        found = self._uppers.get(key)  # still a bound if more points have become known since
        if found is None:
            transaction = tallies.transaction
            found = pair_bound(side, limit, lambda digest: self.registry.bound(transaction, digest))
            if found < 1.0:
                self._uppers.put(key, found, 1000)
        return found

    def account(self, tallies: Tallies, limit: Limit, lookup: Lookup, extra: Extra = nothing_more) -> Account:
        """What has been spent of a limit, with what is about to be released."""
        return accounts.account(self.composer, list(tallies.stars(limit, extra)), limit, lookup)

    def refuse_fixed(self, transaction: Transaction, content: Mapping[str, Any]) -> None:
        """Refuse a budget for a series fixed in advance where answers may have been chosen in the light of others."""
        budgets = self.in_force(transaction)
        scope, names, members = content["scope"], content.get("names", ()), content.get("members", ())
        analyst = names[0] if scope == "analyst" else None
        where, parameters = "", {}
        if scope in ("label", "group"):
            around = self.tallies(transaction).neighbors
            labels = {near for name in members or names for near in (name, *around(name))}
            where = f" AND label IN ({transaction.listed('labels')})"
            parameters["labels"] = json.dumps(sorted(labels))
        elif analyst is not None:
            where, parameters["analyst"] = " AND analyst = :analyst", analyst
        at = "COALESCE(batch, seq)"
        for label, first, last, named in transaction.rows(
            f"SELECT label, MIN({at}), MAX({at}), MIN(CASE WHEN analyst IS NOT NULL THEN {at} END) FROM entries "
            f"WHERE kind IN ('release', 'declared', 'shown'){where} GROUP BY label",
            **parameters,
        ):
            span = Span(int(first), int(last), int(named or 0))
            if budgets.was_chosen(content, str(label), span):
                raise InputError(
                    "mode: answers were released under a budget for any way of choosing, so that what follows may have "
                    "been chosen in their light; a series that is fixed in advance is recorded before. Keep "
                    "mode='adaptive'"
                )

    def lookup(self, transaction: Transaction, extra: Releaser | None = None) -> Lookup:
        def mechanism(digest: str) -> Releaser:
            if extra is not None and digest == extra.digest:
                return extra
            return self.registry.mechanism(transaction, digest)

        return mechanism

    def stricter(self, transaction: Transaction, budget: Budget) -> bool:
        """Whether a budget implies the common one, which was set for want of any and before anything was released."""
        every = self.in_force(transaction).every
        last = transaction.value("SELECT payload FROM entries WHERE kind = 'budget' ORDER BY seq DESC LIMIT 1")
        return (
            every is not None
            and every != budget
            and budget.implies(every)
            and bool(json.loads(last).get("default"))
            and transaction.one("SELECT 1 FROM entries WHERE kind IN ('release', 'declared') LIMIT 1") is None
        )

    def in_force(self, transaction: Transaction) -> Budgets:
        last = transaction.value("SELECT hash FROM entries WHERE kind = 'budget' ORDER BY seq DESC LIMIT 1")
        known, budgets = self._budgets
        if last is None:
            return Budgets()
        if known != last:  # a hash stands for everything up to its entry
            budgets = Budgets()
            for entry in journal.fetched(transaction, "WHERE kind = 'budget' ORDER BY seq"):
                budgets = budgets.after(entry.content, entry.seq)
            self._budgets = (str(last), budgets)
        return budgets
