"""The promise in words: one sentence, the same on every page, and true of the figures beside it."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from pathlib import Path

import mpmath
import pytest
from card_cases import card_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import shoal
from shoal.product.card.promises import SENTENCES, delta_sentence, exp_epsilon
from shoal.product.card.render import owner_report, public_page, summary

ROOT = Path(__file__).parents[2]
#: Scope -> its sentence with the two figures to be read.
READ = {
    scope: re.compile(
        re.escape(said).replace(r"\{factor\}", r"(?:(\S+) times )?").replace(r"\{delta\}\.", r"(\S+)\.(?=\s|$)")
    )
    for scope, said in SENTENCES.items()
}
#: What hockey-stick δ does not say, in the words in which it has been said.
FALSE = re.compile(
    r"(not\*? )?(the probability that an answer \w+|changes? (the|anyone's) odds|factor of at most|"
    r"but for a (probability|part)|except with probability (δ|\{claim))",
)


def words(path: str) -> str:
    """A page as running text."""
    return " ".join((ROOT / path).read_text(encoding="utf-8").replace("\n> ", " ").split())


def figures(text: str, scope: str = "answer") -> tuple[Decimal, Decimal]:
    """The factor and δ that a text promises, exactly as printed."""
    found = READ[scope].search(" ".join(text.split()))
    assert found is not None
    return Decimal(found[1] or 1), Decimal(found[2])


@pytest.fixture(scope="module")
def mechanism() -> shoal.Mechanism:
    """Two constants under equal noise: Pr(L > ε) has a closed form."""
    classes = shoal.GaussianClasses.deterministic([[0.0, 0.0], [0.3, 0.4]], labels=["ada", "ben"])
    return shoal.calibrate(classes, shoal.NeighborGraph.complete(classes.labels), "white", 0.7, 1e-5)


@pytest.mark.parametrize(
    ("page", "multiple", "delta", "scope"),
    [
        ("docs/promise.md", "e^ε times ", "δ", "answer"),
        ("docs/promise.md", "e^ε times ", "δ", "table"),
        ("docs/howto.md", "e^ε times ", "δ", "answer"),
        ("README.md", "e^ε times ", "δ", "answer"),
        ("docs/faq.md", f"{exp_epsilon(1.0)} times ", "δ", "table"),
    ],
)
def test_the_documents_say_the_sentence(page: str, multiple: str, delta: str, scope: str) -> None:
    assert SENTENCES[scope].format(factor=multiple, delta=delta).lower() in words(page).lower()


def test_no_page_says_more_than_delta_does() -> None:
    code = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("templates/*")]
    sources = [*code, *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    told = {
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in sources
        for found in FALSE.finditer(" ".join(path.read_text(encoding="utf-8").split()))
        if found[1] is None
    }
    assert told == set()


def test_everything_printed_says_the_sentence_with_figures_on_the_safe_side(mechanism: shoal.Mechanism) -> None:
    card = card_of(mechanism, noun="household")
    claim = card.to_dict()["guarantee"]
    sentence = delta_sentence(claim["epsilon"], f"{claim['delta']:.4g}")
    said = " ".join(line for _, lines in summary(card, verbose=True) for line in lines)
    for text in (card.to_markdown(), public_page(card), owner_report(card), said):
        assert sentence in text
        multiple, delta = figures(text)
        assert multiple >= Decimal(mpmath.nstr(mpmath.exp(mechanism.epsilon.max()), 25))
        assert delta >= Decimal(mechanism.certificate.delta_upper)


def test_the_sentence_is_true_where_the_odds_are_not_bounded(mechanism: shoal.Mechanism) -> None:
    """The event that tells the two labels apart best at ε, with its exact probabilities."""
    card = card_of(mechanism)
    multiple, delta = (float(number) for number in figures(card.to_markdown()))
    gap = 0.5 / math.sqrt(mechanism.noise_cov[0, 0, 0])
    epsilon = float(mechanism.epsilon.max())
    likely, rarely = ndtr(gap / 2 - epsilon / gap), ndtr(-gap / 2 - epsilon / gap)
    assert likely <= multiple * rarely + delta
    assert likely > 10 * delta  # the odds move by more than e^ε far more often than δ


def test_no_promise_without_a_meaningful_guarantee() -> None:
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["ada", "ben"])
    card = card_of(shoal.design(classes, shoal.NeighborGraph.complete(classes.labels), "white", 1.0, 0.1))
    assert not card.meaningful
    for said in READ.values():
        assert said.search(" ".join(card.to_markdown().split())) is None


@settings(derandomize=True, max_examples=300)
@given(st.floats(0.0, 1e4))
@example(0.0)
@example(5e-324)
@example(math.log(2.0))
@example(710.0)
def test_the_factor_is_rounded_up(epsilon: float) -> None:
    with mpmath.workdps(60):
        stated, exact = mpmath.mpf(exp_epsilon(epsilon)), mpmath.exp(mpmath.mpf(epsilon))
        assert exact <= stated <= exact * mpmath.mpf("1.0101")
    assert ("times" in delta_sentence(epsilon, "1e-06")) == (epsilon > 0)
