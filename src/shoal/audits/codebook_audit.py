"""The audit of a codebook: do draws come as often as they should, and how often does an attacker name a row.

Every label's counts are held against its stored probabilities, whose ratios are the promise; attackers then name rows,
one by one or by the likeliest assignment of a whole table, which no attacker may do more often than e^ε/(e^ε + n − 1)
allows. With probability ``confidence`` nothing that is said is false.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal import validation
from shoal.accounting.assignments import likeliest_assignments
from shoal.accounting.releases import SCOPES
from shoal.accounting.risk import group_naming_bound
from shoal.audits.confidence import clopper_pearson_lower, clopper_pearson_upper
from shoal.audits.results import Naming
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.integer_probabilities import probabilities
from shoal.rounding import upper

#: Share of the error probability for the law tests; the rest is for naming.
LAWS = 0.5


@dataclass(frozen=True)
class CodebookAudit:
    """Result of attacks on a codebook; ``verdict`` is "consistent" or "violated".

    ``wrong_laws`` counts labels whose draws do not follow their stored probabilities. ``naming`` is the attack that
    names rows, one row of every table looked at.
    """

    scope: str
    confidence: float
    n_samples: int
    n_labels: int
    wrong_laws: int
    naming: Naming

    @property
    def violations(self) -> int:
        """The number of claims that are broken: laws of labels, and naming."""
        return self.wrong_laws + len(self.naming.violations)

    @property
    def verdict(self) -> str:
        """ "violated" or "consistent"."""
        return "violated" if self.violations else "consistent"

    def __str__(self) -> str:
        return (
            f"{self.verdict}: {self.wrong_laws} of {self.n_labels} labels drawn otherwise than promised; "
            f"{self.naming.accuracy:.3g} of {self.naming.n_answers} rows named, promised at most "
            f"{upper(self.naming.promise_upper, 3)} of them"
        )


def audit_codebook(
    book: Codebook, *, scope: str | None = None, n_samples: int = 2000, confidence: float = 0.95, seed: int = 0
) -> CodebookAudit:
    """Return an audit of ``n_samples`` draws per label of a codebook, as :func:`shoal.audit` of one does.

    >>> import shoal
    >>> book = shoal.codebook([[0.0], [1.0], [3.0]], shoal.NeighborGraph.complete(["a", "b", "c"]), epsilon=2.0)
    >>> shoal.audit(book, n_samples=300, confidence=0.999999).verdict
    'consistent'
    """
    scope = validation.choice(SCOPES, scope=scope or book.scope)
    n_samples = validation.count(n_samples=n_samples, at_least=10)
    confidence = validation.probability(confidence=confidence, below_one=True, above_zero=True)
    error, rng = 1.0 - confidence, np.random.default_rng(seed)
    crowds = [crowd for crowd in book.crowds if len(crowd.members) > 1]
    n_labels = sum(len(crowd.members) for crowd in crowds)
    wrong = named = rows = 0
    promise = guessing = 0.0
    for crowd in crowds:
        labels = [book.labels[i] for i in crowd.members]
        draws = np.array([[book.draw(label) for _ in range(n_samples)] for label in labels])
        odds, (n, m) = probabilities(crowd.counts), crowd.counts.shape
        # Every curve's count has an exact interval that holds its probability (Clopper & Pearson 1934).
        counts, tail = np.array([np.bincount(row, minlength=m) for row in draws]), LAWS * error / (2 * m * n_labels)
        low, high = (bound(counts, n_samples, tail) for bound in (clopper_pearson_lower, clopper_pearson_upper))
        wrong += int(((odds < low) | (odds > high)).any(axis=1).sum())
        with np.errstate(divide="ignore"):
            logs = np.log(odds)
        at = rng.integers(n, size=n_samples)
        if scope == "table":
            order = rng.permuted(np.tile(np.arange(n), (n_samples, 1)), axis=1)  # rows in an order that tells nothing
            seen = np.take_along_axis(draws.T, order, axis=1)
            matched = likeliest_assignments(np.maximum(logs[:, seen].transpose(1, 2, 0), -1e3))
            right = matched[np.arange(n_samples), at] == order[np.arange(n_samples), at]
        else:
            best = logs.argmax(axis=0)
            right = best[draws[at, np.arange(n_samples)]] == at
        named += int(right.sum())
        rows += n_samples
        # Of the crowds together: rows of each are looked at equally often.
        promise += group_naming_bound(n, book.epsilon) / len(crowds)
        guessing += 1.0 / n / len(crowds)
    share = (1.0 - LAWS) * error / 2
    least, most = (float(bound(named, max(rows, 1), share)) for bound in (clopper_pearson_lower, clopper_pearson_upper))
    held = min(promise * (1 + 1e-12), 1.0)
    attack = "matching" if scope == "table" else "one row"
    naming = Naming(attack, named / max(rows, 1), least, most, held, held, guessing, rows)
    return CodebookAudit(scope, confidence, n_samples, n_labels, wrong, naming)
