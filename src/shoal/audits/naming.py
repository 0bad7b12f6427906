"""Naming the label of a released answer among all that it might belong to."""

from __future__ import annotations

import numpy as np

from shoal.accounting.risk import identification_risk
from shoal.audits.confidence import lower_bound, upper_bound
from shoal.audits.findings import Finding
from shoal.audits.residuals import Laws
from shoal.audits.trials import FEWEST
from shoal.audits.verdict import Naming
from shoal.classes import GaussianClasses
from shoal.graph import NeighborGraph
from shoal.validation import FloatArray

#: Log-densities computed at most; with more labels fewer answers of each are looked at.
DENSITIES = 10_000_000


def name_labels(
    output: GaussianClasses,
    graph: NeighborGraph,
    claim: Laws,
    released: list[FloatArray],
    own: list[FloatArray],
    error: float,
    seed: int,
) -> tuple[Naming | None, list[Finding]]:
    """The Bayes attacker, told the component, names the label of every answer.

    Hits are counted label by label with unequal probabilities; Clopper–Pearson bounds from their total still hold,
    since a sum of unequal Bernoulli variables is less spread than a binomial of the same mean (Hoeffding 1956).
    """
    n = output.n_classes
    m = min(min(len(y) for y in released), DENSITIES // n**2)
    if m < FEWEST:
        return None, []
    member_of = dict(zip(graph.labels, graph.components, strict=True))
    component = np.array([member_of[name] for name in output.labels])
    rng = np.random.default_rng(seed)
    hits = 0
    for i, y in enumerate(released):
        mine, best, ties = own[i][:m], np.full(m, -np.inf), np.ones(m)
        near = 1e-9 * (1 + np.abs(mine))
        for j in np.flatnonzero((component == component[i]) & (np.arange(n) != i)):
            density = claim.log_densities(int(j), y[:m])
            best = np.maximum(best, density)
            ties += np.abs(density - mine) <= near
        # Among labels that are equally likely the attacker guesses.
        hits += int(((best <= mine + near) & (rng.random(m) * ties < 1.0)).sum())
    risk = identification_risk(output, graph, confidence=1 - error / 2, seed=seed)
    total = n * m
    low, high = (float(f(hits, total, error / 4)) for f in (lower_bound, upper_bound))
    naming = Naming(hits / total, low, high, risk.success, risk.success_upper, risk.prior_success, total)
    if low <= risk.success_upper:
        return naming, []
    facts = {"named at least": low, "promised": risk.success_upper, "hits": f"{hits} of {total}"}
    return naming, [Finding("identification", (), facts)]
