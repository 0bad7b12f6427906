"""Small mechanisms whose privacy is known, and rows of crowds, for the tests of the ledger."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
from scipy.linalg import block_diag

from shoal import GaussianClasses, Ledger, Mechanism, NeighborGraph, design
from shoal.mechanism.discrete_loss import sum_rounded_up
from shoal.product.ledger.accounts import Account, compose_account
from shoal.product.ledger.budgets import Budget
from shoal.product.ledger.composition import Charges, sum_tv
from shoal.product.ledger.decide import HEADROOM
from shoal.product.ledger.state import graph_digest


def point(n: int = 3, k: int = 2, *, gap: float = 0.1, rho: float = 1.0, seed: int = 0, prefix: str = "h") -> Mechanism:
    """Constants with equal noise for all labels, every pair joined: one release costs little and has a closed form."""
    means = gap * np.random.default_rng(seed).standard_normal((n, k))
    classes = GaussianClasses.deterministic(means, [f"{prefix}{i}" for i in range(n)])
    return design(classes, NeighborGraph.complete(classes.labels), "white", 1.0, rho)


def trajectory(n: int = 3, k: int = 2, *, gap: float = 0.1, seed: int = 1, prefix: str = "h") -> Mechanism:
    """Random answers with unequal covariances."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, k, 4 * k))
    covs = np.eye(k) + 0.1 * factors @ factors.transpose(0, 2, 1) / (4 * k)
    classes = GaussianClasses(gap * rng.standard_normal((n, k)), covs, [f"{prefix}{i}" for i in range(n)])
    return design(classes, NeighborGraph.complete(classes.labels), "white", 1.0, 1.0)


def answer(mechanism: Mechanism, label: str) -> np.ndarray:
    """The true answer of a label: its mean."""
    return np.array(mechanism.classes.means[mechanism.classes.labels.index(label)])


def ask(ledger: Ledger, mechanism: Mechanism, label: str, query: object) -> np.ndarray:
    """Release the true answer of a label under a name."""
    return ledger.release(mechanism, answer(mechanism, label), label, query_id=str(query))


def exchanged(families: list[GaussianClasses], about: list[int], opposite: list[int]) -> GaussianClasses:
    """The two worlds of a pair, a and b, written out as two laws of one long vector: what was released about a, then
    what was released about b; label "one" has them as they are, label "two" with a and b exchanged."""
    means: list[list[np.ndarray]] = [[], []]
    covs: list[list[np.ndarray]] = [[], []]
    for whose, counts in enumerate((about, opposite)):
        for family, times in zip(families, counts, strict=True):
            full = np.broadcast_to(family.stored_covs, (2, family.n_dims, family.n_dims))
            for world in range(2):
                law = whose if world == 0 else 1 - whose
                means[world] += [family.means[law]] * times
                covs[world] += [full[law]] * times
    blocks = [block_diag(*parts) for parts in covs]
    return GaussianClasses(np.array([np.concatenate(parts) for parts in means]), np.array(blocks), ["one", "two"])


def recorded(ledger: Ledger, query: str) -> list[str]:
    """The labels with an answer on record under a name."""
    return [e.content["label"] for e in ledger.entries() if e.kind == "release" and e.content["query_id"] == query]


def spent_at(ledger: Ledger, label: str, *epsilons: float) -> np.ndarray:
    """The composed δ of a label's worst pair at each ε: what a budget for a series fixed in advance would count."""
    with ledger._reading() as state:
        return np.array([compose_account(state, label, Budget(epsilon, 0.999, "fixed")).spent for epsilon in epsilons])


def spent_after(ledger: Ledger, mechanism: Mechanism, label: str, times: int = 1) -> Account:
    """The account of a label after so many more releases about it; nothing is written."""
    with ledger._reading() as state:
        state.held[mechanism.digest] = mechanism
        state.join_graph(mechanism.digest, graph_digest(mechanism.graph))
        for _ in range(times):
            tv = mechanism.finite_precision_tv
            state.append("release", {"label": label, "mechanism": mechanism.digest, "tv": tv})
        assert state.budget is not None
        return compose_account(state, label, state.budget)


def fits(ledger: Ledger, mechanism: Mechanism, label: str, times: int = 1) -> bool:
    """Whether so many more releases about a label would be within its budget; nothing is written."""
    account = spent_after(ledger, mechanism, label, times)
    return account.spent * (1 + HEADROOM) <= account.budget


def charges(uses: list[tuple[str, float, int]]) -> Charges:
    """Charges of mechanisms, each with the total variation of one use and how often it was used."""
    sums: dict[str, tuple[int, float]] = {}
    for digest, tv, times in uses:
        before = sums.get(digest, (0, 0.0))
        sums[digest] = (before[0] + times, sum_tv(before[1], sum_rounded_up(*[tv] * times)))
    return Charges(tuple((digest, *sums[digest]) for digest in sorted(sums)))


SETTING = json.dumps({"query": "point", "unit": "kW", "m": 3})
TABLE = "ab" * 32


def members(rows: Any, *, stored: float = 1.0, last: str = "x", block: Any = None) -> pl.DataFrame:
    """Rows of members for the ledger, from pairs (label, crowd)."""
    return pl.DataFrame(
        {
            "label": [label for label, _ in rows],
            "crowd": [crowd for _, crowd in rows],
            "stored": [np.full(4, stored).tobytes()] * len(rows),
            "last": [last] * len(rows),
            "block": [block] * len(rows),
            "entered": [b""] * len(rows),
            "held": [""] * len(rows),
        },
        schema_overrides={"label": pl.String, "crowd": pl.Int64, "stored": pl.Binary, "block": pl.Int64},
    )


def crowds(rows: Any, period: str, *, setting: str = SETTING, retired: bool = False) -> pl.DataFrame:
    """Rows of crowds for the ledger, from pairs (number, homes)."""
    return pl.DataFrame(
        {
            "crowd": [number for number, _ in rows],
            "setting": [setting] * len(rows),
            "period": [period] * len(rows),
            "row": [np.full(4, float(len(period))).tobytes()] * len(rows),
            "members": [homes for _, homes in rows],
            "retired": [retired] * len(rows),
            "kept": [""] * len(rows),
        },
        schema_overrides={"crowd": pl.Int64, "members": pl.Int64, "row": pl.Binary},
    )


def record_crowds(ledger: Ledger, name: str, m: pl.DataFrame, c: pl.DataFrame, **other: Any) -> Any:
    """Release crowds under a name, on the tables as they are now."""
    given = {"book_digest": ledger.crowds().digest, "table_digest": TABLE, "facts": {"members": m.height}} | other
    return ledger.record_crowds(name, members=m, crowds=c, **given)


def names(prefix: str, n: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]
