"""Certified upper ends against proofs that the checker confirmed, a few seeds of every family. The full campaign is
``python -m benchmarks.safety``."""

from __future__ import annotations

import pytest

import campaign
from shoal.accounting.curve import edge_brackets

#: Families of many entries, which the checker takes long to follow.
WIDE = ("full rank, k ≤ 24", "full rank, k ≤ 60", "clustered eigenvalues, k > 25", "nearly equal")
SEEDS = {"designs, every method": 7, "entries given out": 7}


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.slow) if name in WIDE else name for name in campaign.FAMILIES]
)
def test_no_upper_end_below_what_is_proved(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "COUNT", 2)
    checks = 0
    for seed in range(SEEDS.get(family, 1)):
        tally = campaign.run(family, seed)
        assert not tally.violations, (seed, tally.violations[:3])
        assert not tally.false_lower, (seed, tally.false_lower[:3])
        assert not tally.crashes, (seed, tally.crashes[:3])
        checks += tally.checks + tally.refused
    assert checks


def test_an_upper_end_that_is_too_small_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign would find a bracket whose upper end lies one part in a billion below the truth."""
    exact = edge_brackets

    def lower(*arguments: object, **options: object) -> object:
        found = exact(*arguments, **options)  # type: ignore[arg-type]
        found[..., 2] -= 1e-9
        return found

    monkeypatch.setattr(campaign, "edge_brackets", lower)
    assert campaign.run("constants behind noise", 0).violations
