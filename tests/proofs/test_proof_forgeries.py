"""Nothing that is false, or not shown, is confirmed: forged proofs one by one, and mutants by the thousand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from forgeries import Case, faults, honest, trial

from shoal.proofs import checker

SMALL = (1e-300).hex()
CASES = {case.name: case for case in honest()}


def checked(case: Case, **changes: Any) -> str:
    proof = {**json.loads(case.proof), **changes}
    return checker.check(checker.parsed(json.dumps(proof).encode()), case.content)


@pytest.mark.parametrize("name", CASES)
def test_honest_proofs_are_confirmed_and_the_judge_agrees(name: str) -> None:
    case = CASES[name]
    assert faults(case, checked(case)) == []


def test_mutants_that_are_false_are_refused() -> None:
    outcome = trial(1, 300)
    assert outcome.wrong == []
    assert outcome.refused > 200


@pytest.mark.slow
def test_twenty_thousand_mutants_that_are_false_are_refused() -> None:
    outcome = trial(2, 20_000)
    assert outcome.wrong == []
    assert outcome.refused > 15_000
