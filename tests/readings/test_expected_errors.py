"""The sentence about the other promise comes from a plan, and compiles nothing for it."""

from __future__ import annotations

import subprocess
import sys

PREVIEW = """
import sys
from numba.core import event
from shoal.product.card.facts import FitFacts
from shoal.product.card.statements import readings_offer

class Heard(event.Listener):
    def on_start(self, one): print("compiled")
    def on_end(self, one): pass

event.register("numba:compile", Heard())
print("by about" in readings_offer(FitFacts("", 60, 5, 5, 12, 12), 0.4))
tails = sys.modules.get("shoal.accounting.tails")
print(any(getattr(one, "signatures", None) for one in vars(tails or object).values()))
"""


def test_the_sentence_about_the_other_promise_uses_no_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", PREVIEW], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
