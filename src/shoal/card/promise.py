"""The promise in one sentence, the same wherever it is printed; docs/promise.md states and defends it.

There are two, for who holds the whole table and for who holds one row of it: what was released decides.

Hockey-stick δ says P(S) ≤ e^ε P'(S) + δ for every event S. It does not bound Pr(L > ε), the probability that the
likelihood ratio exceeds e^ε: that is probabilistic DP, and can be many times δ.
"""

from __future__ import annotations

from decimal import Context, Decimal

from shoal.card.digits import upper

SENTENCES = {
    "answer": "any conclusion drawn from a released answer (any event, test or decision) is at most {factor}as "
    "probable as it would be had the answer been about a neighbor, plus {delta}.",
    "table": "any conclusion drawn from the released table (any event, test or decision) is at most {factor}as "
    "probable as it would be had any two neighbors exchanged their rows, plus {delta}.",
}
#: Scope -> who it is about.
HOLDERS = {"answer": "who holds one row", "table": "who holds the whole table"}
#: Digits of e^ε as printed, rounded up.
DIGITS = 3


def promise(epsilon: float, delta: str, scope: str = "answer") -> str:
    """P ≤ e^ε P' + δ in words; ``delta`` is text that somebody rounded up already."""
    said = SENTENCES[scope].format(factor="" if epsilon == 0 else f"{factor(epsilon)} times ", delta=delta)
    return f"For {HOLDERS[scope]}: {said}"


def factor(epsilon: float) -> str:
    """e^ε, rounded up."""
    wide = Context(prec=DIGITS + 20)
    power = wide.exp(Decimal(epsilon))
    if epsilon != 0:  # correctly rounded, so the next number is not below e^ε
        power = wide.next_plus(power)
    return upper(power, DIGITS)
