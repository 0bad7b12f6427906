"""The preview of noisy crowds says what the plan would, and compiles nothing for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shoal
from shoal.readings.plan import expected_errors

PREVIEW = """
import sys
from numba.core import event
from shoal.product.card.facts import FitFacts
from shoal.product.card.statements import would_protect

class Heard(event.Listener):
    def on_start(self, one): print("compiled")
    def on_end(self, one): pass

event.register("numba:compile", Heard())
print("by about" in would_protect(FitFacts("", 60, 5, 5, 12, 12), 0.4))
print(any(name.startswith("shoal.accounting.tails") and sys.modules[name].log_delta.signatures for name in sys.modules))
"""


@pytest.mark.parametrize("customers", [2, 60, 486, 3000, 100_000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_expected_errors_are_those_of_the_plan(customers: int, epsilon: float) -> None:
    plan = shoal.noisy_crowds_plan(customers, epsilon, typical_kw=1.5)
    stated = (plan.expected_w1, plan.expected_total)
    errors = expected_errors(customers, epsilon, typical_kw=1.5)
    assert errors == pytest.approx(stated, rel=0.01)  # a last digit may round otherwise


def test_the_sentence_about_the_other_promise_uses_no_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", PREVIEW], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
